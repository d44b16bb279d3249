import itertools
import os
import shutil
import threading
import time

import pytest

import logdb
from logdb import serde
from logdb.errors import Closed, DiskFull, ReadFailed, SerializationError, TopicDeleted, UnknownPartition, UnknownTopic
from logdb.meta.views import View
from logdb.model import TopicPartition
from support.places import opened
from support.power_cut import die

DAY = 86_400_000


class Clock:
    now_ms = 1_000 * DAY

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "db")


@pytest.fixture
def db(place, path, clock):
    with opened(place, path, clock=clock) as database:
        database.create_topic("t", partitions=3)
        yield database


def put(db, topic="t", **rows):
    db.append_many(topic, [None if value is None else value.encode() for value in rows.values()], [key.encode() for key in rows])


def texts(table):
    return {key.decode(): value.decode() for key, value in table.items()}


def replayed(db, topic="t"):
    """What the table should have: a replay of the topic into a dict."""
    found = {}
    for partition in range(db.describe_topic(topic).partition_count):
        log = db.log(topic, partition)
        for record in log.read(log.start_offset, isolation_level="read_committed"):
            if record.value is None:
                found.pop(record.key, None)
            elif record.key is not None:
                found[record.key] = record.value
    return found


# ---------------------------------------------------------------- a mapping


def test_a_table_is_a_mapping_of_the_latest_values(db):
    table = db.table("t")
    assert (len(table), list(table), dict(table)) == (0, [], {})
    put(db, a="1", b="2", c="3")
    put(db, a="4", b=None)
    assert table["a"] == table[b"a"] == table[memoryview(b"a")] == b"4"
    assert "a" in table
    assert "b" not in table
    assert table.get("b", 0) == 0
    with pytest.raises(KeyError):
        table["b"]
    assert (set(table), set(table.keys()), sorted(table.values())) == ({b"a", b"c"}, {b"a", b"c"}, [b"3", b"4"])
    assert table == {b"a": b"4", b"c": b"3"}
    assert (b"a", b"4") in table.items()
    assert b"3" in table.values()
    assert len(table.items()) == len(table) == 2
    assert repr(table) == "<Table t>"


def test_each_access_sees_what_was_appended_before_it(db):
    table = db.table("t")
    for number in range(100):
        db.append("t", b"%d" % number, b"k%d" % (number % 7))
        assert table[f"k{number % 7}"] == b"%d" % number
        assert len(table) == min(number + 1, 7)


def test_an_entry_says_where_its_record_lies(db):
    where = db.append("t", b"v", b"k", timestamp_ms=1234)
    assert db.table("t").entry("k") == (b"k", b"v", where.partition, where.offset, 1234)
    assert db.table("t").entry("none") is None
    assert list(db.table("t").entries()) == [db.table("t").entry("k")]


def test_the_values_of_many_keys_in_their_order(db):
    put(db, a="1", b="2")
    table = db.table("t")
    assert table.get_many([b"b", "a", b"c", "b"]) == [b"2", b"1", None, b"2"]
    put(db, a=None, c="3")
    assert db.table("t", value_deserializer="string").get_many(["a", "b", "c"]) == [None, "2", "3"]
    assert table.get_many([]) == []
    with pytest.raises(TypeError):
        table.get_many([7])


def test_records_without_a_key_are_passed_by_and_empty_ones_are_not(db):
    db.append("t", b"nobody's")
    db.append("t", b"", b"")
    assert dict(db.table("t")) == {b"": b""}
    db.append("t", None)
    db.append("t", None, b"")
    assert dict(db.table("t")) == {}


def test_an_iteration_shows_one_moment(db):
    put(db, **{f"k{number:03}": "old" for number in range(200)})
    items = iter(db.table("t").items())
    first = next(items)
    put(db, k000=None, k150="new", k250="new")
    assert dict([first, *items]) == {b"k%03d" % number: b"old" for number in range(200)}
    assert len(db.table("t")) == 200


def test_keys_and_values_of_other_types(db):
    table = db.table("t", key_deserializer=serde.string, value_deserializer=serde.json)
    db.append("t", b'{"n": 1}', b"user-7")
    assert table["user-7"] == {"n": 1}
    assert list(table) == ["user-7"]
    assert dict(table) == {"user-7": {"n": 1}}
    assert table.entry("user-7").value == {"n": 1}
    db.append("t", b"no json", b"bad")
    with pytest.raises(SerializationError):
        table["bad"]
    with pytest.raises(SerializationError):
        list(table.values())
    upper = db.table("t", key_deserializer=lambda data: data.decode().upper())
    assert sorted(upper) == ["BAD", "USER-7"]
    assert b"user-7" in upper
    with pytest.raises(TypeError, match="serializes"):
        upper["USER-7"]
    with pytest.raises(TypeError, match="int"):
        db.table("t")[7]


