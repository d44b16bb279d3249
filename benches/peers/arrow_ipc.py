"""An Arrow IPC stream in a file: what a data engineer writes batches with.  No checksum, no index."""

import time

from benches.peers import not_importable
from benches.workload import KEY_SIZE_BYTES, Measure, Work, rate


def missing() -> str | None:
    return not_importable("pyarrow")


def append_many(work: Work) -> Measure:
    """One record batch a call, from two lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = pa.schema([("key", pa.binary(KEY_SIZE_BYTES)), ("value", pa.binary())])
    batches = list(work.batches())
    path = str(work.directory / "log.arrow")
    began = work.start()
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for keys, values in batches:
            columns = [pa.array(keys, schema[0].type), pa.array(values, schema[1].type)]
            stream.write_batch(pa.record_batch(columns, schema=schema))
    seconds = time.perf_counter() - began

    with pa.memory_map(path) as file:
        table = pa.ipc.open_stream(file).read_all()
        work.check((table.num_rows, pc.sum(pc.binary_length(table["value"])).as_py()))
    return rate(work.count, seconds)


OPERATIONS = {"append_many": append_many}
