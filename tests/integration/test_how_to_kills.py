"""The programs of docs/how-to/ that promise "exactly once" are killed at their SQL statements, or stopped within their transactions.

Killed at every second statement, or at each where ``LOGDB_TEST_SCALE`` is more than 1.
"""

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import logdb
from support.how_to import fences
from support.postgres import open_to_its_user

COUNT = 20  # two polls
STRIDE = 1 if int(os.environ.get("LOGDB_TEST_SCALE", "1")) > 1 else 2
KILLED = f"""
import os, runpy, signal, sqlite3, sys
import psycopg

left = int(sys.argv[2])

def counted(method):
    def call(*values, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.{signal.SIGKILL.name})
        return method(*values, **options)
    return call

class Connection(sqlite3.Connection):
    execute, executemany = counted(sqlite3.Connection.execute), counted(sqlite3.Connection.executemany)

connect = sqlite3.connect
sqlite3.connect = lambda *values, **options: connect(*values, factory=Connection, **options)
psycopg.Connection.execute = counted(psycopg.Connection.execute)
psycopg.Cursor.executemany = counted(psycopg.Cursor.executemany)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def written(page: str, title: str, directory: Path) -> Path:
    """A program of a page, as a file."""
    (body,) = [fence.body for fence in fences(page) if fence.title == title]
    (directory / title).write_text(body.replace("timeout_ms=1000", "timeout_ms=50, max_records=10"), encoding="utf-8")
    return directory / title


def run(program: Path, kill_at: int, variables: dict[str, str]) -> bool:
    """Run a program, and kill it at a statement; returns whether it had so many."""
    command = [sys.executable, "-c", KILLED, program.name, str(kill_at)]
    done = subprocess.run(command, cwd=program.parent, env=os.environ | variables, capture_output=True, text=True, timeout=60)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode != 0


STOPPED = f"""
import os, runpy, signal, sys
from logdb.client.producer.transaction import Transaction

where, send_offsets, left = sys.argv.pop(), Transaction.send_offsets, 2

def stop():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.{signal.SIGSTOP.name})

def call(*values):
    if where == "before":
        stop()
    send_offsets(*values)
    if where == "after":
        stop()

Transaction.send_offsets = call
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("delivery_timeout_ms", [120_000, 1_000])
def test_a_worker_of_the_queue_that_was_stopped_goes_on(tmp_path: Path, delivery_timeout_ms: int) -> None:
    """Stopped for longer than its transaction may be open, or than records may wait, and until another worker has done all jobs."""
    with logdb.open(tmp_path / "queue") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        changes = {
            "http://localhost:8080": server.addresses[0],
            "max_poll_interval_ms=5_000": "max_poll_interval_ms=1_000",
            "transaction_timeout_ms=5_000": f"transaction_timeout_ms=1_000, delivery_timeout_ms={delivery_timeout_ms}",
            "timeout_ms=12_000": "timeout_ms=6_000",
            "range(600)": "range(180)",
        }
        for fence in fences("job-queue"):
            body = re.sub("|".join(map(re.escape, changes)), lambda found: changes[found[0]], fence.body)
            if fence.title:
                (tmp_path / fence.title).write_text(body, encoding="utf-8")
        run_page("add_jobs.py", tmp_path)
        stopped = [start("-c", STOPPED, "worker.py", where, where, directory=tmp_path) for where in ("before", "after")]
        for worker in stopped:
            assert os.WIFSTOPPED(os.waitpid(worker.pid, os.WUNTRACED)[1]), worker.communicate()
        run_page("worker.py", tmp_path, "other")
        assert run_page("results.py", tmp_path) == "180 results of 180 jobs\n"
        for worker in stopped:
            worker.send_signal(signal.SIGCONT)
        assert [(*worker.communicate(timeout=60), worker.returncode) for worker in stopped] == [("", "", 0)] * 2
        assert run_page("results.py", tmp_path) == "180 results of 180 jobs\n"


def start(*command: str, directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, *command], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_page(title: str, directory: Path, *arguments: str) -> str:
    """What a program of a page prints; it ends well, and has nothing to complain about."""
    printed, complaints = (process := start(title, *arguments, directory=directory)).communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("title", ["to_sqlite.py", "to_postgres.py"])
def test_each_payment_is_in_the_table_once(title: str, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    with logdb.open(tmp_path / "events") as db:
        db.create_topic("payments", partitions=2)
        db.append_many(
            "payments", [json.dumps({"id": number, "cents": 250}).encode() for number in range(COUNT)], partitioner="round_robin"
        )
    program, kill_at = written("exactly-once", title, tmp_path), random.randrange(STRIDE) + 1
    with open_to_its_user() if title == "to_postgres.py" else contextlib.nullcontext("") as where:
        while run(program, kill_at, {"SHOP": where}):
            assert not run(program, 0, {"SHOP": where})
            with contextlib.closing(psycopg.connect(where) if where else sqlite3.connect(tmp_path / "ledger.sqlite")) as shop:
                ids = [number for (number,) in shop.execute("SELECT id FROM payments ORDER BY id").fetchall()]
                assert ids == list(range(COUNT)), f"killed at statement {kill_at}"
                shop.execute("DROP TABLE payments")
                shop.execute("DROP TABLE positions")
                shop.commit()
            kill_at += STRIDE
    assert kill_at > 8


@pytest.mark.slow
def test_each_row_of_the_outbox_is_in_the_topic_once(tmp_path: Path) -> None:
    relay, shop, kill_at = written("outbox", "relay.py", tmp_path), written("outbox", "shop.py", tmp_path), 1
    events = 0
    while True:
        subprocess.run([sys.executable, shop.name, "tea", "coffee"], cwd=tmp_path, check=True, timeout=60)
        events += 2
        had = run(relay, kill_at, {})
        assert not run(relay, 0, {})
        with logdb.open(tmp_path / "events", mode="r") as db:
            orders = [json.loads(record.value or b"")["order"] for record in db.log("orders").read(0)]
        assert orders == list(range(1, events + 1)), f"killed at statement {kill_at}"
        if not had:
            break
        kill_at += 1
    assert kill_at > 3
