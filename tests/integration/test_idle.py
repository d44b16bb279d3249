"""A process that has nothing to do does nothing: no thread of it wakes, and nothing is written."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

import logdb
from support.server_process import server_process
from support.waiting import until

LOOK_S = 3  # longer than any wait that was found to repeat itself
CONFIG = {"flush.ms": 20, "retention.ms": 86_400_000}

USED = """
import sys, threading, logdb
with logdb.open(sys.argv[1]) as db:
    db.create_topic("t", partitions=2, config={"flush.ms": 20, "retention.ms": 86_400_000})
    db.create_topic("kv", config={"flush.ms": 20, "cleanup.policy": "compact"})
    db.append("t", b"x")
    producer = db.producer()
    for number in range(20):
        producer.send("kv", b"%d" % number, key=b"k")
    producer.flush()
    with db.transaction("tx") as tx:
        tx.send("t", b"in it")
    consumer = db.consumer("t", group_id="g", auto_offset_reset="earliest")
    assert sum(map(len, consumer.poll(timeout_ms=10_000).values()))
    consumer.commit()
    table = db.table("kv")
    assert table.get(b"k") is not None
    print("used", flush=True)
    sys.stdin.read()
"""


def use(url):
    """What an application does with a server, on a connection that stays open."""
    db = logdb.open(url)
    db.create_topic("t", config=CONFIG)
    db.create_topic("kv", config={"flush.ms": 20, "cleanup.policy": "compact"})
    db.append("t", b"x")
    with db.producer() as producer:
        producer.send("kv", b"v", key=b"k")
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        assert consumer.poll(timeout_ms=10_000)
        consumer.commit()
    return db


def done(pid):
    """What the process has done: how often each thread has gone to sleep, and the bytes that it has written."""
    threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends
            found = dict(line.split(":", 1) for line in (task / "status").read_text(encoding="utf-8").splitlines() if ":" in line)
            threads[task.name] = int(found["voluntary_ctxt_switches"])
    io = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    return threads, int(io.partition("write_bytes: ")[2].split()[0])


def check_rests(pid):
    """It comes to rest soon after it was used: for ``LOOK_S`` seconds nothing happens at all."""

    def rests():
        before = done(pid)
        time.sleep(LOOK_S)  # what is measured: it is no wait for something to happen
        return done(pid) == before

    until(rests, "no thread wakes and nothing is written", 60)


@pytest.mark.slow
def test_a_database_in_a_process(tmp_path):
    command = [sys.executable, "-c", USED, str(tmp_path / "db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "used\n"
        check_rests(process.pid)
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.slow
def test_a_server_with_a_connection_that_is_open(tmp_path):
    with server_process(tmp_path / "db") as server:
        db = use(server.url)
        check_rests(server.process.pid)
        db.append("t", b"still there")
        check_rests(server.process.pid)
        db.close()
        check_rests(server.process.pid)
