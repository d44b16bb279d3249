"""The view of one topic: its latest value per key, in LMDB.

    views/<topic id>/data.mdb, lock.mdb    entries and positions
    views/<topic id>/mark                  whether data.mdb may be used

A view is a cache: it can be rebuilt from the topic, so it is not synced while it is in use.  The position of each partition is
written in the same transaction as the entries, so that a process crash costs no more than time.  A power cut may tear the file;
``mark`` says whether to use it:

    clean, size, CRC    it was synced and closed: used if the file has that size and CRC
    open, boot id       a process crashed: used unless the machine was restarted
    anything else       rebuilt

    database   key                                     value
    entries    00 key                                  entry, value
               01 BLAKE2b-256 of a key over 510 bytes  entry, key size (4), key, value
    positions  partition (4)                           position

    entry      partition (4), offset (8), timestamp (8), CRC (4) of the key above and of the rest of the value
    position   offset (8), leader epoch (4), log start offset (8), time of the last catch-up (8), CRC (4) likewise

Numbers are big-endian; the CRC of an entry is CRC-32, which in Python costs a third of CRC-32C.  Each topic has an environment
of its own, so that views are written in parallel, and a damaged or deleted one is removed as a whole.
Threading: any number of threads read; the caller serialises ``update`` and ``purge``.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from stat import S_ISREG
from typing import NamedTuple, TypeVar
from zlib import crc32

import lmdb

from logdb.codec import crc32c
from logdb.disk import File, condemn, read_file, refuse_link, replace_file
from logdb.errors import Closed, DiskFull, Forked, LogdbError, WriteFailed
from logdb.io import IO, mode_in
from logdb.meta.environment import DAMAGE, lacks_room, make_lock_file
from logdb.threads import renewed

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAP_SIZE_BYTES = 64 << 30  # of address space, or as much as the system gives
_MAP_SIZE_BYTES_MIN = 1 << 20
_KEY_SIZE_MAX = 510
_READER_COUNT_MAX = 1024  # iterators open at a time, and threads that read
_CHECKED_SIZE_BYTES_MAX = 1 << 30  # a larger file is not read as a whole before it is used; its entries have their own CRCs
_PURGED_COUNT = 10_000  # entries looked at in one transaction
_READ_COUNT = 32  # entries that an iterator reads at a time
_ENTRY = struct.Struct(">iqqI")
_POSITION = struct.Struct(">qiqqI")
_CRC_SIZE = 4
_MARK = "mark"


class Entry(NamedTuple):
    """The value of a key's latest record, and where that record is.  ``value`` None: a tombstone, which is not stored."""

    value: bytes | None
    partition: int
    offset: int
    timestamp_ms: int


class ViewPosition(NamedTuple):
    """The position of one partition in the view.

    ``offset``: the next one to read.  ``leader_epoch``: of the record before it, -1 without one.  ``start_offset``: the log's
    when entries below it were last purged.  ``caught_up_ms``: when the view last had every record, since 1970.
    """

    offset: int
    leader_epoch: int = -1
    start_offset: int = 0
    caught_up_ms: int = 0


