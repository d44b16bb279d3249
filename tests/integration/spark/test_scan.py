"""scan: Spark's Parquet reader over sidecars and format("logdb") over the rest, against what the log holds."""

import os

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import logdb
from logdb.errors import InvalidConfig, UnknownTopic
from logdb_spark_source import scan
from logdb_spark_source.columns import NAMES
from support.columnar import Row, rows_of_logs
from support.keyed import Keyed
from support.power_cut import quiet

NOW = 1_700_000_000_000
FAILED = (PySparkException, Py4JJavaError)  # what a task failed with, whether Spark knows it by name or not


def fill(log, count):
    log.append_many(
        [None if n % 11 == 0 else b"value %d" % n * (n % 5) for n in range(count)],
        [None if n % 3 == 0 else b"key %d" % (n % 7) for n in range(count)],
        headers=[[("a", b"1"), ("b", None)][: n % 3] for n in range(count)],
        timestamps_ms=[NOW + n for n in range(count)],
    )


@pytest.fixture
def db(tmp_path):
    """A topic ``t`` of two partitions, of which the second has aborted transactions; under a name that is hard to spell."""
    path = tmp_path / "a b%20[1]{x,y}*?" / "_k=1"
    path.parent.mkdir()
    with logdb.open(path, batch_size=300) as made:
        quiet(made)
        made.create_topic("t", partitions=2, config={"segment.bytes": 2_000})
        fill(made.log("t", 0), 120)
        keyed = Keyed()
        for number in range(4):
            keyed.append(made._store.open_log("t", 1), 15, 5, 3)
            keyed.transact(made._store.open_log("t", 1), number, 6, 5, commit=number % 2 == 0)
        yield made


def rows(frame):
    """A DataFrame of all columns as rows, sorted."""
    found = frame.selectExpr("topic", "partition", "offset", "unix_millis(timestamp)", "key", "value", "headers", "timestampType").collect()
    plain = [[bytes(cell) if isinstance(cell, bytearray) else cell for cell in row] for row in found]
    assert {(row[0], row[7]) for row in plain} <= {("t", 0)}
    heads = [tuple((one.key, None if one.value is None else bytes(one.value)) for one in row[6] or ()) for row in plain]
    return sorted(Row(*row[1:6], head) for row, head in zip(plain, heads, strict=True))


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_it_gives_what_the_log_holds(spark, db, level):
    wanted = rows_of_logs(db, "t", level)
    assert rows(scan(spark, db.path, "t", columns=NAMES, isolation_level=level)) == wanted  # there are no files
    db.make_parquet("t")
    fill(db.log("t", 0), 30)
    db.flush(sync=False)
    files = db.topic_tiers("t", isolation_level=level).files
    os.unlink(files[1].path)  # what it had is in a range between two files
    assert len(db.topic_tiers("t", isolation_level=level).files) == len(files) - 1 > 1
    frame, wanted = scan(spark, db.path, "t", columns=NAMES, isolation_level=level), rows_of_logs(db, "t", level)
    fill(db.log("t", 0), 5)  # ends are frozen
    db.flush(sync=False)
    assert rows(frame) == wanted
    assert frame.count() == len(wanted)
    assert frame.selectExpr("sum(length(value))").first()[0] == sum(len(row.value or b"") for row in wanted)
    same = spark.read.format("logdb").options(path=db.path, subscribe="t", includeHeaders="true").load()
    assert [(field.name, field.dataType) for field in frame.schema] == [(field.name, field.dataType) for field in same.schema]


def test_columns(spark, db):
    db.make_parquet("t", 0)
    assert scan(spark, db.path, "t").columns == list(NAMES[:-1])
    frame = scan(spark, db.path, "t", columns=["value", "offset"])
    assert frame.columns == ["value", "offset"] and frame.count() == len(rows_of_logs(db, "t"))
    with pytest.raises(InvalidConfig, match="columns"):
        scan(spark, db.path, "t", columns=["values"])
    with pytest.raises(UnknownTopic):
        scan(spark, db.path, "u")


def test_an_empty_topic_and_a_snapshot(spark, db, tmp_path):
    db.create_topic("e")
    assert scan(spark, db.path, "e").collect() == []
    db.make_parquet("t")
    db.snapshot(tmp_path / "snapshot")
    assert rows(scan(spark, tmp_path / "snapshot", "t", columns=NAMES)) == rows_of_logs(db, "t")


@pytest.fixture
def lenient(spark):
    """A session that is told to skip what is missing or damaged."""
    names = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    for name in names:
        spark.conf.set(name, "true")
    yield spark
    for name in names:
        spark.conf.unset(name)


def test_retention_between_planning_and_reading_is_an_error(lenient, db):
    db.make_parquet("t")
    fill(db.log("t", 0), 10)
    frame = scan(lenient, db.path, "t", columns=NAMES)
    db.delete_records("t", 0, 100)
    with pytest.raises(FAILED, match="parquet"):
        frame.collect()
    assert rows(scan(lenient, db.path, "t", columns=NAMES)) == rows_of_logs(db, "t")


def test_compaction_between_planning_and_reading_is_an_error(lenient, db):
    db.alter_topic("t", config={"cleanup.policy": "compact"})
    db.make_parquet("t")
    frame = scan(lenient, db.path, "t", columns=NAMES)
    db.compact("t")
    with pytest.raises(FAILED, match="parquet"):
        frame.collect()
    db.make_parquet("t")
    assert rows(scan(lenient, db.path, "t", columns=NAMES)) == rows_of_logs(db, "t")


def test_flips_change_no_row(lenient, db, record_property):
    db.make_parquet("t")
    level = "read_committed"  # then all of it is in files, unless a footer is damaged
    wanted, file = rows_of_logs(db, "t", level), db.topic_tiers("t", isolation_level=level).files[1]
    with open(file.path, "rb") as image:
        whole = image.read()
    footer_at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    refused, places = 0, [*range(4, footer_at, footer_at // 16), footer_at + 5, len(whole) - 6]
    for at in places:
        with open(file.path, "r+b") as image:
            image.seek(at)
            image.write(bytes([whole[at] ^ 1 << at % 8]))
        try:
            assert rows(scan(lenient, db.path, "t", columns=NAMES, isolation_level=level)) == wanted, f"byte {at}"
        except FAILED:
            assert at < footer_at
            refused += 1
        with open(file.path, "wb") as image:
            image.write(whole)
    assert refused > len(places) // 2
    record_property("told", f"scan: of flips at {len(places)} places {refused} are refused, the others change no row")
