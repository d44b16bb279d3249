"""Room on the disk that is kept for the calls that make room: ``RESERVE``, a file of the directory.

    call ──► DiskFull ──► preallocated space is freed, or a part of RESERVE ──► the call again, alone ──► RESERVE is made whole again
                ▲                                                                │
                └────────────────────────────────────────────────────────────────┘ at most five times

On a full disk a deletion needs a few pages before it frees any: a new ``topic.json``, a commit of the catalogue.  While the reserve is
used only the thread of that call writes to logs, or appends would take the room.  After a crash in between the next opening makes
the file whole again, before anything else is written.  If other programs have taken the room meanwhile, the other parts are left.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from logdb.disk import File, give_room
from logdb.errors import DiskFull, LogdbError
from logdb.io import IO
from logdb.threads import renewed

logger = logging.getLogger(__name__)

FILE_NAME = "RESERVE"
SIZE_BYTES = 256 << 10
_PARTS = 4
_SHARE = 16  # of the whole disk: a small one is for records
_WAIT_S = 5  # for another thread that uses the reserve; that one may wait for a lock of ours

T = TypeVar("T")


class Reserve:
    """The reserve of one directory that is open for writing.

    ``spender``: the thread that uses the reserve; 0 without one.  Others do not write to logs meanwhile.
    """

    def __init__(self, io: IO, directory: str, free_preallocated: Callable[[], bool] = lambda: False) -> None:
        """``free_preallocated``: frees what logs have preallocated; whether there was anything."""
        self._io, self._directory, self._free_preallocated = io, directory, free_preallocated
        self._path = os.path.join(directory, FILE_NAME)
        self._lock = renewed(threading.RLock())  # which knows its owner
        self.spender = 0

    def fill(self) -> None:
        """Make the file, or make it as large as it should be; without room it stays as it is."""
        with contextlib.suppress(LogdbError, OSError):
            give_room(self._io, self._path, self._size_bytes())

    def _size_bytes(self) -> int:
        return min(SIZE_BYTES, self._io.file_system_bytes(self._directory) // _SHARE)

    def spend(self, function: Callable[[], T]) -> T:
        """Call ``function``, which makes room; once more, with the reserve given back, if it finds none.

        Args:
            function: May be called again after DiskFull.
        """
        try:
            return function()
        except DiskFull:
            me = threading.get_ident()
            if self.spender == me:
                raise
            try:
                if not self._lock.acquire(timeout=_WAIT_S):
                    raise
                self.spender = me
                if not self._give_back():
                    raise
                return self._spend(function)
            finally:  # without calls before the release: an exception from outside (Ctrl-C) may come out of each
                try:
                    if self.spender == me:
                        self.fill()
                finally:
                    if self.spender == me:
                        self.spender = 0
                    try:  # noqa: SIM105 -- suppress() is a call
                        self._lock.release()
                    except RuntimeError:  # another thread has it
                        pass

    def _spend(self, function: Callable[[], T]) -> T:
        """Call ``function`` until it finds room; each time that it finds none, give back another part."""
        while True:
            try:
                return function()
            except DiskFull:
                if not self._give_back():
                    raise

    def _give_back(self) -> bool:
        """Free preallocated space, or else cut a part off the file.

        False if the file is empty, missing, or no file that can be cut: the disk is full then.
        """
        if self._free_preallocated():
            return True
        with contextlib.suppress(LogdbError, OSError):
            size_bytes = self._size_bytes()
            part_size_bytes = max(1, size_bytes // _PARTS)
            with File(self._io, self._path, os.O_RDWR) as file:
                if (left_size_bytes := min(file.size_bytes(), size_bytes)) > 0:
                    file.truncate((left_size_bytes - 1) // part_size_bytes * part_size_bytes)
                    logger.info("a part of %s is given back to make room in %s", FILE_NAME, self._directory)
                    return True
        return False

    def check(self, path: str, size_bytes: int) -> None:
        """Raise DiskFull for a write to a log while another thread makes room."""
        if self.spender not in (0, threading.get_ident()):
            raise DiskFull(path, size_bytes, "another call uses the last room to delete records")
