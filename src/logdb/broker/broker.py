"""The broker: the local session, which carries out requests on a store.

It routes a request to the shard of its group or transactional id, or to a log.  The rules of groups and transactions are the
coordinators'.

Threading: all methods, from any thread.  An event is handled in the thread that brings it; timers have a thread of their own,
which starts with the first timer.
"""

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from logdb.broker.async_waiting import Waits
from logdb.broker.dangling_transactions import DanglingTransactions
from logdb.broker.gaps import Gaps
from logdb.broker.local_peers import LocalPeers
from logdb.broker.runner import Shard, fire, tickets
from logdb.broker.shards import Shards
from logdb.broker.timers import Timers
from logdb.broker.transaction_peers import TransactionPeers, leader_address
from logdb.broker.waiting import Awaited, commit, wait_for_any
from logdb.broker.watch import Events, PolledEvents
from logdb.codec.batch import producer_ids, transactional_producers
from logdb.coordinator.effects import Action, Reply, Submitted, SyncPartitions, WriteMarkers
from logdb.coordinator.group_coordinator import GroupCoordinator, TopicsDeleted
from logdb.coordinator.groups import GroupConfig
from logdb.coordinator.member_memory import MemberMemory
from logdb.coordinator.transaction_coordinator import TransactionCoordinator
from logdb.coordinator.transactions import TransactionConfig
from logdb.errors import (
    CoordinatorLoading,
    InvalidConfig,
    InvalidPartitions,
    InvalidProducer,
    InvalidTopic,
    InvalidTransactionState,
    LogdbError,
    MetadataTimeout,
    NotCoordinator,
    NotLeaderOrFollower,
    PolicyViolation,
    ServerUnavailable,
    TopicDeleted,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
    without_frames,
)
from logdb.handles import Handle
from logdb.io import IO
from logdb.log.protocols import ReplicaLog
from logdb.model import (
    INTERNAL_TOPICS,
    MIRROR_OF,
    REASSIGNMENT_RATES,
    SERVED_TOPIC_DEFAULTS,
    TABLE_HISTORY,
    TABLE_SCHEMA,
    Buffer,
    Changes,
    ClusterEvent,
    ConfigValue,
    Durability,
    KnownLog,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    SchemaEnds,
    SchemaEndsNeeded,
    TopicEvent,
    TopicInfo,
    TopicPartition,
    parse_rate,
)
from logdb.requests import topics as requests
from logdb.requests.cluster import CommittedEnd, EndMirroredTransactions, FindDecision, WillEndTransaction, WriteTransactionMarker
from logdb.requests.groups import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupInfo,
    Groups,
    GroupSummary,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from logdb.requests.nodes import ClusterNodes, PartitionState
from logdb.requests.records import Log, Produce
from logdb.requests.replicas import DescribeQuorum, ElectLeaders, Reassign, Reassignments
from logdb.requests.report import Report
from logdb.requests.session import Session
from logdb.requests.topic_changes import (
    AlterConfigs,
    AlterTopic,
    CheckNewTopic,
    CheckPartitions,
    CheckTopicConfigs,
    Config,
    CreateTopic,
    DeleteTopic,
)
from logdb.requests.topics import (
    Backup,
    Compact,
    DeleteRecords,
    DescribeAtRest,
    DescribeConfigs,
    DescribeTopic,
    EnforceRetention,
    Flush,
    PartitionCount,
    PartitionSizes,
    Reports,
    Topics,
    Verify,
    Wait,
)
from logdb.requests.transactions import (
    AbortTransaction,
    AddOffsets,
    AddPartitions,
    CommitTransactionOffsets,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    TransactionInfo,
    Transactions,
)
from logdb.store.protocols import Metadata, Replication, Storage
from logdb.threads import renewed

if TYPE_CHECKING:
    from logdb.broker.cluster_peers import ClusterPeers, OtherNodes
    from logdb.requests.request import Request

A = TypeVar("A")
_OFFSETS, _TRANSACTIONS = INTERNAL_TOPICS
_INTERNAL = "logdb alone writes to it"
_LOOK_INTERVAL_MS = 100
_METADATA_WAIT_S, _LOOK_S = 10.0, 0.02
_ENDS_TRIES = 5
_ENDS_ASKED_COUNT = 16  # partitions at once: after one that fails, no others are asked
_PRODUCER_ID_COUNT = 1_000  # reserved at once; a close loses those that are left


