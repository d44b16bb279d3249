"""The one object through which the library calls files, the clock and the machine.

``logdb.open(io=…)`` takes another object with the same methods, so that a test can break the disk, drop unsynced writes, count the
calls or stop the clock.  LMDB does its own I/O; its files are modelled, not injected (docs/inside/durability.md).

Every method may raise OSError; ``disk`` turns it into an error of ``errors``.
Threading: methods may be called from any thread at once, but two threads never
share a write position.
"""

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Sequence

from logdb._native import ffi, lib
from logdb.errors import UnsupportedPlatform
from logdb.model import Buffer

if sys.platform == "win32":  # pragma: no cover
    raise UnsupportedPlatform("logdb runs on Linux and macOS: Windows has neither fsync of directories nor flock")

import fcntl

_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF)  # between these two files
_COPY_SIZE_BYTES = 1 << 20
_F_FULLFSYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone leaves the data in the drive's cache


def mode_in(directory: str, mode: int) -> int:
    """The mode of a new file or directory: without the rights that its directory denies to others.

    So only the owner may access anything made in a directory with ``security.json``.
    """
    try:
        return mode & (os.stat(directory or ".").st_mode | 0o700)
    except OSError:
        return mode  # the creation itself will raise the error


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """A name is that of a pipe, a socket or a device, where a regular file is expected."""


def check_regular(mode: int, path: str) -> None:
    """Raise NotRegular unless ``mode``, as in ``os.stat``, is that of a regular file; of a directory, IsADirectoryError."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise NotRegular(errno.EINVAL, f"it is {_KINDS.get(stat.S_IFMT(mode), 'of an unknown kind')}, not a regular file", path)


class DirectoryNotOpened(OSError):
    """A directory could not be opened for its sync: unlike a failed sync, this does not concern the disk's content."""


