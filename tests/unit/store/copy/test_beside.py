"""Backups by a reader beside the process that writes: what they contain, and that no file is missed."""

import itertools
import random
import re
import subprocess
import sys

import pytest

import logdb
from logdb.errors import CorruptionError, ReadOnly
from logdb.io import IO
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.store import cluster_file
from logdb.store.copy import beside, moment
from support import damage
from support.copying import fill, is_sound
from support.power_cut import die, quiet
from support.transactional import Writer
from support.waiting import until

CONFIG = {"segment.bytes": 2048, "index.interval.bytes": 200}
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as opened:
        opened.create_topic("t", partitions=2, config=CONFIG)
        opened.create_topic("empty")
        yield opened


def backup(tmp_path, name="file", **options):
    with logdb.open(tmp_path / "db", mode="r") as reader:
        return reader.backup(tmp_path / name, **options)


def restored(tmp_path, *names):
    target = tmp_path / f"restored {names}"
    logdb.restore([tmp_path / name for name in names or ["file"]], target)
    assert is_sound(target)
    return logdb.open(target)


def values(db, partition, isolation_level="read_uncommitted"):
    log = db.log(*partition)
    return [record.value for record in log.read(log.start_offset, isolation_level=isolation_level)]


# ---------------------------------------------------------------- what is in it


def test_it_has_what_is_written_and_nothing_of_the_buffer(db, tmp_path):
    fill(db, 0, 200)
    written = [values(db, where) for where in PARTITIONS]
    db.log("t").append(b"in the buffer")
    done = backup(tmp_path)
    assert done.partition_count == 3
    with restored(tmp_path) as copy:
        assert [values(copy, where)[: len(written[0])] for where in PARTITIONS] == written
        assert copy.describe_topic("t").topic_id == db.describe_topic("t").topic_id


def test_segments_that_were_rolled_and_not_sealed_yet(db, tmp_path):
    fill(db, 0, 200)
    assert any(segment.scanner for segment in db.log("t").segments[:-1])
    backup(tmp_path)
    with restored(tmp_path) as copy:
        assert values(copy, PARTITIONS[0]) == values(db, PARTITIONS[0])


def test_files_that_the_writer_removes_and_replaces_meanwhile(db, tmp_path):
    """A compaction and a new log start, while the backup is written."""
    db.create_topic("c", config={**CONFIG, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
    for number in range(60):
        db.log("c").append_many([b"%d" % number * 20] * 3, [b"key %d" % (number % 3)] * 3)
    fill(db, 0, 200)
    db.flush()
    before = {where: values(db, where) for where in [*PARTITIONS, TopicPartition("c", 0)]}
    went = []

    def go_on(_done, _total, _file):
        if not went:
            went.append(sum(segment.size_bytes for segment in db.log("c").segments))
            db.delete_records("t", 0, 150)
            db.compact("c")
            fill(db, 200, 260)

    backup(tmp_path, progress=go_on)
    assert sum(segment.size_bytes for segment in db.log("c").segments) < went[0] / 2
    with restored(tmp_path) as copy:
        assert {where: values(copy, where) for where in before} == before


def test_an_increment_beside_the_writer(db, tmp_path):
    fill(db, 0, 200)
    backup(tmp_path, "full")
    fill(db, 200, 230)
    backup(tmp_path, "second", base=tmp_path / "full")
    with restored(tmp_path, "full", "second") as copy:
        assert [values(copy, where) for where in PARTITIONS] == [values(db, where) for where in PARTITIONS]


def test_a_writer_that_opens_meanwhile_is_not_refused(db, tmp_path):
    fill(db, 0, 50)
    db.close()
    opened = []

    def go_on(*_):
        if not opened:
            with logdb.open(tmp_path / "db") as again:
                opened.append(again.log("t").append(b"later", durability="fsync"))

    backup(tmp_path, progress=go_on)
    assert opened == [50]
    with restored(tmp_path) as copy:
        assert len(values(copy, PARTITIONS[0])) == 50


def test_a_writer_in_another_process(db, tmp_path):
    db.close()
    script = """
import logdb, sys
db = logdb.open(sys.argv[1])
print("opened", flush=True)
number = 0
while True:
    with db.transaction("tx") as transaction:
        for partition in (0, 1):
            transaction.send("t", b"%d" % number * 10, partition=partition)
    number += 1
"""
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "db")], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"opened\n"
            with logdb.open(tmp_path / "db", mode="r") as reader:
                until(lambda: reader.log("t").last_stable_offset > 10, "transactions")
            for name in ("a", "b", "c"):
                backup(tmp_path, name)
        finally:
            process.kill()
    counts = []
    for name in ("a", "b", "c"):
        with restored(tmp_path, name) as copy:
            first, second = (values(copy, where, "read_committed") for where in PARTITIONS)
            assert first == second
            counts.append(len(first))
    assert counts == sorted(counts)


