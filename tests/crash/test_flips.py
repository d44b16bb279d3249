"""Flip each byte of a small database in turn: ``verify`` reports it, and no reader is served anything but the truth.

Then damage of every kind, several at once: ``repair`` makes it whole, and invents nothing.
``make check`` flips a sample of the bytes, ``LOGDB_TEST_SCALE=5`` five times as many, and 50 every one (half an hour).
"""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

import logdb
from logdb.errors import LogdbError
from support.damage import BATCHES, Content, append, build, content, copy, files, flip, overwrite
from support.power_cut import die

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
EVERY = SCALE >= 50
CHUNKS = 32 if EVERY else 1  # so that one test takes minutes at most
SAMPLE = 20
HEADER = range(61)  # of the first batch: with all that no CRC covers
MASKS = (0x01, 0x10, 0x80)

# What lies in the database, and how many flips of it are tried if not all.
PATTERNS = {
    "LOCK": SAMPLE,
    "catalogue/data.mdb": 2 * SAMPLE,
    "t-?/topic.json": SAMPLE,
    "t-?/leader-epoch-checkpoint": SAMPLE,
    "t-?/recovery-point": SAMPLE,
    "t-?/*.log": SAMPLE,
    "t-?/*.index": SAMPLE,
    "t-?/*.timeindex": SAMPLE,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Content]:
    path = tmp_path_factory.mktemp("flips") / "db"
    records = build(path)
    assert logdb.verify(path).ok
    return path, records


def test_the_patterns_name_every_file(whole):
    path, _ = whole
    named = {file for pattern in PATTERNS for file in path.glob(pattern)}
    assert named == set(files(path))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_flip_is_reported_and_none_is_served(whole, tmp_path, pattern, chunk, capsys):
    path, records = whole
    rng = random.Random(f"{pattern} {chunk}")
    flips, served = 0, Counter[str]()
    found = sorted(path.glob(pattern))
    for number, file in enumerate(found):
        name = file.relative_to(path)
        header = HEADER if SCALE > 1 else HEADER[number :: len(found)]  # of each log a part, of all together each byte
        for position in positions(file, pattern, chunk, rng, header):
            mask = rng.choice(MASKS)
            damaged = copy(path, tmp_path / "db")
            flip(damaged / name, position, mask)
            report = logdb.verify(damaged)
            assert not report.ok, f"{name}: byte {position}, mask {mask:#x} is not reported"
            assert all(str(damaged) in problem.path for problem in report.problems)
            for mode in ("r", "a"):
                served[reads(damaged, mode, records, f"{name}: byte {position}, mask {mask:#x}, mode {mode}")] += 1
            flips += 1
    with capsys.disabled():
        print(f"\n  {flips} flips of {pattern}, all reported; reading gave {dict(served)}")


def positions(file: Path, pattern: str, chunk: int, rng: random.Random, header: range) -> list[int]:
    size = file.stat().st_size
    if EVERY:
        return list(range(size * chunk // CHUNKS, size * (chunk + 1) // CHUNKS))
    sample = set(rng.sample(range(size), min(size, PATTERNS[pattern] * SCALE // 2)))
    return sorted(sample | set(header if file.suffix == ".log" else ()))


def reads(path: Path, mode: str, records: Content, where: str) -> str:
    """All records as they were, or an error of ours; nothing else."""
    try:
        found = content(path, mode)
    except LogdbError as error:
        return type(error).__name__
    assert found == records, where
    return "all records"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_repair_after_a_flip(whole, tmp_path, pattern):
    """All records are back; but of a log, where the records of the flipped batch may be lost, and no others."""
    path, records = whole
    rng = random.Random(pattern)
    candidates = [(file.relative_to(path), at) for file in sorted(path.glob(pattern)) for at in range(file.stat().st_size)]
    for name, position in rng.sample(candidates, min(len(candidates), 5 * SCALE, 200)):
        where = f"{name}: byte {position}"
        damaged = copy(path, tmp_path / "db")
        flip(damaged / name, position)
        planned = logdb.repair(damaged)
        done = logdb.repair(damaged, execute=True)
        assert done.actions == planned.actions, where
        assert done.actions, where
        report = logdb.verify(damaged)
        assert report.ok, f"{where}: {report.problems}"
        found = content(damaged)
        lost = {row for key, rows in records.items() for row in set(rows) - set(found[key])}
        assert all(set(rows) <= set(records[key]) for key, rows in found.items()), where
        assert len(lost) <= (5 if name.suffix == ".log" else 0), f"{where}: {lost} are lost"
        assert content(damaged, "a") == found, where
        assert logdb.verify(damaged).ok, where


# ---------------------------------------------------------------- several at once

ROUNDS = min(20 * SCALE, 400)


def break_something(path: Path, rng: random.Random) -> str:
    """Damage one file in one way; returns what was done."""
    file = rng.choice(files(path))
    size = file.stat().st_size
    how = rng.choice(["flipped", "flipped", "zeroed", "noise", "cut", "deleted", "longer"])
    begin = rng.randrange(max(size, 1))
    span = min(size - begin, rng.randrange(1, 600))
    match how:
        case "deleted":
            file.unlink()
        case "longer":
            file.write_bytes(file.read_bytes() + rng.choice([bytes(100), rng.randbytes(30)]))
        case "cut":
            os.truncate(file, begin)
        case "zeroed":
            overwrite(file, begin, bytes(span))
        case "noise":
            overwrite(file, begin, rng.randbytes(span))
        case _ if size:
            flip(file, begin, 1 << rng.randrange(8))
    return f"{file.relative_to(path)} {how} at {begin}"


def check_subset(found: Content, records: Content, where: str) -> None:
    for key, rows in found.items():
        assert set(rows) <= set(records[key]), where
        assert rows == sorted(rows), where


@pytest.mark.slow
@pytest.mark.parametrize("left", ["closed", "killed"])
def test_damage_of_every_kind(whole, tmp_path, left):
    path, records = whole
    path = copy(path, tmp_path / "whole")
    if left == "killed":
        db = logdb.open(path)
        append(db, BATCHES, BATCHES + 3)
        db.flush()
        append(db, BATCHES + 3, BATCHES + 5)
        db.flush(sync=False)
        die(db)
        records = content(copy(path, tmp_path / "db"))
    for round_ in range(ROUNDS):
        rng = random.Random(f"{left} {round_}")
        damaged = copy(path, tmp_path / "db")
        where = f"round {round_}: {[break_something(damaged, rng) for _ in range(rng.choice((1, 1, 2, 3, 5)))]}"
        try:
            served = content(damaged)
        except LogdbError:
            pass
        else:
            assert all(rows == records[key][: len(rows)] for key, rows in served.items()), where
        actions = logdb.repair(damaged, execute=True).actions
        for mode in ("r", "a"):
            report = logdb.verify(damaged)
            assert report.ok, f"{where}: {report.problems} after {actions}"
            check_subset(content(damaged, mode), records, where)
        with logdb.open(damaged) as db:
            for topic in db.topics():
                for partition in range(topic.partition_count):
                    log = db.log(topic.name, partition)
                    last = max((record.offset for record in log.read(log.start_offset)), default=-1)
                    assert log.append(b"goes on", b"key") > last, where
        assert logdb.verify(damaged).ok, where
