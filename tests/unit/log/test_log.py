import pathlib
import re
from errno import ENOSPC

import pytest

import logdb
from logdb.errors import DiskFull, UnexpectedOffset
from logdb.segment.segment import Segment
from support.batches import BASE_TIMESTAMP, Rec, encode_log
from support.clock import StillIO
from support.faulty_io import FaultyIO
from support.places import opened

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def db(place, tmp_path, io):
    with opened(place, tmp_path / "db", io=io, linger_ms=60_000) as database:
        yield database


def made(db, **config):
    db.create_topic("t", config={key.replace("_", "."): value for key, value in config.items()})
    return db.log("t")


def values(log, offset=0, **options):
    return [record.value for record in log.read(offset, **options)]


def test_append_and_read(db):
    log = made(db)
    assert log.append(b"a", b"k", headers=[("h", b"v"), ("n", None)], timestamp_ms=123) == 0
    assert log.append(None) == 1
    assert log.append_many([b"c", bytearray(b"d"), memoryview(b"e")], keys=[b"1", None, b"3"], timestamps_ms=[5, 6, 7]) == range(2, 5)
    first, *rest = log.read(0)
    assert (first.offset, first.key, first.value, first.timestamp_ms) == (0, b"k", b"a", 123)
    assert first.headers == (("h", b"v"), ("n", None))
    assert (first.topic, first.partition, first.leader_epoch) == ("t", 0, 0)
    assert [(record.value, record.key) for record in rest] == [(None, None), (b"c", b"1"), (b"d", None), (b"e", b"3")]
    assert [record.timestamp_ms for record in rest[1:]] == [5, 6, 7]
    assert (log.start_offset, log.end_offset, log.epoch_at(4), log.topic, log.partition) == (0, 5, 0, "t", 0)
    assert values(log, 3) == [b"d", b"e"]
    assert values(log, 1, end_offset=3) == [None, b"c"]
    assert values(log, 5) == []


@pytest.mark.local
def test_what_it_says_of_itself(db):
    log = made(db)
    log.append_many([b"x"] * 5)
    assert repr(log) == "<Log t-0 [0, 5)>"
    assert (log.leader_epoch, log.read_only_reason) == (0, None)


def test_expected_offset(db):
    log = made(db)
    assert log.append(b"a", expected_offset=0) == 0
    assert log.append_many([b"b"], expected_offset=1) == range(1, 2)
    assert log.append_batches(encode_log([[b"c"]]), expected_offset=2) == range(2, 3)
    with pytest.raises(UnexpectedOffset):
        log.append(b"x", expected_offset=2)
    assert values(log) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", CODECS)
def test_compression_per_topic(db, codec):
    log = made(db, compression_type=codec)
    expected = [b"the same words again and again %d" % number for number in range(2700)]
    log.append_many(expected[:2500])
    assert (log.size_bytes < 50_000) == (codec != "none")
    for value in expected[2500:]:
        log.append(value)
    assert values(log) == expected
    assert values(log, 2621) == expected[2621:]
    batches, next_offset = log.read_batches(0, 1)
    assert batches[22] & 7 == CODECS.index(codec)
    assert 0 < next_offset < 2700


@pytest.mark.parametrize("codec", CODECS)
def test_batches_out_and_in_again(db, codec):
    log = made(db, compression_type=codec)
    log.append_many([b"%d" % number for number in range(3000)])
    db.create_topic("copy")
    copy, offset = db.log("copy"), 0
    while offset < log.end_offset:
        batches, following = log.read_batches(offset, 10_000)
        assert following > offset
        assert copy.append_batches(batches) == range(offset, following)
        offset = following
    assert values(copy) == values(log)
    assert log.read_batches(3000) == (b"", 3000)


def test_read_batches_begins_with_the_batch_that_holds_the_offset(db):
    log = made(db)
    log.append_many([b"a"] * 10)
    log.append_many([b"b"] * 10)
    batches, following = log.read_batches(15, 1)
    assert (int.from_bytes(batches[:8], "big"), following) == (10, 20)


@pytest.mark.local
def test_roll_by_size(db, tmp_path):
    log = made(db, segment_bytes=2000)
    for number in range(20):
        log.append_many([b"%03d" % number * 100])
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 2000 for segment in log.segments)
    assert [segment.base_offset for segment in log.segments][1:] == [segment.next_offset for segment in log.segments][:-1]
    assert values(log, 7) == [b"%03d" % number * 100 for number in range(7, 20)]
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)


