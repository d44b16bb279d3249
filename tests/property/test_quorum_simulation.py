"""The quorum under simulated faults: what must hold after each step is in ``support.quorum_simulation``.  A seed is a whole run."""

import logging
import os
from collections import Counter
from collections.abc import Iterable

import pytest

from logdb_replication.raft.starts import Known
from support.quorum_simulation import Storm

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
SEEDS_PER_TEST = 10


def raged(storm: Storm, seconds: float) -> dict[str, int]:
    """What a storm, and the calm after it, have counted."""
    simulation = storm.simulation
    with simulation.running():
        try:
            storm.rage(seconds)
            storm.calm()
        except BaseException:
            print(f"seed {simulation.seed}", *simulation.story[-60:], sep="\n")
            raise
    return simulation.counts


def summed(counts: Iterable[dict[str, int]]) -> Counter:
    return sum(map(Counter, counts), Counter())


@pytest.mark.parametrize("first", range(0, 40 * SCALE, SEEDS_PER_TEST))
def test_storms(first, record_property, caplog):
    caplog.set_level(logging.CRITICAL)  # thousands of faults are no news
    totals = summed(raged(Storm.of(seed), 3) for seed in range(first, first + SEEDS_PER_TEST))
    assert totals["acknowledged"] > 0
    if not first:
        record_property("told", f"quorum storms, of the first {SEEDS_PER_TEST} of {40 * SCALE} seeds: {dict(totals)}")


@pytest.mark.parametrize("first", range(0, 10 * SCALE, SEEDS_PER_TEST))
def test_voters_are_taken_back_to_older_copies(first, record_property, caplog):
    caplog.set_level(logging.CRITICAL)
    totals = summed(raged(Storm.of_copies(seed), 5) for seed in range(first, first + SEEDS_PER_TEST))
    assert 0 < totals["refused copies"] <= totals["older copies"]
    if not first:
        record_property("told", f"voters taken back, of the first {SEEDS_PER_TEST} of {10 * SCALE} seeds: {dict(totals)}")


@pytest.mark.parametrize("first", range(0, 20 * SCALE, SEEDS_PER_TEST))
def test_storms_on_slow_disks_and_busy_processors(first, record_property, caplog):
    """Time passes within a step: what reads the clock twice sees two times."""
    caplog.set_level(logging.CRITICAL)
    totals = summed(raged(Storm.of_slow(seed), 5) for seed in range(first, first + SEEDS_PER_TEST))
    assert totals["acknowledged"] > SEEDS_PER_TEST
    if not first:
        record_property("told", f"slow storms, of the first {SEEDS_PER_TEST} of {20 * SCALE} seeds: {dict(totals)}")


def test_a_voter_that_was_away_while_the_others_were_replaced_is_replaced_too(caplog):
    """docs/inside/replication.md, "A controller that missed too many replacements".  Here it is an older copy, which nobody knows."""
    caplog.set_level(logging.CRITICAL)
    storm = Storm.of(37)
    raged(storm, 12)
    assert [event.split(maxsplit=1)[1] for event in storm.simulation.story if "left behind" in event] == ["2 was left behind"]


def test_the_simulation_finds_what_older_copies_do_that_are_not_refused(record_property, caplog, monkeypatch):
    """Without the checks such storms lose what was committed, and have two leaders in a term: about one in twenty."""
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(Known, "refuses", lambda _, start, progress: "")
    for seed in range(400):
        storm = Storm.of_copies(seed)
        storm.simulation.waits = False
        try:
            raged(storm, 5)
        except AssertionError as error:
            record_property("told", f"voters taken back, with no check: seed {seed}: {error}")
            return
    pytest.fail("no harm in 400 storms")


def test_the_same_seed_is_the_same_run():
    stories = []
    for _ in range(2):
        storm = Storm.of(3)
        simulation = storm.simulation
        with simulation.running():
            storm.rage(5)
        stories.append((simulation.story, simulation.counts, simulation.digests))
    assert stories[0] == stories[1]
