"""The source of a mirror: a directory or a server of logdb, or a Kafka.

A directory is opened for reading, beside its writer.  A Kafka is read by confluent-kafka.  Threading: one thread at a time.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import logdb
from logdb import LogdbError, OffsetAndMetadata, TopicPartition
from logdb.errors import UnknownTopic
from logdb_connect.client import as_text, shown
from logdb_connect.connectors import limits
from logdb_connect.errors import ConfigError, ConnectError, RetriableError
from logdb_connect.other_servers import open_servers, security_of

_SERVERS = "source.cluster.bootstrap.servers"
_POLL_COUNT_MAX = 5_000
_ANSWER_S = 30.0


class Topic(NamedTuple):
    """A topic of the source."""

    name: str
    partitions: int


class Record(NamedTuple):
    """A record as bytes."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]]


class Reader(Protocol):
    """Reads partitions, each from an offset on."""

    def poll(self, timeout_ms: int) -> Mapping[TopicPartition, Sequence[Any]]:
        """The next records, with the fields of ``Record``."""

    def close(self) -> None: ...


class Cluster(Protocol):
    """What a mirror asks of its source.  All methods raise ``RetriableError`` where the source does not answer."""

    def topics(self) -> Sequence[Topic]:
        """All topics, without internal ones."""

    def config(self, topic: str) -> Mapping[str, str]:
        """The configs of a topic that differ from the defaults."""

    def reader(self, offsets: Mapping[TopicPartition, int | None]) -> Reader:
        """Read from these offsets on; None: from the first record."""

    def committed(self, wanted: "Any") -> Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of the groups whose names match the pattern ``wanted``."""

    def close(self) -> None: ...


def open_cluster(properties: Mapping[str, str]) -> Cluster:
    """The source that properties of a client name (those of ``source.cluster.``, without the prefix).

    Raises:
        RetriableError: It does not answer.
        ConfigError: ``bootstrap.servers`` is wrong, or confluent-kafka is missing.
    """
    place, kind = properties.get("bootstrap.servers", "").strip(), properties.get("client", "auto")
    is_directory = place.startswith((".", "/")) or os.path.isdir(place)
    check_limits(place)
    if is_directory or "://" in place or kind == "logdb":
        with _errors(place):
            return LogdbCluster(_opened(place, properties, is_directory=is_directory), properties)
    if kind == "kafka":
        return KafkaCluster(properties)
    try:
        with _errors(place):
            return LogdbCluster(_opened(place, properties, is_directory=False), properties)
    except RetriableError as error:
        try:
            return KafkaCluster(properties)
        except RetriableError as other:
            raise RetriableError(f"{error} By Kafka's protocol: {other}") from other


def check_limits(place: str) -> None:
    """Raises ``ConnectError`` where connectors of this worker may not read the source."""
    if place.startswith((".", "/")) or os.path.isdir(place):
        limits.check_path(place)
        return
    for each in place.split(","):
        limits.check_host(urlsplit(each if "://" in each else f"//{each}").hostname or "")


def _opened(place: str, properties: Mapping[str, str], *, is_directory: bool) -> logdb.Database:
    if is_directory:
        return logdb.open(place, mode="r")
    return open_servers(place, properties, _SERVERS)


@contextlib.contextmanager
def _errors(place: str) -> Iterator[None]:
    try:
        yield
    except LogdbError as error:
        if error.retriable:
            raise RetriableError(f"The source {shown(place)} does not answer: {error}") from error
        raise


class LogdbCluster:
    """A database of logdb."""

    def __init__(self, db: logdb.Database, properties: Mapping[str, str]) -> None:
        self._db, self._place = db, properties["bootstrap.servers"]
        self._committed_only = properties.get("isolation.level", "read_committed") != "read_uncommitted"
        self._count_max = int(properties.get("max.poll.records", _POLL_COUNT_MAX))

    def topics(self) -> Sequence[Topic]:
        with _errors(self._place):
            return [Topic(each.name, each.partition_count) for each in self._db.topics()]

    def config(self, topic: str) -> Mapping[str, str]:
        with _errors(self._place):
            return as_text(self._db.describe_topic(topic).config)

    def reader(self, offsets: Mapping[TopicPartition, int | None]) -> Reader:
        with _errors(self._place):
            return _LogdbReader(self._db, offsets, self._place, committed_only=self._committed_only, count_max=self._count_max)

    def committed(self, wanted: Any) -> Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        with _errors(self._place):
            groups = [each.group_id for each in self._db.groups() if wanted.fullmatch(each.group_id)]
            return {group: self._db.session.fetch_offsets(group) for group in groups}

    def close(self) -> None:
        self._db.close()


class _LogdbReader:
    def __init__(
        self, db: logdb.Database, offsets: Mapping[TopicPartition, int | None], place: str, *, committed_only: bool, count_max: int
    ) -> None:
        self._place = place
        self._consumer = db.consumer(
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            max_poll_records=count_max,
            client_id="mirror",
        )
        self._consumer.assign(offsets)
        for partition, offset in offsets.items():
            if offset is None:
                self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, offset)

    def poll(self, timeout_ms: int) -> Mapping[TopicPartition, Sequence[Any]]:
        with _errors(self._place):
            return self._consumer.poll(timeout_ms)

    def close(self) -> None:
        self._consumer.close()


class KafkaCluster:
    """A Kafka."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        try:
            import confluent_kafka
            import confluent_kafka.admin
        except ImportError:
            need = "the package 'confluent-kafka' of the extra 'connect-kafka': pip install 'confluent-kafka>=2.6'"
            raise ConfigError(_SERVERS, f"A Kafka as the source needs {need}") from None
        self._kafka: Any = confluent_kafka
        self._properties = dict(properties)
        self._admin: Any = confluent_kafka.admin.AdminClient(_of_librdkafka(properties))
        self.topics()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            place, told = shown(self._properties["bootstrap.servers"]), error.args[0]
            if told.code() in {self._kafka.KafkaError.SASL_AUTHENTICATION_FAILED, self._kafka.KafkaError._AUTHENTICATION}:
                raise ConnectError(f"The source {place} refuses the credentials: {told.str()}") from error
            raise RetriableError(f"The source {place} does not answer: {told.str()}. Retry is safe.") from error

    def topics(self) -> Sequence[Topic]:
        with self._errors():
            found = self._admin.list_topics(timeout=_ANSWER_S / 3).topics
        return [Topic(name, len(each.partitions)) for name, each in sorted(found.items()) if not name.startswith("__")]

    def config(self, topic: str) -> Mapping[str, str]:
        resource = self._kafka.admin.ConfigResource(self._kafka.admin.ConfigResource.Type.TOPIC, topic)
        with self._errors():
            found = self._admin.describe_configs([resource], request_timeout=_ANSWER_S)[resource].result()
        dynamic = self._kafka.admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in found.items() if entry.source == dynamic}

    def reader(self, offsets: Mapping[TopicPartition, int | None]) -> Reader:
        return _KafkaReader(self._kafka, self._properties, offsets, self._errors)

    def committed(self, wanted: Any) -> Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]:
        kafka, found = self._kafka, {}
        with self._errors():
            listed = self._admin.list_consumer_groups(request_timeout=_ANSWER_S).result()
            for each in listed.valid:
                if wanted.fullmatch(each.group_id):
                    asked = [kafka.ConsumerGroupTopicPartitions(each.group_id)]
                    told = self._admin.list_consumer_group_offsets(asked, request_timeout=_ANSWER_S)[each.group_id].result()
                    found[each.group_id] = {
                        TopicPartition(at.topic, at.partition): OffsetAndMetadata(at.offset, metadata=at.metadata or "")
                        for at in told.topic_partitions
                        if at.offset >= 0
                    }
        return found

    def close(self) -> None:
        """The client ends with this object."""


