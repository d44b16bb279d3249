"""What docs/reference/spark.md shows works as it stands there, in the order in which it stands there."""

import re
from pathlib import Path

import pytest

import logdb
from support.serving import served

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "spark.md").read_text(encoding="utf-8")
TOPICS = ("trades", "out", "orders", "emails", "payments", "large", "small", "enriched")


@pytest.fixture
def events(tmp_path):
    with logdb.open(tmp_path / "events") as db:
        for topic in TOPICS:
            db.create_topic(topic)
            db.log(topic).append_many([b"1", b"200"], [b"user-7", b"user-8"])
        db.create_topic("counts", config={"cleanup.policy": "compact"})
    return tmp_path / "events"


def programs(directory):
    """The blocks in their order, each with its own checkpoint, and with absolute paths: Spark's own directory is another."""
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)):
        named = block.replace('"checkpointLocation", "checkpoint"', f'"checkpointLocation", "checkpoint-{number}"')
        yield re.sub(r'(path="|"path", "|scan\(spark, "|"checkpointLocation", "|open\(")([\w-]+)"', rf'\1{directory}/\2"', named)


def test_the_programs_of_the_page(spark, events, tmp_path, monkeypatch, capsys):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    first, *rest = programs(tmp_path)
    namespace = {"logdb": logdb, "duckdb": duckdb, "polars": polars}
    with served(events) as server:
        exec(first.replace("http://localhost:8080", server.url), namespace)
    assert sorted(spark.read.parquet(str(tmp_path / "out")).select("offset").toPandas()["offset"]) == [0, 1]

    settings = {name: spark.conf.get(name) for name in re.findall(r'conf\.set\("([\w.]+)"', PAGE) if spark.conf.get(name, None)}
    stream = spark.readStream.format("logdb").options(path=str(events), subscribe="trades", startingOffsets="earliest").load()
    namespace |= {"rows": spark.range(3).selectExpr("cast(id as string) value"), "stream": stream.select("key", "value")}
    namespace["counts"] = stream.groupBy("key").count().selectExpr("key", "cast(count as string) value")
    try:
        with logdb.open(events, mode="r") as namespace["db"]:
            for program in rest:
                exec(program, namespace)
                for query in spark.streams.active:
                    query.processAllAvailable()
                    query.stop()
    finally:
        for name, value in settings.items():
            spark.conf.set(name, value)
    with logdb.open(events, mode="r") as db:
        committed = [record.value for record in db.log("out").read(0, isolation_level="read_committed")]
        assert sorted(committed) == sorted([b"1", b"200", b"0", b"1", b"2", b"1", b"200"])
        assert dict(db.table("counts").items()) == {b"user-7": b"1", b"user-8": b"1"}
    assert "b'1'" in capsys.readouterr().out  # the look into the table
