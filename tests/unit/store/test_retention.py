import os
import threading
from math import inf

import pytest

import logdb
from logdb.codec.convert import stamp_producer
from logdb.errors import DiskFull, OffsetOutOfRange, OutOfOrderSequence, PolicyViolation, ReadOnly, UnknownPartition, UnknownTopic
from logdb.model import ExpiredRecords, ProducerIdAndEpoch, TopicPartition
from logdb.segment.segment import Segment
from logdb.store.entries import Entries
from logdb.store.housekeeping import Housekeeping
from logdb.store.retention import CHECK_INTERVAL_MS
from logdb.store.writer import CLOSING_MS, Writer
from support.batches import encode_batch
from support.clock import StillIO
from support.faulty_io import FaultyIO
from support.power_cut import die, quiet
from support.waiting import until

DAY = 86_400_000
START = 1_000 * DAY
SMALL = {"segment.bytes": 2_048}
WAIT_S = 60


class Clock:
    def __init__(self):
        self.now_ms = START

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def db(tmp_path, clock):
    with logdb.open(tmp_path / "db", clock=clock) as opened:
        yield quiet(opened)


@pytest.fixture
def idle_background(monkeypatch):
    """Nothing goes but when it is asked for, and when a database is closed."""
    monkeypatch.setattr(Housekeeping, "_loop", lambda self: None)


def fill(db, topic="t", count=60, *, config=SMALL):
    """A log of several sealed segments and an active one."""
    db.create_topic(topic, config=config, if_not_exists=True)
    log = db._store.open_log(topic)  # a database's own would end open transactions that no coordinator knows
    for number in range(count):
        log.append(b"%06d" % number + bytes(200))
        if number % 3 == 2:
            log.flush()
    log.flush()
    db._store.checkpoint([log])
    assert len(log.segments) > 4 or count < 59
    return log


def files(log, suffix=".log"):
    return sorted(int(name[:20]) for name in os.listdir(log.directory) if name.endswith(suffix))


def offsets(log):
    return [record.offset for record in log.read(log.start_offset)]


def check(db, log, *, start, end=60):
    assert (log.start_offset, log.end_offset) == (start, end)
    assert offsets(log) == list(range(start, end))
    assert files(log) == [segment.base_offset for segment in log.segments]
    assert set(files(log, ".index")) <= set(files(log))
    assert set(files(log, ".timeindex")) <= set(files(log))


# ---------------------------------------------------------------- by time and by size


def test_by_time_sealed_segments_go_and_an_active_one_that_is_younger_stays(db, clock):
    log = fill(db, count=59, config={**SMALL, "retention.ms": DAY})
    active = log.segments[-1].base_offset
    clock.now_ms += 1_000
    log.append_many([b"younger"])
    assert log.segments[-1].base_offset == active
    clock.now_ms = START + DAY
    db._store.writer.retention.enforce()
    check(db, log, start=0)
    clock.now_ms += 1
    db._store.writer.retention.enforce()
    check(db, log, start=active)
    assert log.append(b"more") == 60


def test_history_that_is_loaded_today_does_not_expire_today(db, clock):
    db.create_topic("t", config={**SMALL, "retention.ms": DAY})
    log = db.log("t")
    for number in range(60):
        log.append(bytes(200), timestamp_ms=number)
        log.flush()
    db._store.checkpoint([log])
    clock.now_ms = START + DAY
    db._store.writer.retention.enforce()
    assert log.start_offset == 0
    clock.now_ms = START + DAY + 1
    db._store.writer.retention.enforce()
    assert log.start_offset == log.segments[-1].base_offset > 0


def test_by_size_the_oldest_go(db):
    log = fill(db, config={**SMALL, "retention.bytes": 5_000})
    before = log.segments
    db._store.writer.retention.enforce()
    kept = sum(segment.size_bytes for segment in log.segments)
    assert 5_000 <= kept < 5_000 + before[0].size_bytes + log.segments[-1].size_bytes
    check(db, log, start=log.segments[0].base_offset)
    assert log.start_offset > 0


