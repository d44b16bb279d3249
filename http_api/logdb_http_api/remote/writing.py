"""Appends to one partition of a server.  Each batch has a producer's sequence, so that a retry appends no record twice.

The log remembers the last five batches of a producer, so at most five are in flight, each a request.  After an error that leaves open
whether the batches are in the log, the producer is given up: the sequences of the next one begin at 0.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logdb.client.batches import BATCHES_MAX
from logdb.codec import convert
from logdb.errors import (
    CommitTimeout,
    InvalidAnswer,
    LogdbError,
    ServerUnavailable,
    UnexpectedOffset,
)
from logdb.model import COMPRESSION_TYPES, Buffer, Durability, LogConfig, ProducerIdAndEpoch, TopicPartition
from logdb.requests.records import Produce
from logdb_http_api.remote.batch_requests import Appended, ProduceRequest
from logdb_http_api.remote.connections import Connections
from logdb_http_api.remote.exchange import AFTER_APPEND, Exchange

_REQUESTS_MAX = BATCHES_MAX
REQUEST_BATCHES_MAX = BATCHES_MAX // _REQUESTS_MAX
_MEMORY_COUNT = _REQUESTS_MAX + 1
_SEQUENCE_MASK = 2**31 - 1
_UNKNOWN = (*AFTER_APPEND, ServerUnavailable, CommitTimeout, InvalidAnswer)
"""The errors after which the log may have the batches of a request that was sent."""


class Identity:
    """A producer of one partition, and its next sequence."""

    def __init__(self, make: Callable[[], ProducerIdAndEpoch]) -> None:
        self._make = make
        self._producer: ProducerIdAndEpoch | None = None
        self._sequence = 0

    def stamp(self, batches: memoryview, under_way_count: int) -> None:
        """Give batches the sequences behind the records in flight; ``advance`` confirms them."""
        if self._producer is None:
            self._producer, self._sequence = self._make(), 0
        sequence = self._sequence + under_way_count & _SEQUENCE_MASK
        convert.stamp_producer(batches, self._producer, sequence, transactional=False)

    def advance(self, record_count: int) -> None:
        """The log has appended them."""
        self._sequence = self._sequence + record_count & _SEQUENCE_MASK

    def end(self) -> None:
        """Give up the producer: it is unknown which batches the log has; later batches have another producer."""
        self._producer = None


class Memory:
    """Copies of the batches in flight, which may have to be sent again."""

    def __init__(self) -> None:
        self._rooms = deque(bytearray() for _ in range(_MEMORY_COUNT))

    def copy(self, batches: memoryview) -> memoryview:
        """A copy, valid until five more were made."""
        self._rooms.rotate()
        if len(self._rooms[0]) < len(batches):
            self._rooms[0] = bytearray(len(batches))  # a new one: the traceback of an error may have a view of the old one
        view = memoryview(self._rooms[0])[: len(batches)]
        view[:] = batches
        return view


class UnderWay(NamedTuple):
    """A request without an answer yet."""

    exchange: Exchange[Appended]
    record_count: int
    body: Buffer


class Upload:
    """The batches of one call: while the server appends some, the next ones are built, and sent behind them.

    The first request is sent alone: its answer has the offset at which the others are expected.

    Attributes:
        offsets: The offsets appended so far.
    """

    def __init__(
        self,
        connections: Connections,
        where: TopicPartition,
        identity: Identity,
        config: LogConfig,
        memory: Memory,
        *,
        expected_offset: int | None,
        durability: Durability | None,
    ) -> None:
        self._connections, self._where, self._identity = connections, where, identity
        self._codec, self._message_bytes_max = COMPRESSION_TYPES.index(config.compression_type), config.max_message_bytes
        self._expected_offset, self._durability = expected_offset, durability
        self._under_way: deque[UnderWay] = deque()
        self._memory = memory
        self.offsets: range | None = None
        self._is_unknown = False  # whether the log has the batches of the request that failed

    def add(self, batches: memoryview, record_count: int) -> None:
        """Send batches that were just built, in as many requests as needed."""
        for part, count in ((batches, 1),) if record_count == 1 else _parts(batches, record_count):
            copy = self._memory.copy(part)
            self._identity.stamp(copy, self._under_way_count)
            body = convert.compress_batches(copy, self._codec, size_bytes_max=self._message_bytes_max) if self._codec else copy
            while self._under_way and not self._may_follow():
                self._finish_one()
            self._send(body, count)

    @property
    def _under_way_count(self) -> int:
        """The number of records in flight."""
        return sum(request.record_count for request in self._under_way) if self._under_way else 0

    def _may_follow(self) -> bool:
        """Whether a request may be sent before those in flight are answered."""
        return self.offsets is not None and len(self._under_way) < _REQUESTS_MAX and self._under_way[-1].exchange.may_be_followed

    def _send(self, body: Buffer, record_count: int) -> None:
        behind = self._under_way[-1].exchange if self._under_way else None
        expected_offset = self._expected_offset if self.offsets is None else self.offsets.stop + self._under_way_count
        asked = Produce(*self._where, self._durability, expected_offset=expected_offset)
        request = ProduceRequest(asked, body, record_count)
        try:
            exchange = Exchange(self._connections, request, behind=behind)
            self._under_way.append(UnderWay(exchange, record_count, body))
        except BaseException:  # from outside (Ctrl-C): all of it may have been sent
            self._identity.end()
            raise

    def finish(self) -> None:
        """Wait until all sent batches are acknowledged.

        Raises:
            LogdbError: The server's refusal.
        """
        while self._under_way:
            self._finish_one()

    def _finish_one(self) -> None:
        exchange, record_count, _ = self._under_way[0]  # it stays until its result is known: see abandon
        try:
            said = exchange.answer()
        except UnexpectedOffset:
            self._under_way.popleft()  # the log has no unacknowledged batch of it
            raise
        except LogdbError as error:
            self._is_unknown = exchange.repeated or (isinstance(error, _UNKNOWN) and exchange.was_sent)
            raise
        self._identity.advance(record_count)
        self.offsets = range(said.base_offset if self.offsets is None else self.offsets.start, said.next_offset)
        self._under_way.popleft()

    def note(self, error: LogdbError) -> None:
        """Add the offsets appended before to the error that ended the call: the log keeps these records."""
        kept = error.offsets  # of the request that failed
        if self.offsets is not None:
            error.offsets = range(self.offsets.start, self.offsets.stop if kept is None else kept.stop)
        if error.offsets is not None or self._is_unknown:
            error._kept_of_call()  # the records of another call get new sequences
        if self.offsets is not None:
            error.add_note(f"the first {len(self.offsets)} records of the call were appended: they have the offsets {self.offsets}")

    def abandon(self) -> None:
        """The call has failed: drop the answers; it is unknown whether the log has the batches in flight."""
        while self._under_way:
            self._under_way.pop().exchange.abandon()
            self._identity.end()


def _parts(batches: memoryview, record_count: int) -> Iterator[tuple[memoryview, int]]:
    """Runs of batches, one for each request, and the number of records in each."""
    start = at = batch_count = count = 0
    for image, head in convert.headers(batches):
        if batch_count == REQUEST_BATCHES_MAX:
            yield batches[start:at], count
            start, batch_count, record_count, count = at, 0, record_count - count, 0
        at += len(image)
        batch_count += 1
        count += head.record_count
    yield batches[start:at], record_count
