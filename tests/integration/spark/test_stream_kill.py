"""A streaming program, JVM and workers included, killed again and again: its output is its input, each record once."""

import json
import os
import random
import signal
import sys
import time

import pytest
from pyarrow import parquet

import logdb
from support.spark import batch_count, program

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

ROUNDS = 3 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))
START_S_MAX = 600  # of a machine that is busy
pytestmark = [pytest.mark.slow, pytest.mark.timeout(START_S_MAX * (ROUNDS + 1))]

TRIGGER = 400
AHEAD = 3 * TRIGGER  # so much is there for the query to be killed at, and no more: the slower the machine, the more would pile up

STREAM = """
import sys
from logdb_spark_source import session
from support.spark import SETTINGS, until_started
path, out, checkpoint, everything = sys.argv[1:5]
spark = session("local[2]", config=SETTINGS | {"spark.driver.memory": "512m"})
frame = (spark.readStream.format("logdb").option("path", path).option("subscribe", "t").option("startingOffsets", "earliest")
         .option("maxOffsetsPerTrigger", sys.argv[5]).load().selectExpr("cast(value as string) value"))
writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
trigger = {"availableNow": True} if everything == "all" else {"processingTime": "0 seconds"}
until_started(lambda: writer.trigger(**trigger).start(out).awaitTermination())
"""


def written(out):
    """What the sink says that it holds: the files of the batches that it has committed."""
    told = {line for file in (out / "_spark_metadata").iterdir() if not file.name.startswith(".") for line in file.read_text().splitlines()}
    files = {json.loads(line)["path"].removeprefix("file://") for line in told if line.startswith("{")}
    return sorted(int(value) for file in files for value in parquet.read_table(file).column("value").to_pylist())


def end(process):
    """SIGKILL for the whole group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_output_equals_input_over_kills(tmp_path, record_property):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, path, out, checkpoint = random.Random(seed), tmp_path / "db", tmp_path / "out", tmp_path / "checkpoint"
    sent = 0
    with logdb.open(path) as db:
        db.create_topic("t", partitions=3, config={"segment.bytes": 20_000})
        for _ in range(ROUNDS):
            before = batch_count(checkpoint)
            process = program(STREAM, path, out, checkpoint, "for ever", TRIGGER, env=ENVIRONMENT)
            try:
                until, wanted, pause_s = time.monotonic() + START_S_MAX, before + rng.randrange(3), rng.random()
                while batch_count(checkpoint) < wanted or (checkpoint / "offsets").is_dir() is False:  # it is at work
                    assert process.poll() is None and time.monotonic() < until
                    if sent < (batch_count(checkpoint) * TRIGGER) + AHEAD:
                        count = rng.randrange(1, TRIGGER)
                        db.log("t", rng.randrange(3)).append_many([b"%d" % row for row in range(sent, sent + count)])
                        sent += count
                        db.flush()
                    time.sleep(0.05)
                time.sleep(pause_s)  # the kill falls anywhere into a batch
            finally:
                end(process)
        last = program(STREAM, path, out, checkpoint, "all", TRIGGER, env=ENVIRONMENT)
        try:
            assert last.wait(START_S_MAX) == 0
        finally:
            if last.poll() is None:
                end(last)
    found = written(out)
    assert found == list(range(sent))
    told = f"{ROUNDS} kills of the whole group in {batch_count(checkpoint)} batches, {sent} in, {len(found)} out"
    record_property("told", f"Spark stream: {told}")
