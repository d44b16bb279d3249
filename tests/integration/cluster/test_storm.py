"""A storm of faults over three nodes under clients of all kinds.

``make fault DURATION=3600 SEED=7`` goes on for so many seconds; without a SEED another one each time, which is printed.
"""

import os
import random
import shutil
import time

import pytest

from support import faulty_libc
from support.cluster import cluster, needs_namespaces

pytest.importorskip("confluent_kafka")

from support.storm import Storm, schedule

pytestmark = [
    needs_namespaces(),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.xdist_group("cluster"),
    pytest.mark.slow,
    pytest.mark.timeout(0),
]
SECONDS = int(os.environ.get("LOGDB_STORM_SECONDS") or "0")
SEED = int(os.environ.get("LOGDB_STORM_SEED") or "0") or (random.randrange(1, 1 << 30) if SECONDS else 1)


def test_a_seed_always_gives_the_same_faults():
    first, second = schedule(SEED), schedule(SEED)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


def test_a_storm(tmp_path):
    """The directories of the nodes stay where it finds anything."""
    began = time.monotonic()
    print(f"\nSEED={SEED}, nodes in {tmp_path}")
    with cluster(tmp_path, faulty_libc.build(tmp_path)) as nodes:
        storm = Storm(nodes, SEED)
        try:
            while True:
                found = storm.round(4 if SECONDS else 1)
                assert not found, f"{len(found)} anomalies:\n" + "\n".join(map(str, found[:50]))
                if time.monotonic() - began > SECONDS:
                    break
        except BaseException:
            print(f"SEED={SEED}, nodes in {tmp_path}\n{storm.state()}")
            raise
        finally:
            print(storm.table())
