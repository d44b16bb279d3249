"""A source task: poll, transform, convert, write; records and source offsets in one transaction.

Exactly once: ``init_transactions`` fences a former task of this id and ends its transaction; then the task reads the offsets, and
continues behind them.  If the answer to a commit is lost, a new producer fences the old one, and the header of the offset record
tells whether the commit took place; if not, the same records are written again.

At least once (``exactly.once.source.support=disabled``): records first, offsets after.
"""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from logdb import LogdbError, TopicPartition
from logdb.errors import ProducerFenced, UnknownTopic
from logdb_connect.client import Client, Producer, TransactionalProducer
from logdb_connect.data import SourceBatch, SourceRecord, SourceRecords
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties, SourceTask
from logdb_connect.runtime.chain import Prepared, SourceChain
from logdb_connect.runtime.compacted import encoded
from logdb_connect.runtime.offsets import COMMIT_HEADER, OffsetStore
from logdb_connect.runtime.tasks import Backoff, Report, Stopping, Target, TaskId, TaskRunner, quietly

logger = logging.getLogger(__name__)

_OWNERSHIP_WAIT_S = 60.0
_TRANSACTION_COUNT_MAX = 1_000_000
_GATHER_S, _GATHER_COUNT_MAX, _LARGE_BATCH = 0.1, 20_000, 500


End = Literal["commit", "abort"]


class Boundary(NamedTuple):
    """Which records are in one transaction.

    Attributes:
        seconds: For how long polls may add to it; 0: it has those of one poll.
        small: Small batches are gathered, too.
        by_connector: The task says where it ends; the other attributes do not count.
    """

    seconds: float = _GATHER_S
    small: bool = False
    by_connector: bool = False


