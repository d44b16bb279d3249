"""The sink of object stores: records of a topic's partition become objects, named after their first offset.

    topics/<topic>/partition=0/<topic>+0+0000000000.json

Exactly once: only offsets behind complete objects are committed.  After a restart the records behind the committed offset come again and
make the same objects under the same names.  This holds where records alone decide when an object ends and where it lies: with
``flush.size``, and with ``rotate.interval.ms`` unless the extractor is ``Wallclock``.  ``rotate.schedule.interval.ms`` goes by the clock.
"""

import bisect
import datetime
import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.config import ConfigDef
from logdb_connect.connectors.objects.formats import Format, Writer, format_of
from logdb_connect.connectors.objects.partitioners import by_kafka_partition, local_offset_ms, partitioner_of, zone_of
from logdb_connect.connectors.objects.settings import FORMAT, PARTITIONER, ROTATION, STORE
from logdb_connect.connectors.objects.stores import Store, open_store
from logdb_connect.data import Schema, SinkRecord, SinkRecords
from logdb_connect.errors import ConfigError, ConnectError, DataError
from logdb_connect.plugin import Properties, SinkConnector, SinkTask, SinkTaskContext
from logdb_connect.spark.settings import RUNNER, faults, on_spark, refuse_offsets

_log = logging.getLogger(__name__)

_DAY_MS = 86_400_000


class _File(NamedTuple):
    """An object that is not complete yet."""

    begin: int
    schema: Schema | None
    writer: Writer


