"""hot_builder.c, hot_append.c, hot_arguments.c, hot_buffer.c: records in, batches out, whatever fails in between."""

import array
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
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb._native._hot import FSYNC, INTERVAL, OS, BatchBuilder
from support.batches import Rec, encode_batch, encode_log
from support.builders import Rejected, Row, Sink, decode, place, until

NOW = 1_700_000_000_000


def at_now() -> int:
    return NOW


def fail(*tries: int) -> Iterator[Exception | None]:
    """Failures at the writes numbered, from 0."""
    return (OSError(28, f"write {n}") if n in tries else None for n in itertools.count())


# ---------------------------------------------------------------- one record after the other


def test_a_record_comes_out_as_it_went_in() -> None:
    sink = Sink(clock=at_now, next_offset=5, leader_epoch=7)
    assert sink.append(b"value", b"key") == 5
    assert sink.append(None) == 6
    assert sink.append(value=b"", key=b"", headers=[("a", b"1"), ("ü", None), ["b", bytearray(b"2")]], timestamp_ms=NOW - 10) == 7
    assert (sink._next_offset, sink._written_offset, sink._pending_count) == (8, 5, 3)
    (batch,) = sink.batches()
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.attributes) == (5, 7, 7, 0)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW)
    assert batch.rows == [
        Row(5, NOW, b"key", b"value"),
        Row(6, NOW, None, None),
        Row(7, NOW - 10, b"", b"", ((b"a", b"1"), ("ü".encode(), None), (b"b", b"2"))),
    ]
    assert (sink._written_offset, sink._pending_count, sink._opened_ms) == (8, 0, 0)
    assert sink.called("write") == [(5, 8, batch.size_bytes)]


@pytest.mark.parametrize("edge", [64 - 8, 8192 - 9, 2**20 - 10])
def test_lengths_around_where_their_varint_grows(edge: int) -> None:
    sink, rows = Sink(clock=at_now, batch_size=100_000), []
    for size in range(edge - 45, edge + 20):
        for key in (None, b"", b"k" * 20):
            for timestamp in (NOW, NOW - 1, NOW + 3_000_000, 0):
                offset = sink.append(b"x" * size, key, timestamp_ms=timestamp)
                rows.append(Row(offset, timestamp, key, b"x" * size))
        if sink._next_offset > 500 or edge > 10_000:
            sink._drain()
    assert sink.rows() == rows


def test_a_batch_is_as_full_as_can_be() -> None:
    rng = random.Random(3)
    for _ in range(30):
        sink = Sink(clock=at_now, batch_size=rng.randrange(100, 3000))
        limit = sink.append(b"") or 0  # a first record, so that the next has a delta
        for _ in range(200):
            sink.append(rng.randbytes(rng.randrange(400)), timestamp_ms=NOW + rng.randrange(10**6))
        batches = sink.batches()
        limit = max(len(b.rows) > 1 and b.size_bytes for b in batches)
        for batch, following in itertools.pairwise(batches):
            rows = [Rec(r.key, r.value, (), r.timestamp_ms) for r in [*batch.rows, following.rows[0]]]
            assert len(encode_batch(rows, base_timestamp=rows[0].timestamp_ms or 0)) > limit or len(batch.rows) == 1


def test_a_batch_ends_exactly_at_its_size() -> None:
    record = len(encode_batch([b"x" * 50])) - 61
    fits = Sink(clock=at_now, batch_size=61 + 3 * record)
    for _ in range(6):
        fits.append(b"x" * 50)
    assert [len(b.rows) for b in fits.batches()] == [3, 3]
    smaller = Sink(clock=at_now, batch_size=61 + 3 * record - 1)
    for _ in range(6):
        smaller.append(b"x" * 50)
    assert [len(b.rows) for b in smaller.batches()] == [2, 2, 2]


def test_a_large_record_has_a_batch_and_a_write_of_its_own() -> None:
    sink = Sink()
    sink.append(b"small")
    sink.append(b"L" * 9000)
    sink.append(b"after")
    assert [[len(row.value or b"") for row in b.rows] for b in sink.batches()] == [[5], [9000], [5]]
    assert [(base, following) for base, following, _ in sink.called("write")] == [(0, 1), (1, 2), (2, 3)]


