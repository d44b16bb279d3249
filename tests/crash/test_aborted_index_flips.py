"""A flipped byte in the index of aborted transactions of an active segment, or in the snapshot that vouches for it.

No checksum covered that index once, and ``read_committed`` handed out records of aborted transactions.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logdb
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.segment.transaction_index import ENTRY_SIZE_BYTES
from support.damage import copy, flip
from support.power_cut import die
from support.produced import Sender, committed, open_bare

WANTED = [b"committed 1", b"committed 3"]
VALUES = [b"aborted 0", b"committed 1", b"aborted 2", b"committed 3", b"aborted 4"]  # one transaction each
CHECKPOINTED = 3  # of them lie before the checkpoint


def fill(path: Path, *, count: int = len(VALUES)) -> logdb.Database:
    """A log in one segment with a checkpoint in its middle."""
    db = open_bare(path)
    db.create_topic("t")
    log = db.log("t")
    for number, value in enumerate(VALUES[:count]):
        sender = Sender(log, number, transactional=True)
        sender.send(value)
        sender.end(commit=value.startswith(b"committed"))
        if number == CHECKPOINTED - 1:
            log.flush()
            db._store.checkpoint([log])
    log.flush()
    return db


@pytest.fixture(scope="module")
def closed(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("closed") / "db"
    fill(path).close()
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "db"
    die(fill(path))
    return path


@pytest.fixture(scope="module")
def frozen(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("frozen")
    db = fill(path / "db")
    db.snapshot(path / "frozen")
    db.close()
    return path / "frozen"


def index_of(path: Path) -> Path:
    (found,) = path.glob("t-0/*.txnindex")
    return found


def snapshot_of(path: Path) -> Path:
    return max(path.glob("t-0/*.snapshot"))


def flips(path: Path, to: Path, file: Callable[[Path], Path], step: int = 1) -> Iterator[tuple[Path, str]]:
    """Copies of the database, each with another byte of the file flipped."""
    size, name = file(path).stat().st_size, file(path).relative_to(path)
    assert size >= 2 * ENTRY_SIZE_BYTES
    for at in range(0, size, step if file is index_of else 7 * step):
        there = copy(path, to)
        flip(there / name, at, 1 << at % 8)
        yield there, f"{name}, byte {at}"


def read(path: Path, mode: str) -> list[bytes | None]:
    with open_bare(path, mode=mode) as db:
        return committed(db.log("t"))


# ---------------------------------------------------------------- each way to come to the file


@pytest.mark.parametrize("file", [index_of, snapshot_of])
@pytest.mark.parametrize("stop", ["closed", "killed"])
def test_opened_for_writing(stop, file, request, tmp_path):
    for there, where in flips(request.getfixturevalue(stop), tmp_path / "db", file):
        name = file(there).name
        with open_bare(there) as db:
            assert committed(db.log("t")) == WANTED, where
            assert name in "".join(db.reports), where


@pytest.mark.parametrize("file", [index_of, snapshot_of])
@pytest.mark.parametrize("stop", ["closed", "killed"])
def test_the_next_close_puts_it_right(stop, file, request, tmp_path):
    for there, where in flips(request.getfixturevalue(stop), tmp_path / "db", file, 13):
        assert read(there, "a") == WANTED, where
        assert logdb.verify(there).ok, where
        assert read(there, "r") == WANTED == read(there, "a"), where


@pytest.mark.parametrize("file", [index_of, snapshot_of])
@pytest.mark.parametrize("stop", ["closed", "killed", "frozen"])
def test_read_beside_a_writer_or_in_a_snapshot(stop, file, request, tmp_path):
    for there, where in flips(request.getfixturevalue(stop), tmp_path / "db", file, 7):
        assert read(there, "r") == WANTED, where


@pytest.mark.parametrize("file", [index_of, snapshot_of])
@pytest.mark.parametrize("stop", ["closed", "frozen"])
def test_verify_says_it(stop, file, request, tmp_path):
    for there, where in flips(request.getfixturevalue(stop), tmp_path / "db", file, 7):
        assert str(file(there)) in {problem.path for problem in logdb.verify(there).problems}, where


def test_repair_mends_it(closed, tmp_path):
    for file in (index_of, snapshot_of):
        for there, where in flips(closed, tmp_path / "db", file, 13):
            assert logdb.repair(there, execute=True).actions, where
            assert logdb.verify(there).ok, where
            with open_bare(there) as db:
                assert (committed(db.log("t")), db.reports) == (WANTED, ()), where


@pytest.mark.parametrize("stop", ["closed", "killed"])
def test_sealed_at_a_roll_and_compacted(stop, request, tmp_path):
    for there, where in flips(request.getfixturevalue(stop), tmp_path / "db", index_of, 13):
        with open_bare(there) as db:
            log = db.log("t")
            assert log.roll()
            db._store.checkpoint([log])
            assert committed(log) == WANTED, where
            db.alter_topic("t", config={"cleanup.policy": "compact"})
            db.compact("t")
            assert all(value.startswith(b"committed") for value in committed(log)), where
        assert logdb.verify(there).ok, where


def test_backed_up_and_restored(killed, tmp_path):
    for there, where in flips(killed, tmp_path / "db", index_of, 17):
        with open_bare(there) as db:
            db.backup(tmp_path / "backup")
            db.snapshot(tmp_path / "frozen")
        assert read(tmp_path / "frozen", "r") == WANTED, where
        logdb.restore([tmp_path / "backup"], tmp_path / "restored")
        (tmp_path / "backup").unlink()
        assert read(tmp_path / "restored", "r") == WANTED == read(tmp_path / "restored", "a"), where
        for made in ("restored", "frozen"):
            shutil.rmtree(tmp_path / made)


@pytest.mark.parametrize("at", range(0, 2 * ENTRY_SIZE_BYTES, 7))
def test_while_the_database_is_open(at, tmp_path):
    path = tmp_path / "db"
    db = fill(path, count=CHECKPOINTED)
    with open_bare(path, mode="r") as beside:
        assert committed(beside.log("t")) == WANTED[:1]
        flip(index_of(path), at)
        assert committed(db.log("t")) == WANTED[:1] == committed(beside.log("t"))
    with open_bare(path, mode="r") as beside:
        assert committed(beside.log("t")) == WANTED[:1]
    db.log("t").roll()  # it is not written again: what the catalogue notes is what is in memory
    db.close()
    assert read(path, "r") == WANTED[:1] == read(path, "a")
    assert not logdb.verify(path).ok


# ---------------------------------------------------------------- relatives


def test_nothing_is_served_where_it_cannot_be_made_anew(closed, tmp_path):
    """The index is wrong, and so is a batch that it would follow from."""
    there = copy(closed, tmp_path / "db")
    flip(index_of(there), 5)
    flip(next(there.glob("t-0/*.log")), 100)  # in the first batch
    for mode in ("r", "a"):
        with open_bare(there, mode=mode) as db:
            log = db.log("t")
            with pytest.raises(CorruptionError):
                log.aborted_transactions(2, log.end_offset)


def test_a_snapshot_of_before_there_were_checksums(closed, tmp_path):
    """It vouches for no index, so one that has entries is rebuilt from the log."""
    there = copy(closed, tmp_path / "db")
    io, directory, offset = IO(), str(there / "t-0"), int(snapshot_of(there).stem)
    known = producer_snapshot.load(io, directory, offset)
    assert known.aborted
    producer_snapshot.save(io, directory, offset, known.states, {})
    with open_bare(there) as db:
        assert committed(db.log("t")) == WANTED
        assert index_of(there).name in "".join(db.reports)
    with open_bare(there) as db:
        assert (committed(db.log("t")), db.reports) == (WANTED, ())
