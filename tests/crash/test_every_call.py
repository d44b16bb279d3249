"""One call on the disk fails, whichever it is: the error has a name, a sync that was not called has not failed, and nothing is lost.

A run counts the calls of an operation; then it is run anew for some of each kind on each kind of file, with that one failing.
"""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable

import pytest

import logdb
from logdb.errors import LogdbError, SyncFailed
from logdb.io import IO
from support.power_cut import die, quiet

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
CONFIG = {"segment.bytes": 2_000, "index.interval.bytes": 300, "cleanup.policy": "compact", "delete.retention.ms": 0}
COUNT = 60
OPENS = {"open", "create"}
SYNCS = {"fdatasync", "fsync_dir"}
CHANGES = {"create", "pwrite", "truncate", "allocate", "mkdir", "rename", "link", "unlink", "copy_range", *SYNCS}


class FailingIO(IO):
    """Counts calls while it is ``armed``, and lets the one with the number ``fail_at`` fail; EMFILE goes on from there."""

    def __init__(self, fail_at: int | None = None, number: int = errno.EIO) -> None:
        self.fail_at, self.number, self.armed = fail_at, number, False
        self.calls: list[tuple[str, str]] = []
        self._paths: dict[int, str] = {}

    def step(self, kind: str, path: str) -> None:
        if not self.armed:
            return
        self.calls.append((kind, path))
        lacks = self.number == errno.EMFILE and self.fail_at is not None and len(self.calls) > self.fail_at and kind in OPENS
        if lacks or len(self.calls) - 1 == self.fail_at:
            raise OSError(self.number, os.strerror(self.number), path)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self.step("create" if flags & os.O_CREAT and not os.path.lexists(path) else "open", path)
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def fdatasync(self, fd: int) -> None:
        self.step("fdatasync", self._paths.get(fd, ""))  # nothing loses its power here

    def fsync_dir(self, path: str) -> None:
        self.close(self.open(path, os.O_RDONLY | os.O_DIRECTORY)) if not self.armed else self._fsync_dir(path)

    def _fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self.step("fsync_dir", path)

    def copy_range(self, source: int, target: int, size_bytes: int, position: int) -> int:
        self.step("copy_range", self._paths.get(target, ""))
        return super().copy_range(source, target, size_bytes, position)


def _of_descriptor(name: str):
    def call(self, fd, *arguments):
        self.step(name, self._paths.get(fd, ""))
        return getattr(IO, name)(self, fd, *arguments)

    return call


def _of_path(name: str):
    def call(self, path, *arguments, **options):
        self.step(name, arguments[0] if name == "link" else path)
        return getattr(IO, name)(self, path, *arguments, **options)

    return call


for _name in ("pwrite", "pread", "preadinto", "size_bytes", "file_id", "truncate", "allocate", "drop_cache", "lock"):
    setattr(FailingIO, _name, _of_descriptor(_name))
for _name in ("path_id", "path_version", "listdir", "mkdir", "rmdir", "rename", "link", "unlink", "device"):
    setattr(FailingIO, _name, _of_path(_name))


# ---------------------------------------------------------------- what is done, and what was acknowledged


def value(number: int) -> bytes:
    return b"%d|" % number + b"x" * 40


def make(path: str) -> None:
    """A database with records, keys twice over, and a producer's, closed."""
    with quiet(logdb.open(path, batch_size=300)) as db:
        db.create_topic("t", config=CONFIG)
        db.create_topic("d", config={"segment.bytes": 2_000})
        for number in range(COUNT):
            db.log("t").append_many([value(number)], [b"%d" % (number % 40)])
        db.log("d").append_many([value(number) for number in range(COUNT)])
        db.flush()


def append(db: logdb.Database, out: str, acked: list[int]) -> None:
    for number in range(COUNT, COUNT + 40):
        db.log("t").append(value(number), b"new%d" % number, durability="fsync")
        acked.append(number)


def append_many(db: logdb.Database, out: str, acked: list[int]) -> None:
    numbers = range(COUNT, COUNT + 40)
    db.log("t").append_many([value(number) for number in numbers], [b"new%d" % number for number in numbers], durability="fsync")
    acked += numbers


def produce(db: logdb.Database, out: str, acked: list[int]) -> None:
    with db.producer(delivery_timeout_ms=300, linger_ms=0) as producer:
        future = producer.send("t", value(COUNT), b"new", partition=0)
        future.result(30)
    acked.append(COUNT)


def read(db: logdb.Database, out: str, acked: list[int]) -> None:
    log = db.log("d")
    assert [record.value for record in log.read(0)] == [value(number) for number in range(COUNT)]
    assert next(log.read(30)).value == value(30)
    log.read_batches(0, 100)
    log.offset_for_timestamp(1)


def read_beside(db: logdb.Database, out: str, acked: list[int]) -> None:
    with logdb.open(db.path, mode="r", io=db._store.io) as reader:
        read(reader, out, acked)


