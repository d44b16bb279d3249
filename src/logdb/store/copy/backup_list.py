"""The list in a backup: the content of the database, and which of its files the backup has.  Format: docs/inside/backup.md.

The JSON may be hostile: ``decode`` checks every value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

from logdb.errors import LogdbError
from logdb.log import epochs as epochs_file
from logdb.log.epochs import LeaderEpochs
from logdb.log.recovery_point import Point
from logdb.meta import LogEntry, SegmentEntry, TopicEntry
from logdb.model import OFFSET_MAX, PARTITION_COUNT_MAX, SEGMENT_SIZE_BYTES_MAX, check_config, check_topic_id, check_topic_name
from logdb.segment.transaction_index import ENTRY_SIZE_BYTES

Kind = Literal["log", "txnindex", "snapshot"]
"""The suffix of the file: a segment's batches, its aborted transactions, the producers at an offset."""

KINDS = ("log", "txnindex", "snapshot")

LogKey = tuple[str, int]
"""Topic id and partition."""

_CRC_MAX = 2**32 - 1


class Part(NamedTuple):
    """A file of a partition that does not belong to a sealed segment.

    ``base_offset``: the number in its name.  ``crc``: CRC-32C.  ``stored``: the backup has it.
    """

    kind: Kind
    base_offset: int
    size_bytes: int
    crc: int
    stored: bool


class Continued(NamedTuple):
    """A ``.log`` of which the backup has only the bytes from ``size_bytes`` on; its base has those before, whose CRC-32C is ``crc``."""

    base_offset: int
    size_bytes: int
    crc: int

    @property
    def part(self) -> Part:
        """The part of the base that has the bytes before."""
        return Part("log", *self, True)


@dataclass(frozen=True, kw_only=True)
class ListedLog:
    """One partition at the time of the backup.

    ``entry``: its recovery point is the end.  ``stored``: the rows of ``sealed`` that the backup has.  ``parts``: at most one of
    each kind; a log without segments has none of kind "log".  ``continued``: the one stored ``.log`` that is not whole.
    ``high_watermark``: of a replica; OFFSET_MAX: it is none.
    """

    topic: TopicEntry
    entry: LogEntry
    epochs: LeaderEpochs
    sealed: tuple[SegmentEntry, ...]
    stored: frozenset[int]
    parts: tuple[Part, ...]
    continued: Continued | None = None
    high_watermark: int = OFFSET_MAX

    @property
    def key(self) -> LogKey:
        return self.topic.topic_id, self.entry.partition

    @property
    def has_segments(self) -> bool:
        return any(part.kind == "log" for part in self.parts)

    @cached_property
    def rows(self) -> dict[SegmentEntry, int]:
        """The row of each sealed segment."""
        return {segment: row for row, segment in enumerate(self.sealed)}

    def has(self, file: SegmentEntry | Part) -> bool | None:
        """Whether the backup has a file; None if the list lacks it, or has it with other content."""
        if isinstance(file, SegmentEntry):
            row = self.rows.get(file)
            return None if row is None else row in self.stored
        return next((part.stored for part in self.parts if part[:4] == file[:4]), None)

    def begin_of(self, file: SegmentEntry | Part) -> Continued | None:
        """What precedes the bytes of a stored file that the backup has; None: it has the whole file."""
        is_log = isinstance(file, SegmentEntry) or file.kind == "log"
        return self.continued if is_log and self.continued is not None and self.continued.base_offset == file.base_offset else None

    @property
    def end(self) -> Point:
        return Point(self.entry.recovery_segment, self.entry.recovery_offset, self.entry.recovery_position)


# ---------------------------------------------------------------- writing


def encode(logs: Sequence[ListedLog]) -> dict[str, Any]:
    """The list of a backup, as JSON; ``logs`` are sorted by topic and partition."""
    topics = {log.topic.name: log.topic for log in logs}
    rows = [[topic.name, topic.topic_id, topic.partition_count, topic.config] for topic in topics.values()]
    return {"topics": rows, "logs": [_encode_log(log) for log in logs]}


