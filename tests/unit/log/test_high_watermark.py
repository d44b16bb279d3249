import os
import threading

import pytest

import logdb
from logdb.errors import (
    Closed,
    CorruptionError,
    FencedLeaderEpoch,
    LogdbError,
    OffsetNotAvailable,
    SyncFailed,
    UnknownLeaderEpoch,
    WriteFailed,
)
from logdb.log import high_watermark, producer_snapshot, truncation
from logdb.store.store import Store
from support.faulty_io import FaultyIO
from support.followers import batches_of, catch_up, open_replica
from support.power_cut import die, quiet
from support.produced import Bare, Sender, values
from support.waiting import until

NOW = 1_700_000_000_000


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path, io):
    with opened(path, io=io) as db:
        db.create_topic("t", config={"segment.bytes": 1_024})
        yield db


@pytest.fixture
def log(db):
    """Twelve records in as many batches, under the epoch 1."""
    log = db.log("t")
    log.begin_epoch(1)
    for number in range(12):
        log.append_many([b"%d" % number])
    return log


def opened(path, **options):
    return open_replica(path, limited=True, linger_ms=60_000, batch_size=200, **options)


def said(path):
    """What the file says."""
    return high_watermark.load(logdb.io.IO(), str(path / "t-0"))


def shown(log):
    return [int(value) for value in values(log)]


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("data", [b"", bytes(15), bytes(16), bytes(17), high_watermark.encode(5)[:-1] + b"\0", high_watermark.encode(-1)])
def test_other_bytes_are_damage(data):
    with pytest.raises(CorruptionError):
        high_watermark.decode(data, "high-watermark")


def test_a_log_on_its_own_has_no_file(path):
    with logdb.open(path) as db:
        db.create_topic("t")
        db.log("t").append_many([b"0"])
    assert not (path / "t-0" / "high-watermark").exists()


def test_a_replica_has_its_file_durably_before_it_takes_a_record(path, db, io):
    log = db.log("t")
    assert said(path) == 0
    calls = [(kind, os.path.basename(where)) for kind, where in io.calls]
    assert calls.index(("fdatasync", "high-watermark")) < len(calls) - 1
    assert log.high_watermark == 0


# ---------------------------------------------------------------- what is shown


def test_nothing_is_shown_until_the_leader_says_what_is_replicated(db, log):
    assert (log.high_watermark, log.end_offset, shown(log)) == (0, 12, [])
    log.move_high_watermark(5, leader_epoch=1)
    assert shown(log) == list(range(5))


@pytest.mark.parametrize("clean", [True, False])
def test_an_opening_shows_what_was_noted(path, db, log, io, clean):
    log.move_high_watermark(5, leader_epoch=1)
    until(lambda: said(path) == 5, "the move is noted")
    log.flush()
    db.close() if clean else die(db)
    with opened(path) as again:
        assert (again.log("t").high_watermark, again.log("t").end_offset) == (5, 12)
        assert shown(again.log("t")) == list(range(5))


def test_a_close_notes_the_last_move(path, db, log):
    quiet(db)
    log.move_high_watermark(7, leader_epoch=1)
    assert said(path) == 0
    db.close()
    assert said(path) == 7


def test_what_was_not_noted_is_shown_once_the_leader_says_so(path, db, log):
    quiet(db)
    log.move_high_watermark(7, leader_epoch=1)
    log.flush()
    die(db)
    with opened(path) as again:
        assert shown(again.log("t")) == []
        again.log("t").move_high_watermark(7, leader_epoch=1)
        assert shown(again.log("t")) == list(range(7))


def test_moves_are_noted_at_a_bounded_rate(db, log, io):
    io.wait_for("pwrite", "high-watermark")
    log.move_high_watermark(1, leader_epoch=1)
    io.wait_for("pwrite", "high-watermark", more_than=1)
    file, now_ms = log.high_watermark_file, io.monotonic_ms()
    assert file.due_ms <= now_ms + high_watermark.NOTE_INTERVAL_MS
    log.move_high_watermark(2, leader_epoch=1)
    assert log.high_watermark_due_ms() == file.due_ms
    assert log.due_ms() is not None


def test_what_is_noted_is_not_written_again(db, log, io):
    quiet(db)
    log.move_high_watermark(3, leader_epoch=1)
    log.note_high_watermark()
    assert log.high_watermark_due_ms() is None
    assert io.count("fdatasync", "high-watermark") == 1  # when it was made


def test_a_log_that_is_shorter_than_its_file_says_takes_it_back_durably(path, db, log, io):
    log.move_high_watermark(9, leader_epoch=1)
    db.close()
    (path / "t-0" / "high-watermark").write_bytes(high_watermark.encode(40))
    before = io.count("fdatasync", "high-watermark")
    with opened(path, io=io) as again:
        assert again.log("t").high_watermark == 12
        assert said(path) == 12
        assert io.count("fdatasync", "high-watermark") == before + 1


