"""Files and directories by name: errors of the system become errors of ``logdb.errors``, and a failed sync is reported to its device.

A **failed sync** is an fdatasync or fsync that was called and returned an error, with any errno.  ENOSPC and EDQUOT
count: with delayed allocation, and on NFS, they mean that data written earlier is lost.  An error before the sync itself, of opening,
creating, writing, allocating or renaming, is ReadFailed, WriteFailed or DiskFull, and the call may be repeated.
(LMDB calls fdatasync itself: ``meta.environment`` says which of its errors are failed syncs.)

No file is opened through a symbolic link, unless its path comes from the user: in a directory that others may write to, a link would
lead a write or a chmod elsewhere.  Directories above the file may be links: an operator moves a partition to another disk by one.
The directories of views, tables and uploads may not (``refuse_link``): logdb deletes every file in them that it does not know.

A descriptor belongs to a ``File`` and is closed with the last reference to it.  Its number never leaves this module: the method
that uses it holds the ``File``, so the number cannot become another file's meanwhile.

FileNotFoundError and FileExistsError stay as they are where a caller may expect them.

Threading: any function, from any thread.
"""

import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from errno import EDQUOT, EFBIG, ELOOP, EMFILE, EMLINK, ENFILE, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM, EXDEV
from stat import S_ISLNK
from typing import NamedTuple, Self

from logdb.errors import CorruptionError, DiskFull, LogdbError, ReadFailed, SyncFailed, WriteFailed
from logdb.io import IO, DirectoryNotOpened, NotRegular, pread_exact, pwrite_all
from logdb.model import Buffer
from logdb.threads import renew, renewed

logger = logging.getLogger(__name__)

COPY_SIZE_BYTES = 16 << 20  # per system call, so that tests and Ctrl-C can interrupt a copy
_PIECE_SIZE_BYTES = 17 * 24 * 2048  # whole entries of every kind of index: of 8, 12 and 34 bytes
_NO_LINK = (EXDEV, EPERM, EMLINK, EOPNOTSUPP, ENOSYS)
_NO_DESCRIPTOR = (EMFILE, ENFILE)

# ---------------------------------------------------------------- errors by name


def write_error(path: str, size_bytes: int, error: OSError) -> DiskFull | WriteFailed:
    """The named error for a write of ``size_bytes``, or a change of a directory, that failed."""
    if error.errno in (ENOSPC, EDQUOT, EFBIG):
        return DiskFull(path, size_bytes, error.strerror or str(error))
    return WriteFailed(path, _reason(error))


def _reason(error: OSError) -> str:
    if error.errno == ELOOP:
        return "it is a symbolic link, or behind too many: only directories of partitions may be links, replace it by what it leads to"
    return str(error)


@contextlib.contextmanager
def changing(path: str) -> Iterator[None]:
    """Raise DiskFull or WriteFailed where the system cannot change ``path``."""
    try:
        yield
    except OSError as error:
        raise write_error(path, 0, error) from error


