"""Open files, their number bounded, and the devices that failed a sync.

Knows descriptors and when they may be closed.  Does not know what the files hold.
Threading: any thread may use any file.  A file is closed when the last reference
to its ``File`` goes, so whoever reads holds the ``File`` and needs no lock.
"""

import logging
import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Callable
from errno import EDQUOT, EFBIG, EMFILE, EMLINK, ENFILE, ENOENT, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM, EXDEV

from logdb.errors import Closed, CorruptionError, DiskFull, ReadFailed, SyncFailed, WriteFailed
from logdb.io import IO, pwrite_all
from logdb.model import Buffer
from logdb.threads import renewed

logger = logging.getLogger(__name__)

COPY_SIZE_BYTES = 16 << 20  # of one call of the kernel's, so that a test, or a Ctrl-C, gets a word in
_NO_LINK = (EXDEV, EPERM, EMLINK, EOPNOTSUPP, ENOSYS)


class File:
    """An open descriptor, closed with its last reference."""

    __slots__ = ("__weakref__", "dirty", "fd", "indexes", "io", "path", "used")

    def __init__(self, io: IO, path: str, flags: int) -> None:
        self.fd = -1
        self.fd = io.open(path, flags)
        self.io, self.path = io, path
        self.dirty = False  # written to since the last sync
        self.used = True  # since the cache last looked
        self.indexes: tuple[bytes, bytes] | None = None  # of a sealed segment, once looked at: they go with the file

    def __del__(self) -> None:
        if self.fd >= 0:
            try:
                self.io.close(self.fd)
            except OSError as error:  # nobody is left to tell; what mattered was synced before
                logger.warning("closing %s: %s", self.path, error)

    def write(self, view: Buffer, position: int) -> None:
        """Write all of ``view`` at ``position``; raises OSError."""
        self.dirty = True
        pwrite_all(self.io, self.fd, view, position)

    def sync(self) -> None:
        """Make what was written durable.

        Raises:
            SyncFailed: after it, every store on the device is read-only.
        """
        self.dirty = False
        try:
            self.io.fdatasync(self.fd)
        except OSError as error:
            self.dirty = True
            raise condemn(self.io, self.path, error) from error


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
        if old.dirty:
            old.sync()
        if owner.file is old:
            owner.file = None
            if old.dirty:  # written to since: whoever syncs must still find it
                owner.open().dirty = True


class FileHolder:
    """What opens its one file when it is needed, and lets the cache take it away."""

    __slots__ = ("__weakref__", "file", "file_id", "io", "path", "retired", "writable")

    def __init__(self, io: IO, path: str, *, writable: bool) -> None:
        self.io, self.path, self.writable = io, path, writable
        self.file: File | None = None
        self.file_id: tuple[int, int] | None = None  # once it was open
        self.retired = False

    def open(self, *, create: bool = False) -> File:
        """The open file; hold on to it while using its descriptor.

        Raises:
            Closed: It was given up for good.
            FileNotFoundError: It is gone, or another one has its name by now.
            ReadFailed: The process has no descriptor left for it.
        """
        file = self.file
        if file is None:
            if self.retired:
                raise Closed(f"{self.path} was closed")
            flags = (os.O_RDWR if self.writable else os.O_RDONLY) | (os.O_CREAT | os.O_EXCL if create else 0)
            try:
                file = File(self.io, self.path, flags)
            except OSError as error:
                if error.errno not in (EMFILE, ENFILE):
                    raise
                file = self._open_scarce(flags)
            file_id = self.io.file_id(file.fd)
            if self.file_id not in (None, file_id):
                raise FileNotFoundError(ENOENT, "another file has its name", self.path)
            self.file, self.file_id = file, file_id
            FILES.add(self, file)
        file.used = True
        return file

    def _open_scarce(self, flags: int) -> File:
        """Open the file once others have given their descriptors up."""
        FILES.give_way()
        try:
            return File(self.io, self.path, flags)
        except OSError as error:
            if error.errno in (EMFILE, ENFILE):
                raise ReadFailed(self.path, 0, str(error)) from error
            raise

    def retire(self) -> None:
        """Let go of the file for good: whoever still reads it gets an error, not another file of the same name."""
        self.retired = True
        self.file = None


