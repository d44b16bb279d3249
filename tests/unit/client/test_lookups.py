"""The calls that people look for: one record, the last ones, a whole topic; times as Python has them."""

import datetime
from datetime import UTC, timedelta

import pytest

import logdb
from logdb.errors import InvalidConfig, OffsetOutOfRange, SerializationError, UnknownPartition
from support.serving import served

DAY = datetime.datetime(2024, 1, 1, tzinfo=UTC)
DAY_MS = 1_704_067_200_000


@pytest.fixture(params=["path", "url", "reader"])
def db(request, tmp_path):
    """Topic ``t``: two partitions, records n of partition p at offset n, a minute apart; ``c``: compacted."""
    path = str(tmp_path / "db")
    with logdb.open(path) as db:
        db.create_topic("t", partitions=2, config={"compression.type": "zstd"})
        for p in (0, 1):
            times = [DAY_MS + 60_000 * n for n in range(100)]
            db.log("t", p).append_many([b'{"p": %d, "n": %d}' % (p, n) for n in range(100)], timestamps_ms=times)
        db.create_topic("empty")
        db.create_topic("c", config={"cleanup.policy": "compact", "min.compaction.lag.ms": 0})
        db.log("c").append_many([b"v%d" % n for n in range(50)], keys=[b"k"] * 50)
        db.log("c").append_many([b"w%d" % n for n in range(3)], keys=[b"l", b"m", b"n"])
        db.compact("c")
        db.create_topic("numbers")
        db.append_many("numbers", [b"\x0e", None], [b"k", b"k"])  # 7 as Avro
        if request.param == "path":
            yield db
            return
    if request.param == "reader":
        with logdb.open(path, mode="r") as reader:
            yield reader
    else:
        with served(path) as server, logdb.open(server.url) as remote:
            yield remote


def test_get(db):
    assert db.log("t", 1).get(7).value == b'{"p": 1, "n": 7}'
    assert db.log("c").get(3) is None
    assert db.log("c").get(49).value == b"v49"
    for offset in (-1, 100, 2**70):
        with pytest.raises((OffsetOutOfRange, OverflowError)) as caught:
            db.log("t").get(offset)
        if isinstance(caught.value, OffsetOutOfRange):
            assert "log.start_offset and log.end_offset" in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="offset='1'"):
        db.log("t").get("1")


def test_tail(db):
    assert [r.offset for r in db.log("t").tail(3)] == [97, 98, 99]
    assert [r.offset for r in db.log("t").tail(1000)] == list(range(100))
    assert [r.offset for r in db.log("c").tail(4)] == [49, 50, 51, 52]
    assert [r.offset for r in db.log("c").tail(9)] == [49, 50, 51, 52]
    assert db.log("t").tail(0) == db.log("empty").tail(5) == []
    with pytest.raises(ValueError, match="count=-1: must be 0 or more"):
        db.log("t").tail(-1)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, {0: (0, 100), 1: (0, 100)}),
        (90, None, {0: (90, 100), 1: (90, 100)}),
        (-5, 500, {0: (0, 100), 1: (0, 100)}),
        ({1: 95}, None, {1: (95, 100)}),
        (None, {0: 2}, {0: (0, 2)}),
        (DAY + timedelta(minutes=10), DAY + timedelta(minutes=12), {0: (10, 12), 1: (10, 12)}),
        (DAY + timedelta(days=9), None, {}),
        (50, 40, {}),
    ],
)
def test_a_whole_topic(db, start, end, expected):
    places = [(p, n) for p, (first, stop) in expected.items() for n in range(first, stop)]
    assert [(r.partition, r.offset) for r in db.read("t", start=start, end=end)] == places
    table = db.read_arrow("t", start=start, end=end, columns=["offset", "partition"]).read_all()
    assert table.column_names == ["offset", "partition"]
    assert [*zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)] == places


