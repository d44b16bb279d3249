"""``logdb serve`` as a process of its own, for tests that look at its memory, or kill it."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


class ServerProcess:
    """A server that runs; ``url`` is where."""

    def __init__(self, path: Path, *flags: str, address: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "logdb.cli", "serve", str(path), "--http", address, *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url.startswith("http://"):
            raise AssertionError(f"the server ended with {self.ended()}")

    @property
    def rss_bytes(self) -> int:
        return self._memory("VmRSS")

    @property
    def rss_bytes_max(self) -> int:
        """The most that it ever was."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024

    def kill(self) -> None:
        """As a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        self.process.stdout.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; returns its exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def server_process(path: Path, *flags: str) -> Iterator[ServerProcess]:
    """A server that has to end well, unless the test ended it."""
    server = ServerProcess(path, *flags)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            assert server.end() == 0, "it does not drain"
