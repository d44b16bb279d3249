"""Kafka's Java programs as processes of their own, with small heaps."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from benches.peers import SHORT_LIVED
from benches.peers.kafka.jars import PLATFORM, Jars
from support.ports import free_port

Found = TypeVar("Found")
_FLAGS = ("-Xmx256m", *SHORT_LIVED, "-Dorg.apache.logging.log4j.level=ERROR")
_POLL_S = 0.05


def java(program: str, *arguments: object, classes: Path | None = None) -> list[str]:
    """The command that runs a program of Kafka, or of ``classes``."""
    jars = [one for one in PLATFORM.directory.iterdir() if not one.name.startswith("connect-file")]  # as Kafka's own scripts
    return ["java", *_FLAGS, "-cp", ":".join(map(str, [*jars, classes or ""])), program, *map(str, arguments)]


def compiled(source: Path, classes: Path, jars: Jars = PLATFORM) -> Path:
    """Compile a program; returns ``classes``."""
    subprocess.run(
        ["javac", *(f"-J{flag}" for flag in SHORT_LIVED), "-d", classes, "-cp", f"{jars.directory}/*", source], check=True, timeout=120
    )
    return classes


class JavaProgram:
    """A program that runs; what it prints is in ``log``."""

    def __init__(self, command: list[str], log: Path, **options: object) -> None:
        self._log = log
        with log.open("ab") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            self.process = subprocess.Popen(command, **streams | options)

    def until(self, what: Callable[[], Found], seconds_max: float = 60) -> Found:
        """Wait until there is something, while the program runs; returns it."""
        end_s = time.monotonic() + seconds_max
        while not (found := what()):
            if self.process.poll() is not None or time.monotonic() > end_s:
                raise AssertionError(f"exit {self.process.returncode}, found {found!r}: {self._log.read_text(errors='replace')[-6000:]}")
            time.sleep(_POLL_S)
        return found

    def kill_while(self, what: Callable[[], object], address: str) -> None:
        """Kill it while something holds: it stands still, and the server there has read what it sent, when that is looked at again."""

        def stands() -> bool:
            if not what():
                return False
            self.process.send_signal(signal.SIGSTOP)
            self.until(lambda: not _unread(address))
            if what():
                return True
            self.process.send_signal(signal.SIGCONT)
            return False

        self.until(stands)
        self.kill()

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait(30)

    def end(self) -> None:
        """Ask it to end, and wait for that."""
        self.process.terminate()
        self.process.wait(60)


def _unread(address: str) -> int:
    """How many bytes clients on this machine have sent to a server's port that it has not read (proc(5), of Linux)."""
    port, count = int(address.rpartition(":")[2]), 0
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            unacknowledged, unread = (int(one, 16) for one in queues.split(":"))
            local_port, remote_port = (int(one.rpartition(":")[2], 16) for one in (local, remote))
            count += unread * (local_port == port) + unacknowledged * (remote_port == port)
    return count


@contextlib.contextmanager
def running(command: list[str], log: Path, **options: object) -> Iterator[JavaProgram]:
    """A program that is asked to end with the block, unless it was killed."""
    program = JavaProgram(command, log, **options)
    try:
        yield program
        program.end()
    finally:
        program.kill()


def properties(path: Path, **values: object) -> Path:
    """Write a property file; ``_`` in a name stands for a dot."""
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in values.items()))
    return path


def worker_settings() -> dict[str, object]:
    """What the property files of both kinds of Connect's workers have; a worker has a port of its own."""
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "key_converter": converter,
        "value_converter": converter,
        "key_converter_schemas_enable": "true",
        "value_converter_schemas_enable": "true",
        "offset_flush_interval_ms": 10_000,
        "plugin_path": next(PLATFORM.directory.glob("connect-file-*.jar")),
        "plugin_discovery": "service_load",  # to look for plugins in all jars takes seconds
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