class ViewDamaged(LogdbError):
    """The view contradicts itself and must be rebuilt.  Applications never see this error."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the view {path} is damaged: {reason}")


class View:
    """One open view.  Made by ``View.open``."""

    def __init__(self, path: str, io: IO, *, kept: bool) -> None:
        self.path = path
        self._io, self._kept = io, kept
        self._pid = os.getpid()
        self._reading = renewed(threading.RLock())  # guards _reader and the begin of snapshots
        self._snapshot_count = 0
        self._marked_open = self._closed = False
        self._open()

    @staticmethod
    def open(path: str, io: IO, *, kept: bool = True) -> "View":
        """Open the view in the directory ``path``, created if necessary; empty if ``mark`` does not allow its use.

        Args:
            kept: ``close`` keeps the view for the next opening; otherwise it begins empty, and ``mark`` is not written.

        Raises:
            DiskFull, WriteFailed: It could not be created.
            ReadFailed: It, or the directory above, is a symbolic link.
        """
        refuse_link(io, os.path.dirname(path), path)
        with _named_errors(path):
            for one in (os.path.dirname(path), path):
                os.makedirs(one, mode_in(os.path.dirname(one), 0o777), exist_ok=True)
        if not (kept and _is_believed(path, io)):
            _remove_files(path, io)
        try:
            return View(path, io, kept=kept)
        except ViewDamaged as error:
            logger.warning("%s; it is rebuilt", error)
            _remove_files(path, io)
            return View(path, io, kept=kept)

    def _open(self) -> None:
        is_new = not os.path.lexists(os.path.join(self.path, "data.mdb"))
        try:
            self._open_files()
        except DiskFull:
            if is_new:
                with contextlib.suppress(LogdbError):
                    self._remove()
            raise

    def _open_files(self) -> None:
        with _named_errors(self.path):
            self._lmdb = _open_lmdb(self.path, self._io)
            try:
                self._check_size()
                self._entries, self._positions = self._lmdb.open_db(b"entries"), self._lmdb.open_db(b"positions")
                self._reader = self._lmdb.begin(db=self._entries)
            except BaseException:
                self._lmdb.close()
                raise

    def _check_size(self) -> None:
        """Check that the file has all pages that LMDB counts: touching a missing one is a SIGBUS."""
        size_bytes = (self._lmdb.info()["last_pgno"] + 1) * self._lmdb.stat()["psize"]
        if os.path.getsize(os.path.join(self.path, "data.mdb")) < size_bytes:
            raise ViewDamaged(self.path, f"data.mdb is shorter than the {size_bytes} bytes that its meta page says")

    # ------------------------------------------------------------ reading

    def get(self, key: bytes) -> Entry | None:
        """The entry of a key; None without one.

        Raises:
            ViewDamaged: The view must be rebuilt.
            Closed, Forked: The view cannot be used any more.
        """
        stored = _stored_key(key)
        try:
            with self._reading:
                self._check()
                data = self._reader.get(stored)
        except lmdb.Error as error:
            raise _named(error, self.path) from error
        return None if data is None else _decoded(self.path, stored, data)[1]

    def __len__(self) -> int:
        """The number of keys."""
        with _named_errors(self.path), self._reading:
            self._check()
            return int(self._reader.stat(self._entries)["entries"])

    @property
    def pages_size_bytes(self) -> int:
        """The size of the pages that hold entries: no transaction changes more of them."""
        with _named_errors(self.path), self._reading:
            self._check()
            stat = self._reader.stat(self._entries)
            return int(stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]))

    def positions(self) -> dict[int, ViewPosition]:
        """The position of each partition in the view."""
        with _named_errors(self.path), self._reading:
            self._check()
            with self._lmdb.begin(db=self._positions) as txn, txn.cursor() as cursor:
                rows = list(cursor)
        found = {}
        for key, data in rows:
            *numbers, crc = _POSITION.unpack(data) if len(data) == _POSITION.size else (0, 0, 0, 0, -1)
            if crc != crc32(data[:-_CRC_SIZE], crc32(key)):
                raise ViewDamaged(self.path, f"the position of partition {key.hex()} is {data.hex()}")
            found[int.from_bytes(key, "big")] = ViewPosition(*numbers)
        return found

    def scan(self) -> Iterator[tuple[bytes, Entry]]:
        """All keys and entries at the time of the first ``next``, unaffected by later writes; sorted, long keys last."""
        with self._reading, _named_errors(self.path):
            self._check()
            environment = self._lmdb
            txn = environment.begin(db=self._entries)
            cursor = iter(txn.cursor())
            self._snapshot_count += 1
        try:
            while rows := self._next_rows(environment, cursor):
                for stored, data in rows:
                    self._check_same(environment)
                    yield _decoded(self.path, stored, data)
        except lmdb.Error as error:
            raise _named(error, self.path) from error
        finally:
            if self._pid == os.getpid():  # a forked child would free its parent's slot in LMDB's table of readers
                with self._reading:
                    self._snapshot_count -= 1
                    if not self._closed and self._lmdb is environment:
                        txn.abort()

    def _next_rows(self, environment: lmdb.Environment, cursor: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        with self._reading:
            self._check_same(environment)
            return list(itertools.islice(cursor, _READ_COUNT))

    def _check_same(self, environment: lmdb.Environment) -> None:
        if self._closed or self._lmdb is not environment:
            raise Closed(f"the view {self.path} was closed or rebuilt during the iteration")

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise Forked(f"the view {self.path} was opened by process {self._pid}: open the database again in process {os.getpid()}")
        if self._closed:
            raise Closed(f"the view {self.path} was closed")

    # ------------------------------------------------------------ writing

    def update(self, changes: Mapping[bytes, Entry], positions: Mapping[int, ViewPosition], *, mixed: bool = False) -> None:
        """Put entries, delete the keys of tombstones, and store the positions that they lead to, in one transaction.

        Args:
            mixed: A key may also be in another partition: the younger record counts.

        Raises:
            DiskFull, WriteFailed: No entry has changed.
            ViewDamaged, Closed, Forked: as ``get``.
        """

        def write(txn: "lmdb.Transaction[bytes]") -> None:
            rows = [(_stored_key(key), key, entry) for key, entry in changes.items()]
            if mixed:
                rows = [row for row in rows if not self._is_older(txn, row[0], row[2])]
            for stored, _, entry in rows:
                if entry.value is None:
                    txn.delete(stored)
            rows.sort(key=itemgetter(0))
            with txn.cursor() as cursor:  # one encoded entry at a time: all of them would be a second copy of the values
                cursor.putmulti((stored, _encoded(stored, key, entry)) for stored, key, entry in rows if entry.value is not None)
            self._put_positions(txn, positions)

        self._write(write, lambda: sum(len(key) + len(entry.value or b"") for key, entry in changes.items()))

    def _is_older(self, txn: "lmdb.Transaction[bytes]", stored: bytes, entry: Entry) -> bool:
        """Whether the view has a younger record of the key, from another partition."""
        data = txn.get(stored)
        known = entry if data is None else _decoded(self.path, stored, data)[1]
        return known.partition != entry.partition and known.timestamp_ms > entry.timestamp_ms

    def purge(self, positions: Mapping[int, ViewPosition]) -> None:
        """Delete the entries of records before the log start offsets in ``positions``, then store these; raises as ``update``."""
        starts = {partition: position.start_offset for partition, position in positions.items()}
        place: bytes | None = b""
        while place is not None:
            place = self._write(partial(self._purge_some, starts, place))
        self._write(lambda txn: self._put_positions(txn, positions))

    def _purge_some(self, starts: Mapping[int, int], begin: bytes, txn: "lmdb.Transaction[bytes]") -> bytes | None:
        """Purge a number of entries from the key ``begin`` on; returns the key to continue with, None at the end."""
        gone, follows = [], None
        with txn.cursor() as cursor:
            if not cursor.set_range(begin):
                return None
            for number, (stored, data) in enumerate(cursor):
                if number == _PURGED_COUNT:
                    follows = stored
                    break
                entry = _decoded(self.path, stored, data)[1]
                if entry.offset < starts.get(entry.partition, 0):
                    gone.append(stored)
        for stored in gone:
            txn.delete(stored)
        return follows

    def clear(self) -> None:
        """Delete all entries; raises as ``update``.  Open iterators keep their moment."""

        def write(txn: "lmdb.Transaction[bytes]") -> None:
            txn.drop(self._entries, delete=False)
            txn.drop(self._positions, delete=False)

        self._write(write)

    def recreate(self) -> None:
        """Replace the file by a new, empty one; also open iterators cannot read the old content any more."""
        with self._reading:
            self._check()
            self._marked_open = False  # if an error follows, ``close`` has nothing to sync
            self._lmdb.close()
            _remove_files(self.path, self._io)
            self._open()

    def _put_positions(self, txn: "lmdb.Transaction[bytes]", positions: Mapping[int, ViewPosition]) -> None:
        for partition, position in positions.items():
            key = partition.to_bytes(4, "big")
            body = _POSITION.pack(*position, 0)[:-_CRC_SIZE]
            txn.put(key, body + crc32(body, crc32(key)).to_bytes(_CRC_SIZE, "big"), db=self._positions)

    def _write(self, function: Callable[["lmdb.Transaction[bytes]"], T], put_size_bytes: Callable[[], int] = lambda: 0) -> T:
        """Run ``function`` in a write transaction, again with a larger map if it was too small; readers see it afterwards.

        Args:
            put_size_bytes: The number of bytes that it writes, for a message.
        """
        try:
            return self._commit(function)
        except lmdb.Error as error:
            named = _named(error, self.path, put_size_bytes())
            if isinstance(named, DiskFull):
                self._cut_off()
            raise named from error
        except OSError as error:
            raise _named(error, self.path) from error

    def _cut_off(self) -> None:
        """Free the room of pages that were written and not committed."""
        with contextlib.suppress(lmdb.Error, LogdbError, OSError):
            size_bytes = (self._lmdb.info()["last_pgno"] + 1) * self._lmdb.stat()["psize"]
            with File(self._io, os.path.join(self.path, "data.mdb"), os.O_RDWR) as file:
                if file.size_bytes() > size_bytes:
                    file.truncate(size_bytes)

    def _commit(self, function: Callable[["lmdb.Transaction[bytes]"], T]) -> T:
        with self._reading:
            self._check()
        if self._kept and not self._marked_open:
            _mark(self.path, self._io, {"state": "open", "boot": self._io.boot_id()})
            self._marked_open = True
        while True:
            try:
                with self._writing() as txn:
                    result = function(txn)
                break
            except lmdb.MapFullError:
                self._grow()
        with self._reading:
            self._check()
            self._reader.abort()
            self._reader = self._lmdb.begin(db=self._entries)
        return result

    @contextlib.contextmanager
    def _writing(self) -> "Iterator[lmdb.Transaction[bytes]]":
        """A write transaction, committed at the end; an error aborts it, which waits in py-lmdb until no other thread is in a call."""
        with self._lmdb.begin(db=self._entries, write=True) as txn:
            try:
                yield txn
            except BaseException:
                with self._reading:
                    txn.abort()
                raise

    def _grow(self) -> None:
        """Double the map; no read may be open."""
        with self._reading:
            self._check()
            size_bytes = 2 * int(self._lmdb.info()["map_size"])
            if self._snapshot_count:
                raise WriteFailed(self.path, f"its map has to grow to {size_bytes} bytes, and {self._snapshot_count} iterators are open")
            self._reader.abort()
            try:
                self._lmdb.set_mapsize(size_bytes)
            finally:
                self._reader = self._lmdb.begin(db=self._entries)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Close the view; if it is kept, ``mark`` allows its use at the next opening.  A second call does nothing."""
        with self._reading:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
            try:
                if self._marked_open:
                    self._lmdb.sync(True)
            except lmdb.Error as error:
                condemn(self._io, self.path, error)
                logger.warning("the view %s will be rebuilt next time: %s", self.path, error)
                self._marked_open = self._kept = False
            finally:
                self._lmdb.close()
            if self._marked_open:
                with contextlib.suppress(OSError, LogdbError):  # the mark stays "open"
                    _mark(self.path, self._io, {"state": "clean", **_sum(self.path, self._io)})
            if not self._kept:
                _remove_files(self.path, self._io)

    def delete(self) -> None:
        """Close it and delete its files."""
        with self._reading:
            if not self._closed:
                self._closed = True
                self._lmdb.close()
        self._remove()

    def _remove(self) -> None:
        _remove_files(self.path, self._io)
        with contextlib.suppress(OSError):
            os.rmdir(self.path)


