"""Times that no calendar has: a table is made of them, engines read it, and conditions on times find the right records."""

import json
import os

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import logdb
from logdb import serde
from logdb.codec import parquet
from logdb.codec.times import EARLIEST_MS, LATEST_MS
from logdb_iceberg import tables, tail
from support import iceberg_engines
from support.iceberg import table
from support.iceberg_engines import by_polars, by_polars_with_pyiceberg, by_pyiceberg

NOW, YEAR_1, YEAR_10000 = 1_700_000_000_000, -62_135_596_800_000, 253_402_300_800_000
TIMES = [-1, -2, NOW, YEAR_1, YEAR_1 - 1, YEAR_10000, EARLIEST_MS, EARLIEST_MS - 1, -(2**63), LATEST_MS, LATEST_MS + 1, 2**63 - 1, 0]
SCHEMA = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]})
ANY = {"message.timestamp.after.max.ms": 2**63 - 1, "segment.bytes": 2_000}


def by_duckdb(found):
    assert len(duckdb.read_parquet(iceberg_engines.data_files(found)).fetchall()) == len(TIMES)  # as Python's objects
    return iceberg_engines.by_duckdb(found)


@pytest.fixture
def db(tmp_path, monkeypatch):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    with logdb.open(tmp_path / "db") as db:
        yield db


def fill(db, mode, times=TIMES):
    db.create_topic("t", config=ANY | {"logdb.iceberg.mode": mode, "logdb.iceberg.schema": SCHEMA}, if_not_exists=True)
    values = [b'{"n": 1}' if mode == "json" else b"\x02"] * len(times)
    db.log("t").append_many(values, timestamps_ms=times)


