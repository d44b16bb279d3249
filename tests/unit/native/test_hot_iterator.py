"""hot_iterator.c: records out of chunks, whatever the chunks are."""

import gc
import itertools
import random
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb._native._hot import Positions, RecordIterator
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log
from support.builders import Sink

END = 2**63 - 1


def read(*chunks: Any, offset: int = 0, end_offset: int = END) -> RecordIterator:
    return RecordIterator(lambda offset, end_offset: chunks, offset, end_offset, "t", 0)


def rows(iterator: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in iterator]


LOG = encode_log([[b"0", b"1"], [b"2"], [b"3", b"4", b"5"]])


# ---------------------------------------------------------------- what it yields


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("end_offset", [0, 1, 3, 4, 6, 7])
def test_records_in_the_range(offset: int, end_offset: int) -> None:
    assert [r.value for r in read(LOG, offset=offset, end_offset=end_offset)] == [b"%d" % i for i in range(offset, min(end_offset, 6))]


def test_the_source_is_told_the_range_and_left_at_its_end() -> None:
    asked = []

    def source(offset: int, end_offset: int) -> Iterator[bytes]:
        asked.append((offset, end_offset))
        yield LOG
        raise AssertionError("the last record was there")

    assert len(list(RecordIterator(source, 2, 6, "t", 0))) == 4
    assert asked == [(2, 6)]
    assert list(RecordIterator(source, 3, 3, "t", 0)) == []
    assert asked == [(2, 6)]  # an empty range is not asked about


def test_its_repr_is_what_is_left() -> None:
    iterator = read(LOG, offset=1, end_offset=6)
    assert repr(iterator) == "<RecordIterator t-0 [1, 6)>"
    next(iterator)
    assert repr(iterator) == "<RecordIterator t-0 [2, 6)>"
    assert len(list(iterator)) == 4
    assert repr(iterator) == "<RecordIterator t-0 ended at 6>"


def test_chunks_of_any_kind() -> None:
    batches = [encode_batch([b"a"]), encode_batch([b"b"], base_offset=1), encode_batch([b"c"], base_offset=2)]
    chunks = [batches[0], b"", bytearray(batches[1]), memoryview(b"xx" + batches[2])[2:]]
    assert [r.value for r in read(*chunks)] == [b"a", b"b", b"c"]
    with pytest.raises(TypeError):
        next(read("text"))
    with pytest.raises(TypeError):
        next(RecordIterator(lambda offset, end: 5, 0, END, "t", 0))  # type: ignore[arg-type,return-value]


def test_what_is_skipped_and_what_is_not() -> None:
    control = encode_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=1, attributes=16 | 32, producer_id=5)
    transactional = encode_batch([b"t"], base_offset=2, attributes=16, producer_id=5)
    empty = encode_batch([], base_offset=3, record_count=0, last_offset_delta=4)
    compacted = encode_batch([Rec(value=b"x", offset_delta=2), Rec(value=b"y", offset_delta=5)], base_offset=8, last_offset_delta=9)
    after = encode_batch([b"z"], base_offset=18)
    log = encode_batch([b"0"]) + control + transactional + empty + compacted + after
    got = [(r.offset, r.value) for r in read(log)]
    assert got == [(0, b"0"), (2, b"t"), (10, b"x"), (13, b"y"), (18, b"z")]
    for offset in range(20):
        assert [(r.offset, r.value) for r in read(log, offset=offset)] == [g for g in got if g[0] >= offset]


def test_log_append_time_is_the_batchs() -> None:
    data = encode_batch([Rec(timestamp_ms=5), Rec(timestamp_ms=90)], attributes=8, max_timestamp=1234)
    assert [r.timestamp_ms for r in read(data)] == [1234, 1234]
    data = encode_batch([Rec(timestamp_ms=BASE_TIMESTAMP - 5), Rec(timestamp_ms=2**62)])
    assert [r.timestamp_ms for r in read(data)] == [BASE_TIMESTAMP - 5, 2**62]