# ---------------------------------------------------------------- keys and values


def _stored_key(key: bytes) -> bytes:
    if len(key) <= _KEY_SIZE_MAX:
        return b"\0" + key
    return b"\1" + hashlib.blake2b(key, digest_size=32).digest()


def _encoded(stored: bytes, key: bytes, entry: Entry) -> bytes:
    value = entry.value or b""
    body = value if stored[0] == 0 else len(key).to_bytes(4, "big") + key + value
    head = _ENTRY.pack(entry.partition, entry.offset, entry.timestamp_ms, 0)[:-_CRC_SIZE]
    return head + crc32(body, crc32(stored + head)).to_bytes(_CRC_SIZE, "big") + body


def _decoded(path: str, stored: bytes, data: bytes) -> tuple[bytes, Entry]:
    """Key and entry; raises ViewDamaged."""
    at = _ENTRY.size
    partition, offset, timestamp_ms, crc = _ENTRY.unpack_from(data) if len(data) >= at else (0, 0, 0, -1)
    body = data[at:]
    computed = crc32(body, crc32(stored + data[: at - _CRC_SIZE]))
    if crc != computed:
        raise ViewDamaged(path, f"stored CRC {crc:08x}, computed {computed:08x} over an entry of {len(data)} bytes")
    if stored[0] == 0:
        return stored[1:], Entry(body, partition, offset, timestamp_ms)
    size = 4 + int.from_bytes(body[:4], "big")
    return body[4:size], Entry(body[size:], partition, offset, timestamp_ms)


