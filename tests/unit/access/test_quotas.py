import pytest

from logdb.access.quotas import DELAY_MS_MAX, Quotas
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from support.clock import StillIO

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


@pytest.fixture
def io():
    return StillIO()


@pytest.fixture
def quotas(io):
    return Quotas(io.monotonic_ms)


def test_without_quotas_no_principal_waits(quotas):
    assert quotas.charge(ALICE, "produce", 10**12) == 0
    quotas.configure({ALICE: Quota(fetch_bytes=1)})
    assert quotas.charge(ALICE, "produce", 10**12) == 0
    assert quotas.charge(BOB, "fetch", 10**12) == 0


def test_what_is_over_the_rate_is_waited_for(quotas, io):
    quotas.configure({ALICE: Quota(produce_bytes=1000)})
    assert quotas.charge(ALICE, "produce", 1000) == 0
    assert quotas.charge(ALICE, "produce", 500) == 501
    io.now_ms += 501
    assert quotas.charge(ALICE, "produce", 0) == 0
    assert quotas.charge(ALICE, "produce", 2000) == 2000  # 1 ms too much was waited


def test_who_did_nothing_for_long_may_do_one_second_at_once(quotas, io):
    quotas.configure({ALICE: Quota(requests=10)})
    io.now_ms += 3_600_000
    assert [quotas.charge(ALICE, "request", 1) for _ in range(12)] == [0] * 10 + [101, 201]


def test_over_time_the_rate_is_kept(quotas, io):
    """A client that waits as told has the rate, whatever the sizes."""
    quotas.configure({ALICE: Quota(fetch_bytes=10_000)})
    begin, moved = io.now_ms, 0
    for number in range(500):
        size_bytes = (number * 7919) % 5_000
        moved += size_bytes
        io.now_ms += quotas.charge(ALICE, "fetch", size_bytes)
    allowed = 10_000 + 10_000 * (io.now_ms - begin) / 1000
    assert 0.95 * allowed <= moved <= allowed


def test_a_wait_has_an_end_and_the_rest_is_not_forgotten(quotas, io):
    quotas.configure({ALICE: Quota(produce_bytes=1)})
    assert quotas.charge(ALICE, "produce", 1_000) == DELAY_MS_MAX
    io.now_ms += DELAY_MS_MAX
    assert quotas.charge(ALICE, "produce", 0) == DELAY_MS_MAX


def test_principals_and_resources_have_buckets_of_their_own(quotas):
    quotas.configure({ALICE: Quota(produce_bytes=10, fetch_bytes=10), BOB: Quota(produce_bytes=10)})
    assert quotas.charge(ALICE, "produce", 20) > 0
    assert quotas.charge(ALICE, "fetch", 10) == 0
    assert quotas.charge(BOB, "produce", 10) == 0


def test_the_default_is_for_each_without_a_quota_of_their_own(quotas):
    quotas.configure({None: Quota(requests=1), ALICE: Quota()})
    assert quotas.charge(BOB, "request", 2) > 0
    assert quotas.charge(Principal("User", "carol"), "request", 1) == 0
    assert quotas.charge(ALICE, "request", 100) == 0


def test_other_changes_leave_the_buckets(quotas):
    quotas.configure({ALICE: Quota(requests=1)})
    quotas.charge(ALICE, "request", 10)
    quotas.configure({ALICE: Quota(requests=1)})
    assert quotas.charge(ALICE, "request", 0) > 0
    quotas.configure({ALICE: Quota(requests=2)})
    assert quotas.charge(ALICE, "request", 0) == 0


def test_a_clock_that_goes_back_gives_nothing(quotas, io):
    quotas.configure({ALICE: Quota(requests=1)})
    quotas.charge(ALICE, "request", 2)
    io.now_ms -= 10_000
    assert quotas.charge(ALICE, "request", 0) == 1001


def test_buckets_have_bounds(quotas):
    quotas.configure({None: Quota(requests=1)})
    for number in range(10_050):
        quotas.charge(Principal("User", str(number)), "request", 1)
    assert len(quotas._buckets) == 10_000


@pytest.mark.parametrize("rate", [0, -1, 1.5, True, "1", 1 << 63])
def test_a_rate_is_a_whole_number(rate):
    with pytest.raises(ValueError, match=r"quota fetch_bytes=.* a second: must be a whole number in \[1, 2\^63 - 1\], or none"):
        Quota(fetch_bytes=rate).check()


def test_the_quota_of_all_others_is_not_for_super_users(quotas):
    """Who may set it need not be one; one of their own holds."""
    quotas.configure({None: Quota(requests=1)}, {ALICE})
    assert [quotas.charge(ALICE, "request", 1) for _ in range(3)] == [0, 0, 0]
    assert quotas.charge(BOB, "request", 2) > 0
    assert (quotas.limits(ALICE), quotas.limits(BOB)) == (False, True)
    quotas.configure({None: Quota(requests=1), ALICE: Quota(requests=1)}, {ALICE})
    assert quotas.charge(ALICE, "request", 2) > 0
