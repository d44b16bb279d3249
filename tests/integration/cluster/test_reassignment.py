"""Partitions get other replicas under load, and a node that lost its disk comes back: nothing that was acknowledged is lost."""

import json
import re

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb_replication.administration import cluster_state, controllers
from support.cluster import Load, stored
from support.cluster_process import ClusterProcess, cluster_process, eventually
from support.history import check
from support.serving import Served

pytestmark = [pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def asked(nodes: ClusterProcess, *words: object, code: int = 0, node: int = 1):
    """What a command about the cluster prints."""
    result = CliRunner().invoke(cli, [*map(str, words), "--cluster", nodes.config(node), "--json"])
    assert result.exit_code == code, (result.output, result.stderr)
    return json.loads(result.stdout) if result.stdout else result.stderr


def described(nodes, topic, partition=0, node=1):
    return asked(nodes, "partitions", "list", topic, node=node)["partitions"][partition]


def own_end_offset(db, topic):
    """Where the log ends that the node itself has; ``db.describe_topic`` asks the leader."""
    return db._session.describe_topic(topic).partitions[0].end_offset


def create(nodes, topic, replicas, **config):
    with nodes.open(1) as db:
        db.create_topic(topic, partitions=1, replication_factor=len(replicas), config=config)
    asked(nodes, "partitions", "reassign", "--topic", topic, "--to", ",".join(map(str, replicas)), "--timeout", "20s")


@pytest.mark.parametrize(("before", "after"), [((1,), (1, 2, 3)), ((1, 2), (2, 3)), ((2, 1), (3,))], ids=str)
def test_under_load(nodes, before, after):
    topic = f"{len(before)}-to-{len(after)}-{after[0]}"
    create(nodes, topic, before)
    with Load(nodes, topic, 1) as load:
        load.wait_for_more(50)
        asked(nodes, "partitions", "reassign", "--topic", topic, "--to", ",".join(map(str, after)), "--timeout", "20s")
        load.wait_for_more(50)
    eventually(lambda: sorted(described(nodes, topic)["in_sync"]) == sorted(after))
    found = described(nodes, topic)
    assert (found["replicas"], found["target"], sorted(found["in_sync"])) == (list(after), [], sorted(after))
    assert found["leader"] in after
    assert check(load.history, stored(nodes, topic, 1)) == []
    for gone in set(before) - set(after):  # the log of a replica that was removed is emptied
        with nodes.open(gone) as db:
            eventually(lambda db=db: own_end_offset(db, topic) == 0)


def test_a_throttle_progress_and_cancel(nodes):
    create(nodes, "slow", (1,))
    with nodes.open(1) as db, db.producer() as producer:
        for _ in range(200):
            producer.send("slow", bytes(20_000), partition=0)
    moving = asked(nodes, "partitions", "reassign", "--topic", "slow", "--to", "2", "--throttle", "100KB", code=1)["moving"]
    assert [(one["replicas"], one["target"]) for one in moving] == [([1, 2], [2])]
    eventually(lambda: described(nodes, "slow")["logs"]["2"]["end_offset"] > 0)
    left = described(nodes, "slow")["logs"]["2"]
    assert 0 < left["offsets_left"] < 200
    assert left["bytes_left"] > 0
    assert asked(nodes, "partitions", "reassign", "--topic", "slow", "--verify", code=1)["moving"]
    assert asked(nodes, "partitions", "reassign", "--topic", "slow", "--cancel")["moving"] == []
    found = described(nodes, "slow")
    assert (found["replicas"], found["in_sync"]) == ([1], [1])
    with nodes.open(2) as db:
        eventually(lambda: own_end_offset(db, "slow") == 0)
    with logdb.open(nodes.urls) as db:
        assert len(list(db.log("slow", 0).read(0))) == 200


def test_rest_shows_what_is_under_way_at_each_node(nodes):
    create(nodes, "shown", (1,))
    create(nodes, "rests", (1,))
    with nodes.open(1) as db, db.producer() as producer:
        for _ in range(200):
            producer.send("shown", bytes(20_000), partition=0)
    asked(nodes, "partitions", "reassign", "--topic", "shown", "--to", "2", "--throttle", "2KB", code=1)
    for door in (Served(None, url, None) for url in nodes.urls):
        cluster = "/v3/clusters/" + door.call("/v3/clusters")[1]["data"][0]["cluster_id"]
        of_all, of_topic, of_others = (f"{cluster}/topics/{name}/partitions/-/reassignment" for name in ("-", "shown", "rests"))
        at = f"{cluster}/topics/shown/partitions/0"
        told = door.call(of_topic)[1]
        assert (told["kind"], told["data"]) == ("KafkaReassignmentList", door.call(of_all)[1]["data"])
        (one,) = told["data"]
        assert door.call(f"{at}/reassignment") == (200, one)
        assert one["kind"] == "KafkaReassignment"
        assert one["metadata"]["resource_name"].endswith("/topic=shown/partition=0/reassignment")
        assert [one[name] for name in ("topic_name", "partition_id", "adding_replicas", "removing_replicas")] == ["shown", 0, [2], [1]]
        assert one["replicas"] == {"related": f"{door.url}{at}/replicas"}
        assert {replica["broker_id"] for replica in door.call(f"{at}/replicas")[1]["data"]} == {1, 2}
        assert door.call(of_others)[1]["data"] == []
        assert door.call(f"{cluster}/topics/rests/partitions/0/reassignment")[0] == 404
        preferred = dict(re.findall(r'partition_leader_is_preferred{topic="(\w+)",partition="0"} (\d)', door.call("/metrics")[1].decode()))
        assert (preferred["shown"], preferred["rests"]) == ("0", "1")  # an election would let node 2 lead
    asked(nodes, "partitions", "reassign", "--topic", "shown", "--cancel")
    assert door.call(f"{at}/reassignment")[0] == 404
    assert door.call(of_all)[1]["data"] == []


def test_another_throttle_holds_at_once(nodes):
    create(nodes, "corrected", (1,))
    with nodes.open(1) as db, db.producer() as producer:
        for _ in range(200):
            producer.send("corrected", bytes(20_000), partition=0)
    asked(nodes, "partitions", "reassign", "--topic", "corrected", "--to", "2", "--throttle", "2KB", code=1)
    eventually(lambda: described(nodes, "corrected")["logs"]["2"]["end_offset"] > 0)  # at that limit the next fetch is minutes away
    asked(nodes, "partitions", "reassign", "--topic", "corrected", "--to", "2", "--timeout", "30s")
    assert described(nodes, "corrected")["in_sync"] == [2]


def test_a_file_of_kafkas_and_what_is_refused(nodes, tmp_path):
    create(nodes, "file", (1, 2))
    path = tmp_path / "moves.json"
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": "file", "partition": 0, "replicas": [3, 1]}]}))
    answer = asked(nodes, "partitions", "reassign", "--file", path, "--timeout", "20s")
    assert answer["before"]["partitions"] == [{"topic": "file", "partition": 0, "replicas": [1, 2]}]
    assert described(nodes, "file")["replicas"] == [3, 1]
    assert "node 9 has never registered" in asked(nodes, "partitions", "reassign", "--topic", "file", "--to", "9", code=2)
    assert "each node has one replica" in asked(nodes, "partitions", "reassign", "--topic", "file", "--to", "2,2", code=2)
    assert "use --topic or --all" in asked(nodes, "partitions", "reassign", "--to", "2", code=2)
    with nodes.open(1) as db:
        db.create_topic("safe", partitions=1)
    few = asked(nodes, "partitions", "reassign", "--topic", "safe", "--to", "2", code=2)
    assert "min.insync.replicas is 2, so no record would be acknowledged" in few
    assert "1 byte a second or more" in asked(nodes, "partitions", "reassign", "--topic", "file", "--to", "2", "--throttle", 0, code=2)
    one = {"topic": "file", "partition": 0, "replicas": [2]}
    for text in ("{}", json.dumps({"partitions": [one | {"replicas": []}]}), json.dumps({"partitions": [one, one]})):
        path.write_text(text)
        assert "must be JSON like" in asked(nodes, "partitions", "reassign", "--file", path, code=2)
    assert described(nodes, "file")["replicas"] == [3, 1]


def test_all_partitions_are_checked_before_the_first_one_is_changed(nodes, tmp_path):
    create(nodes, "allowed", (1, 2))
    create(nodes, "refused", (1, 2), **{"min.insync.replicas": 2})
    path = tmp_path / "moves.json"
    for wrong, why in (([3], "min.insync.replicas is 2"), ([3, 9], "node 9 has never registered"), ([3, 3], "each node has one replica")):
        targets = {"allowed": [3, 1], "refused": wrong}
        path.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "replicas": to} for name, to in targets.items()]}))
        assert why in asked(nodes, "partitions", "reassign", "--file", path, "--throttle", "100KB", code=2)
        assert (described(nodes, "allowed")["replicas"], described(nodes, "allowed")["target"]) == ([1, 2], [])
        with controllers(nodes.config(1)) as (_, client):
            assert cluster_state(client).reassignment_bytes_per_s is None


