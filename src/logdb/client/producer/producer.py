"""The producer: records in, futures out.

This module has the options, interceptors and serializers, and looks topics up; ``accumulator`` collects the records, ``sender``
writes them.  ``send`` itself is C (``codec.Dispatcher``, the base class); it calls ``_route``, ``_accumulator`` and ``_refuse``
here.

Threading: any thread may call any method.  Callbacks run in the sender's thread, or in one that commits a transaction.
"""

import logging
import os
import random
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypedDict

from logdb import serde
from logdb.client.producer import partitioner as partitioners
from logdb.client.producer.accumulator import Accumulator, Delivery
from logdb.client.producer.interceptor import Interceptor, OutgoingRecord, checked, outgoing
from logdb.client.producer.partitioner import Partitioner
from logdb.client.producer.sender import Sender, SenderOptions
from logdb.codec import Dispatcher, Route, SendFuture, compression
from logdb.errors import Closed, CloseIncomplete, Forked, InvalidConfig, InvalidTransactionState, LogdbError, UnknownPartition
from logdb.handles import Handle
from logdb.io import IO
from logdb.mistakes import checked_call, one_of
from logdb.model import (
    COMPRESSION_TYPES,
    Buffer,
    Duration,
    LogConfig,
    ProducerIdAndEpoch,
    RecordMetadata,
    Timestamp,
    TopicPartition,
    duration_ms,
    timestamp_ms_of,
)
from logdb.requests.session import Session
from logdb.signatures import readable

logger = logging.getLogger(__name__)

Acks: TypeAlias = Literal[0, 1, -1, "0", "1", "-1", "all"]
Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]
OnDelivery: TypeAlias = Callable[[Exception | None, RecordMetadata | None], object]

_ROOM_SIZE_BYTES = 2 << 20  # more than a send takes, unless its record is larger than topics accept by default
_CLOSED, _FORKED, _NO_TRANSACTION = 1, 2, 3
_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


class ProducerOptions(TypedDict, total=False):
    """The options of ``Database.producer``.

    Attributes:
        acks: ``"all"`` and 1: a future is done when its record is written.  If its topic's level is ``"fsync"``, the record is also
            synced.  0: the future is done at once, with offset -1, and errors are lost.  Default ``"all"``.
        enable_idempotence: A retry never writes a record twice.  Default True.
        linger_ms: How long a record waits for others, 0 to 60,000; a full batch does not wait.  Default 5.
        batch_size: Bytes at which a batch is closed, 101 to 1,048,576.  Default 16,384.
        compression_type: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``; default None: the topic's.
        buffer_memory: Bytes of records that may wait to be written; ``send`` waits when they are used up.  Default 32 MiB.
        max_block_ms: How long ``send`` waits before it raises BufferExhausted.  Default 60,000.
        delivery_timeout_ms: How long after ``send`` a record is retried; at least ``linger_ms``.  Default 120,000.
        retries: The number of retries within that time.  Default 2^31 - 1.
        retry_backoff_ms: How long after the last try, 0 to 60,000.  Default 100.
        partitioner: None or ``"default"`` (as Kafka's: murmur2 of the key, sticky without one), ``"round_robin"``, or a
            callable (serialized key, partition_count) -> partition.
        key_serializer, value_serializer: One of ``logdb.serde``, or a callable that returns bytes; not called for None.
        interceptors: Called in this order; see ``Interceptor``.

    Source: Kafka's producer configs of these names.
    """

    acks: Acks
    enable_idempotence: bool
    linger_ms: Duration
    batch_size: int
    compression_type: str | None
    buffer_memory: int
    max_block_ms: Duration
    delivery_timeout_ms: Duration
    retries: int
    retry_backoff_ms: Duration
    partitioner: str | Partitioner | None
    key_serializer: serde.Serializer | None
    value_serializer: serde.Serializer | None
    interceptors: Iterable[Interceptor]


