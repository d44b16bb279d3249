"""Transactions killed at each I/O call, and powered off there: each is in all of its partitions, with its offsets, or in none."""

import copy
import os
import random
import shutil
from functools import partial

import pytest

import logdb
from logdb.errors import ProducerFenced
from logdb.model import TopicPartition
from support.power_cut import Killed, PowerCutIO, commits_noted, deaths, die, quiet, tell
from support.transactional import Writer

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
LEVELS = ("os", "interval", "fsync")
A, B, IN = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("in", 0)


class Story:
    """Commits, aborts, takes over, closes and opens: which transactions were acknowledged, which can never count."""

    def __init__(self, path: str, io: PowerCutIO, level: str) -> None:
        self.path, self.io, self.level = path, io, level
        self.acknowledged: set[int] = set()
        self.aborted: set[int] = set()
        self.only_b: set[int] = set()
        self.number = 0
        self.db: logdb.Database | None = None

    def run(self) -> None:
        self.db = self.open()
        for name in ("a", "b", "in"):
            self.db.create_topic(name)
        writer = Writer(self.db._session)
        self.transact(writer, commit=True)
        self.transact(writer, commit=False)
        self.transact(writer, commit=True)
        self.transact(writer, commit=True, only_b=True)  # what a power cut takes of the last one's markers, it need not take of this
        self.transact(writer, commit=False, only_b=True)
        self.leave_open(writer)
        writer = Writer(self.db._session)  # which ends what is open
        self.aborted.add(self.number)
        self.transact(writer, commit=True)
        self.leave_open(writer, only_b=True)
        self.db.close()
        self.db = self.open()
        self.transact(Writer(self.db._session), commit=True)

    def open(self) -> logdb.Database:
        return quiet(logdb.open(self.path, durability=self.level, io=self.io))

    def leave_open(self, writer: Writer, *, only_b: bool = False) -> None:
        self.number += 1
        if only_b:
            self.only_b.add(self.number)
        else:
            writer.write(A, b"%d" % self.number, b"%d" % self.number)
            writer.offsets("g", IN, self.number)
        writer.write(B, b"%d" % self.number)

    def transact(self, writer: Writer, *, commit: bool, only_b: bool = False) -> None:
        self.leave_open(writer, only_b=only_b)
        number = self.number
        if not commit:
            self.aborted.add(number)
        writer.end(commit=commit)
        if commit:
            self.acknowledged.add(number)


def numbers(db: logdb.Database, partition: TopicPartition) -> list[int]:
    log = db.log(*partition)
    values = [int(record.value) for record in log.read(0, isolation_level="read_committed")]
    assert log.last_stable_offset == log.end_offset, f"{partition}: a transaction is still open"
    return values


def check(path: str, story: Story, where: str) -> None:
    with logdb.open(path, durability=story.level) as db:
        if {"a", "b"} <= {topic.name for topic in db.topics()}:
            in_a, in_b = numbers(db, A), numbers(db, B)
            in_both = [number for number in in_b if number not in story.only_b]
            assert in_a == [number for number in in_both for _ in range(2)], f"{where}: {in_a} and {in_b}"
            assert not set(in_b) & story.aborted, f"{where}: {in_b} with {story.aborted}, which were aborted"
            assert story.acknowledged <= set(in_b), f"{where}: {story.acknowledged} were acknowledged, {in_b} are there"
            offset = db._session.fetch_offsets("g", require_stable=True).get(IN)
            assert (offset.offset if offset else 0) == max(in_both, default=0), f"{where}: {in_b}, and {offset}"
            writer = Writer(db._session)
            writer.write(B, b"99")
            writer.end(commit=True)
            assert numbers(db, B) == [*in_b, 99]
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


@pytest.mark.slow
@pytest.mark.timeout(900 * SCALE)
@pytest.mark.parametrize("level", LEVELS)
def test_killed_at_every_call(tmp_path, level, record_property):
    begun = partial(Story, level=level)
    whole = tell(str(tmp_path / "whole"), begun, None)
    assert len(whole.acknowledged) == 5
    count = len(whole.io.calls)
    numbers = deaths(whole.io.calls, which=LEVELS.index(level), part=2)
    record_property("told", f"transactions: killed at {len(numbers)} of {count} I/O calls, level {level}")
    for at in numbers:
        path = str(tmp_path / f"kill-{at}")
        story = tell(path, begun, at)
        where = f"level {level}, call {at}: {whole.io.calls[at - 1]}"
        if level != "os":  # there, a power cut may take what it likes
            story.io.cut(f"{path}-cut", random.Random(at))
            check(f"{path}-cut", story, f"{where}, power cut")
            shutil.rmtree(f"{path}-cut")
        check(path, story, f"{where}, process killed")
        shutil.rmtree(path)


def test_killed_before_a_decision_is_synced_and_powered_off_after_its_markers_are(tmp_path):
    """The process that comes next finds the decision in the page cache, and syncs it before it carries it out."""
    path = str(tmp_path / "db")
    os.makedirs(path)
    io = PowerCutIO(path)
    with commits_noted(io):
        db = quiet(logdb.open(path, io=io))
        for name in ("a", "b"):
            db.create_topic(name)
        writer = Writer(db._session)
        for partition in (A, B):
            writer.write(partition, b"1")
        db.flush()
        io.kill_at = len(io.calls) + 2
        with pytest.raises(Killed):
            writer.end(commit=True)
        assert [call.split()[0] for call in io.calls[-2:]] == ["pwrite", "fdatasync"]
        db._broker._timers.stop()
        die(db)
    io = io.next_process()
    with commits_noted(io):
        db = quiet(logdb.open(path, io=io))
        assert numbers(db, A) == [1]
        db.log("a").flush()
        db._broker.close()
        die(db)
    for seed in range(10):
        io.cut(f"{path}-cut", random.Random(seed))
        with logdb.open(f"{path}-cut") as db:
            assert (numbers(db, A), numbers(db, B)) == ([1], [1]), f"seed {seed}"


def test_who_lost_the_begin_of_a_transaction_commits_nothing_of_it_after_any_number_of_restarts(tmp_path):
    """A client lives on over a power cut and a clean restart: a part of what it wrote before is gone."""
    path = str(tmp_path / "db")
    os.makedirs(path)
    io = PowerCutIO(path)
    with commits_noted(io):
        db = quiet(logdb.open(path, io=io))
        for name in ("a", "b"):
            db.create_topic(name)
        writer = Writer(db._session)
        for partition in (A, B):
            writer.write(partition, b"1")
        writer.end(commit=True)
        writer.write(A, b"2")
        io.dead = True
        die(db)
    for seed in range(10):
        io.cut(f"{path}-cut", random.Random(seed))
        with logdb.open(f"{path}-cut") as db:
            assert (numbers(db, A), numbers(db, B)) == ([1], [1])
        with logdb.open(f"{path}-cut") as db:
            client = copy.deepcopy(writer, {id(writer.broker): db._session})
            with pytest.raises(ProducerFenced):
                client.write(B, b"2")
            assert (numbers(db, A), numbers(db, B)) == ([1], [1]), f"seed {seed}"
