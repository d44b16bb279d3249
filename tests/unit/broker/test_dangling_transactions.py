"""What a crash leaves open."""

import contextlib
import logging
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

import logdb
from logdb.broker.broker import Broker
from logdb.broker.marker_writer import MarkerWriter
from logdb.broker.runner import transactional_batches
from logdb.errors import Closed, ProducerFenced
from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.store.store import Store
from support.power_cut import die, quiet
from support.transactional import Writer

T, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


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
    assert "t-0: the dangling transaction of producer" in caplog.text and "is aborted" in caplog.text


def test_offsets_are_settled_before_they_are_fetched(path):
    with logdb.open(path) as db:
        assert db._session.fetch_offsets("g", require_stable=True) == {}


def test_a_log_without_dangling_transactions_waits_for_no_other(path, monkeypatch):
    """The marker of another one is stuck, as on a disk that does not answer."""
    begun, go_on, end_as_decided = threading.Event(), threading.Event(), MarkerWriter.end_as_decided

    def stuck(*args):
        begun.set()
        go_on.wait(30)
        end_as_decided(*args)

    monkeypatch.setattr(MarkerWriter, "end_as_decided", stuck)
    with logdb.open(path) as db, ThreadPoolExecutor(2) as threads:
        try:
            assert begun.wait(30)
            assert threads.submit(lambda: db.log("t", 1).end_offset).result(10) == 1
            waiting = threads.submit(db.log, "t", 0)
            assert not wait([waiting], 0.1).done
        finally:
            go_on.set()
        assert waiting.result(30).open_transactions() == []


def test_all_logs_are_settled_in_the_background(path):
    with logdb.open(path) as db:
        db._broker.dangling._thread.join(60)
        assert db._store.open_log("t", 0).open_transactions() == []


def test_a_log_with_dangling_transactions_is_not_used_on_an_event_loop(path):
    store = Store.open(path)
    broker = Broker(store, store)
    log = store.open_log("t", 0)  # in use, as by the thread that ends them
    assert log.open_transactions()
    assert not broker.appends_at_once("t", 0) and not broker.is_at_end("t", 0, log.end_offset)
    broker.served_log("t", 0)
    assert broker.appends_at_once("t", 0) and broker.is_at_end("t", 0, log.end_offset)
    broker.close()
    store.close()


def test_a_database_that_is_closed_has_nothing_left_open(path):
    logdb.open(path).close()
    store = Store.open(path)
    assert store.open_log("t", 0).open_transactions() == []
    store.close()


def test_an_id_that_was_lost_goes_on(path):
    with logdb.open(path) as db:
        writer = Writer(db._session, "lost")
        writer.write(T, b"again")
        writer.end(commit=True)
        assert [record.value for record in db.log("t", 0).read(0, isolation_level="read_committed")] == [b"again"]


def test_a_producer_that_lives_on_cannot_commit_the_rest_of_what_was_lost(path):
    logdb.open(path).close()  # nor after another restart
    with logdb.open(path) as db:
        (producer,) = (info.producer for info in db.transactions() if info.transactional_id == "lost")
        with pytest.raises(ProducerFenced):  # its first record was aborted, and the note that it had begun is lost
            db._session.add_partitions("lost", producer, [OTHER])
        again = db._session.init_producer_id("lost", producer=producer)
        assert again == (producer.producer_id, producer.producer_epoch + 1)
        db._session.add_partitions("lost", again, [OTHER])


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


# ---------------------------------------------------------------- markers that a power cut has taken


def cut(path, *, commit, then):
    """Two transactions of an id, then a power cut that takes what was not synced of ``t-0`` and of the offsets: their markers.

    ``then``: what becomes of the second, which has no part in ``t-0`` unless it is "open there, too".
    Returns the numbers of the transactions that count.
    """
    db = quiet(logdb.open(path, durability="interval"))
    db.create_topic("t", partitions=2)
    writer = Writer(db._session, "id")
    writer.write(T, b"0")
    writer.offsets("g", T, 1)
    writer.write(OTHER, b"0")
    db.flush()  # as a commit does; an abort need not
    writer.end(commit=commit)
    if then is not None:
        writer.write(OTHER, b"1")
        if then == "open there, too":
            writer.write(T, b"1")
        elif then != "open":
            writer.end(commit=then == "commit")
    logs = [db.log("t", 0), *(db.log("__consumer_offsets", partition) for partition in range(4))]
    points = [(log.segments[-1].path, log.view.flushed.position) for log in logs if log.segments]
    db._broker._timers.stop()
    die(db)
    for segment, position in points:
        os.truncate(segment, position)
    return ([0] if commit else []) + ([1] if then == "commit" else [])


