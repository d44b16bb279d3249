"""The protocol of one connection, without I/O: bytes become frames, and answers leave in the order of their requests.

::

    bytes ──► Frames ──► frame ──► Turns ──► a request begins ──► its answer ──► Turns ──► answers in their order

``Frames`` and ``Turns`` have no socket, no loop, no thread and no clock.  A test drives them with bytes.

States of ``Frames``::

    state      what has come                        the caller's next step                       it becomes
    BETWEEN    frames, or the first bytes of one    ``next_frame``; None: ``keep``, ``receive``  BETWEEN, BEGUN, REFUSED, FOREIGN
    BEGUN      ``begun``, a part of a long frame    ``fill`` with memory of ``room_bytes``       FILLING
    FILLING    a part, which is in that memory      read to ``unfilled``, then ``filled``        FILLING, BEGUN, BETWEEN
    REFUSED    a frame that is too long             close the connection                         the end
    FOREIGN    the begin of an HTTP request         give the connection to that listener         the end
"""

import struct
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from logdb.model import Buffer
from logdb_kafka_api.limits import SMALL_BYTES

PRODUCE = 0
"""The API whose frames may be long, and whose requests may begin while earlier ones wait for replicas."""
QUEUED_COUNT_MAX, QUEUED_BYTES_MAX = 64, 1 << 20
UNAUTHENTICATED_COUNT_MAX = 4
OWED_COUNT_MAX = 8  # clients of Kafka have five requests under way

_SIZE_AND_KEY = struct.Struct(">ih")
_SIZE, _KEY = struct.Struct(">i"), struct.Struct(">h")
BEGIN_BYTES = _SIZE_AND_KEY.size
"""With so many bytes a frame is begun; ``Frames.left`` of fewer wait for more."""
_GROWTH = 5  # a frame has so many times the memory of what has come of it: 64 KiB become 256 KiB, and what is around them
_COPIED_BYTES_MAX = 4 << 10  # a smaller frame is read faster as bytes
_HTTP = frozenset((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"PATC", b"OPTI"))
"""The begins of HTTP requests; as the size of a frame each is over a gigabyte."""

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class State(Enum):
    """Of ``Frames``; see above."""

    BETWEEN = "between"
    BEGUN = "begun"
    FILLING = "filling"
    REFUSED = "refused"
    FOREIGN = "foreign"


class Frames:
    """The frames in the bytes that a client sends.

    ======================= ============================ ==========================================================
    field                   changed by                   to be trusted
    ======================= ============================ ==========================================================
    ``state``               every method                 always
    ``key``                 ``next_frame``               of the frame that came last, or has begun; of a message of a
                                                         SASL exchange it is any number
    ``size``                ``next_frame``               of a frame that has begun, without the size itself
    ``begun``               ``next_frame``, ``filled``   BEGUN: what has come of the frame; borrowed from the caller's
                                                         buffer, or the memory that was given last
    ``reason``              ``next_frame``               REFUSED: why
    ``left``                ``receive``, ``next_frame``  BETWEEN: the bytes that have come and belong to later frames
    ``_data``, ``_at``      ``receive``, ``next_frame``  BETWEEN: what has come, and where the next frame begins
    ``_room``, ``_filled``  ``fill``, ``filled``         FILLING: the memory, and how much of it has come
    ======================= ============================ ==========================================================
    """

    def __init__(self, size_max: Callable[[int], int], any_size_max: int, *, may_be_foreign: bool = True) -> None:
        """Nothing has come.

        Args:
            size_max: The longest frame of an API, by its key.
            any_size_max: A frame of any API may be so long: then ``size_max`` is not asked.
            may_be_foreign: The first bytes may be those of an HTTP request.
        """
        self._size_max, self._any_size_max, self._may_be_foreign = size_max, any_size_max, may_be_foreign
        self.state, self.key, self.size, self.reason = State.BETWEEN, 0, 0, ""
        self.begun: Buffer = b""
        self._data, self._at, self.left = memoryview(b""), 0, 0
        self._room: bytearray | memoryview = bytearray()
        self._filled = 0

    # ------------------------------------------------------------ BETWEEN

    def receive(self, data: memoryview) -> None:
        """Bytes that have come; borrowed until ``keep``."""
        self._data = memoryview(bytes(self.unread) + data) if self.left else data
        self._at, self.left = 0, len(self._data)

    def next_frame(self) -> Buffer | None:
        """The next frame, without its size; None: it has not come whole, or ``state`` says why.

        A frame of more than 4 KiB is borrowed from what was received.
        """
        at, left = self._at, self.left
        if left < BEGIN_BYTES:
            return None
        size, self.key = _SIZE_AND_KEY.unpack_from(self._data, at)
        if not 2 <= size <= self._any_size_max and not 2 <= size <= self._size_max(self.key):
            self._refuse(size)
            return None
        self._may_be_foreign = False
        begin = at + _SIZE.size
        if left < _SIZE.size + size:
            self.size, self.begun, self.state = size, self._data[begin:], State.BEGUN
            self._data, self._at, self.left = memoryview(b""), 0, 0
            return None
        self._at = end = begin + size
        self.left = left - _SIZE.size - size
        return self._data[begin:end] if size > _COPIED_BYTES_MAX else bytes(self._data[begin:end])

    def _refuse(self, size: int) -> None:
        if self._may_be_foreign and bytes(self._data[: len(b"POST")]) in _HTTP:
            self.state = State.FOREIGN
        else:
            self.state = State.REFUSED
            self.reason = f"a frame of {size} bytes for the API {self.key}: must be at most {self._size_max(self.key)}"

    def keep(self) -> None:
        """Copy what is borrowed and belongs to frames that were not asked for."""
        self._data, self._at = memoryview(bytes(self.unread)), 0

    @property
    def unread(self) -> memoryview:
        """What has come, from the next frame on."""
        return self._data[self._at :]

    @property
    def is_begun(self) -> bool:
        """Whether the client has to send the rest of a frame."""
        return self.state is State.BEGUN or self.state is State.FILLING or 0 < self.left < BEGIN_BYTES

    # ------------------------------------------------------------ BEGUN, FILLING

    @property
    def room_bytes(self) -> int:
        """The memory that a frame in BEGUN has next: it grows with what has come, so that a length alone costs little."""
        return min(self.size, max(SMALL_BYTES, _GROWTH * len(self.begun)))

    def own_begun(self) -> None:
        """Copy ``begun`` if the caller's buffer has it: other bytes come there before there is memory."""
        if self.begun is not self._room:
            self.begun = bytes(self.begun)

    def fill(self, room: bytearray | memoryview) -> None:
        """Receive to ``room``, of ``room_bytes``; what has come is copied there."""
        self._filled = len(self.begun)
        room[: self._filled] = self.begun
        self._room, self.begun, self.state = room, b"", State.FILLING

    @property
    def unfilled(self) -> memoryview:
        """Where the next bytes of the frame belong."""
        return memoryview(self._room)[self._filled :]

    @property
    def filled_bytes(self) -> int:
        """How much of the frame has come."""
        return self._filled

    def filled(self, count: int) -> bytearray | memoryview | None:
        """``count`` bytes have come to ``unfilled``.

        Returns:
            The whole frame, in the memory that was given; None: more of it is to come.
        """
        self._filled += count
        room = self._room
        if self._filled == self.size:
            self._room, self.state = bytearray(), State.BETWEEN
            return room
        if self._filled == len(room):
            self.begun, self.state = room, State.BEGUN
        return None


