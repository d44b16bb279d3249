"""Snapshots of producers and indexes of aborted transactions, damaged and lost: verify says so, repair makes them anew."""

import random
import shutil
from pathlib import Path

import pytest

import logdb
from logdb.errors import OutOfOrderSequence
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.meta import Catalogue
from support.damage import copy, flip
from support.power_cut import Killed, PowerCutIO, commits_noted, die
from support.produced import Sender, batch, committed, open_bare

SEGMENT_BYTES = 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(open_bare(tmp_path / "db")).close()
    return tmp_path / "db"


def fill(db: logdb.Database) -> logdb.Database:
    """Several segments of transactions, most of them aborted, one still open; an idempotent producer between them."""
    db.create_topic("t", config={"segment.bytes": SEGMENT_BYTES})
    log = db.log("t")
    plain, undecided = Sender(log, 50), Sender(log, 60, transactional=True)
    for number in range(12):
        sender = Sender(log, number, transactional=True)
        sender.send(b"%d" % number * 60)
        sender.end(commit=number % 4 == 0)
        plain.send(b"plain")
        if number == 8:
            undecided.send(b"open")
    log.flush()
    db._store.checkpoint([log])
    return db


def state(path: Path, mode: str = "r") -> tuple[object, ...]:
    with open_bare(path, mode=mode) as db:
        log = db.log("t")
        opened = [each[:3] for each in log.open_transactions()]
        return log.end_offset, log.last_stable_offset, opened, log.aborted_transactions(0, log.end_offset), committed(log)


def files(path: Path) -> list[Path]:
    return sorted(file for file in (path / "t-0").iterdir() if file.suffix in {".snapshot", ".txnindex"})


def newest(path: Path) -> Path:
    return max((path / "t-0").glob("*.snapshot"))


def goes_on(path: Path) -> None:
    """What is known of producers is what it was."""
    with open_bare(path) as db:
        log = db.log("t")
        for number in range(12):
            repeated = log.append_batches(batch([b"%d" % number * 60], number, 0, 0, transactional=True))
            assert repeated.stop <= 40
        with pytest.raises(OutOfOrderSequence):
            log.append_batches(batch([b"plain"], 50, 0, 13))
        end = log.end_offset
        assert log.append_batches(batch([b"plain"], 50, 0, 12)) == range(end, end + 1)


def repaired(path: Path) -> logdb.Report:
    planned = logdb.repair(path)
    done = logdb.repair(path, execute=True)
    assert done.actions == planned.actions
    report = logdb.verify(path)
    assert report.ok, report.problems
    return done


def test_all_is_well(path):
    report = logdb.verify(path)
    assert (report.problems, report.notes) == ([], [])
    assert logdb.repair(path).actions == []
    assert len(list((path / "t-0").glob("*.txnindex"))) > 3


def test_each_flipped_bit_is_reported_and_put_right(path, tmp_path):
    before, rng = state(path), random.Random(1)
    for file in files(path):
        size = file.stat().st_size
        for at in sorted({0, 5, size - 1, rng.randrange(size)}):
            there = copy(path, tmp_path / "flipped")
            flip(there / "t-0" / file.name, at)
            report = logdb.verify(there)
            where = f"{file.name}, byte {at}"
            assert {problem.path for problem in report.problems} == {str(there / "t-0" / file.name)}, where
            if at in {0, size - 1}:
                repaired(there)
                assert state(there) == before, where


def test_each_byte_of_an_older_snapshot_is_looked_at(path):
    older = [file for file in files(path) if file.suffix == ".snapshot" and file != newest(path)]
    assert older
    for file in older:
        for at in range(file.stat().st_size):
            flip(file, at)
            assert [(problem.path, problem.kind) for problem in logdb.verify(path).problems] == [(str(file), "damaged")], at
            flip(file, at)
    assert logdb.verify(path).ok


def test_an_older_snapshot_that_was_made_anew_will_do(path):
    """A recovery falls back to it when the newest one is damaged."""
    before = state(path)
    older = sorted((path / "t-0").glob("*.snapshot"))[-2]
    content = older.read_bytes()
    flip(older, 9)
    repaired(path)
    offset, directory = int(older.name[:20]), str(path / "t-0")
    known, whole = producer_snapshot.load(IO(), directory, offset), producer_snapshot.decode(content, str(older))
    assert {each: state.batches for each, state in known.states.producers.items()} == {
        each: state.batches for each, state in whole.states.producers.items()
    }
    flip(newest(path), 9)
    assert state(path) == before == state(path, "a")
    goes_on(path)


def test_each_lost_file_is_reported_and_made_anew(path, tmp_path):
    before = state(path)
    for file in files(path):
        if file.suffix == ".snapshot" and file != newest(path):
            continue  # one to fall back on, and no more
        there = copy(path, tmp_path / "lost")
        (there / "t-0" / file.name).unlink()
        report = logdb.verify(there)
        assert [(problem.path, problem.kind) for problem in report.problems] == [(str(there / "t-0" / file.name), "missing")]
        assert f"{there / 't-0' / file.name}: rebuilt" in repaired(there).actions
        assert state(there) == before == state(there, "a")
        goes_on(there)