def test_a_damaged_file_says_nothing(path, db, log):
    log.move_high_watermark(9, leader_epoch=1)
    db.close()
    (path / "t-0" / "high-watermark").write_bytes(b"x" * 16)
    assert [problem.kind for problem in logdb.verify(path).problems] == ["damaged"]
    with logdb.open(path, mode="r") as reader:
        assert shown(reader.log("t")) == []
    with opened(path) as again:
        assert shown(again.log("t")) == []
        assert "leader moves the high watermark" in again.reports[-1]
    assert logdb.verify(path).ok


def test_the_file_cannot_be_made(path, io):
    with opened(path, io=io) as db:
        db.create_topic("t")
        io.fail("create", path="high-watermark")
        with pytest.raises(WriteFailed):
            db.log("t")
        io.heal()
        assert db.log("t").high_watermark == 0


def test_a_new_leader_promises_what_lies_below_its_epoch(log):
    log.move_high_watermark(5, leader_epoch=1)
    log.begin_epoch(2)
    assert (log.readable_end_offset(), log.ends().promised_offset, log.ends(committed=True).promised_offset) == (5, 12, 12)
    with pytest.raises(OffsetNotAvailable):
        log.check_end_known()
    log.move_high_watermark(12, leader_epoch=2)
    log.check_end_known()
    log.append_many([b"12"])
    assert (log.readable_end_offset(), log.ends().promised_offset) == (12, 12), "what the new epoch adds is not promised"


def test_a_log_that_is_opened_on_its_own_is_shown_to_its_end(path, db, log):
    log.move_high_watermark(5, leader_epoch=1)
    db.close()
    with logdb.open(path) as alone:
        assert shown(alone.log("t")) == list(range(12))
        assert not (path / "t-0" / "high-watermark").exists()


# ---------------------------------------------------------------- readers in other processes


def test_a_tail_reader_follows_the_high_watermark(path, db, log):
    with logdb.open(path, mode="r") as reader:
        tail = reader.log("t")
        assert (tail.end_offset, tail.high_watermark, tail.last_stable_offset, shown(tail)) == (12, 0, 0, [])
        for offset in (4, 9):
            log.move_high_watermark(offset, leader_epoch=1)
            log.note_high_watermark()
            assert (tail.high_watermark, shown(tail)) == (offset, list(range(offset)))
            assert batches_of(tail) == batches_of(log)
        assert tail.read_batches(9)[1] == 9
        assert [record.offset for record in tail.follow(7, timeout_ms=0)] == [7, 8]
        assert tail.offset_for_timestamp(0) == 0


def test_a_tail_reader_waits_for_the_high_watermark(path, db, log):
    with logdb.open(path, mode="r") as reader:
        records = reader.log("t").follow(0)
        log.move_high_watermark(1, leader_epoch=1)
        assert next(records).value == b"0"


def test_a_tail_iterator_that_has_begun_sees_what_is_replicated_later(path, db, log):
    log.move_high_watermark(3, leader_epoch=1)
    log.note_high_watermark()
    with logdb.open(path, mode="r") as reader:
        records = iter(reader.log("t").read(0))
        assert next(records).offset == 0
        log.move_high_watermark(6, leader_epoch=1)
        log.note_high_watermark()
        assert [record.offset for record in records] == [1, 2, 3, 4, 5]


def test_a_tail_reader_learns_that_a_log_became_a_replica(path):
    with logdb.open(path) as db:
        db.create_topic("t")
        db.log("t").append_many([b"0"])
    with logdb.open(path, mode="r") as reader:
        tail = reader.log("t")
        assert shown(tail) == [0]
        with opened(path) as db:
            db.log("t").begin_epoch(9)
            db.log("t").append_many([b"1", b"2"])
            assert (tail.end_offset, tail.high_watermark) == (3, 0)
            db.log("t").move_high_watermark(3, leader_epoch=9)
            db.log("t").note_high_watermark()
            assert shown(tail) == [0, 1, 2]


def test_a_file_that_is_being_written_leaves_what_is_known(path, db, log):
    log.move_high_watermark(3, leader_epoch=1)
    log.note_high_watermark()
    with logdb.open(path, mode="r") as reader:
        tail = reader.log("t")
        assert tail.high_watermark == 3
        (path / "t-0" / "high-watermark").write_bytes(b"torn")
        assert tail.high_watermark == 3


# ---------------------------------------------------------------- a log that is cut off


