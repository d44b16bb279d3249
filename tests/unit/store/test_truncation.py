"""The end of a log cut off, and a log that begins anew: all that is known of it goes back, here, on the disk and for readers."""

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

import logdb
from logdb.errors import (
    Closed,
    CloseIncomplete,
    CorruptionError,
    DiskFull,
    LogdbError,
    LogTruncated,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ReadOnly,
    SyncFailed,
    UnexpectedOffset,
    UnknownTopic,
    WriteFailed,
)
from logdb.log import recovery_point
from logdb.log.log import Log
from logdb.store import truncation
from support.batches import encode_batch
from support.damage import flip
from support.faulty_io import FaultyIO
from support.followers import align, batches_of, catch_up, open_replica, producers_of
from support.power_cut import die
from support.produced import Sender, batch, committed, values

NOW = 1_700_000_000_000
LEVELS = pytest.mark.parametrize("level", ["os", "interval", "fsync"])
SMALL = {"segment.bytes": 1_024, "index.interval.bytes": 100}


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def db(tmp_path, io):
    with opened(tmp_path / "db", io=io) as database:
        yield database


def opened(path, **options):
    return open_replica(path, **{"linger_ms": 60_000, "clock": lambda: NOW, "batch_size": 200} | options)


def made(db, **config):
    db.create_topic("t", config=config)
    return db.log("t")


def cut(db, offset, **options):
    return db._store.truncate_to("t", 0, offset, **options)


def told(log):
    """Epochs, producers, and transactions that overlap, over some segments; returns the log end after each step."""
    ends = [log.end_offset]
    plain, one, two = (Sender(log, number, transactional=number > 7) for number in (7, 8, 9))
    for round_ in range(4):
        steps = [
            lambda: log.append_many([b"plain %d" % number for number in range(12)]),
            lambda: plain.send(b"p" * 40, b"q"),
            lambda: one.send(b"one" * 20),
            lambda: two.send(b"two" * 20),
            lambda: log.begin_epoch(log.epochs.latest + 2),
            lambda: one.send(b"more of one"),
            lambda: one.end(commit=False),
            lambda: two.send(b"more of two"),
            lambda number=round_: two.end(commit=number % 2 == 0),
        ]
        for step in steps:
            step()
            ends.append(log.end_offset)
        log.flush()
    return sorted(set(ends))


def everything(log):
    """All that a log says of itself, but for when producers sent."""
    return {
        "end": log.end_offset,
        "batches": batches_of(log),
        "values": values(log, log.start_offset),
        "committed": committed(log, log.start_offset),
        "epochs": [entry for entry in log.epochs.entries if entry[1] < log.end_offset],
        "producers": producers_of(log),
        "open": [left._replace(started_ms=0) for left in log.open_transactions()],
        "aborted": log.aborted_transactions(log.start_offset, log.end_offset),
        "stable": log.last_stable_offset,
        "durable": log.view.flushed.offset,
        "timestamp": log.offset_for_timestamp(0),
    }


# ---------------------------------------------------------------- what goes back


@LEVELS
@pytest.mark.parametrize("sealed", [False, True])
def test_a_log_that_is_cut_off_is_as_if_no_more_had_come(tmp_path, level, sealed):
    """At each end; each level has a third of them."""
    with opened(tmp_path / "db", durability=level) as whole:
        ends = told(made(whole, **SMALL))
        images = {end: images_below(whole.log("t"), end) for end in ends}
    for number, end in list(enumerate(ends))[("os", "interval", "fsync").index(level) :: 3]:
        with opened(tmp_path / f"cut-{number}", durability=level) as db, opened(tmp_path / f"short-{number}", durability=level) as short:
            for database, image in ((db, images[ends[-1]]), (short, images[end])):
                made(database, **SMALL)
                if image:
                    database.log("t").follow_append(image)
                database.log("t").flush()
            if sealed:
                db._store.checkpoint([db.log("t")])
            log = db.log("t")
            assert cut(db, end) == end
            assert everything(log) == everything(short.log("t")), end
            assert log.epochs.latest == log.leader_epoch == short.log("t").epochs.latest
        assert logdb.verify(tmp_path / f"cut-{number}").ok
        with opened(tmp_path / f"cut-{number}") as again, opened(tmp_path / f"short-{number}") as short:
            assert everything(again.log("t")) == everything(short.log("t")), end


