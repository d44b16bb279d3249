"""What is called once a record: the batch builder, the record, its iterator, positions for point reads.

Everything that is called once a batch is in ``_core`` (cffi).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self, TypeVar, final

from logdb.model import Buffer, RecordMetadata, Timestamp

_T = TypeVar("_T")

OS: int
INTERVAL: int
FSYNC: int

def crc32c(buf: Buffer, crc: int = 0, /) -> int:
    """CRC-32C of ``buf``, continuing from ``crc``."""

def murmur2(key: Buffer, /) -> int:
    """Kafka's hash of a key, unsigned 32 bits; the partitioner masks its sign."""

def record(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    leader_epoch: int,
    /,
) -> Record:
    """A record of its fields, for pickle and copy."""

@final
class Record:
    """One record; immutable.  Reading makes it; so does a test that needs one.  Equal and hashed by all its fields."""

    def __new__(
        cls,
        value: Buffer | None = None,
        key: Buffer | None = None,
        *,
        topic: str = "",
        partition: int = 0,
        offset: int = 0,
        timestamp_ms: Timestamp = -1,
        headers: Iterable[tuple[str, bytes | None]] = (),
        leader_epoch: int = -1,
    ) -> Self: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Decoded when looked at.  A name that is no UTF-8 is decoded by ``surrogateescape``; append encodes it back.

        Raises:
            ValueError: They overrun the record (its CRC was right: it was written so).
        """

    @property
    def header_count(self) -> int:
        """How many headers it has; they are not decoded."""

    @property
    def timestamp_ms(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...

class BatchBuilder:
    """Gathers records into batches and hands full buffers of batches to its subclass.

    An open batch is closed when the next record would take it past ``batch_size`` (or ``message_size_max``); closed
    batches lie back to back in a buffer, which is written once it has no room for another batch of that size, or by
    ``_drain``.  A record larger than a batch gets one of its own, and that a buffer of its own.

    Threading: any thread may call anything at any time; the GIL is the lock.  ``_write`` is called by one thread at a
    time, in the order of offsets.  A hook may call ``_drain`` and ``_configure``, in any thread; ``_write`` alone may
    not append, drain or discard (RuntimeError where that would wait for itself).  A hook must not wait for a lock that
    another thread holds while it calls into the builder.
    """

    def __init__(
        self,
        *,
        next_offset: int,
        leader_epoch: int,
        batch_size: int,
        write_size: int,
        group_size: int,
        clock: Callable[[], int] | None,
    ) -> None:
        """Begin with nothing pending.

        Args:
            next_offset: Offset of the first record.
            leader_epoch: For the headers of its batches.
            batch_size: Bytes that a batch of several records may reach, in [1, 2^31 - 1].
            write_size: Bytes of a buffer that is written as a whole; at least ``batch_size`` is taken.
            group_size: Bytes that are committed at once at level fsync.
            clock: Wall clock in ms since 1970; None for the machine's, which is up to 4 ms (a tick) late on Linux.
        """

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        headers: Iterable[tuple[str, Buffer | None]] = (),
        timestamp_ms: Timestamp | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> int:
        """Accept one record and return its offset.

        At level fsync it returns after ``_commit``.  An append that raises has left no record, unless that is written: then the
        exception's ``offsets`` is its range, and ``retriable`` is false.

        Raises:
            TypeError: An argument of the wrong type; the message says what was got.
            ValueError: An unknown durability.
            whatever ``_reject``, ``_write``, ``_woken``, ``_end_fsync_only`` or ``_commit`` raise.
        """

    def append_many(
        self,
        values: Iterable[Buffer | None],
        keys: Iterable[Buffer | None] | None = None,
        *,
        headers: Iterable[Iterable[tuple[str, Buffer | None]]] | None = None,
        timestamps_ms: Iterable[Timestamp | None] | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> range:
        """Accept records that lie together, and write them before returning; nothing if one item is wrong.

        At level fsync in groups of at most ``group_size``, each committed before the next.  Where a write or a commit
        fails before a record of the call is written, none is left.  Otherwise the exception's ``offsets`` is the range of those that
        are kept (or written), and ``retriable`` is false.

        Raises:
            TypeError: An item of the wrong type; the message names its index.
            ValueError: The counts differ; the message has both.
            whatever the hooks raise.
        """

    def _append_raw(
        self,
        buffer: bytearray,
        size_bytes: int,
        record_span: int,
        expected_offset: int | None = None,
        durability: str | None = None,
        admit: Callable[[int, int], object] | None = None,
        placed: bool = False,
    ) -> range:
        """Append checked batches that lie in ``buffer[:size_bytes]``, of ``record_span`` offsets in all.

        Base offsets and leader epochs are set here, unless the batches are ``placed``: then they keep theirs, and the
        first begins at ``expected_offset``.  The batches are written before returning (at fsync: committed).
        The buffer is the builder's, unless ``admit`` raised: do not touch it again.  A failure ends as that of ``append_many``; of
        batches that ``admit`` knows again, ``retriable`` stays as it is.  Placed ones are always kept.
        ``admit`` is called with the first offset and the clock's ms just before they are accepted, and may raise to refuse them;
        until then no other record is accepted, and once it has returned, these are.

        Raises:
            SystemError: The batches do not fill ``size_bytes``, or do not span ``record_span``; or they are placed, and
                one does not follow on the last.
            whatever the hooks raise.
        """

    def _append_usual(self, batches: Buffer, admit: Callable[[int, int, int, int, int, int, int], bool] | None, /) -> range | None:
        """Check and append one ready-made batch at the log's own level, if it is a usual one: then nothing can be wrong with it.

        Such a batch is good (header, CRC, records), uncompressed, in no transaction, no longer than a group, and no later than allowed.
        One of a producer is usual if ``admit`` returns true for it.  That is called as by ``_append_raw``, with producer id and epoch,
        base sequence, record count and max timestamp before the first offset and the clock's ms.

        Returns:
            The offsets; None: they are other batches, or the log gives timestamps or takes none; nothing was appended.

        Raises:
            whatever the hooks raise.
        """

    def _check_room(self, size_bytes: int, /) -> None:
        """Hook: raises if there is no room for a call of so many bytes, which takes several writes; nothing of it is appended."""

    def _withdraw(self, first: int, next_offset: int) -> bool:
        """Hook: whether the records [first, next) of a call that failed can go; called with the append lock and the write lock."""

    def now_ms(self) -> int:
        """The clock, in ms since 1970: the timestamp of a record that came now."""

    def _alone(self, function: Callable[[int], _T], /) -> _T:
        """Call ``function(next_offset)`` while no record is accepted; it may drain, and must not append."""

    def _buffer(self, size_bytes: int, /) -> bytearray:
        """A pooled bytearray of at least that many bytes, with anything in it, to be filled for ``_append_raw``."""

    def _drain(self) -> None:
        """Close the open batch and write all that was pending when this was called, or raise what ``_write`` raised."""

    def _discard(self) -> int:
        """Drop what is pending and return how many records that was; the next offset goes back to the written one."""

    def _configure(
        self,
        *,
        level: int = ...,
        refusing: int = ...,
        fsync_only: bool = ...,
        keys_required: bool = ...,
        log_append_time: bool = ...,
        timestamp_before_max_ms: int = ...,
        timestamp_after_max_ms: int = ...,
        message_size_max: int = ...,
        batch_size: int = ...,
    ) -> None:
        """Set what is given, leave the rest.

        At first: level INTERVAL, refusing 0, all flags off, timestamps unbounded, message_size_max 2^31 - 1.

        Args:
            level: Of appends that name none: OS, INTERVAL or FSYNC.
            refusing: Not 0: every append is rejected with it; -1: all but those of placed batches (``_append_raw``).
            fsync_only: All appends past the recovery point were at fsync: one below that calls ``_end_fsync_only`` first, and full
                buffers wait for ``_commit``.
            keys_required: Reject null keys.
            log_append_time: Ignore the timestamps given; batches carry attribute bit 3 and the time of their last record.
            timestamp_before_max_ms, timestamp_after_max_ms: How far a timestamp given may lie from the clock.
            message_size_max: Bytes of the largest batch; a record that alone makes a larger one is rejected.
            batch_size: As in the constructor.
        """

    @property
    def _next_offset(self) -> int:
        """Offset of the next record.  Settable while nothing is pending (RuntimeError otherwise)."""

    @_next_offset.setter
    def _next_offset(self, offset: int) -> None: ...
    @property
    def end_offset(self) -> int:
        """Offset of the next record; counts records in the open batch."""

    @property
    def _written_offset(self) -> int:
        """Below it, everything went through ``_write``."""

    @property
    def _pending_count(self) -> int:
        """Records accepted, but not written: ``_next_offset - _written_offset``."""

    @property
    def _opened_ms(self) -> int:
        """CLOCK_MONOTONIC in ms, at most a tick late, when the oldest pending record came (or before it); 0: none pending."""

    @property
    def _broken(self) -> bool:
        """Whether the last write failed: its buffer is kept, and nothing accepted before it is written."""

    _dirty: bool
    """Set before a record is accepted by ``append`` below fsync, or kept by a failure; the flusher clears it before it drains."""

    @property
    def leader_epoch(self) -> int:
        """Of the batches to come; setting it closes the open batch."""

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None: ...

    # ---------------------------------------------------------------- hooks, for the subclass to override

    def _write(self, batches: memoryview, base_offset: int, next_offset: int, now_ms: int, /) -> None:
        """Write batches, which hold [base_offset, next_offset), at ``now_ms`` of the clock; the view is released when this returns.

        If it raises, the same bytes come again, perhaps in another thread, before any that follow them.
        """

    def _woken(self) -> None:
        """Something is pending, or is about to be: called when ``_dirty`` was False and became True."""

    def _commit(self, next_offset: int, level: int, /) -> None:
        """FSYNC: return once everything below ``next_offset`` is written (``_drain``) and synced.  INTERVAL: take note."""

    def _end_fsync_only(self) -> None:
        """A record below fsync comes while ``fsync_only``: note it and ``_configure(fsync_only=False)``."""

    def _reject(self, reason: str, *numbers: int) -> None:
        """Raise what fits the reason; SystemError if this returns.

        "refusing" (refusing,) · "size" (size_bytes, message_size_max) · "expected_offset" (expected_offset, next_offset) ·
        "timestamp" (timestamp_ms, now_ms, before_max_ms, after_max_ms) · "key" ()
        """

# ---------------------------------------------------------------- a producer's send

@final
class SendFuture:
    """What becomes of one record that was sent.  Made by ``Producer.send``; like a ``concurrent.futures.Future``.

    All records that are written together have their result at once.
    """

    def done(self) -> bool:
        """Whether the result is known."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record lies, waiting for it; its offset is -1 with ``acks=0``.

        Args:
            timeout: Seconds; None: as long as it takes.

        Raises:
            TimeoutError: It is not known yet.
            LogdbError: The record was not written.
        """

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What ``result`` would raise, or None; waits and times out as it does."""

    def add_done_callback(self, function: Callable[[SendFuture], object], /) -> None:
        """Call ``function(future)`` once the result is known, in the producer's thread; at once where it is known already.

        What it raises is logged.
        """

