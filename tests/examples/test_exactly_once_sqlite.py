import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import logdb
from examples import exactly_once_sqlite
from examples.exactly_once_sqlite import PARTITIONS, TOPIC, open_ledger, pay, transfer

COUNT = 14  # two polls
STRIDE = 1 if int(os.environ.get("LOGDB_TEST_SCALE", "1")) > 1 else 2

# Transfers beside the writer, and dies by SIGKILL at the step with the number.
CHILD = """
import os, signal, sys
import logdb
from examples.exactly_once_sqlite import open_ledger, transfer

left = int(sys.argv[3])

def step(what):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

with logdb.open(sys.argv[1], mode="r") as db:
    ledger = open_ledger(sys.argv[2])
    transfer(db, ledger, step=step)
    ledger.close()
"""


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as opened:
        opened.create_topic(TOPIC, partitions=PARTITIONS)
        yield opened


def contents(path):
    ledger = open_ledger(path)
    rows = ledger.execute("SELECT id, cents FROM payments ORDER BY id").fetchall()
    ledger.close()
    return [number for number, _ in rows], sum(cents for _, cents in rows)


def run(db, path, kill_at):
    """The exit code of a child that is killed at a step."""
    command = [sys.executable, "-c", CHILD, db.path, path, str(kill_at)]
    return subprocess.run(command, cwd=Path(__file__).parents[2], env=os.environ, timeout=60).returncode


@pytest.mark.slow
def test_killed_at_every_step(db, tmp_path):
    total = pay(db, COUNT)
    db.flush()
    for kill_at in range(random.randrange(STRIDE) + 1, 1_000, STRIDE):
        path = str(tmp_path / f"ledger-{kill_at}")
        died = run(db, path, kill_at) != 0
        ids, _ = contents(path)
        assert len(ids) == len(set(ids)), f"killed at step {kill_at}: rows are doubled"
        ledger = open_ledger(path)
        transfer(db, ledger)
        ledger.close()
        assert contents(path) == (list(range(COUNT)), total), f"killed at step {kill_at}"
        if not died:
            break
    assert kill_at > COUNT


def test_killed_again_and_again(db, tmp_path):
    total, path, deaths = pay(db, COUNT), str(tmp_path / "ledger"), 0
    db.flush()
    while run(db, path, 14):
        deaths += 1
    assert deaths
    assert contents(path) == (list(range(COUNT)), total)


def test_the_program(capsys):
    with pytest.raises(SystemExit) as exited:
        exactly_once_sqlite.main()
    assert exited.value.code == 0
    assert "500 payments transferred, then 0" in capsys.readouterr().out
