"""One partition's log behind a URL: its methods become requests.

Threading: any number of threads; appends of one session are sent one after the other, in the order of their sequences.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from logdb.client.batches import Batches
from logdb.codec import Record, RecordIterator, arrow
from logdb.errors import (
    InvalidRecord,
    InvalidTimestamp,
    LogdbError,
    LogTruncated,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicDeleted,
    UnknownTopic,
)
from logdb.handles import Handle
from logdb.log.isolation import IsolationLevel, is_committed
from logdb.log.lookups import Lookups
from logdb.log.producers import Producer
from logdb.mistakes import OF_THE_CALL, checked_call, must_be, one_of, wrong_type
from logdb.model import (
    DURABILITY_LEVELS,
    OFFSET_MAX,
    AbortedTransaction,
    Buffer,
    Durability,
    Duration,
    KnownLog,
    LogConfig,
    OpenTransaction,
    Signal,
    Timestamp,
    TopicInfo,
    TopicPartition,
    duration_ms,
    timestamp_ms_of,
)
from logdb.requests.records import Produce
from logdb.threads import renewed
from logdb_http_api.protocol import PARTITION_PATH, Epoch, Found, Latest, LogState, Transactions, path_of
from logdb_http_api.remote.answers import HttpAnswer
from logdb_http_api.remote.exchange import send_request
from logdb_http_api.remote.reading import DECOMPRESSED_SIZE_BYTES_MAX, FIRST_SIZE_BYTES, SIZE_BYTES, Chunk, Source
from logdb_http_api.remote.writing import REQUEST_BATCHES_MAX, Identity, Memory, Upload

if TYPE_CHECKING:
    import pyarrow

    from logdb_http_api.remote.session import RemoteSession

S = TypeVar("S", LogState, Source)

_READ_SIZE_BYTES = 1 << 20
_LEADER_EPOCH_MAX = 2**31 - 1
_WAIT_MS_MAX = 10_000
_STOP_LOOK_MS = 100  # how often a wait checks ``stop``


class _Topic:
    """What the handles of one topic's partition share.

    | field        | who changes it                              | when it may be trusted                           |
    |--------------|---------------------------------------------|--------------------------------------------------|
    | config       | ``RemoteLog.configure``                     | as of the last description of the topic          |
    | is_deleted   | ``RemoteLog.topic_deleted``                 | once true it stays so                            |
    | current_id   | the same                                    | id of the topic that had the name then, or None  |
    """

    __slots__ = ("config", "current_id", "is_deleted", "topic_id")

    def __init__(self, info: TopicInfo) -> None:
        self.topic_id, self.config = info.topic_id, LogConfig.of(info.config, "interval")
        self.is_deleted, self.current_id = False, None  # type: bool, str | None


class RemoteLog(Lookups, Handle):
    """See ``requests.session.PartitionLog``.

    A handle belongs to the topic of which the first answer is; then ``topic_id`` is its id.  An answer of another topic raises
    TopicDeleted: that topic has got the name since.
    """

    def __init__(self, session: "RemoteSession", topic: str, partition: int, info: TopicInfo, batch_size: int) -> None:
        self._session, self.topic, self.partition = session, topic, partition
        self._where = TopicPartition(topic, partition)
        self._path = path_of(PARTITION_PATH, self._where)
        self._of, self.topic_id = _Topic(info), ""
        batch_size = min(batch_size, self._config.max_message_bytes)
        self._builder = Batches(topic, self._config, batch_size, session.clock, batch_count=REQUEST_BATCHES_MAX)
        self.configure(info)
        self._identity = Identity(session.init_producer_id)
        self._turn = renewed(threading.Lock())
        self._memory = Memory()

    def __repr__(self) -> str:
        return f"<RemoteLog {self.topic}-{self.partition} at {self._session.connections.urls[0]}>"

    def __eq__(self, other: object) -> bool:
        """Whether it is a handle of the same partition, and no deletion of the topic came between the two."""
        return isinstance(other, RemoteLog) and self._of is other._of

    def __hash__(self) -> int:
        return hash(self._of)

    def handle(self) -> "RemoteLog":
        """Another handle of the partition, of the topic that has the name now."""
        handle = RemoteLog.__new__(RemoteLog)
        vars(handle).update(vars(self), topic_id="")
        return handle

    @property
    def _config(self) -> LogConfig:
        return self._of.config

    def configure(self, info: TopicInfo) -> None:
        """Use the topic's configs from now on."""
        self._of.config = LogConfig.of(info.config, "interval")
        self._builder.configure(self._config)

    def topic_deleted(self, current_id: str | None) -> None:
        """The topic was deleted; ``current_id``: of the topic that has its name now."""
        self._of.is_deleted, self._of.current_id = True, current_id

    # ------------------------------------------------------------ ends and states

    @property
    def start_offset(self) -> int:
        with self._asking():
            return self._met(self._session.ends.start(self._where)).start_offset

    @property
    def end_offset(self) -> int:
        return self._state().end_offset

    @property
    def last_stable_offset(self) -> int:
        return self._state().last_stable_offset

    @property
    def durability(self) -> Durability:
        return self._state().durability

    @property
    def size_bytes(self) -> int:
        return self._state().size_bytes

    def _check(self) -> None:
        """Raise TopicDeleted if the session knows it."""
        of = self._of
        if of.is_deleted and (not self.topic_id or self.topic_id != of.current_id):
            raise TopicDeleted(self.topic, self.topic_id or of.topic_id, of.current_id)

    def _met(self, found: S) -> S:
        """What a server has answered; raises TopicDeleted where that is of another topic."""
        if found.topic_id not in {"", self.topic_id}:
            if self.topic_id:
                raise TopicDeleted(self.topic, self.topic_id, found.topic_id)
            self.topic_id = found.topic_id
        return found

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Within the block a server is asked; an answer that there is no topic, or another one, raises TopicDeleted."""
        self._check()
        try:
            yield
        except TopicDeleted:
            self._session.forget(self.topic)
            raise
        except UnknownTopic:
            if not self.topic_id:
                raise
            self._session.forget(self.topic)
            raise TopicDeleted(self.topic, self.topic_id) from None

    def _state(self) -> LogState:
        with self._asking():
            return self._met(self._session.ends.state(self._where))

    def readable_end_offset(self, isolation_level: IsolationLevel = "read_uncommitted") -> int:
        with self._asking():
            return self._met(self._session.ends.end(self._where, isolation_level)).readable_end_offset

    def open_transactions(self) -> list[OpenTransaction]:
        return self._transactions(0, 0).open

    @checked_call
    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        return self._transactions(offset, end_offset).aborted

    def _transactions(self, offset: int, end_offset: int) -> Transactions:
        query = urlencode({"offset": offset, "end_offset": end_offset})
        found: Transactions = self._get(f"transactions?{query}").decoded(Transactions)
        return found

    def producers(self) -> list[Producer]:
        """As ``log.protocols.ReplicaLog.producers``."""
        found: list[Producer] = self._get("producers").decoded(list[Producer])
        return found

    @checked_call
    def epoch_at(self, offset: int) -> int:
        if (known := self._session.ends.epoch_before(self._where, offset + 1)) is not None:
            return known
        found: Epoch = self._get(f"epochs/{max(0, offset)}").decoded(Epoch)
        return found.leader_epoch

    @checked_call
    def offset_for_timestamp(self, timestamp_ms: Timestamp) -> int | None:
        found: Found = self._get(f"timestamps/{timestamp_ms_of(timestamp_ms)}").decoded(Found)
        return found.offset

    @checked_call
    def latest_record(self, *, isolation_level: IsolationLevel = "read_uncommitted") -> tuple[int, int] | None:
        query = "?isolation_level=read_committed" if is_committed(isolation_level) else ""
        found: Latest = self._get(f"timestamps/latest{query}").decoded(Latest)
        return None if found.offset is None or found.timestamp_ms is None else (found.offset, found.timestamp_ms)

    def _get(self, path: str) -> HttpAnswer:
        return send_request(self._session.connections, "GET", f"{self._path}/{path}", key=self._where)

    # ------------------------------------------------------------ appending

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        headers: "Iterable[tuple[str, Buffer | None]]" = (),
        timestamp_ms: Timestamp | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> int:
        def build() -> None:
            self._builder.append(value, key, headers=headers, timestamp_ms=timestamp_ms)
            self._builder._drain()

        return self._upload(build, expected_offset, durability).start

    def append_many(
        self,
        values: Iterable[Buffer | None],
        keys: Iterable[Buffer | None] | None = None,
        *,
        headers: "Iterable[Iterable[tuple[str, Buffer | None]]] | None" = None,
        timestamps_ms: Iterable[Timestamp | None] | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> range:
        """As ``PartitionLog.append_many``.  Each batch is a request.

        Raises:
            UnexpectedOffset: Also if another session appended between two requests; ``offsets`` are those that the call
                appended before.
        """

        def build() -> None:
            self._builder.append_many(values, keys, headers=headers, timestamps_ms=timestamps_ms)

        return self._upload(build, expected_offset, durability)

    def _upload(self, build: Callable[[], None], expected_offset: int | None, durability: str | None) -> range:
        """Build records, and send their batches."""
        level = None if durability is None else _level(durability)
        if expected_offset is not None:
            _check_expected(expected_offset)
        self._check()
        self._session.connections.check_open()  # before the lock: in a forked child a thread of the parent may hold it
        with self._turn:
            upload = Upload(
                self._session.connections,
                self._where,
                self._identity,
                self._config,
                self._memory,
                expected_offset=expected_offset,
                durability=level,
            )
            self._builder.take = upload.add
            try:
                build()
                upload.finish()
            except BaseException as error:
                self._builder._discard()
                upload.abandon()
                if isinstance(error, LogdbError):
                    upload.note(error)
                if isinstance(error, RecordTooLarge | InvalidRecord | InvalidTimestamp):
                    self.configure(self._session.describe_topic(self.topic))  # the topic's configs may have changed
                if isinstance(error, OF_THE_CALL):
                    raise error.with_traceback(None) from error.__cause__
                raise
        self._session.ends.appended()
        return self.append_batches(b"", expected_offset=expected_offset) if upload.offsets is None else upload.offsets

    @checked_call
    def append_batches(self, batches: Buffer, *, expected_offset: int | None = None, durability: str | None = None) -> range:
        """As ``PartitionLog.append_batches``; batches without a producer are not sent again if the connection breaks."""
        _check_expected(expected_offset)
        request = Produce(self.topic, self.partition, _level(durability), expected_offset=expected_offset)
        return self._session.submit_batches(request, batches)

    def flush(self, sync: bool = True) -> None:
        send_request(
            self._session.connections,
            "POST",
            f"{self._path}/flush?sync={'true' if sync else 'false'}",
            patience_ms=600_000,
            key=self._where,
        )

    # ------------------------------------------------------------ reading

    @checked_call
    def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> RecordIterator:
        source, first = self._fetch(offset, FIRST_SIZE_BYTES, isolation_level, leader_epoch)
        end = first.end_offset if end_offset is None else min(first.end_offset, end_offset)
        return RecordIterator(lambda _, end_offset: source.chunks(first, end_offset), offset, end, self.topic, self.partition)

    def _fetch(
        self, offset: int, size_bytes_max: int, isolation_level: IsolationLevel, leader_epoch: int | None = None
    ) -> tuple[Source, Chunk]:
        """The source of a read, and its first chunk."""
        self._check()
        if leader_epoch is not None and leader_epoch < 0:  # no record's: as if none was given
            leader_epoch = None
        if not 0 <= offset <= OFFSET_MAX or (leader_epoch is not None and leader_epoch > _LEADER_EPOCH_MAX):  # a frame has no room for them
            state = self._state()
            if leader_epoch is None or not state.start_offset <= offset <= state.end_offset:
                raise OffsetOutOfRange(self.topic, self.partition, offset, state.start_offset, state.end_offset)
            raise LogTruncated(self.topic, self.partition, offset, leader_epoch, state.end_offset, state.end_offset)
        decompressed_size_bytes_max = max(DECOMPRESSED_SIZE_BYTES_MAX, self._config.max_message_bytes)
        source = Source(self._session.connections, self._where, isolation_level, decompressed_size_bytes_max, self.topic_id)
        with self._asking():
            first = source.fetch(offset, size_bytes_max, leader_epoch=leader_epoch)
            return self._met(source), first

    @checked_call
    def read_batches(
        self, offset: int, size_bytes_max: int = _READ_SIZE_BYTES, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> tuple[memoryview, int]:
        _, chunk = self._fetch(offset, max(1, size_bytes_max), isolation_level)
        return chunk.batches, chunk.next_offset

    def _columns(
        self, offset: int | None, end_offset: int | None, isolation_level: IsolationLevel, use_threads: bool, columns: Sequence[str] | None
    ) -> "pyarrow.RecordBatchReader":
        arrow.schema(columns)
        begin = self.start_offset if offset is None else offset
        size_bytes = FIRST_SIZE_BYTES if self._session.connections.rack else SIZE_BYTES  # the rest comes from a follower
        source, first = self._fetch(begin, size_bytes, isolation_level)
        end = first.end_offset if end_offset is None else min(first.end_offset, end_offset)
        chunks, size_bytes_max = source.chunks(first, end, as_stored=True), source.decompressed_size_bytes_max
        return arrow.record_batches(chunks, begin, end, columns, size_bytes_max=size_bytes_max, use_threads=use_threads)

    @checked_call
    def follow(
        self,
        offset: int,
        *,
        timeout_ms: Duration | None = None,
        stop: threading.Event | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[Record]:
        leader_epoch = -1  # of the record before ``offset``
        while stop is None or not stop.is_set():
            end_offset = self.readable_end_offset(isolation_level)
            for record in self.read(offset, end_offset=end_offset, leader_epoch=leader_epoch, isolation_level=isolation_level):
                yield record
                offset, leader_epoch = record.offset + 1, record.leader_epoch
                if stop is not None and stop.is_set():
                    return
            if offset < end_offset:  # past offsets without records
                offset, leader_epoch = end_offset, self.epoch_at(end_offset - 1)
            if not self._wait_for(offset, duration_ms(timeout_ms), stop, isolation_level, leader_epoch):
                return

    def _wait_for(
        self, offset: int, timeout_ms: int | None, stop: threading.Event | None, isolation_level: IsolationLevel, leader_epoch: int
    ) -> bool:
        """Wait until there is something to read at ``offset``, or that lies in another log; False after the timeout."""
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        known = {self._where: KnownLog(self.topic_id, leader_epoch)}
        while stop is None or not stop.is_set():
            left_ms = _WAIT_MS_MAX if until is None else int((until - time.monotonic()) * 1000)
            wait_ms = min(left_ms, _WAIT_MS_MAX if stop is None else _STOP_LOOK_MS)
            with self._asking():
                if self._session.wait({self._where: offset}, max(0, wait_ms), isolation_level=isolation_level, known=known):
                    return True
            if left_ms <= 0:
                return False
        return False

    def watch(self, grown: Signal) -> None:
        self._session.watching.watch(self._where, grown)

    def unwatch(self, grown: Signal) -> None:
        self._session.watching.unwatch(self._where, grown)


def _check_expected(offset: int | None) -> None:
    """Raise as a log in the process does, unless it is an offset or None: a frame has -1 for None."""
    if offset is None:
        return
    if not isinstance(offset, int):
        raise wrong_type("expected_offset", offset, (int,))
    if offset < 0:
        raise ValueError(f"expected_offset={offset} is negative")
    if offset > OFFSET_MAX:
        raise OverflowError(f"expected_offset={offset} is outside of 64 bits")


def _level(durability: str | None) -> Durability | None:
    """The level; raises ValueError for an unknown one."""
    if durability is None:
        return None
    for known in DURABILITY_LEVELS:
        if durability == known:
            return known
    raise ValueError(must_be("durability", durability, one_of(DURABILITY_LEVELS)))