class TaskTransactions:
    """Where a task ends its transactions (``TransactionContext``); of the task's thread, or of threads of the task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batch: End | None = None
        self._records: dict[int, tuple[SourceRecord, End]] = {}  # a record that is kept has its id for itself

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self._ask("commit", record)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self._ask("abort", record)

    def _ask(self, end: "End", record: SourceRecord | None) -> None:
        with self._lock:
            if record is not None:
                self._records[id(record)] = (record, end)
            elif self._batch != "abort":
                self._batch = end

    def pieces(self, records: SourceBatch | Sequence[SourceRecord]) -> "list[tuple[SourceBatch | Sequence[SourceRecord], End | None]]":
        """The records of a poll, cut where a transaction ends, each with how it ends; None: the next poll adds to it.

        What was asked for a record of a later poll stays.
        """
        with self._lock:
            last, self._batch = self._batch, None
            if isinstance(records, SourceBatch):
                return [(records, last)]
            ends = [self._records.pop(id(record), None) for record in records] if self._records else []
        found: list[tuple[SourceBatch | Sequence[SourceRecord], End | None]] = []
        begin = 0
        for number, end in enumerate(ends, 1):
            if end is not None:
                found.append((records[begin:number], end[1]))
                begin = number
        return [*found, (records[begin:], last)]


class SourceSettings(NamedTuple):
    """What a source task needs beside its own properties.

    ``owned_since``: whether the worker knows that it had the task at a time of ``time.monotonic``, or later.
    """

    exactly_once: bool
    transactional_id: str
    producer: Mapping[str, str]
    create_topic: Callable[[str], None]
    used_topic: Callable[[str], None]
    owned_since: Callable[[float], bool]
    boundary: "Boundary"


class SourceRunner(TaskRunner):
    """Runs a ``SourceTask``."""

    def __init__(
        self,
        task_id: TaskId,
        target: Target,
        report: Report,
        *,
        make: Callable[[], SourceTask],
        properties: Properties,
        chain: Callable[[TaskRunner], SourceChain],
        client: Client,
        offsets: Callable[[], OffsetStore],
        settings: SourceSettings,
    ) -> None:
        super().__init__(task_id, target, report)
        self._make, self._properties, self._make_chain = make, properties, chain
        self._client, self._make_offsets, self._settings = client, offsets, settings
        self._task: SourceTask | None = None
        self._producer: Producer | None = None
        self._chain: SourceChain | None = None
        self._known_topics: set[str] = set()
        self._transactions = TaskTransactions() if settings.boundary.by_connector else None
        self._pending = Prepared([])  # what a transaction has that the task has not ended
        self._gathering = False  # records wait for a poll that may have more
        self._offsets_written: Callable[[], Mapping[TopicPartition, range]] | None = None  # of the last transaction, for ``written``

    # ------------------------------------------------------------ what the task sees

    @property
    def client(self) -> Client:
        return self._client

    @property
    def transaction_context(self) -> TaskTransactions | None:
        return self._transactions

    def offset(self, source_partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._offsets.get(self.id.connector, source_partition)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        backoff = Backoff(self)
        self._retrying(self._new_producer, backoff)
        self._retrying(self._read_offsets, backoff)
        self._chain = self._make_chain(self)
        if not self._await_resumed():
            return
        self._task = task = self._make()
        task.context = self
        task.start(self._properties)
        while self._await_resumed():
            try:
                records = task.poll()
            except RetriableError as error:
                logger.warning("task %s: poll is called again: %s", self.id, error)
                backoff.pause()
                continue
            backoff.reset()
            if records is None or self.is_stopping():
                continue
            if self._transactions is None:
                self._finish(task, self._gathered(task, records))
            else:
                self._add(task, self._transactions, records if isinstance(records, SourceBatch) else list(records))

    def _finish(self, task: SourceTask, prepared: Prepared) -> None:
        """Write a transaction."""
        if prepared.rows or prepared.offsets:
            self._write(prepared)
            if self._offsets_written is not None:
                task.written(self._offsets_written())  # type: ignore[attr-defined]  # it has the method: _send
            task.commit()
        self.count(
            source_task_source_record_poll_total=prepared.polled,
            source_task_source_record_write_total=len(prepared.rows),
            source_task_transaction_total=int(self._settings.exactly_once),
        )

    def _add(self, task: SourceTask, transactions: TaskTransactions, records: SourceBatch | list[SourceRecord]) -> None:
        """Add the records of a poll to the transaction of the task, and write those that it has ended.

        Raises:
            ConnectError: A transaction has too many records: they are kept until it ends.
        """
        assert self._chain is not None
        for piece, end in transactions.pieces(records):
            if len(piece):
                self._pending.add(self._chain.prepare(piece))
            if end == "abort":
                self._pending.drop_records()  # the task does not want to see them again: their offsets are committed
            if end is not None:
                ended, self._pending = self._pending, Prepared([])
                self._finish(task, ended)
        if len(self._pending.rows) > _TRANSACTION_COUNT_MAX:
            raise ConnectError(
                f"transaction.boundary=connector: the task has not ended a transaction within {_TRANSACTION_COUNT_MAX} records; set "
                "transaction.boundary=poll, or have the connector commit more often"
            )

    def wait(self, seconds: float) -> None:
        """As ``TaskRunner.wait``; at once while records wait to be written."""
        if not self._gathering:
            super().wait(seconds)

    def _gathered(self, task: SourceTask, records: SourceBatch | Iterable[SourceRecord]) -> Prepared:
        """The records of a poll; of a source that gives large batches, those of the next ones too, for a moment: one transaction."""
        assert self._chain is not None
        prepared = self._chain.prepare(records)
        boundary = self._settings.boundary
        until = time.monotonic() + boundary.seconds
        more: SourceRecords = records
        while (
            (boundary.small or (isinstance(more, SourceBatch) and len(more) >= _LARGE_BATCH))
            and len(prepared.rows) < _GATHER_COUNT_MAX
            and time.monotonic() < until
            and not self.is_stopping()
        ):
            self._gathering = not boundary.small
            try:
                more = task.poll()
            except RetriableError as error:
                logger.warning("task %s: poll is called again: %s", self.id, error)
                more = None
            finally:
                self._gathering = False
            if more is not None:
                prepared.add(self._chain.prepare(more))
        return prepared

    def _close(self) -> None:
        if (task := self._task) is not None:
            self._task = None
            quietly(task.stop, f"task {self.id}: stop")
        if self._chain is not None:
            quietly(self._chain.close, f"task {self.id}: close")
        self._close_producer()

    def _cut_off(self) -> None:
        if (task := self._task) is not None:
            quietly(task.stop, f"task {self.id}: stop")
        self._close_producer()

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(LogdbError):
                producer.close(0)

    # ------------------------------------------------------------ writing

    def _new_producer(self) -> None:
        self._close_producer()
        settings = self._settings
        if settings.exactly_once:
            producer = self._client.transactional_producer(settings.producer, settings.transactional_id)
            self._producer = producer
            producer.init_transactions()
        else:
            self._producer = self._client.producer(settings.producer)

    def _retrying(self, what: Callable[[], object], backoff: Backoff) -> None:
        """Call until the database answers."""
        while True:
            try:
                what()
            except LogdbError as error:
                if not error.retriable:
                    raise
                logger.warning("task %s: the database does not answer, a retry follows: %s", self.id, error)
                backoff.pause()
            else:
                return

    def _read_offsets(self) -> None:
        self._offsets = self._make_offsets()
        self._offsets.catch_up()

    def _write(self, prepared: Prepared) -> None:
        """Write records and offsets; again until they are written, or can never be."""
        backoff, commit = Backoff(self), uuid.uuid4().hex
        for topic in prepared.topics - self._known_topics:
            self._retrying(lambda topic=topic: self._settings.create_topic(topic), backoff)  # type: ignore[misc]
            self._settings.used_topic(topic)
            self._known_topics.add(topic)
        again = False
        while True:
            try:
                if again:
                    self._new_producer()
                    if self._took_place(prepared, commit):
                        return
                again = True
                self._attempt(prepared, commit)
            except LogdbError as error:
                if not self._may_retry(error):
                    raise
                logger.warning("task %s: records were not written, a retry follows: %s", self.id, error)
                backoff.pause()
            else:
                return

    def _may_retry(self, error: LogdbError) -> bool:
        if isinstance(error, ProducerFenced) or isinstance(error.__cause__, ProducerFenced):
            return self._still_owns()  # a broker that crashed, or a transaction that timed out, fences, too
        if isinstance(error, UnknownTopic):
            self._known_topics.discard(error.topic)  # it was deleted: created again with the next records
        return error.retriable or any(isinstance(cause, LogdbError) and cause.retriable for cause in (error.__cause__, error.__context__))

    def _still_owns(self) -> bool:
        """Whether this worker still has the task, as of now: no other worker has taken its id."""
        since = time.monotonic()
        backoff = Backoff(self)
        while not self._abandoned and time.monotonic() < since + _OWNERSHIP_WAIT_S:
            if self._settings.owned_since(since):
                return not self._abandoned
            backoff.pause()
        return False

    def _took_place(self, prepared: Prepared, commit: str) -> bool:
        """Whether the commit whose answer was lost took place."""
        if not prepared.offsets or not self._settings.exactly_once:
            return False
        self._offsets.catch_up()
        return self._offsets.took_place(self._offsets.key(self.id.connector, prepared.offsets[0][0]), str(self.id.task), commit)

    def _attempt(self, prepared: Prepared, commit: str) -> None:
        producer = self._producer
        if producer is None:
            raise Stopping  # abandoned
        if self._settings.exactly_once:
            transactional = cast("TransactionalProducer", producer)
            transactional.begin_transaction()
            offsets = self._send(producer, prepared)
            self._send_offsets(producer, prepared, commit)
            transactional.commit_transaction()
        else:
            offsets = self._send(producer, prepared)
            producer.flush()
            self._send_offsets(producer, prepared, commit)
            producer.flush()
        self._offsets_written = offsets

    def _send(self, producer: Producer, prepared: Prepared) -> Callable[[], Mapping[TopicPartition, range]] | None:
        """Send records; what gives their offsets, if the task asks for them."""
        self._offsets_written = None
        if hasattr(self._task, "written") and self._client.tells_offsets:
            return prepared.send_noted(producer)
        prepared.send(producer)
        return None

    def _send_offsets(self, producer: Producer, prepared: Prepared, commit: str) -> None:
        headers = ((COMMIT_HEADER, f"{self.id.task}:{commit}".encode()),)
        for partition, offset in prepared.offsets:
            producer.send(
                self._offsets.topic,
                None if offset is None else encoded(offset),
                self._offsets.key(self.id.connector, partition),
                headers=headers,
            )
