"""The quorum under simulated faults: what must hold after each step is in ``support.quorum_simulation``.  A seed is a whole run."""

import logging
import os

import pytest

from support.quorum_simulation import Storm

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", range(0, 200 * SCALE, SEEDS_PER_TEST))
def test_storms(first, record_property, caplog):
    caplog.set_level(logging.CRITICAL)  # thousands of faults are no news
    totals = {}
    for seed in range(first, first + SEEDS_PER_TEST):
        storm = Storm.of(seed)
        simulation = storm.simulation
        with simulation.running():
            try:
                storm.rage(3)
                storm.calm()
            except BaseException:
                print(f"seed {seed}", *simulation.story[-60:], sep="\n")
                raise
        for name, count in simulation.counts.items():
            totals[name] = totals.get(name, 0) + count
    assert totals["acknowledged"] > 0
    if not first:
        record_property("told", f"quorum storms, of the first {SEEDS_PER_TEST} of {200 * SCALE} seeds: {totals}")


def test_the_same_seed_is_the_same_run():
    stories = []
    for _ in range(2):
        storm = Storm.of(3)
        simulation = storm.simulation
        with simulation.running():
            storm.rage(5)
        stories.append((simulation.story, simulation.counts, simulation.digests))
    assert stories[0] == stories[1]
