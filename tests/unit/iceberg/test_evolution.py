"""A topic's schema changes: the table stays, and no value becomes that of another column."""

import datetime
import json
import os
import shutil

import pyarrow as pa
import pytest

import logdb
from logdb import serde
from logdb_iceberg import tail
from support.iceberg import location, table

pytest.importorskip("pyiceberg")

FIRST = {"id": "long", "n": "int", "x": "float", "gone": ["null", "string"], "part": {"a": "int"}}
WIDER = {"id": "long", "n": "long", "x": "double", "new": ["null", "string"], "part": {"a": "long", "b": ["null", "int"]}}
UNION = {"id": ["int", "string"]}
OTHER = {"id": "string", "n": "int", "gone": ["null", "string"]}
"""``id`` and ``n`` cannot be read as before, and ``gone`` is another column than the first one."""


def schema(fields):
    """As JSON; a union with null has the default null."""
    return {"type": "record", "name": "r", "fields": [field(name, kind) for name, kind in fields.items()]}


def field(name, kind):
    if isinstance(kind, dict) and "type" not in kind:
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
    db.alter_topic("t", config=config(UNION))
    append(db, mode, UNION, {"id": "of the union"})
    with pytest.raises(ValueError, match="a union of 2 types is no type in Arrow"):
        db.update_iceberg("t")
    assert read(db) == firsts(2)
    db.alter_topic("t", config=config(FIRST))
    append(db, mode, FIRST, *firsts(1))
    db.update_iceberg("t")
    assert read(db) == [*firsts(2), dict.fromkeys(FIRST), *firsts(1)]


# ---------------------------------------------------------------- values of Avro, which do not name their schema

of_avro = pytest.mark.parametrize("mode", ["avro"])
SHORT, LONG = {"x": "float", "n": "long"}, {"x": "double", "n": "long"}
"""A float and a long of five bytes are as long as a double and a long of one."""
BOTH = {"x": 0.5, "n": 2**34 - 1}
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, datetime.UTC)


@of_avro
def test_bytes_that_both_schemas_could_read(db, mode, tmp_path):
    """The history is the topic's: a directory at another path, and one that was restored, make the same table."""
    db.alter_topic("t", config=config(SHORT))
    append(db, mode, SHORT, BOTH)
    db.alter_topic("t", config=config(LONG))
    append(db, mode, LONG, {"x": 1e300, "n": 1})
    db.update_iceberg("t")
    expected = [BOTH, {"x": 1e300, "n": 1}]
    assert read(db) == expected
    db.backup(tmp_path / "backup")
    logdb.restore(tmp_path / "backup", tmp_path / "restored")
    shutil.copytree(db.path, tmp_path / "copy")
    for name in ("restored", "copy"):
        with logdb.open(tmp_path / name) as other:
            other.update_iceberg("t")
            assert read(other) == expected


@of_avro
def test_records_of_two_schemas_in_one_segment(db, mode):
    db.alter_topic("t", config=config(SHORT) | {"segment.bytes": 1 << 20})
    for fields in (SHORT, LONG):
        db.alter_topic("t", config=config(fields))
        db.log("t").append_many([serde.avro(schema(fields)).serialize(BOTH)] * 3, headers=[[("h", b"1")], [], [("i", None)]])
    assert db.update_iceberg("t").file_count == 1 and read(db) == [BOTH] * 6
    headers = [row["logdb"]["headers"] for row in in_order(table(db).scan().to_arrow())]
    assert headers[:3] == headers[3:] and headers[0] == [{"key": "h", "value": b"1"}] and headers[2] == [{"key": "i", "value": None}]