def _encode_log(log: ListedLog) -> dict[str, Any]:
    return {
        "start_offset": log.entry.start_offset,
        "generation": log.entry.generation,
        "clean_offset": log.entry.clean_offset,
        "delete_horizon_ms": log.entry.delete_horizon_ms,
        "segment_created_ms": log.entry.segment_created_ms,
        "segment_append_ms": log.entry.segment_append_ms,
        "epochs": [list(entry) for entry in log.epochs.entries],
        "end": list(log.end) if log.has_segments else None,
        "parts": [list(part) for part in log.parts],
        "sealed": _encode_sealed(log.sealed),
        "stored": _runs(sorted(log.stored)),
        **({} if log.continued is None else {"continued": list(log.continued)}),
        **({"high_watermark": log.high_watermark} if log.high_watermark < OFFSET_MAX else {}),
    }


def _encode_sealed(sealed: Sequence[SegmentEntry]) -> dict[str, list[int]]:
    ends = [0, *(segment.next_offset for segment in sealed)]
    return {
        "base_offset": [segment.base_offset - end for segment, end in zip(sealed, ends, strict=False)],
        "count": [segment.next_offset - segment.base_offset for segment in sealed],
        "size_bytes": [segment.size_bytes for segment in sealed],
        "crc": [segment.crc for segment in sealed],
        "max_timestamp": _steps([segment.max_timestamp for segment in sealed]),
        "append_ms": _steps([segment.append_ms for segment in sealed]),
        "aborted_count": [segment.aborted_count for segment in sealed],
        "aborted_crc": [segment.aborted_crc for segment in sealed],
    }


def _steps(numbers: Sequence[int]) -> list[int]:
    return [number - before for before, number in pairwise([0, *numbers])]


