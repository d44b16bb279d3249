"""Kill a writer at each I/O call of a story with producers; what was not acknowledged is sent again, and is there once."""

import os
import random
from functools import partial

import pytest

import logdb
from logdb.errors import LogdbError
from logdb.model import ProducerIdAndEpoch
from support.power_cut import PowerCutIO, deaths, quiet, tell
from support.produced import batch, committed, open_bare, values

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
LEVELS = ("os", "interval", "fsync")
PLAIN, TRANSACTIONAL = 1, 2


class Story:
    """What two producers send, step by step: steps below ``done`` were acknowledged."""

    def __init__(self, path: str, io: PowerCutIO | None, level: str) -> None:
        self.path, self.io, self.level = path, io, level
        self.done = 0
        self.steps: list[tuple[int, int, bytes] | bool] = []  # (producer, sequence, value), or how its transaction ends
        for number in range(6):
            self.steps.append((PLAIN, number, b"plain %d" % number * 12))
            self.steps += [(TRANSACTIONAL, 2 * number + row, b"%d of transaction %d" % (row, number) * 6) for row in range(2)]
            self.steps.append(number % 2 == 0)
        self.db: logdb.Database | None = None

    def run(self) -> None:
        self.open()
        assert self.db is not None
        self.db.create_topic("t", config={"segment.bytes": 1024})
        self.go_on(10)
        self.db._store.checkpoint([self.db.log("t")])
        self.go_on(17)
        self.db.close()
        self.open()
        self.go_on(len(self.steps))

    def open(self) -> None:
        self.db = quiet(open_bare(self.path, durability=self.level, io=self.io)) if self.io else open_bare(self.path, durability=self.level)

    def go_on(self, until: int) -> None:
        while self.done < until:
            self.take(self.steps[self.done])
            self.done += 1

    def take(self, step: tuple[int, int, bytes] | bool) -> None:
        assert self.db is not None
        log = self.db.log("t")
        if isinstance(step, bool):
            log.append_marker(ProducerIdAndEpoch(TRANSACTIONAL, 0), commit=step, coordinator_epoch=0)
        else:
            producer, sequence, value = step
            log.append_batches(batch([value], producer, 0, sequence, transactional=producer == TRANSACTIONAL))

    def expected(self) -> tuple[list[bytes], list[bytes]]:
        """The values of all, and those that are committed, in the order of the steps."""
        every = [step[2] for step in self.steps if not isinstance(step, bool)]
        hidden = {
            step[2] for number in range(1, 6, 2) for step in self.steps[4 * number + 1 : 4 * number + 3] if not isinstance(step, bool)
        }
        return every, [value for value in every if value not in hidden]


def sent_again(path: str, story: Story, where: str) -> None:
    """Go on where the process was killed, from some acknowledged batches back; nothing may be there twice, or lack."""
    again = Story(path, None, story.level)
    again.open()
    assert again.db is not None
    with again.db:
        if "t" not in {topic.name for topic in again.db.topics()}:
            assert story.done == 0, where
            again.db.create_topic("t", config={"segment.bytes": 1024})
        log = again.db.log("t")
        back = range(max(0, story.done - 8), story.done)
        for step in (story.steps[number] for number in back):
            if not isinstance(step, bool):
                end = log.end_offset
                again.take(step)
                assert log.end_offset == end, f"{where}: an acknowledged batch was stored again"
        again.done = story.done
        again.go_on(len(again.steps))
        every, visible = again.expected()
        assert values(log) == every, where
        assert committed(log) == visible, where
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


def survived(path: str, story: Story, where: str) -> None:
    """After a power cut: what is known of the producers is what is in the log."""
    try:
        db = open_bare(path, durability=story.level)
    except LogdbError as error:
        raise AssertionError(where) from error
    with db:
        if "t" in {topic.name for topic in db.topics()}:
            log = db.log("t")
            found = values(log)
            every, _ = story.expected()
            assert found == every[: len(found)], where
            if story.level == "fsync":
                assert len(found) >= sum(not isinstance(step, bool) for step in story.steps[: story.done]), where
            for step in [step for step in story.steps if not isinstance(step, bool)][: len(found)][-5:]:
                end = log.end_offset
                log.append_batches(batch([step[2]], step[0], 0, step[1], transactional=step[0] == TRANSACTIONAL))
                assert log.end_offset == end, where
    report = logdb.verify(path)
    assert report.ok, f"{where}: {report.problems}"


@pytest.mark.parametrize("level", LEVELS)
def test_killed_at_every_call(tmp_path, level, record_property):
    begun = partial(Story, level=level)
    whole = tell(str(tmp_path / "whole"), begun, None)
    count = len(whole.io.calls)
    assert whole.done == len(whole.steps) and count > 100
    numbers = deaths(whole.io.calls, which=LEVELS.index(level), part=1 if level == "fsync" else 2)
    record_property("told", f"producers: killed at {len(numbers)} of {count} I/O calls, level {level}")
    for at in numbers:
        path = str(tmp_path / f"kill-{at}")
        story = tell(path, begun, at)
        where = f"level {level}, call {at}: {whole.io.calls[at - 1]}"
        story.io.cut(f"{path}-cut", random.Random(at))
        sent_again(path, story, f"{where}, process killed")
        survived(f"{path}-cut", story, f"{where}, power cut")
