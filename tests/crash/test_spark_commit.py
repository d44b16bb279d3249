"""A Spark driver killed at each I/O call of its commits, and powered off there: whatever it commits again, each batch is there once."""

import os
import random
import shutil
from functools import partial
from pathlib import Path

import pytest

import logdb
from logdb_spark_source.commit import commit, committed_batch
from logdb_spark_source.staging import Staged
from support.power_cut import PowerCutIO, deaths, quiet, tell
from support.staged import rows, staged, values

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
LEVELS = ("os", "interval", "fsync")
BATCHES = 4
PARTITIONS = 2


def tasks(database: logdb.Database, path: str, batch_id: int) -> list[Staged]:
    """What the tasks of a batch stage, the same whenever Spark runs them; of the last one more than is appended at once."""
    size = 1 if batch_id < BATCHES - 1 else 40_000
    return [
        staged(
            database,
            Path(f"{path}.staging"),
            rows(*((b"%d" % number, b"%d " % (100 * batch_id + number) + bytes(size)) for number in range(first, first + 20))),
        )
        for first in (0, 20)
    ]


class Story:
    """A driver that opens the directory for each commit; ``acknowledged``: the last batch that Spark was told is committed."""

    def __init__(self, path: str, io: PowerCutIO, level: str) -> None:
        self.path, self.io, self.level = path, io, level
        self.acknowledged = -1
        self.db: logdb.Database | None = None

    def run(self) -> None:
        for batch_id in range(BATCHES):
            self.db = quiet(logdb.open(self.path, durability=self.level, io=self.io))
            self.db.create_topic("t", partitions=PARTITIONS, if_not_exists=True)
            commit(self.db._session, "q", batch_id, tasks(self.db, self.path, batch_id))
            self.acknowledged = batch_id
            self.db.close()


def check(path: str, story: Story, rng: random.Random, where: str) -> None:
    with logdb.open(path, durability=story.level) as db:
        db.create_topic("t", partitions=PARTITIONS, if_not_exists=True)  # as it was before the query began
        before = committed_batch(db._session, "q")
        assert story.acknowledged <= before <= story.acknowledged + 1, f"{where}: {before} is committed, {story.acknowledged} was told"
        for batch_id in range(max(0, story.acknowledged + rng.choice((0, 1))), BATCHES):  # Spark's own note of the last may be lost
            commit(db._session, "q", batch_id, tasks(db, path, batch_id))
        found = [int(value.split(b" ")[0]) for partition in range(PARTITIONS) for value in values(db, partition=partition)]
        assert sorted(found) == sorted(100 * batch_id + number for batch_id in range(BATCHES) for number in range(40)), where
        assert all(values(db, partition=partition) for partition in range(PARTITIONS))
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


@pytest.mark.slow
@pytest.mark.timeout(900 * SCALE)
@pytest.mark.parametrize("level", LEVELS)
def test_killed_at_every_call(tmp_path, level, record_property):
    begun = partial(Story, level=level)
    whole = tell(str(tmp_path / "whole"), begun, None)
    assert whole.acknowledged == BATCHES - 1
    count = len(whole.io.calls)
    numbers, seed = deaths(whole.io.calls, which=LEVELS.index(level), part=2), random.randrange(1 << 30)
    record_property("told", f"Spark's commits: killed at {len(numbers)} of {count} I/O calls, level {level}")
    print(f"seed {seed}")
    for at in numbers:
        path, rng = str(tmp_path / f"kill-{at}"), random.Random(seed + at)
        story = tell(path, begun, at)
        where = f"level {level}, call {at}: {whole.io.calls[at - 1]}"
        if level != "os":  # there, a power cut may take what it likes
            story.io.cut(f"{path}-cut", rng)
            check(f"{path}-cut", story, rng, f"{where}, power cut")
            shutil.rmtree(f"{path}-cut")
        check(path, story, rng, f"{where}, process killed")
        shutil.rmtree(path)