def test_a_partition_that_is_not_there(db):
    with pytest.raises(UnknownPartition):
        db.read("t", start={2: 0})
    with pytest.raises(ValueError, match="has no time zone"):
        db.read("t", start=datetime.datetime(2024, 1, 1))  # noqa: DTZ001


def test_values_as_columns(db):
    pa = pytest.importorskip("pyarrow")
    schema = pa.schema([("n", pa.int64()), ("missing", pa.string())])
    table = db.read_arrow("t", schema=schema).read_all()
    assert table.column_names == ["partition", "offset", "timestamp", "key", "headers", "n", "missing"]
    assert table["n"].to_pylist() == [*range(100), *range(100)]
    assert table["missing"].null_count == 200
    one = db.log("t").read_arrow(5, end_offset=8, columns=["offset"], schema=schema).read_all()
    assert one.to_pylist() == [{"offset": n, "n": n, "missing": None} for n in (5, 6, 7)]
    assert db.read_arrow("empty", schema=schema).read_all().num_rows == 0
    with pytest.raises(SerializationError, match=r"^c-0: the value at offset 49 does not fit the schema"):
        db.read_arrow("c", schema=schema).read_all()
    with pytest.raises(SerializationError, match=r"^c-0: the value at offset 49 does not fit the schema"):
        db.log("c").read_arrow(schema=schema).read_all()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["n"], r"'n' is a field of schema; leave it out"),
        (["offset", "offset"], r"name each column once"),
        (["time"], r"unknown column 'time'; columns are partition, offset, timestamp"),
    ],
)
def test_columns_beside_a_schema_are_those_of_records(db, columns, said):
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=said):
        db.read_arrow("t", columns=columns, schema=pa.schema([("n", pa.int64())]))


def test_one_log_has_no_column_of_partitions(db):
    pa = pytest.importorskip("pyarrow")
    for schema in (None, pa.schema([("n", pa.int64())])):
        with pytest.raises(ValueError, match=r"unknown column 'partition'; columns are offset"):
            db.log("t", partition=1).read_arrow(columns=["partition"], schema=schema)


def test_values_of_avro_as_columns(db):
    pytest.importorskip("pyarrow")
    pytest.importorskip("fastavro")
    avro = logdb.serde.avro({"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]})
    found = db.read_arrow("numbers", columns=["partition", "key"], schema=avro).read_all().to_pylist()
    assert found == [{"partition": 0, "key": b"k", "n": 7}, {"partition": 0, "key": b"k", "n": None}]
    assert db.log("numbers").read_arrow(0, columns=["offset"], schema=avro).read_all().to_pylist()[0] == {"offset": 0, "n": 7}


def test_times_of_python(db):
    for log in (db.log("t", 0), db.log("t", 1)):
        assert log.offset_for_timestamp(DAY + timedelta(minutes=3)) == log.offset_for_timestamp(DAY_MS + 180_000) == 3
        with pytest.raises(ValueError, match="has no time zone"):
            log.offset_for_timestamp(datetime.datetime(2024, 1, 1))  # noqa: DTZ001


def test_configs_with_units(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server, logdb.open(server.addresses[0]) as remote:
        for number, place in enumerate((db, remote)):
            info = place.create_topic(
                f"t{number}", config={"retention.ms": "7d", "segment.bytes": "64MiB", "flush.ms": timedelta(seconds=2)}
            )
            assert (info.config["retention.ms"], info.config["segment.bytes"], info.config["flush.ms"]) == (604_800_000, 64 << 20, 2000)
            assert place.alter_topic(f"t{number}", config={"retention.ms": timedelta(hours=1)}).config["retention.ms"] == 3_600_000
            with pytest.raises(InvalidConfig, match="1GiB is 1073741824"):
                place.create_topic("no", config={"segment.bytes": "1G"})
            with pytest.raises(InvalidConfig):
                place.create_topic("no", config={"segment.bytes": timedelta(1)})
