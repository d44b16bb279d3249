"""Transactions whose partitions are reached by an interface that may fail, as another node's does."""

import pytest

import logdb
from logdb import errors
from logdb.model import OffsetAndMetadata, TopicPartition
from support.transactional import Writer

T0, T1, IN = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("in", 0)


class OtherNode:
    """Peers behind a connection: every call is noted, and fails as often as it is told to."""

    def __init__(self, peers):
        self.peers, self.calls, self.broken = peers, [], 0

    def ask(self, name, *arguments):
        self.calls.append((name, *arguments))
        if self.broken:
            self.broken -= 1
            raise errors.NotLeaderOrFollower("t", 0, 2, 7)
        return getattr(self.peers, name)(*arguments)

    def __getattr__(self, name):
        return lambda *arguments: self.ask(name, *arguments)


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        db.create_topic("in")
        yield db


@pytest.fixture
def node(db):
    broker = db._session
    broker._peers = OtherNode(broker._peers)
    return broker._peers


@pytest.fixture
def writer(db):
    writer = Writer(db._session)
    writer.write(T0, b"a")
    writer.write(T1, b"a")
    writer.offsets("g", IN, 1)
    return writer


def committed(db):
    values = [[record.value for record in db.log(*where).read(0, isolation_level="read_committed")] for where in (T0, T1)]
    found = db._session.fetch_offsets("g")
    return (*values, found[IN].offset if found else None)


def test_a_commit_is_one_call_of_each_kind_for_all_partitions(db, node, writer):
    writer.end(commit=True)
    assert committed(db) == ([b"a"], [b"a"], 1)
    (sync, partitions), (write, markers) = node.calls
    assert (sync, write) == ("sync", "write_markers")
    assert {T0, T1} < partitions == markers.partitions and len(partitions) == 3
    assert markers.commit


def test_a_commit_whose_partitions_cannot_be_synced_is_none(db, node, writer):
    node.broken = 1
    with pytest.raises(errors.NotLeaderOrFollower):
        writer.end(commit=True)
    assert db._session.describe_transaction("tx").state == "Ongoing"
    writer.end(commit=True)
    assert committed(db) == ([b"a"], [b"a"], 1)


@pytest.mark.parametrize("written", [False, True])
def test_markers_whose_answer_is_lost_are_written_by_a_later_try(db, node, writer, written):
    broker = db._session
    write = node.peers.write_markers

    def write_markers(markers):
        if written:
            write(markers)
        node.peers.write_markers = write
        raise errors.ServerUnavailable(("node2",), "it did not answer")

    node.peers.write_markers = write_markers
    with pytest.raises(errors.ServerUnavailable):
        writer.end(commit=True)
    assert broker.describe_transaction("tx").state == "PrepareCommit"
    assert broker.wait({T0: 1, T1: 1}, 30_000, isolation_level="read_committed")
    writer.end(commit=True)  # the same answer, when it is there
    assert committed(db) == ([b"a"], [b"a"], 1)
    assert broker.describe_transaction("tx").state == "CompleteCommit"
    broker.commit_transaction_offsets("tx", writer.producer, "g", {IN: OffsetAndMetadata(2)})
    writer.end(commit=False)
    assert committed(db) == ([b"a"], [b"a"], 1)
