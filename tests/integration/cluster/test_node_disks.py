"""The disk below one of three nodes hangs, fails, is full, or writes less than it is asked to."""

import re
import shutil

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.errors import DiskFull, LogdbError, UnexpectedOffset
from support import faulty_libc
from support.cluster import NODES, Load, cluster, in_sync, needs_namespaces, stored
from support.history import check
from support.tools import needs
from support.waiting import until

pytestmark = [
    needs_namespaces(),
    needs("gcc"),
    pytest.mark.timeout(120),
]
PARTITIONS = 3  # each node leads one


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    place = tmp_path_factory.mktemp("disks")
    with cluster(place, faulty_libc.build(place)) as running:
        yield running


@pytest.fixture
def topic(nodes, request):
    name = re.sub(r"\W+", "_", request.node.name.removeprefix("test_")).strip("_")
    with logdb.open(nodes.urls) as db:
        db.create_topic(name, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": 2})
    until(lambda: in_sync(nodes, name), "all replicas are in sync")
    return name


def leaders(nodes, topic, *asked):
    """As other nodes tell them."""
    with logdb.open([nodes.urls[node - 1] for node in asked], timeout_ms=5_000) as db:
        return {one.leader for one in db.describe_topic(topic).partitions}


def under_load(nodes, topic, node, trouble, end=lambda: None):
    """A node's disk has trouble: others lead, and acknowledge; after its ``end`` all replicas are in sync again."""
    others = [one for one in NODES if one != node]
    with Load(nodes, topic, PARTITIONS) as load:
        load.wait_for_more(50)
        with nodes.disks[node].trouble(trouble):
            until(lambda: leaders(nodes, topic, *others) <= set(others), f"another node leads while the disk of node {node} {trouble}")
            load.wait_for_more(20)
        end()
        load.wait_for_more(50)
        until(lambda: in_sync(nodes, topic), "all replicas are in sync again")
        until(nodes.all_vote, "all voters run again")
    assert check(load.history, stored(nodes, topic, PARTITIONS)) == []


@pytest.mark.parametrize("has_controller", [True, False], ids=["of_the_controller", "of_another_node"])
def test_a_disk_that_hangs(nodes, topic, has_controller):
    """Of a leader, under whose voter the disk hangs as well: the others must not go on asking that one who leads."""
    node = nodes.controller()
    under_load(nodes, topic, node if has_controller else node % len(NODES) + 1, "hangs")


def test_a_node_that_is_asked_to_lead_while_its_disk_hangs(nodes, topic):
    """Without load nobody has noticed before that it hangs."""
    with logdb.open(nodes.urls) as db:
        leader, heir, third = db.describe_topic(topic).partitions[0].replicas
    drain = ["brokers", "drain", str(leader), "--cluster", nodes.config(leader)]
    with nodes.disks[heir].trouble("hangs"):
        CliRunner().invoke(cli, [*drain, "--timeout", "1s"])
        until(lambda: leaders(nodes, topic, leader, third) == {third}, "the third node leads")
        with logdb.open([nodes.urls[leader - 1], nodes.urls[third - 1]], timeout_ms=10_000) as db:
            assert db.log(topic, 0).append(b"taken") == 0
    assert CliRunner().invoke(cli, [*drain, "--cancel"]).exit_code == 0
    until(lambda: in_sync(nodes, topic), "all replicas are in sync again")
    until(nodes.all_vote, "all voters run again")


def test_a_sync_that_failed_is_final_for_the_process(nodes, topic):
    node = nodes.leader((topic, 0))

    def end():
        assert node not in leaders(nodes, topic, *(one for one in NODES if one != node))  # the disk is well again
        nodes.kill(node)
        nodes.start(node)

    under_load(nodes, topic, node, "fails", end)


def test_a_disk_that_is_full_and_then_has_room(nodes, topic):
    under_load(nodes, topic, nodes.leader((topic, 0)), "is full")
    assert any(stored(nodes, topic, PARTITIONS).values())


def test_an_append_that_fails_on_a_full_disk_is_stored_once(nodes, topic):
    """The obvious program: after an error it makes the same call, or goes on behind the records that the log keeps, as the error says."""
    values = [b"%d" % number * 100 for number in range(200)]
    failures = []
    with logdb.open(nodes.urls, timeout_ms=5_000) as db:
        log = db.log(topic, 0)
        assert log.append_many(values[:20]) == range(20)
        with nodes.disks[nodes.leader((topic, 0))].trouble("is full"):
            done = 20
            while done < len(values):
                try:
                    done = log.append_many(values[done : done + 20], expected_offset=done).stop
                except UnexpectedOffset as error:  # the answer of a call was lost: the log has its records
                    done = error.end_offset
                except LogdbError as error:
                    failures.append((done, error))
                    done = done if error.offsets is None else error.offsets.stop
        until(lambda: in_sync(nodes, topic), "all replicas are in sync again")
        assert [record.value for record in log.read(0)] == values
    assert any(isinstance(error, DiskFull) for _, error in failures)
    for begun_at, error in failures:
        assert "a retry finds them" not in str(error), "another call sends other records"
        if error.offsets is not None:
            assert (error.offsets.start, error.retriable) == (begun_at, False)
            assert "do not append them again" in str(error)


def test_writes_that_move_half_of_their_bytes(nodes, topic):
    """LMDB takes one for a sync that has failed, which is final: the process is started anew, on a disk that is well."""
    node = nodes.leader((topic, 0))
    with Load(nodes, topic, PARTITIONS) as load:
        load.wait_for_more(20)
        with nodes.disks[node].trouble("writes short"):
            load.wait_for_more(100)
            nodes.kill(node)
        load.wait_for_more(20)
        nodes.start(node)
        load.wait_for_more(50)
        until(lambda: in_sync(nodes, topic), "all replicas are in sync again")
    assert check(load.history, stored(nodes, topic, PARTITIONS)) == []


def test_a_disk_that_was_wiped(nodes, topic):
    """Data and voter are gone: the node does not start, in plain words, and the others go on."""
    with Load(nodes, topic, PARTITIONS) as load:
        load.wait_for_more(20)
        nodes.kill(3)
        shutil.move(nodes.data(3), nodes.directory / "kept")
        nodes.data(3).mkdir()
        with pytest.raises(AssertionError, match="node 3 ended") as told:
            nodes.start(3)
        load.wait_for_more(20)
        del nodes.processes[3]
        assert "no node of a cluster has this directory" in str(told.value)
        shutil.rmtree(nodes.data(3))
        shutil.move(nodes.directory / "kept", nodes.data(3))
        nodes.start(3)
        load.wait_for_more(20)
        until(lambda: in_sync(nodes, topic), "all replicas are in sync again")
    assert check(load.history, stored(nodes, topic, PARTITIONS)) == []