def copy_all(db: logdb.Database, out: str, acked: list[int]) -> None:
    db.snapshot(out + "-snapshot")
    with logdb.open(out + "-snapshot", mode="r", io=db._store.io) as snapshot:
        read(snapshot, out, acked)


def back_up(db: logdb.Database, out: str, acked: list[int]) -> None:
    db.backup(out + "-backup")
    logdb.restore([out + "-backup"], out + "-restored", io=db._store.io)


def topics(db: logdb.Database, out: str, acked: list[int]) -> None:
    db.create_topic("new", partitions=2)
    db.alter_topic("new", partitions=3, config={"flush.ms": 5})
    db.log("new", 2).append_many([b"x"])
    db.delete_topic("new")


def delete_records(db: logdb.Database, out: str, acked: list[int]) -> None:
    db.create_topic("gone", config={"segment.bytes": 1_024})
    db.log("gone").append_many([b"x" * 500] * 9)
    db.delete_records("gone", 0, 7)


CALLS: dict[str, Callable[[logdb.Database, str, list[int]], object]] = {
    "append": append,
    "append_many": append_many,
    "produce": produce,
    "read": read,
    "read_beside": read_beside,
    "compact": lambda db, out, acked: db.compact("t"),
    "snapshot": copy_all,
    "backup": back_up,
    "topics": topics,
    "delete_records": delete_records,
    "close": lambda db, out, acked: (append_many(db, out, acked), db.close()),
}


class Run:
    """One run of one operation on a new copy of the database; ``error``: what came out."""

    def __init__(self, made: str, path: str, name: str, io: FailingIO) -> None:
        self.io, self.path, self.acked = io, path, list(range(COUNT))
        self.error: BaseException | None = None
        shutil.copytree(made, path)
        try:
            getattr(self, name, self._call)(name)
        except Exception as error:  # noqa: BLE001 -- what it is, is looked at
            self.error = error
        io.armed = False

    def _call(self, name: str) -> None:
        db = quiet(logdb.open(self.path, io=self.io, batch_size=300))
        self.db = db
        try:
            db.log("t"), db.log("d")
            self.io.armed = True
            CALLS[name](db, self.path, self.acked)
        finally:
            self.io.armed = False
            with contextlib.suppress(LogdbError):
                db.close()

    def open(self, _name: str) -> None:
        self.io.armed = True
        with quiet(logdb.open(self.path, io=self.io)) as db:
            read(db, "", [])
            assert db.log("t").end_offset == len(self.acked)

    def recover(self, _name: str) -> None:
        db = quiet(logdb.open(self.path, batch_size=300))
        append_many(db, "", self.acked)
        die(db)
        with open(os.path.join(self.path, "t-0/recovery-point"), "r+b") as file:
            file.write(b"torn")
        self.open("")

    def verify(self, _name: str) -> None:
        self.io.armed = True
        report = logdb.verify(self.path, io=self.io)
        assert report.ok or self.io.fail_at is not None


NAMES = [*CALLS, "open", "recover", "verify"]


def one_of_each(calls: list[tuple[str, str]]) -> list[tuple[int, int]]:
    """The numbers of calls and the errnos they fail with: the last of each kind on each kind of file, with one of its errnos in turn.

    All of them, and EIO the first one, too, where ``LOGDB_TEST_SCALE`` is more than 1.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for number, (kind, path) in enumerate(calls):
        name = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "#", "/".join(path.split(os.sep)[-2:]))
        found.setdefault((kind, name), []).append(number)
    failures = set()
    for turn, ((kind, _), numbers) in enumerate(sorted(found.items())):
        possible = [errno.EIO, *([errno.EMFILE] if kind in OPENS else ()), *([errno.ENOSPC] if kind in CHANGES else ())]
        failures |= {(numbers[-1], number) for number in (possible if SCALE > 1 else [possible[turn % len(possible)]])}
        failures |= {(numbers[0], errno.EIO)} if SCALE > 1 else set()
    return sorted(failures)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("every") / "made")
    make(path)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_each_failure_has_a_name_and_loses_nothing(tmp_path, made, name):
    whole = Run(made, str(tmp_path / "whole"), name, FailingIO())
    assert whole.error is None
    assert whole.io.calls
    for at, number in one_of_each(whole.io.calls):
        kind, where = whole.io.calls[at]
        told = f"{name}: {errno.errorcode[number]} of call {at}, {kind} {where}"
        path = str(tmp_path / f"{at}-{number}")
        run = Run(made, path, name, FailingIO(at, number))
        assert run.error is None or isinstance(run.error, LogdbError), f"{told}: {run.error!r}"
        assert not isinstance(run.error, SyncFailed) or kind in SYNCS, f"{told}: {run.error!r}"
        with quiet(logdb.open(path)) as db:
            kept = {record.value for record in db.log("t").read(0)}
            last = {acked % 40 if acked < COUNT else acked: acked for acked in run.acked}
            assert kept >= {value(acked) for acked in last.values()}, told
            read(db, "", [])
        shutil.rmtree(path)
