"""Kill the process, and cut the power, at each I/O call of a story in which records are deleted by request, size and age.

After each: the log starts where it did or where it should, everything from there on is read, and no file is left
of what lies below.
"""

import os
import random

import pytest

import logdb
from support.power_cut import PowerCutIO, deaths, quiet, tell

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
DAY = 86_400_000


class Story:
    """``start``: where the log starts for certain; ``next_start``: where it may by now; ``durable``: where it ends at least."""

    def __init__(self, path: str, io: PowerCutIO) -> None:
        self.path, self.io = path, io
        self.now_ms = DAY
        self.start = self.next_start = self.durable = self.appended = 0
        self.first_call = 0  # of what is told of deleting
        self.db: logdb.Database | None = None

    def run(self) -> None:
        self.db = self._open()
        self.db.create_topic("t", config={"segment.bytes": 1_500})
        self._fill()
        self.first_call = len(self.io.calls) + 1
        self._move(lambda: self.db.delete_records("t", 0, 8), 8)  # within a segment
        self._move(lambda: self.db.delete_records("t", 0, 23), 23)
        self._fill()
        self.db.alter_topic("t", config={"retention.bytes": 1_500})
        self._enforce()
        self._reopen()
        self._fill()
        self._move(lambda: self.db.delete_records("t", 0, -1), self.appended)
        self._fill()
        self.db.alter_topic("t", config={"retention.ms": DAY, "retention.bytes": None})
        self.now_ms += 2 * DAY
        self._enforce()
        self._fill()
        self.db.close()

    def _open(self) -> logdb.Database:
        return quiet(logdb.open(self.path, io=self.io, clock=lambda: self.now_ms))

    def _reopen(self) -> None:
        self.db.close()
        self.db = self._open()

    def _fill(self) -> None:
        log = self.db.log("t")
        for _ in range(5):
            values = [b"%d " % (self.appended + row) * 20 for row in range(6)]
            self.appended += len(values)
            log.append_many(values)
        log.flush()
        self.durable = self.appended
        self.db._store.checkpoint([log])

    def _move(self, move, start: int) -> None:
        self.next_start = start
        move()
        self.start = start
        assert self.db.log("t").start_offset == start

    def _enforce(self) -> None:
        log = self.db.log("t")
        self.next_start = log.end_offset  # the furthest that it may move: by age the active segment goes, too
        self.db._store.writer.retention.enforce()
        assert log.start_offset > self.start
        self.start = self.next_start = log.start_offset


def check(path: str, story: Story, where: str) -> None:
    with logdb.open(path) as db:
        if not db.topics():
            assert not story.appended, where
            return
        log = db.log("t")
        start, end = log.start_offset, log.end_offset
        assert story.start <= start <= story.next_start, f"{where}: starts at {start}, not in [{story.start}, {story.next_start}]"
        assert end >= story.durable, where
        values = [(record.offset, record.value) for record in log.read(start)]
        assert values == [(offset, b"%d " % offset * 20) for offset in range(start, end)], where
        bases = {segment.base_offset for segment in log.segments}
        stems = {int(name[:20]) for name in os.listdir(log.directory) if name[:20].isdigit()}
        assert bases <= stems, f"{where}: files {stems}, segments {bases}"
        assert min(stems, default=start) >= min(bases, default=start), f"{where}: files {stems}, segments {bases}"
        assert sum(base <= start for base in bases) <= 1, where
        assert log.append(b"after", durability="fsync") == end, where
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


@pytest.mark.slow
def test_killed_at_every_call(tmp_path, record_property):
    whole = tell(str(tmp_path / "whole"), Story, None)
    count = len(whole.io.calls)
    numbers = deaths(whole.io.calls, first=whole.first_call)
    record_property("told", f"retention: killed at {len(numbers)} of {count - whole.first_call + 1} I/O calls")
    assert count > 100
    for at in numbers:
        path = str(tmp_path / f"kill-{at}")
        story = tell(path, Story, at)
        where = f"call {at}: {whole.io.calls[at - 1]}"
        for seed in range(SCALE):
            story.io.cut(f"{path}-cut-{seed}", random.Random(at * 100 + seed))
        check(path, story, f"{where}, process killed")
        for seed in range(SCALE):
            check(f"{path}-cut-{seed}", story, f"{where}, power cut {seed}")
