import datetime
import json

import pytest

import logdb
from logdb import errors, serde
from support.iceberg import table

pytest.importorskip("pyiceberg")

SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "offset", "type": ["null", "string"], "default": None},  # a name that records have, too
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "item", "fields": [{"name": "n", "type": "int"}]}}},
    ],
}
MAP = {"name": "more", "type": {"type": "map", "values": "double"}}
AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 10_000, datetime.UTC)


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db", batch_size=300) as db:
        yield db


def create(db, mode, schema=SCHEMA):
    db.create_topic("t", config={"segment.bytes": 2_000, "logdb.iceberg.mode": mode, "logdb.iceberg.schema": json.dumps(schema)})


def read(db):
    return sorted(table(db).scan().to_arrow().to_pylist(), key=lambda row: row["logdb"]["offset"])


def test_avro(db):
    schema = SCHEMA | {"fields": [*SCHEMA["fields"], MAP]}
    create(db, "avro", schema)
    encode = serde.avro(schema).serialize
    values = [{"id": n, "offset": "x", "at": AT, "items": [{"n": 1}] * n, "more": {"a": 0.5}} for n in range(50)]
    db.log("t").append_many([encode(one) for one in values], [b"k"] * 50, headers=[[("h", None)]] * 50)
    db.log("t").append_many([b"\xff", None, encode(values[1]), b""])
    made = db.update_iceberg("t")
    rows = read(db)
    assert made.record_count == len(rows) == 54 and made.file_count > 1
    for row, value in zip(rows[:50], values, strict=True):
        assert {name: row[name] for name in value} == value | {"more": [("a", 0.5)]}
        assert row["logdb"]["value"] is None and row["logdb"]["key"] == b"k" and row["logdb"]["headers"] == [{"key": "h", "value": None}]
    assert [row["id"] for row in rows[50:]] == [None, None, 1, None]
    assert [row["logdb"]["value"] for row in rows[50:]] == [b"\xff", None, None, b""]
    assert table(db).scan(row_filter="id = 49").to_arrow().num_rows == 1


def test_json(db):
    create(db, "json")
    good = json.dumps({"id": 7, "at": "2024-05-06T07:08:09.010Z", "items": [{"n": 1}], "unknown": 1}).encode()
    hostile = [b"", b"[]", b"1", b"{", b"{}{}", b'{"id": "x"}', b"\xff", b"[" * 100_000, b'{"id": 1e999}', b'{"id": 99999999999999999999}']
    db.log("t").append_many([good, *hostile, None, good])
    db.update_iceberg("t")
    rows = read(db)
    assert [row["id"] for row in rows] == [7, *[None] * 11, 7] and rows[0]["at"] == AT and rows[0]["items"] == [{"n": 1}]
    assert [row["logdb"]["value"] for row in rows] == [None, *hostile, None, None]


@pytest.mark.parametrize(
    "fields",
    [
        [{"name": "logdb", "type": "int"}],
        [{"name": "n", "type": "null"}],
        [{"name": "n", "type": {"type": "long", "logicalType": "timestamp-nanos"}}],
        [{"name": "n", "type": ["int", "string"]}],
        [MAP],
    ],
)
def test_a_schema_without_columns(db, fields):
    create(db, "json", {"type": "record", "name": "r", "fields": fields})
    db.log("t").append(b"{}")
    with pytest.raises(ValueError, match="schema"):
        db.update_iceberg("t")


@pytest.mark.parametrize("schema", ["{", "[]", '{"type": "record"}', "x" * 70_000, '{"type": "string"}'])
def test_a_config_that_is_no_schema(db, schema):
    with pytest.raises(errors.InvalidConfig, match=r"logdb\.iceberg\.schema"):
        db.create_topic("t", config={"logdb.iceberg.schema": schema})


def test_another_mode_makes_the_table_anew(db):
    create(db, "json", {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
    db.log("t").append(b'{"id": 1}')
    assert db.update_iceberg("t").file_count == 1
    first = table(db).metadata.table_uuid
    db.alter_topic("t", config={"logdb.iceberg.mode": "key_value"})
    db.update_iceberg("t")
    assert table(db).scan().to_arrow()["value"].to_pylist() == [b'{"id": 1}'] and table(db).metadata.table_uuid != first
