"""Open files, their number bounded.

Knows when a file may be closed.  Does not know what the files hold.

Invariant: a descriptor is open for as long as it is used.  ``FileHolder.open`` lends a ``File``; the cache lets go of files that
are lent, too, but a ``File`` closes its descriptor with the last reference to it, and each call that uses the descriptor is a
method of the ``File``.  Nobody else has the number (``disk.File``), which the next file that is opened may be given.

Threading: any thread may use any file, without a lock.
"""

import os
import resource
import threading
import weakref
from collections import deque
from errno import ENOENT

from logdb.disk import File, on_scarcity
from logdb.errors import Closed
from logdb.io import IO
from logdb.threads import renewed


class FileCache:
    """At most ``limit`` files open at a time; the one unused for longest gives way (second chance).

    A file with unsynced data is synced before it gives way: closed, the kernel
    could forget that writing it back failed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: deque[tuple[weakref.ref[FileHolder], weakref.ref[File]]] = deque()
        self._lock = renewed(threading.Lock())

    def add(self, holder: "FileHolder", file: File) -> None:
        """Note that ``holder`` keeps ``file`` open, after making room for it."""
        with self._lock:
            self._holders.append((weakref.ref(holder), weakref.ref(file)))
            victims = self._victims(len(self._holders) - self._limit, file)
        _close(victims)

    def give_way(self) -> None:
        """Close half of the files: the process has no descriptors left."""
        with self._lock:
            victims = self._victims(len(self._holders) // 2, None)
        _close(victims)

    def _victims(self, surplus: int, spared: File | None) -> list[tuple["FileHolder", File]]:
        """Take so many out, under the lock; fewer where not so many are open."""
        chances = 2 * len(self._holders)
        victims = []
        while surplus > 0 and chances > 0:
            chances -= 1
            oldest_holder, oldest_file = self._holders.popleft()
            owner, old = oldest_holder(), oldest_file()
            if owner is None or old is None or owner.file is not old:
                surplus -= 1
            elif old.used or old is spared:
                old.used = False
                self._holders.append((oldest_holder, oldest_file))
            else:
                victims.append((owner, old))
                surplus -= 1
        return victims


def _close(victims: list[tuple["FileHolder", File]]) -> None:
    for owner, old in victims:
        if owner.dirty:
            owner.sync(old)
        if owner.file is old:
            owner.file = None


class FileHolder:
    """What opens its one file when it is needed, and lets the cache take it away.

    ``dirty``: written to since the last sync began, or while it did; true until a sync has ended that began after the write had
    ended, so whoever needs it to be durable and finds it clean need not wait.  It outlives the ``File``: the cache may take that
    away in the middle of a write.
    """

    __slots__ = ("__weakref__", "file", "file_id", "io", "path", "retired", "synced_count", "writable", "write_count")

    def __init__(self, io: IO, path: str, *, writable: bool) -> None:
        self.io, self.path, self.writable = io, path, writable
        self.file: File | None = None
        self.file_id: tuple[int, int] | None = None  # once it was open
        self.retired = False
        self.write_count = 0  # counted before each write and after it, by the one thread that writes at a time
        self.synced_count = 0  # what it was when the last sync began that has ended well

    @property
    def dirty(self) -> bool:
        return self.synced_count != self.write_count

    def open(self, *, create: bool = False) -> File:
        """The open file; its methods are called on what is returned here, or on a name for it.

        Raises:
            Closed: It was given up for good.
            FileNotFoundError: It is gone, or another one has its name by now.
            FileExistsError: With ``create``.
            ReadFailed, DiskFull, WriteFailed: It cannot be opened, or made.
        """
        file = self.file
        if file is None:
            if self.retired:
                raise Closed(f"{self.path} was closed")
            file = File(self.io, self.path, (os.O_RDWR if self.writable else os.O_RDONLY) | (os.O_CREAT | os.O_EXCL if create else 0))
            file_id = file.file_id()
            if self.file_id not in (None, file_id):
                raise FileNotFoundError(ENOENT, "another file has its name", self.path)
            self.file, self.file_id = file, file_id
            FILES.add(self, file)
        file.used = True
        return file

    def sync(self, file: File | None = None) -> None:
        """Make durable what was written so far; ``file``: the one to do it by.

        Raises:
            SyncFailed: Final for the device.
        """
        count = self.write_count
        (file or self.file or self.open()).sync()
        self.synced_count = count

    def retire(self) -> None:
        """Let go of the file for good: whoever still reads it gets an error, not another file of the same name."""
        self.retired = True
        self.file = None


def _limit() -> int:
    """A quarter of the descriptors the process may have, so that the application keeps the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if soft == resource.RLIM_INFINITY else max(16, min(512, soft // 4))


FILES = FileCache(_limit())
on_scarcity(lambda: FILES.give_way())  # noqa: PLW0108 -- a test may put another one in its place
