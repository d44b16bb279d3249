"""The LMDB environment of a catalogue: opened once per process, resized when needed; its errors become errors of ``logdb.errors``.

    handles (Catalogue)  ──►  Environment, one per data file and process  ──►  lmdb.Environment
                                 _map_lock: shared by transactions, exclusive while a map is opened or closed
                                 _writer:   one write transaction at a time

Access has three levels, and only rises while handles share the environment: ``NO_LOCK`` (a snapshot: no process writes to it),
``READ`` (beside a writer in any process) and ``WRITE``.

A fork waits until no transaction is open, because a child that inherits one can neither end it nor close the environment.
The child is refused (Forked), and closes its copy when it opens the same catalogue itself.
Threading: all methods, from any thread.
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

from logdb.disk import condemn, give_room, looking, refuse_link
from logdb.errors import CatalogueDamaged, Closed, DiskFull, Forked, LogdbError, ReadFailed, ReadOnly, SyncFailed, WriteFailed
from logdb.io import IO, check_regular, mode_in
from logdb.meta.copied import CopiedEnvironment, may_lock
from logdb.meta.reader_writer_lock import ReaderWriterLock

_log = logging.getLogger(__name__)

T = TypeVar("T")

READER_COUNT_MAX = 4096
MAP_SIZE_BYTES = 64 << 20  # of address space, not of memory or disk; 100,000 segments fit before the map grows
_MAP_UNIT_BYTES = 1 << 16  # the largest page of the machines we know
_ROOM_BYTES = 1 << 20
_LOCK_HEAD_SIZE_BYTES, _LOCK_SLOT_SIZE_BYTES = 192, 64  # of lock.mdb, at most: the head without the first slot, and a reader's slot

NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
# LMDB's errors for a damaged file.  BadTxnError follows one of the others within a transaction.
DAMAGE = (
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
    """The access an environment was opened for; a higher level includes the lower ones."""

    NO_LOCK = 0
    READ = 1
    WRITE = 2


class Environment:
    """One LMDB environment; ``acquire`` finds or opens it, ``release`` gives it back."""

    def __init__(self, path: str, access: Access, map_size_bytes: int, io: IO) -> None:
        self.path = path
        self.access = access
        self._io = io
        self.handle_count = 0
        self.pid = os.getpid()
        self._map_lock = ReaderWriterLock()
        self._writer = threading.RLock()
        self._failure: SyncFailed | None = None
        self._opening, self._closed = threading.Lock(), False
        self._lmdb: lmdb.Environment | CopiedEnvironment | None = _open_lmdb(path, access, map_size_bytes)

    # ------------------------------------------------------------ transactions

    def read(self, function: "Callable[[lmdb.Transaction[bytes]], T]") -> T:
        """Run ``function`` in a read transaction, perhaps several times; its result must not refer to the transaction."""
        self._refuse_child()
        while True:
            try:
                self._refresh_copy()
                with self._map_lock, self._present().begin() as txn:
                    return function(txn)
            except lmdb.MapResizedError:
                self._set_map(adopt=True)
            except lmdb.Error as error:
                raise _read_error(error, self.path) from error

    def write(self, function: "Callable[[lmdb.Transaction[bytes]], T]", put_size_bytes: Callable[[], int]) -> T:
        """Run ``function`` in a write transaction and commit it, synced; run it again if the map was too small.

        Args:
            function: Must have no effect except on the transaction.
            put_size_bytes: The number of bytes that the last run wrote, for a message.

        Raises:
            DiskFull, WriteFailed: No entry has changed.
            SyncFailed: The state on the disk is unknown; every later write is refused, reads continue.  Other stores on it were told.
        """
        self._refuse_child()
        with self._writer:
            while True:
                if self._failure is not None:
                    raise SyncFailed(self._failure.path, self._failure.reason)
                number = -1
                try:
                    with self._writing() as txn:
                        number = txn.id()
                        return function(txn)
                except lmdb.MapFullError:
                    self._set_map(adopt=False)
                except lmdb.MapResizedError:
                    self._set_map(adopt=True)
                except lmdb.Error as error:
                    named = named_error(error, self.path, put_size_bytes())
                    try:
                        if number >= 0 and not isinstance(named, SyncFailed):
                            self._take_back(number)
                    except SyncFailed as failed:
                        named = failed
                    if isinstance(named, SyncFailed):
                        self._stop_writing(named)
                        raise condemn(self._io, named.path, named.reason) from error
                    raise named from error

    @contextlib.contextmanager
    def _writing(self) -> "Iterator[lmdb.Transaction[bytes]]":
        """A write transaction, committed at the end; an error aborts it.

        py-lmdb ends no aborted transaction while another thread is in a call of the environment.  Threads that read without a pause
        would delay it without end, so they wait.
        """
        with self._map_lock, self._own().begin(write=True) as txn:
            try:
                yield txn
            except BaseException:
                with self._map_lock.alone():
                    txn.abort()
                raise

    def _take_back(self, number: int) -> None:
        """Ensure that transaction ``number``, whose commit failed, did not happen, and that the next one can be written.

        If LMDB could not write its meta page, it restores the previous one, unsynced, and refuses all further calls (MDB_PANIC).
        So LMDB is opened again, and the restored page is synced: otherwise a power cut would choose between the two.

        Raises:
            SyncFailed: The transaction may have happened.
        """
        try:
            with self._map_lock, self._own().begin(write=True) as txn, self._map_lock.alone():
                txn.abort()
                return
        except lmdb.PanicError:
            self._reopen(self.access, MAP_SIZE_BYTES)
        except lmdb.Error:
            return  # the file still has the previous one
        try:
            with self._map_lock:
                self._own().sync(True)
                found = self._own().info()["last_txnid"]
        except lmdb.Error as error:
            raise SyncFailed(self.path, str(error)) from error
        if found >= number:
            raise SyncFailed(self.path, f"its meta page could not be written, but has transaction {found}")

    def number(self) -> int:
        """The number of the last committed transaction, of any process."""
        self._refuse_child()
        with self._map_lock:
            return int(self._present().info()["last_txnid"])

    def _present(self) -> lmdb.Environment | CopiedEnvironment:
        return self._lmdb or self._open_again()

    def _open_again(self) -> lmdb.Environment | CopiedEnvironment:
        """The LMDB environment; opens it if an earlier attempt to open it again had failed."""
        with self._opening:
            if self._closed:
                raise Closed(f"the catalogue {self.path} was closed")
            if self._lmdb is None:
                self._lmdb = _open_lmdb(self.path, self.access, MAP_SIZE_BYTES)
            return self._lmdb

    def _own(self) -> lmdb.Environment:
        environment = self._present()
        assert isinstance(environment, lmdb.Environment), "a copy is neither written nor resized"
        return environment

    def _refuse_child(self) -> None:
        if self.pid != os.getpid():
            raise Forked(f"the catalogue {self.path} was opened by process {self.pid}: open the database again in process {os.getpid()}")

    def is_cut_short(self) -> bool:
        """Whether the file ends before the last page that LMDB counts.

        If that page is a used one, touching it is a SIGBUS; a free one may never have been written.
        """
        with self._map_lock:
            environment = self._present()
            size_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
            with looking(self.path):
                return os.path.getsize(os.path.join(self.path, "data.mdb")) < size_bytes

    # ------------------------------------------------------------ alone: the map, opening again, closing

    def _set_map(self, *, adopt: bool) -> None:
        """Double the map, or take the size that another process gave it."""
        with self._map_lock.alone():
            size_bytes = 0 if adopt else 2 * self._own().info()["map_size"]
            try:
                self._own().set_mapsize(size_bytes)
            except lmdb.Error as error:
                raise WriteFailed(self.path, f"its map cannot grow to {size_bytes} bytes: {error}") from error
        if not adopt:
            _log.info("the map of %s has grown to %d bytes", self.path, size_bytes)

    def _refresh_copy(self) -> None:
        copied = self._lmdb
        if isinstance(copied, CopiedEnvironment):
            with self._map_lock.alone():
                if copied is self._lmdb and copied.is_stale():
                    copied.refresh()

    def raise_access(self, access: Access, map_size_bytes: int) -> None:
        """Open LMDB again for a handle that needs a higher access; also for a writer after a failed sync."""
        if access > self.access:
            with self._writer:
                self._reopen(access, map_size_bytes)
                self._failure = None

    def _stop_writing(self, failure: SyncFailed) -> None:
        """After a failed sync LMDB may refuse reads too: open a separate environment for them."""
        self._failure = failure
        with contextlib.suppress(LogdbError):
            self._reopen(Access.READ, MAP_SIZE_BYTES)

    def _reopen(self, access: Access, map_size_bytes: int) -> None:
        with self._map_lock.alone():
            found, self._lmdb = self._present(), None
            found.close()
            try:
                self._lmdb = _open_lmdb(self.path, access, map_size_bytes)
                self.access = access
            except LogdbError:
                self._lmdb = _open_lmdb(self.path, self.access, map_size_bytes)
                raise

    def close(self) -> None:
        with self._writer, self._map_lock.alone():
            self._closed = True
            self.drop_in_child()

    # ------------------------------------------------------------ forks

    @contextlib.contextmanager
    def fork_pause(self) -> Iterator[None]:
        """Wait until no transaction is open, and admit none."""
        with self._writer, self._map_lock.alone():
            yield

    def drop_in_child(self) -> None:
        """Close the parent's environment in a forked child, without its locks; the parent's own stays open."""
        found, self._lmdb = self._lmdb, None
        if found is not None:
            found.close()


def named_error(error: lmdb.Error, path: str, size_bytes: int = 0) -> LogdbError:
    """The error of ``logdb.errors`` for a failed write transaction of LMDB.

    LMDB does not say whether a write or the sync failed.  EIO therefore counts as a failed sync, except where a full disk cut a
    write short, which LMDB also reports as EIO.  ENOSPC and EDQUOT do not: the transaction did not happen, and the next one rewrites
    every page that it uses.  A panic means that a meta page could not be written.
    """
    code, reason = getattr(error, "code", 0), str(error)
    if isinstance(error, DAMAGE):
        return CatalogueDamaged(path, reason)
    if lacks_room(code, path, size_bytes):
        return DiskFull(path, size_bytes, reason)
    if isinstance(error, lmdb.PanicError) or code == errno.EIO:
        return SyncFailed(path, reason)
    if code in NOT_ALLOWED:
        return ReadOnly(f"the catalogue {path} cannot be opened for writing: {reason}")
    return WriteFailed(path, reason)


def lacks_room(code: int, path: str, size_bytes: int) -> bool:
    """Whether ``code``, an errno of LMDB, means that a write of so many bytes found no room: a write cut short is EIO."""
    return code in (errno.ENOSPC, errno.EDQUOT) or (code == errno.EIO and IO().free_bytes(path) < _ROOM_BYTES + 2 * size_bytes)


def make_lock_file(io: IO, path: str, reader_count: int) -> None:
    """Make ``lock.mdb``, or fill its holes, before LMDB maps it: LMDB makes it sparse, and touching a page without room is a SIGBUS.

    LMDB must not have the directory open in this process: closing the file would release its locks.  A file does not grow: other
    processes may have mapped it.

    Raises:
        DiskFull: There is no room.
    """
    lock_path = os.path.join(path, "lock.mdb")
    try:
        known = os.path.getsize(lock_path) if os.path.exists(lock_path) else 0
        give_room(io, lock_path, known or _LOCK_HEAD_SIZE_BYTES + reader_count * _LOCK_SLOT_SIZE_BYTES)
    except DiskFull:
        raise
    except (LogdbError, OSError):
        pass  # LMDB says what is wrong with it


def _read_error(error: lmdb.Error, path: str) -> LogdbError:
    """The error for a failure before anything was to be synced."""
    if getattr(error, "code", 0) == errno.EIO or isinstance(error, lmdb.PanicError):
        return ReadFailed(path, 0, str(error))
    return named_error(error, path)


def _open_lmdb(path: str, access: Access, map_size_bytes: int) -> lmdb.Environment | CopiedEnvironment:
    refuse_link(IO(), os.path.join(path, "data.mdb"), os.path.join(path, "lock.mdb"))  # LMDB would follow it
    try:
        check_regular(os.stat(os.path.join(path, "data.mdb")).st_mode, path)  # LMDB would wait at a pipe forever
    except FileNotFoundError:
        pass  # LMDB makes it, or says so
    except OSError as error:
        raise CatalogueDamaged(path, f"data.mdb: {error.strerror}") from error
    created = access == Access.WRITE and not os.path.exists(os.path.join(path, "data.mdb"))
    try:
        if access == Access.READ and not may_lock(path):
            return CopiedEnvironment(path)
        if access > Access.NO_LOCK:
            _make_lock_file(path)
        opened = lmdb.open(
            path,
            map_size=-(-map_size_bytes // _MAP_UNIT_BYTES) * _MAP_UNIT_BYTES,
            create=False,
            mode=mode_in(path, 0o644),
            readonly=access < Access.WRITE,
            lock=access > Access.NO_LOCK,
            max_readers=READER_COUNT_MAX,
        )
        if access > Access.NO_LOCK:
            opened.reader_check()  # frees the slots of dead readers
    except (lmdb.Error, DiskFull) as error:
        if created:  # a full disk leaves a part of data.mdb, which is no database
            for name in ("data.mdb", "lock.mdb"):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(path, name))
        named = None if isinstance(error, DiskFull) else _read_error(error, path)
        if access < Access.WRITE and not isinstance(named, CatalogueDamaged):
            raise LogdbError(f"the catalogue {path} cannot be read: {error}") from error
        if named is None:
            raise
        raise named from error
    return opened


def _make_lock_file(path: str) -> None:
    try:
        make_lock_file(IO(), path, READER_COUNT_MAX)
    except DiskFull:
        try:
            block_count = os.stat(os.path.join(path, "lock.mdb")).st_blocks
        except FileNotFoundError:  # there was no room to create it
            block_count = 0
        if not block_count:
            raise
        # an older logdb has made it: the first page is there, for about 60 transactions at a time, and a deletion must be possible


# ---------------------------------------------------------------- one per data file and process


class _Registry:
    """The process's open environments, by device and inode of data.mdb; an inode is not reused while it is open."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: dict[tuple[int, int], Environment] = {}
        self.paused = contextlib.ExitStack()

    def before_fork(self) -> None:
        self.lock.acquire()
        for environment in self.open.values():
            self.paused.enter_context(environment.fork_pause())

    def after_fork_in_parent(self) -> None:
        self.paused.close()
        self.lock.release()

    def after_fork_in_child(self) -> None:
        self.paused.close()
        self.lock = threading.Lock()


