"""The records of a topic that a snapshot of its table does not have yet."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from logdb.client.database import Database
from logdb.codec.parquet import LOG_COLUMNS
from logdb.store.tables import mode_of, schema_versions
from logdb_iceberg.columns import Columns, columns_of

if TYPE_CHECKING:
    import pyarrow

    from logdb.log.protocols import PartitionLog

ENDS = "logdb.end-offsets"
"""In the summary of a snapshot: where the records of each partition end, as a JSON object."""
SCHEMA = "logdb.schema"
"""A property of the table: the config ``logdb.iceberg.schema`` that its columns have."""


def tail(db: Database, table: Table, *, snapshot_id: int | None = None) -> "pyarrow.RecordBatchReader":
    """Read the records after a snapshot, up to the log end, in the columns of the table.

    The snapshot and its tail have each record of the topic once, if compaction has not removed it.  Only committed records are read.

    Args:
        db: The database of the topic, or a server of it.
        table: The topic's table, as pyiceberg loads it.
        snapshot_id: A snapshot of the table; None: the current one.

    Raises:
        ValueError: The table is of another topic, or has no such snapshot.
        OffsetOutOfRange: Retention or ``delete_records`` moved the log start meanwhile.  A retry is safe.
    """
    import pyarrow as pa

    properties = table.properties
    topic = properties.get("logdb.topic", "")
    logs = [db.log(topic, partition) for partition in range(db.describe_topic(topic).partition_count)]
    stops = [log.end_offset for log in logs]
    info = db.describe_topic(topic)  # after the ends: its configs have the schema of each record below them
    if info.topic_id != properties.get("logdb.topic-id"):
        raise ValueError(f"the table is of an earlier topic {topic!r}: load it again")
    if mode_of(info.config) not in {properties["logdb.mode"], "disabled"}:
        raise ValueError(f"the table has the mode {properties['logdb.mode']}, topic {topic!r} has {mode_of(info.config)}: load it again")
    ends = end_offsets(table, snapshot_id)
    versions = schema_versions(info.config)  # newer than the table's, if the schema changed after its last commit
    columns = columns_of(properties["logdb.mode"], topic, versions, properties.get(SCHEMA, versions[-1].text))
    return pa.RecordBatchReader.from_batches(columns.arrow, _batches(logs, stops, ends, columns))


def end_offsets(table: Table, snapshot_id: int | None = None) -> Mapping[int, int]:
    """Where the records of each partition end in a snapshot; without a snapshot nowhere."""
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        if snapshot_id is not None:
            raise ValueError(f"snapshot_id={snapshot_id}: the table has no such snapshot, or it has expired")
        return {}
    text = None if snapshot.summary is None else snapshot.summary.additional_properties.get(ENDS)
    return {int(partition): offset for partition, offset in json.loads(text or "{}").items()}


def _batches(
    logs: "Sequence[PartitionLog]", stops: Sequence[int], ends: Mapping[int, int], columns: Columns
) -> "Iterator[pyarrow.RecordBatch]":
    for partition, (log, stop) in enumerate(zip(logs, stops, strict=True)):
        begin = max(ends.get(partition, 0), log.start_offset)
        if begin < stop:
            reader = log.read_arrow(begin, end_offset=stop, columns=LOG_COLUMNS, isolation_level="read_committed")
            for batch in columns.batches(reader, partition):
                yield from batch.cast(columns.arrow).to_batches()
