"""Syncs the partitions of a transaction that this node leads, and writes their markers.

The states of transactions are those of ``coordinator.transactions``.

Markers are synced only where the next transaction may have the same epoch.  Otherwise a power cut may take a marker, and
leave the record that the transaction is complete: an open transaction in a partition is then ended by its decision, before
the next marker of its producer is written.

Where syncs are slow, partitions are synced side by side: their files are on one device, which works on several at once.

Threading: any thread.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from logdb.broker.runner import Shard
from logdb.broker.shards import Shards
from logdb.broker.transaction_peers import Decision, TransactionPeers
from logdb.coordinator.effects import WriteMarkers
from logdb.coordinator.group_coordinator import GroupCoordinator
from logdb.errors import Closed, LogdbError, ProducerFenced, ThreadUnavailable, UnknownPartition, UnknownTopic
from logdb.log.protocols import ReplicaLog
from logdb.model import INTERNAL_TOPICS, ProducerIdAndEpoch, TopicPartition
from logdb.pools import Pool
from logdb.store.protocols import Storage
from logdb.threads import renewed

logger = logging.getLogger(__name__)

_SYNC_THREADS = 4
_SLOW_SYNC_S = 0.0005  # a slower sync is worth another thread
_OFFSETS = INTERNAL_TOPICS[0]


class MarkerWriter:
    """The partitions of this node as parties of transactions.  A deleted partition counts as done."""

    def __init__(self, storage: Storage, peers: TransactionPeers, groups: Shards[GroupCoordinator]) -> None:
        """Start no thread yet.

        Args:
            peers: Have earlier decisions.
            groups: The group coordinators of this node: each appends the marker of its partition, and ends the transaction in its state.
        """
        self._storage, self._peers, self._groups = storage, peers, groups
        self._last_sync_s = 0.0
        self._begun: dict[str, WriteMarkers] = {}  # by transactional id: those of which one could not be written
        self._again = renewed(threading.RLock())  # while they are written again
        self._pool: Pool | None = None
        self._closed = False
        self._lock = renewed(threading.Lock())

    def sync(self, partitions: Iterable[TopicPartition]) -> None:
        """As ``TransactionPeers.sync``."""
        logs = {where: self._log(where) for where in partitions}
        syncs: list[Callable[[], None]] = [
            partial(self._sync, where, log) for where, log in logs.items() if log is not None and not log.is_synced
        ]
        if self._last_sync_s > _SLOW_SYNC_S:
            syncs[1:] = [self._handed_over(sync) for sync in syncs[1:]]
        _raise_first(syncs)

    def _sync(self, where: TopicPartition, log: ReplicaLog) -> None:
        began = time.perf_counter()
        try:
            log.flush()
        except Closed:
            if not self._was_deleted(where, log):
                raise
        self._last_sync_s = time.perf_counter() - began

    def close(self) -> None:
        """End the threads; later syncs run in the callers' threads."""
        with self._lock:
            self._closed = True
        if self._pool is not None:
            self._pool.shutdown()

    def write(self, markers: WriteMarkers) -> None:
        """As ``TransactionPeers.write_markers``.  A snapshot has all markers of a transaction, or none: see ``finish``."""
        with self._again if markers.transactional_id in self._begun else contextlib.nullcontext(), self._storage.transaction_lock:
            try:
                _raise_first([partial(self._write, where, markers) for where in sorted(markers.partitions)])
            except LogdbError:
                self._begun[markers.transactional_id] = markers
                raise
            self._begun.pop(markers.transactional_id, None)

    def has_partial_markers(self) -> bool:
        """Whether a transaction may have only some of its markers; under the transaction lock."""
        return bool(self._begun)

    def finish(self) -> None:
        """Write the markers of transactions that may have only some of theirs, as after a full disk, before their coordinator tries again.

        Not beside that: a marker that is written once more behind its answer could end the producer's next transaction.

        Raises:
            LogdbError: One of them cannot be written yet.
        """
        with self._again:
            for markers in list(self._begun.values()):
                self.write(markers)

    def _write(self, where: TopicPartition, markers: WriteMarkers) -> None:
        log, producer = self._log(where), markers.producer
        if log is None:
            return
        try:
            state = log.producer(producer.producer_id)
            is_open = state is not None and state.first_offset >= 0
            if log.is_mirror and not is_open:
                return  # it has taken no batch of the transaction; a marker would part it from its source
            if state is not None and is_open:
                if state.epoch > markers.last_epoch:
                    return  # the producer's next one: this marker was written before a crash
                if state.epoch < producer.producer_epoch - 1:  # an earlier one, and a power cut has taken its marker
                    left = ProducerIdAndEpoch(state.producer_id, state.epoch)
                    self.end_as_decided(where, log, self._peers.decision(left, where))
            self._end(where, log, Decision(producer, markers.commit, markers.coordinator_epoch))
        except ProducerFenced:
            pass  # the marker is there, and a later one
        except Closed:
            if not self._was_deleted(where, log):
                raise

    def end_as_decided(self, where: TopicPartition, log: ReplicaLog, decision: Decision) -> None:
        """Write the marker of a transaction that its coordinator has no more."""
        producer_id = decision.producer.producer_id
        known = (state.coordinator_epoch for state in log.producers() if state.producer_id == producer_id)
        decision = decision._replace(coordinator_epoch=max((decision.coordinator_epoch, *known)))  # the states may be lost, and rebuilt
        logger.info("%s: the dangling transaction of producer %d is %s", where, producer_id, "committed" if decision.commit else "aborted")
        self._end(where, log, decision)

    def _end(self, where: TopicPartition, log: ReplicaLog, decision: Decision) -> None:
        if where.topic == _OFFSETS:
            marked: ReplicaLog | Shard[GroupCoordinator] = self._groups.at(where.partition)
        else:
            marked = log
        marked.append_marker(decision.producer, commit=decision.commit, coordinator_epoch=decision.coordinator_epoch)

    def _was_deleted(self, where: TopicPartition, log: ReplicaLog) -> bool:
        """Whether a log is closed because its topic was deleted."""
        return self._log(where) is not log

    def _log(self, where: TopicPartition) -> ReplicaLog | None:
        try:
            return self._storage.open_logs.get(where) or self._storage.open_log(*where)
        except (UnknownTopic, UnknownPartition):
            return None

    def _handed_over(self, sync: Callable[[], None]) -> Callable[[], None]:
        """Begin a call in another thread, and return a function that waits for it; without a thread, the call itself."""
        try:
            with self._lock:
                if self._closed:
                    return sync
                if self._pool is None:
                    self._pool = Pool(_SYNC_THREADS, "logdb-sync")
            return self._pool.submit(sync).result
        except (ThreadUnavailable, Closed):
            return sync


def _raise_first(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls, then raise the error of the first that failed."""
    failure: LogdbError | None = None
    for call in calls:
        try:
            call()
        except LogdbError as error:
            failure = failure or error
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback has this frame
