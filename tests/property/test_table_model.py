"""A table against a dict: appends, tombstones, transactions, compaction, deletion, and openings after closes and kills."""

import contextlib
import os
import shutil
import tempfile
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import logdb
from logdb.io import IO
from logdb.model import TopicPartition
from support.power_cut import die

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"k" * 510, b"k" * 511, b"k" * 3_000, b"\xff"])
VALUES = st.one_of(st.none(), st.binary(max_size=5), st.just(b"v" * 9_000))


class Regret(Exception):
    """What aborts a transaction."""


class BootIO(IO):
    boot = 0

    def boot_id(self) -> str:
        return f"boot {self.boot}"


class TableModel(RuleBasedStateMachine):
    """``rows``: (key, value, partition, offset) of every committed record with a key, as long as the log has it or a later one."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="logdb-table-")
        self.path = os.path.join(self.root, "db")
        self.io, self.now_ms, self.rows = BootIO(), 10**12, {}
        self.db: Any = None
        self.reader: Any = None

    @initialize(policy=st.sampled_from(["compact,delete", "delete"]), partitions=st.integers(1, 3))
    def begin(self, policy: str, partitions: int) -> None:
        config = {"cleanup.policy": policy, "segment.bytes": 4_096, "delete.retention.ms": 1_000, "min.cleanable.dirty.ratio": 0.0}
        self.policy = policy
        self._open()
        self.db.create_topic("t", partitions=partitions, config=config)
        self._watch()

    def _open(self) -> None:
        self.db = logdb.open(self.path, io=self.io, clock=lambda: self.now_ms)

    def _watch(self) -> None:
        self.table = self.db.table("t")

    def _note(self, key: bytes, value: bytes | None, where: Any) -> None:
        self.rows[key] = (value, TopicPartition("t", where.partition), where.offset)

    def _expected(self) -> dict[bytes, bytes]:
        starts = {TopicPartition("t", p.partition): p.start_offset for p in self.db.describe_topic("t").partitions}
        return {key: value for key, (value, at, offset) in self.rows.items() if value is not None and offset >= starts[at]}

    # ------------------------------------------------------------ what happens

    @rule(rows=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=12))
    def append(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        placed = self.db.append_many("t", [value for _, value in rows], [key for key, _ in rows])
        for (key, value), where in zip(rows, placed, strict=True):
            self._note(key, value, where)

    @rule(key=KEYS, value=VALUES)
    def append_one(self, key: bytes, value: bytes | None) -> None:
        self._note(key, value, self.db.append("t", value, key))

    @rule(rows=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), commit=st.booleans())
    def transaction(self, rows: list[tuple[bytes, bytes | None]], commit: bool) -> None:
        with contextlib.suppress(Regret), self.db.transaction("tx") as tx:
            futures = [tx.send("t", value, key) for key, value in rows]
            if not commit:
                raise Regret
        if commit:
            for (key, value), future in zip(rows, futures, strict=True):
                self._note(key, value, future.result())

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        for info in self.db.describe_topic("t").partitions:
            offset = info.start_offset + int(share * (info.end_offset - info.start_offset))
            self.db.delete_records("t", info.partition, offset)

    @rule(later_ms=st.sampled_from([0, 500, 2_000]))
    def compact(self, later_ms: int) -> None:
        self.now_ms += later_ms
        if "compact" in self.policy:
            self.db.compact("t")

    @rule(clean=st.booleans(), power=st.booleans(), look=st.booleans())
    def reopen(self, clean: bool, power: bool, look: bool) -> None:
        self._close_reader()
        if clean:
            self.db.close()
        else:
            self.db.flush()
            view = self.table._view._state
            die(self.db)
            if view is not None:
                view.view._lmdb.close()  # as the kernel does
        self.io.boot += power
        self._open()
        self._watch()
        if look:
            self.check()

    @rule()
    def read_beside(self) -> None:
        if self.reader is None:
            self.reader = logdb.open(self.path, mode="r", io=self.io, clock=lambda: self.now_ms)
        self.db.flush(sync=False)
        assert dict(self.reader.table("t")) == self._expected()

    # ------------------------------------------------------------ what has to be true

    @rule()
    def check(self) -> None:
        expected = self._expected()
        assert dict(self.table.items()) == expected
        assert len(self.table) == len(expected)
        for key in (b"", b"a", b"k" * 511):
            assert self.table.get(key) == expected.get(key)

    def _close_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def teardown(self) -> None:
        self._close_reader()
        if self.db is not None:
            self.check()
            self.db.close()
        shutil.rmtree(self.root)


TestTableModel = TableModel.TestCase
TestTableModel.settings = settings(max_examples=12 * SCALE, stateful_step_count=25, deadline=None)
