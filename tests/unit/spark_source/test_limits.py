from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logdb_spark_source.limits import Delay, pro_rata

lags = st.lists(st.tuples(st.integers(0, 10_000), st.integers(-5, 5_000)), min_size=1, max_size=12)


@given(lags, st.integers(1, 20_000))
def test_a_batch_takes_its_limit_and_from_each_by_what_it_has(lags, most):
    start = {at: first for at, (first, _) in enumerate(lags)}
    end = {at: first + lag for at, (first, lag) in enumerate(lags)}
    found = pro_rata(start, end, most)
    waiting = {at: lag for at, (_, lag) in enumerate(lags) if lag > 0}
    taken = {at: found[at] - start[at] for at in waiting}
    total = sum(waiting.values())
    assert found.keys() == end.keys()
    assert all(found[at] == end[at] for at in end if at not in waiting)
    assert all(1 <= taken[at] <= waiting[at] for at in waiting)
    assert sum(taken.values()) == min(total, max(most, len(waiting)))
    larger = sorted(waiting, key=waiting.__getitem__)
    assert all(taken[small] <= taken[large] + 1 for small, large in pairwise(larger))


def test_shares_are_by_size():
    assert pro_rata({"a": 0, "b": 10}, {"a": 300, "b": 110}, 40) == {"a": 30, "b": 20}
    assert pro_rata({"a": 0, "b": 0}, {"a": 1_000_000, "b": 1}, 10) == {"a": 9, "b": 1}


@given(lags, st.integers(1, 50))
def test_batch_after_batch_comes_to_the_end(lags, most):
    at = {one: first for one, (first, _) in enumerate(lags)}
    end = {one: first + max(0, lag) % 200 for one, (first, lag) in enumerate(lags)}
    for _ in range(sum(end.values()) - sum(at.values()) + 1):
        at = pro_rata(at, end, most)
    assert at == end


class Clock:
    now = 0

    def __call__(self):
        return self.now


def test_a_batch_waits_for_its_least_or_its_time():
    clock = Clock()
    delay = Delay(10, 1_000, clock)
    assert not delay.holds(1)  # the first one
    clock.now = 999
    assert delay.holds(9)
    assert not delay.holds(10)
    clock.now = 1_998
    assert delay.holds(9)
    clock.now = 1_999
    assert not delay.holds(9)
    assert delay.holds(9)
