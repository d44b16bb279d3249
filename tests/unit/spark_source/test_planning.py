import pickle
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logdb_spark_source.planning import ROWS_PER_TASK, Range, Task, divide, pack


def ranges_of(*sizes, start=7):
    return [Range("t", "id", at, start, start + size) for at, size in enumerate(sizes)]


sizes = st.lists(st.integers(-3, 400), max_size=12)
counts = st.none() | st.integers(1, 60)


def offsets(ranges):
    return sorted((one.topic, one.partition, at) for one in ranges for at in range(one.start, one.end))


@given(sizes, counts, counts)
def test_pieces_hold_every_offset_once_and_are_as_many_as_wanted(sizes, count_min, records_max):
    whole = [one for one in ranges_of(*sizes) if one.size > 0]
    pieces = divide(ranges_of(*sizes), count_min=count_min, records_max=records_max)
    assert offsets(pieces) == offsets(whole)
    assert all(one.size > 0 for one in pieces)
    if records_max is not None:
        assert all(one.size <= records_max for one in pieces)
    total = sum(one.size for one in whole)
    assert len(pieces) >= min(total, max(len(whole), count_min or 0))
    if count_min is not None and records_max is None:
        assert len(pieces) == max(len(whole), min(total, count_min))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=8), st.integers(1, 60))
def test_pieces_of_one_range_differ_by_one_at_most_and_are_in_order(sizes, count_min):
    pieces = divide(ranges_of(*sizes), count_min=count_min)
    for partition in range(len(sizes)):
        own = [one for one in pieces if one.partition == partition]
        assert max(one.size for one in own) - min(one.size for one in own) <= 1
        assert all(before.end == after.start for before, after in pairwise(own))


def test_without_wishes_each_range_is_one_piece_and_empty_ones_are_none():
    assert [one.partition for one in divide(ranges_of(5, 0, -2, 1))] == [0, 3]


def test_the_largest_is_cut_into_the_most_pieces():
    pieces = divide(ranges_of(900, 90, 10), count_min=10)
    assert [sum(one.partition == at for one in pieces) for at in range(3)] == [7, 2, 1]


@given(st.lists(st.integers(1, 3 * ROWS_PER_TASK), max_size=40), st.integers(1, 10))
def test_tasks_hold_every_range_once(sizes, count_min):
    ranges = ranges_of(*sizes)
    tasks = pack(ranges, count_min=count_min)
    assert sorted(one for task in tasks for one in task.ranges) == ranges
    assert all(task.ranges for task in tasks)
    assert len(tasks) >= min(len(ranges), count_min)
    assert len(tasks) <= max(count_min, -(-sum(sizes) // ROWS_PER_TASK))


def test_small_ranges_share_one_task_and_large_ones_do_not():
    assert len(pack(ranges_of(*[100] * 32))) == 1
    assert len(pack(ranges_of(*[ROWS_PER_TASK] * 5))) == 5
    tasks = pack(ranges_of(ROWS_PER_TASK, 10, 10, 10))
    assert sorted(sorted(one.partition for one in task.ranges) for task in tasks) == [[0], [1, 2, 3]]
    assert pack([]) == []


def test_a_task_travels():
    task = pickle.loads(pickle.dumps(Task(ranges_of(5, 6))))
    assert task.ranges == ranges_of(5, 6)
    assert Task(()).ranges == []
