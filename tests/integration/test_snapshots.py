"""Snapshots and backups of a database that is being written to, cleaned and read."""

import itertools
import os
import random
import tempfile
import threading

import pytest

import logdb
from logdb.log.log import Log
from logdb.meta.reader_writer_lock import ReaderWriterLock
from logdb.model import ProducerIdAndEpoch, TopicPartition
from support import damage
from support.transactional import Writer
from support.transactions import committed, produce
from support.waiting import until

COUNT = 8 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))


class Load:
    """Threads that each do something to a database: so many rounds of it whenever they are told to."""

    ROUNDS = 12

    def __init__(self, *works):
        self._permits = [threading.Semaphore(0) for _ in works]
        self.rounds = [0] * len(works)
        self._stopping = False
        self._failures = []
        self._threads = [threading.Thread(target=self._run, args=(slot, work)) for slot, work in enumerate(works)]

    def _run(self, slot, work):
        try:
            while self._permits[slot].acquire() and not self._stopping:
                work()
                self.rounds[slot] += 1
        except Exception as error:  # noqa: BLE001 -- shown by the test
            self._failures.append(error)

    def go_on(self):
        """Let every thread do its rounds; returns once each has done one of them."""
        before = list(self.rounds)
        for permits in self._permits:
            permits.release(self.ROUNDS)
        until(lambda: self._failures or all(now > then for then, now in zip(before, self.rounds, strict=True)), "rounds")
        assert not self._failures

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._stopping = True
        for permits in self._permits:
            permits.release()
        for thread in self._threads:
            thread.join()
        assert not self._failures


def copies(db, tmp_path, number):
    """One snapshot and one backup, restored."""
    db.snapshot(tmp_path / f"snapshot-{number}")
    yield tmp_path / f"snapshot-{number}"
    db.backup(tmp_path / f"backup-{number}")
    logdb.restore(tmp_path / f"backup-{number}", tmp_path / f"restored-{number}")
    yield tmp_path / f"restored-{number}"


@pytest.mark.parametrize("level", ["os", "fsync"])
def test_beside_threads_that_append(tmp_path, level):
    """A copy holds a prefix of each partition, with all that was acknowledged before the call."""
    written = [[] for _ in range(3)]
    with logdb.open(tmp_path / "db", durability=level) as db:
        db.create_topic("t", partitions=3, config={"segment.bytes": 20_000})

        def append(partition):
            many = [b"%d-%d " % (partition, len(written[partition]) + row) * 5 for row in range(20)]
            db.log("t", partition).append_many(many)
            written[partition] += many

        with Load(*(lambda partition=partition: append(partition) for partition in range(3))) as load:
            for number in range(COUNT // 2):
                load.go_on()
                acknowledged = [len(values) for values in written]
                for least, path in zip((acknowledged, acknowledged), copies(db, tmp_path, number), strict=True):
                    found = [[row[3] for row in rows] for rows in damage.content(path).values()]
                    for partition, values in enumerate(found):
                        assert values == written[partition][: len(values)]
                        assert len(values) >= least[partition]
                    report = logdb.verify(path)
                    assert report.ok, report.problems
    assert logdb.verify(tmp_path / "db").ok


def test_a_copy_never_changes(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 5_000})
        log = db.log("t")
        log.append_many([b"x" * 90] * 500)
        db.snapshot(tmp_path / "snapshot")
        before, read = damage.snapshot(tmp_path / "snapshot"), damage.content(tmp_path / "snapshot")
        log.append_many([b"y" * 90] * 500)
        db.delete_records("t", 0, 300)
        db.alter_topic("t", config={"retention.ms": 5})
        db.flush()
        db.close()
        with logdb.open(tmp_path / "db") as again:
            again.delete_topic("t")
    assert damage.snapshot(tmp_path / "snapshot") == before
    assert damage.content(tmp_path / "snapshot") == read
    assert logdb.verify(tmp_path / "snapshot").ok


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system in memory")
def test_onto_another_device(tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere, logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 5_000})
        for number in range(20):
            db.log("t").append_many([b"%d" % number * 90] * 10)
        db.snapshot(f"{elsewhere}/snapshot")
        assert damage.content(f"{elsewhere}/snapshot") == damage.content(tmp_path / "db")
        assert logdb.verify(f"{elsewhere}/snapshot").ok
        with logdb.open(f"{elsewhere}/snapshot", mode="r") as snapshot:
            snapshot.snapshot(tmp_path / "back")
        assert damage.content(tmp_path / "back") == damage.content(tmp_path / "db")
        logdb.restore(f"{elsewhere}/snapshot", tmp_path / "restored")
        assert damage.content(tmp_path / "restored") == damage.content(tmp_path / "db")
        for name in ("back", "restored", "db"):
            assert logdb.verify(tmp_path / name).ok


