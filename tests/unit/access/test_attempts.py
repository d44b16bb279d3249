import threading

import pytest

from logdb.access.attempts import BACK_OFF_MS, BACK_OFF_MS_MAX, FREE_COUNT, Attempts
from logdb.errors import AuthenticationFailed
from support.clock import StillIO


@pytest.fixture
def io():
    return StillIO()


@pytest.fixture
def attempts(io):
    return Attempts(io.monotonic_ms)


def attempt(attempts, host="10.0.0.1", *, good=False):
    with attempts.trying(host) as note:
        note(good)


def fail(attempts, count, host="10.0.0.1"):
    for _ in range(count):
        attempt(attempts, host)


def test_some_failures_are_free(attempts):
    fail(attempts, FREE_COUNT - 1)
    attempt(attempts, good=True)
    fail(attempts, FREE_COUNT - 1)
    attempt(attempts, good=True)


def test_then_each_failure_doubles_the_wait(attempts, io):
    fail(attempts, FREE_COUNT)
    for wait_ms in (BACK_OFF_MS, 2 * BACK_OFF_MS, 4 * BACK_OFF_MS):
        for good in (False, True):
            with pytest.raises(AuthenticationFailed, match=rf"logins from 10\.0\.0\.1 failed: try again in {wait_ms} ms"):
                attempt(attempts, good=good)
        io.now_ms += wait_ms
        fail(attempts, 1)


def test_the_wait_has_an_end(attempts, io):
    for _ in range(60):
        io.now_ms += BACK_OFF_MS_MAX
        fail(attempts, 1)
    with pytest.raises(AuthenticationFailed, match=f"try again in {BACK_OFF_MS_MAX} ms"):
        attempt(attempts)


def test_a_success_forgives(attempts, io):
    fail(attempts, FREE_COUNT)
    io.now_ms += BACK_OFF_MS
    attempt(attempts, good=True)
    fail(attempts, FREE_COUNT - 1)
    attempt(attempts, good=True)


def test_other_addresses_are_not_held_up(attempts):
    fail(attempts, FREE_COUNT)
    attempt(attempts, "10.0.0.2", good=True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("127.0.0.1", "127.9.8.7", True),
        ("127.0.0.1", "::1", True),
        ("::1", "::ffff:127.0.0.2", True),
        ("127.0.0.1", "128.0.0.1", False),
        ("", "unix", False),
    ],
)
def test_an_ipv6_network_is_one_address_and_so_is_the_loopback(attempts, one, other, same):
    fail(attempts, FREE_COUNT, one)
    if same:
        with pytest.raises(AuthenticationFailed):
            attempt(attempts, other)
    else:
        attempt(attempts, other)


def test_addresses_are_remembered_within_bounds(attempts):
    for number in range(10_050):
        fail(attempts, 1, f"host-{number}")
    assert len(attempts._addresses) == 10_000


def test_a_flood_from_one_address_is_tried_only_so_often(attempts):
    """A hundred at once: two at a time, and after five failures none is tried any more."""
    tried, refused, most, under_way = [], [], 0, 0
    lock, begin = threading.Lock(), threading.Barrier(100)

    def one():
        nonlocal most, under_way
        begin.wait()
        try:
            with attempts.trying("10.0.0.1") as note:
                with lock:
                    under_way += 1
                    most = max(most, under_way)
                tried.append(1)
                with lock:
                    under_way -= 1
                note(False)
        except AuthenticationFailed as error:
            refused.append(error)

    threads = [threading.Thread(target=one) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tried) + len(refused) == 100
    assert FREE_COUNT <= len(tried) <= FREE_COUNT + 1
    assert most <= 2
