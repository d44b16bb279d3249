"""The committed offsets of a shard's groups, and those that wait for the end of their transaction.

They change only as records and markers are applied, in the order of the log: live and on replay alike.  Whether a group allows a
commit is checked by the coordinator.

A pending offset becomes the committed one when its producer's transaction commits, unless a later record was applied to
its partition since.

Source: Kafka's OffsetMetadataManager; KIP-447 (stable offsets), KIP-211 (expiry).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from logdb.coordinator.records import OffsetKey, OffsetValue
from logdb.errors import UnstableOffsets
from logdb.model import OffsetAndMetadata, TopicPartition


class Committed(NamedTuple):
    """A committed offset, and the offset of its record."""

    value: OffsetValue
    record_offset: int


class Offsets:
    """Threading: the shard's lock."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        self._pending: dict[int, dict[OffsetKey, Committed]] = {}  # by producer id
        self._writers: dict[OffsetKey, set[int]] = {}  # the producers whose transactions have it pending

    # ------------------------------------------------------------ from the log

    def put(self, key: OffsetKey, value: OffsetValue, *, offset: int, producer_id: int) -> None:
        """A record was written at ``offset``; ``producer_id`` is -1 unless it is part of a transaction."""
        committed = Committed(value, offset)
        if producer_id < 0:
            self._committed.setdefault(key.group_id, {})[key.partition] = committed
        else:
            self._pending.setdefault(producer_id, {})[key] = committed
            self._writers.setdefault(key, set()).add(producer_id)

    def remove(self, key: OffsetKey) -> None:
        """A tombstone was written: the committed and the pending offset are dropped."""
        self._drop(key)
        for producer_id in self._writers.pop(key, ()):
            del self._pending[producer_id][key]

    def is_writing(self, producer_id: int) -> bool:
        """Whether a producer has offsets pending."""
        return producer_id in self._pending

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The producer's marker was written."""
        for key, pending in self._pending.pop(producer_id, {}).items():
            writers = self._writers[key]
            writers.discard(producer_id)
            if not writers:
                del self._writers[key]
            if commit:
                there = self._committed.setdefault(key.group_id, {})
                if key.partition not in there or there[key.partition].record_offset < pending.record_offset:
                    there[key.partition] = pending

    def _drop(self, key: OffsetKey) -> None:
        there = self._committed.get(key.group_id, {})
        there.pop(key.partition, None)
        if not there:
            self._committed.pop(key.group_id, None)

    # ------------------------------------------------------------ questions

    def groups(self) -> set[str]:
        """Groups with an offset, committed or pending."""
        return self._committed.keys() | {key.group_id for key in self._writers}

    def has(self, group_id: str) -> bool:
        return group_id in self._committed or any(key.group_id == group_id for key in self._writers)

    def of(self, group_id: str) -> Iterator[tuple[TopicPartition, OffsetValue]]:
        """The committed offsets of a group."""
        return ((partition, committed.value) for partition, committed in self._committed.get(group_id, {}).items())

    def listed(self, group_id: str | None = None) -> set[OffsetKey]:
        """The keys with a committed or pending offset: of one group, or of all."""
        groups = self._committed if group_id is None else {group_id: self._committed.get(group_id, {})}
        committed = {OffsetKey(group, partition) for group, partitions in groups.items() for partition in partitions}
        return committed | {key for key in self._writers if group_id in (None, key.group_id)}

    def latest(self, key: OffsetKey) -> int:
        """Where the latest record of a key lies that is listed, committed or pending."""
        committed = self._committed.get(key.group_id, {}).get(key.partition)
        pending = (self._pending[producer_id][key] for producer_id in self._writers.get(key, ()))
        return max(one.record_offset for one in (committed, *pending) if one is not None)

    def is_pending(self, key: OffsetKey) -> bool:
        return key in self._writers

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, of the partitions that have one; None asks for all.

        Raises:
            UnstableOffsets: ``require_stable``, and a transaction that may change one of them has not ended yet.
        """
        there = self._committed.get(group_id, {})
        if partitions is None:
            wanted: Iterable[TopicPartition] = there.keys() | {key.partition for key in self._writers if key.group_id == group_id}
        else:
            wanted = tuple(partitions)
        if require_stable and self._writers:
            unstable = sum(OffsetKey(group_id, partition) in self._writers for partition in wanted)
            if unstable:
                raise UnstableOffsets(group_id, unstable)
        return {
            partition: OffsetAndMetadata(value.offset, value.leader_epoch, value.metadata)
            for partition in wanted
            if partition in there
            for value in (there[partition].value,)
        }

    def expired(self, group_id: str, now_ms: int, retention_ms: int, idle_since_ms: int | None) -> list[TopicPartition]:
        """The group's partitions whose offset has expired.

        Args:
            group_id: The group.
            now_ms: Time of day.
            retention_ms: How long an offset is kept, -1: for ever (except offsets with an expiry of their own).
            idle_since_ms: When the group became empty; None: counted from each offset's commit.
        """
        expired = []
        for partition, value in self.of(group_id):
            since_ms = value.commit_timestamp_ms if idle_since_ms is None else idle_since_ms
            own = value.expire_timestamp_ms >= 0
            late = now_ms >= value.expire_timestamp_ms if own else 0 <= retention_ms <= now_ms - since_ms
            if late and not self.is_pending(OffsetKey(group_id, partition)):
                expired.append(partition)
        return expired
