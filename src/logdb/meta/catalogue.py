"""The catalogue: topics, logs, sealed segments, recovery points and intents of a database.

The logs are the truth.  The catalogue says which segments exist, the size and CRC of sealed ones, up to where a log is known to
be on the disk, and which operations of several steps have begun.  It lives in ``catalogue/``: LMDB's ``data.mdb`` and ``lock.mdb``
(``entries`` has its keys and values).

Each write is one transaction, synced before ``write`` returns: its commit point.  A read sees one transaction, copies its
result out and ends within the call.  The caller syncs log files in the right order before or after a write.

Threading: all methods, from any thread; any number of handles and processes
read beside one writer.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

from logdb.codec import crc32c
from logdb.disk import File, exists, sync_directory, write_error
from logdb.errors import CatalogueDamaged, Closed, LogdbError, ReadFailed, ReadOnly, UnknownPartition, UnknownTopic, UnsupportedFormat
from logdb.io import IO
from logdb.meta import entries, environment
from logdb.meta.entries import DamagedEntry, Intent, LogEntry, SegmentEntry, TopicEntry
from logdb.meta.environment import Access

if TYPE_CHECKING:
    import lmdb

T = TypeVar("T")

_CHUNK_SIZE_BYTES = 1 << 20


class ReadTransaction:
    """The catalogue at one moment.  Valid inside the call that made it; its results stay valid."""

    def __init__(self, path: str, txn: "lmdb.Transaction[bytes]") -> None:
        self._path = path
        self._txn = txn

    @property
    def number(self) -> int:
        """The number of the last write that this transaction sees.

        ``Catalogue.number`` may be higher: it counts a write while that is being synced.
        """
        return int(self._txn.id())

    def topics(self) -> dict[str, TopicEntry]:
        """All topics by name, in the order of their names."""
        found = (self._decode(entries.decode_topic, *item) for item in self._scan(entries.TOPIC_PREFIX))
        return {entry.name: entry for entry in found}

    def topic_names(self) -> tuple[str, ...]:
        """The names of all topics, sorted; reads no other entries."""
        return tuple(key[len(entries.TOPIC_PREFIX) :].decode("ascii", "replace") for key, _ in self._scan(entries.TOPIC_PREFIX))

    def topic(self, name: str) -> TopicEntry | None:
        return self._get(entries.topic_key(name), entries.decode_topic) if entries.can_be_topic(name) else None

    def log(self, topic: str, partition: int) -> LogEntry | None:
        return self._get(entries.log_key(topic, partition), entries.decode_log) if entries.can_be_topic(topic) else None

    def logs(self, topic: str | None = None) -> list[LogEntry]:
        """The logs of one topic, or all of them, by topic and partition."""
        prefix = entries.LOG_PREFIX if topic is None else entries.logs_prefix(topic)
        return [self._decode(entries.decode_log, *item) for item in self._scan(prefix)]

    def segments(self, topic: str, partition: int | None = None) -> list[SegmentEntry]:
        """The sealed segments of a partition, or of a whole topic, by partition and base offset."""
        prefix = entries.segments_prefix(topic, partition)
        return [self._decode(entries.decode_segment, *item) for item in self._scan(prefix)]

    def segment(self, topic: str, partition: int, base_offset: int) -> SegmentEntry | None:
        """One sealed segment."""
        return self._get(entries.segment_key(topic, partition, base_offset), entries.decode_segment)

    def view(self, topic: str, partition: int) -> tuple[LogEntry, list[SegmentEntry]]:
        """One log and its sealed segments.

        Raises:
            UnknownTopic, UnknownPartition: There is none, or it was deleted.
        """
        log = self.log(topic, partition)
        if log is None:
            owner = self.topic(topic)
            if owner is None:
                raise UnknownTopic(topic, known=tuple(self.topics()))
            if not 0 <= partition < owner.partition_count:
                raise UnknownPartition(topic, partition, owner.partition_count)
            raise CatalogueDamaged(self._path, f"entry {entries.log_key(topic, partition).decode()!r} is missing")
        return log, self.segments(topic, partition)

    def intents(self) -> list[tuple[int, Intent]]:
        """The intents that are not cleared, oldest first."""
        return [self._decode(entries.decode_intent, *item) for item in self._scan(entries.INTENT_PREFIX)]

    def next_producer_id(self) -> int:
        """The first producer id that is not given out yet."""
        return self._get(entries.PRODUCER_IDS_KEY, lambda _key, value: entries.decode_producer_ids(value)) or 0

    def format(self) -> tuple[int, str] | None:
        """Format number and database id; None if the creation of the catalogue was interrupted."""
        return self._get(entries.FORMAT_KEY, lambda _key, value: entries.decode_format(value))

    def _get(self, key: bytes, decode: Callable[[bytes, bytes], T]) -> T | None:
        value = self._txn.get(key)
        return None if value is None else self._decode(decode, key, value)

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._txn.cursor() as cursor:
            if not cursor.set_range(prefix):
                return
            for key, value in cursor:
                if not key.startswith(prefix):
                    return
                yield key, value

    def _decode(self, decode: Callable[[bytes, bytes], T], key: bytes, value: bytes) -> T:
        try:
            return decode(key, value)
        except DamagedEntry as error:
            raise CatalogueDamaged(self._path, f"entry {key.decode('ascii', 'replace')!r}: {error}") from error


class WriteTransaction(ReadTransaction):
    """A transaction that reads its own writes; they are committed when ``Catalogue.write`` returns."""

    def __init__(self, path: str, txn: "lmdb.Transaction[bytes]") -> None:
        super().__init__(path, txn)
        self.put_size_bytes = 0

    def put_format(self, database_id: str) -> None:
        self._put(entries.FORMAT_KEY, entries.encode_format(database_id))

    def put_topic(self, entry: TopicEntry) -> None:
        self._put(*entries.encode_topic(entry))

    def delete_topic(self, name: str) -> bool:
        """Delete the entries of a topic, its logs and segments; False if there is no such topic."""
        for prefix in (entries.segments_prefix(name), entries.logs_prefix(name)):
            for key in [key for key, _ in self._scan(prefix)]:
                self._txn.delete(key)
        return self._txn.delete(entries.topic_key(name))

    def put_log(self, entry: LogEntry) -> None:
        self._put(*entries.encode_log(entry))

    def put_logs(self, logs: Iterable[LogEntry]) -> None:
        for entry in logs:
            self.put_log(entry)

    def put_segment(self, entry: SegmentEntry) -> None:
        self._put(*entries.encode_segment(entry))

    def put_segments(self, segments: Iterable[SegmentEntry]) -> None:
        for entry in segments:
            self.put_segment(entry)

    def delete_segment(self, topic: str, partition: int, base_offset: int) -> bool:
        """Delete a segment's entry; False if there is none."""
        return self._txn.delete(entries.segment_key(topic, partition, base_offset))

    def add_intent(self, intent: Intent) -> int:
        """Add an intent; returns its id, which is larger than those of all present ones."""
        pending = self.intents()
        intent_id = pending[-1][0] + 1 if pending else 1
        self._put(*entries.encode_intent(intent_id, intent))
        return intent_id

    def clear_intent(self, intent_id: int) -> bool:
        """Delete an intent; False if there is none."""
        return self._txn.delete(entries.intent_key(intent_id))

    def put_next_producer_id(self, producer_id: int) -> None:
        self._put(entries.PRODUCER_IDS_KEY, entries.encode_producer_ids(producer_id))

    def _put(self, key: bytes, value: bytes) -> None:
        self.put_size_bytes += len(key) + len(value)
        self._txn.put(key, value)