def test_what_is_not_committed_is_not_there(db):
    table = db.table("t")
    put(db, a="before")
    with db.transaction("tx") as tx:
        tx.send("t", b"inside", b"a")
        tx.send("t", b"new", b"b")
        tx.flush()
        assert texts(table) == {"a": "before"}
    assert texts(table) == {"a": "inside", "b": "new"}
    with pytest.raises(RuntimeError), db.transaction("tx") as tx:
        tx.send("t", b"aborted", b"a")
        tx.flush()
        raise RuntimeError
    put(db, c="after")
    assert texts(table) == {"a": "inside", "b": "new", "c": "after"}


@pytest.mark.local
def test_a_reader_beside_the_writer_has_a_table_of_its_own(db):
    put(db, a="1")
    with logdb.open(db.path, mode="r") as reader:
        table = reader.table("t")
        assert texts(table) == {"a": "1"}
        put(db, a="2", b="3")
        assert texts(table) == {"a": "2", "b": "3"}
        assert not os.path.exists(os.path.join(db.path, "views"))
        temporary = reader._views._temporary
        assert os.listdir(temporary)
    assert not os.path.exists(temporary)


# ---------------------------------------------------------------- what was removed


def test_deleted_records_are_in_no_table(db):
    table = db.table("t")
    put(db, **{f"k{number}": "1" for number in range(50)})
    assert len(table) == 50
    for partition in range(3):
        db.delete_records("t", partition, 5)
    assert table == replayed(db)
    assert 0 < len(table) < 50
    for partition in range(3):
        db.delete_records("t", partition, -1)
    assert len(table) == 0
    put(db, new="1")
    assert texts(table) == {"new": "1"}


def test_what_came_and_went_between_two_reads(db):
    table = db.table("t")
    put(db, a="1", b="1")
    assert len(table) == 2
    put(db, **{f"k{number}": "1" for number in range(50)})
    for partition in range(3):
        db.delete_records("t", partition, -1)
    put(db, b="2")
    assert texts(table) == {"b": "2"}


@pytest.mark.local
def test_retention_takes_its_entries(db, clock):
    db.create_topic("short", config={"retention.ms": DAY, "segment.bytes": 1024})
    table = db.table("short")
    for number in range(40):
        db.append("short", bytes(100), b"%d" % number)
        db.flush()
    assert len(table) == 40
    db._store.checkpoint([db.log("short")])
    clock.now_ms += 2 * DAY
    db._store.writer.retention.enforce()
    assert db.log("short").start_offset > 20
    assert table == replayed(db, "short")


def test_partitions_that_are_added(db):
    table = db.table("t")
    put(db, **{f"k{number}": "old" for number in range(30)})
    assert len(table) == 30
    db.alter_topic("t", partitions=7)
    put(db, **{f"k{number}": "new" for number in range(30)})
    table._view._state.looked_ms = -(10**9)  # a second later
    assert set(table.values()) == {b"new"}
    assert len({entry.partition for entry in table.entries()}) > 3


@pytest.mark.local
def test_a_topic_that_is_deleted_and_made_anew(db):
    table = db.table("t")
    put(db, a="1")
    assert "a" in table
    db.delete_topic("t")
    with pytest.raises(UnknownTopic):
        table.get("a")
    with pytest.raises(UnknownTopic):
        db.table("t")
    db.create_topic("t")
    assert len(table) == 0
    put(db, b="2")
    assert texts(table) == {"b": "2"}
    assert len(os.listdir(os.path.join(db.path, "views"))) == 1


@pytest.mark.local
def test_a_topic_made_anew_beside_a_reader(db):
    put(db, a="1")
    with logdb.open(db.path, mode="r") as reader:
        table = reader.table("t")
        assert "a" in table
        db.delete_topic("t")
        db.create_topic("t")
        put(db, b="2")
        assert texts(table) == {"b": "2"}


# ---------------------------------------------------------------- found again, or made anew


