import errno
import logging
import os
import threading
from math import inf

import pytest

import logdb
from logdb import errors
from logdb.codec.compaction import KeyMap
from logdb.log.cleaner import Cleanable, cleanable
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.store.cleaner import Due
from support.batches import encode_batch
from support.faulty_io import WAIT_S, FaultyIO
from support.keyed import Keyed, Row
from support.power_cut import die, quiet

DAY = 86_400_000
NOW = 1_700_000_000_000
SMALL = {"cleanup.policy": "compact", "segment.bytes": 2_000, "index.interval.bytes": 100, "delete.retention.ms": DAY}


class Clock:
    now_ms = NOW

    def __call__(self):
        return self.now_ms


class Kept:
    """A database with a compacted topic ``t``, and what was appended to it."""

    def __init__(self, path, io=None, **config):
        self.path, self.io, self.clock, self.keyed = str(path), io, Clock(), Keyed()
        self.open()
        self.db.create_topic("t", config=SMALL | config)

    def open(self):
        self.db = quiet(logdb.open(self.path, batch_size=300, io=self.io, clock=self.clock))

    def reopen(self):
        self.db.close()
        self.open()

    @property
    def log(self):
        return self.db._store.open_log("t", 0)  # not through the broker, which would end the transactions of a test

    @property
    def cleaner(self):
        return self.db._store.writer.cleaner

    def fill(self, count=60, keys=12, size=3):
        self.keyed.append(self.log, count, keys, size)
        self.log.flush()

    def seal(self):
        self.log.roll()
        self.db._store.checkpoint([self.log])

    def compact(self):
        self.db.compact("t")
        return self.keyed.check(self.log)

    def names(self):
        return sorted(os.listdir(self.log.directory))

    def entry(self):
        return self.db._store.writer.entry(TopicPartition("t", 0))

    def due(self):
        return {found.name.topic for found in self.cleaner._due()}


@pytest.fixture
def kept(tmp_path):
    made = Kept(tmp_path / "db")
    yield made
    made.db.close()
    assert logdb.verify(made.path).ok


# ---------------------------------------------------------------- what is left


def test_the_latest_record_of_each_key_is_left_where_it_was(kept):
    kept.fill(200)
    end = kept.log.end_offset
    assert kept.compact() <= 12
    assert (kept.log.end_offset, kept.log.start_offset) == (end, 0)
    kept.fill(30)
    kept.reopen()
    kept.keyed.check(kept.log)


def test_reading_finds_its_way_from_every_offset(kept):
    kept.fill(150)
    kept.compact()
    left = [(record.offset, record.value) for record in kept.log.read(0)]
    for offset in range(kept.log.end_offset + 1):
        expected = [row for row in left if row[0] >= offset]
        assert [(record.offset, record.value) for record in kept.log.read(offset)] == expected
        assert next(((record.offset, record.value) for record in kept.log.read(offset)), None) == next(iter(expected), None)
    batches, at = [], 0
    while at < kept.log.end_offset:
        view, following = kept.log.read_batches(at, 500)
        batches.append(bytes(view))
        assert following > at
        at = following
    assert at == kept.log.end_offset


def test_times_are_found_among_what_is_left(kept):
    for minute in range(100):
        kept.log.append(b"%d" % minute, b"key %d" % (minute % 7), timestamp_ms=NOW + minute * 30_000)
    kept.db.compact("t")
    left = [(record.offset, record.timestamp_ms) for record in kept.log.read(0)]
    for minute in range(100):
        wanted = next((offset for offset, time in left if time >= NOW + minute * 30_000), None)
        assert kept.log.offset_for_timestamp(NOW + minute * 30_000) == wanted


def test_what_is_left_is_merged_into_fewer_segments(kept):
    kept.fill(600)
    kept.compact()
    before = len(kept.log.segments)
    kept.fill(20)
    kept.compact()
    assert len(kept.log.segments) < before
    assert all(segment.size_bytes <= 2_000 for segment in kept.log.segments)
    assert [name for name in kept.names() if name.endswith(".cleaned")] == []
    bases = {f"{segment.base_offset:020d}" for segment in kept.log.segments}
    assert {name[:20] for name in kept.names() if name.endswith((".log", "index"))} == bases


