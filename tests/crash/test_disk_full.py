"""The disk is full: readable throughout, the open batch kept, writable again when there is room; nothing lost, nothing twice."""

import errno
import logging
import os
import subprocess
import sys

import pytest

import logdb
from logdb.errors import CloseIncomplete, DiskFull, InvalidTransactionState, WriteFailed
from support.batches import encode_log
from support.faulty_io import FaultyIO
from support.transactions import committed
from support.waiting import until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def db(tmp_path, io):
    database = logdb.open(tmp_path / "db", io=io)
    yield database
    io.heal()
    database.close()


def value(number: int) -> bytes:
    return b"%08d " % number + bytes(number * 7919 % 251 for _ in range(90))


def append_until_full(log: logdb.Log, accepted: list[bytes], count: int = 100_000) -> DiskFull:
    for _ in range(count):
        try:
            offset = log.append(value(len(accepted)))
        except DiskFull as error:
            return error
        assert offset == len(accepted)
        accepted.append(value(offset))
    raise AssertionError(f"the disk took {count} records")


def values(log: logdb.Log, offset: int = 0) -> list[bytes]:
    return [record.value for record in log.read(offset)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("room", [0, 1, 70_000, 200_001])
def test_append_is_refused_until_there_is_room(db, io, codec, room):
    db.create_topic("t", config={"compression.type": codec})
    log = db.log("t")
    accepted = [value(number) for number in range(500)]
    log.append_many(accepted)
    io.room = room
    error = append_until_full(log, accepted)
    assert error.retriable
    assert error.size_bytes > 0
    assert str(error.size_bytes) in str(error)
    assert "t-0" in error.path
    assert log.end_offset == len(accepted)
    seen = values(log)
    assert seen == accepted[: len(seen)]
    assert len(seen) >= 500
    with pytest.raises(DiskFull):
        log.append(b"not accepted")
    with pytest.raises(DiskFull):
        log.flush()
    assert log.end_offset == len(accepted)
    io.heal()
    assert log.append(b"again") == len(accepted)
    assert values(log) == [*accepted, b"again"]
    log.flush()
    assert log.view.flushed.offset == len(accepted) + 1


def test_the_background_writes_when_there_is_room_again(db, io, caplog):
    db.create_topic("t", config={"durability": "os"})
    log = db.log("t")
    log.append(b"first")
    log.flush()
    with caplog.at_level(logging.ERROR):
        io.room = 0
        tried = io.count("pwrite", ".log")
        log.append(b"waits")
        io.wait_for("pwrite", ".log", more_than=tried + 2)
        assert values(log) == [b"first"]
        io.heal()
        until(lambda: values(log) == [b"first", b"waits"], "what waits is written")
    told = [record for record in caplog.records if "no room" in record.message]
    assert len(told) == 1, "each failure is reported once, not at every try"


def test_a_call_that_is_too_large_for_the_disk_is_refused_as_a_whole(db, io):
    db.create_topic("t")
    log = db.log("t")
    values_given = [value(number) for number in range(10_000)]
    batches = encode_log([values_given[:5000], values_given[5000:]])
    io.room = 800_000
    for call, given in ((log.append_many, values_given), (log.append_batches, batches)):
        with pytest.raises(DiskFull, match="800000 bytes are free; call again once there is room") as caught:
            call(given)
        assert (caught.value.offsets, caught.value.retriable, log.end_offset) == (None, True, 0)
    io.heal()
    log.append_many(values_given)
    assert values(log) == values_given


def test_append_many_says_which_records_it_kept(db, io, monkeypatch):
    """Of a call for which there was room at first; another program has taken it meanwhile."""
    db.create_topic("t")
    log = db.log("t")
    log.append_many([value(number) for number in range(10)])
    io.room = 300_000
    monkeypatch.setattr(io, "free_bytes", lambda path: 1 << 40)
    with pytest.raises(DiskFull) as caught:
        log.append_many([value(number) for number in range(10, 10_010)])
    kept = caught.value.offsets
    assert not caught.value.retriable
    assert kept.start == 10
    assert kept.stop == log.end_offset <= 10_010
    assert len(values(log)) <= kept.stop
    io.heal()
    log.flush()
    assert values(log) == [value(number) for number in range(kept.stop)]
    rest = log.append_many([value(number) for number in range(kept.stop, 10_010)])
    assert (rest.start, rest.stop) == (kept.stop, 10_010)
    assert values(log) == [value(number) for number in range(10_010)]


@pytest.mark.parametrize("level", ["interval", "fsync"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("how", ["append", "append_many", "append_batches"])
def test_the_same_call_again_stores_each_record_once(tmp_path, db, io, level, codec, how):
    """The obvious program: it catches DiskFull, makes room and calls again.  A short write has left whole batches in the file."""
    db.create_topic("t", config={"durability": level, "compression.type": codec})
    log = db.log("t")
    io.fail("allocate", errno.ENOSPC)  # else there is room at fsync
    expected = [os.urandom(100) for _ in range(30)]
    log.append_many(expected[:10])
    rest = expected[10:]
    call = {
        "append": lambda: [log.append(one, durability="fsync") for one in rest[len(values(log)) - 10 :]],
        "append_many": lambda: log.append_many(rest, expected_offset=10),
        "append_batches": lambda: log.append_batches(encode_log([[one] for one in rest])),
    }[how]
    io.room = 500
    with pytest.raises(DiskFull, match="call again once there is room") as caught:
        call()
    assert caught.value.retriable
    assert caught.value.offsets is None
    assert log.end_offset == len(values(log))
    with logdb.open(tmp_path / "db", mode="r") as reader:
        assert values(reader.log("t")) == values(log), "nothing of it is left in the file"
    io.heal()
    call()
    assert values(log) == expected
    db.close()
    assert logdb.verify(tmp_path / "db").ok


def test_a_call_of_which_a_part_is_written_says_that_it_must_not_be_repeated(db, io):
    db.create_topic("t", config={"segment.bytes": 4096})
    log = db.log("t")
    log.append(b"before")
    batches = encode_log([[value(10 * batch + row) for row in range(10)] for batch in range(20)])
    io.room = 10_000
    with pytest.raises(DiskFull, match="the log keeps 200 records of the call, from offset 1 on: do not append them again") as caught:
        log.append_batches(batches)
    assert (caught.value.offsets, caught.value.retriable) == (range(1, 201), False)
    io.heal()
    log.flush()
    assert values(log) == [b"before", *(value(number) for number in range(200))]


def heals_behind(io, count):
    return lambda kind, path: io.heal() if io.count("pwrite", "t-0/") > count else None


def test_producers_of_every_kind_store_each_record_once(db, io):
    db.create_topic("t")
    expected = [value(number) for number in range(40)]
    for idempotent in (True, False):
        with db.producer(enable_idempotence=idempotent, retry_backoff_ms=1) as producer:
            for one in expected:
                producer.send("t", one)
            io.room = 700
            io.before = heals_behind(io, io.count("pwrite", "t-0/") + 3)
            producer.flush()
    assert values(db.log("t")) == expected * 2


@pytest.mark.parametrize("kind", ["create", "truncate", "pwrite", "open"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("first", [True, False])
def test_roll_fails_and_is_tried_again(tmp_path, io, kind, number, first):
    """At each call of a roll, for the first segment (its epochs' file too) and a later one."""
    expected: list[bytes] = []
    with logdb.open(tmp_path / "db", io=io, durability="fsync") as db:
        db.create_topic("t", config={"segment.bytes": 4096})
        log = db.log("t")
        if not first:
            expected += [value(number) for number in range(30)]
            log.append_many(expected)
        io.fail(kind, number, "t-0")
        for _ in range(3):
            try:
                log.append_many([value(7)] * 30)
                expected += [value(7)] * 30
            except (DiskFull, WriteFailed) as error:
                assert isinstance(error, DiskFull) == (number == errno.ENOSPC)  # noqa: PT017 -- it may come or not
                expected += [value(7)] * len(error.offsets or ())
        io.heal()
        expected.append(b"after")
        log.append(b"after")
        log.flush()
        assert values(log) == expected
    with logdb.open(tmp_path / "db") as db:
        assert db.reports == ()
        assert values(db.log("t")) == expected
    assert logdb.verify(tmp_path / "db").ok


def test_epochs_survive_a_full_disk_at_the_first_record(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io)
    db.create_topic("t")
    io.fill_up()
    with pytest.raises(DiskFull):
        db.log("t").append_many([b"a"])
    io.heal()
    db.append("t", b"a")
    db.flush()
    assert (tmp_path / "db/t-0/leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    db.close()
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == [b"a"]


@pytest.mark.parametrize("kind", ["mkdir", "create", "pwrite"])
def test_topic_creation(db, io, tmp_path, kind):
    db.create_topic("there")
    io.fail(kind, errno.ENOSPC, ".tmp")
    with pytest.raises(DiskFull):
        db.create_topic("new", partitions=3)
    assert [topic.name for topic in db.topics()] == ["there"]
    with pytest.raises(logdb.errors.UnknownTopic):
        db.log("new")
    db.append("there", b"goes on")
    io.heal()
    db.create_topic("new", partitions=3)
    assert db.append("new", b"x", b"k").offset == 0
    db.close()
    with logdb.open(tmp_path / "db"):  # removes what was begun and never finished
        assert not [name for name in os.listdir(tmp_path / "db") if name.endswith(".tmp")]


def test_alter_topic_changes_nothing_on_a_full_disk(db, io):
    db.create_topic("t", config={"segment.bytes": 4096})
    io.fail("create", errno.ENOSPC, "topic.json")
    with pytest.raises(DiskFull):
        db.alter_topic("t", config={"segment.bytes": 8192})
    assert db.describe_topic("t").config == {"segment.bytes": 4096}
    io.heal()
    assert db.alter_topic("t", config={"segment.bytes": 8192}).config == {"segment.bytes": 8192}


def test_close_says_how_many_records_it_lost(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io, linger_ms=60_000)
    db.create_topic("t", partitions=2)
    db.log("t", 0).append_many([b"kept"] * 5)
    io.fill_up()
    for number in range(7):
        db.log("t", 0).append(b"lost %d" % number)
    for number in range(4):
        db.log("t", 1).append(b"lost %d" % number)
    with pytest.raises(CloseIncomplete, match="lost 11 records") as caught:
        db.close()
    assert caught.value.record_count == 11
    assert caught.value.path == str(tmp_path / "db")
    db.close()
    io.heal()
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t", 0)) == [b"kept"] * 5
        assert values(db.log("t", 1)) == []
        assert db.log("t").leader_epoch == 1, "not a clean close"


def test_read_ends_at_what_was_written(db, io):
    db.create_topic("t", config={"durability": "os"})
    log = db.log("t")
    log.append_many([b"a", b"b"])
    io.room = 0
    log.append(b"c")
    assert values(log) == [b"a", b"b"]
    assert values(log, 2) == []
    assert log.read_batches(2) == (b"", 2)
    assert [row for batch in log.read_arrow() for row in batch["value"].to_pylist()] == [b"a", b"b"]
    assert log.offset_for_timestamp(0) == 0
    io.heal()
    assert values(log) == [b"a", b"b", b"c"]


# ---------------------------------------------------------------- a real one

MOUNTED = """
import os, signal, subprocess, sys
path, size = sys.argv[1], sys.argv.pop(2)
done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True)
if done.returncode:
    print("cannot mount:", done.stderr.decode())
    sys.exit(77)
"""


def on_a_small_disk(tmp_path, size, script, *arguments):
    """Run a script whose ``path`` is a disk of that size, in a directory of ``tmp_path``; what it prints."""
    (tmp_path / "disk").mkdir()
    program = [sys.executable, "-c", MOUNTED + script, str(tmp_path / "disk"), size, *arguments]
    done = subprocess.run(["unshare", "-m", "--propagation", "private", *program], capture_output=True, text=True, timeout=120)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this container may not mount: " + done.stdout + done.stderr)
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


ON_A_SMALL_DISK = """
import logdb
from logdb.errors import CloseIncomplete, DiskFull
db = logdb.open(path + "/db", durability=sys.argv[2])
db.create_topic("t", config={"compression.type": sys.argv[3], "segment.bytes": 100_000})
log = db.log("t")
accepted = []
def append(count):
    for _ in range(count):
        value = b"%08d" % len(accepted) + os.urandom(60)
        try:
            offset = log.append(value)
        except DiskFull as error:
            assert error.offsets is None
            return
        assert offset == len(accepted), (offset, len(accepted))
        accepted.append(value)
    sys.exit(f"1 MB took {count} records")
def there():
    values = [record.value for record in log.read(0)]
    assert values == accepted[:len(values)]
    return len(values)
with open(path + "/ballast", "wb") as file:
    file.write(bytes(300_000))
append(30_000)
full = there()
append(30_000)
try:
    db.create_topic("u" * 200, partitions=50)
except DiskFull:
    pass
assert there() >= full > 1000
os.unlink(path + "/ballast")
append(30_000)
assert there() > full
subprocess.run(["mount", "-o", "remount,size=4m", path], check=True)
log.append(b"last"); accepted.append(b"last")
db.flush()
assert there() == len(accepted)
db.close()
with logdb.open(path + "/db") as db:
    log = db.log("t")
    assert there() == len(accepted) == log.end_offset
assert logdb.verify(path + "/db").ok
print(len(accepted))
"""


MAKES_ROOM = """
import logdb
from logdb.io import IO
with logdb.open(path + "/db") as db:
    for topic in "tu":
        db.create_topic(topic, config={"segment.bytes": 1 << 18})
        for _ in range(20):
            db.log(topic).append_many([os.urandom(1000)] * 100)
with open(path + "/fill", "ab", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
class Dies(IO):
    left = -1
    def truncate(self, fd, size_bytes):
        super().truncate(fd, size_bytes)
        if os.readlink(f"/proc/self/fd/{fd}").endswith("RESERVE"):
            self.left = number
    def unlink(self, path):
        self.step()
        super().unlink(path)
    def step(self):
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
    def rename(self, old, new):
        self.step()
        super().rename(old, new)
    def pwrite(self, fd, view, position):
        self.step()
        return super().pwrite(fd, view, position)
    def fsync_dir(self, path):
        self.step()
        super().fsync_dir(path)
for number in range(int(sys.argv[2])):
    if (child := os.fork()) == 0:
        with logdb.open(path + "/db", io=Dies()) as db:
            db.delete_records("t", 0, 100 + number)
        os._exit(0)
    os.waitpid(child, 0)
    if number == 2:  # another program takes what was given back
        subprocess.run(["sh", "-c", "cat /dev/zero >> " + path + "/fill"], capture_output=True)
with logdb.open(path + "/db") as db:
    assert 100 <= db.delete_records("t", 0, 1500) == 1500 == db.log("t").start_offset
    subprocess.run(["sh", "-c", "cat /dev/zero >> " + path + "/fill"], capture_output=True)
    db.alter_topic("u", config={"retention.bytes": 1 << 19})
    subprocess.run(["sh", "-c", "cat /dev/zero >> " + path + "/fill"], capture_output=True)
    db.enforce_retention("u")
    assert 0 < db.log("u").start_offset < db.log("u").end_offset == 2000
    db.delete_topic("t")
    assert [topic.name for topic in db.topics()] == ["u"]
assert logdb.verify(path + "/db").ok
print(0)
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root on Linux may mount a small disk")
def test_a_full_disk_can_be_made_room_on_after_a_kill_at_any_step(tmp_path):
    on_a_small_disk(tmp_path, "8m", MAKES_ROOM, "8")


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root on Linux may mount a small disk")
@pytest.mark.parametrize(("level", "codec"), [("interval", "none"), ("fsync", "none"), ("os", "zstd")])
def test_a_disk_of_one_megabyte(tmp_path, level, codec):
    assert int(on_a_small_disk(tmp_path, "1m", ON_A_SMALL_DISK, level, codec)) > 3000


# What LMDB maps: a page of a sparse file that finds no room is a SIGBUS
FULL = """
import logdb
from logdb.errors import DiskFull
def fill(left=0):
    with open(path + "/fill", "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(file.tell() - left)
def free():
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
def signal_of(function):
    if (child := os.fork()) == 0:
        function()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def database(count):
    db = logdb.open(path + "/db")
    db.create_topic("t")
    db.log("t").append_many([os.urandom(1000) for _ in range(count)], [b"%d" % number for number in range(count)])
    db.flush()
    return db
"""

A_TABLE = """
with database(500) as db:
    fill()
    for _ in range(2):
        try:
            sys.exit(f"a view of {len(db.table('t'))} rows")
        except DiskFull as error:
            assert "No space left on device" in error.reason, error
        assert not os.path.exists(path + "/db/views") or os.listdir(path + "/db/views") == []
    os.unlink(path + "/fill")
    assert len(db.table("t")) == 500
with logdb.open(path + "/db") as db:
    fill()
    assert len(db.table("t")) == 500, "it needs no more room"
    os.unlink(path + "/fill")
"""

A_TABLE_AT_ANY_ROOM = """
database(20).close()
def use():
    with logdb.open(path + "/db", mode="r" if reader else "a") as db:
        try:
            assert len(db.table("t")) == 20
        except DiskFull:
            built.append(False)
        else:
            built.append(True)
    os._exit(10 + built[0])
os.makedirs(path + "/tmp")
os.environ["TMPDIR"] = path + "/tmp"
for reader in (False, True):
    found = []
    for pages in range(0, 50, 2):
        subprocess.run("rm -rf db/views tmp/*", shell=True, cwd=path, check=True)
        fill(pages * 4096)
        built = []
        found.append(signal_of(use))
        os.unlink(path + "/fill")
    assert set(found) == {10, 11}, found
"""

A_NEW_DATABASE = """
def use():
    try:
        logdb.open(path + "/db").close()
    except DiskFull:
        os._exit(10)
    os._exit(11)
found = []
for pages in [*range(0, 12), *range(12, 160, 7)]:
    fill(pages * 4096)
    found.append(signal_of(use))
    os.unlink(path + "/fill")
    with logdb.open(path + "/db"):
        pass
    subprocess.run("rm -rf db", shell=True, cwd=path, check=True)
assert set(found) == {10, 11}, found
"""

AN_OLD_DATABASE = """
import lmdb
database(10).close()
os.truncate(path + "/db/catalogue/lock.mdb", 4096)
os.truncate(path + "/db/catalogue/lock.mdb", 262_272)
fill()
with logdb.open(path + "/db") as db:
    db.delete_records("t", 0, 5)
    assert db.log("t").start_offset == 5
os.unlink(path + "/fill")
with logdb.open(path + "/db") as db:
    assert os.stat(path + "/db/catalogue/lock.mdb").st_blocks * 512 >= 262_272
"""

A_VIEW_GIVES_ITS_ROOM_BACK = """
with database(2000) as db:
    before = free()
    assert 1 << 20 < before < 2000_000
    try:
        sys.exit(f"a view of {len(db.table('t'))} rows")
    except DiskFull as error:
        assert "No space left on device" in error.reason, error
    assert before - free() <= 4096, (before, free())
    db.log("t").append_many([bytes(1000)] * 100)
    db.flush()
    assert db.log("t").end_offset == 2100
    subprocess.run(["mount", "-o", "remount,size=16m", path], check=True)
    table = db.table("t")
    assert len(table) == 2000
    subprocess.run(["mount", "-o", "remount,size=11m", path], check=True)
    before = free()
    db.log("t").append_many([os.urandom(1000)] * 1000, [b"%d" % number for number in range(1000)])
    db.flush()
    view = os.path.join(path + "/db/views", os.listdir(path + "/db/views")[0], "data.mdb")
    size = os.stat(view).st_blocks
    fill(1 << 19)
    try:
        sys.exit(f"a view of {len(table)} rows")
    except DiskFull as error:
        pass
    assert os.stat(view).st_blocks <= size, "one that was whole once stays, without what could not be committed"
    assert free() >= 1 << 18
    os.unlink(path + "/fill")
    assert len(table) == 2000
    assert table[b"7"] == db.log("t").read(2107).__next__().value
"""

A_BACKUP = """
other = path + "-other"
os.makedirs(other)
def fill_by(end):
    db = database(1000)
    db.create_topic("u", partitions=3)
    for partition in range(3):
        db.log("u", partition).append(b"one")
    db.flush()
    if end == "killed without the reserve":
        os.truncate(path + "/db/RESERVE", 0)
    fill()
    if end == "closed":
        try:
            db.log("t").append_many([os.urandom(1000) for _ in range(9000)])
        except DiskFull:
            pass
        try:
            db.close()
        except logdb.errors.CloseIncomplete as error:
            os._exit(error.record_count)
    os.kill(os.getpid(), 9)
for end in ("closed", "killed", "killed without the reserve"):
    assert signal_of(lambda: fill_by(end)) == (0 if end == "closed" else -9)
    fill()
    for number in range(2):
        file = f"{other}/{end} {number}"
        command = [sys.executable, "-m", "logdb.cli", "--data-dir", path + "/db", "backup", file]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, "lost" in done.stderr) == (0, False), (end, done.returncode, done.stderr)
        logdb.restore([file], file + " restored")
        with logdb.open(file + " restored", mode="r") as restored:
            assert restored.log("t").end_offset == 1000
            assert [restored.log("u", partition).end_offset for partition in range(3)] == [1, 1, 1]
    subprocess.run("rm -rf db fill", shell=True, cwd=path, check=True)
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root on Linux may mount a small disk")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(A_TABLE, id="a table"),
        pytest.param(A_TABLE_AT_ANY_ROOM, id="a table at any room"),
        pytest.param(A_NEW_DATABASE, id="a new database"),
        pytest.param(AN_OLD_DATABASE, id="an old database"),
        pytest.param(A_VIEW_GIVES_ITS_ROOM_BACK, id="a view gives its room back"),
        pytest.param(A_BACKUP, id="a backup"),
    ],
)
def test_a_full_disk(tmp_path, script):
    on_a_small_disk(tmp_path, "4m", FULL + script)


@pytest.mark.parametrize("where", ["t-0/", "__transaction_state-0/"], ids=["markers", "decision"])
def test_a_commit_that_may_be_decided_is_never_called_aborted(db, io, where):
    """A program that is told so does its work again."""
    db.create_topic("t")
    with db.producer(transactional_id="tx") as producer:
        for value in (b"before", b"once"):
            producer.begin_transaction()
            producer.send("t", value)
            producer.flush()
            if value == b"once":
                io.fail("pwrite", errno.ENOSPC, where)
                with pytest.raises(DiskFull):
                    producer.commit_transaction()
                with pytest.raises((DiskFull, InvalidTransactionState)):
                    producer.abort_transaction()
                with pytest.raises(DiskFull):
                    producer.commit_transaction()
                io.heal()
            producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"after")
        producer.commit_transaction()
    assert committed(db.log("t")) == [b"before", b"once", b"after"]
