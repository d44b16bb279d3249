"""The shards of one internal topic, by the name of what they keep.

Knows the topic, and that it is made when it is first needed.  Does not know what its coordinators do.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from logdb.broker.runner import Shard
from logdb.broker.timers import Timers
from logdb.coordinator.effects import Action, Coordinator
from logdb.coordinator.records import partition_of
from logdb.errors import Closed, UnknownTopic
from logdb.store.protocols import Metadata, ReplicaLog, Storage
from logdb.threads import renewed

C = TypeVar("C", bound=Coordinator)

PARTITION_COUNT = 4
_SEGMENT_SIZE_BYTES = 100 << 20  # Kafka's, for both topics: what an opening replays is not much more
_CONFIG: Mapping[str, object] = {"cleanup.policy": "compact", "compression.type": "none", "segment.bytes": _SEGMENT_SIZE_BYTES}


class Shards(Generic[C]):
    """All shards of an internal topic."""

    def __init__(
        self,
        storage: Storage,
        metadata: Metadata,
        topic: str,
        make: Callable[[ReplicaLog], C],
        *,
        timers: Timers,
        execute: Callable[[Action], None],
        while_appending: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Begin with none open.

        Args:
            make: Makes the coordinator of a partition.
            execute: Executes the actions of all shards.
            while_appending: Entered while a shard appends records.
        """
        self.topic, self._storage, self._metadata = topic, storage, metadata
        self._make, self._timers, self._execute = make, timers, execute
        self._while_appending = while_appending
        self._open: dict[int, Shard[C]] = {}
        self._partition_count = 0
        self._ended: Closed | None = None
        self._lock = renewed(threading.Lock())

    def of(self, name: str) -> Shard[C]:
        """The shard that keeps ``name``, to change something; makes the topic where there is none yet.

        Raises:
            Closed, Forked, ReadOnly, SyncFailed: Nothing can be changed.
        """
        return self.at(self.partition_of(name))

    def partition_of(self, name: str) -> int:
        """The number of the partition that keeps ``name``; otherwise as ``of``."""
        self._storage.check_open(writable=True)
        if not self._partition_count:
            self._find(create=True)
        return partition_of(name, self._partition_count)

    def find(self, name: str) -> Shard[C] | None:
        """The shard that keeps ``name``, to look at; None where the topic does not exist."""
        self._storage.check_open()
        if not self._partition_count:
            self._find(create=False)
        return self.at(partition_of(name, self._partition_count)) if self._partition_count else None

    def at(self, partition: int) -> Shard[C]:
        """The shard of a partition that exists."""
        shard = self._open.get(partition)
        if shard is None:
            with self._lock:
                shard = self._open.get(partition)
                if shard is None:
                    if self._ended is not None:
                        raise self._ended
                    shard = self._open[partition] = self._open_shard(partition)
        return shard

    def all(self) -> list[Shard[C]]:
        """All shards; none where the topic does not exist."""
        self._storage.check_open()
        if not self._partition_count:
            self._find(create=False)
        return [self.at(partition) for partition in range(self._partition_count)]

    def finish(self) -> None:
        """Append what could wait."""
        for shard in list(self._open.values()):
            shard.finish()

    def end(self) -> None:
        """Let nobody wait for an answer any more: the database is closed."""
        error = Closed(f"the database {self._storage.path} is closed")
        with self._lock:
            self._ended = error
        for shard in self._open.values():
            shard.end(error)

    def _open_shard(self, partition: int) -> Shard[C]:
        log = self._storage.log(self.topic, partition)
        return Shard(
            log,
            self._make(log),
            clock=self._storage.clock_ms,
            timers=self._timers,
            execute=self._execute,
            while_appending=self._while_appending,
            follows=self._storage.mode == "r",
        )

    def _find(self, *, create: bool) -> None:
        try:
            self._partition_count = self._metadata.partition_count(self.topic)
        except UnknownTopic:
            if create:
                info = self._metadata.create_topic(self.topic, partitions=PARTITION_COUNT, config=_CONFIG, if_not_exists=True)
                self._partition_count = info.partition_count