class Catalogue:
    """A handle on a catalogue; the handles of one process share an LMDB environment."""

    def __init__(self, shared: environment.Environment, *, read_only: bool, database_id: str) -> None:
        self.path = shared.path
        self.read_only = read_only
        self.database_id = database_id
        self._environment = shared
        self._topics: dict[str, tuple[int, TopicEntry]] = {}  # as read, and the number of the write that was the last then
        self._topics_number = 0
        self._closed = False

    @staticmethod
    def open(
        path: str,
        *,
        create: bool,
        read_only: bool = False,
        no_lock: bool = False,
        io: IO | None = None,
        map_size_bytes: int = environment.MAP_SIZE_BYTES,
    ) -> "Catalogue":
        """Open a catalogue.

        Args:
            path: Its directory.
            create: Create it if it is missing (or its creation was interrupted); its parent directory must exist.
            read_only: Read beside a writer in any process.
            no_lock: With ``read_only``: without LMDB's lock file.  Only for snapshots, which no process writes to: beside a
                writer it may read garbage, or crash.
            io: For making and syncing the directory.
            map_size_bytes: Initial address space; it grows when needed.

        Raises:
            CatalogueDamaged: It is missing, or the file is not a catalogue.
            UnsupportedFormat: A newer logdb wrote it.
            ReadOnly: This process may not write it.
            LogdbError: This process may not read it.
            DiskFull, WriteFailed, SyncFailed: It could not be created.
        """
        io = io or IO()
        create = create and not read_only
        if not create:
            _check_presence(path)
        else:
            _make_directory(io, path)
        access = Access.WRITE if not read_only else Access.NO_LOCK if no_lock else Access.READ
        shared = environment.acquire(path, access, map_size_bytes, io)
        try:
            return Catalogue(shared, read_only=read_only, database_id=_begin(shared, io, create))
        except BaseException:
            environment.release(shared)
            raise

    def close(self) -> None:
        """Close the handle; the last one of the process closes LMDB.  A second call does nothing."""
        if not self._closed:
            self._closed = True
            environment.release(self._environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # ------------------------------------------------------------ reads, each in a transaction of its own

    def read(self, function: Callable[[ReadTransaction], T]) -> T:
        """Run several reads in one transaction; ``function`` may be run again, and must not return an iterator.

        Raises:
            CatalogueDamaged: An entry's CRC is wrong, or LMDB found a damaged page; the message has the key.
            Closed, Forked: The handle cannot be used any more.
        """
        self._check()
        return self._environment.read(lambda txn: function(ReadTransaction(self.path, txn)))

    def number(self) -> int:
        """The number of the last write: while it stays the same, so does every read.  Much cheaper than a read."""
        self._check()
        return self._environment.number()

    def topics(self) -> dict[str, TopicEntry]:
        return self.read(ReadTransaction.topics)

    def topic_names(self) -> tuple[str, ...]:
        return self.read(ReadTransaction.topic_names)

    def topic(self, name: str) -> TopicEntry | None:
        """One topic; read again only after a write."""
        known = self._topics.get(name)
        if known is not None and known[0] == self.number():
            return known[1]
        number, entry = self.read(lambda txn: (txn.number, txn.topic(name)))
        if number != self._topics_number:  # a write makes all of them old
            self._topics, self._topics_number = {}, number
        if entry is not None:
            self._topics[name] = number, entry
        return entry

    def log(self, topic: str, partition: int) -> LogEntry | None:
        return self.read(lambda txn: txn.log(topic, partition))

    def logs(self, topic: str | None = None) -> list[LogEntry]:
        return self.read(lambda txn: txn.logs(topic))

    def segments(self, topic: str, partition: int | None = None) -> list[SegmentEntry]:
        return self.read(lambda txn: txn.segments(topic, partition))

    def view(self, topic: str, partition: int) -> tuple[LogEntry, list[SegmentEntry]]:
        return self.read(lambda txn: txn.view(topic, partition))

    def intents(self) -> list[tuple[int, Intent]]:
        return self.read(ReadTransaction.intents)

    # ------------------------------------------------------------ writes

    def write(self, function: Callable[[WriteTransaction], T]) -> T:
        """Run ``function`` in one transaction; when this returns, its writes are on the disk.

        Args:
            function: Must have no effect except on the transaction, because it is run again when the map has to grow.
                Its exception rolls the transaction back.

        Raises:
            DiskFull, WriteFailed: No entry has changed; the same call may succeed later.
            SyncFailed: The state on the disk is unknown; the catalogue refuses further writes.
            CatalogueDamaged, ReadOnly, Closed, Forked: see ``logdb.errors``.
        """
        self._check()
        if self.read_only:
            raise ReadOnly(f"the catalogue {self.path} was opened for reading")
        return _write(self._environment, function)

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"the catalogue {self.path} was closed")