def _limit() -> int:
    """A quarter of the descriptors the process may have, so that the application keeps the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if soft == resource.RLIM_INFINITY else max(16, min(512, soft // 4))


FILES = FileCache(_limit())

# ---------------------------------------------------------------- devices that failed a sync

_watchers: weakref.WeakSet["Watcher"] = weakref.WeakSet()
_watchers_lock = renewed(threading.Lock())


class Watcher:
    """Told when the device it stands on failed a sync; one for each store that writes."""

    def __init__(self, device: int, failed: Callable[[SyncFailed], None]) -> None:
        self.device, self.failed = device, failed
        with _watchers_lock:
            _watchers.add(self)


def condemn(io: IO, path: str, error: OSError) -> SyncFailed:
    """Tell every store on the device of ``path`` that a sync failed; returns the error to raise."""
    failure = SyncFailed(path, str(error))
    spread(io, failure)
    return failure


def spread(io: IO, failure: SyncFailed) -> None:
    """Tell every store on the device of ``failure``."""
    try:
        device = io.device(os.path.dirname(failure.path))
    except OSError:
        device = None
    with _watchers_lock:
        told = [watcher for watcher in _watchers if device in (None, watcher.device)]
    for watcher in told:
        watcher.failed(failure)


def sync_directory(io: IO, path: str) -> None:
    """fsync a directory; a failure is as final as that of a file."""
    try:
        io.fsync_dir(path)
    except FileNotFoundError as error:  # it was deleted: nothing of the disk's failed
        raise WriteFailed(path, str(error)) from error
    except OSError as error:
        raise condemn(io, os.path.join(path, ""), error) from error


# ---------------------------------------------------------------- small files


def write_error(path: str, size_bytes: int, error: OSError) -> DiskFull | WriteFailed:
    """The named error for a write of ``size_bytes``, or a change of a directory, that failed."""
    if error.errno in (ENOSPC, EDQUOT, EFBIG):
        return DiskFull(path, size_bytes, error.strerror or str(error))
    return WriteFailed(path, str(error))


def write_file(io: IO, path: str, data: Buffer, *, position: int = 0, sync: bool = True) -> None:
    """Create a small file, or write over what it held, and sync it; its directory entry is the caller's to sync.

    Args:
        position: Where ``data`` begins; what the file holds before it stays, and is not written.

    Raises:
        DiskFull, WriteFailed: It may hold part of ``data``.
        SyncFailed: Final for the device.
    """
    try:
        fd = io.open(path, os.O_RDWR | os.O_CREAT)
        try:
            pwrite_all(io, fd, data, position)
            if io.size_bytes(fd) > (end := position + len(data)):
                io.truncate(fd, end)
            if sync:
                _sync(io, fd, path)
        finally:
            io.close(fd)
    except OSError as error:
        raise write_error(path, len(data), error) from error


def replace_file(io: IO, path: str, data: bytes) -> None:
    """Replace a small file at once and for good: a synced ``.tmp``, renamed over, the directory synced.

    Raises:
        DiskFull, WriteFailed: It is as it was.
        SyncFailed: Final for the device.
    """
    write_file(io, path + ".tmp", data)
    try:
        io.rename(path + ".tmp", path)
    except OSError as error:
        raise write_error(path, len(data), error) from error
    sync_directory(io, os.path.dirname(path))


def copy_file(io: IO, source: str, target: str, size_bytes: int, tell: Callable[[int], None] | None = None) -> None:
    """Copy the first ``size_bytes`` of a file into a new one, and sync it; its directory entry is the caller's to sync.

    Args:
        tell: Called with the bytes copied since the last call.

    Raises:
        FileNotFoundError: There is no ``source``.
        CorruptionError: ``source`` is shorter than that.
        DiskFull, WriteFailed, SyncFailed: ``target`` may hold part of it.
    """
    read = io.open(source, os.O_RDONLY)
    try:
        try:
            fd = io.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                position = 0
                while position < size_bytes:
                    copied = io.copy_range(read, fd, min(COPY_SIZE_BYTES, size_bytes - position), position)
                    if copied <= 0:
                        raise CorruptionError(source, position, f"the file ends before its {size_bytes} bytes")
                    position += copied
                    if tell is not None:
                        tell(copied)
                _sync(io, fd, target)
            finally:
                io.close(fd)
        except OSError as error:
            raise write_error(target, size_bytes, error) from error
    finally:
        io.close(read)


def link_file(io: IO, source: str, target: str) -> bool:
    """Give a file a second name; False where the system cannot: another device, no right to, too many names, no such file system.

    Raises:
        FileNotFoundError: There is no ``source``.
        DiskFull, WriteFailed: as they say.
    """
    try:
        io.link(source, target)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise write_error(target, 0, error) from error
    return True


def _sync(io: IO, fd: int, path: str) -> None:
    try:
        io.fdatasync(fd)
    except OSError as error:
        raise condemn(io, path, error) from error
