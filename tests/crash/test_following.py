"""Kill the process, and cut the power, at each I/O call of a follower: epochs that begin, batches that it follows, its end cut off.

After each: the log is a prefix of one that the story has had, as far as the level promised, and what is known of its
producers and epochs is what its batches say. Cut off where it parts from its leader, and caught up, it is equal to it, byte for byte.
"""

import os
import random
from functools import partial

import pytest

import logdb
from logdb.log import preallocation
from support.followers import align, catch_up, check_equal, open_replica
from support.power_cut import PowerCutIO, deaths, quiet, tell
from support.produced import Bare, Sender

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
LEVELS = ("os", "interval", "fsync")
CONFIG = {"segment.bytes": 1_200, "index.interval.bytes": 100}
NOW = 1_700_000_000_000


def opened(path: str, level: str, io: PowerCutIO | None = None) -> Bare:
    db = open_replica(path, limited=io is not None, durability=level, io=io, batch_size=200, clock=lambda: NOW)
    return quiet(db) if io else db


def move(log: logdb.Log, offset: int) -> None:
    log.move_high_watermark(offset, leader_epoch=log.leader_epoch)
    log.note_high_watermark()


class Leaders:
    """Two logs that part from each other: what the old leader had, and what the new one has."""

    def __init__(self, path: str) -> None:
        with opened(os.path.join(path, "old"), "os") as old, opened(os.path.join(path, "new"), "os") as new:
            for db in (old, new):
                db.create_topic("t", config=CONFIG)
            first, second = old.log("t"), new.log("t")
            self.fill(first, 1)
            catch_up(first, second)
            first.begin_epoch(3)
            self.fill(first, 2)
            second.begin_epoch(5)
            self.fill(second, 3)
            second.begin_epoch(6)
            self.fill(second, 4)
        self.old, self.new = os.path.join(path, "old"), os.path.join(path, "new")

    def fill(self, log: logdb.Log, number: int) -> None:
        senders = [Sender(log, 10 * number + which, transactional=bool(which)) for which in range(3)]
        for row in range(3):
            log.append_many([b"plain %d of %d" % (row, number) * 3] * 3)
            for sender in senders:
                sender.send(b"%d of %d" % (row, sender.producer_id) * 4)
        for sender in senders[1:]:
            sender.end(commit=bool(sender.producer_id % 2))
        senders[2].send(b"stays open")
        log.flush()


class Story:
    """A follower of the old leader, which leads itself for a while, and then follows the new one.

    ``written``, ``durable``: ends that survive the process, and the machine.  ``replicated``: the high watermark; an opening may not
    have a higher one, nor one of a log that it had before.
    """

    def __init__(self, path: str, io: PowerCutIO, level: str, leaders: Leaders) -> None:
        self.path, self.io, self.level, self.leaders = path, io, level, leaders
        self.written = self.durable = self.replicated = 0
        self.db: Bare | None = None
        self.first_call = 0

    def run(self) -> None:
        self.db = opened(self.path, self.level, self.io)
        self.db.create_topic("t", config=CONFIG)
        self.first_call = len(self.io.calls) + 1
        with opened(self.leaders.old, "os") as old:
            self._follow(old.log("t"), 900)
        self.db._store.checkpoint([self.db.log("t")])
        log = self.db.log("t")
        log.begin_epoch(4)
        log.append_many([b"its own %d" % number * 9 for number in range(9)])
        self._wrote(log)
        self._flush(log)
        with opened(self.leaders.new, "os") as new:
            self._align(new.log("t"))
            self._follow(new.log("t"), 1_500)
            self._cut(log.end_offset - 9)  # as if it had to once more
            self._follow(new.log("t"), 400)
            self.db.close()
            self.db = opened(self.path, self.level, self.io)
            move(self.db.log("t"), self.db.log("t").end_offset)
            check_equal(new.log("t"), self.db.log("t"))
            self.replicated = self.written
            self.written = self.durable = 0
            self.db._store.begin_anew("t", 0, 0)
            self.replicated = 0
            self._follow(new.log("t"), 2_000)

    def _follow(self, leader: logdb.Log, size_bytes: int) -> None:
        log = self.db.log("t")
        while log.end_offset < leader.end_offset:
            known = log.end_offset
            log.follow_append(leader.read_batches(known, size_bytes)[0])
            self._wrote(log)
            if self.replicated < known:
                self.replicated = known
                move(log, known)
        self._flush(log)

    def _wrote(self, log: logdb.Log) -> None:
        self.written = log.end_offset
        if self.level == "fsync":
            self.durable = log.end_offset

    def _flush(self, log: logdb.Log) -> None:
        log.flush()
        self.written = self.durable = log.end_offset

    def _align(self, leader: logdb.Log) -> None:
        common = next(start for epoch, start in leader.epochs.entries if epoch == 5)
        self.written, self.durable = min(self.written, common), min(self.durable, common)
        align(leader, self.db)
        self.replicated = min(self.replicated, common)

    def _cut(self, offset: int) -> None:
        self.written = self.durable = 0  # the end may be any before it, until it is known
        self.written = self.durable = self.db._store.truncate_to("t", 0, offset)
        self.replicated = min(self.replicated, self.written)


def check(path: str, story: Story, least: int, where: str) -> None:
    with open_replica(path, limited=True, durability=story.level, batch_size=200, clock=lambda: NOW) as db:
        if not db.topics():
            return
        log = db.log("t")
        assert log.start_offset <= log.high_watermark <= story.replicated, where
        assert log.read_only_reason is None, where
        assert log.end_offset >= least, f"{where}: ends at {log.end_offset}, {least} were acknowledged"
        names = set(os.listdir(log.directory))
        assert not any(name.endswith((".cleaned", ".tmp")) for name in names), f"{where}: {names}"
        assert not db._store.catalogue.intents(), where
        with opened(story.leaders.new, "os") as new:
            leader = new.log("t")
            align(leader, db)
            catch_up(leader, log)
            move(log, log.end_offset)
            check_equal(leader, log, where)
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"
    with opened(path, story.level) as db, opened(story.leaders.new, "os") as new:
        check_equal(new.log("t"), db.log("t"), f"{where}, opened again")


@pytest.mark.slow
@pytest.mark.timeout(900 * SCALE)
@pytest.mark.parametrize("level", LEVELS)
def test_killed_at_every_call(tmp_path, level, record_property, monkeypatch):
    monkeypatch.setattr(preallocation, "STEP_SIZE_BYTES_MIN", 1)  # the story is short
    leaders = Leaders(str(tmp_path / "leaders"))
    begun = partial(Story, level=level, leaders=leaders)
    whole = tell(str(tmp_path / "whole"), begun, None)
    count, first = len(whole.io.calls), whole.first_call
    assert count - first > 150
    numbers = deaths(whole.io.calls, first=first, which=LEVELS.index(level), part=2)
    record_property("told", f"a follower: killed at {len(numbers)} of {count - first + 1} I/O calls, level {level}")
    for at in numbers:
        path = str(tmp_path / f"kill-{at}")
        story = tell(path, begun, at)
        where = f"level {level}, call {at}: {whole.io.calls[at - 1]}"
        for seed in range(SCALE):
            story.io.cut(f"{path}-cut-{seed}", random.Random(at * 100 + seed))
        with logdb.open(path, mode="r") as db:  # as it was left
            assert len(list(db.log("t").read(0))) <= story.replicated, where
        check(path, story, story.written, f"{where}, process killed")
        for seed in range(SCALE):
            check(f"{path}-cut-{seed}", story, story.durable, f"{where}, power cut {seed}")