class Broker(Handle, Session):
    """The local session on a store; ``requests.session.Session`` says what each call does.

    ``_STEPS`` names the method that carries a request out.

    ==================== ================== ====================== ==========================================================
    field                changed by         under                  to be trusted
    ==================== ================== ====================== ==========================================================
    ``is_replicated``    nothing            none                   always: the metadata is a cluster's, other nodes have partitions
    ``_groups``,         ``Shards``         their own locks        always; a shard is loaded at its first use, or by
    ``_transactions``                                              ``load_coordinator``
    ``_peers``           nothing            none                   always; on a single node every call ends in this process
    ``dangling``         its owner          its own locks          always; ``start`` ends what an unclean stop left open
    ``_producer_ids``    new producers      ``_producer_ids_lock`` always; the rest of a block is lost at a close
    ``_served_defaults``, ``serve_topics``  none                   for topics that are created after that
    ``_told_defaults``
    ``events``           the metadata       its own lock           once a change is durable
    ``replication``      nothing            none                   always; None: the node is on its own, and leads all
    ==================== ================== ====================== ==========================================================
    """

    def __init__(
        self,
        storage: Storage,
        metadata: Metadata,
        *,
        group_config: GroupConfig | None = None,
        transaction_config: TransactionConfig | None = None,
        replication: Replication | None = None,
        nodes: "OtherNodes | None" = None,
    ) -> None:
        """Begin with no shard loaded.

        Args:
            storage: The partitions that this node has.
            metadata: The topics; on a single node those of the same store.
            replication: Of a cluster's node: which of its replicas lead.
            nodes: The cluster of which this is a node.
        """
        self._store, self.metadata, self._owner = storage, metadata, os.getpid()
        self.replication = replication
        self.is_replicated = metadata is not cast("object", storage)
        self._group_config = group_config or GroupConfig()
        self._transaction_config = transaction_config or TransactionConfig(defer_additions=True)
        self._member_memory = MemberMemory(self._group_config.member_bytes_max)
        self._timers = Timers(storage.io, fire)
        timers = None if self.is_replicated else self._timers
        self._groups = Shards(storage, metadata, _OFFSETS, self._group_coordinator, timers=timers, execute=self._execute)
        self._transactions = Shards(
            storage,
            metadata,
            _TRANSACTIONS,
            self._transaction_coordinator,
            timers=timers,
            execute=self._execute,
            while_appending=storage.transaction_lock,
        )
        peers = LocalPeers(storage, self._groups, self._transactions)
        self._local_peers, self.nodes = peers, nodes
        self._peers: TransactionPeers = peers if nodes is None else _of_cluster(peers, replication, metadata, nodes)
        self._markers = peers.markers
        self.dangling = DanglingTransactions(storage, self._peers, self._markers)
        if storage.mode == "a":
            metadata.listen(self.dangling.forget)
            if self.is_replicated:
                metadata.listen(self._forget_offsets)
        storage.complete_transactions_by(self._complete_transactions, self._has_partial_markers)
        self._served_defaults: Config = {}  # configs that topics created through a server get unless their request sets them
        self._told_defaults: Config = {}  # the part of them that is an option of the server
        self._producer_ids: Iterable[int] = iter(())
        self._producer_ids_lock = renewed(threading.Lock())
        self.gaps = Gaps()
        self.events = _events_of(metadata, nodes, is_writer=storage.mode == "a")

    def _complete_transactions(self) -> None:
        """End dangling transactions, and write the markers of those that are decided.

        Raises:
            LogdbError, OSError: A transaction that is open cannot be ended.
        """
        if not self.is_replicated:  # else nothing is lost of a transaction that its coordinator has
            self.dangling.end_all()
            self._markers.finish()
        self._transactions.finish()

    def _has_partial_markers(self) -> bool:
        """As ``MarkerWriter.has_partial_markers``; a copy of a cluster's node has only the node's part of a transaction in any case."""
        return not self.is_replicated and self._markers.has_partial_markers()

    def close(self) -> None:
        """End the threads and answer the waiting requests; the store's owner closes the store afterwards."""
        if os.getpid() != self._owner:
            return  # a forked child has neither the threads nor waiting requests
        self.events.close()
        self._groups.stop_waiting()
        self._transactions.stop_waiting()
        self.dangling.stop()
        self._timers.stop()
        self._transactions.finish()
        self._groups.end()
        self._transactions.end()
        self._markers.close()

    def submit(self, request: "Request[A]", **caller: Any) -> A:
        """Carry out a request; ``caller`` holds the arguments that its method takes beside the fields, about the caller."""
        answer: A = _STEPS[type(request)](self, request, **caller)
        return answer

    # ------------------------------------------------------------ topics and logs

    @property
    def directory(self) -> str:
        """The directory of the store."""
        return self._store.path

    def _verify(self, _: Verify) -> Report:
        from logdb.store.check.verify import verify  # few programs need it

        return verify(self._store.path, io=self._store.io)

    @property
    def io(self) -> IO:
        return self._store.io

    @property
    def clock(self) -> Callable[[], int] | None:
        return self._store.clock

    @property
    def closed(self) -> bool:
        return self._store.closed

    @property
    def look_interval_ms_max(self) -> int:
        """See ``Session``; here a look costs microseconds."""
        return _LOOK_INTERVAL_MS

    @property
    def topic_change_count(self) -> int | None:
        self._store.check_open()
        return self.events.count if self._store.mode == "a" else None

    def check_open(self, *, writable: bool = False) -> None:
        self._store.check_open(writable=writable)

    def _new_topic(self, request: CreateTopic | CheckNewTopic, **caller: Callable[[], None]) -> TopicInfo:
        return self.metadata.submit(replace(request, config=self._of_new(request.config)), **caller)

    def serve_topics(self, told: Config) -> None:
        """Serve: a created topic gets its configs from its request, else from ``told``, else from ``SERVED_TOPIC_DEFAULTS``."""
        self._served_defaults, self._told_defaults = {**SERVED_TOPIC_DEFAULTS, **told}, told

    def _of_new(self, config: Config | None) -> Config:
        """The configs of a topic that is created with ``config``; a value of None asks for the server's option, or for no config."""
        given = config or {}
        return {**self._served_defaults, **given, **{key: self._told_defaults.get(key) for key, value in given.items() if value is None}}

    def _alter_configs(self, request: AlterConfigs) -> None:
        name = request.name
        if name is None:
            self._alter_node(request.config, replace=request.replace, validate_only=request.validate_only)
            return
        is_of_mirror = not request.validate_only and (MIRROR_OF in request.config or (request.replace and self._is_mirror(name)))
        self._with_schema_ends(
            name, request.config, lambda config: self.metadata.submit(replace(request, config=config)), replaced=request.replace
        )
        if is_of_mirror:
            self._end_mirrored(name)

    def _alter_node(self, config: Mapping[str, object], *, replace: bool, validate_only: bool) -> None:
        """Change the rate of reassignments, by one of its names or both; the node's other configs are its options at the start."""
        may_be_set = REASSIGNMENT_RATES if self.is_replicated else ()
        if fixed := [key for key, value in config.items() if key not in (REASSIGNMENT_RATES if value is None else may_be_set)]:
            raise PolicyViolation(f"{', '.join(fixed)}: the configs of the node are its options at the start")
        rates = {key: None if value is None else parse_rate(key, value) for key, value in config.items()}
        if len(set(rates.values())) > 1:
            raise InvalidConfig(*next(iter(config.items())), f"{' and '.join(rates)} are one rate here, so that they have one value")
        if not validate_only and (rates or replace):
            self.metadata.limit_reassignments(next(iter(rates.values()), None))

    def _alter_topic(self, request: AlterTopic, **caller: Callable[[], None]) -> TopicInfo:
        if request.partitions is not None:
            self._check_may_grow(request.name, request.partitions)
        given = request.config or {}
        info = self._with_schema_ends(
            request.name, given, lambda config: self.metadata.submit(replace(request, config=config or None), **caller)
        )
        if MIRROR_OF in given:
            self._end_mirrored(request.name)
        return info

    def _check_configs(self, request: CheckTopicConfigs) -> None:
        self._with_schema_ends(request.name, request.config, lambda config: self.metadata.submit(replace(request, config=config)))

    def _with_schema_ends(
        self, name: str, config: Mapping[str, Any], change: Callable[[Mapping[str, Any]], A], *, replaced: bool = False
    ) -> A:
        """Change a topic's configs; where that changes the schema of the values, with the ends of the partitions.

        ``store.topics.changed_config`` decides whether it does, from the configs that the change replaces.

        Raises:
            MetadataTimeout: Others change the topic all the time.
        """
        if not (replaced or TABLE_SCHEMA in config):
            return change(config)
        given = (config[TABLE_HISTORY],) if TABLE_HISTORY in config else ()
        known = SchemaEnds(given)
        for _ in range(1 + _ENDS_TRIES):
            try:
                return change({**config, TABLE_HISTORY: known})
            except SchemaEndsNeeded as needed:
                known = SchemaEnds(given, needed.former, self._ends(name))
        raise MetadataTimeout(f"the configs of topic {name!r} are as they were: others change its schema or partitions; try again")

    def _ends(self, name: str) -> dict[int, int]:
        """Where the logs of a topic end, by partition, with all records below durable; raises if one cannot be asked."""
        numbers = range(self.metadata.topic(name).partition_count)
        if self.nodes is None:
            return {number: _durable_end(self.served_log(name, number)) for number in numbers}
        for number in numbers:
            if (state := self.metadata.partition_state(name, number)).leader is None:
                raise NotLeaderOrFollower(name, number, None, state.leader_epoch)
        ends = {}
        for first in range(0, len(numbers), _ENDS_ASKED_COUNT):
            asked = {number: CommittedEnd(TopicPartition(name, number)) for number in numbers[first : first + _ENDS_ASKED_COUNT]}
            answers = self.nodes.ask(asked, {number: leader_address(self.metadata, one.leader_of) for number, one in asked.items()})
            for number, answer in answers.items():
                if isinstance(answer, LogdbError):
                    raise answer
                ends[number] = answer
        return ends

    def _check_partitions(self, request: CheckPartitions) -> None:
        self._check_may_grow(request.name, request.partitions)
        self.metadata.submit(request)

    def _check_may_grow(self, name: str, partitions: int) -> None:
        if name in INTERNAL_TOPICS:
            raise InvalidPartitions(name, partitions, "the partition of a group or transactional id depends on their number")

    def _is_mirror(self, name: str) -> bool:
        return bool(self.metadata.topic(name).config.get(MIRROR_OF))

    def _end_mirrored(self, name: str) -> None:
        """Of a topic that is a mirror no more: end what was begun to copy.

        Raises:
            LogdbError: A partition's leader did not.  The config is altered; its deletion once more tries again.
        """
        if self._is_mirror(name):
            return
        partitions = [TopicPartition(name, number) for number in range(self.metadata.topic(name).partition_count)]
        if self.nodes is None:
            for where in partitions:
                self.served_log(*where)  # a use of a log ends them
            return
        asked = {where: EndMirroredTransactions(where) for where in partitions}
        answers = self.nodes.ask(asked, {where: leader_address(self.metadata, where) for where in asked})
        for answer in answers.values():
            if isinstance(answer, LogdbError):
                raise answer

    def _delete_records(self, request: DeleteRecords) -> int:
        if self.is_replicated or self.replication is not None:
            self.served_log(request.topic, request.partition)  # its leader deletes them
        return self._store.submit(request)

    def _of_store(self, request: "Request[A]") -> A:
        """Let the store carry a request out."""
        return self._store.submit(request)

    def _describe_topic(self, request: DescribeTopic | DescribeAtRest) -> TopicInfo:
        """A topic with the leaders and replicas of its partitions."""
        info = self._store.submit(request)
        if not self.is_replicated:
            return info
        partitions = [
            one._replace(leader=state.leader, leader_epoch=state.leader_epoch, replicas=state.replicas, in_sync=state.in_sync)
            for one, state in zip(info.partitions, self.placement(info), strict=True)
        ]
        return info._replace(partitions=tuple(partitions))

    def _cluster_nodes(self, _: requests.ClusterNodes) -> ClusterNodes:
        if not self.is_replicated:
            return ClusterNodes((), {}, database_id=self.metadata.database_id)
        brokers = self.metadata.brokers()
        serving = tuple(broker.node_id for broker in brokers if not broker.fenced)
        found = ((broker.node_id, broker.address("kafka") or broker.address("http")) for broker in brokers)
        addresses = tuple((node_id, address) for node_id, address in found if address is not None)
        partitions: dict[TopicPartition, PartitionState] = {}
        for info in self.topics(internal=True):
            with contextlib.suppress(UnknownTopic, UnknownPartition):  # it was deleted meanwhile
                partitions |= {TopicPartition(info.name, number): state for number, state in enumerate(self.placement(info))}
        return ClusterNodes(serving, partitions, addresses, self.metadata.database_id)

    def placement(self, info: TopicInfo) -> list[PartitionState]:
        """The leader, the replicas and the in-sync set of each partition; a single node opens no log for it, and leaves out an epoch."""
        if self.is_replicated:
            return [self.metadata.partition_state(info.name, partition) for partition in range(info.partition_count)]
        node, epochs = self.metadata.node_id, {one.partition: one.leader_epoch for one in info.partitions}
        return [PartitionState(node, epochs.get(partition, -1), (node,), (node,)) for partition in range(info.partition_count)]

    def _describe_configs(self, request: DescribeConfigs) -> Mapping[str, ConfigValue]:
        if request.name is None:
            rate = self.metadata.reassignment_bytes_per_s
            return {
                "broker.id": self.metadata.node_id,
                "default.replication.factor": self.metadata.default_replication_factor,
                "log.dirs": self.directory,
                **self._store.cleaner_configs,
                **({} if rate is None else dict.fromkeys(REASSIGNMENT_RATES, rate)),
            }
        return dict(self.metadata.topic(request.name).config)

    def _partition_sizes(self, request: PartitionSizes) -> dict[TopicPartition, int]:
        """Of the partitions that this node has a replica of."""
        sizes: dict[TopicPartition, int] = {}
        for name in self.metadata.topic_names() if request.topics is None else request.topics:
            with contextlib.suppress(UnknownTopic):  # it was deleted meanwhile
                partitions = self.describe_topic(name).partitions
                here = (one for one in partitions if self.metadata.node_id in one.replicas)
                sizes |= {TopicPartition(name, one.partition): one.disk_bytes or 0 for one in here}
        return sizes

    def _of_metadata(self, request: "Request[A]") -> A:
        """Let the metadata carry a request out."""
        return self.metadata.submit(request)

    def _reassignments(self, request: Reassignments) -> dict[TopicPartition, PartitionState]:
        if not self.is_replicated:
            return {}
        names, partitions = set(self.metadata.topic_names()), request.partitions
        if partitions is None:
            partitions = tuple(
                TopicPartition(one.name, number) for one in self.topics(internal=True) for number in range(one.partition_count)
            )
        found: dict[TopicPartition, PartitionState] = {}
        for where in partitions:
            with contextlib.suppress(UnknownTopic, UnknownPartition):
                if where.topic in names and (state := self.metadata.partition_state(*where)).target:
                    found[where] = state
        return found

    def _partition_count(self, request: PartitionCount) -> int:
        return self.metadata.topic(request.topic).partition_count

    def _log(self, request: Log) -> ReplicaLog:
        return self.served_log(request.topic, request.partition)

    def served_log(self, topic: str, partition: int = 0) -> ReplicaLog:
        """The log of a partition that this node leads; each Produce and Fetch asks for it, so it takes no request."""
        if self.replication is not None:
            return self.replication.leads(topic, partition).log
        log = self._store.open_log(topic, partition)
        if self._store.mode == "a" and not self.is_replicated and (topic, partition) not in self.dangling.ended:
            self.dangling.end(log)
        return log

    def log_in_use(self, topic: str, partition: int) -> ReplicaLog:
        """As ``served_log``, of one that was used a moment ago."""
        return (self._open_log(TopicPartition(topic, partition)) if self.replication is None else None) or self.served_log(topic, partition)

    def _delete_topic(self, request: DeleteTopic) -> None:
        """Delete a topic, and the committed offsets of its partitions.

        In a cluster each node drops the offsets of its groups when it learns of the deletion, before any later request to them.
        """
        name = request.name
        if name in INTERNAL_TOPICS:
            raise InvalidTopic(name, "logdb keeps its groups and transactions in it")
        self._transactions.finish()  # else a new topic of that name could get the markers of this one after a crash
        if self.is_replicated:
            self.metadata.submit(request)
            return
        self._groups.for_each(Shard.load)  # a shard that cannot be loaded prevents the deletion
        self.metadata.submit(request)
        self._groups.for_each(lambda shard: shard.handle(TopicsDeleted(topics=frozenset((name,)))))

    def _forget_offsets(self, event: TopicEvent | ClusterEvent) -> None:
        """On a cluster's node: a topic was deleted."""
        if isinstance(event, TopicEvent) and event.kind == "topic_deleted":
            topics = frozenset((event.topic.name,))
            self._groups.post(lambda shard: TopicsDeleted(topics=topics, before_offset=shard.log.end_offset))

    def _wait(self, request: Wait) -> bool:
        storage, positions = self._store, request.positions
        return wait_for_any(
            [Awaited(self.served_log(*where), offset, request.known.get(where, KnownLog())) for where, offset in positions.items()],
            request.timeout_ms,
            isolation_level=request.isolation_level,
            io=storage.io,
            lingers_ms=storage.linger_ms if storage.mode == "a" else None,
            check=lambda: [storage.open_log(*partition) for partition in positions],
        )

    def _changes(self, request: requests.Changes) -> Changes:
        self._store.check_open()
        return self.events.wait(request.position, request.timeout_ms, count_max=request.count_max, io=self._store.io)

    def waits(self) -> Waits:
        """The waits for records on the running event loop; a wait holds no thread."""
        return Waits(self.served_log, self._replica_log, lingers_ms=self._store.linger_ms if self._store.mode == "a" else None)

    def _replica_log(self, topic: str, partition: int) -> ReplicaLog:
        return self.served_log(topic, partition) if self.replication is None else self.replication.replica(topic, partition).log

    # ------------------------------------------------------------ producing

    def appends_at_once(self, topic: str, partition: int, durability: Durability | None = None) -> bool:
        """Whether an append at that level, None: the topic's, waits for no disk: the log is open, and the level is below fsync.

        The first use of a log with a dangling transaction writes markers.
        """
        log = self._open_log(TopicPartition(topic, partition))
        if self.replication is not None:
            return log is not None and not log.fsync_only
        if log is None or ((topic, partition) not in self.dangling.ended and log.open_transactions()):
            return False
        return (durability or log.durability) != "fsync" and not log.fsync_only

    def log_at_once(self, where: TopicPartition, durability: Durability | None = None) -> ReplicaLog | None:
        """The log of a partition, if clients have appended to it here, and an append at that level waits for no disk; without a cluster.

        None, too, while batches of a producer may be missing.
        """
        if self.replication is not None or where not in self.dangling.ended or where.topic in INTERNAL_TOPICS:
            return None
        log = self._open_log(where)
        if log is None or log.fsync_only or (durability or log.durability) == "fsync":
            return None
        return None if self.gaps.are_possible(where, self._store.io.monotonic_ms()) else log

    def is_at_end(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a log that is in use ends at ``offset``, or before it; False also for one whose use may wait for a disk."""
        log = self._open_log(TopicPartition(topic, partition))
        if self.replication is not None:
            return log is not None and offset >= log.end_offset
        if log is None or ((topic, partition) not in self.dangling.ended and log.open_transactions()):
            return False
        return offset >= log.end_offset

    def _open_log(self, where: TopicPartition) -> ReplicaLog | None:
        """The log of a partition, if it is open to write."""
        return self._store.open_logs.get(where) if self._store.mode == "a" else None

    def submit_batches(self, request: Produce, batches: Buffer, *, verify_only: bool = False, topic_id: str = "") -> range:
        """As ``Session.submit_batches``.

        Args:
            verify_only: The partition has to be part of the transaction already (KIP-890).
            topic_id: Of the topic that the client means; "": of any topic of that name.
        """
        topic, where, transactional_id = request.topic, TopicPartition(request.topic, request.partition), request.transactional_id
        log = self.served_log(*where)
        if topic_id not in {"", log.topic_id}:
            raise TopicDeleted(topic, topic_id, log.topic_id)
        durability = request.durability if self.replication is None else _replicated(request.durability)
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(topic, _INTERNAL)
        if request.mirrored:
            try:
                return log.mirror_append(batches, durability=durability)
            finally:
                self.dangling.copied(where)
        verified: dict[int, object] | None = None
        for producer in transactional_producers(batches):
            if transactional_id is None:
                raise InvalidTransactionState(f"a transactional batch of producer {producer.producer_id} without its transactional id")
            verified = {**(verified or {}), producer.producer_id: log.verification(producer.producer_id)}
            self._add_own(AddPartitions(transactional_id, producer, (where,), verify_only))
        return self._append(log, batches, expected_offset=request.expected_offset, durability=durability, verified=verified)

    def _append(self, log: ReplicaLog, batches: Buffer, **options: Any) -> range:
        """Append batches of producers; in a cluster the leadership says what they are told of a refusal."""
        where, now_ms = TopicPartition(log.topic, log.partition), self._store.io.monotonic_ms()
        leadership = None if self.replication is None else self.replication.leads(*where)
        is_new = leadership is not None and leadership.is_new(now_ms)
        if is_new or self.gaps.are_possible(where, now_ms):
            self.gaps.check_begin(log, batches, now_ms, is_new=is_new)
        if leadership is None:
            return log.append_batches(batches, **options)
        try:
            return log.append_batches(batches, **options)
        except LogdbError as error:
            leadership.refused(error, producer_ids(batches), self._store.io.monotonic_ms())
            raise

    def produce_many(self, batches: Mapping[TopicPartition, Buffer], *, transactional_id: str) -> dict[TopicPartition, range | LogdbError]:
        """As ``Session.produce_many``; all partitions are added to the transaction at once."""
        answers: dict[TopicPartition, range | LogdbError] = {}
        durability = None if self.replication is None else _replicated(None)
        logs: dict[TopicPartition, ReplicaLog] = {}
        added: dict[ProducerIdAndEpoch, set[TopicPartition]] = {}
        verified: dict[TopicPartition, dict[int, object]] = {}
        for partition, image in batches.items():
            try:
                logs[partition] = self.served_log(*partition)
                if partition.topic in INTERNAL_TOPICS:
                    raise InvalidTopic(partition.topic, _INTERNAL)
                for producer in transactional_producers(image):
                    added.setdefault(producer, set()).add(partition)
                    verified.setdefault(partition, {})[producer.producer_id] = logs[partition].verification(producer.producer_id)
            except LogdbError as error:
                answers[partition] = without_frames(error)
        for producer, partitions in added.items():
            try:
                self._add_own(AddPartitions(transactional_id, producer, tuple(partitions)))
            except LogdbError as error:
                answers |= dict.fromkeys(partitions, without_frames(error))
        for partition, log in logs.items():
            if partition not in answers:
                try:
                    answers[partition] = self._append(log, batches[partition], durability=durability, verified=verified.get(partition))
                except LogdbError as error:
                    answers[partition] = without_frames(error)
        return answers

    def _init_producer_id(self, request: InitProducerId) -> ProducerIdAndEpoch:
        if request.transactional_id is None:
            return ProducerIdAndEpoch(self._new_producer_id(), 0)
        given: ProducerIdAndEpoch = self._of_transaction(request)
        return given

    def _new_producer_id(self) -> int:
        with self._producer_ids_lock:
            for producer_id in self._producer_ids:
                return producer_id
            taken = iter(self.metadata.take_producer_ids(_PRODUCER_ID_COUNT))
            self._producer_ids = taken
            return next(taken)

    # ------------------------------------------------------------ transactions

    def _of_transaction(self, request: "InitProducerId | AddPartitions | EndTransaction | AbortTransaction") -> Any:
        """Let the coordinator of a transactional id carry a request out."""
        return self._transactions.of(request.transactional_id or "").call(Submitted(next(tickets), request))

    def _add_existing(self, request: AddPartitions) -> None:
        for partition in request.partitions:
            if self.is_replicated:
                self._check_partition(partition)
            else:
                self.served_log(*partition)  # it exists
        self._of_transaction(request)

    def _add_own(self, request: AddPartitions) -> None:
        """Add partitions that this node leads to a transaction, whose coordinator may be another node; or verify that they take part.

        Raises:
            CoordinatorLoading: No node coordinates it now.
        """
        try:
            self._of_transaction(request)
        except NotCoordinator as error:
            if self.nodes is None:
                raise
            try:
                self.nodes.submit(request)
            except (NotCoordinator, ServerUnavailable):
                raise CoordinatorLoading(error.topic, error.partition, error.leader_epoch) from None

    def _add_offsets(self, request: AddOffsets) -> None:
        partition = TopicPartition(_OFFSETS, self._groups.partition_of(request.group_id))
        self._add_own(AddPartitions(request.transactional_id, request.producer, (partition,)))

    def _commit_transaction_offsets(self, request: CommitTransactionOffsets) -> None:
        for partition in request.offsets:
            self._check_partition(partition, request.topic_ids.get(partition.topic))
        shard, producer = self._groups.of(request.group_id), request.producer
        verified = shard.query(lambda coordinator: coordinator.verification(producer.producer_id))
        group = (TopicPartition(_OFFSETS, shard.log.partition),)
        self._add_own(AddPartitions(request.transactional_id, producer, group, request.verify_only))
        shard.call(Submitted(next(tickets), request, verified))

    def _execute(self, action: Action) -> None:
        """Execute an action of a coordinator.

        Raises:
            LogdbError: A part of it failed; the rest was carried out.
        """
        match action:
            case SyncPartitions():
                self._peers.sync(action.partitions)
            case WriteMarkers():
                self._peers.write_markers(action)
                if action.last_epoch == action.producer.producer_epoch:
                    self._peers.sync(action.partitions)

    # ------------------------------------------------------------ groups

    def _of_group(self, request: "JoinGroup | SyncGroup | Heartbeat | LeaveGroup | CommitOffsets | DeleteGroup | DeleteOffsets") -> Any:
        """Let the coordinator of a group carry a request out."""
        shard, event = self._groups.of(request.group_id), Submitted(next(tickets), request)
        return _future(shard, event) if request.waits else shard.call(event)

    def _commit_offsets(self, request: CommitOffsets) -> "Future[None]":
        present, absence = self._present(request.offsets, request.topic_ids)
        future: Future[None] = self._of_group(request if absence is None else replace(request, offsets=present))
        return future if absence is None else _failing(future, absence)

    def _present(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], LogdbError | None]:
        """Offsets of existing partitions, and the error of the first that does not exist.

        Offsets of a deleted topic would belong to the next topic of its name.
        """
        present: dict[TopicPartition, OffsetAndMetadata] = {}
        absence: LogdbError | None = None
        for partition, offset in offsets.items():
            try:
                self._check_partition(partition, topic_ids.get(partition.topic))
            except TopicDeleted as error:
                absence = absence or error
            except UnknownTopic:
                absence = absence or UnknownTopic(partition.topic)  # the error of a future names no other topics
            except UnknownPartition as error:
                absence = absence or error
            else:
                present[partition] = offset
        return present, absence

    def _check_partition(self, partition: TopicPartition, topic_id: str | None = None) -> None:
        """Raise TopicDeleted, UnknownTopic, UnknownPartition unless it exists, in the topic with that id; None: in any."""
        log = self._store.open_logs.get(partition)
        if log is None:
            count = self.metadata.topic(partition.topic).partition_count
            if not 0 <= partition.partition < count:
                raise UnknownPartition(*partition, count)
        if topic_id is not None:
            current_id = self.metadata.topic(partition.topic).topic_id if log is None else log.topic_id
            if current_id != topic_id:
                raise TopicDeleted(partition.topic, topic_id, current_id)

    def _fetch_offsets(self, request: FetchOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
        shard = self._groups.find(request.group_id)
        if shard is None:
            return {}
        if self.replication is None:
            self.served_log(_OFFSETS, shard.log.partition)  # which ends its dangling transactions
        return shard.query(lambda coordinator: coordinator.fetch_offsets(request))

    # ------------------------------------------------------------ administration

    def _list_groups(self, _: Groups) -> list[GroupSummary]:
        listings = self._groups.for_each(lambda shard: shard.query(GroupCoordinator.groups))
        return sorted(summary for listing in listings for summary in listing)

    def _describe_group(self, request: DescribeGroup | DeleteGroup | DeleteOffsets) -> GroupInfo:
        shard = self._groups.find(request.group_id)
        if shard is None:
            raise UnknownGroup(request.group_id)
        return shard.query(lambda coordinator: coordinator.describe(request.group_id))

    def _delete_group(self, request: DeleteGroup) -> None:
        self._describe_group(request)
        self._of_group(request)

    def _delete_offsets(self, request: DeleteOffsets) -> None:
        self._describe_group(request)
        for error in self._of_group(request).values():
            raise error

    def _list_transactions(self, _: Transactions) -> list[TransactionInfo]:
        listings = self._transactions.for_each(lambda shard: shard.query(TransactionCoordinator.transactions))
        return sorted(info for listing in listings for info in listing)

    def _describe_transaction(self, request: DescribeTransaction | AbortTransaction) -> TransactionInfo:
        shard = self._transactions.find(request.transactional_id)
        if shard is None:
            raise InvalidProducer.unknown(request.transactional_id)
        return shard.query(lambda coordinator: coordinator.describe(request.transactional_id))

    def _abort_transaction(self, request: AbortTransaction) -> None:
        self._describe_transaction(request)
        self._of_transaction(request)

    # ------------------------------------------------------------ for other nodes of the cluster

    def _write_transaction_marker(self, request: WriteTransactionMarker) -> None:
        """Write a marker on a partition that this node leads; it is committed when this returns."""
        where = request.leader_of
        self.served_log(*where)  # this node leads it
        cast("ClusterPeers", self._peers).write_here(
            WriteMarkers("", request.producer, frozenset((where,)), request.commit, request.coordinator_epoch, request.last_epoch)
        )

    def _end_mirrored_transactions(self, request: EndMirroredTransactions) -> None:
        """On a partition that this node leads: end the transactions that no coordinator of this cluster has, those of a mirror's source.

        Raises:
            MetadataTimeout: This node still has the topic as a mirror.
        """
        where = request.leader_of
        leadership = cast("Replication", self.replication).leads(*where)
        log, until = leadership.log, time.monotonic() + _METADATA_WAIT_S
        while log.is_mirror:  # another node has altered it, and this one hears of it soon
            if time.monotonic() > until:
                raise MetadataTimeout(f"this node does not know yet that {where.topic} stopped being a mirror")
            time.sleep(_LOOK_S)
        self.dangling.end_now(log)
        commit(leadership, log.end_offset)

    def _committed_end(self, request: CommittedEnd) -> int:
        """Where the log of a partition ends that this node leads, once that is committed: an unclean election alone moves it back."""
        if self.replication is None:
            return _durable_end(self.served_log(*request.leader_of))
        leadership = self.replication.leads(*request.leader_of)
        leadership.check_append(acknowledged_by_all=False)  # another node may have become the leader, whose log goes on
        end_offset = leadership.log.end_offset
        commit(leadership, end_offset)
        return end_offset

    def _will_end_transaction(self, request: WillEndTransaction) -> bool:
        """``TransactionPeers.will_end``, as far as a partition of ``__transaction_state`` says that this node leads."""
        return self._local_peers.will_end_in(request.leader_of.partition, request.producer, request.partition)

    def _find_decision(self, request: FindDecision) -> tuple[ProducerIdAndEpoch, bool, int]:
        """``TransactionPeers.decision``, as far as a partition of ``__transaction_state`` says that this node leads."""
        decision = self._local_peers.decision_in(request.leader_of.partition, request.producer, request.partition)
        return decision.producer, decision.commit, decision.coordinator_epoch

    # ------------------------------------------------------------ coordinators

    def coordinator(self, internal_topic: str, name: str) -> int | None:
        """The node that coordinates a group or a transactional id; None: no node does now.

        In a cluster it creates the internal topic at its first use, and raises as ``Shards.of``.
        """
        if not self.is_replicated:
            return self.metadata.node_id
        shards = self._groups if internal_topic == _OFFSETS else self._transactions
        return self.metadata.partition_state(internal_topic, shards.partition_of(name)).leader

    def load_coordinator(self, partition: TopicPartition, epoch: int) -> bool:
        """This node leads a partition of an internal topic since ``epoch``; see ``Shards.load``."""
        is_loaded = self._shards(partition).load(partition.partition, epoch)
        if is_loaded and self.is_replicated and partition.topic == _OFFSETS:
            self._forget_absent(partition, epoch)
        return is_loaded

    def _forget_absent(self, where: TopicPartition, epoch: int) -> None:
        """Forget the offsets of topics that were deleted while nobody coordinated a partition of ``__consumer_offsets``.

        An earlier coordinator took offsets of topics alone that existed before this node became the leader.  So it waits until its own
        metadata has that: in older metadata a topic may be missing that exists.
        """
        until = time.monotonic() + _METADATA_WAIT_S
        with contextlib.suppress(NotCoordinator):
            while not self._has_forgotten_absent(where, epoch) and time.monotonic() < until:  # in vain: the next coordinator does it
                time.sleep(_LOOK_S)

    def _has_forgotten_absent(self, where: TopicPartition, epoch: int) -> bool:
        """Whether it could be done now; raises NotCoordinator, Closed."""
        is_known, shard = self._knows_that_it_leads(where, epoch), self._groups.at(where.partition)
        end_offset = shard.log.end_offset
        try:
            named = shard.query(GroupCoordinator.topics_with_offsets) if is_known else shard.query(lambda _: set[str]())
        except CoordinatorLoading:  # by another thread
            return False
        if is_known and (absent := named.difference(self.metadata.topic_names())):
            shard.post(TopicsDeleted(topics=frozenset(absent), before_offset=end_offset))
        return is_known

    def _knows_that_it_leads(self, where: TopicPartition, epoch: int) -> bool:
        try:
            state = self.metadata.partition_state(*where)
        except (UnknownTopic, UnknownPartition):
            return False
        return state.leader == self.metadata.node_id and state.leader_epoch >= epoch

    def resign_coordinator(self, partition: TopicPartition, epoch: int) -> bool:
        """This node does not lead a partition of an internal topic since ``epoch``; see ``Shards.resign``."""
        return self._shards(partition).resign(partition.partition, epoch)

    def _shards(self, partition: TopicPartition) -> "Shards[GroupCoordinator] | Shards[TransactionCoordinator]":
        return self._groups if partition.topic == _OFFSETS else self._transactions

    def _group_coordinator(self, _log: ReplicaLog, _epoch: int) -> GroupCoordinator:
        return GroupCoordinator(self._group_config, lambda: str(uuid.uuid4()), self._member_memory)

    def _transaction_coordinator(self, log: ReplicaLog, epoch: int) -> TransactionCoordinator:
        """In a cluster a new epoch loses no record that a producer has an answer for: it was replicated before."""
        epoch_start_offset = 0 if self.is_replicated else log.epoch_start_offset
        return TransactionCoordinator(self._transaction_config, self._new_producer_id, epoch, epoch_start_offset)


def _replicated(durability: Durability | None) -> Durability:
    """The level of an append in a cluster: it is acknowledged once the in-sync replicas have flushed it, which others do.

    Raises:
        PolicyViolation: The call names a level.
    """
    if durability is not None:
        raise PolicyViolation(
            f"durability={durability!r}: in a cluster, the in-sync replicas flush a record before it is acknowledged; leave durability out"
        )
    return "os"


def _events_of(metadata: Metadata, nodes: "OtherNodes | None", *, is_writer: bool) -> Events | PolledEvents:
    """The changes of the metadata: it tells them in the process that writes; a reader looks for them."""
    if not is_writer:
        return PolledEvents(metadata.change_number, lambda: metadata.submit(Topics(internal=True)))
    events = Events()
    if nodes is not None:
        metadata.listen(nodes.learn)  # first: a watcher asks for the topic as soon as it hears of the change
    metadata.listen(events.add)
    return events


def _of_cluster(local: LocalPeers, replication: Replication | None, metadata: Metadata, nodes: "OtherNodes") -> TransactionPeers:
    from logdb.broker.cluster_peers import ClusterPeers  # a database without a cluster needs none

    return ClusterPeers(local, replication, metadata, nodes)


def _durable_end(log: ReplicaLog) -> int:
    """Where a log ends, once the records below are durable: no later record has one of their offsets."""
    end_offset = log.end_offset
    log.flush()
    return end_offset


def _future(shard: Shard[Any], event: Any) -> "Future[Any]":
    """A future of the answer to a request; done already if the answer is known at once."""
    answer = shard.submit(event)
    if isinstance(answer, Reply):
        future: Future[Any] = Future()
        if isinstance(answer.result, LogdbError):
            future.set_exception(answer.result)
        else:
            future.set_result(answer.result)
        return future
    return answer


def _failing(future: "Future[Any]", error: LogdbError) -> "Future[Any]":
    """A future that fails once ``future`` is done: with its error, or else with ``error``."""
    failing: Future[Any] = Future()
    future.add_done_callback(lambda done: failing.set_exception(done.exception() or error))
    return failing


_STEPS: "Mapping[type[Request[Any]], Callable[..., Any]]" = {
    InitProducerId: Broker._init_producer_id,
    AddPartitions: Broker._add_existing,
    AddOffsets: Broker._add_offsets,
    CommitTransactionOffsets: Broker._commit_transaction_offsets,
    EndTransaction: Broker._of_transaction,
    Transactions: Broker._list_transactions,
    DescribeTransaction: Broker._describe_transaction,
    AbortTransaction: Broker._abort_transaction,
    **dict.fromkeys((JoinGroup, SyncGroup, Heartbeat, LeaveGroup), Broker._of_group),
    CommitOffsets: Broker._commit_offsets,
    FetchOffsets: Broker._fetch_offsets,
    DeleteOffsets: Broker._delete_offsets,
    Groups: Broker._list_groups,
    DescribeGroup: Broker._describe_group,
    DeleteGroup: Broker._delete_group,
    CreateTopic: Broker._new_topic,
    CheckNewTopic: Broker._new_topic,
    AlterTopic: Broker._alter_topic,
    CheckPartitions: Broker._check_partitions,
    AlterConfigs: Broker._alter_configs,
    DeleteTopic: Broker._delete_topic,
    CheckTopicConfigs: Broker._check_configs,
    **dict.fromkeys((Topics, DescribeQuorum, Reassign, ElectLeaders), Broker._of_metadata),
    **dict.fromkeys((Backup, Compact, EnforceRetention, Flush, Reports), Broker._of_store),
    DeleteRecords: Broker._delete_records,
    Log: Broker._log,
    DescribeTopic: Broker._describe_topic,
    DescribeAtRest: Broker._describe_topic,
    DescribeConfigs: Broker._describe_configs,
    PartitionCount: Broker._partition_count,
    PartitionSizes: Broker._partition_sizes,
    requests.ClusterNodes: Broker._cluster_nodes,
    requests.Changes: Broker._changes,
    Wait: Broker._wait,
    Verify: Broker._verify,
    Reassignments: Broker._reassignments,
    WriteTransactionMarker: Broker._write_transaction_marker,
    WillEndTransaction: Broker._will_end_transaction,
    FindDecision: Broker._find_decision,
    EndMirroredTransactions: Broker._end_mirrored_transactions,
    CommittedEnd: Broker._committed_end,
}
"""What carries a request out."""