# ---------------------------------------------------------------- files


def _open_lmdb(path: str, io: IO) -> lmdb.Environment:
    """Open LMDB with as much address space as the system gives."""
    for name in ("data.mdb", "lock.mdb"):  # LMDB would follow a link, and wait at a pipe for ever
        with contextlib.suppress(FileNotFoundError):
            if not S_ISREG(os.lstat(os.path.join(path, name)).st_mode):
                raise ViewDamaged(path, f"{name} is not a regular file")
    make_lock_file(io, path, _READER_COUNT_MAX)
    size_bytes = MAP_SIZE_BYTES
    while True:
        try:
            return lmdb.open(
                path,
                mode=mode_in(path, 0o644),
                map_size=size_bytes,
                max_dbs=2,
                max_readers=_READER_COUNT_MAX,
                sync=False,
                metasync=False,
                readahead=False,  # lookups in a file larger than memory are random
            )
        except lmdb.MemoryError:
            size_bytes //= 2
            if size_bytes < _MAP_SIZE_BYTES_MIN:
                raise


def _remove_files(path: str, io: IO) -> None:
    """Delete the files of a view that may not be used; the mark goes first.  Raises ReadFailed if its directory is a link now."""
    refuse_link(io, path)
    with _named_errors(path):
        for name in (_MARK, "data.mdb", "lock.mdb"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(path, name))


