"""Open files, bounded in number.

Invariant: a descriptor stays open while it is used.  ``FileHolder.open`` lends a ``File``.  The cache also drops files that are lent,
but a ``File`` closes its descriptor only with its last reference, and only methods of the ``File`` use the descriptor's number
(``disk.File``), which the system may give to the next file.

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
    """At most ``limit`` open files; the one unused for longest is closed first (second chance).

    A file with unsynced data is synced before it is closed: after the close, the kernel could forget a failed writeback.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: deque[tuple[weakref.ref[FileHolder], weakref.ref[File]]] = deque()
        self._lock = renewed(threading.Lock())

    def add(self, holder: "FileHolder", file: File) -> None:
        """Register that ``holder`` keeps ``file`` open, after making room for it."""
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
        """Remove up to so many entries, under the lock."""
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
    """Opens its one file when it is needed; the cache may close it again.

    ``dirty``: written to after the begin of the last completed sync.  A caller that needs durability and finds it clean need not
    wait.  The flag outlives the ``File``, which the cache may close during a write.
    """

    __slots__ = ("__weakref__", "file", "file_id", "io", "path", "retired", "synced_count", "writable", "write_count")

    def __init__(self, io: IO, path: str, *, writable: bool) -> None:
        self.io, self.path, self.writable = io, path, writable
        self.file: File | None = None
        self.file_id: tuple[int, int] | None = None  # set at the first opening
        self.retired = False
        self.write_count = 0  # counted before each write and after it, by the one thread that writes at a time
        self.synced_count = 0  # the value of write_count when the last successful sync began

    @property
    def dirty(self) -> bool:
        return self.synced_count != self.write_count

    def open(self, *, create: bool = False) -> File:
        """The open file; call its methods on this result, or on a name for it.

        Raises:
            Closed: The holder was retired.
            FileNotFoundError: The file was removed, or another one has its name now.
            FileExistsError: With ``create``.
            ReadFailed, DiskFull, WriteFailed: It cannot be opened, or created.
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
        """Sync all writes so far; ``file``: the one to call.

        Raises:
            SyncFailed: Final for the device.
        """
        count = self.write_count
        (file or self.file or self.open()).sync()
        self.synced_count = count

    def retire(self) -> None:
        """Retire: further calls raise, so that none opens another file of the same name."""
        self.retired = True
        self.file = None


def _limit() -> int:
    """A quarter of the process's descriptors; the application keeps the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if soft == resource.RLIM_INFINITY else max(16, min(512, soft // 4))


FILES = FileCache(_limit())
on_scarcity(lambda: FILES.give_way())  # noqa: PLW0108 -- a test may put another one in its place