def test_roll_by_time(tmp_path):
    now = [BASE_TIMESTAMP]
    with logdb.open(tmp_path / "db", clock=lambda: now[0]) as db:
        log = made(db, segment_ms=DAY_MS)
        for _ in range(4):
            log.append_many([b"x"])
            now[0] += DAY_MS // 2
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        assert [record.timestamp_ms for record in log.read(0)] == [BASE_TIMESTAMP + number * DAY_MS // 2 for number in range(4)]
        now[0] -= 10 * DAY_MS  # a clock that jumps back rolls nothing and breaks nothing
        log.append_many([b"x"])
        assert len(log.segments) == 2
        assert log.end_offset == 5


def test_time_is_that_of_the_io(tmp_path):
    io = StillIO(BASE_TIMESTAMP)
    with logdb.open(tmp_path / "db", io=io) as db:
        log = made(db, segment_ms=DAY_MS)
        for _ in range(2):
            log.append_many([b"x"])
            io.now_ms += DAY_MS
        assert [segment.base_offset for segment in log.segments] == [0, 1]
        assert [segment.append_ms for segment in log.segments] == [record.timestamp_ms for record in log.read(0)]


def test_config_changes_count_from_the_next_batch(db):
    log = made(db)
    log.append_many([b"x" * 1000] * 3)
    db.alter_topic("t", config={"compression.type": "zstd", "segment.bytes": 1024})
    log.append_many([b"x" * 1000] * 3)
    assert log.read_batches(0, 1)[0][22] & 7 == 0
    assert log.read_batches(3, 1)[0][22] & 7 == 4
    assert db.describe_topic("t").partitions[0].segment_count == 2
    db.alter_topic("t", config={"compression.type": None})
    log.append_many([b"y"])
    assert log.read_batches(6, 1)[0][22] & 7 == 0
    config = db.describe_topic("t").config
    assert config["segment.bytes"] == 1024
    assert "compression.type" not in config


def test_log_append_time(tmp_path):
    with logdb.open(tmp_path / "db", clock=lambda: 777) as db:
        log = made(db, message_timestamp_type="LogAppendTime")
        log.append(b"a", timestamp_ms=5)
        log.append_batches(encode_log([[Rec(value=b"b", timestamp_ms=9)]]))
        assert [record.timestamp_ms for record in log.read(0)] == [777, 777]
        assert log.read_batches(1)[0][22] & 8 == 8
    assert logdb.verify(tmp_path / "db").ok


def test_offset_for_timestamp(db):
    log = made(db, segment_bytes=3000, index_interval_bytes=100)
    times = [1000 + number * 10 - (number % 7) * 15 for number in range(300)]
    for number, time in enumerate(times):
        log.append(b"x" * 20, timestamp_ms=time)
        if number % 5 == 0:
            log.flush(sync=False)
    for wanted in [*range(900, 4100, 7), *times]:
        expected = next((offset for offset, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected, wanted


@pytest.mark.local
@pytest.mark.parametrize(("level", "synced"), [("os", False), ("interval", False), ("fsync", True)])
@pytest.mark.parametrize("per_call", [False, True])
def test_levels(db, io, level, synced, per_call):
    log = made(db, durability="os" if per_call else level, flush_ms=DAY_MS)
    options = {"durability": level} if per_call else {}
    log.append_many([b"a"], **options)
    assert io.count("pwrite", ".log") == 1
    assert log.view.flushed.offset == (1 if synced else 0)
    log.append(b"b", **options)
    assert log.view.flushed.offset == (2 if synced else 0)
    assert io.count("pwrite", ".log") == (2 if synced else 1)
    log.flush(sync=False)
    assert io.count("pwrite", ".log") == 2
    log.flush()
    assert log.view.flushed.offset == 2


@pytest.mark.local
@pytest.mark.parametrize("level", ["os", "interval", "fsync"])
@pytest.mark.parametrize("sync", [False, True])
def test_what_is_committed_is_synced_where_the_level_says_so(db, io, level, sync):
    log = made(db, durability=level, flush_ms=DAY_MS)
    log.append_many([b"a", b"b"], durability="os")
    log.commit_to(0, sync=sync)
    assert log.flushed_offset == 0
    log.commit_to(2, sync=sync)
    synced = io.count("fdatasync", ".log")
    assert log.flushed_offset == (2 if level == "fsync" or (sync and level == "interval") else 0)
    log.commit_to(2, sync=sync)
    assert io.count("fdatasync", ".log") == synced


def test_a_batch_larger_than_a_group(db):
    log = made(db, durability="fsync", max_message_bytes=4 << 20)
    large, small = encode_log([[b"x" * (2 << 20)]]), encode_log([[b"y"]])
    assert log.append_batches(large) == range(1)
    assert log.append_batches(small + large + small) == range(1, 4)
    assert [len(value) for value in values(log)] == [2 << 20, 1, 2 << 20, 1]


def test_read_arrow(db):
    log = made(db)
    log.append_many([b"%d" % number for number in range(100)], timestamps_ms=range(100))
    rows = [row for batch in log.read_arrow(10, end_offset=20, columns=["value", "offset"]) for row in batch.to_pylist()]
    assert rows == [{"value": b"%d" % number, "offset": number} for number in range(10, 20)]


def test_what_is_reopened_is_what_was_closed(tmp_path):
    expected = []
    for round_number in range(4):
        with logdb.open(tmp_path / "db") as db:
            db.create_topic("t", config={"segment.bytes": 1500}, if_not_exists=True)
            log = db.log("t")
            assert values(log) == expected
            assert log.leader_epoch == 0
            more = [b"%d %d" % (round_number, number) * 20 for number in range(20)]
            log.append_many(more)
            expected += more
            assert db.reports == ()


@pytest.mark.local
def test_a_buffer_that_is_written_in_part_stays_whole_after_a_call_that_finds_no_room(db, io):
    log = made(db, segment_bytes=4096, max_message_bytes=1000)
    expected = [bytes(900)] * 3
    log.append_many(expected)
    for value in (bytes(900), b"accepted"):  # the first fits into the segment; the second shares a batch with the next call
        log.append(value)
        expected.append(value)
    io.fail("create", ENOSPC, ".log")
    with pytest.raises(DiskFull) as caught:
        log.append(bytes(400), durability="fsync")
    assert caught.value.offsets == range(5, 6)
    io.heal()
    log.flush()
    assert values(log) == [*expected, bytes(400)]


@pytest.mark.local
@pytest.mark.parametrize("cut_off_after", ["size_bytes", "next_offset"])
def test_a_write_that_ctrl_c_cut_off_leaves_nothing(db, tmp_path, monkeypatch, cut_off_after):
    log = made(db, segment_bytes=4096)
    log.append_many([bytes(1000)])
    whole_append = Segment.append

    def append(segment, batches, next_offset, **options):
        before = segment.size_bytes
        whole_append(segment, batches, next_offset, **options)
        segment.whole = False  # as it is until all that it changes was changed
        if cut_off_after == "next_offset":
            segment.size_bytes = before
        raise KeyboardInterrupt

    monkeypatch.setattr(Segment, "append", append)
    with pytest.raises(KeyboardInterrupt):
        log.append_many([bytes(2000)])
    monkeypatch.setattr(Segment, "append", whole_append)
    log.append_many([bytes(500)])
    assert [len(value) for value in values(log)] == [1000, 500]
    assert sum(file.stat().st_size for file in (tmp_path / "db" / "t-0").glob("*.log")) == log.size_bytes
    db.flush()
    assert db.verify().ok


@pytest.mark.local
def test_a_sync_in_the_middle_of_a_write_is_none_of_it(db, io):
    log = made(db, flush_ms=3_600_000)
    log.append_many([b"a"])
    segment, calls = log.segments[-1], []

    def before(call, path):
        if path == segment.path and call in ("pwrite", "fdatasync"):
            calls.append(call)
            if calls == ["pwrite"]:
                segment.sync()  # the syncer's, or that of the cache of open files

    io.before = before
    log.append_many([b"b"])
    log.flush()
    io.before = lambda call, path: None
    assert calls == ["pwrite", "fdatasync", "fdatasync"]


def test_others_use_the_public_names_of_a_log():
    private = re.compile(r"(?<![a-z])log\._[a-z]\w*")
    sources = pathlib.Path(logdb.__file__).parent.rglob("*.py")
    assert {path.name: found for path in sources if (found := private.findall(path.read_text()))} == {}
