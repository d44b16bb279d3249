"""The chain of one task: transforms, converters, and ``errors.*``.  No threads, no clock, no client: those come as arguments.

    source:  records ──► transforms ──► converters ──► rows, to be sent
    sink:    bytes ──► converters ──► transforms ──► columns, for ``put``

How a worker uses it::

    handler = ErrorHandler(ErrorSettings.of(config), connector="c", task=0, clock_ms=…, wait=event.wait, name_of=plugins.name_of)
    handler.send_letter = …                       # a function of a Row; only if there is a dead letter queue
    steps = steps_of(config, make)                # make(prefix, kind): the plugin that <prefix>type names, configured
    source = SourceChain(key, value, header, steps, handler)
    rows = source.rows(batch_or_records)          # a record that fails, or is filtered, has no row; its source offset still counts
    sink = SinkChain(key, value, header, steps, handler)
    columns = sink.columns(topic, partition, records)       # SinkRecords(**columns)
    sink.report(record, error)                    # for SinkTaskContext.report

A stage that raises ``RetriableError`` runs again for ``errors.retry.timeout``.  Then, and after any other error, the record is reported:
to the log, and as a letter to the dead letter queue.  With ``errors.tolerance=all`` the chain goes on with the next record.  Otherwise it
raises ``ConnectError``, after the letter.  Letters go out in order; the worker flushes them before it commits offsets.

Converters work on whole columns where no record fails.  If one fails, the chain converts the column again, record by record.
"""

import dataclasses
import logging
import random
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple, Protocol, Self, TypedDict, TypeVar

from logdb_connect.catalogue import Kind
from logdb_connect.data import ConnectRecord, Header, Schema, SinkRecord, SourceBatch, SourceRecord
from logdb_connect.errors import ConfigError, ConnectError, DataError, RetriableError
from logdb_connect.plugin import Columns, Converter, HeaderConverter, Predicate, Transform, columns

logger = logging.getLogger(__name__)
Stage = Literal["TRANSFORMATION", "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER", "TASK_PUT"]
Headers = Sequence[tuple[str, bytes | None]]
Row = tuple[str, bytes | None, bytes | None, int | None, Headers, int | None]
"""Topic, value, key, partition, headers and timestamp of a record to send."""
Record = TypeVar("Record", bound=ConnectRecord)
Result = TypeVar("Result")
Make = Callable[[str, Kind], Any]

_DELAY_MIN_MS = 300
_NO_TIMESTAMP = -1
_PREFIX = "__connect.errors."
_JAVA_ERRORS: Mapping[type[BaseException], str] = {
    DataError: "org.apache.kafka.connect.errors.DataException",
    RetriableError: "org.apache.kafka.connect.errors.RetriableException",
    ConnectError: "org.apache.kafka.connect.errors.ConnectException",
}


