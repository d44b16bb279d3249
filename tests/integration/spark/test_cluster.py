"""Spark over the URLs of three nodes: their leaders move, and brokers are killed in mid-batch."""

import contextlib
import os
import time

import pytest
from pyspark.errors import StreamingQueryException

import logdb
from logdb_replication.administration import drain
from support.cluster_process import ClusterProcess, cluster_process, eventually
from support.spark import batch_count, until_started

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
KILLS = 3 * SCALE if SCALE > 1 else 2
PARTITIONS, PER_PARTITION, PER_BATCH = 3, 4_000 * SCALE, 400
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 * SCALE)]  # three processes start, and are killed under Spark
WAIT_S = 240


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("nodes")) as cluster:
        yield cluster


@pytest.fixture
def db(cluster):
    with logdb.open(cluster.urls) as db:
        yield db


def filled(db: logdb.Database, topic: str) -> set[bytes]:
    """Make a topic with records; returns their values."""
    db.create_topic(topic, partitions=PARTITIONS)
    made = {partition: [b"%d-%d" % (partition, number) for number in range(PER_PARTITION)] for partition in range(PARTITIONS)}
    for partition, values in made.items():
        db.log(topic, partition).append_many(values, keys=values)
    return {value for values in made.values() for value in values}


def committed(db: logdb.Database, topic: str) -> list[bytes | None]:
    """What a reader of committed records finds, in any order."""
    logs = [db.log(topic, partition) for partition in range(PARTITIONS)]
    eventually(lambda: not any(log.open_transactions() for log in logs))
    return [record.value for log in logs for record in log.read(0, isolation_level="read_committed")]


def in_sync(db: logdb.Database) -> bool:
    """Whether all replicas of all topics are."""
    names = [info.name for info in db.topics(internal=True)]
    return all(set(one.in_sync) == set(one.replicas) for name in names for one in db.describe_topic(name).partitions)


class Copying:
    """A stream from topic to topic; an operator starts it again when it has failed.  ``failures``: what it said then."""

    def __init__(self, spark, url: str, source: str, target: str, checkpoint) -> None:
        self._spark, self._url, self._source, self._target, self._checkpoint = spark, url, source, target, checkpoint
        self.failures: list[str] = []
        self._query = self._start(processingTime="0 seconds")

    def _start(self, **trigger):
        options = {"url": self._url, "subscribe": self._source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PER_BATCH)}
        frame = self._spark.readStream.format("logdb").options(**options).load().selectExpr("key", "value").repartition(2)
        written = frame.writeStream.format("logdb").options(url=self._url, topic=self._target, checkpointLocation=str(self._checkpoint))
        return written.trigger(**trigger).start()

    @property
    def batch_count(self) -> int:
        return batch_count(self._checkpoint)

    def look(self) -> None:
        """Start the query again if it has failed."""
        if not self._query.isActive:
            self.failures.append(str(self._query.exception()))
            self._query = self._start(processingTime="0 seconds")

    def until(self, condition) -> None:
        until = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < until, f"{self.batch_count} batches in {WAIT_S} s; {self.failures[-1:]}"
            self.look()
            time.sleep(0.01)

    def goes_on(self, count: int = 2) -> None:
        goal = self.batch_count + count
        self.until(lambda: self.batch_count >= goal)

    def finish(self) -> None:
        self._query.stop()
        until_started(lambda: self._start(availableNow=True).awaitTermination())

    def stop(self) -> None:
        with contextlib.suppress(StreamingQueryException):
            self._query.stop()


def holders(cluster: ClusterProcess) -> list[int]:
    """The nodes that have uploads of a micro-batch: its tasks have staged them, and it is not committed."""
    found = []
    for number in cluster.processes:
        with contextlib.suppress(FileNotFoundError):
            if os.listdir(os.path.join(cluster.data(number), "uploads")):
                found.append(number)
    return found


def test_each_record_is_copied_once_while_leaders_move_and_a_broker_is_killed_in_mid_batch(
    spark, cluster, db, tmp_path, record_property
) -> None:
    values = filled(db, "in")
    db.create_topic("out", partitions=PARTITIONS)
    copying = Copying(spark, ",".join(cluster.urls), "in", "out", tmp_path / "checkpoint")
    try:
        copying.goes_on()
        for node in cluster.numbers:
            drain(cluster.config(node), node, draining=True, timeout_s=30, progress=lambda _: None)
            copying.goes_on()
            drain(cluster.config(node), node, draining=False, timeout_s=30, progress=lambda _: None)
        assert copying.failures == [], "a leader that moves fails no query"
        for _ in range(KILLS):
            held: list[int] = []
            copying.until(lambda held=held: held.extend(holders(cluster)) or held)
            cluster.kill(held[0])
            copying.goes_on()
            cluster.start(held[0])
            eventually(lambda: in_sync(db))
        copying.finish()
    finally:
        copying.stop()
    found = committed(db, "out")
    assert (len(found), set(found)) == (len(values), values)
    assert all("UploadMissing" in one for one in copying.failures), "the batch fails whose uploads are gone, and no other"
    record_property("told", f"Spark over three nodes: {copying.batch_count} batches, {KILLS} kills, {len(copying.failures)} failed queries")


def test_a_batch_read_goes_on_while_a_leader_is_killed(spark, cluster, db) -> None:
    values = filled(db, "large")
    options = {"url": ",".join(cluster.urls), "subscribe": "large", "maxRecordsPerPartition": "1000"}
    frame = spark.read.format("logdb").options(**options).load()
    victim = db.describe_topic("large").partitions[0].leader
    cluster.kill(victim)
    rows = [bytes(row.value) for row in frame.select("value").collect()]
    assert (len(rows), set(rows)) == (len(values), values)
    cluster.start(victim)
    eventually(lambda: in_sync(db))
