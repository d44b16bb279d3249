"""Open files, bounded in number.

Invariant: a descriptor stays open while it is used.  ``FileHolder.open`` lends a ``File``.  The cache also drops files that are lent,
but a ``File`` closes its descriptor only with its last reference, and only methods of the ``File`` use the descriptor's number
(``disk.File``), which the system may give to the next file.

    in the cache ──► evicted, clean ──► closed
                └──► evicted, dirty ──► departing: a thread syncs it ──► closed
                                                                    └──► in the cache again: it was written to meanwhile

A dirty file is synced before it is closed: after the close, the kernel could forget a failed writeback.  The thread that opens
another file syncs none.  It waits while an eighth as many files as the cache holds are departing.

Threading: any thread may use any file, without a lock.
"""

import logging
import os
import resource
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from errno import ENOENT

from logdb import disk
from logdb.disk import File, on_scarcity
from logdb.errors import Closed, SyncFailed, ThreadUnavailable
from logdb.io import IO
from logdb.threads import renewed, started

logger = logging.getLogger(__name__)

_COUNT_MAX = 1 << 16  # open files, however many the system allows: each takes about 2 KB of the kernel's memory
_COUNT_MIN = 16
_BATCH_COUNT = 16  # files that are evicted together by a large cache, and depart in one thread
_THREADS_MAX = 4  # that sync departing files: the file system commits several syncs at once
_AT_ONCE = 64  # descriptors that are lent, for which files give way together
_IDLE_S = 1.0  # after which such a thread ends


