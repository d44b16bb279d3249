"""The log against a Python list, with flush, checkpoint, kill, power cut and clean reopening as rules."""

import os
import random
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import logdb
from logdb.errors import LogTruncated
from support.power_cut import PowerCutIO, commits_noted, die, quiet

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
values = st.one_of(st.none(), st.binary(max_size=40), st.integers(1, 3000).map(lambda size: b"v" * size))
keys = st.one_of(st.none(), st.binary(max_size=8))


class LogModel(RuleBasedStateMachine):
    level: logdb.model.Durability = "interval"

    def __init__(self) -> None:
        super().__init__()
        self.base = tempfile.mkdtemp(prefix="logdb-model-")
        self.count = 0
        self.path = os.path.join(self.base, "0")
        os.makedirs(self.path)
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self.written = self.durable = 0
        self.seen: tuple[int, int] | None = None  # an offset and the epoch that a reader saw before it
        self.open()
        with commits_noted(self.io):
            self.db.create_topic("t", config={"segment.bytes": 4096})

    # ------------------------------------------------------------ handling

    def open(self) -> None:
        self.io = PowerCutIO(self.path, boot=f"boot {self.count}")
        with commits_noted(self.io):
            self.db = quiet(logdb.open(self.path, durability=self.level, io=self.io, batch_size=512))
            if self.db.topics():
                self.log = self.db.log("t")
        self.io.note_commit()

    def reopened(self, least: int) -> None:
        self.open()
        self.log = self.db.log("t")
        found = [(record.key, record.value) for record in self.log.read(0)]
        assert found == self.records[: len(found)]
        assert len(found) >= least
        lost, self.records = len(self.records) - len(found), found
        self.written = min(self.written, len(found))
        self.durable = min(self.durable, len(found))
        if self.seen is not None and self.seen[0] > len(found) and lost:
            self.log.append_many([b"new"] * lost)  # the offsets are there again, other records under them
            self.records += [(None, b"new")] * lost
            self.acknowledge()
            with pytest.raises(LogTruncated):
                self.log.read(self.seen[0], leader_epoch=self.seen[1])
            self.seen = None

    def acknowledge(self) -> None:
        self.written = len(self.records)
        if self.level == "fsync":
            self.durable = len(self.records)

    # ------------------------------------------------------------ rules

    @rule(value=values, key=keys)
    def append(self, value, key):
        self.log = self.db.log("t")
        with commits_noted(self.io):
            assert self.log.append(value, key) == len(self.records)
        self.records.append((key, value))
        if self.level == "fsync":
            self.acknowledge()

    @rule(some=st.lists(values, max_size=30))
    def append_many(self, some):
        with commits_noted(self.io):
            offsets = self.db.log("t").append_many(some)
        assert offsets == range(len(self.records), len(self.records) + len(some))
        self.records += [(None, value) for value in some]
        if some:
            self.acknowledge()

    @rule(sync=st.booleans())
    def flush(self, sync):
        self.db.log("t").flush(sync)
        self.written = len(self.records)
        if sync:
            self.durable = len(self.records)

    @rule()
    def checkpoint(self):
        with commits_noted(self.io):
            self.db._store.checkpoint([self.db.log("t")])

    @rule(at=st.floats(0, 1))
    def read_from(self, at):
        offset = int(at * len(self.records))
        log = self.db.log("t")
        assert [(record.key, record.value) for record in log.read(offset)] == self.records[offset:]
        if self.records:
            last = next(iter(log.read(len(self.records) - 1)))
            self.seen = (len(self.records), last.leader_epoch)

    @precondition(lambda self: self.records)
    @rule(at=st.floats(0, 0.999))
    def read_raw_batches(self, at):
        offset = int(at * len(self.records))
        view, following = self.db.log("t").read_batches(offset, 1)
        assert offset < following <= len(self.records)
        assert int.from_bytes(view[:8], "big") <= offset

    @rule()
    def close_and_open(self):
        with commits_noted(self.io):
            self.db.close()
        assert logdb.verify(self.path).ok
        self.written = self.durable = len(self.records)
        self.reopened(len(self.records))

    @rule()
    def kill(self):
        die(self.db)
        self.reopened(self.written)

    @rule(seed=st.integers(0, 2**32))
    def cut_power(self, seed):
        self.count += 1
        path = os.path.join(self.base, str(self.count))
        self.io.cut(path, random.Random(seed))
        die(self.db)
        shutil.rmtree(self.path)
        self.path = path
        self.reopened(self.durable)

    @invariant()
    def ends_agree(self):
        if self.db.topics():
            assert self.db.log("t").end_offset == len(self.records)

    def teardown(self) -> None:
        die(self.db)
        shutil.rmtree(self.base)


CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
for _level in logdb.model.DURABILITY_LEVELS:
    _machine = type(f"LogModel_{_level}", (LogModel,), {"level": _level})
    _case = _machine.TestCase
    _case.settings = settings(max_examples=12 * SCALE, stateful_step_count=25, deadline=None, suppress_health_check=CHECKS)
    globals()[f"TestLog_{_level}"] = _case
