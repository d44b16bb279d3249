"""PySpark's daemon of workers on this machine, for which a worker whose reader is gone is no news.

Spark closes the connection of a worker as soon as it has the answer.  A worker that has still something to flush then prints a traceback of
BrokenPipeError to the terminal of the program's user.  It ends as before, without that traceback.  Everything else goes on and is told.

Spark starts this module by ``spark.python.daemon.module``.
"""

import socket

from pyspark import daemon

_worker = daemon.worker


def _ending_in_silence(sock: socket.socket, authenticated: bool) -> int:
    """As ``daemon.worker``: 0 where the process may go on with another task."""
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


daemon.worker = _ending_in_silence

if __name__ == "__main__":
    daemon.manager()
