"""The stream reader: its begin, the end of each micro-batch, its checkpoint, and partitions that are added or deleted.

An offset of a stream is JSON:

    {"version": 1, "topics": {"<topic>": "<its id>"}, "offsets": {"<topic>": {"<partition>": 5}}}

A stream without a checkpoint begins at an offset with ``"initial": true``; the offset that ends its first batch has ``"start"``: the
begin of that batch.  Spark asks for the first offset again if a query is restarted whose first batch was planned and not completed;
``latest`` is another one by then, so ``"start"`` counts.
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


class StreamPosition(NamedTuple):
    """The position of a stream: an offset per partition, and the id of each topic."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]

    def encode(self, **more: Any) -> dict[str, Any]:
        """As JSON for a checkpoint."""
        return {"version": VERSION, "topics": self.topic_ids, "offsets": _nested(self.offsets), **more}

    def within(self, later: "StreamPosition") -> dict[TopicPartition, int]:
        """The offset of each partition of a later position; 0 for a new one, or one of a topic that was created again."""
        return {
            one: self.offsets.get(one, 0) if self.topic_ids.get(one.topic) == later.topic_ids[one.topic] else 0 for one in later.offsets
        }

    @classmethod
    def decode(cls, found: Mapping[str, Any]) -> "StreamPosition":
        """The position in a checkpoint.

        Raises:
            InvalidConfig: It is not one of logdb's.
        """
        if found.get("version") != VERSION or not isinstance(found.get("offsets"), dict) or not isinstance(found.get("topics"), dict):
            raise InvalidConfig("checkpointLocation", str(found)[:200], f"it has no offset of format('logdb') of version {VERSION}")
        return cls(_flat(found["offsets"]), dict(found["topics"]))


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one, offset in sorted(offsets.items()):
        found.setdefault(one.topic, {})[str(one.partition)] = offset
    return found


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(at)): offset for topic, some in offsets.items() for at, offset in some.items()}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and tasks for Spark, in a process that lives as long as the query.

    Raises:
        InvalidConfig: An option is only for batches.
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
        self._latest: StreamPosition | None = None  # at the last check
        self._target: StreamPosition | None = None  # the end for AvailableNow
        self._delay = _delay(options)

    # ------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The begin of a stream without a checkpoint; the same at every call."""
        if self._initial is None:
            database = self._options.place.open()
            partitions, topic_ids = self._options.selection.partitions(database)
            self._start.check_covers(partitions)
            resolver = Resolver(database, self._options.isolation_level)
            offsets = resolver.starting(self._start, partitions, strategy=self._options.strategy)
            self._initial = StreamPosition(offsets, topic_ids).encode(initial=True)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """maxOffsetsPerTrigger or minOffsetsPerTrigger; of both, Spark gets only the former."""
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """From now on, the present ends of the logs are the end."""
        self._target = self._ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """The ends of the logs at the last check."""
        return None if self._latest is None else self._latest.encode()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The end of the micro-batch that begins at ``start``; ``start`` itself if it has no offsets, or not enough yet.

        Raises:
            InvalidConfig: The checkpoint belongs to other topics, or to another database.
            DataLoss: The next offsets were deleted.
        """
        begin = StreamPosition.decode(start)
        self._latest = end = self._target or self._ends()
        self._check_follows(begin, end)
        if self._holds(begin, end, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            end = end._replace(offsets=limits.pro_rata(begin.within(end), end.offsets, limit.max_rows))
        if end == begin:
            return start
        return end.encode(start=start["offsets"]) if start.get("initial") else end.encode()

    def _holds(self, begin: StreamPosition, end: StreamPosition, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger delays the batch; never when AvailableNow reads to a fixed end."""
        if self._delay is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        at = begin.within(end)
        return self._delay.holds(sum(max(0, offset - at[one]) for one, offset in end.offsets.items()))

    def _ends(self) -> StreamPosition:
        database = self._options.place.open()
        partitions, topic_ids = self._options.selection.partitions(database)
        return StreamPosition(Resolver(database, self._options.isolation_level).ends(partitions), topic_ids)

    def _check_follows(self, begin: StreamPosition, latest: StreamPosition) -> None:
        """Raise, or warn, unless ``latest`` has the topics of ``begin`` and is nowhere behind it."""
        options, checkpoint = self._options, "checkpointLocation"
        for topic, topic_id in begin.topic_ids.items():
            if not options.selection.names(topic):
                reason = f"it belongs to topic {topic!r}, which {options.selection.option} does not name: each query needs its own"
                raise InvalidConfig(checkpoint, topic, reason)
            if topic not in latest.topic_ids:
                lost(f"{checkpoint} belongs to topic {topic!r}, which was deleted", options)
            elif latest.topic_ids[topic] != topic_id:
                known = f"{checkpoint} is of a topic {topic!r} with id {topic_id}, at {options.place} it has {latest.topic_ids[topic]}"
                lost(f"{known}: it belongs to another database, or was deleted and created again", options)
        for one, offset in begin.offsets.items():
            if latest.topic_ids.get(one.topic) == begin.topic_ids[one.topic] and latest.offsets.get(one, offset) < offset:
                lost(f"{one.topic}-{one.partition} ends at {latest.offsets[one]}, but was read up to {offset}", options)

    # ------------------------------------------------------------ tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Tasks for a micro-batch; small ranges share one."""
        if end.get("initial"):
            return []
        first, last = StreamPosition.decode(start), StreamPosition.decode(end)
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
