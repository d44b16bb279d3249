"""A topic as a dataset: what other engines ask for is all that is read, from a path and over a URL."""

import datetime
import operator
import pickle
import random
from datetime import UTC, timedelta

import pytest

import logdb
from logdb.errors import SerializationError
from support.serving import served

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402 -- after the check that it is installed

from logdb.codec import topic_dataset as datasets  # noqa: E402

DAY = datetime.datetime(2024, 1, 1, tzinfo=UTC)
COUNT = 100


@pytest.fixture(params=["path", "sidecars", "url"])
def db(request, tmp_path):
    """Topic ``t``: two partitions, a record a minute, and Parquet files of most of them if asked for."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2, config={"segment.bytes": 1024})
        for p in (0, 1):
            for n in range(COUNT):
                db.log("t", p).append(b"v%d" % n, b"k%d" % (n % 7), timestamp_ms=DAY + timedelta(minutes=n))
                if n == 80 and request.param == "sidecars":
                    db.make_parquet("t", p)
        if request.param != "url":
            yield db
            return
    with served(tmp_path / "db") as server, logdb.open(server.url) as remote:
        yield remote


@pytest.fixture
def reads(db, monkeypatch):
    """The ranges and the columns that logs were asked for."""
    monkeypatch.setattr(datasets, "_SLICE_ROW_COUNT", 10)
    found = []
    kind = type(db.log("t"))
    read_arrow = kind.read_arrow

    def noted(log, offset=None, **options):
        found.append((log.partition, offset, options["end_offset"], tuple(options["columns"])))
        return read_arrow(log, offset, **options)

    monkeypatch.setattr(kind, "read_arrow", noted)
    return found


def places(table):
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


EVERYTHING = [(p, n) for p in (0, 1) for n in range(COUNT)]


def test_all_of_it(db):
    dataset = db.topic_dataset("t")
    table = dataset.to_table()
    assert table.schema == dataset.schema == datasets.schema()
    assert places(table) == EVERYTHING
    assert dataset.count_rows() == 200
    assert dataset.head(5).num_rows == 5
    assert dataset.to_table(columns={"n": pc.field("offset") + 1}).column_names == ["n"]
    rows = {(row["partition"], row["offset"]): row for row in table.to_pylist()}
    assert rows[1, 7] == {
        "topic": "t", "partition": 1, "offset": 7, "timestamp": DAY + timedelta(minutes=7), "timestamp_type": 0,
        "key": b"k0", "value": b"v7", "headers": None,
    }  # fmt: skip


def test_a_query_reads_what_it_needs(db, reads):
    dataset = db.topic_dataset("t")
    late = (pc.field("offset") >= 95) & (pc.field("partition") == 1)
    assert dataset.to_table(columns=["value"], filter=late)["value"].to_pylist() == [b"v95", b"v96", b"v97", b"v98", b"v99"]
    assert [(partition, columns) for partition, _, _, columns in reads] == [(1, ("offset", "value"))]
    assert reads[0][1] >= 85 and reads[0][2] == 100
    reads.clear()
    assert dataset.filter(pc.field("topic") == "other").count_rows() == 0
    assert dataset.count_rows(filter=pc.field("offset") < 0) == 0
    assert reads == []
    assert dataset.filter(pc.field("offset") >= 90).filter(pc.field("key") == b"k3").to_table(columns=[]).num_rows == 2
    assert dataset.count_rows(filter=(pc.field("timestamp_type") == 0) & (pc.field("value") == b"v3")) == 2


def test_duckdb_and_polars_push_down(db, reads):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    dataset = db.topic_dataset("t")
    asked = 'select value from dataset where "offset" >= 98 and partition = 0 order by 1'
    assert duckdb.sql(asked).fetchall() == [(b"v98",), (b"v99",)]
    assert {(partition, start >= 85) for partition, start, _, _ in reads} == {(0, True)}
    assert {name for *_, columns in reads for name in columns} <= {"offset", "value"}
    reads.clear()
    wanted = (polars.col("offset") >= 98) & (polars.col("partition") == 0)
    assert polars.scan_pyarrow_dataset(dataset).filter(wanted).select("value").collect()["value"].to_list() == [b"v98", b"v99"]
    assert {(partition, start >= 85) for partition, start, _, _ in reads} == {(0, True)}
    assert {name for *_, columns in reads for name in columns} <= {"offset", "value"}
    assert duckdb.sql('select count(*), min("offset"), max("offset") from dataset').fetchall() == [(200, 0, 99)]


def test_a_lazy_frame_reads_what_its_query_needs(db, reads):
    pl = pytest.importorskip("polars")
    frame = db.scan_polars("t")
    late = frame.filter(pl.col("offset") >= 95, pl.col("partition") == 1)
    assert late.select("value").collect()["value"].to_list() == [b"v95", b"v96", b"v97", b"v98", b"v99"]
    assert {partition for partition, *_ in reads} == {1}
    assert all(start >= 85 and set(columns) <= {"offset", "value"} for _, start, _, columns in reads)
    reads.clear()
    begin = DAY + timedelta(minutes=97)
    assert frame.filter(pl.col("timestamp") > begin).select("partition", "offset").sort("partition", "offset").collect().rows() == [
        (0, 98), (0, 99), (1, 98), (1, 99)
    ]  # fmt: skip
    assert {start for _, start, _, _ in reads} == {97}
    reads.clear()
    assert frame.filter(pl.col("offset") < 0).select(pl.len()).collect().item() == 0
    assert frame.filter(pl.col("timestamp") >= DAY + timedelta(days=9)).collect().height == 0
    assert reads == []
    assert frame.select(pl.len()).collect().item() == 200
    assert frame.head(3).collect().height == 3
    assert frame.collect().columns == datasets.schema().names
    assert frame.filter((pl.col("offset") == 3) | (pl.col("key") == b"k3")).collect(engine="streaming").height == 28


@pytest.mark.parametrize("seed", range(4))
def test_a_lazy_frame_gives_what_a_filter_afterwards_gives(db, seed):
    """Whatever a predicate narrows, with times in any order."""
    pl, rng = pytest.importorskip("polars"), random.Random(seed)
    db.create_topic("r", partitions=3)
    for p in range(3):
        times = [DAY + timedelta(minutes=rng.randrange(50)) for _ in range(40)]
        db.log("r", p).append_many([b"v"] * 40, timestamps_ms=[int(at.timestamp() * 1000) for at in times])
    frame = db.scan_polars("r")
    everything = frame.collect()

    def comparison():
        column = rng.choice(["offset", "partition", "timestamp"])
        value = {
            "offset": rng.randrange(-1, 42),
            "partition": rng.randrange(-1, 4),
            "timestamp": DAY + timedelta(minutes=rng.randrange(-1, 52)),
        }
        made = rng.choice([operator.eq, operator.lt, operator.le, operator.gt, operator.ge, operator.ne])
        found = made(pl.col(column), value[column])
        return ~found if rng.random() < 0.2 else found

    for _ in range(25):
        predicate = comparison()
        for _ in range(rng.randrange(4)):
            predicate = predicate & comparison() if rng.random() < 0.7 else predicate | comparison()
        rows = [
            table.select("partition", "offset").sort("partition", "offset").rows()
            for table in (frame.filter(predicate).collect(), everything.filter(predicate))
        ]
        assert rows[0] == rows[1], str(predicate)


def test_a_lazy_frame_decodes_values_that_its_query_uses(db, reads):
    pl = pytest.importorskip("polars")
    db.create_topic("j", partitions=1)
    for n in range(20):
        db.append("j", b'{"n": %d, "s": "s%d"}' % (n, n), b"k")
    db.append("j", b"no JSON")
    frame = db.scan_polars("j", schema=pa.schema([("n", pa.int64()), ("s", pa.string())]))
    assert frame.filter(pl.col("n") >= 18, pl.col("offset") < 20).select("s").collect()["s"].to_list() == ["s18", "s19"]
    assert {name for *_, columns in reads for name in columns} == {"offset", "value"}
    reads.clear()
    assert frame.select("key").collect().height == 21
    assert {name for *_, columns in reads for name in columns} == {"key"}
    with pytest.raises(SerializationError, match="offset 20"):
        frame.select("n").collect()
    with pytest.raises(ValueError, match="'key' is a column of the record itself"):
        db.scan_polars("j", schema=pa.schema([("key", pa.string())]))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (95, None, [(p, n) for p in (0, 1) for n in range(95, 100)]),
        ({1: 3}, {1: 6}, [(1, 3), (1, 4), (1, 5)]),
        (DAY + timedelta(minutes=50), DAY + timedelta(minutes=52), [(0, 50), (0, 51), (1, 50), (1, 51)]),
        (200, None, []),
    ],
)
def test_a_part_of_it(db, start, end, expected):
    dataset = db.topic_dataset("t", start=start, end=end)
    assert places(dataset.to_table()) == expected
    pytest.importorskip("polars")
    assert db.scan_polars("t", start=start, end=end).collect().select("partition", "offset").sort("partition", "offset").rows() == expected
    assert dataset.count_rows() == len(expected)


def test_what_only_datasets_of_files_can_do_is_refused(db):
    dataset = db.topic_dataset("t")
    for call in (
        lambda: list(dataset.get_fragments()),
        lambda: dataset.replace_schema(dataset.schema),
        lambda: dataset.sort_by("offset"),
        lambda: dataset.join(dataset, "offset"),
        lambda: dataset.join_asof(dataset, "offset", "key", 1),
        lambda: dataset.partition_expression,
        lambda: pickle.dumps(dataset),
    ):
        with pytest.raises(NotImplementedError, match="is read by scanner"):
            call()


def test_every_method_of_a_dataset_is_safe(db):
    """A method of pyarrow's own that we do not have would use memory that is not there."""
    import pyarrow.dataset as ds

    ours = {"scanner", "filter", "schema", "__init__", "__repr__"}
    by_scanner = {"to_table", "to_batches", "head", "take", "count_rows"}
    public = {name for name in dir(ds.Dataset) if not name.startswith("_")}
    refused = {name for name, value in vars(datasets.TopicDataset).items() if value is datasets.TopicDataset._refuse}
    assert public <= ours | by_scanner | refused | {"partition_expression"}
