"""A disk that fails on demand, and a record of what was asked of it.

The work goes to real files.  A rule makes calls of one kind fail with an errno until it is
taken back; ``room`` makes the disk fill up.  ``wait_for`` lets a test wait for what a
background thread does, instead of sleeping.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable

from logdb.io import IO

WAIT_S = 60  # for what takes milliseconds, on a machine that is busy


def concerns(part: str, path: str) -> bool:
    """Whether ``path`` has what ``part`` says: the begin of a name ("t-0", "t-0/0"), or some of how one goes on (".log", "0.log").

    A name found anywhere would find what the test has not made: "t-0" is in pytest's own directory, "pytest-0".
    """
    return (f"/{part}" if part[:1].isalpha() else part) in f"/{path}"


class FaultyIO(IO):
    """Real I/O with faults.

    ``calls``: every (kind, path) so far, clocks aside.  ``written_bytes``: by name of the file.  ``room``: bytes that may still be written
    (None: no limit); when it runs out a write is short, the next one fails.  ``now_ms``: the wall
    clock, None for the real one.  ``can_sync_together``: many files are synced by one sync of the file system.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.written_bytes: Counter[str] = Counter()
        self.room: int | None = None
        self.now_ms: int | None = None
        self.can_sync_together = False
        self.before: Callable[[str, str], None] = lambda kind, path: None
        self._rules: list[tuple[str, str, int]] = []
        self._paths: dict[int, str] = {}
        self._changed = threading.Condition()

    # ------------------------------------------------------------ what a test says

    def fail(self, kind: str, number: int = errno.EIO, path: str = "") -> None:
        """From now on calls of ``kind`` that concern ``path`` fail with errno ``number``."""
        self._rules.append((kind, path, number))

    def fill_up(self) -> None:
        """No room for a byte or an inode."""
        self.room = 0
        for kind in ("allocate", "mkdir", "create", "link"):
            self.fail(kind, errno.ENOSPC)

    def heal(self) -> None:
        self._rules, self.room = [], None

    def count(self, kind: str, path: str = "") -> int:
        return sum(1 for known, where in list(self.calls) if known == kind and concerns(path, where))

    def wait_for(self, kind: str, path: str = "", *, more_than: int = 0) -> None:
        """Return once there were more than so many calls of ``kind``."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.count(kind, path) > more_than, WAIT_S), f"no {kind} of {path!r}"

    # ------------------------------------------------------------ what the library asks

    def _step(self, kind: str, path: str) -> None:
        self.before(kind, path)
        with self._changed:
            self.calls.append((kind, path))
            self._changed.notify_all()
        for known, part, number in self._rules:
            if known == kind and concerns(part, path):
                raise OSError(number, os.strerror(number), path)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._step("create" if flags & os.O_CREAT and not os.path.lexists(path) else "open", path)
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def pwrite(self, fd, view, position):
        path = self._paths.get(fd, "")
        self._step("pwrite", path)
        if (room := self.room) is not None:  # another thread may heal it meanwhile
            grows = max(0, position + len(view) - os.fstat(fd).st_size)
            if grows > room:
                view = memoryview(view)[: len(view) - grows + room]
                grows = room
            if not len(view):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self.room = None if self.room is None else room - grows
        written = super().pwrite(fd, view, position)
        self.written_bytes[os.path.basename(path)] += written
        return written

    def preadinto(self, fd, view, position):
        self._step("preadinto", self._paths.get(fd, ""))
        return super().preadinto(fd, view, position)

    def pread(self, fd, size_bytes, position):
        self._step("pread", self._paths.get(fd, ""))
        return super().pread(fd, size_bytes, position)

    def copy_range(self, source, target, size_bytes, position):
        path = self._paths.get(target, "")
        self._step("copy_range", path)
        if self.room is not None:
            size_bytes = min(size_bytes, self.room)
            if not size_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self.room -= size_bytes
        return super().copy_range(source, target, size_bytes, position)

    def truncate(self, fd, size_bytes):
        self._step("truncate", self._paths.get(fd, ""))
        super().truncate(fd, size_bytes)

    def allocate(self, fd, position, size_bytes):
        self._step("allocate", self._paths.get(fd, ""))
        if (room := self.room) is not None:
            if size_bytes > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._paths.get(fd, ""))
            self.room = None if self.room is None else room - size_bytes
        super().allocate(fd, position, size_bytes)

    def free_bytes(self, path):
        return super().free_bytes(path) if (room := self.room) is None else room

    def fdatasync(self, fd):
        self._step("fdatasync", self._paths.get(fd, ""))
        super().fdatasync(fd)

    def syncs_together(self, fd):
        return self.can_sync_together

    def start_writing(self, fds):
        return [self._number("start_writing", fd) for fd in fds]

    def sync_file_system(self, fd):
        self._step("sync_file_system", self._paths.get(fd, ""))
        super().sync_file_system(fd)

    def write_errors(self, fds):
        return [self._number("write_errors", fd) for fd in fds]

    def _number(self, kind: str, fd: int) -> int:
        try:
            self._step(kind, self._paths.get(fd, ""))
        except OSError as error:
            return error.errno or 0
        return 0

    def drop_cache(self, fd):
        self._step("drop_cache", self._paths.get(fd, ""))
        super().drop_cache(fd)

    def exists(self, path):
        self._step("exists", path)
        return super().exists(path)

    def mkdir(self, path, **how):
        self._step("mkdir", path)
        super().mkdir(path, **how)

    def rename(self, old, new):
        self._step("rename", old)
        super().rename(old, new)

    def link(self, old, new):
        self._step("link", new)
        super().link(old, new)

    def unlink(self, path):
        self._step("unlink", path)
        super().unlink(path)

    def fsync_dir(self, path):
        self._step("fsync_dir", path)
        super().fsync_dir(path)

    def clock_ms(self) -> int:
        return super().clock_ms() if self.now_ms is None else self.now_ms
