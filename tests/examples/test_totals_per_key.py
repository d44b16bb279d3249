import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import logdb
from examples import totals_per_key
from examples.totals_per_key import create_topics, made_up_orders, place, totals_of
from support.waiting import until

ROOT = Path(__file__).parents[2]

# Works, and gets a signal at a step once a file is there.
CHILD = """
import os, signal, sys
import logdb
from examples import totals_per_key

url, worker, where, number, file = sys.argv[1:]

def send_offsets(transaction, consumer):
    transaction.flush()  # its records are in the log when it is stopped
    send(transaction, consumer)

def step(what):
    if what == where and os.path.exists(file):
        os.remove(file)
        os.kill(os.getpid(), getattr(signal, number))

send, logdb.Transaction.send_offsets = logdb.Transaction.send_offsets, send_offsets
with logdb.open(url) as db:
    totals_per_key.work(db, worker, idle_ms=600_000, step=step)
"""
STEPS = ("polled", "looked up", "sent", "offsets sent", "committed")


@pytest.mark.parametrize(("stopped_at", "killed_at"), [*zip(STEPS, STEPS[3:] + STEPS[:3], strict=True)])
def test_one_worker_is_stopped_and_one_is_killed(tmp_path, stopped_at, killed_at):
    stop, kill = tmp_path / "stop", tmp_path / "kill"
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        create_topics(db)
        expected = place(db, made_up_orders(40, 12, seed=1))
        with (
            worker(server.addresses[0], "1", stopped_at, "SIGSTOP", stop) as stopped,
            worker(server.addresses[0], "2", killed_at, "SIGKILL", kill) as killed,
        ):
            until(lambda: has_members(db, 2) and totals_of(db) == expected, "both workers are there")
            stop.touch()
            expected += place(db, made_up_orders(800, 12, seed=2))
            until(lambda: os.waitpid(stopped.pid, os.WUNTRACED | os.WNOHANG)[0], "it stops")
            until(lambda: totals_of(db) == expected, "the other worker does all of the rest")
            kill.touch()
            expected += place(db, made_up_orders(400, 12, seed=3))
            assert killed.wait(30) == -signal.SIGKILL
            stopped.send_signal(signal.SIGCONT)
            until(lambda: totals_of(db) == expected or stopped.poll() is not None, "the worker that was stopped does all of the rest")
            assert (stopped.poll(), totals_of(db)) == (None, expected)


def has_members(db, count):
    group = next((group for group in db.groups() if group.group_id == "totals"), None)
    return group is not None and group.state == "Stable" and len(db.describe_group("totals").members) == count


@contextlib.contextmanager
def worker(*arguments):
    """A process that works, and does not complain; killed at the end."""
    with subprocess.Popen([sys.executable, "-c", CHILD, *map(str, arguments)], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
        assert process.stderr.read() == ""


def test_the_program(capsys):
    with pytest.raises(SystemExit) as exited:
        totals_per_key.main()
    assert exited.value.code == 0
    assert "12 customers pay" in capsys.readouterr().out
