"""The directory of ``logdb serve --temporary``: it goes with the process, also with one that is killed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

SETTINGS: Mapping[str, Any] = {"auto_create_topics": True, "durability": "os", "drain_ms": 0}
"""Settings of a temporary server that were not given."""
LISTENERS = {"http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}
"""Its listeners if none is given."""

# Its standard input is a pipe from the server, which ends with the server, whatever ends that.
_REMOVE_AT_THE_END = 'cat >/dev/null; rm -rf -- "$1"'


@contextlib.contextmanager
def directory() -> Iterator[str]:
    """A new directory, removed at the end of the block, or by a shell that waits for the end of this process."""
    path = tempfile.mkdtemp(prefix="logdb-temporary-")
    watch: subprocess.Popen[bytes] | None = None
    try:
        with contextlib.suppress(OSError):  # without a shell a killed server leaves its directory
            watch = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVE_AT_THE_END, "sh", path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C at the terminal is for the server alone
                cwd="/",
            )
        yield os.path.join(path, "db")
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if watch is not None:
            assert watch.stdin is not None
            watch.stdin.close()
            watch.wait()
