"""Transactions through the public interface: what counts, who is fenced, what a consumer goes back to."""

import contextlib
import random
import threading

import pytest

import logdb
from logdb import errors
from logdb.client.producer.transaction import TransactionalProducer
from logdb.model import TopicPartition
from support.faulty_io import FaultyIO
from support.places import opened
from support.waiting import until


@pytest.fixture
def db(place, tmp_path):
    with opened(place, tmp_path / "db") as db:
        db.create_topic("in", partitions=2)
        db.create_topic("out", partitions=2)
        yield db


def committed(db, topic="out"):
    """The values that readers of committed records see."""
    count = db.describe_topic(topic).partition_count
    return [record.value for partition in range(count) for record in db.log(topic, partition).read(0, isolation_level="read_committed")]


def explicit(db, transactional_id="id", **options):
    return TransactionalProducer(db._session, io=db._base.io, clock=db._base.clock, transactional_id=transactional_id, **options)


# ---------------------------------------------------------------- all or nothing


def test_a_block_is_committed_at_its_end(db):
    with db.transaction("id") as tx:
        futures = [tx.send("out", b"%d" % number, partition=number % 2) for number in range(10)]
        tx.flush()
        assert all(future.done() for future in futures)
        assert committed(db) == []
        assert db.log("out", 0).end_offset == 5
    assert sorted(committed(db)) == sorted(b"%d" % number for number in range(10))
    assert futures[0].result().offset == 0


def test_an_exception_aborts_and_goes_on(db):
    with pytest.raises(ZeroDivisionError), db.transaction("id") as tx:
        tx.send("out", b"written", partition=0)
        tx.flush()
        future = tx.send("out", b"not written", partition=0)
        raise ZeroDivisionError
    assert committed(db) == []
    with pytest.raises(errors.TransactionAborted):
        future.result()
    with db.transaction("id") as tx:
        tx.send("out", b"next", partition=0)
    assert committed(db) == [b"next"]


def test_a_loop_takes_the_id_over_once(db):
    for number in range(5):
        with db.transaction("id") as tx:
            tx.send("out", b"%d" % number)
    (info,) = db._session.transactions()
    assert info.producer.producer_epoch == 5, "one epoch for each transaction, none for taking over"


def test_an_empty_transaction_leaves_no_trace(db):
    with db.transaction("id"):
        pass
    with contextlib.suppress(KeyError), db.transaction("id"):
        raise KeyError
    assert db._session.describe_transaction("id").state == "Empty"


def test_a_record_that_cannot_be_written_aborts_the_rest(db):
    db.create_topic("small", config={"max.message.bytes": 300})
    with pytest.raises(errors.LogdbError), db.transaction("id") as tx:
        tx.send("out", b"x", partition=0)
        tx.send("small", bytes(400))
    assert committed(db) == committed(db, "small") == []
    with db.transaction("id") as tx:
        tx.send("out", b"y", partition=0)
    assert committed(db) == [b"y"]


def test_a_topic_that_is_deleted_meanwhile_does_not_keep_the_rest_from_being_committed(db):
    db.create_topic("gone")
    with db.transaction("id") as tx:
        tx.send("out", b"x", partition=0)
        tx.send("gone", b"y")
        tx.flush()
        db.delete_topic("gone")
    assert committed(db) == [b"x"]


