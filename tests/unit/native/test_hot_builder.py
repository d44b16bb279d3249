"""hot_builder.c, hot_buffer.c: batches written in order, whatever fails and whichever threads call in between."""

import contextlib
import gc
import itertools
import json
import os
import random
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb._native._hot import FSYNC, INTERVAL, OS, BatchBuilder
from support.batches import encode_batch
from support.builders import NOW, Rejected, Row, Sink, at_now, fail, raw
from support.waiting import until


def fill(sink: Sink, count: int) -> None:
    for _ in range(count):
        sink.append(b"x" * 100)


def outcome(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except (OSError, RuntimeError) as error:
        return error
    return None


# ---------------------------------------------------------------- the flusher


def test_the_flusher_is_woken_once() -> None:
    sink = Sink()
    for _ in range(3):
        sink.append(b"")
    assert sink._dirty and sink.called("woken") == [()]
    opened = sink._opened_ms
    assert 0 <= time.monotonic_ns() // 1_000_000 - opened < 60_000
    sink._dirty = False
    sink.append(b"")
    assert len(sink.called("woken")) == 2
    assert sink._opened_ms == opened  # the oldest record's
    sink._drain()
    assert sink._opened_ms == 0


def test_writes_that_do_not_wait_wake_no_thread() -> None:
    sink = Sink()
    sink.append_many([b""])
    sink.append(b"", durability="fsync")
    assert not sink._dirty and not sink.called("woken")


def test_a_flusher_that_cannot_be_woken_accepts_nothing() -> None:
    class Asleep(Sink):
        def _woken(self) -> None:
            raise ZeroDivisionError

    sink = Asleep()
    with pytest.raises(ZeroDivisionError):
        sink.append(b"")
    assert (sink._next_offset, sink._dirty) == (0, False)


# ---------------------------------------------------------------- writes that fail


def test_what_could_not_be_written_is_kept_in_order() -> None:
    full = True
    sink = Sink(failures=(OSError(28, "full") if full else None for _ in itertools.count()))
    accepted, refused = [], 0
    for i in range(2000):
        try:
            assert sink.append(b"%d" % i * 30) == len(accepted)
            accepted.append(i)
        except OSError:
            refused += 1
            assert sink._broken
            if refused == 50:
                full = False
    assert refused == 50 and not sink._broken
    assert [row.value for row in sink.rows()] == [b"%d" % i * 30 for i in accepted]


def test_an_append_tries_the_kept_buffer_before_it_accepts() -> None:
    sink = Sink(failures=fail(0, 1))
    sink.append(b"a")
    for _ in range(2):
        with pytest.raises(OSError, match="write"):
            sink._drain()
        assert (sink._pending_count, sink._broken) == (1, True)
    assert sink.append(b"b") == 1
    assert (sink._written_offset, sink._broken) == (1, False)
    assert [row.value for row in sink.rows()] == [b"a", b"b"]


def test_append_many_says_what_of_it_is_kept() -> None:
    sink = Sink(failures=fail(1))
    sink.append(b"before")
    with pytest.raises(OSError, match="write 1") as failed:
        sink.append_many([b"%d" % i * 100 for i in range(100)])
    kept = failed.value.offsets  # type: ignore[attr-defined]
    assert kept.start == 1 and 10 < len(kept) < 100 and sink._next_offset == kept.stop
    assert sink._dirty  # a thread has to try again
    assert [row.value for row in sink.rows()] == [b"before"] + [b"%d" % i * 100 for i in range(len(kept))]
    sink = Sink(failures=fail(0, 1))
    sink.append(b"a")
    with pytest.raises(OSError, match="write 0"):
        sink._drain()
    with pytest.raises(OSError, match="write 1"):
        sink.append_many([b"b"])
    assert sink._next_offset == 1  # broken: nothing accepted


def test_an_interrupt_is_a_failure_like_any_other() -> None:
    failures: Any = iter([KeyboardInterrupt(), None])
    sink = Sink(failures=failures)
    sink.append(b"a")
    with pytest.raises(KeyboardInterrupt):
        sink._drain()
    assert [row.value for row in sink.rows()] == [b"a"]


def test_discard() -> None:
    sink = Sink(failures=fail(*range(100)), next_offset=3)
    with pytest.raises(OSError, match="write"):
        fill(sink, 1000)
    pending = sink._pending_count
    assert pending > 20 and sink._discard() == pending
    assert (sink._pending_count, sink._next_offset, sink._broken, sink._opened_ms) == (0, 3, False, 0)
    sink.failures = None
    assert sink.append(b"again") == 3
    assert [row.value for row in sink.rows()] == [b"again"]
    assert sink._discard() == 0


def test_a_drain_whose_records_are_discarded_says_so() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            inside.set()
            assert go_on.wait(30)
            raise OSError(28, "full")

    sink, errors = Slow(), []
    sink.append(b"")
    threads = [threading.Thread(target=lambda: errors.append(outcome(sink._drain))) for _ in range(2)]
    threads[0].start()
    assert inside.wait(30)
    discarding = threading.Thread(target=sink._discard)
    discarding.start()
    threads[1].start()
    go_on.set()
    for thread in (*threads, discarding):
        thread.join(30)
    assert sink._pending_count == 0
    assert isinstance(errors[0], OSError) and len(errors) == 2
    assert errors[1] is None or "discarded" in str(errors[1]) or isinstance(errors[1], OSError)


# ---------------------------------------------------------------- levels


def test_fsync_returns_after_the_commit() -> None:
    sink = Sink(level=OS)
    sink.append(b"a")
    assert sink.append(b"b", durability="fsync") == 1
    assert sink.called("commit") == [(2, FSYNC)]
    assert sink._pending_count == 0
    assert sink.append_many([b"c", b"d"], durability="fsync") == range(2, 4)
    assert sink.called("commit") == [(2, FSYNC), (4, FSYNC)]


def test_interval_above_os_is_noted() -> None:
    sink = Sink(level=OS)
    sink.append(b"", durability="interval")
    sink.append_many([b""], durability="interval")
    sink.append(b"", durability="os")
    assert sink.called("commit") == [(1, INTERVAL), (2, INTERVAL)]
    sink = Sink(level=INTERVAL)
    for durability in ("os", "interval", None):
        sink.append(b"", durability=durability)
    assert sink.called("commit") == []


class Unsynced(Sink):
    """Writes what it commits if ``writes`` says so, and then fails."""

    writes = False

    def _commit(self, next_offset: int, level: int) -> None:
        if self.writes:
            self._drain()
        raise OSError(5, "disk")


def test_a_commit_that_fails_before_the_write_leaves_no_record() -> None:
    sink = Unsynced()
    sink.append(b"a")
    for _ in range(2):
        with pytest.raises(OSError, match="disk") as failed:
            sink.append(b"b", durability="fsync")
        assert not hasattr(failed.value, "offsets")
        with pytest.raises(OSError, match="disk"):
            sink.append_many([b"c"] * 3, durability="fsync")
        assert sink._dirty and (sink._pending_count, sink._next_offset) == (1, 1)
    assert sink.append_many([b"d"]) == range(1, 2)
    assert [row.value for row in sink.rows()] == [b"a", b"d"]


def test_a_commit_that_fails_behind_the_write_keeps_the_records() -> None:
    sink = Unsynced()
    sink.writes = True
    with pytest.raises(OSError, match="disk") as failed:
        sink.append_many([b"a", b"b"], durability="fsync")
    assert failed.value.offsets == range(2)  # type: ignore[attr-defined]
    assert [row.value for row in sink.rows()] == [b"a", b"b"]


@pytest.mark.parametrize("log_append_time", [False, True])
def test_what_other_calls_have_put_behind_keeps_its_offset(log_append_time: bool) -> None:
    """Records of a failed call in front of others: of the same batch, and batches of their own."""

    class Overtaken(Sink):
        then: Callable[[], object] = staticmethod(lambda: None)

        def _commit(self, next_offset: int, level: int) -> None:
            then, self.then = self.then, lambda: None
            then()
            raise OSError(5, "disk")

    sink = Overtaken(clock=at_now, log_append_time=log_append_time)
    sink.append(b"0", timestamp_ms=1000)
    sink.then = lambda: sink.append(b"2", timestamp_ms=2000)
    with pytest.raises(OSError, match="disk"):
        sink.append(b"taken back", timestamp_ms=3000, durability="fsync")
    sink.then = lambda: sink.append(b"5")
    with pytest.raises(OSError, match="disk"):
        sink.append_many([b"taken", b"back"], durability="fsync")
    sink.then = lambda: sink.append(b"8")
    with pytest.raises(OSError, match="disk"):
        raw(sink, encode_batch([b"taken", b"back"]), 2, durability="fsync")
    first, second, empty, _ = sink.batches()
    assert (first.base_offset, first.last_offset, first.max_timestamp) == (0, 2, NOW if log_append_time else 2000)
    assert (second.base_offset, second.last_offset) == (3, 5)
    assert (empty.base_offset, empty.last_offset, empty.max_timestamp) == (6, 7, -1)
    assert [(row.offset, row.value) for row in sink.rows()] == [(0, b"0"), (2, b"2"), (5, b"5"), (8, b"8")]


def test_fsync_only_is_ended_before_a_record_is_accepted() -> None:
    sink = Sink(level=FSYNC, fsync_only=True)
    sink.append(b"")
    assert not sink.called("end_fsync_only")
    sink.append(b"", durability="os")
    sink.append(b"", durability="os")
    assert sink.called("end_fsync_only") == [()]
    sink._configure(fsync_only=True)
    sink.append_many([b""], durability="interval")
    assert len(sink.called("end_fsync_only")) == 2

    class Stubborn(Sink):
        def _end_fsync_only(self) -> None:
            pass

    with pytest.raises(SystemError, match=r"_end_fsync_only\(\) leaves fsync_only set"):
        Stubborn(fsync_only=True).append(b"")

    class Failing(Sink):
        def _end_fsync_only(self) -> None:
            raise OSError(5, "disk")

    sink = Failing(fsync_only=True)
    with pytest.raises(OSError, match="disk"):
        sink.append(b"")
    assert sink._next_offset == 0


class Waiting(Sink):
    """At level fsync, with commits that do nothing until they are told to."""

    held = True

    def _commit(self, next_offset: int, level: int) -> None:
        self.calls.append(("commit", next_offset, level))
        if not self.held:
            self._drain()


def test_fsync_only_writes_groups_only() -> None:
    sink = Waiting(level=FSYNC, fsync_only=True)
    for _ in range(130):
        sink.append(b"x" * 100)
    assert sink.called("write") == []  # the next group may only be written after the last one's sync
    sink.held = False
    sink.append(b"last")
    assert sum(size for *_, size in sink.called("write")) <= 16_000

    sink = Waiting(level=FSYNC, fsync_only=True)
    with pytest.raises(SystemError, match=r"_commit\(\d+\) returned while offset 0 is not written"):
        fill(sink, 1000)
    assert sink._pending_count == 17 * 8  # batches of 917 bytes; one of 1,000 more would pass 16,000


@pytest.mark.parametrize("fsync_only", [False, True])
def test_append_many_commits_in_groups(fsync_only: bool) -> None:
    sink = Sink(level=FSYNC, fsync_only=fsync_only)
    values = [b"x" * 100] * 1000 + [b"L" * 40_000] + [b"y"] * 10
    assert sink.append_many(values) == range(1011)
    groups, size = [], 0
    for name, *numbers in sink.calls:
        if name == "write":
            size += numbers[2]
        else:
            groups.append(size)
            size = 0
    groups.append(size)
    assert sum(groups) == len(sink.out) and max(groups) > 40_000
    assert all(group <= 16_000 or 40_000 < group < 40_200 for group in groups)
    assert [row.value for row in sink.rows()] == values


def test_append_many_that_fails_between_groups() -> None:
    class Failing(Sink):
        def _commit(self, next_offset: int, level: int) -> None:
            if len(self.called("commit")) == 2:
                raise OSError(5, "disk")
            super()._commit(next_offset, level)

    sink = Failing(level=FSYNC)
    with pytest.raises(OSError, match="disk") as failed:
        sink.append_many([b"x" * 100] * 1000)
    kept = failed.value.offsets  # type: ignore[attr-defined]
    assert kept == range(sink._next_offset) and sink._written_offset < len(kept) < 1000


# ---------------------------------------------------------------- calls from within hooks


def test_a_write_may_not_wait_for_itself() -> None:
    errors: list[Exception | None] = []

    class Nested(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            errors.extend(map(outcome, (lambda: self.append_many([b""]), self._drain, self._discard)))

    sink = Nested()
    sink.append(b"a")
    sink._drain()
    assert [type(error) for error in errors] == [RuntimeError] * 3
    assert all("_write()" in str(error) for error in errors)


def test_a_commit_within_append_many_may_drain_but_not_append() -> None:
    errors: list[Exception | None] = []

    class Nested(Sink):
        def _commit(self, next_offset: int, level: int) -> None:
            if next_offset < 300:
                errors.extend(map(outcome, (lambda: self.append(b""), lambda: self.append_many([b""]))))
            self._drain()

    sink = Nested(level=FSYNC)
    sink.append_many([b"x" * 100] * 300)
    assert errors and all(type(error) is RuntimeError and "append_many()" in str(error) for error in errors)
    assert len(sink.rows()) == 300


def test_another_thread_may_commit_while_append_many_waits_for_it() -> None:
    class Group(Sink):
        """Commits are done by another thread, which drains while the appender waits and holds the append lock."""

        def _commit(self, next_offset: int, level: int) -> None:
            thread = threading.Thread(target=self._drain)
            thread.start()
            thread.join(30)
            assert not thread.is_alive() and self._written_offset >= next_offset

    sink = Group(level=FSYNC)
    other = threading.Thread(target=lambda: [sink.append(b"other") for _ in range(20)])
    other.start()
    sink.append_many([b"x" * 100] * 500)
    other.join(30)
    values = [row.value for row in sink.rows()]
    first = values.index(b"x" * 100)
    assert values[first : first + 500] == [b"x" * 100] * 500 and len(values) == 520


def test_appends_go_on_while_a_write_is_under_way() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            inside.set()
            assert go_on.wait(30)
            super()._write(batches, *numbers)

    sink = Slow()
    sink.append(b"first")
    drain = threading.Thread(target=sink._drain)
    drain.start()
    assert inside.wait(30)
    for i in range(300):  # eight full buffers, none of which waits for the writer
        sink.append(b"%03d" % i * 30)
    assert sink._written_offset == 0
    go_on.set()
    drain.join(30)
    assert len(sink.rows()) == 301


def test_a_full_queue_waits_for_the_writer() -> None:
    inside, go_on, pending = threading.Event(), threading.Event(), []

    class Slow(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            inside.set()
            assert go_on.wait(30)
            pending.append(self._pending_count)
            super()._write(batches, *numbers)

    sink = Slow()
    sink.append(b"first")
    threads = [threading.Thread(target=sink._drain), threading.Thread(target=fill, args=(sink, 5000))]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    bound = 1 + 15 * 4 * 8 + 4 * 8  # the first, 15 buffers behind it and the open one, of four batches of eight
    until(lambda: sink._pending_count == bound, "a full queue")
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert len(sink.rows()) == 5001 and max(pending) == bound


# ---------------------------------------------------------------- threads


@pytest.fixture
def switching() -> Iterator[None]:
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(was)


def persist(call: Callable[[], Any]) -> Any:
    """What the call returns, tried again while the disk is full; or the offsets of what it kept."""
    while True:
        try:
            return call()
        except OSError as error:
            if kept := getattr(error, "offsets", None):
                return kept


def ones(sink: Sink, key: bytes) -> None:
    for i in range(20_000):
        durability = "fsync" if i % 2000 == 0 else None
        persist(lambda i=i, durability=durability: sink.append(b"%d" % i, key, durability=durability))


def hundreds(sink: Sink, key: bytes, ranges: list[tuple[range, bytes, int]], *, as_raw: bool) -> None:
    for i in range(0, 4000, 100):
        values, keys = [b"%d" % n for n in range(i, i + 100)], [key] * 100
        data = encode_batch(zip(keys, values, strict=True)) if as_raw else b""
        call = partial(raw, sink, data, 100) if as_raw else partial(sink.append_many, values, keys)
        ranges.append((persist(call), key, i))


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("failing", [False, True])
def test_threads(failing: bool) -> None:
    """Four append, two append many, one appends raw, one drains: all there, each in its order, together what came together."""
    rng = random.Random(8)
    sink = Sink(failures=(OSError(28, "full") if failing and rng.random() < 0.05 else None for _ in itertools.count()), level=OS)
    ranges: list[tuple[range, bytes, int]] = []
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            persist(sink._drain)

    calls = [partial(ones, sink, b"one%d" % t) for t in range(4)]
    calls += [partial(hundreds, sink, b"many%d" % t, ranges, as_raw=t == 2) for t in range(3)]
    threads, flusher = [threading.Thread(target=call) for call in calls], threading.Thread(target=flush)
    for thread in (*threads, flusher):
        thread.start()
    for thread in threads:
        thread.join(120)
    stop.set()
    flusher.join(30)
    sink.failures = None
    rows = sink.rows()
    at = {row.offset: (row.key, row.value) for row in rows}
    assert list(at) == sorted(at)
    assert len(at) == len(rows) == 80_000 + sum(len(offsets) for offsets, _, _ in ranges)
    assert failing or list(at) == list(range(len(rows)))  # a failed call that others follow leaves its offsets empty
    for t in range(4):
        assert [row.value for row in rows if row.key == b"one%d" % t] == [b"%d" % i for i in range(20_000)]
    assert len(ranges) == 120
    for offsets, key, i in ranges:
        assert [at[offset] for offset in offsets] == [(key, b"%d" % n) for n in range(i, i + len(offsets))]
        assert failing or len(offsets) == 100


@pytest.mark.usefixtures("switching")
def test_threads_that_expect_an_offset() -> None:
    sink, won, lost = Sink(), [], []

    def contend(t: int) -> None:
        while len(won) < 2000:
            offset = sink._next_offset
            try:
                won.append((sink.append(b"%d" % t, expected_offset=offset), offset))
            except Rejected as rejected:
                lost.append(rejected.args)

    threads = [threading.Thread(target=contend, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(got == wanted for got, wanted in won)
    assert sorted(got for got, _ in won) == list(range(len(won)))
    assert all(reason == "expected_offset" and wanted < end for reason, wanted, end in lost)


@pytest.mark.usefixtures("switching")
def test_threads_and_groups() -> None:
    """At level fsync with fsync_only set, what is written between two syncs stays within a group, for appends of any thread."""
    lock = threading.Lock()

    class Synced(Sink):
        synced, unsynced, largest = 0, 0, 0

        def _write(self, batches: memoryview, base_offset: int, next_offset: int, now_ms: int) -> None:
            self.unsynced += len(batches)
            self.largest = max(self.largest, self.unsynced)
            super()._write(batches, base_offset, next_offset, now_ms)

        def _commit(self, next_offset: int, level: int) -> None:
            with lock:
                if self.synced < next_offset:
                    end = self._next_offset
                    self._drain()
                    self.synced, self.unsynced = end, 0

    sink = Synced(level=FSYNC, fsync_only=True)
    threads = [threading.Thread(target=lambda: [sink.append(b"x" * 500) for _ in range(500)]) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: [sink.append_many([b"y" * 100] * 300) for _ in range(5)]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sink.synced == sink._next_offset == 3000 == len(sink.rows())
    assert sink.largest <= 2 * 16_000  # a group, and what came in while it was cut off


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_never_waits_for_the_parents_threads() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            inside.set()
            assert go_on.wait(30)

    sink = Slow()
    sink.append(b"")
    thread = threading.Thread(target=sink._drain)
    thread.start()
    assert inside.wait(30)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        try:
            sink._drain()
        except RuntimeError as error:
            said.append(str(error))
        said.append(str(sink._discard()))
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    go_on.set()
    thread.join(30)
    said = json.loads(os.read(reader, 1000))
    os.close(reader)
    os.close(writer)
    assert "held a lock when this process was forked" in said[0] and said[1] == "1"


# ---------------------------------------------------------------- memory


def test_references_are_given_back() -> None:
    sink = Sink(failures=(OSError(28, "full") if n % 7 == 3 else None for n in itertools.count()))
    value, key, name = b"value" * 100, bytearray(b"key"), "header"
    headers = [(name, value)]
    before = [sys.getrefcount(o) for o in (value, key, name, headers)]
    for _ in range(2000):
        for call in (
            lambda: sink.append(value, key, headers=headers),
            lambda: sink.append_many([value, key], (key, value), headers=[headers, ()], timestamps_ms=[NOW, None]),
            lambda: sink.append(value, "bad"),  # type: ignore[arg-type]
            lambda: sink.append_many([value, 3], [key]),  # type: ignore[list-item]
            lambda: sink.append_many([value], headers=[[(name, value), (name, 3)]]),  # type: ignore[list-item]
            lambda: sink.append(value, key, expected_offset=0, headers=headers),
        ):
            with contextlib.suppress(OSError, TypeError, Rejected):
                call()
    del call
    gc.collect()
    assert [sys.getrefcount(o) for o in (value, key, name, headers)] == before
    key += b"x"  # nor is it exported


def test_nothing_grows_with_time() -> None:
    sink = Sink(failures=(OSError(28, "full") if n % 5 == 1 else None for n in itertools.count()))

    def work() -> None:
        for _ in range(300):
            with contextlib.suppress(OSError):
                sink.append(b"x" * 90, b"k", headers=[("n" * 300, b"v")])
                sink.append_many([b"y" * 50] * 30)
                raw(sink, encode_batch([b"z"]), 1)
                sink.append(b"", durability="fsync")
        sink.failures = None
        sink._drain()
        sink.out.clear()
        sink.calls.clear()
        sink.written_ms.clear()

    work()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        first = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            work()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - first < 20_000
    finally:
        tracemalloc.stop()


def test_idle_builders_hold_no_buffers() -> None:
    sinks = [Sink(batch_size=16_384, write_size=131_072) for _ in range(300)]
    tracemalloc.start()
    try:
        for sink in sinks:
            sink.append(b"x")
        assert tracemalloc.get_traced_memory()[0] > 280 * 131_072
        for sink in sinks:
            sink._drain()
        assert tracemalloc.get_traced_memory()[0] < 17 * 140_000 + 300 * 2000
    finally:
        tracemalloc.stop()


def test_a_builder_ends_with_records_pending() -> None:
    tracemalloc.start()
    try:
        for _ in range(200):
            sink = Sink(failures=fail(*range(100)), write_size=50_000)
            sink.append(b"x" * 40_000)
            with pytest.raises(OSError, match="write"):
                sink._drain()
        del sink
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 17 * 60_000
    finally:
        tracemalloc.stop()


def test_subclasses() -> None:
    class Slotted(BatchBuilder):
        __slots__ = ("__weakref__", "written")

        def _write(self, batches: memoryview, *numbers: int) -> None:
            self.written = len(batches)

    class WithDict(Slotted):
        pass

    for cls in (Slotted, WithDict):
        builder = cls(next_offset=0, leader_epoch=0, batch_size=100, write_size=100, group_size=100, clock=None)
        builder.append(b"x")
        builder._drain()
        assert builder.written == len(encode_batch([b"x"]))
        reference = weakref.ref(builder)
        del builder
        assert reference() is None


def test_a_cycle_through_the_clock_is_collected() -> None:
    class Timed(Sink):
        def __init__(self) -> None:
            super().__init__(clock=self.now)

        def now(self) -> int:
            return NOW

    timed = Timed()
    timed.append(b"")
    reference = weakref.ref(timed)
    del timed
    gc.collect()
    assert reference() is None


# ---------------------------------------------------------------- whatever comes

blobs = st.one_of(st.none(), st.just(b""), st.just(b"\0"), st.binary(max_size=300), st.integers(0, 3000).map(lambda n: b"\0" * n))
header_lists = st.lists(st.tuples(st.text(max_size=20), st.one_of(st.none(), st.binary(max_size=20))), max_size=4)
stamps = st.one_of(st.none(), st.integers(0, 2**63 - 1), st.integers(NOW - 10**6, NOW + 10**6))
records = st.tuples(blobs, blobs, header_lists, stamps)
steps = st.one_of(
    st.tuples(st.just("append"), records),
    st.tuples(st.just("many"), st.lists(records, max_size=30)),
    st.tuples(st.sampled_from(["drain", "fail", "heal", "discard"]), st.none()),
)


@given(st.lists(steps, max_size=40), st.integers(70, 3000), st.sampled_from([OS, INTERVAL, FSYNC]), st.booleans())
def test_a_model(history: list[tuple[str, Any]], batch_size: int, level: int, fsync_only: bool) -> None:
    """The builder against a list: what was accepted, and not discarded, is what comes out."""
    failing = False
    failures = (OSError(28) if failing else None for _ in itertools.count())
    sink = Sink(clock=at_now, batch_size=batch_size, level=level, fsync_only=fsync_only, failures=failures)
    model: list[Row] = []

    def accept(rows: list[Any], offsets: range) -> None:
        assert offsets.start == len(model)
        for value, key, headers, stamp in rows[: len(offsets)]:
            encoded = tuple((name.encode(), content) for name, content in headers)
            model.append(Row(len(model), NOW if stamp is None else stamp, key, value, encoded))

    for step, argument in history:
        try:
            if step == "append":
                value, key, headers, stamp = argument
                offset = sink.append(value, key, headers=headers, timestamp_ms=stamp)
                accept([argument], range(offset, offset + 1))
            elif step == "many":
                columns = list(zip(*argument, strict=True)) or [(), (), (), ()]
                accept(argument, sink.append_many(columns[0], columns[1], headers=columns[2], timestamps_ms=columns[3]))
            elif step == "drain":
                sink._drain()
            elif step == "discard":
                del model[sink._written_offset :]
                sink._discard()
            else:
                failing = step == "fail"
        except OSError as error:
            accept([argument] if step == "append" else argument or [], getattr(error, "offsets", range(len(model), len(model))))
        assert sink._next_offset == len(model)
    failing = False
    assert sink.rows() == model


@settings(max_examples=20, deadline=None)
@given(st.integers(2**20 - 20, 2**20 + 20), st.booleans())
def test_large_values(size: int, many: bool) -> None:
    sink = Sink()
    value = bytes(size)
    if many:
        sink.append_many([b"a", value, b"b"])
    else:
        for v in (b"a", value, b"b"):
            sink.append(v)
    assert [row.value for row in sink.rows()] == [b"a", value, b"b"]
