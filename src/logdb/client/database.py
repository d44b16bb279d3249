"""The database, as an application holds it.

Knows topics and how records find their partition.  Does not know files: the store does.
"""

import atexit
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from logdb.client import partitioner as partitioners
from logdb.client.administration import Administration
from logdb.client.offline import verify
from logdb.client.partitioner import Partitioner
from logdb.errors import InvalidPartitions, LogdbError, UnknownPartition
from logdb.io import IO
from logdb.log.isolation import IsolationLevel
from logdb.log.log import Log
from logdb.model import INTERNAL_TOPICS, Buffer, Durability, RecordMetadata, TopicInfo
from logdb.store.cleaner import CLEANER_BYTES_PER_SECOND
from logdb.store.report import Copied, Progress, Report
from logdb.store.store import Mode, Store

if TYPE_CHECKING:
    from logdb.broker.broker import Broker
    from logdb.client.assignors import Assignor
    from logdb.client.consumer import Consumer
    from logdb.client.consumer_config import OffsetReset
    from logdb.client.interceptor import Interceptor
    from logdb.client.producer import Producer, ProducerOptions
    from logdb.client.table import Table
    from logdb.client.table_view import TopicViews
    from logdb.client.transaction import Transaction, TransactionalProducer, Transactions
    from logdb.serde import Deserializer

    P = TypeVar("P", bound=Producer)

logger = logging.getLogger(__name__)
_PRODUCER_CLOSE_MS = 10_000  # how long a close waits for a disk that takes nothing
_open_databases: "weakref.WeakSet[Database]" = weakref.WeakSet()

Headers = Iterable[tuple[str, bytes | None]]