def _runs(rows: Iterable[int]) -> list[list[int]]:
    """Runs of consecutive rows, as [first, count]."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1][1] += 1
        else:
            runs.append([row, 1])
    return runs


# ---------------------------------------------------------------- reading


def decode(content: Any) -> list[ListedLog]:
    """The logs that a list names.

    Raises:
        ValueError: The list is invalid; the text says why.
    """
    try:
        topics = [_topic(*row) for row in content["topics"]]
        if len({topic.name for topic in topics}) < len(topics) or len({topic.topic_id for topic in topics}) < len(topics):
            raise ValueError("a topic is listed twice")
        logs, wanted = content["logs"], sum(topic.partition_count for topic in topics)
        if len(logs) != wanted:
            raise ValueError(f"{len(logs)} logs of topics with {wanted} partitions")
        owners = [(topic, partition) for topic in topics for partition in range(topic.partition_count)]
        return [_log(topic, partition, fields) for (topic, partition), fields in zip(owners, logs, strict=True)]
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, LogdbError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _topic(name: str, topic_id: str, partition_count: int, config: dict[str, Any]) -> TopicEntry:
    check_topic_name(name)
    return TopicEntry(name, check_topic_id(topic_id), _number(partition_count, 1, PARTITION_COUNT_MAX), check_config(config))


def _log(topic: TopicEntry, partition: int, fields: dict[str, Any]) -> ListedLog:
    segment, offset, position = (0, 0, 0) if fields["end"] is None else (_number(number) for number in fields["end"])
    if position > SEGMENT_SIZE_BYTES_MAX or segment > offset:
        raise ValueError(f"an active segment of {position} bytes, from offset {segment} to {offset}")
    epochs = LeaderEpochs(tuple((_number(epoch), _number(start)) for epoch, start in fields["epochs"]))
    epochs_file.decode(epochs_file.encode(epochs), topic.name)
    if epochs.entries and epochs.entries[-1][1] > offset:
        raise ValueError(f"{topic.name}-{partition}: an epoch begins at {epochs.entries[-1][1]}, the log ends at {offset}")
    sealed = _sealed(topic.name, partition, fields["sealed"])
    if sealed and (fields["end"] is None or sealed[-1].next_offset > segment):
        raise ValueError(
            f"{topic.name}-{partition}: sealed segments reach to offset {sealed[-1].next_offset}, the active one begins before"
        )
    parts = [_part(*part) for part in fields["parts"]]
    where = {part.kind: (part.base_offset, part.size_bytes) for part in parts}
    if len(where) < len(parts) or where.get("log") != (None if fields["end"] is None else (segment, position)):
        raise ValueError(f"{topic.name}-{partition}: end {fields['end']!r}, but {parts}")
    if where.get("txnindex", (segment,))[0] != segment or where.get("snapshot", (offset,))[0] != offset:
        raise ValueError(f"{topic.name}-{partition}: end {fields['end']!r}, but {parts}")
    entry = LogEntry(
        topic.name,
        partition,
        start_offset=_number(fields["start_offset"]),
        generation=_number(fields["generation"]),
        clean_offset=_number(fields["clean_offset"]),
        segment_created_ms=_number(fields["segment_created_ms"]),
        segment_append_ms=_number(fields.get("segment_append_ms", 0)),  # older backups lack it
        delete_horizon_ms=None if fields["delete_horizon_ms"] is None else _number(fields["delete_horizon_ms"]),
        recovery_segment=segment,
        recovery_offset=offset,
        recovery_position=position,
        leader_epoch=epochs.latest,
        producers_offset=offset if "snapshot" in where else -1,
    )
    stored = _rows(fields["stored"], len(sealed))
    return ListedLog(
        topic=topic,
        entry=entry,
        epochs=epochs,
        sealed=sealed,
        stored=stored,
        parts=tuple(parts),
        continued=_continued(fields.get("continued"), [sealed[row] for row in stored], parts),
        high_watermark=_number(fields.get("high_watermark", OFFSET_MAX)),
    )


def _part(kind: Kind, base_offset: int, size_bytes: int, crc: int, stored: bool) -> Part:
    if kind not in KINDS or not isinstance(stored, bool):
        raise ValueError(f"a file of kind {kind!r}, stored: {stored!r}")
    return Part(kind, _number(base_offset), _number(size_bytes, 0, SEGMENT_SIZE_BYTES_MAX), _number(crc, 0, _CRC_MAX), stored)


def _continued(fields: Sequence[int] | None, sealed: Iterable[SegmentEntry], parts: Iterable[Part]) -> Continued | None:
    """Checked against the stored files: it is one of these, and not smaller."""
    if fields is None:
        return None
    base_offset, size_bytes, crc = fields
    found = Continued(_number(base_offset), _number(size_bytes, 1, SEGMENT_SIZE_BYTES_MAX), _number(crc, 0, _CRC_MAX))
    sizes = {segment.base_offset: segment.size_bytes for segment in sealed}
    sizes.update((part.base_offset, part.size_bytes) for part in parts if part.kind == "log" and part.stored)
    if sizes.get(found.base_offset, 0) < found.size_bytes:
        raise ValueError(f"{found} continues no file that is stored")
    return found


def _sealed(topic: str, partition: int, columns: dict[str, list[int]]) -> tuple[SegmentEntry, ...]:
    plain = ("base_offset", "count", "size_bytes", "crc", "aborted_count", "aborted_crc")
    numbers = zip(*(columns[name] for name in plain), strict=True)
    times, appends = (list(accumulate(_number(step, -OFFSET_MAX) for step in columns[name])) for name in ("max_timestamp", "append_ms"))
    entries, end = [], 0
    for (gap, count, size, crc, aborted, aborted_crc), max_timestamp, append_ms in zip(numbers, times, appends, strict=True):
        base = _number(end + _number(gap))
        end = _number(base + _number(count))
        entries.append(
            SegmentEntry(
                topic,
                partition,
                base,
                _number(size, 0, SEGMENT_SIZE_BYTES_MAX),
                _number(crc, 0, _CRC_MAX),
                end,
                _number(max_timestamp, -1),
                _number(append_ms, -1),
                _number(aborted, 0, SEGMENT_SIZE_BYTES_MAX // ENTRY_SIZE_BYTES),
                _number(aborted_crc, 0, _CRC_MAX),
            )
        )
    return tuple(entries)


def _rows(runs: Sequence[Sequence[int]], row_count: int) -> frozenset[int]:
    rows: set[int] = set()
    for first, count in runs:
        _number(first, 0, row_count)
        _number(count, 0, row_count - first)
        rows.update(range(first, first + count))
    return frozenset(rows)


def _number(value: Any, least: int = 0, most: int = OFFSET_MAX) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is not a number in [{least}, {most}]")
    return value