class RawRecord(Protocol):
    """A record as a consumer reads it."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def timestamp_ms(self) -> int: ...


class SinkColumns(TypedDict):
    """The arguments of ``SinkRecords``."""

    topics: list[str]
    partitions: list[int]
    offsets: list[int]
    timestamps_ms: list[int | None]
    keys: list[Any]
    key_schemas: list[Schema | None]
    values: list[Any]
    value_schemas: list[Schema | None]
    headers: list[Sequence[Header]]
    originals: list[tuple[str, int]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSettings:
    """The properties ``errors.*`` of a connector."""

    retry_timeout_ms: int = 0
    retry_delay_ms_max: int = 60_000
    tolerates_all: bool = False
    logs: bool = False
    logs_records: bool = False
    queue: str = ""
    queue_has_context: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """From properties that are parsed."""
        return cls(
            retry_timeout_ms=config.get("errors.retry.timeout", 0),
            retry_delay_ms_max=config.get("errors.retry.delay.max.ms", 60_000),
            tolerates_all=config.get("errors.tolerance", "none") == "all",
            logs=config.get("errors.log.enable", False),
            logs_records=config.get("errors.log.include.messages", False),
            queue=(config.get("errors.deadletterqueue.topic.name") or "").strip(),
            queue_has_context=config.get("errors.deadletterqueue.context.headers.enable", False),
        )


class Step(NamedTuple):
    """One transform, and the records that it applies to."""

    transform: Transform
    predicate: Predicate | None = None
    negated: bool = False


def steps_of(config: Mapping[str, Any], make: Make) -> list[Step]:
    """The transforms of a connector, in order.

    Args:
        config: All properties, as text.
        make: Gives the plugin that the property ``<prefix>type`` names, configured with the properties below the prefix.

    Raises:
        ConfigError: A transform names a predicate that is not in ``predicates``, or ``negate`` stands alone.
    """
    known = _names(config.get("predicates"))
    steps = []
    for name in _names(config.get("transforms")):
        prefix = f"transforms.{name}."
        chosen, negate = config.get(f"{prefix}predicate"), config.get(f"{prefix}negate")
        predicate = None
        if chosen is not None:
            if chosen not in known:
                message = f"Invalid value {chosen} for configuration {prefix}predicate: must be one of predicates={','.join(known)}"
                raise ConfigError(f"{prefix}predicate", message)
            predicate = make(f"predicates.{chosen}.", "predicate")
        elif negate is not None:
            raise ConfigError(
                f"{prefix}negate",
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate to be negated.",
            )
        steps.append(Step(make(prefix, "transformation"), predicate, str(negate).strip().lower() == "true"))
    return steps


def _names(text: Any) -> list[str]:
    names = [] if text is None else text if isinstance(text, list) else str(text).split(",")
    return [name.strip() for name in names if name.strip()]


class Failure(Exception):
    """A stage that failed."""

    def __init__(self, stage: Stage, plugin: object, error: Exception) -> None:
        super().__init__(str(error))
        self.stage, self.plugin, self.error = stage, plugin, error


class ErrorHandler:
    """Runs stages again, and reports those that failed.

    Attributes:
        send_letter: Takes the rows for the dead letter queue.
        failures, skipped, retries, logged, letters: Counts, for metrics.
        last_failure_ms: Time of the last failure.
    """

    def __init__(
        self,
        settings: ErrorSettings,
        *,
        connector: str,
        task: int,
        clock_ms: Callable[[], int],
        wait: Callable[[float], bool],
        name_of: Callable[[type], str] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Args: ``wait`` sleeps for seconds; it returns true, at once, where the task is asked to stop."""
        self.settings, self._connector, self._task = settings, connector, task
        self._clock_ms, self._wait, self._name_of, self._chance = clock_ms, wait, name_of or _qualified, chance
        self.send_letter: Callable[[Row], object] | None = None
        self.failures = self.skipped = self.retries = self.logged = self.letters = 0
        self.last_failure_ms: int | None = None

    def run(self, stage: Stage, plugin: object, operation: Callable[..., Result], *arguments: Any) -> Result:
        """What ``operation`` gives, after retries.

        Raises:
            Failure: It raised an error.
        """
        try:
            return operation(*arguments)
        except RetriableError as error:
            return self._retry(stage, plugin, operation, arguments, error)
        except Exception as error:
            raise Failure(stage, plugin, error) from error

    def _retry(
        self, stage: Stage, plugin: object, operation: Callable[..., Result], arguments: Sequence[Any], error: RetriableError
    ) -> Result:
        timeout_ms, start_ms, attempt = self.settings.retry_timeout_ms, self._clock_ms(), 0
        while timeout_ms < 0 or self._clock_ms() < start_ms + timeout_ms:
            if self._wait(self._delay_ms(attempt, start_ms) / 1000):
                break
            attempt += 1
            self.retries += 1
            try:
                return operation(*arguments)
            except RetriableError as again:
                error = again
            except Exception as other:
                raise Failure(stage, plugin, other) from other
        raise Failure(stage, plugin, error) from error

    def _delay_ms(self, attempt: int, start_ms: int) -> float:
        delay_ms: float = _DELAY_MIN_MS << min(attempt, 32)
        if delay_ms > self.settings.retry_delay_ms_max:
            delay_ms = self._chance() * self.settings.retry_delay_ms_max
        if self.settings.retry_timeout_ms >= 0:
            delay_ms = min(delay_ms, max(0, start_ms + self.settings.retry_timeout_ms - self._clock_ms()))
        return delay_ms

    def failed(self, failure: Failure, record: object, letter: "Letter | None" = None) -> None:
        """Report a failure; returns where the record may be skipped.

        Raises:
            ConnectError: ``errors.tolerance`` is ``none``.
        """
        self.failures += 1
        self.last_failure_ms = self._clock_ms()
        if self.settings.logs:
            self._log(failure, record)
        if letter is not None and self.settings.queue and self.send_letter is not None:
            self.letters += 1
            self.send_letter(self._row(letter, failure))
        if not self.settings.tolerates_all:
            where = "" if letter is None else f" (topic {letter.topic}, partition {letter.partition}, offset {letter.record.offset})"
            raise ConnectError(f"Tolerance exceeded in error handler: {failure.stage}: {failure.error}{where}") from failure.error
        self.skipped += 1

    def _log(self, failure: Failure, record: object) -> None:
        self.logged += 1
        what = ""
        if self.settings.logs_records:
            kind = "consumed record is" if isinstance(record, Letter) else "source record is ="
            what = f", where {kind} {record}"
        logger.error(
            "Error encountered in task %s-%d. Executing stage '%s' with class '%s'%s.",
            self._connector,
            self._task,
            failure.stage,
            self._name_of(type(failure.plugin)),
            what,
            exc_info=failure.error,
        )

    def _row(self, letter: "Letter", failure: Failure) -> Row:
        headers = list(letter.record.headers)
        if self.settings.queue_has_context:
            error = failure.error
            context = {
                "topic": letter.topic,
                "partition": letter.partition,
                "offset": letter.record.offset,
                "connector.name": self._connector,
                "task.id": self._task,
                "stage": failure.stage,
                "class.name": self._name_of(type(failure.plugin)),
                "exception.class.name": _JAVA_ERRORS.get(type(error)) or _qualified(type(error)),
                "exception.message": error,
                "exception.stacktrace": "".join(traceback.format_exception(error)),
            }
            headers += [(_PREFIX + name, str(value).encode(errors="replace")) for name, value in context.items()]
        timestamp_ms = _known(letter.record.timestamp_ms)
        return self.settings.queue, letter.record.value, letter.record.key, None, headers, timestamp_ms


