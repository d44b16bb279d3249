"""The database of an application, in a directory (``client.local``) or behind a URL.

Finds the partition of records, and makes producers, consumers and tables; ``_base`` and ``_session`` carry the calls out.
"""

import atexit
import contextlib
import logging
import operator
import os
import re
import reprlib
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

from logdb import requests
from logdb.client.administration import Administration
from logdb.client.producer import partitioner as partitioners
from logdb.client.producer.partitioner import Partitioner
from logdb.client.ranges import Position, Range, ranges_of
from logdb.codec import Record, arrow
from logdb.errors import Closed, CloseIncomplete, InvalidConfig, InvalidPartitions, InvalidTopic, LogdbError, UnknownPartition
from logdb.log.isolation import IsolationLevel, is_committed
from logdb.log.protocols import PartitionLog
from logdb.mistakes import OF_THE_CALL, checked_call, checked_options, explained
from logdb.model import (
    BY_DEFAULT,
    INTERNAL_TOPICS,
    Buffer,
    Durability,
    Duration,
    ExpiredRecords,
    RecordMetadata,
    Timestamp,
    TopicInfo,
    check_topic_name,
    duration_ms,
    plain_configs,
    plain_options,
    timestamp_ms_of,
)
from logdb.requests.session import Session
from logdb.signatures import readable
from logdb.threads import renewed

if TYPE_CHECKING:
    import polars
    import pyarrow.dataset

    from logdb.client.consumer.assignors import Assignor
    from logdb.client.consumer.config import OffsetReset
    from logdb.client.consumer.consumer import Consumer
    from logdb.client.producer.interceptor import Interceptor
    from logdb.client.producer.producer import Producer, ProducerOptions
    from logdb.client.producer.transaction import IdleProducers, Transaction, TransactionalProducer
    from logdb.client.security_admin import SecurityAdmin
    from logdb.client.table.table import Table
    from logdb.client.table.view import TopicViews
    from logdb.client.watching import Watch
    from logdb.requests.report import Copied, Progress, Report
    from logdb.requests.topic_changes import Assignments, Config
    from logdb.serde import Deserializer
    from logdb.store.sidecars import MadeSidecars
    from logdb.store.state import Mode
    from logdb.store.store import Store
    from logdb.store.tables import UpdatedTable
    from logdb.store.tiers import TopicTiers

    P = TypeVar("P", bound=Producer)

logger = logging.getLogger(__name__)
_PRODUCER_CLOSE_MS = 10_000  # how long a close waits for a disk that accepts no write
_open_databases: "weakref.WeakSet[Database]" = weakref.WeakSet()

Headers = Iterable[tuple[str, bytes | None]]


@contextlib.contextmanager
def noting(error: BaseException | None) -> Iterator[None]:
    """Note a ``CloseIncomplete`` on the error of the block that the close ends: that one comes first, and mostly says why."""
    try:
        yield
    except CloseIncomplete as incomplete:
        if error is None:
            raise
        error.add_note(str(incomplete))


