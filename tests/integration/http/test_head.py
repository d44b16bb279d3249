"""HEAD, as load balancers ask: what GET answers, without its body, and without what GET would do beside answering."""

import json

import pytest

from support.produced import batch
from support.serving import served
from support.waiting import until
from support.wire import wire

V2 = "application/vnd.kafka.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
TOPIC, GROUP = "/topics/t", "/consumers/g/instances/one"
LOG = "/logdb/v1/topics/t/partitions/0"
STREAMS = {
    "/logdb/v1/topics/{topic}/partitions/{partition}/events",
    "/logdb/v1/topics/{topic}/events",
}
FILLED = {
    "topic": "t", "topic_name": "t", "partition": "0", "partition_id": "0", "broker_id": "0", "name": "retention.ms", "group": "g",
    "instance": "one", "consumer_group_id": "g", "offset": "0", "timestamp_ms": "0",
    "file": "app.js", "namespace": "logdb", "table": "t", "part": "data",
}  # fmt: skip
CHANGING = {"date", "transfer-encoding", "content-length"}  # of /metrics, the length of a number in it


@pytest.fixture
def s(tmp_path):
    with served(tmp_path / "db") as s:
        s.database.create_topic("t", config={"retention.ms": 600_000})
        s.database.log("t").append_many([b"1", b"2"])
        assert s.call("/consumers/g", {"name": "one", "format": "json", "auto.offset.reset": "earliest"}, content_type=V2)[0] == 200
        assert s.call(f"{GROUP}/subscription", {"topics": ["t"]}, content_type=V2)[0] == 204
        yield s


def paths(s):
    """Every GET route's path that can be asked without waiting for ever, with something that is there."""
    (door,) = s.server._doors
    cluster = s.call("/v3/clusters")[1]["data"][0]["cluster_id"]
    status, made = s.call("/logdb/v1/backups", method="POST", body=b"", content_type="application/vnd.logdb.backup")
    assert status == 201
    s.call(f"{GROUP}/records?timeout=1000", headers={"Accept": JSON_RECORDS})  # it becomes a member
    (member,) = s.database.describe_group("g").members
    names = {**FILLED, "cluster_id": cluster, "id": made["id"], "consumer_id": member.member_id}
    for route in door.routes:
        if route.method == "GET" and route.path not in STREAMS:
            path = route.path
            for name, value in names.items():
                path = path.replace("{" + name + "}", value)
            assert "{" not in path
            yield path


def test_every_get_route_answers_head_alike_without_a_body(s):
    found = 0
    with wire(s.url) as line:
        for path in paths(s):
            headers = {"Accept": JSON_RECORDS} if path.endswith("/records") else {}
            said = line.ask("HEAD", path, headers=headers)
            got = line.ask("GET", path, headers=headers)  # a byte too many of the one before would be taken for this answer
            assert said.status == got.status, path
            assert {name: value for name, value in said.headers.items() if name not in CHANGING} == {
                name: value for name, value in got.headers.items() if name not in CHANGING
            }, path
            found += said.status == 200
            if path not in ("/metrics", f"{GROUP}/records"):
                assert said.headers.get("content-length", "0") == got.headers.get("content-length", "0"), path
    assert found > 45, "most of them are there"


@pytest.mark.parametrize("path", ["/logdb/v1/topics/t/events", f"{LOG}/events?offset=earliest", "/logdb/v1/watch"])
def test_a_stream_of_events_does_not_begin(s, path):
    with wire(s.url) as line:
        said = line.ask("HEAD", path, headers={"Accept": "text/event-stream"})
        assert (said.status, said.headers["content-type"]) == (200, "text/event-stream")
        s.database.log("t").append(b"3")
        assert line.ask("GET", "/health/live").json == {"status": "live"}, "the connection is free, and nothing of a stream came"
    (door,) = s.server._doors
    until(lambda: door.requests.taken == 0, "the end of the last request")


@pytest.mark.parametrize(
    "path",
    [
        f"{LOG}/batches?offset=2&wait_ms=300000",
        "/logdb/v1/watch?timeout_ms=300000",
        f"{TOPIC}/partitions/0/records?offset=2&timeout=300000",
        f"{GROUP}/records?timeout=300000",
    ],
)
def test_head_waits_for_nothing(s, path):
    headers = {"Accept": JSON_RECORDS} if "/records" in path else {}
    with wire(s.url, timeout_s=20) as line:
        assert line.ask("HEAD", path, headers=headers).status == 200


def test_head_takes_no_records_of_a_consumer(s):
    with wire(s.url) as line:
        for _ in range(3):
            assert line.ask("HEAD", f"{GROUP}/records", headers={"Accept": JSON_RECORDS}).status == 200
    status, records = s.call(f"{GROUP}/records?timeout=5000", headers={"Accept": JSON_RECORDS})
    assert (status, [record["offset"] for record in records]) == (200, [0, 1])


def test_head_is_refused_as_get_is_and_says_why_in_the_status_alone(s):
    with wire(s.url) as line:
        for path, status in ((f"{LOG}/batches?offset=x", 422), ("/nothing", 404), ("/topics/none", 404), (f"{LOG}/batches?offset=99", 416)):
            assert line.ask("HEAD", path).status == status == line.ask("GET", path).status, path


def test_where_there_is_no_get_there_is_no_head(s):
    with wire(s.url) as line:
        said = line.ask("HEAD", "/logdb/v1/partitions")
        assert (said.status, said.headers["allow"]) == (405, "POST")
        assert line.ask("DELETE", "/topics/t").headers["allow"] == "GET, HEAD, POST"


def test_a_large_answer_is_announced_and_not_sent(s):
    s.database.log("t").append_batches(batch([bytes(300_000)], 1, 0, 0))
    with wire(s.url) as line:
        said = line.ask("HEAD", f"{LOG}/batches?offset=0&max_bytes=1000000")
        assert int(said.headers["content-length"]) > 300_000 and said.headers["logdb-next-offset"] == "3"
        assert json.loads(line.ask("GET", "/health/ready").body) == {"status": "ready"}


def test_a_draining_server_is_not_ready(s):
    (door,) = s.server._doors
    with wire(s.url) as line:
        assert line.ask("HEAD", "/health/ready").status == 200
        door.draining = True
        assert line.ask("HEAD", "/health/ready").status == 503
        door.draining = False