def images_below(log, end_offset):
    from logdb.codec import convert

    return b"".join(bytes(image) for image, head in convert.headers(memoryview(batches_of(log))) if head.last_offset < end_offset)


def test_within_a_batch_its_begin_counts(db):
    log = made(db)
    log.append_many([b"0", b"1"])
    log.append_many([b"2", b"3", b"4"])
    assert cut(db, 4) == 2
    assert values(log) == [b"0", b"1"]
    assert log.append(b"new") == 2
    assert values(log) == [b"0", b"1", b"new"]


def test_what_waits_goes_too(db):
    log = made(db)
    log.append_many([b"0"])
    log.append(b"waits")
    assert cut(db, 1) == 1
    assert (log.end_offset, values(log)) == (1, [b"0"])


def test_at_the_end_only_epochs_are_forgotten(db):
    log = made(db)
    log.append_many([b"0"])
    log.begin_epoch(5)
    assert cut(db, 1) == 1
    assert log.epochs.entries == ((0, 0),)
    assert log.leader_epoch == 0
    log.begin_epoch(5)
    log.append_many([b"1"])
    assert [record.leader_epoch for record in log.read(0)] == [0, 5]
    assert cut(db, 2) == 2
    assert log.epochs.entries == ((0, 0), (5, 1))


def test_a_log_may_be_cut_to_nothing(tmp_path, db):
    log = made(db, **SMALL)
    told(log)
    assert cut(db, 0) == 0
    assert (log.end_offset, values(log), log.epochs.entries, log.producers()) == (0, [], (), [])
    log.append_many([b"new"])
    assert values(log) == [b"new"]
    db.close()
    with opened(tmp_path / "db") as again:
        assert values(again.log("t")) == [b"new"]
    assert logdb.verify(tmp_path / "db").ok


@pytest.mark.parametrize("offset", [-1, 2, 51])
def test_an_offset_that_the_log_does_not_have_is_refused(db, offset):
    log = made(db)
    log.append_many([b"x"] * 50)
    db.delete_records("t", 0, 3)
    with pytest.raises(OffsetOutOfRange, match=r"holds \[3, 50\)"):
        cut(db, offset)
    assert log.end_offset == 50


def test_where_the_log_starts_within_a_batch_nothing_is_left(tmp_path, db):
    log = made(db)
    log.append_many([b"0", b"1", b"2"])
    db.delete_records("t", 0, 1)
    assert cut(db, 2) == 1
    assert (log.start_offset, log.end_offset, values(log, 1)) == (1, 1, [])
    assert log.append(b"new") == 1
    assert values(log, 1) == [b"new"]
    db.close()
    assert logdb.verify(tmp_path / "db").ok
    with opened(tmp_path / "db") as again:
        assert values(again.log("t"), 1) == [b"new"]


def test_what_is_replicated_stays(db):
    log = made(db)
    log.append_many([b"0"])
    log.append_many([b"1", b"2"])
    with pytest.raises(OffsetOutOfRange):
        cut(db, 1, high_watermark=2)
    with pytest.raises(OffsetOutOfRange):  # the batch begins below it
        cut(db, 2, high_watermark=2)
    assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    assert cut(db, 1, high_watermark=1) == 1


@pytest.mark.parametrize(("moved_to", "left"), [(4, 4), (8, 7)])
def test_the_high_watermark_is_no_further_than_the_log(db, moved_to, left):
    log = made(db)
    for number in range(10):
        log.append_many([b"%d" % number])
    log.move_high_watermark(moved_to, leader_epoch=1)
    cut(db, 7)
    assert log.high_watermark == log.view.high_watermark == left
    db._store.begin_anew("t", 0, 9)
    assert log.view.high_watermark == 9