def test_beside_retention_compaction_and_topics_that_come_and_go(tmp_path):
    rng, counter = random.Random(1), itertools.count()
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("kv", config={"cleanup.policy": "compact", "segment.bytes": 4_000, "min.cleanable.dirty.ratio": 0.01})
        db.create_topic("log", config={"segment.bytes": 2_000})
        kv, log = db.log("kv"), db.log("log")

        def update():
            for _ in range(50):
                kv.append(b"%d" % next(counter), b"%d" % rng.randrange(20))
            kv.flush(sync=False)

        def shorten():
            log.append_many([b"z" * 100] * 30)
            db.delete_records("log", 0, max(log.start_offset, log.end_offset - 60))

        def come_and_go():
            db.create_topic("guest", partitions=2)
            db.log("guest", 1).append(b"x")
            db.delete_topic("guest")

        with Load(update, lambda: db.compact("kv"), shorten, come_and_go) as load:
            for number in range(COUNT):
                load.go_on()
                latest = {}
                for record in kv.read(0, end_offset=kv.end_offset):
                    latest[record.key] = record.value
                for path in copies(db, tmp_path, number):
                    report = logdb.verify(path)
                    assert report.ok, report.problems
                    content = damage.content(path)
                    table = {row[2]: row[3] for row in content["kv", 0]}
                    assert all(int(table[key]) >= int(value) for key, value in latest.items())
                    offsets = [row[0] for row in content["log", 0]]
                    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_during_transactions(tmp_path):
    """Whole transactions only: two partitions that always get the same have the same in every copy."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2, config={"segment.bytes": 10_000})
        logs, lock, counter = [db.log("t", partition) for partition in (0, 1)], db._store.transaction_lock, itertools.count()
        producer = ProducerIdAndEpoch(1, 0)

        def transact():
            number = next(counter)
            for log in logs:
                produce(log, producer, number, [b"%d" % number], transactional=True)
            with lock:
                for log in logs:
                    log.append_marker(producer, commit=number % 3 > 0, coordinator_epoch=0)

        with Load(transact) as load:
            for number in range(COUNT):
                for _ in range(3):  # of the first three transactions two are committed
                    load.go_on()
                db.snapshot(tmp_path / f"snapshot-{number}")
    for number in range(COUNT):
        with logdb.open(tmp_path / f"snapshot-{number}", mode="r") as snapshot:
            one, other = (committed(snapshot.log("t", partition)) for partition in (0, 1))
            assert one == other
            assert len(one) > 1
            assert all(int(value) % 3 for value in one)
        assert logdb.verify(tmp_path / f"snapshot-{number}").ok


def test_groups_and_transactions_through_the_broker(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("in", partitions=2)
        db.create_topic("out")
        with db.producer() as producer:
            for number in range(200):
                producer.send("in", b"%d" % number, key=b"%d" % (number % 5))
        with db.consumer("in", group_id="g", auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            seen = 0
            while seen < 200:
                with db.transaction("etl") as tx:
                    for records in consumer.poll(timeout_ms=1000, max_records=20).values():
                        for record in records:
                            tx.send("out", record.value)
                            seen += 1
                    tx.send_offsets(consumer)
                if seen == 100:
                    db.backup(tmp_path / "half")
        db.snapshot(tmp_path / "snapshot")
    logdb.restore(tmp_path / "half", tmp_path / "restored")
    assert logdb.verify(tmp_path / "restored").ok
    with logdb.open(tmp_path / "snapshot", mode="r") as snapshot:
        assert sorted(committed(snapshot.log("out")), key=int) == [b"%d" % number for number in range(200)]
    with logdb.open(tmp_path / "restored") as db:
        assert len(committed(db.log("out"))) == 100
        with db.consumer("in", group_id="g", auto_offset_reset="none", isolation_level="read_committed") as consumer:
            rest = 0
            while rest < 100:
                rest += sum(len(records) for records in consumer.poll(timeout_ms=1000).values())
            assert rest == 100


def test_a_copy_has_the_completion_of_what_was_committed_before(tmp_path, monkeypatch):
    """Or it would say for ever that the transaction is being committed, and be completed anew at each opening."""
    monkeypatch.setattr("logdb.broker.runner._DEFER_MS", 3_600_000)
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        for number in range(2):
            with db.transaction("id") as tx:
                tx.send("t", b"%d" % number)
            for path in copies(db, tmp_path, number):
                with logdb.open(path, mode="r") as copy:
                    assert copy.describe_transaction("id").state == "CompleteCommit"
                    assert committed(copy.log("t")) == [b"0", b"1"][: number + 1]


@pytest.mark.parametrize("kind", ["snapshot", "backup"])
def test_a_restored_database_gives_no_producer_id_twice(tmp_path, kind):
    """Also while the clock stands still: the second producer's record would count as a repetition of the first one's."""
    with logdb.open(tmp_path / "db", clock=lambda: 1_700_000_000_000) as db:
        db.create_topic("t")
        with db.producer() as producer:
            producer.send("t", b"one")
        getattr(db, kind)(tmp_path / "copy")
    logdb.restore([tmp_path / "copy"] if kind == "backup" else tmp_path / "copy", tmp_path / "restored")
    with logdb.open(tmp_path / "restored", clock=lambda: 1_700_000_000_000) as db:
        with db.producer() as producer:
            future = producer.send("t", b"two")
        assert future.result().offset == 1
        assert [record.value for record in db.log("t").read(0)] == [b"one", b"two"]


class NoticedLock(ReaderWriterLock):
    """Says when a thread comes to it."""

    def __init__(self):
        super().__init__()
        self.came = threading.Event()

    def __enter__(self):
        self.came.set()
        super().__enter__()


def test_no_transaction_is_decided_while_ends_are_noted(tmp_path, monkeypatch):
    """Else its decision would be in the copy, and what it wrote to a partition after its end was noted would not."""
    capture, threads = Log.capture, []

    def commit_after(log):
        captured = capture(log)
        if (log.topic, log.partition) == ("t", 0) and not threads:
            writer.write(TopicPartition("t", 0), b"more")
            lock.came.clear()
            threads.append(threading.Thread(target=writer.end, kwargs={"commit": True}))
            threads[0].start()
            assert lock.came.wait(60)
        return captured

    monkeypatch.setattr("logdb.store.state.ReaderWriterLock", NoticedLock)
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        writer = Writer(db._session)
        for partition in (0, 1):
            writer.write(TopicPartition("t", partition), b"one")
        lock = db._store.transaction_lock
        monkeypatch.setattr(Log, "capture", commit_after)
        db.backup(tmp_path / "backup")
        threads[0].join()
        assert committed(db.log("t", 0)) == [b"one", b"more"]
    logdb.restore(tmp_path / "backup", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as db:
        assert [committed(db.log("t", partition)) for partition in (0, 1)] == [[], []]
