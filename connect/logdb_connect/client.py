"""What a worker needs of the database: topics, producers, consumers, groups.

``bootstrap.servers`` names servers, ``host:port`` or URLs, as Kafka's clients have them; or a directory, which this process then opens
for writing.  Security properties are those of Kafka's clients (``security.protocol``, ``sasl.jaas.config``, ``ssl.truststore.location``).

Threading: any thread; a producer and a consumer belong to the thread of their task.
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import logdb
from logdb import Consumer, OffsetAndMetadata, Producer, Session, TopicPartition, TransactionalProducer
from logdb.cli.servers import Servers
from logdb.errors import TopicExists, UnknownTopic
from logdb_connect.errors import ConfigError

PRODUCER_OPTIONS = {
    "batch.size": ("batch_size", int),
    "buffer.memory": ("buffer_memory", int),
    "compression.type": ("compression_type", str),
    "delivery.timeout.ms": ("delivery_timeout_ms", int),
    "linger.ms": ("linger_ms", int),
    "max.block.ms": ("max_block_ms", int),
    "transaction.timeout.ms": ("transaction_timeout_ms", int),
}
CONSUMER_OPTIONS = {
    "auto.offset.reset": ("auto_offset_reset", str),
    "client.id": ("client_id", str),
    "group.id": ("group_id", str),
    "isolation.level": ("isolation_level", str),
    "max.poll.interval.ms": ("max_poll_interval_ms", int),
    "max.poll.records": ("max_poll_records", int),
}
_BATCH_SIZE = 256 << 10
_NEEDLESS = ("serializer", "deserializer", "acks", "enable.idempotence", "security.", "sasl.", "ssl.", "bootstrap.servers", "client.")


class Client:
    """The database of a worker."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Open it.

        Raises:
            ConfigError: ``bootstrap.servers`` names none.
            LogdbError: It cannot be opened.
        """
        self.place = properties.get("bootstrap.servers", "").strip()
        if not self.place:
            raise ConfigError("bootstrap.servers", 'Missing required configuration "bootstrap.servers" which has no default value.')
        if self.place.startswith((".", "/")) or os.path.isdir(self.place):
            self.db = logdb.open(self.place)
        else:
            self.db = Servers(client_pairs=tuple(f"{key}={value}" for key, value in properties.items()), asks=False).open(self.place)

    def close(self) -> None:
        self.db.close()

    @property
    def session(self) -> Session:
        """For groups."""
        return self.db.session

    def cluster_id(self) -> str:
        """A name of the database that stays: made of the id of its topic of committed offsets."""
        with contextlib.suppress(logdb.LogdbError):
            topic_id = self.db.describe_topic("__consumer_offsets").topic_id
            return hashlib.sha256(topic_id.encode()).hexdigest()[:22]
        return hashlib.sha256(self.place.encode()).hexdigest()[:22]

    # ------------------------------------------------------------ topics

    def has_topic(self, name: str) -> bool:
        with contextlib.suppress(UnknownTopic):
            return self.db.session.partition_count(name) > 0
        return False

    def create_topic(self, name: str, *, partitions: int = -1, replication: int | None = None, **config: object) -> None:
        """Create a topic, unless it exists."""
        replication = None if replication is None or replication < 1 else replication
        with contextlib.suppress(TopicExists):
            self.db.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication,
                config={key.replace("_", "."): value for key, value in config.items()},
                if_not_exists=True,
            )

    def possible_replication(self, wanted: int | None) -> int | None:
        """A replication factor that the cluster can have; None is its default: a directory, or a single server, has one replica."""
        brokers = len(self.session.cluster_nodes()[0])
        return None if wanted is None or wanted < 1 or brokers < wanted else wanted

    # ------------------------------------------------------------ records

    def producer(self, overrides: Mapping[str, str], transactional_id: str | None = None) -> Producer:
        """A producer with ``producer.override.*``; transactional with an id."""
        options = {"batch_size": _BATCH_SIZE, **chosen(PRODUCER_OPTIONS, overrides)}
        if transactional_id is None:
            options.pop("transaction_timeout_ms", None)
            plain: Producer = self.db.producer(**options)
            return plain
        made: Producer = self.db.producer(transactional_id=transactional_id, **options)
        return made

    def transactional_producer(self, overrides: Mapping[str, str], transactional_id: str) -> TransactionalProducer:
        made = self.producer(overrides, transactional_id)
        assert isinstance(made, TransactionalProducer)
        return made

    def consumer(self, overrides: Mapping[str, str], **options: Any) -> Consumer:
        """A consumer with ``consumer.override.*``, which come before ``options``."""
        return self.db.consumer(**{**options, **chosen(CONSUMER_OPTIONS, overrides)})

    # ------------------------------------------------------------ committed offsets

    def committed(self, group_id: str, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.session.fetch_offsets(group_id, partitions)


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


def unknown_overrides(table: Mapping[str, tuple[str, type]], overrides: Mapping[str, str]) -> list[str]:
    """Properties of Kafka's clients that have no effect here."""
    return sorted(name for name in overrides if name not in table and not any(part in name for part in _NEEDLESS))


def below(prefix: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that begin with ``prefix``, without it."""
    return {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def any_of(topics: Sequence[str]) -> "re.Pattern[str]":
    """A pattern of exactly these topics: a subscription to it also waits for those that do not exist yet."""
    return re.compile("|".join(map(re.escape, topics)))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
