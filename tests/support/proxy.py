"""A TCP proxy that cuts connections at a chosen moment, and a server in a process of its own that can be killed."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from support.ports import free_port

_SERVE = """
import sys, logdb
with logdb.open(sys.argv[1]) as db, logdb.serve(db, http=sys.argv[2]) as server:
    print(server.addresses[0], flush=True)
    sys.stdin.read()
"""

_HOLD_S_MAX = 20
PRODUCE, FETCH = (re.compile(rb"\0%b\0\x0c(.{4})\0\x05logdb\0" % key, re.DOTALL) for key in (b"\0", b"\x01"))
"""Marks frames of a client of logdb's."""
_ANNOUNCED_BYTES = 15  # of an answer: its id, and what its header announces


class Proxy:
    """Passes bytes on to a server and back.

    ``cut_answers``: of that many requests to come whose bytes hold ``marked``, or match it, the answer is kept back and the connection
    cut once it has come: the server has carried them out, and the client does not know.

    ``hold_answers``: of that many marked requests to come, the answer's headers pass, but its body only once the client has
    sent the next marked request; before that ``meanwhile`` is called, and where it says so the connection is cut instead.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut_answers, self.cut_count = 0, 0
        self.marked: bytes | re.Pattern[bytes] = re.compile(rb"POST |" + PRODUCE.pattern, re.DOTALL)
        self._id = b""  # of a marked frame
        self.hold_answers = self.held_count = 0
        self.meanwhile: Callable[[], bool] = lambda: False
        self._asked, self._asked_count = threading.Condition(), 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, function, *args) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                self._sockets.append(server)
                doomed, held = threading.Event(), threading.Event()
                self._start(self._pass, client, server, doomed, held, True)
                self._start(self._pass, server, client, doomed, held, False)

    def _pass(self, source: socket.socket, target: socket.socket, doomed: threading.Event, held: threading.Event, requests: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if requests and (found := re.search(self.marked if isinstance(self.marked, re.Pattern) else re.escape(self.marked), data)):
                    self._id = found[1] if found.re.groups else b""
                    self._look(doomed, held)
                if not requests and held.is_set() and (end := _end_of_begin(data, self._id)):  # behind another answer, perhaps
                    asked_count = self._asked_count
                    held.clear()
                    target.sendall(data[:end])
                    data = data[end:]
                    self._hold(asked_count, doomed)
                if not requests and doomed.is_set():
                    self.cut_count += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _look(self, doomed: threading.Event, held: threading.Event) -> None:
        """A marked request has come: decide what becomes of its answer."""
        with self._asked:
            self._asked_count += 1
            self._asked.notify_all()
            if self.cut_answers:
                self.cut_answers -= 1
                doomed.set()
            if self.hold_answers:
                self.hold_answers -= 1
                held.set()

    def _hold(self, asked_count: int, doomed: threading.Event) -> None:
        """Wait until more marked requests have come than ``asked_count``; cut the connection if none does."""
        with self._asked:
            if not self._asked.wait_for(lambda: self._asked_count > asked_count, _HOLD_S_MAX) or self.meanwhile():
                doomed.set()
            else:
                self.held_count += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()


def _end_of_begin(data: bytes, frame_id: bytes) -> int:
    """Where the begin of an answer ends: the headers of HTTP, or what the header of a frame announces; 0: it is not there."""
    if not frame_id:
        return data.find(b"\r\n\r\n", data.find(b"HTTP/1.1 ")) + 4 if b"HTTP/1.1 " in data else 0
    begin = data.find(frame_id + b"\x01d\x08")
    return begin + _ANNOUNCED_BYTES if begin >= 0 else 0


class ServerProcess:
    """A directory served by another process, at the same address after each start."""

    def __init__(self, path: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}"
        self._path = path
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns once it listens."""
        command = [sys.executable, "-c", _SERVE, str(self._path), self.address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == self.url

    def kill(self) -> None:
        """kill -9."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()


@contextlib.contextmanager
def served_elsewhere(path: Path) -> Iterator[ServerProcess]:
    """A server in a process of its own, killed at the end."""
    server = ServerProcess(path)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """A proxy in front of a server."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