def _is_believed(path: str, io: IO) -> bool:
    """Whether the mark allows the use of the files."""
    try:
        fields: dict[str, object] = json.loads(read_file(io, os.path.join(path, _MARK), 4096))
        crc = fields.pop("crc")
        if crc != crc32c(json.dumps(fields).encode()):
            return False
        if fields["state"] == "clean":
            return fields == {"state": "clean", **_sum(path, io)}
        boot_id = io.boot_id()
        return boot_id != "" and fields == {"state": "open", "boot": boot_id}
    except (OSError, LogdbError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _mark(path: str, io: IO, fields: dict[str, object]) -> None:
    """Replace the mark, durably; raises DiskFull, WriteFailed, SyncFailed."""
    line = json.dumps({**fields, "crc": crc32c(json.dumps(fields).encode())}).encode()
    replace_file(io, os.path.join(path, _MARK), line)


def _sum(path: str, io: IO) -> dict[str, int]:
    """Size of ``data.mdb`` and, unless it is too large to read, its CRC-32C; raises ReadFailed."""
    with File(io, os.path.join(path, "data.mdb"), os.O_RDONLY) as file:
        size_bytes, crc = file.size_bytes(), 0
        for part in file.pieces(1 << 20) if size_bytes <= _CHECKED_SIZE_BYTES_MAX else ():
            crc = crc32c(part, crc)
    return {"size_bytes": size_bytes, "data_crc": crc}


@contextlib.contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Map errors of LMDB, and of the system, to those of ``logdb.errors``."""
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise _named(error, path) from error


def _named(error: lmdb.Error | OSError, path: str, size_bytes: int = 0) -> LogdbError:
    if isinstance(error, (*DAMAGE, lmdb.PanicError)):
        return ViewDamaged(path, str(error))
    code = int(getattr(error, "errno", 0) or getattr(error, "code", 0))
    if lacks_room(code, path, size_bytes):
        return DiskFull(path, size_bytes, os.strerror(errno.ENOSPC) if code == errno.EIO else str(error))
    return WriteFailed(path, str(error))
