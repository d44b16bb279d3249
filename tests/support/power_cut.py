"""A disk that can lose its power: what was not synced may be gone, in any subset and torn anywhere.

The work goes to real files; beside them every node remembers what is durable and what is
pending.  ``PowerCutIO.cut`` builds the directory that a machine would find when it comes back.

    file:       content at the last fdatasync + any subset of the writes since, each perhaps torn
    directory:  entries at the last fsync_dir + any subset of the changes since
    catalogue/: LMDB does its own I/O and syncs each commit, so: the copy made after the last commit
"""

from __future__ import annotations

import os
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import logdb
from logdb.io import IO
from logdb.meta import Catalogue

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
S = TypeVar("S", bound="Story")
Change = tuple[int, bytes] | int  # (position, data), at least up to there; or a size: truncated to it


@dataclass(eq=False)
class FileNode:
    durable: bytes | bytearray = b""
    pending: list[Change] = field(default_factory=list)
    synced_count: int = 0  # how many changes are no longer pending

    def synced(self, count: int) -> None:
        """So many changes of all, from the first one on, are durable."""
        if (left := count - self.synced_count) > 0:
            self.durable = bytearray(self.durable) if isinstance(self.durable, bytes) else self.durable
            for change in self.pending[:left]:
                apply(self.durable, change)
            del self.pending[:left]
            self.synced_count = count


@dataclass(eq=False)
class DirNode:
    durable: dict[str, Node] = field(default_factory=dict)
    current: dict[str, Node] = field(default_factory=dict)
    pending: list[list[tuple[str, Node | None]]] = field(default_factory=list)  # each at once: (name, node), None: gone
    synced_count: int = 0
    committed: dict[str, bytes] = field(default_factory=dict)  # of a catalogue: its files after LMDB's last commit

    def synced(self, count: int, entries: dict[str, Node]) -> None:
        """So many changes of all, from the first one on, are durable, which led to these entries."""
        if count > self.synced_count:
            del self.pending[: count - self.synced_count]
            self.durable, self.synced_count = entries, count


Node = FileNode | DirNode


class Killed(BaseException):
    """The process is dead: raised by the call at which it dies, and by every later one."""