def test_an_unclean_election_shows_what_would_be_lost(nodes):
    create(nodes, "unclean", (2, 3))
    with nodes.open(1) as db:
        db.log("unclean", 0).append(b"both have it")
        nodes.kill(2)
        eventually(lambda: described(nodes, "unclean")["in_sync"] == [3])
        db.log("unclean", 0).append(b"3 alone has it")
    nodes.kill(3)
    nodes.start(2)
    eventually(lambda: described(nodes, "unclean")["leader"] is None)
    elect = ("partitions", "elect", "--topic", "unclean", "--unclean")
    shown = asked(nodes, *elect, 2)
    assert (shown["executed"], shown["partition"]["logs"]["2"]["end_offset"]) == (False, 1)
    assert "it is no replica" in asked(nodes, *elect, 1, "--yes", code=2)
    assert asked(nodes, *elect, 2, "--yes")["executed"]
    eventually(lambda: described(nodes, "unclean")["leader"] == 2)
    assert "no election is needed" in asked(nodes, *elect, 2, code=2)
    nodes.start(3)
    eventually(lambda: sorted(described(nodes, "unclean")["in_sync"]) == [2, 3])
    with logdb.open(nodes.urls) as db:
        assert [bytes(record.value) for record in db.log("unclean", 0).read(0)] == [b"both have it"]


def test_preferred_leaders_lead_again(nodes):
    create(nodes, "preferred", (2, 1))
    nodes.kill(2)
    eventually(lambda: described(nodes, "preferred")["leader"] == 1)
    nodes.start(2)
    eventually(lambda: sorted(described(nodes, "preferred")["in_sync"]) == [1, 2])
    asked(nodes, "partitions", "elect")
    eventually(lambda: described(nodes, "preferred")["leader"] == 2)
