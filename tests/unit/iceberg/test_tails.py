import json

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import logdb
from logdb_iceberg import tail
from support.iceberg import logged, rows, table

pytest.importorskip("pyiceberg")


def test_a_snapshot_and_its_tail_have_each_record_once(tmp_path, monkeypatch):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its other planner is a package of its own
    with logdb.open(tmp_path / "db", batch_size=300) as db:
        db.create_topic("t", partitions=2, config={"segment.bytes": 2_000, "logdb.iceberg.mode": "key_value"})
        for partition in (0, 1):
            db.log("t", partition).append_many([b"value %d" % n for n in range(100)], headers=[[("h", b"1")]] * 100)
        first = db.update_iceberg("t")
        assert tail(db, table(db)).read_all().num_rows == 0
        db.log("t", 1).append_many([b"later"] * 3)
        db.delete_records("t", 0, 70)
        db.update_iceberg("t")
        with db.transaction("t") as transaction:
            transaction.send("t", b"sent", partition=0)
        db.log("t", 1).append(b"last")
        db.flush()

        current = table(db)
        snapshot, after = current.scan().to_arrow(), tail(db, current).read_all()
        assert rows(pa.concat_tables([snapshot, after])) == logged(db) and after.num_rows == 2
        assert tail(db, current, snapshot_id=first.snapshot_id).read_all().num_rows == 5
        expected = len(logged(db))
        lazy = pl.concat([pl.scan_iceberg(current), pl.from_arrow(after).lazy()], how="vertical_relaxed")
        assert lazy.select(pl.len()).collect().item() == expected
        assert duckdb.sql("select count(*) from (select * from snapshot union all by name select * from after)").fetchall() == [(expected,)]

        with pytest.raises(ValueError, match="snapshot_id=1: the table has no such snapshot"):
            tail(db, current, snapshot_id=1)
        db.delete_topic("t")
        db.create_topic("t")
        with pytest.raises(ValueError, match="the table is of an earlier topic 't': load it again"):
            tail(db, current)


def test_typed_columns(tmp_path):
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]})
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"logdb.iceberg.mode": "json", "logdb.iceberg.schema": schema})
        db.log("t").append(b'{"n": 1}')
        db.update_iceberg("t")
        db.log("t").append_many([b'{"n": 2}', b"?"])
        db.flush()
        whole = pa.concat_tables([table(db).scan().to_arrow(), tail(db, table(db)).read_all()]).to_pylist()
        assert [(row["n"], row["logdb"]["offset"], row["logdb"]["value"]) for row in whole] == [(1, 0, None), (2, 1, None), (None, 2, b"?")]
