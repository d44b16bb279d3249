"""The database, as an application holds it, in a directory or behind a URL.

Knows topics and how records find their partition.  Does not know files (``client.local``), nor networks: ``base`` and
``_session`` carry out what is asked.
"""

import atexit
import contextlib
import logging
import os
import re
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from logdb.client.administration import Administration
from logdb.client.producer import partitioner as partitioners
from logdb.client.producer.partitioner import Partitioner
from logdb.errors import Closed, InvalidConfig, InvalidPartitions, InvalidTopic, LogdbError, UnknownPartition
from logdb.log.isolation import IsolationLevel
from logdb.mistakes import OF_THE_CALL, checked_call, explained
from logdb.model import INTERNAL_TOPICS, Buffer, Durability, ExpiredRecords, RecordMetadata, TopicInfo, check_topic_name
from logdb.requests.session import PartitionLog, Session
from logdb.threads import renewed

if TYPE_CHECKING:
    import pyarrow.dataset

    from logdb.client.consumer.assignors import Assignor
    from logdb.client.consumer.config import OffsetReset
    from logdb.client.consumer.consumer import Consumer
    from logdb.client.producer.interceptor import Interceptor
    from logdb.client.producer.producer import Producer, ProducerOptions
    from logdb.client.producer.transaction import Transaction, TransactionalProducer, Transactions
    from logdb.client.security_admin import SecurityAdmin
    from logdb.client.table.table import Table
    from logdb.client.table.view import TopicViews
    from logdb.client.watching import Watch
    from logdb.serde import Deserializer
    from logdb.store.check.report import Copied, Progress, Report
    from logdb.store.sidecars import MadeSidecars
    from logdb.store.state import Mode
    from logdb.store.store import Store
    from logdb.store.tiers import TopicTiers

    P = TypeVar("P", bound=Producer)

logger = logging.getLogger(__name__)
_PRODUCER_CLOSE_MS = 10_000  # how long a close waits for a disk that takes nothing
_open_databases: "weakref.WeakSet[Database]" = weakref.WeakSet()

Headers = Iterable[tuple[str, bytes | None]]


