"""A broker's own copy of the metadata: it watches the controllers, and applies what they have applied.

Its index never goes back.  It may be behind the controllers, never beside them.

Threading: ``state``, ``wait_for``, ``close``: any thread.  ``foresee`` is called in the thread that watches, ``changed`` in another:
it may wait for a disk.
"""

import logging
import threading
from collections.abc import Callable

from logdb.errors import Closed, ControllerUnavailable, LogdbError
from logdb.threads import renewed, started
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.errors import UnknownCommand
from logdb_replication.controller.machine import Machine
from logdb_replication.controller.messages import Watched
from logdb_replication.controller.state import ClusterState

logger = logging.getLogger(__name__)

WAIT_MS = 2_000  # and how old the copy may be if the controller hangs that it watches
PAUSE_S = 0.1


class StateCopy:
    """A copy of the state, kept by a thread; another one tells it.

    Field          Changed by      Under         Trusted
    ``_machine``   the watcher     none          ``state``: of any thread, a value
    ``_told``      the teller      ``_moved``    the index up to which ``changed`` has returned
    ``failure``    the watcher     ``_moved``    why the copy stays as it is; None: it goes on
    """

    def __init__(
        self, client: ControllerClient, changed: Callable[[ClusterState], None], foresee: Callable[[ClusterState], None] | None = None
    ) -> None:
        """Begin to watch.

        Args:
            changed: Called with the newest state, in order; several commands may have led to it.  An error that it raises is logged.
            foresee: Called with each state before, even while ``changed`` has not returned for an earlier one; it must not wait.
        """
        self._client, self._changed, self._foresee = client, changed, foresee
        self._machine = Machine(client.cluster)
        self._moved = renewed(threading.Condition())
        self._told = 0
        self._closed = renewed(threading.Event())
        self.failure: LogdbError | None = None
        self._threads = (started("logdb-metadata", self._run), started("logdb-changes", self._tell))

    @property
    def state(self) -> ClusterState:
        return self._machine.state

    def wait_for(self, index: int, timeout_s: float) -> ClusterState:
        """The state once it is at ``index``, that of an answer, and ``changed`` has returned for it.

        Raises:
            ControllerUnavailable: It is not in time.
            UnknownCommand: It never will be: a controller of a newer version has changed it.
            Closed: The copy was closed.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._told >= index or self.failure or self._closed.is_set(), timeout_s)
            if self._told >= index:
                return self.state
            if self._closed.is_set():
                raise Closed("the copy of the cluster's metadata was closed")
            raise self.failure or ControllerUnavailable(round(timeout_s * 1000), f"the metadata are at index {self._told}, not at {index}")

    def close(self) -> None:
        """Watch no longer; the client must be closed first, or a watch is waited for."""
        self._closed.set()
        with self._moved:
            self._moved.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while not self._closed.is_set() and self.failure is None:
            try:
                self._take(self._client.watch(self._machine.state.index, WAIT_MS))
            except Closed:
                return
            except ControllerUnavailable as error:
                logger.info("the metadata stay at index %d: %s", self._machine.state.index, error)
                self._closed.wait(PAUSE_S)
            except (LogdbError, ValueError) as error:
                logger.critical("the metadata stay at index %d: %s", self._machine.state.index, error)
                with self._moved:
                    self.failure = error if isinstance(error, LogdbError) else UnknownCommand(str(error))
                    self._moved.notify_all()

    def _take(self, found: Watched) -> None:
        before = self._machine.state.index
        if found.snapshot is not None and found.index > before:
            self._machine.restore(found.index, found.snapshot)
        for index, command in found.commands:
            if index > self._machine.state.index:
                self._machine.apply(index, command)
        if self._machine.state.index == before:
            return
        if self._foresee is not None:
            _call(self._foresee, self._machine.state)
        with self._moved:
            self._moved.notify_all()

    def _tell(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._closed.is_set() or self._machine.state.index > self._told)
                if self._closed.is_set():
                    return
                state = self._machine.state
            _call(self._changed, state)
            with self._moved:
                self._told = state.index
                self._moved.notify_all()


def _call(take: Callable[[ClusterState], None], state: ClusterState) -> None:
    try:
        take(state)
    except Exception:
        logger.exception("the metadata at index %d", state.index)