def test_offsets_near_the_end_of_the_world() -> None:
    data = encode_batch([b"a", b"b"], base_offset=2**63 - 3)
    assert [r.offset for r in read(data)] == [2**63 - 3, 2**63 - 2]
    with pytest.raises(ValueError, match="no batch can be at offset"):
        list(read(encode_batch([b"a", b"b", b"c"], base_offset=2**63 - 2)))
    with pytest.raises(ValueError, match="no batch can be at offset -1"):
        list(read(encode_batch([b"a"], base_offset=-1)))


def test_arguments() -> None:
    with pytest.raises(ValueError, match="offset=-1 is negative"):
        RecordIterator(lambda *_: (), -1, 0, "t", 0)
    with pytest.raises(TypeError, match="positions must be Positions or None, not int"):
        RecordIterator(lambda *_: (), 0, 0, "t", 0, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        RecordIterator(lambda *_: (), 0, 0, b"t", 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        RecordIterator(lambda *_: (), 0, 0, "t", "0")  # type: ignore[arg-type]


# ---------------------------------------------------------------- holding and letting go


def test_a_chunk_is_let_go_before_the_next_is_asked_for() -> None:
    buffer = bytearray()
    batches = [encode_batch([b"x" * size], base_offset=i) for i, size in enumerate((10, 5000, 3))]

    def source(offset: int, end_offset: int) -> Iterator[bytearray]:
        for batch in batches:
            buffer[:] = batch  # a resize: BufferError if a view of it is held
            yield buffer

    assert [len(r.value or b"") for r in RecordIterator(source, 0, END, "t", 0)] == [10, 5000, 3]
    iterator = RecordIterator(source, 0, END, "t", 0)
    next(iterator)
    with pytest.raises(BufferError):
        buffer.clear()
    del iterator
    buffer.clear()


def test_at_the_end_everything_is_dropped() -> None:
    class Source:
        def __init__(self) -> None:
            self.closed = False

        def __call__(self, offset: int, end_offset: int) -> Iterator[bytes]:
            try:
                yield LOG
                yield b""
            finally:
                self.closed = True

    for how in (list, lambda i: next(i) and i.__reduce__ and None, lambda i: [next(i) for _ in range(6)] and next(i, None)):
        source = Source()
        reference, iterator = weakref.ref(source), RecordIterator(source, 0, 6, "t", 0)
        how(iterator)
        if how is not list and next(iterator, None) is not None:
            del iterator  # left in the middle
        assert source.closed
        del source
        assert reference() is None


def test_a_cycle_is_collected() -> None:
    class Owner:
        def read(self, offset: int, end_offset: int) -> Iterator[bytes]:
            yield LOG

    owner: Any = Owner()
    owner.iterator = RecordIterator(owner.read, 0, END, "t", 0)
    next(owner.iterator)
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None


def test_an_exception_of_the_source_ends_it() -> None:
    def source(offset: int, end_offset: int) -> Iterator[bytes]:
        yield LOG
        raise OSError(5, "disk")

    iterator = RecordIterator(source, 0, END, "t", 0)
    assert len(list(itertools.islice(iterator, 6))) == 6
    with pytest.raises(OSError, match="disk"):
        next(iterator)
    assert next(iterator, None) is None

    def unmade(offset: int, end_offset: int) -> Iterator[bytes]:
        raise OSError(5, "closed")

    iterator = RecordIterator(unmade, 0, END, "t", 0)
    with pytest.raises(OSError, match="closed"):
        next(iterator)
    assert next(iterator, None) is None


def test_two_threads_do_not_get_in_at_once() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def source(offset: int, end_offset: int) -> Iterator[bytes]:
        inside.set()
        assert go_on.wait(30)
        yield LOG

    iterator, got = RecordIterator(source, 0, END, "t", 0), []
    thread = threading.Thread(target=lambda: got.append(next(iterator)))
    thread.start()
    assert inside.wait(30)
    with pytest.raises(ValueError, match="in use by another thread"):
        next(iterator)
    go_on.set()
    thread.join(30)
    assert [r.value for r in (*got, *iterator)] == [b"%d" % i for i in range(6)]


def test_a_source_that_asks_its_own_iterator() -> None:
    def source(offset: int, end_offset: int) -> Iterator[bytes]:
        next(iterator)
        yield LOG

    iterator = RecordIterator(source, 0, END, "t", 0)
    with pytest.raises(ValueError, match="in use"):
        next(iterator)


def test_threads_share_the_records() -> None:
    chunks = [encode_batch([b"x"] * 100, base_offset=100 * i) for i in range(200)]
    iterator, got = read(*chunks), []
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work() -> None:
        while True:
            try:
                record = next(iterator, None)
            except ValueError:
                continue
            if record is None:
                return
            got.append(record.offset)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    sys.setswitchinterval(was)
    assert sorted(got) == list(range(20_000))


# ---------------------------------------------------------------- bytes that lie


def test_batches_that_overrun_their_chunk() -> None:
    first = len(encode_batch([b"0", b"1"]))
    whole = {first, first + len(encode_batch([b"2"]))}
    for size in set(range(1, len(LOG))) - whole:
        iterator = read(LOG[:size])
        with pytest.raises(ValueError, match=r"(a batch overruns its chunk|a chunk ends in the header of a batch) at offset"):
            list(iterator)
        assert next(iterator, None) is None


def test_compressed_batches_do_not_come_here() -> None:
    with pytest.raises(ValueError, match="a compressed batch at offset 7"):
        list(read(encode_batch([b"a"], base_offset=7, codec=4)))


def test_records_that_contradict_their_batch() -> None:
    whole = encode_batch([Rec(b"k", b"v" * 30, (("h", b"1"),))] * 3)
    with pytest.raises(ValueError, match="a record contradicts its batch at offset 0"):
        list(read(encode_batch([b"a"], record_count=2)))
    with pytest.raises(ValueError, match="contradicts"):
        list(read(encode_batch([Rec(value=b"a", offset_delta=9)], last_offset_delta=8)))
    rng = random.Random(4)
    for _ in range(3000):  # whatever the bytes: records or ValueError, and never a byte from elsewhere
        bad = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            for record in read(bytes(bad)):
                assert (record.value or b"") in bytes(bad) and (record.key or b"") in bytes(bad)
                assert repr(record)
        except ValueError:
            pass


# ---------------------------------------------------------------- the first record by its position


class File:
    """A file in memory; says what was read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.reads = data, 0
        self.answer: Any = None

    def _pread(self, size_bytes: int, position: int) -> bytes:
        self.reads += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.data[position : position + size_bytes] if self.answer is None else self.answer


def pointed(data: bytes, base: int = 1000) -> tuple[File, Positions]:
    file, positions, at = File(b"\xff" * base + data), Positions(), 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12]) + 12
        positions.add(file, base + at, data[at : at + size])
        at += size
    return file, positions


def unasked(offset: int, end_offset: int) -> Iterator[bytes]:
    raise AssertionError("the source was asked")
    yield b""


def test_a_known_record_needs_no_source() -> None:
    log = encode_log([[Rec(b"k", b"0", (("h", b"1"),)), b"1"], [b"2"], [Rec(timestamp_ms=BASE_TIMESTAMP - 9), b"4", b"5"]], leader_epoch=3)
    expected = list(read(log))
    file, positions = pointed(log)
    for i, record in enumerate(expected):
        assert next(RecordIterator(unasked, i, END, "t", 0, positions)) == record
    assert file.reads == 6
    assert next(RecordIterator(unasked, 3, 3, "t", 0, positions), None) is None
    assert file.reads == 6


def test_after_the_known_record_the_source_goes_on() -> None:
    asked = []

    def source(offset: int, end_offset: int) -> Iterator[bytes]:
        asked.append((offset, end_offset))
        yield LOG

    file, positions = pointed(LOG)
    iterator = RecordIterator(source, 1, 5, "t", 0, positions)
    assert [next(iterator).value for _ in range(1)] == [b"1"]
    assert asked == []
    assert [r.value for r in iterator] == [b"2", b"3", b"4"]
    assert asked == [(2, 5)] and file.reads == 1


@pytest.mark.parametrize(
    "answer",
    [b"", b"short", OSError(5, "disk"), ValueError("closed"), None.__class__, bytearray(b"x"), 5],
)
def test_whatever_is_wrong_with_the_read_the_source_tells(answer: Any) -> None:
    file, positions = pointed(LOG)
    file.answer = answer
    assert [r.value for r in RecordIterator(lambda *_: (LOG,), 4, END, "t", 0, positions)] == [b"4", b"5"]
    assert file.reads == 1


def test_bytes_that_moved_are_not_served() -> None:
    log = encode_log([[b"%03d" % i for i in range(50)]])
    file, positions = pointed(log)
    record = (len(log) - 61) // 50
    file.data = file.data[:1061] + file.data[1061 + record :] + bytes(record)  # one record further
    for offset in range(50):
        assert next(RecordIterator(lambda *_: (log,), offset, END, "t", 0, positions)).value == b"%03d" % offset


def test_an_interrupt_is_none_of_the_source() -> None:
    file, positions = pointed(LOG)
    file.answer = KeyboardInterrupt()
    iterator = RecordIterator(unasked, 4, END, "t", 0, positions)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)


def test_log_append_time_by_position() -> None:
    _, positions = pointed(encode_batch([Rec(timestamp_ms=5), Rec(timestamp_ms=90)], attributes=8, max_timestamp=1234))
    assert next(RecordIterator(unasked, 0, END, "t", 0, positions)).timestamp_ms == 1234


def test_a_read_that_asks_its_own_iterator() -> None:
    class Nested(File):
        def _pread(self, size_bytes: int, position: int) -> bytes:
            with pytest.raises(ValueError, match="in use"):
                next(iterator)
            return super()._pread(size_bytes, position)

    positions = Positions()
    positions.add(Nested(LOG), 0, LOG[: int.from_bytes(LOG[8:12]) + 12])
    iterator = RecordIterator(unasked, 1, END, "t", 0, positions)
    assert next(iterator).value == b"1"


# ---------------------------------------------------------------- whatever comes

recs = st.builds(
    Rec,
    key=st.one_of(st.none(), st.binary(max_size=30)),
    value=st.one_of(st.none(), st.binary(max_size=200), st.just(b"\0")),
    headers=st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3).map(tuple),
    timestamp_ms=st.one_of(st.integers(0, 2**62), st.just(BASE_TIMESTAMP)),
    offset_delta=st.none(),
)


@settings(deadline=None)
@given(st.lists(st.lists(recs, min_size=1, max_size=8), min_size=1, max_size=8), st.integers(0, 70), st.integers(0, 70), st.data())
def test_round_trip(batches: list[list[Rec]], offset: int, end_offset: int, data: st.DataObject) -> None:
    """Written by the plain encoder and by the builder: the same records, in any chunks, by position too."""
    all_recs = [rec for batch in batches for rec in batch]
    expected = [(i, r.timestamp_ms, r.key, r.value, r.headers) for i, r in enumerate(all_recs)][offset:end_offset]
    log = encode_log(batches)
    ends = list(itertools.accumulate(len(encode_batch(batch)) for batch in batches))
    cuts = sorted({0, len(log), *data.draw(st.lists(st.sampled_from(ends), max_size=4))})
    chunks = [log[a:b] for a, b in itertools.pairwise(cuts)]
    assert rows(read(*chunks, offset=offset, end_offset=end_offset)) == expected
    sink = Sink(batch_size=300)
    for rec in all_recs:
        sink.append(rec.value, rec.key, headers=rec.headers, timestamp_ms=rec.timestamp_ms)
    sink._drain()
    assert rows(read(bytes(sink.out), offset=offset, end_offset=end_offset)) == expected
    _, positions = pointed(bytes(sink.out))
    for row in expected:
        assert rows([next(RecordIterator(unasked, row[0], END, "t", 0, positions))]) == [row]


# ---------------------------------------------------------------- many at once, and where it is


def values(records: Iterable[Any]) -> list[bytes]:
    return [record.value for record in records]


@pytest.mark.parametrize("counts", [[6], [7], [1] * 8, [2, 3, 5], [10**12], [0, 6, 0]])
def test_take_makes_the_same_of_them_as_iterating(counts: list[int]) -> None:
    iterator, taken = read(LOG), []
    for count in counts:
        some = iterator.take(count)
        assert len(some) == min(count, 6 - len(taken))
        taken += some
    assert [(r.offset, r.value) for r in taken] == [(r.offset, r.value) for r in read(LOG)]
    assert (iterator.take(1), list(iterator), iterator.exhausted) == ([], [], True)


def test_take_of_more_than_it_reserves_places_for() -> None:
    log = encode_log([[b"%d" % (100 * batch + n) for n in range(100)] for batch in range(30)])
    assert values(read(log).take(2_500)) == [b"%d" % n for n in range(2_500)]
    assert len(read(log).take(5_000)) == 3_000


@pytest.mark.parametrize(("count", "error"), [(-1, ValueError), (1 << 70, OverflowError), ("1", TypeError), (1.0, TypeError)])
def test_take_of_what_is_no_count(count: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        read(LOG).take(count)


def test_where_it_is() -> None:
    log = encode_batch([b"a", b"b"], leader_epoch=3) + encode_batch([b"c"], base_offset=5, leader_epoch=4)
    iterator = read(log, offset=1)
    assert (iterator.next_offset, iterator.leader_epoch, iterator.exhausted) == (1, -1, False)
    next(iterator)
    assert (iterator.next_offset, iterator.leader_epoch) == (2, 3)
    iterator.take(1)
    assert (iterator.next_offset, iterator.leader_epoch, iterator.exhausted) == (6, 4, False)
    assert iterator.take(1) == []
    assert (iterator.next_offset, iterator.leader_epoch, iterator.exhausted) == (6, 4, True)
    for name in ("next_offset", "leader_epoch", "exhausted"):
        with pytest.raises(AttributeError):
            setattr(iterator, name, 0)


def failing(error: BaseException) -> Iterator[bytes]:
    yield LOG
    raise error


def test_an_exception_after_records_waits_for_who_reads_on() -> None:
    iterator = RecordIterator(lambda offset, end: failing(KeyError("gone")), 0, END, "t", 0)
    assert len(iterator.take(10)) == 6
    assert (iterator.next_offset, iterator.exhausted, iterator.take(10)) == (6, False, [])
    iterator = RecordIterator(lambda offset, end: failing(KeyError("gone")), 0, END, "t", 0)
    iterator.take(6)
    with pytest.raises(KeyError):
        iterator.take(1)
    assert (iterator.next_offset, iterator.exhausted) == (6, False)


def test_an_interrupt_is_never_dropped() -> None:
    iterator = RecordIterator(lambda offset, end: failing(KeyboardInterrupt()), 0, END, "t", 0)
    with pytest.raises(KeyboardInterrupt):
        iterator.take(10)


def test_damage_after_records() -> None:
    damaged = bytearray(LOG)
    damaged[-1] = 0xFF
    iterator = read(damaged)
    taken = values(iterator.take(100))
    assert taken == [b"%d" % n for n in range(len(taken))] and 3 <= len(taken) < 6
    assert (iterator.exhausted, iterator.next_offset) == (False, len(taken))
    with pytest.raises(ValueError, match="at offset"):
        read(damaged, offset=len(taken)).take(1)


def test_close_ends_it_where_it_is() -> None:
    closed = []

    def source(offset: int, end_offset: int) -> Iterator[bytes]:
        try:
            yield LOG
        finally:
            closed.append(True)

    iterator = RecordIterator(source, 0, END, "t", 0)
    next(iterator)
    iterator.close()
    iterator.close()
    assert (closed, list(iterator), iterator.take(5)) == ([True], [], [])
    assert (iterator.next_offset, iterator.exhausted) == (1, False)


def test_close_and_take_while_its_source_runs() -> None:
    iterator: Any = None
    errors = []

    def source(offset: int, end_offset: int) -> Iterator[bytes]:
        for call in (iterator.close, lambda: iterator.take(1)):
            with pytest.raises(ValueError, match="in use by another thread") as caught:
                call()
            errors.append(caught.value)
        yield LOG

    iterator = RecordIterator(source, 0, END, "t", 0)
    assert len(iterator.take(10)) == 6 and len(errors) == 2


def test_take_leaks_nothing() -> None:
    log = encode_log([[b"x" * 20] * 50] * 20)

    def work() -> None:
        for count in (1, 999, 1000, 5000):
            read(log).take(count)
        with pytest.raises(KeyError):
            RecordIterator(lambda offset, end: iter_raising(), 0, END, "t", 0).take(3)

    def iter_raising() -> Iterator[bytes]:
        raise KeyError
        yield b""

    work()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(50):
        work()
    gc.collect()
    assert sys.getallocatedblocks() - before < 200