def test_threads_with_an_id_each(db):
    def work(name):
        for number in range(20):
            with db.transaction(name) as tx:
                tx.send("out", f"{name} {number}".encode(), partition=0)
                tx.send("out", f"{name} {number}".encode(), partition=1)

    threads = [threading.Thread(target=work, args=(f"id-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = committed(db)
    assert len(values) == 160
    for name in (f"id-{number}" for number in range(4)):
        assert [value for value in values[:80] if value.startswith(name.encode())] == [f"{name} {n}".encode() for n in range(20)]


# ---------------------------------------------------------------- offsets


def consume(db, **options):
    return db.consumer("in", group_id="g", auto_offset_reset="earliest", isolation_level="read_committed", **options)


def polled(consumer):
    return [record.value for records in consumer.poll(timeout_ms=5_000).values() for record in records]


def test_offsets_are_committed_with_the_records(db):
    db.append_many("in", [b"a", b"b", b"c"], partitioner=lambda key, count: 0)
    with consume(db) as consumer:
        with db.transaction("id") as tx:
            values = polled(consumer)
            for value in values:
                tx.send("out", value.upper(), partition=0)
            tx.send_offsets(consumer)
            assert db._session.fetch_offsets("g") == {}
            with pytest.raises(errors.UnstableOffsets):
                consumer.committed(TopicPartition("in", 0))
        assert consumer.committed(TopicPartition("in", 0)).offset == 3
    assert committed(db) == [b"A", b"B", b"C"]


def test_after_an_abort_the_consumer_goes_back(db):
    db.append_many("in", [b"a", b"b"], partitioner=lambda key, count: 0)
    with consume(db) as consumer:
        with contextlib.suppress(KeyError), db.transaction("id") as tx:
            first = polled(consumer)
            tx.send_offsets(consumer)
            raise KeyError
        assert polled(consumer) == first == [b"a", b"b"]
        with db.transaction("id") as tx:
            tx.send_offsets(consumer)
        db.append("in", b"c", partitioner=lambda key, count: 0)
        with contextlib.suppress(KeyError), db.transaction("id") as tx:
            assert polled(consumer) == [b"c"]
            tx.send_offsets(consumer)
            raise KeyError
        assert polled(consumer) == [b"c"], "not further back than what was committed"


def test_a_consumer_that_was_replaced_cannot_commit(db):
    db.append_many("in", [b"a", b"b"], partitioner=lambda key, count: 0)
    with consume(db, group_instance_id="me") as zombie:
        assert polled(zombie) == [b"a", b"b"]
        with consume(db, group_instance_id="me") as successor:
            assert polled(successor) == [b"a", b"b"]
            with pytest.raises((errors.FencedInstance, errors.UnknownMember)), db.transaction("id") as tx:
                tx.send("out", b"twice", partition=0)
                tx.send_offsets(zombie)
            assert committed(db) == []
            with db.transaction("id") as tx:
                tx.send_offsets(successor)
            assert successor.committed(TopicPartition("in", 0)).offset == 2


def test_a_consumer_without_a_group_has_no_offsets_to_send(db):
    with db.consumer("in") as consumer, pytest.raises(errors.InvalidGroup), db.transaction("id") as tx:
        tx.send_offsets(consumer)


# ---------------------------------------------------------------- begin, commit, abort


def test_begin_commit_and_abort_by_hand(db):
    producer = explicit(db)
    producer.init_transactions()
    for wrong in (producer.commit_transaction, producer.abort_transaction, lambda: producer.send("out", b"x")):
        with pytest.raises(errors.InvalidTransactionState):
            wrong()
    producer.begin_transaction()
    with pytest.raises(errors.InvalidTransactionState):
        producer.begin_transaction()
    producer.send("out", b"a", partition=0)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send("out", b"b", partition=0)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("out", b"c", partition=0)
    producer.close()  # aborts
    assert committed(db) == [b"a"]


def test_a_producer_without_an_id_says_how_to_get_transactions(db):
    with db.producer() as producer:
        for wrong in (
            producer.init_transactions,
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets(None),
            lambda: producer.send_offsets_to_transaction({}, None),
        ):
            with pytest.raises(errors.InvalidTransactionState, match="transactional_id="):
                wrong()


def test_a_second_user_of_an_id_fences_the_first(db):
    first, second = explicit(db), explicit(db)
    first.begin_transaction()
    first.send("out", b"of the first", partition=0)
    first.flush()
    second.begin_transaction()
    second.send("out", b"of the second", partition=0)
    second.commit_transaction()
    assert committed(db) == [b"of the second"]
    with pytest.raises(errors.ProducerFenced):
        first.commit_transaction()
    for call in (first.begin_transaction, first.commit_transaction):
        with pytest.raises(errors.ProducerFenced):
            call()
    first.close()
    second.close()
    assert committed(db) == [b"of the second"]


def test_a_fenced_block_raises_and_the_next_one_goes_on(db):
    with pytest.raises(errors.ProducerFenced), db.transaction("id") as tx:
        tx.send("out", b"zombie", partition=0)
        tx.flush()
        with db.transaction("id") as other:
            other.send("out", b"other", partition=0)
    with db.transaction("id") as tx:
        tx.send("out", b"next", partition=0)
    assert committed(db) == [b"other", b"next"]


def test_a_transaction_that_is_forgotten_is_aborted(db):
    producer = explicit(db, transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.send("out", b"forgotten", partition=0)
    producer.flush()
    log = db.log("out", 0)
    assert db._session.wait({TopicPartition("out", 0): 1}, 30_000, isolation_level="read_committed"), "the marker came"
    assert (log.last_stable_offset, committed(db)) == (2, [])
    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()
    producer.close()


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_not_allowed(db, timeout_ms):
    with pytest.raises(errors.InvalidTransactionTimeout), db.transaction("id", transaction_timeout_ms=timeout_ms):
        pass
    assert db._session.transactions() == []


def test_an_administrator_aborts(db):
    with pytest.raises(errors.ProducerFenced), db.transaction("id") as tx:
        tx.send("out", b"x", partition=0)
        tx.flush()
        db._session.abort_transaction("id")
        assert db.log("out", 0).last_stable_offset == 2
    with pytest.raises(errors.InvalidTransactionState):
        db._session.abort_transaction("id")
    with pytest.raises(errors.InvalidProducer):
        db._session.abort_transaction("unknown")
    assert committed(db) == []


# ---------------------------------------------------------------- what batches may not do


def test_a_transactional_batch_outside_of_a_transaction_is_refused(db):
    from logdb.broker.runner import transactional_batches

    producer = db._session.init_producer_id("id")
    batch = transactional_batches([b"v"], [b"k"], producer, 1_700_000_000_000)
    with pytest.raises(errors.InvalidTransactionState):
        db._session.produce("out", 0, batch)
    with pytest.raises(errors.InvalidProducer):
        db._session.produce("out", 0, batch, transactional_id="other")
    stranger = producer._replace(producer_id=producer.producer_id + 1)
    with pytest.raises(errors.InvalidProducer):
        db._session.produce("out", 0, transactional_batches([b"v"], [b"k"], stranger, 1_700_000_000_000), transactional_id="id")
    db._session.init_producer_id("id")
    with pytest.raises(errors.ProducerFenced):
        db._session.produce("out", 0, batch, transactional_id="id")
    assert db.log("out", 0).end_offset == 0


def test_nobody_else_writes_to_internal_topics(db):
    with db.transaction("id") as tx:
        tx.send("out", b"x")
    with pytest.raises(errors.InvalidTopic):
        db._session.produce("__transaction_state", 0, b"")
    for call in (db.delete_topic, lambda topic: db.append(topic, b"v", b"k"), lambda topic: db.append_many(topic, [b"v"], [b"k"])):
        with pytest.raises(errors.InvalidTopic):
            call("__transaction_state")
    assert [info.transactional_id for info in db.transactions()] == ["id"]


def test_internal_topics_are_compacted_and_nothing_else(db):
    with pytest.raises(errors.InvalidConfig, match="__consumer_offsets"):
        db.create_topic("__consumer_offsets", partitions=2)
    assert [topic.name for topic in db.topics(internal=True) if topic.internal] == []
    db.create_topic("__consumer_offsets", partitions=2, config={"cleanup.policy": "compact"})
    before = db.describe_topic("__consumer_offsets")
    for policy in ("delete", "compact,delete", None):
        with pytest.raises(errors.InvalidConfig, match="must be compact"):
            db.alter_topic("__consumer_offsets", config={"cleanup.policy": policy, "retention.ms": 1})
    with pytest.raises(errors.PolicyViolation):
        db.delete_records("__consumer_offsets", 0, 0)
    assert db.describe_topic("__consumer_offsets") == before
    db.alter_topic("__consumer_offsets", config={"segment.bytes": 4_000})


# ---------------------------------------------------------------- a close


def test_a_producer_that_is_closed_waits_for_a_commit_of_another_thread(db, monkeypatch):
    producer = explicit(db)
    closer = threading.Thread(target=producer.close)
    end, asked = producer._session.end_transaction, []

    def end_transaction(*args, commit):
        asked.append(commit)
        if commit:
            closer.start()
            until(lambda: producer._closed, "the close to begin")
        return end(*args, commit=commit)

    monkeypatch.setattr(producer._session, "end_transaction", end_transaction)
    producer.begin_transaction()
    producer.send("out", b"x")
    producer.commit_transaction()
    closer.join()
    assert asked == [True], "it has not tried to abort what was being committed"
    assert committed(db) == [b"x"]


def test_a_producer_that_was_closed_begins_and_ends_nothing(db):
    producer = explicit(db)
    producer.begin_transaction()
    sent = producer.send("out", b"x", partition=0)
    producer.close()
    for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(errors.Closed, match="the producer is closed"):
            call()
    assert sent.exception() is None or isinstance(sent.exception(), errors.TransactionAborted), "it may have been sent before"
    assert not producer.usable
    assert committed(db) == []


def test_a_block_whose_database_is_closed_meanwhile_is_told_so(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("out")
    with pytest.raises(errors.Closed, match="the producer is closed") as told, db.transaction("id") as tx:
        tx.send("out", b"x")
        db.close()
    assert not getattr(told.value, "__notes__", ()), "the close has aborted it"


# ---------------------------------------------------------------- restarts


def test_what_was_open_when_the_database_was_closed_is_aborted_by_the_next(tmp_path):
    path = tmp_path / "db"
    with logdb.open(path) as db:
        db.create_topic("out")
        producer = explicit(db)
        producer.begin_transaction()
        producer.send("out", b"open").result(30)
        producer.flush()
    with logdb.open(path) as db:
        assert db.log("out").end_offset == 2
        assert committed(db) == []
        assert db.log("out").last_stable_offset == 2


def test_an_id_goes_on_after_a_restart(tmp_path):
    path = tmp_path / "db"
    for number in range(3):
        with logdb.open(path) as db:
            db.create_topic("out", if_not_exists=True)
            with db.transaction("id") as tx:
                tx.send("out", b"%d" % number)
    with logdb.open(path, mode="r") as db:
        assert committed(db) == [b"0", b"1", b"2"]
        (info,) = db._session.transactions()
        assert info.state == "CompleteCommit"
        with pytest.raises(errors.ReadOnly), db.transaction("id"):
            pass


# ---------------------------------------------------------------- a disk that is full now and then


@pytest.mark.parametrize(("path", "share"), [("__transaction_state", 0.3), ("__consumer_offsets", 0.3), ("out-0", 0.3), ("db", 0.05)])
def test_each_record_once_although_the_disk_fills_up_now_and_then(tmp_path, path, share):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, linger_ms=0) as db:
        db.create_topic("in")
        db.create_topic("out")
        db.log("in").append_many([b"%d" % number for number in range(100)])
        with db.transaction("etl") as tx:  # from here on a full disk is met by what is written each time
            tx.send("out", b"-1")
        db.flush()
        failures, seed = 0, random.randrange(1 << 30)
        print(f"seed {seed}")
        rng = random.Random(seed)

        def before(kind, where):
            if kind == "pwrite" and path in where:
                io.room = 0 if rng.random() < share else None

        io.before = before
        with consume(db, max_poll_records=20) as consumer:
            while db._session.fetch_offsets("g").get(("in", 0), (0,))[0] < 100:
                try:
                    with db.transaction("etl", delivery_timeout_ms=200, retry_backoff_ms=1) as tx:
                        for records in consumer.poll(timeout_ms=20).values():
                            for record in records:
                                tx.send("out", record.value)
                        tx.send_offsets(consumer)
                except errors.LogdbError:
                    failures += 1
                    io.room = None
                    consumer.seek_to_committed()  # it may have failed before send_offsets
                    assert failures < 200
            io.before, io.room = lambda kind, where: None, None
        assert committed(db, "out")[1:] == [b"%d" % number for number in range(100)]


def test_a_topic_is_deleted_once_the_completion_of_its_transactions_is_written(tmp_path, monkeypatch):
    """Or a restart after a crash would end them again, in a new topic of that name."""
    monkeypatch.setattr("logdb.broker.runner._DEFER_MS", 3_600_000)
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        with db.transaction("id") as tx:
            tx.send("t", b"x")
        db.delete_topic("t")
        with logdb.open(tmp_path / "db", mode="r") as reader:
            assert reader.describe_transaction("id").state == "CompleteCommit"
