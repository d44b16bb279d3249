"""A leader's log and a follower's against Python lists: records, epochs and producers, whatever becomes of the two.

Appends of all kinds, fetches of any size, leaders that change hands with records that no other replica has, logs that are cut off and
begin anew, flushes, checkpoints, kills and closes of either, compaction and retention of one. In the end the two are equal,
byte for byte where nothing was compacted.
"""

import os
import shutil
import tempfile
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import logdb
from logdb.codec import convert
from logdb.errors import FencedLeaderEpoch, OffsetOutOfRange, UnexpectedOffset
from support.batches import Rec, encode_batch, encode_log
from support.followers import align, batches_of, check_equal, epochs_of, fetch, open_replica
from support.power_cut import die, quiet
from support.produced import Bare, Sender, committed

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
CONFIG = {"segment.bytes": 1_500, "index.interval.bytes": 100, "message.timestamp.type": "CreateTime"}
NOW = 1_700_000_000_000
SIDES = st.sampled_from([0, 1])
counts = st.integers(1, 12)


class Row(NamedTuple):
    """What one offset holds; ``key`` None: a marker."""

    epoch: int
    key: bytes | None
    value: bytes


class Side:
    """One log: ``rows`` by offset, from ``first`` on; ``durable``: so many survive a kill."""

    def __init__(self, base: str, number: int, level: str, config: dict[str, object]) -> None:
        self.path, self.level = os.path.join(base, str(number)), level
        self.rows: list[Row] = []
        self.first = 0
        self.written = 0
        self.db: Bare | None = None
        self.open()
        self.db.create_topic("t", config=config)

    def open(self) -> None:
        self.db = quiet(open_replica(self.path, durability=self.level, batch_size=250, clock=lambda: NOW))

    @property
    def log(self) -> logdb.Log:
        return self.db.log("t")

    @property
    def end(self) -> int:
        return self.first + len(self.rows)

    def cut(self, end: int) -> None:
        del self.rows[max(end - self.first, 0) :]
        self.written = min(self.written, end)

    def begin(self, offset: int) -> None:
        self.rows, self.first, self.written = [], offset, offset


