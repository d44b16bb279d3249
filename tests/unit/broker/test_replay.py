import pytest

import logdb
from logdb import errors
from logdb.broker.replay import replay
from logdb.broker.runner import transactional_batches
from logdb.model import ProducerIdAndEpoch
from logdb.store.check.segment_rewrite import empty_batch
from support.coordinators import KeyValues

P, Q = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 3)


@pytest.fixture
def log(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        yield db.log("t")


def transactional(log, producer, *pairs):
    keys, values = zip(*pairs, strict=True)
    log.append_batches(transactional_batches(values, keys, producer, 1_700_000_000_000), internal=True)


def test_transactions_keep_their_place_between_plain_records(log):
    log.append_many([b"1", b"2", b"3"], [b"a", b"b", b"a"])
    transactional(log, P, (b"a", b"4"), (b"a", b"5"))
    log.append_many([b"6", b"7"], [b"a", b"a"])
    transactional(log, Q, (b"c", b"8"))
    log.append_marker(P, commit=True, coordinator_epoch=0)
    log.append_many([None], [b"b"])
    log.append_marker(Q, commit=False, coordinator_epoch=0)
    coordinator = KeyValues()
    assert replay(log, coordinator, 0) == log.end_offset
    assert coordinator.replayed == [
        (1, b"b", b"2", -1),
        (2, b"a", b"3", -1),
        (3, b"a", b"4", 7),
        (4, b"a", b"5", 7),
        (6, b"a", b"7", -1),
        (7, b"c", b"8", 8),
        (9, b"b", None, -1),
    ]
    assert coordinator.markers == [(7, True), (8, False)]


def test_going_on_where_the_last_replay_ended(log):
    coordinator = KeyValues()
    assert replay(log, coordinator, 0) == 0
    log.append_many([b"1"], [b"a"])
    end = replay(log, coordinator, 0)
    log.append_many([b"2"], [b"a"])
    assert replay(log, coordinator, end) == 2
    assert [offset for offset, *_ in coordinator.replayed] == [0, 1]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed(tmp_path, codec):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"compression.type": codec})
        log = db.log("t")
        log.append_many([b"%d" % number for number in range(100)], [b"k%d" % (number % 10) for number in range(100)])
        coordinator = KeyValues()
        replay(log, coordinator, 0)
        assert coordinator.state == {b"k%d" % number: b"%d" % (90 + number) for number in range(10)}


def test_more_than_is_read_at_once(log):
    log.append_many([bytes(1000)] * 3000, [b"%d" % (number % 2500) for number in range(3000)])
    coordinator = KeyValues()
    replay(log, coordinator, 0)
    assert len(coordinator.replayed) == 2500


def test_a_marker_that_compaction_emptied_says_nothing(log):
    batch = bytearray(empty_batch(0, 1, 0))
    coordinator = KeyValues()
    from logdb.broker.replay import _apply_marker

    _apply_marker(coordinator, memoryview(batch))
    assert coordinator.markers == []


def test_a_record_that_is_none_of_its_topics(log):
    class Refusing(KeyValues):
        def apply(self, key, value, *, offset, producer_id=-1):
            raise errors.InvalidMessage(0, "no such thing")

    log.append_many([b"1"], [b"a"])
    with pytest.raises(errors.CorruptionError, match="offset 0 is no record of t"):
        replay(log, Refusing(), 0)


def test_what_lies_above_the_high_watermark_is_applied_too(log):
    log.append_many([b"1"], [b"a"])
    log.append_many([b"2"], [b"a"])
    log.move_high_watermark(1, leader_epoch=0)
    transactional(log, P, (b"b", b"3"))
    coordinator = KeyValues()
    assert replay(log, coordinator, 0) == log.end_offset == 3
    assert [offset for offset, *_ in coordinator.replayed] == [1, 2]