def _known(timestamp_ms: int) -> int | None:
    """The timestamp of a record that was read; None if it has none.  A negative one is a time before 1970."""
    return None if timestamp_ms == _NO_TIMESTAMP else timestamp_ms


class Letter(NamedTuple):
    """A record as it was read, for the log and the dead letter queue."""

    topic: str
    partition: int
    record: RawRecord

    def __str__(self) -> str:
        """Where it lies; nothing of what it contains."""
        place = f"topic='{self.topic}', partition={self.partition}, offset={self.record.offset}"
        return f"{{{place}, timestamp={self.record.timestamp_ms}}}"


def _qualified(made: type) -> str:
    return f"{made.__module__}.{made.__qualname__}"


class _Chain:
    """What both chains have."""

    def __init__(self, key: Converter, value: Converter, header: HeaderConverter, steps: Sequence[Step], handler: ErrorHandler) -> None:
        self._key, self._value, self._header, self._steps, self._handler = key, value, header, steps, handler

    def _transform(self, record: Record) -> Record | None:
        run = self._handler.run
        given: Record | None = record
        for transform, predicate, negated in self._steps:
            if predicate is None or run("TRANSFORMATION", predicate, predicate.test, given) is not negated:
                given = run("TRANSFORMATION", transform, transform.apply, given)  # type: ignore[assignment]
                if given is None:
                    return None
        return given

    def close(self) -> None:
        """Close all parts."""
        for step in self._steps:
            step.transform.close()
            if step.predicate is not None:
                step.predicate.close()
        for part in (self._key, self._value, self._header):
            part.close()


