"""One of three replicas has lost what it had: it neither leads nor counts as in sync, and the others go on."""

import contextlib
import os
import shutil
import time

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.errors import LogdbError
from logdb_replication import administration
from support.cluster import NODES, cluster, in_sync, needs_namespaces
from support.damage import flip
from support.waiting import until

pytestmark = [needs_namespaces(), pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def nodes(tmp_path):
    with cluster(tmp_path) as running:
        with logdb.open(running.urls) as db:
            db.create_topic("t", partitions=1, replication_factor=3, config={"min.insync.replicas": 2})
            db.log("t").append_many([b"%d" % number for number in range(10)])
            for number in range(10, 20):
                db.log("t").append_many([b"%d" % number])
        until(lambda: in_sync(running, "t"), "all replicas are in sync")
        yield running


def values(urls):
    with logdb.open(urls, timeout_ms=10_000) as db:
        return [int(record.value) for record in db.log("t").read(0)]


def test_a_truncated_replica_of_a_quiet_partition_does_not_come_to_lead(nodes):
    with logdb.open(nodes.urls) as db:
        first = db.describe_topic("t").partitions[0].replicas[0]
    nodes.kill(first)
    (log,) = (nodes.data(first) / "t-0").glob("*.log")
    os.truncate(log, 300)
    nodes.start(first)
    until(lambda: not any(broker["fenced"] for broker in administration.brokers(nodes.config(first))), "the broker is active again")
    for _ in range(20):  # as the controller does by itself every 15 s
        assert CliRunner().invoke(cli, ["partitions", "elect", "--cluster", nodes.config(first)]).exit_code == 0
        time.sleep(0.1)
    assert values(nodes.urls) == list(range(20))
    with logdb.open(nodes.urls, timeout_ms=10_000) as db:
        db.log("t").append_many([b"20"])


def test_a_flipped_byte_in_a_leaders_log_is_repaired_from_another_replica(nodes):
    wanted = [b"%d" % number * 30 for number in range(60)]
    with logdb.open(nodes.urls) as db:
        db.create_topic("d", partitions=1, config={"segment.bytes": 1_024})
        for value in wanted:
            db.log("d").append_many([value])
    until(lambda: in_sync(nodes, "d"), "all replicas are in sync")
    first = nodes.leader(("d", 0))
    files = nodes.data(first) / "d-0"
    damaged = sorted(files.glob("*.log"))[1]
    flip(damaged, 80)
    flipped = damaged.read_bytes()
    found: list[list[bytes]] = []

    def all_are_read() -> bool:
        with contextlib.suppress(LogdbError), logdb.open(nodes.urls, timeout_ms=5_000) as db:
            found.append([])
            found[-1].extend(bytes(record.value) for record in db.log("d").read(0))
        return found[-1] == wanted

    until(all_are_read, "another replica serves what is damaged")
    assert all(values == wanted[: len(values)] for values in found)  # damage is never served
    assert nodes.leader(("d", 0)) != first

    def is_whole() -> bool:
        with contextlib.suppress(FileNotFoundError):
            if damaged.read_bytes() == flipped:  # the others have not noticed yet that it is damaged
                return False
        return in_sync(nodes, "d") and not list(files.glob("*.damaged"))

    until(is_whole, "the damaged replica is whole again")
    assert "is damaged" in (nodes.directory / f"node-{first}" / "errors").read_text()
    nodes.kill(first)
    assert logdb.verify(nodes.data(first)).ok


def test_all_are_killed_and_a_disk_that_went_back_in_time_comes_last(nodes):
    old = nodes.directory / "old"
    nodes.kill(3)
    shutil.copytree(nodes.data(3), old)
    nodes.start(3)
    until(lambda: in_sync(nodes, "t"), "all replicas are in sync")
    with logdb.open(nodes.urls) as db, db.producer(acks="all") as producer:
        for number in range(20, 60):
            producer.send("t", b"%d" % number, partition=0).result(timeout=30)
    nodes.kill(*NODES)
    shutil.rmtree(nodes.data(3))
    shutil.copytree(old, nodes.data(3))
    nodes.start(1, 2)
    nodes.start(3)
    until(lambda: in_sync(nodes, "t"), "all replicas are in sync")
    assert values(nodes.urls) == list(range(60))
    shown = CliRunner().invoke(cli, ["quorum", "--cluster", nodes.config(1)]).output
    assert "is an older copy of the voter's" in shown
    nodes.kill(3)
    with pytest.raises(AssertionError, match=r"is an older copy of the voter's.*logdb cluster join"):
        nodes.start(3)
    del nodes.processes[3]
    join = ["cluster", "join", str(nodes.data(3)), "--cluster", nodes.config(3)]
    assert "is an older copy" in CliRunner().invoke(cli, join).stderr
    shutil.rmtree(nodes.data(3))
    until(lambda: CliRunner().invoke(cli, join).exit_code == 0, "a new voter joins")
    nodes.start(3)
    until(nodes.all_vote, "all voters run again")
    until(lambda: in_sync(nodes, "t"), "all replicas are in sync")
    assert values(nodes.urls) == list(range(60))


def test_all_are_killed_and_an_older_copy_of_a_directory_does_not_come_to_lead(nodes):
    with logdb.open(nodes.urls) as db:
        first = db.describe_topic("t").partitions[0].replicas[0]
    old, (other, *_) = nodes.directory / "old", [node for node in NODES if node != first]
    nodes.kill(first)
    shutil.copytree(nodes.data(first), old, ignore=shutil.ignore_patterns("quorum"))
    nodes.start(first)
    until(lambda: in_sync(nodes, "t"), "all replicas are in sync")
    with logdb.open(nodes.urls) as db, db.producer(acks="all") as producer:
        for number in range(20, 40):
            producer.send("t", b"%d" % number, partition=0).result(timeout=30)
    nodes.kill(*NODES)
    shutil.copytree(nodes.data(first) / "quorum", old / "quorum")  # the voter has not gone back
    shutil.rmtree(nodes.data(first))
    shutil.copytree(old, nodes.data(first))
    nodes.start(first, other)  # which of them are still in sync depends on which one was killed first
    nodes.start(*(node for node in NODES if node not in (first, other)))
    until(lambda: in_sync(nodes, "t"), "all replicas are in sync")
    assert values(nodes.urls) == list(range(40))


def test_all_are_killed_and_two_come_back(nodes):
    nodes.kill(*NODES)
    nodes.start(1, 2)
    assert values(nodes.urls[:2]) == list(range(20))
    with logdb.open(nodes.urls[:2], timeout_ms=10_000) as db, db.producer(acks="all") as producer:
        producer.send("t", b"20", partition=0).result(timeout=20)
