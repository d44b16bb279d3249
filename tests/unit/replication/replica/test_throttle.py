"""A limit in bytes a second, shared by all that are limited."""

from logdb_replication.replica.throttle import Throttle


def test_without_a_limit_there_is_no_wait():
    throttle = Throttle()
    throttle.took(10**9, 5)
    assert throttle.free_ms <= 5


def test_all_share_one_limit():
    throttle = Throttle()
    throttle.limit(1_000)
    for size_bytes, now_ms, free_ms in ((500, 100, 600), (1_000, 100, 1_600), (0, 200, 1_600), (100, 5_000, 5_100)):
        throttle.took(size_bytes, now_ms)
        assert throttle.free_ms == free_ms
        throttle.limit(1_000)
        assert throttle.free_ms == free_ms


def test_what_came_under_another_limit_delays_no_fetch():
    throttle = Throttle()
    for other in (None, 10):
        throttle.limit(1)
        throttle.took(10**6, 0)
        assert throttle.free_ms == 10**9
        throttle.limit(other)
        assert throttle.free_ms == 0
