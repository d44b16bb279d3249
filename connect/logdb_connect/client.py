"""What a worker needs of the database: topics, producers, consumers, groups.

``bootstrap.servers`` names servers, ``host:port`` or URLs, as Kafka's clients have them; or a directory, which this process then opens
for writing.  Security properties are those of Kafka's clients (``security.protocol``, ``sasl.jaas.config``, ``ssl.truststore.location``).
``logdb.client`` says which client is used: logdb's, or Kafka's (``kafka_client``); ``connected`` asks the servers where it is ``auto``.

Threading: any thread; a producer and a consumer belong to the thread of their task.
"""

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from logdb import AnyRecord, OffsetAndMetadata, TopicPartition
from logdb.client.addresses import without_credentials
from logdb_connect.errors import ConfigError

Headers = Iterable[tuple[str, bytes | None]]
Listener = Callable[[Sequence[TopicPartition]], object]


class Producer(Protocol):
    """Writes records.  Its errors are those of logdb."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> object:
        """Take a record; it is written soon."""

    def flush(self) -> None:
        """Return when all records are acknowledged.

        Raises:
            LogdbError: One was not written.
        """

    def close(self, timeout_ms: int | None = None) -> None:
        """Write what waits, and end."""


class TransactionalProducer(Producer, Protocol):
    """Writes records in transactions."""

    def init_transactions(self) -> None:
        """End the transaction of a former producer of this id, which can write no more."""

    def begin_transaction(self) -> None: ...

    def commit_transaction(self) -> None: ...


class Member(Protocol):
    """Who a consumer is in its group."""

    @property
    def member_id(self) -> str: ...


class Consumer(Protocol):
    """Reads topics as a member of a group."""

    def subscribe(
        self,
        *,
        pattern: "re.Pattern[str]",
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None: ...

    def poll(self, timeout_ms: int = 0) -> Mapping[TopicPartition, Sequence[AnyRecord]]: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def close(self) -> None: ...


class PartitionOffsets(NamedTuple):
    """Where a partition begins and ends."""

    partition: int
    start_offset: int
    end_offset: int


class TopicState(NamedTuple):
    """A topic as it is now.  ``topic_id`` tells it from others of its name."""

    topic_id: str
    partitions: Sequence[PartitionOffsets]


class Client(ABC):
    """The database of a worker.

    Attributes:
        place: As ``bootstrap.servers`` names it.
        producer_properties, consumer_properties: Of Kafka's, those that have an effect.
        tells_offsets: ``Producer.send`` returns a future of the record's place.
    """

    place: str
    producer_properties: Collection[str]
    consumer_properties: Collection[str]
    tells_offsets = False

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def cluster_id(self) -> str | None:
        """The id that Kafka's clients see, by DescribeCluster; None: the server is so old that it does not tell."""

    # ------------------------------------------------------------ topics

    @abstractmethod
    def topics(self) -> list[str]:
        """Names, without those of internal topics."""

    @abstractmethod
    def has_topic(self, name: str) -> bool: ...

    @abstractmethod
    def create_topic(self, name: str, *, partitions: int = -1, replication: int | None = None, **config: object) -> None:
        """Create a topic, unless it exists; ``_`` in the name of a config stands for a dot."""

    @abstractmethod
    def server_count(self) -> int: ...

    def possible_replication(self, wanted: int | None) -> int | None:
        """A replication factor that the cluster can have; None is its default: a directory, or a single server, has one replica."""
        return None if wanted is None or wanted < 1 or self.server_count() < wanted else wanted

    @abstractmethod
    def topic_config(self, name: str) -> dict[str, str]:
        """The configs that the topic itself has, as text; defaults are left out.

        Raises:
            UnknownTopic: There is none.
        """

    @abstractmethod
    def cleanup_policy(self, name: str) -> str:
        """The one in effect: the topic's own, or the default."""

    @abstractmethod
    def alter_topic(self, name: str, *, partitions: int | None = None, config: Mapping[str, str | None] | None = None) -> None:
        """Add partitions, up to a number, or set configs; None: a config is the default again."""

    @abstractmethod
    def topic_state(self, name: str) -> TopicState:
        """A topic as it is now.

        Raises:
            UnknownTopic: There is none.
        """

    @abstractmethod
    def committed_end(self, name: str, partition: int) -> int:
        """Up to where records are readable at ``read_committed``: where the first open transaction begins, or the end."""

    @abstractmethod
    def read(self, name: str, partition: int, start: int, end: int) -> Iterable[AnyRecord]:
        """The committed records in [start, end); all of them are readable."""

    @abstractmethod
    def wait(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> bool:
        """Wait until a partition grows beyond its position; whether one has."""

    # ------------------------------------------------------------ records

    @abstractmethod
    def producer(self, overrides: Mapping[str, str]) -> Producer:
        """A producer with ``producer.override.*``."""

    @abstractmethod
    def transactional_producer(self, overrides: Mapping[str, str], transactional_id: str) -> TransactionalProducer: ...

    @abstractmethod
    def consumer(self, overrides: Mapping[str, str], *, group_id: str, group_instance_id: str, client_id: str) -> Consumer:
        """A consumer of committed records from the beginning on; ``consumer.override.*`` come before that."""

    # ------------------------------------------------------------ groups

    @abstractmethod
    def leave(self, consumer: Consumer, group_id: str, group_instance_id: str) -> None:
        """Close a consumer and free its place in the group, which is a lasting one."""

    @abstractmethod
    def remove_member(self, group_id: str, group_instance_id: str) -> None:
        """Take a static member out of its group: its process has ended, and it cannot leave itself."""

    @abstractmethod
    def has_members(self, group_id: str) -> bool: ...

    @abstractmethod
    def committed(self, group_id: str, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets: of these partitions, or all."""

    @abstractmethod
    def alter_committed(self, group_id: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set the committed offsets of a group without members; None: the group begins there as if it had read nothing.

        Raises:
            GroupNotEmpty: The group has members.
        """

    @abstractmethod
    def commit_for(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit for a group without members."""


def connected(properties: Mapping[str, str]) -> Client:
    """The client that ``logdb.client`` names, or that fits what answers at ``bootstrap.servers``.

    Raises:
        ConfigError: ``bootstrap.servers`` names none, or nothing tells what answers there.
        LogdbError: The database cannot be opened.
    """
    place = properties.get("bootstrap.servers", "").strip()
    if not place:
        raise ConfigError("bootstrap.servers", 'Missing required configuration "bootstrap.servers" which has no default value.')
    kind = properties.get("logdb.client", "auto").strip().lower()
    if kind == "auto":
        from logdb_connect.detection import kind_at

        kind = kind_at(place, properties)
    if kind == "kafka":
        from logdb_connect.kafka_client import KafkaClient

        return KafkaClient(properties)
    from logdb_connect.logdb_client import LogdbClient

    return LogdbClient(properties)


def is_directory(properties: Mapping[str, str]) -> bool:
    """Whether ``bootstrap.servers`` names a directory, which this process opens itself."""
    place = properties["bootstrap.servers"].strip()
    return place.startswith((".", "/")) or os.path.isdir(place)


def shown(servers: str) -> str:
    """Servers, separated by commas, as messages have them: without users and passwords."""
    return ",".join(without_credentials(one.strip()) for one in servers.split(","))


_NEEDLESS = ("serializer", "deserializer", "acks", "enable.idempotence", "security.", "sasl.", "ssl.", "bootstrap.servers", "client.")


def chosen(table: Mapping[str, tuple[str, type]], overrides: Mapping[str, str]) -> dict[str, Any]:
    """The options for properties of Kafka's clients.

    Raises:
        ConfigError: A value has another type.
    """
    options = {}
    for name, (option, kind) in table.items():
        if name in overrides:
            try:
                options[option] = kind(overrides[name].strip())
            except ValueError:
                raise ConfigError(name, f"Invalid value {overrides[name]} for configuration {name}: Not a number of type INT") from None
    return options


def unknown_overrides(known: Collection[str], overrides: Mapping[str, str]) -> list[str]:
    """Properties of Kafka's clients that have no effect here."""
    return sorted(name for name in overrides if name not in known and not any(part in name for part in _NEEDLESS))


def as_text(config: Mapping[str, object]) -> dict[str, str]:
    """Configs as Kafka writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}


def below(prefix: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that begin with ``prefix``, without it."""
    return {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def any_of(topics: Sequence[str]) -> "re.Pattern[str]":
    """A pattern of exactly these topics: a subscription to it also waits for those that do not exist yet."""
    return re.compile("|".join(map(re.escape, topics)))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