@pytest.mark.parametrize("found_by", ["a read", "an opening"])
def test_the_segments_of_a_damaged_log_are_set_aside_until_it_has_their_records_again(tmp_path, found_by):
    db = opened(tmp_path / "db")
    log = made(db, **SMALL)
    told(log)
    damaged = max(Path(log.directory).glob("*.log"))
    images, count = {path.name: path.read_bytes() for path in Path(log.directory).glob("*.log")}, log.end_offset
    if found_by == "an opening":
        die(db)
    flip(damaged, 80)
    if found_by == "an opening":
        db = opened(tmp_path / "db")
        log = db.log("t")
    with pytest.raises(CorruptionError):
        everything(log)
    assert damaged.name in log.damage
    db._store.begin_anew("t", 0, 3)
    aside = {path.name.removesuffix(".damaged"): path for path in Path(log.directory).glob("*.damaged")}
    assert {name: path.read_bytes() for name, path in aside.items() if name != damaged.name} == {
        name: image for name, image in images.items() if name != damaged.name
    }
    assert (log.start_offset, log.end_offset, log.damage, log.read_only_reason) == (3, 3, None, None)
    log.append_many([b"again"] * count)
    flip(max(Path(log.directory).glob("*.log")), 80)
    with pytest.raises(CorruptionError):
        everything(log)
    db._store.begin_anew("t", 0, 0)  # what was set aside first has more
    assert aside[damaged.name].stat().st_size == len(images[damaged.name])
    log.append_many([b"new"])
    db.close()
    assert logdb.verify(tmp_path / "db").ok
    with opened(tmp_path / "db") as again:
        assert values(again.log("t")) == [b"new"]
        again._store.remove_damaged("t", 0)
        assert not list(Path(log.directory).glob("*.damaged"))
        assert values(again.log("t")) == [b"new"]


def test_it_goes_on_as_any_log(tmp_path, db):
    log = made(db, **SMALL)
    for _ in range(6):
        end = log.end_offset
        told(log)
        half = (end + log.end_offset) // 2
        assert end <= cut(db, half) <= half
    before = everything(log)
    db.close()
    assert logdb.verify(tmp_path / "db").ok
    with opened(tmp_path / "db") as again:
        assert everything(again.log("t")) == before


@LEVELS
def test_a_kill_after_it_changes_nothing(tmp_path, level):
    db = opened(tmp_path / "db", durability=level)
    log = made(db, **SMALL)
    ends = told(log)
    cut(db, ends[12])
    log.append_many([b"new"] * 5)
    before = everything(log)
    die(db)
    with opened(tmp_path / "db", durability=level) as again:
        after = everything(again.log("t"))
        assert {**after, "durable": 0} == {**before, "durable": 0}
    assert logdb.verify(tmp_path / "db").ok


def test_sidecars_go_with_their_segments(tmp_path, db):
    log = made(db, **SMALL)
    told(log)
    log.roll()
    db._store.checkpoint([log])
    db._store.make_sidecars("t", 0)
    sidecars = {name[:20] for name in os.listdir(log.directory) if name.endswith(".parquet")}
    base = log.segments[2].base_offset
    assert len(sidecars) > 3
    cut(db, base + 1)
    assert {int(name[:20]) for name in os.listdir(log.directory) if name.endswith(".parquet")} == {
        int(name) for name in sidecars if int(name) < base
    }
    db.close()
    assert logdb.verify(tmp_path / "db").ok


def test_what_was_compacted_counts_no_further(tmp_path, db):
    log = made(db, **SMALL, **{"cleanup.policy": "compact"})
    log.append_many([b"value %d" % number for number in range(200)], [b"key %d" % (number % 7) for number in range(200)])
    db.compact("t")
    clean = db._store.clean_offset("t", 0)
    assert clean == 200
    end = cut(db, 90)
    assert db._store.clean_offset("t", 0) == end <= 90
    log.append_many([b"new %d" % number for number in range(100)], [b"key %d" % (number % 7) for number in range(100)])
    db.compact("t")
    assert sorted({record.key: record.value for record in log.read(0)}.values()) == [b"new %d" % number for number in range(93, 100)]
    db.close()
    assert logdb.verify(tmp_path / "db").ok


# ---------------------------------------------------------------- readers


def test_readers_beyond_the_new_end_are_told(db):
    log = made(db, **SMALL)
    log.begin_epoch(1)
    log.append_many([b"x" * 50] * 60)
    begun, late = log.read(0), log.read(50)
    epoch = next(begun).leader_epoch
    following = log.follow(60, timeout_ms=10_000)
    cut(db, 20)
    end = log.end_offset
    for call in (
        lambda: log.read(50),
        lambda: log.read_batches(50),
        lambda: next(log.follow(50)),
        lambda: list(late),
        lambda: next(following),
    ):
        with pytest.raises(OffsetOutOfRange):
            call()
    log.begin_epoch(2)
    log.append_many([b"y" * 50] * 60)
    with pytest.raises(LogTruncated):
        log.read(50, leader_epoch=epoch)
    assert values(log, end) == [b"y" * 50] * 60


