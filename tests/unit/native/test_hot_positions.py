"""hot_positions.c: what it knows, forgets and holds."""

import gc
import random
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb._native._hot import Positions, RecordIterator
from support.batches import Rec, encode_batch


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    gc.collect()  # positions of other tests
    was = Positions.limit()
    yield
    Positions.limit(was)


class File:
    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def _pread(self, size_bytes: int, position: int) -> bytes:
        return self.data[position : position + size_bytes]


def add(positions: Positions, base_offset: int, values: list[bytes], file: File | None = None, **batch: Any) -> File:
    data = encode_batch(values, base_offset=base_offset, **batch)
    file = file or File()
    positions.add(file, len(file.data), data)
    file.data += data
    return file


def find(positions: Positions, offset: int) -> bytes | None:
    """The value at an offset; None where the positions don't know it."""
    for record in RecordIterator(lambda *_: (), offset, 2**63 - 1, "t", 0, positions):
        assert record.offset == offset
        return record.value
    return None


def test_what_was_added_is_found_in_any_order() -> None:
    positions, rng = Positions(), random.Random(1)
    bases = list(range(0, 3000, 3))
    rng.shuffle(bases)
    file = File()
    for base in bases:
        add(positions, base, [b"%d" % (base + i) for i in range(3)], file)
    assert all(find(positions, offset) == b"%d" % offset for offset in range(3000))
    assert find(positions, 3000) is None
    assert positions.size_bytes > 3000 * 4
    positions.clear()
    assert find(positions, 0) is None and positions.size_bytes == 0


def test_what_is_not_there() -> None:
    positions = Positions()
    assert find(positions, 0) is None
    add(positions, 100, [b"a", b"b"])
    add(positions, 110, [b"c"])
    assert [find(positions, offset) for offset in (0, 99, 100, 101, 102, 109, 110, 111)] == [None, None, b"a", b"b", None, None, b"c", None]


def test_gaps_of_a_compacted_batch() -> None:
    positions = Positions()
    deltas = [2, 3, 7, 20, 1000]
    add(positions, 10, [Rec(value=b"%d" % d, offset_delta=d) for d in deltas])  # type: ignore[misc]
    for delta in range(1010):
        assert find(positions, 10 + delta) == (b"%d" % delta if delta in deltas else None)


def test_a_batch_that_was_written_anew() -> None:
    positions = Positions()
    old, new = File(), File(b"elsewhere")
    add(positions, 5, [b"old"] * 3, old)
    before = positions.size_bytes
    reference = weakref.ref(old)
    del old
    add(positions, 5, [b"new"] * 3, new)
    assert reference() is None
    assert positions.size_bytes == before
    assert find(positions, 6) == b"new"


def test_control_and_empty_batches_are_not_kept() -> None:
    positions = Positions()
    add(positions, 0, [b"marker"], attributes=32)
    add(positions, 1, [], record_count=0)
    assert positions.size_bytes == 0


def test_bytes_that_are_no_batch() -> None:
    positions, file = Positions(), File()
    good = encode_batch([b"a", b"b"])
    bad = [
        b"",
        good[:60],
        good[:-1],
        good + b"x",
        encode_batch([b"a"], codec=1),
        encode_batch([b"a"], record_count=2),
        encode_batch([b"a", b"b"], record_count=1),
        encode_batch([b"a"], record_count=-1),
        encode_batch([Rec(value=b"a", offset_delta=3), Rec(value=b"b", offset_delta=3)]),
        encode_batch([Rec(value=b"a", offset_delta=2**32)], last_offset_delta=0),
    ]
    for data in bad:
        with pytest.raises(ValueError, match=r"batch|records"):
            positions.add(file, 0, data)
    with pytest.raises(TypeError):
        positions.add(file, 0, "text")  # type: ignore[arg-type]
    assert positions.size_bytes == 0
    assert sys.getrefcount(file) == sys.getrefcount(File())


def test_the_least_recently_used_goes_first() -> None:
    a, b = Positions(), Positions()
    file = File()
    for base in range(10):
        add(a if base % 2 else b, base, [b"%d" % base] * 1, file)
    leaves = a.size_bytes + b.size_bytes
    assert find(b, 0) == b"0" and find(a, 1) == b"1"
    Positions.limit(leaves - 1)
    assert find(b, 2) is None  # the oldest that was not looked at
    Positions.limit(leaves - 400)
    assert (find(b, 0), find(a, 1)) == (b"0", b"1")
    assert a.size_bytes + b.size_bytes <= leaves - 400
    Positions.limit(0)
    assert all(find(p, base) is None for p in (a, b) for base in range(10))
    assert a.size_bytes == b.size_bytes == 0
    add(a, 0, [b"x"])
    assert a.size_bytes == 0


def test_limit() -> None:
    assert Positions.limit() == 32 << 20
    assert Positions.limit(1000) == Positions.limit(None) == 1000
    limit: Any = Positions.limit
    with pytest.raises(ValueError, match="limit=-1 is negative"):
        limit(-1)
    with pytest.raises(TypeError, match="limit must be an int"):
        limit("1")
    with pytest.raises(TypeError, match="at most 1"):
        limit(1, 2)


def test_files_are_let_go() -> None:
    positions = Positions()
    files = [add(positions, base, [b"x"]) for base in range(300)]
    references = [weakref.ref(file) for file in files]
    del files
    assert all(reference() is not None for reference in references)
    Positions.limit(positions.size_bytes // 2)
    held = sum(reference() is not None for reference in references)
    assert 50 < held < 200
    Positions.limit(32 << 20)
    positions.clear()
    assert all(reference() is None for reference in references)
    files = [add(positions, base, [b"x"]) for base in range(300)]
    references = [weakref.ref(file) for file in files]
    del files, positions
    assert all(reference() is None for reference in references)


def test_a_cycle_through_a_file_is_collected() -> None:
    class Owner(File):
        positions: Positions

    owner = Owner()
    owner.positions = Positions()
    add(owner.positions, 0, [b"x"], owner)
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None


def test_a_file_whose_end_uses_positions() -> None:
    """Letting go of a file runs Python, which may do anything to the positions that are at it."""
    positions = Positions()

    class Ending(File):
        def __del__(self) -> None:
            positions.add(File(), 0, encode_batch([b"from the end"], base_offset=7))
            positions.clear()

    for base in range(200):
        positions.add(Ending(), 0, encode_batch([b"x"], base_offset=base % 20))
        if base % 50 == 0:
            Positions.limit(3000)
    Positions.limit(0)
    assert positions.size_bytes == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6), st.booleans()), max_size=200), st.integers(2000, 20_000))
def test_a_model(steps: list[tuple[int, int, bool]], limit: int) -> None:
    """Never a wrong record, never more memory than allowed; what was found is right whatever was evicted."""
    Positions.limit(limit)
    two, file = (Positions(), Positions()), File()
    for slot, count, look in steps:
        positions, base = two[slot % 2], slot * 10
        if look:
            for offset in range(base, base + 10):
                assert find(positions, offset) in {None, b"%d" % offset}
        else:
            add(positions, base, [b"%d" % (base + i) for i in range(count)], file)
            assert sum(p.size_bytes for p in two) <= limit
            assert find(positions, base) in {None, b"%d" % base}
    for positions in two:
        positions.clear()
        assert positions.size_bytes == 0
