"""Each node makes the tables of its replicas: all have the same rows."""

import json
from types import SimpleNamespace

import pytest

import logdb
from logdb import serde
from support.cluster_process import cluster_process, eventually
from support.iceberg import table

pytest.importorskip("pyiceberg")
pytestmark = pytest.mark.timeout(180)

SHORT, LONG = (
    {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}, {"name": "n", "type": "long"}]} for kind in ("float", "double")
)
BOTH = {"x": 0.5, "n": 2**34 - 1}
"""Its bytes can be read with each of the two schemas."""
COUNT = 200


def read(path):
    try:
        found = table(SimpleNamespace(path=path)).scan().to_arrow().to_pylist()
    except FileNotFoundError:
        return {}
    return {row["logdb"]["offset"]: (row["x"], row["n"]) for row in found}


def test_the_schema_of_avro_values_changes(tmp_path):
    config = {"logdb.iceberg.mode": "avro", "logdb.iceberg.schema": json.dumps(SHORT), "segment.bytes": 2_000}
    with cluster_process(tmp_path) as cluster, logdb.open(cluster.urls, batch_size=300) as db:
        db.create_topic("t", config=config)
        db.log("t").append_many([serde.avro(SHORT).serialize(BOTH)] * COUNT)
        leader = db.describe_topic("t").partitions[0].leader
        with cluster.open(next(node for node in cluster.processes if node != leader)) as other:
            other.alter_topic("t", config={"logdb.iceberg.schema": json.dumps(LONG)})
        db.log("t").append_many([serde.avro(LONG).serialize(BOTH)] * COUNT)
        history = json.loads(db.describe_topic("t").config["logdb.iceberg.schema.history"])
        assert history == [{"schema": SHORT, "until": {"0": COUNT}}]
        for number in cluster.processes:
            eventually(lambda number=number: max(read(cluster.data(number)), default=0) > COUNT, 120)
            assert set(read(cluster.data(number)).values()) == {(BOTH["x"], BOTH["n"])}
