"""A task in a process of its own: the side of the process.  ``isolation`` has the worker's.

Standard input: the length of a pickle, the pickle, the job; then lines of JSON: ``{"target": "PAUSED"}``, ``{"stop": true}``,
``{"owned": N, "answer": true}``.  Its end is the end of the worker: the process then ends at once, so that no task lives on beside
its successor.

Standard output: lines of JSON.  ``{"state": STATE, "trace": TEXT}``, ``{"counts": {…}, "errors": {…}}``, ``{"topic": NAME}``,
``{"owned": N, "since": TIME}``, ``{"log": LOGGER, "level": N, "text": TEXT}``, ``{"ended": true}``.  Prints of a plugin go to the
standard error.

Threading: the task runs in a thread, as it would in a worker; another one listens; the main thread waits for the end.
"""

import ctypes
import itertools
import json
import logging
import os
import pickle
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any, BinaryIO

_COUNTS_S = 1.0
_OWNED_S = 20.0
_PR_SET_PDEATHSIG = 1
_ERRORS = ("failures", "skipped", "retries", "logged", "letters", "last_failure_ms")


class _Worker:
    """The way to the worker."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._lock = descriptor, threading.Lock()
        self._numbers = itertools.count()
        self._answered = threading.Condition()
        self._answers: dict[int, bool] = {}

    def tell(self, **message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]

    def owned_since(self, since: float) -> bool:
        """Whether the worker has this task, as of then or later; both have one clock."""
        number = next(self._numbers)
        self.tell(owned=number, since=since)
        with self._answered:
            self._answered.wait_for(lambda: number in self._answers, _OWNED_S)
            return self._answers.pop(number, False)

    def answered(self, number: int, answer: bool) -> None:
        with self._answered:
            self._answers[number] = answer
            self._answered.notify_all()


class _Lines(logging.Handler):
    """Log lines go to the worker, which hides the values of config providers."""

    def __init__(self, worker: _Worker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info:
                text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
            self._worker.tell(log=record.name, level=record.levelno, text=text)
        except Exception:  # noqa: BLE001 -- a wrong call of a plugin is no failure of its task, as in logging itself
            self.handleError(record)


class _Task:
    """The runner of the task, once it is there; and what was asked before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runner: Any = None
        self.is_stopping = False
        self._target: str | None = None

    def made(self, runner: Any) -> None:
        with self._lock:
            self._runner = runner
            if self._target is not None:
                runner.transition(self._target)
            if self.is_stopping:
                runner.request_stop()

    def transition(self, target: str) -> None:
        with self._lock:
            self._target = target
            if self._runner is not None:
                self._runner.transition(target)

    def stop(self, worker: _Worker) -> None:
        with self._lock:
            self.is_stopping = True
            if self._runner is None:  # it waits for the database
                worker.tell(ended=True)
                os._exit(0)
            self._runner.request_stop()


def main() -> None:
    """Run the task of the job."""
    _end_with_parent()
    messages, orders = os.dup(1), open(os.dup(0), "rb")  # noqa: SIM115 -- to the end; programs that a plugin starts have none of them
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    (size,) = struct.unpack(">q", _exactly(orders, 8))
    job = pickle.loads(_exactly(orders, size))  # noqa: S301 -- of the worker that has started this process
    sys.path[:] = job["path"]
    worker, task = _Worker(messages), _Task()
    logging.basicConfig(handlers=[_Lines(worker)], level=job["level"])
    threading.Thread(target=_listen, args=(orders, worker, task), name="connect-listen", daemon=True).start()
    try:
        _run(worker, task, job)
    except BaseException as error:  # noqa: BLE001 -- the worker shows it
        worker.tell(state="FAILED", trace="".join(traceback.format_exception(error)))
    worker.tell(ended=True)
    os._exit(0)  # threads of a plugin may never end


def _listen(orders: BinaryIO, worker: _Worker, task: _Task) -> None:
    for line in orders:
        message = json.loads(line)
        if "target" in message:
            task.transition(message["target"])
        elif "stop" in message:
            task.stop(worker)
        elif "owned" in message:
            worker.answered(message["owned"], message["answer"])
    os._exit(1)


def _run(worker: _Worker, task: _Task, job: Mapping[str, Any]) -> None:
    from logdb_connect.runtime.starting import of_one_task
    from logdb_connect.runtime.tasks import TaskId

    task_id = TaskId(*job["task"])
    with of_one_task(job["worker"], job["group_id"], job["identity"]) as own:
        own.used_topic = lambda connector, topic: worker.tell(topic=topic)  # type: ignore[method-assign]  # noqa: ARG005  # the hooks for it
        own.member_since = worker.owned_since  # type: ignore[method-assign]
        own.start_task(task_id, job["config"], job["properties"], job["target"], lambda state, trace: worker.tell(state=state, trace=trace))
        runner = own.tasks[task_id]
        task.made(runner)
        told = None
        while True:
            ended = runner.join(_COUNTS_S)
            errors = {name: getattr(runner.handler, name, None) for name in _ERRORS}
            if told != (told := (dict(runner.counts), errors)):
                worker.tell(counts=told[0], errors=told[1])
            if ended:
                return


def _exactly(orders: BinaryIO, size: int) -> bytes:
    """So many bytes of what the worker says."""
    data = orders.read(size)
    if len(data) < size:
        os._exit(0)  # the worker has ended
    return data


def _end_with_parent() -> None:
    """Linux kills this process when the thread that started it ends: also while C code keeps the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
