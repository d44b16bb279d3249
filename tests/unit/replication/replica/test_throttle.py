"""A limit in bytes a second, shared by all that are limited."""

from logdb_replication.replica.throttle import Throttle


def test_without_a_limit_there_is_no_wait():
    assert Throttle().took(10**9, 5) == 5


def test_all_share_one_limit():
    throttle = Throttle()
    throttle.bytes_per_s = 1_000
    assert throttle.took(500, 100) == 600
    assert throttle.took(1_000, 100) == 1_600
    assert throttle.took(0, 200) == 1_600
    assert throttle.took(100, 5_000) == 5_100


def test_a_limit_that_ends_holds_nobody():
    throttle = Throttle()
    throttle.bytes_per_s = 1
    assert throttle.took(10**6, 0) == 10**9
    throttle.bytes_per_s = None
    assert throttle.took(10**6, 7) == 7