class _Rules:
    """What the properties say about objects: the same for all partitions."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.format: Format = format_of(config)
        self.directory, self.extractor = partitioner_of(config)
        self.flush_size: int = config["flush.size"]
        self.interval_ms: int = config["rotate.interval.ms"] if self.extractor is not None else -1
        if self.extractor is None and config["rotate.interval.ms"] > 0:
            _log.warning("rotate.interval.ms has no effect: it needs a partitioner that goes by time")
        self.schedule_ms: int = config["rotate.schedule.interval.ms"]
        if self.schedule_ms > 0 and not config["timezone"]:
            raise ConfigError("timezone", "rotate.schedule.interval.ms needs the property timezone")
        self.zone = zone_of(config["timezone"]) if self.schedule_ms > 0 else datetime.UTC
        self.ends_with_directory: bool = config["rotate.file.on.partition.change"]
        self.ignores_null: bool = config["behavior.on.null.values"] == "ignore"
        self._topics: str = config["topics.dir"]
        self._delimiter: str = config["directory.delim"]
        self._file_delimiter: str = config["file.delim"]
        self._width: int = config["filename.offset.zero.pad.width"]

    def name(self, topic: str, directory: str, source: TopicPartition, begin: int) -> str:
        """The name of an object; the topic in the directory is the one that transforms made."""
        last = self._file_delimiter.join((source.topic, str(source.partition), f"{begin:0{self._width}}"))
        return self._delimiter.join([*filter(str.strip, [self._topics]), topic, directory, f"{last}{self.format.extension}"])

    def next_schedule(self, now_ms: int) -> int:
        """The next multiple of the schedule's interval since midnight."""
        offset = local_offset_ms(now_ms, self.zone)
        midnight = (now_ms + offset) // _DAY_MS * _DAY_MS - offset
        return midnight + ((now_ms - midnight) // self.schedule_ms + 1) * self.schedule_ms


class _PartitionWriter:
    """The objects of one partition.

    State:
        _files: Incomplete objects by topic and directory, in the order of their first offsets.
        _complete: Names and contents of objects that are to be stored next.
        taken: Behind the last record that this has taken.
        stored: Behind the last record that is stored with all before it; None where nothing was stored since ``open``.
    """

    def __init__(self, source: TopicPartition, rules: _Rules, store: Store, context: SinkTaskContext) -> None:
        self._source, self._rules, self._store, self._context = source, rules, store, context
        self._files: dict[tuple[str, str], _File] = {}
        self._complete: list[tuple[str, bytes]] = []
        self._count = 0
        self._begin_ms: int | None = None
        self._last_directory: str | None = None
        self._scheduled_ms = rules.next_schedule(_now_ms()) if rules.schedule_ms > 0 else 0
        self.taken = -1
        self.stored: int | None = None

    def take(self, records: SinkRecords) -> None:
        """Records of this partition, in order; those that were taken before are left out.

        Raises:
            RetriableError: An object could not be stored now.  The next call tries it again.
        """
        self.store_complete()
        at, end = bisect.bisect_left(records.offsets, self.taken), len(records)
        while at < end:
            at = self._take_some(records, at)

    def store_complete(self) -> None:
        """Store objects that are complete."""
        while self._complete:
            name, data = self._complete[0]
            self._store.put(name, data, self._rules.format.content_type)
            del self._complete[0]
            if not self._complete:
                self.stored = self.taken

    def end_on_schedule(self) -> None:
        """Complete all objects if it is time to."""
        if self._rules.schedule_ms > 0 and (now_ms := _now_ms()) >= self._scheduled_ms:
            self._scheduled_ms = self._rules.next_schedule(now_ms)
            self._end_files()

    # Taking -------------------------------------------------------------------------------------------------------------------

    def _take_some(self, records: SinkRecords, at: int) -> int:
        """Take records that go into one object; returns behind them."""
        value, schema, topic = records.values[at], records.value_schemas[at], records.topics[at]
        if value is None:
            return self._refuse(records, at, DataError("Null valued records are not writeable with behavior.on.null.values=fail"))
        if self._rules.directory is by_kafka_partition:
            directory, end = self._rules.directory(value, schema, self._source.partition, None), self._alike(records, at)
        else:
            try:
                time_ms = None if self._rules.extractor is None else self._rules.extractor(value, records.timestamps_ms[at])
                directory = self._rules.directory(value, schema, self._source.partition, time_ms)
            except DataError as error:
                return self._refuse(records, at, error)
            if time_ms is not None and self._is_over(directory, time_ms):
                self._end_files()
            if self._begin_ms is None:
                self._begin_ms = time_ms
            end = self._in_directory(directory, records, at)
        file = self._files.get((topic, directory))
        if file is not None and self._rules.format.needs_schema and file.schema != schema:
            self._end_files()
            file = None
        return self._write(file, directory, records, at, end)

    def _alike(self, records: SinkRecords, at: int) -> int:
        """Behind the records from ``at`` on that go into the same object, with values, topic and schema of one kind."""
        end = min(len(records), at + self._rules.flush_size - self._count)
        values, schemas, topics = records.values[at:end], records.value_schemas[at:end], records.topics[at:end]
        alike = end - at
        if None in values:
            alike = values.index(None)
        if schemas.count(schemas[0]) != len(schemas):
            alike = min(alike, sum(1 for _ in itertools.takewhile(lambda each: each == schemas[0], schemas)))
        if topics.count(topics[0]) != len(topics):
            alike = min(alike, sum(1 for _ in itertools.takewhile(lambda each: each == topics[0], topics)))
        return at + alike

    def _in_directory(self, directory: str, records: SinkRecords, at: int) -> int:
        """As ``_alike``, of the records that also belong to a directory."""
        rules, partition = self._rules, self._source.partition
        end = self._alike(records, at)
        for each in range(at + 1, end):
            value = records.values[each]
            try:
                time_ms = None if rules.extractor is None else rules.extractor(value, records.timestamps_ms[each])
                if rules.directory(value, records.value_schemas[each], partition, time_ms) != directory:
                    return each
            except DataError:
                return each
            if time_ms is not None and self._begin_ms is not None and 0 < rules.interval_ms <= time_ms - self._begin_ms:
                return each
        return end

    def _write(self, file: _File | None, directory: str, records: SinkRecords, at: int, end: int) -> int:
        topic, schema = records.topics[at], records.value_schemas[at]
        try:
            if file is None:
                file = _File(records.offsets[at], schema, self._rules.format.writer(schema))
            file.writer.add(topic, records.values[at:end])
        except DataError as error:
            if end - at == 1:
                return self._refuse(records, at, error)
            return self._write_each(records, at, end)
        self._files.setdefault((topic, directory), file)
        self._last_directory = directory
        self._count += end - at
        self.taken = records.offsets[end - 1] + 1
        if self._count >= self._rules.flush_size:
            self._end_files()
        return end

    def _write_each(self, records: SinkRecords, at: int, end: int) -> int:
        """One of the records is bad: find out which."""
        for each in range(at, end):
            self._take_some(records[each : each + 1], 0)
        return end

    def _refuse(self, records: SinkRecords, at: int, error: DataError) -> int:
        if records.values[at] is not None or not self._rules.ignores_null:
            self._context.report(records[at], error)
        self.taken = records.offsets[at] + 1
        if not self._files and not self._complete:
            self.stored = self.taken
        return at + 1

    # Ends of objects ----------------------------------------------------------------------------------------------------------

    def _is_over(self, directory: str, time_ms: int) -> bool:
        if not self._count or self._rules.interval_ms <= 0:
            return False
        begin_ms = time_ms if self._begin_ms is None else self._begin_ms
        return time_ms - begin_ms >= self._rules.interval_ms or (self._rules.ends_with_directory and directory != self._last_directory)

    def _end_files(self) -> None:
        for (topic, directory), file in self._files.items():
            name = self._rules.name(topic, directory, self._source, file.begin)
            try:
                self._complete.append((name, file.writer.finish(name)))
            except DataError as error:
                raise ConnectError(f"Cannot write the object {name}: {error}") from error
        self._files.clear()
        self._count, self._begin_ms = 0, None
        self.store_complete()


class ObjectStoreSinkTask(SinkTask):
    """Collects the records of its partitions, and stores them as objects."""

    def start(self, properties: Properties) -> None:
        config = ObjectStoreSinkConnector.config_def.parse(properties)
        self._rules, self.store = _Rules(config), open_store(config)
        self._writers: dict[TopicPartition, _PartitionWriter] = {}

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            if each in self._writers and (committed := self.context.committed(each)) is not None:
                self.context.seek(each, committed.offset)
            self._writers[each] = _PartitionWriter(each, self._rules, self.store, self.context)

    def put(self, records: Sequence[SinkRecord]) -> None:
        columns = records if isinstance(records, SinkRecords) else SinkRecords.of(records)
        sources = columns.originals if columns.originals is not None else list(zip(columns.topics, columns.partitions, strict=True))
        at = 0
        for source, run in itertools.groupby(sources):
            end = at + sum(1 for _ in run)
            self._writers[TopicPartition(*source)].take(columns[at:end])
            at = end
        for writer in self._writers.values():
            writer.store_complete()
            writer.end_on_schedule()

    def pre_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        found = {each: writer.stored for each, writer in self._writers.items() if each in offsets}
        return {each: OffsetAndMetadata(offset) for each, offset in found.items() if offset is not None}

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self._writers.pop(each, None)


class ObjectStoreSinkConnector(SinkConnector):
    """Records to objects of S3, GCS, Azure, HDFS or a directory, under the names of Confluent's S3 sink."""

    task_class = ObjectStoreSinkTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = STORE + FORMAT + ROTATION + PARTITIONER + RUNNER
    spark = "objects"

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties] * (1 if on_spark(self._properties) else max_tasks)

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        _Rules(config)
        if on_spark(config):
            return faults(config, self.spark)
        open_store(config)
        return {}

    def alter_offsets(self, properties: Properties, offsets: Mapping[TopicPartition, int | None]) -> None:
        refuse_offsets(properties)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
