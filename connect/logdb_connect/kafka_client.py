"""A worker's client of a Kafka, by confluent-kafka: also of logdb through its Kafka listener.

librdkafka's errors become those of logdb that the worker knows; the others are ``KafkaFault``.  A consumer is a static member of its
group, as with logdb: a successor takes its place at once, and fences it.

Threading: any thread; a producer and a consumer belong to the thread of their task, but ``close``.
"""

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import click
import confluent_kafka as kafka
from confluent_kafka import admin

from logdb import LogdbError, OffsetAndMetadata, TopicPartition
from logdb.cli.terminal import client_security
from logdb.errors import (
    FencedInstance,
    GroupNotEmpty,
    IllegalGeneration,
    ProducerFenced,
    RebalanceInProgress,
    UnknownMember,
    UnknownTopic,
)
from logdb_connect.client import Client, Consumer, Headers, Listener, PartitionOffsets, TopicState, any_of, shown
from logdb_connect.errors import ConfigError

logger = logging.getLogger(__name__)
Found = TypeVar("Found")
_Error = kafka.KafkaError

_SHARED = frozenset({
    "client.rack", "connections.max.idle.ms", "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retry.backoff.ms", "socket.connection.setup.timeout.ms",
})  # fmt: skip
_PRODUCER = _SHARED | {
    "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms", "linger.ms", "max.request.size", "transaction.timeout.ms",
}  # fmt: skip
_CONSUMER = _SHARED | {
    "auto.offset.reset", "client.id", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "heartbeat.interval.ms",
    "isolation.level", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "session.timeout.ms",
}  # fmt: skip
_NAMES = {"fetch.max.wait.ms": "fetch.wait.max.ms", "max.request.size": "message.max.bytes"}
"""What librdkafka calls a property of Java's clients."""
_SECRET = re.compile("password|secret|token|credential|jaas|oauthbearer|[.]pem$")
_SECURITY = ("security.protocol", "sasl.mechanism", "ssl.endpoint.identification.algorithm")

_CALL_S = 30.0
_CREATE_S, _REPEAT_S, _LOOK_S = 10.0, 5.0, 0.05
_COMMIT_S = 60.0
_LEAVE_S = 5.0
_JOIN_S = 10.0
_REFRESH_S = 2.0
_POLL_COUNT = 5_000
_QUEUE_KIB = 32 << 10
_EACH_POLL = 1_000
_RETRIABLE = frozenset({
    _Error._ALL_BROKERS_DOWN, _Error._MSG_TIMED_OUT, _Error._PURGE_INFLIGHT, _Error._PURGE_QUEUE, _Error._RESOLVE, _Error._STATE,
    _Error._TIMED_OUT, _Error._TIMED_OUT_QUEUE, _Error._TRANSPORT, _Error._WAIT_COORD,
    _Error.BROKER_NOT_AVAILABLE, _Error.CONCURRENT_TRANSACTIONS, _Error.COORDINATOR_LOAD_IN_PROGRESS, _Error.COORDINATOR_NOT_AVAILABLE,
    _Error.LEADER_NOT_AVAILABLE, _Error.NETWORK_EXCEPTION, _Error.NOT_COORDINATOR, _Error.NOT_ENOUGH_REPLICAS,
    _Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _Error.NOT_LEADER_FOR_PARTITION, _Error.REQUEST_TIMED_OUT, _Error.UNSTABLE_OFFSET_COMMIT,
})  # fmt: skip
_REFUSED = frozenset({
    _Error.INVALID_MSG, _Error.INVALID_RECORD, _Error.INVALID_TIMESTAMP, _Error.MSG_SIZE_TOO_LARGE, _Error.POLICY_VIOLATION,
    _Error.RECORD_LIST_TOO_LARGE, _Error.TOPIC_AUTHORIZATION_FAILED,
})  # fmt: skip
_STALE = frozenset({_Error.FENCED_LEADER_EPOCH, _Error.UNKNOWN_LEADER_EPOCH, _Error._NOENT, _Error.NOT_LEADER_FOR_PARTITION})
_UNKNOWN_TOPIC = (_Error.UNKNOWN_TOPIC_OR_PART, _Error._UNKNOWN_TOPIC, _Error._UNKNOWN_PARTITION, _Error.UNKNOWN_TOPIC_ID)
_FENCED = (_Error.INVALID_PRODUCER_EPOCH, _Error.PRODUCER_FENCED, _Error._FENCED)