def test_full_buffers_are_written_on_the_way() -> None:
    sink = Sink()
    for i in range(1000):
        sink.append(b"%d" % i * 20)
    sizes = [size for *_, size in sink.called("write")]
    assert len(sizes) > 10 and all(3000 < size <= 4000 for size in sizes)
    assert 0 < sink._pending_count < 100
    assert [row.value for row in sink.rows()] == [b"%d" % i * 20 for i in range(1000)]
    writes = sink.called("write")
    assert all(a[1] == b[0] for a, b in itertools.pairwise(writes)) and writes[0][0] == 0 and writes[-1][1] == 1000


def test_the_view_is_released_after_the_write() -> None:
    views = []

    class Keeper(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            views.append(batches)
            views.append(batches[5:])  # a view of it keeps the memory, but not for us

    sink = Keeper()
    sink.append(b"x" * 100)
    sink._drain()
    with pytest.raises(ValueError, match="released"):
        len(views[0])
    old = bytes(views[1])
    for _ in range(500):
        sink.append(b"y" * 100)
    assert views[1] == old  # its memory is not used again


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", r"value must be bytes-like or None, not str: encode it first, e.g. value.encode\(\)"),
        (5, r"value must be bytes-like or None, not int: serialize it first, e.g. json.dumps\(value\).encode\(\)"),
        ({"a": 1}, "value must be bytes-like or None, not dict"),
    ],
)
def test_a_value_that_is_no_bytes(value: Any, message: str) -> None:
    sink = Sink()
    with pytest.raises(TypeError, match=message):
        sink.append(value)
    with pytest.raises(TypeError, match=message.replace("value", "key", 1)):
        sink.append(b"", value)
    with pytest.raises(TypeError, match=message.replace("value", r"values\[1\]", 1)):
        sink.append_many([b"", value])
    with pytest.raises(TypeError, match=message.replace("value", r"keys\[0\]", 1)):
        sink.append_many([b""], [value])
    assert sink._next_offset == 0


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("a",)], r"headers\[0\] must be a pair \(str, bytes-like or None\), not tuple"),
        ([("a", b""), "ab"], r"headers\[1\] must be a pair .* not str"),
        ([(b"a", b"")], r"headers\[0\] .* not \(bytes, bytes\)"),
        ([("a", "b")], r"headers\[0\] .* not \(str, str\)"),
        ({"a": b"1"}, r"headers\[0\] .* not str"),
        (7, "not iterable"),
    ],
)
def test_headers_that_are_none(headers: Any, message: str) -> None:
    sink = Sink()
    with pytest.raises(TypeError, match=message):
        sink.append(b"", headers=headers)
    with pytest.raises(TypeError, match=message.replace(r"headers\[", r"headers\[0\]\[")):
        sink.append_many([b""], headers=[headers])
    assert sink._next_offset == 0


def test_arguments_are_named_and_counted() -> None:
    sink: Any = Sink()
    with pytest.raises(TypeError, match=r"append\(\) misses argument 'value'"):
        sink.append()
    with pytest.raises(TypeError, match="at most 2 positional arguments"):
        sink.append(b"", b"", ())
    with pytest.raises(TypeError, match="unexpected keyword argument 'partition'"):
        sink.append(b"", partition=1)
    with pytest.raises(TypeError, match="two values for argument 'key'"):
        sink.append(b"", b"", key=b"")
    with pytest.raises(TypeError, match="timestamp_ms must be an int, not float"):
        sink.append(b"", timestamp_ms=1.5)
    with pytest.raises(OverflowError, match="timestamp_ms=9223372036854775808 is outside"):
        sink.append(b"", timestamp_ms=2**63)
    with pytest.raises(ValueError, match="durability must be 'os', 'interval' or 'fsync', not 'disk'"):
        sink.append(b"", durability="disk")
    with pytest.raises(ValueError, match="not 2"):
        sink.append(b"", durability=2)
    with pytest.raises(ValueError, match="expected_offset=-1 is negative"):
        sink.append(b"", expected_offset=-1)
    assert sink._next_offset == 0
    made_at_run_time = "".join(["time", "stamp_ms"])
    assert sink.append(b"", **{made_at_run_time: NOW}, durability="".join(["o", "s"])) == 0


def test_anything_contiguous_is_bytes() -> None:
    sink = Sink()
    values = [bytearray(b"abcd"), memoryview(b"abcd"), array.array("B", b"abcd"), memoryview(b"xabcdx")[1:5], type("B", (bytes,), {})(b"abcd")]
    for value in values:
        sink.append(value, value)
    sink.append_many(values, values, headers=[[("h", value)] for value in values])
    for row in sink.rows():
        assert (row.key, row.value) == (b"abcd", b"abcd")
    with pytest.raises(BufferError, match="contiguous"):
        sink.append(memoryview(b"abcdef")[::2])