@of_avro
def test_configs_that_are_replaced_keep_the_history(db, mode, tmp_path):
    """As Kafka's AlterConfigs does.  The former schema's records are durable first: no later record gets one of their offsets."""
    history = "logdb.iceberg.schema.history"
    with logdb.open(tmp_path / "other", durability="os") as other:
        other.create_topic("t", partitions=2, config=config(SHORT))
        append(other, mode, SHORT, BOTH)
        log = other._store.open_log("t", 0)
        assert log.flushed_offset == 0
        other._session.alter_configs("t", config(LONG) | {"segment.bytes": 4096}, replace=True)
        known = other.describe_topic("t").config
        assert json.loads(known[history]) == [{"schema": schema(SHORT), "until": {"0": 1}}] and log.flushed_offset == 1
        other._session.alter_configs("t", config(LONG), replace=True)
        assert other.describe_topic("t").config[history] == known[history]
        other._session.alter_configs("t", {}, replace=True)
        other._session.alter_configs("t", {"segment.bytes": 8192}, replace=True)  # neither has a schema
        other.alter_topic("t", config=config(SHORT))
        assert other.describe_topic("t").config[history] == known[history]  # no record has LONG


@of_avro
def test_configs_that_a_tool_reads_and_writes_back(db, mode):
    """The history that it has read is no correction."""
    history, first = "logdb.iceberg.schema.history", {"a": "long", "b": "long"}
    swapped = dict(reversed(first.items()))
    db.alter_topic("t", config=config(first) | {history: ""})
    for fields in (first, swapped, first):
        db._session.alter_configs("t", {history: "", **db.describe_topic("t").config, **config(fields)}, replace=True)
        append(db, mode, fields, {"a": 1, "b": 2})
    db.update_iceberg("t")
    assert read(db) == [{"a": 1, "b": 2}] * 3
    assert [one["until"] for one in json.loads(db.describe_topic("t").config[history])] == [{"0": 1}, {"0": 2}]
    db._session.alter_configs("t", {**db.describe_topic("t").config, **config(swapped), history: None}, replace=True)
    assert history not in db.describe_topic("t").config


@of_avro
@pytest.mark.parametrize(("values", "change"), [("avro", {"segment.bytes": 4096}), ("avro", config(SHORT)), ("json", config(LONG))])
def test_a_change_that_needs_no_ends_flushes_nothing(tmp_path, mode, values, change):
    with logdb.open(tmp_path / "db", durability="os") as db:
        db.create_topic("t", config=config(SHORT) | {"logdb.iceberg.mode": values})
        append(db, values, SHORT, BOTH)
        db.alter_topic("t", config=change)
        db._session.alter_configs("t", {"logdb.iceberg.mode": values} | config(SHORT) | change, replace=True)
        assert db._store.open_log("t", 0).flushed_offset == 0


@of_avro
def test_the_correction_of_a_schema(db, mode):
    db.alter_topic("t", config=config(SHORT))  # a mistake: the producers write LONG
    append(db, mode, LONG, BOTH)
    db.update_iceberg("t")
    db.alter_topic("t", config=config(LONG))
    db.update_iceberg("t")
    assert read(db) != [BOTH]
    db.alter_topic("t", config={"logdb.iceberg.schema.history": None})
    db.update_iceberg("t")
    assert read(db) == [BOTH]
    db.alter_topic("t", config=config(SHORT) | {"logdb.iceberg.schema.history": "[]"})  # in one step with the schema
    assert db.describe_topic("t").config["logdb.iceberg.schema.history"] == "[]"


@of_avro
def test_a_round_that_began_before_the_schema_changed(db, mode, monkeypatch):
    db.alter_topic("t", config=config(SHORT))
    append(db, mode, SHORT, BOTH)
    db.update_iceberg("t")
    tables, altered = db._store.writer.tables, []
    collect = tables._partitions

    def collected(topic, *, raw):
        found = collect(topic, raw=raw)
        if not altered:
            altered.append(True)
            db.alter_topic("t", config=config(LONG))
            append(db, mode, LONG, BOTH)
            db.update_iceberg("t")
        return found

    monkeypatch.setattr(tables, "_partitions", collected)
    stale = tables._update(db._store.catalogue.topic("t"))
    assert read(db) == [BOTH, BOTH] and len(table(db).metadata.schemas) == 2 and stale.added == 0