class _KafkaReader:
    def __init__(self, kafka: Any, properties: Mapping[str, str], offsets: Mapping[TopicPartition, int | None], errors: Any) -> None:
        self._errors, self._kafka = errors, kafka
        settings = {
            "group.id": "mirror",  # librdkafka asks for one; nothing is committed
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": properties.get("isolation.level", "read_committed"),
            **_of_librdkafka(properties),
        }
        self._consumer = kafka.Consumer(settings)
        begin = kafka.OFFSET_BEGINNING
        self._consumer.assign([kafka.TopicPartition(*at, begin if offset is None else offset) for at, offset in offsets.items()])

    def poll(self, timeout_ms: int) -> Mapping[TopicPartition, Sequence[Record]]:
        found: dict[TopicPartition, list[Record]] = {}
        with self._errors():
            for message in self._consumer.consume(_POLL_COUNT_MAX, min(timeout_ms, 200) / 1000):
                if (error := message.error()) is not None:
                    if error.code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise UnknownTopic(message.topic())
                    raise self._kafka.KafkaException(error)
                record = Record(
                    message.offset(), message.key(), message.value(), message.timestamp()[1], [*map(tuple, message.headers() or ())]
                )
                found.setdefault(TopicPartition(message.topic(), message.partition()), []).append(record)
        return found

    def close(self) -> None:
        self._consumer.close()


_CLIENT = (
    "bootstrap.servers",
    "client.id",
    "security.protocol",
    "sasl.mechanism",
    "ssl.ca.location",
    "ssl.endpoint.identification.algorithm",
)


def _of_librdkafka(properties: Mapping[str, str]) -> dict[str, Any]:
    """Properties of the Java client as librdkafka has them."""
    settings: dict[str, Any] = {name: properties[name] for name in _CLIENT if name in properties}
    told = security_of(properties, _SERVERS)
    if told.user is not None:
        settings |= {"sasl.username": told.user, "sasl.password": told.password or ""}
    if told.ca_file is not None:
        settings["ssl.ca.location"] = told.ca_file
    return {"log_level": 0, **settings}