class SourceChain(_Chain):
    """Transforms and converters of a source task."""

    def rows(self, records: SourceBatch | Iterable[SourceRecord]) -> list[Row]:
        """What to send, in order.

        Raises:
            ConnectError: A record failed, and ``errors.tolerance`` is ``none``.
        """
        if isinstance(records, SourceBatch) and not self._steps:
            try:
                return self._batch_rows(records)
            except Exception:  # noqa: BLE001 - the same record fails again below, and is reported
                logger.debug("A batch of %d records is converted record by record", len(records))
        pairs: list[tuple[SourceRecord, SourceRecord]] = []
        for record in records:
            try:
                made = self._changed(record) if self._steps else record
            except Failure as failure:
                self._handler.failed(failure, record)
            else:
                if made is not None:
                    pairs.append((record, made))
        return [row for run in _runs(pairs) for row in self._run_rows(run)]

    def _changed(self, record: SourceRecord) -> SourceRecord | None:
        """The record after the transforms: a timestamp of -1 is None for them, as in a sink, and -1 again after them."""
        if record.timestamp_ms != _NO_TIMESTAMP:
            return self._transform(record)
        made = self._transform(record.replace(timestamp_ms=None))
        return made if made is None or made.timestamp_ms is not None else made.replace(timestamp_ms=_NO_TIMESTAMP)

    def _batch_rows(self, batch: SourceBatch) -> list[Row]:
        topic, partition, at = batch.topic, batch.partition, batch.timestamp_ms
        values = self._value.from_connect_many(topic, batch.value_schema, batch.values)
        if batch.keys is None:
            keys = [self._key.from_connect(topic, batch.key_schema, None)] * len(values)
        else:
            keys = self._key.from_connect_many(topic, batch.key_schema, batch.keys)
        return [(topic, value, key, partition, (), at) for value, key in zip(values, keys, strict=True)]

    def _run_rows(self, pairs: Sequence[tuple[SourceRecord, SourceRecord]]) -> list[Row]:
        """Of records of one topic and the same schemas."""
        made = [pair[1] for pair in pairs]
        topic, key_schema, value_schema = made[0].topic, made[0].key_schema, made[0].value_schema
        try:
            headers = [self._headers(each) if each.headers else () for each in made]
            keys = self._key.from_connect_many(topic, key_schema, [each.key for each in made])
            values = self._value.from_connect_many(topic, value_schema, [each.value for each in made])
        except Exception:  # noqa: BLE001 - the same record fails again below, and is reported
            return [row for original, each in pairs if (row := self._row(original, each)) is not None]
        return [
            (topic, value, key, each.partition, head, each.timestamp_ms)
            for each, value, key, head in zip(made, values, keys, headers, strict=True)
        ]

    def _row(self, original: SourceRecord, made: SourceRecord) -> Row | None:
        run, topic = self._handler.run, made.topic
        try:
            headers = run("HEADER_CONVERTER", self._header, self._headers, made)
            key = run("KEY_CONVERTER", self._key, self._key.from_connect, topic, made.key_schema, made.key)
            value = run("VALUE_CONVERTER", self._value, self._value.from_connect, topic, made.value_schema, made.value)
        except Failure as failure:
            self._handler.failed(failure, original)
            return None
        return topic, value, key, made.partition, headers, made.timestamp_ms

    def _headers(self, record: SourceRecord) -> Headers:
        convert, topic = self._header.from_connect_header, record.topic
        return [(each.key, convert(topic, each.key, each.schema, each.value)) for each in record.headers]


def _runs(pairs: Iterable[tuple[SourceRecord, SourceRecord]]) -> Iterable[Sequence[tuple[SourceRecord, SourceRecord]]]:
    """Neighbours of one topic and the same schemas."""
    return (list(run) for _, run in groupby(pairs, lambda pair: (pair[1].topic, id(pair[1].value_schema), id(pair[1].key_schema))))