def test_header_names_that_are_no_utf8_go_back_as_they_came() -> None:
    sink = Sink()
    sink.append(b"", headers=[("a\udc80\udcff", b"")])
    sink.append(b"", headers=[("n" * 3000, b"v" * 3000)])  # more than the stack holds
    assert [row.headers for row in sink.rows()] == [((b"a\x80\xff", b""),), ((b"n" * 3000, b"v" * 3000),)]


def test_a_builder_that_was_not_set_up() -> None:
    class Lazy(BatchBuilder):
        def __init__(self) -> None:
            pass

    lazy = Lazy()
    for call in (lambda: lazy.append(b""), lambda: lazy.append_many([b""]), lambda: lazy._append_raw(bytearray(1), 1, 1)):
        with pytest.raises(RuntimeError, match="__init__ was not called"):
            call()
    lazy._drain()
    assert lazy._discard() == 0
    options: dict[str, Any] = {"next_offset": 0, "leader_epoch": 0, "batch_size": 10, "write_size": 10, "group_size": 10, "clock": None}
    for name in ("next_offset", "batch_size", "write_size", "group_size"):
        with pytest.raises(ValueError, match=f"{name}=-1 is not in"):
            BatchBuilder(**options | {name: -1})
    builder = BatchBuilder(**options)
    with pytest.raises(RuntimeError, match="twice"):
        builder.__init__(**options)  # type: ignore[misc]
    builder.append(b"")
    with pytest.raises(NotImplementedError, match="BatchBuilder does not define _write"):
        builder._drain()


# ---------------------------------------------------------------- time