def test_what_has_no_limit_or_is_only_compacted_keeps_all(db, clock):
    kept = fill(db, "kept")
    compacted = db.create_topic("compacted", config={**SMALL, "cleanup.policy": "compact", "retention.ms": 1, "retention.bytes": 0})
    log = db.log(compacted.name)
    for number in range(60):
        log.append(bytes(200), b"%d" % number)
        log.flush()
    db._store.checkpoint([log])
    clock.now_ms += 100 * DAY
    db._store.writer.retention.enforce()
    assert kept.start_offset == log.start_offset == 0


def test_both_policies_together_expire(db, clock):
    db.create_topic("both", config={**SMALL, "cleanup.policy": "compact,delete", "retention.ms": DAY})
    log = db.log("both")
    for number in range(60):
        log.append(bytes(200), b"%d" % number)
        log.flush()
    db._store.checkpoint([log])
    clock.now_ms += DAY + 1
    db._store.writer.retention.enforce()
    assert log.start_offset == log.segments[-1].base_offset > 0


def test_a_log_that_no_call_has_opened_expires_too(tmp_path, clock):
    with logdb.open(tmp_path / "db", clock=clock) as db:
        fill(quiet(db), config={**SMALL, "retention.ms": DAY})
    clock.now_ms += DAY + 1
    with logdb.open(tmp_path / "db", clock=clock) as db:
        quiet(db)
        db._store.writer.retention.enforce()
        assert db._store._state.logs
        log = db.log("t")
        check(db, log, start=log.segments[-1].base_offset)
    assert logdb.verify(tmp_path / "db").ok


def test_one_log_that_fails_does_not_keep_the_others_waiting(tmp_path, clock):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", clock=clock, io=io) as db:
        quiet(db)
        first, second = (fill(db, name, config={**SMALL, "retention.ms": DAY}) for name in ("a", "b"))
        clock.now_ms += DAY + 1
        io.fail("rename", 28, "a-0")
        with pytest.raises(DiskFull):
            db._store.writer.retention.enforce()
        assert first.start_offset == 0
        assert second.start_offset > 0
        io.heal()
        db._store.writer.retention.enforce()
        assert first.start_offset > 0


@pytest.mark.usefixtures("idle_background")
@pytest.mark.parametrize("anew", [False, True])
def test_a_round_goes_by_what_a_topic_says_by_then(db, clock, monkeypatch, anew):
    for name in ("a", "b"):
        fill(db, name, config={**SMALL, "retention.ms": DAY})
    clock.now_ms += DAY + 1
    move = Writer.begin_at

    def change(writer, log, *rest):
        if anew:
            db.delete_topic("b")
            fill(db, "b")
            clock.now_ms += DAY + 1
        else:
            db.alter_topic("b", config={"retention.ms": None})
        monkeypatch.setattr(Writer, "begin_at", move)
        return move(writer, log, *rest)

    monkeypatch.setattr(Writer, "begin_at", change)
    assert [gone.topic for gone in db.enforce_retention()] == ["a"]
    assert db.log("b").start_offset == 0


@pytest.mark.usefixtures("idle_background")
def test_what_a_topic_keeps_from_the_last_moment_on_is_kept(db, clock, monkeypatch):
    log = fill(db, config={**SMALL, "retention.ms": DAY})
    clock.now_ms += DAY + 1
    move = Writer.begin_at
    monkeypatch.setattr(Writer, "begin_at", lambda *what: (db.alter_topic("t", config={"retention.ms": None}), move(*what))[1])
    assert db.enforce_retention() == []
    assert log.start_offset == 0


@pytest.mark.usefixtures("idle_background")
def test_a_segment_that_is_just_being_appended_to_is_not_idle(db, clock, monkeypatch):
    log = fill(db, config={**SMALL, "retention.ms": DAY}, count=1)
    clock.now_ms += DAY + 1
    append, found = Segment.append, []

    def look_behind(segment, *what, **how):
        append(segment, *what, **how)
        found.extend(db.enforce_retention(dry_run=True))

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "append", look_behind)
        log.append(b"history, loaded now", timestamp_ms=1)
        log.flush(sync=False)
    assert found
    assert {gone.new_start_offset for gone in found} == {1}, "the sealed segment before it is old"


