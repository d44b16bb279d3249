"""REST at a node that neither leads nor coordinates what it is asked about; a double of the metadata says who does."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

import logdb
from logdb.model import ClusterEvent
from support.clustered import clustered
from support.serving import Served

V2 = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"


@pytest.fixture
def three(tmp_path):
    with clustered(tmp_path / "db") as nodes:
        yield nodes


@pytest.fixture
def db(three):
    with logdb.open(three.urls, timeout_ms=5_000) as db:
        db.create_topic("t", partitions=3)
        yield db


def doors(three):
    return [Served(None, node.url, node.server) for node in three.nodes.values()]


@pytest.mark.parametrize("what", [{"topics": ["t"]}, {"partitions": [{"topic": "t", "partition": partition} for partition in range(3)]}])
def test_a_consumer_instance_reads_and_commits_at_any_node(three, db, what) -> None:
    for partition in range(3):
        db.log("t", partition).append_many([b'"%d-%d"' % (partition, number) for number in range(5)])
    for number, door in enumerate(doors(three)):
        made = {"name": "i", "format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
        status, told = door.call(f"/consumers/g{number}", made, content_type=V2)
        assert status == 200, told
        instance, found = f"/consumers/g{number}/instances/i", []
        assert door.call(f"{instance}/{'subscription' if 'topics' in what else 'assignments'}", what, content_type=V2)[0] == 204
        while len(found) < 15:
            status, records = door.call(f"{instance}/records?timeout=10000", headers={"Accept": JSON})
            assert status == 200, records
            found += [record["value"] for record in records]
        assert sorted(found) == [f"{partition}-{number}" for partition in range(3) for number in range(5)]
        assert door.call(f"{instance}/offsets", {}, content_type=V2) == (200, [])
        assert door.call(instance, method="DELETE")[0] == 204
        assert [(one.partition.partition, one.committed.offset) for one in db.group_offsets(f"g{number}")] == [(0, 5), (1, 5), (2, 5)]


def test_a_plain_call_that_waits_for_another_node_has_one_answer(three, db) -> None:
    """HTTP clients take a 102 for the answer, urllib and requests among them."""
    for number, door in enumerate(doors(three)):
        offsets = [[{"topic": "t", "partition": 0}, {"offset": number, "leader_epoch": -1, "metadata": ""}]]
        assert door.call("/logdb/v1/calls/commit_offsets", {"group_id": "g", "offsets": offsets})[0] == 200
        assert [one.committed.offset for one in db.group_offsets("g")] == [number]


def test_changes_of_nodes_do_not_hold_up_changes_of_topics(three, db) -> None:
    (door, *_), broker = doors(three), three.nodes[1].broker
    position = door.call("/logdb/v1/watch")[1]["position"]
    for number in range(3):
        broker.events.add(ClusterEvent("broker_joined", number))
    db.create_topic("u")
    changes = door.call(f"/logdb/v1/watch?position={position}&timeout_ms=10000&count_max=1")[1]
    assert [event["topic"]["name"] for event in changes["events"]] == ["u"]


def test_a_node_that_passes_appends_on_knows_the_topic_as_it_is(three, db) -> None:
    def error_codes(door):
        records = [{"value": 1, "partition": 0}, {"key": "k", "value": "x" * 3_000, "partition": 0}]
        return [one["error_code"] for one in door.call("/topics/t", {"records": records}, content_type=JSON)[1]["offsets"]]

    for door in doors(three):
        assert error_codes(door) == [None, None]
    db.alter_topic("t", config={"cleanup.policy": "compact"})
    for door in doors(three):
        assert error_codes(door) == [50002, None]
    db.delete_topic("t")
    db.create_topic("t", partitions=3, config={"max.message.bytes": 2_000})
    for door in doors(three):
        assert error_codes(door) == [None, 50002]
    db.alter_topic("t", config={"max.message.bytes": 10_000})
    for door in doors(three):
        assert error_codes(door) == [None, None]


def test_each_node_s_metrics_have_its_groups_and_its_replicas(three, db) -> None:
    db.create_topic("one", partitions=3, replication_factor=1)
    partitions = [(topic, partition) for topic in ("t", "one") for partition in range(3)]
    for where in partitions:
        db.log(*where).append_many([b"value"] * 5)
    groups = {f"g{number}" for number in range(8)}
    for group in groups:
        db.reset_offsets(group, dict.fromkeys(partitions, 2))
    seen = set()
    for number, door in enumerate(doors(three)):
        status, page = door.call("/metrics")
        assert status == 200
        samples = [one for family in text_string_to_metric_families(page.decode()) for one in family.samples]
        replicas = {("t", "0"), ("t", "1"), ("t", "2"), ("one", str(number))}
        own = {(one.labels["topic"], one.labels["partition"]) for one in samples if one.name == "kafka_topic_partition_current_offset"}
        assert {where for where in own if not where[0].startswith("__")} == replicas
        lags = [one for one in samples if one.name == "kafka_consumergroup_lag"]
        coordinated = {one.labels["consumergroup"] for one in lags}
        assert {(one.labels["consumergroup"], one.labels["topic"], one.labels["partition"]) for one in lags} == {
            (group, *where) for group in coordinated for where in replicas
        }
        assert {one.value for one in lags} <= {3}
        sums = {(one.labels["consumergroup"], one.labels["topic"]): one.value for one in samples if one.name.endswith("lag_sum")}
        assert sums == {(group, "t"): 9 for group in coordinated}
        seen |= coordinated
    assert seen == groups