class Reads:
    """Counts the records that are read for views."""

    def __init__(self, monkeypatch):
        self.count = 0
        update = View.update

        def counted(view, changes, positions, *, mixed=False):
            self.count += len(changes)
            update(view, changes, positions, mixed=mixed)

        monkeypatch.setattr(View, "update", counted)


@pytest.fixture
def reads(monkeypatch):
    return Reads(monkeypatch)


def test_a_view_is_gone_on_with_when_the_database_is_opened_again(path, reads):
    with logdb.open(path) as db:
        db.create_topic("t")
        put(db, **{f"k{number}": "1" for number in range(100)})
        assert len(db.table("t")) == 100
    with logdb.open(path) as db:
        put(db, k5="2", new="1")
        reads.count = 0
        assert len(db.table("t")) == 101
        assert db.table("t")["k5"] == b"2"
        assert reads.count == 2


def test_and_after_a_kill(path, reads):
    db = logdb.open(path)
    db.create_topic("t")
    put(db, a="1", b="1")
    assert len(db.table("t")) == 2
    put(db, c="1")
    die(db)
    db._views._views["t"]._state.view._lmdb.close()
    reads.count = 0
    with logdb.open(path) as db:
        assert texts(db.table("t")) == {"a": "1", "b": "1", "c": "1"}
        assert reads.count == 1


@pytest.mark.parametrize("others", [0, 5])
def test_a_view_whose_records_were_lost_is_made_anew(path, others):
    """The log ends before the position; or other records, of a later epoch, have come in the place of those it has."""
    with logdb.open(path) as db:
        db.create_topic("t")
        put(db, kept="1")
    shutil.copytree(path, path + "-lost")
    with logdb.open(path) as db:
        put(db, lost="1", kept="2")
        assert len(db.table("t")) == 2
    die(logdb.open(path + "-lost"))
    with logdb.open(path + "-lost") as db:
        put(db, **{f"other{number}": "1" for number in range(others)})
    shutil.copytree(os.path.join(path, "views"), os.path.join(path + "-lost", "views"))
    with logdb.open(path + "-lost") as db:
        assert texts(db.table("t")) == {"kept": "1", **{f"other{number}": "1" for number in range(others)}}


def test_a_view_that_is_damaged_is_made_anew(db, reads):
    table = db.table("t")
    put(db, a="1", b="1")
    assert len(table) == 2
    view = table._view._state.view

    def damage():
        with view._lmdb.begin(db=view._entries, write=True) as txn:
            txn.put(b"\0a", b"nonsense that is as long as an entry")
        view.update({}, {})

    damage()
    assert table["a"] == b"1"
    damage()
    with pytest.raises(ReadFailed, match="rebuilt") as caught:
        list(table.items())
    assert caught.value.retriable
    assert texts(table) == {"a": "1", "b": "1"}


def missed_tombstone(db, clock):
    """A table that has a key whose tombstone compaction has deleted since."""
    db.create_topic("c", config={"cleanup.policy": "compact", "delete.retention.ms": DAY})
    table = db.table("c")
    put(db, "c", a="1", b="1")
    assert len(table) == 2
    put(db, "c", a=None)
    put(db, "c", c="1")
    db.compact("c")
    clock.now_ms += DAY + 1
    db.compact("c")
    return table


def test_a_tombstone_that_compaction_took_along(db, clock, reads):
    table = missed_tombstone(db, clock)
    assert all(record.key != b"a" for record in db.log("c").read(0)), "the tombstone is gone"
    assert texts(table) == {"b": "1", "c": "1"}
    reads.count = 0
    put(db, "c", d="1")
    clock.now_ms += 2 * DAY
    assert len(table) == 3
    assert reads.count == 1, "no compaction came by: nothing can have been missed"


def test_a_catch_up_that_fails_half_way_does_not_hide_a_missed_tombstone(db, clock, monkeypatch):
    monkeypatch.setattr("logdb.client.table.view._CHANGES_SIZE_BYTES", 1)  # a transaction for each record
    table = missed_tombstone(db, clock)
    put(db, "c", d="1")
    update, calls = View.update, []

    def failing(view, changes, positions, **options):
        calls.append(changes)
        if len(calls) == 2:
            raise DiskFull(view.path, 0, "no space")
        update(view, changes, positions, **options)

    monkeypatch.setattr(View, "update", failing)
    with pytest.raises(DiskFull):
        table.refresh()
    assert texts(table) == {"b": "1", "c": "1", "d": "1"}