def test_a_pass_that_changes_nothing_replaces_nothing(kept):
    kept.fill(100)
    kept.compact()
    kept.compact()
    kept.compact()
    generation, files = kept.entry().generation, [segment.file_id for segment in kept.log.segments]
    kept.compact()
    assert kept.entry().generation == generation
    assert [segment.file_id for segment in kept.log.segments] == files


def test_tombstones_go_after_their_time_without_anything_new(kept):
    kept.fill(200)
    with_tombstones = kept.compact()
    assert any(record.value is None for record in kept.log.read(0))
    assert not kept.due()
    kept.clock.now_ms += DAY
    assert kept.due() == {"t"}
    kept.cleaner._round()
    assert kept.keyed.check(kept.log) < with_tombstones
    assert not any(record.value is None for record in kept.log.read(0))
    assert not kept.due()
    assert kept.entry().delete_horizon_ms is None


def test_keys_that_do_not_fit_wait_for_the_next_pass(kept):
    kept.fill(900, keys=400)
    kept.cleaner.key_map_size_bytes = 8_192
    kept.seal()
    kept.cleaner._round()
    first = kept.entry().clean_offset
    assert 0 < first < kept.log.segments[-1].base_offset
    kept.keyed.check(kept.log)
    assert len(list(kept.log.read(0))) == len({record.key for record in kept.log.read(0)}) or kept.due()
    kept.compact()
    assert kept.entry().clean_offset == kept.log.end_offset
    records = [record.key for record in kept.log.read(0)]
    assert len(records) == len(set(records))


def test_a_batch_with_more_keys_than_the_map_holds_gets_a_larger_map(kept):
    kept.cleaner.key_map_size_bytes = 256
    kept.fill(40, keys=1_000)
    kept.db.create_topic("one", config=SMALL)
    log = kept.db.log("one")
    log.append_batches(encode_batch([(b"key %d" % (n % 50), b"v") for n in range(100)]))
    kept.db.compact("one")
    assert len(list(log.read(0))) == 50
    kept.compact()


def test_colliding_hashes_lose_nothing(kept, monkeypatch):
    monkeypatch.setattr("logdb.log.cleaner.KeyMap", lambda *args, **options: KeyMap(*args, **options, hash_mask=1))
    kept.fill(500, keys=90)
    kept.compact()
    records = [record.key for record in kept.log.read(0)]
    assert len(records) == len(set(records)) > 80


# ---------------------------------------------------------------- producers and transactions


def test_aborted_records_and_then_their_marker_go(kept):
    kept.fill(20)
    kept.keyed.transact(kept.log, 1, 4, 12, commit=False)
    kept.keyed.transact(kept.log, 2, 4, 12, commit=True)
    kept.keyed.transact(kept.log, 3, 4, 12, commit=False, epoch=1)
    aborted = {offset for offset, row in enumerate(kept.keyed.rows) if row.transaction in (1, 3)}
    kept.fill(60)
    kept.compact()
    assert not aborted & {record.offset for record in kept.log.read(0)}
    assert {entry.producer_id for entry in kept.log.aborted_transactions(0, kept.log.end_offset)} == {1, 3}
    kept.clock.now_ms += 2 * DAY  # the producers have expired
    for _ in range(2):
        kept.fill(1)
        kept.compact()
    assert kept.entry().delete_horizon_ms == kept.clock.now_ms + DAY
    assert len(kept.log.aborted_transactions(0, kept.log.end_offset)) == 2
    kept.clock.now_ms += DAY
    kept.reopen()
    kept.compact()
    assert kept.log.aborted_transactions(0, kept.log.end_offset) == []
    assert not any(name.endswith(".txnindex") for name in kept.names())


def test_an_open_transaction_is_not_touched(kept):
    kept.fill(40)
    kept.keyed.transact(kept.log, 1, 3, 12, commit=None)
    begun = kept.log.last_stable_offset
    kept.fill(100)
    kept.compact()
    assert kept.entry().clean_offset <= begun
    assert {record.offset for record in kept.log.read(begun)} == set(range(begun, kept.log.end_offset))
    kept.keyed.end(kept.log, 1, commit=False)
    kept.compact()
    assert kept.entry().clean_offset == kept.log.end_offset


