"""The time that clients have: the event loop's, without the times for which it had no turn to take what they have sent.

A machine that is short of processors would otherwise close the connections of clients that did nothing wrong.  A timer that comes late
says for how long the loop had no turn.  So timers have to come often while a client's time runs: four times in it.
"""

import asyncio


class LoopTime:
    """Used on one event loop."""

    LOOKS = 4
    """How often to look at a client in the time that it has."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """``loop``: None: the one that runs at each call."""
        self._loop, self._late_s = loop, 0.0

    def now_s(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time() - self._late_s

    def _of_loop_s(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()

    def on_loop_s(self, time_s: float) -> float:
        """A time of ``now_s`` as one of the loop's, for ``call_at``."""
        return time_s + self._late_s

    def came(self, timer: asyncio.TimerHandle) -> None:
        """A timer has come, perhaps late."""
        self._late_s += max(0.0, self._of_loop_s() - timer.when())
