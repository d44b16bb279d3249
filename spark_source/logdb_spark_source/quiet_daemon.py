"""PySpark's daemon of workers on this machine, for which a worker whose reader is gone is no news.

Spark closes the connection of a worker as soon as it has the answer.  A worker that has still something to flush then prints a traceback of
BrokenPipeError to the terminal of the program's user.  It ends as before, without that traceback.  Everything else goes on and is told.

Spark starts this module by ``spark.python.daemon.module``.
"""

import socket
import sys

from pyspark import daemon

_worker = daemon.worker
_GONE = (BrokenPipeError, ConnectionResetError)


def _report_unless_gone(unraisable: "sys.UnraisableHookArgs") -> None:
    if not isinstance(unraisable.exc_value, _GONE):
        sys.__unraisablehook__(unraisable)


def _ending_in_silence(sock: socket.socket, authenticated: bool) -> int:
    """As ``daemon.worker``: 0 where the process may go on with another task."""
    try:
        return _worker(sock, authenticated)
    except _GONE:
        sys.unraisablehook = _report_unless_gone  # the process ends; Python 3.13 and later try its last flush again, and report that
        return 1


daemon.worker = _ending_in_silence

if __name__ == "__main__":
    daemon.manager()
