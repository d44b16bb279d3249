"""Count the I/O calls of a story, then kill the process at each of them, and cut the power there too.

After each: what is there is a prefix of what was appended, with everything that the level promised.
"""

import os
import random
from functools import partial

import pytest

import logdb
from logdb.log import preallocation
from support.power_cut import PowerCutIO, deaths, quiet, tell

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
LEVELS = ("os", "interval", "fsync")


class Story:
    """create, append, roll, checkpoint, delete, close, open: what was appended, acknowledged and deleted."""

    def __init__(self, path: str, io: PowerCutIO, level: str) -> None:
        self.path, self.io, self.level = path, io, level
        self.appended: list[bytes] = []
        self.written = self.durable = 0  # acknowledged: survives the process; survives the machine
        self.may_exist = {"gone": True}
        self.must_exist: set[str] = set()
        self.db: logdb.Database | None = None

    def run(self) -> None:
        self.db = self._open()
        self.db.create_topic("kept", config={"segment.bytes": 2048})
        self.must_exist.add("kept")
        self.db.create_topic("gone", partitions=2)
        log = self.db.log("kept")
        self._append_some(log)
        self.db.log("gone", 1).append_many([b"x"] * 10)
        self.must_exist.discard("gone")
        self.db.delete_topic("gone")
        self.may_exist["gone"] = False
        self.db._store.checkpoint([log])
        self._append_some(log)
        self.db.close()
        self.written = self.durable = len(self.appended)
        self.db = self._open()
        self._append_some(self.db.log("kept"))

    def _open(self) -> logdb.Database:
        return quiet(logdb.open(self.path, durability=self.level, io=self.io))

    def _append_some(self, log: logdb.Log) -> None:
        for _ in range(3):
            many = [b"value %d " % (len(self.appended) + row) * 9 for row in range(12)]
            self.appended += many
            log.append_many(many)
            self._acknowledge(len(self.appended))
            self.appended.append(b"one")
            log.append(b"one")
            if self.level == "fsync":
                self._acknowledge(len(self.appended))
        log.flush()
        self.written = self.durable = len(self.appended)

    def _acknowledge(self, count: int) -> None:
        self.written = count
        if self.level == "fsync":
            self.durable = count


def check(path: str, story: Story, least: int, where: str) -> None:
    with logdb.open(path, durability=story.level) as db:
        names = {topic.name for topic in db.topics()}
        assert story.must_exist <= names, where
        assert story.may_exist["gone"] or "gone" not in names, where
        values = [record.value for record in db.log("kept").read(0)] if "kept" in names else []
        assert values == story.appended[: len(values)], where
        assert len(values) >= least, f"{where}: {len(values)} of {least} acknowledged records are there"
        if "kept" in names:
            end = db.log("kept").append(b"after", durability="fsync")
            assert end == len(values), where
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


@pytest.mark.parametrize("level", LEVELS)
def test_killed_at_every_call(tmp_path, level, record_property, monkeypatch):
    monkeypatch.setattr(preallocation, "STEP_SIZE_BYTES_MIN", 1)  # the story is short
    begun = partial(Story, level=level)
    whole = tell(str(tmp_path / "whole"), begun, None)
    count = len(whole.io.calls)
    numbers = deaths(whole.io.calls, which=LEVELS.index(level), part=1 if level == "fsync" else 2)
    record_property("told", f"crash lab: killed at {len(numbers)} of {count} I/O calls, level {level}")
    assert count > 50
    for at in numbers:
        path = str(tmp_path / f"kill-{at}")
        story = tell(path, begun, at)
        where = f"level {level}, call {at}: {whole.io.calls[at - 1]}"
        for seed in range(SCALE):
            story.io.cut(f"{path}-cut-{seed}", random.Random(at * 100 + seed))
        check(path, story, story.written, f"{where}, process killed")
        for seed in range(SCALE):
            check(f"{path}-cut-{seed}", story, story.durable, f"{where}, power cut {seed}")
