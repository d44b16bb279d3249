"""What executors do with the rows of ``format("logdb")``: the chain of converters and transforms, as in a worker.

Threading: a Python process of Spark runs one task at a time.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from logdb import TopicPartition
from logdb_connect.data import SinkRecords
from logdb_connect.plugins import Plugins
from logdb_connect.runtime import settings
from logdb_connect.runtime.chain import Chains, SinkChain
from logdb_connect.runtime.tasks import TaskId

if TYPE_CHECKING:
    import pyarrow

Job = Mapping[str, Any]


class _Raw(NamedTuple):
    """A record as the chain takes it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


class _Task:
    """What a chain asks of its task."""

    handler: Any = None

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def is_stopping(self) -> bool:
        return False


def chain_of(job: Job) -> SinkChain:
    """The chain of a job, whose converters and transforms are made anew."""
    worker: Any = SimpleNamespace(
        plugins=Plugins((job["worker"].get("plugin.path") or "").split(",") if job["worker"].get("plugin.path") else ()),
        properties=job["worker"],
        config=settings.WORKER.parse(job["worker"]),
    )
    task: Any = _Task()
    return Chains(worker, TaskId(job["name"], 0), job["config"]).sink(task)


def runs(batches: "Iterator[pyarrow.RecordBatch]", chain: SinkChain) -> Iterator[tuple[TopicPartition, SinkRecords]]:
    """The records of Arrow batches, by partition, as ``put`` takes them."""
    for batch in batches:
        places = list(zip(batch.column("topic").to_pylist(), batch.column("partition").to_pylist(), strict=True))
        raw = _raw(batch)
        begin = 0
        for place, run in groupby(places):
            end = begin + sum(1 for _ in run)
            at = TopicPartition(*place)
            chosen: Any = raw[begin:end]
            yield at, chain.records({at: chosen})
            begin = end


def _raw(batch: "pyarrow.RecordBatch") -> list[_Raw]:
    import pyarrow

    times = batch.column("timestamp").cast(pyarrow.timestamp("us", "UTC")).cast(pyarrow.int64()).to_pylist()
    headers = batch.column("headers").to_pylist()
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    return [
        _Raw(offset, key, value, -1 if at is None else at // 1000, [(one["key"], one["value"]) for one in given or ()])
        for offset, key, value, at, given in zip(*columns, times, headers, strict=True)
    ]