@readable
class Producer(Handle, Dispatcher):
    """Sends records to topics.  Made by ``Database.producer``; a context manager that closes itself.

    Its options: ``help(logdb.ProducerOptions)``.  With a ``transactional_id`` it is a ``TransactionalProducer``.
    """

    def __new__(cls, *args: Any, **_options: Any) -> Self:
        if not (args and hasattr(args[0], "partition_count")):
            raise TypeError(f"a {cls.__name__} is made by: db.producer(…), with db = logdb.open(PATH or URL)")
        return super().__new__(cls)

    def __init__(
        self,
        session: Session,
        *,
        io: IO | None = None,
        clock: Callable[[], int] | None = None,
        on_close: "Callable[[Producer], object] | None" = None,
        acks: Acks = "all",
        enable_idempotence: bool = True,
        linger_ms: int = 5,
        batch_size: int = 16_384,
        compression_type: str | None = None,
        buffer_memory: int = 32 << 20,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        retries: int = 2**31 - 1,
        retry_backoff_ms: int = 100,
        partitioner: str | Partitioner | None = None,
        key_serializer: serde.Serializer | None = None,
        value_serializer: serde.Serializer | None = None,
        interceptors: Iterable[Interceptor] = (),
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        self._interceptors = checked(interceptors)
        super().__init__(
            partitioner=None if partitioner in (None, "default") else partitioners.make(partitioner),
            serialize_key=serde.serializing(key_serializer, "key"),
            serialize_value=serde.serializing(value_serializer, "value"),
            intercepted=bool(self._interceptors),
            sticky_size=batch_size,
        )
        ranges: tuple[tuple[str, object, int, int], ...] = (
            ("linger_ms", linger_ms, 0, 60_000),
            ("batch_size", batch_size, 101, 1 << 20),
            ("buffer_memory", buffer_memory, batch_size, 2**63 - 1),
            ("max_block_ms", max_block_ms, 0, 2**63 - 1),
            ("delivery_timeout_ms", delivery_timeout_ms, linger_ms, 2**31 - 1),
            ("retries", retries, 0, 2**31 - 1),
            ("retry_backoff_ms", retry_backoff_ms, 0, 60_000),
        )
        for name, value, least, most in ranges:
            if not (isinstance(value, int) and least <= value <= most):
                raise InvalidConfig(name, value, f"must be {least} to {most}")
        if str(acks) not in ("0", "1", "-1", "all"):
            raise InvalidConfig("acks", acks, "must be 0, 1 or 'all'")
        if (compression_type or "none") not in COMPRESSION_TYPES:
            raise InvalidConfig("compression_type", compression_type, f"must be {one_of(COMPRESSION_TYPES)}")
        compression.check_installed(compression_type or "none")
        self.transactional_id, self.transaction_timeout_ms = transactional_id, transaction_timeout_ms
        self._session, self._clock, self._batch_size, self._on_close = session, clock, batch_size, on_close
        self._configs: dict[str, LogConfig] = {}
        self._owner = os.getpid()
        self._ended = False
        options = SenderOptions(
            acknowledged=str(acks) != "0",
            idempotent=enable_idempotence or transactional_id is not None,
            linger_ms=linger_ms,
            codec=COMPRESSION_TYPES.index(compression_type or "none"),
            buffer_memory=buffer_memory,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            retries=retries,
            retry_backoff_ms=retry_backoff_ms,
            transactional_id=transactional_id,
        )
        self._sender = Sender(session, options, io or IO(), f"logdb-producer-{transactional_id or hex(id(self))}", clock)
        self._refusing = 0 if transactional_id is None else _NO_TRANSACTION
        _producers.add(self)

    def __repr__(self) -> str:
        name = f" transactional_id={self.transactional_id!r}" if self.transactional_id is not None else ""
        return f"<Producer{name}{' closed' if self._refusing == _CLOSED else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            if isinstance(error, Exception | KeyboardInterrupt):
                error.add_note(f"and closing the producer: {failure}")
            else:  # SystemExit, for example: Python prints none of its notes
                logger.error("closing a producer: %s", failure)

    # ------------------------------------------------------------ sending: what C asks for

    def _intercept(
        self,
        topic: str,
        value: object,
        key: object = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: Timestamp | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        """``send`` of a producer with interceptors."""
        given = OutgoingRecord(topic=topic, value=value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        record = outgoing(self._interceptors, given)
        if record is None:
            return _dropped(given, on_delivery)
        return self._dispatch(
            record.topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
            on_delivery=on_delivery,
        )

    @checked_call
    def _route(self, topic: str) -> Route:
        """Look up a topic at its first record.

        Raises:
            UnknownTopic: No topic has that name.
        """
        if self._refusing:
            self._refuse(self._refusing)
        return Route(topic, self._session.partition_count(topic), random.getrandbits(64))

    def _accumulator(self, route: Route, partition: int) -> Accumulator:
        """Make the accumulator of a partition at its first record; refuse an unknown partition.

        Raises:
            UnknownPartition: The topic has fewer partitions.
        """
        with self._sender.lock:
            if partition >= len(route.accumulators):
                self._grow(route)
            if not 0 <= partition < len(route.accumulators):
                raise UnknownPartition(route.topic, partition, len(route.accumulators))
            accumulator = route.accumulators[partition]
            if accumulator is None:
                accumulator = route.accumulators[partition] = Accumulator(
                    self._sender,
                    TopicPartition(route.topic, partition),
                    self._config(route.topic),
                    batch_size=self._batch_size,
                    clock=self._clock,
                )
        assert isinstance(accumulator, Accumulator)
        return accumulator

    def _grow(self, route: Route) -> None:
        missing = self._session.partition_count(route.topic) - len(route.accumulators)
        route.accumulators.extend([None] * missing)

    def _config(self, topic: str) -> LogConfig:
        """The topic's configs, as of its first record or of the last refresh."""
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = LogConfig.of(self._session.describe_topic(topic).config, "interval")
        return config

    def refresh(self, topic: str) -> None:
        """The topic was changed: read its partitions and configs again, or forget it if it was deleted."""
        route = self._routes.get(topic)
        if route is None:
            return
        with self._sender.lock:
            self._configs.pop(topic, None)
            try:
                self._grow(route)
                config = self._config(topic)
            except LogdbError:  # it was deleted; the next send to it raises
                self._routes.pop(topic, None)
                return
            for accumulator in route.accumulators:
                if isinstance(accumulator, Accumulator):
                    accumulator.configure(config)

    def _refuse(self, reason: int) -> None:
        """Raise the reason why the producer accepts no record."""
        if reason == _FORKED:
            raise Forked(f"the producer was made by process {self._owner}, this is its child {os.getpid()}: make another one")
        if reason == _NO_TRANSACTION:
            raise InvalidTransactionState(f"transactional id {self.transactional_id!r}: no transaction has begun")
        raise Closed("the producer is closed")

    def would_wait(self, topic: str) -> bool:
        """Whether a ``send`` might block now: for a look-up of the topic, or for memory."""
        return topic not in self._routes or not self._sender.has_room(_ROOM_SIZE_BYTES)

    if not TYPE_CHECKING:  # type checkers refuse these calls

        @checked_call
        def _has_no_transactions(self, *_args: object, **_kwargs: object) -> None:
            """Refused with InvalidTransactionState: the producer was made without a ``transactional_id``."""
            raise InvalidTransactionState("the producer has no transactional id: db.producer(transactional_id=…) has transactions")

        init_transactions = begin_transaction = commit_transaction = abort_transaction = _has_no_transactions
        send_offsets = send_offsets_to_transaction = _has_no_transactions

    # ------------------------------------------------------------ flush and close

    @checked_call
    def flush(self, timeout_ms: Duration | None = None) -> None:
        """Return when everything sent so far is acknowledged, and its callbacks have returned.

        Args:
            timeout_ms: The longest wait, milliseconds or a ``timedelta``; None: as long as ``delivery_timeout_ms`` allows.

        Raises:
            LogdbError: The error of the first record since the last flush that could not be written; each future has its own error, too.
            TimeoutError: The time is over; some records still wait.
            Forked, Closed: see ``logdb.errors``.
            RuntimeError: A callback called it.
        """
        if self._refusing in (_FORKED, _CLOSED):
            self._refuse(self._refusing)
        if left := self._sender.flush(duration_ms(timeout_ms)):
            raise TimeoutError(f"{left} records wait to be written after timeout_ms={timeout_ms}")

    @checked_call
    def close(self, timeout_ms: Duration | None = None) -> None:
        """Accept no more records, write those that wait, and end.  A second call does nothing.

        A call from a callback does not wait.

        Args:
            timeout_ms: As in ``flush``; records that still wait then fail with ``Closed``.

        Raises:
            CloseIncomplete: Records were not written in time; the error has their number.
            LogdbError: The error of the first record since the last flush that could not be written.
        """
        if self._refusing == _FORKED or self._ended:
            return
        self._refusing = _CLOSED
        lost = self._sender.stop(duration_ms(timeout_ms))
        self._ended = True  # a close that a Ctrl-C left is done again
        _producers.discard(self)
        if self._on_close is not None:
            self._on_close(self)
        failure = self._sender.take_failure()
        if lost:
            raise CloseIncomplete("the producer", lost, f"timeout_ms={timeout_ms} is over") from failure
        if failure is not None:
            raise failure.with_traceback(None)

    # ------------------------------------------------------------ for client.transaction

    def _begin_transaction(self, producer: ProducerIdAndEpoch) -> None:
        """Accept records again, as part of the transaction of ``producer``; their sequences begin at 0."""
        self._sender.begin_transaction(producer)
        self._refusing = 0

    def _finish_transaction(self) -> None:
        """Accept no more records, and write those of the transaction.

        Raises:
            the error of the first record of the transaction, even if a flush has raised it before.
        """
        self._refusing = _NO_TRANSACTION
        self._sender.finish_transaction()

    def _drop_transaction(self, error: LogdbError) -> None:
        """Accept no more records; those that are not written yet fail with ``error``."""
        self._refusing = _NO_TRANSACTION
        self._sender.drop(error)

    def _forked(self) -> None:
        """In a forked child: drop the records that wait; the parent writes them."""
        self._refusing = _FORKED


def _dropped(record: OutgoingRecord, on_delivery: OnDelivery | None) -> SendFuture:
    """The future of a record that an interceptor dropped: done, with offset -1."""
    partition = -1 if record.partition is None else record.partition
    delivery = Delivery(record.topic, partition, 0, False)
    at = timestamp_ms_of(record.timestamp_ms)
    future = delivery._future(-1 if at is None else at)
    if on_delivery is not None:
        delivery._call(lambda done: on_delivery(None, done.result()), future)
    return future


def _after_fork_in_child() -> None:
    for producer in list(_producers):
        producer._forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
