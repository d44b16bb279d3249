"""A worker's client of logdb: a directory, which this process then opens for writing, or servers over HTTP."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import logdb
from logdb import AnyRecord, OffsetAndMetadata, Session, TopicPartition
from logdb.cli.terminal.servers import Servers
from logdb.errors import TopicExists, UnknownGroup, UnknownMember, UnknownTopic
from logdb_connect.client import (
    Client,
    Consumer,
    PartitionOffsets,
    Producer,
    TopicState,
    TransactionalProducer,
    as_text,
    chosen,
    is_directory,
)

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


class LogdbClient(Client):
    """Public calls of logdb, and the groups of its session."""

    producer_properties, consumer_properties = PRODUCER_OPTIONS.keys(), CONSUMER_OPTIONS.keys()
    tells_offsets = True

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Open the database.

        Raises:
            LogdbError: It cannot be opened.
        """
        self.place = properties["bootstrap.servers"].strip()
        self._cluster_id: str | None = None
        self._knows_cluster_id = False
        if is_directory(properties):
            self._db = logdb.open(self.place)
        else:
            self._db = Servers(client_pairs=tuple(f"{key}={value}" for key, value in properties.items()), asks=False).open(self.place)

    def close(self) -> None:
        self._db.close()

    @property
    def session(self) -> Session:
        """For the group of workers."""
        return self._db.session

    def cluster_id(self) -> str | None:
        """Asked once: a large cluster answers with all its partitions, too."""
        if not self._knows_cluster_id:
            self._cluster_id, self._knows_cluster_id = self.session.cluster_nodes().database_id or None, True
        return self._cluster_id

    # ------------------------------------------------------------ topics

    def topics(self) -> list[str]:
        return [info.name for info in self._db.topics()]

    def has_topic(self, name: str) -> bool:
        with contextlib.suppress(UnknownTopic):
            return self.session.partition_count(name) > 0
        return False

    def create_topic(self, name: str, *, partitions: int = -1, replication: int | None = None, **config: object) -> None:
        replication = None if replication is None or replication < 1 else replication
        with contextlib.suppress(TopicExists):
            self._db.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication,
                config={key.replace("_", "."): value for key, value in config.items()},
                if_not_exists=True,
            )

    def server_count(self) -> int:
        return len(self.session.cluster_nodes().serving)

    def topic_config(self, name: str) -> dict[str, str]:
        return as_text(self._db.describe_topic(name).config)

    def cleanup_policy(self, name: str) -> str:
        return self.topic_config(name).get("cleanup.policy", "delete")

    def alter_topic(self, name: str, *, partitions: int | None = None, config: Mapping[str, str | None] | None = None) -> None:
        self._db.alter_topic(name, partitions=partitions, config=config)

    def topic_state(self, name: str) -> TopicState:
        info = self._db.describe_topic(name)
        return TopicState(info.topic_id, [PartitionOffsets(one.partition, one.start_offset, one.end_offset) for one in info.partitions])

    def committed_end(self, name: str, partition: int) -> int:
        return self._db.log(name, partition).readable_end_offset("read_committed")

    def read(self, name: str, partition: int, start: int, end: int) -> Iterable[AnyRecord]:
        return self._db.log(name, partition).read(start, end_offset=end, isolation_level="read_committed")

    def wait(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> bool:
        return bool(self.session.wait(positions, timeout_ms))

    # ------------------------------------------------------------ records

    def producer(self, overrides: Mapping[str, str]) -> Producer:
        options = {"batch_size": _BATCH_SIZE, **chosen(PRODUCER_OPTIONS, overrides)}
        options.pop("transaction_timeout_ms", None)
        return cast("Producer", self._db.producer(**options))

    def transactional_producer(self, overrides: Mapping[str, str], transactional_id: str) -> TransactionalProducer:
        options = {"batch_size": _BATCH_SIZE, **chosen(PRODUCER_OPTIONS, overrides)}
        return cast("TransactionalProducer", self._db.producer(transactional_id=transactional_id, **options))

    def consumer(self, overrides: Mapping[str, str], *, group_id: str, group_instance_id: str, client_id: str) -> Consumer:
        options = {
            "group_id": group_id,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "client_id": client_id,
            **chosen(CONSUMER_OPTIONS, overrides),
        }
        return cast("Consumer", self._db.consumer(group_instance_id=group_instance_id, **options))

    # ------------------------------------------------------------ groups

    def leave(self, consumer: Consumer, group_id: str, group_instance_id: str) -> None:
        member_id = cast("logdb.Consumer", consumer).group_metadata().member_id
        try:
            consumer.close()
        finally:
            if member_id:
                with contextlib.suppress(logdb.LogdbError):  # a successor has its place
                    self.session.leave_group(group_id, member_id, group_instance_id=group_instance_id)

    def remove_member(self, group_id: str, group_instance_id: str) -> None:
        with contextlib.suppress(UnknownGroup, UnknownMember):
            self.session.leave_group(group_id, group_instance_id=group_instance_id)

    def committed(self, group_id: str, partitions: Sequence[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.session.fetch_offsets(group_id, partitions)

    def has_members(self, group_id: str) -> bool:
        try:
            return bool(self._db.describe_group(group_id).members)
        except UnknownGroup:
            return False

    def alter_committed(self, group_id: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        with contextlib.suppress(UnknownGroup):
            if forgotten := [at for at, offset in offsets.items() if offset is None]:
                self._db.delete_group_offsets(group_id, forgotten)
        if kept := {at: offset for at, offset in offsets.items() if offset is not None}:
            self._db.reset_offsets(group_id, kept)

    def commit_for(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.session.commit_offsets(group_id, offsets).result()
