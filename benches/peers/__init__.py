"""One module a side.  Each has ``missing() -> str | None`` (why it cannot run here) and ``OPERATIONS``, functions by name.

An operation takes a ``Work``, prepares what it needs, calls ``work.start()``, does the work, ends its timing when
everything is with the operating system, and asserts that the work was done.
"""

import importlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from benches.workload import Measure, Work

Operation = Callable[[Work], Measure]

SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Of a JVM that lives for seconds: what collects, compiles and verifies there takes more than it gives."""


class Side(Protocol):
    """What a module of this package offers."""

    OPERATIONS: Mapping[str, Operation]

    def missing(self) -> str | None: ...


def side(name: str) -> Side:
    """The module of a side: "file", "lmdb", "kafka", "logdb" …, as in the table of README.md."""
    return cast(Side, importlib.import_module(f"benches.peers.{name}"))


def not_importable(module: str) -> str | None:
    """Why a Python package is missing; None if it is there."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None


def failure(command: Sequence[str | Path], seconds_max: float) -> str | None:
    """Run what prepares a side; returns why it failed, None if it did not."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return f"{command[0]} took more than {seconds_max:.0f} s"
    except subprocess.CalledProcessError as error:
        return f"{command[0]} failed: {(error.stderr or error.stdout).strip()[-300:]}"
    return None
