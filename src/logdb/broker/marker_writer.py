"""Ends of transactions: the sync of their partitions, and the markers.

Knows partitions and what a coordinator asks to be done to them.  Does not know states: ``coordinator.transactions`` does.

Markers are synced only where the next transaction may have the same epoch.  Otherwise a power cut may take a marker, and
leave the note that the transaction is complete: what is open in a partition then is ended as ``decide`` finds it was
decided, before anything else is.

Where syncs are slow, partitions are synced side by side: they are files of one device, which does as much at once as it can.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from logdb.broker.decisions import Decision
from logdb.coordinator.effects import Action, SyncPartitions, WriteMarkers
from logdb.errors import Closed, LogdbError, ProducerFenced, ThreadUnavailable, UnknownPartition, UnknownTopic
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.pools import Pool
from logdb.store.protocols import ReplicaLog, Storage
from logdb.threads import renewed

logger = logging.getLogger(__name__)

Decide: TypeAlias = Callable[[ProducerIdAndEpoch, TopicPartition], Decision]

_SYNC_THREADS = 4
_SLOW_SYNC_S = 0.0005  # what takes longer is worth a hand-over to another thread
_OFFSETS = "__consumer_offsets"


class MarkerWriter:
    """Carries out the actions of transaction coordinators."""

    def __init__(self, storage: Storage, append_offsets_marker: Callable[..., None], decide: Decide) -> None:
        """Begin.

        Args:
            append_offsets_marker: (partition, producer, commit=, coordinator_epoch=): the marker of a partition of
                ``__consumer_offsets``, where a group coordinator has to hear of it.
            decide: How an earlier transaction was decided.
        """
        self._storage, self._append_offsets_marker, self._decide = storage, append_offsets_marker, decide
        self._last_sync_s = 0.0
        self._pool: Pool | None = None
        self._closed = False
        self._lock = renewed(threading.Lock())

    def execute(self, action: Action) -> None:
        """Execute ``action``.

        Raises:
            LogdbError: A part of it failed; the rest was done.
        """
        match action:
            case SyncPartitions(partitions=partitions):
                self.sync(partitions)
            case WriteMarkers():
                self._write_markers(action)
                if action.last_epoch == action.producer.producer_epoch:
                    self.sync(action.partitions)

    def sync(self, partitions: Iterable[TopicPartition]) -> None:
        """Make durable what these partitions hold, but for those of level ``os``."""
        found = ((partition, self._log(partition)) for partition in partitions)
        unsynced = [
            _bound(self._sync, partition, log)
            for partition, log in found
            if log is not None and log.durability != "os" and log.flushed_offset < log.end_offset
        ]
        first, others = unsynced[:1], unsynced[1:]
        if self._last_sync_s > _SLOW_SYNC_S:
            others = [self._handed_over(sync) for sync in others]
        _first_error([*first, *others])

    def _sync(self, partition: TopicPartition, log: ReplicaLog) -> None:
        with self._while_there(partition, log):
            began = time.perf_counter()
            log.flush()
            self._last_sync_s = time.perf_counter() - began

    def close(self) -> None:
        """End the threads; what is synced from then on is synced by the caller's."""
        with self._lock:
            self._closed = True
        if self._pool is not None:
            self._pool.shutdown()

    def _write_markers(self, action: WriteMarkers) -> None:
        """Markers of one transaction: a snapshot has them all, or none."""
        with self._storage.transaction_gate.shared():
            _first_error([_bound(self._write_marker, partition, action) for partition in sorted(action.partitions)])

    def _write_marker(self, partition: TopicPartition, action: WriteMarkers) -> None:
        log, producer = self._log(partition), action.producer
        if log is None:
            return
        with contextlib.suppress(ProducerFenced), self._while_there(partition, log):
            for left in log.open_transactions():
                if left.producer_id != producer.producer_id:
                    continue
                if left.producer_epoch > action.last_epoch:
                    return  # the producer's next one: this was written before a crash
                if left.producer_epoch < producer.producer_epoch - 1:  # an earlier one, whose marker a power cut has taken
                    self.end_as_decided(partition, log, ProducerIdAndEpoch(left.producer_id, left.producer_epoch))
            self.end(partition, log, Decision(producer, action.commit, action.coordinator_epoch))

    def end_as_decided(self, partition: TopicPartition, log: ReplicaLog, producer: ProducerIdAndEpoch) -> None:
        """Write the marker of a transaction that no coordinator will end any more: an abort where nothing was decided."""
        decision = self._decide(producer, partition)
        known = (state.coordinator_epoch for state in log.producers() if state.producer_id == producer.producer_id)
        decision = decision._replace(coordinator_epoch=max((decision.coordinator_epoch, *known)))  # the states may be lost, and made anew
        logger.info("%s: what producer %d left open is %s", partition, producer.producer_id, "committed" if decision.commit else "aborted")
        self.end(partition, log, decision)

    def end(self, partition: TopicPartition, log: ReplicaLog, decision: Decision) -> None:
        """Write the marker of one partition."""
        producer, commit, coordinator_epoch = decision
        if partition.topic == _OFFSETS:
            self._append_offsets_marker(partition.partition, producer, commit=commit, coordinator_epoch=coordinator_epoch)
        else:
            log.append_marker(producer, commit=commit, coordinator_epoch=coordinator_epoch)

    @contextlib.contextmanager
    def _while_there(self, partition: TopicPartition, log: ReplicaLog) -> Iterator[None]:
        """What is closed because its topic was deleted meanwhile is done."""
        try:
            yield
        except Closed:
            if self._log(partition) is log:
                raise

    def _log(self, partition: TopicPartition) -> ReplicaLog | None:
        try:
            return self._storage.log(*partition)
        except (UnknownTopic, UnknownPartition):
            return None

    def _handed_over(self, sync: Callable[[], None]) -> Callable[[], None]:
        """A call in another thread, to be waited for; the very call where no thread can be had."""
        try:
            with self._lock:
                if self._closed:
                    return sync
                if self._pool is None:
                    self._pool = Pool(_SYNC_THREADS, "logdb-sync")
            return self._pool.submit(sync).result
        except (ThreadUnavailable, Closed):
            return sync


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
