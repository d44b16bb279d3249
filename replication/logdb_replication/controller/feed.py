"""The state machine of a controller, and the commands that it applied last, for brokers that watch.

Threading: ``apply``, ``snapshot`` and ``restore``: the quorum's thread.  ``after``, ``state``: any.
"""

import itertools
import threading
from collections import deque

from logdb.threads import renewed
from logdb_replication.controller import state as states
from logdb_replication.controller.machine import Machine
from logdb_replication.controller.messages import Watched
from logdb_replication.controller.state import ClusterState

KEPT_SIZE_BYTES_MAX = 8 << 20
REPLY_SIZE_BYTES_MAX = 1 << 20


class Feed:
    """A machine that is watched.

    Field            Changed by          Under        Trusted
    ``_machine``     apply, restore      ``_grown``   its state: of any thread
    ``_commands``    apply, restore      ``_grown``   all that were applied in (``_begin``, ``_end``], by index
    """

    def __init__(self, cluster_id: str) -> None:
        self._machine = Machine(cluster_id)
        self._grown = renewed(threading.Condition())
        self._commands: deque[tuple[int, bytes]] = deque()
        self._begin = self._end = self._size_bytes = 0

    @property
    def state(self) -> ClusterState:
        return self._machine.state

    def apply(self, index: int, command: bytes) -> bytes:
        """See ``Machine.apply``."""
        answer = self._machine.apply(index, command)
        with self._grown:
            self._commands.append((index, command))
            self._end = index
            self._size_bytes += len(command)
            while self._size_bytes > KEPT_SIZE_BYTES_MAX:
                self._begin, oldest = self._commands.popleft()
                self._size_bytes -= len(oldest)
            self._grown.notify_all()
        return answer

    def snapshot(self) -> bytes:
        return self._machine.snapshot()

    def restore(self, index: int, state: bytes) -> None:
        """See ``Machine.restore``."""
        self._machine.restore(index, state)
        with self._grown:
            self._commands.clear()
            self._size_bytes, self._begin, self._end = 0, self.state.index, self.state.index
            self._grown.notify_all()

    def wake(self) -> None:
        """Let those that wait look again."""
        with self._grown:
            self._grown.notify_all()

    def after(self, since: int, wait_s: float) -> Watched:
        """What was applied after an index, once there is something, or the time is over."""
        with self._grown:
            if self._end <= since:
                self._grown.wait(wait_s)
            if self._end <= since:
                return Watched(since)
            if since >= self._begin:
                return self._commands_after(since)
            state = self.state
        return Watched(state.index, states.encode(state))

    def _commands_after(self, since: int) -> Watched:
        new = list(itertools.takewhile(lambda item: item[0] > since, reversed(self._commands)))
        found, size_bytes = [new.pop()], 0
        while new and (size_bytes := size_bytes + len(new[-1][1])) <= REPLY_SIZE_BYTES_MAX:
            found.append(new.pop())
        return Watched(found[-1][0], None, found)