def test_the_clock() -> None:
    before = time.time_ns() // 1_000_000
    sink = Sink()
    sink.append(b"")
    (row,) = sink.rows()
    assert before - 20 <= row.timestamp_ms <= time.time_ns() // 1_000_000
    ticks = iter(range(100, 200))
    sink = Sink(clock=lambda: next(ticks))
    sink.append(b"")
    sink.append_many([b""] * 2)
    sink.append(b"")
    assert [row.timestamp_ms for row in sink.rows()] == [100, 101, 101, 102]
    broken: Any = Sink(clock=lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.append(b"")
    wrong: Any = Sink(clock=lambda: "noon")
    with pytest.raises(TypeError, match=r"clock\(\) must be an int, not str"):
        wrong.append(b"")


def test_timestamps_within_bounds() -> None:
    sink = Sink(clock=at_now, timestamp_before_max_ms=100, timestamp_after_max_ms=10)
    for timestamp in (NOW - 100, NOW, NOW + 10):
        sink.append(b"", timestamp_ms=timestamp)
    for timestamp in (NOW - 101, NOW + 11, 0, -1, 2**63 - 1):
        with pytest.raises(Rejected) as rejected:
            sink.append(b"", timestamp_ms=timestamp)
        assert rejected.value.args == ("timestamp", timestamp, NOW, 100, 10)
        with pytest.raises(Rejected):
            sink.append_many([b"", b""], timestamps_ms=[None, timestamp])
    sink._configure(timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1)
    for timestamp in (0, 2**63 - 1):
        sink.append(b"", timestamp_ms=timestamp)
    with pytest.raises(Rejected):
        sink.append(b"", timestamp_ms=-1)
    (batch,) = sink.batches()
    assert [row.timestamp_ms for row in batch.rows] == [NOW - 100, NOW, NOW + 10, 0, 2**63 - 1]
    assert batch.max_timestamp == 2**63 - 1
    assert sink.max_timestamps == [2**63 - 1]


def test_log_append_time() -> None:
    ticks = iter(range(100, 200))
    sink = Sink(clock=lambda: next(ticks), timestamp_after_max_ms=0)
    sink.append(b"own", timestamp_ms=50)
    sink._configure(log_append_time=True)
    sink.append(b"a", timestamp_ms=5)
    sink.append(b"b", timestamp_ms=10**15)
    sink.append_many([b"c"], timestamps_ms=[7])
    with pytest.raises(TypeError):
        sink.append(b"", timestamp_ms="x")  # type: ignore[arg-type]
    first, second, third = sink.batches()
    assert (first.attributes, first.max_timestamp) == (0, 50)
    assert (second.attributes, second.max_timestamp, len(second.rows)) == (8, 102, 2)
    assert (third.attributes, third.max_timestamp) == (8, 103)


# ---------------------------------------------------------------- what is refused


def test_reasons_to_refuse() -> None:
    sink = Sink(next_offset=7)
    record = len(encode_batch([b"x" * 100]))
    sink._configure(message_size_max=record)
    assert sink.append(b"x" * 100) == 7
    for call in (lambda: sink.append(b"x" * 101), lambda: sink.append_many([b"x", b"x" * 101])):
        with pytest.raises(Rejected) as rejected:
            call()
        assert rejected.value.args == ("size", record + 1, record)
    for call in (lambda: sink.append(b"", expected_offset=7), lambda: sink.append_many([b""], expected_offset=7)):
        with pytest.raises(Rejected) as rejected:
            call()
        assert rejected.value.args == ("expected_offset", 7, 8)
    assert sink.append(b"", expected_offset=8) == 8
    assert sink.append_many([b"", b""], expected_offset=9) == range(9, 11)
    sink._configure(keys_required=True)
    for call in (lambda: sink.append(b""), lambda: sink.append_many([b"", b""], [b"", None]), lambda: sink.append_many([b""])):
        with pytest.raises(Rejected) as rejected:
            call()
        assert rejected.value.args == ("key",)
    assert sink.append(None, b"tombstone") == 11
    sink._configure(gate=3)
    raw = bytearray(encode_batch([b""]))
    for call in (lambda: sink.append(b"", b""), lambda: sink.append_many([]), lambda: sink._append_raw(raw, len(raw), 1)):
        with pytest.raises(Rejected) as rejected:
            call()
        assert rejected.value.args == ("gate", 3)
    assert len(sink.rows()) == 5
    assert all(batch.size_bytes <= record for batch in decode(sink.out))  # max.message.bytes bounds batches too


def test_a_reject_that_does_not() -> None:
    class Meek(Sink):
        def _reject(self, reason: str, *numbers: int) -> None:
            pass

    with pytest.raises(SystemError, match=r"_reject\(gate\) did not raise"):
        Meek(gate=1).append(b"")


def test_sizes_beyond_int32_are_refused_before_memory_is_taken() -> None:
    huge = memoryview(bytearray(1)).cast("B")
    sink = Sink(message_size_max=1000)
    with pytest.raises(Rejected, match="size"):
        sink.append(bytes(5_000_000), huge)


def test_configure_checks_what_it_takes() -> None:
    sink: Any = Sink()
    for name, value in {"level": 3, "message_size_max": -1, "batch_size": 0, "timestamp_after_max_ms": -1}.items():
        with pytest.raises(ValueError, match=f"{name}={value} is not in"):
            sink._configure(**{name: value})
    with pytest.raises(TypeError):
        sink._configure(3)
    sink.append(b"")
    with pytest.raises(RuntimeError, match="cannot be set to 9: 1 records are pending"):
        sink._next_offset = 9
    sink._drain()
    sink._next_offset = 9
    assert (sink.append(b""), sink._written_offset) == (9, 9)
    with pytest.raises(AttributeError):
        del sink._next_offset
    with pytest.raises(AttributeError):
        del sink.leader_epoch


def test_new_settings_begin_a_new_batch() -> None:
    sink = Sink(batch_size=1000, write_size=1000)
    sink.append(b"a")
    sink._configure(batch_size=100_000)  # more than the open buffer holds
    for _ in range(100):
        sink.append(b"b" * 300)
    sink.leader_epoch = 4
    sink.append(b"c")
    batches = sink.batches()
    assert [(b.leader_epoch, len(b.rows)) for b in batches] == [(0, 1), (0, 100), (4, 1)]
    assert sink.leader_epoch == 4


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


def test_writes_that_do_not_wait_wake_nobody() -> None:
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
    assert sink._dirty  # somebody has to try again
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
        for _ in range(1000):
            sink.append(b"x" * 100)
    pending = sink._pending_count
    assert pending > 20 and sink._discard() == pending
    assert (sink._pending_count, sink._next_offset, sink._broken, sink._opened_ms) == (0, 3, False, 0)
    sink.failures = None
    assert sink.append(b"again") == 3
    assert [row.value for row in sink.rows()] == [b"again"]
    assert sink._discard() == 0


def test_a_drain_whose_records_are_discarded_says_so() -> None:
    class Discarding(Sink):
        """Somebody else discards between a failed write and the next try."""

        def _reject(self, reason: str, *numbers: int) -> None:
            raise Rejected(reason, *numbers)

    inside, go_on = threading.Event(), threading.Event()

    class Slow(Discarding):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            inside.set()
            assert go_on.wait(30)
            raise OSError(28, "full")

    sink, errors = Slow(), []

    def drain() -> None:
        try:
            sink._drain()
        except Exception as error:
            errors.append(error)

    sink.append(b"")
    threads = [threading.Thread(target=drain) for _ in range(2)]
    threads[0].start()
    assert inside.wait(30)
    discarding = threading.Thread(target=sink._discard)
    discarding.start()
    threads[1].start()
    go_on.set()
    for thread in (*threads, discarding):
        thread.join(30)
    assert sink._pending_count == 0
    assert errors and all(isinstance(error, OSError | RuntimeError) for error in errors)


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


def test_a_commit_that_fails_keeps_the_record() -> None:
    class Unsynced(Sink):
        def _commit(self, next_offset: int, level: int) -> None:
            raise OSError(5, "disk")

    sink = Unsynced()
    sink.append(b"a")
    with pytest.raises(OSError, match="disk") as failed:
        sink.append(b"b", durability="fsync")
    assert failed.value.offsets == range(1, 2)  # type: ignore[attr-defined]
    assert sink._dirty and sink._pending_count == 2
    with pytest.raises(OSError, match="disk") as failed:
        sink.append_many([b"c"] * 3, durability="fsync")
    assert failed.value.offsets == range(2, 5)  # type: ignore[attr-defined]
    assert [row.value for row in sink.rows()] == [b"a", b"b", b"c", b"c", b"c"]


def test_strict_is_weakened_before_a_record_is_accepted() -> None:
    sink = Sink(level=FSYNC, strict=True)
    sink.append(b"")
    assert not sink.called("weaken")
    sink.append(b"", durability="os")
    sink.append(b"", durability="os")
    assert sink.called("weaken") == [()]
    sink._configure(strict=True)
    sink.append_many([b""], durability="interval")
    assert len(sink.called("weaken")) == 2

    class Stubborn(Sink):
        def _weaken(self) -> None:
            pass

    with pytest.raises(SystemError, match=r"_weaken\(\) leaves strict set"):
        Stubborn(strict=True).append(b"")

    class Failing(Sink):
        def _weaken(self) -> None:
            raise OSError(5, "disk")

    sink = Failing(strict=True)
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


def test_strict_writes_groups_only() -> None:
    sink = Waiting(level=FSYNC, strict=True)
    for _ in range(130):
        sink.append(b"x" * 100)
    assert sink.called("write") == []  # the next group may only be written after the last one's sync
    sink.held = False
    sink.append(b"last")
    assert sum(size for *_, size in sink.called("write")) <= 16_000

    sink = Waiting(level=FSYNC, strict=True)
    with pytest.raises(SystemError, match=r"_commit\(\d+\) returned while offset 0 is not written"):
        for _ in range(1000):
            sink.append(b"x" * 100)
    assert sink._pending_count == 17 * 8  # batches of 917 bytes; one of 1,000 more would pass 16,000


@pytest.mark.parametrize("strict", [False, True])
def test_append_many_commits_in_groups(strict: bool) -> None:
    sink = Sink(level=FSYNC, strict=strict)
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


# ---------------------------------------------------------------- append_many


def test_append_many_is_written_when_it_returns() -> None:
    sink = Sink(clock=at_now)
    sink.append(b"one")
    assert sink.append_many((b"%d" % i for i in range(1000)), keys=[None if i % 3 else b"k" for i in range(1000)]) == range(1, 1001)
    assert sink._pending_count == 0
    batches = sink.batches()
    assert len(batches[0].rows) == 1  # the open batch was closed first
    assert all(900 < batch.size_bytes <= 1000 for batch in batches[1:-1])
    rows = [row for batch in batches for row in batch.rows]
    assert rows[1:] == [Row(i + 1, NOW, None if i % 3 else b"k", b"%d" % i) for i in range(1000)]


def test_append_many_with_everything() -> None:
    sink = Sink(clock=at_now)
    headers = [[("h", b"%d" % i)] * (i % 4) for i in range(100)]
    stamps = [None if i % 5 == 0 else NOW - i for i in range(100)]
    sink.append_many([b""] * 100, [b"k"] * 100, headers=iter(headers), timestamps_ms=stamps)
    for i, row in enumerate(sink.rows()):
        assert row.headers == ((b"h", b"%d" % i),) * (i % 4)
        assert row.timestamp_ms == (NOW if i % 5 == 0 else NOW - i)


def test_append_many_of_nothing() -> None:
    sink = Sink(next_offset=4)
    sink.append(b"open")
    assert sink.append_many([]) == range(5, 5)
    assert sink.append_many([], durability="fsync", expected_offset=5) == range(5, 5)
    assert not sink.called("commit")
    with pytest.raises(Rejected):
        sink.append_many([], expected_offset=4)


def test_append_many_takes_all_or_nothing() -> None:
    sink: Any = Sink()
    for what, call in {
        "2 values but 1 keys": lambda: sink.append_many([b"", b""], [b""]),
        "2 values but 3 headers": lambda: sink.append_many([b"", b""], headers=[(), (), ()]),
        "2 values but 0 timestamps_ms": lambda: sink.append_many([b"", b""], timestamps_ms=[]),
    }.items():
        with pytest.raises(ValueError, match=what):
            call()
    with pytest.raises(TypeError, match="a timestamp_ms must be an int, not str"):
        sink.append_many([b"", b""], timestamps_ms=[1, "2"])
    with pytest.raises(TypeError, match=r"headers\[1\]\[0\] must be a pair"):
        sink.append_many([b"", b""], headers=[(), ["x"]])
    with pytest.raises(TypeError, match="not iterable"):
        sink.append_many(5)
    with pytest.raises(ZeroDivisionError):
        sink.append_many(1 // (i - 3) for i in range(9) if i != 3 or 1 // 0)
    assert sink._next_offset == 0


def test_the_callers_tuple_is_left_alone() -> None:
    inner = bytearray(b"abc")
    values = (b"a", inner, None, inner)
    sink = Sink()
    sink.append_many(values, values)
    assert values[1] is inner and values[3] is inner
    inner += b"d"  # no export is left behind
    assert [row.value for row in sink.rows()] == [b"a", b"abc", None, b"abc"]


def test_values_may_change_their_own_list() -> None:
    values: list[Any] = [b"a", b"b"]

    class Clock:
        def __call__(self) -> int:
            values.clear()
            return NOW

    sink = Sink(clock=Clock())
    assert sink.append_many(values) == range(2)


# ---------------------------------------------------------------- raw batches


def raw(sink: Sink, data: bytes, span: int, **options: Any) -> range:
    buffer = sink._buffer(len(data))
    buffer[: len(data)] = data
    return sink._append_raw(buffer, len(data), span, **options)


def test_raw_batches_get_their_offsets_and_epoch() -> None:
    sink = Sink(next_offset=10, leader_epoch=3)
    sink.append(b"open")
    data = encode_log([[b"a", b"b"], [Rec(value=b"c", offset_delta=4)], [b"d"]], base_offset=77)
    assert raw(sink, data, 8) == range(11, 19)
    assert sink._next_offset == 19 and sink._pending_count == 0
    assert sink.append(b"after") == 19
    sink._drain()
    first = len(encode_batch([b"open"]))
    assert bytes(sink.out[first : first + len(data)]) == place(data, 11, 3)
    assert [(base, following) for base, following, _ in sink.called("write")] == [(10, 11), (11, 19), (19, 20)]


def test_raw_batches_say_their_max_timestamp() -> None:
    sink = Sink()
    data = encode_batch([Rec(timestamp_ms=5)], base_timestamp=5) + encode_batch([Rec(timestamp_ms=9)], base_timestamp=9)
    raw(sink, data + encode_batch([Rec(timestamp_ms=7)], base_timestamp=7), 3)
    assert sink.max_timestamps == [9]


def test_raw_batches_that_are_not_what_was_said() -> None:
    sink: Any = Sink()
    data = encode_batch([b"a", b"b"])
    for size, span in ((len(data), 3), (len(data) - 1, 2), (30, 2), (0, 0), (-1, 2)):
        with pytest.raises(SystemError):
            sink._append_raw(bytearray(data), size, span)
    with pytest.raises(SystemError):
        sink._append_raw(bytearray(data), len(data) + 1, 2)
    with pytest.raises(TypeError, match="buffer must be a bytearray, not bytes"):
        sink._append_raw(data, len(data), 2)
    with pytest.raises(ValueError, match="negative"):
        sink._buffer(-1)
    with pytest.raises(Rejected, match="expected_offset"):
        raw(sink, data, 2, expected_offset=1)
    assert raw(sink, data, 2, expected_offset=0, durability="fsync") == range(2)
    assert sink.called("commit") == [(2, FSYNC)]


def test_raw_batches_that_cannot_be_written_are_kept() -> None:
    sink = Sink(failures=fail(0))
    data = encode_batch([b"a", b"b"])
    with pytest.raises(OSError, match="write 0") as failed:
        raw(sink, data, 2)
    assert failed.value.offsets == range(2)  # type: ignore[attr-defined]
    assert raw(sink, data, 2) == range(2, 4)
    assert [row.value for row in sink.rows()] == [b"a", b"b"] * 2


def test_raw_batches_at_fsync_come_in_groups() -> None:
    sink = Sink(level=FSYNC, strict=True, group_size=16_000)
    data = encode_batch([b"x" * 9000])
    for i in range(4):
        assert raw(sink, data, 1) == range(i, i + 1)
    assert sink.called("commit") == [(i + 1, FSYNC) for i in range(4)]


def test_many_raw_batches_of_an_unwritable_log() -> None:
    full = True
    sink = Sink(failures=(OSError(28, "full") if full else None for _ in itertools.count()))
    kept = 0
    for _ in range(100):
        with pytest.raises(OSError, match="full") as failed:
            raw(sink, encode_batch([b"r"]), 1)
        kept += len(getattr(failed.value, "offsets", ()))
    full = False
    assert len(sink.rows()) == kept == 1


# ---------------------------------------------------------------- calls from within hooks


def test_a_write_may_not_wait_for_itself() -> None:
    errors: list[Exception] = []

    class Nested(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            for call in (lambda: self.append_many([b""]), self._drain, self._discard):
                try:
                    call()
                except Exception as error:
                    errors.append(error)

    sink = Nested()
    sink.append(b"a")
    sink._drain()
    assert [type(error) for error in errors] == [RuntimeError] * 3
    assert all("_write()" in str(error) for error in errors)


def test_a_commit_within_append_many_may_drain_but_not_append() -> None:
    errors: list[Exception] = []

    class Nested(Sink):
        def _commit(self, next_offset: int, level: int) -> None:
            if next_offset < 300:
                for call in (lambda: self.append(b""), lambda: self.append_many([b""])):
                    try:
                        call()
                    except Exception as error:
                        errors.append(error)
            self._drain()

    sink = Nested(level=FSYNC)
    sink.append_many([b"x" * 100] * 300)
    assert errors and all(type(error) is RuntimeError and "append_many()" in str(error) for error in errors)
    assert len(sink.rows()) == 300


def test_another_thread_may_commit_while_append_many_waits_for_it() -> None:
    class Group(Sink):
        """Commits are done by another thread, which drains while the appender waits and holds the gate."""

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
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            inside.set()
            assert go_on.wait(30)
            super()._write(batches, *numbers)

    sink, done = Slow(), threading.Event()
    sink.append(b"first")
    drain = threading.Thread(target=sink._drain)
    drain.start()
    assert inside.wait(30)

    def run() -> None:
        for i in range(5000):
            sink.append(b"%d" % i * 30)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: sink._pending_count > 500, "records pending")
    seen = -1
    while seen != sink._pending_count:  # until it stands
        seen = sink._pending_count
        time.sleep(0.05)
    assert not done.is_set() and seen * 130 < 20 * 4000  # bounded memory
    go_on.set()
    thread.join(30)
    drain.join(30)
    assert len(sink.rows()) == 5001


# ---------------------------------------------------------------- threads


@pytest.fixture
def switching() -> Iterator[None]:
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(was)


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("failing", [False, True])
def test_threads(failing: bool) -> None:
    """Four append, two append many, one appends raw, one drains: all there, each in its order, together what came together."""
    rng = random.Random(8)
    sink = Sink(failures=(OSError(28, "full") if failing and rng.random() < 0.05 else None for _ in itertools.count()), level=OS)
    ranges: list[tuple[range, bytes, int]] = []
    stop = threading.Event()

    def persist(call: Any) -> Any:
        while True:
            try:
                return call()
            except OSError as error:
                if kept := getattr(error, "offsets", None):
                    return kept

    def ones(t: int) -> None:
        for i in range(5000):
            durability = "fsync" if i % 500 == 0 else None
            persist(lambda i=i, d=durability: sink.append(b"%d" % i, b"one%d" % t, durability=d))

    def many(t: int) -> None:
        for i in range(40):
            ranges.append((persist(lambda i=i: sink.append_many([b"%d" % (100 * i + j) for j in range(100)], [b"many%d" % t] * 100)), b"many%d" % t, i))

    def raws(t: int) -> None:
        for i in range(40):
            data = encode_batch([(b"many%d" % t, b"%d" % (100 * i + j)) for j in range(100)])
            ranges.append((persist(lambda data=data: raw(sink, data, 100)), b"many%d" % t, i))

    def flush() -> None:
        while not stop.is_set():
            persist(sink._drain)

    threads = [threading.Thread(target=f, args=(t,)) for t, f in enumerate([ones] * 4 + [many] * 2 + [raws])]
    flusher = threading.Thread(target=flush)
    for thread in (*threads, flusher):
        thread.start()
    for thread in threads:
        thread.join(120)
    stop.set()
    flusher.join(30)
    sink.failures = None
    rows = sink.rows()
    assert [row.offset for row in rows] == list(range(len(rows)))
    by_key = defaultdict(list)
    for row in rows:
        by_key[row.key].append(row.value)
    for t in range(4):
        assert by_key[b"one%d" % t] == [b"%d" % i for i in range(5000)]
    for offsets, key, i in ranges:
        got = [(row.key, row.value) for row in rows[offsets.start : offsets.stop]]
        assert got == [(key, b"%d" % (100 * i + j)) for j in range(len(offsets))]
        assert failing or len(offsets) == 100


@pytest.mark.usefixtures("switching")
def test_threads_that_expect_an_offset() -> None:
    sink, won = Sink(), []

    def contend(t: int) -> None:
        while len(won) < 2000:
            offset = sink._next_offset
            try:
                won.append((sink.append(b"%d" % t, expected_offset=offset), offset))
            except Rejected as rejected:
                assert rejected.args[0] == "expected_offset" and rejected.args[2] > offset

    threads = [threading.Thread(target=contend, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(got == wanted for got, wanted in won)
    assert sorted(got for got, _ in won) == list(range(len(won)))


@pytest.mark.usefixtures("switching")
def test_threads_and_groups() -> None:
    """At level fsync with strict set, what is written between two syncs stays within a group, whoever appends."""
    lock = threading.Lock()

    class Synced(Sink):
        synced, unsynced, largest = 0, 0, 0

        def _write(self, batches: memoryview, base_offset: int, next_offset: int, max_timestamp: int) -> None:
            self.unsynced += len(batches)
            self.largest = max(self.largest, self.unsynced)
            super()._write(batches, base_offset, next_offset, max_timestamp)

        def _commit(self, next_offset: int, level: int) -> None:
            with lock:
                if self.synced < next_offset:
                    end = self._next_offset
                    self._drain()
                    self.synced, self.unsynced = end, 0

    sink = Synced(level=FSYNC, strict=True)
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
    for i in range(2000):
        for call in (
            lambda: sink.append(value, key, headers=headers),
            lambda: sink.append_many([value, key], (key, value), headers=[headers, ()], timestamps_ms=[NOW, None]),
            lambda: sink.append(value, "bad"),  # type: ignore[arg-type]
            lambda: sink.append_many([value, 3], [key]),  # type: ignore[list-item]
            lambda: sink.append_many([value], headers=[[(name, value), (name, 3)]]),  # type: ignore[list-item]
            lambda: sink.append(value, key, expected_offset=0, headers=headers),
        ):
            try:
                call()
            except (OSError, TypeError, Rejected):
                pass
    del call
    gc.collect()
    assert [sys.getrefcount(o) for o in (value, key, name, headers)] == before
    key += b"x"  # nor is it exported


def test_nothing_grows_with_time() -> None:
    sink = Sink(failures=(OSError(28, "full") if n % 5 == 1 else None for n in itertools.count()))

    def work() -> None:
        for i in range(300):
            try:
                sink.append(b"x" * 90, b"k", headers=[("n" * 300, b"v")])
                sink.append_many([b"y" * 50] * 30)
                raw(sink, encode_batch([b"z"]), 1)
                sink.append(b"", durability="fsync")
            except OSError:
                pass
        sink.failures = None
        sink._drain()
        sink.out.clear()
        sink.calls.clear()
        sink.max_timestamps.clear()

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


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40), st.integers(70, 3000), st.sampled_from([OS, INTERVAL, FSYNC]), st.booleans())
def test_a_model(history: list[tuple[str, Any]], batch_size: int, level: int, strict: bool) -> None:
    """The builder against a list: what was accepted, and not discarded, is what comes out."""
    failing = False
    sink = Sink(clock=at_now, batch_size=batch_size, level=level, strict=strict, failures=(OSError(28) if failing else None for _ in itertools.count()))
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
