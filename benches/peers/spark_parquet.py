"""Spark's own reader, on Parquet files that pyarrow wrote: the columns of a log, a file a partition."""

import functools

from benches.peers.spark import environment
from benches.peers.spark_kafka import PARTITION_COUNT, ask
from benches.workload import Measure, Work

missing = environment.missing


def _read(action: str, work: Work) -> Measure:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = work.directory / "parquet"
    path.mkdir()
    keys, values = work.records()
    for partition in range(PARTITION_COUNT):
        own_keys, own_values = keys[partition::PARTITION_COUNT], values[partition::PARTITION_COUNT]
        count = len(own_values)
        columns = {
            "key": pa.array(own_keys, pa.binary()),
            "value": pa.array(own_values, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000_000 + n * 37_000 for n in range(count)], pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
        pq.write_table(pa.table(columns), path / f"{partition}.parquet")
    return ask(work, "parquet", {"path": str(path)}, action)


OPERATIONS = {action: functools.partial(_read, action) for action in ("count", "lengths", "noop")}
