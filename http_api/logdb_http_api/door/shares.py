"""What a door has only so much of, and its clients share: bytes of memory, requests that are worked on, threads.

Knows counts, and the owners that they are counted for.  Does not know what is counted, nor who an owner is (``request``).

    field      says                                                      changed by
    total      how much there is                                         nobody
    taken      how much of it is taken                                   take, take_now, give_back
    _of        how much each owner has taken; owners of nothing are out  the same
    _waiting   the owners that wait, the one whose turn is next first,   take, _serve
               each with what it waits for, in order

An owner takes only as much as it leaves free for others: one owner alone gets half, two get a third each, and so on.  However many
take what they can get, the next one finds room.  What is more than that is taken only where nothing is taken at all.

What is given back goes to the owners that wait, in turn: one that waits for a hundred times as much waits for itself.

Threading: one event loop.

Source: A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998).
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import TypeAlias

from logdb_http_api.errors import ApiError

Owner: TypeAlias = Hashable
WAIT_S = 5.0


class Shares:
    """So much of something; see above."""

    def __init__(self, total: int, what: str, *, wait_s: float | None = None) -> None:
        """Nothing of it is taken yet.

        Args:
            what: Its name, for those who are refused.
            wait_s: How long ``take`` waits; None: until there is room.
        """
        self.total, self.taken = total, 0
        self._what, self._wait_s = what, wait_s
        self._of: dict[Owner, int] = {}
        self._waiting: dict[Owner, deque[tuple[int, asyncio.Future[None]]]] = {}

    def has_room(self, count: int, owner: Owner) -> bool:
        """Whether ``take`` would not wait."""
        return owner not in self._waiting and self._fits(count, owner)

    def _fits(self, count: int, owner: Owner) -> bool:
        return not self.taken or self._of.get(owner, 0) + count <= self.total - self.taken

    def take_now(self, count: int, owner: Owner) -> None:
        """Take so much, whether there is room or not."""
        if count:
            self.taken += count
            self._of[owner] = self._of.get(owner, 0) + count

    async def take(self, count: int, owner: Owner) -> None:
        """Take so much, until ``give_back``.

        Raises:
            ApiError: There is no room, and none came in time; 503.
        """
        if self.has_room(count, owner):
            self.take_now(count, owner)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((count, turn))
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():
                self.give_back(count, owner)  # its turn came in the same moment
            if isinstance(error, asyncio.CancelledError):
                raise
            raise self.refusal(count, owner) from None
        finally:
            turn.cancel()
            self._serve()

    def refusal(self, count: int, owner: Owner) -> ApiError:
        """What who finds no room is told."""
        own = self._of.get(owner, 0)
        return ApiError(503, 503, f"no room for {count} {self._what}: {self.taken} of {self.total} are taken, {own} of them by you")

    def give_back(self, count: int, owner: Owner) -> None:
        """What was taken is free again."""
        if not count:
            return
        self.taken -= count
        left = self._of[owner] - count
        if left:
            self._of[owner] = left
        else:
            del self._of[owner]
        if self._waiting:
            self._serve()

    def _serve(self) -> None:
        """Give what there is to those who wait, one owner after the other."""
        while (owner := next(filter(self._is_next, list(self._waiting)), None)) is not None:
            turns = self._waiting.pop(owner)
            count, turn = turns.popleft()
            self.take_now(count, owner)
            turn.set_result(None)
            if turns:
                self._waiting[owner] = turns  # behind all others

    def _is_next(self, owner: Owner) -> bool:
        """Whether there is room for what an owner waits for; forgets what it waits for no more."""
        turns = self._waiting[owner]
        while turns and turns[0][1].done():
            turns.popleft()
        if not turns:
            del self._waiting[owner]
            return False
        return self._fits(turns[0][0], owner)