def test_sequences_survive_with_nothing_else_of_the_producer(kept):
    batch = bytearray(encode_batch([(b"key 1", b"old")], producer_id=5, producer_epoch=0, base_sequence=0))
    assert kept.log.append_batches(batch) == range(1)
    assert kept.log.append_batches(encode_batch([(b"key 1", b"new")])) == range(1, 2)
    kept.db.compact("t")
    assert [record.value for record in kept.log.read(0)] == [b"new"]
    kept.db.close()
    for name in os.listdir(kept.path + "/t-0"):
        if name.endswith(".snapshot"):
            os.unlink(os.path.join(kept.path, "t-0", name))
    kept.open()
    assert kept.log.append_batches(batch) == range(1)
    with pytest.raises(errors.OutOfOrderSequence):
        kept.log.append_batches(encode_batch([(b"key 1", b"gap")], producer_id=5, producer_epoch=0, base_sequence=2))


def test_the_epoch_of_a_marker_survives(kept):
    kept.keyed.transact(kept.log, 1, 2, 3, commit=None)
    kept.keyed.ended[1] = len(kept.keyed.rows), True
    kept.keyed.rows.append(kept.keyed.rows[0]._replace(key=None, value=None, transaction=None))
    kept.log.append_marker(ProducerIdAndEpoch(1, 4), commit=True, coordinator_epoch=0)
    kept.fill(50)
    for _ in range(3):
        kept.compact()
        kept.clock.now_ms += DAY // 4  # a day without a word, and it is forgotten
    kept.reopen()
    with pytest.raises(errors.ProducerFenced):
        kept.log.append_batches(encode_batch([(b"k", b"v")], producer_id=1, producer_epoch=3, base_sequence=0))


def test_a_snapshot_may_know_a_producer_whose_last_batch_went(kept):
    kept.keyed.transact(kept.log, 1, 1, 1, commit=True)
    kept.fill(20, keys=1)
    kept.compact()
    assert kept.log.producers()
    kept.clock.now_ms += 2 * DAY
    kept.log.append_many([b"x"] * 2, [b"key 0"] * 2)
    kept.keyed.rows += [Row(b"key 0", b"x")] * 2
    kept.log.roll()
    kept.cleaner._pass(TopicPartition("t", 0), kept.log)  # before a checkpoint makes a new snapshot
    assert not kept.log.producers()
    kept.keyed.check(kept.log)
    assert logdb.verify(kept.path).ok


# ---------------------------------------------------------------- which log, and when


def sealed(*sizes, step=10, times=None, append_ms=0):
    """Stand-ins for sealed segments of so many bytes, ``step`` offsets each."""
    times = times or [0] * len(sizes)
    kind = type("Sealed", (), {})
    made = []
    for slot, (size, time) in enumerate(zip(sizes, times, strict=True)):
        one = kind()
        one.size_bytes, one.next_offset, one.max_timestamp, one.append_ms = size, (slot + 1) * step, time, append_ms
        made.append(one)
    return made


def test_what_is_dirty_begins_at_the_clean_offset_and_ends_at_the_limit():
    found = cleanable(sealed(100, 200, 300, 400), clean_offset=10, limit_offset=35, now_ms=0, min_lag_ms=0)
    assert [segment.size_bytes for segment in found.segments] == [100, 200, 300]
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (100, 500, 500 / 600)
    assert Cleanable(segments=(), clean_offset=0, clean_bytes=0, dirty_bytes=0).dirty_ratio == 0


def test_young_segments_wait_unless_they_were_compacted_before():
    segments = sealed(100, 200, 300, times=[900, 950, 100])
    assert len(cleanable(segments, clean_offset=0, limit_offset=99, now_ms=1_000, min_lag_ms=50).segments) == 3
    assert len(cleanable(segments, clean_offset=0, limit_offset=99, now_ms=1_000, min_lag_ms=60).segments) == 1
    assert len(cleanable(segments, clean_offset=20, limit_offset=99, now_ms=1_000, min_lag_ms=60).segments) == 3


def test_records_without_timestamps_are_as_old_as_the_last_append():
    segments = sealed(100, 200, times=[-1, -1], append_ms=950)
    assert len(cleanable(segments, clean_offset=0, limit_offset=99, now_ms=1_000, min_lag_ms=60).segments) == 0
    assert len(cleanable(segments, clean_offset=0, limit_offset=99, now_ms=1_000, min_lag_ms=50).segments) == 2