class Followers(RuleBasedStateMachine):
    level: logdb.model.Durability = "interval"
    compacted = False

    def __init__(self) -> None:
        super().__init__()
        self.base = tempfile.mkdtemp(prefix="logdb-follower-")
        policy = {"cleanup.policy": "compact"} if self.compacted else {}
        self.sides = [Side(self.base, number, self.level, CONFIG | policy) for number in range(2)]
        self.leading = 0
        self.epoch = -1  # the latest that a controller has given
        self.aligned = True  # the follower's log is known to agree with the leader's
        self.count = 0
        self.is_compacted = self.may_lack = False  # compaction took records; and what they were replaced by was cut off
        self.senders: dict[int, Sender] = {}
        self.elect(0)

    @property
    def leader(self) -> Side:
        return self.sides[self.leading]

    @property
    def follower(self) -> Side:
        return self.sides[1 - self.leading]

    def elect(self, number: int) -> None:
        """Another one leads, or the same one again: with what it has, and producers that begin anew."""
        self.leading, self.aligned = number, False
        self.epoch += 1
        self.leader.log.begin_epoch(self.epoch)
        self.leader.written = self.leader.end
        self.senders = {}

    def some(self, count: int) -> list[tuple[bytes, bytes]]:
        self.count += count
        return [(b"key %d" % (number % 7), b"value %d " % number * (number % 5 + 1)) for number in range(self.count - count, self.count)]

    def appended(self, rows: list[tuple[bytes | None, bytes]], *, written: bool) -> None:
        self.leader.rows += [Row(self.epoch, *row) for row in rows]
        if written or self.level == "fsync":
            self.leader.written = self.leader.end

    # ------------------------------------------------------------ the leader takes records

    @rule(count=counts)
    def append(self, count):
        rows = self.some(count)
        for key, value in rows:
            self.leader.log.append(value, key)
        self.appended(rows, written=False)

    @rule(count=counts)
    def append_many(self, count):
        rows = self.some(count)
        self.leader.log.append_many([value for _, value in rows], [key for key, _ in rows])
        self.appended(rows, written=True)

    @rule(count=counts, codec=st.sampled_from([1, 4]))
    def append_compressed(self, count, codec):
        rows = self.some(count)
        self.leader.log.append_batches(convert.compress_batches(encode_log([[Rec(*row) for row in rows]]), codec))
        self.appended(rows, written=True)

    @rule(which=st.integers(0, 2), count=counts)
    def produce(self, which, count):
        sender = self.senders.get(which)
        if sender is None:
            producer_id = 10 * (self.epoch + 1) + which
            sender = self.senders[which] = Sender(self.leader.log, producer_id, transactional=which > 0)
        rows = self.some(count)
        sender.send(*(Rec(*row) for row in rows))
        self.appended(rows, written=True)

    @rule(which=st.integers(1, 2), commit=st.booleans())
    def end(self, which, commit):
        if which in self.senders:
            self.senders[which].end(commit=commit)
            self.appended([(None, b"")], written=True)

    # ------------------------------------------------------------ the follower follows

    def follow(self, size_bytes: int) -> None:
        if self.follower.log.end_offset < self.leader.log.start_offset:
            self.aligned = False  # the leader has let go of what comes next
        if not self.aligned:
            align(self.leader.log, self.follower.db)
            self.aligned = True
            self.settle()
        try:
            fetch(self.leader.log, self.follower.log, size_bytes)
        except UnexpectedOffset:
            self.aligned = False
        self.settle()

    def settle(self) -> None:
        """The follower has, up to where its log ends, what the leader has."""
        follower, leader, log = self.follower, self.leader, self.follower.log
        if not follower.first <= log.start_offset <= follower.end:  # it began anew; a start within is what it deleted while it led
            follower.begin(log.start_offset)
        follower.cut(log.end_offset)
        follower.rows += leader.rows[follower.end - leader.first : log.end_offset - leader.first]
        follower.written = follower.end

    @rule(size_bytes=st.sampled_from([1, 400, 5_000]))
    def fetch(self, size_bytes):
        self.follow(size_bytes)

    @rule()
    def catch_up(self):
        for _ in range(100):
            end = self.follower.end
            self.follow(1 << 20)
            if self.aligned and self.follower.end == end == self.leader.log.end_offset:
                return
        raise AssertionError(f"the follower ends at {self.follower.log.end_offset}, the leader at {self.leader.log.end_offset}")

    @rule(at=st.floats(0, 1))
    def truncate(self, at):
        follower = self.follower
        offset = int(follower.log.start_offset + at * (follower.end - follower.log.start_offset))
        end = follower.db._store.truncate_to("t", 0, offset)
        self.may_lack |= self.is_compacted
        assert max(follower.log.start_offset, offset - 12) <= end <= offset or self.compacted
        follower.cut(end)
        follower.written = end
        with pytest.raises(OffsetOutOfRange):
            follower.log.read(end + 1)

    @rule(behind=st.integers(1, 3))
    def an_older_leader_is_refused(self, behind):
        self.follow(1 << 20)
        follower, known = self.follower, self.follower.log.epochs
        if self.aligned and known.entries and known.latest >= behind and epochs_of(follower.log):
            with pytest.raises(FencedLeaderEpoch):
                follower.log.follow_append(encode_batch([b"x"], base_offset=follower.end, leader_epoch=known.latest - behind))
            with pytest.raises(FencedLeaderEpoch):
                follower.log.begin_epoch(known.latest)

    # ------------------------------------------------------------ leaders come and go

    @rule()
    def the_follower_leads(self):
        self.elect(1 - self.leading)

    @rule()
    def the_leader_leads_again(self):
        self.elect(self.leading)

    # ------------------------------------------------------------ what happens to any log

    @rule(which=SIDES)
    def flush(self, which):
        side = self.sides[which]
        side.log.flush()
        side.written = side.end

    @rule(which=SIDES)
    def checkpoint(self, which):
        side = self.sides[which]
        side.db._store.checkpoint([side.log])

    @rule(which=SIDES, clean=st.booleans())
    def reopen(self, which, clean):
        side = self.sides[which]
        if clean:
            side.db.close()
            report = logdb.verify(side.path)
            assert report.ok, report.problems
            side.written = side.end
        else:
            die(side.db)
        side.open()
        assert side.written <= side.log.end_offset <= side.end
        side.cut(side.log.end_offset)
        side.written = side.end
        self.aligned = False
        if which == self.leading:
            self.elect(which)  # a controller gives another epoch to a leader that was away

    @precondition(lambda self: self.compacted)
    @rule(which=SIDES)
    def compact(self, which):
        self.catch_up()  # the high watermark holds compaction back to what both have: what is cut off later has replaced nothing
        side = self.sides[which]
        side.db.compact("t", 0)
        self.is_compacted = True
        side.written = side.end

    @precondition(lambda self: not self.compacted)
    @rule(at=st.floats(0, 1))
    def the_leader_lets_go(self, at):
        leader = self.leader
        start = leader.log.start_offset
        leader.db.delete_records("t", 0, int(start + at * (leader.end - start)))
        leader.written = leader.end

    # ------------------------------------------------------------ what holds

    @rule(which=SIDES)
    def is_what_it_had(self, which):
        side = self.sides[which]
        log = side.log
        assert log.end_offset == side.end
        for record in log.read(log.start_offset):
            assert (record.leader_epoch, record.key, record.value) == side.rows[record.offset - side.first]
        latest = {row.key: row.value for row in side.rows[log.start_offset - side.first :] if row.key is not None}
        assert {record.key: record.value for record in log.read(log.start_offset)} == latest or self.may_lack or self.aborted(log)
        if not self.compacted:
            found = [record.value for record in log.read(log.start_offset)]
            assert found == [row.value for row in side.rows[log.start_offset - side.first :] if row.key is not None]

    def aborted(self, log: logdb.Log) -> bool:
        """Whether compaction may take records that are the latest of their key."""
        return self.compacted and any(row.key is None for row in self.sides[0].rows + self.sides[1].rows)

    def teardown(self) -> None:
        try:
            self.catch_up()
            leader, follower = self.leader.log, self.follower.log
            for which in (0, 1):
                self.is_what_it_had(which)
            if not self.compacted and follower.start_offset <= leader.start_offset:
                self.follower.db.delete_records("t", 0, leader.start_offset)
                self.compare(leader, follower)
            for side in self.sides:
                side.db.close()
                report = logdb.verify(side.path)
                assert report.ok, report.problems
        finally:
            shutil.rmtree(self.base)

    def compare(self, leader: logdb.Log, follower: logdb.Log) -> None:
        if not leader.start_offset:
            check_equal(leader, follower)
            return
        # a producer of which nothing is left is known where its batches were once; the others, alike
        assert epochs_of(follower) == epochs_of(leader)
        assert batches_of(follower, leader.start_offset) == batches_of(leader)
        if any(left.first_offset < leader.start_offset for left in leader.open_transactions()):
            return  # the follower has not seen it begin
        ends = [committed(log, leader.start_offset) for log in (follower, leader)]
        assert ends[0] == ends[1]


CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
for _level, _compacted in (("os", False), ("interval", False), ("fsync", False), ("interval", True)):
    _name = f"Followers_{_level}{'_compacted' if _compacted else ''}"
    _case = type(_name, (Followers,), {"level": _level, "compacted": _compacted}).TestCase
    _case.settings = settings(max_examples=10 * SCALE, stateful_step_count=30, deadline=None, suppress_health_check=CHECKS)
    globals()[f"Test{_name}"] = _case
del _case  # or it would be collected once more
