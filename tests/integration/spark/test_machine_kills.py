"""A stream from topic to topic on machines that share nothing, while executors, machines, the server and the driver are killed.

A reader of committed records finds each record once.
"""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import logdb
from support.ports import free_port
from support.server_process import ServerProcess
from support.spark import SETTINGS, SLOW, batch_count, program
from support.spark_cluster import machines, needs_machines
from support.staged import values

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
KINDS = ("executor", "machine", "server", "driver")
ROUNDS = 3 * SCALE  # kills of each kind
PARTITIONS, RECORDS = 2, 40_000 * SCALE
WAIT_S = 900

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(3_600 * SCALE), *needs_machines()]

COPY = f"""
import json, sys
from logdb_spark_source import session
address, url, checkpoint, records, until_end, settings = sys.argv[1:]
spark = session(address, config=json.loads(settings))
frame = spark.readStream.format("logdb").options(url=url, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger=records).load()
rows = frame.selectExpr("key", "value").repartition(2).writeStream.format("logdb").options(url=url, topic="out")
rows = rows.option("checkpointLocation", checkpoint)
try:
    rows.trigger(**({{"availableNow": True}} if until_end == "yes" else {{"processingTime": "0 seconds"}})).start().awaitTermination()
except Exception as error:
    sys.exit(75 if {SLOW!r} in str(error) else str(error))  # the server may have been away for too long: it is started again
"""


class Copying:
    """The driver, started again until it has ended well."""

    def __init__(self, cluster, url, checkpoint, rng):
        self._cluster, self._url, self._checkpoint, self._rng = cluster, url, checkpoint, rng
        self.failures = []
        self.process = self._start("no")

    def _start(self, until_end):
        records = self._rng.randrange(200, 600) if until_end == "no" else RECORDS
        settings = json.dumps(SETTINGS | self._cluster.settings)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return program(
            COPY, self._cluster.address, self._url, self._checkpoint, records, until_end, settings, env=environment, stderr=subprocess.PIPE
        )

    def batch_count(self):
        return batch_count(self._checkpoint)

    def go_on(self, count):
        """Wait until so many more batches are done; a driver that has failed is started again, as an operator would."""
        goal, until = self.batch_count() + count, time.monotonic() + WAIT_S
        while self.batch_count() < goal:
            assert time.monotonic() < until, f"{self.batch_count()} of {goal} batches in {WAIT_S} s; {self.failures}"
            if self.process.poll() is not None:
                if not self.process.stderr.closed:  # else the test has killed it
                    with self.process.stderr as said:
                        self.failures.append(said.read()[-500:])
                self.process = self._start("no")
            time.sleep(0.05)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()

    def finish(self):
        self.kill()
        for _ in range(3):
            self.process = self._start("yes")
            _, said = self.process.communicate(timeout=WAIT_S)
            if self.process.returncode == 0:
                return
        raise AssertionError(said)


def test_executors_machines_the_server_and_the_driver_are_killed(tmp_path, record_property):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, path = random.Random(seed), tmp_path / "db"
    with logdb.open(path) as database:
        for name in ("in", "out"):
            database.create_topic(name, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            numbers = [b"%d" % number for number in range(partition, RECORDS, PARTITIONS)]
            database.log("in", partition).append_many(numbers, keys=numbers)
    kills = list(KINDS) * ROUNDS
    rng.shuffle(kills)
    with machines(tmp_path / "machines") as cluster:
        address = f"{cluster.driver}:{free_port()}"
        server = ServerProcess(path, "--insecure", address=address)
        copying = Copying(cluster, server.url, tmp_path / "checkpoint", rng)
        try:
            for kind in kills:
                copying.go_on(1)
                time.sleep(rng.random())  # anywhere in a batch
                if kind == "executor":
                    for pid in cluster.executors()[:1]:
                        os.kill(pid, signal.SIGKILL)
                elif kind == "machine":
                    cluster.restart(rng.randrange(2))
                elif kind == "server":
                    server.kill()
                    server = ServerProcess(path, "--insecure", address=address)
                else:
                    copying.kill()
            copying.finish()
        finally:
            if copying.process.poll() is None:
                copying.kill()
            code = server.end()
        assert code == 0
    with logdb.open(path, mode="r") as database:
        found = [int(value) for partition in range(PARTITIONS) for value in values(database, "out", partition)]
    twice = [number for number, count in collections.Counter(found).items() if count > 1]
    assert (len(found), twice[:5], sorted(set(range(RECORDS)) - set(found))[:5]) == (RECORDS, [], []), f"seed {seed}"
    assert logdb.verify(path).ok
    record_property("told", f"Spark on machines: {len(kills)} kills, {RECORDS} records, none lost, none twice")
