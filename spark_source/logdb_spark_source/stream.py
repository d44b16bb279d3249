"""A stream: where it begins, how far each micro-batch goes, and what becomes of partitions that come and go.

Knows what a checkpoint holds.  Does not know how tasks read.

An offset of a stream is JSON:

    {"version": 1, "topics": {"<topic>": "<its id>"}, "offsets": {"<topic>": {"<partition>": 5}}}

to which is added, where a stream without a checkpoint begins, ``"initial": true``, and, in the offset that ends a batch
begun there, ``"start"``: the offsets it began at.  Spark asks for the first offset anew when a query is restarted whose
first batch was planned and not completed; by then ``latest`` is another one, and what ``"start"`` says counts.
"""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

from logdb.errors import InvalidConfig
from logdb.model import TopicPartition
from logdb_spark_source import limits
from logdb_spark_source.loss import lost
from logdb_spark_source.offsets import Resolver
from logdb_spark_source.options import ReadOptions
from logdb_spark_source.planning import Range, Task, divide, pack
from logdb_spark_source.reading import TaskReader

if TYPE_CHECKING:
    import pyarrow

VERSION = 1


class Position(NamedTuple):
    """Where a stream is: an offset for each partition, and the id of each topic."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]

    def encode(self, **more: Any) -> dict[str, Any]:
        """As JSON for a checkpoint."""
        return {"version": VERSION, "topics": self.topic_ids, "offsets": _nested(self.offsets), **more}

    def within(self, later: "Position") -> dict[TopicPartition, int]:
        """The offset of each partition of a later position; 0 for one that is new, or of a topic made anew."""
        return {
            one: self.offsets.get(one, 0) if self.topic_ids.get(one.topic) == later.topic_ids[one.topic] else 0 for one in later.offsets
        }

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> "Position":
        """What a checkpoint holds.

        Raises:
            InvalidConfig: It is not ours.
        """
        if found.get("version") != VERSION or not isinstance(found.get("offsets"), dict) or not isinstance(found.get("topics"), dict):
            raise InvalidConfig("checkpointLocation", str(found)[:200], f"it holds no offset of format('logdb') of version {VERSION}")
        return cls(_flat(found["offsets"]), dict(found["topics"]))


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one, offset in sorted(offsets.items()):
        found.setdefault(one.topic, {})[str(one.partition)] = offset
    return found


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(at)): offset for topic, some in offsets.items() for at, offset in some.items()}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark asks for offsets and tasks, in a process that lives as long as the query.

    Raises:
        InvalidConfig: An option is for batches only.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options, self._start = options, options.start_of_stream()
        self._tasks = TaskReader(
            place=options.place,
            columns=columns,
            isolation_level=options.isolation_level,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._initial: dict[str, Any] | None = None
        self._latest: Position | None = None  # as it was last seen
        self._target: Position | None = None  # where AvailableNow ends
        self._delay = _delay(options)

    # ------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Where a stream without a checkpoint begins; the same offset whenever it is asked for."""
        if self._initial is None:
            database = self._options.place.open()
            partitions, topic_ids = self._options.selection.partitions(database)
            self._start.check_covers(partitions)
            resolver = Resolver(database, self._options.isolation_level)
            offsets = resolver.starting(self._start, partitions, strategy=self._options.strategy)
            self._initial = Position(offsets, topic_ids).encode(initial=True)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """maxOffsetsPerTrigger or minOffsetsPerTrigger; where both are given, Spark knows of the former alone."""
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """From now on, where the logs end at this moment is the end."""
        self._target = self._ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """Where the logs ended when that was last looked at."""
        return None if self._latest is None else self._latest.encode()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Where the micro-batch ends that begins at ``start``; ``start`` itself if there is nothing for it, or not enough yet.

        Raises:
            InvalidConfig: The checkpoint is of other topics, or of another database.
            DataLoss: What comes next is not there any more.
        """
        begin = Position.decode(start)
        self._latest = end = self._target or self._ends()
        self._check_follows(begin, end)
        if self._holds(begin, end, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            end = end._replace(offsets=limits.pro_rata(begin.within(end), end.offsets, limit.max_rows))
        if end == begin:
            return start
        return end.encode(start=start["offsets"]) if start.get("initial") else end.encode()

    def _holds(self, begin: Position, end: Position, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger has the batch wait; never where all is to be read that there is."""
        if self._delay is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        at = begin.within(end)
        return self._delay.holds(sum(max(0, offset - at[one]) for one, offset in end.offsets.items()))

    def _ends(self) -> Position:
        database = self._options.place.open()
        partitions, topic_ids = self._options.selection.partitions(database)
        return Position(Resolver(database, self._options.isolation_level).ends(partitions), topic_ids)

    def _check_follows(self, begin: Position, latest: Position) -> None:
        """Raises, or warns, unless ``latest`` is of the topics of ``begin``, and nowhere behind it."""
        options, checkpoint = self._options, "checkpointLocation"
        for topic, topic_id in begin.topic_ids.items():
            if not options.selection.names(topic):
                reason = f"it is of topic {topic!r}, which {options.selection.option} does not name: each query has its own"
                raise InvalidConfig(checkpoint, topic, reason)
            if topic not in latest.topic_ids:
                lost(f"{checkpoint} is of topic {topic!r}, which is not there any more", options)
            elif latest.topic_ids[topic] != topic_id:
                known = f"{checkpoint} is of a topic {topic!r} with id {topic_id}, at {options.place} it has {latest.topic_ids[topic]}"
                lost(f"{known}: it is of another database, or was deleted and made anew", options)
        for one, offset in begin.offsets.items():
            if latest.topic_ids.get(one.topic) == begin.topic_ids[one.topic] and latest.offsets.get(one, offset) < offset:
                lost(f"{one.topic}-{one.partition} ends at {latest.offsets[one]}, but was read up to {offset}", options)

    # ------------------------------------------------------------ tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Tasks for a micro-batch; small ranges share one."""
        if end.get("initial"):
            return []
        first, last = Position.decode(start), Position.decode(end)
        offsets = _flat(end["start"]) if "start" in end else first.offsets
        options = self._options
        begin = first._replace(offsets=offsets).within(last)
        ranges = divide(
            (Range(one.topic, last.topic_ids[one.topic], one.partition, begin[one], offset) for one, offset in last.offsets.items()),
            count_min=options.min_partitions,
            records_max=options.max_records_per_partition,
        )
        return cast("list[InputPartition]", pack(ranges, count_min=options.min_partitions or 1))

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The records of one task, in batches."""
        return self._tasks.read(cast("Task", partition))


def _delay(options: ReadOptions) -> limits.Delay | None:
    if options.min_offsets_per_trigger is None:
        return None
    return limits.Delay(options.min_offsets_per_trigger, options.max_trigger_delay_ms, lambda: time.monotonic_ns() // 1_000_000)
