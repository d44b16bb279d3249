"""A server is killed again and again while tasks upload and a driver commits: each batch is there once, as without the kills."""

import os
import random
import threading

import logdb
from logdb.errors import LogdbError
from logdb_spark_source import uploading
from logdb_spark_source.commit import commit
from logdb_spark_source.encoding import Encoder
from logdb_spark_source.uploading import Uploading
from support.ports import free_port
from support.server_process import ServerProcess
from support.staged import rows, targets, values

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
KILLS, BATCHES, TASKS, ROWS = 4 * SCALE, 40 * SCALE, 2, 30
PARTITIONS = 2


class Killed:
    """A server that is killed at random moments, and started again at the same address with the same directory."""

    def __init__(self, path, rng):
        self._path, self._rng, self._address = path, rng, f"127.0.0.1:{free_port()}"
        self.server, self.count = self._started(), 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill)

    def _started(self):
        return ServerProcess(self._path, address=self._address)

    def _kill(self):
        while not self._over.wait(self._rng.uniform(0.05, 1.0)) and self.count < KILLS:
            self.server.kill()
            self.server = self._started()
            self.count += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        assert self.server.end() == 0


def task(database, first):
    file = Uploading(database.session)
    try:
        encoder = Encoder(targets(database), "t", file)
        encoder.add(rows(*((b"%d" % number, b"%d" % number) for number in range(first, first + ROWS))))
        encoder.finish()
    except LogdbError:
        file.discard()
        raise
    return file.close()


def test_each_batch_is_there_once(tmp_path, record_property):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    path, repeated = tmp_path / "db", 0
    with logdb.open(path) as database:
        database.create_topic("t", partitions=PARTITIONS)
    with (
        Killed(path, random.Random(seed)) as killed,
        logdb.open(killed.server.url, connect_timeout_ms=60_000, timeout_ms=60_000) as database,
    ):
        batch = 0
        while batch < BATCHES or killed.count < KILLS:
            staged = []
            try:
                staged.extend(task(database, (batch * TASKS + number) * ROWS) for number in range(TASKS))
                commit(database.session, "q", batch, staged)
            except LogdbError:  # Spark runs the batch again
                repeated += 1
                continue
            finally:
                uploading.discard(database.session, staged)
            batch += 1
    with logdb.open(path, mode="r") as database:
        found = sorted(int(value) for partition in range(PARTITIONS) for value in values(database, partition=partition))
    assert found == list(range(batch * TASKS * ROWS)), f"seed {seed}"
    record_property("told", f"uploads: {KILLS} kills of the server, {batch} batches, {repeated} repeated, each record once")