def test_the_dirtiest_log_is_first(kept, monkeypatch):
    done = []
    monkeypatch.setattr(kept.cleaner, "_pass", lambda name, log, throttled: done.append(name.topic))
    for topic, share in (("some", 3), ("most", 8), ("few", 1)):
        kept.db.create_topic(topic, config=SMALL | {"min.cleanable.dirty.ratio": 0.2})
        log = kept.db.log(topic)
        log.append_many([b"x" * 180] * 100, [b"k"] * 100)
        log.flush()
        log.roll()
        kept.db._store.checkpoint([log])
        kept.db._store.writer.cleaned(log, 100 - share * 10, None)
    kept.cleaner._round()
    assert done == ["most", "some"]
    assert max(Due(0.1, TopicPartition("z", 0)), Due(0.2, TopicPartition("a", 0))).name.topic == "a"


def test_a_log_is_due_by_its_dirty_ratio(kept):
    kept.fill(200)
    kept.seal()
    assert kept.due() == {"t"}
    kept.cleaner._round()
    assert not kept.due()
    kept.db.alter_topic("t", config={"min.cleanable.dirty.ratio": 0.99})
    kept.fill(30)
    kept.seal()
    assert not kept.due()


def test_a_record_that_lags_too_much_makes_a_log_due_and_seals_its_segment(kept):
    kept.db.alter_topic("t", config={"min.cleanable.dirty.ratio": 1, "max.compaction.lag.ms": 1_000})
    kept.fill(10)
    assert len(kept.log.segments) == 1
    assert not kept.due()
    kept.clock.now_ms += 2_000
    assert kept.due() == {"t"}
    assert len(kept.log.segments) == 2
    kept.cleaner._round()
    assert not kept.due()


def test_the_lag_of_a_record_without_a_timestamp_counts_from_its_append(kept):
    kept.db.alter_topic("t", config={"min.cleanable.dirty.ratio": 1, "max.compaction.lag.ms": 1_000})
    kept.log.append(b"v", b"k", timestamp_ms=-62_135_596_800_000)
    kept.log.flush()
    assert not kept.due()
    assert len(kept.log.segments) == 1
    kept.clock.now_ms += 2_000
    assert kept.due() == {"t"}


def test_the_background_sleeps_until_something_may_be_due(kept):
    """A segment that is sealed says so itself; so what counts is time alone."""
    assert kept.cleaner._round() == inf
    kept.log.append_many([b"v"] * 60, [b"k"] * 60)
    kept.seal()
    assert kept.cleaner._round() is None, "it was compacted; perhaps there is more"
    assert kept.cleaner._round() == inf
    kept.log.append(None, b"gone")  # a tombstone
    kept.db.compact("t")
    (horizon_ms,) = [kept.entry().delete_horizon_ms]
    assert kept.cleaner._round() == 3_600_000, "the clock may be set before"
    kept.clock.now_ms = horizon_ms - 1_000
    assert kept.cleaner._round() == 1_000
    kept.clock.now_ms = horizon_ms
    assert kept.cleaner._round() is None
    assert kept.cleaner._round() == inf


@pytest.mark.parametrize(("config", "rest_ms"), [("min.compaction.lag.ms", 15_000), ("max.compaction.lag.ms", 40_000)])
def test_the_background_looks_again_at_records_that_are_too_young(kept, config, rest_ms):
    kept.db.alter_topic("t", config={config: 60_000, "min.cleanable.dirty.ratio": 1.0})
    kept.fill(60)
    kept.seal()
    first_ms = kept.log.segments[0].first_timestamp()
    kept.clock.now_ms = first_ms + 20_001
    assert kept.cleaner._round() == rest_ms
    kept.clock.now_ms = first_ms + 60_001
    assert kept.cleaner._round() is None or config.startswith("min")


def test_young_records_wait_for_the_lag(kept):
    kept.db.alter_topic("t", config={"min.compaction.lag.ms": 60_000})
    kept.fill(200)
    kept.compact()
    assert len(list(kept.log.read(0))) == 200
    kept.clock.now_ms += 61_000
    assert kept.compact() <= 12


def test_a_restart_goes_on_where_it_was(kept):
    kept.fill(200)
    kept.compact()
    clean = kept.entry().clean_offset
    kept.reopen()
    assert kept.entry().clean_offset == clean == 200
    assert not kept.due()


