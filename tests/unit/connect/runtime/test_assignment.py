import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb_connect.runtime.assignment import Leader, Work
from logdb_connect.runtime.tasks import TaskId

CONFIGURED = Work(frozenset("abcd"), frozenset(TaskId(name, number) for name in "abcd" for number in range(2)))


def settled(leader: Leader, owned: dict[str, Work], configured: Work, now_ms: int = 0, delay_ms: int = 1_000) -> dict[str, Work]:
    """What the members run once they obey plans, and join again where they gave something up."""
    for _ in range(10):
        plan = leader.plan(owned, configured, now_ms=now_ms, delay_ms=delay_ms)
        revoked = any(owned[member].without(plan.work[member]).any() for member in owned)
        owned = plan.work
        if not revoked:
            return owned
    raise AssertionError("the members never settle")


def test_all_work_goes_to_the_first_worker_and_half_of_it_moves_to_a_second_one_in_two_rounds():
    leader = Leader()
    one = settled(leader, {"one": Work()}, CONFIGURED)
    assert one == {"one": CONFIGURED}
    plan = leader.plan({**one, "two": Work()}, CONFIGURED, now_ms=0, delay_ms=1_000)
    assert plan.work["two"] == Work(), "what the first one runs is not started a second time"
    assert len(plan.work["one"].connectors) == 2
    assert len(plan.work["one"].tasks) == 4
    both = settled(leader, plan.work, CONFIGURED)
    assert (len(both["two"].connectors), len(both["two"].tasks)) == (2, 4)
    assert Work.union(both.values()) == CONFIGURED


def test_the_work_of_a_worker_that_left_waits_for_it():
    leader = Leader()
    both = settled(leader, {"one": Work(), "two": Work()}, CONFIGURED)
    plan = leader.plan({"one": both["one"]}, CONFIGURED, now_ms=5_000, delay_ms=1_000)
    assert (plan.work["one"], plan.delay_ms) == (both["one"], 1_000)
    back = leader.plan({"one": both["one"], "again": Work()}, CONFIGURED, now_ms=5_500, delay_ms=1_000)
    assert (back.work["one"], back.work["again"], back.delay_ms) == (both["one"], both["two"], 0)


def test_the_work_of_a_worker_that_stays_away_goes_to_the_others():
    leader = Leader()
    both = settled(leader, {"one": Work(), "two": Work()}, CONFIGURED)
    leader.plan({"one": both["one"]}, CONFIGURED, now_ms=5_000, delay_ms=1_000)
    assert leader.plan({"one": both["one"]}, CONFIGURED, now_ms=5_999, delay_ms=1_000).delay_ms == 1
    assert leader.plan({"one": both["one"]}, CONFIGURED, now_ms=6_000, delay_ms=1_000).work == {"one": CONFIGURED}


def test_work_that_two_workers_run_is_given_up_by_both_and_then_runs_once():
    leader, twice = Leader(), Work(frozenset("a"), frozenset({TaskId("a", 0)}))
    plan = leader.plan({"one": twice, "two": twice}, twice, now_ms=0, delay_ms=0)
    assert not Work.union(plan.work.values()).any()
    after = settled(leader, plan.work, twice)
    assert Work.union(after.values()) == twice


def test_deleted_work_is_in_no_plan():
    leader = Leader()
    both = settled(leader, {"one": Work(), "two": Work()}, CONFIGURED)
    left = Work(frozenset("a"), frozenset({TaskId("a", 0)}))
    assert Work.union(settled(leader, both, left).values()) == left


@settings(max_examples=200)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["join", "leave", "configure", "time"]), st.integers(0, 12)),
        max_size=12,
    ),
    delay_ms=st.sampled_from([0, 10]),
)
def test_after_any_story_all_work_is_done_once_and_evenly(steps, delay_ms):
    leader, now_ms = Leader(), 0
    owned, configured = {"first": Work()}, CONFIGURED
    for number, (what, value) in enumerate(steps):
        if what == "join":
            owned = {**owned, f"m{number}": Work()}
        elif what == "leave" and len(owned) > 1:
            gone = sorted(owned)[value % len(owned)]
            owned = {member: work for member, work in owned.items() if member != gone}
        elif what == "configure":
            names = "abcdefghijklm"[:value]
            configured = Work(frozenset(names), frozenset(TaskId(name, each) for name in names for each in range(value % 3)))
        else:
            now_ms += value
        owned = settled(leader, owned, configured, now_ms, delay_ms)
        tasks = [task for work in owned.values() for task in work.tasks]
        assert len(tasks) == len(set(tasks))
    owned = settled(leader, owned, configured, now_ms + 1_000, delay_ms)
    assert Work.union(owned.values()) == configured
    for sizes in ([len(work.connectors) for work in owned.values()], [len(work.tasks) for work in owned.values()]):
        assert max(sizes) - min(sizes) <= 1, owned


@pytest.mark.parametrize("count", [1, 3])
def test_a_new_leader_assigns_what_nobody_runs_at_once(count):
    owned = {f"m{number}": Work() for number in range(count)}
    assert Work.union(Leader().plan(owned, CONFIGURED, now_ms=0, delay_ms=10_000).work.values()) == CONFIGURED
