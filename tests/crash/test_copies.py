"""Count the I/O calls of a snapshot, a backup and a restore, then kill the process at each, and cut the power there too.

After each: what was to be made is not there, or whole; the source is as it was; and doing it again works.
"""

import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest

import logdb
from logdb.errors import BackupDamaged, CatalogueDamaged, CorruptionError
from logdb.model import ProducerIdAndEpoch
from support import damage
from support.power_cut import Killed, PowerCutIO, commits_noted, die, quiet
from support.transactions import produce

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
STEP = 1 if SCALE > 1 else 13
PRODUCER = ProducerIdAndEpoch(3, 0)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A closed database, and a backup of it with an increment."""
    root = tmp_path_factory.mktemp("template")
    with logdb.open(root / "db") as db:
        db.create_topic("t", partitions=2, config={"segment.bytes": 2048})
        db.create_topic("empty")
        logs = [db.log("t", partition) for partition in (0, 1)]
        for number in range(6):
            for log in logs:
                log.append_many([b"value %d of %d " % (number, log.partition) * 9] * 10)
            produce(logs[0], PRODUCER, number, transactional=True)
            logs[0].append_marker(PRODUCER, commit=False, coordinator_epoch=0)
            if number == 3:
                db.backup(root / "full")
        db.backup(root / "more", base=root / "full")
    return root


class Run:
    """One work on a copy of the template, killed at a call of its I/O or not at all."""

    def __init__(self, template: Path, root: Path, kill_at: int | None) -> None:
        self.root, self.killed = root, False
        shutil.copytree(template, root)
        self.io = PowerCutIO(str(root))
        self.kill_at = kill_at

    def on_a_database(self, work) -> "Run":
        with commits_noted(self.io):
            db = quiet(logdb.open(self.root / "db", io=self.io))
            for partition in (0, 1):
                db.log("t", partition).append_many([b"since"] * 5)
            self._do(lambda: work(db, self.root))
            die(db)
        return self

    def on_files(self, work) -> "Run":
        with commits_noted(self.io):
            self._do(lambda: work(self.root, self.io))
        return self

    def _do(self, work) -> None:
        self.before = len(self.io.calls)
        self.io.kill_at = None if self.kill_at is None else self.before + self.kill_at
        try:
            work()
        except Killed:
            self.killed = True

    @property
    def calls(self) -> list[str]:
        return self.io.calls[self.before :]


def check(path: Path, where: str) -> None:
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


def content(path: Path) -> list[list[bytes]]:
    return [[row[3] for row in rows] for rows in damage.content(path).values()]


def each_call(run, record_property, what):
    """The numbers of the calls to be killed at, with words for a message; the last is beyond them all."""
    whole = run(None)
    assert not whole.killed
    assert len(whole.calls) > 40
    record_property("told", f"crash lab: {what} killed at each of {len(whole.calls)} I/O calls")
    for at in [*range(1, len(whole.calls) + 1, STEP), len(whole.calls) + 1]:
        yield at, f"{what}, call {at}: {[*whole.calls, 'none'][at - 1]}"


def test_snapshot(template, tmp_path, record_property):
    def run(at):
        root = tmp_path / f"run-{at}"
        return Run(template, root, at).on_a_database(lambda db, root: db.snapshot(root / "snapshot"))

    for at, where in each_call(run, record_property, "snapshot"):
        done = run(at)
        root = done.root
        for seed in range(2):
            done.io.cut(str(root / f"cut-{seed}"), random.Random(at * 10 + seed))
        for there in (root, root / "cut-0", root / "cut-1"):
            if (there / "snapshot").exists():
                check(there / "snapshot", where)
                assert [len(values) for values in content(there / "snapshot")] == [0, 71, 65], where
            else:
                assert done.killed, f"{where}, {there.name}"
        before = content(root / "db")
        with logdb.open(root / "db") as db:
            assert sorted(os.listdir(root / "db")) == ["LOCK", "RESERVE", "catalogue", "empty-0", "t-0", "t-1"], where
            if not (root / "snapshot").exists():
                db.snapshot(root / "snapshot")
        assert not (root / "snapshot.tmp").exists(), where
        assert content(root / "db") == before == content(root / "snapshot"), where
        check(root / "snapshot", where)
        check(root / "db", where)
        shutil.rmtree(root)


def test_backup(template, tmp_path, record_property):
    def run(at):
        root = tmp_path / f"run-{at}"
        return Run(template, root, at).on_a_database(lambda db, root: db.backup(root / "new", base=root / "more"))

    chain = ("full", "more", "new")
    for at, where in each_call(run, record_property, "backup"):
        done = run(at)
        root = done.root
        for seed in range(2):
            done.io.cut(str(root / f"cut-{seed}"), random.Random(at * 10 + seed))
        for there in (root, root / "cut-0", root / "cut-1"):
            if (there / "new").exists():
                logdb.restore([there / name for name in chain], there / "restored")
                assert content(there / "restored") == content(root / "db"), where
                shutil.rmtree(there / "restored")
            else:
                assert done.killed, f"{where}, {there.name}"
        with logdb.open(root / "db") as db:
            assert sorted(os.listdir(root / "db")) == ["LOCK", "RESERVE", "catalogue", "empty-0", "t-0", "t-1"], where
            if not (root / "new").exists():
                db.backup(root / "new", base=root / "more")
        assert not (root / "new.tmp").exists(), where
        logdb.restore([root / name for name in chain], root / "restored")
        assert content(root / "db") == content(root / "restored"), where
        shutil.rmtree(root)


def test_restore(template, tmp_path, record_property):
    def run(at):
        root = tmp_path / f"run-{at}"
        return Run(template, root, at).on_files(lambda root, io: logdb.restore([root / "full", root / "more"], root / "restored", io=io))

    wanted = content(template / "db")
    for at, where in each_call(run, record_property, "restore"):
        done = run(at)
        root = done.root
        for seed in range(2):
            done.io.cut(str(root / f"cut-{seed}"), random.Random(at * 10 + seed))
        for there in (root, root / "cut-0", root / "cut-1"):
            if (there / "restored").exists():
                check(there / "restored", where)
                assert content(there / "restored") == wanted, where
                with logdb.open(there / "restored") as db:
                    assert db.log("t", 1).append(b"on") == 60, where
            else:
                assert done.killed, f"{where}, {there.name}"
                logdb.restore([root / "full", root / "more"], there / "restored")
                assert content(there / "restored") == wanted, where
            assert not (there / "restored.tmp").exists(), where
        shutil.rmtree(root)


def test_a_backup_cut_short_at_every_64th_byte(template, tmp_path):
    for name in ("full", "more"):
        data = (template / name).read_bytes()
        for length in range(0, len(data), 64):
            files = {"full": template / "full", "more": template / "more", name: tmp_path / "cut"}
            (tmp_path / "cut").write_bytes(data[:length])
            with pytest.raises(BackupDamaged):
                logdb.restore(files.values(), tmp_path / "restored")
    assert os.listdir(tmp_path) == ["cut"]


def test_flips_in_the_files_of_a_snapshot_are_found(template, tmp_path):
    """By verify, by a read or by a restore; nothing else is ever read."""
    with logdb.open(template / "db", mode="r") as db:
        db.snapshot(tmp_path / "snapshot")
    wanted, rng = content(tmp_path / "snapshot"), random.Random(5)
    shutil.copytree(tmp_path / "snapshot", tmp_path / "copy")  # the links lead to the template
    for file in damage.files(tmp_path / "copy"):
        for position in rng.sample(range(file.stat().st_size), min(2, file.stat().st_size)):
            damage.flip(file, position)
            assert not logdb.verify(tmp_path / "copy").ok, f"{file} at {position}"
            with contextlib.suppress(CorruptionError, CatalogueDamaged):
                assert content(tmp_path / "copy") == wanted, f"{file} at {position}"
            damage.flip(file, position)
    assert logdb.verify(tmp_path / "copy").ok
