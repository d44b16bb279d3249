"""format("logdb") as a stream: over restarts, each record comes once."""

import json
import time

import pytest
from pyspark.errors import StreamingQueryException

import logdb
from support.spark import options_of, until_started


@pytest.fixture
def path(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        db.create_topic("other")
    return tmp_path / "db"


def append(path, values, partition=0):
    with logdb.open(path) as db:
        db.log("t", partition).append_many([b"%d" % value for value in values])


class Query:
    """One query with its checkpoint and output, which is started again and again."""

    def __init__(self, spark, at, **options):
        self._spark, self._at, self._options = spark, at, options

    def start(self, *, available_now=True, **more):
        frame = self._spark.readStream.format("logdb").options(**{"subscribe": "t"} | self._options | more).load()
        writer = frame.selectExpr("cast(cast(value as string) as int) value", "partition", "offset").writeStream
        trigger = {"availableNow": True} if available_now else {"processingTime": "100 milliseconds"}
        writer = writer.format("parquet").option("checkpointLocation", str(self._at / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._at / "out"))

    def run(self, **more):
        def once():
            query = self.start(**more)
            query.awaitTermination()
            return query

        return until_started(once)

    def output(self):
        return sorted(row.value for row in self._spark.read.parquet(str(self._at / "out")).collect())


@pytest.mark.parametrize("where", ["directory", "url"])
def test_each_run_goes_on_where_the_last_one_ended(spark, path, tmp_path, where):
    append(path, range(100))
    for turn in (0, 1, 2):
        with options_of(where, path) as at:
            query = Query(spark, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="40", **at).run()
        sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        assert sizes == ([40, 40, 20], [30], [])[turn]
        if turn == 0:
            append(path, range(100, 120))
            append(path, range(120, 130), partition=1)
        assert Query(spark, tmp_path).output() == list(range(130 if turn else 100))


def test_what_comes_between_the_first_look_and_the_first_batch_is_not_lost(spark, path, tmp_path):
    append(path, range(100))
    query = Query(spark, tmp_path, path=str(path))
    query.run()  # from the latest: nothing
    append(path, range(100, 150))
    query.run()
    with logdb.open(path) as db:
        db.alter_topic("t", partitions=3)
    append(path, range(150, 160), partition=2)
    query.run()
    assert query.output() == list(range(100, 160))


def test_a_batch_waits_for_its_least_and_says_how_far_the_logs_go(spark, path, tmp_path):
    query = Query(spark, tmp_path, path=str(path), startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    append(path, range(10))
    running = until_started(lambda: begun(query.start(available_now=False)))
    try:
        append(path, range(10, 40))
        waited_for(lambda: json.loads(running.lastProgress["sources"][0]["latestOffset"])["offsets"]["t"]["0"] == 40)
        assert count(running) == 10
        append(path, range(40, 60))
        waited_for(lambda: count(running) == 60)
    finally:
        running.stop()
    assert query.output() == list(range(60))


def begun(query):
    """The query, once it has read the ten that there are."""
    waited_for(lambda: not query.isActive or count(query) == 10)
    if not query.isActive:
        query.awaitTermination()
    return query


def count(query):
    """Rows so far, empty triggers being told of now and then."""
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def waited_for(condition):
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_is_wrong_is_told(spark, path, tmp_path):
    append(path, range(10))
    query = Query(spark, tmp_path, path=str(path), startingOffsets="earliest")
    query.run()
    for options, says in [
        ({"subscribe": "other"}, "it belongs to topic 't', which subscribe does not name"),
        ({"endingOffsets": "latest"}, "only batches have an end"),
    ]:
        with pytest.raises(StreamingQueryException, match=says):
            query.run(**options)
    append(path, range(10, 30))
    with logdb.open(path) as db:
        db.delete_records("t", 0, 20)
    with pytest.raises(StreamingQueryException, match=r"offsets \[10, 20\) of t-0 were deleted.*failOnDataLoss=false"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.output() == [*range(10), *range(20, 30)]
