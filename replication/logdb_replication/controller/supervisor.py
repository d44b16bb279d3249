"""The controller's process as its broker sees it: started, started again when it dies, stopped; it dies with its broker.

    start ──► ready ──dies──► waits ──► started again
                └──stop: its stdin is closed──► ended

Two things end it with the broker: its stdin, a pipe that the broker holds (an orderly end), and on Linux the death signal, which comes when
the *thread* ends that started it: so one thread starts it and waits for it.

Threading: ``start``, ``stop``: one thread.
"""

import contextlib
import json
import logging
import subprocess
import sys
import threading
import time

from logdb.threads import renewed, started
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.errors import ControllerFailed

logger = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-m", "logdb_replication.controller.process")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
RESTART_S_MIN, RESTART_S_MAX = 0.1, 10.0


class ControllerProcess:
    """The process.

    Field          Changed by      Trusted
    ``_child``     its thread      None before the first start
    ``_failure``   its thread      once ``_settled`` is set: why the first start has failed; empty: it has not
    """

    def __init__(self, config: ClusterConfig, directory: str) -> None:
        """``directory``: the voter's; nothing is started yet."""
        self._config, self._directory = config, directory
        self._child: subprocess.Popen[bytes] | None = None
        self._failure = ""
        self._settled, self._stopping = renewed(threading.Event()), renewed(threading.Event())
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that runs now, or ran last."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            ControllerFailed: It refuses, or is not ready in time.
        """
        self._thread = started("logdb-controller-process", self._run)
        if not self._settled.wait(START_TIMEOUT_S):
            self._failure = f"it was not ready within {START_TIMEOUT_S:.0f} s"
        if self._failure:
            self.stop()
            raise ControllerFailed(self._failure)

    def stop(self) -> None:
        """End it in good order, or kill it if that takes too long; a second call does nothing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause_s = RESTART_S_MIN
        while not self._stopping.is_set():
            began = time.monotonic()
            failure = self._run_once()
            if not self._settled.is_set():
                self._failure = failure
                self._settled.set()
                return
            if not self._stopping.is_set():
                logger.error("the controller has ended: %s; it is started again", failure)
                pause_s = min(2 * pause_s, RESTART_S_MAX) if time.monotonic() - began < RESTART_S_MAX else RESTART_S_MIN
                self._stopping.wait(pause_s)

    def _run_once(self) -> str:
        """Start it and wait for its end; returns why it has ended."""
        try:
            child = self._child = subprocess.Popen(
                [*PROGRAM, self._config.path, self._directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as error:
            return str(error)
        with child:
            assert child.stdin is not None
            assert child.stdout is not None
            watch = started("logdb-controller-stop", lambda: self._end(child))
            said = _said(child.stdout.readline())
            if said == "":
                self._settled.set()
            child.wait()
            watch.join()
        return said or f"its exit status was {child.returncode}"

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        """Once ``stop`` is called, close its stdin, and kill it if it does not end; or return once it has ended."""
        while child.poll() is None and not self._stopping.wait(0.1):
            pass
        with contextlib.suppress(OSError):
            assert child.stdin is not None
            child.stdin.close()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()


def _said(line: bytes) -> str:
    """Why it has refused to start; empty: it is ready."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return str(json.loads(line).get("error", ""))
    return "it ended before it was ready; its log says why"
