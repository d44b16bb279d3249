"""A compacted log against what was appended to it: whatever is done to it, a replay gives the same.

Records, transactions that commit, abort or stay open, codecs, passes with a map that is too small, time that goes by,
clean and unclean closes; after each step the log is replayed.
"""

import os
import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import logdb
from support.keyed import Keyed
from support.power_cut import die, quiet

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
DAY = 86_400_000
KEYS = 6


class CompactedLog(RuleBasedStateMachine):
    @initialize(codec=st.sampled_from(["none", "zstd"]), segment_bytes=st.sampled_from([1_024, 4_096]))
    def begin(self, codec, segment_bytes):
        self.path = tempfile.mkdtemp()
        self.now_ms, self.keyed, self.next_id, self.open_ids = 1_700_000_000_000, Keyed(), 1, []
        self.db = None
        self._open()
        config = {"cleanup.policy": "compact", "segment.bytes": segment_bytes, "compression.type": codec, "delete.retention.ms": DAY}
        self.db.create_topic("t", config=config | {"index.interval.bytes": 100})

    def _open(self):
        self.db = quiet(logdb.open(self.path, batch_size=200, clock=lambda: self.now_ms))

    @property
    def log(self):
        return self.db._store.open_log("t", 0)  # not through the broker, which would end a transaction that is open

    @rule(count=st.integers(1, 30))
    def append(self, count):
        self.keyed.append(self.log, count, KEYS, 2)

    @rule(count=st.integers(1, 5), commit=st.sampled_from([True, False, None]))
    def transact(self, count, commit):
        self.keyed.transact(self.log, self.next_id, count, KEYS, commit=commit)
        if commit is None:
            self.open_ids.append(self.next_id)
        self.next_id += 1

    @rule(commit=st.booleans())
    def end(self, commit):
        if self.open_ids:
            self.keyed.end(self.log, self.open_ids.pop(0), commit=commit)

    @rule()
    def compact(self):
        end = self.log.end_offset
        self.db.compact("t")
        assert self.log.end_offset == end

    @rule()
    def compact_a_part(self):
        cleaner = self.db._store.writer.cleaner
        before, cleaner.key_map_size_bytes = cleaner.key_map_size_bytes, 256
        self.log.flush()
        self.log.roll()
        self.db._store.checkpoint([self.log])
        cleaner._round()
        cleaner.key_map_size_bytes = before

    @rule(days=st.sampled_from([0, 1, 3]))
    def time_goes_by(self, days):
        self.now_ms += days * DAY

    @rule(killed=st.booleans())
    def reopen(self, killed):
        if killed:
            self.log.flush()
            die(self.db)
        else:
            self.db.close()
        self._open()

    @invariant()
    def a_replay_gives_the_same(self):
        if self.db is not None:
            self.keyed.check(self.log)

    def teardown(self):
        if getattr(self, "db", None) is not None:
            self.db.close()
            report = logdb.verify(self.path)
            assert report.ok, report.problems
            shutil.rmtree(self.path)


CompactedLog.TestCase.settings = settings(max_examples=12 * SCALE, stateful_step_count=25)
test_compacted_log = CompactedLog.TestCase