def times(read):
    """By offset, in ms."""
    rows = read if "offset" in read.column_names else pa.Table.from_struct_array(read["logdb"].combine_chunks())
    in_us = rows["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [at // 1000 for _, at in sorted(zip(rows["offset"].to_pylist(), in_us, strict=True))]


def clamped(given=TIMES):
    return [max(EARLIEST_MS, min(LATEST_MS, at)) for at in given]


@pytest.mark.parametrize("mode", ["key_value", "json", "avro"])
@pytest.mark.parametrize("read", [by_pyiceberg, by_polars, by_polars_with_pyiceberg, by_duckdb])
def test_an_engine_reads_the_nearest_time_that_it_can_hold(db, mode, read):
    fill(db, mode)
    db.update_iceberg("t")
    assert times(read(table(db))) == clamped()


@pytest.mark.parametrize("mode", ["key_value", "json", "avro"])
def test_later_updates_and_the_tail(db, mode):
    for count in range(3):
        fill(db, mode)
        if count:
            assert times(pa.Table.from_batches(tail(db, table(db)))) == clamped()
        db.update_iceberg("t")
        assert times(table(db).scan().to_arrow()) == clamped() * (count + 1)
    assert [record.timestamp_ms for record in db.log("t").read(0)] == TIMES * 3


def test_a_condition_on_times_leaves_files_out(db):
    """The manifest has the bounds of each file."""
    for group in ([NOW, NOW + 1], [YEAR_1 - 2, YEAR_1 - 1], [YEAR_10000, YEAR_10000 + 1], [-(2**63)], [2**63 - 1]):
        fill(db, "key_value", group)
        db.update_iceberg("t")
    found = table(db)
    for condition, offsets in [
        ("timestamp >= '2023-01-01T00:00:00+00:00'", [0, 1, 4, 5, 7]),
        ("timestamp < '2023-01-01T00:00:00+00:00'", [2, 3, 6]),
        ("timestamp >= '2023-01-01T00:00:00+00:00' and timestamp < '2024-01-01T00:00:00+00:00'", [0, 1]),
    ]:
        scan = found.scan(row_filter=condition)
        assert sorted(scan.to_arrow()["offset"].to_pylist()) == offsets
        assert sum(task.file.record_count for task in scan.plan_files()) == len(offsets)


def test_only_files_with_other_times_take_space(db):
    """A file whose times are in the range is a link to its sidecar; a round leaves each file as it is."""
    fill(db, "key_value", [YEAR_1 - 1, YEAR_10000])
    db.update_iceberg("t")
    fill(db, "key_value", [-(2**63), NOW])
    db.update_iceberg("t")
    before = data_files(db)
    assert sorted(links for links, _, _ in before.values()) == [1, 2]
    db.update_iceberg("t")
    assert data_files(db) == before
    db.delete_records("t", 0, 3)  # inside the second segment
    db.update_iceberg("t")
    assert times(table(db).scan().to_arrow()) == [NOW]


OWN = [("key_value", TIMES, 0), ("key_value", [NOW] * 3, 1), ("json", TIMES, 0), ("avro", TIMES, 0)]


def lose(path):
    os.unlink(path)


def damage(path):
    with open(path, "wb") as file:
        file.write(b"damaged")


@pytest.mark.parametrize("harm", [lose, damage])
@pytest.mark.parametrize(("mode", "given", "start"), OWN, ids=["clamped", "part", "json", "avro"])
def test_a_file_of_its_own_that_was_lost_or_damaged_is_written_again(db, mode, given, start, harm):
    fill(db, mode, given)
    db.delete_records("t", 0, start)
    before = db.update_iceberg("t")
    [path] = paths(db)
    size_bytes = os.path.getsize(path)
    harm(path)
    assert db.update_iceberg("t").snapshot_id == before.snapshot_id
    assert os.path.getsize(path) == size_bytes
    assert times(table(db).scan().to_arrow()) == clamped(given)[start:]


def test_a_file_that_is_written_again_with_another_size(db, monkeypatch):
    """Engines look for the footer where the manifest says that the file ends."""
    with monkeypatch.context() as earlier:
        write = parquet.write
        earlier.setattr(parquet, "write", lambda *given: write(*given[:-1], {"version": "x" * 1_000}))
        fill(db, "key_value")
        db.update_iceberg("t")
    [path] = paths(db)
    lose(path)
    made = db.update_iceberg("t")
    assert (made.added, made.removed, made.file_count, made.record_count) == (1, 1, 1, len(TIMES))
    [task] = table(db).scan().plan_files()
    assert task.file.file_size_in_bytes == os.path.getsize(path)
    assert times(by_duckdb(table(db))) == clamped()
    before = data_files(db)
    assert db.update_iceberg("t").snapshot_id == made.snapshot_id
    assert data_files(db) == before


def test_an_idle_round_opens_no_sidecar(db, monkeypatch):
    for _ in range(3):
        fill(db, "key_value")
        db.update_iceberg("t")
    opened = []
    monkeypatch.setattr(tables, "bounds_of", lambda *_: opened.append(1))
    before = data_files(db)
    db.update_iceberg("t")
    assert not opened
    assert data_files(db) == before


def paths(db):
    parent = os.path.join(db.path, "iceberg", "t", "data")
    return [os.path.join(parent, name) for name in os.listdir(parent)]


def data_files(db):
    parent = os.path.join(db.path, "iceberg", "t", "data")
    found = {name: os.stat(os.path.join(parent, name)) for name in os.listdir(parent)}
    return {name: (one.st_nlink, one.st_ino, one.st_mtime_ns) for name, one in found.items()}


VALUES = [
    ({"type": "long", "logicalType": "timestamp-millis"}, [YEAR_1 - 1, YEAR_10000, -(2**63) // 1000 + 1, (2**63 - 1) // 1000]),
    ({"type": "long", "logicalType": "timestamp-micros"}, [-(2**63), 2**63 - 1, 1000 * YEAR_10000]),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, [YEAR_1 - 1, YEAR_10000]),
    ({"type": "int", "logicalType": "date"}, [-(2**31), 2**31 - 1, 0]),
    ({"type": "long", "logicalType": "time-micros"}, [-1, 86_400_000_000, 5]),
    ({"type": "int", "logicalType": "time-millis"}, [-1, 86_400_000, 5]),
]


@pytest.mark.parametrize(("kind", "numbers"), VALUES, ids=[kind["logicalType"] for kind, _ in VALUES])
def test_times_inside_of_values(db, kind, numbers):
    """Values with times that Python lacks are values: they are in the table as they are."""
    plain = {"type": "record", "name": "r", "fields": [{"name": "at", "type": kind["type"]}]}
    schema = {"type": "record", "name": "r", "fields": [{"name": "at", "type": kind}]}
    db.create_topic("t", config={"logdb.iceberg.mode": "avro", "logdb.iceberg.schema": json.dumps(schema)})
    db.log("t").append_many([serde.avro(plain).serialize({"at": number}) for number in numbers])
    db.update_iceberg("t")
    found = table(db).scan().to_arrow()
    per_unit = 1000 if kind["logicalType"].endswith("millis") else 1
    storage = pa.int32() if kind["logicalType"] == "date" else pa.int64()
    assert found["at"].combine_chunks().view(storage).to_pylist() == [number * per_unit for number in numbers]
    assert pl.scan_iceberg(table(db), reader_override="native").select("at").collect().height == len(numbers)
