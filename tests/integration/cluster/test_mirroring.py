"""A directory is mirrored to a cluster, the mirror killed with -9 meanwhile, and the cluster to another directory."""

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import logdb
from logdb.client.mirror import Mirror
from support.cluster_process import cluster_process, eventually
from support.mirrors import copy_without_the_last_batch

pytestmark = pytest.mark.timeout(120)


def records(db, level="read_committed"):
    return [(record.offset, record.value, record.timestamp_ms) for record in db.log("t").read(0, isolation_level=level)]


def test_there_and_back(tmp_path):
    with logdb.open(tmp_path / "source") as db:
        db.create_topic("t")
        for number in range(150):
            db.log("t").append_many([random.randbytes(1_000) for _ in range(100)])
            if number % 100 == 0:
                with db.transaction("x") as transaction:
                    transaction.send("t", b"committed")
    with cluster_process(tmp_path / "c") as cluster:
        command = [sys.executable, "-m", "logdb.cli", "mirror", str(tmp_path / "source"), ",".join(cluster.urls), "--topics", "t"]
        with logdb.open(cluster.urls) as db:
            ends = []
            for _ in range(3):
                process = subprocess.Popen(command)
                before = ends[-1] if ends else 0
                eventually(lambda before=before: "t" in [one.name for one in db.topics()] and db.log("t").end_offset > before)
                process.kill()
                process.wait(10)
                ends.append(db.log("t").end_offset)
                if ends[-1] >= 15_000:
                    break
                time.sleep(0.01)
            leader = db.describe_topic("t").partitions[0].leader
            cluster.kill(leader)
            subprocess.run([*command, "--once"], check=True, timeout=60)
            with logdb.open(tmp_path / "source", mode="r") as source, logdb.open(tmp_path / "back") as back:
                wanted = records(source)
                eventually(lambda: records(db) == wanted)
                Mirror(db, back, ["t"]).copy()
                assert records(back) == wanted
                assert records(back, "read_uncommitted") == records(source, "read_uncommitted")


def test_a_transaction_that_was_begun_to_copy_is_ended_behind_the_fail_over(tmp_path):
    """The mirror has died between two of its appends, and its source with it; the node that alters the config leads nothing of it."""
    with logdb.open(tmp_path / "source") as source, cluster_process(tmp_path / "c") as cluster, logdb.open(cluster.urls) as db:
        source.create_topic("t")
        source.log("t").append(b"1")
        with source.transaction("x") as transaction:
            transaction.send("t", b"2")
        copy_without_the_last_batch(Mirror(source, db, ["t"]))
        log = db.log("t")
        eventually(lambda: (log.end_offset, log.last_stable_offset) == (2, 1))
        leader = db.describe_topic("t").partitions[0].leader
        with cluster.open(next(node for node in cluster.processes if node != leader)) as other:
            other.alter_topic("t", config={"logdb.mirror.of": None})
        eventually(lambda: log.last_stable_offset == 3)
        log.append(b"3")
        eventually(lambda: [value for _, value, _ in records(db)] == [b"1", b"3"])


def test_goes_on_where_the_end_of_the_target_is_not_replicated_yet(tmp_path):
    with logdb.open(tmp_path / "source") as source, cluster_process(tmp_path / "c") as cluster, logdb.open(cluster.urls) as db:
        source.create_topic("t")
        source.log("t").append_many([b"1"] * 10)
        Mirror(source, db, ["t"]).copy()
        source.log("t").append_many([b"2"] * 10)
        leader = db.describe_topic("t").partitions[0].leader
        followers = [process for node, process in cluster.processes.items() if node != leader]
        with logdb.open(cluster.urls) as other, ThreadPoolExecutor(1) as pool:
            for process in followers:
                process.send_signal(signal.SIGSTOP)
            try:
                killed = pool.submit(Mirror(source, other, ["t"]).copy)  # it waits for the followers
                with cluster.open(leader) as led:
                    eventually(lambda: led.describe_topic("t").partitions[0].end_offset == 20)
                assert Mirror(source, db, ["t"]).copy() == 0
            finally:
                for process in followers:
                    process.send_signal(signal.SIGCONT)
            assert killed.result(60) == 10
        assert records(db) == records(source)
