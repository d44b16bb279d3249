"""Transactions that end although the disk is against it."""

import errno
import threading

import pytest

import logdb
from logdb import errors
from logdb.model import TopicPartition
from support.faulty_io import FaultyIO, concerns
from support.transactional import Writer

A, B, IN = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("in", 0)


class World:
    """A database on a disk that can fail, and one transaction that is open on two partitions and a group."""

    def __init__(self, path):
        self.io = FaultyIO()
        self.path = path
        self.db = logdb.open(path, io=self.io)
        for name in ("a", "b", "in"):
            self.db.create_topic(name)
        self.writer = Writer(self.db._session)
        self.begin(1)
        self.db.flush()  # from here on, a write to a partition's directory is one to its log

    def begin(self, number):
        self.writer.write(A, b"%d" % number)
        self.writer.write(B, b"%d" % number)
        self.writer.offsets("g", IN, number)

    def committed(self, db=None):
        db = db or self.db
        values = [[int(record.value) for record in db.log(*where).read(0, isolation_level="read_committed")] for where in (A, B)]
        found = db._session.fetch_offsets("g")
        assert values[0] == values[1]
        assert (found[IN].offset if found else 0) == max(values[0], default=0)
        return values[0]

    def state(self):
        return self.db._session.describe_transaction("tx").state

    def reopened(self):
        self.io.heal()
        self.db.close()
        return logdb.open(self.path)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "db")
    yield world
    world.io.heal()
    world.db.close()


def full(world, path):
    world.io.fail("pwrite", errno.ENOSPC, path)


def test_no_room_for_the_decision(world):
    full(world, "__transaction_state")
    with pytest.raises(errors.DiskFull):
        world.writer.end(commit=True)
    assert world.committed() == []
    world.io.heal()
    world.writer.end(commit=True)  # what the log kept was the decision: the answer is the same
    assert (world.committed(), world.state()) == ([1], "CompleteCommit")


def test_no_room_for_a_marker(world):
    full(world, "b-0")
    with pytest.raises(errors.DiskFull):
        world.writer.end(commit=True)
    assert world.state() == "PrepareCommit"
    with pytest.raises(errors.ConcurrentTransactions):
        Writer.end(_with_new_epoch(world.writer), commit=False)
    world.io.heal()
    world.writer.end(commit=True)
    assert (world.committed(), world.state()) == ([1], "CompleteCommit")


def _with_new_epoch(writer):
    other = Writer.__new__(Writer)
    other.broker, other.id, other.sequences = writer.broker, writer.id, {}
    other.producer = writer.producer._replace(producer_epoch=writer.producer.producer_epoch + 1)
    return other


def test_markers_are_tried_again_without_being_asked(world):
    full(world, "b-0")
    with pytest.raises(errors.DiskFull):
        world.writer.end(commit=True)
    world.io.heal()
    assert world.db._session.wait({B: 1}, 30_000, isolation_level="read_committed")
    assert world.db._session.init_producer_id("tx").producer_epoch > world.writer.producer.producer_epoch
    assert world.committed() == [1]


def test_what_was_decided_is_finished_by_the_next_process(world):
    full(world, "b-0")
    with pytest.raises(errors.DiskFull):
        world.writer.end(commit=True)
    with world.reopened() as db:
        assert world.committed(db) == [1]
        assert db._session.describe_transaction("tx").state == "CompleteCommit"


@pytest.mark.parametrize("path", ["a-0", "__consumer_offsets", "__transaction_state"])
def test_a_failed_sync_commits_nothing_and_refuses_all(world, path):
    world.begin(2)
    world.io.fail("fdatasync", errno.EIO, path)
    with pytest.raises(errors.SyncFailed):
        world.writer.end(commit=True)
    world.io.heal()
    for call in (
        lambda: world.writer.end(commit=True),
        lambda: world.db._session.init_producer_id("other"),
        lambda: world.db._session.commit_offsets("g", {}),
        lambda: world.db._session.heartbeat("g", generation=1, member_id="m"),
        lambda: world.begin(3),
    ):
        with pytest.raises(errors.SyncFailed):
            call()