def test_the_thread_begins_with_the_first_compacted_topic(tmp_path):
    def running():
        return {thread.name for thread in threading.enumerate()} & {"logdb-cleaner"}

    with logdb.open(tmp_path) as db:
        db.create_topic("plain")
        assert not running()
        db.create_topic("kv", config={"cleanup.policy": "compact"})
        assert running()
    assert not running()
    with logdb.open(tmp_path):
        assert running()
    assert not running()


def test_in_the_background(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path, io=io) as db:
        db.create_topic("t", config=SMALL)
        log = db.log("t")
        log.append_many([b"x" * 100] * 200, [b"k"] * 200)
        log.flush()
        log.roll()
        db._store.checkpoint([log])
        before = log.size_bytes
        db._store.writer.cleaner.hasten()
        io.wait_for("rename", ".timeindex.cleaned", more_than=0)
        db.compact("t")  # waits until the background is through
        assert log.size_bytes < before / 4


def test_the_background_keeps_to_its_share_of_the_disk(kept, monkeypatch):
    kept.fill(400)
    kept.seal()
    size, pauses = kept.log.size_bytes, []
    kept.cleaner._bytes_per_second = 1_000_000
    monkeypatch.setattr(kept.cleaner.background, "pause", pauses.append)
    kept.cleaner._round()
    assert sum(pauses) >= 1000 * 2 * size / 1_000_000  # read for the keys, and again for the copy
    del pauses[:]
    kept.fill(400)
    kept.compact()
    assert not pauses


# ---------------------------------------------------------------- what goes wrong


def test_only_compacted_topics_are_compacted(kept):
    kept.db.create_topic("plain")
    with pytest.raises(errors.PolicyViolation, match="'plain' cannot be compacted"):
        kept.db.compact("plain")
    with pytest.raises(errors.UnknownTopic):
        kept.db.compact("none")
    with pytest.raises(errors.UnknownPartition):
        kept.db.compact("t", 1)


def test_a_reader_may_not_compact(kept):
    kept.fill(10)
    with logdb.open(kept.path, mode="r") as db, pytest.raises(errors.ReadOnly):
        db.compact("t")


def test_a_damaged_log_is_reported_once_and_left_out(kept, caplog):
    kept.fill(300)
    kept.seal()
    kept.db.create_topic("good", config=SMALL)
    good = kept.db.log("good")
    good.append_many([b"x" * 100] * 100, [b"k"] * 100)
    good.flush()
    good.roll()
    kept.db._store.checkpoint([good])
    path = kept.log.segments[2].path
    with open(path, "r+b") as file:
        file.seek(150)
        byte = file.read(1)
        file.seek(150)
        file.write(bytes([byte[0] ^ 1]))
    before = kept.log.size_bytes
    with caplog.at_level(logging.ERROR):
        kept.cleaner._round()
        kept.cleaner._round()
    assert [record.message for record in caplog.records if "compacting t-0" in record.message and path in record.message]
    assert len(caplog.records) == 1
    assert list(kept.cleaner.uncleanable) == [TopicPartition("t", 0)]
    assert kept.log.size_bytes == before
    assert good.size_bytes < 1_000
    with pytest.raises(errors.CorruptionError):
        kept.db.compact("t")
    with open(path, "r+b") as file:
        file.seek(150)
        file.write(byte)
    kept.compact()


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io)
    kept.fill(300)
    kept.seal()
    before, names = kept.log.segments, kept.names()
    for room in (0, 60, 200, 400):
        io.room = room
        with pytest.raises(errors.DiskFull):
            kept.db.compact("t")
        io.heal()
        swapped = [segment for segment in before if segment not in kept.log.segments]
        assert not any(name.endswith(".cleaned") for name in kept.names())
        assert swapped or kept.names() == names
        kept.keyed.check(kept.log)
    kept.compact()
    assert len(list(kept.log.read(0))) <= 12
    kept.db.close()
    assert logdb.verify(kept.path).ok


def test_a_full_disk_is_reported_once_and_tried_again(tmp_path, caplog):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io)
    kept.fill(300)
    kept.seal()
    io.room = 0
    for _ in range(3):
        kept.cleaner._round()
    assert len([record for record in caplog.records if "compacting t-0: no room" in record.message]) == 1
    io.heal()
    kept.cleaner._round()
    assert kept.keyed.check(kept.log) <= 12
    kept.db.close()


