"""Mirroring: topics of one database are copied into another, with their offsets.

    source.read_batches ──► up to the last stable offset ──► target.produce(mirrored): same offsets, the target's leader epochs

Batches go over whole, markers and aborted ones among them, so a reader sees the same at either side, at both isolation levels.  The end of
the target's log is all that a mirror remembers: one that was killed goes on there.  No transaction is open in a target that has
caught up.  Where the source has lost its first records, the target begins as late as it does; offsets in between get an empty batch.

The last batch of the target is compared with the source's before anything is added to it, and again where the source has a new leader
epoch; each look compares the ends.  A source that has lost what was copied, by an unclean election or a power cut, is MirrorDiverged, also
while a mirror runs: at once where it ends earlier, with its next record where it has got as many others.

A topic of the target has the config ``logdb.mirror.of``, the id of the source's: it takes no records of clients.

The offsets of groups are read before records are copied, and committed once all is copied that the source had then: what was written in
the same transactions is there.  An open transaction at the source holds them back.

Threading: one thread at a time.
"""

import contextlib
import fnmatch
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from logdb.client.database import Database
from logdb.codec import convert
from logdb.codec.batch import DELETE_HORIZON
from logdb.errors import (
    Closed,
    LogdbError,
    MirrorDiverged,
    OffsetOutOfRange,
    PolicyViolation,
    ReadOnly,
    TopicDeleted,
    UnexpectedOffset,
    UnknownPartition,
    UnknownTopic,
)
from logdb.handles import Handle
from logdb.log.protocols import PartitionLog
from logdb.model import IN_SYNC_MIN, INTERNAL_TOPICS, MIRROR_OF, OffsetAndMetadata, TopicInfo, TopicPartition
from logdb.requests.session import Session

logger = logging.getLogger(__name__)

CHUNK_SIZE_BYTES = 1 << 20
_OWN = (MIRROR_OF, IN_SYNC_MIN)  # configs that the target has by itself
_EMPTY_COUNT_MAX = 1 << 31


class MirrorProgress(NamedTuple):
    """Up to where a partition is copied, and where the source has its end: what is decided of it."""

    offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        return max(0, self.end_offset - self.offset)


class Committed(NamedTuple):
    """The committed offsets of the source's groups, and where its partitions ended afterwards: what the groups have written lies before."""

    offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
    ends: Mapping[TopicPartition, int]