# ---------------------------------------------------------------- descriptors

WITH_FEW_DESCRIPTORS = """
import logdb, resource, sys
with logdb.open(sys.argv[1], mode="r") as reader:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]), before[1]))
    try:
        reader.backup(sys.argv[2])
    except logdb.LogdbError as error:
        print(type(error).__name__, error)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize("enough", [True, False])
def test_the_limit_of_descriptors_belongs_to_the_program(db, tmp_path, enough):
    fill(db, 0, 1000)
    limit = 300 if enough else 60
    command = [sys.executable, "-c", WITH_FEW_DESCRIPTORS, tmp_path / "db", tmp_path / "file", str(limit)]
    *error, after = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert int(after) == limit
    if enough:
        assert not error
        with restored(tmp_path) as copy:
            assert values(copy, PARTITIONS[0]) == values(db, PARTITIONS[0])
    else:
        assert re.fullmatch(
            r"ReadFailed reading .* failed: .*Too many open files.*: a backup beside the writer needs up to [0-9]+ descriptors, "
            r"and this process may have 60 \(ulimit -n\); after a higher limit a retry is safe",
            error[0],
        )


def test_the_command_raises_its_own_limit(db, tmp_path):
    fill(db, 0, 1000)
    command = 'ulimit -Sn 60 && exec "$0" -m logdb.cli --data-dir "$1" backup "$2"'
    subprocess.run(["sh", "-c", command, sys.executable, tmp_path / "db", tmp_path / "file"], check=True, timeout=60)
    with restored(tmp_path) as copy:
        assert values(copy, PARTITIONS[0]) == values(db, PARTITIONS[0])


# ---------------------------------------------------------------- transactions, between the looks


class Looks:
    """Calls a function before each look at a log, in the first ``limit`` looks."""

    def __init__(self, monkeypatch, act, limit=sys.maxsize):
        self.count, self.act, self.limit = 0, act, limit
        monkeypatch.setattr(moment, "_look", self.look)

    def look(self, logs):
        ends = {}
        for log in logs:
            if self.count < self.limit:
                self.act()
            self.count += 1
            ends[log] = log.catch_up()
        return ends


class Storm:
    """Transactions of several producers, of which the next step is drawn."""

    def __init__(self, db, seed, *, keeps_epoch, offsets):
        self.db, self.random, self.keeps_epoch, self.with_offsets = db, random.Random(seed), keeps_epoch, offsets
        self.writers = [Writer(db._session, f"tx{number}") for number in range(3)]
        self.open = {}
        self.numbers = itertools.count()
        self.transactions = {}  # by value: the partitions that have it, and whether it was committed
        self.committed_offset = 0

    def step(self):
        writer = self.random.choice(self.writers)
        if writer.id not in self.open:
            value = b"%d" % next(self.numbers)
            self.open[writer.id] = value
            self.transactions[value] = [set(), None]
            for where in self.random.sample(PARTITIONS, self.random.randint(1, 2)):
                writer.write(where, value)
                self.transactions[value][0].add(where)
            if self.with_offsets:
                writer.offsets(f"g{writer.id}", PARTITIONS[0], self.db.log("t").end_offset)
            elif self.random.random() < 0.5:
                end = self.db.log("t").end_offset
                self.db._session.commit_offsets("plain", {PARTITIONS[0]: OffsetAndMetadata(end)})
        else:
            commit = self.random.random() < 0.8
            self.transactions[self.open.pop(writer.id)][1] = commit
            if self.keeps_epoch:
                writer.broker.end_transaction(writer.id, writer.producer, commit=commit, bump_epoch=False)
            else:
                writer.end(commit=commit)

    def check(self, copy, known):
        """``known``: committed before the backup began."""
        found = {where: set(values(copy, where, "read_committed")) for where in PARTITIONS}
        for value, (partitions, committed) in self.transactions.items():
            there = {where for where in PARTITIONS if value in found[where]}
            assert there in (set(), partitions), (value, there)
            assert committed or not there
            assert there or value not in known
        for group in copy._session.groups():
            for where, position in copy._session.fetch_offsets(group.group_id).items():
                assert position.offset <= copy.log(*where).end_offset


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("keeps_epoch", "offsets"), [(False, False), (True, False), (False, True)])
def test_a_transaction_is_in_it_as_a_whole_or_counts_as_aborted(db, tmp_path, monkeypatch, seed, keeps_epoch, offsets):
    storm = Storm(db, seed, keeps_epoch=keeps_epoch, offsets=offsets)
    for _ in range(20):
        storm.step()
    known = {value for value, (_, committed) in storm.transactions.items() if committed}
    looks = Looks(monkeypatch, storm.step, limit=60)
    backup(tmp_path)
    assert looks.count >= 10
    with restored(tmp_path) as copy:
        storm.check(copy, known)


def test_without_kept_epochs_one_try_is_enough(db, tmp_path, monkeypatch):
    storm = Storm(db, 1, keeps_epoch=False, offsets=False)
    storm.with_offsets = False
    storm.random.random = lambda: 0.7  # commits, and no group does
    for _ in range(10):
        storm.step()
    looks = Looks(monkeypatch, storm.step)
    backup(tmp_path)
    count = sum(topic.partition_count * (3 if topic.name == "__transaction_state" else 2) for topic in db.topics(internal=True))
    assert looks.count == count
    with restored(tmp_path) as copy:
        storm.check(copy, set())


# ---------------------------------------------------------------- what is refused


def test_what_a_crash_left(tmp_path):
    db = quiet(logdb.open(tmp_path / "db"))
    db.create_topic("t", partitions=2)
    die(db)
    with logdb.open(tmp_path / "db", mode="r") as reader, pytest.raises(ReadOnly, match="open it for writing once"):
        reader.backup(tmp_path / "file")


def test_a_file_that_is_lost(db, tmp_path):
    fill(db, 0, 100)
    db.close()
    damage.logs(tmp_path / "db", 1)[0].unlink()
    with logdb.open(tmp_path / "db", mode="r") as reader, pytest.raises(CorruptionError, match="missing"):
        reader.backup(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_files_that_go_again_and_again_are_not_lost(db, tmp_path, monkeypatch):
    """The writer removes another file at each try, for longer than a lost file is waited for."""
    fill(db, 0, 200)
    db.close()  # seals all segments
    left = iter(range(20, 100, 20))
    look = beside._open

    def late(store, log, *others):
        if (log.topic, log.partition) == ("t", 0) and (offset := next(left, 0)):
            writer.delete_records("t", 0, offset)
        return look(store, log, *others)

    monkeypatch.setattr(beside, "_open", late)
    monkeypatch.setattr(beside, "_MISSING_S", 0)
    with logdb.open(tmp_path / "db") as writer:
        backup(tmp_path)
        assert next(left, None) is None
        with restored(tmp_path) as copy:
            assert [values(copy, where) for where in PARTITIONS] == [values(writer, where) for where in PARTITIONS]


def test_a_running_node_of_a_cluster(db, tmp_path):
    cluster_file.create(IO(), str(tmp_path / "db"), cluster_file.ClusterFile("c", 1))
    with logdb.open(tmp_path / "db", mode="r") as reader, pytest.raises(ReadOnly, match="through a server"):
        reader.backup(tmp_path / "file")
