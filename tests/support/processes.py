"""What anybody on this machine sees of processes."""

import contextlib
from pathlib import Path


def arguments() -> list[bytes]:
    """The arguments of each process that runs, separated by zero bytes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(path.read_bytes())
    return found
