"""Tasks of Connect driven by hand: the contexts that a worker would give them."""

from collections.abc import Iterable, Mapping
from typing import Any

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.data import SinkRecord, SourceBatch, SourceRecord
from logdb_connect.errors import RetriableError


class SinkContext:
    """Remembers what a sink task asked for."""

    def __init__(self, committed=None):
        self.committed_offsets: dict[TopicPartition, OffsetAndMetadata] = dict(committed or {})
        self.sought: dict[TopicPartition, int] = {}
        self.reported: list[tuple[SinkRecord, Exception]] = []
        self.waited: list[float] = []

    def committed(self, partition):
        return self.committed_offsets.get(partition)

    def seek(self, partition, offset):
        self.sought[partition] = offset

    def report(self, record, error):
        self.reported.append((record, error))

    def wait(self, seconds):
        self.waited.append(seconds)


class SourceContext:
    """Keeps source offsets; ``wait`` waits a moment."""

    def __init__(self, offsets=None):
        self.offsets: dict[Any, Mapping[str, Any]] = dict(offsets or {})
        self.stopping = False
        self.waited: list[float] = []

    def offset(self, source_partition):
        return self.offsets.get(frozenset(source_partition.items()))

    def is_stopping(self):
        return self.stopping

    def wait(self, seconds):
        self.waited.append(seconds)

    def keep(self, found: SourceBatch | Iterable[SourceRecord] | None):
        """What the worker does with a poll's records: their offsets are committed."""
        if isinstance(found, SourceBatch):  # it may be an offset alone
            self.offsets[frozenset(found.source_partition.items())] = found.offset
            return
        for record in found or ():
            self.offsets[frozenset(record.source_partition.items())] = record.source_offset


def sink_task(connector, properties, context=None, task=0):
    """A started task of a sink connector."""
    made = started_connector(connector, properties)
    configs = made.task_configs(task + 1)
    new = made.task_class()
    new.context = context or SinkContext()
    new.start(configs[task])
    return new


def source_task(connector, properties, context=None):
    """The started only task of a source connector."""
    made = started_connector(connector, properties)
    try:
        (config,) = made.task_configs(1)
    finally:
        made.stop()
    new = made.task_class()
    new.context = context or SourceContext()
    try:
        new.start(config)
    except BaseException:
        new.stop()  # as a worker does
        raise
    return new


def started_connector(connector, properties):
    made = connector()
    made.config_def.parse(properties)
    assert dict(made.validate(properties)) == {}
    made.start(properties)
    return made


def records_of(task, polls=1, *, commit=True):
    """All records of some polls; polls that fail for now are repeated."""
    records = []
    for _ in range(polls):
        try:
            found = task.poll()
        except RetriableError:
            continue
        if found is not None and not isinstance(found, SourceBatch):
            found = list(found)
        new = list(found or ())
        if commit:
            task.context.keep(found)
            task.commit()
        records += new
    return records


def sink_records(topic, values, *, keys=None, value_schema=None, key_schema=None, partition=0, start=0):
    """Records as a worker gives them to ``put``."""
    keys = keys or [None] * len(values)
    return [
        SinkRecord(
            topic=topic,
            value=value,
            value_schema=None if value is None else value_schema,
            key=key,
            key_schema=key_schema,
            partition=partition,
            offset=offset,
            original_topic=topic,
            original_partition=partition,
            timestamp_ms=1000 + offset,
        )
        for offset, (key, value) in enumerate(zip(keys, values, strict=True), start)
    ]
