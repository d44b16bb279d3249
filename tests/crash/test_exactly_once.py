"""Consume, transform, produce, killed again and again: how often each record comes out is what was promised.

exactly once    records and offsets in one transaction
at least once   records, then the offsets: what was killed in between comes twice
at most once    the offsets, then the records: what was killed in between never comes
"""

import collections
import os
import random
import select
import signal
import subprocess
import sys
import time

import pytest

import logdb
from logdb.model import TopicPartition
from support.power_cut import Killed, PowerCutIO, commits_noted, die, quiet
from support.transactional import Writer

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
ROUNDS = 20 * SCALE
PARTITIONS = 2
POLL_RECORDS_MAX = 20
IN = [TopicPartition("in", partition) for partition in range(PARTITIONS)]

# Reads "in", writes what it reads to the same partition of "out", and says so after each step; ends when told to, or at the end.
WORKER = """
import random, sys, logdb
path, promise, seed, until_end = sys.argv[1:]
rng = random.Random(seed)
def transform(send, batches):
    for where, records in batches.items():
        for record in records:
            send("out", record.value, partition=where.partition)
with logdb.open(path) as db, db.consumer("in", group_id="g", auto_offset_reset="earliest") as consumer:
    while True:
        batches = consumer.poll(timeout_ms=200, max_records=rng.randrange(1, 21) if until_end == "no" else 10_000)
        if not batches:
            print("end", flush=True)
            if until_end == "yes":
                break
        if promise == "exactly once":
            with db.transaction("etl") as tx:
                transform(tx.send, batches)
                tx.send_offsets(consumer)
        else:
            with db.producer() as producer:
                if promise == "at most once":
                    consumer.commit()
                transform(producer.send, batches)
                producer.flush()
                if promise == "at least once":
                    consumer.commit()
        print("step", flush=True)
"""


def fill(db: logdb.Database, count: int, numbers: list[int]) -> None:
    """Append values that tell their place: partition and number."""
    for partition, first in enumerate(numbers):
        db.log("in", partition).append_many([b"%d:%d" % (partition, number) for number in range(first, first + count)])
        numbers[partition] += count


def came_out(db: logdb.Database, partition: int) -> list[int]:
    """The numbers that a reader of committed records finds in a partition of ``out``."""
    log = db.log("out", partition)
    values = [record.value.split(b":") for record in log.read(0, isolation_level="read_committed")]
    assert all(int(where) == partition for where, _ in values)
    assert log.last_stable_offset == log.end_offset, "a transaction is still open"
    return [int(number) for _, number in values]


def committed_offset(db: logdb.Database, partition: int) -> int:
    found = db._session.fetch_offsets("g", [IN[partition]], require_stable=True)
    return found[IN[partition]].offset if found else 0


