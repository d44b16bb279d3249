"""A Parquet file, compressed with zstd: how an analyst keeps records that nothing is added to.  No order by offset, no tail."""

from benches.peers import not_importable
from benches.workload import KEY_SIZE_BYTES, Measure, Work


def missing() -> str | None:
    return not_importable("pyarrow.parquet")


def read(work: Work) -> Measure:
    """The column of values, in batches of 64 k rows."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = str(work.directory / "log.parquet")
    schema = pa.schema([("key", pa.binary(KEY_SIZE_BYTES)), ("value", pa.binary())])
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for keys, values in work.batches(1 << 20):
            file.write_batch(pa.record_batch([pa.array(keys, schema[0].type), pa.array(values, schema[1].type)], schema=schema))

    def one() -> tuple[int, int]:
        count = size_bytes = 0
        for batch in pq.ParquetFile(path).iter_batches(1 << 16, columns=["value"]):
            count += batch.num_rows
            size_bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py()
        return count, size_bytes

    return work.passes(one)


OPERATIONS = {"read": read}