def test_who_waits_beyond_the_new_end_is_woken(db):
    log = made(db)
    log.append_many([b"x"] * 10)
    log.append_many([b"x"] * 10)
    found: list[BaseException] = []
    waits = threading.Event()

    class Stop(threading.Event):
        def is_set(self):
            waits.set()
            return super().is_set()

    def follow() -> None:
        try:
            next(log.follow(20, stop=Stop()))
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    waits.wait()
    cut(db, 10)
    log.begin_epoch(7)
    log.append_many([b"y"] * 15)
    thread.join(60)
    assert [type(error) for error in found] in ([OffsetOutOfRange], [LogTruncated])


def test_a_point_read_finds_no_old_record(db):
    log = made(db)
    log.append_many([b"old %d" % number for number in range(100)])
    assert next(log.read(50)).value == b"old 50"
    cut(db, 20)
    end = log.end_offset
    log.append_many([b"new %d" % number for number in range(end, 100)])
    assert next(log.read(50)).value == b"new 50"


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("offset", [0, 13, 40, 59])
def test_a_reader_in_another_process_finds_the_new_end(tmp_path, db, sealed, offset):
    log = made(db, **SMALL)
    for number in range(60):
        log.append_many([b"%d" % number * 20])
    if sealed:
        db._store.checkpoint([log])
    with logdb.open(tmp_path / "db", mode="r") as reader:
        seen = reader.log("t")
        assert values(seen) == values(log)
        cut(db, offset)
        assert seen.end_offset == offset
        assert values(seen) == values(log)
        with pytest.raises(OffsetOutOfRange):
            seen.read(60)
        log.begin_epoch(3)
        for number in range(30):
            log.append_many([b"new %d" % number * 20])
        assert values(seen) == values(log)
        assert [record.leader_epoch for record in seen.read(0)] == [record.leader_epoch for record in log.read(0)]
        if offset < 59:
            with pytest.raises(LogTruncated):
                seen.read(offset + 1, leader_epoch=0)


def test_a_reader_in_another_process_knows_the_producers_again(tmp_path, db):
    log = made(db, **SMALL)
    ends = told(log)
    with logdb.open(tmp_path / "db", mode="r") as reader:
        seen = reader.log("t")
        assert committed(seen) == committed(log)
        for end in reversed(ends[::5]):
            cut(db, end)
            assert committed(seen) == committed(log)
            assert seen.last_stable_offset == log.last_stable_offset
            assert [left[:3] for left in seen.open_transactions()] == [left[:3] for left in log.open_transactions()]


# ---------------------------------------------------------------- beginning anew


@pytest.mark.parametrize("offset", [0, 30, 5_000])
def test_a_log_begins_anew(tmp_path, db, offset):
    log = made(db, **SMALL)
    told(log)
    db._store.checkpoint([log])
    with logdb.open(tmp_path / "db", mode="r") as reader:
        seen = reader.log("t")
        assert values(seen) == values(log)
        db._store.begin_anew("t", 0, offset)
        assert (log.start_offset, log.end_offset, log.epochs.entries, log.producers()) == (offset, offset, (), [])
        assert (seen.start_offset, seen.end_offset) == (offset, offset)
        assert log.follow_append(encode_batch([b"first"], base_offset=offset, leader_epoch=9)) == range(offset, offset + 1)
        assert values(log, offset) == values(seen, offset) == [b"first"]
    db.close()
    assert logdb.verify(tmp_path / "db").ok
    assert not [name for name in os.listdir(tmp_path / "db" / "t-0") if name[:20].isdigit() and int(name[:20]) < offset]
    with opened(tmp_path / "db") as again:
        assert (again.log("t").start_offset, values(again.log("t"), offset)) == (offset, [b"first"])


def test_a_follower_whose_leader_begins_behind_its_end(tmp_path, db):
    with opened(tmp_path / "leader") as other:
        leader = made(other, **SMALL)
        told(leader)
        follower = made(db, **SMALL)
        follower.follow_append(leader.read_batches(0, 300)[0])
        other.delete_records("t", 0, leader.end_offset - 17)
        align(leader, db)
        catch_up(leader, follower)
        assert follower.start_offset <= leader.start_offset
        assert values(follower, leader.start_offset) == values(leader, leader.start_offset)
        db.delete_records("t", 0, leader.start_offset)
        assert batches_of(follower) == batches_of(leader)
        assert committed(follower, follower.start_offset) == committed(leader, leader.start_offset)


