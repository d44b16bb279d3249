"""A task in its thread: how it starts, pauses, fails and stops.

::

                 start             pause, resume           stop
    UNASSIGNED ────────► RUNNING ◄──────────────► PAUSED ────────► UNASSIGNED
                            │ an error                │
                            └──────────► FAILED ◄─────┘

Isolation: each task has a thread of its own.  An error ends that thread alone; a task that blocks holds up nothing but itself, as long
as it lets other threads run.  ``isolation`` has tasks in processes, which may crash.  A task
that does not end within ``task.shutdown.graceful.timeout.ms`` is abandoned: it reports nothing more, its producer and its consumer
are closed, and a later task of the same id has fenced its transactional id or its place in the group.
"""

import contextlib
import logging
import threading
import traceback
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

from logdb_connect.errors import ConnectError
from logdb_connect.processing import ErrorHandler

logger = logging.getLogger(__name__)

State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]
Target = Literal["STARTED", "PAUSED", "STOPPED"]

_PAUSED_S = 0.5
RETRY_BACKOFF_S = 0.1
RETRY_BACKOFF_S_MAX = 5.0


class TaskId(NamedTuple):
    """A connector's name and the number of a task."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


Report = Callable[[State, str | None], None]
"""Told of each state of a task or a connector; the trace with FAILED."""


class TaskFailed(Exception):
    """The task has failed in another process, which has logged why.

    Attributes:
        trace: Of its error.
    """

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace


class Stopping(Exception):
    """The task is to end, wherever it is."""


class TaskRunner:
    """Runs one task.  Threading: ``_run`` in the task's thread, all others from any.

    Attributes:
        counts: Metrics, by name; the task's thread changes them.
        handler: Counts errors; None until the task has begun.
    """

    def __init__(self, task_id: TaskId, target: Target, report: Report) -> None:
        self.id, self._target, self._report = task_id, target, report
        self.state: State = "UNASSIGNED"
        self.trace: str | None = None
        self.counts: dict[str, int] = {}
        self.handler: ErrorHandler | None = None
        self._abandoned = False
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._stop = False
        self._whole = False  # the task ended between two calls, none of which failed
        self._thread = threading.Thread(target=self._main, name=f"connect-{task_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def transition(self, target: Target) -> None:
        """Pause or resume."""
        with self._changed:
            self._target = target
            self._changed.notify_all()

    def request_stop(self) -> None:
        """Have the task end; ``join`` waits for it."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Whether the task has ended in time."""
        return self._ended.wait(timeout_s)

    def abandon(self) -> None:
        """Leave a task alone that does not end: nothing that it does later counts."""
        logger.error("task %s does not stop; its thread is abandoned", self.id)
        self.report("UNASSIGNED")
        self._abandoned = True
        threading.Thread(target=self._cut_off, name=f"connect-{self.id}-abandoned", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return not self._ended.is_set()

    # ------------------------------------------------------------ in the thread

    def is_stopping(self) -> bool:
        return self._stop

    def wait(self, seconds: float) -> None:
        """Sleep until the task is to stop, or its target changes."""
        with self._changed:
            if not self._stop:
                self._changed.wait(seconds)

    def _main(self) -> None:
        try:
            try:
                self._run()
                self._whole = True
            finally:
                self._close()
        except Stopping:
            self.report("UNASSIGNED")
        except TaskFailed as error:
            self.report("FAILED", error.trace)
        except BaseException as error:  # noqa: BLE001 -- whatever a plugin raises makes its task FAILED
            if not self._abandoned:
                logger.error("task %s failed: %s: %s", self.id, type(error).__name__, error)
            self.report("FAILED", "".join(traceback.format_exception(error)))
        else:
            self.report("UNASSIGNED")
        finally:
            self._ended.set()

    @abstractmethod
    def _run(self) -> None:
        """Run until the task is to stop."""

    @abstractmethod
    def _close(self) -> None:
        """Release what ``_run`` has opened."""

    @abstractmethod
    def _cut_off(self) -> None:
        """In another thread: take producer and consumer away from a task that does not end."""

    def report(self, state: State, trace: str | None = None) -> None:
        if not self._abandoned and (state, trace) != (self.state, self.trace):
            self.state, self.trace = state, trace
            self._report(state, trace)

    def _await_resumed(self) -> bool:
        """Report the state; wait while the target is PAUSED.  Whether to go on."""
        while not self._stop and self.is_paused():
            self.report("PAUSED")
            with self._changed:
                if self.is_paused():
                    self._changed.wait(_PAUSED_S)
        if not self._stop:
            self.report("RUNNING")
        return not self._stop

    def count(self, **more: int) -> None:
        """Add to metrics."""
        for name, value in more.items():
            self.counts[name] = self.counts.get(name, 0) + value

    def is_paused(self) -> bool:
        return self._target != "STARTED"


class Backoff:
    """Pauses between retries: 100 ms, then twice as long each time, up to 5 s."""

    def __init__(self, task: TaskRunner) -> None:
        self._task, self._seconds = task, RETRY_BACKOFF_S

    def pause(self) -> None:
        """Wait.

        Raises:
            Stopping: The task is to end.
        """
        self._task.wait(self._seconds)
        self._seconds = min(2 * self._seconds, RETRY_BACKOFF_S_MAX)
        if self._task.is_stopping():
            raise Stopping

    def reset(self) -> None:
        self._seconds = RETRY_BACKOFF_S


def quietly(what: Callable[[], object], name: str) -> None:
    """Close something; an error is logged, since another one comes first."""
    try:
        with contextlib.suppress(Stopping):
            what()
    except Exception as error:  # noqa: BLE001 -- of a plugin
        logger.warning("%s: %s: %s", name, type(error).__name__, error)


class TooManyTasks(ConnectError):
    """A connector made more tasks than ``tasks.max``."""
