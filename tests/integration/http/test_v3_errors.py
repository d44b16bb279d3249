"""Every error of REST v3 that is documented (``v3_resources``), provoked."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faulty_io import FaultyIO
from support.security import secure
from support.serving import Served, served

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rest-v3.md"
HUGE = "x" * 5_000
RECORDS = "/topics/trades/records"
BATCH = RECORDS + ":batch"
CONFIG = "/topics/trades/configs/retention.ms"
V3_ACL = {
    "resource_type": "TOPIC",
    "resource_name": "t",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("v3") / "db") as server:
        server.database.create_topic("trades", partitions=2, config={"max.message.bytes": 1_000})
        server.database.create_topic("accounts", config={"cleanup.policy": "compact"})
        server.database.create_topic("deep")
        yield server


def cluster_path(server: Served) -> str:
    return f"/v3/clusters/{server.call('/v3/clusters')[1]['data'][0]['cluster_id']}"


def entries(*ids: object) -> dict:
    return {"entries": [{"id": name} for name in ids]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "says"),
    [
        ("POST", "/topics", b"{", 400, 400, "JSON"),
        ("POST", "/topics", [], 400, 400, "an object"),
        ("POST", "/topics", {}, 400, 400, "topic_name"),
        (
            "POST",
            "/topics",
            {"topic_name": "t", "partition_count": 2},
            400,
            400,
            "has the unknown field 'partition_count'; known fields: topic_name, part",
        ),
        ("POST", "/topics", {"topic_name": "t", "configs": [{"name": "a", "val": 1}]}, 400, 400, "configs[0] has the unknown field 'val'"),
        ("PATCH", "/topics/trades", {"partitions_count": 3, "validate_only": True}, 400, 400, "has the unknown field 'validate_only'"),
        ("PUT", CONFIG, {"val": "1"}, 400, 400, "has the unknown field 'val'; known fields: value"),
        ("PUT", CONFIG, {}, 400, 400, "value is None: must be a word or a number; null is the default"),
        ("POST", "/topics/trades/configs:alter", {"data": [{"name": "retention.ms"}]}, 400, 400, "value is None"),
        ("POST", "/topics/trades/configs:alter", {"data": [], "validate": True}, 400, 400, "has the unknown field 'validate'"),
        ("POST", BATCH, {"entries": [], "entry": 1}, 400, 400, "has the unknown field 'entry'"),
        ("POST", "/topics", {"topic_name": 7}, 400, 400, "a string"),
        ("POST", "/topics", {"topic_name": "t", "partitions_count": "A"}, 400, 400, "partitions_count is 'A'"),
        ("POST", "/topics", {"topic_name": "t", "partitions_count": True}, 400, 400, "whole number"),
        ("POST", "/topics", {"topic_name": "t", "validate_only": 1}, 400, 400, "true or false"),
        ("POST", "/topics", {"topic_name": "t", "configs": {"a": 1}}, 400, 400, "a list of objects"),
        ("PATCH", "/topics/trades", {}, 400, 400, "partitions_count"),
        ("POST", "/topics/trades/configs:alter", {"data": [{"name": "retention.ms", "operation": "ADD"}]}, 400, 400, "SET or DELETE"),
        ("GET", "/topics/trades/partitions/0/offset?offset_type=newest", None, 400, 400, "offset_type:newest"),
        ("POST", BATCH, {"entries": 1}, 400, 400, "entries"),
        ("POST", "/topics", {"topic_name": "trades"}, 400, 40002, "exists"),
        ("POST", "/topics", {"topic_name": "trades", "validate_only": True}, 400, 40002, "exists"),
        ("POST", "/topics", {"topic_name": "no/name"}, 400, 40002, "invalid topic name"),
        ("POST", "/topics", {"topic_name": "t", "partitions_count": 0}, 400, 40002, "cannot have 0 partitions"),
        ("POST", "/topics", {"topic_name": "t", "partitions_count": 0, "validate_only": True}, 400, 40002, "cannot have 0 partitions"),
        (
            "POST",
            "/topics",
            {"topic_name": "t", "replication_factor": 4},
            400,
            40002,
            "Replication factor: 4 larger than available brokers: ",
        ),
        ("POST", "/topics", {"topic_name": "t", "replicas_assignments": {"0": [0, 1]}}, 400, 40002, "t-0 cannot have the replicas 0, 1"),
        ("POST", "/topics", {"topic_name": "t", "replicas_assignments": {"0": 0}}, 400, 400, "the ids of brokers for each partition"),
        ("POST", "/topics", {"topic_name": "t", "replicas_assignments": {"0": ["0"]}}, 400, 400, "the ids of brokers for each partition"),
        ("POST", "/topics", {"topic_name": "t", "replicas_assignments": {"0": [0]}, "partitions_count": 2}, 400, 40002, "named for 1"),
        ("POST", "/topics", {"topic_name": "t", "replicas_assignments": {"1": [0]}}, 400, 40002, "numbered from 0"),
        ("POST", "/topics", {"topic_name": "t", "configs": [{"name": "no.such", "value": "1"}]}, 400, 40002, "no.such"),
        ("PATCH", "/topics/trades", {"partitions_count": 2}, 400, 40002, "already has 2"),
        ("PATCH", "/topics/trades", {"partitions_count": 1}, 400, 40002, "can only grow"),
        ("PUT", CONFIG, {"value": "soon"}, 400, 40002, "retention.ms='soon'"),
        ("POST", "/topics/trades/configs:alter", {"data": [{"name": "no.such", "value": "1"}]}, 400, 40002, "no.such"),
        ("POST", "/topics/trades/configs:alter", {"data": [{"name": "a", "value": "1"}], "validate_only": True}, 400, 40002, "a='1'"),
        ("GET", "/acls?resource_type=USER", None, 400, 400, "resource_type is 'USER'"),
        ("GET", "/acls?principal=alice", None, 400, 400, "must be KIND:NAME"),
        ("DELETE", "/acls", None, 400, 400, "resource_type is required; ANY means all"),
        ("DELETE", "/acls?resource_type=ANY&pattern_type=ANY&operation=ANY", None, 400, 400, "permission is required"),
        ("POST", "/acls", {}, 400, 400, "resource_type"),
        ("POST", "/acls", V3_ACL | {"resource_type": "ANY"}, 400, 400, "resource_type is 'ANY'"),
        ("POST", "/acls", V3_ACL | {"pattern_type": "MATCH"}, 400, 400, "must be LITERAL or PREFIXED"),
        ("POST", "/acls", V3_ACL | {"more": "x"}, 400, 400, "the body has the unknown field 'more'"),
        ("POST", "/acls:batch", {"data": [V3_ACL, 1]}, 400, 400, "data[1] is 1: must be an object"),
        ("POST", "/acls", V3_ACL | {"operation": "CLUSTER_ACTION"}, 400, 40002, "must be Read"),
        ("POST", "/acls", V3_ACL | {"resource_type": "CLUSTER", "operation": "ALTER"}, 400, 40002, "there is one"),
        ("POST", "/acls", V3_ACL, 400, 40002, "authentication is off"),
        ("POST", "/acls:batch", {"data": []}, 422, 422, "Error: 42208"),
        ("POST", "/acls", b"", 422, 422, "Error: 42206"),
        ("GET", "/brokers/7", None, 404, 404, "Broker 7"),
        ("GET", "/brokers/7/configs", None, 404, 404, "Broker 7"),
        ("GET", "/brokers/7/partition-replicas", None, 404, 404, "Broker 7"),
        ("GET", "/topics/trades/configs/no.such", None, 404, 404, "Config no.such"),
        ("DELETE", "/topics/trades/configs/no.such", None, 404, 404, "Config no.such"),
        ("GET", "/topics/trades/partitions/0/replicas/7", None, 404, 404, "Replica"),
        ("GET", "/topics/trades/partitions/0/reassignment", None, 404, 404, "Reassignment"),
        ("GET", "/consumer-groups/none", None, 404, 404, "none"),
        ("GET", "/consumer-groups/none/consumers", None, 404, 404, "none"),
        ("GET", "/consumer-groups/none/lag-summary", None, 404, 404, "none"),
        ("GET", "/topics/none", None, 404, 40403, "none"),
        ("DELETE", "/topics/none", None, 404, 40403, "none"),
        ("PATCH", "/topics/none", {"partitions_count": 2}, 404, 40403, "none"),
        ("GET", "/topics/none/configs", None, 404, 40403, "none"),
        ("PUT", "/topics/none/configs/retention.ms", {"value": "1"}, 404, 40403, "none"),
        ("POST", "/topics/none/configs:alter", {"data": [], "validate_only": True}, 404, 40403, "none"),
        ("GET", "/topics/none/partitions", None, 404, 40403, "none"),
        ("GET", "/topics/trades/partitions/2", None, 404, 40403, "no partition 2"),
        ("GET", "/topics/trades/partitions/2/offset", None, 404, 40403, "no partition 2"),
        ("POST", "/topics/none/records", {}, 404, 40403, "none"),
        ("POST", "/topics/none/records:batch", entries("1"), 404, 40403, "none"),
        ("POST", "/topics", b"", 422, 422, "Error: 42206 : Payload error. Request body is empty. Data is required."),
        ("POST", RECORDS, b"", 422, 422, "Error: 42206 : Payload error. Request body is empty. Data is required."),
        ("POST", RECORDS, b" \n ", 422, 422, "Error: 42206 : Payload error. Request body is empty. Data is required."),
        ("POST", BATCH, b"", 422, 422, "Request body is empty. Data is required."),
        ("POST", BATCH, entries(), 422, 422, "Error: 42208 : Empty batch."),
        ("POST", BATCH, entries("1", "2", "1"), 422, 422, "Error: 42208 : Batch entry IDs are not distinct."),
        ("POST", BATCH, entries(*map(str, range(10_001))), 422, 422, "Error: 42208 : Too many entries in batch"),
        ("POST", BATCH, entries("1", ""), 422, 422, "Error: 42208 : Batch entry identifier is not a valid string"),
        ("POST", BATCH, entries("x" * 81), 422, 422, "Error: 42208 : Batch entry identifier is not a valid string"),
        ("POST", BATCH, entries(1), 422, 422, "Error: 42208 : Batch entry identifier is not a valid string"),
    ],
)
def test_a_request_is_refused(server: Served, method: str, path: str, body: object, status: int, code: int, says: str) -> None:
    before = server.call(cluster_path(server) + "/topics")
    found, answer = server.call(cluster_path(server) + path, body, method=method)
    assert (found, answer.get("error_code")) == (status, code), answer
    assert says in answer["message"]
    assert server.call(cluster_path(server) + "/topics") == before


@pytest.mark.parametrize(
    ("topic", "record", "code", "says"),
    [
        ("trades", [1], 400, "an object"),
        ("trades", {"partition": 1}, 400, "['partition']"),
        ("trades", {"partition_id": "1"}, 400, "partition_id is '1'"),
        ("trades", {"value": "x"}, 400, "value is 'x'"),
        ("trades", {"value": {"type": "BINARY", "data": 1}}, 400, "Bad Request: data=1 is not a base64 string."),
        ("trades", {"key": {"type": "BINARY", "data": "Zm9"}}, 400, "is not a base64 string."),
        (
            "trades",
            {"value": {"type": "STRING", "value": "x"}},
            400,
            "value has the unknown field 'value'; known fields: type, data",
        ),
        ("trades", {"key": {"type": "STRING", "data": "k", "schema_id": 1}}, 400, "Bad Request: key has the unknown field 'schema_id'"),
        (
            "trades",
            {"headers": [{"name": "h", "val": "YQ=="}]},
            400,
            "a header has the unknown field 'val'; known fields: name, value",
        ),
        ("trades", {"value": {"type": "STRING", "data": 1}}, 400, "Bad Request: data=1 is not a string in valid UTF-8."),
        ("trades", {"value": {"type": "STRING", "data": "\ud800"}}, 400, "UTF-8"),
        ("trades", {"value": {"type": "XML", "data": 1}}, 400, "BINARY, JSON, STRING"),
        ("trades", {"value": {"type": ["JSON"], "data": 1}}, 400, "BINARY, JSON, STRING"),
        ("trades", {"headers": {"a": "b"}}, 400, "headers"),
        ("trades", {"headers": [{"value": "Zm9v"}]}, 400, "a header"),
        ("trades", {"headers": [{"name": "h", "value": "?"}]}, 400, "a header is {'name': 'h'"),
        ("trades", {"headers": [{"name": "\ud800"}]}, 400, "a header"),
        ("trades", {"timestamp": "yesterday"}, 400, "timestamp"),
        ("trades", {"timestamp": 1_612_552_482}, 400, "timestamp"),
        ("trades", {"timestamp": "2021-02-05T19:14:42"}, 400, "zone"),
        ("trades", {"timestamp": "9999-01-01T00:00:00Z"}, 40002, "timestamp"),
        ("trades", {"timestamp": "0001-01-01T00:00:00+00:01"}, 400, "timestamp"),
        ("trades", {"timestamp": "9999-12-31T23:59:59-00:01"}, 400, "timestamp"),
        ("accounts", {"value": {"type": "STRING", "data": "no key"}}, 40002, "key"),
        ("trades", {"partition_id": 2}, 40402, "Partition not found"),
        ("trades", {"partition_id": -1}, 40402, "Partition not found"),
        ("trades", {"value": {"type": "STRING", "data": HUGE}}, 413, "max.message.bytes"),
        ("trades", {"value": {"data": 1}}, 422, "Error: 42206 : Payload error. Schema Registry must be configured when using schemas"),
        ("trades", {"key": {"type": "AVRO", "schema_id": 1, "data": 1}}, 422, "Error: 42206 : Payload error."),
    ],
)
def test_a_record_is_refused_by_its_report(server: Served, topic: str, record: object, code: int, says: str) -> None:
    path = f"{cluster_path(server)}/topics/{topic}/records"
    status, report = server.call(path, record)
    assert (status, report["error_code"]) == (200, code), report
    assert says in report["message"]
    if isinstance(record, dict):
        status, answer = server.call(path + ":batch", {"entries": [record | {"id": "a"}]})
        (failure,) = answer["failures"]
        assert (status, answer["successes"], failure["id"], failure["error_code"]) == (207, [], "a", code)
        assert says in failure["message"]


@pytest.mark.parametrize("depth", [*range(900, 1_000, 7), 5_000])
@pytest.mark.parametrize(("part", "codes"), [('{"value":{"type":"JSON","data":%s}}', {200, 400}), ('{"partition_id":%s}', {400})])
def test_a_record_of_any_depth_gets_a_report(server: Served, part: str, codes: set[int], depth: int) -> None:
    record = part % ("[" * depth + "]" * depth)
    status, report = server.call(f"{cluster_path(server)}/topics/deep/records", record.encode())
    assert status == 200
    assert report["error_code"] in codes, report


@pytest.mark.parametrize("path", ["/topics", RECORDS, BATCH])
def test_a_body_that_is_said_not_to_be_json_is_refused(server: Served, path: str) -> None:
    status, answer = server.call(cluster_path(server) + path, b"{}", content_type="text/plain")
    assert (status, answer["error_code"]) == (415, 415)


@pytest.mark.parametrize("path", ["", "/topics", "/topics/trades", "/brokers", "/consumer-groups"])
def test_there_is_one_cluster(server: Served, path: str) -> None:
    status, answer = server.call("/v3/clusters/my-cluster" + path)
    assert (status, answer) == (404, {"error_code": 404, "message": "Cluster my-cluster cannot be found."})


@pytest.mark.parametrize(
    ("path", "body"), [("/topics/trades", None), (RECORDS, {}), (BATCH, entries("1")), ("/topics/trades/configs", None)]
)
def test_who_may_not_is_refused(tmp_path: Path, path: str, body: object) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("trades")
        path = cluster_path(server) + path
        secure(server.database.path, "Allow alice@* Describe Topic other", users={"alice": "secret"})
        status, answer = server.by("alice", "secret").call(path, body)
        assert (status, answer["error_code"]) == (403, 40301)
        status, answer = server.by("alice", "guess").call(path, body)
        assert (status, answer["error_code"]) == (401, 40101)


def test_a_full_disk_is_worth_another_try(tmp_path: Path) -> None:
    io = FaultyIO()
    with served(tmp_path / "db", opened={"io": io}) as server:
        server.database.create_topic("trades")
        path = cluster_path(server) + RECORDS
        io.fill_up()
        assert server.call(path, {"value": {"type": "STRING", "data": "x"}})[1]["error_code"] == 50003
        io.heal()
        assert server.call(path, {"value": {"type": "STRING", "data": "x"}})[1]["error_code"] == 200


def test_what_can_only_be_read_takes_no_topic(tmp_path: Path) -> None:
    with served(tmp_path / "db"):
        pass
    with served(tmp_path / "db", opened={"mode": "r"}) as server:
        status, answer = server.call(cluster_path(server) + "/topics", {"topic_name": "t"})
        assert (status, answer["error_code"]) == (409, 40933)


ELSEWHERE = {
    (401, 40101): test_who_may_not_is_refused,
    (403, 40301): test_who_may_not_is_refused,
    (415, 415): test_a_body_that_is_said_not_to_be_json_is_refused,
    (500, 50003): test_a_full_disk_is_worth_another_try,
    (500, 50002): "test_error_codes.test_a_disk_that_does_not_sync",
    (503, 503): "test_v3_records.test_a_stream_ends_with_a_report_when_the_server_drains",
}


def test_every_code_of_the_page_is_provoked() -> None:
    documented = {(int(status), int(code)) for status, code in re.findall(r"^\| (\d{3}) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)}
    (requests,), (records,) = test_a_request_is_refused.pytestmark, test_a_record_is_refused_by_its_report.pytestmark
    answered = {(status, code) for _, _, _, status, code, _ in requests.args[1]}
    reported = {code for _, _, code, _ in records.args[1]}
    assert {one for one in documented - answered - ELSEWHERE.keys() if one[1] not in reported} == set()
    assert answered <= documented