@of_avro
def test_the_tail_of_a_table_that_has_the_former_schema(db, mode):
    db.alter_topic("t", config=config(LONG))
    append(db, mode, LONG, BOTH)
    db.update_iceberg("t")
    former = table(db)
    db.alter_topic("t", config=config(SHORT))
    append(db, mode, SHORT, BOTH)
    db.flush()
    found = tail(db, former)
    db.alter_topic("t", config=config(LONG))
    append(db, mode, LONG, BOTH)
    assert rows(found.read_all()) == [BOTH], "it has the records that were there, and knows their schemas"
    assert rows(tail(db, former).read_all()) == [BOTH, BOTH]
    db.alter_topic("t", config={"logdb.iceberg.mode": "json"})
    with pytest.raises(ValueError, match="the table has the mode avro, topic 't' has json: load it again"):
        tail(db, former)


@of_avro
def test_times_of_another_unit(db, mode):
    before, after = {"at": MILLIS, "more": ["null", MICROS], "id": "long"}, {"at": MICROS, "more": ["null", MILLIS], "id": MICROS}
    db.alter_topic("t", config=config({"at": MILLIS, "more": ["null", MICROS]}))
    append(db, mode, {"at": MILLIS, "more": ["null", MICROS]}, {"at": AT, "more": AT}, {"at": AT, "more": None})
    db.alter_topic("t", config=config({"at": MICROS, "more": ["null", MILLIS]}))
    db.update_iceberg("t")
    assert read(db) == [{"at": AT, "more": AT}, {"at": AT, "more": None}]
    db.alter_topic("t", config=config(before))
    append(db, mode, before, {"at": AT, "more": AT, "id": 1})
    db.alter_topic("t", config=config(after))  # a number that becomes a time
    append(db, mode, after, {"at": AT, "more": AT, "id": AT})
    db.update_iceberg("t")
    assert read(db)[2:] == [{"at": None, "more": None, "id": None}, {"at": AT, "more": AT, "id": AT}]
    assert [row["logdb"]["value"] is None for row in in_order(table(db).scan().to_arrow())[2:]] == [False, True]


@of_avro
def test_an_earlier_schema_that_is_none(db, mode):
    """It has no values; its records keep their bytes."""
    db.alter_topic("t", config=config({"id": "nothing"}))
    db.log("t").append(b"x")
    db.alter_topic("t", config=config(FIRST))
    append(db, mode, FIRST, *firsts(1))
    db.update_iceberg("t")
    assert read(db) == [dict.fromkeys(FIRST), *firsts(1)]


@of_avro
def test_the_history_is_bounded(db, mode):
    longer = [{"logdb.iceberg.schema": json.dumps(schema(FIRST) | {"doc": text * 45_000})} for text in "abc"]
    for one in longer[:2]:
        append(db, mode, FIRST, *firsts(1))
        db.alter_topic("t", config=one)
    append(db, mode, FIRST, *firsts(1))
    db.alter_topic("t", config=longer[2])
    append(db, mode, FIRST, *firsts(1))
    with pytest.raises(logdb.errors.InvalidConfig, match=r"shorten or delete logdb\.iceberg\.schema\.history"):
        db.alter_topic("t", config=longer[0])
    db.alter_topic("t", config=longer[0] | {"logdb.iceberg.schema.history": None})
    for text in (
        "{",
        "[" * 90_000,
        "[1]",
        '[{"schema":{"type":"record"},"until":{"x":1}}]',
        '[{"schema":{"type":"record"},"until":{"0":-1}}]',
    ):
        with pytest.raises(logdb.errors.InvalidConfig, match="oldest first"):
            db.alter_topic("t", config={"logdb.iceberg.schema.history": text})


