"""The work of a task: reads its ranges as Arrow batches in Spark's columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import logdb
from logdb.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from logdb.log.isolation import IsolationLevel
from logdb_spark_source.columns import Converter, log_columns
from logdb_spark_source.executors import open_in_task
from logdb_spark_source.location import Location
from logdb_spark_source.loss import lost
from logdb_spark_source.planning import Range, Task

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, kw_only=True)
class TaskReader:
    """How all tasks of a plan read; it is sent to them."""

    place: Location
    columns: tuple[str, ...]
    isolation_level: IsolationLevel
    fail_on_data_loss: bool

    def read(self, task: Task) -> "Iterator[pyarrow.RecordBatch]":
        """All records of the task's ranges.

        Raises:
            DataLoss: Some of their offsets were deleted, and failOnDataLoss is true.
            CorruptionError: The log is damaged; the error has the position.
        """
        database = open_in_task(self.place)
        ids = {info.name: info.topic_id for info in database.topics(internal=True)} if task.ranges else {}
        converter = Converter(self.columns)
        for one in task.ranges:
            if ids.get(one.topic) == one.topic_id:
                yield from converter.batches(self._read(database, one), one.topic, one.partition)
            else:
                what = "was deleted" if one.topic not in ids else "was deleted and created again"
                lost(f"topic {one.topic!r} {what} since offsets [{one.start}, {one.end}) of partition {one.partition} were planned", self)

    def _read(self, database: logdb.Database, one: Range) -> "Iterator[pyarrow.RecordBatch]":
        """The records of one range; without failOnDataLoss from the present log start, if that has moved into it."""
        names = log_columns(self.columns)
        wanted = names if "offset" in names else [*names, "offset"]
        offset = one.start
        while offset < one.end:
            try:
                log = database.log(one.topic, one.partition)
                self._check(log, one, offset)
                for batch in log.read_arrow(offset, end_offset=one.end, columns=wanted, isolation_level=self.isolation_level):
                    yield batch
                    offset = batch.column("offset")[-1].as_py() + 1
            except OffsetOutOfRange as gone:
                start = min(max(gone.start_offset, offset + 1), one.end)
                lost(f"offsets [{offset}, {start}) of {one.topic}-{one.partition} were deleted: {gone}", self)
                offset = start
            except (UnknownTopic, UnknownPartition) as gone:
                lost(f"offsets [{offset}, {one.end}) of {one.topic}-{one.partition} were deleted: {gone}", self)
                return
            else:
                return

    def _check(self, log: logdb.Log, one: Range, offset: int) -> None:
        """Raise if ``offset`` was deleted, even if its segment still exists, or if the log ends before the planned end."""
        start = log.start_offset
        if offset < start:
            raise OffsetOutOfRange(one.topic, one.partition, offset, start, log.end_offset)
        end = log.readable_end_offset(self.isolation_level)
        if end < one.end:
            lost(f"{one.topic}-{one.partition} ends at offset {end}, but ended at {one.end} or later before", self)