@pytest.mark.parametrize("call", ["rename", "unlink", "fsync_dir"])
def test_a_swap_that_was_cut_short_is_finished_by_the_next(tmp_path, call):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io)
    kept.fill(600)
    kept.compact()
    kept.fill(300)
    io.before = lambda kind, path: io.fail(call, errno.EIO, "t-0") if kind == "rename" and path.endswith(".cleaned") else None
    with pytest.raises((errors.WriteFailed, errors.SyncFailed)):
        kept.db.compact("t")
    io.before = lambda kind, path: None
    kept.keyed.check(kept.log)
    io.heal()
    if call != "fsync_dir":  # after a failed sync nothing is written any more
        kept.compact()
        assert not kept.db._store.catalogue.intents()
        kept.fill(10)
        kept.db.close()
    else:
        with pytest.raises(errors.SyncFailed):
            kept.db.compact("t")
        kept.db.close()
    kept.open()
    kept.keyed.check(kept.log)
    assert not kept.db._store.catalogue.intents()
    kept.db.close()
    assert logdb.verify(kept.path).ok


def test_repair_finishes_a_swap_before_it_looks(tmp_path):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io)
    kept.db.create_topic("other", config=SMALL)
    other = kept.db.log("other")
    other.append_many([b"x" * 100] * 100, [b"%d" % n for n in range(100)])
    other.flush()
    kept.fill(600)
    kept.compact()
    kept.fill(100)
    io.fail("rename", errno.EIO, ".index.cleaned")
    with pytest.raises(errors.WriteFailed):
        kept.db.compact("t")
    damaged = [other.segments[1].path, kept.log.segments[-2].path]
    die(kept.db)
    assert logdb.verify(kept.path).ok
    for path in damaged:
        with open(path, "r+b") as file:
            file.seek(70)
            file.write(b"\xff\xff\xff")
    planned = logdb.repair(kept.path)
    assert not planned.ok
    assert any("a pending replacement of compacted segments is finished first" in action for action in planned.actions)
    logdb.repair(kept.path, execute=True)
    assert logdb.verify(kept.path).ok
    kept.io = None
    kept.open()
    lost = {record.offset for record in kept.log.read(0)} ^ set(range(kept.log.end_offset))
    assert lost
    assert all((record.key, record.value) == kept.keyed.rows[record.offset][:2] for record in kept.log.read(0))
    kept.db.close()
    assert logdb.verify(kept.path).ok


def test_a_copy_that_grows_too_large_becomes_two(tmp_path, monkeypatch):
    monkeypatch.setattr("logdb.log.cleaner.SEGMENT_SIZE_BYTES_MAX", 1_200)
    kept = Kept(tmp_path / "db", **{"segment.bytes": 8_000})
    log = kept.log
    for first in range(0, 60, 3):
        rows = [(b"key %d" % n, None) for n in range(first, first + 3)]
        kept.keyed.rows += [Row(*row) for row in rows]
        log.append_many([None] * 3, [key for key, _ in rows], timestamps_ms=[NOW - 10**9] * 3)
        if first % 15 == 0:
            kept.seal()
    kept.compact()
    sealed = log.segments[:-1]
    assert len(sealed) > 1 and all(segment.size_bytes <= 1_200 for segment in sealed)
    assert [segment.next_offset for segment in sealed[:-1]] == [segment.base_offset for segment in sealed[1:]]
    kept.db.close()
    assert logdb.verify(kept.path).ok


def test_a_topic_deleted_meanwhile_stops_its_compaction(tmp_path):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io)
    kept.fill(300)
    deleted = []

    def delete(kind, path):
        if kind == "create" and path.endswith(".cleaned") and not deleted:
            deleted.append(path)
            kept.db.delete_topic("t")

    io.before = delete
    with pytest.raises((errors.UnknownTopic, errors.Closed, errors.WriteFailed)):
        kept.db.compact("t")
    assert deleted
    kept.db.create_topic("t", config=SMALL)
    kept.keyed = Keyed(1)
    kept.fill(100)
    kept.compact()
    kept.db.close()
    assert logdb.verify(kept.path).ok


