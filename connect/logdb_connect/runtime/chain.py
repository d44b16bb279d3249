"""The chain of one task as its loop calls it: ``processing`` with the task's plugins, its clock, and its dead letter queue."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logdb import AnyRecord, LogdbError, TopicPartition
from logdb.errors import UnknownTopic
from logdb_connect import processing
from logdb_connect.catalogue import Kind
from logdb_connect.client import Producer, below, now_ms
from logdb_connect.config import ConfigDef
from logdb_connect.data import SinkRecord, SinkRecords, SourceBatch, SourceRecord
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.processing import ErrorHandler, ErrorSettings, Row
from logdb_connect.runtime import settings
from logdb_connect.runtime.tasks import TaskId, TaskRunner

if TYPE_CHECKING:
    from logdb_connect.runtime.worker import Worker

_LETTERS_MAX = 10_000


class Prepared:
    """Records that are ready to be written, in order, and the source offsets behind them.

    Attributes:
        rows: Topic, value, key, partition, headers and timestamp of each.
        topics: Those of the rows.
        polled: How many records the task gave.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.rows, self.polled = rows, 0
        self.topics = {row[0] for row in rows}
        if any(type(topic) is not str for topic in self.topics):  # from a config provider
            self.rows = [(str(row[0]), *row[1:]) for row in rows]
            self.topics = set(map(str, self.topics))
        self._offsets: dict[str, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {}

    @property
    def offsets(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """Source partition and offset: the last of each partition."""
        return list(self._offsets.values())

    def note(self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Continue at ``offset`` after these records."""
        self._offsets[repr(sorted(partition.items()))] = (partition, offset)

    def add(self, more: "Prepared") -> None:
        """Those of the next poll, too."""
        self.rows += more.rows
        self.topics |= more.topics
        self.polled += more.polled
        self._offsets |= more._offsets

    def drop_records(self) -> None:
        """Keep the offsets alone."""
        self.rows, self.topics = [], set()

    def send(self, producer: Producer) -> None:
        """Send all records."""
        send = producer.send
        for topic, value, key, partition, headers, timestamp_ms in self.rows:
            send(topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)

    def send_noted(self, producer: Producer) -> Callable[[], dict[TopicPartition, range]]:
        """Send all records.

        Returns:
            Gives the offsets of each partition, from its first record to its last, when all are written.  Records whose partition the
            producer chooses are left out.
        """
        first, last = dict[TopicPartition, Any](), dict[TopicPartition, Any]()
        for topic, value, key, partition, headers, timestamp_ms in self.rows:
            sent = producer.send(topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
            if partition is not None:
                at = TopicPartition(topic, partition)
                first.setdefault(at, sent)
                last[at] = sent
        return lambda: {at: range(sent.result().offset, last[at].result().offset + 1) for at, sent in first.items()}


class SourceChain:
    """Transforms and converters of a source task."""

    def __init__(self, chain: processing.SourceChain) -> None:
        self._chain = chain

    def prepare(self, records: SourceBatch | Iterable[SourceRecord]) -> Prepared:
        """The rows of records.

        Raises:
            ConnectError: A record failed, and ``errors.tolerance`` is ``none``.
        """
        if isinstance(records, SourceBatch):
            prepared = Prepared(self._chain.rows(records))
            prepared.note(records.source_partition, records.offset)
            prepared.polled = len(records)
        else:
            given = list(records)
            prepared = Prepared(self._chain.rows(given))
            prepared.polled = len(given)
            for number, record in enumerate(given, 1):
                partition = record.source_partition
                if number == prepared.polled or given[number].source_partition is not partition:  # the last of a run counts
                    prepared.note(partition, record.source_offset)
        return prepared

    def close(self) -> None:
        self._chain.close()


class SinkChain:
    """Converters and transforms of a sink task."""

    def __init__(self, chain: processing.SinkChain, letters: "Letters | None") -> None:
        self._chain, self._letters = chain, letters

    def records(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> SinkRecords:
        """The records for ``put``.

        Raises:
            ConnectError: A record failed, and ``errors.tolerance`` is ``none``.
        """
        found = [SinkRecords(**self._chain.columns(*partition, records)) for partition, records in polled.items() if records]
        if not found:
            return SinkRecords.of(())
        first, *rest = found
        for one in rest:
            first += one
        return first

    def report(self, record: SinkRecord, error: Exception, task: object) -> None:
        """A record that the sink could not store."""
        self._chain.report(record, error, task)

    def flush(self) -> None:
        """All letters are stored.

        Raises:
            RetriableError: The database does not answer.
        """
        if self._letters is not None:
            self._letters.flush()

    def close(self) -> None:
        self._chain.close()
        if self._letters is not None:
            self._letters.close()


class Letters:
    """The dead letter queue of a task.  Letters are kept until they are stored: a producer forgets those that it could not write."""

    def __init__(self, producer: Producer, create: Callable[[], None]) -> None:
        self._producer, self._create, self._created = producer, create, False
        self._kept: list[Row] = []
        self._again = False  # the last flush failed

    def send(self, row: Row) -> None:
        self._kept.append(row)
        self._send(row)
        if len(self._kept) >= _LETTERS_MAX and not self._again:
            with contextlib.suppress(RetriableError):
                self.flush()

    def _send(self, row: Row) -> None:
        if not self._created:
            self._create()
            self._created = True
        topic, value, key, partition, headers, timestamp_ms = row
        self._producer.send(topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)

    def flush(self) -> None:
        """All letters are stored; those of a flush that failed are sent again.

        Raises:
            RetriableError: The database does not answer.
            ConnectError: It refuses a letter.
        """
        try:
            if self._again:
                for row in self._kept:
                    self._send(row)
            self._producer.flush()
        except LogdbError as error:
            self._again = True
            if isinstance(error, UnknownTopic):  # it was deleted: created again with the next attempt
                self._created = False
            if error.retriable or not self._created:
                raise RetriableError(f"the dead letter queue was not written: {error}") from error
            raise ConnectError(
                f"the dead letter queue was not written: {error}. Correct the queue's topic, then restart the task: the records come again."
            ) from error
        self._again = False
        self._kept.clear()

    def close(self) -> None:
        self._producer.close(5_000)


class Chains:
    """Makes the chain of a task, with the plugins that its connector names, or else its worker."""

    def __init__(self, worker: "Worker", task_id: TaskId, config: Mapping[str, str]) -> None:
        self._worker, self._id, self._config = worker, task_id, config

    def source(self, task: TaskRunner) -> SourceChain:
        return SourceChain(processing.SourceChain(*self._parts(self._handler(task, settings.SOURCE))))

    def sink(self, task: TaskRunner) -> SinkChain:
        handler, letters = self._handler(task, settings.SINK), None
        if handler.settings.queue:
            producer = self._worker.client.producer(self._worker.overrides(self._config, "producer"))
            letters = Letters(producer, self._create_queue)
            handler.send_letter = letters.send
        return SinkChain(processing.SinkChain(*self._parts(handler)), letters)

    def _create_queue(self) -> None:
        config = settings.SINK.parse(self._config)
        topic, replication = config["errors.deadletterqueue.topic.name"], config["errors.deadletterqueue.topic.replication.factor"]
        if not self._worker.client.has_topic(topic):
            self._worker.client.create_topic(topic, replication=self._worker.client.possible_replication(replication))

    def _handler(self, task: TaskRunner, definition: ConfigDef) -> ErrorHandler:
        def wait(seconds: float) -> bool:
            task.wait(seconds)
            return task.is_stopping()

        task.handler = ErrorHandler(
            ErrorSettings.of(definition.parse(self._config)),
            connector=self._id.connector,
            task=self._id.task,
            clock_ms=now_ms,
            wait=wait,
            name_of=self._worker.plugins.name_of,
        )
        return task.handler

    def _parts(self, handler: ErrorHandler) -> tuple[Any, ...]:
        """The arguments of a chain."""
        key, value = self._converter("key.converter", "converter", "key"), self._converter("value.converter", "converter", "value")
        header = self._converter("header.converter", "header_converter", "header")
        return key, value, header, processing.steps_of(self._config, self._step), handler

    def _converter(self, setting: str, kind: Kind, which: str) -> Any:
        given = self._config if self._config.get(setting) else self._worker.properties
        name = given.get(setting) or self._worker.config[setting]
        made = self._worker.plugins.find(name, (kind,), setting)()
        definition: ConfigDef = made.config_def
        made.configure({**definition.parse(below(f"{setting}.", given)), "converter.type": which})
        return made

    def _step(self, prefix: str, kind: Kind) -> Any:
        """A transform, or a predicate."""
        made = self._worker.plugins.find(self._config.get(f"{prefix}type", ""), (kind,), f"{prefix}type")()
        definition: ConfigDef = made.config_def
        made.configure(definition.parse(below(prefix, self._config)))
        return made
