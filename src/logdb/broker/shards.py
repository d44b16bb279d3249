"""The shards of one internal topic: which shard keeps a name, and which of them this node coordinates.

The topic is created at its first use.  A shard is loaded at its first use, or when this node is told that it leads the partition;
it is dropped when the node resigns.  Each of these has a leader epoch, and an older one is ignored:

    (unknown) ──► first use, in the epoch of the metadata ──► coordinates ◄──► resigned
        └──────── load: a higher epoch; resign: the same or a higher one ─────────┘
"""

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from logdb.broker.runner import Shard, fire
from logdb.broker.timers import Timers
from logdb.coordinator.effects import Action, Coordinator
from logdb.coordinator.records import partition_of
from logdb.errors import Closed, CoordinatorLoading, NotCoordinator, UnknownTopic
from logdb.log.protocols import ReplicaLog
from logdb.requests.topic_changes import Config, CreateTopic
from logdb.store.protocols import Metadata, Storage
from logdb.threads import renewed

C = TypeVar("C", bound=Coordinator)
T = TypeVar("T")

PARTITION_COUNT = 4
_NOTHING = nullcontext()
_SEGMENT_SIZE_BYTES = 100 << 20  # Kafka's, for both topics; it bounds what an opening replays
_CONFIG: Config = {"cleanup.policy": "compact", "compression.type": "none", "segment.bytes": _SEGMENT_SIZE_BYTES}


