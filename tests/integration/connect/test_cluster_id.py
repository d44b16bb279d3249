"""``GET /`` of a worker has the id that Kafka's clients see, by DescribeCluster, of the same database."""

import contextlib

import pytest
from confluent_kafka.admin import AdminClient

import logdb
from support.cluster_process import cluster_process
from support.connect_workers import standalone


def cluster_id(rest):
    return rest.get("/")["kafka_cluster_id"]


def described(kafka):
    admin = AdminClient({"bootstrap.servers": kafka})  # its end would end the request
    return admin.describe_cluster(request_timeout=30).result().cluster_id


@contextlib.contextmanager
def serving(directory):
    with logdb.open(directory) as db, logdb.serve(db, http="127.0.0.1:0", kafka="127.0.0.1:0") as server:
        yield server.addresses


@pytest.mark.parametrize("client", ["logdb", "kafka"])
def test_of_a_server(tmp_path, client):
    with serving(tmp_path / "db") as (_, kafka), standalone(kafka, tmp_path, logdb_client=client) as rest:
        assert cluster_id(rest) == described(kafka)


def test_of_a_directory(tmp_path):
    with standalone(str(tmp_path / "db"), tmp_path) as rest:
        found = cluster_id(rest)
    with serving(tmp_path / "db") as (_, kafka):
        assert found == described(kafka)


def test_of_a_cluster(tmp_path):
    """Each node answers the same."""
    with cluster_process(tmp_path / "cluster", kafka=True) as cluster:
        (wanted,) = {described(kafka) for kafka in cluster.kafka}
        for url in cluster.urls:
            with standalone(url, tmp_path) as rest:
                assert cluster_id(rest) == wanted
