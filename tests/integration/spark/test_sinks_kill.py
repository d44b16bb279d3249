"""Spark killed at random, driver and tasks, while it copies a topic: what comes out is what went in, each record once."""

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import logdb
from support.serving import served
from support.spark import batch_count, program
from support.staged import values

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
KILLS = SCALE
PARTITIONS = 2
RECORDS = 20_000
WAIT_S = 600
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(1_200 * (KILLS + 1))]

# Two queries, one on a directory, one on a server, copy "in" to "out".
WORKER = """
import sys, time
from pyspark.errors import StreamingQueryException
from logdb_spark_source import session
from support.spark import SETTINGS, SLOW
path, url, work, records, until_end = sys.argv[1:]
spark = session("local[2]", config=SETTINGS)
def copy(number, place):
    frame = spark.readStream.format("logdb").options(**place).option("subscribe", "in")
    frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", records).load()
    rows = frame.selectExpr("key", "value").repartition(2).writeStream.format("logdb").options(**place).option("topic", "out")
    rows = rows.option("stagingPath", f"{work}/staging-{number}").option("checkpointLocation", f"{work}/checkpoint-{number}")
    return rows.trigger(**({"availableNow": True} if until_end == "yes" else {"processingTime": "0 seconds"})).start()
places = [{"path": path}, {"url": url}]
queries = [copy(number, place) for number, place in enumerate(places)]
while queries != [None, None]:
    for number, query in enumerate(queries):
        if query is not None and not query.isActive:
            queries[number] = None
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if SLOW not in str(error):
                    raise
                queries[number] = copy(number, places[number])
    time.sleep(0.05)
"""


def made(path: Path) -> Path:
    with logdb.open(path) as database:
        for name in ("in", "out"):
            database.create_topic(name, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            numbers = [b"%d" % number for number in range(partition, RECORDS, PARTITIONS)]
            database.log("in", partition).append_many(numbers, keys=numbers)
    return path


def batch_counts(work: Path) -> list[int]:
    """How many batches Spark knows to be done, of each query."""
    return [batch_count(work / f"checkpoint-{number}") for number in range(2)]


def members(session_ids: set[int]) -> list[int]:
    """The processes of these sessions that are not dead yet."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, _, session_id = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session_id) in session_ids and state != "Z":
                found.append(int(entry.name))
    return found


def kill(worker: "subprocess.Popen[str]", work: Path, rng: random.Random) -> None:
    """Kill the process group once each query has done something; tasks that left the group are orphans, and may go on a while."""
    before, until = batch_counts(work), time.monotonic() + WAIT_S
    while any(now <= then for now, then in zip(batch_counts(work), before, strict=True)):
        assert worker.poll() is None, "the worker has ended"
        assert time.monotonic() < until, f"nothing in {WAIT_S} s: {batch_counts(work)} batches"
        time.sleep(0.02)
    time.sleep(rng.random())
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def test_killed_again_and_again(tmp_path, record_property):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, path, behind = random.Random(seed), made(tmp_path / "path"), made(tmp_path / "served")
    sessions: set[int] = set()
    with served(behind) as server:
        try:
            for _ in range(KILLS):
                worker = program(WORKER, path, server.url, tmp_path, rng.randrange(50, 200), "no", env=ENVIRONMENT)
                sessions.add(worker.pid)
                kill(worker, tmp_path, rng)
            worker = program(WORKER, path, server.url, tmp_path, RECORDS, "yes", env=ENVIRONMENT)
            sessions.add(worker.pid)
            assert worker.wait(WAIT_S) == 0
        finally:
            for pid in members(sessions):
                with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(pid, signal.SIGKILL)
        with logdb.open(path, mode="r") as local:
            for where, database in (("path", local), ("url", server.database)):
                found = [int(value) for partition in range(PARTITIONS) for value in values(database, "out", partition)]
                twice = [number for number, count in collections.Counter(found).items() if count > 1]
                lost = set(range(RECORDS)) - set(found)
                assert (len(found), twice[:5], sorted(lost)[:5]) == (RECORDS, [], []), f"{where}, seed {seed}"
    told = f"{RECORDS} records in {batch_counts(tmp_path)} batches, none lost, none twice, on a path and a URL"
    record_property("told", f"Spark's sinks: {KILLS} kills, {told}")
    assert logdb.verify(path).ok
    assert logdb.verify(behind).ok