def test_the_housekeeper_does_it_by_itself(tmp_path, clock):
    store = logdb.store.store.Store.open(tmp_path / "db", clock=clock, retention_check_interval_ms=1)
    with logdb.client.local.LocalDatabase(store) as db:
        db.create_topic("kept")
        assert store.writer.housekeeping._thread is None
        log = fill(db, config={**SMALL, "retention.ms": DAY})
        assert store.writer.housekeeping._thread.is_alive()
        moved = threading.Event()
        move = store.writer.begin_at
        store.writer.begin_at = lambda *what: (move(*what), moved.set())
        clock.now_ms += DAY + 1
        assert moved.wait(WAIT_S)
        check(db, log, start=60)
    assert not store.writer.housekeeping._thread.is_alive()


def test_a_database_without_limits_has_no_housekeeper(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        assert db._store.writer.housekeeping._thread is None
        db.alter_topic("t", config={"retention.bytes": 1})
        assert db._store.writer.housekeeping._thread is not None
    with logdb.open(tmp_path / "db") as db:
        assert db._store.writer.housekeeping._thread is not None


# ---------------------------------------------------------------- programs that end soon


def test_a_program_that_is_soon_over_stays_within_its_bytes(tmp_path):
    """It lives for less than a check interval, again and again."""
    sizes = []
    for number in range(30):
        with logdb.open(tmp_path / "db") as db:
            db.create_topic("t", config={**SMALL, "retention.bytes": 6_000}, if_not_exists=True)
            log = db.log("t")
            for _ in range(10):
                log.append_many([b"%02d" % number + bytes(300)])
        with logdb.open(tmp_path / "db", mode="r") as db:
            sizes.append(db.log("t").size_bytes)
    assert max(sizes[5:]) < 6_000 + 2 * 2_048
    assert min(sizes[5:]) >= 6_000


def test_a_program_that_is_soon_over_stays_within_its_time(tmp_path, clock):
    for _ in range(30):
        with logdb.open(tmp_path / "db", clock=clock) as db:
            db.create_topic("t", config={**SMALL, "retention.ms": 3 * DAY}, if_not_exists=True)
            db.log("t").append_many([bytes(1_000)] * 6)
        clock.now_ms += DAY
        with logdb.open(tmp_path / "db", mode="r", clock=clock) as db:
            ages = [clock.now_ms - record.timestamp_ms for record in db.log("t").read(db.log("t").start_offset)]
            assert len(ages) >= 6
            assert max(ages) <= 4 * DAY  # as old as the last program let it be, and the day since then
    assert db.path


def test_what_is_appended_keeps_nothing_that_has_expired(tmp_path, clock, idle_background):
    """The first append comes before the first look at retention, and into a segment that is far from full."""
    for _ in range(5):
        with logdb.open(tmp_path / "db", clock=clock) as db:
            quiet(db)
            log = db.create_topic("t", config={"retention.ms": DAY}, if_not_exists=True) and db.log("t")
            log.append_many([b"x"] * 10)
            log.append_many([b"x"] * 10)
        clock.now_ms += DAY + 1
    with logdb.open(tmp_path / "db", mode="r", clock=clock) as db:
        assert (db.log("t").start_offset, db.log("t").end_offset) == (80, 100)


def test_a_close_is_not_held_up(tmp_path, monkeypatch, idle_background):
    """What is left when the time is up goes the next time."""
    io = StillIO()
    with logdb.open(tmp_path / "db", io=io) as db:
        quiet(db)
        for topic in "abc":
            fill(db, topic)
            db.alter_topic(topic, config={"retention.bytes": 5_000})

    def slowly(writer, log, start, configs):
        io.now_ms += CLOSING_MS
        moved.append(log.topic)
        return move(writer, log, start, configs)

    move = Writer.begin_at
    monkeypatch.setattr(Writer, "begin_at", slowly)
    for expected in (["a", "b"], ["c"], []):
        moved = []
        with logdb.open(tmp_path / "db", io=io):
            pass
        assert moved == expected


def test_a_close_does_not_fail_of_it(tmp_path, clock, caplog):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", clock=clock, io=io) as db:
        log = fill(db, config={**SMALL, "retention.ms": DAY})
        log.append(b"more")
        clock.now_ms += DAY + 1
        io.fail("rename", 28, "topic.json")
        db._store.writer.housekeeping.stop()
    assert "retention while" in caplog.text
    with logdb.open(tmp_path / "db", clock=clock) as db:
        assert not db.reports
        assert db.log("t").start_offset == 0
    with logdb.open(tmp_path / "db", clock=clock) as db:
        assert db.log("t").start_offset > 0, "it had time when it was closed again"


# ---------------------------------------------------------------- in a program that runs on


def test_a_roll_makes_room_at_once(tmp_path):
    with logdb.open(tmp_path / "db", retention_check_interval_ms=DAY) as db:
        db.create_topic("t", config={**SMALL, "flush.ms": 1, "retention.bytes": 5_000})
        log = db.log("t")
        for _ in range(3):
            begun = log.start_offset
            while log.size_bytes < 12_000:
                log.append_many([bytes(500)])
            until(lambda: log.start_offset > begun, "there is too much")  # noqa: B023 -- it is called here
            until(lambda: log.size_bytes < 5_000 + 2 * 2_048, "all of it goes")


def test_a_lower_limit_deletes_at_once(tmp_path, clock):
    """Though the last check was just now."""
    with logdb.open(tmp_path / "db", clock=clock, retention_check_interval_ms=DAY) as db:
        log = fill(db, config={**SMALL, "retention.ms": 10 * DAY})
        until(lambda: not db._store.writer.retention._due, "the sealed segments were checked")
        clock.now_ms += 2 * DAY
        lower = {"retention.ms": DAY}
        planned = db.enforce_retention("t", dry_run=True, config=lower)
        db.alter_topic("t", config=lower)
        until(lambda: log.start_offset, "the limit deletes")
        assert log.start_offset == planned[0].new_start_offset


def test_it_sleeps_until_something_may_be_too_old(tmp_path, clock):
    with logdb.open(tmp_path / "db", clock=clock) as db:
        retention = quiet(db)._store.writer.retention
        assert retention._round() == inf
        db.create_topic("large", config={**SMALL, "retention.bytes": 1_000_000})
        fill(db, "large")
        assert retention._round() == inf, "a roll would say so"
        db.create_topic("t", config={**SMALL, "retention.ms": 10 * CHECK_INTERVAL_MS})
        assert retention._round() == 10 * CHECK_INTERVAL_MS + 1, "it is empty yet"
        fill(db)
        clock.now_ms += 4 * CHECK_INTERVAL_MS
        assert retention._round() == 6 * CHECK_INTERVAL_MS + 1
        db.create_topic("slow", config={"retention.ms": 1000 * DAY})
        db.delete_topic("t")
        assert retention._round() == 12 * CHECK_INTERVAL_MS, "the clock may be set meanwhile"


def test_what_is_held_up_is_looked_at_again(db, clock):
    """By an open transaction, the end of which wakes no thread."""
    db.create_topic("t", config={**SMALL, "retention.bytes": 3_000})
    log = db._store.open_log("t")
    produce(log, ProducerIdAndEpoch(7, 0), 0, transactional=True)
    fill(db)
    assert db._store.writer.retention._round() == 0
    assert log.start_offset == 0


# ---------------------------------------------------------------- the segment that is appended to


def test_an_idle_active_segment_expires_as_a_whole(db, clock):
    db.create_topic("t", config={"retention.ms": DAY})
    log = db.log("t")
    log.append_many([b"old"] * 3)
    clock.now_ms += DAY // 2
    log.append_many([b"less old"])
    clock.now_ms += DAY
    assert db.enforce_retention() == []
    clock.now_ms += 1
    size_bytes = log.size_bytes
    assert db.enforce_retention() == [ExpiredRecords("t", 0, 0, 4, 1, size_bytes)]
    check(db, log, start=4, end=4)
    assert db.enforce_retention() == []
    assert log.append(b"new") == 4
    log.flush()
    check(db, log, start=4, end=5)


def test_sealed_and_active_expire_together(db, clock):
    log = fill(db, config={**SMALL, "retention.ms": DAY})
    clock.now_ms += DAY + 1
    (gone,) = db.enforce_retention("t")
    assert (gone.start_offset, gone.new_start_offset, gone.segment_count) == (0, 60, len(files(log)) + gone.segment_count - 1)
    check(db, log, start=60)


def test_by_size_the_active_segment_stays(db):
    db.create_topic("t", config={"retention.bytes": 0})
    log = db.log("t")
    log.append_many([bytes(1_000)])
    assert db.enforce_retention() == []
    log.roll()
    log.append_many([b"x"])
    (gone,) = db.enforce_retention()
    assert (gone.new_start_offset, gone.segment_count) == (1, 1)


def test_a_segment_that_is_appended_to_meanwhile_stays(db, clock, monkeypatch):
    db.create_topic("t", config={"retention.ms": DAY})
    log = db.log("t")
    log.append_many([b"old"])
    clock.now_ms += DAY + 1
    roll = type(log).roll

    def late(self, end_offset=None):
        self.append_many([b"new"])
        return roll(self, end_offset)

    monkeypatch.setattr(type(log), "roll", late)
    assert db.enforce_retention() == []
    assert offsets(log) == [0, 1]


def test_a_record_of_an_open_transaction_keeps_its_active_segment(db, clock):
    db.create_topic("t", config={"retention.ms": DAY})
    log, producer = db._store.open_log("t"), ProducerIdAndEpoch(7, 0)
    produce(log, producer, 0, transactional=True)
    clock.now_ms += DAY + 1
    assert db.enforce_retention() == []
    log.append_marker(producer, commit=True, coordinator_epoch=0)
    clock.now_ms += DAY + 1
    assert [gone.new_start_offset for gone in db.enforce_retention()] == [2]


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_an_idle_segment_grows_old_over_restarts(tmp_path, clock, how, idle_background):
    """Or one that a program never appends to again would be as young as its last opening."""
    with logdb.open(tmp_path / "db", clock=clock) as db:
        quiet(db).create_topic("t", config={"retention.ms": 3 * DAY})
        log = db.log("t")
        log.append_many([b"x"])
        log.flush()
        db._store.checkpoint([log])
        if how == "killed":
            die(db)
    for day in range(1, 5):
        clock.now_ms = START + day * DAY
        with logdb.open(tmp_path / "db", clock=clock) as db:
            quiet(db)
            assert TopicPartition("t", 0) not in db._store.open_logs or how == "killed"
            gone = db.enforce_retention()
            assert [found.new_start_offset for found in gone] == ([1] if day == 4 else [])
    assert logdb.verify(tmp_path / "db").ok


def test_what_came_after_the_last_checkpoint_is_as_young_as_the_opening(tmp_path, clock, idle_background):
    with logdb.open(tmp_path / "db", clock=clock) as db:
        quiet(db).create_topic("t", config={"retention.ms": 3 * DAY})
        log = db.log("t")
        log.append_many([b"x"], timestamps_ms=[0])
        log.flush()
        db._store.checkpoint([log])
        clock.now_ms += 2 * DAY
        log.append_many([b"y"], timestamps_ms=[0])
        die(db)
    clock.now_ms += 2 * DAY
    with logdb.open(tmp_path / "db", clock=clock) as db:
        quiet(db).log("t")
        assert db.enforce_retention() == []


# ---------------------------------------------------------------- when it is asked for


def test_a_dry_run_says_what_would_go(db, clock):
    log = fill(db, config={**SMALL, "retention.ms": DAY})
    kept = fill(db, "kept")
    assert db.enforce_retention(dry_run=True) == []
    clock.now_ms += DAY + 1
    planned = db.enforce_retention(dry_run=True)
    with logdb.open(db.path, mode="r", clock=clock) as reader:
        assert reader.enforce_retention("t", dry_run=True) == planned
        with pytest.raises(ReadOnly):
            reader.enforce_retention()
    assert (log.start_offset, kept.start_offset) == (0, 0)
    assert [found.topic for found in planned] == ["t"]
    assert db.enforce_retention() == planned
    assert log.start_offset == planned[0].new_start_offset
    assert db.enforce_retention(dry_run=True) == []


def test_a_dry_run_shows_what_is_rolled_over_and_not_yet_sealed(db):
    db.create_topic("t", config=SMALL)
    log = db.log("t")
    for _ in range(40):
        log.append_many([bytes(300)])
    assert log.take_sealing()
    lower = {"retention.bytes": 3_000}
    planned = db.enforce_retention("t", dry_run=True, config=lower)
    assert planned
    db.alter_topic("t", config=lower)
    assert db.enforce_retention() == planned


def test_a_dry_run_shows_what_a_recovery_finds(tmp_path, clock, idle_background):
    """The real run opens the log first, too."""
    with logdb.open(tmp_path / "db", clock=clock) as db:
        quiet(db).create_topic("t", config={**SMALL, "retention.ms": DAY})
        log = db.log("t")
        for number in range(20):
            log.append_many([bytes(300)])
            log.flush()
            if number == 9:
                db._store.checkpoint([log])
        die(db)
    clock.now_ms += 2 * DAY
    with logdb.open(tmp_path / "db", clock=clock) as db:
        quiet(db)
        planned = db.enforce_retention(dry_run=True)
        assert db.enforce_retention() == planned != []


def test_one_topic_is_asked_for(db, clock):
    first, second = (fill(db, name, config={**SMALL, "retention.ms": DAY}) for name in ("a", "b"))
    clock.now_ms += DAY + 1
    assert [found.topic for found in db.enforce_retention("b")] == ["b"]
    assert (first.start_offset, second.start_offset) == (0, 60)
    with pytest.raises(UnknownTopic):
        db.enforce_retention("c")
    assert [found.topic for found in db.enforce_retention()] == ["a"]


def test_what_was_rolled_over_and_not_yet_sealed_goes_too(db, clock):
    db.create_topic("t", config={**SMALL, "retention.bytes": 3_000})
    log = db.log("t")
    for _ in range(40):
        log.append_many([bytes(300)])
    assert log.take_sealing()
    (gone,) = db.enforce_retention()
    assert 3_000 <= log.size_bytes < 3_000 + 2 * 2_048
    check(db, log, start=gone.new_start_offset, end=40)


# ---------------------------------------------------------------- delete_records


def test_delete_records_moves_the_start_to_the_very_offset(db):
    log = fill(db)
    bases = files(log)
    wanted = bases[2] + 1
    assert db.delete_records("t", 0, wanted) == wanted
    check(db, log, start=wanted)
    assert files(log) == bases[2:]
    assert db.delete_records("t", 0, wanted) == wanted
    assert db.delete_records("t", 0, bases[3]) == bases[3]
    check(db, log, start=bases[3])
    assert files(log) == bases[3:]


def test_delete_all_records_rolls_the_active_segment(db):
    log = fill(db)
    log.append(b"in the open batch")
    assert db.delete_records("t", 0, -1) == 61
    check(db, log, start=61, end=61)
    assert files(log) == [61]
    assert log.append(b"next") == 61
    check(db, log, start=61, end=62)


def test_delete_records_of_an_empty_log(db):
    db.create_topic("t")
    assert db.delete_records("t", 0, -1) == 0
    assert db.delete_records("t", 0, 0) == 0


def test_what_was_deleted_stays_deleted(tmp_path):
    for count, offset in ((60, 31), (61, -1)):
        with logdb.open(tmp_path / "db") as db:
            fill(quiet(db)) if count == 60 else None
            db.log("t").append(b"x") if count == 61 else None
            start = db.delete_records("t", 0, offset)
        assert logdb.verify(tmp_path / "db").ok
        with logdb.open(tmp_path / "db") as db:
            check(db, db.log("t"), start=start, end=count)
            assert not db.reports


def test_refusals_change_nothing(db):
    log = fill(db)
    db.delete_records("t", 0, 30)
    for offset in (29, 61, -2, 2**63 - 1):
        with pytest.raises(OffsetOutOfRange) as caught:
            db.delete_records("t", 0, offset)
        assert (caught.value.start_offset, caught.value.end_offset) == (30, 60)
    with pytest.raises(UnknownTopic):
        db.delete_records("none", 0, 0)
    with pytest.raises(UnknownPartition):
        db.delete_records("t", 1, 0)
    db.create_topic("compacted", config={"cleanup.policy": "compact"})
    with pytest.raises(PolicyViolation, match=r"'compacted'.*'compact'"):
        db.delete_records("compacted", 0, 0)
    with logdb.open(db.path, mode="r") as reader, pytest.raises(ReadOnly):
        reader.delete_records("t", 0, 40)
    check(db, log, start=30)


@pytest.mark.parametrize("kind", ["rename", "create", "fdatasync"])
def test_a_disk_that_fails_leaves_the_start_where_it_was(tmp_path, kind):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io) as db:
        log = fill(quiet(db))
        if kind != "fdatasync":
            io.fail(kind, 28)
            with pytest.raises(DiskFull):
                db.delete_records("t", 0, 31)
            io.heal()
            check(db, log, start=0)
            assert db.delete_records("t", 0, 31) == 31
        else:
            io.fail(kind, 5, "topic.json")
            with pytest.raises(logdb.errors.SyncFailed):
                db.delete_records("t", 0, 31)
            assert offsets(log) == list(range(60))


