"""A descriptor is open for as long as it is used: whenever one is, the cache gives all files away, and their numbers to others.

Once a reader took the number and let go of the file: with more segments than the cache holds it read another file's bytes.
"""

import contextlib
import os
from collections.abc import Iterator

import pytest

import logdb
from logdb.io import IO
from logdb.segment import files
from logdb.segment.files import FileHolder
from support.power_cut import die, quiet

SMALL = {"segment.bytes": 1_024, "index.interval.bytes": 200}
COUNT = 120


class GreedyIO(IO):
    """Before each call on a descriptor all files that may be closed are closed, and another file takes a number that is free.

    ``misused``: the calls on descriptors that were closed by then.
    """

    def __init__(self, other: str) -> None:
        self._other, self._open, self._busy = other, set[int](), False
        self.misused: list[str] = []
        self.used: set[str] = set()
        self.greedy = True

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        fd = super().open(path, flags, mode)
        self._open.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._open.discard(fd)
        super().close(fd)

    @contextlib.contextmanager
    def _taken(self, what: str, fd: int) -> Iterator[None]:
        if self._busy or not self.greedy:  # a file that gives way may be synced first
            yield
            return
        self._busy = True
        if what != "fdatasync":  # a file that gives way waits for a sync of it that is under way
            FileHolder(IO(), self._other, writable=False).open()  # one more than the cache holds: all others give way
        self._busy = False
        self.used.add(what)
        if fd not in self._open:
            self.misused.append(what)
        takes = [os.open(self._other, os.O_RDWR) for _ in range(3)]
        try:
            yield
        finally:
            for taken in takes:
                os.close(taken)


def _greedy(name: str):
    def call(self, fd, *arguments):
        with self._taken(name, fd):
            return getattr(IO, name)(self, fd, *arguments)

    return call


for _name in ("pread", "preadinto", "pwrite", "size_bytes", "file_id", "truncate", "allocate", "fdatasync", "drop_cache", "lock"):
    setattr(GreedyIO, _name, _greedy(_name))


@pytest.fixture
def io(tmp_path, monkeypatch):
    """At the end: nothing was done to a file that was closed, nor to the one that got its number."""
    other = tmp_path / "other"
    other.write_bytes(b"other" * 50_000)
    monkeypatch.setattr(files, "FILES", files.FileCache(1))
    made = GreedyIO(str(other))
    yield made
    assert made.misused == []
    assert {"pread", "preadinto", "size_bytes", "file_id"} <= made.used
    assert other.read_bytes() == b"other" * 50_000


def value(partition: int, number: int) -> bytes:
    return b"%d|%d|" % (partition, number) + b"x" * 60


@pytest.fixture
def db(tmp_path, io):
    with quiet(logdb.open(tmp_path / "db", io=io, batch_size=300)) as opened:
        opened.create_topic("t", partitions=2, config=SMALL)
        for partition in range(2):
            opened.log("t", partition).append_many([value(partition, number) for number in range(COUNT)])
        opened.flush()
        yield opened


def check(db: logdb.Database, topic: str = "t") -> None:
    for partition in range(2):
        log = db.log(topic, partition)
        assert [record.value for record in log.read(0)] == [value(partition, number) for number in range(COUNT)]
        assert all(next(log.read(number)).value == value(partition, number) for number in range(0, COUNT, 7))


def test_reading_and_writing(db, io):
    check(db)
    for partition in range(2):
        log, at, last = db.log("t", partition), 0, b""
        log.append(value(partition, COUNT), durability="fsync")
        while at < COUNT:
            last, at = log.read_batches(at, 500)
        assert value(partition, COUNT) in bytes(last)
        assert log.offset_for_timestamp(0) == 0
    assert {"pwrite", "fdatasync"} <= io.used


def test_a_point_read_that_comes_back_to_a_position(db):
    log = db.log("t", 1)
    for _ in range(3):  # the first one leaves positions
        assert [next(log.read(number)).value for number in (50, 51, 52)] == [value(1, number) for number in (50, 51, 52)]


def test_columns(db):
    pytest.importorskip("pyarrow")
    rows = [row for batch in db.log("t", 1).read_arrow(columns=["value"]) for row in batch.column("value").to_pylist()]
    assert rows == [value(1, number) for number in range(COUNT)]


def test_compaction_mixes_no_partitions(db):
    db.create_topic("c", partitions=2, config=SMALL | {"cleanup.policy": "compact"})
    for partition in range(2):
        for number in range(COUNT):
            db.log("c", partition).append_many([value(partition, number)], [b"%d" % (number % 7)])
    db.compact("c")
    for partition in range(2):
        kept = {record.key: record.value for record in db.log("c", partition).read(0)}
        assert kept == {b"%d" % (number % 7): value(partition, number) for number in range(COUNT - 7, COUNT)}


def test_a_reader_beside_the_writer(db, io, tmp_path):
    with logdb.open(tmp_path / "db", mode="r", io=io) as reader:
        check(reader)
        db.log("t", 1).append_many([b"more"])
        assert next(reader.log("t", 1).read(COUNT)).value == b"more"


def test_copies_and_checks(db, io, tmp_path):
    db.snapshot(str(tmp_path / "snapshot"))
    with logdb.open(tmp_path / "snapshot", mode="r", io=io) as snapshot:
        check(snapshot)
    db.backup(str(tmp_path / "backup"))
    logdb.restore([str(tmp_path / "backup")], str(tmp_path / "restored"), io=io)
    with logdb.open(tmp_path / "restored", io=io) as restored:
        check(restored)
    assert logdb.verify(tmp_path / "restored", io=io).ok


@pytest.mark.parametrize("torn", [0, 64])
def test_recovery_and_the_slot_that_it_zeroes(tmp_path, io, torn):
    """Zeroing a torn slot of the recovery point is a write: it went into the file that had the number by then."""
    io.greedy = False
    db = quiet(logdb.open(tmp_path / "db", io=io, batch_size=300))
    db.create_topic("t", partitions=2, config=SMALL)
    for partition in range(2):
        db.log("t", partition).append_many([value(partition, number) for number in range(COUNT)])
        db.flush()
        db.flush()
    die(db)
    path = tmp_path / "db/t-0/recovery-point"
    data = bytearray(path.read_bytes().ljust(128, b"\0"))
    data[torn + 20] ^= 1
    path.write_bytes(data)
    io.greedy = True
    with quiet(logdb.open(tmp_path / "db", io=io)) as db:
        check(db)
        assert "pwrite" in io.used
    assert logdb.verify(tmp_path / "db").ok


def test_repair(tmp_path, io):
    io.greedy = False
    with quiet(logdb.open(tmp_path / "db", io=io, batch_size=300)) as db:
        db.create_topic("t", partitions=2, config=SMALL)
        for partition in range(2):
            db.log("t", partition).append_many([value(partition, number) for number in range(COUNT)])
    victim = tmp_path / "db/t-0/00000000000000000000.log"
    data = bytearray(victim.read_bytes())
    data[3] ^= 1  # of the header, outside of the CRC
    victim.write_bytes(data)
    io.greedy = True
    assert not logdb.verify(tmp_path / "db", io=io).ok
    logdb.repair(str(tmp_path / "db"), execute=True, io=io)
    with quiet(logdb.open(tmp_path / "db", io=io)) as db:
        check(db)