# ---------------------------------------------------------------- what goes wrong


def test_a_log_that_is_gone(db):
    made(db)
    with pytest.raises(UnknownTopic):
        db._store.truncate_to("u", 0, 0)
    log = db.log("t")
    db.delete_topic("t")
    with pytest.raises(Closed):
        db._store.writer.truncations.truncate_to(log, 0, 0)


@pytest.mark.parametrize("kind", ["pwrite", "fdatasync"])
def test_an_error_before_the_commit_changes_nothing(tmp_path, io, kind):
    db = opened(tmp_path / "db", io=io)
    log = made(db, **SMALL)
    ends = told(log)
    db._store.checkpoint([log])
    before = everything(log)
    io.fail(kind, path=".cleaned")
    with pytest.raises((WriteFailed, SyncFailed)) as caught:
        cut(db, ends[9])
    io.heal()
    if caught.type is SyncFailed:
        die(db)
    else:
        assert everything(log) == before
        assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
        assert cut(db, ends[9]) == ends[9]
        assert log.append_many([b"new"]) == range(ends[9], ends[9] + 1)
        db.close()
    with opened(tmp_path / "db") as again:
        assert again.log("t").end_offset == (ends[-1] if caught.type is SyncFailed else ends[9] + 1)
    assert logdb.verify(tmp_path / "db").ok


@pytest.mark.parametrize("what", ["rename .cleaned", "unlink .log", "unlink .snapshot", "rename leader-epoch-checkpoint"])
@pytest.mark.parametrize("closed", [False, True])
def test_what_was_committed_is_finished(tmp_path, io, what, closed):
    db = opened(tmp_path / "db", io=io)
    log = made(db, **SMALL)
    ends = told(log)
    db._store.checkpoint([log])
    kind, path = what.split()
    end, calls = ends[5], io.count(kind, path)
    io.fail(kind, path=path)
    with pytest.raises(WriteFailed):
        cut(db, end)
    assert io.count(kind, path) > calls
    io.heal()
    with pytest.raises(ReadOnly, match="a truncation was not finished"):
        log.append(b"x")
    if closed:
        with pytest.raises(CloseIncomplete, match="lost no record"):
            db.close()
    else:
        die(db)
    with opened(tmp_path / "db") as again:
        assert again.log("t").end_offset == end
        assert again.log("t").read_only_reason is None
    assert logdb.verify(tmp_path / "db").ok


def keyed(db, count=200, **config):
    log = made(db, **SMALL, **{"cleanup.policy": "compact"} | config)
    log.append_many(
        [b"value %d" % number for number in range(count)], [b"key %d" % (number % (7 if number % 5 else 1_000)) for number in range(count)]
    )
    log.flush()
    return log


@pytest.mark.parametrize("anew", [False, True])
def test_a_compaction_that_was_committed_is_finished_first(tmp_path, io, anew):
    db = opened(tmp_path / "db", io=io)
    log = keyed(db)
    io.fail("rename", path=".cleaned")
    with pytest.raises(WriteFailed):
        db.compact("t")
    io.heal()
    unnamed = [segment for segment in log.segments if segment.suffix]
    held = {record.offset: record.value for record in log.read(0)}
    if anew:
        db._store.begin_anew("t", 0, 0)
        kept = []
    else:
        end = cut(db, unnamed[-1].next_offset - 1)
        assert unnamed[-1].base_offset < end
        kept = [value for offset, value in held.items() if offset < end]
        assert len(kept) > 0
        assert values(log) == kept
    log.append_many([b"new"] * 3, [b"new"] * 3)
    db._store.writer.finish_interrupted()
    assert values(log) == [*kept, b"new", b"new", b"new"]
    assert not db._store.catalogue.intents()
    db.close()
    assert logdb.verify(tmp_path / "db").ok
    with opened(tmp_path / "db") as again:
        assert values(again.log("t")) == [*kept, b"new", b"new", b"new"]