def test_a_topic_file_that_could_not_be_put_back_is_rewritten_by_the_next_opening(tmp_path, monkeypatch):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io) as db:
        log = fill(quiet(db))

        def refuse(*_args):
            io.fail("create", 28, "topic.json")
            raise DiskFull(str(tmp_path), 0, "no room")

        with monkeypatch.context() as patched:
            patched.setattr(Entries, "change", refuse)
            with pytest.raises(DiskFull):
                db.delete_records("t", 0, 31)
        io.heal()
        check(db, log, start=0)
    with logdb.open(tmp_path / "db") as db:
        check(db, db.log("t"), start=0)
    assert logdb.verify(tmp_path / "db").ok


def test_a_file_that_cannot_be_removed_is_left_to_the_next_opening(tmp_path, caplog):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io) as db:
        log = fill(quiet(db))
        bases = files(log)
        io.fail("unlink", 13)
        assert db.delete_records("t", 0, bases[2]) == bases[2]
        assert offsets(log) == list(range(bases[2], 60))
        assert files(log) == bases
        assert "could not be removed" in caplog.text
    with logdb.open(tmp_path / "db") as db:
        check(db, db.log("t"), start=bases[2])
        assert len(db.reports) == 2


def test_a_read_only_log_is_left_alone(tmp_path, clock):
    with logdb.open(tmp_path / "db", clock=clock) as db:
        log = fill(quiet(db), config={**SMALL, "retention.ms": DAY})
        damaged = log.segments[1].path
    with open(damaged, "r+b") as file:
        file.truncate(100)
    os.unlink(damaged)
    clock.now_ms += 2 * DAY
    with logdb.open(tmp_path / "db", clock=clock) as db:
        log = db.log("t")
        assert log.read_only_reason
        before = files(log)
        db._store.writer.retention.enforce()
        with pytest.raises(ReadOnly):
            db.delete_records("t", 0, 30)
        assert files(log) == before


