"""Leaders and followers under simulated faults: ``support.replica_simulation`` has what must hold after each step.  A seed is a run."""

import os
from collections import Counter

import pytest

from logdb.store.protocols import Standing
from logdb_replication.replica.follower import Follower
from logdb_replication.replica.leader import Leader
from support.replica_simulation import Storm

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
SEEDS_PER_TEST = 20


@pytest.mark.parametrize("first", range(0, 60 * SCALE, SEEDS_PER_TEST))
def test_storms(first, record_property):
    totals = {}
    for seed in range(first, first + SEEDS_PER_TEST):
        counts = weathered(seed)
        totals = {name: totals.get(name, 0) + count for name, count in counts.items()} | {
            name: count for name, count in totals.items() if name not in counts
        }
    assert totals["acknowledged"] > 0
    if not first:
        record_property("told", f"replica storms, of the first {SEEDS_PER_TEST} of {60 * SCALE} seeds: {totals}")


@pytest.mark.parametrize("first", range(0, 40 * SCALE, SEEDS_PER_TEST))
def test_storms_while_replicas_are_reassigned(first, record_property):
    totals = Counter()
    for seed in range(first, first + SEEDS_PER_TEST):
        totals += weathered(seed, reassigns=True)
    assert totals["acknowledged"] > 0
    assert totals["reassigned"] > 0
    if not first:
        record_property("told", f"reassignments, of the first {SEEDS_PER_TEST} of {40 * SCALE} seeds: {dict(totals)}")


def weathered(seed, **more):
    """The counts of a storm that all promises have come through."""
    storm = Storm(seed, **more)
    try:
        storm.rage(10_000)
        storm.calm()
    except BaseException:
        print(f"seed {seed}", *storm.simulation.story[-60:], sep="\n")
        raise
    return storm.simulation.counts


def test_the_same_seed_is_the_same_run():
    stories = []
    for _ in range(2):
        storm = Storm(3)
        storm.rage(5_000)
        stories.append((storm.simulation.story, storm.simulation.counts, storm.simulation.committed))
    assert stories[0] == stories[1]


def asks_once(self, answer, ends, *, real=Follower.epoch_answered):
    step = real(self, answer, ends)
    self._is_last = True
    return step


def takes_reports_of_any_life(self, node_id, broker_epoch, *, real=Leader._checked):
    return self._followers.get(node_id)


def checks_nothing(self, ends, *, real=Follower.next):
    self.is_checked = True
    return real(self, ends)


def adds_anyone(self, node_id, now_ms):
    return node_id in self._followers or node_id == self._node_id


def flushes_nothing_itself(self, node_id):
    return self._followers[node_id].flushed_offset if node_id in self._followers else 10**9


def lets_begin_anew(self, node_id, *, real=Leader.standing):
    return Standing.MAY_BEGIN_ANEW if self._is_damaged(node_id) else real(self, node_id)


RARE = 284, 333, 444, 551
"""Seeds in which two leaders have records of former epochs that the other lacks."""
FAULTS = {
    "what is proposed does not count": (Leader, "maximal_in_sync", property(lambda self: {*self.state.in_sync})),
    "this node's own disk does not count": (Leader, "_flushed_by", flushes_nothing_itself),
    "a follower is added below the high watermark": (Leader, "_is_to_be_in_sync", adds_anyone),
    "a follower checks nothing": (Follower, "next", checks_nothing),
    "a follower asks for one epoch alone": (Follower, "epoch_answered", asks_once),
    "reports of a former life are believed": (Leader, "_checked", takes_reports_of_any_life),
    "a damaged log that counts begins anew": (Leader, "standing", lets_begin_anew),
}


@pytest.mark.parametrize(("kind", "name", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_rule_that_is_broken_is_found(monkeypatch, kind, name, fault):
    monkeypatch.setattr(kind, name, fault)
    with pytest.raises((AssertionError, IndexError)):
        for seed in (*range(20), *RARE):
            weathered(seed)
