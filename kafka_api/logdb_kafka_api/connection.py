"""One client's connection: its transport, its memory, its time.  ``wire`` has the frames, and the order of the answers.

A frame that came whole is copied out of the door's buffer, unless it is answered at once; a longer one is received to where it is
read.  A Produce of a usual size comes to a second buffer of the door, unless another connection has it: new memory for each took a sixth
of the processor.  Memory for more than 64 KiB is taken from what all connections share, before it is received, and grows with what has
come: a length costs nothing.

A connection has the loop for a moment at a time, then the others have their turn: requests that wait for nothing would keep it for as
long as they come.  The client is read no further until the frames that have come are taken.

Reading stops while the queue is full, the memory of a frame is waited for, or the client does not read its answers.  A frame that has
taken memory waits for more only so long: two that wait for each other's would wait for ever.
"""

import asyncio
import contextlib
import logging
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logdb.access.attempts import network
from logdb.errors import AuthenticationFailed, LogdbError
from logdb.model import Buffer
from logdb.requests.principals import ANONYMOUS
from logdb.serving.connection_slots import ConnectionSlot, host_of
from logdb.serving.limits import Limits
from logdb.serving.shares import NoRoom, Owner
from logdb_kafka_api.call import Call
from logdb_kafka_api.client import Client
from logdb_kafka_api.dispatch import Answer, Dispatcher
from logdb_kafka_api.frames import UnsupportedApi
from logdb_kafka_api.limits import ROOM_BYTES, SMALL_BYTES
from logdb_kafka_api.resources import KafkaResources
from logdb_kafka_api.wire import BEGIN_BYTES, OWED_COUNT_MAX, PRODUCE, Frames, Ready, Request, State, Turns

if TYPE_CHECKING:
    from logdb.serving.server import Given

logger = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_BETWEEN, _FILLING = State.BETWEEN, State.FILLING  # looked up once: in an enumeration that takes as long as four names
_UNAUTHENTICATED_BYTES = 4 << 10  # read at once
_TURN_S = 500e-6  # of the loop: some tens of small requests
_JOINED_BYTES_MAX, _SLICE_BYTES = 64 << 10, 256 << 10
_PROGRESS_BYTES = 64 << 10


