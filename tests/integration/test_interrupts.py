"""A Ctrl-C at any place of a call: nothing hangs afterwards, and no acknowledged record is lost, or stored twice.

Each scenario runs once to count its places, then once for each of some of them.  LOGDB_TEST_SCALE multiplies how many.
"""

import contextlib
import gc
import itertools
import os

import pytest

import logdb
from logdb.errors import Closed, InvalidTransactionState, LogdbError
from logdb.segment.files import FILES
from support import interrupts
from support.interrupts import Interrupted, finished

COUNT = 24 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))
NEVER = 10**9
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file of Python's own open() that it left


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with logdb.open(tmp_path_factory.mktemp("interrupts") / "db") as database:
        yield database


def values(db, topic):
    partitions = range(len(db.describe_topic(topic).partitions))
    return sorted(record.value for partition in partitions for record in db.log(topic, partition).read(0, isolation_level="read_committed"))


def sending(linger_ms):
    def scenario(db, topic, number):
        db.create_topic(topic, partitions=2)
        producer, sent = db.producer(linger_ms=linger_ms), {}

        def call():
            for at in range(4):
                value = b"%d" % at
                sent[value] = producer.send(topic, value, partition=at % 2)
            producer.flush()
            sent[b"last"] = producer.send(topic, b"last", partition=0)
            producer.close()

        def after():
            with db.producer() if producer._refusing else producer as following:
                more = [following.send(topic, b"after %d" % partition, partition=partition) for partition in (0, 1)]
            producer.close()
            for future in (*more, *sent.values()):
                future.result(0)
            found = values(db, topic)
            assert len(found) == len(set(found))
            assert set(found) >= {*sent, b"after 0", b"after 1"}

        return Interrupted(number, call), after

    return scenario


def transaction(db, topic, number):
    db.create_topic(topic, partitions=2)
    with db.transaction("T") as tx:
        tx.send(topic, b"first", partition=0)
    done = []

    def call():
        with db.transaction("T") as tx:
            tx.send(topic, b"a", partition=0)
            tx.send(topic, b"b", partition=1)
        done.append(True)

    def after():
        with db.transaction("T") as tx:
            tx.send(topic, b"x", partition=0)
            tx.send(topic, b"y", partition=1)
        assert values(db, topic) in [[b"a", b"b", b"first", b"x", b"y"], [b"first", b"x", b"y"]][: 1 if done else 2]

    return Interrupted(number, call), after


def appending(db, topic, number):
    db.create_topic(topic)
    log, acknowledged = db.log(topic), {}

    def call():
        for value in (b"0", b"1"):
            acknowledged[log.append(value, durability="fsync")] = value
        acknowledged[log.append_many([b"2"], durability="os")[0]] = b"2"
        log.flush()

    def after():
        acknowledged[log.append(b"after", durability="fsync")] = b"after"
        log.flush()
        found = {record.offset: record.value for record in log.read(0)}
        assert found.items() >= acknowledged.items()
        assert len(found) == len(set(found.values()))

    return Interrupted(number, call), after


def consuming(db, topic, number):
    db.create_topic(topic, partitions=2)
    records = {b"%d" % at for at in range(5)}
    db.log(topic).append_many(sorted(records))
    options = {"group_id": topic, "auto_offset_reset": "earliest", "max_poll_interval_ms": 500}
    processed = set()

    def call():
        with db.consumer(topic, **options) as consumer:
            processed.update(record.value for found in consumer.poll(3_000).values() for record in found)
            consumer.commit()

    def after():
        with db.consumer(topic, **options) as consumer:
            while consumer.positions().get((topic, 0), (0,))[0] < 5:
                processed.update(record.value for found in consumer.poll(1_000).values() for record in found)
        assert processed == records

    return Interrupted(number, call), after


def changing_topics(db, topic, number):
    def call():
        db.create_topic(topic, partitions=2)
        db.alter_topic(topic, partitions=3, config={"retention.ms": -1})
        db.log(topic, 2).append(b"x")
        db.delete_topic(topic)

    def after():
        if topic in [one.name for one in db.topics()]:
            db.delete_topic(topic)
        db.create_topic(topic, partitions=3)
        db.log(topic, 2).append(b"y", durability="fsync")
        assert values(db, topic) == [b"y"]
        db.delete_topic(topic)

    return Interrupted(number, call), after


