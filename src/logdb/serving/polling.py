"""A selector that polls for a moment before it sleeps, while events come one soon after the other.

A client that waits for each answer sends its next request 50 to 100 us later.  A process that slept meanwhile is woken in about as long:
of the time of one acknowledged record that was half, and no less processor.  What has not come by then may take long: the selector sleeps,
and polls again once enough waits in a row were short.  An idle server never polls.

Source: the kernel does the same for virtual machines (halt polling, its Documentation/virt/kvm/halt-polling.rst).

Knows when events came; does not know of whom, or what they are.

Threading: the event loop that it belongs to.
"""

import asyncio
import os
import selectors
import sys
import time

_POLL_S = 300e-6  # longer than such a client takes, short beside a disk's answer
_SHORT_WAITS = 4  # in a row, before it polls: what comes by chance costs at most one poll in five waits


class PollingSelector(selectors.DefaultSelector):
    """As the system's selector; see the module.  It has a processor for as long as it polls."""

    def __init__(self) -> None:
        super().__init__()
        self._short_waits = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The keys that are ready, and for which events; waits up to ``timeout`` seconds, None: for ever."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        began_s = time.monotonic()
        if self._short_waits >= _SHORT_WAITS:
            until_s = began_s + (_POLL_S if timeout is None else min(timeout, _POLL_S))
            while time.monotonic() < until_s:
                if ready := super().select(0):
                    return ready
            timeout = None if timeout is None else max(0, timeout - _POLL_S)
        ready = super().select(timeout)
        self._short_waits = self._short_waits + 1 if time.monotonic() - began_s < _POLL_S else 0
        return ready


def polling_loop() -> asyncio.AbstractEventLoop:
    """An event loop for a process that does nothing else.

    Its selector polls on Linux, where that was measured, unless there is one processor, which the client needs.
    """
    polls = sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1
    return asyncio.SelectorEventLoop(PollingSelector() if polls else None)
