"""Someone else's server for the time of one operation: a process of its own on ports of the loopback that are free.

Knows where servers are installed, when one listens, and how it ends.  Does not know what it speaks.
"""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benches.workload import Wrong

HOST = "127.0.0.1"
_DIRECTORIES = (os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")  # where servers are, which not every user searches
_START_S, _END_S = 90, 30
_PORTS = 20_000, 32_000


def program(name: str, *directories: str) -> str | None:
    """Where a program is; ``directories`` are looked through first."""
    return shutil.which(name, path=os.pathsep.join((*directories, *_DIRECTORIES)))


def not_installed(name: str, *directories: str) -> str | None:
    """Why a program is missing; None if it is there."""
    return None if program(name, *directories) else f"no program {name}"


def free_port() -> int:
    """A free port below those that the system gives to clients: one of those may be taken before the server listens."""
    while True:
        with contextlib.suppress(OSError), socket.create_server((HOST, random.randrange(*_PORTS))) as listener:
            return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(
    command: Sequence[str], port: int, output: Path, environment: Mapping[str, str] | None = None
) -> "Iterator[subprocess.Popen[bytes]]":
    """A server's process from when it listens on ``port``; what it prints goes to ``output``.

    Raises:
        Wrong: it ended, or did not listen in time.
    """
    with (
        open(output, "wb") as file,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment) as process,
    ):
        try:
            _await_listening(process, port, output)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_listening(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise Wrong(f"port {port} is not listened on, exit {process.poll()}: {output.read_text(errors='replace').strip()[-500:]}")
