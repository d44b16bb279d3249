"""A table larger than the memory that its process may have."""

import subprocess
import sys

import pytest

import logdb

ALLOWED_BYTES = 32 << 20
VALUE_SIZE, COUNT = 4_000, 100_000
assert VALUE_SIZE * COUNT > 10 * ALLOWED_BYTES

# Makes the view of a topic, looks up keys all over it and iterates, with so much memory beyond what it took to get ready.
CHILD = """
import random, resource, sys
import logdb
path, mode, allowed_bytes, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

with logdb.open(path, mode=mode) as db:
    assert len(db.table("small")) == 1
    list(db.log("t").read(0, end_offset=1))
    limit = status("VmData:") + allowed_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        bytearray(allowed_bytes + (8 << 20))
        sys.exit("the limit does not hold")
    except MemoryError:
        pass
    table = db.table("t")
    assert len(table) == count
    order = random.Random(7)
    for _ in range(2_000):
        number = order.randrange(count)
        value = table[b"%d" % number]
        assert value.startswith(b"%d " % number) and len(value) == 4_000
    assert sum(len(value) for value in table.values()) == 4_000 * count
    print(status("RssAnon:"), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what RLIMIT_DATA limits")
@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_table_of_ten_times_the_memory_it_is_allowed(tmp_path, monkeypatch, mode):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("small")
        db.append("small", b"1", b"a")
        db.create_topic("t")
        log = db.log("t")
        for start in range(0, COUNT, 1_000):
            keys = [b"%d" % (row * 7_919 % COUNT) for row in range(start, start + 1_000)]
            log.append_many([key + b" " + bytes(VALUE_SIZE - len(key) - 1) for key in keys], keys)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where a reader's view lies; /tmp may be memory
    child = subprocess.run(
        [sys.executable, "-c", CHILD, tmp_path / "db", mode, str(ALLOWED_BYTES), str(COUNT)], capture_output=True, text=True, timeout=250
    )
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) < 10 * ALLOWED_BYTES
