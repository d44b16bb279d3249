"""Drives tasks of Connect by hand, one step at a time: a worker without threads, whose commits are an attribute."""

from collections.abc import Mapping, Sequence
from typing import Any

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.data import Schema, SinkRecord, SourceBatch, SourceRecord
from logdb_connect.plugin import Connector

Offsets = dict[str, Mapping[str, Any]]


def sink_record(offset: int, value: Any, *, topic: str = "t", partition: int = 0, **more: Any) -> SinkRecord:
    return SinkRecord(
        topic=topic, partition=partition, offset=offset, value=value, original_topic=topic, original_partition=partition, **more
    )


class Source:
    """The first task of a source connector.

    Attributes:
        offsets: Committed ones, in place of the offsets topic: source partition and offset.
    """

    def __init__(self, connector: type[Connector], properties: Mapping[str, str], offsets: list[tuple[Any, Any]] | None = None) -> None:
        self.offsets = [] if offsets is None else offsets
        self.connector = connector()
        self.connector.context = self
        self.connector.start(connector.config_def and dict(properties))
        self.configs = self.connector.task_configs(1)
        self.task = connector.task_class()
        self.task.context = self
        self.task.start(self.configs[0])

    def offset(self, source_partition):
        return next((offset for partition, offset in reversed(self.offsets) if partition == source_partition), None)

    def is_stopping(self):
        return False

    def wait(self, seconds):
        pass

    def request_task_reconfiguration(self):
        pass

    def poll(self) -> list[SourceRecord]:
        """The records of one ``poll``, without commit."""
        batch = self.task.poll()
        return [] if batch is None else list(batch)

    def step(self) -> list[Any]:
        """The values of one ``poll``, committed."""
        batch = self.task.poll()
        records = [] if batch is None else list(batch)
        self.offsets += [(record.source_partition, record.source_offset) for record in records]
        if isinstance(batch, SourceBatch):
            assert len(batch) == len(records)
        self.task.commit()
        return [record.value for record in records]

    def drain(self, quiet: int = 3) -> list[Any]:
        """The values of all polls until some gave nothing."""
        values: list[Any] = []
        empty = 0
        while empty < quiet:
            got = self.step()
            empty = 0 if got else empty + 1
            values += got
        return values

    def stop(self):
        self.task.stop()
        self.connector.stop()


class Sink:
    """The only task of a sink connector.

    Attributes:
        store: Committed offsets, in place of the group.
        positions: The next offset that each open partition gets.
    """

    def __init__(self, connector: type[Connector], properties: Mapping[str, str], store: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.store = store
        self.positions: dict[TopicPartition, int] = {}
        self.reported: list[tuple[SinkRecord, Exception]] = []
        self.waited: list[float] = []
        self.connector = connector()
        self.connector.context = self
        self.connector.start(dict(properties))
        self.task = connector.task_class()
        self.task.context = self
        self.task.start(self.connector.task_configs(1)[0])

    def committed(self, partition):
        return self.store.get(partition)

    def seek(self, partition, offset):
        self.positions[partition] = offset

    def report(self, record, error):
        self.reported.append((record, error))

    def wait(self, seconds):
        self.waited.append(seconds)

    def open(self, *partitions: TopicPartition) -> None:
        for each in partitions:
            found = self.store.get(each)
            self.positions[each] = 0 if found is None else found.offset
        self.task.open(partitions)

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.task.put(records)
        for record in records:
            self.positions[TopicPartition(record.original_topic, record.original_partition)] = record.offset + 1

    def commit(self) -> None:
        offsets = {partition: OffsetAndMetadata(offset) for partition, offset in self.positions.items()}
        self.store.update(self.task.pre_commit(offsets))

    def deliver(self, log: Mapping[TopicPartition, Sequence[SinkRecord]], at_once: int = 1000) -> None:
        """What the log has from the positions on, without commit."""
        for partition, records in log.items():
            while batch := records[self.positions[partition] :][:at_once]:
                self.put(batch)

    def close(self) -> None:
        self.commit()
        self.task.close(tuple(self.positions))
        self.stop()

    def stop(self) -> None:
        self.task.stop()
        self.connector.stop()


def of_schema(schema: Schema, values: Sequence[Any], topic: str = "t") -> list[SinkRecord]:
    return [sink_record(offset, value, topic=topic, value_schema=schema) for offset, value in enumerate(values)]
