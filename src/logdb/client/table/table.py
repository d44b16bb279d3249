"""``db.table``: a topic as a mapping from its keys to their latest values."""

import contextlib
import itertools
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, NamedTuple, TypeVar

from logdb import serde
from logdb.client.table.view import TopicView
from logdb.errors import Closed, LogdbError, ReadFailed
from logdb.handles import Handle
from logdb.io import IO
from logdb.log.protocols import PartitionLog
from logdb.meta.views import Entry, View, ViewDamaged
from logdb.model import Duration, Partition, TopicPartition, duration_ms, partition_of
from logdb.requests.session import Session
from logdb.signatures import readable

T = TypeVar("T")
_WAIT_MS_MAX = 1_000
_READ_COUNT_MAX = 3
_SHOWN_COUNT = 10  # keys in a notebook


class TableEntry(NamedTuple):
    """The value of a key, and the position of its record."""

    key: Any
    value: Any
    partition: int
    offset: int
    timestamp_ms: int


@readable
class Table(Handle, Mapping[Any, Any]):
    """The latest value of each key of a topic, kept current.  Made by ``Database.table``.

    Each access sees all committed records written before it, up to the first record of a transaction that is still open: records
    behind it come into the table when that transaction ends.  A program that computes new values from those of the table calls
    ``catch_up`` before.  Records of aborted transactions are not in the table.

    A tombstone (a record without a value) removes its key, and so does the deletion of its record.  Records without a key are
    ignored.  A key may be in several partitions after partitions were added: then its youngest record counts.

    A look-up takes bytes as they are.  ``key_deserializer`` serializes other keys, if it can: those of ``logdb.serde`` can.  Without
    a ``key_deserializer``, a str is encoded as UTF-8.

    An iteration shows the table at its first step, unaffected by later writes; keys are in the order of their bytes.
    The table is on the disk, so it may be larger than memory.  The next opening of the database continues with it.

    Threading: any number of threads.
    """

    def __init__(
        self,
        session: Session,
        view: TopicView,
        io: IO,
        key_deserializer: serde.Deserializer | None = None,
        value_deserializer: serde.Deserializer | None = None,
    ) -> None:
        self._session, self._view, self._io = session, view, io
        key_deserializer = serde.named(key_deserializer)
        self._key, self._value = serde.deserializing(key_deserializer, "key"), serde.deserializing(value_deserializer, "value")
        self._serialize = serde.serializing(key_deserializer, "key") if isinstance(key_deserializer, serde.Serde) else None

    @property
    def topic(self) -> str:
        return self._view.topic

    def __repr__(self) -> str:
        return f"<Table {self.topic}>"

    def _repr_html_(self) -> str:
        """For notebooks: how many keys there are, and the first ones; up to date, as each access is."""
        from logdb import notebook  # few programs need it

        title, rows = f"table {self.topic}", []
        with contextlib.suppress(LogdbError):  # it is closed, a value has another format, or its server does not answer
            title += f": {len(self):,} keys"
            rows = [
                (one.key, one.value, one.partition, one.offset, notebook.moment(one.timestamp_ms))
                for one in itertools.islice(self.entries(), _SHOWN_COUNT)
            ]
        return notebook.html_table(title, ("key", "value", "partition", "offset", "time"), rows)

    # ------------------------------------------------------------ one key

    def __getitem__(self, key: Any) -> Any:
        data = self._stored_key(key)
        entry = self._read(lambda view: view.get(data))
        if entry is None:
            raise KeyError(key)
        return entry.value if self._value is None else self._value(entry.value)

    def __contains__(self, key: object) -> bool:
        data = self._stored_key(key)
        return self._read(lambda view: view.get(data)) is not None

    def entry(self, key: Any) -> TableEntry | None:
        """The value of a key with the partition, offset and timestamp of its record; None without one.

        Raises:
            SerializationError: The value cannot be deserialized.
            LogdbError: See ``refresh``.
        """
        data = self._stored_key(key)
        entry = self._read(lambda view: view.get(data))
        return None if entry is None else self._made(data, entry)

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """The values of several keys, in their order; None for a key that is not in the table.

        The table is brought up to date once, before the first look-up. Over a URL that saves a request for each key.

        Raises:
            SerializationError: A value cannot be deserialized.
            LogdbError: See ``refresh``.
        """
        stored = [self._stored_key(key) for key in keys]
        values = self._read(lambda view: [None if (entry := view.get(key)) is None else entry.value for key in stored])
        return values if self._value is None else [None if value is None else self._value(value) for value in values]

    # ------------------------------------------------------------ all keys

    def __len__(self) -> int:
        return self._read(len)

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self._scan():
            yield key if self._key is None else self._key(key)

    def entries(self) -> Iterator[TableEntry]:
        """All entries at one moment."""
        for key, entry in self._scan():
            yield self._made(key, entry)

    def keys(self) -> KeysView[Any]:
        return KeysView(self)

    def items(self) -> ItemsView[Any, Any]:
        """Keys and values, at one moment for each iteration."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Values, at one moment for each iteration."""
        return _Values(self)

    # ------------------------------------------------------------ keeping up

    def refresh(self) -> None:
        """Read the new records; each access does it by itself.

        The first call reads the whole topic, unless the view of an earlier opening can be used.

        Raises:
            UnknownTopic: The topic was deleted.
            Closed, Forked: The database was closed, or opened by the parent process.
            CorruptionError, ReadFailed: The log cannot be read.
            DiskFull, WriteFailed: There is no room for the view.
        """
        self._view.current()

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that the table will read; raises as ``refresh``."""
        self.refresh()
        return self._view.positions()

    def wait_for(self, offsets: Mapping[Partition, int], timeout_ms: Duration | None = None) -> bool:
        """Wait until the table has the records at these offsets: those of a producer in another process, or of a transaction.

        Args:
            offsets: Offsets of records, such as ``RecordMetadata.offset``, by partition of this topic.
            timeout_ms: The longest wait, milliseconds or a ``timedelta``; None: forever.

        Returns:
            Whether it has them.

        Raises:
            ValueError: A partition belongs to another topic.
            UnknownPartition: The topic has no such partition.
            TopicDeleted, Closed: The topic was deleted meanwhile.
            LogdbError: See ``refresh``.
        """
        wanted = {partition_of(partition): offset for partition, offset in offsets.items()}
        for partition in wanted:
            if partition.topic != self.topic:
                raise ValueError(f"{partition} is not a partition of {self.topic}")
        logs = [self._session.log(*partition) for partition in wanted]
        for log in logs:
            log.readable_end_offset()  # a handle behind a URL knows the topic's id from now on
        return self._wait(wanted, logs, duration_ms(timeout_ms))

    def _wait(self, wanted: Mapping[TopicPartition, int], logs: Sequence[PartitionLog], timeout_ms: int | None) -> bool:
        """Wait for the records at these offsets of logs that were asked for their ends."""
        until_ms = None if timeout_ms is None else self._io.monotonic_ms() + timeout_ms
        while True:
            positions = self.positions()
            missing = {at: positions.get(at, 0) for at, offset in wanted.items() if positions.get(at, 0) <= offset}
            if not missing:
                return True
            left_ms = _WAIT_MS_MAX if until_ms is None else min(until_ms - self._io.monotonic_ms(), _WAIT_MS_MAX)
            if left_ms <= 0:
                return False
            if not self._session.wait(missing, left_ms, isolation_level="read_committed"):
                for log in logs:
                    log.readable_end_offset()  # raises if another topic has the name now: its offsets are others

    def catch_up(self, timeout_ms: Duration | None = None) -> bool:
        """Wait until the transactions have ended that are open now, and the table has all that they and others have committed.

        Call it before new values are computed from those of the table, outside of a transaction of your own: that one would be waited
        for, too.  A transaction whose program is gone is aborted after its ``transaction_timeout_ms``, while a writer or server runs.

        Args:
            timeout_ms: The longest wait, milliseconds or a ``timedelta``; None: forever.

        Returns:
            Whether it has them.

        Raises:
            LogdbError: See ``refresh``.
        """
        logs = {partition: self._session.log(*partition) for partition in self.positions()}
        ends = {partition: log.readable_end_offset() for partition, log in logs.items()}
        return self._wait({partition: end - 1 for partition, end in ends.items() if end}, list(logs.values()), duration_ms(timeout_ms))

    # ------------------------------------------------------------ the view

    def _read(self, read: Callable[[View], T]) -> T:
        """Read the view; a damaged one is rebuilt first."""
        for tries_left in reversed(range(_READ_COUNT_MAX)):
            try:
                return read(self._view.current())
            except ViewDamaged as error:
                if not tries_left:
                    raise
                self._view.invalidate(error)
            except Closed:  # another thread opens the view again
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _scan(self) -> Iterator[tuple[bytes, Entry]]:
        view = self._view.current()
        try:
            yield from view.scan()
        except ViewDamaged as error:
            self._view.invalidate(error)
            raise ReadFailed(view.path, 0, "the view is damaged; it will be rebuilt at the next read") from error

    def _stored_key(self, key: Any) -> bytes:
        if isinstance(key, bytes | bytearray | memoryview):
            return bytes(key)
        if self._serialize is not None:
            return bytes(self._serialize(key) or b"")
        if isinstance(key, str) and self._key is None:
            return key.encode()
        raise TypeError(f"a key of {self.topic} is bytes here, not {type(key).__name__}: give a key_deserializer that serializes, too")

    def _made(self, key: bytes, entry: Entry) -> TableEntry:
        return TableEntry(
            key if self._key is None else self._key(key),
            entry.value if self._value is None else self._value(entry.value),
            entry.partition,
            entry.offset,
            entry.timestamp_ms,
        )


class _Items(ItemsView[Any, Any]):
    """An iteration of ``items``; the one of ``Mapping`` would look keys up, at different moments."""

    _mapping: Table

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((entry.key, entry.value) for entry in self._mapping.entries())


class _Values(ValuesView[Any]):
    _mapping: Table

    def __iter__(self) -> Iterator[Any]:
        return (entry.value for entry in self._mapping.entries())
