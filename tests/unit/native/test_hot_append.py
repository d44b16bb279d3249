"""hot_append.c, hot_arguments.c: what may be appended, what is refused, and how it comes out."""

import array
import itertools
import random
import sys
import threading
import time
from typing import Any

import pytest

from logdb._native._hot import FSYNC, OS, BatchBuilder
from logdb.codec.convert import check_incoming
from support.batches import Rec, encode_batch, encode_log
from support.builders import NOW, Rejected, Row, Sink, at_now, decode, fail, place, raw
from support.waiting import until

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
    for size in range(edge - 45, edge + 20, 1 if edge < 10_000 else 4):
        for key in (None, b"", b"k" * 20):
            for timestamp in (NOW, NOW - 1, NOW + 3_000_000, 0):
                offset = sink.append(b"x" * size, key, timestamp_ms=timestamp)
                rows.append(Row(offset, timestamp, key, b"x" * size))
    assert sink.rows() == rows


def test_a_batch_is_as_full_as_can_be() -> None:
    rng = random.Random(3)
    for limit in rng.sample(range(100, 3000), 30):
        sink = Sink(clock=at_now, batch_size=limit)
        for _ in range(200):
            sink.append(rng.randbytes(rng.randrange(400)), timestamp_ms=NOW + rng.randrange(10**6))
        for batch, following in itertools.pairwise(sink.batches()):
            assert batch.size_bytes <= limit or len(batch.rows) == 1
            longer = [Rec(r.key, r.value, (), r.timestamp_ms) for r in [*batch.rows, following.rows[0]]]
            assert len(encode_batch(longer, base_timestamp=batch.base_timestamp)) > limit


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

    class Keeping(Sink):
        def _write(self, batches: memoryview, *numbers: int) -> None:
            views.append(batches)
            views.append(batches[5:])  # a view of it keeps the memory, but not for us

    sink = Keeping()
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
    with pytest.raises(TypeError, match=message.replace("value", "key")):
        sink.append(b"", value)
    with pytest.raises(TypeError, match=message.replace("value", r"values\[1\]", 1)):
        sink.append_many([b"", value])
    with pytest.raises(TypeError, match=message.replace("value", "key").replace("key", r"keys\[0\]", 1)):
        sink.append_many([b""], [value])
    assert sink._next_offset == 0


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("a",)], r"headers\[0\] must be a pair \(str, bytes-like or None\), not tuple"),
        ([("a", b""), "ab"], r"headers\[1\] must be a pair .* not str"),
        ([(b"a", b"")], r"headers\[0\] .* not \(bytes, bytes\)"),
        ([("a", "b")], r"headers\[0\] .* not \(str, str\): encode the value first"),
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