def open_files_max(lent: int = 0) -> int:
    """How many files may be open: nine sixteenths of the process's descriptors, as long as an eighth of them is free.

    Args:
        lent: Descriptors that the connections of servers have.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _COUNT_MAX
    return max(_COUNT_MIN, min(_COUNT_MAX, soft * 9 // 16, soft - soft // 8 - lent))


class _Departures:
    """Dirty files that leave the cache.  ``kept``: is given those that were written to meanwhile."""

    def __init__(self, kept: "Callable[[FileHolder, File], None]") -> None:
        self._kept = kept
        lock = threading.Lock()
        self._came, self._went = renewed(threading.Condition(lock)), renewed(threading.Condition(lock))
        self._waiting: deque[tuple[FileHolder, File]] = deque()
        self._syncing: list[File] = []
        self._threads: list[threading.Thread] = []

    @property
    def count(self) -> int:
        return len(self._waiting) + len(self._syncing)

    def forked(self) -> None:
        """In a forked child: free the locks of the files that its parent syncs."""
        for file in (*self._syncing, *(file for _, file in self._waiting)):
            file.forked()

    def add(self, victims: "Sequence[tuple[FileHolder, File]]", count_max: int) -> None:
        """Have them synced and closed; wait while there are more than so many."""
        with self._came:
            self._waiting.extend(victims)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            try:
                while len(self._threads) < min(_THREADS_MAX, -(-self.count // _BATCH_COUNT)):
                    self._threads.append(started("logdb-departures", self._run))
            except ThreadUnavailable as error:
                logger.warning("files are synced and closed by the threads that need descriptors: %s", error)
            self._came.notify()
            is_own = threading.current_thread() in self._threads  # a failed sync has it open files
            if self._threads and not is_own and self.count > count_max:
                self._went.wait_for(lambda: self.count <= count_max // 2)
        if not self._threads:
            while self._depart(0):
                pass

    def _run(self) -> None:
        while self._depart(_IDLE_S):
            pass

    def _depart(self, timeout_s: float) -> bool:
        """Sync and close the first ones; False: none has come in time, and the thread ends."""
        with self._came:
            if not self._came.wait_for(lambda: self._waiting, timeout_s):
                self._threads = [thread for thread in self._threads if thread is not threading.current_thread()]
                return False
            batch = [self._waiting.popleft() for _ in range(min(_BATCH_COUNT, len(self._waiting)))]
            self._syncing += [file for _, file in batch]
        for owner, file in batch:
            self._sync(owner, file)
            self._syncing.remove(file)
        with self._went:
            self._went.notify_all()
        return True

    def _sync(self, owner: "FileHolder", file: File) -> None:
        try:
            if owner.file is file:
                if owner.dirty:
                    owner.sync(file)
                if owner.dirty:
                    self._kept(owner, file)
                else:
                    owner.file = None
        except SyncFailed as error:  # every store on the device knows it; the file stays open, and dirty
            logger.error("%s: %s", owner.path, error)
        except Exception:
            logger.exception("%s", owner.path)


class FileCache:
    """At most ``limit`` open files, and an eighth as many that depart; None: as many as the system allows.

    One that was not used lately is evicted, at random: of a few more files than the limit, used in turn, most are still open.

    Attributes:
        lent: Descriptors that the connections of servers have.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit, self.lent = limit, 0
        self._holders: list[tuple[weakref.ref[FileHolder], weakref.ref[File]]] = []
        self._lock = renewed(threading.Lock())
        self._drawn = 0
        self._departures = _Departures(self._keep)

    def forked(self) -> None:
        """In a forked child, which lacks the threads: its parent syncs the files that depart."""
        self._departures.forked()
        self._departures = _Departures(self._keep)
        for _, file in self._holders:
            if (found := file()) is not None:
                found.forked()

    @property
    def limit(self) -> int:
        return open_files_max(self.lent) if self._limit is None else self._limit

    @property
    def is_full(self) -> bool:
        """Whether another file takes the place of one."""
        return len(self._holders) >= self.limit

    def add(self, holder: "FileHolder", file: File) -> None:
        """Register that ``holder`` keeps ``file`` open, after making room for it."""
        self._keep(holder, file)
        if (surplus := len(self._holders) - (most := self.limit)) > 0:
            self._evict(surplus + min(_BATCH_COUNT, most // 32), file, max(1, most // 8))

    def lend(self, count: int) -> None:
        """Give so many descriptors to connections, or take them back; does not wait."""
        with self._lock:
            self.lent += count
        if count > 0 and not self.lent % _AT_ONCE:
            self._evict(len(self._holders) - self.limit, None, sys.maxsize)

    def give_way(self) -> None:
        """Close half of the files: the process has no descriptors left."""
        self._evict(len(self._holders) // 2, None, 0)

    def _keep(self, holder: "FileHolder", file: File) -> None:
        with self._lock:
            self._holders.append((weakref.ref(holder), weakref.ref(file)))

    def _evict(self, surplus: int, spared: File | None, departing_max: int) -> None:
        """Let go of up to so many; if all of them are dirty, wait while more than ``departing_max`` are departing."""
        if surplus <= 0:
            return
        with self._lock:
            victims = self._victims(surplus, spared)
        dirty = []
        for owner, file in victims:
            if owner.dirty and not owner.retired:
                dirty.append((owner, file))
            elif owner.file is file:
                owner.file = None
        if dirty:
            self._departures.add(dirty, departing_max if len(dirty) == len(victims) else sys.maxsize)

    def _draw(self, count: int) -> int:
        """A number below ``count``, under the lock: `random` is slow to import, and nobody gains by guessing it."""
        self._drawn = (self._drawn * 1_103_515_245 + 12_345) & 0x7FFF_FFFF  # C's example of rand()
        return (self._drawn >> 8) % count

    def _victims(self, surplus: int, spared: File | None) -> "list[tuple[FileHolder, File]]":
        """Remove up to so many entries, under the lock."""
        entries, victims, chances = self._holders, [], 2 * len(self._holders)
        while surplus > 0 and chances > 0:
            chances -= 1
            at = self._draw(len(entries))
            owner, old = entries[at][0](), entries[at][1]()
            if owner is not None and old is not None and owner.file is old:
                if old.used or old is spared:
                    old.used = False
                    continue
                victims.append((owner, old))
            entries[at] = entries[-1]
            entries.pop()
            surplus -= 1
        return victims


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
            file = self.file = self._opened(create=create)
            FILES.add(self, file)
        file.used = True
        return file

    def open_briefly(self, *, create: bool = False) -> File:
        """As ``open``, for a file that is seldom used: it takes no other's place in a full cache, and is closed with its last reference."""
        return self._opened(create=create) if self.file is None and FILES.is_full else self.open(create=create)

    def _opened(self, *, create: bool) -> File:
        if self.retired:
            raise Closed(f"{self.path} was closed")
        file = File(self.io, self.path, (os.O_RDWR if self.writable else os.O_RDONLY) | (os.O_CREAT | os.O_EXCL if create else 0))
        file_id = file.file_id()
        if self.file_id not in (None, file_id):
            raise FileNotFoundError(ENOENT, "another file has its name", self.path)
        self.file_id = file_id
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


def sync_together(io: IO, holders: Sequence[FileHolder]) -> bool:
    """As ``FileHolder.sync`` of each, and of all directories of their device, by one sync; False: there is no such sync.

    Raises:
        SyncFailed: Final for the device.
        Closed, FileNotFoundError, ReadFailed: One of them cannot be opened.
    """
    counts = [holder.write_count for holder in holders]
    files = [holder.file or holder.open() for holder in holders]
    if not disk.sync_together(io, files):
        return False
    for holder, count in zip(holders, counts, strict=True):
        holder.synced_count = max(holder.synced_count, count)  # a later sync beside this one may have ended
    return True


FILES = FileCache()
on_scarcity(lambda: FILES.give_way())  # noqa: PLW0108 -- a test may put another one in its place
os.register_at_fork(after_in_child=lambda: FILES.forked())  # noqa: PLW0108 -- the same
