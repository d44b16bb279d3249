"""Records on their way into one partition at a server, each batch stamped so that a try again writes nothing twice.

Knows how records become batches, and requests of them.  Does not know where they lie when they are written.

The log remembers the last five batches of a producer, so a request has no more.  What it answered with an error that
leaves open whether the batches are in the log ends the producer: the next one's sequences begin at 0 again.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlencode

from logdb.client.batches import BATCHES_MAX
from logdb.codec import convert
from logdb.errors import InvalidAnswer, LogdbError, UnexpectedOffset
from logdb.model import COMPRESSION_TYPES, Buffer, LogConfig, ProducerIdAndEpoch
from logdb_http_api.batches import BATCHES
from logdb_http_api.remote.connection import Connections, Exchange

_SEQUENCE_MASK = 2**31 - 1
_HEADERS = {"Content-Type": BATCHES}
_ANSWER = re.compile(rb'\{"base_offset":([0-9]{1,18}),"next_offset":([0-9]{1,18})\}')  # to the letter, as our server writes it


class Appended(NamedTuple):
    """The answer to batches: the offsets that they were given."""

    base_offset: int
    next_offset: int


class Identity:
    """A producer of one partition, and its next sequence."""

    def __init__(self, make: Callable[[], ProducerIdAndEpoch]) -> None:
        self._make = make
        self._producer: ProducerIdAndEpoch | None = None
        self._sequence = 0

    def stamp(self, batches: memoryview, under_way_count: int) -> None:
        """Make them the producer's next after the records that are under way; each counts once ``advance`` is called."""
        if self._producer is None:
            self._producer, self._sequence = self._make(), 0
        sequence = self._sequence + under_way_count & _SEQUENCE_MASK
        convert.stamp_producer(batches, self._producer, sequence, transactional=False)

    def advance(self, record_count: int) -> None:
        """The log has taken them."""
        self._sequence = self._sequence + record_count & _SEQUENCE_MASK

    def end(self) -> None:
        """Nobody knows what the log has: what comes next is another producer's."""
        self._producer = None


class Upload:
    """The batches of one call: while the server works on some, the next ones are built.

    Attributes:
        offsets: What was appended so far.
    """

    def __init__(
        self,
        connections: Connections,
        path: str,
        identity: Identity,
        config: LogConfig,
        memory: tuple[bytearray, bytearray],
        *,
        expected_offset: int | None,
        durability: str | None,
    ) -> None:
        self._connections, self._path, self._identity = connections, path, identity
        self._codec = COMPRESSION_TYPES.index(config.compression_type)
        self._expected_offset, self._durability = expected_offset, durability
        self._exchange: Exchange | None = None
        self._record_count = 0
        self._memory, self._spare = memory
        self.offsets: range | None = None

    def add(self, batches: memoryview, record_count: int) -> None:
        """Send batches that were just built, in as many requests as it takes."""
        for part, count in _parts(batches, record_count):
            copy = self._copied(part)
            self._identity.stamp(copy, self._record_count)
            body = convert.compress_batches(copy, self._codec) if self._codec else copy
            self.finish()
            self._send(body, count)

    def _copied(self, batches: memoryview) -> memoryview:
        """A copy that stays until the request after the next: what is under way may have to be sent again."""
        self._memory, self._spare = self._spare, self._memory
        if len(self._memory) < len(batches):
            self._memory += bytes(len(batches) - len(self._memory))
        view = memoryview(self._memory)[: len(batches)]
        view[:] = batches
        return view

    def _send(self, body: Buffer, record_count: int) -> None:
        expected_offset = self._expected_offset if self.offsets is None else self.offsets.stop
        given = {"expected_offset": expected_offset, "durability": self._durability}
        query = {name: value for name, value in given.items() if value is not None}
        path = f"{self._path}?{urlencode(query)}" if query else self._path
        self._record_count = record_count
        self._exchange = Exchange(self._connections, "POST", path, body, _HEADERS)

    def finish(self) -> None:
        """Wait until what was sent is acknowledged.

        Raises:
            whatever the server refused it with.
        """
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        try:
            answer = exchange.answer()
            usual = _ANSWER.fullmatch(answer.body)
            said: Appended = answer.decoded(Appended) if usual is None else Appended(int(usual[1]), int(usual[2]))
            if said.next_offset - said.base_offset != self._record_count:
                raise InvalidAnswer(answer.url, f"offsets {tuple(said)} for {self._record_count} records")
        except UnexpectedOffset:
            raise  # none of them is in the log
        except BaseException:
            self._identity.end()
            raise
        self._identity.advance(self._record_count)
        self._record_count = 0
        self.offsets = range(said.base_offset if self.offsets is None else self.offsets.start, said.next_offset)

    def note(self, error: LogdbError) -> None:
        """Say in an error that ended the call what of it was appended before."""
        vars(error).pop("offsets", None)
        if self.offsets is not None:
            vars(error)["offsets"] = self.offsets
            error.add_note(f"the first {len(self.offsets)} records of the call were appended: they have the offsets {self.offsets}")

    def abandon(self) -> None:
        """The call has failed: wait for nothing more."""
        if self._exchange is not None:
            self._exchange.abandon()
            self._exchange = None
            self._identity.end()


def _parts(batches: memoryview, record_count: int) -> Iterator[tuple[memoryview, int]]:
    """Runs of at most five batches, and how many records each has."""
    if record_count == 1:
        yield batches, 1
        return
    start = at = batch_count = count = 0
    for image, head in convert.headers(batches):
        if batch_count == BATCHES_MAX:
            yield batches[start:at], count
            start, batch_count, record_count, count = at, 0, record_count - count, 0
        at += len(image)
        batch_count += 1
        count += head.record_count
    yield batches[start:at], record_count
