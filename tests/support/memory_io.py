"""A disk in memory, for many crashes a second: what was not synced may be gone after a cut, in any subset and torn anywhere.

As ``power_cut``, for files of one voter each; a call may fail, and a process may die in one.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable

from logdb.io import IO
from support.power_cut import FileNode, Killed, survivor


class MemoryIO(IO):
    """Files by path.

    ``fails``: kinds of calls that fail, with an errno.  ``kill_in``: so many calls that change something succeed, then the process dies.
    ``on_sync``: is called by each sync, which may take time.
    """

    def __init__(self) -> None:
        self.names: dict[str, tuple[FileNode, bytearray]] = {}
        self.durable: dict[str, tuple[FileNode, bytearray]] = {}
        self.pending: list[dict[str, tuple[FileNode, bytearray] | None]] = []  # changes of names that are not synced
        self.directories = {"/"}
        self.fails: dict[str, int] = {}
        self.kill_in: int | None = None
        self.calls = 0
        self.on_sync: Callable[[], None] = lambda: None
        self._open: dict[int, tuple[FileNode, bytearray]] = {}
        self._locked: set[int] = set()
        self._next = 1000

    def _step(self, kind: str) -> None:
        self.calls += 1
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                raise Killed
        if kind in self.fails:
            raise OSError(self.fails[kind], os.strerror(self.fails[kind]))

    def cut(self, rng: random.Random) -> None:
        """The power goes and comes back."""
        names = dict(self.durable)
        kept = rng.choice((0.0, 0.5, 1.0))
        for change in self.pending:
            if rng.random() < kept:
                for name, file in change.items():
                    names.pop(name, None)
                    if file is not None:
                        names[name] = file
        self.names = {}
        for name, (node, _) in names.items():
            content = survivor(node, rng)
            self.names[name] = (FileNode(content), bytearray(content))
        self.durable, self.pending = dict(self.names), []
        self.new_process()

    def copied(self) -> dict[str, bytes]:
        """The content of every file now."""
        return {name: bytes(content) for name, (_, content) in self.names.items()}

    def restore(self, files: dict[str, bytes]) -> None:
        """A copy takes the place of what is there; no process runs."""
        self.names = {name: (FileNode(content), bytearray(content)) for name, content in files.items()}
        self.durable, self.pending = dict(self.names), []
        self.new_process()

    def new_process(self) -> None:
        """The process is gone; what it wrote is in the page cache."""
        self._open.clear()
        self._locked.clear()
        self.fails, self.kill_in = {}, None

    # ------------------------------------------------------------ files

    def open(self, path, flags, mode=0o644):
        if flags & os.O_CREAT and path not in self.names:
            self._step("create")
            self.names[path] = (FileNode(), bytearray())
            self.pending.append({path: self.names[path]})
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._next += 1
        self._open[self._next] = self.names[path]
        return self._next

    def mode(self, path, *, follow_link=True):
        """Everything is its owner's only."""
        return 0o700

    def close(self, fd):
        self._open.pop(fd, None)

    def pwrite(self, fd, view, position):
        self._step("pwrite")
        node, content = self._open[fd]
        data = bytes(view)
        if len(content) < position:
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        node.pending.append((position, data))
        return len(data)

    def pread(self, fd, size_bytes, position):
        if "pread" in self.fails:
            raise OSError(self.fails["pread"], "read")
        return bytes(self._open[fd][1][position : position + size_bytes])

    def size_bytes(self, fd):
        return len(self._open[fd][1])

    def truncate(self, fd, size_bytes):
        self._step("truncate")
        node, content = self._open[fd]
        del content[size_bytes:]
        node.pending.append(size_bytes)

    def fdatasync(self, fd):
        self._step("fdatasync")
        self.on_sync()
        node, content = self._open[fd]
        node.durable, node.pending = bytes(content), []

    def lock(self, fd):
        node = self._open[fd][0]
        if id(node) in self._locked:
            return False
        self._locked.add(id(node))
        return True

    def unlock(self, fd):
        self._locked.discard(id(self._open[fd][0]))

    # ------------------------------------------------------------ names

    def listdir(self, path):
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return [os.path.basename(name) for name in self.names if os.path.dirname(name) == path]

    def mkdir(self, path, **how):
        self.directories.add(path)

    def exists(self, path):
        return path in self.names or path in self.directories

    def rename(self, old, new):
        self._step("rename")
        self.names[new] = self.names.pop(old)
        self.pending.append({old: None, new: self.names[new]})

    def unlink(self, path):
        self._step("unlink")
        del self.names[path]
        self.pending.append({path: None})

    def fsync_dir(self, path):
        self._step("fsync_dir")
        self.on_sync()
        self.durable, self.pending = dict(self.names), []

    def device(self, path):
        return 0