class Delivery:
    """A buffer of records on its way to a log, and the result that its futures share.

    open (``Accumulator._begin``) -> sealed (``_seal``) -> settled (``_settle``).  Not acknowledged: the result is that
    it is unknown, from the beginning.
    """

    def __init__(self, topic: str, partition: int, opened_ms: int, acknowledged: bool) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def opened_ms(self) -> int: ...
    @property
    def first(self) -> int:
        """Number of its first record, as the accumulator counts them."""

    @property
    def record_count(self) -> int:
        """Records in it; 0 until it is sealed."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its buffer."""

    @property
    def done(self) -> bool:
        """Whether the futures have their result."""

    @property
    def batches(self) -> memoryview:
        """Its batches, uint8[n], writable; release the view before ``_settle``, after which it may show other bytes.

        Raises:
            ValueError: It is open yet, or settled.
        """

    def _settle(self, base_offset: int, timestamp_ms: int, error: BaseException | None, /) -> None:
        """Set the result, for the first time, and let the buffer go.

        Args:
            base_offset: Of the first record in the log.
            timestamp_ms: What the log stamped all records with; -1: each keeps its own.
            error: What they failed with.
        """

    def _call_back(self, error: BaseException | None, report: Callable[[object, BaseException], object], /) -> None:
        """Call ``on_delivery(error, metadata)`` and ``function(future)`` for all who asked; what they raise goes to ``report``."""

    def _future(self, timestamp_ms: int, /) -> SendFuture:
        """The future of a first record."""

    # hooks, for the subclass to define

    def _wait(self, timeout: Any, /) -> None:
        """Return once it is ``done``; called by ``SendFuture.result`` with what that was given."""

    def _call(self, function: Callable[[SendFuture], object], future: SendFuture, /) -> None:
        """Call ``function(future)``, which was added when the result was known."""

