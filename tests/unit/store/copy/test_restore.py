"""The leader epochs of restored logs: they grow with time, so a client that knows an earlier restore goes on."""

import itertools
import os

import pytest

import logdb
from logdb.store.copy import restore as module
from logdb.store.copy.restore import restore
from support.faulty_io import FaultyIO

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000  # January 2027
EPOCH_MAX = 2**31 - 1


@pytest.fixture
def io():
    made = FaultyIO()
    made.now_ms = NOW_MS
    return made


@pytest.fixture(params=["backup", "snapshot"])
def copied(request, tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        db.log("t").append(b"x")
        getattr(db, request.param)(tmp_path / "copy")
    return str(tmp_path / "copy")


def epochs(io, source):
    """The latest leader epochs of the partitions in a new restore; also the directory."""
    path = next(f"{source}-{number}" for number in itertools.count() if not os.path.exists(f"{source}-{number}"))
    restore([source], path, io=io)
    with logdb.open(path, mode="r") as db:
        return [db.log("t", partition).view.epochs.latest for partition in range(2)], path


def test_they_grow_from_restore_to_restore(io, copied):
    found = []
    for _ in range(20):
        found += [epochs(io, copied)[0]]
        io.now_ms += 60_000
    for partition in zip(*found, strict=True):
        assert list(partition) == sorted(set(partition))
        assert 0 < partition[0] < partition[-1] <= EPOCH_MAX


def test_all_logs_of_a_restore_have_the_same(io, copied):
    assert all(len(set(epochs(io, copied)[0])) == 1 for _ in range(8))


def test_they_are_later_than_those_of_the_source(io, copied, tmp_path):
    """Which was itself restored, and whose clock was ahead."""
    first, path = epochs(io, copied)
    with logdb.open(path) as db:
        db.backup(tmp_path / "again")
    for now_ms in (NOW_MS - HOUR_MS, NOW_MS, NOW_MS + HOUR_MS):
        io.now_ms = now_ms
        second, _ = epochs(io, str(tmp_path / "again"))
        assert all(one > other for one, other in zip(second, first, strict=True))


@pytest.mark.parametrize("now_ms", [-HOUR_MS, 0, 1_767_225_599_000, 1_767_225_600_000, 4_200_000_000_000, 2**62])
def test_with_a_clock_that_is_wrong_they_differ(io, copied, now_ms, monkeypatch):
    """1970 on a board without a clock, and years that an epoch cannot count."""
    io.now_ms = now_ms
    chosen = iter([5, 6, 9, 8, 9, 8])
    monkeypatch.setattr(module.secrets, "randbelow", lambda below: next(chosen) if below > 16 else 0)
    assert [epochs(io, copied)[0] for _ in range(3)] == [[6, 7], [10, 9], [10, 9]]


def test_restores_within_a_second_mostly_differ(io, copied):
    assert len({tuple(epochs(io, copied)[0]) for _ in range(20)}) > 1
