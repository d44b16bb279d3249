"""What is left of delays as time passes."""

import pytest

from logdb_replication.lateness import Lateness


def test_a_delay_halves_with_each_half_life():
    late = Lateness(10, 100)
    late.note(8, 0)
    assert [late.at(now) for now in (0, 10, 20, 30)] == [8, 4, 2, 1]


def test_the_larger_of_two_delays_lasts():
    late = Lateness(10, 100)
    late.note(8, 0)
    late.note(1, 10)
    assert late.at(10) == 4
    late.note(6, 10)
    assert late.at(20) == 3


@pytest.mark.parametrize(("given", "kept"), [(1_000, 100), (-5, 0)])
def test_a_delay_has_bounds(given, kept):
    late = Lateness(10, 100)
    late.note(given, 0)
    assert late.at(0) == kept