class Database(Administration):
    """Topics and partitions, and all that can be done with them.  Made by ``logdb.open``; a context manager that closes itself.

    Any number of threads may use it.  After a fork, the child opens its own.
    """

    def __init__(self, base: "Store | Session") -> None:
        self._base = base
        self._partitioners: dict[object, Partitioner] = {}
        self._partition_counts: dict[str, int] = {}
        self._transactions: Transactions | None = None
        self._views: TopicViews | None = None
        self._producers: set[Producer] = set()  # open
        self._parts_lock = renewed(threading.Lock())  # of views and producers, which an end has to see
        self._ended = False  # a close has begun
        self._on_close: list[Callable[[], None]] = []
        _open_databases.add(self)

    @property
    @abstractmethod
    def _session(self) -> Session:
        """What producers and consumers talk through."""

    @property
    def session(self) -> Session:
        """What producers, consumers and transactions talk through: for programs that carry record batches themselves."""
        return self._session

    @property
    @abstractmethod
    def path(self) -> str:
        """The directory, absolute, or the URL."""

    @property
    @abstractmethod
    def mode(self) -> "Mode":
        """``"a"``: append and read; ``"r"``: read beside a writer."""

    @property
    @abstractmethod
    def reports(self) -> Sequence[str]:
        """What recovery found and did since the database was opened: one line each."""

    def __repr__(self) -> str:
        return f"<Database {self.path} mode={self.mode}{' closed' if self._base.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------ topics

    @checked_call
    def create_topic(  # a name that is no str is an InvalidTopic: the annotation is one that ``checked_call`` does not look at
        self, name: "str", *, partitions: int = 1, config: Mapping[str, object] | None = None, if_not_exists: bool = False
    ) -> TopicInfo:
        """Create a topic; when this returns, it is durable.

        Args:
            name: 1 to 249 of a-z A-Z 0-9 . _ -
            partitions: How many, 1 to 100,000; more can be added later, never fewer.
            config: Kafka's topic configs, and ``durability``; values as Python's or Kafka's; None: the default.  Records are
                kept for ever unless ``retention.ms`` or ``retention.bytes`` say otherwise; behind a URL, also those that its
                server was told (``logdb serve --topic-config``, ``log.retention.ms``): see the ``config`` that is returned.
            if_not_exists: Return the topic that is there instead of raising.

        Returns:
            The topic, with all configs that it has been given, those by its server too.

        Raises:
            TopicExists, InvalidTopic, InvalidPartitions, InvalidConfig: as they say.
            CodecMissing: The package of ``compression.type`` is not installed; behind a URL, at the server.
            ReadOnly, SyncFailed, DiskFull: Nothing was created.
        """
        check_topic_name(name)
        return self._base.create_topic(name, partitions=partitions, config=config, if_not_exists=if_not_exists)

    @checked_call
    def alter_topic(self, name: str, *, config: Mapping[str, object] | None = None, partitions: int | None = None) -> TopicInfo:
        """Change a topic's configs (a value of None goes back to the default), or add partitions.

        Adding partitions changes where keys go from then on, as in Kafka.

        Raises:
            UnknownTopic, InvalidConfig, InvalidPartitions, CodecMissing: Nothing was changed.
        """
        if partitions is not None and name in INTERNAL_TOPICS:
            raise InvalidPartitions(name, partitions, "which of them keeps what goes by their number")
        info = self._base.alter_topic(name, config=config, partitions=partitions)
        self._topic_changed(name)
        return info

    @checked_call
    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records, for good.

        Raises:
            UnknownTopic: There is none of that name.
        """
        self._session.delete_topic(name)
        self._topic_changed(name)

    @checked_call
    def watch(self, *, timeout_ms: int | None = None, stop: threading.Event | None = None, internal: bool = False) -> "Watch":
        """Follow what becomes of topics from now on: created, altered, partitions added, deleted.

        What comes and goes between two looks of a handle beside a writer, or while a server is away, is not told.

        Args:
            timeout_ms: The iterator ends so long after the last change; None: it does not.
            stop: The iterator ends when this is set.
            internal: Tell of internal topics, too.

        Returns:
            An iterator of ``TopicEvent``.

        Raises:
            Closed: From the iterator, once the database is.
        """
        from logdb.client.watching import Watch  # few programs need it

        return Watch(self._session, timeout_ms=timeout_ms, stop=stop, internal=internal)

    def _topic_changed(self, name: str) -> None:
        self._partition_counts.pop(name, None)
        for producer in list(self._producers):
            producer.refresh(name)

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics, by name; Kafka's internal ones only if asked for.  Their partitions: ``describe_topic``."""
        return self._base.topics(internal=internal)

    @checked_call
    def describe_topic(self, name: str) -> TopicInfo:
        """One topic, with its partitions as they are now.

        Raises:
            UnknownTopic: There is none of that name.
        """
        return self._base.describe_topic(name)

    # ------------------------------------------------------------ records

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of one partition: the fast, plain way to append and to read.

        Always the same object for the same partition.

        Raises:
            UnknownTopic, UnknownPartition: as they say.
        """
        try:
            return self._session.log(topic, partition)
        except OF_THE_CALL as error:
            raise error.with_traceback(None) from error.__cause__
        except (TypeError, AttributeError) as error:
            raise explained(error, Database.log, topic=topic, partition=partition) from error.__cause__

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
            As ``Log.append``; UnknownPartition where a callable leaves the range; InvalidTopic where ``topic`` is internal.
        """
        partition = self._choose(topic, key, partitioner)
        offset = self._base.log(topic, partition).append(value, key, headers=headers, timestamp_ms=timestamp_ms, durability=durability)
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
            As ``Log.append_many``; InvalidTopic where ``topic`` is internal.
        """
        try:
            values = list(values)
            keys = [None] * len(values) if keys is None else list(keys)
            heads = None if headers is None else list(headers)
            times = None if timestamps_ms is None else list(timestamps_ms)
        except TypeError as error:
            given = {"values": values, "keys": keys, "headers": headers, "timestamps_ms": timestamps_ms}
            raise explained(error, Database.append_many, **given) from error.__cause__
        for name, other in (("keys", keys), ("headers", heads), ("timestamps_ms", times)):
            if other is not None and len(other) != len(values):
                raise ValueError(f"{len(values)} values, but {len(other)} {name}")
        choose, count = self._partitioner(partitioner), self._partition_count(topic)
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(self._checked(topic, choose(key, count), count), []).append(row)
        placed: list[RecordMetadata | None] = [None] * len(values)
        for partition, chosen in rows.items():
            offsets = self._base.log(topic, partition).append_many(
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
            options: ``help(logdb.ProducerOptions)`` lists them with their defaults.

        Returns:
            A context manager that closes itself; closing the database closes it, too.

        Raises:
            InvalidConfig: An option cannot be so; it says which, and what is allowed.
            TypeError: There is no such option.
            CodecMissing: The package of ``compression_type`` is not installed.
            ReadOnly, Closed, Forked: as they say.

        Source: Kafka's producer configs of these names.
        """
        if transactional_id is not None:
            return self._transactional_producer(transactional_id=transactional_id, **options)
        from logdb.client.producer.producer import Producer

        return self._open_producer(Producer, options)

    def _open_producer(self, kind: "type[P]", options: dict[str, Any]) -> "P":
        """A producer of a kind, which is told of changes of topics and closed with the database."""
        from logdb.client.producer.producer import ProducerOptions

        known = ProducerOptions.__annotations__.keys() | {"transactional_id"}
        if unknown := options.keys() - (known | {"transaction_timeout_ms"} if "transactional_id" in options else known):
            raise TypeError(f"a producer has no option {', '.join(sorted(unknown))}; options are {', '.join(sorted(known))}")
        try:
            self._base.check_open(writable=True)
            producer = kind(self._session, io=self._base.io, clock=self._base.clock, on_close=self._producers.discard, **options)
        except OF_THE_CALL as error:
            raise error.with_traceback(None) from error.__cause__
        with self._parts_lock:
            if not self._ended:
                self._producers.add(producer)
                return producer
        with contextlib.suppress(LogdbError):
            producer.close(0)
        raise self._is_closed()

    @checked_call
    def transaction(
        self, transactional_id: str, *, transaction_timeout_ms: int = 60_000, **options: "Unpack[ProducerOptions]"
    ) -> "Transaction":
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
            transaction_timeout_ms: After which it is aborted, from its first record on; 1 to ``transaction.max.timeout.ms`` (900,000).
            options: Those of ``producer``.

        Raises:
            where the block is entered, InvalidTransactionTimeout; where it ends, ProducerFenced, and whatever kept a
            record from being written: the transaction was aborted.
        """
        if self._transactions is None:
            from logdb.client.producer.transaction import Transactions

            self._transactions = Transactions(self._transactional_producer)
        return self._transactions.transaction(transactional_id, {"transaction_timeout_ms": transaction_timeout_ms, **options})

    def _transactional_producer(self, **options: Any) -> "TransactionalProducer":
        from logdb.client.producer.transaction import TransactionalProducer

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
        heartbeat_interval_ms: int | None = None,
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
            others: ``help(logdb.ConsumerConfig)`` says what each does.

        Raises:
            InvalidConfig: An option cannot be so; it names it.
            UnknownTopic: One of the topics does not exist.
        """
        from logdb.client.consumer.config import ConsumerConfig
        from logdb.client.consumer.consumer import Consumer
        from logdb.client.producer.interceptor import checked

        try:
            strategy = (
                (partition_assignment_strategy,) if isinstance(partition_assignment_strategy, str) else tuple(partition_assignment_strategy)
            )
        except TypeError:
            raise InvalidConfig("partition_assignment_strategy", partition_assignment_strategy, "allowed is a name, or several") from None
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
            interceptors=checked(interceptors),
            iteration_timeout_ms=iteration_timeout_ms,
            client_id=client_id,
        )
        try:
            consumer = Consumer(self._session, config, self._base.io.monotonic_ms)
            if topics or pattern is not None:
                consumer.subscribe(*topics, pattern=pattern)
        except OF_THE_CALL as error:
            raise error.with_traceback(None) from error.__cause__
        return consumer

    def _choose(self, topic: str, key: Buffer | None, partitioner: "str | Partitioner | None") -> int:
        count = self._partition_count(topic)
        return self._checked(topic, self._partitioner(partitioner)(key, count), count)

    def _checked(self, topic: str, partition: int, count: int) -> int:
        try:
            if not 0 <= partition < count:
                raise UnknownPartition(topic, partition, count)
        except TypeError:
            raise TypeError(f"the partitioner returned {partition!r}: allowed is a whole number in [0, {count})") from None
        return partition

    def _partition_count(self, topic: str) -> int:
        try:
            count = self._partition_counts.get(topic)
            if count is None:
                if topic in INTERNAL_TOPICS:
                    raise InvalidTopic(topic, "logdb alone writes to it")
                count = self._partition_counts[topic] = self._base.partition_count(topic)
        except OF_THE_CALL as error:
            raise error.with_traceback(None) from error.__cause__
        except (TypeError, AttributeError) as error:
            raise explained(error, Database.append, topic=topic) from error.__cause__
        return count

    def _partitioner(self, wanted: "str | Partitioner | None") -> Partitioner:
        """One partitioner for each name, since the default one and round robin have a state."""
        if callable(wanted):
            return wanted
        made = self._partitioners.get(wanted)
        if made is None:
            made = self._partitioners[wanted] = partitioners.make(wanted)
        return made

    @checked_call
    def table(
        self, topic: str, *, key_deserializer: "Deserializer | None" = None, value_deserializer: "Deserializer | None" = None
    ) -> "Table":
        """A topic as a mapping from its keys to their latest values, kept current.

        The first look reads the topic; what was read stays in ``views/``, so that the next time goes on from there.
        With ``mode="r"``, or over a URL, it lies in a temporary directory.

        Args:
            topic: With or without compaction.
            key_deserializer, value_deserializer: What makes keys and values of bytes, as those of ``logdb.serde``; None: they
                stay bytes, and a str is looked up as UTF-8.

        Raises:
            UnknownTopic: There is none of that name.
        """
        from logdb.client.table.table import Table  # few programs need it

        self._base.partition_count(topic)
        with self._parts_lock:
            self._check_not_ended()
            self._views = self._views or self._open_views()
            view = self._views.of(topic)
        return Table(self._session, view, self._base.io, key_deserializer, value_deserializer)

    @abstractmethod
    def _open_views(self) -> "TopicViews":
        """Where the views of tables are kept."""

    @checked_call
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
        return self._base.delete_records(topic, partition, before_offset)

    @checked_call
    def enforce_retention(self, topic: str | None = None, *, dry_run: bool = False) -> list[ExpiredRecords]:
        """Delete now what the limits of topics ask to delete: ``retention.ms`` and ``retention.bytes``; else it happens by and by.

        Whole segments go, oldest first; the one that is appended to only if all that is in it is too old.  A topic without a
        limit, and what is or may yet be part of an open transaction, stay.

        Args:
            topic: One of them; None: all, behind a URL those of which one may delete records.
            dry_run: Only say what would go, as far as segments were sealed; with ``mode="r"`` as the last checkpoint knows it.

        Returns:
            What went, by topic and partition; nothing of the others.

        Raises:
            UnknownTopic, ReadOnly, DiskFull, SyncFailed: as they say; the other logs were seen to.
        """
        return self._base.enforce_retention(topic, dry_run=dry_run)

    @checked_call
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
        self._base.compact(topic, partition)

    # ------------------------------------------------------------ who may do what

    @property
    @abstractmethod
    def security(self) -> "SecurityAdmin":
        """Users, tokens, ACLs and quotas: who may do what where the database is served."""

    # ------------------------------------------------------------ as columns

    @abstractmethod
    def make_parquet(self, topic: str, partition: int | None = None, *, progress: "Progress | None" = None) -> "list[MadeSidecars]":
        """Make a Parquet file of each segment that has none, now: of all that was appended before, the active segment too.

        Those that there are already are checked, and made anew where they are damaged.  With the config ``logdb.parquet`` the
        same happens in the background, to segments that are full, or old, enough.  Needs pyarrow.

        Args:
            partition: One of them; None: all.
            progress: Called after each segment with bytes done, bytes in all, and the partition's name.

        Returns:
            What was done, by partition.

        Raises:
            LocalOnly: The database is behind a URL.
            CorruptionError: A batch is damaged.
            UnknownTopic, UnknownPartition, ReadOnly, DiskFull, SyncFailed, Closed: as they say.
        """

    @abstractmethod
    def topic_tiers(self, topic: str, *, isolation_level: IsolationLevel = "read_uncommitted") -> "TopicTiers":
        """Where each record of a topic is to be read from, as it is now: from a Parquet file, or from a range of a log.

        For who reads Parquet himself.  He holds each page against its checksum, and takes a file that is gone by then for
        an error: retention, or compaction, was faster.

        Args:
            isolation_level: As ``Log.read``; for ``"read_uncommitted"``, a segment with records of aborted transactions is
                read from the log.

        Raises:
            LocalOnly: The database is behind a URL.
            UnknownTopic: There is none of that name.
        """

    @abstractmethod
    def topic_dataset(self, topic: str, *, isolation_level: IsolationLevel = "read_uncommitted") -> "pyarrow.dataset.Dataset":
        """The records of a topic, as they are now, as a dataset: for pyarrow, pandas, polars, duckdb.

            duckdb.sql("select key, count(*) from trades group by key")       # trades = db.topic_dataset("trades")
            polars.scan_pyarrow_dataset(db.topic_dataset("trades"))
            db.topic_dataset("trades").to_table(columns=["offset", "value"]).to_pandas()

        What has a Parquet file (``logdb.parquet``, ``make_parquet``) is read when the dataset is; everything else is
        copied by this call into a temporary file, as large as these records are uncompressed, whose room is given back with
        the dataset.  Reading fails where a file was removed since (retention, compaction), or has a damaged page.  Needs pyarrow.

        Args:
            isolation_level: As ``topic_tiers``.

        Returns:
            key, value: binary; topic: string; partition: int32; offset: int64; timestamp: timestamp[ms, UTC]; timestampType: int32
            (0 CreateTime, 1 LogAppendTime); headers: list<struct<key: string, value: binary>>, null without.  In no order.

        Raises:
            LocalOnly: The database is behind a URL.
            UnknownTopic, CorruptionError: as they say.
        """

    # ------------------------------------------------------------ the whole

    def flush(self, sync: bool = True) -> None:
        """Return once everything appended so far is durable, or with ``sync=False`` with the operating system.

        Raises:
            DiskFull, SyncFailed: as ``Log.flush``.
        """
        self._base.flush(sync)

    @abstractmethod
    def verify(self, progress: "Progress | None" = None) -> "Report":
        """Check every byte of every file against its neighbours, beside the work that goes on."""

    @abstractmethod
    def snapshot(self, path: str | os.PathLike[str], *, progress: "Progress | None" = None) -> "Copied":
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
            TargetInside: ``path`` is in the database's directory.
            DirectoryLocked: Another snapshot to the same place is under way.
            CorruptionError: A partition is damaged.
            ReadOnly: The database was opened for reading and is written to by somebody else, or was not closed cleanly.
            DiskFull, WriteFailed, SyncFailed: There is no snapshot.
        """

    @abstractmethod
    def backup(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | None = None, progress: "Progress | None" = None
    ) -> "Copied":
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
            TargetInside: ``path`` is in the database's directory.
            BackupMismatch: ``base`` is of another database.
            BackupDamaged: ``base`` is no backup, or damaged.
            ReadFailed: ``base`` is not there, or cannot be read.
            CorruptionError: The database is damaged; nothing of it is carried into a backup.
            ReadOnly: as ``snapshot``.
            DiskFull, WriteFailed, SyncFailed: There is no backup.
        """

    def close(self) -> None:
        """Write and sync everything, then let the next writer in.  Closing twice is no error.

        Raises:
            CloseIncomplete: Records could not be written; it says how many are lost.
            what a producer's record failed with, of those since its last flush.
        """
        while self._on_close:
            self._on_close.pop()()
        with self._parts_lock:
            self._ended = True
        with contextlib.ExitStack() as closing:
            self._closing(closing)
            if self._views is not None:
                closing.callback(self._views.close)
            failure = self._close_producers()
            if self._transactions is not None:
                self._transactions.close()
        if failure is not None:
            raise failure

    @checked_call
    def on_close(self, function: Callable[[], None]) -> None:
        """Call a function first thing when the database is closed."""
        self._on_close.append(function)

    def _closing(self, closing: contextlib.ExitStack) -> None:
        """Register what is to be closed after producers and tables, in reverse."""
        closing.callback(self._base.close)

    def _check_not_ended(self) -> None:
        """Raise Closed once a close has begun: what is made from then on would be closed by nobody."""
        if self._ended:
            raise self._is_closed()

    def _is_closed(self) -> Closed:
        return Closed(f"the database {self.path} is closed")

    def _close_producers(self) -> Exception | None:
        """Have written what producers have taken; returns what the first of them failed with."""
        failure: Exception | None = None
        for producer in list(self._producers):
            try:
                producer.close(_PRODUCER_CLOSE_MS)
            except Exception as error:  # noqa: BLE001 -- the others are to be closed, too
                failure = failure or error
        return failure


def _close_all() -> None:
    """At the end of the interpreter: what was appended is written, as if the application had closed."""
    for database in list(_open_databases):
        try:
            database.close()
        except LogdbError as error:
            logger.error("closing %s at exit: %s", database.path, error)


atexit.register(_close_all)
