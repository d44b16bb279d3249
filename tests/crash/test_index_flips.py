"""A flipped byte in the offset or time index of a segment: no checksum covers them, and neither is believed without a look at the log.

A time index was once: ``offset_for_timestamp`` passed records by, and retention went by a timestamp that no record had.
"""

import random
from pathlib import Path

import pytest

import logdb
from support.damage import copy, flip
from support.power_cut import die
from support.produced import open_bare

NOW = 1_700_000_000_000
COUNT = 60
CONFIG = {"segment.bytes": 2500, "index.interval.bytes": 100, "retention.ms": 10**12}


def fill(path: Path) -> logdb.Database:
    """Two segments and a half, of batches of one record each, whose timestamps go up and down."""
    db, rng = open_bare(path), random.Random(1)
    db.create_topic("t", config=CONFIG)
    log, at = db.log("t"), NOW
    for number in range(COUNT):
        at += rng.choice([-300, 0, 0, 200, 500])
        log.append_many([b"%d" % number], timestamps_ms=[at])
        if number == COUNT * 3 // 4:
            log.flush()
            db._store.checkpoint([log])
    log.flush()
    return db


def answers(path: Path, mode: str) -> tuple[object, ...]:
    with open_bare(path, mode=mode) as db:
        log = db.log("t")
        found = [log.offset_for_timestamp(NOW + 50 * step) for step in range(-10, 200)]
        begins = [next(iter(log.read(offset))).offset for offset in range(COUNT)]
        return found, begins, [segment.max_timestamp for segment in log.segments], log.read_only_reason


def expected(path: Path) -> tuple[object, ...]:
    """The same, from the records themselves."""
    with open_bare(path, mode="r") as db:
        log = db.log("t")
        times = {record.offset: record.timestamp_ms for record in log.read(0)}
        found = [next((offset for offset, at in times.items() if at >= NOW + 50 * step), None) for step in range(-10, 200)]
        latest = [max(times[offset] for offset in range(segment.base_offset, segment.next_offset)) for segment in log.segments]
    return found, list(range(COUNT)), latest, None


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("stop", ["closed", "killed"])
def test_every_answer_is_that_of_the_log(stop, mode, kind, request, tmp_path):
    path = request.getfixturevalue(stop)
    wanted, rng, count = expected(path), random.Random(2), 0
    assert answers(copy(path, tmp_path / "db"), mode) == wanted
    files = sorted(path.glob(f"t-0/*.{kind}"))
    assert len(files) > 1
    for file in files:
        step = 3 if kind == "index" else 1
        for at in range(0, file.stat().st_size, step):
            there, mask = copy(path, tmp_path / "db"), 1 << rng.randrange(8)
            flip(there / "t-0" / file.name, at, mask)
            assert answers(there, mode) == wanted, f"{file.name}, byte {at}, mask {mask:#x}"
            count += 1
    assert count > 40
