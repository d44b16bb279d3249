"""The limited resources that the clients of a server share: bytes of memory, requests in progress, threads.

    field      meaning                                                    changed by
    total      how much there is                                          nothing
    taken      how much of it is taken                                    take, take_now, give_back
    _of        how much each owner has taken; no entry: nothing           the same
    _waiting   the owners that wait, the next one first, each with the    take, _serve
               amounts that it waits for, in order

An owner takes at most as much as it leaves free for others: one owner alone gets half, two get a third each, and so on.  However many
owners take their share, the next one finds room.  A larger amount is taken only while nothing is taken.

What is given back goes to the waiting owners in turn: an owner that waits for a hundred amounts delays only itself.

Threading: one event loop.

Source: A. K. Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998).
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import TypeAlias

Owner: TypeAlias = Hashable
"""For whom an amount is counted: a principal, or the address of an anonymous one."""


class NoRoom(Exception):
    """A door cannot take a request, or wait on for it: it has no room, or it drains.  Each door has an answer of its protocol for that."""


class Shares:
    """One resource; see above."""

    def __init__(self, total: int, what: str, *, wait_s: float | None = None) -> None:
        """Nothing is taken yet.

        Args:
            what: Its name, for refusals.
            wait_s: How long ``take`` waits; None: until there is room.
        """
        self.total, self.taken = total, 0
        self._what, self._wait_s = what, wait_s
        self._of: dict[Owner, int] = {}
        self._waiting: dict[Owner, deque[tuple[int, asyncio.Future[None]]]] = {}

    def has_room(self, count: int, owner: Owner, *, ahead: bool = False) -> bool:
        """Whether ``take`` would not wait."""
        if not ahead and owner in self._waiting:
            return False
        return not self.taken or self._of.get(owner, 0) + count <= self.total - self.taken

    def take_if_room(self, count: int, owner: Owner, *, ahead: bool = False) -> bool:
        """Take an amount if ``has_room``; returns whether.  Each request comes here, so it calls neither that nor ``take_now``."""
        if (not ahead and owner in self._waiting) or (self.taken and self._of.get(owner, 0) + count > self.total - self.taken):
            return False
        if count:
            self.taken += count
            self._of[owner] = self._of.get(owner, 0) + count
        return True

    def take_now(self, count: int, owner: Owner) -> None:
        """Take an amount, even where there is no room."""
        if count:
            self.taken += count
            self._of[owner] = self._of.get(owner, 0) + count

    async def take(self, count: int, owner: Owner, *, ahead: bool = False) -> None:
        """Take an amount, until ``give_back``.

        Args:
            ahead: It is more of what the owner has taken a part of already, and comes before the owner's other amounts.

        Raises:
            NoRoom: There is no room, and none came in time.
        """
        if self.take_if_room(count, owner, ahead=ahead):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns = self._waiting.setdefault(owner, deque())
        (turns.appendleft if ahead else turns.append)((count, turn))
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

    def refusal(self, count: int, owner: Owner) -> NoRoom:
        """The error where there is no room."""
        own = self._of.get(owner, 0)
        return NoRoom(f"no room for {count} {self._what}: {self.taken} of {self.total} are taken, {own} of them by you")

    def give_back(self, count: int, owner: Owner) -> None:
        """An amount that was taken is free again."""
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
        """Give what is free to the waiting owners, one after the other."""
        while (owner := next(filter(self._is_next, list(self._waiting)), None)) is not None:
            turns = self._waiting.pop(owner)
            count, turn = turns.popleft()
            self.take_now(count, owner)
            turn.set_result(None)
            if turns:
                self._waiting[owner] = turns  # behind all others

    def _is_next(self, owner: Owner) -> bool:
        """Whether there is room for the next amount of an owner; forgets the amounts whose waits have ended."""
        turns = self._waiting[owner]
        while turns and turns[0][1].done():
            turns.popleft()
        if not turns:
            del self._waiting[owner]
            return False
        return self.has_room(turns[0][0], owner, ahead=True)
