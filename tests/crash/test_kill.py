"""kill -9 of a real writer, again and again on one directory: a prefix, with everything acknowledged, opened at once."""

import itertools
import os
import random
import select
import signal
import subprocess
import sys
import time

import pytest

import logdb

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
ROUNDS = 20 * SCALE
OPEN_S_MAX = 2.0  # milliseconds in fact; a busy machine is not a failure

# Prints an offset below which everything was acknowledged.  Values tell their offset; their size varies with it.
WRITER = """
import random, sys, logdb
path, level, how, seed = sys.argv[1:]
rng = random.Random(seed)
db = logdb.open(path, durability=level)
config = {"segment.bytes": 200_000, "compression.type": "lz4" if how == "lz4" else "none", "flush.ms": 20}
db.create_topic("t", config=config, if_not_exists=True)
log = db.log("t")
def value(offset):
    return b"%d " % offset + bytes(offset % 300)
print(log.end_offset, flush=True)
while True:
    start = log.end_offset
    if how == "append" and level == "fsync":
        start = log.append(value(start))
        print(start + 1, flush=True)
    elif how == "append":
        for offset in range(start, start + rng.randrange(1, 500)):
            assert log.append(value(offset)) == offset
        log.flush(sync=rng.random() < 0.5)
        print(log.end_offset, flush=True)
    else:
        count = rng.randrange(1, 1000)
        print(log.append_many([value(start + row) for row in range(count)]).stop, flush=True)
"""


def value(offset: int) -> bytes:
    return b"%d " % offset + bytes(offset % 300)


def acknowledged(writer: subprocess.Popen, run_s: float) -> int:
    """Let the writer run, kill it, and return the last line that it had printed whole."""
    said, until = b"", time.monotonic() + 60
    first = None
    while first is None or time.monotonic() < first + run_s:
        ready, _, _ = select.select([writer.stdout], [], [], 0.005)
        if ready:
            part = os.read(writer.stdout.fileno(), 1 << 16)
            assert part, f"the writer ended by itself: {writer.communicate()[1].decode()}"
            said += part
            first = first or time.monotonic()
        assert time.monotonic() < until, "the writer says nothing"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    said += writer.stdout.read()
    return int(said.split(b"\n")[:-1][-1])


CASES = list(itertools.product(("os", "interval", "fsync"), ("many", "append", "lz4")))


@pytest.mark.slow
@pytest.mark.parametrize(("level", "how"), CASES)
def test_kill_again_and_again(tmp_path, level, how):
    path, seed = str(tmp_path / "db"), random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    rounds = max(1, -(-ROUNDS // len(CASES)))
    checked = 0
    for number in range(rounds):
        arguments = [sys.executable, "-c", WRITER, path, level, how, str(seed + number)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            promised = acknowledged(writer, rng.random() * 0.2)
        began = time.monotonic()
        with logdb.open(path, durability=level) as db:
            log = db.log("t")
            end = log.end_offset
            took_s = time.monotonic() - began
            assert promised <= end, f"round {number}: {promised} were acknowledged, {end} are there"
            assert took_s < OPEN_S_MAX, f"round {number}: opening took {took_s * 1000:.0f} ms"
            last = checked
            for record in log.read(max(0, checked - 100)):
                assert record.value == value(record.offset), record
                last = record.offset + 1
            assert last == end
            assert log.leader_epoch == number + 1
            checked = end
    with logdb.open(path) as db:
        assert [record.offset for record in db.log("t").read(0)] == list(range(checked))
        assert all(record.value == value(record.offset) for record in db.log("t").read(0))
        assert not [line for line in db.reports if "corrupt" in line]
    report = logdb.verify(path)
    assert report.ok, report.problems