# ---------------------------------------------------------------- producers and transactions


def produce(log, producer, sequence, *, transactional=False):
    batch = bytearray(encode_batch([bytes(400)], base_timestamp=START))
    stamp_producer(batch, producer, sequence, transactional=transactional)
    return log.append_batches(batch, durability="os")


def test_retention_waits_for_an_open_transaction(db, clock):
    db.create_topic("t", config={**SMALL, "retention.ms": DAY})
    log, producer = db.log("t"), ProducerIdAndEpoch(7, 0)
    fill(db, count=20)
    produce(log, producer, 0, transactional=True)
    fill(db, count=40)
    begun = log.last_stable_offset
    assert begun == 20
    clock.now_ms += DAY + 1
    db._store.writer.retention.enforce()
    assert 0 < log.start_offset <= begun
    log.append_marker(producer, commit=False, coordinator_epoch=0)
    db._store.writer.retention.enforce()
    assert log.start_offset == log.segments[-1].base_offset > begun


def test_deleting_all_records_forgets_no_sequence(tmp_path):
    producer = ProducerIdAndEpoch(7, 0)
    with logdb.open(tmp_path / "db") as db:
        quiet(db).create_topic("t")
        log = db.log("t")
        for sequence in range(3):
            produce(log, producer, sequence)
        db._store.checkpoint([log])
        for sequence in range(3, 6):
            produce(log, producer, sequence)
        assert db.delete_records("t", 0, -1) == 6
        die(db)
    with logdb.open(tmp_path / "db") as db:
        log = db.log("t")
        assert produce(log, producer, 5) == range(5, 6)  # known, though it is gone
        with pytest.raises(OutOfOrderSequence):
            produce(log, producer, 7)
        assert produce(log, producer, 6) == range(6, 7)