def test_a_table_that_keeps_up_with_compaction_is_not_made_anew(db, clock, reads):
    db.create_topic("c", config={"cleanup.policy": "compact", "delete.retention.ms": DAY})
    table = db.table("c")
    for number in range(10):
        put(db, "c", **{f"k{number}": "1", "a": str(number)})
        assert table["a"] == str(number).encode()
        db.compact("c")
        clock.now_ms += DAY // 2
        assert len(table) == number + 2
    assert reads.count == 20


def test_views_of_deleted_topics_are_removed(path):
    with logdb.open(path) as db:
        for name in ("t", "gone"):
            db.create_topic(name)
            put(db, name, a="1")
            assert len(db.table(name)) == 1
    with logdb.open(path) as db:
        db.delete_topic("gone")
    with logdb.open(path) as db:
        assert len(db.table("t")) == 1
        assert os.listdir(os.path.join(path, "views")) == [db.describe_topic("t").topic_id]
    assert logdb.verify(path).ok


# ---------------------------------------------------------------- keeping up


def test_waiting_for_records(db):
    table = db.table("t")
    where = db.append("t", b"1", b"a")
    at = TopicPartition("t", where.partition)
    assert table.wait_for({at: where.offset}, 0)
    assert not table.wait_for({at: where.offset + 1}, 0)
    assert table.wait_for({}, 0)
    assert table.positions()[at] == 1
    waiting = threading.Thread(target=lambda: results.append(table.wait_for({at: 5}, 60_000)))
    results: list[bool] = []
    waiting.start()
    for number in range(6):
        db.log("t", at.partition).append(b"%d" % number, b"k")
    db.flush()
    waiting.join()
    assert results == [True]
    assert table["k"] == b"5"
    with pytest.raises(ValueError, match="other-0"):
        table.wait_for({TopicPartition("other", 0): 1})
    with pytest.raises(UnknownPartition):
        table.wait_for({TopicPartition("t", 3): 1})


def test_catching_up_waits_for_open_transactions(db):
    table = db.table("t")
    assert table.catch_up(0)
    with db.producer(transactional_id="slow") as slow:
        slow.begin_transaction()
        slow.send("t", b"1", b"a", partition=0)
        slow.flush()
        with db.transaction("fast") as transaction:
            transaction.send("t", b"42", b"b", partition=0)
        assert "b" not in table
        assert not table.catch_up(0)
        results: list[bool] = []
        waiting = threading.Thread(target=lambda: results.append(table.catch_up()))
        waiting.start()
        slow.abort_transaction()
        waiting.join()
    assert results == [True]
    assert dict(table) == {b"b": b"42"}
    assert table.wait_for({("t", 0): db.log("t", 0).end_offset - 1}, 0), "a partition may be a pair"


def test_a_wait_ends_where_another_topic_has_the_name(db):
    db.create_topic("again")
    table, result = db.table("again"), []

    def wait():
        with pytest.raises((Closed, TopicDeleted, UnknownTopic)):
            table.wait_for({TopicPartition("again", 0): 5})
        result.append(True)

    assert table.positions() == {TopicPartition("again", 0): 0}
    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    db.delete_topic("again")
    db.create_topic("again")
    waiting.join(30)
    assert result == [True]