def _write(shared: environment.Environment, function: Callable[[WriteTransaction], T]) -> T:
    last: list[WriteTransaction] = []

    def run(txn: "lmdb.Transaction[bytes]") -> T:
        last[:] = [WriteTransaction(shared.path, txn)]
        return function(last[0])

    return shared.write(run, lambda: last[0].put_size_bytes if last else 0)


def _make_directory(io: IO, path: str) -> None:
    if exists(io, path):
        return
    try:
        io.mkdir(path)
    except OSError as error:
        if error.errno in environment.NOT_ALLOWED:
            raise ReadOnly(f"the catalogue {path} cannot be created: {error}") from error
        raise write_error(path, 0, error) from error


def _check_presence(path: str) -> None:
    """Check that the file exists: LMDB would create a new, empty one."""
    try:
        size_bytes = os.stat(os.path.join(path, "data.mdb")).st_size
    except FileNotFoundError:
        raise CatalogueDamaged(path, "data.mdb is missing") from None
    except OSError as error:
        raise LogdbError(f"the catalogue {path} cannot be read: {error}") from error
    if not size_bytes:
        raise CatalogueDamaged(path, "data.mdb is empty")


def _check_pages(path: str) -> None:
    from logdb.meta.dump import read_in_child  # few programs need it

    if problems := read_in_child(path).problems:
        raise CatalogueDamaged(path, f"data.mdb is shorter than its pages: {problems[0]}")