class KafkaFault(LogdbError):
    """Kafka, or the way to it, has an error."""

    def __init__(self, error: kafka.KafkaError, retriable: bool) -> None:
        super().__init__(f"Kafka: {error.str()} ({error.name()})")
        self.retriable, self.code = retriable, error.code()


def fault(cause: "kafka.KafkaException | kafka.KafkaError", *, topic: str = "", group_id: str = "", of: str = "") -> LogdbError:
    """The error of logdb for one of Kafka.

    Args:
        of: A transactional id or an instance.
    """
    error: kafka.KafkaError = cause.args[0] if isinstance(cause, kafka.KafkaException) else cause
    code = error.code()
    if code in _UNKNOWN_TOPIC:
        return UnknownTopic(topic)
    if code in _FENCED:
        return ProducerFenced(-1, -1, -1, transactional_id=of)
    if code in (_Error.FENCED_INSTANCE_ID, _Error._FATAL) and group_id:
        return FencedInstance(group_id, of)
    if code in (_Error.ILLEGAL_GENERATION, _Error._ASSIGNMENT_LOST):
        return IllegalGeneration(group_id, -1, -1)
    if code == _Error.UNKNOWN_MEMBER_ID:
        return UnknownMember(group_id, of)
    if code == _Error.REBALANCE_IN_PROGRESS:
        return RebalanceInProgress(group_id)
    if code in (_Error.NON_EMPTY_GROUP, _Error.GROUP_SUBSCRIBED_TO_TOPIC):
        return GroupNotEmpty(group_id, 1)
    return KafkaFault(error, bool(error.retriable() or error.txn_requires_abort() or code in _RETRIABLE | _STALE))


def _warn(error: Any) -> None:
    """librdkafka tries again without an end; who waits for it is told why."""
    if error.fatal() or error.code() not in (_Error._TRANSPORT, _Error._RESOLVE):
        logger.warning("Kafka: %s", error.str())


def _note(refusals: list[Any], error: Any) -> None:
    _warn(error)
    if error.code() in (_Error._AUTHENTICATION, _Error._SSL):
        refusals.append(error)