def run(path: str, promise: str, seed: int, kill_after_s: float | None) -> int:
    """One life of the worker; returns how many steps it told of."""
    arguments = [sys.executable, "-X", "faulthandler", "-c", WORKER, path, promise, str(seed), "yes" if kill_after_s is None else "no"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        if kill_after_s is not None:
            ready, _, _ = select.select([worker.stdout], [], [], 120)
            time.sleep(kill_after_s)
            worker.send_signal(signal.SIGKILL if ready else signal.SIGABRT)  # says where it hangs
        try:
            said, wrong = worker.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            worker.send_signal(signal.SIGABRT)
            said, wrong = worker.communicate()
        assert kill_after_s is not None or worker.returncode == 0, wrong.decode()
        assert not wrong, wrong.decode()
    return said.count(b"step\n")


@pytest.mark.slow
@pytest.mark.timeout(900 * SCALE)
@pytest.mark.parametrize("promise", ["exactly once", "at least once", "at most once"])
def test_killed_again_and_again(tmp_path, promise, record_property):
    path, seed = str(tmp_path / "db"), random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, numbers = random.Random(seed), [0] * PARTITIONS
    with logdb.open(path) as db:
        db.create_topic("in", partitions=PARTITIONS)
        db.create_topic("out", partitions=PARTITIONS)
    rounds = ROUNDS if promise == "exactly once" else max(1, ROUNDS // 5)
    for number in range(rounds):
        with logdb.open(path) as db:
            if promise == "exactly once":
                for partition in range(PARTITIONS):
                    assert came_out(db, partition) == list(range(committed_offset(db, partition))), f"after {number} kills"
            fill(db, 50, numbers)
        run(path, promise, seed + number, rng.random() * 0.05)
    run(path, promise, seed, None)
    with logdb.open(path) as db:
        counts = collections.Counter((partition, number) for partition in range(PARTITIONS) for number in came_out(db, partition))
        in_order = all(came_out(db, partition) == sorted(came_out(db, partition)) for partition in range(PARTITIONS))
    expected = {(partition, number) for partition in range(PARTITIONS) for number in range(numbers[partition])}
    assert set(counts) <= expected, "something came out that never went in"
    lost, twice = len(expected - set(counts)), sum(count - 1 for count in counts.values())
    record_property("told", f"{promise}: {rounds} kills, {len(expected)} records, {lost} lost, {twice} twice")
    most = rounds * POLL_RECORDS_MAX
    match promise:
        case "exactly once":
            assert (lost, twice, in_order) == (0, 0, True)
        case "at least once":
            assert lost == 0
            assert twice <= most, f"{twice} records came twice: more than {rounds} kills between a write and a commit explain"
        case "at most once":
            assert twice == 0
            assert lost <= most, f"{lost} records are lost: more than {rounds} kills between a commit and a write explain"
    assert logdb.verify(path).ok


# ---------------------------------------------------------------- the same without power


def transform(db: logdb.Database, rng: random.Random) -> None:
    """Until all is transformed, in transactions, in this thread alone."""
    writer = Writer(db._session, "etl")
    with db.consumer("in", group_id="g", auto_offset_reset="earliest", max_poll_interval_ms=3_600_000) as consumer:
        while batches := consumer.poll(timeout_ms=0, max_records=rng.randrange(1, 30)):
            for where, records in batches.items():
                writer.write(TopicPartition("out", where.partition), *(record.value for record in records))
            me = consumer.group_metadata()
            db._session.commit_transaction_offsets(
                "etl", writer.producer, "g", consumer.positions(), member_id=me.member_id, generation=me.generation
            )
            commit = rng.random() < 0.9
            writer.end(commit=commit)
            if not commit:
                consumer.seek_to_committed()


@pytest.mark.slow
@pytest.mark.timeout(900 * SCALE)
@pytest.mark.parametrize("level", ["interval", "fsync"])
def test_powered_off_again_and_again(tmp_path, level, record_property):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, numbers, path = random.Random(seed), [0] * PARTITIONS, str(tmp_path / "db-0")
    with logdb.open(path, durability=level) as db:
        db.create_topic("in", partitions=PARTITIONS)
        db.create_topic("out", partitions=PARTITIONS)
        fill(db, 300, numbers)
    rounds = 12 * SCALE
    for number in range(1, rounds + 1):
        io = PowerCutIO(path, boot=f"boot-{number}")
        io.kill_at = rng.randrange(1, 120)
        db = None
        with commits_noted(io):
            try:
                db = quiet(logdb.open(path, durability=level, io=io))
                transform(db, rng)
            except Killed:
                pass
            finally:
                if db is not None:
                    die(db)
        path = str(tmp_path / f"db-{number}")
        io.cut(path, rng)
        with logdb.open(path, durability=level) as db:
            for partition in range(PARTITIONS):
                assert came_out(db, partition) == list(range(committed_offset(db, partition))), f"after {number} power cuts"
            if number % 4 == 0:
                fill(db, 100, numbers)
    with logdb.open(path, durability=level) as db:
        transform(db, rng)
        for partition in range(PARTITIONS):
            assert came_out(db, partition) == list(range(numbers[partition]))
    record_property("told", f"exactly once, level {level}: {rounds} power cuts, {sum(numbers)} records")
    report = logdb.verify(path)
    assert report.ok, report.problems