class KafkaConnection(Client, asyncio.BufferedProtocol):
    """One connection.

    ==================== ======================== ==============================================================
    field                changed by               to be trusted
    ==================== ======================== ==============================================================
    of ``Client``        there                    as it says there
    ``_frames``          ``buffer_updated``       as ``wire.Frames`` says
    ``_turns``           each step of a request   as ``wire.Turns`` says
    ``_taken_bytes``     ``_make_room``           always: what the frame that is received has of the memory that connections share
    ``_lent``            ``_fill``                while the frame that is received is in the door's buffer: that one
    ``_is_due``          ``_take_later``          always: ``_take_rest`` is called in the loop's next turn
    ``_is_paused``       ``_pause``, ``_resume``  always: the client is read no further; only then may ``_frames`` have whole frames left
    ``_begun``           ``_answered_at_once``    until the task takes it: the call of the only request that is queued, which may wait
    ``_unsent``          ``_answered_at_once``    within one call of ``buffer_updated``: answers that are sent at its end
    ``is_new``           ``_finish``              always: the first request, or the login, is still to come
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
        any_size_max = min(SMALL_BYTES, door.limits.body_bytes_max, door.limits.call_bytes_max)  # authenticated or not
        self._frames = Frames(self._size_max, any_size_max, may_be_foreign=given is None)
        self._turns = Turns[Answer]()
        self._lent: memoryview | None = None
        self._progress, self._is_due, self._is_paused = 0, False, False
        self._woken: asyncio.Future[None] | None = None  # of the task, which waits for a frame
        self._writable: asyncio.Future[None] | None = None  # while no more fits into the buffer to the client
        self._running: asyncio.Task[None] | None = None
        self._reserving: asyncio.Task[None] | None = None
        self._owner: Owner = None  # of the memory of the frame that is received
        self._taken_bytes = 0
        self._begun: Call | None = None
        self._began_s = self._since_s = self._door.now_s()
        self.is_new, self._is_busy = given is None, False
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
        while self._turns.queued:
            self._give_back(self._turns.queued.popleft())
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
        if self._frames.state is _FILLING:
            return self._frames.unfilled
        return self._door.scratch if self.is_known else self._door.scratch[:_UNAUTHENTICATED_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing():
            return
        frames = self._frames
        if frames.state is _BETWEEN:
            frames.receive(self._door.scratch[:nbytes])
            self._take_frames()
            self._send_at_once()
            return
        frame = frames.filled(nbytes)
        if frames.filled_bytes - self._progress >= _PROGRESS_BYTES:
            self._progress, self._since_s = frames.filled_bytes, self._door.now_s()
        if frame is not None:
            self._end_frame(frame)
        elif frames.state is State.BEGUN:
            self._make_room()

    # ------------------------------------------------------------ frames

    def _take_frames(self) -> None:
        """Take the frames out of what has come, until the queue is full or the turn is over."""
        frames, until_s = self._frames, 0.0
        while frames.left >= BEGIN_BYTES and (frame := frames.next_frame()) is not None:
            if frames.key != PRODUCE or not self._answered_at_once(frame):
                is_over = self._put(bytes(frame), None)
            elif not self._unsent and self._is_closing():  # refused, then nothing is unsent
                return
            elif frames.left >= BEGIN_BYTES:  # there are several: this one began the turn, or may end it
                now_s = time.monotonic()
                until_s = until_s or now_s + _TURN_S
                is_over = now_s >= until_s
            else:
                break
            if is_over and frames.left >= BEGIN_BYTES:
                self._pause()
                self._take_later()
                break
        if frames.state is not _BETWEEN:
            self._after_frames(frames)
        elif frames.left:
            frames.keep()
            self._begin_wait()

    def _after_frames(self, frames: Frames) -> None:
        """What has come ends with the begin of a long frame, or with bytes that are none."""
        if frames.state is State.BEGUN:
            self._progress = 0
            self._make_room()
            self._begin_wait()
        elif frames.state is State.FOREIGN:
            self._hand_over("http", bytes(frames.unread))
        else:
            self._refuse(frames.reason)

    def _take_later(self) -> None:
        """Take the next frames in the loop's next turn; behind what is queued, so that its small appends may be made at once."""
        if not self._is_due and not self._turns.queued:
            self._is_due = True
            self._loop.call_soon(self._take_rest)

    def _take_rest(self) -> None:
        self._is_due = False
        if not self._is_closing():
            self._take_frames()
            self._send_at_once()
            self._resume()

    def _size_max(self, key: int) -> int:
        if not self.is_known:
            return SMALL_BYTES
        return self._door.limits.body_bytes_max if key == PRODUCE else self._door.limits.call_bytes_max

    def _end_frame(self, data: bytearray | memoryview) -> None:
        """Answer, or keep, a frame that came in pieces."""
        taken_bytes, self._taken_bytes = self._taken_bytes, 0
        if self._frames.key == PRODUCE and self._answered_at_once(data):
            self._door.memory.give_back(taken_bytes, self._owner)
            self._send_at_once()
        else:
            self._put(data if isinstance(data, bytearray) else bytes(data), self._owner if taken_bytes else None)
        self._return_lent()

    def _make_room(self) -> None:
        """Have memory for more of the frame than has come."""
        room_bytes = self._frames.room_bytes
        if room_bytes <= SMALL_BYTES:
            self._fill(room_bytes, 0)
            return
        more = room_bytes - self._taken_bytes
        if not self._taken_bytes:
            identity = self.identity
            self._owner = network(self.host) if identity is None or identity.principal == ANONYMOUS else identity.principal
        if self._door.memory.take_if_room(more, self._owner, ahead=self._taken_bytes > 0):
            self._fill(room_bytes, more)
        else:
            self._pause()
            self._frames.own_begun()
            self._reserving = self._loop.create_task(self._reserve(room_bytes, more))

    def _fill(self, room_bytes: int, more: int) -> None:
        self._taken_bytes += more
        if self._lent is None and self._frames.key == PRODUCE and self._frames.size <= ROOM_BYTES:
            self._lent, self._door.room = self._door.room, None
        self._frames.fill(bytearray(room_bytes) if self._lent is None else self._lent[:room_bytes])

    def _return_lent(self) -> None:
        if self._lent is not None:
            self._door.room, self._lent = self._lent, None

    async def _reserve(self, room_bytes: int, more: int) -> None:
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
        self._fill(room_bytes, more)
        self._begin_wait()
        self._resume()

    def _put(self, frame: bytes | bytearray, owner: Owner | None) -> bool:
        """Keep a request until its turn; returns whether the queue is full, so that no more is read."""
        self._turns.put(Request(frame, owner))
        self._wake()
        is_full = self._turns.is_full(is_known=self.is_known)
        if is_full:
            self._pause()
        return is_full

    def _wake(self, _done: object = None) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _pause(self) -> None:
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Read on after ``_pause``, unless there is still a reason for it."""
        if self._transport is None or self._reserving is not None or self._turns.is_full(is_known=self.is_known) or self._is_closing():
            return
        if self._frames.left >= BEGIN_BYTES:
            self._take_later()
        else:
            self._is_paused = False
            self._transport.resume_reading()

    def _give_back(self, request: Request) -> None:
        if request.owner is not None:
            self._door.memory.give_back(len(request.data), request.owner)

    # ------------------------------------------------------------ answers

    async def _run(self, transport: asyncio.Transport) -> None:
        """Answer one request after the other."""
        turns, until_s = self._turns, 0.0
        try:
            while not self.is_ending and (turns.queued or turns.owed or not self._door.draining):
                step = turns.next(is_raw=self.is_raw)
                if isinstance(step, Answer):
                    await self._finish(transport, step)
                elif step is not None:
                    answered = self._answer(transport, step)
                    del step  # it is let go of while its answer is sent
                    await answered
                    if turns.queued and self._loop.time() >= until_s:
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
            self._let_go()
            if self._transport is not None:  # otherwise it is another door's
                transport.close()

    def _let_go(self) -> None:
        """The connection ends: answers that are there take no resources any more, and no other one is waited for."""
        for owed in self._turns.owed:
            if not owed.done():
                owed.cancel()
                continue
            with contextlib.suppress(Exception, asyncio.CancelledError):  # of a call that has ended itself
                if (call := owed.result().call) is not None:
                    call.end()

    def _owe(self, answer: Answer) -> None:
        """Send an answer once those before it are sent, and it is there."""
        if answer.later is not None:
            answer.later.add_done_callback(self._wake)
        self._turns.owe(Ready(answer) if answer.later is None else answer.later)

    def _answered_at_once(self, frame: Buffer) -> bool:
        """Answer a request that waits for nothing, past the task: its turns of the loop take longer than a small append."""
        transport, turns = self._transport, self._turns
        is_idle = self._woken is not None and not self._woken.done() and not turns.queued
        if not is_idle or transport is None or self._writable is not None or self.is_raw or self._door.draining:
            return False
        if len(turns.owed) >= OWED_COUNT_MAX:
            return False
        try:
            answer = self._dispatcher.begin(self, frame)
        except UnsupportedApi:
            return False
        except (LogdbError, ConnectionError) as error:
            self._refuse(str(error))
            return True
        if isinstance(answer, Call):
            answer.values = {}  # they are borrowed from a buffer that others have next
            self._begun = answer
            return False
        self.is_new = False
        self._since_s = self._door.now_s()  # and no earlier look at it is needed
        if turns.owed or answer.later is not None:
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

    async def _answer(self, transport: asyncio.Transport, request: Request) -> None:
        self._is_busy = True
        begun, self._begun = self._begun, None
        try:
            if self.is_raw:
                answer = await self._raw_answer(bytes(request.data))
            else:
                begin = begun or self._dispatcher.begin(self, request.data)
                answer = await self._dispatcher.finish(begin, request.data) if isinstance(begin, Call) else begin
                del begin
        finally:
            del begun
            self._give_back(request)
            self._turns.done(request)
        del request  # its memory is not this one's any more while the client reads the answer
        if self._turns.owed or answer.later is not None:
            self._owe(answer)
            if self._is_paused:
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
        self._is_busy, self.is_new = bool(self._turns.owed), self.is_new and not self.is_known
        self._begin_wait()
        if self._is_paused:
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
        is_begun = self._frames.is_begun  # of what is left beyond that, it is we who have not looked at it
        if self._reserving is not None or (self._is_busy and (not is_begun or self._turns.is_full(is_known=self.is_known))):
            return None
        if self.is_new and not self._is_busy:
            return self._began_s + limits.header_timeout_ms / 1000
        return self._since_s + (limits.body_timeout_ms if is_begun else limits.keep_alive_ms) / 1000

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