class Database(Administration):
    """Topics and partitions in a directory.  Made by ``logdb.open``; a context manager that closes itself.

    Any number of threads may use it.  After a fork, the child opens its own.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._broker: Broker | None = None
        self._broker_lock = threading.Lock()
        self._partitioners: dict[object, Partitioner] = {}
        self._partition_counts: dict[str, int] = {}
        self._transactions: Transactions | None = None
        self._views: TopicViews | None = None
        self._producers: set[Producer] = set()  # open
        if store.mode == "a" and not store.was_closed and any(topic.name == INTERNAL_TOPICS[1] for topic in store.topics(internal=True)):
            self._session.settle_leftovers()
        _open_databases.add(self)

    @property
    def _session(self) -> "Broker":
        """What producers and consumers talk through; made when it is first needed."""
        broker = self._broker
        if broker is not None:
            return broker
        from logdb.broker.broker import Broker  # an application that only appends and reads does without it

        with self._broker_lock:
            self._broker = self._broker or Broker(self._store)
            return self._broker

    @property
    def path(self) -> str:
        """The directory, absolute."""
        return self._store.path

    @property
    def mode(self) -> Mode:
        """``"a"``: append and read; ``"r"``: read beside a writer."""
        return self._store.mode

    @property
    def reports(self) -> Sequence[str]:
        """What recovery found and did since the database was opened: one line each."""
        return tuple(self._store.reports)

    def __repr__(self) -> str:
        return f"<Database {self.path} mode={self.mode}{' closed' if self._store.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------ topics

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None, if_not_exists: bool = False
    ) -> TopicInfo:
        """Create a topic; when this returns, it is durable.

        Args:
            name: 1 to 249 of a-z A-Z 0-9 . _ -
            partitions: How many, 1 to 100,000; more can be added later, never fewer.
            config: Kafka's topic configs, and ``durability``; values as Python's or Kafka's.
            if_not_exists: Return the topic that is there instead of raising.

        Raises:
            TopicExists, InvalidTopic, InvalidPartitions, InvalidConfig: as they say.
            ReadOnly, SyncFailed, DiskFull: Nothing was created.
        """
        return self._store.create_topic(name, partitions=partitions, config=config, if_not_exists=if_not_exists)

    def alter_topic(self, name: str, *, config: Mapping[str, object] | None = None, partitions: int | None = None) -> TopicInfo:
        """Change a topic's configs (a value of None goes back to the default), or add partitions.

        Adding partitions changes where keys go from then on, as in Kafka.

        Raises:
            UnknownTopic, InvalidConfig, InvalidPartitions: Nothing was changed.
        """
        if partitions is not None and name in INTERNAL_TOPICS:
            raise InvalidPartitions(name, partitions, "which of them keeps what goes by their number")
        info = self._store.alter_topic(name, config=config, partitions=partitions)
        self._topic_changed(name)
        return info

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records, for good.

        Raises:
            UnknownTopic: There is none of that name.
        """
        self._session.delete_topic(name)
        self._topic_changed(name)

    def _topic_changed(self, name: str) -> None:
        self._partition_counts.pop(name, None)
        for producer in list(self._producers):
            producer.refresh(name)

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics, by name; Kafka's internal ones only if asked for."""
        return self._store.topics(internal=internal)

    def describe_topic(self, name: str) -> TopicInfo:
        """One topic, with its partitions as they are now.

        Raises:
            UnknownTopic: There is none of that name.
        """
        return self._store.describe_topic(name)

    # ------------------------------------------------------------ records

    def log(self, topic: str, partition: int = 0) -> Log:
        """The log of one partition: the fast, plain way to append and to read.

        Always the same object for the same partition.

        Raises:
            UnknownTopic, UnknownPartition: as they say.
        """
        log = self._store.log(topic, partition)
        return log if self._broker is None and not log.open_transactions() else self._session.log(topic, partition)

    def append(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        partitioner: "str | Partitioner | None" = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        durability: Durability | None = None,
    ) -> RecordMetadata:
        """Append one record to the partition that the partitioner chooses.

        Args:
            partitioner: None or ``"default"`` (as Kafka's: murmur2 of the key, sticky without one),
                ``"round_robin"``, or a callable (key, partition_count) -> partition.
            timestamp_ms: The record's time, milliseconds since 1970; None: now.

        Returns:
            Where it lies; its ``timestamp_ms`` is -1 where the log took its own clock.

        Raises:
            As ``Log.append``; UnknownPartition where a callable leaves the range.
        """
        partition = self._choose(topic, key, partitioner)
        offset = self._store.log(topic, partition).append(value, key, headers=headers, timestamp_ms=timestamp_ms, durability=durability)
        return RecordMetadata(topic, partition, offset, -1 if timestamp_ms is None else timestamp_ms)

    def append_many(
        self,
        topic: str,
        values: Iterable[Buffer | None],
        keys: Iterable[Buffer | None] | None = None,
        *,
        partitioner: "str | Partitioner | None" = None,
        headers: Iterable[Headers] | None = None,
        timestamps_ms: Iterable[int] | None = None,
        durability: Durability | None = None,
    ) -> list[RecordMetadata]:
        """Append many records, each to its partition; each partition's are written before this returns.

        Not atomic over partitions.

        Returns:
            Where each record lies, in the order given.

        Raises:
            As ``Log.append_many``.
        """
        values = list(values)
        keys = [None] * len(values) if keys is None else list(keys)
        heads = None if headers is None else list(headers)
        times = None if timestamps_ms is None else list(timestamps_ms)
        for name, other in (("keys", keys), ("headers", heads), ("timestamps_ms", times)):
            if other is not None and len(other) != len(values):
                raise ValueError(f"{len(values)} values, but {len(other)} {name}")
        choose, count = self._partitioner(partitioner), self._partition_count(topic)
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(self._checked(topic, choose(key, count), count), []).append(row)
        placed: list[RecordMetadata | None] = [None] * len(values)
        for partition, chosen in rows.items():
            offsets = self._store.log(topic, partition).append_many(
                [values[row] for row in chosen],
                [keys[row] for row in chosen],
                headers=None if heads is None else [heads[row] for row in chosen],
                timestamps_ms=None if times is None else [times[row] for row in chosen],
                durability=durability,
            )
            for row, offset in zip(chosen, offsets, strict=True):
                placed[row] = RecordMetadata(topic, partition, offset, -1 if times is None else times[row])
        return [metadata for metadata in placed if metadata is not None]

    # ------------------------------------------------------------ producers, transactions, consumers

    @overload
    def producer(self, *, transactional_id: None = None, **options: "Unpack[ProducerOptions]") -> "Producer": ...

    @overload
    def producer(
        self, *, transactional_id: str, transaction_timeout_ms: int = ..., **options: "Unpack[ProducerOptions]"
    ) -> "TransactionalProducer": ...

    def producer(self, *, transactional_id: str | None = None, **options: Any) -> "Producer":
        """Send records without waiting for the disk: ``send`` returns a future, a thread writes.

        Args:
            transactional_id: Of an application whose records count when their transaction is committed: the producer
                has ``begin_transaction``, ``commit_transaction``, ``abort_transaction``, and the option
                ``transaction_timeout_ms`` (60,000), after which a transaction is aborted.  ``db.transaction`` is
                the shorter way.
            options: See ``ProducerOptions``.

        Returns:
            A context manager that closes itself; closing the database closes it, too.

        Raises:
            ValueError: An option is out of range; it says which, and what is allowed.
            ReadOnly, Closed, Forked: as they say.

        Source: Kafka's producer configs of these names.
        """
        if transactional_id is not None:
            return self._transactional_producer(transactional_id=transactional_id, **options)
        from logdb.client.producer import Producer

        return self._open_producer(Producer, options)

    def _open_producer(self, kind: "type[P]", options: dict[str, Any]) -> "P":
        """A producer of a kind, which is told of changes of topics and closed with the database."""
        self._store.check_open(writable=True)
        producer = kind(self._session, io=self._store.io, clock=self._store.clock, on_close=self._producers.discard, **options)
        self._producers.add(producer)
        return producer

    def transaction(self, transactional_id: str, **options: Any) -> "Transaction":
        """Several records, and the offsets of consumers, all or nothing: a context manager.

            with db.transaction("etl") as tx:
                tx.send("out", value)
                tx.send_offsets(consumer)

        Committed at the end of the block; aborted if an exception leaves it, which goes on.  Whoever used the id before,
        and is still at it, is fenced; in a loop it is taken over once, not every time.

        A consumer whose offsets were sent goes back to the last committed ones when they are aborted.  One that was polled
        for a block that never came to ``send_offsets`` stays where it is: ``consumer.seek_to_committed()``.

        Args:
            transactional_id: A name that is this application's, over restarts, too.
            options: Those of ``producer``, such as ``transaction_timeout_ms``.

        Raises:
            where the block is entered, InvalidTransactionTimeout; where it ends, ProducerFenced, and whatever kept a
            record from being written: the transaction was aborted.
        """
        if self._transactions is None:
            from logdb.client.transaction import Transactions

            self._transactions = Transactions(self._transactional_producer)
        return self._transactions.transaction(transactional_id, options)

    def _transactional_producer(self, **options: Any) -> "TransactionalProducer":
        from logdb.client.transaction import TransactionalProducer

        return self._open_producer(TransactionalProducer, options)

    def consumer(
        self,
        *topics: str,
        pattern: "str | re.Pattern[str] | None" = None,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: "OffsetReset" = "latest",
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: int = 5_000,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_poll_records: int = 500,
        max_poll_interval_ms: int = 300_000,
        heartbeat_interval_ms: int = 100,
        partition_assignment_strategy: "str | Sequence[str | Assignor]" = ("range", "cooperative-sticky"),
        key_deserializer: "Deserializer | None" = None,
        value_deserializer: "Deserializer | None" = None,
        interceptors: "Sequence[Interceptor]" = (),
        iteration_timeout_ms: int | None = None,
        client_id: str = "logdb",
    ) -> "Consumer":
        """Read topics: alone, or with ``group_id`` as a member of a group that shares their partitions.

        Args:
            topics, pattern: What to subscribe to, as ``Consumer.subscribe``; neither: ``subscribe`` or ``assign`` says it.
            others: see ``ConsumerConfig``.

        Raises:
            InvalidConfig: An option cannot be so; it names it.
            UnknownTopic: One of the topics does not exist.
        """
        from logdb.client.consumer import Consumer
        from logdb.client.consumer_config import ConsumerConfig

        strategy = (
            (partition_assignment_strategy,) if isinstance(partition_assignment_strategy, str) else tuple(partition_assignment_strategy)
        )
        config = ConsumerConfig(
            group_id=group_id,
            group_instance_id=group_instance_id,
            auto_offset_reset=auto_offset_reset,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            isolation_level=isolation_level,
            max_poll_records=max_poll_records,
            max_poll_interval_ms=max_poll_interval_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            partition_assignment_strategy=strategy,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=tuple(interceptors),
            iteration_timeout_ms=iteration_timeout_ms,
            client_id=client_id,
        )
        consumer = Consumer(self._session, config, self._store.io.monotonic_ms)
        if topics or pattern is not None:
            consumer.subscribe(*topics, pattern=pattern)
        return consumer

    def _choose(self, topic: str, key: Buffer | None, partitioner: "str | Partitioner | None") -> int:
        count = self._partition_count(topic)
        return self._checked(topic, self._partitioner(partitioner)(key, count), count)

    def _checked(self, topic: str, partition: int, count: int) -> int:
        if not 0 <= partition < count:
            raise UnknownPartition(topic, partition, count)
        return partition

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = self._store.partition_count(topic)
        return count

    def _partitioner(self, wanted: "str | Partitioner | None") -> Partitioner:
        """One partitioner for each name, since the default one and round robin have a state."""
        if callable(wanted):
            return wanted
        made = self._partitioners.get(wanted)
        if made is None:
            made = self._partitioners[wanted] = partitioners.make(wanted)
        return made

    def table(
        self, topic: str, *, key_deserializer: "Deserializer | None" = None, value_deserializer: "Deserializer | None" = None
    ) -> "Table":
        """A topic as a mapping from its keys to their latest values, kept current.

        The first look reads the topic; what was read stays in ``views/``, so that the next time goes on from there.
        With ``mode="r"`` it lies in a temporary directory.

        Args:
            topic: With or without compaction.
            key_deserializer, value_deserializer: What makes keys and values of bytes, as those of ``logdb.serde``; None: they
                stay bytes, and a str is looked up as UTF-8.

        Raises:
            UnknownTopic: There is none of that name.
        """
        from logdb.client.table import Table  # few programs need it
        from logdb.client.table_view import TopicViews

        self._store.partition_count(topic)
        session, store = self._session, self._store
        with self._broker_lock:
            if self._views is None:
                directory = os.path.join(store.path, "views") if store.mode == "a" else None
                self._views = TopicViews(session, directory, clean_offset=store.clean_offset, io=store.io, clock_ms=store.clock_ms)
            view = self._views.of(topic)
        return Table(session, view, store.io, key_deserializer, value_deserializer)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records of a partition before an offset, for good; when this returns, they are gone.

        Their space comes back a segment at a time: one that also holds a later record stays whole on the disk.

        Args:
            before_offset: In [start_offset, end_offset]; -1: the end, so all records there are now.

        Returns:
            The new log start offset.

        Raises:
            OffsetOutOfRange: ``before_offset`` is not in the log; nothing was deleted, as with all that follow.
            PolicyViolation: The topic's ``cleanup.policy`` is ``compact`` alone.
            UnknownTopic, UnknownPartition, ReadOnly, DiskFull, SyncFailed: as they say.

        Source: DeleteRecords of Kafka (KIP-107).
        """
        return self._store.delete_records(topic, partition, before_offset)

    def compact(self, topic: str, partition: int | None = None) -> None:
        """Keep only the latest record of each key, now: all that was appended before, the active segment too.

        Offsets stay as they are; the log ends where it did.  In the background the same happens by and by.

        Args:
            partition: One of them; None: all.

        Raises:
            PolicyViolation: The topic's ``cleanup.policy`` does not say ``compact``.
            CorruptionError: A batch is damaged; what holds it was left as it is.
            UnknownTopic, UnknownPartition, ReadOnly, DiskFull, SyncFailed: as they say; no record was lost.
            Closed: The database was closed meanwhile.
        """
        self._store.compact(topic, partition)

    # ------------------------------------------------------------ the whole

    def flush(self, sync: bool = True) -> None:
        """Return once everything appended so far is durable, or with ``sync=False`` with the operating system.

        Raises:
            DiskFull, SyncFailed: as ``Log.flush``.
        """
        self._store.flush(sync)

    def verify(self, progress: Progress | None = None) -> Report:
        """Check every byte of every file against its neighbours, beside the work that goes on."""
        return verify(self.path, progress=progress)

    def snapshot(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Copied:
        """Make a frozen copy of the database, under load, in a second or so.

        Sealed segments become hard links, active ones are copied up to where they end (over 64 MiB, they are
        rolled first).  On another device, or where the file system has no links, all is copied.  A transaction
        is in the copy as a whole or not at all.  What was acknowledged before the call is in it.  Opened with
        ``mode="r"``, on a read-only file system too; ``logdb.restore`` makes a database of it.

        Args:
            path: A directory that is not there yet, or empty; outside of the database's.
            progress: Called now and then with bytes copied, bytes to copy in all, and a file's name.

        Returns:
            How much is in it, and how much of that was copied.

        Raises:
            TargetNotEmpty: Something is there already.
            DirectoryLocked: Another snapshot to the same place is under way.
            CorruptionError: A partition is damaged.
            ReadOnly: The database was opened for reading and is written to by somebody else, or was not closed cleanly.
            DiskFull, WriteFailed, SyncFailed: There is no snapshot.
        """
        from logdb.store.snapshot import snapshot  # few programs need it

        return snapshot(self._store, os.fspath(path), progress)

    def backup(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | None = None, progress: Progress | None = None
    ) -> Copied:
        """Write the database into one file, compressed and checksummed, under load; ``logdb.restore`` reads it.

        It is of one moment, as a snapshot is.

        Args:
            path: A file that is not there yet.
            base: An earlier backup of this database, full or not: what it has is left out.  To restore,
                it will be needed, and those that it goes onto.
            progress: Called now and then with bytes done, bytes in all, and what is being read.

        Returns:
            How much is in it, and how large the file is.

        Raises:
            TargetNotEmpty: The file is there already.
            BackupMismatch: ``base`` is of another database.
            BackupDamaged: ``base`` is no backup, or damaged.
            CorruptionError: The database is damaged; nothing of it is carried into a backup.
            ReadOnly: as ``snapshot``.
            DiskFull, WriteFailed, SyncFailed: There is no backup.
        """
        from logdb.store.backup import backup  # few programs need it

        return backup(self._store, os.fspath(path), None if base is None else os.fspath(base), progress)

    def close(self) -> None:
        """Write and sync everything, then let the next writer in.  Closing twice is no error.

        Raises:
            CloseIncomplete: Records could not be written; it says how many are lost.
            what a producer's record failed with, of those since its last flush.
        """
        failure = self._close_producers()
        if self._transactions is not None:
            self._transactions.close()
        if self._broker is not None:
            self._broker.close()
        if self._views is not None:
            self._views.close()
        self._store.close()
        if failure is not None:
            raise failure

    def _close_producers(self) -> Exception | None:
        """Have written what producers have taken; returns what the first of them failed with."""
        failure: Exception | None = None
        for producer in list(self._producers):
            try:
                producer.close(_PRODUCER_CLOSE_MS)
            except Exception as error:  # noqa: BLE001 -- the others are to be closed, too
                failure = failure or error
        return failure


def open_database(
    path: str | os.PathLike[str],
    *,
    mode: Mode = "a",
    durability: Durability = "interval",
    batch_size: int = 16_384,
    linger_ms: int = 5,
    cleaner_bytes_per_second: int = CLEANER_BYTES_PER_SECOND,
    io: IO | None = None,
    clock: Callable[[], int] | None = None,
) -> Database:
    """Open the database in a directory, making it if it is not there.

    Args:
        path: The directory.
        mode: ``"a"`` to append and read: one handle at a time.  ``"r"`` to read, beside a writer
            in this or another process.
        durability: What an acknowledged record survives, unless its topic or call says otherwise.
            ``"os"``: the process.  ``"interval"``: the machine too, after ``flush.ms`` (1 s) at most.
            ``"fsync"``: the machine, at once.
        batch_size: Bytes at which an open batch is closed, 101 to 1,048,576.
        linger_ms: How long a record waits in memory for others before it is written, 0 to 60,000.
        cleaner_bytes_per_second: What compaction in the background may read and write, over all topics, 1 or more.
        io: What touches files and clock; for tests.
        clock: Milliseconds since 1970, for records without a timestamp; None: the machine's,
            read coarsely (it may lag by a tick, 4 ms).

    Returns:
        The database; close it, or use it in a ``with`` statement.

    Raises:
        DirectoryLocked: Another handle appends to it; names the process.
        NotADatabase: The directory holds something else, or with ``mode="r"`` nothing.
        CatalogueDamaged: ``logdb repair`` rebuilds it.
        UnsupportedFormat: A newer logdb wrote it.
    """
    return Database(
        Store.open(
            path,
            mode=mode,
            durability=durability,
            batch_size=batch_size,
            linger_ms=linger_ms,
            cleaner_bytes_per_second=cleaner_bytes_per_second,
            io=io,
            clock=clock,
        )
    )


def _close_all() -> None:
    """At the end of the interpreter: what was appended is written, as if the application had closed."""
    for database in list(_open_databases):
        try:
            database.close()
        except LogdbError as error:
            logger.error("closing %s at exit: %s", database.path, error)


atexit.register(_close_all)
