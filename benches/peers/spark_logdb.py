"""Our data source for Spark, on a directory; and the Parquet files beside it, with the tail behind them."""

import functools

import logdb
from benches.peers.spark import environment
from benches.peers.spark_kafka import PARTITION_COUNT, ask, beside
from benches.workload import LARGE_BATCH_COUNT, Measure, Work

missing = environment.missing


def _read(source: str, action: str, work: Work) -> Measure:
    path = work.directory / "db"
    options = {"path": str(path), "subscribe": "t"}
    with logdb.open(path) as database:
        database.create_topic("t", partitions=PARTITION_COUNT)
        for number, (keys, values) in enumerate(work.batches(LARGE_BATCH_COUNT)):
            database.log("t", number % PARTITION_COUNT).append_many(values, keys)
        database.flush()
        if source == "scan":
            database.make_parquet("t")
        if action != "micro_batch":
            return ask(work, source, options, action)

        def write(count: int) -> None:
            for partition in range(PARTITION_COUNT):
                log = database.log("t", partition)
                log.append_many(values[: count // PARTITION_COUNT], keys[: count // PARTITION_COUNT])

        with beside(write):
            return ask(work, source, options, action)


OPERATIONS = {
    **{action: functools.partial(_read, "logdb", action) for action in ("count", "lengths", "noop", "backlog", "micro_batch")},
    **{f"scan_{action}": functools.partial(_read, "scan", action) for action in ("count", "lengths", "noop")},
}
