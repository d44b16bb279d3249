"""Producers of a database: memory under a burst, what becomes of them when topics change, when it closes, when the program ends."""

import os
import subprocess
import sys
import threading

import pytest

import logdb
from logdb.errors import Closed, CloseIncomplete, ReadOnly, RecordTooLarge, UnknownTopic
from logdb.model import RecordMetadata
from support.faulty_io import FaultyIO
from support.places import opened

PAGE_SIZE_BYTES = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def db(place, tmp_path):
    with opened(place, tmp_path / "db") as database:
        database.create_topic("t")
        yield database


def values(db, topic="t", partition=0):
    return [record.value for record in db.log(topic, partition).read(0)]


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_SIZE_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_burst_ten_times_the_consumers_speed_in_bounded_memory(db):
    count, size, pace, done = 150_000, 1_000, threading.Semaphore(0), threading.Event()
    seen = []

    def consume():
        for record in db.log("t").follow(0, stop=done):
            if not done.is_set():
                pace.acquire()  # one for every ten that are sent
            seen.append(int(record.value[:9]))
            if len(seen) == count // 10:
                return

    consumer = threading.Thread(target=consume)
    consumer.start()
    filler, peak = bytes(size - 9), 0
    with db.producer(buffer_memory=4 << 20) as producer:
        producer.send("t", b"%09d" % 0 + filler)
        before = resident_bytes()
        for number in range(1, count):
            producer.send("t", b"%09d" % number + filler)
            if number % 10 == 0:
                pace.release()
            if number % 1000 == 0:
                peak = max(peak, resident_bytes())
    pace.release()
    consumer.join(60)
    done.set()
    assert seen == list(range(count // 10)), "a tenth was consumed while the burst went on"
    assert [int(record.value[:9]) for record in db.log("t").read(count - 1000)] == list(range(count - 1000, count))
    assert peak - before < 48 << 20, f"{(peak - before) >> 20} MiB for a burst of {count * size >> 20} MiB"


def test_changes_of_topics_are_heard_of(db):
    with db.producer(linger_ms=0) as producer:
        producer.send("t", b"v", b"k").result(30)
        db.alter_topic("t", partitions=4, config={"max.message.bytes": 500})
        assert {producer.send("t", b"v", b"%d" % number).result(30).partition for number in range(50)} == {0, 1, 2, 3}
        with pytest.raises(RecordTooLarge):
            producer.send("t", bytes(500))
        db.delete_topic("t")
        with pytest.raises(UnknownTopic):
            producer.send("t", b"v")
        db.create_topic("t")
        assert producer.send("t", b"v").result(30) == RecordMetadata("t", 0, 0, db.log("t").read(0).__next__().timestamp_ms)


def test_closing_the_database_writes_what_its_producers_hold(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    producers = [db.producer(linger_ms=60_000, transactional_id=name) for name in (None, None, "etl")]
    producers[2].begin_transaction()
    futures = [producer.send("t", b"%d" % number) for number, producer in enumerate(producers)]
    db.close()
    assert sorted(future.result(0).offset for future in futures[:2]) == [0, 1]
    assert isinstance(futures[2].exception(), logdb.errors.TransactionAborted)
    for producer in producers:
        with pytest.raises(Closed):
            producer.send("t", b"late")
    with pytest.raises(Closed):
        db.producer()
    with logdb.open(tmp_path / "db", mode="r") as again:
        assert sorted(record.value for record in again.log("t").read(0, isolation_level="read_committed")) == [b"0", b"1"]
        with pytest.raises(ReadOnly):
            again.producer()


def test_closing_on_a_full_disk_says_how_many_records_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("logdb.client.database._PRODUCER_CLOSE_MS", 50)
    io = FaultyIO()
    db = logdb.open(tmp_path / "db", io=io)
    db.create_topic("t")
    producer = db.producer()
    producer.send("t", b"before").result(30)
    io.fill_up()
    futures = [producer.send("t", b"v") for _ in range(7)]
    with pytest.raises(CloseIncomplete, match="lost 7 records"):
        db.close()
    for future in futures:
        with pytest.raises(Closed):
            future.result(30)


def test_a_program_that_ends_without_closing_loses_nothing(tmp_path):
    program = """
import logdb, sys
db = logdb.open(sys.argv[1])
db.create_topic("t")
producer = db.producer(linger_ms=60_000)
for number in range(1000):
    producer.send("t", b"%d" % number)
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "db"], check=True, timeout=60)
    with logdb.open(tmp_path / "db") as db:
        assert values(db) == [b"%d" % number for number in range(1000)]


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    program = """
import logdb, os, signal, sys
db = logdb.open(sys.argv[1], durability="os")
db.create_topic("t")
producer = db.producer(linger_ms=0)
def told(error, metadata):
    sys.stdout.write(f"{metadata.offset}\\n")
    sys.stdout.flush()
    if metadata.offset >= 2000:
        os.kill(os.getpid(), signal.SIGKILL)
number = 0
while True:
    producer.send("t", b"%d" % number, on_delivery=told)
    number += 1
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "db"], stdout=subprocess.PIPE, timeout=60)
    told = [int(line) for line in done.stdout.splitlines()]
    assert told == list(range(2001))
    with logdb.open(tmp_path / "db") as db:
        read = values(db)
    assert len(read) > 2000 and read == [b"%d" % number for number in range(len(read))]
