"""Thousands of partitions under ``ulimit -n 1024``, in bounded memory."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

COMMON = """
import os, resource, sys, logdb, logdb.io
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
path, count = sys.argv[1], int(sys.argv[2])
def rss_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
class NoSync(logdb.io.IO):
    # This is about descriptors and memory: tens of thousands of syncs would take minutes.
    def fdatasync(self, fd):
        pass
    def fsync_dir(self, path):
        pass
def descriptors():
    return len(os.listdir("/proc/self/fd"))
"""

MAKE = """
with logdb.open(path, io=NoSync()) as db:
    db.create_topic("t", partitions=count)
    before = rss_bytes()
    for partition in range(count):
        db.log("t", partition).append(b"first %d" % partition)
    db.flush()
    assert descriptors() < 700, descriptors()
    print(rss_bytes() - before)
"""

APPEND = """
with logdb.open(path, io=NoSync()) as db:
    before = rss_bytes()
    for _ in range(2):
        for partition in range(count):
            log = db.log("t", partition)
            log.append_many([b"more %d" % partition] * 3)
    used = rss_bytes() - before
    for partition in range(0, count, 7):
        values = [record.value for record in db.log("t", partition).read(0)]
        assert values == [b"first %d" % partition] + [b"more %d" % partition] * 6, values
    assert descriptors() < 700, descriptors()
    print(used)
"""

READ = """
with logdb.open(path, io=NoSync(), mode="r") as db:
    before = rss_bytes()
    for partition in range(count):
        assert db.log("t", partition).end_offset == 7
    assert descriptors() < 700, descriptors()
    print(rss_bytes() - before)
"""

KILLED = """
db = logdb.open(path, io=NoSync())
for partition in range(count):
    db.log("t", partition).append(b"once more")
db.flush(sync=False)
os._exit(9)
"""

RECOVER = """
import time
began = time.monotonic()
with logdb.open(path, io=NoSync()) as db:
    opened = time.monotonic() - began
    assert db.log("t", count - 1).end_offset == 8
    assert db.log("t", 0).end_offset == 8
    assert opened < 5, opened
    assert all(db.log("t", partition).end_offset == 8 for partition in range(count))
    print(0)
"""


def run(program: str, path, count: int, code: int = 0) -> int:
    done = subprocess.run([sys.executable, "-c", COMMON + program, str(path), str(count)], capture_output=True, text=True, timeout=250)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "Too many open files" not in done.stderr, done.stderr
    return int(done.stdout or 0)


@pytest.fixture
def directory(tmp_path):
    """In memory where there is room: making 70,000 files on a disk can take minutes."""
    if not os.access("/dev/shm", os.W_OK) or shutil.disk_usage("/dev/shm").free < 2 << 30:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield pathlib.Path(path)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_created_opened_and_appended_to(directory, count, capsys):
    steps = {}
    programs = {"make": MAKE, "append": APPEND, "read": READ, "killed": KILLED, "recover": RECOVER}
    for name, program in programs.items():
        began = time.monotonic()
        used = run(program, directory / "db", count, 9 if name == "killed" else 0)
        steps[name] = f"{time.monotonic() - began:.1f} s, {used >> 20} MB"
        assert used <= 100_000 * count, f"{name}: {used / count:.0f} bytes a partition"
    with capsys.disabled():
        print(f"\n  {count} partitions: {steps}")