class SinkChain(_Chain):
    """Converters and transforms of a sink task."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._polled: dict[tuple[str, int], Sequence[RawRecord]] = {}

    def columns(self, topic: str, partition: int, records: Sequence[RawRecord]) -> SinkColumns:
        """The records of a partition for ``put``, in order.

        Raises:
            ConnectError: A record failed, and ``errors.tolerance`` is ``none``.
        """
        if self._handler.settings.queue:
            self._polled[topic, partition] = records
        kept = records
        try:
            converted = self._converted(topic, records)
        except Exception:  # noqa: BLE001 - the same record fails again below, and is reported
            found = [(each, one) for each in records if (one := self._converted_one(topic, partition, each)) is not None]
            kept = [each for each, _ in found]
            converted = columns([one[0] for _, one in found]), columns([one[1] for _, one in found]), [one[2] for _, one in found]
        (key_schemas, keys), (value_schemas, values), headers = converted
        given = SinkColumns(
            topics=[topic] * len(kept),
            partitions=[partition] * len(kept),
            offsets=[each.offset for each in kept],
            timestamps_ms=[_known(each.timestamp_ms) for each in kept],
            keys=keys,
            key_schemas=key_schemas,
            values=values,
            value_schemas=value_schemas,
            headers=headers,
            originals=None,
        )
        return self._transformed(topic, partition, kept, given) if self._steps else given

    def _converted(self, topic: str, records: Sequence[RawRecord]) -> tuple[Columns, Columns, list[Sequence[Header]]]:
        keys = _converted_column(self._key, topic, [each.key for each in records])
        values = _converted_column(self._value, topic, [each.value for each in records])
        return keys, values, [self._headers(topic, given) if (given := each.headers) else () for each in records]

    def _converted_one(self, topic: str, partition: int, record: RawRecord) -> tuple[Any, Any, Sequence[Header]] | None:
        run = self._handler.run
        try:
            return (
                run("KEY_CONVERTER", self._key, self._key.to_connect, topic, record.key),
                run("VALUE_CONVERTER", self._value, self._value.to_connect, topic, record.value),
                run("HEADER_CONVERTER", self._header, self._headers, topic, record.headers),
            )
        except Failure as failure:
            letter = Letter(topic, partition, record)
            self._handler.failed(failure, letter, letter)
            return None

    def _headers(self, topic: str, headers: Headers) -> Sequence[Header]:
        convert = self._header.to_connect_header
        return [Header(name, value, schema) for name, data in headers for schema, value in [convert(topic, name, data)]]

    def _transformed(self, topic: str, partition: int, records: Sequence[RawRecord], columns: SinkColumns) -> SinkColumns:
        made = []
        for number, raw in enumerate(records):
            record = SinkRecord(
                topic=topic,
                partition=partition,
                offset=columns["offsets"][number],
                timestamp_ms=columns["timestamps_ms"][number],
                key=columns["keys"][number],
                key_schema=columns["key_schemas"][number],
                value=columns["values"][number],
                value_schema=columns["value_schemas"][number],
                headers=columns["headers"][number],
                original_topic=topic,
                original_partition=partition,
            )
            try:
                changed = self._transform(record)
            except Failure as failure:
                letter = Letter(topic, partition, raw)
                self._handler.failed(failure, letter, letter)
            else:
                if changed is not None:
                    made.append(changed)
        return SinkColumns(
            topics=[each.topic for each in made],
            partitions=[partition if each.partition is None else each.partition for each in made],
            offsets=[each.offset for each in made],
            timestamps_ms=[each.timestamp_ms for each in made],
            keys=[each.key for each in made],
            key_schemas=[each.key_schema for each in made],
            values=[each.value for each in made],
            value_schemas=[each.value_schema for each in made],
            headers=[each.headers for each in made],
            originals=[(topic, partition)] * len(made),
        )

    def report(self, record: SinkRecord, error: Exception, task: object = None) -> None:
        """A record that the task could not store (KIP-610).

        Raises:
            ConnectError: ``errors.tolerance`` is ``none``.
        """
        at = record.original_topic, record.original_partition
        raw = next((each for each in self._polled.get(at, ()) if each.offset == record.offset), None)
        letter = Letter(*at, _Again(self, record) if raw is None else raw)
        self._handler.failed(Failure("TASK_PUT", self if task is None else task, error), letter, letter)


def _converted_column(converter: Converter, topic: str, data: Sequence[bytes | None]) -> Columns:
    """The schemas and values of a column; raises DataError where a plugin's converter gives something else."""
    found: Any = converter.to_connect_many(topic, data)
    if type(found) is tuple and len(found) == 2 and len(found[0]) == len(found[1]) == len(data):
        return found[0], found[1]
    raise DataError(f"{type(converter).__name__}.to_connect_many gave no two lists of {len(data)} entries, schemas and values")


@dataclasses.dataclass(slots=True)
class _Again:
    """A record of an earlier ``put``, whose bytes are gone: converted back."""

    chain: SinkChain
    record: SinkRecord

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp_ms(self) -> int:
        return _NO_TIMESTAMP if self.record.timestamp_ms is None else self.record.timestamp_ms

    @property
    def key(self) -> bytes | None:
        return self.chain._key.from_connect(self.record.original_topic, self.record.key_schema, self.record.key)

    @property
    def value(self) -> bytes | None:
        return self.chain._value.from_connect(self.record.original_topic, self.record.value_schema, self.record.value)

    @property
    def headers(self) -> Headers:
        convert, topic = self.chain._header.from_connect_header, self.record.original_topic
        return [(each.key, convert(topic, each.key, each.schema, each.value)) for each in self.record.headers]