@pytest.mark.parametrize("lag", [{}, {"max.compaction.lag.ms": 200}])
def test_a_log_whose_truncation_was_interrupted_is_not_compacted(tmp_path, io, lag):
    now = [NOW]
    db = opened(tmp_path / "db", io=io, clock=lambda: now[0])
    log = keyed(db, **{"min.compaction.lag.ms": 100}, **lag)
    db._store.checkpoint([log])
    io.fail("unlink", path=".log")
    with pytest.raises(WriteFailed):
        cut(db, 120)
    io.heal()
    assert log.interrupted
    before = sorted(os.listdir(log.directory))
    now[0] += 1_000
    db._store.writer.cleaner._round()
    assert sorted(os.listdir(log.directory)) == before
    assert [intent.kind for _, intent in db._store.catalogue.intents()] == ["truncate"]
    end = cut(db, 0)
    assert (end, values(log)) == (0, [])
    db.close()
    assert logdb.verify(tmp_path / "db").ok


class Stopped(BaseException):
    """What comes from outside: Ctrl-C, no memory."""


def stop_at(io, kind, path):
    def before(called, where):
        if called == kind and where.endswith(path):
            raise Stopped

    io.before = before


@pytest.mark.parametrize("what", ["rename .log.cleaned", "unlink .log", "fsync_dir t-0"])
def test_what_comes_from_outside_behind_the_commit_interrupts_too(tmp_path, io, what):
    db = opened(tmp_path / "db", io=io)
    log = made(db, **SMALL)
    ends = told(log)
    db._store.checkpoint([log])
    kind, path = what.split()
    change = db._store.writer.entries.change

    def changed(*args):
        change(*args)
        stop_at(io, kind, path)

    db._store.writer.truncations._entries = type("Entries", (), {"get": db._store.writer.entries.get, "change": staticmethod(changed)})()
    with pytest.raises(Stopped):
        cut(db, ends[5])
    io.before = lambda kind, path: None
    db._store.writer.truncations._entries = db._store.writer.entries
    with pytest.raises(ReadOnly, match="a truncation was not finished"):
        log.append(b"x")
    assert cut(db, ends[5]) == ends[5]
    assert log.append_many([b"new"]) == range(ends[5], ends[5] + 1)
    db.close()
    with opened(tmp_path / "db") as again:
        assert again.log("t").end_offset == ends[5] + 1
    assert logdb.verify(tmp_path / "db").ok


@pytest.mark.parametrize("anew", [False, True])
def test_what_comes_from_outside_right_behind_the_commit_interrupts_too(tmp_path, monkeypatch, anew):
    db = opened(tmp_path / "db")
    log = made(db, **SMALL)
    ends = told(log)
    db._store.checkpoint([log])

    def stopped(_log):
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(db._store.writer.truncations, "_finish", stopped)
        with pytest.raises(Stopped):
            db._store.begin_anew("t", 0, 3) if anew else cut(db, ends[5])
    with pytest.raises(ReadOnly, match="a truncation was not finished"):
        log.append(b"x")
    end = 3 if anew else ends[5]
    assert cut(db, end) == end
    assert log.append_many([b"new"]) == range(end, end + 1)
    db.close()
    assert logdb.verify(tmp_path / "db").ok


def test_what_comes_from_outside_before_the_commit_leaves_no_copy(tmp_path, io, db):
    log = made(db, **SMALL)
    ends = told(log)
    db._store.checkpoint([log])
    before = everything(log)
    stop_at(io, "unlink", "recovery-point")
    with pytest.raises(Stopped):
        cut(db, ends[5])
    io.before = lambda kind, path: None
    assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    assert everything(log) == before
    log.append_many([b"new"])