def _begin(shared: environment.Environment, io: IO, create: bool) -> str:
    """Check the format of an opened catalogue, or give a new one its id; returns the id."""
    if shared.is_cut_short():
        _check_pages(shared.path)
    found = shared.read(lambda txn: ReadTransaction(shared.path, txn).format())
    if found is not None:
        number, database_id = found
        if number > entries.FORMAT:
            raise UnsupportedFormat(shared.path, number, entries.FORMAT)
        return database_id
    if not create:
        raise CatalogueDamaged(shared.path, "data.mdb has no format entry")
    from uuid import uuid4

    made = str(uuid4())
    _write(shared, lambda txn: txn.put_format(made))
    for directory in (shared.path, os.path.dirname(os.path.abspath(shared.path))):
        sync_directory(io, directory)
    return made


# ---------------------------------------------------------------- the data file as a whole


def file_checksum(io: IO, path: str) -> tuple[int, int]:
    """Size and CRC-32C of ``data.mdb`` in the catalogue's directory ``path``; no process may be writing it.

    Raises:
        FileNotFoundError: There is none.
        ReadFailed: The system cannot read it.
    """
    with _data_file(io, path) as file:
        return _checksum(file)


def _data_file(io: IO, path: str) -> File:
    return File(io, os.path.join(path, "data.mdb"), os.O_RDONLY)


def _checksum(file: File) -> tuple[int, int]:
    size_bytes = crc = 0
    for part in file.pieces(_CHUNK_SIZE_BYTES):
        size_bytes, crc = size_bytes + len(part), crc32c(part, crc)
    return size_bytes, crc


def check_file(io: IO, path: str, expected: tuple[int, int]) -> None:
    """Compare ``data.mdb`` with the ``file_checksum`` of the last clean close, before LMDB maps it.

    Raises:
        CatalogueDamaged: It differs, is missing, or is partly unreadable.
        ReadFailed: It cannot be opened.
    """
    try:
        file = _data_file(io, path)
    except FileNotFoundError:
        raise CatalogueDamaged(path, "data.mdb is missing") from None
    with file:
        try:
            found = _checksum(file)
        except ReadFailed as error:
            raise CatalogueDamaged(path, f"data.mdb cannot be read: {error}") from error
    if found != expected:
        raise CatalogueDamaged(
            path,
            f"data.mdb has {found[0]} bytes with CRC {found[1]:08x}; it was closed with {expected[0]} and {expected[1]:08x}",
        )
