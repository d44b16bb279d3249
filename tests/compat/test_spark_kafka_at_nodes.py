"""Spark's Kafka source and sink at three nodes, while leaders are killed."""

import threading
from typing import Any

import pytest

import logdb
from benches.peers.kafka.jars import SPARK_SOURCE
from benches.peers.spark import environment
from support.cluster_process import bytes_out, cluster_process, eventually

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]
PARTITIONS, PER_PARTITION, PER_BATCH = 3, 4_000, 1_000


def test_nothing_is_lost_while_leaders_are_killed(tmp_path) -> None:
    for reason in (SPARK_SOURCE.missing(), environment.missing()):
        if reason:
            pytest.skip(reason)
    with cluster_process(tmp_path / "nodes", kafka=True, racks=("a", "b", "c")) as cluster, logdb.open(cluster.urls) as db:
        for topic in ("in", "out"):
            db.create_topic(topic, partitions=PARTITIONS)
        made = [[b"%d-%d" % (partition, number) for number in range(PER_PARTITION)] for partition in range(PARTITIONS)]
        for partition, values in enumerate(made):
            db.log("in", partition).append_many(values, keys=values)
        jars = ",".join(map(str, sorted(SPARK_SOURCE.directory.glob("*.jar"))))
        request = {"jars": jars, "servers": ",".join(cluster.kafka), "directory": str(tmp_path), "per_batch": str(PER_BATCH)}
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(environment.run("tests.compat.spark_at_nodes", request, seconds_max=600))
            except Exception as error:  # noqa: BLE001 - the test says it
                found.append(error)

        def kill(victim: int) -> None:
            cluster.kill(victim)
            eventually(lambda: all(one.leader != victim for topic in ("in", "out") for one in db.describe_topic(topic).partitions))

        def back(victim: int) -> None:
            cluster.start(victim)
            eventually(lambda: all(len(one.in_sync) == 3 for topic in ("in", "out") for one in db.describe_topic(topic).partitions))

        copying = threading.Thread(target=run, daemon=True)
        copying.start()
        eventually(lambda: found or sum(db.log("out", partition).end_offset for partition in range(PARTITIONS)) > PER_BATCH, 300)
        victim = db.describe_topic("out").partitions[0].leader
        kill(victim)
        eventually(lambda: found or (tmp_path / "planned").exists(), 300)
        back(victim)
        before = bytes_out(cluster, "in")
        cluster.kill(other := next(one for one in (1, 3) if any(state.leader == one for state in db.describe_topic("in").partitions)))
        (tmp_path / "go").touch()
        copying.join(300)
        assert isinstance(found[0], list), found
        assert sorted(found[0]) == sorted(value.decode() for values in made for value in values), "each once"
        sent = {number: count - before[number] for number, count in bytes_out(cluster, "in").items()}
        assert sent[2] > sum(count for number, count in sent.items() if number != 2), "most is read at the node in the rack of the readers"
        back(other)
        copied = [record.value for partition in range(PARTITIONS) for record in db.log("out", partition).read(0)]
        assert set(copied) == {value for values in made for value in values}, "at least once, as Spark's Kafka sink promises"