def connection(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of librdkafka that all clients of a worker have.

    Raises:
        ConfigError: A security property has a value that librdkafka cannot take.
    """
    try:
        security = client_security.of_properties(properties)
    except click.UsageError as error:
        raise ConfigError("security.protocol", error.message) from None
    found: dict[str, Any] = {"bootstrap.servers": properties["bootstrap.servers"].strip(), "log_level": 0, "error_cb": _warn}
    found |= {name: properties[name].strip() for name in _SECURITY if name in properties}
    if security.user is not None:
        found.setdefault("sasl.mechanism", "PLAIN")
        found |= {"sasl.username": security.user, "sasl.password": security.password}
    if security.ca_file is not None:
        found["ssl.ca.location"] = security.ca_file
    if security.cert_file is not None:
        found["ssl.certificate.location"] = security.cert_file
        found["ssl.key.location"] = properties.get("ssl.key.location", security.cert_file)
    if not found.get("ssl.endpoint.identification.algorithm", "https"):
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def translated(known: frozenset[str], overrides: Mapping[str, str]) -> dict[str, Any]:
    """Properties of Java's clients for librdkafka."""
    found: dict[str, Any] = {_NAMES.get(name, name): text.strip() for name, text in overrides.items() if name in known}
    if (memory := found.pop("buffer.memory", None)) is not None:
        found["queue.buffering.max.kbytes"] = max(1, int(memory) >> 10)
    found.pop("max.poll.records", None)
    if "request.timeout.ms" in found and known is _CONSUMER:
        found["socket.timeout.ms"] = found.pop("request.timeout.ms")
    return found


def made(kind: Callable[[dict[str, Any]], Found], config: dict[str, Any]) -> Found:
    """A client of librdkafka.

    Raises:
        ConfigError: It does not take a setting.  The error shows no value of a setting that may be secret.
    """
    try:
        return kind(config)
    except kafka.KafkaException as error:
        text = error.args[0].str()
        name = next((name for name in config if f'"{name}"' in text), "bootstrap.servers")
        secrets = [str(config[one]) for one in config if _SECRET.search(one) and config[one]]
        value, reason = shown(str(config[name])), text
        if _SECRET.search(name) or any(secret in value for secret in secrets):
            value = "[hidden]"
        if any(secret in reason for secret in secrets):
            reason = "librdkafka refuses it"  # a short secret that is cut out shows where it was
        raise ConfigError(name, f"Invalid value {value} for configuration {name}: {reason}") from None


class KafkaRecord(NamedTuple):
    """A record as the worker reads it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


def _record(message: Any) -> KafkaRecord:
    kind, timestamp_ms = message.timestamp()
    epoch = message.leader_epoch()
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp_ms if kind else -1,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        -1 if epoch is None else epoch,
    )


class KafkaClient(Client):
    """A Kafka."""

    producer_properties, consumer_properties = _PRODUCER, _CONSUMER

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Connect.

        Raises:
            ConfigError: A security property is wrong.
            LogdbError: No broker answers.
        """
        self.place = properties["bootstrap.servers"].strip()
        self._base = connection(properties)
        if client_id := properties.get("client.id", "").strip():
            self._base["client.id"] = client_id
        refusals: list[kafka.KafkaError] = []
        self._admin = made(admin.AdminClient, {**self._base, "error_cb": partial(_note, refusals)})
        self._reading = threading.Lock()
        self._reader: Any = None
        try:
            self.cluster_id()
        except KafkaFault as error:
            self._admin.poll(0)  # what librdkafka says of the connection
            if refusals:  # a retry would not help
                raise KafkaFault(refusals[-1], False) from error
            raise

    def close(self) -> None:
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _call(self, function: Callable[..., Found], *args: Any, topic: str = "", group_id: str = "", **options: Any) -> Found:
        """One call of librdkafka."""
        try:
            return function(*args, **options)
        except kafka.KafkaException as error:
            raise fault(error, topic=topic, group_id=group_id) from error

    def _results(self, call: str, *args: Any, topic: str = "", group_id: str = "", **options: Any) -> dict[Any, Any]:
        """The answers to a call of the administration; it is repeated for a while where a leader is not known yet.

        librdkafka's administration may stay with the leader that it knows (FENCED_LEADER_EPOCH, without an end): a new one asks.
        """
        end = time.monotonic() + _REPEAT_S
        while True:
            futures = self._call(getattr(self._admin, call), *args, topic=topic, group_id=group_id, request_timeout=_CALL_S, **options)
            try:
                return {key: self._call(future.result, topic=topic, group_id=group_id) for key, future in futures.items()}
            except KafkaFault as error:
                if not error.retriable or time.monotonic() > end:
                    raise
                if error.code in _STALE:
                    self._admin = made(admin.AdminClient, dict(self._base))
                time.sleep(_LOOK_S)

    def cluster_id(self) -> str | None:
        found = self._call(self._admin.list_topics, timeout=_CALL_S).cluster_id
        return str(found) if found else None

    # ------------------------------------------------------------ topics

    def _describe(self, name: str) -> Any:
        return self._results("describe_topics", kafka.TopicCollection([name]), topic=name)[name]

    def topics(self) -> list[str]:
        found = self._call(self._admin.list_topics, timeout=_CALL_S).topics
        return sorted(name for name in found if not name.startswith("__"))

    def has_topic(self, name: str) -> bool:
        with contextlib.suppress(UnknownTopic):
            return len(self._describe(name).partitions) > 0
        return False

    def create_topic(self, name: str, *, partitions: int = -1, replication: int | None = None, **config: object) -> None:
        replication = -1 if replication is None or replication < 1 else replication
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        new = admin.NewTopic(name, partitions, replication, config=settings)
        try:
            self._results("create_topics", [new], topic=name)
        except KafkaFault as error:
            if error.code != _Error.TOPIC_ALREADY_EXISTS:
                raise
        end = time.monotonic() + _CREATE_S  # brokers learn of it one after the other
        while not self._has_leaders(name) and time.monotonic() < end:
            time.sleep(_LOOK_S)

    def _has_leaders(self, name: str) -> bool:
        with contextlib.suppress(UnknownTopic):
            found = self._describe(name).partitions
            return bool(found) and all(one.leader is not None and one.leader.id >= 0 for one in found)
        return False

    def server_count(self) -> int:
        return len(self._call(self._admin.list_topics, timeout=_CALL_S).brokers)

    def _configs(self, name: str) -> Any:
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, name)
        (found,) = self._results("describe_configs", [resource], topic=name).values()
        return found

    def topic_config(self, name: str) -> dict[str, str]:
        own = admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name: str(entry.value) for entry in self._configs(name).values() if entry.source == own}

    def cleanup_policy(self, name: str) -> str:
        return str(self._configs(name)["cleanup.policy"].value)

    def alter_topic(self, name: str, *, partitions: int | None = None, config: Mapping[str, str | None] | None = None) -> None:
        if partitions is not None:
            self._results("create_partitions", [admin.NewPartitions(name, partitions)], topic=name)
        if config:
            changes = [
                admin.ConfigEntry(
                    key,
                    value,
                    incremental_operation=admin.AlterConfigOpType.DELETE if value is None else admin.AlterConfigOpType.SET,
                )
                for key, value in config.items()
            ]
            resource = admin.ConfigResource(admin.ResourceType.TOPIC, name, incremental_configs=changes)
            self._results("incremental_alter_configs", [resource], topic=name)

    def topic_state(self, name: str) -> TopicState:
        described = self._describe(name)
        numbers = sorted(one.id for one in described.partitions)
        starts = self._offsets(name, numbers, admin.OffsetSpec.earliest())
        ends = self._offsets(name, numbers, admin.OffsetSpec.latest())
        return TopicState(str(described.topic_id), [PartitionOffsets(one, starts[one], ends[one]) for one in numbers])

    def committed_end(self, name: str, partition: int) -> int:
        committed = kafka.IsolationLevel.READ_COMMITTED
        return self._offsets(name, [partition], admin.OffsetSpec.latest(), isolation_level=committed)[partition]

    def _offsets(self, name: str, numbers: Iterable[int], spec: Any, **options: Any) -> dict[int, int]:
        asked = {kafka.TopicPartition(name, number): spec for number in numbers}
        found = self._results("list_offsets", asked, **options, topic=name)
        return {at.partition: one.offset for at, one in found.items()}

    def read(self, name: str, partition: int, start: int, end: int) -> Iterable[KafkaRecord]:
        """At the end of a partition a consumer is told so: behind the last record there may be markers of transactions."""
        found: list[KafkaRecord] = []
        until, reached = time.monotonic() + _CALL_S, start
        with self._reading:
            reader = self._reader = self._reader or made(kafka.Consumer, {
                **self._base, "group.id": "-", "enable.auto.commit": False, "auto.offset.reset": "error",
                "isolation.level": "read_committed", "enable.partition.eof": True, "fetch.queue.backoff.ms": 10,
            })  # fmt: skip
            reader.assign([kafka.TopicPartition(name, partition, start)])
            try:
                while reached < end:
                    before = reached
                    if time.monotonic() > until:
                        raise KafkaFault(_Error(_Error._TIMED_OUT, f"{name}-{partition} was not read up to {end}"), True)
                    for message in reader.consume(_POLL_COUNT, 0) or reader.consume(1, 1.0):
                        if (refused := message.error()) is None:
                            if message.offset() < end:
                                found.append(_record(message))
                            reached = message.offset() + 1
                        elif refused.code() == _Error._PARTITION_EOF:
                            reached = message.offset()
                        elif not (failure := fault(refused, topic=name)).retriable:
                            raise failure
                    until = time.monotonic() + _CALL_S if reached > before else until
            except kafka.KafkaException as error:
                raise fault(error, topic=name) from error
            finally:
                reader.unassign()
        return found

    def wait(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> bool:
        end = time.monotonic() + timeout_ms / 1000
        asked = {kafka.TopicPartition(*at): admin.OffsetSpec.latest() for at in positions}
        while True:
            found = self._results("list_offsets", asked, topic=next(iter(positions)).topic)
            if any(one.offset > positions[TopicPartition(at.topic, at.partition)] for at, one in found.items()):
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(0.1)

    # ------------------------------------------------------------ records

    def producer(self, overrides: Mapping[str, str]) -> "KafkaProducer":
        return KafkaProducer(self._producer_config(overrides))

    def transactional_producer(self, overrides: Mapping[str, str], transactional_id: str) -> "KafkaProducer":
        return KafkaProducer({**self._producer_config(overrides), "transactional.id": transactional_id})

    def _producer_config(self, overrides: Mapping[str, str]) -> dict[str, Any]:
        return {
            **self._base,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as Java's
            "delivery.report.only.error": True,
            "queue.buffering.max.kbytes": _QUEUE_KIB,
            **translated(_PRODUCER, overrides),
        }

    def consumer(self, overrides: Mapping[str, str], *, group_id: str, group_instance_id: str, client_id: str) -> Consumer:
        config = {
            **self._base,
            "group.id": group_id,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": _QUEUE_KIB,
            **translated(_CONSUMER, overrides),
            "group.instance.id": group_instance_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        return KafkaConsumer(config, int(overrides.get("max.poll.records", _POLL_COUNT)))

    # ------------------------------------------------------------ groups

    def group(self, group_id: str, topic: str, *, session_ms: int, heartbeat_ms: int, rebalance_s: float) -> "KafkaGroup":
        """Join a group of workers, which talk in a topic of one partition."""
        shared = {**self._base, "enable.auto.commit": False, "fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 100}
        config = {
            **shared,
            "group.id": group_id,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": heartbeat_ms,
            "max.poll.interval.ms": max(session_ms, round(rebalance_s * 1000)),
            "partition.assignment.strategy": "cooperative-sticky",  # who leads goes on to
        }
        (state,) = self.topic_state(topic).partitions
        reader = made(kafka.Consumer, {**shared, "group.id": "-", "auto.offset.reset": "latest"})
        reader.assign([kafka.TopicPartition(topic, 0, state.end_offset)])
        return KafkaGroup(group_id, topic, made(kafka.Consumer, config), reader, self._members)

    def _group(self, group_id: str) -> Any:
        (found,) = self._results("describe_consumer_groups", [group_id], group_id=group_id).values()
        return found

    def _members(self, group_id: str) -> frozenset[str] | None:
        found = self._group(group_id)
        return frozenset(one.member_id for one in found.members) if found.state == kafka.ConsumerGroupState.STABLE else None

    def leave(self, consumer: Consumer, group_id: str, group_instance_id: str) -> None:  # noqa: ARG002 -- librdkafka knows them
        """A static member leaves when it unsubscribes; when it is closed alone, it stays one."""
        assert isinstance(consumer, KafkaConsumer)
        consumer.leave()

    def remove_member(self, group_id: str, group_instance_id: str) -> None:
        """confluent-kafka has no call for it: a consumer takes the member's place, and leaves."""
        member = next((one for one in self._group(group_id).members if one.group_instance_id == group_instance_id), None)
        if member is None:
            return
        held = member.assignment.topic_partitions if member.assignment is not None else ()
        topics = sorted({one.topic for one in held}) or self.topics()[:1]  # one without partitions joins, too
        consumer = self.consumer({}, group_id=group_id, group_instance_id=group_instance_id, client_id=group_instance_id)
        assert isinstance(consumer, KafkaConsumer)
        consumer.subscribe(pattern=any_of(topics))
        try:
            end = time.monotonic() + _JOIN_S
            while not consumer.has_joined() and time.monotonic() < end:
                consumer.poll(round(_LOOK_S * 1000))
        finally:
            consumer.leave()

    def committed(self, group_id: str, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = None if partitions is None else [kafka.TopicPartition(*at) for at in partitions]
        asked = [kafka.ConsumerGroupTopicPartitions(group_id, wanted)]
        try:
            (found,) = self._results("list_consumer_group_offsets", asked, group_id=group_id).values()
        except KafkaFault as error:
            if error.code == _Error.GROUP_ID_NOT_FOUND:
                return {}
            raise
        listed = [one for one in found.topic_partitions if one.error is None and one.offset >= 0]
        return {TopicPartition(one.topic, one.partition): _position(one) for one in listed}

    def has_members(self, group_id: str) -> bool:
        try:
            return bool(self._group(group_id).members)
        except KafkaFault as error:
            if error.code != _Error.GROUP_ID_NOT_FOUND:
                raise
            return False

    def alter_committed(self, group_id: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Offsets of a group can be deleted all at once only; of some partitions, the log's beginning is as good as none."""
        if all(offset is None for offset in offsets.values()) and offsets.keys() >= self.committed(group_id).keys():
            try:
                self._results("delete_consumer_groups", [group_id], group_id=group_id)
            except KafkaFault as error:
                if error.code != _Error.GROUP_ID_NOT_FOUND:
                    raise
            return
        placed = {at: self._start(at) if offset is None else offset for at, offset in offsets.items()}
        self.commit_for(group_id, {at: OffsetAndMetadata(offset) for at, offset in placed.items()})

    def commit_for(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        wanted = [kafka.TopicPartition(*at, one.offset, one.metadata) for at, one in offsets.items()]
        asked = [kafka.ConsumerGroupTopicPartitions(group_id, wanted)]
        (found,) = self._results("alter_consumer_group_offsets", asked, group_id=group_id).values()
        for one in found.topic_partitions:
            if one.error is not None:
                raise fault(one.error, topic=one.topic, group_id=group_id)

    def _start(self, at: TopicPartition) -> int:
        return self._offsets(at.topic, [at.partition], admin.OffsetSpec.earliest())[at.partition]


def _position(found: Any) -> OffsetAndMetadata:
    return OffsetAndMetadata(found.offset, -1 if found.leader_epoch is None else found.leader_epoch, found.metadata or "")


class KafkaProducer:
    """librdkafka's producer, idempotent; with a transactional id for transactions.

    A record that cannot be written is told by ``flush`` or ``commit_transaction``.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._id = config.get("transactional.id", "")
        self._error: LogdbError | None = None
        self._sent, self._begun = 0, False
        self._producer = made(kafka.Producer, {**config, "on_delivery": self._delivered})

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = fault(error, topic=message.topic() or "", of=self._id)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        self._sent += 1
        if self._sent % _EACH_POLL == 0:
            self._producer.poll(0)
        number, at = -1 if partition is None else partition, 0 if timestamp_ms is None else timestamp_ms
        listed = list(headers) if headers else None
        while True:
            try:
                self._producer.produce(topic, value, key, number, None, None, at, listed)
            except BufferError:
                self._producer.poll(0.1)
                if self._error is not None:
                    self._raise()
            except kafka.KafkaException as error:
                raise fault(error, topic=topic, of=self._id) from error
            else:
                return

    def flush(self, timeout_ms: int | None = None) -> None:
        left = self._producer.flush(-1 if timeout_ms is None else timeout_ms / 1000)  # delivery.timeout.ms ends it
        if self._error is not None:
            self._raise()
        if left:
            raise KafkaFault(_Error(_Error._TIMED_OUT, f"{left} records were not written in time"), True)

    def _raise(self) -> None:
        error, self._error = self._error, None
        assert error is not None
        raise error

    def close(self, timeout_ms: int | None = None) -> None:
        """Of a transaction that is open, nothing stays."""
        if self._begun:
            self._begun = False
            self._producer.purge()
            with contextlib.suppress(kafka.KafkaException):
                self._producer.abort_transaction(1.0)
            return
        try:
            self.flush(timeout_ms)
        finally:
            self._producer.purge()

    def _transactionally(self, call: Callable[..., object], *args: float) -> None:
        try:
            call(*args)
        except kafka.KafkaException as error:
            cause, self._error = self._error, None
            if isinstance(cause, UnknownTopic) or (isinstance(cause, KafkaFault) and cause.code in _REFUSED):
                raise cause from error
            raise fault(error, of=self._id) from error

    def init_transactions(self) -> None:
        self._transactionally(self._producer.init_transactions, _CALL_S)

    def begin_transaction(self) -> None:
        self._error = None
        self._transactionally(self._producer.begin_transaction)
        self._begun = True

    def commit_transaction(self) -> None:
        self._transactionally(self._producer.commit_transaction, _COMMIT_S)
        self._begun = False


class KafkaConsumer:
    """librdkafka's consumer, subscribed to the topics that match a pattern, now and later."""

    def __init__(self, config: dict[str, Any], poll_count: int) -> None:
        self._group_id, self._instance = config["group.id"], config["group.instance.id"]
        self._consumer = made(kafka.Consumer, config)
        self._poll_count = poll_count
        self._pattern = re.compile("")
        self._listeners: dict[str, Any] = {}
        self._topics: list[str] = []
        self._refresh_at = 0.0
        self._leaving = self._assigned = False

    def subscribe(
        self,
        *,
        pattern: "re.Pattern[str]",
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        self._pattern = pattern
        given = {"on_assign": partial(self._told_first, on_assigned), "on_revoke": on_revoked, "on_lost": on_lost}
        self._listeners = {name: self._listener(one) for name, one in given.items() if one is not None}

    def _listener(self, function: Listener) -> Callable[[Any, Sequence[Any]], None]:
        def told(_consumer: Any, partitions: Sequence[Any]) -> None:
            if not self._leaving:
                function([TopicPartition(one.topic, one.partition) for one in partitions])

        return told

    def _told_first(self, function: Listener | None, partitions: Sequence[TopicPartition]) -> None:
        self._assigned = True
        if function is not None:
            function(partitions)

    def _refresh(self) -> None:
        """Subscribe to the topics of now."""
        self._refresh_at = time.monotonic() + _REFRESH_S
        names = self._consumer.list_topics(timeout=_CALL_S).topics
        topics = sorted(name for name in names if not name.startswith("__") and self._pattern.fullmatch(name))
        if topics != self._topics:
            if topics:
                self._consumer.subscribe(topics, **self._listeners)
            else:
                self._consumer.unsubscribe()
            self._topics = topics

    def poll(self, timeout_ms: int = 0) -> dict[TopicPartition, list[KafkaRecord]]:
        found: dict[TopicPartition, list[KafkaRecord]] = {}
        try:
            if time.monotonic() >= self._refresh_at:
                self._refresh()
            messages = self._consumer.consume(1, timeout_ms / 1000)
            if messages and self._poll_count > 1:
                messages += self._consumer.consume(self._poll_count - 1, 0)
        except kafka.KafkaException as error:
            raise fault(error, group_id=self._group_id, of=self._instance) from error
        for message in messages:
            if (refused := message.error()) is not None:
                self._refuse(refused, message.topic() or "")
                continue
            found.setdefault(TopicPartition(message.topic(), message.partition()), []).append(_record(message))
        return found

    def _refuse(self, error: Any, topic: str) -> None:
        """Of errors between records, those count that end the reading; the others pass, or come again."""
        if error.code() == _Error._MAX_POLL_EXCEEDED or error.code() in _UNKNOWN_TOPIC:
            self._refresh_at = 0.0
            return
        refused = fault(error, topic=topic, group_id=self._group_id, of=self._instance)
        if isinstance(refused, FencedInstance) or not refused.retriable:
            raise refused

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """A partition that was assigned just now takes a moment."""
        end = time.monotonic() + _CALL_S
        while True:
            try:
                self._consumer.seek(kafka.TopicPartition(*partition, offset))
            except kafka.KafkaException as error:
                if error.args[0].code() != _Error._STATE or time.monotonic() > end:
                    raise fault(error, topic=partition.topic, group_id=self._group_id) from error
                time.sleep(_LOOK_S)
            else:
                return

    def pause(self) -> None:
        self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        self._consumer.resume(self._consumer.assignment())

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        given = [kafka.TopicPartition(*at, one.offset, one.metadata, one.leader_epoch) for at, one in offsets.items()]
        try:
            for one in self._consumer.commit(offsets=given, asynchronous=False):
                if one.error is not None:
                    raise fault(one.error, topic=one.topic, group_id=self._group_id, of=self._instance)
        except kafka.KafkaException as error:
            raise fault(error, topic=given[0].topic, group_id=self._group_id, of=self._instance) from error

    def has_joined(self) -> bool:
        """Whether the group has told it its partitions, which may be none."""
        return self._assigned

    def leave(self) -> None:
        """Give up the partitions and the place in the group, and close; listeners are told nothing more.

        A static member that is closed while it has partitions stays a member.
        """
        self._leaving = True
        try:
            self._consumer.unsubscribe()
            end = time.monotonic() + _LEAVE_S
            while self._consumer.assignment() and time.monotonic() < end:
                self._consumer.consume(1, _LOOK_S)
            self._consumer.consume(1, _LOOK_S)
        except kafka.KafkaException as error:
            raise fault(error, group_id=self._group_id, of=self._instance) from error
        finally:
            self.close()

    def close(self) -> None:
        self._consumer.close()


class KafkaGroup:
    """A group of workers: a consumer that holds the partition of a topic, or not, and one that reads the topic from now on."""

    def __init__(
        self, group_id: str, topic: str, member: Any, reader: Any, members: Callable[[str], frozenset[str] | None]
    ) -> None:  # fmt: skip
        self._group_id, self._topic, self._member, self._reader, self._members = group_id, topic, member, reader, members
        self._lost = False
        member.subscribe([topic], on_lost=self._on_lost)

    def _on_lost(self, _consumer: Any, _partitions: Any) -> None:
        self._lost = True

    @property
    def member_id(self) -> str:
        return str(self._member.memberid() or "")

    def is_lost(self) -> bool:
        """Whether the group had removed this member since ``take_lost``."""
        return self._lost

    def take_lost(self) -> bool:
        lost, self._lost = self._lost, False
        return lost

    def leads(self) -> bool:
        """Whether it holds the partition."""
        return bool(self._member.assignment())

    def members(self) -> frozenset[str] | None:
        """The ids of all members; None: a rebalance of the consumers goes on."""
        return self._members(self._group_id)

    def confirms(self) -> bool:
        """Whether the group takes a commit of this member: it is one, as of now."""
        try:
            for one in self._member.commit(offsets=[kafka.TopicPartition(self._topic, 0, 0)], asynchronous=False):
                if one.error is not None:
                    return False
        except kafka.KafkaException as error:
            logger.info("group %s: %s", self._group_id, error)
            return False
        return True

    def poll(self, timeout_s: float) -> list[KafkaRecord]:
        """The next records of the topic; the membership goes on."""
        try:
            self._member.consume(_POLL_COUNT, 0)
            messages = self._reader.consume(1, timeout_s)
            if messages:
                messages += self._reader.consume(_POLL_COUNT, 0)
        except kafka.KafkaException as error:
            raise fault(error, topic=self._topic, group_id=self._group_id) from error
        return [_record(one) for one in messages if one.error() is None]

    def close(self) -> None:
        """Leave."""
        self._member.close()
        self._reader.close()
