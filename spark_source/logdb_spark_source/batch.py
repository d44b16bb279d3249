"""The batch reader: from options to tasks.  The end of a batch is fixed when the DataFrame is made."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logdb.model import TopicPartition
from logdb_spark_source.loss import lost
from logdb_spark_source.offsets import Resolver
from logdb_spark_source.options import ReadOptions
from logdb_spark_source.planning import Range, Task, divide
from logdb_spark_source.reading import TaskReader
from logdb_spark_source.selection import Partitions

if TYPE_CHECKING:
    import pyarrow


class Frozen:
    """The partitions of a batch and their ends, at the moment when this is made.

    Raises:
        InvalidConfig: A topic or a partition does not exist, or the offsets do not fit the partitions or a batch.
    """

    def __init__(self, options: ReadOptions) -> None:
        database = options.place.open()
        self.partitions: Partitions = options.selection.partitions(database)
        for bound in (options.starting, options.ending):
            if bound is not None:
                bound.check_covers(self.partitions.all)
        self.log_ends: Mapping[TopicPartition, int] = Resolver(database, options.isolation_level).ends(self.partitions.all)
        resolver = Resolver(database, options.isolation_level, self.log_ends)
        self.ends: Mapping[TopicPartition, int] = resolver.ending(options.end_of_batch(), self.partitions.all)


class BatchReader(DataSourceReader):
    """The tasks of a batch, and their reader."""

    def __init__(self, options: ReadOptions, frozen: Frozen, columns: tuple[str, ...]) -> None:
        self._options, self._frozen = options, frozen
        self._tasks = TaskReader(
            place=options.place,
            columns=columns,
            isolation_level=options.isolation_level,
            fail_on_data_loss=options.fail_on_data_loss,
        )

    def partitions(self) -> list[InputPartition]:
        """One task per range of offsets; with minPartitions as many as it says, if there are so many offsets.

        Raises:
            InvalidConfig: It begins at the end, or no record is as young as a timestamp.
            DataLoss: Offsets of it were deleted.
        """
        options = self._options
        ranges = divide(self._ranges(), count_min=options.min_partitions, records_max=options.max_records_per_partition)
        return [Task([one]) for one in ranges]

    def _ranges(self) -> list[Range]:
        options, (partitions, topic_ids) = self._options, self._frozen.partitions
        resolver = Resolver(options.place.open(), options.isolation_level, self._frozen.log_ends)
        starting = resolver.starting(options.start_of_batch(), partitions, strategy=options.strategy)
        ending = self._frozen.ends
        log_starts = resolver.starts(partitions)
        return [
            self._within(Range(one.topic, topic_ids[one.topic], one.partition, starting[one], ending[one]), log_starts[one])
            for one in partitions
        ]

    def _within(self, one: Range, log_start: int) -> Range:
        """The range, cut at the end that the log had when the DataFrame was made."""
        log_end = self._frozen.log_ends[TopicPartition(one.topic, one.partition)]
        name = f"{one.topic}-{one.partition}"
        if one.start < log_start and one.start < one.end:
            what = f"offsets [{one.start}, {min(one.end, log_start)}) of {name} were deleted"
            lost(f"{what}: it starts at {log_start}", self._options)
        for end, offset in (("start", one.start), ("end", one.end)):
            if offset > log_end:
                lost(f"{name} has to {end} at offset {offset}, but ends at {log_end}", self._options)
        return one._replace(start=max(one.start, log_start), end=min(one.end, log_end))

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The records of one task, in batches."""
        return self._tasks.read(partition if isinstance(partition, Task) else Task(()))