def test_no_room_for_the_first_record_of_a_transaction_leaves_no_trace(world):
    world.writer.end(commit=True)
    full(world, "__transaction_state")
    with pytest.raises(errors.DiskFull):
        world.writer.write(A, b"2")
    assert world.db.log("a").end_offset == 2, "nothing comes into the log before the coordinator knows of it"
    world.io.heal()
    world.writer.sequences.clear()  # what was not taken is sent once more
    world.begin(2)
    world.writer.end(commit=True)
    assert world.committed() == [1, 2]


def test_no_room_for_offsets(world):
    world.writer.end(commit=True)
    full(world, "__consumer_offsets")
    with pytest.raises(errors.DiskFull):
        world.writer.offsets("g", IN, 2)
    world.io.heal()
    world.writer.end(commit=False)
    assert world.committed() == [1]


def test_a_snapshot_has_all_markers_where_one_could_not_be_written_before(world, tmp_path):
    """The disk is full for a moment behind the decision, and another client's record comes before the marker."""
    fulls = []

    def before(kind, path):
        if kind == "pwrite" and concerns("__transaction_state", path) and not fulls:
            fulls.append(path)
            full(world, "b-0")
            with pytest.raises(errors.DiskFull):
                world.db.log("b").append_many([b"7"], durability="os")

    world.io.before = before
    with pytest.raises(errors.DiskFull):
        world.writer.end(commit=True)
    with pytest.raises(errors.DiskFull):
        world.db.snapshot(tmp_path / "refused")
    world.io.heal()
    world.db.snapshot(tmp_path / "snapshot")
    with logdb.open(tmp_path / "snapshot", mode="r") as copy:
        for where in (A, B):
            assert b"1" in [record.value for record in copy.log(*where).read(0, isolation_level="read_committed")], where


def test_a_snapshot_has_all_markers_where_one_cannot_be_written_while_it_begins(world, tmp_path):
    state = world.db._store._state
    complete, refused = state.complete_transactions, []

    def complete_and_refuse_the_next():
        world.io.heal()
        complete()
        if not refused:
            full(world, "b-0")
            with pytest.raises(errors.DiskFull) as caught:
                world.writer.end(commit=True)
            refused.append(caught.value)

    state.complete_transactions = complete_and_refuse_the_next
    world.db.snapshot(tmp_path / "snapshot")
    assert refused
    with logdb.open(tmp_path / "snapshot", mode="r") as copy:
        assert world.committed(copy) == [1]


def test_markers_of_one_transaction_are_not_parted_by_a_snapshot(world):
    entered, left = threading.Event(), []

    def before(kind, path):
        if kind == "pwrite" and concerns("b-0", path) and not entered.is_set():
            entered.set()
            with pytest.raises(TimeoutError):  # no thread gets in alone between two markers
                _alone_within(world.db._store.transaction_lock, 0.05)
            left.append(path)

    world.io.before = before
    world.writer.end(commit=True)
    assert left, "a marker was written"
    _alone_within(world.db._store.transaction_lock, 30)


def _alone_within(lock, seconds):
    done = threading.Event()

    def enter():
        with lock.alone():
            done.set()

    threading.Thread(target=enter, daemon=True).start()
    if not done.wait(seconds):
        raise TimeoutError


@pytest.mark.timeout(60)
@pytest.mark.parametrize("step", ["sync", "marker"])
def test_a_transaction_ends_after_its_coordinator_could_not_note_a_step_of_it(world, step):
    """The disk is full for a moment at another id's record: nothing can be noted behind that, not even that something failed."""
    session = world.db._session
    shard_of = session._transactions.partition_of
    other = next(name for name in map(str, range(99)) if shard_of(name) == shard_of("tx"))
    kind, refused = "fdatasync" if step == "sync" else "pwrite", []

    def before(called, path):
        if called == kind and concerns("b-0", path) and not refused:
            refused.append(other)
            full(world, "__transaction_state")
            with pytest.raises(errors.DiskFull):
                session.init_producer_id(other)

    world.begin(2)
    world.io.before = before
    with pytest.raises(errors.DiskFull):
        world.writer.end(commit=True)
    assert refused
    world.io.heal()
    world.writer.end(commit=True)
    assert world.committed() == [1, 2]
    world.begin(3)
    world.writer.end(commit=True)
    assert world.committed() == [1, 2, 3]