@contextlib.contextmanager
def looking(path: str) -> Iterator[None]:
    """Raise ReadFailed where the system cannot read ``path``; FileNotFoundError and the like stay."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise ReadFailed(path, 0, str(error)) from error


# ---------------------------------------------------------------- devices that failed a sync

_watchers: weakref.WeakSet["Watcher"] = weakref.WeakSet()
_watchers_lock = renewed(threading.Lock())


class Watcher:
    """Is called when a sync fails on its device; one for each store that writes."""

    def __init__(self, device: int, failed: Callable[[SyncFailed], None]) -> None:
        self.device, self.failed = device, failed
        with _watchers_lock:
            _watchers.add(self)


def condemn(io: IO, path: str, reason: object) -> SyncFailed:
    """Report to every store on the device of ``path`` that a sync failed; returns the error to raise."""
    failure = SyncFailed(path, str(reason))
    try:
        device = io.device(os.path.dirname(path))
    except OSError:
        device = None
    with _watchers_lock:
        told = [watcher for watcher in _watchers if device in (None, watcher.device)]
    for watcher in told:
        watcher.failed(failure)
    return failure


_syncs: dict[object, tuple[str, int]] = {}  # those under way: of what, and since when; a file that gives way is synced within another's


def longest_sync_ms(io: IO, directory: str) -> int:
    """How long the sync of a file or directory at or below ``directory`` has lasted that began first; 0: none is under way."""
    now_ms, root = io.monotonic_ms(), os.path.join(directory, "")
    return max((now_ms - began_ms for path, began_ms in list(_syncs.values()) if os.path.join(path, "").startswith(root)), default=0)


class SyncTimes(NamedTuple):
    """How long the syncs of this process took.

    Attributes:
        counts: How many took at most so long as the bound of ``SYNC_BOUNDS_S`` at the same place, and longer than the one before it;
            the last: longer than all bounds.
        seconds: All together.
    """

    counts: tuple[int, ...]
    seconds: float


SYNC_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_sync_counts, _sync_seconds = [0] * (len(SYNC_BOUNDS_S) + 1), [0.0]
_sync_lock = renewed(threading.Lock())


def sync_times() -> SyncTimes:
    with _sync_lock:
        return SyncTimes(tuple(_sync_counts), _sync_seconds[0])


def _timed(io: IO, path: str, sync: Callable[..., None], *arguments: object) -> None:
    """Call ``sync``, which makes ``path`` durable; it is one of ``_syncs`` meanwhile, and counted at the end."""
    number, began = object(), time.monotonic()
    _syncs[number] = path, io.monotonic_ms()
    try:
        sync(*arguments)
    finally:
        del _syncs[number]
        _count_sync(time.monotonic() - began)


def _count_sync(took_s: float) -> None:
    with _sync_lock:
        _sync_counts[bisect_left(SYNC_BOUNDS_S, took_s)] += 1
        _sync_seconds[0] += took_s


def sync_directory(io: IO, path: str) -> None:
    """fsync a directory.

    Raises:
        SyncFailed: Final for the device, as for a file.
        DiskFull, WriteFailed: The directory could not be opened; its entries may not be durable yet.
    """
    try:
        try:
            _timed(io, path, io.fsync_dir, path)
        except DirectoryNotOpened as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            _make_way()
            _timed(io, path, io.fsync_dir, path)
    except DirectoryNotOpened as error:
        raise write_error(path, 0, error) from error
    except OSError as error:
        raise condemn(io, os.path.join(path, ""), error) from error


# ---------------------------------------------------------------- one open file

_spared: list[Callable[[], None]] = []


def on_scarcity(give_way: Callable[[], None]) -> None:
    """Register ``give_way``: called when the process has no descriptor left, it closes files that can be opened again."""
    _spared.append(give_way)


def _make_way() -> None:
    for give_way in _spared:
        give_way()


def _open(io: IO, path: str, flags: int, mode: int) -> int:
    """Open a file; where the process has no descriptor left, the registered caches close some first."""
    try:
        return io.open(path, flags, mode)
    except OSError as error:
        if error.errno not in _NO_DESCRIPTOR:
            raise
    _make_way()
    return io.open(path, flags, mode)


def close(io: IO, path: str, fd: int) -> None:
    """Close the descriptor ``fd`` of ``path``.  An error is only logged: all that must be durable was synced before."""
    try:
        io.close(fd)
    except OSError as error:  # Linux has closed it nevertheless
        logger.warning("closing %s: %s", path, error)


class File:
    """An open file, closed with its last reference, or by ``with``.

    A caller of a method holds the ``File``, which therefore stays open during the call.
    """

    __slots__ = ("__weakref__", "_fd", "_sync_failed", "_syncing", "indexes", "io", "path", "used")

    def __init__(self, io: IO, path: str, flags: int, mode: int = 0o644, *, follow_link: bool = False) -> None:
        """Open ``path``; ``flags`` as in os.open; ``follow_link``: it may be a symbolic link, as a path that the user gives.

        Raises:
            FileNotFoundError, FileExistsError: see ``logdb.errors``.
            CorruptionError: It is a pipe, a socket or a device.
            DiskFull, WriteFailed: It cannot be made.
            ReadFailed: It cannot be opened.
        """
        self._fd = -1
        self.io, self.path = io, path
        try:
            self._fd = _open(io, path, flags if follow_link else flags | os.O_NOFOLLOW, mode)
        except (FileNotFoundError, FileExistsError):
            raise
        except NotRegular as error:
            raise CorruptionError(path, 0, str(error.strerror)) from error
        except OSError as error:
            raise (write_error(path, 0, error) if flags & os.O_CREAT else ReadFailed(path, 0, _reason(error))) from error
        self._syncing, self._sync_failed = threading.Lock(), False
        self.used = True  # since the cache of open files last checked
        self.indexes: tuple[bytes, bytes] | None = None  # of a sealed segment, once read; dropped with the file

    def __del__(self) -> None:
        if hasattr(self, "_fd"):  # an exception from outside (Ctrl-C) may have come before the constructor
            self.close()

    def close(self) -> None:
        """Close the descriptor; only the sole owner may call it.  A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close(self.io, self.path, fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # ------------------------------------------------------------ reading; each raises ReadFailed

    def read(self, size_bytes: int, position: int) -> bytes:
        """New bytes from ``position`` on; fewer only at the end of the file."""
        try:
            data = self.io.pread(self._fd, size_bytes, position)
            if len(data) == size_bytes:
                return data
            return data + pread_exact(self.io, self._fd, size_bytes - len(data), position + len(data)) if data else data
        except OSError as error:
            raise ReadFailed(self.path, position, str(error)) from error

    def content(self, size_bytes_max: int) -> bytes:
        """All of a small file, at most ``size_bytes_max`` bytes of it.

        It takes memory for what the file holds: a read of the largest size would ask the system for that much, which a small board refuses.
        """
        return self.read(min(self.size_bytes(), size_bytes_max), 0)

    def pieces(self, size_bytes: int, position: int = 0, *, stop: int | None = None) -> Iterator[bytes]:
        """The bytes [``position``, ``stop``) as new bytes, ``size_bytes`` at a time; None: up to the end of the file."""
        while stop is None or position < stop:
            piece = self.read(size_bytes if stop is None else min(size_bytes, stop - position), position)
            if not piece:
                return
            yield piece
            position += len(piece)

    def fill(self, view: memoryview, position: int) -> int:
        """Read into ``view`` until it is full or the file ends; returns the bytes read."""
        done = 0
        try:
            while done < len(view) and (read := self.io.preadinto(self._fd, view[done:], position + done)) > 0:
                done += read
        except OSError as error:
            raise ReadFailed(self.path, position + done, str(error)) from error
        return done

    def size_bytes(self) -> int:
        with looking(self.path):
            return self.io.size_bytes(self._fd)

    def file_id(self) -> tuple[int, int]:
        """Device and inode, which tell it from another file of the same name."""
        with looking(self.path):
            return self.io.file_id(self._fd)

    def drop_cache(self) -> None:
        """Drop its pages from the page cache, so that the next read comes from the disk."""
        with looking(self.path):
            self.io.drop_cache(self._fd)

    # ------------------------------------------------------------ writing; each raises DiskFull or WriteFailed

    def write(self, view: Buffer, position: int) -> None:
        """Write all of ``view`` at ``position``."""
        try:
            pwrite_all(self.io, self._fd, view, position)
        except OSError as error:
            raise write_error(self.path, len(view), error) from error

    def truncate(self, size_bytes: int) -> None:
        with changing(self.path):
            self.io.truncate(self._fd, size_bytes)

    def allocate(self, position: int, size_bytes: int) -> None:
        """Preallocate."""
        try:
            self.io.allocate(self._fd, position, size_bytes)
        except OSError as error:
            raise write_error(self.path, size_bytes, error) from error

    def lock(self) -> bool:
        """Take its flock without waiting; False if another process holds it."""
        with changing(self.path):
            return self.io.lock(self._fd)

    def unlock(self) -> None:
        """Release the flock, also the share of a child that was forked meanwhile."""
        with changing(self.path):
            self.io.unlock(self._fd)

    def copy_range(self, source: "File", size_bytes: int, position: int) -> int:
        """As ``IO.copy_range``, from ``source`` into this file."""
        with changing(self.path):
            return self.io.copy_range(source._fd, self._fd, size_bytes, position)

    def sync(self) -> None:
        """Make what was written durable.

        One sync at a time: of two that wait for the same write, the system reports its failure to one.

        Raises:
            SyncFailed: after it, every store on the device is read-only.
        """
        try:
            with self._syncing:
                had_failed = self._sync_failed
                if not had_failed:
                    self._sync_once()
        except OSError as error:
            raise condemn(self.io, self.path, error) from error  # outside of the lock: who learns of it may open files
        if had_failed:
            raise condemn(self.io, self.path, "an earlier sync of it failed")

    def _sync_once(self) -> None:
        try:
            _timed(self.io, self.path, self.io.fdatasync, self._fd)
        except OSError:
            self._sync_failed = True
            raise

    def forked(self) -> None:
        """In a forked child: a thread of the parent may have been in a sync."""
        renew([self._syncing])


# ---------------------------------------------------------------- many open files, synced together

_NO_SHARED_SYNC = (ENOSYS, EPERM, EOPNOTSUPP)  # syncfs was not called: an old system, or a container that forbids it
_together = renewed(threading.Lock())  # held by the one thread that holds the locks of several files


def sync_together(io: IO, files: Sequence[File]) -> bool:
    """Make durable what was written to files before, and all changes of directories on their file system.

    It waits for the disk's cache twice, however many files there are.  But it also waits for what other programs have written to the
    file system, so it is no sync for a caller in a hurry, and ``longest_sync_ms`` leaves it out.

    Args:
        files: Of one device; not empty.

    Returns:
        False: Their file system has no such sync.  Nothing was done.

    Raises:
        SyncFailed: Final, as for ``File.sync``; for each of the files.
    """
    first = files[-1]
    if not io.syncs_together(first._fd):
        return False
    began = time.monotonic()
    _ask(io, files, io.start_writing)  # first: here an error of an allocation is the file's; within a sync of all, it is nobody's
    try:
        io.sync_file_system(first._fd)
    except OSError as error:
        if error.errno in _NO_SHARED_SYNC:
            return False
        _fail(files)
        raise condemn(io, first.path, error) from error
    _ask(io, files, io.write_errors)
    _count_sync(time.monotonic() - began)
    try:
        first.sync()  # a file system that has stopped after an error says so to fdatasync alone
    except SyncFailed:
        _fail(files)
        raise
    return True


def _ask(io: IO, files: Sequence[File], question: Callable[[Sequence[int]], Sequence[int]]) -> None:
    """Raise SyncFailed if one of the files has failed: the system reports that once, to this call or to a sync beside it."""
    held: list[threading.Lock] = []
    with _together:
        try:
            for file in files:
                file._syncing.acquire()
                held.append(file._syncing)
            had_failed = [file for file in files if file._sync_failed]
            failed = [(file, number) for file, number in zip(files, question([file._fd for file in files]), strict=True) if number]
            if had_failed or failed:
                _fail(files)
        finally:
            for lock in held:
                lock.release()
    if failed:
        file, number = failed[0]
        raise condemn(io, file.path, OSError(number, os.strerror(number), file.path))
    if had_failed:
        raise condemn(io, had_failed[0].path, "an earlier sync of it failed")


def _fail(files: Sequence[File]) -> None:
    for file in files:
        file._sync_failed = True


# ---------------------------------------------------------------- small files


def read_file(io: IO, path: str, size_bytes_max: int, *, follow_link: bool = False) -> bytes:
    """The content of a small file, at most ``size_bytes_max`` bytes of it; ``follow_link``: as for ``File``.

    Raises:
        FileNotFoundError: There is none.
        ReadFailed: The system cannot read it.
    """
    with File(io, path, os.O_RDONLY, follow_link=follow_link) as file:
        return file.content(size_bytes_max)


def read_while(io: IO, path: str, size_bytes_max: int, goes_on: Callable[[bytes], bool]) -> bytes:
    """The content of a file in pieces, up to the first piece after which ``goes_on`` is false.

    The size of a hostile file says nothing about its content: a sparse one has gigabytes of zeroes.  So each piece is checked
    before the next one takes memory.

    Args:
        size_bytes_max: At most so many bytes of it.

    Raises:
        FileNotFoundError: There is none.
        ReadFailed, CorruptionError: see ``File``.
    """
    with File(io, path, os.O_RDONLY) as file:
        pieces = []
        for piece in file.pieces(_PIECE_SIZE_BYTES, stop=min(size_bytes_max, file.size_bytes())):
            pieces.append(piece)
            if not goes_on(piece):
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def write_file(io: IO, path: str, data: Buffer, *, position: int = 0, sync: bool = True) -> None:
    """Create a small file, or overwrite one, and sync it; the caller syncs the directory.

    Args:
        position: Where ``data`` begins; earlier bytes of the file stay.

    Raises:
        DiskFull, WriteFailed: It may hold part of ``data``.
        SyncFailed: Final for the device.
    """
    with changing(path), File(io, path, os.O_RDWR | os.O_CREAT) as file:
        file.write(data, position)
        if file.size_bytes() > (end := position + len(data)):
            file.truncate(end)
        if sync:
            file.sync()


def replace_file(io: IO, path: str, data: bytes) -> None:
    """Replace a small file atomically and durably: a synced ``.tmp`` is renamed over it, the directory is synced.

    Raises:
        DiskFull, WriteFailed: The file has its old content; or the new one, if only the directory could not be opened for its sync.
        SyncFailed: Final for the device.
    """
    write_file(io, path + ".tmp", data)
    with changing(path):
        io.rename(path + ".tmp", path)
    sync_directory(io, os.path.dirname(path))


class Write(NamedTuple):
    """A write of a small file: ``replaces``: as ``replace_file``; else as ``write_file`` at ``position``."""

    path: str
    data: Buffer
    position: int = 0
    replaces: bool = False


def write_files(io: IO, writes: Sequence[Write]) -> None:
    """Make these writes, durably, one after the other; raises as ``replace_file``."""
    for write in writes:
        if write.replaces:
            replace_file(io, write.path, bytes(write.data))
        else:
            write_file(io, write.path, write.data, position=write.position)


def write_files_together(io: IO, groups: Sequence[Sequence[Write]]) -> list[LogdbError | None]:
    """As ``write_files`` of each group, with syncs that all of them share; returns the error of each group.

    If the file system has no such sync, each write is synced alone.  After SyncFailed no group is durable.
    """
    errors: list[LogdbError | None] = [None] * len(groups)
    by_device: dict[int, list[tuple[int, Write, File]]] = {}
    for number, group in enumerate(groups):
        try:
            for write in group:
                with changing(write.path):
                    file = _written(io, write)
                    by_device.setdefault(file.file_id()[0], []).append((number, write, file))
        except LogdbError as error:
            errors[number] = error
    for written in by_device.values():
        whole = [(number, write, file) for number, write, file in written if errors[number] is None]
        try:
            if whole and not _finish_together(io, whole):
                write_files(io, [write for _, write, _ in whole])
        except LogdbError as error:
            for number, _, _ in whole:
                errors[number] = error
    return errors


def _written(io: IO, write: Write) -> File:
    file = File(io, write.path + ".tmp" if write.replaces else write.path, os.O_RDWR | os.O_CREAT)
    file.write(write.data, write.position)
    if file.size_bytes() > (end := write.position + len(write.data)):
        file.truncate(end)
    return file


def _finish_together(io: IO, written: Sequence[tuple[int, Write, File]]) -> bool:
    """Sync files, give them their names, and sync the names; False: there is no such sync."""
    files = [file for _, _, file in written]
    if not sync_together(io, files):
        return False
    replacing = [write for _, write, _ in written if write.replaces]
    for write in replacing:
        with changing(write.path):
            io.rename(write.path + ".tmp", write.path)
    return not replacing or sync_together(io, files)


def give_room(io: IO, path: str, size_bytes: int) -> None:
    """Give a file its room on the disk, up to ``size_bytes`` at least: it is made, or its holes are filled; its content stays.

    Raises:
        DiskFull, WriteFailed: It may have a part of the room.
    """
    with changing(path), File(io, path, os.O_RDWR | os.O_CREAT) as file:
        if sys.platform == "linux":
            file.allocate(0, size_bytes)  # a copy of a directory may have a file of that size without blocks
        elif (known := file.size_bytes()) < size_bytes:
            file.write(bytes(size_bytes - known), known)


def path_id(io: IO, path: str) -> tuple[int, int] | None:
    """Device and inode of the file that has a name now; None without one.  Raises ReadFailed."""
    with looking(path):
        return io.path_id(path)


def device(io: IO, path: str) -> int:
    """The number of the device of ``path``; raises FileNotFoundError, ReadFailed."""
    with looking(path):
        return io.device(path)


def exists(io: IO, path: str) -> bool:
    """Whether ``path`` exists; raises ReadFailed where the system cannot tell."""
    with looking(path):
        return io.exists(path)


def refuse_link(io: IO, *paths: str) -> None:
    """Raise ReadFailed if one of these paths is a symbolic link; a path without a file is none."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), looking(path):
            if S_ISLNK(io.mode(path, follow_link=False)):
                raise ReadFailed(path, 0, _reason(OSError(ELOOP, "")))


def names_in(io: IO, directory: str) -> list[str]:
    """The names in a directory; raises FileNotFoundError, NotADirectoryError, ReadFailed."""
    with looking(directory):
        return io.listdir(directory)


def disk_bytes(io: IO, directory: str) -> int:
    """How much of the disk the files in a directory take; 0 without it.  Raises ReadFailed."""
    try:
        with looking(directory):
            return io.disk_bytes(directory)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def remove(io: IO, path: str) -> None:
    """Unlink a file; raises WriteFailed."""
    with changing(path):
        io.unlink(path)


def copy_file(io: IO, source: str, target: str, size_bytes: int, tell: Callable[[int], None] | None = None) -> None:
    """Copy the first ``size_bytes`` of a file into a new one, and sync it; the caller syncs the directory.

    Args:
        tell: Called with the bytes copied since the last call.

    Raises:
        FileNotFoundError: There is no ``source``.
        CorruptionError: ``source`` is shorter.
        ReadFailed, DiskFull, WriteFailed, SyncFailed: ``target`` may hold part of the bytes.
    """
    with File(io, source, os.O_RDONLY) as read:
        with changing(target):
            written = File(io, target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        with written:
            position = 0
            while position < size_bytes:
                copied = written.copy_range(read, min(COPY_SIZE_BYTES, size_bytes - position), position)
                if copied <= 0:
                    raise CorruptionError(source, position, f"the file ends before its {size_bytes} bytes")
                position += copied
                if tell is not None:
                    tell(copied)
            written.sync()


def link_file(io: IO, source: str, target: str) -> bool:
    """Make a hard link; False where the system cannot: another device, no permission, too many links, a file system without links.

    Raises:
        FileNotFoundError: There is no ``source``.
        DiskFull, WriteFailed: see ``logdb.errors``.
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
