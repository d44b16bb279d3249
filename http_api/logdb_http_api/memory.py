"""The memory that all requests of a door share.

Knows counts of bytes.  Does not know what is kept in them.
"""

import asyncio
from collections import deque

from logdb_http_api.errors import ApiError

_WAIT_S = 5.0


class Memory:
    """Bytes that may be taken; whoever finds none waits, and is refused after a while.  Used on one event loop."""

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes_max, self.taken_bytes = size_bytes_max, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def has_room(self, size_bytes: int) -> bool:
        """Whether ``take`` would not wait."""
        return not self._waiting and self.taken_bytes + size_bytes <= self.size_bytes_max

    async def take(self, size_bytes: int) -> None:
        """Take so many bytes, until ``give_back``.

        Raises:
            ApiError: There is no room, and none came in time; 503.
        """
        if self.has_room(size_bytes):
            self.taken_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        self._serve()
        try:
            async with asyncio.timeout(_WAIT_S):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():
                self.give_back(size_bytes)  # its turn came in the same moment
            if isinstance(error, asyncio.CancelledError):
                raise
            raise ApiError(503, 503, f"no room for {size_bytes} bytes: requests hold {self.taken_bytes} of {self.size_bytes_max}") from None
        finally:
            turn.cancel()
            self._serve()

    def give_back(self, size_bytes: int) -> None:
        self.taken_bytes -= size_bytes
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.done():
                if self.taken_bytes and self.taken_bytes + size_bytes > self.size_bytes_max:
                    return
                self.taken_bytes += size_bytes
                turn.set_result(None)
            self._waiting.popleft()
