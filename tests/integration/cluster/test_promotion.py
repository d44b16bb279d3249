"""A directory that was used embedded becomes the first replica of a cluster, and opens embedded again after it has left."""

import os

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.errors import ReadOnly
from logdb.model import TopicPartition
from logdb.store import cluster_file
from support.cluster_process import ClusterProcess, eventually

pytestmark = pytest.mark.timeout(180)

USER = {"user": "admin", "password": "secret-1"}


def command(*words: str) -> str:
    result = CliRunner().invoke(cli, ["cluster", *words])
    assert result.exit_code == 0, result.output
    return result.stderr


def values(db, topic, partition=0, level="read_committed"):
    return [(record.offset, bytes(record.value)) for record in db.log(topic, partition).read(0, isolation_level=level)]


def fill(path):
    """Records, a compacted topic, committed offsets, transactions (one of them is open at the end), and a user."""
    with logdb.open(path) as db:
        db.create_topic("t", partitions=3)
        db.create_topic("compacted", config={"cleanup.policy": "compact", "segment.bytes": 1024})
        for partition in range(3):
            db.log("t", partition).append_many([b"%d-%d" % (partition, number) for number in range(100)])
        for number in range(200):
            db.append("compacted", b"%d" % number, key=b"%d" % (number % 10))
        db.log("compacted").flush()
        db.compact("compacted")
        with db.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 42)
            consumer.commit()
        with db.transaction("done") as transaction:
            transaction.send("t", b"committed", partition=1)
        db.security.add_user("admin", "secret-1", super_user=True)
        found = {name: values(db, name) for name in ("t", "compacted")}
        transaction = db.transaction("open")
        transaction.__enter__()
        transaction.send("t", b"open", partition=2)
        transaction.flush()
    return found


def test_producers_from_before_are_fenced(tmp_path):
    """Embedded, a crash may lose that a transaction has begun; in the cluster no other one would tell that from none."""
    data = str(tmp_path / "data")
    fill(data)
    with logdb.open(data, mode="r") as db:
        before = {one.transactional_id: one.producer for one in db.transactions()}
    command("promote", data, "--cluster", ClusterProcess(tmp_path / "c").config(1), "--yes")
    with logdb.open(data, mode="r") as db:
        after = {one.transactional_id: one.producer for one in db.transactions()}
        assert {one.state for one in db.transactions()} == {"Empty"}
    assert before.keys() == after.keys() == {"done", "open"}
    assert all(after[name].producer_epoch > before[name].producer_epoch for name in before)


def test_promoted_each_node_killed_and_back(tmp_path):
    data = str(tmp_path / "data")
    before = fill(data)
    cluster = ClusterProcess(tmp_path / "c")
    refusal = CliRunner().invoke(cli, ["cluster", "promote", data, "--cluster", cluster.config(1)])
    assert "nothing was done" in refusal.stderr
    command("promote", data, "--cluster", cluster.config(1), "--yes")
    command("promote", data, "--cluster", cluster.config(1), "--yes")
    assert not os.path.exists(cluster.data(1))
    with pytest.raises(ReadOnly, match="node 1 of the cluster"):
        logdb.open(data)
    empty = cluster.data
    cluster.data = lambda number: data if number == 1 else empty(number)
    try:
        cluster.start()
        with logdb.open(cluster.urls, **USER) as db:
            eventually(lambda: all(len(one.in_sync) == 3 for name in ("t", "compacted") for one in db.describe_topic(name).partitions))
            eventually(lambda: db.describe_topic("t").config.get("min.insync.replicas") == 2)
            eventually(lambda: not cluster_file.load(logdb.IO(), data).promoting)
            db.append("t", b"new", partitioner=lambda key, count: 0)
        for number in cluster.numbers:
            cluster.kill(number)
            with logdb.open(cluster.urls, **USER) as db:
                eventually(lambda db=db: values(db, "t") == [*before["t"], (100, b"new")])  # its new leader learns what is committed
                eventually(lambda db=db: values(db, "compacted") == before["compacted"])
                eventually(lambda db=db: values(db, "t", 1)[-1][1] == b"committed")
                with db.consumer(group_id="g") as consumer:
                    assert consumer.committed(TopicPartition("t", 0)).offset == 42
            cluster.start(number)
            with logdb.open(cluster.urls, **USER) as db:
                eventually(lambda db=db: all(len(one.in_sync) == 3 for one in db.describe_topic("t").partitions))
        with logdb.open(cluster.urls, **USER) as db, db.transaction("open") as transaction:  # which aborts what it had left open
            transaction.send("t", b"at last", partition=2)
            assert b"open" not in [value for _, value in values(db, "t", 2)]
        cluster.end(2)
        cluster.end(3)
        cluster.end(1)
    finally:
        for process in cluster.processes.values():
            process.kill()
            process.wait(10)
    command("leave", data, "--yes")
    with logdb.open(data) as db:
        assert values(db, "t") == [*before["t"], (100, b"new")]
        assert [user.name for user in db.security.users().users] == ["admin"]
