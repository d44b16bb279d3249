"""The LMDB environment under a catalogue: opened once per process, growing, failing by name.

    handles (Catalogue)  ──►  Environment, one per data file and process  ──►  lmdb.Environment
                                 gate:   transactions share it, a new map has it alone
                                 writer: one write transaction at a time

Access is one of three levels, and only rises while handles share the
environment: ``NO_LOCK`` (a snapshot; nobody may write beside it), ``READ``
(beside a writer in any process) and ``WRITE``.

Knows LMDB.  Does not know entries.
Threading: all methods, from any thread.  A forked child is refused (Forked);
it opens its own environment.
"""

import contextlib
import enum
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import lmdb

from logdb.errors import CatalogueDamaged, Closed, DiskFull, Forked, LogdbError, SyncFailed, WriteFailed

_log = logging.getLogger(__name__)

T = TypeVar("T")

READER_COUNT_MAX = 4096
MAP_SIZE_BYTES = 64 << 20  # of address space, not of memory or disk; 100,000 segments fit before the map grows
_MAP_UNIT_BYTES = 1 << 16  # the largest page of the machines we know

# What LMDB says when the file itself is wrong.  BadTxnError follows on one of the others within a transaction.
_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
    lmdb.IncompatibleError,
    lmdb.BadTxnError,
)


class Access(enum.IntEnum):
    """What an environment was opened for; higher includes lower."""

    NO_LOCK = 0
    READ = 1
    WRITE = 2


class Gate:
    """Many may be inside at once, or one alone.

    Whoever waits to be alone goes before newcomers; a thread that is inside
    may enter again, so that it cannot wait for itself.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside: dict[int, int] = {}  # thread -> how often it has entered
        self._waiting = 0

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            while self._waiting and me not in self._inside:
                self._changed.wait()
            self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            try:
                while self._inside:
                    self._changed.wait()
                yield
            finally:
                self._waiting -= 1
                self._changed.notify_all()


class Environment:
    """One LMDB environment; ``acquire`` finds or opens it, ``release`` gives it back."""

    def __init__(self, path: str, access: Access, map_size_bytes: int) -> None:
        self.path = path
        self.access = access
        self.handle_count = 0
        self.pid = os.getpid()
        self._gate = Gate()
        self._writer = threading.RLock()
        self._failure: SyncFailed | None = None
        self._lmdb = _open_lmdb(path, access, map_size_bytes)

    # ------------------------------------------------------------ transactions

    def read(self, function: "Callable[[lmdb.Transaction[bytes]], T]") -> T:
        """Run ``function`` in a read transaction, perhaps several times; what it returns must not refer to it."""
        self._refuse_child()
        while True:
            try:
                with self._gate.shared(), self._lmdb.begin() as txn:
                    return function(txn)
            except lmdb.MapResizedError:
                self._adopt_map()
            except lmdb.Error as error:
                raise self._named(error, 0) from error

    def write(self, function: "Callable[[lmdb.Transaction[bytes]], T]", put_size_bytes: Callable[[], int]) -> T:
        """Run ``function`` in a write transaction and commit it, synced; run it again when the map was too small.

        Args:
            function: No effect but on the transaction.
            put_size_bytes: How much the last run wrote, for a message.

        Raises:
            DiskFull, WriteFailed: Nothing was changed.
            SyncFailed: What the disk holds is unknown; every later write is refused likewise.
        """
        self._refuse_child()
        with self._writer:
            while True:
                if self._failure is not None:
                    raise self._failure
                try:
                    with self._gate.shared(), self._lmdb.begin(write=True) as txn:
                        return function(txn)
                except lmdb.MapFullError:
                    self._grow_map()
                except lmdb.MapResizedError:
                    self._adopt_map()
                except lmdb.Error as error:
                    named = self._named(error, put_size_bytes())
                    self._failure = named if isinstance(named, SyncFailed) else None
                    raise named from error

    def map_size_bytes(self) -> int:
        self._refuse_child()
        with self._gate.shared():
            return int(self._lmdb.info()["map_size"])

    def _refuse_child(self) -> None:
        if self.pid != os.getpid():
            raise Forked(f"the catalogue {self.path} was opened by process {self.pid}: open the database anew in process {os.getpid()}")

    # ------------------------------------------------------------ the map

    def _grow_map(self) -> None:
        with self._gate.alone():
            size_bytes = 2 * int(self._lmdb.info()["map_size"])
            self._set_map(size_bytes)
        _log.info("the map of %s has grown to %d bytes", self.path, size_bytes)

    def _adopt_map(self) -> None:
        """Another process has grown the map: take its size."""
        with self._gate.alone():
            self._set_map(0)

    def _set_map(self, size_bytes: int) -> None:
        try:
            self._lmdb.set_mapsize(size_bytes)
        except lmdb.Error as error:
            raise WriteFailed(self.path, f"its map cannot grow to {size_bytes} bytes: {error}") from error

    # ------------------------------------------------------------ opening again, closing

    def raise_access(self, access: Access, map_size_bytes: int) -> None:
        """Open LMDB anew for a handle that needs more than those before it, or after a failed sync."""
        if access <= self.access and self._failure is None:
            return
        with self._writer, self._gate.alone():
            self._lmdb.close()
            self._lmdb = _open_lmdb(self.path, max(access, self.access), map_size_bytes)
            self.access = max(access, self.access)
            self._failure = None

    def close(self) -> None:
        """Close LMDB; in a forked child, give up its copy (the parent's goes on)."""
        if self.pid != os.getpid():
            self._lmdb.close()
            return
        with self._writer, self._gate.alone():
            self._lmdb.close()

    def _named(self, error: lmdb.Error, size_bytes: int) -> LogdbError:
        return named_error(error, self.path, size_bytes)


def named_error(error: lmdb.Error, path: str, size_bytes: int) -> LogdbError:
    """LMDB's error as one of ours.

    EIO is final wherever it comes from: LMDB does not say whether a write or
    the sync failed.  A panic is LMDB's own memory of a failed meta page.
    """
    code = int(getattr(error, "code", 0) or 0)
    if isinstance(error, _DAMAGE):
        return CatalogueDamaged(path, str(error))
    if isinstance(error, lmdb.PanicError) or code == errno.EIO:
        return SyncFailed(path, str(error))
    if isinstance(error, lmdb.DiskError) or code in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path, size_bytes, str(error))
    return WriteFailed(path, str(error))


