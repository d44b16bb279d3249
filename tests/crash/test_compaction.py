"""Kill the process, and cut the power, at each I/O call of a story in which a log is compacted.

After each: a replay of the log gives what was appended, the log ends where it did, and no file is left that the
catalogue does not name.
"""

import os
import random

import pytest

import logdb
from support.keyed import Keyed
from support.power_cut import PowerCutIO, deaths, quiet, tell

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
DAY = 86_400_000
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 2_000, "index.interval.bytes": 100, "delete.retention.ms": DAY}


def log_of(db: logdb.Database) -> logdb.Log:
    """Not through the broker, which would end a transaction that was left open."""
    return db._store.open_log("t", 0)


class Story:
    """``durable``: where the log ends at least."""

    def __init__(self, path: str, io: PowerCutIO) -> None:
        self.path, self.io = path, io
        self.now_ms = 1_700_000_000_000
        self.durable = 0
        self.first_call = 0  # of what is told of compaction
        self.keyed = Keyed()
        self.counts: list[int] = []  # records after each compaction
        self.db: logdb.Database | None = None

    def run(self) -> None:
        self.db = self._open()
        self.db.create_topic("t", config=CONFIG)
        self._fill(0)
        self.first_call = len(self.io.calls) + 1
        self._compact()
        self._fill(1)
        self._compact()
        self.now_ms += 2 * DAY
        self._reopen()
        self._compact()
        self._fill(2)
        self._compact()
        self.db.close()

    def _open(self) -> logdb.Database:
        return quiet(logdb.open(self.path, batch_size=300, io=self.io, clock=lambda: self.now_ms))

    def _reopen(self) -> None:
        self.db.close()
        self.db = self._open()

    def _fill(self, number: int) -> None:
        log, keyed = log_of(self.db), self.keyed
        keyed.append(log, 40, 12, 3)
        keyed.transact(log, 10 * number + 1, 4, 12, commit=True)
        keyed.transact(log, 10 * number + 2, 4, 12, commit=False)
        keyed.append(log, 25, 12, 3)
        log.flush()
        self.durable = len(keyed.rows)

    def _compact(self) -> None:
        self.db.compact("t")
        self.durable = len(self.keyed.rows)
        self.counts.append(self.keyed.check(log_of(self.db)))


def check_as_left(path: str, story: Story, where: str) -> None:
    """Without a recovery: a swap may be half done."""
    with logdb.open(path, mode="r") as db:
        story.keyed.check(log_of(db), where)
    problems = [problem for problem in logdb.verify(path).problems if not problem.path.endswith("LOCK")]  # one slot may be torn
    assert not problems, f"{where}: {problems}"


def check(path: str, story: Story, where: str) -> None:
    with logdb.open(path) as db:
        log = log_of(db)
        assert story.durable <= log.end_offset <= len(story.keyed.rows), where
        story.keyed.check(log, where)
        names = set(os.listdir(log.directory))
        assert not any(name.endswith(".cleaned") for name in names), f"{where}: {names}"
        bases = {segment.base_offset for segment in log.segments}
        assert {int(name[:20]) for name in names if name.endswith(("log", "index"))} == bases, f"{where}: {names}"
        assert not db._store.catalogue.intents(), where
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


@pytest.mark.slow
@pytest.mark.timeout(900 * SCALE)
def test_killed_at_every_call(tmp_path, record_property):
    whole = tell(str(tmp_path / "whole"), Story, None)
    count, first = len(whole.io.calls), whole.first_call
    numbers = deaths(whole.io.calls, first=first)
    record_property("told", f"compaction: killed at {len(numbers)} of {count - first + 1} I/O calls")
    assert count - first > 100
    assert whole.counts[0] > whole.counts[2]  # tombstones go
    for at in numbers:
        path = str(tmp_path / f"kill-{at}")
        story = tell(path, Story, at)
        where = f"call {at}: {whole.io.calls[at - 1]}"
        for seed in range(SCALE):
            story.io.cut(f"{path}-cut-{seed}", random.Random(at * 100 + seed))
        check_as_left(path, story, f"{where}, as it was left")
        check(path, story, f"{where}, process killed")
        for seed in range(SCALE):
            check(f"{path}-cut-{seed}", story, f"{where}, power cut {seed}")