_registry = _Registry()
os.register_at_fork(
    before=_registry.before_fork,
    after_in_parent=_registry.after_fork_in_parent,
    after_in_child=_registry.after_fork_in_child,
)


def acquire(path: str, access: Access, map_size_bytes: int, io: IO) -> Environment:
    """The process's environment of a directory, opened if necessary; the caller returns it by ``release``.

    Args:
        io: Names the device of a failed sync.
    """
    with _registry.lock:
        environment = _registry.open.get(_file_id(path))
        if environment is not None and (environment.pid != os.getpid() or environment._closed):  # closed: a Ctrl-C left ``release``
            environment.drop_in_child()
            environment = None
        if environment is None:
            environment = Environment(path, access, map_size_bytes, io)
            _registry.open[_file_id(path)] = environment
        environment.raise_access(access, map_size_bytes)
        environment.handle_count += 1
        return environment


def release(environment: Environment) -> None:
    """Return an environment; the last handle closes it."""
    if environment.pid != os.getpid():
        return
    with _registry.lock:
        environment.handle_count -= 1
        if environment.handle_count == 0:
            environment.close()
            _registry.open = {key: known for key, known in _registry.open.items() if known is not environment}


def _file_id(path: str) -> tuple[int, int]:
    try:
        with looking(path):
            status = os.stat(os.path.join(path, "data.mdb"))
    except FileNotFoundError:
        return -1, -1
    return status.st_dev, status.st_ino