def test_a_truncation_takes_the_file_back_before_its_commit(path, db, log, monkeypatch):
    log.move_high_watermark(9, leader_epoch=1)
    log.note_high_watermark()
    seen = []
    commit = db._store.writer.truncations._commit
    monkeypatch.setattr(db._store.writer.truncations, "_commit", lambda *given: (seen.append(said(path)), commit(*given)))
    assert db._store.truncate_to("t", 0, 6) == 6
    assert seen == [6] and (log.high_watermark, said(path)) == (6, 6)
    log.begin_epoch(2)
    log.append_many([b"6"])
    assert shown(log) == list(range(6))


def test_a_truncation_that_fails_leaves_the_high_watermark(path, db, log, io, monkeypatch):
    log.move_high_watermark(9, leader_epoch=1)
    log.note_high_watermark()

    def full(*_given):
        raise WriteFailed("catalogue", "for a test")

    monkeypatch.setattr(db._store.writer.truncations, "_commit", full)
    with pytest.raises(WriteFailed):
        db._store.truncate_to("t", 0, 6)
    count = io.count("pwrite", "high-watermark")
    assert shown(log) == list(range(9))
    io.wait_for("pwrite", "high-watermark", more_than=count - 1)
    log.note_high_watermark()
    assert said(path) == 9


@pytest.mark.parametrize("offset", [0, 5, 50])
def test_a_log_that_begins_anew_has_nothing_to_show(path, db, log, offset):
    log.move_high_watermark(9, leader_epoch=1)
    db._store.begin_anew("t", 0, offset)
    assert log.high_watermark == log.start_offset == offset
    log.note_high_watermark()
    assert said(path) == offset


def test_an_opening_finds_no_more_than_a_truncation_has_left(path, db, log):
    log.move_high_watermark(9, leader_epoch=1)
    log.note_high_watermark()
    db._store.truncate_to("t", 0, 6)
    log.begin_epoch(2)
    log.append_many([b"new"] * 6)
    log.flush()
    die(db)
    with opened(path) as again:
        assert (again.log("t").high_watermark, again.log("t").end_offset) == (6, 12)


def test_a_tail_reader_sees_nothing_of_the_new_end_before_it_is_replicated(path, db, log):
    log.move_high_watermark(9, leader_epoch=1)
    log.note_high_watermark()
    with logdb.open(path, mode="r") as reader:
        tail = reader.log("t")
        assert shown(tail) == list(range(9))
        db._store.truncate_to("t", 0, 6)
        log.begin_epoch(2)
        log.append_many([b"66", b"77", b"88"])
        assert (tail.end_offset, tail.high_watermark, shown(tail)) == (9, 6, list(range(6)))


def test_records_that_go_take_the_start_along(path, db, log):
    log.move_high_watermark(9, leader_epoch=1)
    db.delete_records("t", 0, 8)
    db.close()
    with opened(path) as again:
        assert (again.log("t").start_offset, again.log("t").high_watermark) == (8, 9)


# ---------------------------------------------------------------- copies


def test_a_snapshot_and_a_backup_show_what_is_replicated(tmp_path, path, db, log):
    log.move_high_watermark(5, leader_epoch=1)
    db.snapshot(tmp_path / "snapshot")
    db.backup(tmp_path / "backup")
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        assert (shown(snapshot.log("t")), snapshot.log("t").end_offset) == (list(range(5)), 12)
        snapshot.backup(tmp_path / "again")
    for source in ("snapshot", "backup", "again"):
        target = tmp_path / f"from-{source}"
        logdb.restore([tmp_path / source], target)
        assert logdb.verify(target).ok
        with opened(target) as restored:
            assert (restored.log("t").high_watermark, restored.log("t").end_offset) == (5, 12)


def test_a_copy_of_a_log_on_its_own_has_no_file(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"0"])
        db.backup(tmp_path / "backup")
    logdb.restore([tmp_path / "backup"], tmp_path / "restored")
    assert not (tmp_path / "restored" / "t-0" / "high-watermark").exists()


@pytest.mark.parametrize("data", [b"x" * 16, high_watermark.encode(40)])
def test_repair_puts_a_wrong_file_right(path, db, log, data):
    db.close()
    (path / "t-0" / "high-watermark").write_bytes(data)
    assert not logdb.verify(path).ok
    logdb.repair(path, execute=True)
    assert logdb.verify(path).ok
    assert said(path) == (0 if data.startswith(b"x") else 12)


# ---------------------------------------------------------------- commits


class Waiting:
    """A thread in ``commit_to``."""

    def __init__(self, log, offset, **options):
        self.error, self._log, self._options = None, log, options
        self._looked, given = threading.Event(), options.get("go_on", lambda: None)
        options["go_on"] = lambda: (self._looked.set(), given())
        self._thread = threading.Thread(target=self._run, args=(offset,))
        self._thread.start()
        assert self._looked.wait(10)

    def _run(self, offset):
        try:
            self._log.commit_to(offset, **self._options)
        except LogdbError as error:
            self.error = error

    def end(self):
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.error


