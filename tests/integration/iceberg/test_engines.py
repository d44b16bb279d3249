"""What engines read of a table is what the log has, record by record, after appends, compaction and deletions."""

import pytest

import logdb
from support.iceberg import logged, rows, table
from support.iceberg_engines import by_duckdb, by_polars, by_polars_with_pyiceberg, by_pyiceberg

CONFIG = {
    "segment.bytes": 2_000, "logdb.iceberg.mode": "key_value",
    "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1,
}  # fmt: skip


@pytest.mark.parametrize("read", [by_pyiceberg, by_polars, by_polars_with_pyiceberg, by_duckdb])
def test_an_engine(tmp_path, monkeypatch, read):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its other planner is a package of its own
    with logdb.open(tmp_path / "db", batch_size=300) as db:
        db.create_topic("t", partitions=2, config=CONFIG)

        def fill():
            for partition in (0, 1):
                log = db.log("t", partition)
                numbers = range(log.end_offset, log.end_offset + 60)
                values = [None if n % 9 == 0 else b"value %d" % n for n in numbers]
                log.append_many(
                    values, [b"key %d" % (n % 25) for n in numbers], headers=[[("h", b"1"), ("i", None)][: n % 3] for n in numbers]
                )

        def check():
            made = db.update_iceberg("t")
            assert rows(read(table(db))) == logged(db) and made.record_count

        fill()
        check()
        fill()
        check()
        db.compact("t")
        check()
        fill()
        db.delete_records("t", 0, 130)
        check()
        db.compact("t")
        db.delete_records("t", 1, 180)
        check()
