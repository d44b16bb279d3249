"""Uploads of tasks, on a server and on three nodes whose leaders move between staging and commit."""

import os

import pytest

import logdb
from logdb.client.batches import BATCHES_MAX
from logdb.errors import CorruptionError
from logdb.model import TopicPartition
from logdb_spark_source import uploading
from logdb_spark_source.commit import commit
from logdb_spark_source.encoding import Encoder
from logdb_spark_source.uploading import UploadedPiece, Uploading, UploadMissing
from support.clustered import clustered
from support.serving import served
from support.staged import rows, targets, values

pytestmark = pytest.mark.local


def task(database, *numbers, size_bytes=0):
    """A task that uploaded these."""
    file = Uploading(database.session)
    encoder = Encoder(targets(database), "t", file)
    encoder.add(rows(*((b"%d" % number, b"%d" % number + bytes(size_bytes)) for number in numbers)))
    encoder.finish()
    return file.close()


@pytest.fixture
def three(tmp_path):
    with clustered(tmp_path / "db") as nodes, logdb.open(nodes.urls) as database:
        database.create_topic("t", partitions=3)
        task(database, *range(30))  # each node knows the directory, which they share here: a later upload is its holder's alone
        yield nodes, database


def found(database):
    return sorted(int(value) for partition in range(3) for value in values(database, partition=partition))


def test_the_leader_of_each_partition_keeps_its_uploads(three):
    nodes, database = three
    uploaded = task(database, *range(30))
    for piece in uploaded.pieces:
        assert piece.holder == nodes.nodes[nodes.cluster.state(*piece.partition).leader].url
    assert commit(database.session, "q", 0, [uploaded])
    assert found(database) == list(range(30))
    assert not commit(database.session, "q", 0, [task(database, *range(30))])


def test_leaders_that_moved_since_get_the_batches_through_the_driver(three):
    nodes, database = three
    uploaded = task(database, *range(30))
    for partition in range(3):
        nodes.cluster.lead("t", partition, nodes.cluster.state("t", partition).leader % 3 + 1)
    assert commit(database.session, "q", 0, [uploaded])
    assert found(database) == list(range(30))


def test_a_leader_that_moved_and_a_holder_that_has_nothing(three):
    _, database = three
    uploaded = task(database, *range(30))
    uploading.discard(database.session, [uploaded])
    with pytest.raises(UploadMissing, match="start the query again"):
        commit(database.session, "q", 0, [uploaded])
    assert found(database) == []


def test_many_batches_are_appended_in_order_and_none_is_left(tmp_path):
    with served(tmp_path / "db") as server, logdb.open(server.url) as database:
        database.create_topic("t")
        tasks = [task(database, *range(first, first + 20), size_bytes=40_000) for first in (0, 20, 40)]
        groups = list(uploading.grouped(tasks))
        assert len(groups) > 3
        assert all(sum(piece.batch_count for piece in group) <= BATCHES_MAX or len(group) == 1 for group in groups)
        assert commit(database.session, "q", 0, tasks)
        assert [int(value.rstrip(b"\0")) for value in values(database)] == list(range(60))
        uploading.discard(database.session, tasks)
        assert os.listdir(tmp_path / "db" / "uploads") == []


def test_another_crc_than_the_tasks_commits_nothing(tmp_path):
    with served(tmp_path / "db") as server, logdb.open(server.url) as database:
        database.create_topic("t")
        uploaded = task(database, *range(20))
        (piece,) = uploaded.pieces
        with pytest.raises(CorruptionError, match=piece.id):
            commit(database.session, "q", 0, [uploaded._replace(pieces=(piece._replace(crc=piece.crc ^ 1),))])
        assert values(database) == []


def test_groups_stay_within_what_a_log_recognizes():
    def piece(partition, batch_count):
        return UploadedPiece(TopicPartition("t", partition), "id", "http://x", 100, 0, batch_count, 10)

    tasks = [uploading.Uploaded((piece(0, 2), piece(1, 1), piece(0, 2)), 30), uploading.Uploaded((piece(0, 2), piece(0, 7)), 20)]
    groups = [(group[0].partition.partition, [one.batch_count for one in group]) for group in uploading.grouped(tasks)]
    assert groups == [(0, [2, 2]), (0, [2]), (0, [7]), (1, [1])]
