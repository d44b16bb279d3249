"""Records without a timestamp (-1), or from before 1970: stored and read as they are, through all that a log goes through."""

import pytest

import logdb
from logdb.errors import InvalidTimestamp
from support.serving import served

pytestmark = pytest.mark.local  # looks into the directory

YEAR_1 = -62_135_596_800_000  # the zero time of Go and .NET
TIMES = [YEAR_1, -1, -2, 5, -(2**63), -1, 9, YEAR_1] * 20
SMALL = {"segment.bytes": 4_096, "index.interval.bytes": 200, "retention.ms": 60_000, "durability": "os"}


def stored(log):
    return [record.timestamp_ms for record in log.read(log.start_offset)]


def filled(db, name="t", **config):
    db.create_topic(name, config=SMALL | config)
    log = db.log(name)
    for number, at in enumerate(TIMES):
        if number % 2:
            log.append(b"v" * 100, b"%d" % number, timestamp_ms=at)
        else:
            log.append_many([b"v" * 100], keys=[b"%d" % number], timestamps_ms=[at])
        if number % 4 == 3:
            log.flush()
    return log


def check(log, times=TIMES):
    """A search by time finds the first record that is as young; -1 is one millisecond before 1970 to it."""
    assert stored(log) == times
    for wanted in (-(2**63), YEAR_1, YEAR_1 + 1, -2, -1, 0, 5, 6, 9):
        assert log.offset_for_timestamp(wanted) == next(offset for offset, at in enumerate(times) if at >= wanted)
    assert log.offset_for_timestamp(10) is None
    assert log.latest_record() == (times.index(9), 9)


def test_the_same_is_found_behind_a_url(tmp_path):
    with served(tmp_path / "db") as it:
        filled(it.database)
        with logdb.open(it.url) as db:
            check(db.log("t"))


def test_they_survive_a_reopening_lost_indexes_a_backup_and_verify(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        check(filled(db))
    with logdb.open(tmp_path / "db") as db:
        check(db.log("t"))
        assert db.verify().problems == []
    indexes = [*(tmp_path / "db").rglob("*.timeindex"), *(tmp_path / "db").rglob("*.index")]
    assert indexes
    for index in indexes:
        index.unlink()
    with logdb.open(tmp_path / "db") as db:
        check(db.log("t"))
        db.backup(tmp_path / "backup")
    logdb.restore([tmp_path / "backup"], tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as db:
        check(db.log("t"))
        assert db.verify().problems == []


def test_compaction_keeps_them_with_and_without_a_delete_horizon(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        log = filled(db, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
        for at in (YEAR_1, -(2**63), -1):
            log.append_many([b"v", None, b"w"], keys=[b"0", b"gone %d" % at, b"1"], timestamps_ms=[at] * 3)
        for number in range(80):
            log.append(b"v" * 100, b"last %d" % number)
        for _ in range(2):
            db.compact("t")
        kept = [(record.key, record.timestamp_ms) for record in log.read(log.start_offset) if not record.key.startswith(b"last")]
        changed = {b"0": -1, b"1": -1} | {b"gone %d" % at: at for at in (YEAR_1, -(2**63), -1)}
        assert dict(kept) == {b"%d" % number: at for number, at in enumerate(TIMES)} | changed
        assert len(kept) == len(TIMES) + 3
        assert db.verify().problems == []


def test_retention_counts_their_age_from_the_append(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        log = filled(db)
        db.enforce_retention()
        assert log.start_offset == 0


def test_a_log_with_no_other_records_has_no_latest_one(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"v"] * 2, timestamps_ms=[-1, YEAR_1])
        assert db.log("t").latest_record() is None
        assert (db.log("t").offset_for_timestamp(-1), db.log("t").offset_for_timestamp(0)) == (0, None)
        (batch,) = db.log("t").read_arrow(columns=["timestamp"])
        assert batch.column("timestamp").cast("int64").to_pylist() == [-1, YEAR_1]


def test_a_limit_on_the_past_spares_records_without_a_timestamp(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"message.timestamp.before.max.ms": 1000})
        db.log("t").append(b"v", timestamp_ms=-1)
        with pytest.raises(InvalidTimestamp, match=r"t accepts \[\d+, \d+\]"):
            db.log("t").append(b"v", timestamp_ms=-2)