def test_a_transaction_whose_begin_was_deleted(db):
    log, producer = fill(db), ProducerIdAndEpoch(7, 0)
    produce(log, producer, 0, transactional=True)
    log.append(b"after")
    with logdb.open(db.path, mode="r") as reader:
        tail = reader.log("t")
        assert (log.last_stable_offset, tail.last_stable_offset) == (60, 60)
        assert db.delete_records("t", 0, 61) == 61
        assert (tail.start_offset, log.last_stable_offset, tail.last_stable_offset) == (61, 61, 61)
        assert list(log.read(61, isolation_level="read_committed")) == []
        log.append_marker(producer, commit=True, coordinator_epoch=0)
        db.delete_records("t", 0, -1)
        log.append(b"last")
        log.flush()
        for each in (log, tail):
            assert (each.start_offset, each.last_stable_offset, each.end_offset) == (63, 64, 64)
            assert [record.value for record in each.read(63, isolation_level="read_committed")] == [b"last"]


def test_an_index_of_aborted_transactions_goes_with_its_segment(db):
    log, producer = fill(db, count=5), ProducerIdAndEpoch(7, 0)
    for sequence in range(20):
        produce(log, producer, sequence, transactional=True)
        log.append_marker(producer, commit=False, coordinator_epoch=0)
    db._store.checkpoint([log])
    assert len(files(log, ".txnindex")) > 3
    wanted = log.segments[-2].base_offset
    db.delete_records("t", 0, wanted)
    assert set(files(log, ".txnindex")) <= {wanted, log.segments[-1].base_offset}
    assert list(log.read(wanted, isolation_level="read_committed")) == []


def test_a_segment_grows_old_over_restarts(tmp_path, clock):
    """Or a program that is started every day would never seal its one small segment, and so never forget."""
    config = {"segment.ms": 7 * DAY, "retention.ms": 30 * DAY}
    for day in range(60):
        with logdb.open(tmp_path / "db", clock=clock) as db:
            quiet(db).create_topic("t", config=config, if_not_exists=True)
            db.append("t", b"%d" % day)
            db.flush()
            db._store.checkpoint([db.log("t")])
            db._store.writer.retention.enforce()
        clock.now_ms += DAY
    with logdb.open(tmp_path / "db", clock=clock) as db:
        log = db.log("t")
        assert len(log.segments) == 5
        assert log.start_offset == 60 - 32  # what was sealed more than 30 days ago has gone
        assert [record.value for record in log.read(log.start_offset)] == [b"%d" % day for day in range(28, 60)]
