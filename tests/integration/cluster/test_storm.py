"""A storm of faults over three nodes under clients of all kinds.

``make fault DURATION=3600 SEED=7`` goes on for so many seconds; without a SEED another one each time, which is printed.
"""

import itertools
import math
import os
import random
import time
from functools import partial

import pytest

from support import faulty_libc
from support.cluster import cluster, needs_namespaces

pytest.importorskip("confluent_kafka")

from support.powered_cluster import PoweredCluster
from support.storm import FAULTS, Planned, Storm, schedule
from support.tools import needs

pytestmark = [
    needs_namespaces(),
    needs("gcc"),
    pytest.mark.slow,
    pytest.mark.timeout(0),
]
SECONDS = int(os.environ.get("LOGDB_STORM_SECONDS") or "0")
MINUTE = [
    ([Planned("cut-power-of-all", 1, 2, 1)], "join"),
    ([Planned("isolate", "leader", 0, 2), Planned("disk-is-full", 1, 1, 2)], None),
    ([Planned("cut-power", "leader", 2, 1)], "leave"),
]  # of a round without LOGDB_STORM_SECONDS
RESTARTS = [[Planned("end", 1 + number % 3, 0, 0.5)] for number in range(15)]
HANGS = [[Planned("disk-hangs", "leader", 0, 1.6)] for _ in range(15)]
SEED = int(os.environ.get("LOGDB_STORM_SEED") or "0") or (random.randrange(1, 1 << 30) if SECONDS else 1)


def test_a_seed_always_gives_the_same_faults():
    first, second = schedule(SEED), schedule(SEED)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


def test_all_faults_come_and_a_node_joins_and_leaves():
    episodes = list(itertools.islice(schedule(SEED), 10 * len(FAULTS)))
    assert {one.name for planned, _ in episodes for one in planned} == set(FAULTS)
    changes = [change for _, change in episodes if change in {"join", "leave", "remove"}]
    assert set(changes) == {"join", "leave", "remove"}
    assert all((former == "join") != (change == "join") for former, change in itertools.pairwise(changes))


def test_a_storm(tmp_path):
    """The directories of the nodes stay where it finds anything."""
    print(f"\nSEED={SEED}, nodes in {tmp_path}")
    with cluster(tmp_path, faulty_libc.build(tmp_path), partial(PoweredCluster, seed=SEED)) as nodes:
        storm = Storm(nodes, schedule(SEED) if SECONDS else iter(MINUTE))
        run(storm, itertools.repeat(4) if SECONDS else [len(MINUTE)], SECONDS)


def test_restarts_and_syncs_that_hang_store_nothing_twice(tmp_path):
    episodes = [(planned, None) for pair in zip(RESTARTS, HANGS, strict=True) for planned in pair]
    with cluster(tmp_path, faulty_libc.build(tmp_path), partial(PoweredCluster, seed=SEED)) as nodes:
        run(Storm(nodes, iter(episodes), kafka_producers=3), [6] * (len(episodes) // 6))


def run(storm, rounds, seconds=math.inf):
    """So many episodes a round, until the time is over."""
    began = time.monotonic()
    try:
        for count in rounds:
            found = storm.round(count)
            assert not found, f"{len(found)} anomalies:\n" + "\n".join(map(str, found[:50]))
            if time.monotonic() - began > seconds:
                break
    except BaseException:
        print(storm.state())
        raise
    finally:
        print(storm.table())