class Request(NamedTuple):
    """A frame that waits for its turn; ``owner``: for whom its memory is counted, None: it is not."""

    data: bytes | bytearray
    owner: Hashable


class Pending(Protocol[A_co]):
    """An answer that comes later, such as a future."""

    def done(self) -> bool: ...

    def result(self) -> A_co: ...

    def cancel(self) -> object: ...


class Ready(Generic[A]):
    """An answer that is there, and waits for those before it."""

    def __init__(self, answer: A) -> None:
        self._answer = answer

    def done(self) -> bool:
        return True

    def result(self) -> A:
        return self._answer

    def cancel(self) -> None:
        pass


class Turns(Generic[A]):
    """The requests of a connection in the order in which they came, and their answers in that order.

    A request begins once all before it are answered.  A Produce begins, too, while Produces before it wait for replicas, up to a number.

    ================ ============================ ================================================================
    field            changed by                   to be trusted
    ================ ============================ ================================================================
    ``queued``       ``put``, ``next``            always: requests that were received and not begun
    ``queued_bytes`` ``put``, ``done``            always: of those, and of the one that is worked on
    ``_small_bytes`` the same                     always: of those of them whose memory is not counted elsewhere
    ``owed``         ``owe``, ``next``            always: answers to requests that were carried out, in their order
    ================ ============================ ================================================================
    """

    def __init__(self) -> None:
        self.queued: deque[Request] = deque()
        self.owed: deque[Pending[A]] = deque()
        self.queued_bytes = self._small_bytes = 0

    def put(self, request: Request) -> None:
        """A request has come."""
        self.queued.append(request)
        self._count(request, len(request.data))

    def is_full(self, *, is_known: bool) -> bool:
        """Whether to receive no more; ``is_known``: the client has authenticated, or need not."""
        if self.queued_bytes >= QUEUED_BYTES_MAX or self._small_bytes >= SMALL_BYTES:
            return True
        return len(self.queued) >= (QUEUED_COUNT_MAX if is_known else UNAUTHENTICATED_COUNT_MAX)

    def next(self, *, is_raw: bool) -> A | Request | None:
        """Take what comes next: an answer that is sent now, or else a request that begins now; None: neither is there.

        The bytes of a request count until it is ``done``.

        Args:
            is_raw: The next request is a message of a SASL exchange, without a header.

        Raises:
            errors of the answer.
        """
        queued, owed = self.queued, self.owed
        if owed:
            if owed[0].done():
                return owed.popleft().result()
            is_produce = bool(queued) and not is_raw and _KEY.unpack_from(queued[0].data)[0] == PRODUCE
            return queued.popleft() if is_produce and len(owed) < OWED_COUNT_MAX else None
        return queued.popleft() if queued else None

    def done(self, request: Request) -> None:
        """A request was carried out, or is dropped: its bytes count no longer."""
        self._count(request, -len(request.data))

    def _count(self, request: Request, size_bytes: int) -> None:
        self.queued_bytes += size_bytes
        if request.owner is None:
            self._small_bytes += size_bytes

    def owe(self, answer: Pending[A]) -> None:
        """Send an answer once those before it are sent, and it is there."""
        self.owed.append(answer)