def test_totals_of_workers_whose_transactions_overlap(db):
    """The program of the tutorial, twice at once: an open transaction of one hides what the other has committed behind it."""
    db.create_topic("orders", partitions=4)
    db.create_topic("totals", config={"cleanup.policy": "compact"})
    customers = [b"c%d" % number for number in range(8)]
    for _ in range(10):
        db.append_many("orders", [b"1"] * len(customers), customers)

    def work(name, pause_s):
        totals = db.table("totals")
        with db.consumer("orders", group_id="adders", auto_offset_reset="earliest") as consumer:
            while batches := consumer.poll(timeout_ms=3_000, max_records=4):
                totals.catch_up()
                new = {}
                for record in itertools.chain(*batches.values()):
                    before = new[record.key] if record.key in new else int(totals.get(record.key, b"0"))
                    new[record.key] = before + int(record.value)
                with db.transaction(name) as transaction:
                    for customer, total in new.items():
                        transaction.send("totals", b"%d" % total, key=customer)
                    time.sleep(pause_s)
                    transaction.send_offsets(consumer)

    workers = [threading.Thread(target=work, args=(f"adder-{pause_s}", pause_s)) for pause_s in (0.1, 0.01)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert dict(db.table("totals")) == dict.fromkeys(customers, b"10")


def test_a_table_that_another_thread_opens_is_not_taken_for_current(db, monkeypatch):
    db.create_topic("opening")
    db.append("opening", b"1", b"k")
    table, log, seen = db.table("opening"), db._session.log, []

    def slow_log(topic, partition):
        seen.append(table._view._is_behind(table._view._state))
        return log(topic, partition)

    monkeypatch.setattr(db._session, "log", slow_log)
    assert table["k"] == b"1"
    assert seen and all(seen)


def test_a_look_up_whose_view_another_thread_closes(db, monkeypatch):
    put(db, a="1")
    table, get = db.table("t"), View.get
    for close, expected in ((table._view._close_view, "1"), (lambda: db.delete_topic("t"), None)):

        def late(view, key, close=close):
            monkeypatch.setattr(View, "get", get)
            close()
            return view.get(key)

        monkeypatch.setattr(View, "get", late)
        if expected is None:
            with pytest.raises(UnknownTopic):
                table["a"]
        else:
            assert table["a"] == expected.encode()


def test_threads_and_tables(db):
    names = [f"topic-{number}" for number in range(5)]
    for name in names:
        db.create_topic(name)
    failures = []

    def work(name):
        try:
            table = db.table(name)
            for number in range(20):
                db.append(name, b"%d" % number, b"shared")
                assert int(table["shared"]) >= number
                assert len(table) == len(list(table)) == 1
        except Exception as error:  # noqa: BLE001 -- the test is to hear of it
            failures.append(error)

    def read(name):
        try:
            values = [int(db.table(name).get("shared", b"0")) for _ in range(30)]
            assert values == sorted(values)
        except Exception as error:  # noqa: BLE001 -- the test is to hear of it
            failures.append(error)

    threads = [threading.Thread(target=what, args=(name,)) for name in names for what in (work, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_table_of_a_closed_database(path):
    with logdb.open(path) as db:
        db.create_topic("t")
        put(db, a="1", b="1")
        table = db.table("t")
        items = iter(table.items())
        next(items)
    for look in (lambda: table["a"], lambda: len(table), lambda: list(table), table.refresh, lambda: next(items)):
        with pytest.raises(Closed):
            look()
    with pytest.raises(Closed):
        db.table("t")


def test_a_snapshot_has_tables_too(db, tmp_path):
    put(db, a="1")
    assert len(db.table("t")) == 1
    db.snapshot(tmp_path / "copy")
    put(db, a="2")
    with logdb.open(tmp_path / "copy", mode="r") as copy:
        assert texts(copy.table("t")) == {"a": "1"}


# ---------------------------------------------------------------- the work of catching up


@pytest.fixture
def updates(monkeypatch):
    """For each transaction of a view, how many entries it puts."""
    counts, update = [], View.update

    def counted(self, changes, positions, *, mixed=False):
        counts.append(len(changes))
        update(self, changes, positions, mixed=mixed)

    monkeypatch.setattr(View, "update", counted)
    return counts


def test_a_key_is_put_once_however_often_it_was_appended(tmp_path, updates):
    with logdb.open(tmp_path) as db:
        db.create_topic("t")
        keys = [b"%05d" % (number * 7919 % 10_000) for number in range(60_000)]
        db.log("t").append_many([b"%d" % number for number in range(60_000)], keys)
        assert len(db.table("t")) == 10_000
        assert updates == [10_000]
        assert replayed(db) == dict(db.table("t").items())


@pytest.mark.parametrize(("key_count", "value_size"), [(100, 1 << 20), (60_000, 10)])
def test_what_a_transaction_takes_of_memory_is_bounded(tmp_path, updates, key_count, value_size):
    """By the values of its keys, and by their number; a value that is replaced is no longer there."""
    with logdb.open(tmp_path, durability="os") as db:
        db.create_topic("t", config={"max.message.bytes": 2 << 20})
        log = db.log("t")
        for first in range(0, key_count, 10_000):
            numbers = range(first, min(first + 10_000, key_count))
            for _ in range(2):
                log.append_many([bytes(value_size)] * len(numbers), [b"%d" % number for number in numbers])
        assert len(db.table("t")) == key_count
        assert max(updates) * (value_size + 500) <= 17 << 20
        assert len(updates) <= 2 + 2 * key_count * (value_size + 500 + 4_096) // (16 << 20)  # a page of LMDB for each key at most
