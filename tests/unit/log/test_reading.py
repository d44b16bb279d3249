"""The record with the largest timestamp: among those that can be read, whatever a segment's largest timestamp says."""

import pytest

import logdb
from logdb.model import ProducerIdAndEpoch
from support.batches import encode_log
from support.produced import Sender, batch, open_bare


@pytest.fixture
def db(tmp_path):
    with open_bare(tmp_path / "db", linger_ms=60_000) as database:
        yield database


def filled(db: logdb.Database, times: list[list[int]], *, roll: bool = False, **config: object) -> logdb.Log:
    """A log with a batch for each list of timestamps, or a segment for each."""
    db.create_topic("t", config=config)
    log = db.log("t")
    for one in times:
        log.append_many([b"%d" % at for at in one], [b"%d" % at for at in one], timestamps_ms=one)
        if roll:
            log.roll()
    return log


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("roll", [False, True])
def test_the_log_start_may_lie_behind_the_largest(db, start, roll):
    batches = [[500, 400], [900, 100, 300], [200, 300, 50]]
    log = filled(db, batches, roll=roll)
    times = [at for batch in batches for at in batch]
    if start:
        db.delete_records("t", 0, start)
    largest = max(times[start:])
    for _ in range(2):
        assert log.latest_record() == (times.index(largest, start), largest)
    log.append(b"", timestamp_ms=310)
    assert log.latest_record() == max(((8, 310), (times.index(largest, start), largest)), key=lambda found: found[1])
    assert log.offset_for_timestamp(301) == next((n for n in range(start, 8) if times[n] > 300), 8)
    db.delete_records("t", 0, 9)
    assert log.latest_record() is None


def test_a_reader_in_another_process_and_an_opening_say_the_same(db, tmp_path):
    filled(db, [[900], [100, 300], [200]])
    db.delete_records("t", 0, 1)
    with logdb.open(tmp_path / "db", mode="r") as reader:
        assert reader.log("t").latest_record() == (2, 300)
    db.close()
    with logdb.open(tmp_path / "db") as again:
        assert again.log("t").latest_record() == (2, 300)


def test_a_compaction_may_have_deleted_the_largest(db):
    log = filled(db, [[900], [100, 300]], **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    log.append_batches(batch([(b"k", b"last")], 7, 0, 0, base_timestamp=700))
    log.append_many([b"new"] * 3, [b"900", b"300", b"k"], timestamps_ms=[10, 20, 30])
    db.compact("t")
    assert log.latest_record() == (1, 100), "the producer's last batch stays, without its record of 700"


def test_what_readers_may_not_see_yet_does_not_count(db):
    log = filled(db, [[100], [300]])
    sender = Sender(log, transactional=True)
    log.append_batches(encode_log([[b"x"]]))
    before = log.latest_record()
    sender.timestamp_ms += 1000
    sender.send(b"open")
    assert log.latest_record(isolation_level="read_committed") == before
    assert log.latest_record()[0] == 3
    log.append_marker(ProducerIdAndEpoch(7, 0), commit=True, coordinator_epoch=0)
    assert log.latest_record(isolation_level="read_committed")[0] >= 3
