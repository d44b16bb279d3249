"""Replicas are moved, and leaders elected, by programs of others, on three brokers and on one.

Kafka's tools are skipped, with the reason, where Java or Maven are missing; so is franz-go, where Go is.
"""

import json
import os
import re
import subprocess
import warnings

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from benches.peers.kafka.jars import TOOLS
from support.cluster_process import ClusterProcess, cluster_process, eventually
from support.franz_go import franz_go
from support.kafka_door import kafka_door, kafka_python

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("cluster")]
KafkaError = confluent_kafka.KafkaError
TOOL = "org.apache.kafka.tools."
REASSIGN, ELECT, CONFIGS = f"{TOOL}reassign.ReassignPartitionsCommand", f"{TOOL}LeaderElectionCommand", f"{TOOL}ConfigCommand"
THROTTLED = ("--throttle", "50000")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("cluster"), kafka=True) as running:
        yield running


def described(nodes: ClusterProcess, topic: str):
    with nodes.open(1) as db:
        return db.describe_topic(topic).partitions


def create(nodes: ClusterProcess, topic: str, replicas, *, size_bytes: int = 0) -> None:
    """A topic of one partition on these nodes, with so many bytes of records."""
    with nodes.open(1) as db:
        db.create_topic(topic, partitions=1, replication_factor=len(replicas), config={"compression.type": "none"})
        with db.producer() as producer:
            for _ in range(0, size_bytes, 20_000):
                producer.send(topic, os.urandom(20_000), partition=0)
    with python_admin(nodes) as admin:
        where = kafka_python.TopicPartition(topic, 0)
        assert admin.alter_partition_reassignments({where: list(replicas)}) == {where: None}
    moved(nodes, topic, replicas)


def moved(nodes: ClusterProcess, topic: str, replicas) -> None:
    """Wait until a topic is on these nodes, all of them in sync."""
    eventually(lambda: [(list(one.replicas), sorted(one.in_sync)) for one in described(nodes, topic)] == [(list(replicas), sorted(replicas))])


def led_by_another(nodes: ClusterProcess, topic: str) -> None:
    """A partition on nodes 2 and 1, which 1 leads though 2 is in sync again."""
    create(nodes, topic, (2, 1))
    with python_admin(nodes) as admin:
        admin.alter_partition_reassignments({kafka_python.TopicPartition(topic, 0): [1]})
        moved(nodes, topic, (1,))
        admin.alter_partition_reassignments({kafka_python.TopicPartition(topic, 0): [2, 1]})
    moved(nodes, topic, (2, 1))
    assert described(nodes, topic)[0].leader == 1


class python_admin:  # noqa: N801 -- a context manager
    def __init__(self, nodes: ClusterProcess) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=nodes.kafka)

    def __enter__(self):
        return self._admin

    def __exit__(self, *_) -> None:
        self._admin.close()