class PowerCutIO(IO):
    """Real I/O under ``root``, which remembers what is durable.  Catalogues in it are copied after each commit.

    ``calls`` counts what changes or syncs something; the one with the number ``kill_at`` kills the
    process before it, or, if it is a write, in the middle of it.
    """

    def __init__(self, root: str, *, boot: str = "boot") -> None:
        self.root = root
        self._fds: dict[int, Node] = {}
        self._tree = self._load(root)
        self.boot = boot
        self.calls: list[str] = []
        self.kill_at: int | None = None
        self.dead = False
        self.tree_lock = threading.RLock()  # of the tree, where threads make calls beside one another

    def _step(self, what: str, path: str = "") -> bool:
        """Count a call; True where the process dies in it."""
        self._live()
        self.calls.append(f"{what} {os.path.basename(path)}".strip())
        dies = self.kill_at == len(self.calls)
        self.dead |= dies
        return dies

    def _live(self) -> None:
        if self.dead:
            raise Killed

    def _die_or(self, what: str, path: str = "") -> None:
        if self._step(what, path):
            raise Killed

    def next_process(self) -> PowerCutIO:
        """The same machine, for the process that comes after this one: what was not synced still is not."""
        following = PowerCutIO(self.root, boot=self.boot)
        following._tree = self._tree
        return following

    # ------------------------------------------------------------ files

    def open(self, path, flags, mode=0o644):
        self._live()
        if flags & os.O_CREAT and not os.path.lexists(path):
            self._die_or("create", path)
        there = os.path.lexists(path)
        fd = super().open(path, flags, mode)
        parent, name = self._parent(path)
        if parent is not None:
            if not there:
                self._enter(parent, name, FileNode())
            node = parent.current[name]
            if there and flags & os.O_TRUNC and isinstance(node, FileNode):
                node.pending.append(0)
            self._fds[fd] = node
        return fd

    def close(self, fd):
        self._fds.pop(fd, None)
        super().close(fd)

    def pwrite(self, fd, view, position):
        dies = self._step("pwrite")
        written = super().pwrite(fd, memoryview(view)[: len(view) // 2] if dies else view, position)
        if (node := self._fds.get(fd)) is not None:
            node.pending.append((position, bytes(memoryview(view)[:written])))
        if dies:
            raise Killed
        return written

    def copy_range(self, source, target, size_bytes, position):
        dies = self._step("copy_range")
        copied = super().copy_range(source, target, size_bytes // 2 if dies else size_bytes, position)
        if (node := self._fds.get(target)) is not None:
            node.pending.append((position, os.pread(source, copied, position)))
        if dies:
            raise Killed
        return copied

    def truncate(self, fd, size_bytes):
        self._die_or("truncate")
        super().truncate(fd, size_bytes)
        if (node := self._fds.get(fd)) is not None:
            node.pending.append(size_bytes)

    def allocate(self, fd, position, size_bytes):
        self._die_or("allocate")
        super().allocate(fd, position, size_bytes)
        if (node := self._fds.get(fd)) is not None:
            node.pending.append((position + size_bytes, b""))

    def fdatasync(self, fd):
        self._die_or("fdatasync")
        if (node := self._fds.get(fd)) is not None:
            with self.tree_lock:
                count = node.synced_count + len(node.pending)
            self.sync(fd)
            with self.tree_lock:
                if not self.dead:
                    node.synced(count)
            self._live()

    def syncs_together(self, fd):
        return True

    def start_writing(self, fds):
        self._live()
        return [0] * len(fds)

    def sync_file_system(self, fd):
        self._die_or("sync_file_system")
        with self.tree_lock:
            syncs = list(_syncs(self._tree))
        self.sync(fd)
        with self.tree_lock:
            if not self.dead:
                for sync in syncs:
                    sync()
        self._live()

    def write_errors(self, fds):
        self._live()
        return [0] * len(fds)

    # ------------------------------------------------------------ directories

    def mkdir(self, path, **how):
        self._die_or("mkdir", path)
        super().mkdir(path, **how)
        parent, name = self._parent(path)
        if parent is not None:
            self._enter(parent, name, DirNode())

    def rmdir(self, path):
        self._die_or("rmdir", path)
        super().rmdir(path)
        self._leave(path)

    def unlink(self, path):
        self._die_or("unlink", path)
        super().unlink(path)
        self._leave(path)

    def rename(self, old, new):
        self._die_or("rename", old)
        super().rename(old, new)
        with self.tree_lock:
            node = self._leave(old)
            parent, name = self._parent(new)
            if parent is not None and node is not None:
                gone = parent.pending.pop()  # in the same directory, as all of ours: renaming is one change
                self._enter(parent, name, node)
                parent.pending[-1] = gone + parent.pending[-1]

    def link(self, old, new):
        self._die_or("link", old)
        super().link(old, new)
        parent, name = self._parent(new)
        node = self._find(old)
        if parent is not None and node is not None:
            self._enter(parent, name, node)

    def fsync_dir(self, path):
        self._die_or("fsync_dir", path)
        node = self._find(path)
        if isinstance(node, DirNode):
            with self.tree_lock:
                current, count = dict(node.current), node.synced_count + len(node.pending)
            self.sync_directory(path)
            with self.tree_lock:
                if not self.dead:
                    node.synced(count, current)
            self._live()

    def sync(self, fd: int) -> None:
        """What a sync does of itself: nothing, so that many crashes take no time."""

    def sync_directory(self, path: str) -> None:
        """As ``sync``."""

    def boot_id(self):
        return self.boot

    # ------------------------------------------------------------ LMDB

    def note_commit(self, path: str | None = None) -> None:
        """Remember the catalogue in ``path`` (None: the root's) as it is: its last commit has just returned."""
        path = path or os.path.join(self.root, "catalogue")
        node = self._find(path)
        if isinstance(node, DirNode):
            committed = _files(path)
            with self.tree_lock:
                if not self.dead:
                    node.committed = committed
            self._live()

    # ------------------------------------------------------------ the cut

    def cut(self, target: str, rng: random.Random) -> None:
        """Build in ``target`` what is there after a power cut now."""
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target)
        with self.tree_lock:
            self._build(self._tree, target, rng)

    def _build(self, node: DirNode, path: str, rng: random.Random) -> None:
        entries = dict(node.durable)
        kept = rng.choice((0.0, 0.5, 1.0))
        for change in node.pending:
            if rng.random() < kept:
                for name, child in change:
                    entries.pop(name, None)
                    if child is not None:
                        entries[name] = child
        for name, child in entries.items():
            where = os.path.join(path, name)
            if isinstance(child, FileNode):
                _write(where, survivor(child, rng))
                continue
            if name == "catalogue" and not child.committed:
                continue
            os.makedirs(where, exist_ok=True)
            for file, data in child.committed.items():
                if file != "lock.mdb":
                    _write(os.path.join(where, file), data)
            if name != "catalogue":
                self._build(child, where, rng)

    # ------------------------------------------------------------ the tree

    def _load(self, path: str) -> DirNode:
        entries: dict[str, Node] = {}
        for name in os.listdir(path):
            where = os.path.join(path, name)
            if os.path.isdir(where):
                entries[name] = self._load(where)
                if name == "catalogue":
                    entries[name].committed = _files(where)
            else:
                with open(where, "rb") as file:
                    entries[name] = FileNode(file.read())
        return DirNode(dict(entries), entries)

    def _find(self, path: str) -> Node | None:
        relative = os.path.relpath(path, self.root)
        node: Node | None = self._tree
        if relative == ".":
            return node
        for part in relative.split("/"):
            if part == ".." or not isinstance(node, DirNode):
                return None
            node = node.current.get(part)
        return node

    def _parent(self, path: str) -> tuple[DirNode | None, str]:
        if os.path.basename(os.path.dirname(path)) == "catalogue":
            return None, ""
        node = self._find(os.path.dirname(path))
        return (node if isinstance(node, DirNode) else None), os.path.basename(path)

    def _enter(self, parent: DirNode, name: str, node: Node) -> None:
        with self.tree_lock:
            parent.current[name] = node
            parent.pending.append([(name, node)])

    def _leave(self, path: str) -> Node | None:
        parent, name = self._parent(path)
        if parent is None:
            return None
        with self.tree_lock:
            parent.pending.append([(name, None)])
            return parent.current.pop(name, None)


def _syncs(node: DirNode) -> Iterator[Callable[[], None]]:
    """What to call when all below a directory, as it is now, is durable."""
    yield partial(node.synced, node.synced_count + len(node.pending), dict(node.current))
    for child in node.current.values():
        if isinstance(child, DirNode):
            yield from _syncs(child)
        else:
            yield partial(child.synced, child.synced_count + len(child.pending))


def _files(path: str) -> dict[str, bytes]:
    found = {}
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb") as file:
            found[name] = file.read()
    return found


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data.rstrip(b"\0"))  # room that is reserved takes none here
        file.truncate(len(data))


def survivor(node: FileNode, rng: random.Random) -> bytes:
    """The content of a file after a cut: durable, and any subset of what is pending, torn anywhere."""
    content = bytearray(node.durable)
    kept = rng.choice((0.0, 0.3, 0.8, 1.0))
    for change in node.pending:
        if rng.random() >= kept:
            continue
        apply(content, _torn(change, rng) if rng.random() < 0.3 else change)
    return bytes(content)


def _torn(change: Change, rng: random.Random) -> Change:
    """A part of a write, from its begin or to its end."""
    if isinstance(change, int):
        return change
    position, data = change
    cut = rng.randrange(len(data) + 1)
    return position, data[:cut] if rng.random() < 0.5 else bytes(cut) + data[cut:]


def apply(content: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del content[change:]
        content.extend(bytes(change - len(content)))
        return
    position, data = change
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


# ---------------------------------------------------------------- a process that dies


class commits_noted:  # noqa: N801 -- read as a phrase: with commits_noted(io)
    """While it lasts, every commit of a catalogue is a step of ``io``, and copied by it."""

    def __init__(self, io: PowerCutIO) -> None:
        self._io = io

    def __enter__(self) -> None:
        self._write = write = Catalogue.write
        io = self._io

        def noted(catalogue, function):
            io._die_or("commit")
            result = write(catalogue, function)
            io.note_commit(catalogue.path)
            io._die_or("committed")
            return result

        Catalogue.write = noted

    def __exit__(self, *exception: object) -> None:
        Catalogue.write = self._write


def quiet(db: logdb.Database) -> logdb.Database:
    """Stop the threads of a database, so that only the test makes calls."""
    writer = db._store.writer
    writer.recovery.join()
    writer.flusher.stop()
    for keeper in (writer.housekeeping, writer.cleaner.background, writer.sidecars.background):
        keeper.stop()
        keeper._begin = lambda: None
        keeper._stopped.clear()  # what a test asks for itself is done all the same
    return db


def die(db: logdb.Database) -> None:
    """Let go of a database as a process does that is killed: nothing is written, the kernel closes the files."""
    quiet(db)
    if db._broker is not None:
        db._broker._timers.stop()
    state = db._store._state
    state.closed = True
    for log in state.logs.values():
        log.abandon()
    state.catalogue.close()
    state.lock_file.release()


class Story(Protocol):
    """What is told until it is killed; ``db``: what it has open."""

    db: logdb.Database | None

    def run(self) -> None: ...


def tell(path: str, make: Callable[[str, PowerCutIO], S], kill_at: int | None) -> S:
    """Run the story that ``make`` gives, in the new directory ``path``; it is killed at its call ``kill_at``, or (None) never."""
    os.makedirs(path)
    io = PowerCutIO(path)
    io.kill_at = kill_at
    story = make(path, io)
    with commits_noted(io):
        try:
            story.run()
        except Killed:
            pass
        finally:
            if story.db is not None:
                die(story.db)
    return story


def deaths(calls: Sequence[str], *, first: int = 1, which: int = 0, count: int = 8, part: int = 1) -> list[int]:
    """The numbers of the calls, from ``first`` on, that a story is killed at: all of them where ``LOGDB_TEST_SCALE`` is more than 1.

    Otherwise one of each kind on each kind of file, and ``count`` spread over the story; another ``which`` has others.
    ``part``: one in so many of these.
    """
    numbers = range(first, len(calls) + 1)
    if SCALE > 1:
        return list(numbers)
    kinds: dict[str, list[int]] = {}
    for number in numbers:
        kinds.setdefault(re.sub(r"\d+", "#", calls[number - 1]), []).append(number)
    step = max(1, len(numbers) // count)
    chosen = sorted({same[which % len(same)] for same in kinds.values()} | set(numbers[which * step // 3 % step :: step]))
    return chosen[which % part :: part]
