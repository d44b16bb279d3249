"""A topic's schema changes: the table stays, and no value becomes that of another column."""

import json

import pyarrow as pa
import pytest

import logdb
from logdb import serde
from logdb_iceberg import tail
from support.iceberg import table

pytest.importorskip("pyiceberg")

FIRST = {"id": "long", "n": "int", "x": "float", "gone": ["null", "string"], "part": {"a": "int"}}
WIDER = {"id": "long", "n": "long", "x": "double", "new": ["null", "string"], "part": {"a": "long", "b": ["null", "int"]}}
OTHER = {"id": "string", "n": "int", "gone": ["null", "string"]}
"""``id`` and ``n`` cannot be read as before, and ``gone`` is another column than the first one."""


def schema(fields):
    """As JSON; a union with null has the default null."""
    return {"type": "record", "name": "r", "fields": [field(name, kind) for name, kind in fields.items()]}


def field(name, kind):
    if isinstance(kind, dict):
        return {"name": name, "type": schema(kind) | {"name": "part"}}
    return {"name": name, "type": kind} | ({"default": None} if isinstance(kind, list) and kind[0] == "null" else {})


@pytest.fixture(params=["json", "avro"])
def mode(request):
    return request.param


@pytest.fixture
def db(tmp_path, mode):
    with logdb.open(tmp_path / "db", batch_size=300) as db:
        db.create_topic("t", config=config(FIRST) | {"logdb.iceberg.mode": mode, "segment.bytes": 2_000})
        yield db


def config(fields):
    return {"logdb.iceberg.schema": json.dumps(schema(fields))}


def append(db, mode, fields, *values):
    encode = serde.avro(schema(fields)).serialize if mode == "avro" else lambda value: json.dumps(value).encode()
    db.log("t").append_many([encode(value) for value in values])


def in_order(found):
    return sorted(found.to_pylist(), key=lambda row: row["logdb"]["offset"])


def rows(found):
    return [{name: value for name, value in row.items() if name != "logdb"} for row in in_order(found)]


def read(db):
    """The rows of the table, by offset."""
    return rows(table(db).scan().to_arrow())


def firsts(count):
    return [{"id": n, "n": -n, "x": 0.5, "gone": "g", "part": {"a": n}} for n in range(count)]


def test_fields_come_go_and_become_wider(db, mode):
    append(db, mode, FIRST, *firsts(60))
    first = db.update_iceberg("t")
    uuid, old = table(db).metadata.table_uuid, read(db)
    db.alter_topic("t", config=config(WIDER))
    wide = {"id": 1, "n": 2**40, "x": 1e300, "new": "w", "part": {"a": 2**40, "b": 7}}
    append(db, mode, WIDER, wide)
    made = db.update_iceberg("t")
    expected = [{"id": n, "n": -n, "x": 0.5, "new": None, "part": {"a": n, "b": None}} for n in range(60)]
    assert read(db) == [*expected, wide]
    assert table(db).metadata.table_uuid == uuid and made.record_count == 61
    assert rows(table(db).scan(snapshot_id=first.snapshot_id).to_arrow()) == old
    append(db, mode, WIDER, wide)
    db.flush()
    assert rows(pa.concat_tables([table(db).scan().to_arrow(), tail(db, table(db)).read_all()]))[-1] == wide
    db.delete_records("t", 0, 33)  # within a segment of the first schema: its file is made again
    db.update_iceberg("t")
    assert read(db) == [*expected[33:], wide, wide]


def test_a_column_of_another_type_is_another_column(db, mode):
    append(db, mode, FIRST, *firsts(3))
    db.update_iceberg("t")
    ids = {one.name: one.field_id for one in table(db).schema().fields}
    db.alter_topic("t", config=config(WIDER))
    db.update_iceberg("t")
    db.alter_topic("t", config=config(OTHER))
    append(db, mode, OTHER, {"id": "text", "n": 5, "gone": "again"})
    db.update_iceberg("t")
    found = in_order(table(db).scan().to_arrow())
    assert [row["id"] for row in found] == [None, None, None, "text"] and found[-1]["n"] == 5
    assert [row["logdb"]["value"] is None for row in found] == [False, False, False, True], "their bytes are there"
    after = {one.name: one.field_id for one in table(db).schema().fields}
    assert not {after[name] for name in ("id", "n", "gone")} & set(ids.values()) and after["logdb"] == ids["logdb"]


def test_a_schema_that_comes_back(db, mode):
    append(db, mode, FIRST, *firsts(2))
    db.update_iceberg("t")
    for fields in (WIDER, FIRST, WIDER, FIRST):
        db.alter_topic("t", config=config(fields))
        db.update_iceberg("t")
        assert [row["id"] for row in read(db)] == [0, 1]
    append(db, mode, FIRST, *firsts(2))
    db.update_iceberg("t")
    assert read(db)[2:] == firsts(2)


def test_a_schema_that_has_no_table_leaves_the_one_that_is_there(db, mode):
    append(db, mode, FIRST, *firsts(2))
    db.update_iceberg("t")
    db.alter_topic("t", config=config({"id": ["int", "string"]}))
    append(db, mode, FIRST, *firsts(1))
    with pytest.raises(ValueError, match="a union of 2 types is no type in Arrow"):
        db.update_iceberg("t")
    assert read(db) == firsts(2)
    assert db.log("t").end_offset == 3
    db.alter_topic("t", config=config(FIRST))
    db.update_iceberg("t")
    assert read(db) == [*firsts(2), *firsts(1)]


@pytest.mark.parametrize("mode", ["avro"])
def test_bytes_that_both_schemas_could_read(db, mode):
    """A float and a long of five bytes are as long as a double and a long of one."""
    before, after = {"x": "float", "n": "long"}, {"x": "double", "n": "long"}
    db.alter_topic("t", config=config(before))
    value = {"x": 0.5, "n": 2**34 - 1}
    append(db, mode, before, value)
    db.update_iceberg("t")
    db.alter_topic("t", config=config(after))
    db.update_iceberg("t")
    assert read(db) == [value]
