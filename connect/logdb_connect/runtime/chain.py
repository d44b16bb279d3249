"""From a connector's records to a topic's, and back: the chain of one task as its loop calls it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from logdb import AnyRecord, Producer, TopicPartition
from logdb_connect.client import below
from logdb_connect.config import ConfigDef
from logdb_connect.data import Header, SinkRecord, SinkRecords, SourceBatch, SourceRecord
from logdb_connect.plugin import Converter, HeaderConverter
from logdb_connect.runtime.tasks import TaskId, TaskRunner

if TYPE_CHECKING:
    from logdb_connect.runtime.worker import Worker

Row = tuple[str, bytes | None, bytes | None, int | None, Sequence[tuple[str, bytes | None]], int | None]


class Prepared:
    """Records that are ready to be written, in order, and the source offsets behind them.

    Attributes:
        rows: Topic, value, key, partition, headers and timestamp of each.
        offsets: Source partition and offset: the last of each partition.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.topics: set[str] = set()
        self._offsets: dict[str, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {}

    @property
    def offsets(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        return list(self._offsets.values())

    def note(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Continue at ``offset`` after these records."""
        self._offsets[repr(sorted(partition.items()))] = (partition, offset)

    def send(self, producer: Producer) -> None:
        """Send all records."""
        send = producer.send
        for topic, value, key, partition, headers, timestamp_ms in self.rows:
            send(topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)


class SourceChain:
    """Transforms and converters of a source task."""

    def __init__(self, key: Converter, value: Converter, header: Callable[[], HeaderConverter]) -> None:
        self._key, self._value, self._make_header = key, value, header

    @cached_property
    def _header(self) -> HeaderConverter:
        return self._make_header()

    def prepare(self, records: SourceBatch | Iterable[SourceRecord]) -> Prepared:
        """The rows of records."""
        prepared = Prepared()
        if isinstance(records, SourceBatch):
            self._prepare_batch(records, prepared)
        else:
            for record in records:
                self._prepare_record(record, prepared)
        prepared.topics = {row[0] for row in prepared.rows}
        return prepared

    def _prepare_batch(self, batch: SourceBatch, prepared: Prepared) -> None:
        values = self._value.from_connect_many(batch.topic, batch.value_schema, batch.values)
        given = [None] * len(values) if batch.keys is None else batch.keys
        keys = self._key.from_connect_many(batch.topic, batch.key_schema, given)
        topic, partition, at = batch.topic, batch.partition, batch.timestamp_ms
        prepared.rows += [(topic, value, key, partition, (), at) for value, key in zip(values, keys, strict=True)]
        prepared.note(batch.source_partition, batch.offset)

    def _prepare_record(self, record: SourceRecord, prepared: Prepared) -> None:
        key = self._key.from_connect(record.topic, record.key_schema, record.key)
        value = self._value.from_connect(record.topic, record.value_schema, record.value)
        headers = [(one.key, self._header.from_connect_header(record.topic, one.key, one.schema, one.value)) for one in record.headers]
        prepared.rows.append((record.topic, value, key, record.partition, headers, record.timestamp_ms))
        prepared.note(record.source_partition, record.source_offset)

    def close(self) -> None:
        for part in (self._key, self._value):
            part.close()


class SinkChain:
    """Converters and transforms of a sink task."""

    def __init__(self, key: Converter, value: Converter, header: Callable[[], HeaderConverter]) -> None:
        self._key, self._value, self._make_header = key, value, header

    @cached_property
    def _header(self) -> HeaderConverter:
        return self._make_header()

    def records(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> SinkRecords:
        """The records for ``put``."""
        found = [self._of(partition, records) for partition, records in polled.items() if records]
        if not found:
            return SinkRecords.of(())
        first, *rest = found
        for one in rest:
            first += one
        return first

    def _of(self, at: TopicPartition, records: Sequence[AnyRecord]) -> SinkRecords:
        topic, count = at.topic, len(records)
        keys = self._key.to_connect_many(topic, [one.key for one in records])
        values = self._value.to_connect_many(topic, [one.value for one in records])
        return SinkRecords(
            topics=[topic] * count,
            partitions=[at.partition] * count,
            offsets=[one.offset for one in records],
            timestamps_ms=[None if one.timestamp_ms < 0 else one.timestamp_ms for one in records],
            keys=[one[1] for one in keys],
            key_schemas=[one[0] for one in keys],
            values=[one[1] for one in values],
            value_schemas=[one[0] for one in values],
            headers=[self._headers(topic, one.headers) if one.headers else () for one in records],
        )

    def _headers(self, topic: str, headers: Sequence[tuple[str, bytes | None]]) -> list[Header]:
        made = []
        for name, data in headers:
            schema, value = self._header.to_connect_header(topic, name, data)
            made.append(Header(name, value, schema))
        return made

    def close(self) -> None:
        for part in (self._key, self._value):
            part.close()

    def report(self, _record: SinkRecord, error: Exception) -> None:
        """A record that the sink could not store."""
        raise error


class Chains:
    """Makes the chain of a task, with the plugins that its connector names, or else its worker."""

    def __init__(self, worker: "Worker", task_id: TaskId, config: Mapping[str, str]) -> None:
        self._worker, self._id, self._config = worker, task_id, config

    def source(self, _: TaskRunner) -> SourceChain:
        return SourceChain(self._converter("key"), self._converter("value"), self._header_converter)

    def sink(self, _: TaskRunner) -> SinkChain:
        return SinkChain(self._converter("key"), self._converter("value"), self._header_converter)

    def _converter(self, which: str) -> Converter:
        made: Converter = self._made(f"{which}.converter", "converter", which)
        return made

    def _header_converter(self) -> HeaderConverter:
        made: HeaderConverter = self._made("header.converter", "header_converter", "header")
        return made

    def _made(self, setting: str, kind: Any, which: str) -> Any:
        given = self._config if self._config.get(setting) else self._worker.properties
        name = given.get(setting) or self._worker.config[setting]
        made = self._worker.plugins.find(name, (kind,), setting)()
        definition: ConfigDef = made.config_def
        made.configure({**definition.parse(below(f"{setting}.", given)), "converter.type": which})
        return made