@of_avro
def test_the_letters_of_a_history(db, mode, tmp_path):
    """As many characters count as are kept: what was taken once can be read again, and restored."""
    history = "logdb.iceberg.schema.history"
    db.alter_topic("t", config={history: json.dumps([{"schema": schema(FIRST) | {"doc": "é" * 50_000 + "\ud800"}, "until": {"0": 1}}])})
    kept = db.describe_topic("t").config[history]
    assert len(kept) < 51_000 and "\\ud800" in kept
    db.alter_topic("t", config={history: kept})
    assert db.describe_topic("t").config[history] == kept
    db.backup(tmp_path / "backup")
    logdb.restore(tmp_path / "backup", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as other:
        assert other.describe_topic("t").config[history] == kept
    with pytest.raises(logdb.errors.InvalidConfig, match="oldest first"):
        db.alter_topic("t", config={history: kept.replace("é", "éé")})


@of_avro
def test_a_check_refuses_a_schema_that_the_change_refuses(db, mode):
    longer = [{"logdb.iceberg.schema": json.dumps(schema(FIRST) | {"doc": text * 17_000}, ensure_ascii=False)} for text in "字符集合多个一"]
    for one in longer[:6]:
        db.alter_topic("t", config=one)
        append(db, mode, FIRST, *firsts(1))
    known = db.describe_topic("t").config
    session = db._session
    for change in (
        db.alter_topic,
        session.check_topic_configs,
        lambda name, config: session.alter_configs(name, config, validate_only=True),
    ):
        with pytest.raises(logdb.errors.InvalidConfig, match="shorten or delete"):
            change("t", config=longer[6])
    assert db.describe_topic("t").config == known


# ---------------------------------------------------------------- values of JSON, which name their fields


@pytest.mark.parametrize("mode", ["json"])
def test_files_with_equal_columns_are_written_again(db, mode):
    millis, micros = ({"t": {"type": kind, "logicalType": f"time-{unit}"}} for kind, unit in (("int", "millis"), ("long", "micros")))
    db.alter_topic("t", config=config(millis))
    append(db, mode, millis, {"t": 5000})
    db.update_iceberg("t")
    db.alter_topic("t", config=config(micros))
    append(db, mode, micros, {"t": 5000})
    db.update_iceberg("t")
    assert read(db) == [{"t": datetime.time(microsecond=5000)}] * 2
    assert "logdb.iceberg.schema.history" not in db.describe_topic("t").config


# ---------------------------------------------------------------- tables


def test_a_table_of_an_earlier_version_has_no_such_properties(db, mode):
    append(db, mode, FIRST, *firsts(1))
    db.update_iceberg("t")
    with open(location(db), "r+") as file:
        metadata = json.load(file)
        for name in ("logdb.schema", "logdb.schemas"):
            metadata["properties"].pop(name, None)
        file.seek(0)
        file.truncate()
        json.dump(metadata, file)
    append(db, mode, FIRST, *firsts(1))
    db.flush()
    assert rows(tail(db, table(db)).read_all()) == firsts(1)
    db.update_iceberg("t")
    assert read(db) == firsts(1) * 2


def test_files_that_would_fill_the_disk(db, mode, monkeypatch):
    append(db, mode, FIRST, *firsts(20))
    db.update_iceberg("t")
    db.alter_topic("t", config=config(WIDER))
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 1 << 40, 1_000))
        with pytest.raises(logdb.errors.DiskFull, match=r"of 1000 free bytes; at most half is used: free space"):
            db.update_iceberg("t")
        assert read(db) == firsts(20)
        db.log("t").append(b"an append is unaffected")
    db.update_iceberg("t")
    assert read(db)[0]["part"] == {"a": 0, "b": None}


def test_a_new_topic_removes_the_table_of_the_deleted_one(db, mode):
    append(db, mode, FIRST, *firsts(1))
    db.update_iceberg("t")
    with db._store.writer.tables._updating:  # another table takes long
        db.delete_topic("t")
        db.create_topic("t", config=config(UNION) | {"logdb.iceberg.mode": mode})
    with pytest.raises(ValueError, match="a union of 2 types"):
        db.update_iceberg("t")
    assert not os.path.exists(os.path.join(db.path, "iceberg", "t"))
