"""One client's connection: frames in, answers out, in their order.

    bytes  ->  frame  ->  queue  ->  answered one after the other  ->  bytes
                                        └──►  answers that wait for replicas  ──┘

A frame that came whole is copied out of the door's buffer, unless it is answered at once; a longer one is received to where it is
read.  A Produce of a usual size comes to a second buffer of the door, unless another connection has it: new memory for each took a sixth
of the processor.  Memory for more than 64 KiB is taken from what all connections share, before it is received, and grows with what has
come: a length costs nothing.

A Produce that waits for replicas holds up the answers behind its own, but no append: the next Produce begins at once, up to a number.
Any other request begins once all are answered.

A connection has the loop for a moment at a time, then the others have their turn: requests that wait for nothing would keep it for as
long as they come.  The client is read no further until what has come is parsed.

Reading stops while the queue is full, the memory of a frame is waited for, or the client does not read its answers.  A frame that has
taken memory waits for more only so long: two that wait for each other's would wait for ever.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from logdb.access.attempts import network
from logdb.errors import AuthenticationFailed, LogdbError
from logdb.model import Buffer
from logdb.requests.principals import ANONYMOUS
from logdb.serving.connection_slots import ConnectionSlot, host_of
from logdb.serving.limits import Limits
from logdb.serving.shares import NoRoom, Owner
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.client import Client
from logdb_kafka_api.dispatch import Answer, Dispatcher
from logdb_kafka_api.frames import UnsupportedApi
from logdb_kafka_api.limits import ROOM_BYTES, SMALL_BYTES
from logdb_kafka_api.resources import KafkaResources

if TYPE_CHECKING:
    from logdb.serving.server import Given

logger = logging.getLogger(__name__)

_SIZE_AND_KEY = struct.Struct(">ih")
_SIZE, _KEY = struct.Struct(">i"), struct.Struct(">h")
_GROWTH = 5  # a frame has so many times the memory of what has come of it: 64 KiB become 256 KiB, and what is around them
_COPIED_BYTES_MAX = 4 << 10  # a smaller frame is read faster as bytes
_QUEUED_COUNT_MAX, _QUEUED_BYTES_MAX = 64, 1 << 20
_UNAUTHENTICATED_COUNT_MAX, _UNAUTHENTICATED_BYTES = 4, 4 << 10  # queued, and read at once
_TURN_S = 500e-6  # of the loop: some tens of small requests
_JOINED_BYTES_MAX, _SLICE_BYTES = 64 << 10, 256 << 10
_PROGRESS_BYTES = 64 << 10
_OWED_COUNT_MAX = 8  # clients of Kafka have five requests under way
_PRODUCE = APIS[0].key
_HTTP = frozenset((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"PATC", b"OPTI"))
"""The begins of HTTP requests; as the size of a frame each is over a gigabyte."""


class _Frame(NamedTuple):
    """A request without its size; ``owner``: for whom its memory is counted, None: it is not."""

    data: bytes | bytearray
    owner: Owner | None


class Connection(Client, asyncio.BufferedProtocol):
    """One connection.

    ==================== ======================== ==============================================================
    field                changed by               to be trusted
    ==================== ======================== ==============================================================
    of ``Client``        there                    as it says there
    ``_room``, ``_size`` ``_begin``, ``_grow``    while a frame is received whose end has not come; ``_filled`` of it has
    ``_taken_bytes``     ``_grow``                always: what the frame that is received has of the memory that connections share
    ``_lent``            ``_receive``             while the frame that is received is in the door's buffer: that one
    ``_rest``            ``_parse``               always: what has come and is not parsed; whole frames while others are queued, or until
                                                  the next turn
    ``_is_due``          ``_parse_later``         always: ``_parse_rest`` is called in the loop's next turn
    ``_frames``          ``_put``, ``_run``       always: requests that were received and not begun
    ``_owed``            ``_owe``, ``_run``       always: answers to requests that are carried out, in their order
    ``_unsent``          ``_answered_at_once``    within one call of ``buffer_updated``: answers that are sent at its end
    ``_since_s``         each step of a request   while the client has to do something; see ``deadline_s``
    ==================== ======================== ==============================================================

    Threading: the event loop of the door.
    """

    def __init__(
        self, door: KafkaResources, dispatcher: Dispatcher, slot: ConnectionSlot | None = None, given: "Given | None" = None
    ) -> None:
        super().__init__(None if given is None else given.identity)
        self._door, self._dispatcher, self._slot, self._given = door, dispatcher, slot, given
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._room: bytearray | memoryview | None = None
        self._lent: memoryview | None = None
        self._size = self._key = self._filled = self._progress = 0
        self._any_size_max = min(SMALL_BYTES, door.limits.body_bytes_max, door.limits.call_bytes_max)  # of any frame, authenticated or not
        self._rest, self._is_due = b"", False
        self._frames: deque[_Frame] = deque()
        self._owed: deque[asyncio.Future[Answer]] = deque()
        self._queued_bytes = self._small_bytes = 0  # of queued requests, and of those of them that are not counted elsewhere
        self._woken: asyncio.Future[None] | None = None  # of the task, which waits for a frame
        self._writable: asyncio.Future[None] | None = None  # while no more fits into the buffer to the client
        self._running: asyncio.Task[None] | None = None
        self._reserving: asyncio.Task[None] | None = None
        self._owner: Owner = None  # of the memory of the frame that is received
        self._taken_bytes = 0
        self._began_s = self._since_s = self._door.now_s()
        self._is_new, self._is_busy = given is None, False
        self._unsent: list[Buffer] = []

    # ------------------------------------------------------------ what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.host = transport, host_of(transport)
        if self._given is None:
            self._slot = self._slot or self._door.slots.take(self.host)
            if self._slot is None or self._door.slots.is_overfull:
                logger.info("%s: too many connections; this one is closed", self.host)
                transport.abort()
                return
        self._door.begun(self)
        try:
            self.identity = self.identity or self._door.certified(transport)
        except AuthenticationFailed as error:
            self._refuse(str(error))
            return
        self.is_known = self._door.identity_of(self) is not None
        self._running = self._loop.create_task(self._run(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._slot is not None:
            self._slot.give_back()
        if self._given is not None:
            self._given.lost(exc)
        for task in (self._running, self._reserving):
            if task is not None:
                task.cancel()
        self.end_replica_session()
        self._door.memory.give_back(self._taken_bytes, self._owner)
        self._return_lent()
        while self._frames:
            self._give_back(self._frames.popleft())
        self._door.lost(self)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._begin_wait()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        if self._room is not None:
            return memoryview(self._room)[self._filled :]
        return self._door.scratch if self.is_known else self._door.scratch[:_UNAUTHENTICATED_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing():
            return
        if self._room is None:
            data = self._door.scratch[:nbytes]
            self._parse(memoryview(self._rest + data) if self._rest else data)
            self._send_at_once()
            return
        self._filled += nbytes
        if self._filled - self._progress >= _PROGRESS_BYTES:
            self._progress, self._since_s = self._filled, self._door.now_s()
        if self._filled == self._size:
            self._end_frame(self._room)
        elif self._filled == len(self._room):
            self._grow(self._room)

    # ------------------------------------------------------------ frames

    def _parse(self, data: memoryview) -> None:
        """Take the frames out of what has come, until the queue is full or the turn is over."""
        position, left, until_s = 0, len(data), self._loop.time() + _TURN_S
        self._rest = b""
        while left >= _SIZE_AND_KEY.size:
            size, key = _SIZE_AND_KEY.unpack_from(data, position)
            if not 2 <= size <= self._any_size_max and not 2 <= size <= self._size_max(key):
                if self._is_first(position) and bytes(data[: len(b"POST")]) in _HTTP:
                    self._hand_over("http", bytes(data))
                    return
                self._refuse(f"a frame of {size} bytes for the API {key}: must be at most {self._size_max(key)}")
                return
            begin = position + _SIZE.size
            if left < _SIZE.size + size:
                self._begin(size, key, data[begin:])
                return
            position = begin + size
            frame = data[begin:position] if size > _COPIED_BYTES_MAX else bytes(data[begin:position])
            if key != _PRODUCE or not self._answered_at_once(frame):
                self._put(_Frame(bytes(frame), None))
                is_over = self._is_full()
            elif self._is_closing():
                return
            else:
                is_over = self._loop.time() >= until_s
            left = len(data) - position
            if is_over and left >= _SIZE_AND_KEY.size:
                self._pause()
                self._parse_later()
                break
        self._rest = bytes(data[position:])
        if left:
            self._begin_wait()

    def _parse_later(self) -> None:
        """Parse the rest in the loop's next turn; behind what is queued, so that its small appends may be made at once."""
        if not self._is_due and not self._frames:
            self._is_due = True
            self._loop.call_soon(self._parse_rest)

    def _parse_rest(self) -> None:
        self._is_due = False
        if not self._is_closing():
            self._parse(memoryview(self._rest))
            self._send_at_once()
            self._resume()

    def _is_first(self, position: int) -> bool:
        """Whether the client has sent nothing before these bytes."""
        return position == 0 and self._is_new and not (self._frames or self._is_busy or self.is_raw)

    def _size_max(self, key: int) -> int:
        if not self.is_known:
            return SMALL_BYTES
        return self._door.limits.body_bytes_max if key == _PRODUCE else self._door.limits.call_bytes_max

    def _begin(self, size: int, key: int, begun: memoryview) -> None:
        """Receive the rest of a frame."""
        self._size, self._key, self._filled, self._progress = size, key, len(begun), 0
        self._grow(begun)
        self._begin_wait()

    def _end_frame(self, data: bytearray | memoryview) -> None:
        """Answer, or keep, a frame that came in pieces."""
        taken_bytes, self._room, self._taken_bytes = self._taken_bytes, None, 0
        if self._key == _PRODUCE and self._answered_at_once(data):
            self._door.memory.give_back(taken_bytes, self._owner)
            self._send_at_once()
        else:
            self._put(_Frame(data if isinstance(data, bytearray) else bytes(data), self._owner if taken_bytes else None))
        self._return_lent()

    def _grow(self, come: Buffer) -> None:
        """Have room for more of the frame than has come."""
        room_bytes = min(self._size, max(SMALL_BYTES, _GROWTH * len(come)))
        if room_bytes <= SMALL_BYTES:
            self._receive(room_bytes, 0, come)
            return
        more = room_bytes - self._taken_bytes
        if not self._taken_bytes:
            identity = self.identity
            self._owner = network(self.host) if identity is None or identity.principal == ANONYMOUS else identity.principal
        if self._door.memory.has_room(more, self._owner, ahead=self._taken_bytes > 0):
            self._door.memory.take_now(more, self._owner)
            self._receive(room_bytes, more, come)
        else:
            self._pause()
            kept = come if come is self._room else bytes(come)  # the door's buffer is read to again
            self._reserving = self._loop.create_task(self._reserve(room_bytes, more, kept))

    def _receive(self, room_bytes: int, more: int, come: Buffer) -> None:
        self._taken_bytes += more
        if self._lent is None and self._key == _PRODUCE and self._size <= ROOM_BYTES:
            self._lent, self._door.room = self._door.room, None
        self._room = bytearray(room_bytes) if self._lent is None else self._lent[:room_bytes]
        self._room[: len(come)] = come

    def _return_lent(self) -> None:
        if self._lent is not None:
            self._door.room, self._lent = self._lent, None

    async def _reserve(self, room_bytes: int, more: int, come: Buffer) -> None:
        memory, is_more = self._door.memory, self._taken_bytes > 0
        while True:
            try:
                await memory.take(more, self._owner, ahead=is_more)
                break
            except NoRoom as error:
                if is_more and not memory.has_room(more, self._owner, ahead=True):  # another frame may wait for what this one has
                    memory.give_back(self._taken_bytes, self._owner)
                    self._taken_bytes = 0
                    self._refuse(str(error))
                    return
                # a client of Kafka has its own timeout
        self._reserving = None
        self._receive(room_bytes, more, come)
        self._begin_wait()
        self._resume()

    def _put(self, frame: _Frame) -> None:
        self._frames.append(frame)
        self._count(frame, 1)
        self._wake()
        if self._is_full():
            self._pause()

    def _wake(self, _done: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _is_full(self) -> bool:
        if self._queued_bytes >= _QUEUED_BYTES_MAX or self._small_bytes >= SMALL_BYTES:
            return True
        return len(self._frames) >= (_QUEUED_COUNT_MAX if self.is_known else _UNAUTHENTICATED_COUNT_MAX)

    def _count(self, frame: _Frame, sign: int) -> None:
        self._queued_bytes += sign * len(frame.data)
        if frame.owner is None:
            self._small_bytes += sign * len(frame.data)

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is None or self._reserving is not None or self._is_full() or self._is_closing():
            return
        if len(self._rest) >= _SIZE_AND_KEY.size:
            self._parse_later()
        else:
            self._transport.resume_reading()

    def _give_back(self, frame: _Frame) -> None:
        if frame.owner is not None:
            self._door.memory.give_back(len(frame.data), frame.owner)

    # ------------------------------------------------------------ answers

    async def _run(self, transport: asyncio.Transport) -> None:
        """Answer one request after the other."""
        until_s = 0.0
        try:
            while not self.is_ending and (self._frames or self._owed or not self._door.draining):
                if self._owed and self._owed[0].done():
                    await self._finish(transport, self._owed.popleft().result())
                elif self._frames and self._may_begin(self._frames[0].data):
                    await self._answer(transport, self._frames.popleft())
                    if self._frames and self._loop.time() >= until_s:
                        await asyncio.sleep(0)
                        until_s = self._loop.time() + _TURN_S
                else:
                    self._woken = self._loop.create_future()
                    await self._woken
                    until_s = self._loop.time() + _TURN_S
        except UnsupportedApi as error:
            self._refuse(str(error), logging.WARNING if self._door.is_news(error) else logging.INFO)
        except (NoRoom, LogdbError) as error:
            self._refuse(str(error))
        except ConnectionError as error:
            logger.debug("%s: %s", self.host, error)
        except Exception:
            logger.exception("%s: the connection is closed", self.host)
        finally:
            for later in self._owed:
                later.cancel()
            if self._transport is not None:  # otherwise it is another door's
                transport.close()

    def _may_begin(self, frame: Buffer) -> bool:
        if not self._owed:
            return True
        return len(self._owed) < _OWED_COUNT_MAX and not self.is_raw and _KEY.unpack_from(frame)[0] == _PRODUCE

    def _owe(self, answer: Answer) -> None:
        """Send an answer once those before it are sent, and it is there."""
        later = answer.later
        if later is None:
            later = self._loop.create_future()
            later.set_result(answer)
        else:
            later.add_done_callback(self._wake)
        self._owed.append(later)

    def _answered_at_once(self, frame: Buffer) -> bool:
        """Answer a request that waits for nothing, past the task: its turns of the loop take longer than a small append."""
        transport, is_idle = self._transport, self._woken is not None and not self._woken.done() and not self._frames
        if not is_idle or transport is None or self._writable is not None or self.is_raw or self._door.draining:
            return False
        if len(self._owed) >= _OWED_COUNT_MAX:
            return False
        try:
            answer = self._dispatcher.answer_at_once(self, frame)
        except (LogdbError, ConnectionError) as error:
            self._refuse(str(error))
            return True
        if answer is None:
            return False
        self._is_new = False
        self._since_s = self._door.now_s()  # and no earlier look at it is needed
        if self._owed or answer.later is not None:
            self._is_busy = True
            self._owe(answer)
        else:
            self._unsent += answer.parts
        return True

    def _send_at_once(self) -> None:
        """Send the answers to the requests that have come together, together."""
        if self._unsent and self._transport is not None:
            self._transport.write(b"".join(self._unsent))
            self._unsent = []

    async def _answer(self, transport: asyncio.Transport, frame: _Frame) -> None:
        self._is_busy = True
        try:
            answer = await (self._raw_answer(bytes(frame.data)) if self.is_raw else self._dispatcher.answer(self, frame.data))
        finally:
            self._give_back(frame)
            self._count(frame, -1)
        del frame  # its memory is not this one's any more while the client reads the answer
        if self._owed or answer.later is not None:
            self._owe(answer)
            self._resume()
        else:
            await self._finish(transport, answer)

    async def _finish(self, transport: asyncio.Transport, answer: Answer) -> None:
        try:
            await self._send(transport, answer.parts)
        finally:
            if answer.call is not None:
                answer.call.end()
        if answer.throttle_ms:
            await self._door.pause(answer.throttle_ms)
        self._is_busy, self._is_new = bool(self._owed), self._is_new and not self.is_known
        self._begin_wait()
        self._resume()

    async def _raw_answer(self, token: bytes) -> Answer:
        """Answer a message of a SASL exchange that came without a header."""
        answer = await self.go_on(token)
        return Answer((_SIZE.pack(len(answer)), answer))

    async def _send(self, transport: asyncio.Transport, parts: Sequence[Buffer]) -> None:
        """Send an answer as fast as the client reads.

        Raises:
            ConnectionError: The client is gone.
        """
        if sum(map(len, parts)) <= _JOINED_BYTES_MAX:
            parts = (b"".join(parts),)
        for part in parts:
            view = memoryview(part)
            for at in range(0, len(view), _SLICE_BYTES):
                if transport.is_closing():
                    raise ConnectionResetError("the client is gone")
                transport.write(view[at : at + _SLICE_BYTES])
                if self._writable is not None:
                    await self._writable

    # ------------------------------------------------------------ the end

    def address_here(self) -> tuple[str, int]:
        """Where the client has reached the server."""
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        return str(host), int(port)

    def _begin_wait(self) -> None:
        """The client's time begins: to send a request or its rest, or to read."""
        self._since_s = self._door.now_s()
        self._door.watch(self)

    def deadline_s(self, limits: "Limits") -> float | None:
        """Until which time of ``Door.now_s`` the client has to send or read; None: the door works on its request, or reads no further."""
        if self._writable is not None:
            return self._since_s + limits.write_timeout_ms / 1000
        is_begun = 0 < len(self._rest) < _SIZE_AND_KEY.size or self._room is not None  # a longer rest waits for us
        if self._reserving is not None or (self._is_busy and (not is_begun or self._is_full())):
            return None
        if self._is_new and not self._is_busy:
            return self._began_s + limits.header_timeout_ms / 1000
        return self._since_s + (limits.body_timeout_ms if is_begun else limits.keep_alive_ms) / 1000

    @property
    def is_new(self) -> bool:
        """Whether the first request, or the login, is still to come."""
        return self._is_new

    def _hand_over(self, door: str, begun: bytes) -> None:
        """Give the connection to the door whose protocol the client speaks."""
        transport, self._transport = self._transport, None
        assert transport is not None
        self.connection_lost(None)
        self._door.hand_over(door, transport, begun)

    def _refuse(self, reason: str, level: int = logging.INFO) -> None:
        logger.log(level, "%s: %s; the connection is closed", self.host, reason)
        self._send_at_once()
        if self._transport is not None:
            self._transport.close()

    def close_if_idle(self) -> None:
        """Close it unless a request is being answered; then it closes once that is done."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def abort(self) -> None:
        """Close it, whatever is still to be sent."""
        if self._transport is not None:
            self._transport.abort()
