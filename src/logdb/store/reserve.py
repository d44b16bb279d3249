"""Room on the disk that is kept for the calls that make room: ``RESERVE``, a file of the directory.

    call ──► DiskFull ──► a part of RESERVE is given back ──► the call again, alone ──► RESERVE is made whole again
                ▲                                               │
                └───────────────────────────────────────────────┘ at most four times

On a full disk a deletion needs a few pages before it frees any: a new ``topic.json``, a commit of the catalogue.  While the reserve is
used only the thread of that call writes to logs, or appends would take the room.  After a crash in between the next opening makes
the file whole again, before anything else is written.  If other programs have taken the room meanwhile, the other parts are left.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from logdb.disk import File
from logdb.errors import DiskFull, LogdbError
from logdb.io import IO

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

    def __init__(self, io: IO, directory: str) -> None:
        self._io, self._directory = io, directory
        self._path = os.path.join(directory, FILE_NAME)
        self._lock = threading.RLock()  # which knows its owner
        self.spender = 0

    def fill(self) -> None:
        """Make the file, or make it as large as it should be; without room it stays as it is."""
        with contextlib.suppress(LogdbError, OSError):
            size_bytes = self._size_bytes()
            with File(self._io, self._path, os.O_RDWR | os.O_CREAT) as file:
                if sys.platform == "linux":
                    file.allocate(0, size_bytes)  # a copy of the directory may have a file of that size without blocks
                elif (known := file.size_bytes()) < size_bytes:
                    file.write(bytes(size_bytes - known), known)

    def _size_bytes(self) -> int:
        status = os.statvfs(self._directory)
        return min(SIZE_BYTES, status.f_blocks * status.f_frsize // _SHARE)

    def spend(self, function: Callable[[], T]) -> T:
        """Call ``function``, which makes room; once more, with the reserve given back, if it finds none.

        Args:
            function: May be called again after DiskFull.
        """
        try:
            return function()
        except DiskFull as error:
            me = threading.get_ident()
            if self.spender == me:
                raise
            try:
                if not self._lock.acquire(timeout=_WAIT_S):
                    raise
                self.spender = me
                return self._spend(function, error)
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

    def _spend(self, function: Callable[[], T], error: DiskFull) -> T:
        for part in reversed(range(_PARTS)):
            if self._give_back(part):
                logger.info("a part of %s is given back to make room in %s: %s", FILE_NAME, self._directory, error)
                try:
                    return function()
                except DiskFull as again:
                    error = again
        raise error

    def _give_back(self, part_count: int) -> bool:
        """Leave so many parts of the file; False if it has no more, or is no file that can be cut: the disk is full then."""
        with contextlib.suppress(LogdbError, OSError):
            size_bytes = self._size_bytes() * part_count // _PARTS
            with File(self._io, self._path, os.O_RDWR) as file:
                if file.size_bytes() > size_bytes:
                    file.truncate(size_bytes)
                    return True
        return False

    def check(self, path: str, size_bytes: int) -> None:
        """Raise DiskFull for a write to a log while another thread makes room."""
        if self.spender not in (0, threading.get_ident()):
            raise DiskFull(path, size_bytes, "what room there is makes room")