class IO:
    """Files and clock of the real machine.

    ``stamped_ms``: the latest wall-clock time at which a producer of this process began a batch.  If the clock goes back before the
    batch is written, a log still accepts the timestamps of that time.
    """

    stamped_ms = 0

    # ------------------------------------------------------------ files

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Open a regular file, or with O_DIRECTORY a directory; ``mode``: see ``mode_in``.

        ``flags`` as in os.open; close-on-exec is added.  Raises NotRegular for a pipe, a socket or a device:
        an open or a read of one may never end.
        """
        if flags & os.O_CREAT:
            mode = mode_in(os.path.dirname(path), mode)
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)  # neither changes anything for a regular file
        try:
            if not flags & os.O_DIRECTORY:
                check_regular(os.fstat(fd).st_mode, path)
            if flags & os.O_CREAT and (closed := mode_in(os.path.dirname(path), mode)) != mode:  # the directory was closed meanwhile
                os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & closed)
        except OSError:
            os.close(fd)
            raise
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwrite(self, fd: int, view: Buffer, position: int) -> int:
        """Write at a position; returns the bytes written, which may be fewer."""
        return os.pwrite(fd, view, position)

    def preadinto(self, fd: int, view: Buffer, position: int) -> int:
        """Fill ``view`` from a position; returns the bytes read, 0 at the end of the file."""
        return os.preadv(fd, (view,), position)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        """Read up to ``size_bytes`` as new bytes: for small reads, where a buffer costs more."""
        return os.pread(fd, size_bytes, position)

    def size_bytes(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def file_id(self, fd: int) -> tuple[int, int]:
        """Device and inode of an open file."""
        found = os.fstat(fd)
        return found.st_dev, found.st_ino

    def path_id(self, path: str) -> tuple[int, int] | None:
        """The ``file_id`` of the file that has a name now, or of the symbolic link; None without one."""
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def path_version(self, path: str) -> tuple[int, ...] | None:
        """A value that changes when a name is given to another file, or its file is written to; None without a file."""
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def allocate(self, fd: int, position: int, size_bytes: int) -> None:
        """Reserve room in a file, extending it by zeroes (fallocate)."""
        if sys.platform == "linux":
            os.posix_fallocate(fd, position, size_bytes)

    def free_bytes(self, path: str) -> int:
        """How many bytes this user may still write to the file system of ``path``; a large number if the system does not say."""
        try:
            status = os.statvfs(path)
        except OSError:
            return 1 << 63
        return status.f_bavail * status.f_frsize

    def file_system_bytes(self, path: str) -> int:
        """The size of the file system of ``path``; a large number if the system does not say."""
        try:
            status = os.statvfs(path)
        except OSError:
            return 1 << 63
        return status.f_blocks * status.f_frsize

    def disk_bytes(self, path: str) -> int:
        """How much of the disk the files in a directory take: more than their sizes where the system gives whole blocks.

        Data that the system has not written out yet has no blocks: it counts by its size.
        """
        with os.scandir(path) as found:
            total = 0
            for entry in found:
                with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                    status = entry.stat(follow_symlinks=False)
                    total += max(status.st_size, status.st_blocks * 512)  # a block of POSIX, whatever the file system has
        return total

    def fdatasync(self, fd: int) -> None:
        """Return when the file's data, and the metadata to read it back, are on the disk."""
        if _F_FULLFSYNC is not None:  # pragma: no cover
            fcntl.fcntl(fd, _F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    # ------------------------------------------------------------ many files, synced together

    def syncs_together(self, fd: int) -> bool:
        """Whether ``sync_file_system`` does for each file of this one's file system what ``fdatasync`` does, and for each directory.

        A subclass with an ``fdatasync`` of its own has each file synced by it, unless it says otherwise.
        """
        return type(self).fdatasync is IO.fdatasync and bool(lib.logdb_sync_is_shared(fd))

    def start_writing(self, fds: Sequence[int]) -> list[int]:
        """Start to write the dirty pages of files, without waiting; returns for each 0, or the errno."""
        errors = ffi.new("int[]", len(fds))
        lib.logdb_sync_start(ffi.new("int[]", fds), len(fds), errors)
        return list(errors)

    def sync_file_system(self, fd: int) -> None:
        """Return when all of a file system is on the disk: data, sizes and directory entries."""
        if number := lib.logdb_sync_file_system(fd):
            raise OSError(number, os.strerror(number))

    def write_errors(self, fds: Sequence[int]) -> list[int]:
        """For each file 0, or the errno of a write that has failed since the last question."""
        errors = ffi.new("int[]", len(fds))
        lib.logdb_sync_errors(ffi.new("int[]", fds), len(fds), errors)
        return list(errors)

    # ------------------------------------------------------------ more of one file

    def copy_range(self, source: int, target: int, size_bytes: int, position: int) -> int:
        """Copy from one open file to the same place of another, in the kernel where it can.

        Returns the bytes copied, which may be fewer; 0 where the source ends.  File systems that
        share blocks (btrfs, xfs) copy nothing at all.
        """
        if hasattr(os, "copy_file_range"):
            try:
                return os.copy_file_range(source, target, size_bytes, position, position)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
        data = os.pread(source, min(size_bytes, _COPY_SIZE_BYTES), position)
        return os.pwrite(target, data, position) if data else 0

    def drop_cache(self, fd: int) -> None:
        """Ask the kernel to drop its clean pages of a file, so that the next read comes from the disk."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def lock(self, fd: int) -> bool:
        """Take the exclusive flock of a file without waiting; False if another process holds it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        """Release the flock, also if a child process has inherited the descriptor and not closed it yet."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    # ------------------------------------------------------------ directories

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        try:  # os.path.lexists returns False for an unreadable path
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def mkdir(self, path: str, *, apart: bool = False) -> None:
        """Make a directory; ``apart``: its mode does not depend on its parent's (``mode_in``)."""
        parent = os.path.dirname(path)
        mode = 0o777 if apart else mode_in(parent, 0o777)
        os.mkdir(path, mode)
        if not apart and (closed := mode_in(parent, mode)) != mode:  # the parent was closed meanwhile
            self.chmod(path, stat.S_IMODE(self.mode(path)) & closed)

    def mode(self, path: str, *, follow_link: bool = True) -> int:
        """The mode of a file or directory, as in ``os.stat``; not ``follow_link``: that of a symbolic link itself."""
        return os.stat(path, follow_symlinks=follow_link).st_mode

    def chmod(self, path: str, mode: int, *, follow_link: bool = False) -> None:
        """Change the mode of a file or directory; not ``follow_link``: a symbolic link is an error (ELOOP)."""
        if follow_link:
            os.chmod(path, mode)
            return
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(fd, mode)
        finally:
            os.close(fd)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing ``new`` at once; durable after fsync_dir."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def fsync_dir(self, path: str) -> None:
        """Return when the directory's entries are on the disk; raises DirectoryNotOpened if fsync was not even called."""
        try:
            fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise DirectoryNotOpened(error.errno, error.strerror, path) from error
        try:
            os.fsync(fd)
        finally:
            with contextlib.suppress(OSError):  # the entries are synced by then, or the sync has failed: the close adds nothing
                self.close(fd)

    def device(self, path: str) -> int:
        """The number of the device that holds ``path``: a failed fsync condemns all of it."""
        return os.stat(path).st_dev

    # ------------------------------------------------------------ clock and machine

    def clock_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """A clock that never goes back, for waits and ages."""
        return time.monotonic_ns() // 1_000_000

    def boot_id(self) -> str:
        """The id of this boot of the machine: the same before and after means that the page cache survived."""
        with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip().decode()
        return ""  # unknown, so it equals none: recovery then assumes a power cut


_WRITE_SIZE_BYTES = 64 << 10


def pwrite_all(io: IO, fd: int, view: Buffer, position: int) -> None:
    """Write all of ``view`` at ``position``, piece by piece, continuing after short writes.

    Larger pieces are several times slower if the file system takes large folios for them, and memory is fragmented.
    After an error a caller may start over: the same bytes go to the same position.
    """
    rest = memoryview(view).cast("B")
    while rest:
        written = io.pwrite(fd, rest if len(rest) <= _WRITE_SIZE_BYTES else rest[:_WRITE_SIZE_BYTES], position)
        if written == len(rest):
            return
        if written <= 0:
            raise OSError(5, "write returned 0")
        rest = rest[written:]
        position += written


def pread_exact(io: IO, fd: int, size_bytes: int, position: int) -> bytes:
    """Read ``size_bytes`` from ``position``; shorter only where the file ends."""
    parts = []
    while size_bytes > 0 and (part := io.pread(fd, size_bytes, position)):
        parts.append(part)
        position += len(part)
        size_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
