"""Fetches record batches of one partition from a server, chunk by chunk; the next chunk is requested before one is decoded.

A client with a rack asks the leader for the first chunk.  The leader names a follower in the rack, which the client asks for the next ones.
If that one fails, refuses or has too little, the leader is asked at once.  Only the leader says that records are gone.

Every part of an answer may be wrong: batches are checked as those on a disk are.

Threading: one thread at a time for one iteration.
"""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from logdb.codec import Header, Scanner, convert, explain, header, split
from logdb.errors import Closed, Forked, InvalidAnswer, LogdbError, LogTruncated, OffsetOutOfRange
from logdb.log.isolation import IsolationLevel, is_committed
from logdb.model import Buffer, TopicPartition
from logdb_http_api.remote.batch_requests import Fetched, FetchRequest
from logdb_http_api.remote.exchange import Exchange, FollowerExchange, FollowerFailed

if TYPE_CHECKING:
    from logdb_http_api.remote.connection import Address
    from logdb_http_api.remote.connections import Connections

FIRST_SIZE_BYTES = 64 << 10  # of a read that may end after one record
SIZE_BYTES = 2 << 20  # what a request costs beside its bytes counts half as much as at 1 MiB
_MEMORY_SIZE_BYTES = 2 * SIZE_BYTES  # an answer may exceed the soft limit by a batch
_PAUSE_S = 0.05  # before a read goes on that brought no offset
_NO_BATCHES = memoryview(b"")
DECOMPRESSED_SIZE_BYTES_MAX = 64 << 20  # of one batch; or max.message.bytes, if that is more


class Chunk(NamedTuple):
    """Checked batches, the offset to go on from, and the end of reading.

    ``first_epoch``, ``last_epoch``: the leader epochs of the first and of the last batch, -1 without one; ``read_offset``: where that ends.
    """

    batches: memoryview
    next_offset: int
    end_offset: int
    codecs: int
    first_epoch: int = -1
    last_epoch: int = -1
    read_offset: int = -1