def _open_lmdb(path: str, access: Access, map_size_bytes: int) -> lmdb.Environment:
    size_bytes = -(-map_size_bytes // _MAP_UNIT_BYTES) * _MAP_UNIT_BYTES
    try:
        environment = lmdb.open(
            path,
            map_size=size_bytes,
            subdir=True,
            create=False,
            readonly=access < Access.WRITE,
            lock=access > Access.NO_LOCK,
            sync=True,
            metasync=True,
            max_readers=READER_COUNT_MAX,
        )
        if access > Access.NO_LOCK:
            environment.reader_check()
    except lmdb.Error as error:
        raise named_error(error, path, 0) from error
    return environment


# ---------------------------------------------------------------- one per data file and process

_open_lock = threading.Lock()
_open: dict[tuple[int, int], Environment] = {}  # by device and inode of data.mdb, which cannot be reused while open


def acquire(path: str, access: Access, map_size_bytes: int) -> Environment:
    """The process's environment of a directory, opened if need be; to be given back by ``release``."""
    with _open_lock:
        key = _file_id(path)
        environment = _open.get(key) if key else None
        if environment is not None and environment.pid != os.getpid():
            environment.close()
            environment = None
        if environment is None:
            environment = Environment(path, access, map_size_bytes)
            _open[_file_id(path) or (0, 0)] = environment
        environment.raise_access(access, map_size_bytes)
        environment.handle_count += 1
        return environment


def release(environment: Environment) -> None:
    """Give an environment back; the last handle closes it."""
    if environment.pid != os.getpid():
        return
    with _open_lock:
        environment.handle_count -= 1
        if environment.handle_count == 0:
            for key in [key for key, known in _open.items() if known is environment]:
                del _open[key]
            environment.close()


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(os.path.join(path, "data.mdb"))
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _after_fork_in_child() -> None:
    """Another thread of the parent may have held the lock; the environments stay until they are in the way."""
    global _open_lock
    _open_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