def opening_and_closing(db, topic, number):
    path, opened, acknowledged = f"{db.path}-{topic}", [], []

    def call():
        with logdb.open(path) as other:
            opened.append(other)
            other.create_topic("t")
            other.log("t").append(b"0")
            acknowledged.append(b"0")
            with other.producer() as producer:
                sent = producer.send("t", b"1")
            sent.result()
            acknowledged.append(b"1")

    def after():
        gc.collect()
        for other in opened:
            try:
                other.close()
            except Closed:  # of a producer whose close was interrupted: its record was not acknowledged
                assert b"1" not in acknowledged
        with logdb.open(path) as other:
            other.create_topic("t", if_not_exists=True)
            assert {*values(other, "t")} >= {*acknowledged}
            other.log("t").append(b"2")

    return Interrupted(number, call), after


def compacting(db, topic, number):
    db.create_topic(topic, config={"cleanup.policy": "compact", "segment.bytes": 1_024})
    log, latest = db.log(topic), {}
    fill(log, latest, rounds=3)
    db.compact(topic)  # so that the next one merges segments
    fill(log, latest, rounds=1)

    def after():
        for _ in range(2):
            close_files()
            assert latest_of(log) == latest
            close_files()
            fill(log, latest, rounds=1)
            db.compact(topic)
        assert latest_of(log) == latest
        assert len(list(log.read(0))) == len(latest)
        check_catalogue(db, topic)

    return Interrupted(number, lambda: db.compact(topic)), after


def deleting_records(db, topic, number):
    db.create_topic(topic, config={"segment.bytes": 1_024, "retention.ms": -1})
    log, latest = db.log(topic), {}
    fill(log, latest, rounds=6)
    begins = []

    def call():
        begins.append(db.delete_records(topic, 0, 20))

    def after():
        assert log.start_offset in begins or (not begins and log.start_offset in (0, 20))
        assert [record.offset for record in log.read(log.start_offset)] == [*range(log.start_offset, 48)]
        check_catalogue(db, topic)
        fill(log, latest, rounds=2)
        db.flush()
        check_catalogue(db, topic)
        db.alter_topic(topic, config={"retention.bytes": 3_000})
        db.enforce_retention(topic)
        assert db.delete_records(topic, 0, 60) == 60
        assert [record.offset for record in log.read(60)] == [*range(60, 64)]
        check_catalogue(db, topic)

    return Interrupted(number, call), after


def fill(log, latest, rounds):
    for _ in range(rounds):
        keys = [b"%d" % at for at in range(8)]
        rows = dict.fromkeys(keys, b"%d %s" % (log.end_offset, b"x" * 60))
        log.append_many([*rows.values()], keys)
        latest |= rows


def close_files():
    """Let the next reads open the files of segments again."""
    for _ in range(32):
        FILES.give_way()


def latest_of(log):
    return {record.key: record.value for record in log.read(log.start_offset)}


def check_catalogue(db, topic):
    """The catalogue, files and open logs agree."""
    with logdb.open(db.path, mode="r") as reader:
        assert reader.describe_topic(topic).partitions[0].start_offset == db.log(topic).start_offset
        assert latest_of(reader.log(topic)).items() <= latest_of(db.log(topic)).items()
    named = {entry.base_offset for entry in db._store.catalogue.segments(topic)}
    assert named <= {segment.base_offset for segment in db._store.open_log(topic).segments}
    report = db.verify()
    assert report.ok, report.problems


