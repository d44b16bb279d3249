"""Groups with members, as REST v3 shows them; those without are in ``golden/v3_groups.json``."""

from pathlib import Path

import pytest

from support.security import secure
from support.serving import Served, served


def cluster_path(server: Served) -> str:
    return f"/v3/clusters/{server.call('/v3/clusters')[1]['data'][0]['cluster_id']}"


def test_members_what_they_read_and_how_far_they_are(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        database = server.database
        database.create_topic("trades", partitions=2)
        database.log("trades", 0).append_many([b"x"] * 10)
        consumer = database.consumer(
            "trades", group_id="desk/1", group_instance_id="seat", client_id="robot", auto_offset_reset="earliest", max_poll_records=4
        )
        with consumer:
            assert sum(map(len, consumer.poll(timeout_ms=10_000).values())) == 4
            consumer.commit()
            path = cluster_path(server) + "/consumer-groups/desk%2F1"
            url = server.url + path

            _, group = server.call(path)
            assert (group["state"], group["partition_assignor"], group["is_simple"]) == ("STABLE", "range", False)
            assert group["metadata"]["self"] == url
            assert group["metadata"]["resource_name"].endswith("/consumer-group=desk/1")

            _, members = server.call(path + "/consumers")
            (member,) = members["data"]
            consumer_id = member["consumer_id"]
            assert (member["kind"], member["instance_id"], member["client_id"]) == ("KafkaConsumer", "seat", "robot")
            assert server.call(f"{path}/consumers/{consumer_id}") == (200, member)

            _, assignments = server.call(member["assignments"]["related"].removeprefix(server.url))
            assert [(one["topic_name"], one["partition_id"]) for one in assignments["data"]] == [("trades", 0), ("trades", 1)]
            first = assignments["data"][0]
            assert list(first) == [
                "kind", "metadata", "cluster_id", "consumer_group_id", "consumer_id", "topic_name", "partition_id", "partition", "lag",
            ]  # fmt: skip
            assert server.call(first["metadata"]["self"].removeprefix(server.url)) == (200, first)
            assert server.call(f"{path}/consumers/{consumer_id}/assignments/trades/partitions/2")[0] == 404

            _, lag = server.call(first["lag"]["related"].removeprefix(server.url))
            assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (4, 10, 6)
            assert (lag["consumer_id"], lag["instance_id"], lag["client_id"]) == (consumer_id, "seat", "robot")

            _, summary = server.call(path + "/lag-summary")
            assert (summary["max_lag_consumer_id"], summary["max_lag"], summary["total_lag"]) == (consumer_id, 6, 6)
            assert server.call(summary["max_lag_consumer"]["related"].removeprefix(server.url)) == (200, member)


def test_a_group_that_has_committed_nothing_has_no_lag(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("trades")
        with server.database.consumer("trades", group_id="desk") as consumer:
            consumer.poll(timeout_ms=0)
            path = cluster_path(server) + "/consumer-groups/desk"
            assert server.call(path + "/lags")[1]["data"] == []
            assert server.call(path + "/lag-summary")[1]["error_code"] == 404


@pytest.mark.parametrize("path", ["", "/consumers", "/lags", "/lag-summary"])
def test_a_group_is_shown_to_those_who_may_describe_it(tmp_path: Path, path: str) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("trades")
        server.database.reset_offsets("desk", {("trades", 0): 0})
        secure(server.database.path, "Allow bob@* Describe Group desk", users={"alice": "secret", "bob": "word"})
        alice, bob = server.by("alice", "secret"), server.by("bob", "word")
        groups = cluster_path(bob) + "/consumer-groups"
        status, answer = alice.call(f"{groups}/desk{path}")
        assert (status, answer["error_code"]) == (403, 40301)
        assert alice.call(groups)[1]["data"] == []
        assert bob.call(f"{groups}/desk{path}")[0] == (404 if path == "/lag-summary" else 200), "without Describe of its topic: no lag"
        assert [one["consumer_group_id"] for one in bob.call(groups)[1]["data"]] == ["desk"]
