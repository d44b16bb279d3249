"""Tables and processes: killed while they catch up, forked while they iterate."""

import os
import random
import signal
import subprocess
import sys

import pytest

import logdb
from logdb.errors import Forked

ROUNDS = 8 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))

# Appends and looks, for as long as it lives.
APPENDER = """
import sys, logdb
with logdb.open(sys.argv[1]) as db:
    table, number = db.table("t"), int(sys.argv[2])
    print("ready", flush=True)
    while True:
        rows = range(number, number + 200)
        db.append_many("t", [None if row % 11 == 0 else b"%d" % row for row in rows], [b"k%d" % (row % 700) for row in rows])
        number = rows.stop
        newest = next(row for row in reversed(rows) if row % 11)
        assert table[b"k%d" % (newest % 700)] == b"%d" % newest
"""


def replayed(db):
    found = {}
    for partition in range(db.describe_topic("t").partition_count):
        for record in db.log("t", partition).read(0):
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
    return found


@pytest.mark.slow
def test_killed_while_it_catches_up(tmp_path):
    path, rng = str(tmp_path / "db"), random.Random(5)
    with logdb.open(path) as db:
        db.create_topic("t", partitions=2)
    end = 0
    for _ in range(ROUNDS):
        child = subprocess.Popen([sys.executable, "-c", APPENDER, path, str(end)], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        with logdb.open(path, mode="r") as reader:  # the kill comes so many records later
            logs = [reader.log("t", partition) for partition in range(2)]
            wanted = end + rng.randrange(200, 4_000)
            for _ in logs[0].follow(min(wanted // 2, logs[0].end_offset), timeout_ms=20_000):
                if sum(log.end_offset for log in logs) >= wanted:
                    break
        child.send_signal(signal.SIGKILL)
        child.communicate()
        with logdb.open(path) as db:
            expected = replayed(db)
            assert dict(db.table("t").items()) == expected
            assert len(db.table("t")) == len(expected)
            end = sum(db.log("t", partition).end_offset for partition in range(2))
            end += -end % 7_700  # a multiple of both: keys and tombstones go on as the child counts them


@pytest.mark.filterwarnings("ignore:This process")
def test_forked_while_it_iterates(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.append_many("t", [b"old"] * 500, [b"%03d" % number for number in range(500)])
        table = db.table("t")
        items = iter(table.items())
        assert next(items) == (b"000", b"old")
        child = os.fork()
        if child == 0:
            try:
                table[b"001"]
            except Forked:
                del items
                db.close()
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for _ in range(20):
            db.append_many("t", [b"new"] * 500, [b"%03d" % number for number in range(500)])
            assert table[b"499"] == b"new"
        assert [value for _, value in items] == [b"old"] * 499