class Accumulator(BatchBuilder):
    """A batch builder whose buffers are taken away by a producer's thread; its offsets count the records.

    Records come in by ``Dispatcher.send`` alone.  A buffer holds at most five batches.
    """

    @property
    def _open(self) -> Delivery | None:
        """What records go to."""

    def _begin(self, delivery: Delivery, size_bytes: int, /) -> None:
        """Go on in a new buffer, which belongs to a new delivery.

        Raises:
            RuntimeError: A buffer is open, or the delivery is not new.
        """

    def _seal(self) -> Delivery | None:
        """Close the open delivery, which may have no record, and return it; None where none is open."""

    # hook, for the subclass to define

    def _refill(self, size_bytes: int, /) -> None:
        """There is no room for a batch of so many bytes: ``_seal`` and ``_begin``.  Whatever it leaves is looked at again."""

@final
class Route:
    """The partitions of a topic, and which of them gets the next record without a key."""

    def __init__(self, topic: str, partition_count: int, seed: int) -> None:
        """``seed``: 64 bits, of the choice among partitions."""

    @property
    def topic(self) -> str: ...
    @property
    def accumulators(self) -> list[Accumulator | None]:
        """By partition; may grow, and have its Nones replaced."""

class Dispatcher:
    """A producer's send: the base class of ``client.Producer``.

    Threading: any thread; the GIL is the lock.  A record that ``_refusing`` does not refuse is in when the thread that sets it goes on.
    """

    def __init__(
        self,
        *,
        partitioner: Callable[[Any, int], int] | None,
        serialize_key: Callable[[Any], Buffer | None] | None,
        serialize_value: Callable[[Any], Buffer | None] | None,
        intercepted: bool,
        sticky_size: int,
    ) -> None:
        """Begin without routes.

        Args:
            partitioner: (serialized key, partition count) -> partition; None: Kafka's default, in C.
            intercepted: ``send`` calls ``_intercept``.
            sticky_size: Bytes of records without a key that go to a partition before another one is chosen.
        """

    _refusing: int
    """Not 0: all records are refused."""

    @property
    def _routes(self) -> dict[str, Route]: ...
    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = (),
        timestamp_ms: Timestamp | None = None,
        on_delivery: Callable[[Any, Any], object] | None = None,
    ) -> SendFuture:
        """Take a record; the producer writes it soon, with others.

        The call waits only while ``buffer_memory`` is used up.

        Args:
            topic: The name of a topic that exists.
            value: Bytes-like, None (a tombstone), or what the producer's serializer takes.
            key: As the value; records of one key go to one partition.
            partition: None: the partitioner chooses.  By default that is murmur2 of the key, as in Kafka; without a key,
                one partition for about a batch, then another one.
            headers: Pairs of a name and bytes or None.
            timestamp_ms: Milliseconds since 1970, or a ``datetime`` with a time zone; None: now.
            on_delivery: Called once, with (None, RecordMetadata) or (exception, None), in the producer's thread.  It may send,
                but such a send never waits for room.  An exception of it is logged.

        Returns:
            The future of its ``RecordMetadata``.

        Raises:
            TypeError: An argument has the wrong type.
            UnknownTopic, UnknownPartition, RecordTooLarge, InvalidTimestamp, InvalidRecord, SerializationError: The
                record was refused.  ``send`` itself raises this; with Kafka's producer, the future has the error.
            BufferExhausted: There was no room within ``max_block_ms``.
            Closed, Forked, InvalidTransactionState: The producer takes no records now.
            Exception: A partitioner or an interceptor raised it.
        """

    def _dispatch(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = (),
        timestamp_ms: Timestamp | None = None,
        on_delivery: Callable[[Any, Any], object] | None = None,
    ) -> SendFuture:
        """``send`` past the interceptors."""

    # hooks, for the subclass to define

    def _intercept(self, *args: Any, **kwargs: Any) -> SendFuture:
        """``send`` as it was called."""

    def _route(self, topic: str, /) -> Route:
        """Of a topic that is not in ``_routes``, which then has it."""

    def _accumulator(self, route: Route, partition: int, /) -> Accumulator:
        """Of a partition that has none, or does not exist."""

    def _refuse(self, reason: int, /) -> None:
        """Raise the error for ``reason``; SystemError if this returns."""