def reading_a_table(db, topic, number):
    """A view is opened that lacks a tombstone, since it is compacted away; new records are read; the view is damaged."""
    db.create_topic(topic, config={"cleanup.policy": "compact", "delete.retention.ms": 0})
    log = db.log(topic)
    log.append_many([b"1", b"1"], [b"deleted", b"kept"])
    assert len(db.table(topic)) == 2
    log.append_many([None, b"1"], [b"deleted", b"new"])
    db.compact(topic)
    db.compact(topic)
    reopened_views(db)

    def rows():
        return {key: value for key, value in latest_of(log).items() if value is not None}

    def call():
        table = db.table(topic)
        assert dict(table) == {b"kept": b"1", b"new": b"1"}
        log.append(b"2", b"newer")
        assert len(table) == 3
        view = table._view._state.view
        with view._lmdb.begin(db=view._entries, write=True) as txn:
            txn.put(b"\0kept", b"nonsense that is as long as an entry")
        view._reader.abort()
        view._reader = view._lmdb.begin(db=view._entries)
        assert table[b"kept"] == b"1"
        reopened_views(db)
        assert len(db.table(topic)) == 3

    def after():
        interrupted.error = None  # its handler has ended: the traceback may hold a view that was being opened
        if db._views is not None and db._views._closed:  # their close was interrupted
            reopened_views(db)
        db.table(topic).get(b"kept")  # a look-up of a damaged entry rebuilds the view; an iteration would raise ReadFailed
        assert dict(db.table(topic)) == rows()
        reopened_views(db)
        assert dict(db.table(topic)) == rows()
        log.append(b"3", b"kept")
        assert db.table(topic)[b"kept"] == b"3"
        db.delete_topic(topic)

    interrupted = Interrupted(number, call)
    return interrupted, after


def reopened_views(db):
    """Close the views of tables, as a close of the database does; the next table opens them again."""
    if db._views is not None:
        db._views.close()
        db._views = None


SCENARIOS = {
    "sending": sending(0), "sending later": sending(50), "transaction": transaction, "appending": appending, "consuming": consuming,
    "changing topics": changing_topics, "opening and closing": opening_and_closing, "table": reading_a_table, "compacting": compacting,
    "deleting records": deleting_records,
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_call_that_is_interrupted(db, name):
    scenario, word = SCENARIOS[name], name.replace(" ", "-")
    whole, after = scenario(db, f"{word}-whole", NEVER)
    assert whole.error is None
    finished(after, "uninterrupted")
    count = COUNT // 4 if name == "consuming" else COUNT  # a member that was lost in the middle is waited for
    numbers = sorted({1 + at * whole.places // count for at in range(count)})
    for number in numbers:
        got, after = scenario(db, f"{word}-{number}", number)
        assert got.error is None or isinstance(got.error, KeyboardInterrupt | LogdbError), got.place
        finished(after, f"{number}: {got.place}")


@pytest.mark.parametrize("name", ["compacting", "deleting records"])
def test_an_interrupt_at_each_place_of_a_change_of_segments(db, monkeypatch, name):
    monkeypatch.setattr(interrupts, "SOURCES", ("/store/entries.py", "/store/log_start.py", "/store/segment_replacer.py"))
    for number in itertools.count(1):
        got, after = SCENARIOS[name](db, f"{name.replace(' ', '-')}-each-{number}", number)
        finished(after, f"{number}: {got.place}")
        if got.place is None:
            return


def test_an_interrupt_at_each_place_of_a_coordinator_loses_no_step_of_a_commit(db, monkeypatch):
    monkeypatch.setattr(interrupts, "SOURCES", ("/broker/runner.py",))
    db.create_topic("steps", partitions=2)
    for number in itertools.count(1):
        producer = db.producer(transactional_id=f"steps {number}")
        producer.begin_transaction()
        producer.send("steps", b"%d" % number, partition=number % 2)
        producer.flush()
        interrupted = Interrupted(number, producer.commit_transaction)

        def again(producer=producer):
            with contextlib.suppress(InvalidTransactionState):  # it has ended
                producer.commit_transaction()
            producer.close()

        finished(again, f"a second commit, interrupted at {interrupted.place}")
        assert b"%d" % number in values(db, "steps"), interrupted.place
        if interrupted.place is None:
            return


@pytest.mark.parametrize("source", ["/client/table/view.py", pytest.param("/meta/views.py", marks=pytest.mark.slow)])
def test_an_interrupt_at_each_place_of_a_view_leaves_a_whole_table(db, monkeypatch, source):
    monkeypatch.setattr(interrupts, "SOURCES", (source,))
    for number in itertools.count(1):
        interrupted, after = reading_a_table(db, f"{source.strip('/').replace('/', '-')}-{number}", number)
        assert interrupted.error is None or isinstance(interrupted.error, KeyboardInterrupt), interrupted.place
        finished(after, f"{number}: {interrupted.place}")
        if interrupted.place is None:
            return