class Source:
    """The batches of one partition of a server.

    Attributes:
        topic_id: Of the topic that is read; "" until a server has answered.
        decompressed_size_bytes_max: Limit of the decompressed records of one batch.
    """

    def __init__(
        self,
        connections: "Connections",
        where: TopicPartition,
        isolation_level: IsolationLevel,
        decompressed_size_bytes_max: int,
        topic_id: str = "",
    ) -> None:
        """``topic_id``: of the topic to read; "": of the one that has its name."""
        self._connections, self._where, self.topic_id = connections, where, topic_id
        self._committed, self.decompressed_size_bytes_max = is_committed(isolation_level), decompressed_size_bytes_max
        self._follower: Address | None = None  # where to go on

    def fetch(self, offset: int, size_bytes_max: int, *, leader_epoch: int | None = None) -> Chunk:
        """Whole batches from the one that holds ``offset``; none if reading ends there, or all were aborted.

        Raises:
            InvalidAnswer: The answer is not one to this fetch.
            LogdbError: The server's refusal.
        """
        return self._checked(self._begin(offset, size_bytes_max, leader_epoch=leader_epoch).answer(), offset)

    def chunks(self, first: Chunk, end_offset: int, *, as_stored: bool = False) -> Iterator[Buffer]:
        """Batches, uncompressed or ``as_stored``, from those of ``first`` on to ``end_offset``; each is borrowed until the next."""
        shown = self._stored if as_stored else self._uncompressed
        yield from shown(first)
        last, offset = first._replace(batches=_NO_BATCHES), first.next_offset
        if offset >= end_offset:  # a read of one record ends here
            return
        if self._connections.ahead.acquire(blocking=False):
            try:
                yield from self._ahead(last, end_offset, shown)
            finally:
                self._connections.ahead.release()
            return
        while offset < end_offset:
            chunk = self._followed(last, self._begin_next(offset), offset, end_offset)
            yield from shown(chunk)
            last, offset = chunk._replace(batches=_NO_BATCHES), chunk.next_offset
            del chunk

    def _followed(self, last: Chunk, exchange: Exchange[Fetched], offset: int, end_offset: int) -> Chunk:
        """The chunk that ``exchange`` read from ``offset``, behind ``last``, of a read that ends at ``end_offset``.

        Where two histories of a log differ, another leader epoch begins.

        Raises:
            LogTruncated: The log was cut off below the end of ``last`` meanwhile, or ends below ``end_offset`` now.
            OffsetOutOfRange: Retention deleted the records from ``offset`` on.
        """
        try:
            chunk = self._answered(exchange, offset)
        except OffsetOutOfRange as error:
            if error.end_offset < offset:
                raise self._truncated(last, offset, error.end_offset) from None
            raise
        if chunk.next_offset == offset:  # a new leader may show the end of before only later
            log_end = self._begin(offset, 1, committed=False).answer().readable_end_offset
            if log_end < end_offset:
                raise self._truncated(last, offset, log_end)
            time.sleep(_PAUSE_S)
        if chunk.first_epoch < 0:
            return chunk._replace(last_epoch=last.last_epoch, read_offset=last.read_offset)
        if last.last_epoch not in {-1, chunk.first_epoch}:
            self.fetch(last.read_offset, 1, leader_epoch=last.last_epoch)
        return chunk

    def _answered(self, exchange: Exchange[Fetched], offset: int) -> Chunk:
        """The chunk that a follower has sent, or else the leader."""
        if not isinstance(exchange, FollowerExchange):
            return self._checked(exchange.answer(), offset)
        try:
            chunk = self._checked(exchange.answer(), offset)
            if chunk.next_offset > offset:
                return chunk
        except (Closed, Forked):
            raise
        except (LogdbError, FollowerFailed):
            self._connections.avoid(exchange.follower)
        self._follower = None
        return self._checked(self._begin(offset, SIZE_BYTES).answer(), offset)

    def _truncated(self, last: Chunk, offset: int, log_end: int) -> LogTruncated:
        """The error of a read behind ``last`` in a log that ends at ``log_end`` now."""
        end = log_end
        try:
            self.fetch(log_end, 1, leader_epoch=last.last_epoch)
        except LogTruncated as told:  # other records follow the end of this epoch
            end = told.epoch_end_offset
        return LogTruncated(*self._where, offset, last.last_epoch, end, log_end)

    def _ahead(self, last: Chunk, end_offset: int, shown: Callable[[Chunk], Iterator[Buffer]]) -> Iterator[Buffer]:
        """As ``chunks``, behind ``last``.

        A chunk is requested once its first offset is known: announced, before the chunk below it has come, or by that.
        """
        memory, offset = bytearray(_MEMORY_SIZE_BYTES), last.next_offset
        exchange, following = self._begin_next(offset, memory), None
        try:
            while True:
                next_offset = exchange.announced()
                goes_on_here = self._follower is None or isinstance(exchange, FollowerExchange)
                if next_offset is not None and offset < next_offset < end_offset and exchange.may_be_followed and goes_on_here:
                    following = self._begin_next(next_offset, memory, behind=exchange)
                chunk = self._followed(last, exchange, offset, end_offset)
                last, offset = chunk._replace(batches=_NO_BATCHES), chunk.next_offset
                if following is not None and offset != next_offset:  # the answer broke off, and its retry has another end
                    following.abandon()
                    following = None
                if following is None and offset < end_offset:
                    following = self._begin_next(offset, memory)
                yield from shown(chunk)
                if following is None:
                    return
                exchange, following = following, None
        finally:
            exchange.abandon()
            if following is not None:
                following.abandon()

    def _begin_next(self, offset: int, into: bytearray | None = None, *, behind: Exchange[Fetched] | None = None) -> Exchange[Fetched]:
        """Ask the follower in the rack, if there is one, or else the leader."""
        sent_to = behind.follower if isinstance(behind, FollowerExchange) else None
        follower = self._follower if behind is None else sent_to  # a request behind another one goes over its connection
        if follower is None:
            return self._begin(offset, SIZE_BYTES, into, behind=behind)
        return FollowerExchange(self._connections, self._request(offset, SIZE_BYTES, into, at_follower=True), follower, behind=behind)

    def _begin(
        self,
        offset: int,
        size_bytes_max: int,
        into: bytearray | None = None,
        *,
        leader_epoch: int | None = None,
        committed: bool | None = None,
        behind: Exchange[Fetched] | None = None,
    ) -> Exchange[Fetched]:
        request = self._request(offset, size_bytes_max, into, leader_epoch=leader_epoch, committed=committed)
        return Exchange(self._connections, request, behind=behind)

    def _request(
        self,
        offset: int,
        size_bytes_max: int,
        into: bytearray | None,
        *,
        leader_epoch: int | None = None,
        committed: bool | None = None,
        at_follower: bool = False,
    ) -> FetchRequest:
        return FetchRequest(
            self._where,
            offset,
            size_bytes_max,
            committed=self._committed if committed is None else committed,
            leader_epoch=leader_epoch,
            topic_id=self.topic_id,
            into=into,
            rack=self._connections.rack,
            at_follower=at_follower,
        )

    def _stored(self, chunk: Chunk) -> Iterator[Buffer]:
        if chunk.batches:
            yield chunk.batches

    def _uncompressed(self, chunk: Chunk) -> Iterator[Buffer]:
        if not chunk.codecs & ~1:
            if chunk.batches:
                yield chunk.batches
            return
        for batch in split(chunk.batches, 1):  # one at a time: the bound is that of a batch
            yield convert.decompress_batches(batch, self.decompressed_size_bytes_max)

    def _checked(self, answer: Fetched, offset: int) -> Chunk:
        """The chunk of an answer to a fetch from ``offset``; raises unless its batches are valid and the expected ones."""
        next_offset, end_offset = answer.next_offset, answer.readable_end_offset
        batches = memoryview(answer.batches)
        if next_offset < offset or (next_offset == offset) != (offset >= end_offset):
            raise InvalidAnswer(answer.url, f"offsets {offset} to {next_offset}, where reading ends at {end_offset}")
        head = header(batches)[1]
        scanner = Scanner(segment_base_offset=0 if head is None else max(0, head.base_offset), with_index=False, gaps=self._committed)
        status = scanner.scan(batches)
        if status:
            raise InvalidAnswer(answer.url, f"{explain(status, scanner)}, in batches from offset {offset} on")
        if not self._are_wanted(head, scanner.next_offset, offset, next_offset):
            found = f"batches up to offset {scanner.next_offset}"
            raise InvalidAnswer(answer.url, f"{found}, where those from {offset} to {next_offset} were announced")
        self.topic_id = self.topic_id or answer.topic_id
        if answer.nearest:
            self._follower = self._connections.follower(answer.nearest)
        if head is None:
            return Chunk(batches, next_offset, end_offset, scanner.codecs)
        last = header(batches[scanner.used - scanner.last_size_bytes :])[1]
        assert last is not None
        return Chunk(batches, next_offset, end_offset, scanner.codecs, head.leader_epoch, last.leader_epoch, scanner.next_offset)

    def _are_wanted(self, first: Header | None, end_offset: int, offset: int, next_offset: int) -> bool:
        """Whether batches that end at ``end_offset`` are those of [``offset``, ``next_offset``) without aborted ones."""
        if first is None:
            return self._committed or offset == next_offset
        if first.base_offset < 0:
            return False
        return offset < end_offset <= next_offset if self._committed else first.base_offset <= offset < end_offset == next_offset