class _PositionFile(Protocol):
    def _pread(self, size_bytes: int, position: int, /) -> bytes: ...

@final
class Positions:
    """Where the records of checked batches lie, for point reads; all of them share one bound.

    Knows nothing of what happens to a file: clear it when offsets move or are written anew.
    """

    def __init__(self) -> None: ...
    def add(self, file: _PositionFile, position: int, batch: Buffer) -> None:
        """Remember the records of one whole, checked, uncompressed batch that lies at ``position`` of ``file``.

        Raises:
            ValueError: It is not that.
        """

    def clear(self) -> None: ...
    @property
    def size_bytes(self) -> int:
        """Memory that its entries take: about 100 bytes a batch and 4 a record."""

    @staticmethod
    def limit(size_bytes: int | None = None, /) -> int:
        """Set, if given, and return what the entries of all Positions may take (32 MiB at first); least recently used go first."""

@final
class RecordIterator:
    """Records with offsets in [offset, end_offset), out of checked, uncompressed batches.

    Control batches are skipped.  Where ``positions`` know the first record, it is read by ``file._pread``, and
    ``source`` called for the second; whatever is wrong with that read, the source has to tell.
    """

    def __new__(
        cls,
        source: Callable[[int, int], Iterable[Buffer]],
        offset: int,
        end_offset: int,
        topic: str,
        partition: int,
        positions: Positions | None = None,
    ) -> Self:
        """``source(offset, end_offset)`` yields buffers of whole batches; each is let go before the next is asked for."""

    def __iter__(self) -> Iterator[Record]: ...
    def __next__(self) -> Record:
        """The next record.

        Raises:
            StopIteration: At the end, and after any exception of the source.
            ValueError: The bytes contradict themselves, with an offset; or another thread is in here.
        """

    def take(self, count: int, /) -> list[Record]:
        """The next records, at most ``count``; fewer at the end, and where an exception ends it.

        An exception is raised only if there is no record before it: then it has not ``exhausted`` what there is, and
        reading from ``next_offset`` meets it again.

        Raises:
            LogdbError: See ``__next__``; never StopIteration.
        """

    def close(self) -> None:
        """End it, and let go of what it reads from."""

    @property
    def next_offset(self) -> int:
        """Behind the last record; where it began before the first."""

    @property
    def end_offset(self) -> int:
        """Where the records end: what was asked for, or where reading ended then, if that is less."""

    @property
    def leader_epoch(self) -> int:
        """Of the last record; -1 before the first."""

    @property
    def exhausted(self) -> bool:
        """Whether all records were returned: it has ended, and neither ``close`` nor an exception ended it."""