@pytest.mark.parametrize("anew", [False, True])
def test_the_recovery_point_is_noted_on_where_nothing_was_committed(tmp_path, io, monkeypatch, anew):
    db = opened(tmp_path / "db", io=io)
    log = made(db, **SMALL)
    ends = told(log)
    db._store.checkpoint([log])

    def full(*_):
        raise DiskFull("catalogue", 0, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(db._store.writer.entries, "change", full)
        # the checkpoint has nothing to say
        patched.setattr(db._store.writer.checkpoints, "checkpoint_locked", lambda logs: None)
        with pytest.raises(DiskFull):
            if anew:
                db._store.begin_anew("t", 0, 3)
            else:
                patched.setattr(db._store.writer.checkpoints, "checkpoint", lambda logs: None)
                cut(db, ends[5])
    log.append_many([b"new"])
    log.flush()
    assert recovery_point.load(io, os.path.join(log.directory, recovery_point.FILE_NAME)).durable == log.view.flushed
    log.writer.point.file = None  # as after other files were used
    log.append_many([b"new"])
    log.flush()
    db.close()
    with opened(tmp_path / "db") as again:
        assert again.log("t").end_offset == ends[-1] + 2
    assert logdb.verify(tmp_path / "db").ok


def test_a_log_whose_close_has_begun_takes_no_records_behind_a_truncation(tmp_path, io):
    db = opened(tmp_path / "db", io=io)
    log = made(db, **SMALL)
    ends = told(log)
    db._store.checkpoint([log])
    io.fail("unlink", path=".log")
    with pytest.raises(WriteFailed):
        cut(db, ends[5])
    io.heal()
    log.refuse_appends()
    with pytest.raises(LogdbError):
        cut(db, ends[5])
    assert not log.interrupted
    with pytest.raises(LogdbError):
        log.append(b"x")
    db.close()
    with opened(tmp_path / "db") as again:
        assert again.log("t").end_offset == ends[5]


def test_a_log_start_that_may_be_committed_is_not_taken_back(tmp_path, monkeypatch):
    db = opened(tmp_path / "db")
    log = made(db, **SMALL)
    told(log)
    db._store.checkpoint([log])
    change = db._store.writer.entries.change

    def lost(*args):
        change(*args)
        raise SyncFailed("catalogue", "lost")

    with monkeypatch.context() as patched:
        patched.setattr(db._store.writer.checkpoints, "checkpoint_locked", lambda logs: None)
        patched.setattr(db._store.writer.entries, "change", lost)
        with pytest.raises(SyncFailed):
            db._store.begin_anew("t", 0, 5_000)
    with open(os.path.join(log.directory, "topic.json")) as file:
        assert json.load(file)["start_offset"] == 5_000
    die(db)


def cut_before_the_append_lock(monkeypatch, change):
    """Change a log while an append to it has what is known of producers, and waits for the append lock."""

    def waits(method):
        def waited(log, *arguments):
            monkeypatch.undo()
            change()
            return getattr(log, method)(*arguments)

        monkeypatch.setattr(Log, method, waited)

    waits("_append_raw")
    waits("_append_usual")


def assert_known(tmp_path, db):
    db.log("t").flush()
    before = everything(db.log("t"))
    db.close()
    with opened(tmp_path / "db") as again:
        assert everything(again.log("t")) == before
    assert logdb.verify(tmp_path / "db").ok


@pytest.mark.parametrize("expected", [False, True])
def test_an_append_that_waited_is_checked_against_what_is_known_by_then(tmp_path, monkeypatch, expected):
    db = opened(tmp_path / "db")
    log, image = made(db), [batch([b"%d" % number], 7, 0, number) for number in range(3)]
    for number in range(2):
        log.append_batches(image[number])
    log.flush()
    cut_before_the_append_lock(monkeypatch, lambda: cut(db, 1))
    with pytest.raises(UnexpectedOffset if expected else OutOfOrderSequence):
        log.append_batches(image[2], **({"expected_offset": 2} if expected else {}))
    assert log.append_batches(image[1]) == range(1, 2)
    cut_before_the_append_lock(monkeypatch, lambda: cut(db, 1))
    assert log.append_batches(image[1]) == range(1, 2)
    assert_known(tmp_path, db)


def test_a_marker_that_waited_ends_what_is_open_by_then(tmp_path, monkeypatch):
    db = opened(tmp_path / "db")
    log = made(db)
    sender = Sender(log, 8, transactional=True)
    sender.send(b"0")
    log.flush()
    cut_before_the_append_lock(monkeypatch, lambda: cut(db, 0))
    sender.end(commit=False)
    assert log.aborted_transactions(0, log.end_offset) == []
    assert_known(tmp_path, db)


def test_batches_of_a_leader_that_waited_follow_on_what_is_known_by_then(tmp_path, monkeypatch):
    db = opened(tmp_path / "db")
    log = made(db)
    log.follow_append(batch([b"0"], 7, 0, 0))
    log.flush()
    cut_before_the_append_lock(monkeypatch, lambda: db._store.begin_anew("t", 0, 1))
    assert log.follow_append(batch([b"1"], 7, 0, 1, base_offset=1)) == range(1, 2)
    assert [producer[0] for producer in producers_of(log)] == [7]
    assert_known(tmp_path, db)


def test_a_batch_that_is_missing_is_corruption(db, monkeypatch):
    log = made(db)
    log.append_many([b"0"])
    monkeypatch.setattr("logdb.log.truncation.SegmentReader.read", lambda self, size_bytes: None)
    with pytest.raises(CorruptionError, match="no batch at offset 0"):
        cut(db, 0)
    monkeypatch.undo()
    assert values(log) == [b"0"]


def test_a_store_that_is_closing_cuts_off_nothing(db):
    log = made(db)
    log.append_many([b"0"])
    db._store.writer.cleaner.stop()
    with pytest.raises(Closed, match=r"the database is being closed$"):
        cut(db, 0)


def test_a_log_beside_its_writer_is_not_changed(tmp_path, db):
    made(db).append_many([b"0"])
    db.flush()
    with logdb.open(tmp_path / "db", mode="r") as reader:
        log = reader._store.open_log("t", 0)
        for change in (lambda: log.move_high_watermark(0, leader_epoch=1), log.roll):
            with pytest.raises(ReadOnly):
                change()
        assert values(log) == [b"0"]


def test_an_end_below_the_high_watermark_is_not_refused(db):
    log = made(db)
    log.append_many([b"0"])
    log.append_many([b"1"])
    log.move_high_watermark(2, leader_epoch=1)
    assert cut(db, 1) == log.high_watermark == 1


def test_a_copy_that_fails_leaves_what_a_compaction_has_committed(tmp_path, io):
    db = opened(tmp_path / "db", io=io)
    log = keyed(db)
    io.fail("rename", path=".cleaned")
    with pytest.raises(WriteFailed):
        db.compact("t")
    io.heal()
    unnamed = [segment for segment in log.segments if segment.suffix]
    before = values(log)
    io.fail("pwrite", path=".log.cleaned")
    with pytest.raises(WriteFailed):
        cut(db, unnamed[-1].next_offset - 1)
    io.heal()
    die(db)
    with opened(tmp_path / "db") as again:
        assert values(again.log("t")) == before
    assert logdb.verify(tmp_path / "db").ok


# ---------------------------------------------------------------- found by an attack


def test_a_roll_beside_a_truncation_leaves_the_recovery_point_alone(tmp_path, monkeypatch):
    path = tmp_path / "db"
    with open_replica(path) as db:
        db.create_topic("t")
        log = db.log("t")
        log.begin_epoch(1)
        for number in range(30):
            log.append_many([b"%d" % number])
    commit, rolled = truncation.Truncations._commit, []
    with open_replica(path) as db:
        log = db.log("t")

        def rolls_first(self, *arguments):
            thread = threading.Thread(target=lambda: rolled.append(log.roll()))
            thread.start()
            thread.join(10)
            return commit(self, *arguments)

        monkeypatch.setattr(truncation.Truncations, "_commit", rolls_first)
        assert db._store.truncate_to("t", 0, 20) == 20
        assert rolled == [False] and log.read_only_reason is None
        assert log.append_many([b"new"]) == range(20, 21)
        assert log.roll()
    with open_replica(path) as db:
        assert [record.value for record in db.log("t").read(18)] == [b"18", b"19", b"new"]
    assert logdb.verify(path).ok


def test_a_log_that_could_not_begin_anew_knows_its_producers(tmp_path, monkeypatch):
    path = tmp_path / "db"
    with open_replica(path) as db:
        db.create_topic("t")
        log = db.log("t")
        log.begin_epoch(1)
        Sender(log, 7).send(b"a", b"b")
        Sender(log, 9, transactional=True).send(b"open")
        db._store.checkpoint([log])
        before = producers_of(log), log.last_stable_offset
        with monkeypatch.context() as patched:

            def full(self, *arguments):
                raise WriteFailed(str(path), "for a test")

            patched.setattr(truncation.Truncations, "_commit", full)
            with pytest.raises(WriteFailed):
                db._store.begin_anew("t", 0, log.end_offset)
        assert (producers_of(log), log.last_stable_offset) == before
        shutil.copytree(path, tmp_path / "killed")
        db._store.begin_anew("t", 0, 10)
        assert (log.producers(), log.open_transactions(), log.last_stable_offset) == ([], [], 10)
        Sender(log, 9).send(b"c")
    with open_replica(tmp_path / "killed") as db:
        assert (producers_of(db.log("t")), db.log("t").last_stable_offset) == before
    with open_replica(path) as db:
        assert [producer.producer_id for producer in db.log("t").producers()] == [9]
    assert logdb.verify(path).ok
