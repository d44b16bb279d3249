"""One request on its way through its handler: its values, the session of its principal, and what it may wait for.

Threading: the event loop of the door; ``call`` and ``change`` call functions elsewhere.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from logdb.serving.resources import RequestResources
from logdb_kafka_api.client import Client
from logdb_kafka_api.frames import RequestHeader
from logdb_kafka_api.limits import SMALL_BYTES
from logdb_kafka_api.resources import KafkaResources

if TYPE_CHECKING:
    from logdb.access.session import AuthorizedSession

_EXPANSION = 32  # measured with the most elements in a MiB: 10 to 18 of Fetch, 14 of OffsetCommit, 32 of JoinGroup, 39 of Metadata
_DECODED_BYTES_MAX = 48 << 20  # of as many elements as a request may have
_OF_MEMORY = 4

R = TypeVar("R")
Values: TypeAlias = dict[str, Any]
E = TypeVar("E")
Handler: TypeAlias = "Callable[[Call], Awaitable[Values | None]]"
"""Answers a request with the values of its response; None: the client wants no answer."""
AtOnce: TypeAlias = "Callable[[Call], tuple[Values | None] | None]"
"""As ``Handler``, of a request that waits for nothing; None: nothing was done, since it may wait."""


def each_once(asked: Iterable[Any], *fields: str) -> list[Any]:
    """What a request names, without repetitions: an answer that has each once is as large as what there is, not as the request.

    ``fields``: those of a struct that name it; none: what is asked is a name itself.
    """
    return list({tuple(one[field] for field in fields) if fields else one: one for one in asked}.values())


class Call(RequestResources):
    """What a handler is given.

    Attributes:
        version: Of the request, and of its answer.
        client_id: The client's name for itself.
        body_at: Where the values begin in the request's frame.
        values: The request, once it is decoded.
        session: Of the principal that the connection was authenticated as.
        is_large: It has very many elements: it is worked on in threads, and its values count as memory until they are let go of.
        replicated: What the answer waits for, of a request that is done otherwise; it completes the answer's values.
    """

    door: KafkaResources

    replicated: "Callable[[], Awaitable[None]] | None" = None
    is_large = False

    def __init__(
        self, door: KafkaResources, client: Client, header: RequestHeader, body_at: int, session: "AuthorizedSession", values: Values
    ) -> None:
        super().__init__(door, session.owner)
        self.client, self.session, self.header, self.body_at, self.values = client, session, header, body_at, values
        self.version, self.client_id = header.version, header.client_id

    async def begin(self) -> None:
        """Be one of the requests in progress, once there is room for one more."""
        await self.door.requests.take(1, self.owner)
        self._slot_count = 1

    async def begin_large(self, size_bytes: int) -> None:
        """A frame of that size has very many elements: take memory for its values, which are several times as large.

        With its frame it takes a quarter of all memory at most: an owner has room for that.

        Raises:
            NoRoom: There is no memory.
        """
        self.is_large = True
        most = max(0, self.door.memory.total // _OF_MEMORY - size_bytes)
        await self.take_memory(min(_EXPANSION * size_bytes, _DECODED_BYTES_MAX, most))

    async def aside(self, function: Callable[..., R], *args: Any) -> R:
        """Call what takes as long as the request has elements: in a thread if it is large."""
        return await self.call(function, *args) if self.is_large else function(*args)

    def each(self, asked: Iterable[E]) -> Iterator[E]:
        """What is done one after the other in a thread, for as long as the client is there.

        Raises:
            Closed: The client is gone, or the door has cut it off.
        """
        for one in asked:
            self.session.go_on()
            yield one

    async def finish(self, size_bytes: int) -> None:
        """An answer of that size is sent next, as fast as the client reads: count its memory, and let go of the request's.

        Raises:
            NoRoom: There is no memory.
        """
        self.values = {}
        if self.is_large or size_bytes > max(self._taken_bytes, SMALL_BYTES):
            await self.keep_memory(size_bytes)
