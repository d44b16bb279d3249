"""The programs of docs/how-to/ that promise "exactly once" are killed at their SQL statements.

At every second one, or at each where ``LOGDB_TEST_SCALE`` is more than 1.
"""

import contextlib
import json
import os
import random
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