def test_a_commit_waits_for_the_high_watermark(log):
    waiting = Waiting(log, 6)
    log.move_high_watermark(5, leader_epoch=1)
    assert waiting._thread.is_alive()
    log.move_high_watermark(6, leader_epoch=1)
    assert waiting.end() is None
    log.commit_to(6)


def test_a_commit_ends_with_the_leadership(db, log):
    waiting = Waiting(log, 6)
    log.begin_epoch(2)
    assert isinstance(waiting.end(), FencedLeaderEpoch)
    log.move_high_watermark(12, leader_epoch=2)
    with pytest.raises(FencedLeaderEpoch):
        log.commit_to(6, leader_epoch=1)
    with pytest.raises(UnknownLeaderEpoch):
        log.commit_to(6, leader_epoch=3)
    log.commit_to(6)


def test_a_commit_ends_when_the_log_follows_another_leader(tmp_path, db, log):
    with open_replica(tmp_path / "other") as other:
        other.create_topic("t")
        catch_up(log, other.log("t"))
        other.log("t").begin_epoch(5)
        other.log("t").append_many([b"x"])
        waiting = Waiting(log, 12)
        catch_up(other.log("t"), log)
    assert isinstance(waiting.end(), FencedLeaderEpoch)


def test_a_commit_ends_when_the_records_are_cut_off(db, log):
    log.begin_epoch(2)
    log.append_many([b"12"])
    waiting = Waiting(log, 13)
    db._store.truncate_to("t", 0, 12)
    assert isinstance(waiting.end(), UnknownLeaderEpoch)


def test_a_commit_ends_with_the_log(db, log):
    waiting = Waiting(log, 6)
    db.close()
    assert isinstance(waiting.end(), Closed)


def test_a_commit_ends_with_a_failed_sync(log, io):
    waiting = Waiting(log, 6)
    io.fail("fdatasync", path=".log")
    with pytest.raises(SyncFailed):
        log.flush()
    assert isinstance(waiting.end(), SyncFailed)


def test_a_commit_is_given_up_by_who_waits(log):
    enough = threading.Event()

    def go_on():
        if enough.is_set():
            raise Closed("for a test")

    waiting = Waiting(log, 6, go_on=go_on)
    enough.set()
    log.wake()
    assert isinstance(waiting.end(), Closed)


def test_a_database_that_closes_waits_for_no_replica(path):
    db = opened(path)
    db.create_topic("t")
    consumer, errors = db.consumer(group_id="g"), []

    def commit():
        with pytest.raises(Closed) as caught:
            consumer.commit({("t", 0): 0})
        errors.append(caught.value)

    consumer.assign([("t", 0)])
    thread = threading.Thread(target=commit)
    thread.start()
    while not any(log._watchers for name, log in db._store._state.logs.copy().items() if name.topic != "t"):
        assert thread.is_alive()
    db.close()
    thread.join(10)
    assert len(errors) == 1


def test_a_log_on_its_own_commits_without_replicas(path):
    with Bare(Store.open(path)) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append_many([b"0"])
        log.commit_to(1, leader_epoch=7)


# ---------------------------------------------------------------- producers


def test_a_truncation_replays_no_more_than_a_segment(path, db, monkeypatch):
    log, replayed = db.log("t"), []
    quiet(db)
    sender = Sender(log)
    for number in range(120):
        sender.send(b"%d" % number * 9)
        if number % 5 == 0:
            db._store.checkpoint([log])
    bases = [segment.base_offset for segment in log.segments]
    known = producer_snapshot.offsets(os.listdir(path / "t-0"))
    assert len(bases) > 6 and len(bases) - 1 <= len(known) <= len(bases) + 2
    replay = truncation.replay
    monkeypatch.setattr(truncation, "replay", lambda *given, **named: (replayed.append(given[2:4]), replay(*given, **named)))
    for end in (100, 61, 30):
        assert db._store.truncate_to("t", 0, end) == end
        (start, stop) = replayed.pop()
        assert stop == end and sum(start <= base <= end for base in bases) <= 2
        assert log.producers()[0].batches[-1].last_offset == end - 1
    db.close()
    assert logdb.verify(path).ok


def test_snapshots_of_producers_go_with_their_segments(path, db):
    log, sender = db.log("t"), Sender(db.log("t"))
    for number in range(120):
        sender.send(b"%d" % number * 9)
        if number % 5 == 0:
            db._store.checkpoint([log])
    log.move_high_watermark(100, leader_epoch=log.leader_epoch)
    db.delete_records("t", 0, 90)
    known = producer_snapshot.offsets(os.listdir(path / "t-0"))
    assert known[0] >= log.segments[0].base_offset
