"""Ends of transactions: the sync of their partitions, and the markers.

Knows partitions and what a coordinator asks to be done to them.  Does not know states: ``coordinator.transactions`` does.

Partitions are synced side by side: they are files of one device, which does as much at once as it can.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from logdb.coordinator.effects import Action, SyncPartitions, WriteMarkers
from logdb.errors import Closed, LogdbError, ProducerFenced, UnknownPartition, UnknownTopic
from logdb.log.log import Log
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.store.store import Store

_SYNC_THREADS = 4
_OFFSETS = "__consumer_offsets"


class Endings:
    """Carries out the actions of transaction coordinators."""

    def __init__(self, store: Store, append_offsets_marker: Callable[..., None]) -> None:
        """Begin.

        Args:
            append_offsets_marker: (partition, producer, commit=, coordinator_epoch=): the marker of a partition of
                ``__consumer_offsets``, where a group coordinator has to hear of it.
        """
        self._store, self._append_offsets_marker = store, append_offsets_marker
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def act(self, action: Action) -> None:
        """Carry out ``action``.

        Raises:
            LogdbError: A part of it failed; the rest was done.
        """
        match action:
            case SyncPartitions(partitions=partitions):
                self.sync(partitions)
            case WriteMarkers():
                self._write_markers(action)
                self.sync(action.partitions)

    def sync(self, partitions: Iterable[TopicPartition]) -> None:
        """Make durable what these partitions hold, but for those of level ``os``."""
        found = ((partition, self._log(partition)) for partition in partitions)
        unsynced = [
            _bound(self._sync, partition, log)
            for partition, log in found
            if log is not None and log.durability != "os" and log.point.offset < log.end_offset
        ]
        others = [self._threads().submit(sync) for sync in unsynced[1:]]
        _first_error([*unsynced[:1], *(sync.result for sync in others)])

    def _sync(self, partition: TopicPartition, log: Log) -> None:
        with self._while_there(partition, log):
            log.flush()

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown()

    def _write_markers(self, action: WriteMarkers) -> None:
        """Markers of one transaction: a snapshot has them all, or none."""
        with self._store.transaction_gate.shared():
            _first_error([_bound(self._write_marker, partition, action) for partition in sorted(action.partitions)])

    def _write_marker(self, partition: TopicPartition, action: WriteMarkers) -> None:
        log, producer = self._log(partition), action.producer
        if log is None:
            return
        for open_transaction in log.open_transactions():
            if open_transaction.producer_id == producer.producer_id and open_transaction.producer_epoch > action.last_epoch:
                return  # the producer's next one: this was written before a crash
        with contextlib.suppress(ProducerFenced), self._while_there(partition, log):
            self.end(partition, log, producer, commit=action.commit, coordinator_epoch=action.coordinator_epoch)

    def end(self, partition: TopicPartition, log: Log, producer: ProducerIdAndEpoch, *, commit: bool, coordinator_epoch: int) -> None:
        """Write the marker of one partition."""
        if partition.topic == _OFFSETS:
            self._append_offsets_marker(partition.partition, producer, commit=commit, coordinator_epoch=coordinator_epoch)
        else:
            log.append_marker(producer, commit=commit, coordinator_epoch=coordinator_epoch)

    @contextlib.contextmanager
    def _while_there(self, partition: TopicPartition, log: Log) -> Iterator[None]:
        """What is closed because its topic was deleted meanwhile is done."""
        try:
            yield
        except Closed:
            if self._log(partition) is log:
                raise

    def _log(self, partition: TopicPartition) -> Log | None:
        try:
            return self._store.log(*partition)
        except (UnknownTopic, UnknownPartition):
            return None

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="logdb-sync")
            return self._pool


def _bound(function: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    return lambda: function(*arguments)


def _first_error(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls, then raise what the first of them failed with."""
    failure: LogdbError | None = None
    for call in calls:
        try:
            call()
        except LogdbError as error:
            failure = failure or error
    if failure is not None:
        raise failure
