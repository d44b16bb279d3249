"""A task in a process of its own (``task.isolation=process``): the worker's side.

The process runs the whole task: plugin, converters, producer or consumer, with a client of its own.  A crash of the interpreter, an
``os._exit``, or C code that never returns ends or blocks that process alone.  The task is then FAILED, with the end of the process and
its last lines on standard error as its trace.  A task that does not stop in time is killed.

Messages, as ``isolated`` has them.  The process ends with the worker: its standard input ends, and on Linux the kernel kills it.

Threading: ``_run`` waits for the process in the task's thread; threads read its messages and errors; any thread sends.
"""

import contextlib
import json
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from logdb_connect.errors import ConnectError
from logdb_connect.plugin import Properties
from logdb_connect.runtime.tasks import Report, Target, TaskFailed, TaskId, TaskRunner, quietly

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-P", "-X", "faulthandler", "-c", "from logdb_connect.runtime import isolated; isolated.main()")
NEEDS_A_SERVER = (
    "task.isolation=process: bootstrap.servers names a directory, which this worker's process alone can write; serve the directory "
    "(logdb serve) and name the server"
)
_LINES_MAX, _LINE_LENGTH_MAX = 60, 2_000
_REST_S = 1.0
"""For what the process has written before its end."""


class IsolationSettings(NamedTuple):
    """What the process needs of its worker.

    ``worker``: its properties; ``group_id``: of its transactional ids; ``identity``: of a standalone one; ``runs``: called when the task
    runs; ``free``: frees what the process has left: its open transaction, or its place in the group;
    it is told whether the task was to stop.
    """

    worker: Mapping[str, str]
    group_id: str
    identity: str | None
    config: Mapping[str, str]
    used_topic: Callable[[str], None]
    owned_since: Callable[[float], bool]
    runs: Callable[[], object]
    free: Callable[[bool], None]


class IsolatedRunner(TaskRunner):
    """Runs a task in a process.

    Attributes:
        handler: The process's counts of errors, as it last told them.
    """

    def __init__(self, task_id: TaskId, target: Target, report: Report, *, properties: Properties, settings: IsolationSettings) -> None:
        super().__init__(task_id, target, report)
        self._properties, self._settings = properties, settings
        self._process: subprocess.Popen[bytes] | None = None
        self._saying = threading.Lock()
        self._failure: str | None = None
        self._is_done = False  # the process has said that the task has ended
        self._is_over = False  # the process has ended: other processes that have its output are not heard
        self._errors: deque[str] = deque(maxlen=_LINES_MAX)

    def transition(self, target: Target) -> None:
        super().transition(target)
        self._say(target=target)

    def request_stop(self) -> None:
        super().request_stop()
        self._say(stop=True)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        readers = [
            threading.Thread(target=read, args=(process,), name=f"connect-{self.id}-{name}", daemon=True)
            for name, read in (("stdout", self._read), ("stderr", self._read_errors))
        ]
        for reader in readers:
            reader.start()
        try:
            self._begin(process)
            _await_end(process)
        finally:
            _kill(process)
            for reader in readers:
                reader.join(_REST_S)
            self._is_over = True
            self._release(process)
        if self._is_done and self._failure is not None:
            raise TaskFailed(self._failure)
        if self._is_done:
            return
        quietly(partial(self._settings.free, self.is_stopping()), f"task {self.id}: free what its process has left")
        if not self.is_stopping():
            raise ConnectError(f"The process of the task {_end_of(process.returncode)}. Its last lines:\n{''.join(self._errors)}")

    def _begin(self, process: "subprocess.Popen[bytes]") -> None:
        """Send the job; what was said before the process was there is in it, or follows."""
        settings = self._settings
        job = pickle.dumps(
            {
                "path": sys.path,
                "level": logging.root.getEffectiveLevel(),
                "task": tuple(self.id),
                "worker": dict(settings.worker),
                "group_id": settings.group_id,
                "identity": settings.identity,
                "config": {**settings.config, "task.isolation": "thread"},
                "properties": dict(self._properties),
                "target": self._target,
            }
        )
        with self._saying, contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.write(struct.pack(">q", len(job)) + job)
            process.stdin.flush()
            self._process = process
        self._say(target=self._target)
        if self.is_stopping():
            self._say(stop=True)

    def _say(self, **message: Any) -> None:
        with self._saying, contextlib.suppress(OSError, ValueError):  # it has ended
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                self._process.stdin.flush()

    def _heard(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            (kind, value), *_ = message.items()
        except (ValueError, AttributeError):
            return  # the plugin has found the way to the worker, and is no worker
        match kind:
            case "state" if value == "FAILED":
                self._failure = str(message.get("trace"))
            case "state" if value != "UNASSIGNED":
                self.report(value)
                if value == "RUNNING":
                    quietly(self._settings.runs, f"task {self.id}: its offsets")
            case "counts":
                self.counts = dict(value)
                self.handler = SimpleNamespace(**message["errors"])  # type: ignore[assignment]  # for metrics alone
            case "topic":
                self._settings.used_topic(str(value))
            case "owned":
                self._say(owned=value, answer=self._settings.owned_since(float(message["since"])))
            case "log":
                logging.getLogger(str(value)).log(int(message["level"]), "%s", message["text"])
            case "ended":
                self._is_done = True

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if self._is_over:
                    return
                quietly(partial(self._heard, line), f"task {self.id}: a message of its process")

    def _read_errors(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            while line := lines.readline(_LINE_LENGTH_MAX):
                text = line.decode(errors="replace")
                self._errors.append(text)
                logger.warning("task %s: %s", self.id, text.rstrip())

    # ------------------------------------------------------------ the end

    def _close(self) -> None:
        """The process has ended."""

    def _cut_off(self) -> None:
        if (process := self._process) is not None:
            _kill(process)

    def _release(self, process: "subprocess.Popen[bytes]") -> None:
        with self._saying, contextlib.suppress(OSError):
            self._process = None
            assert process.stdin is not None
            process.stdin.close()


def _await_end(process: "subprocess.Popen[bytes]") -> None:
    """Wait, and leave its number to it: ``_kill`` still ends its group.

    The end of its output would come later: a process that the plugin has forked has the output, too.
    """
    if sys.platform == "darwin":  # Python has no waitid there
        process.wait()
    else:
        with contextlib.suppress(ChildProcessError):  # ``_cut_off`` has waited for it
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End it, with the processes that it has started: they are a process group."""
    if process.returncode is None:  # else its number may be another one's
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_of(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