def test_a_snapshot_that_contradicts_the_log(path, tmp_path):
    io, directory, offset = IO(), str(path / "t-0"), int(newest(path).stem)
    sound, aborted = producer_snapshot.load(io, directory, offset)
    changes = {
        "sequence": lambda p: p._replace(batches=(p.batches[-1]._replace(last_sequence=77),)),
        "transaction": lambda p: p._replace(first_offset=-1 if p.first_offset >= 0 else 3),
    }
    for name, change in changes.items():
        states = sound.copy()
        states.put(change(states.producers[60 if name == "transaction" else 50]))
        producer_snapshot.save(io, directory, offset, states, aborted)
        (problem,) = logdb.verify(path).problems
        assert (problem.path, problem.kind) == (str(newest(path)), "contradiction"), name
        repaired(path)
        assert producer_snapshot.load(io, directory, offset).states.producers[60].first_offset >= 0
    states = sound.copy()
    del states.producers[60]
    producer_snapshot.save(io, directory, offset, states, aborted)
    assert "it lacks producer 60" in logdb.verify(path).problems[0].reason
    states = sound.copy()
    states.put(sound.producers[50]._replace(producer_id=51))
    producer_snapshot.save(io, directory, offset, states, aborted)
    assert "of which the log has no batch" in logdb.verify(path).problems[0].reason
    states = sound.copy()
    states.put(sound.producers[50]._replace(epoch=3, batches=()))  # of a marker that compaction may have taken
    producer_snapshot.save(io, directory, offset, states, aborted)
    assert logdb.verify(path).ok
    states = sound.copy()
    del states.producers[50]  # it may have expired
    producer_snapshot.save(io, directory, offset, states, aborted)
    assert logdb.verify(path).ok


def test_a_lost_catalogue_costs_nothing_that_is_known_of_producers(path, tmp_path):
    before = state(path)
    for lost in ((), files(path)):
        there = copy(path, tmp_path / "lost")
        shutil.rmtree(there / "catalogue")
        for file in lost:
            (there / "t-0" / file.name).unlink()
        repaired(there)
        assert state(there) == before
        goes_on(there)


def test_a_catalogue_that_knows_of_no_producers(path):
    before = state(path)
    with Catalogue.open(str(path / "catalogue"), create=False) as catalogue:
        entry = catalogue.log("t", 0)
        assert entry is not None and entry.producers_offset == int(newest(path).stem)
        catalogue.write(lambda txn: txn.put_log(entry._replace(producers_offset=-1)))
    assert any("the catalogue names no snapshot of producers" in problem.reason for problem in logdb.verify(path).problems)
    repaired(path)
    assert state(path) == before
    goes_on(path)


def test_a_damaged_segment_takes_its_batches_with_it(path):
    before = state(path)
    log = sorted((path / "t-0").glob("*.log"))[1]
    flip(log, log.stat().st_size // 2)
    assert any(problem.path == str(log) for problem in logdb.verify(path).problems)
    repaired(path)
    after = state(path)
    assert after[:3] == before[:3]
    assert set(after[4]) <= set(before[4])  # what is aborted stays hidden
    assert logdb.repair(path).actions == []


@pytest.mark.parametrize("level", ["interval", "fsync"])
def test_a_crash_is_left_to_the_next_opening(tmp_path, level):
    path = tmp_path / "db"
    db = fill(open_bare(path, durability=level))
    log = db.log("t")
    Sender(log, 61, transactional=True).send(b"more")
    log.append_marker(Sender(log, 60).name, commit=False, coordinator_epoch=0)
    log.flush(sync=False)
    before = log.end_offset, log.last_stable_offset, log.aborted_transactions(0, log.end_offset)
    die(db)
    assert logdb.verify(path).problems == []
    assert logdb.repair(path).actions == []
    found = state(path)
    assert (found[0], found[1], found[3]) == before
    (path / "t-0" / newest(path).name).unlink()
    repaired(path)
    found = state(path, "a")
    assert (found[0], found[1], found[3]) == before


def test_killed_at_every_call_of_a_repair(path, tmp_path):
    for file in files(path):
        file.unlink()
    flip(min((path / "t-0").glob("*.log")), 30)
    shutil.rmtree(path / "catalogue")
    expected = copy(path, tmp_path / "expected")
    logdb.repair(expected, execute=True)
    wanted = state(expected)
    at, finished = 1, False
    while not finished:
        there = copy(path, tmp_path / "killed")
        io = PowerCutIO(str(there))
        io.kill_at = at
        finished = True
        with commits_noted(io):
            try:
                logdb.repair(there, execute=True, io=io)
            except Killed:
                finished = False
        if not finished:
            logdb.repair(there, execute=True)
            assert logdb.verify(there).ok, at
            assert state(there) == wanted, at
        at += 7


@pytest.mark.parametrize("ended", [False, True])
def test_batches_of_a_transaction_that_were_deleted(tmp_path, ended):
    with open_bare(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        sender = Sender(log, transactional=True)
        sender.send(b"deleted")
        db.delete_records("t", 0, 1)
        log.append(b"kept")
        if ended:
            sender.end(commit=False)
    assert logdb.verify(tmp_path / "db").ok