def test_closing_ends_a_compaction(tmp_path):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io)
    kept.fill(300)
    reached, go, raised = threading.Event(), threading.Event(), []

    def hold(kind, path):
        if kind == "create" and path.endswith(".log.cleaned"):
            reached.set()
            assert go.wait(WAIT_S)

    def compact():
        try:
            kept.db.compact("t")
        except errors.Closed as error:
            raised.append(error)

    io.before = hold
    thread = threading.Thread(target=compact)
    thread.start()
    assert reached.wait(WAIT_S)
    closing = threading.Thread(target=kept.db.close)
    closing.start()
    while not kept.cleaner._stopping:
        pass
    go.set()
    closing.join(WAIT_S)
    thread.join(WAIT_S)
    assert len(raised) == 1
    kept.open()
    kept.compact()
    kept.db.close()
    assert logdb.verify(kept.path).ok


def test_retention_and_compaction_together(kept):
    kept.db.alter_topic("t", config={"cleanup.policy": "compact,delete", "retention.ms": 10 * DAY})
    kept.fill(300)
    kept.compact()
    kept.clock.now_ms += 11 * DAY
    kept.fill(100)
    kept.seal()
    kept.db._store.writer.retention.enforce()
    start = kept.log.start_offset
    assert start == 300
    kept.db.compact("t")
    found = {record.key: record.value for record in kept.log.read(start)}
    expected = dict(kept.keyed.rows[offset][:2] for offset in range(start, 400))
    assert {key: value for key, value in found.items() if value} == {key: value for key, value in expected.items() if value}


def test_segments_that_retention_removes_meanwhile_end_the_pass(tmp_path):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io, **{"cleanup.policy": "compact,delete"})
    kept.fill(300)
    moved = []

    def delete(kind, path):
        if kind == "create" and path.endswith(".log.cleaned") and not moved:
            moved.append(path)
            kept.db.delete_records("t", 0, 150)

    io.before = delete
    kept.db.compact("t")
    assert moved and kept.log.start_offset == 150
    assert not any(name.endswith(".cleaned") for name in kept.names())
    kept.db.compact("t")
    kept.db.close()
    assert logdb.verify(kept.path).ok


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_segment_that_is_deleted_before_it_is_opened_ends_the_pass(tmp_path, nth):
    io = FaultyIO()
    kept = Kept(tmp_path / "db", io, **{"cleanup.policy": "compact,delete"})
    kept.fill(300)
    kept.reopen()  # so that its files are not open
    log, opened = kept.log, []

    def delete(kind, path):
        if kind == "open" and path.endswith(".log"):
            opened.append(path)
            if len(opened) == nth:
                kept.db.delete_records("t", 0, 250)

    io.before = delete
    kept.db.compact("t")
    io.before = lambda kind, path: None
    assert log.start_offset == 250 and any(not os.path.exists(path) for path in opened)
    kept.db.compact("t")
    assert kept.cleaner.uncleanable == {}
    kept.db.close()
    assert logdb.verify(kept.path).ok


def test_a_log_that_cannot_be_read_keeps_no_other_waiting(tmp_path):
    kept = Kept(tmp_path / "db", **{"max.compaction.lag.ms": 1_000})
    kept.db.create_topic("u", config=SMALL)
    kept.fill(300)
    Keyed().append(kept.db._store.open_log("u", 0), 300, 12, 3)
    kept.reopen()
    os.unlink(os.path.join(kept.log.directory, next(name for name in kept.names() if name.endswith(".log"))))
    assert kept.due() == {"u"}
    kept.db.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_file_that_is_missing_without_that_is_reported(tmp_path, is_clean):
    """Of a clean segment the index is looked at first, of a dirty one the keys."""
    kept = Kept(tmp_path / "db", **{"cleanup.policy": "compact,delete"})
    kept.fill(10)
    kept.db.compact("t")
    for _ in range(3):
        kept.fill(5)
        kept.seal()
    kept.reopen()
    clean_offset, segments = kept.entry().clean_offset, kept.log.segments
    assert segments[0].next_offset <= clean_offset < segments[-2].base_offset
    missing = segments[0 if is_clean else -2]
    os.unlink(missing.path)
    with pytest.raises(errors.CorruptionError) as found:
        kept.db.compact("t")
    assert (found.value.path, found.value.reason) == (missing.path, "the file is missing")
    kept.db.close()
