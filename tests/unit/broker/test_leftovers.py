"""What a crash leaves open."""

import logging

import pytest

import logdb
from logdb.broker.runner import transactional_batches
from logdb.model import ProducerIdAndEpoch, TopicPartition
from support.power_cut import die, quiet
from support.transactional import Writer

T = TopicPartition("t", 0)


@pytest.fixture
def path(tmp_path):
    """Closed as if killed: one transaction open and known, one that the coordinator lost, one of a group."""
    path = tmp_path / "db"
    db = quiet(logdb.open(path))
    db.create_topic("t", partitions=2)
    known = Writer(db._session, "known")
    known.write(T, b"known")
    lost = ProducerIdAndEpoch(db._session.init_producer_id("lost").producer_id, 0)
    db.log("t", 0).append_batches(transactional_batches([b"lost"], [b"k"], lost, 1_700_000_000_000), internal=True)
    known.offsets("g", T, 5)
    db.log("t", 1).append(b"plain")
    db.log("t", 1).flush()
    db._broker._timers.stop()
    die(db)
    return path


def test_a_log_is_settled_before_it_is_read(path, caplog):
    caplog.set_level(logging.INFO)
    with logdb.open(path) as db:
        log = db.log("t", 0)
        assert log.last_stable_offset == log.end_offset
        assert [record.value for record in log.read(0, isolation_level="read_committed")] == []
        assert log.open_transactions() == []
    assert "t-0: aborting what producer" in caplog.text


def test_offsets_are_settled_before_they_are_fetched(path):
    with logdb.open(path) as db:
        assert db._session.fetch_offsets("g", require_stable=True) == {}


def test_all_logs_are_settled_in_the_background(path):
    with logdb.open(path) as db:
        db._broker._leftovers._thread.join(60)
        assert {("t", 0), ("t", 1)} <= db._broker._leftovers._settled
        assert db._store.log("t", 0).open_transactions() == []


def test_an_id_that_was_lost_goes_on(path):
    with logdb.open(path) as db:
        writer = Writer(db._session, "lost")
        writer.write(T, b"again")
        writer.end(commit=True)
        assert [record.value for record in db.log("t", 0).read(0, isolation_level="read_committed")] == [b"again"]


def test_a_reader_beside_a_writer_settles_nothing(path):
    with logdb.open(path, mode="r") as db:
        log = db.log("t", 0)
        assert log.last_stable_offset == 0
        assert [info.state for info in db.transactions()] == ["Ongoing", "Empty"]


def test_nothing_is_begun_where_there_never_was_a_transaction(tmp_path):
    db = quiet(logdb.open(tmp_path / "db"))
    db.create_topic("t")
    db.log("t").append(b"x")
    db.log("t").flush()
    die(db)
    with logdb.open(tmp_path / "db") as db:
        assert [record.value for record in db.log("t").read(0)] == [b"x"]
        assert db._broker is None
