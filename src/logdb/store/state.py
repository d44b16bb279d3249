"""The shared state of one open store: its path, its open logs, whether calls are refused, and its locks.

A thread that needs several locks takes them in this order:

    changes_lock        creating, altering and deleting of topics, one at a time
    transaction_lock    shared while a transaction is decided or its markers are written, exclusive while all ends are captured
    topics_lock         topics, and opening of logs
    checkpoint_lock     sealing and replacing of segments
    Entries' own        log entries, and the catalogue's transactions that change them
"""

import os
import threading
import weakref
from collections.abc import Callable
from typing import Literal

from logdb.disk import exists
from logdb.errors import Closed, CorruptionError, Forked, LogdbError, ReadOnly, SyncFailed, UnknownTopic
from logdb.io import IO
from logdb.log.log import Log
from logdb.log.readable import ReadableLog
from logdb.meta import Catalogue, TopicEntry
from logdb.meta.reader_writer_lock import ReaderWriterLock
from logdb.model import Durability, TopicEvent, TopicPartition
from logdb.store import topic_file
from logdb.store.lock import LockFile
from logdb.threads import renewed

Mode = Literal["a", "r"]
_states: "weakref.WeakSet[StoreState]" = weakref.WeakSet()


class StoreState:
    """The shared state of one open store.

    ``lock_file``: None with mode "r".  ``clean``: whether the last writer had closed the directory.  ``reports``: the
    findings of opening its logs, so far.
    """

    def __init__(
        self,
        path: str,
        mode: Mode,
        catalogue: Catalogue,
        *,
        durability: Durability,
        batch_size: int,
        io: IO,
        clock: Callable[[], int] | None,
        lock_file: LockFile | None = None,
        clean: bool = True,
    ) -> None:
        self.path, self.mode, self.catalogue, self.durability, self.batch_size = path, mode, catalogue, durability, batch_size
        self.io, self.clock, self.lock_file, self.clean = io, clock, lock_file, clean
        self.clock_ms: Callable[[], int] = clock or io.clock_ms  # time of day, in ms since 1970
        self.logs: dict[TopicPartition, Log] = {}
        self.reports: list[str] = []
        self.closed, self._owner = False, os.getpid()
        self.sync_failed: SyncFailed | None = None
        self.complete_transactions: Callable[[], None] | None = None  # the broker's: ends dangling transactions
        self.has_partial_markers: Callable[[], bool] = lambda: False  # the broker's, under the transaction lock
        self._listeners: tuple[Callable[[TopicEvent], None], ...] = ()
        self.changes_lock, self.checkpoint_lock = renewed(threading.Lock()), renewed(threading.Lock())
        self.topics_lock, self.transaction_lock = renewed(threading.RLock()), renewed(ReaderWriterLock())
        _states.add(self)

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def partition_path(self, topic: str, partition: int) -> str:
        return os.path.join(self.path, f"{topic}-{partition}")

    def listen(self, function: Callable[[TopicEvent], None]) -> None:
        """Call ``function`` with each change of topics, in order, once it is durable; it must be quick."""
        self._listeners = (*self._listeners, function)

    def tell(self, event: TopicEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def topic(self, name: str) -> TopicEntry:
        self.check_open()
        entry = self.catalogue.topic(name)
        if entry is None:
            raise UnknownTopic(name, known=self.catalogue.topic_names())
        return entry

    def is_current(self, log: ReadableLog) -> bool:
        """Whether an open log is its partition's: not one of a topic that was deleted, and perhaps created again."""
        return self.logs.get(TopicPartition(log.topic, log.partition)) is log

    def is_of(self, path: str, topic_id: str) -> bool:
        """Whether a partition's directory exists, and belongs to the topic with this id, not to a later one of the same name."""
        try:
            return exists(self.io, path) and topic_file.load(self.io, path).topic_id == topic_id
        except (FileNotFoundError, CorruptionError):
            return self.catalogue.topic(os.path.basename(path).rpartition("-")[0]) is None

    # ------------------------------------------------------------ refusals

    def check_open(self, *, writable: bool = False) -> None:
        """Raise unless the store is open in this process (Closed, Forked), and, with ``writable``, accepts writes."""
        if writable:
            self.check_writable()
        elif (self.closed or os.getpid() != self._owner) and (error := self._unusable()) is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame

    def check_writable(self) -> None:
        """Raise unless it is open, and accepts writes: also ReadOnly, SyncFailed."""
        if self.closed or self.sync_failed is not None or self.mode == "r" or os.getpid() != self._owner:
            self.check_open()
            if self.mode == "r":
                raise self.reads_only()
            self.check_synced()

    def reads_only(self) -> ReadOnly:
        return ReadOnly(f"{self.path} was opened with mode='r': it can be read only")

    def check_synced(self) -> None:
        """Raise SyncFailed after a failed sync, which ends all writes."""
        if self.sync_failed is not None:
            raise SyncFailed(self.sync_failed.path, self.sync_failed.reason)

    def refusal(self, log: ReadableLog) -> LogdbError:
        """The error for an append to ``log``, which accepts no records."""
        where = TopicPartition(log.topic, log.partition)
        if (error := self._unusable()) is not None:
            return error
        if self.mode == "r":
            return ReadOnly(f"{self.path} was opened with mode='r': {where} can be read only")
        if self.sync_failed is not None:
            return SyncFailed(self.sync_failed.path, self.sync_failed.reason)
        if log.read_only_reason is not None:
            return ReadOnly(f"{where} is read-only: {log.read_only_reason}")
        if self.is_current(log):  # the close has begun
            return self._ended()
        anew = f"if {log.topic!r} exists again, take a new handle, as by db.log({log.topic!r})"
        return Closed(f"{where} is closed: its topic was deleted; {anew}")

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that opened the store."""
        return os.getpid() != self._owner

    def _unusable(self) -> Forked | Closed | None:
        if self.is_forked:
            return Forked(f"{self.path} was opened by process {self._owner}, this is its child {os.getpid()}: open it again in the child")
        return self._ended() if self.closed else None

    def _ended(self) -> Closed:
        return Closed(f"the database {self.path} is closed")

    def fail(self, error: SyncFailed) -> None:
        """The device failed a sync: refuse all later writes."""
        if self.sync_failed is None and not self.closed:
            self.sync_failed = SyncFailed(error.path, error.reason)  # not the one that is raised: its traceback holds files open
            for log in list(self.logs.values()):
                log.refuse_writes()
            if self.lock_file is not None:
                self.lock_file.mark_failed_sync()

    def end(self) -> None:
        self.closed = True
        _states.discard(self)


def _after_fork_in_child() -> None:
    """In a forked child: the parent's logs refuse records, write none, and wait for no thread."""
    for state in list(_states):
        for log in list(state.logs.values()):
            log.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
