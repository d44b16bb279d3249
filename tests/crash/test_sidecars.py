"""Kill the process, and cut the power, at each I/O call of a story in which Parquet sidecars are made, and go.

After each, a reader and the next writer find by the dataset what the logs hold; no file is left that the
catalogue does not name; and what is missing is made again.
"""

import contextlib
import os
import random

import pytest

import logdb
from logdb.errors import UnknownTopic
from support.columnar import check_same
from support.keyed import Keyed
from support.power_cut import PowerCutIO, deaths, quiet, tell

pytest.importorskip("pyarrow")

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
CONFIG = {"cleanup.policy": "compact,delete", "segment.bytes": 2_000, "index.interval.bytes": 100}


class Story:
    """``durable``: where the log ends at least."""

    def __init__(self, path: str, io: PowerCutIO) -> None:
        self.path, self.io = path, io
        self.durable = 0
        self.first_call = 0  # of what is told of sidecars
        self.keyed = Keyed()
        self.db: logdb.Database | None = None

    def run(self) -> None:
        self.db = quiet(logdb.open(self.path, batch_size=300, io=self.io, clock=lambda: 1_700_000_000_000))
        self.db.create_topic("t", config=CONFIG)
        self._fill(0)
        self.first_call = len(self.io.calls) + 1
        self.db.make_parquet("t")
        self._damage()
        self.db.make_parquet("t")  # one is dropped, and made again
        self.db.delete_records("t", 0, 40)
        self._fill(1)
        self.db.compact("t")
        self.db.make_parquet("t")
        self.db.alter_topic("t", config={"retention.bytes": 2_500})
        self.db._store.writer.retention.enforce()
        self.db.make_parquet("t")
        self.db.delete_topic("t")
        self.db.create_topic("t", config=CONFIG)
        self.keyed, self.durable = Keyed(7), 0
        self._fill(2)
        self.db.make_parquet("t")
        self.db.close()

    def _fill(self, number: int) -> None:
        log, keyed = self.db._store.open_log("t", 0), self.keyed
        keyed.append(log, 50, 25, 3)
        keyed.transact(log, 10 * number + 1, 4, 12, commit=True)
        keyed.transact(log, 10 * number + 2, 4, 12, commit=False)
        keyed.append(log, 40, 25, 3)
        log.flush()

    def _damage(self) -> None:
        path = self.db.topic_tiers("t", isolation_level="read_committed").files[1].path
        os.truncate(path, 100)


def check_as_left(path: str, where: str) -> None:
    """Without a recovery, as a reader finds it."""
    with logdb.open(path, mode="r") as db, contextlib.suppress(UnknownTopic):  # in the middle of being created, or deleted
        check_same(db, where=where)


def check(path: str, where: str) -> None:
    with logdb.open(path) as db:
        quiet(db)
        if not any(topic.name == "t" for topic in db.topics()):
            return
        directory = db._store.open_log("t", 0).directory
        check_same(db, where=where)
        named = {file.path for file in db.topic_tiers("t", isolation_level="read_committed").files}
        entries = [entry for entry in db._store.catalogue.segments("t", 0) if entry.sidecar is not None]
        found = {os.path.join(directory, name) for name in os.listdir(directory) if ".parquet" in name}
        assert named <= found and len(found) <= len(entries), f"{where}: {found}"
        db.make_parquet("t")
        assert check_same(db, where=where) >= len(named), where
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"
    assert not [note for note in report.notes if "parquet" in note], where


@pytest.mark.slow
@pytest.mark.timeout(900 * SCALE)
def test_killed_at_every_call(tmp_path, record_property):
    whole = tell(str(tmp_path / "whole"), Story, None)
    count, first = len(whole.io.calls), whole.first_call
    numbers = deaths(whole.io.calls, first=first, part=2)
    record_property("told", f"sidecars: killed at {len(numbers)} of {count - first + 1} I/O calls")
    assert sum("parquet" in call for call in whole.io.calls) > 15
    for at in numbers:
        path = str(tmp_path / f"kill-{at}")
        story = tell(path, Story, at)
        where = f"call {at}: {whole.io.calls[at - 1]}"
        for seed in range(SCALE):
            story.io.cut(f"{path}-cut-{seed}", random.Random(at * 100 + seed))
        check_as_left(path, f"{where}, as it was left")
        check(path, f"{where}, process killed")
        for seed in range(SCALE):
            check(f"{path}-cut-{seed}", f"{where}, power cut {seed}")