@readable
class Database(Administration):
    """Topics and partitions, and all operations on them.  Made by ``logdb.open``; a context manager that closes itself.

    Threading: any thread.  After a fork, the child opens its own.
    """

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        if cls is Database:
            raise TypeError("a Database is made by: logdb.open(PATH or URL)")
        return super().__new__(cls)

    def __init__(self, base: "Store | Session") -> None:
        self._base = base
        self._partitioners: dict[object, Partitioner] = {}
        self._partition_counts: dict[str, int] = {}
        self._transactions: IdleProducers | None = None
        self._views: TopicViews | None = None
        self._producers: set[Producer] = set()  # the open ones
        self._parts_lock = renewed(threading.Lock())  # guards views and producers against a close
        self._ended = False  # a close has begun
        self._on_close: list[Callable[[], None]] = []
        _open_databases.add(self)

    @property
    @abstractmethod
    def _session(self) -> Session:
        """The session of producers and consumers."""

    @property
    def session(self) -> Session:
        """The session of producers, consumers and transactions: for programs that send record batches themselves."""
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
    def reports(self) -> Sequence[str]:
        """The report of recovery since the database was opened, one line for each action."""
        return self._base.submit(requests.topics.Reports())

    def __repr__(self) -> str:
        return f"<Database {self.path} mode={self.mode}{' closed' if self._base.closed else ''}>"

    def _repr_html_(self) -> str:
        """For notebooks: the topics with their sizes."""
        from logdb import notebook  # few programs need it

        rows: list[tuple[object, ...]] = []
        with contextlib.suppress(LogdbError):  # a closed database, or a server that does not answer: the rows so far
            for topic in self.topics():
                partitions = self.describe_topic(topic.name).partitions
                records = sum(one.end_offset - one.start_offset for one in partitions)
                size_bytes = sum(one.size_bytes for one in partitions)
                rows.append((topic.name, len(partitions), records, size_bytes, notebook.configs(topic.config)))
        return notebook.html_table(repr(self), ("topic", "partitions", "records", "bytes", "configs"), rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with noting(error):
            self.close()

    # ------------------------------------------------------------ topics

    @checked_call
    def create_topic(  # a name that is not a str raises InvalidTopic, so ``checked_call`` does not check it
        self,
        name: "str",
        *,
        partitions: int = BY_DEFAULT,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        if_not_exists: bool = False,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> TopicInfo:
        """Create a topic; when this returns, it is durable.

        Args:
            name: 1 to 249 of a-z A-Z 0-9 . _ -
            partitions: Their number, 1 to 100,000; it can only grow.  -1: the default, 1; in a cluster 2 for each broker.
            replication_factor: How many nodes of a cluster have each partition; None or -1: 3, or all where there are fewer.
            config: Kafka's topic configs, and ``durability``; values in Python's or Kafka's form, or with a unit: ``"7d"`` or a
                ``timedelta`` for ``retention.ms``, ``"64MiB"`` for ``segment.bytes``; None: the default.  Records are kept
                forever without ``retention.ms`` or ``retention.bytes``; behind a URL, the server may have other defaults (``logdb serve
                --topic-config``, ``log.retention.ms``): see the ``config`` of the result.
            if_not_exists: Return an existing topic instead of raising.
            assignments: In a cluster, the nodes of each partition, the preferred leader first.  Each has as many nodes as the others.
                Leave ``partitions`` and ``replication_factor`` out.  None: the controller chooses the nodes.

        Returns:
            The topic, with all configs that were set, also by the server.

        Raises:
            TopicExists, InvalidTopic, InvalidPartitions, InvalidConfig: see ``logdb.errors``.
            InvalidReplicationFactor: There are fewer brokers; a directory is one.
            InvalidReassignment: A partition cannot have the nodes of ``assignments``.
            CodecMissing: The package of ``compression.type`` is not installed; behind a URL, at the server.
            ReadOnly, SyncFailed, DiskFull: Nothing was created.
        """
        check_topic_name(name)
        given = cast("Config | None", plain_configs(config))
        request = requests.topic_changes.CreateTopic(name, partitions, given, if_not_exists, replication_factor, _nodes(assignments))
        return self._base.submit(request)

    @checked_call
    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object] | None = None,
        partitions: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> TopicInfo:
        """Change a topic's configs (None restores the default), or add partitions.

        After partitions were added, keys go to other partitions, as in Kafka.

        Lower limits (``retention.ms``, ``retention.bytes``) delete records: a check of the topic starts at once, in the background.
        ``enforce_retention(name, dry_run=True, config=config)`` shows beforehand what they delete.  A ``cleanup.policy`` with ``compact``
        deletes earlier records of each key; that begins within 15 s.

        Args:
            partitions: The new number of partitions; it can only grow.
            assignments: In a cluster, the nodes of each new partition, the preferred leader first; as many as the first partition has.
                None: the controller chooses them.

        Raises:
            UnknownTopic, InvalidConfig, InvalidPartitions, InvalidReassignment, CodecMissing: Nothing was changed.
        """
        if partitions is not None and name in INTERNAL_TOPICS:
            raise InvalidPartitions(name, partitions, "the partition of a group or transactional id depends on their number")
        info = self._session.alter_topic(name, config=plain_configs(config), partitions=partitions, assignments=_nodes(assignments))
        self._topic_changed(name)
        return info

    @checked_call
    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records, for good.

        Raises:
            UnknownTopic: No topic has that name.
        """
        self._session.delete_topic(name)
        self._topic_changed(name)
        if self._views is not None:
            self._views.forget(name)

    @checked_call
    def watch(
        self, *, timeout_ms: Duration | None = None, stop: threading.Event | None = None, internal: bool = False, cluster: bool = False
    ) -> "Watch":
        """Follow changes of topics from now on: created, altered, partitions added, deleted.

        A handle beside a writer checks at intervals.  It misses a topic that is created and deleted between two checks, or while a
        server is away.

        Args:
            timeout_ms: The iterator ends after so long without a change; None: never.
            stop: The iterator ends when this is set.
            internal: Report internal topics, too.
            cluster: Of a cluster report brokers that come and go, too, and who leads each partition and is in sync with it.  Changes
                made while no node answers are reported as the difference.

        Returns:
            An iterator of ``TopicEvent``, and with ``cluster`` of ``ClusterEvent``.

        Raises:
            Closed: The iterator raises it after the database was closed.
        """
        from logdb.client.watching import Watch  # few programs need it

        return Watch(self._session, timeout_ms=duration_ms(timeout_ms), stop=stop, internal=internal, cluster=cluster)

    def _topic_changed(self, name: str) -> None:
        self._partition_counts.pop(name, None)
        for producer in list(self._producers):
            producer.refresh(name)

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics, sorted; internal ones only if ``internal``.  Without partitions: see ``describe_topic``."""
        return self._base.submit(requests.topics.Topics(internal))

    @checked_call
    def describe_topic(self, name: str) -> TopicInfo:
        """One topic with its partitions.

        Raises:
            UnknownTopic: No topic has that name.
        """
        return self._base.submit(requests.topics.DescribeTopic(name))

    # ------------------------------------------------------------ records

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of one partition: the fast, plain way to append and read.

        The same object for every call with the same partition.

        Raises:
            UnknownTopic, UnknownPartition: see ``logdb.errors``.
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
        timestamp_ms: Timestamp | None = None,
        durability: Durability | None = None,
    ) -> RecordMetadata:
        """Append one record to the partition that the partitioner chooses.

        Args:
            partitioner: None or ``"default"`` (as Kafka's: murmur2 of the key, sticky without one),
                ``"round_robin"``, or a callable (key, partition_count) -> partition.
            timestamp_ms: The record's time, milliseconds since 1970 or a ``datetime`` with a time zone; None: now; -1: none.

        Returns:
            Its position; ``timestamp_ms`` is -1 if the log stamped it with its own clock.

        Raises:
            UnknownPartition: The partitioner chose one that is out of range.
            InvalidTopic: The topic is internal.
            LogdbError: See ``Log.append``.
        """
        timestamp_ms = timestamp_ms_of(timestamp_ms)
        partition = self._choose(topic, key, partitioner)
        offset = self._appended_log(topic, partition).append(value, key, headers=headers, timestamp_ms=timestamp_ms, durability=durability)
        return RecordMetadata(topic, partition, offset, -1 if timestamp_ms is None else timestamp_ms)

    def append_many(
        self,
        topic: str,
        values: Iterable[Buffer | None],
        keys: Iterable[Buffer | None] | None = None,
        *,
        partitioner: "str | Partitioner | None" = None,
        headers: Iterable[Headers] | None = None,
        timestamps_ms: Iterable[Timestamp | None] | None = None,
        durability: Durability | None = None,
    ) -> list[RecordMetadata]:
        """Append many records, each to its partition; all are written before this returns.

        Not atomic across partitions.

        Returns:
            The position of each record, in the order given.

        Raises:
            InvalidTopic: The topic is internal.
            LogdbError: See ``Log.append_many``.
        """
        for name, given_list in (("values", values), ("keys", keys)):
            if isinstance(given_list, str | bytes | bytearray | memoryview):
                raise TypeError(f"{name} must be a list of bytes, not {type(given_list).__name__}")
        try:
            values = list(values)
            keys = [None] * len(values) if keys is None else list(keys)
            heads = None if headers is None else list(headers)
            times = None if timestamps_ms is None else list(map(timestamp_ms_of, timestamps_ms))
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
            offsets = self._appended_log(topic, partition).append_many(
                [values[row] for row in chosen],
                [keys[row] for row in chosen],
                headers=None if heads is None else [heads[row] for row in chosen],
                timestamps_ms=None if times is None else [times[row] for row in chosen],
                durability=durability,
            )
            for row, offset in zip(chosen, offsets, strict=True):
                at = None if times is None else times[row]
                placed[row] = RecordMetadata(topic, partition, offset, -1 if at is None else at)
        return [metadata for metadata in placed if metadata is not None]

    @checked_call
    def read(
        self, topic: str, *, start: Position = None, end: Position = None, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> Iterator[Record]:
        """Read the records of all partitions of a topic, one partition after the other, to where they end now.

        Args:
            start: Where to begin: for every partition an offset, or a ``datetime`` with a time zone; or a mapping of partition numbers
                to offsets, which reads only these partitions.  None: the start.  An offset before the start is the start, one after
                the end is the end.  A time is the first record with this timestamp or a later one.
            end: Where to stop, in the same form; the record there is left out.  None: where each partition ends now.
            isolation_level: As ``Log.read``.

        Raises:
            UnknownTopic, UnknownPartition: see ``logdb.errors``.
            OffsetOutOfRange: From the iterator: retention deleted records meanwhile.
            CorruptionError: From the iterator, where it comes to a damaged batch.
        """
        ranges = ranges_of(self, topic, start, end, isolation_level)
        return chain.from_iterable(
            self.log(topic, one.partition).read(one.start, end_offset=one.end, isolation_level=isolation_level) for one in ranges
        )

    @checked_call
    def read_arrow(
        self,
        topic: str,
        *,
        start: Position = None,
        end: Position = None,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        schema: "arrow.ValueSchema | None" = None,
    ) -> "pyarrow.RecordBatchReader":
        """Read the records of all partitions of a topic as Arrow batches, one partition after the other.

        The batches are as large as those of ``Log.read_arrow``.  Needs pyarrow.

            duckdb.sql("select key, count(*) from trades group by key")       # trades = db.read_arrow("trades")
            polars.from_arrow(db.read_arrow("trades").read_all())

        Args:
            start, end: As ``read``.
            columns: Some of partition, offset, timestamp, timestamp_type, key, value, headers, in the order wanted; None: all but the
                type, and with ``schema`` all but the value, too.
            isolation_level: As ``Log.read``.
            schema: Columns to make of values; they come behind ``columns``.  A schema of pyarrow names fields of JSON objects and their
                types; ``logdb.serde.avro(schema)`` gives a column for each field of an Avro record.  A missing field, and a null
                value of a record, give null.

        Returns:
            A reader, which duckdb, polars and pandas take as it is; types as those of ``Log.read_arrow``, partition: int32.  A reader is
            read once: a second query on it finds no rows.  For several queries keep ``read_all()``, or use ``topic_dataset``.

        Raises:
            ValueError: An unknown column, or one given twice.
            UnknownTopic, UnknownPartition: see ``logdb.errors``.
            OffsetOutOfRange, CorruptionError: From the reader, as ``read``.
            SerializationError: From the reader: a value does not fit ``schema``; the error has its offset.
        """
        ranges = ranges_of(self, topic, start, end, isolation_level)

        def read(one: "Range", names: Sequence[str]) -> "pyarrow.RecordBatchReader":
            log = self.log(topic, one.partition)
            return log.read_arrow(one.start, end_offset=one.end, columns=names, isolation_level=isolation_level)

        parts = ((one.partition, partial(read, one)) for one in ranges)
        return arrow.topic_batches(topic, parts, columns, schema)

    # ------------------------------------------------------------ producers, transactions, consumers

    @overload
    def producer(self, *, transactional_id: None = None, **options: "Unpack[ProducerOptions]") -> "Producer": ...

    @overload
    def producer(
        self, *, transactional_id: str, transaction_timeout_ms: Duration = ..., **options: "Unpack[ProducerOptions]"
    ) -> "TransactionalProducer": ...

    def producer(
        self, *, transactional_id: str | None = None, transaction_timeout_ms: Duration | None = None, **options: "Unpack[ProducerOptions]"
    ) -> "Producer":
        """Send records without waiting for the disk: ``send`` returns a future, a thread writes.

        Args:
            transactional_id: Makes a transactional producer: records become visible when their transaction is committed.  It
                has ``begin_transaction``, ``commit_transaction``, ``abort_transaction``.  ``db.transaction`` is shorter.
            transaction_timeout_ms: With a ``transactional_id``: aborts a transaction after this time; None: 60,000.
            options: acks="all", enable_idempotence=True, linger_ms=5, batch_size=16384, compression_type=None (the topic's),
                buffer_memory=33554432, max_block_ms=60000, delivery_timeout_ms=120000, retries=2147483647,
                retry_backoff_ms=100, partitioner=None, key_serializer=None, value_serializer=None, interceptors=().
                ``help(logdb.ProducerOptions)`` explains each, with its unit and its range.

        Returns:
            A context manager that closes itself; closing the database closes it, too.

        Raises:
            InvalidConfig: An option is invalid; the error has its name and its range.
            TypeError: There is no such option.
            CodecMissing: The package of ``compression_type`` is not installed.
            ReadOnly, Closed, Forked: see ``logdb.errors``.

        Source: Kafka's producer configs of these names.
        """
        given: dict[str, Any] = {**options}
        if transaction_timeout_ms is not None:
            given["transaction_timeout_ms"] = transaction_timeout_ms
        if transactional_id is not None:
            return self._transactional_producer(transactional_id=transactional_id, **given)
        from logdb.client.producer.producer import Producer

        return self._open_producer(Producer, given)

    def _open_producer(self, kind: "type[P]", options: dict[str, Any]) -> "P":
        """A producer that sees changes of topics and is closed with the database."""
        from logdb.client.producer.producer import ProducerOptions

        known = ProducerOptions.__annotations__.keys() | {"transactional_id"}
        if unknown := options.keys() - (known | {"transaction_timeout_ms"} if "transactional_id" in options else known):
            raise TypeError(f"a producer has no option {', '.join(sorted(unknown))}; options are {', '.join(sorted(known))}")
        try:
            self._base.check_open(writable=True)
            producer = kind(
                self._session, io=self._base.io, clock=self._base.clock, on_close=self._producers.discard, **plain_options(options)
            )
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
        self, transactional_id: str, *, transaction_timeout_ms: Duration = 60_000, **options: "Unpack[ProducerOptions]"
    ) -> "Transaction":
        """Several records, and the offsets of consumers, all or nothing: a context manager.

            with db.transaction("etl") as tx:
                tx.send("out", value)
                tx.send_offsets(consumer)

        Committed at the end of the block; aborted if an exception leaves it.  A former producer of the id that is still
        running is fenced; a loop fences it once, not every time.

        After an abort, a consumer whose offsets were sent goes back to its committed ones.  A consumer that was polled in a
        block that did not reach ``send_offsets`` keeps its position: call ``consumer.seek_to_committed()``.

        Args:
            transactional_id: A name of this application, the same after a restart.
            transaction_timeout_ms: Aborts it so long after its first record; 1 to ``transaction.max.timeout.ms`` (900,000).
            options: Those of ``producer``.

        Raises:
            InvalidTransactionTimeout: At the begin of the block.
            ProducerFenced: At its end; the transaction was aborted.
            LogdbError: At its end, the error of a record that was not written; the transaction was aborted.
        """
        if self._transactions is None:
            from logdb.client.producer.transaction import IdleProducers

            self._transactions = IdleProducers(self._transactional_producer)
        return self._transactions.transaction(transactional_id, {"transaction_timeout_ms": transaction_timeout_ms, **options})

    def _transactional_producer(self, **options: Any) -> "TransactionalProducer":
        from logdb.client.producer.transaction import TransactionalProducer

        return self._open_producer(TransactionalProducer, options)

    @checked_options
    def consumer(
        self,
        *topics: str,
        pattern: "str | re.Pattern[str] | None" = None,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: "OffsetReset" = "latest",
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: Duration = 5_000,
        isolation_level: IsolationLevel = "read_uncommitted",
        max_poll_records: int = 500,
        max_poll_interval_ms: Duration = 300_000,
        heartbeat_interval_ms: Duration | None = None,
        partition_assignment_strategy: "str | Sequence[str | Assignor]" = ("range", "cooperative-sticky"),
        key_deserializer: "Deserializer | None" = None,
        value_deserializer: "Deserializer | None" = None,
        interceptors: "Sequence[Interceptor]" = (),
        iteration_timeout_ms: Duration | None = None,
        client_id: str = "logdb",
    ) -> "Consumer":
        """Read topics: alone, or with ``group_id`` as a member of a group.

        Args:
            topics, pattern: As for ``Consumer.subscribe``; neither: call ``subscribe`` or ``assign``.
            others: see ``help(logdb.ConsumerConfig)``.

        Raises:
            InvalidConfig: An option is invalid; the error names it.
            UnknownTopic: One of the topics does not exist.
            ReadOnly: The database was opened with ``mode="r"``, where a group has no members; ``assign`` reads on from its offsets.
        """
        from logdb.client.consumer.config import ConsumerConfig
        from logdb.client.consumer.consumer import Consumer
        from logdb.client.producer.interceptor import checked

        try:
            strategy = (
                (partition_assignment_strategy,) if isinstance(partition_assignment_strategy, str) else tuple(partition_assignment_strategy)
            )
        except TypeError:
            raise InvalidConfig("partition_assignment_strategy", partition_assignment_strategy, "must be one or more names") from None
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
            raise TypeError(f"the partitioner returned {partition!r}: must be a whole number in [0, {count})") from None
        return partition

    def _partition_count(self, topic: str) -> int:
        try:
            count = self._partition_counts.get(topic)
            if count is None:
                if topic in INTERNAL_TOPICS:
                    raise InvalidTopic(topic, "logdb alone writes to it")
                count = self._partition_counts[topic] = self._count_of(topic)
        except OF_THE_CALL as error:
            raise error.with_traceback(None) from error.__cause__
        except (TypeError, AttributeError) as error:
            raise explained(error, Database.append, topic=topic) from error.__cause__
        return count

    def _appended_log(self, topic: str, partition: int) -> PartitionLog:
        """The log of one partition for an append: the quickest way to it."""
        return self._session.log(topic, partition)

    def _count_of(self, topic: str) -> int:
        """How many partitions a topic has; raises UnknownTopic."""
        return self._session.partition_count(topic)

    def _partitioner(self, wanted: "str | Partitioner | None") -> Partitioner:
        """One partitioner object per name, because the default one and round robin have a state."""
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

        The first access reads the topic; the result stays in ``views/``, where the next opening continues.  With ``mode="r"``, or
        behind a URL, the view is in a temporary directory.

        Args:
            topic: Compacted or not.
            key_deserializer, value_deserializer: Deserializers, as those of ``logdb.serde``; None: keys and values are
                bytes, and a str key is encoded as UTF-8.

        Raises:
            UnknownTopic: No topic has that name.
        """
        from logdb.client.table.table import Table  # few programs need it

        self._count_of(topic)
        with self._parts_lock:
            self._check_not_ended()
            self._views = self._views or self._open_views()
            view = self._views.of(topic)
        return Table(self._session, view, self._base.io, key_deserializer, value_deserializer)

    @abstractmethod
    def _open_views(self) -> "TopicViews":
        """The views of the database's tables."""

    @checked_call
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records of a partition before an offset, for good; reads no longer return them.

        Their space is freed by whole segments: one that also has a later record stays on the disk.

        Args:
            before_offset: In [start_offset, end_offset]; -1: the end, so all present records.

        Returns:
            The new log start offset.

        Raises:
            OffsetOutOfRange: ``before_offset`` is not in the log; nothing was deleted, also with the next errors.
            PolicyViolation: The topic's ``cleanup.policy`` is ``compact`` alone.
            UnknownTopic, UnknownPartition, ReadOnly, DiskFull, SyncFailed: see ``logdb.errors``.

        Source: DeleteRecords of Kafka (KIP-107).
        """
        return self._base.submit(requests.topics.DeleteRecords(topic, partition, before_offset))

    @checked_call
    def enforce_retention(
        self, topic: str | None = None, *, dry_run: bool = False, config: Mapping[str, object] | None = None
    ) -> list[ExpiredRecords]:
        """Delete now what ``retention.ms`` and ``retention.bytes`` allow; otherwise the background does it from time to time.

        Whole segments are deleted, oldest first; the active one only if all its records are too old.  Topics without a limit, and
        segments that may belong to an open transaction, stay.

        Args:
            topic: One topic; None: all, behind a URL those whose records the principal may delete.
            dry_run: Only return what a real run would delete now; with ``mode="r"`` as of the last checkpoint.
            config: With ``dry_run``, of one topic: the result after ``alter_topic(topic, config=config)``.

        Returns:
            The deleted offsets, by topic and partition; partitions without any are left out.

        Raises:
            UnknownTopic, ReadOnly, DiskFull, SyncFailed: see ``logdb.errors``; the other logs were handled.
        """
        return self._base.submit(requests.topics.EnforceRetention(topic, dry_run, cast("Config | None", plain_configs(config))))

    @checked_call
    def compact(self, topic: str, partition: int | None = None) -> None:
        """Keep only the latest record of each key, now: of all records appended before, the active segment included.

        Offsets do not change, and the log end stays.  Otherwise the background does it from time to time.

        Args:
            partition: One partition; None: all.

        Raises:
            PolicyViolation: The topic's ``cleanup.policy`` lacks ``compact``.
            CorruptionError: A batch is damaged; its segments are unchanged.
            UnknownTopic, UnknownPartition, ReadOnly, DiskFull, SyncFailed: see ``logdb.errors``; no record was lost.
            Closed: The database was closed meanwhile.
        """
        self._base.submit(requests.topics.Compact(topic, partition))

    # ------------------------------------------------------------ who may do what

    @property
    @abstractmethod
    def security(self) -> "SecurityAdmin":
        """Users, tokens, ACLs and quotas of a database that is served."""

    # ------------------------------------------------------------ as columns

    @abstractmethod
    def make_parquet(self, topic: str, partition: int | None = None, *, progress: "Progress | None" = None) -> "list[MadeSidecars]":
        """Make a Parquet file of each segment without one, now: for all records appended before, the active segment included.

        Existing files are checked, and rebuilt if damaged.  With the config ``logdb.parquet`` the background does the same for
        segments that are full, or old enough.  Needs pyarrow.

        Args:
            partition: One partition; None: all.
            progress: Called after each segment with the bytes done, the bytes in all, and the partition's name.

        Returns:
            The result, by partition.

        Raises:
            LocalOnly: The database is behind a URL.
            CorruptionError: A batch is damaged.
            UnknownTopic, UnknownPartition, ReadOnly, DiskFull, SyncFailed, Closed: see ``logdb.errors``.
        """

    @abstractmethod
    def update_iceberg(self, topic: str) -> "UpdatedTable":
        """Commit all records appended before to the topic's Iceberg table, now; the active segment is sealed first.

        The topic has the config ``logdb.iceberg.mode``.  The background does the same for segments that are full, or old enough.  Needs
        the extra ``iceberg``.

        Returns:
            The current snapshot, and where the tail of each partition begins.

        Raises:
            LocalOnly: The database is behind a URL.
            PolicyViolation: The topic has no table.
            ModuleNotFoundError: The package pyiceberg is not installed.
            ValueError: The schema of the topic has no columns.
            CorruptionError: A batch is damaged.
            UnknownTopic, ReadOnly, DiskFull, SyncFailed, Closed: see ``logdb.errors``.
        """

    @abstractmethod
    def topic_tiers(self, topic: str, *, isolation_level: IsolationLevel = "read_uncommitted") -> "TopicTiers":
        """Where to read each record of a topic now: in a Parquet file, or in a range of a log.

        For callers that read Parquet themselves.  They must verify the page checksums, and treat a missing file as an error:
        retention or compaction may have deleted it.

        Args:
            isolation_level: As ``Log.read``; with ``"read_uncommitted"``, a segment with records of aborted transactions is
                read from the log.

        Raises:
            LocalOnly: The database is behind a URL.
            UnknownTopic: No topic has that name.
        """

    @checked_call
    def topic_dataset(
        self, topic: str, *, start: Position = None, end: Position = None, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> "pyarrow.dataset.Dataset":
        """The present records of a topic as a dataset: for pyarrow, pandas, polars, duckdb.

            trades = db.topic_dataset("trades")
            duckdb.sql("select key, count(*) from trades group by key")
            polars.scan_pyarrow_dataset(trades).filter(polars.col("offset") >= 1000).collect()
            trades.to_table(columns=["offset", "value"]).to_pandas()

        It reads when it is scanned, and only the columns, partitions and ranges of offsets that the query asks for.  Records with a
        Parquet file (``logdb.parquet``, ``make_parquet``) are read from that, others from the log.  Reading raises if records were
        deleted meanwhile (retention, compaction), or are damaged.  Needs pyarrow.

        Args:
            start, end: As ``read``.
            isolation_level: As ``topic_tiers``.

        Returns:
            topic: string; partition: int32; offset: int64; timestamp: timestamp[ms, UTC]; timestamp_type: int32 (0 CreateTime,
            1 LogAppendTime); key, value: binary; headers: list<struct<key: string, value: binary>>, null without.  In no order.

        Raises:
            UnknownTopic, UnknownPartition: see ``logdb.errors``.
        """
        arrow.import_pyarrow()
        from logdb.client.table.datasets import topic_dataset  # few programs need it

        return topic_dataset(self, topic, start, end, isolation_level, self._tiers(topic, isolation_level))

    @checked_call
    def scan_polars(
        self,
        topic: str,
        *,
        start: Position = None,
        end: Position = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        schema: "arrow.ValueSchema | None" = None,
    ) -> "polars.LazyFrame":
        """The present records of a topic as a lazy frame of polars.

            trades = db.scan_polars("trades", schema=pyarrow.schema([("price", pyarrow.float64())]))
            trades.filter(polars.col("offset") >= 1000).select(polars.col("price").max()).collect()

        ``collect`` reads only the columns that the query uses.  Comparisons of ``offset``, ``partition`` and ``timestamp`` with constants,
        joined by ``&``, limit the ranges that it reads.  An upper limit of ``timestamp`` does so only for records with a Parquet file.
        Needs polars 1.36 or newer and pyarrow.

        Args:
            start, end, isolation_level: As ``topic_dataset``.
            schema: Columns to make of values, as ``read_arrow``.  They are decoded only if the query uses them.

        Returns:
            The columns of ``topic_dataset``, then those of ``schema``.  In no order.

        Raises:
            ValueError: ``schema`` is no schema, or a field has the name of another column.
            UnknownTopic, UnknownPartition: see ``logdb.errors``.
            SerializationError: From ``collect``: a value does not fit ``schema``.  Before version 2, polars raises ComputeError around it.
            OffsetOutOfRange: From ``collect``, in the same way: retention deleted records meanwhile.
            ImportError: polars or pyarrow is missing, or too old.
        """
        arrow.import_pyarrow()
        from logdb.client.table.datasets import scan_polars  # few programs need it

        return scan_polars(self, topic, start, end, isolation_level, schema, self._tiers(topic, isolation_level))

    def _tiers(self, topic: str, isolation_level: IsolationLevel) -> "TopicTiers | None":
        """Where the records of a topic are; None: all in logs."""
        is_committed(isolation_level)
        self._count_of(topic)
        return None

    # ------------------------------------------------------------ the whole

    def flush(self, sync: bool = True) -> None:
        """Return once everything appended so far is durable, or with ``sync=False`` with the operating system.

        Raises:
            DiskFull, SyncFailed: as ``Log.flush``.
        """
        self._base.submit(requests.topics.Flush(sync))

    @abstractmethod
    def verify(self, progress: "Progress | None" = None) -> "Report":
        """Check every byte of every file, while the database is in use."""

    @abstractmethod
    def snapshot(self, path: str | os.PathLike[str], *, progress: "Progress | None" = None) -> "Copied":
        """Make a frozen copy of the database, under load, in about a second.

        Sealed segments become hard links, active ones are copied up to their end (a larger one than 64 MiB is rolled
        first).  On another device, or a file system without links, everything is copied.  A transaction is in the copy as a whole
        or not at all.  Records acknowledged before the call are in it; a cluster's node copies what it knows to be committed,
        which may lack the last ones.  Open it with ``mode="r"``, also on a read-only file system; ``logdb.restore`` makes a
        database of it.

        Args:
            path: A directory that is missing or empty, outside the database's.
            progress: Called now and then with the bytes copied, the bytes to copy, and a file's name.

        Returns:
            The size of the copy, and how much of it was copied.

        Raises:
            TargetNotEmpty: ``path`` is not empty.
            TargetInside: ``path`` is in the database's directory.
            DirectoryLocked: Another snapshot is being written there.
            CorruptionError: A partition is damaged.
            ReadOnly: The database was opened for reading, and a process writes to it, or the last one did not close it cleanly.
            DiskFull, WriteFailed, SyncFailed: No snapshot was made.
        """

    @abstractmethod
    def backup(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | None = None, progress: "Progress | None" = None
    ) -> "Copied":
        """Write the database into one file, compressed and checksummed, under load; ``logdb.restore`` reads it.

        It shows the database at one moment, like a snapshot.  With mode "r" it works beside a writer, and contains only records
        that the writer has written to its files.

        Args:
            path: A new file.
            base: An earlier backup of this database, full or not: its content is left out.  A restore
                needs it, and all backups that it builds on.
            progress: Called now and then with the bytes done, the bytes in all, and the file at hand.

        Returns:
            The size of the content, and of the file.

        Raises:
            TargetNotEmpty: The file exists.
            TargetInside: ``path`` is in the database's directory.
            BackupMismatch: ``base`` belongs to another database.
            BackupDamaged: ``base`` is not a backup, or is damaged.
            ReadFailed: ``base`` is missing, or cannot be read.
            CorruptionError: The database is damaged; a backup never has damaged records.
            ReadOnly: With mode "r": a crash left the directory and no writer has recovered it, or it is a running node's.
            ConcurrentTransactions: With mode "r": the writer changes files or ends transactions too fast.  A retry is safe.
            DiskFull, WriteFailed, SyncFailed: No backup was made.
        """

    def close(self) -> None:
        """Write and sync everything, then release the lock.  A second call does nothing.

        Raises:
            CloseIncomplete: Records could not be written; the error has their number.
            LogdbError: The error of a producer's record since its last flush.
        """
        while self._on_close:
            self._on_close.pop()()
        with self._parts_lock:
            self._ended = True
        failure: Exception | None = None
        try:
            with contextlib.ExitStack() as closing:
                self._closing(closing)
                if self._views is not None:
                    closing.callback(self._views.close)
                failure = self._close_producers()
                if self._transactions is not None:
                    self._transactions.close()
        except CloseIncomplete as incomplete:  # a producer's error comes first: its records are lost, too
            if failure is None:
                raise
            failure.add_note(str(incomplete))
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame

    @checked_call
    def on_close(self, function: Callable[[], None]) -> None:
        """Register a function to call first when the database is closed."""
        self._on_close.append(function)

    def _closing(self, closing: contextlib.ExitStack) -> None:
        """Register an object to close after producers and tables, in reverse order."""
        closing.callback(self._base.close)

    def _check_not_ended(self) -> None:
        """Raise Closed if a close has begun, because it would not close a new object."""
        if self._ended:
            raise self._is_closed()

    def _is_closed(self) -> Closed:
        return Closed(f"the database {self.path} is closed")

    def _close_producers(self) -> Exception | None:
        """Close the producers; returns the error of the first record that could not be written."""
        failure: Exception | None = None
        for producer in list(self._producers):
            try:
                producer.close(_PRODUCER_CLOSE_MS)
            except Exception as error:  # noqa: BLE001 -- the others are to be closed, too
                failure = failure or error
        return failure


def _nodes(assignments: Sequence[Sequence[int]] | None) -> "Assignments | None":
    """The nodes of each partition, as whole numbers; raises TypeError."""
    try:
        return None if assignments is None else tuple(tuple(map(operator.index, nodes)) for nodes in assignments)
    except TypeError:
        wrong = f"assignments={reprlib.repr(assignments)}: must be None, or the node numbers of each partition"
        raise TypeError(wrong) from None


def _close_all() -> None:
    """At the end of the interpreter: write everything appended, as a close by the application would."""
    for database in list(_open_databases):
        try:
            database.close()
        except LogdbError as error:
            logger.error("closing %s at exit: %s", database.path, error)


atexit.register(_close_all)