class Shards(Generic[C]):
    """The shards of an internal topic that this node coordinates.

    =================== ======================= =========== ===================================================================
    field               changed by              under       to be trusted
    =================== ======================= =========== ===================================================================
    ``_open``           first use, load, resign ``_lock``   always; a shard in it may still have to be loaded, or end any moment
    ``_epochs``         the same                ``_lock``   the latest leader epoch of a partition; in neither: resigned
    ``_unopened``       the same                ``_lock``   led in that epoch, without a shard: the log could not be opened
    ``_partition_count`` first use              no lock     once it is not 0; it never changes
    ``_own_timers``     the same                ``_lock``   of a partition, for all its epochs; empty where ``timers`` are given
    ``_ended``          end                     ``_lock``   final
    =================== ======================= =========== ===================================================================
    """

    def __init__(
        self,
        storage: Storage,
        metadata: Metadata,
        topic: str,
        make: Callable[[ReplicaLog, int], C],
        *,
        timers: Timers | None,
        execute: Callable[[Action], None],
        while_appending: AbstractContextManager[object] = _NOTHING,
    ) -> None:
        """Begin without shards.

        Args:
            make: Creates the coordinator of a partition in a leader epoch.
            timers: Of all shards; None: each partition has its own, so that a timer that waits for replicas holds up no other partition.
            execute: Executes the actions of all shards.
            while_appending: Entered while a shard appends records, by several threads at once.
        """
        self.topic, self._storage, self._metadata = topic, storage, metadata
        self._make, self._timers, self._execute = make, timers, execute
        self._while_appending = while_appending
        self._own_timers: dict[int, Timers] = {}
        self._open: dict[int, Shard[C]] = {}
        self._epochs: dict[int, int] = {}
        self._unopened: set[int] = set()
        self._partition_count = 0
        self._ended: Closed | None = None
        self._lock = renewed(threading.Lock())

    def of(self, name: str) -> Shard[C]:
        """The shard that keeps ``name``, to change its state; creates the topic at its first use.

        Raises:
            Closed, Forked, ReadOnly, SyncFailed: The database takes no changes.
        """
        partition = self.partition_of(name)
        return self._open.get(partition) or self._first_use(partition)

    def partition_of(self, name: str) -> int:
        """The partition that keeps ``name``; creates the topic and raises as ``of``."""
        self._storage.check_writable()
        if not self._partition_count:
            self._find(create=True)
        return partition_of(name, self._partition_count)

    def find(self, name: str) -> Shard[C] | None:
        """The shard that keeps ``name``, to read its state; None if the topic does not exist."""
        self._storage.check_open()
        if not self._partition_count:
            self._find(create=False)
        return self.at(partition_of(name, self._partition_count)) if self._partition_count else None

    def at(self, partition: int) -> Shard[C]:
        """The shard of a partition that exists.

        Raises:
            NotCoordinator: This node does not lead the partition, or has resigned.
        """
        shard = self._open.get(partition)
        return self._first_use(partition) if shard is None else shard

    def _first_use(self, partition: int) -> Shard[C]:
        """Load a shard in the leader epoch of the metadata."""
        with self._lock:
            if (shard := self._open.get(partition)) is not None:
                return shard
            if self._ended is not None:
                raise self._ended.with_traceback(None)
            if partition in self._unopened:
                return self._begin(partition, self._epochs[partition], in_background=True)
            if partition in self._epochs:
                raise NotCoordinator(self.topic, partition, self._epochs[partition])
            state = self._metadata.partition_state(self.topic, partition)
            if state.leader != self._metadata.node_id:
                raise NotCoordinator(self.topic, partition, state.leader_epoch)
            return self._begin(partition, state.leader_epoch)

    # ------------------------------------------------------------ leadership

    def load(self, partition: int, epoch: int) -> bool:
        """This node leads a partition since ``epoch``: coordinate it, with a shard that is loaded anew.

        Requests that come meanwhile are refused with CoordinatorLoading.

        Returns:
            True: the shard is loaded.  False: this epoch, or a later one, was given before.

        Raises:
            LogdbError: The partition could not be opened or read; the next request tries again.
        """
        with self._lock:
            known = self._epochs.get(partition, -1)
            if self._ended is not None or epoch < known or (epoch == known and partition not in self._unopened):
                return False
            self._end(partition, epoch)
            self._unopened.add(partition)
            shard = self._begin(partition, epoch, in_background=True)
        with contextlib.suppress(CoordinatorLoading, NotCoordinator):  # a request loads it, or it was resigned since
            shard.load()
        return True

    def resign(self, partition: int, epoch: int) -> bool:
        """This node does not lead a partition since ``epoch``: refuse its requests, those that wait too, and forget its state.

        Returns:
            Whether it coordinated; False: it did not, or leads in a later epoch.
        """
        with self._lock:
            return epoch >= self._epochs.get(partition, -1) and self._end(partition, epoch)

    def _end(self, partition: int, epoch: int) -> bool:
        self._epochs[partition] = epoch
        self._unopened.discard(partition)
        shard = self._open.pop(partition, None)
        if shard is not None:
            shard.end(NotCoordinator(self.topic, partition, epoch))
        return shard is not None

    def _begin(self, partition: int, epoch: int, *, in_background: bool = False) -> Shard[C]:
        log = self._storage.open_log(self.topic, partition)
        shard = self._open[partition] = Shard(
            log,
            self._make(log, epoch),
            epoch=epoch,
            clock=log.now_ms,
            timers=self._timers_of(partition),
            execute=self._execute,
            while_appending=self._while_appending,
            follows=self._storage.mode == "r",
            loads_in_background=in_background,
        )
        self._epochs[partition] = epoch
        self._unopened.discard(partition)
        return shard

    def _timers_of(self, partition: int) -> Timers:
        if self._timers is not None:
            return self._timers
        if partition not in self._own_timers:
            self._own_timers[partition] = Timers(self._storage.io, fire)
        return self._own_timers[partition]

    # ------------------------------------------------------------ all of them

    def partitions(self) -> range:
        """The numbers of all partitions; none where the topic does not exist."""
        self._storage.check_open()
        if not self._partition_count:
            self._find(create=False)
        return range(self._partition_count)

    def for_each(self, function: Callable[[Shard[C]], T]) -> list[T]:
        """The results of ``function`` for the shards that this node coordinates."""
        results = []
        for partition in self.partitions():
            with contextlib.suppress(NotCoordinator):  # also where it resigns meanwhile
                results.append(function(self.at(partition)))
        return results

    def post(self, event: Callable[[Shard[C]], object]) -> None:
        """Post an event to each shard that this node coordinates, loaded or not; waits for nothing."""
        for shard in list(self._open.values()):
            shard.post(event(shard))

    def stop_waiting(self) -> None:
        """Let no thread wait for replicas any more: the database is closed."""
        for shard in list(self._open.values()):
            shard.stop_waiting(Closed(f"the database {self._storage.path} is closed"))

    def finish(self) -> None:
        """Append deferred records."""
        for shard in list(self._open.values()):
            shard.finish()

    def end(self) -> None:
        """Answer all waiting requests, and later ones, with Closed."""
        error = Closed(f"the database {self._storage.path} is closed")
        with self._lock:
            self._ended = error
            shards = list(self._open.values())
        for shard in shards:
            shard.end(error)
        for timers in self._own_timers.values():
            timers.stop()

    def _find(self, *, create: bool) -> None:
        try:
            self._partition_count = self._metadata.topic(self.topic).partition_count
        except UnknownTopic:
            if create:
                info = self._metadata.submit(CreateTopic(self.topic, PARTITION_COUNT, _CONFIG, if_not_exists=True))
                self._partition_count = info.partition_count
