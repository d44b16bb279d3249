"""REST v3 answers in the shapes of Confluent's ``openapi.yaml``, for any client: exchanges in ``golden/``, checked by hand against it.

``<cluster>`` stands for the id of the cluster, ``<root>`` for the authorization of the super user, where authentication is on;
``<factor>`` for the number of replicas of a new topic, ``<coordinator>`` for the broker that coordinates the group.
"""

import json
from pathlib import Path

import pytest

from logdb.model import TopicPartition
from support import exchanges, three_brokers
from support.exchanges import TRANSPORTS, Transport
from support.security import secure
from support.serving import served
from support.tools import needs

PASSWORD = "correct horse"
GOLDEN = Path(__file__).parent / "golden"


def golden_files(*, super_user: bool) -> list[str]:
    return sorted(path.stem for path in GOLDEN.glob("v3_*.json") if ("super_user" in json.loads(path.read_text())) == super_user)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", golden_files(super_user=False))
def test_the_exchanges_are_as_documented(tmp_path: Path, name: str, transport: Transport) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    with served(tmp_path / "db") as server:
        for topic, partition_count in golden["topics"].items():
            server.database.create_topic(topic, partitions=partition_count)
            if "committed" in golden:
                for partition in range(partition_count):
                    server.database.log(topic, partition).append_many([b"value"] * 5)
        for group_id, offsets in golden.get("committed", {}).items():
            server.database.reset_offsets(group_id, {TopicPartition(topic, partition): offset for topic, partition, offset in offsets})
        cluster_id = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
        replaced = {"<cluster>": cluster_id, '"<factor>"': "3" if three_brokers.Shared.chosen else "1"}
        if "committed" in golden:
            (group_id,) = golden["committed"]
            described = server.call(f"/v3/clusters/{cluster_id}/consumer-groups/{group_id}")[1]
            replaced["<coordinator>"] = described["coordinator"]["related"].rpartition("/")[2] if three_brokers.Shared.chosen else "0"
        exchanges.check(server, transport, golden, name, replaced)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", golden_files(super_user=True))
def test_what_a_super_user_does_is_as_documented(tmp_path: Path, name: str, transport: Transport) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    with served(tmp_path / "db") as server:
        cluster_id = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
        secure(server.database.path, users={golden["super_user"]: PASSWORD}, super_users=[golden["super_user"]])
        root = server.by(golden["super_user"], PASSWORD).authorization
        exchanges.check(server, transport, golden, name, {"<cluster>": cluster_id, "<root>": str(root)})


def test_the_cluster_is_named_by_the_database_and_keeps_its_name(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        with served(tmp_path / "db") as server:
            ids.add(server.call("/v3/clusters")[1]["data"][0]["cluster_id"])
    assert len(ids) == 1


@needs("curl")
def test_a_new_topic_says_where_it_is(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        cluster_id = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
        asked = ["--data", '{"topic_name": "trades"}', "--header", "Content-Type: application/json"]
        headers = exchanges.curl("--dump-header", "-", "--output", "/dev/null", *asked, f"{server.url}/v3/clusters/{cluster_id}/topics")
        assert f"Location: {server.url}/v3/clusters/{cluster_id}/topics/trades\r\n".encode() in headers


def test_the_configs_of_all_topics_are_one_list(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("a", config={"retention.ms": 7})
        server.database.create_topic("b")
        cluster_id = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
        data = server.call(f"/v3/clusters/{cluster_id}/topics/-/configs")[1]["data"]
        data = [config for config in data if not config["topic_name"].startswith("__")]
        assert {(one["topic_name"], one["value"]) for one in data if one["name"] == "retention.ms"} == {("a", "7"), ("b", "-1")}
        one = [config for config in data if config["topic_name"] == "b"]
        assert one == server.call(f"/v3/clusters/{cluster_id}/topics/b/configs")[1]["data"]


def test_all_doors_tell_where_a_partition_begins_and_ends(tmp_path: Path) -> None:
    """At any node of a cluster, also at one that has no replica."""
    with served(tmp_path / "db") as server:
        server.database.create_topic("t", partitions=3, replication_factor=1)
        cluster = f"/v3/clusters/{server.call('/v3/clusters')[1]['data'][0]['cluster_id']}"
        for partition in range(3):
            server.database.log("t", partition).append_many([b"value"] * (10 + partition))
            server.database.delete_records("t", partition, 5)
        for partition in (0, 1, 2) * 3:
            path, end = f"/topics/t/partitions/{partition}", 10 + partition
            assert server.call(f"{path}/offsets")[1] == {"beginning_offset": 5, "end_offset": end}
            told = server.call(f"{cluster}{path}/offset")[1]
            assert (told["earliest_offset"], told["latest_offset"]) == (5, end)
            info = server.database.describe_topic("t").partitions[partition]
            assert (info.start_offset, info.end_offset) == (5, end)