class Mirror(Handle):
    """Topics of ``source`` that match one of ``patterns``, and the groups that read them, into ``target``.

    | field        | who changes it | when it may be trusted                                          |
    |--------------|----------------|-----------------------------------------------------------------|
    | ``progress`` | ``copy``       | as of the last look at each partition                           |
    | ``_checked`` | ``copy``       | the target's end was found in the source, by this object        |
    | ``_pending`` | ``copy``,      | until the target has all records before its ends                |
    |              | ``copy_groups``|                                                                 |
    | ``_refused`` | ``copy``       | why it could not read the offsets of groups                     |
    """

    def __init__(self, source: Database, target: Database, patterns: Sequence[str], *, groups: bool = False) -> None:
        """Copy nothing yet; ``groups``: ``copy`` reads their offsets, for ``copy_groups``."""
        self._source, self._target, self._patterns, self._with_groups = source, target, tuple(patterns), groups
        self._checked: set[TopicPartition] = set()
        self._pending: Committed | None = None
        self._refused: LogdbError | None = None
        self.progress: dict[TopicPartition, MirrorProgress] = {}

    def copy(self) -> int:
        """Copy what the source has now; returns how many offsets were copied.

        Raises:
            MirrorDiverged: A topic of the target is not this mirror's, or has other records.
            LogdbError: Of either side; the next call continues where this one ended.
        """
        topics = {info.name: info for info in self._source.topics() if self._is_wanted(info.name)}
        if self._with_groups and self._pending is None:
            self._read_offsets(topics.values())
        copied = 0
        self.progress = {where: progress for where, progress in self.progress.items() if where.topic in topics}
        for info in topics.values():
            with contextlib.suppress(UnknownTopic):  # it was deleted meanwhile: the next call looks again
                self._prepare(info)
                copied += self._copy_topic(info)
        return copied

    def _copy_topic(self, info: TopicInfo) -> int:
        """Copy the partitions of a topic, until it is deleted."""
        copied = 0
        with contextlib.suppress(UnknownTopic, Closed):  # its logs are closed; where the database was, the next look says so
            for number in range(info.partition_count):
                copied += self._copy(TopicPartition(info.name, number), info.topic_id)
        return copied

    def _is_wanted(self, topic: str) -> bool:
        return any(matches(topic, pattern) for pattern in self._patterns)

    # ------------------------------------------------------------ topics

    def _prepare(self, info: TopicInfo) -> None:
        """Make the target's topic, or see that it is one."""
        known = {topic.name: topic for topic in self._target.topics()}.get(info.name)
        if known is None:
            config = {name: value for name, value in info.config.items() if name not in _OWN}
            self._target.create_topic(info.name, partitions=info.partition_count, config={**config, MIRROR_OF: info.topic_id})
            return
        mark = known.config.get(MIRROR_OF, "")
        if mark not in {"", info.topic_id}:
            raise MirrorDiverged(info.name, f"it is that of the topic with id {mark}, the source's has {info.topic_id}")
        if known.partition_count > info.partition_count:
            raise MirrorDiverged(info.name, f"it has {known.partition_count} partitions, the source's has {info.partition_count}")
        if not mark:
            if any(self._target.log(info.name, number).end_offset for number in range(known.partition_count)):
                raise MirrorDiverged(info.name, f"it has records, and not the config {MIRROR_OF}={info.topic_id}")
            self._target.alter_topic(info.name, config={MIRROR_OF: info.topic_id})
        if known.partition_count < info.partition_count:
            self._target.alter_topic(info.name, partitions=info.partition_count)

    # ------------------------------------------------------------ records

    def _copy(self, where: TopicPartition, topic_id: str) -> int:
        source, target = self._source.log(*where), self._target.log(*where)
        start, stable, first = source.start_offset, source.last_stable_offset, target.end_offset
        if source.topic_id not in {"", topic_id}:
            raise TopicDeleted(where.topic, topic_id, source.topic_id)  # the next look compares the ids
        end = first
        epoch: int | None = None
        try:
            if where in self._checked:
                _check_end(where, source, first)
            elif _is_same(where, source, target):
                self._checked.add(where)
            begin = _first_batch(source, start) if end < start else start
            while end < begin:
                next_offset = min(begin, end + _EMPTY_COUNT_MAX)
                end = self._append(where, convert.empty_batch(end, next_offset))
            self.progress[where] = MirrorProgress(end, stable)
            while end < stable:
                batches, _ = source.read_batches(max(end, start), CHUNK_SIZE_BYTES)  # the first batch may begin before the start
                if not (batches := _below(batches, stable)):
                    break
                former, epoch = epoch, _leader_epoch(batches)
                if epoch != former and not _is_same(where, source, target):
                    break
                end = self._append(where, batches)
                self.progress[where] = MirrorProgress(end, stable)
            if target.start_offset < start <= end:
                with contextlib.suppress(PolicyViolation):  # it is compacted alone
                    self._target.delete_records(*where, start)
        except OffsetOutOfRange:  # the records were deleted meanwhile: the next look finds where the log begins now
            pass
        except UnexpectedOffset:  # the answer to an append was lost, or another mirror is at work
            if target.end_offset == end:
                raise
            self._checked.discard(where)
        return end - first

    def _append(self, where: TopicPartition, batches: "memoryview | bytearray") -> int:
        session: Session = self._target._session
        return session.produce(*where, batches, mirrored=True).stop

    # ------------------------------------------------------------ groups

    def _read_offsets(self, topics: Iterable[TopicInfo]) -> None:
        """Read what the source's groups have committed, then where the partitions end."""
        source: Session = self._source._session
        self._refused = None
        try:
            offsets = {group.group_id: source.fetch_offsets(group.group_id) for group in source.groups()}
            partitions = [TopicPartition(info.name, number) for info in topics for number in range(info.partition_count)]
            self._pending = Committed(offsets, {where: self._source.log(*where).end_offset for where in partitions})
        except ReadOnly:  # a directory beside its writer cannot tell them
            self._with_groups = False
        except LogdbError as error:  # records are copied all the same
            self._refused = error

    def copy_groups(self) -> int:
        """Commit in the target the offsets that ``copy`` has read, once it has the records before them and what the groups have written.

        A group that has members at the target keeps its own.

        Returns:
            How many have changed.

        Raises:
            LogdbError: The source could not tell them; the next ``copy`` reads them.
        """
        if self._refused is not None:
            raise self._refused
        if self._pending is None or not all(self._is_copied(where, end) for where, end in self._pending.ends.items()):
            return 0
        committed, self._pending = self._pending.offsets, None
        changed = 0
        target: Session = self._target._session
        for group_id, theirs in committed.items():
            offsets = {
                where: OffsetAndMetadata(at.offset, metadata=at.metadata)  # leader epochs are the target's own
                for where, at in theirs.items()
                if where in self.progress and at.offset <= self.progress[where].offset
            }
            try:
                known = target.fetch_offsets(group_id, tuple(offsets))
                news = {where: at for where, at in offsets.items() if where not in known or known[where].offset != at.offset}
                if news:
                    target.commit_offsets(group_id, news).result()
                    changed += len(news)
            except LogdbError as error:
                logger.warning("the offsets of group %s are not mirrored: %s", group_id, error)
        return changed

    def _is_copied(self, where: TopicPartition, end: int) -> bool:
        """Whether the target has what lies before ``end``, or all that is left of it: an end may be taken back by a change of leaders."""
        progress = self.progress.get(where)
        if progress is not None and progress.offset >= end:
            return True
        try:
            end = min(end, self._source.log(*where).end_offset)
        except (UnknownPartition, UnknownTopic):
            return True
        return end <= (0 if progress is None else progress.offset)