@pytest.mark.parametrize("then", [None, "commit", "abort", "open", "open there, too"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_was_lost_is_written_as_it_was_decided(tmp_path, commit, then):
    counts = cut(tmp_path / "db", commit=commit, then=then)
    with logdb.open(tmp_path / "db") as db:
        for partition in (T, OTHER):
            log = db.log(*partition)
            values = [int(record.value) for record in log.read(0, isolation_level="read_committed")]
            assert values == [number for number in counts if number == 0 or partition == OTHER]
            assert log.last_stable_offset == log.end_offset
        found = db._session.fetch_offsets("g", require_stable=True)
        assert found == ({T: OffsetAndMetadata(1)} if commit else {})
        writer = Writer(db._session, "id")
        writer.write(T, b"2")
        writer.end(commit=True)
        assert [int(record.value) for record in db.log(*T).read(0, isolation_level="read_committed")] == [*([0] if commit else []), 2]


def test_a_decision_stays_until_its_markers_are_durable(tmp_path):
    db = quiet(logdb.open(tmp_path / "db"))
    db.create_topic("__transaction_state", partitions=1, config={"cleanup.policy": "compact", "segment.bytes": 1_024})
    db.create_topic("t", partitions=2)
    writer = Writer(db._session, "id")
    for number in range(30):
        writer.write(T if number == 0 else OTHER, b"%d" % number)
        writer.end(commit=True)
    log = db.log(*T)
    assert log.view.flushed.offset < log.end_offset, "the marker was not synced"
    db.compact("__transaction_state")
    assert log.view.flushed.offset == log.end_offset
    db._broker._timers.stop()
    die(db)


@pytest.fixture
def unsettled(tmp_path):
    """The marker in ``t-0`` is lost, that in ``t-1`` is there; the last to close it knew nothing of transactions."""
    cut(tmp_path / "db", commit=True, then="commit")
    Store.open(tmp_path / "db").close()
    return tmp_path / "db"


def committed(db):
    return [[int(record.value) for record in db.log(*partition).read(0, isolation_level="read_committed")] for partition in (T, OTHER)]


def test_no_decision_is_compacted_before_its_marker_is_written(unsettled):
    with logdb.open(unsettled) as db:
        db.compact("__transaction_state")
        assert committed(db) == [[0], [0, 1]]


def test_no_decision_is_compacted_before_a_broker_keeps_transactions(unsettled):
    store = Store.open(unsettled)
    for partition in range(store.topic("__transaction_state").partition_count):
        with contextlib.suppress(Closed):
            store.writer.cleaner.compact("__transaction_state", partition)
    store.close()
    with logdb.open(unsettled) as db:
        assert committed(db) == [[0], [0, 1]]


def test_a_snapshot_has_a_transaction_whose_marker_was_lost_as_a_whole(unsettled, tmp_path):
    with logdb.open(unsettled) as db:
        db.snapshot(tmp_path / "snapshot")
    with logdb.open(tmp_path / "snapshot", mode="r") as db:
        assert committed(db) == [[0], [0, 1]]


def test_what_is_open_is_aborted_where_the_states_were_lost_and_made_anew(tmp_path):
    """The producer has had a marker of a later coordinator than the one that begins anew."""
    cut(tmp_path / "db", commit=True, then="open")
    db = quiet(logdb.open(tmp_path / "db"))
    assert committed(db) == [[0], [0]]
    writer = Writer(db._session, "id")
    writer.write(OTHER, b"1")
    writer.end(commit=True)
    writer.write(OTHER, b"2")
    db._broker.close()
    die(db)
    for partition in range(4):
        shutil.rmtree(tmp_path / "db" / f"__transaction_state-{partition}")
    logdb.repair(tmp_path / "db", execute=True)
    with logdb.open(tmp_path / "db") as db:
        assert committed(db) == [[0], [0, 1]]
        assert db.log(*OTHER).open_transactions() == []