def test_a_dict_of_headers_names_its_items() -> None:
    sink = Sink()
    with pytest.raises(TypeError, match=r"^headers must be pairs .* not a dict: use its items\(\)"):
        sink.append(b"", headers={"a": b"1"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^headers\[1\] must be pairs .* not a dict"):
        sink.append_many([b"", b""], headers=[(), {"a": b"1"}])  # type: ignore[list-item]
    sink.append(b"", headers={"a": b"1"}.items())
    assert sink._next_offset == 1


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
    with pytest.raises(ValueError, match="durability='disk': must be os, interval or fsync"):
        sink.append(b"", durability="disk")
    with pytest.raises(ValueError, match="durability=2"):
        sink.append(b"", durability=2)
    with pytest.raises(ValueError, match="expected_offset=-1 is negative"):
        sink.append(b"", expected_offset=-1)
    assert sink._next_offset == 0
    keyword, level = (bytes(text).decode() for text in (b"timestamp_ms", b"os"))  # made at run time: not interned
    assert sink.append(b"", **{keyword: NOW}, durability=level) == 0


def test_anything_contiguous_is_bytes() -> None:
    sink = Sink()
    subclass = type("Sub", (bytes,), {})
    values = [bytearray(b"abcd"), memoryview(b"abcd"), array.array("B", b"abcd"), memoryview(b"xabcdx")[1:5], subclass(b"abcd")]
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
    for call in (
        lambda: lazy.append(b""),
        lambda: lazy.append_many([b""]),
        lambda: lazy._append_raw(bytearray(1), 1, 1),
        lambda: lazy._append_usual(b"", None),
    ):
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
    assert [row.timestamp_ms for row in sink.rows()] == [100, 101, 101, 103]  # the write of the second and third asked, too
    assert (sink.now_ms(), sink.end_offset) == (105, sink._next_offset)
    broken: Any = Sink(clock=lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.append(b"")
    with pytest.raises(ZeroDivisionError):
        broken.now_ms()
    wrong: Any = Sink(clock=lambda: "noon")
    with pytest.raises(TypeError, match=r"clock\(\) must be an int, not str"):
        wrong.append(b"")


def test_timestamps_within_bounds() -> None:
    sink = Sink(clock=at_now, timestamp_before_max_ms=100, timestamp_after_max_ms=10)
    for timestamp in (NOW - 100, NOW, NOW + 10, -1):  # -1: none
        sink.append(b"", timestamp_ms=timestamp)
    for timestamp in (NOW - 101, NOW + 11, 0, -2, -(2**63), 2**63 - 1):
        with pytest.raises(Rejected) as rejected:
            sink.append(b"", timestamp_ms=timestamp)
        assert rejected.value.args == ("timestamp", timestamp, NOW, 100, 10)
        with pytest.raises(Rejected):
            sink.append_many([b"", b""], timestamps_ms=[None, timestamp])
    sink._configure(timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1)
    for timestamp in (0, 2**63 - 1, -(2**62)):
        sink.append(b"", timestamp_ms=timestamp)
    (batch,) = sink.batches()
    assert [row.timestamp_ms for row in batch.rows] == [NOW - 100, NOW, NOW + 10, -1, 0, 2**63 - 1, -(2**62)]
    assert batch.max_timestamp == 2**63 - 1


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
    sink._configure(refusing=3)
    raw = bytearray(encode_batch([b""]))
    for call in (lambda: sink.append(b"", b""), lambda: sink.append_many([]), lambda: sink._append_raw(raw, len(raw), 1)):
        with pytest.raises(Rejected) as rejected:
            call()
        assert rejected.value.args == ("refusing", 3)
    assert len(sink.rows()) == 5
    assert all(batch.size_bytes <= record for batch in decode(sink.out))  # max.message.bytes bounds batches too


def test_a_reject_that_does_not() -> None:
    class Meek(Sink):
        def _reject(self, reason: str, *numbers: int) -> None:
            pass

    with pytest.raises(SystemError, match=r"_reject\(refusing\) did not raise"):
        Meek(refusing=1).append(b"")


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


def test_a_write_is_told_the_time() -> None:
    ticks = iter(range(100, 200))
    sink = Sink(clock=lambda: next(ticks))
    raw(sink, encode_batch([b"a"]), 1)
    sink.append(b"b")
    sink._drain()
    assert sink.written_ms == [100, 102]
    sink = Sink(clock=lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        raw(sink, encode_batch([b"a"]), 1)
    assert sink._pending_count == 0


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


def test_placed_batches_keep_their_offsets_and_epochs() -> None:
    sink = Sink(next_offset=10, leader_epoch=3)
    sink.append(b"open")
    data = encode_log([[b"a", b"b"], [Rec(value=b"c", offset_delta=4)]], base_offset=11, leader_epoch=7)
    assert raw(sink, data, 7, expected_offset=11, placed=True) == range(11, 18)
    assert sink.append(b"after") == 18
    sink._drain()
    first = len(encode_batch([b"open"]))
    assert bytes(sink.out[first : first + len(data)]) == data
    assert [(base, following) for base, following, _ in sink.called("write")] == [(10, 11), (11, 18), (18, 19)]


def test_placed_batches_that_do_not_follow() -> None:
    sink: Any = Sink(next_offset=10)
    data = encode_log([[b"a"], [b"b"]], base_offset=10)
    with pytest.raises(SystemError, match="begin"):
        raw(sink, data, 2, placed=True)
    for wrong in (data[: len(data) // 2] * 2, encode_log([[b"a"], [b"b"]], base_offset=11)):
        with pytest.raises(SystemError, match="announced"):
            raw(sink, wrong, 2, expected_offset=10, placed=True)
    with pytest.raises(Rejected, match="expected_offset"):
        raw(sink, encode_log([[b"a"], [b"b"]], base_offset=11), 2, expected_offset=11, placed=True)
    assert raw(sink, data, 2, expected_offset=10, placed=True) == range(10, 12)


def test_a_function_is_alone() -> None:
    sink = Sink(next_offset=5)
    sink.append(b"before")
    order: list[Any] = []
    began, go_on = threading.Event(), threading.Event()

    def function(next_offset: int) -> str:
        began.set()
        go_on.wait()
        sink._drain()
        order.append((next_offset, sink._written_offset, sink._next_offset))
        with pytest.raises(RuntimeError, match="same thread"):
            sink.append_many([b"from within"])
        return "result"

    results: list[Any] = []
    alone = threading.Thread(target=lambda: results.append(sink._alone(function)))
    alone.start()
    began.wait()
    others = [threading.Thread(target=lambda: order.append(sink.append(b"after"))) for _ in range(3)]
    for other in others:
        other.start()
    go_on.set()
    for thread in (alone, *others):
        thread.join()
    assert results == ["result"] and order[0] == (6, 6, 6) and sorted(order[1:]) == [6, 7, 8]
    with pytest.raises(ZeroDivisionError):
        sink._alone(lambda next_offset: next_offset // 0)
    assert sink.append(b"still") == 9


def test_raw_batches_that_cannot_be_written_are_withdrawn() -> None:
    sink = Sink(failures=fail(0))
    data = encode_batch([b"a", b"b"])
    with pytest.raises(OSError, match="write 0") as failed:
        raw(sink, data, 2)
    assert not hasattr(failed.value, "offsets")
    assert raw(sink, data, 2) == range(2)
    assert [row.value for row in sink.rows()] == [b"a", b"b"]


def test_raw_batches_at_fsync_come_in_groups() -> None:
    sink = Sink(level=FSYNC, fsync_only=True, group_size=16_000)
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
    assert len(sink.rows()) == kept == 0


# ---------------------------------------------------------------- admit


def test_raw_batches_are_admitted_once_their_offsets_are_known() -> None:
    sink, asked = Sink(next_offset=5, clock=at_now), list[tuple[int, int]]()
    sink.append(b"open")
    data = encode_batch([b"a", b"b"])
    assert raw(sink, data, 2, admit=lambda *told: asked.append(told)) == range(6, 8)
    assert asked == [(6, NOW)]
    assert raw(sink, data, 2, admit=None) == range(8, 10)


def test_what_is_not_admitted_is_not_appended() -> None:
    def refuse(_first: int, _now_ms: int) -> None:
        raise KeyError

    sink = Sink()
    data = encode_batch([b"a"])
    with pytest.raises(KeyError):
        raw(sink, data, 1, admit=refuse)
    with pytest.raises(TypeError):
        raw(sink, data, 1, admit=7)
    assert (sink._next_offset, sink.out) == (0, b"")
    assert raw(sink, data, 1) == range(1)
    asked: list[tuple[int, int]] = []
    with pytest.raises(Rejected, match="expected_offset"):
        raw(sink, data, 1, expected_offset=7, admit=lambda *told: asked.append(told))
    assert asked == []


def test_while_one_is_asked_for_no_other_thread_gets_the_offsets() -> None:
    sink = Sink()
    inside, others = threading.Event(), list[int]()

    def append_other() -> None:
        inside.wait()
        offset = sink.append(b"other")
        others.append(offset)

    def is_in_append() -> bool:
        frame = sys._current_frames()[other.ident or 0]
        return frame.f_code is append_other.__code__ and frame.f_lineno == frame.f_code.co_firstlineno + 2

    other = threading.Thread(target=append_other)
    other.start()

    def admit(first: int, _now_ms: int) -> None:
        inside.set()
        until(lambda: is_in_append() or not other.is_alive(), "the other thread comes to the append")
        assert (first, others, sink._next_offset) == (0, [], 0)

    assert raw(sink, encode_batch([b"a"]), 1, admit=admit) == range(1)
    other.join()
    assert others == [1]


def test_who_is_asked_may_not_append_himself() -> None:
    sink = Sink()
    with pytest.raises(RuntimeError, match="same thread"):
        raw(sink, encode_batch([b"a"]), 1, admit=lambda _first, _now_ms: sink.append(b"x"))
    assert sink._next_offset == 0


# ---------------------------------------------------------------- usual batches

USUAL = encode_batch([Rec(b"k", b"v"), Rec(None, b"w", (("h", b"1"),))], base_timestamp=NOW)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: array.array("b", data)])
@pytest.mark.parametrize("size", [10, 40_000])
def test_a_usual_batch_is_placed_and_written(kind: Any, size: int) -> None:
    sink = Sink(clock=at_now, next_offset=5, leader_epoch=7, group_size=100_000)
    sink.append(b"open")
    sink._drain()
    before, batch = len(sink.out), encode_batch([b"a", b"b" * size], base_offset=3, leader_epoch=2, base_timestamp=NOW)
    assert sink._append_usual(kind(batch), None) == range(6, 8)
    assert sink.out[before:] == place(batch, 6, 7)
    assert sink._pending_count == 0


@pytest.mark.parametrize("level", [OS, FSYNC])
def test_a_usual_batch_is_committed_as_the_log_s_level_asks(level: int) -> None:
    sink = Sink(clock=at_now, level=level)
    assert sink._append_usual(USUAL, None) == range(2)
    assert sink.called("commit") == [(2, FSYNC)] * (level == FSYNC)


@pytest.mark.parametrize(
    ("batches", "options"),
    [
        (b"", {}),
        (USUAL[:60], {}),
        (USUAL[:-1], {}),
        (USUAL + b"\0", {}),
        (USUAL + USUAL, {}),
        ("no bytes", {}),
        (memoryview(USUAL)[::2], {}),
        (encode_batch([b"a"], attributes=1, base_timestamp=NOW), {}),
        (encode_batch([b"a"], attributes=8, base_timestamp=NOW), {}),
        (encode_batch([b"a"], attributes=16, base_timestamp=NOW), {}),
        (encode_batch([b"a"], attributes=32, base_timestamp=NOW), {}),
        (encode_batch([b"a"], base_timestamp=NOW, record_count=2), {}),
        (encode_batch([b"a"], base_timestamp=NOW, record_count=0), {}),
        (encode_batch([b"a", b"b"], base_timestamp=NOW, last_offset_delta=2), {}),
        (encode_batch([], base_timestamp=NOW), {}),
        (encode_batch([b"a"], base_timestamp=NOW - 11), {"timestamp_before_max_ms": 10}),
        (encode_batch([b"a"], base_timestamp=NOW, producer_id=1, producer_epoch=0, base_sequence=0), {}),
        (encode_batch([b"a"], base_timestamp=NOW + 11), {"timestamp_after_max_ms": 10}),
        (USUAL, {"keys_required": True}),
        (USUAL, {"message_size_max": len(USUAL) - 1}),
        (USUAL, {"message_size_max": 0}),
        (USUAL, {"log_append_time": True}),
        (USUAL, {"refusing": 1}),
        (USUAL, {"refusing": -1}),
        (encode_batch([b"a" * 16_000], base_timestamp=NOW), {"message_size_max": 1 << 20}),  # longer than a group
    ],
)
def test_other_batches_are_not_appended_as_usual_ones(batches: Any, options: dict[str, Any]) -> None:
    sink = Sink(clock=at_now, **{"message_size_max": 1 << 20} | options)
    assert sink._append_usual(batches, None) is None
    assert (sink._next_offset, sink._pending_count, sink.calls) == (0, 0, [])
    sink._configure(timestamp_after_max_ms=10, message_size_max=len(USUAL), keys_required=False, log_append_time=False, refusing=0)
    assert sink._append_usual(USUAL, None) == range(2)
    assert sink._append_usual(encode_batch([b"a"], base_timestamp=NOW + 10), None) == range(2, 3)


def test_no_changed_byte_gets_into_the_log_with_a_usual_batch() -> None:
    """Offset and leader epoch are replaced; all else is checked."""
    sink = Sink(clock=at_now)
    for at, value in itertools.product(range(len(USUAL)), (0, 1, 2, 127, 128, 255)):
        changed = USUAL[:at] + bytes((value,)) + USUAL[at + 1 :]
        if changed != USUAL and sink._append_usual(changed, None) is not None:
            assert at < 8 or 12 <= at < 16
            check_incoming(bytearray(changed), keys_required=False, size_bytes_max=1 << 20, decompressed_size_bytes_max=1 << 20)
    for batch in sink.batches():
        assert [row.value for row in batch.rows] == [b"v", b"w"]


@pytest.mark.parametrize("stored_ms", [-1, NOW - 1, 2**63 - 1])
@pytest.mark.parametrize("size", [1, 20_000])
def test_a_usual_batch_gets_the_max_timestamp_of_its_records(stored_ms: int, size: int) -> None:
    """Some clients leave it unset; a producer's state gets the right one too."""
    sink, asked = Sink(clock=at_now, group_size=100_000), []
    given = {"base_timestamp": NOW, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    batch = encode_batch([b"a", b"b" * size], max_timestamp=stored_ms, **given)
    assert sink._append_usual(batch, lambda *one: not asked.append(one)) == range(2)
    assert sink.out == place(encode_batch([b"a", b"b" * size], **given), 0, 0)
    assert asked[0][4] == NOW


@pytest.mark.parametrize("timestamp_ms", [-1, -62_135_596_800_000, -(2**63)])
def test_a_usual_batch_may_be_older_than_1970(timestamp_ms: int) -> None:
    sink = Sink(clock=at_now)
    assert sink._append_usual(encode_batch([b"a"], base_timestamp=timestamp_ms), None) == range(1)
    assert [row.timestamp_ms for batch in sink.batches() for row in batch.rows] == [timestamp_ms]


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_producer_s_batch_is_usual_where_it_is_admitted(answer: bool | None) -> None:
    sink, asked = Sink(clock=at_now, next_offset=5), []

    def admit(*batch: int) -> Any:
        asked.append(batch)
        assert sink._next_offset == 5
        return answer

    batch = encode_batch([b"a", b"b"], base_timestamp=NOW - 3, producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1)
    assert sink._append_usual(batch, admit) == (range(5, 7) if answer else None)
    assert asked == [(2**40, 7, 2**31 - 1, 2, NOW - 3, 5, NOW)]
    assert sink._next_offset == (7 if answer else 5)
    assert sink._append_usual(encode_batch([b"a"], base_timestamp=NOW, producer_id=1, producer_epoch=-1, base_sequence=0), admit) is None
    assert len(asked) == 1
    assert sink._append_usual(USUAL, admit) is not None
    assert len(asked) == 1


def test_an_admission_that_raises_appends_nothing() -> None:
    sink = Sink(clock=at_now)
    batch = encode_batch([b"a"], base_timestamp=NOW, producer_id=1, producer_epoch=0, base_sequence=0)
    with pytest.raises(ZeroDivisionError):
        sink._append_usual(batch, lambda *_: 1 // 0)
    assert sink._next_offset == 0
    assert sink._append_usual(USUAL, None) == range(2)


def test_a_usual_batch_whose_write_fails_is_withdrawn() -> None:
    sink = Sink(clock=at_now, failures=fail(0))
    with pytest.raises(OSError, match="write 0"):
        sink._append_usual(USUAL, None)
    assert sink._pending_count == 0
    assert sink._append_usual(USUAL, None) == range(2)
    assert [row.value for row in sink.rows()] == [b"v", b"w"]


def test_wrong_arguments_of_a_usual_append() -> None:
    sink: Any = Sink()
    with pytest.raises(TypeError, match="takes 2 arguments, 1 were given"):
        sink._append_usual(USUAL)
    with pytest.raises(ZeroDivisionError):
        Sink(clock=lambda: 1 // 0)._append_usual(USUAL, None)


def test_a_record_has_at_most_100_000_headers() -> None:
    sink = Sink(message_size_max=1 << 20)
    sink.append(b"", headers=[("h", b"")] * 100_000)
    for refused in (lambda many: sink.append(b"", headers=many), lambda many: sink.append_many([b""], headers=[many])):
        with pytest.raises(ValueError, match="a record with 100001 headers: must be at most 100000"):
            refused([("h", b"")] * 100_001)