def matches(topic: str, pattern: str) -> bool:
    """Whether a pattern of a mirror selects a topic; internal ones are selected by none."""
    return topic not in INTERNAL_TOPICS and fnmatch.fnmatchcase(topic, pattern)


def _below(batches: memoryview, limit: int) -> memoryview:
    """The batches that lie below an offset."""
    size_bytes = 0
    for _, head in convert.headers(batches):
        if head.last_offset >= limit:
            break
        size_bytes += head.size_bytes
    return batches[:size_bytes]


def _first_batch(log: PartitionLog, start_offset: int) -> int:
    """Where the batch begins that holds the first offset of a log."""
    data, _ = log.read_batches(start_offset, 1)
    return next((head.base_offset for _, head in convert.headers(data)), start_offset)


def _leader_epoch(batches: memoryview) -> int:
    """That of the first batch, which is there."""
    return next(convert.headers(batches))[1].leader_epoch


def _check_end(where: TopicPartition, source: PartitionLog, end_offset: int) -> None:
    """Raise MirrorDiverged if the source ends before the target's end, which was looked at before: it has lost what was copied."""
    if end_offset > (source_end := source.end_offset):
        raise MirrorDiverged(where.topic, f"partition {where.partition} ends at {end_offset}, the source's at {source_end}")


def _is_same(where: TopicPartition, source: PartitionLog, target: PartitionLog) -> bool:
    """Whether the last batch of the target is that of the source; False: one of them cannot be read yet, as it is not replicated.

    Batches that either side has compacted are not compared: they lack records, or have a delete horizon (KIP-534).

    Raises:
        MirrorDiverged: It is another one.
    """
    end = target.end_offset
    _check_end(where, source, end)
    if end <= max(source.start_offset, target.start_offset):
        return True
    heads = [head for log in (target, source) for _, head in itertools.islice(convert.headers(log.read_batches(end - 1, 1)[0]), 1)]
    if len(heads) < 2:
        return False
    ours, theirs = heads
    if any(head.attributes & DELETE_HORIZON or head.record_count != head.last_offset - head.base_offset + 1 for head in heads):
        return True
    if (ours.base_offset, ours.last_offset, ours.crc) != (theirs.base_offset, theirs.last_offset, theirs.crc):
        raise MirrorDiverged(where.topic, f"the batch at offset {end - 1} of partition {where.partition} differs from the source's")
    return True
