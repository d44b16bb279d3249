"""Every error that REST v2 documents is provoked here, or cannot be: then it says why."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logdb.client.consumer.membership import GroupMetadata
from logdb.model import OffsetAndMetadata, TopicPartition
from support.security import secure
from support.serving import Served, served

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "rest-v2.md"
V2 = "application/vnd.kafka.v2+json"
JSON, BINARY, AVRO = (f"application/vnd.kafka.{name}.v2+json" for name in ("json", "binary", "avro"))
ALICE = ("alice", "open sesame")
USERS = dict([ALICE])
Told = tuple[int, Any]

DOCUMENTED = {
    *(40001, 40401, 40402, 40403, 40404, 40405, 40601, 40801, 40901, 40902, 40903),
    *(42201, 42202, 42203, 42204, 42205, 42206, 42207, 42208, 50001, 50002, 50003, 50101, 50301),
}
"""Of Confluent's ``Errors`` and its documentation of v2."""
IMPOSSIBLE = {
    40404: "a partition has no leader: there is one server, which leads them all",
    40405: "a group is not found: an instance that is not found says 40403, and no other call of v2 names a group",
    40901: "was of v1; v2 says 40903",
    42203: "JSON is not what an Avro schema wants: there is no schema registry",
    42208: "a batch of v3",
    50001: "the server itself is broken: nothing that a client sends should do that",
    50101: "the broker has only TLS: there is no broker behind the server",
}


def make(server: Served, group: str = "g", **options: Any) -> str:
    status, told = server.call(f"/consumers/{group}", {"name": "i"} | options, content_type=V2)
    assert status == 200, told
    return f"/consumers/{group}/instances/i"


def produce(server: Served, body: Any, content_type: str = JSON, path: str = "/topics/t") -> Told:
    return server.call(path, body, content_type=content_type)


def damaged_log(server: Served) -> Told:
    log = server.database.log("t", 0)
    log.append_many([b"x" * 100] * 10)
    log.flush()
    (segment,) = (Path(server.database.path) / "t-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[80] ^= 1
    segment.write_bytes(data)
    return server.call("/topics/t/partitions/0/records?offset=0")


def offsets_of_an_open_transaction(server: Served) -> Told:
    instance = make(server)
    with server.database.producer(transactional_id="etl") as producer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(1)}, GroupMetadata("g"))
        told = server.call(instance + "/offsets", {"partitions": [{"topic": "t", "partition": 0}]}, method="GET", content_type=V2)
        producer.abort_transaction()
    return told


def committed_behind_the_end(server: Served) -> Told:
    place = {"topic": "t", "partition": 0}
    instance = make(server)
    server.call(instance + "/assignments", {"partitions": [place]}, content_type=V2)
    server.call(instance + "/offsets", {"offsets": [{**place, "offset": 58575}]}, content_type=V2)
    server.call(instance, method="DELETE")
    instance = make(server)
    server.call(instance + "/assignments", {"partitions": [place]}, content_type=V2)
    return server.call(instance + "/records")


def not_json(server: Served) -> Told:
    server.database.log("t", 0).append(b"\xff")
    instance = make(server, format="json", **{"auto.offset.reset": "earliest"})
    server.call(instance + "/assignments", {"partitions": [{"topic": "t", "partition": 0}]}, content_type=V2)
    return server.call(instance + "/records")


def two_kinds_of_subscription(server: Served) -> Told:
    instance = make(server)
    server.call(instance + "/subscription", {"topics": ["t"]}, content_type=V2)
    return server.call(instance + "/subscription", {"topic_pattern": "t.*"}, content_type=V2)


def too_many_instances(server: Served) -> Told:
    for _ in range(500):
        assert server.call("/consumers/g", {}, content_type=V2)[0] == 200
    return server.call("/consumers/g", {}, content_type=V2)


def made_twice(server: Served) -> Told:
    make(server)
    return server.call("/consumers/g", {"name": "i"}, content_type=V2)


@pytest.mark.parametrize(
    ("path", "body", "content_type", "says"),
    [
        ("/topics/t", {"record": []}, JSON, "the body has the unknown field 'record'; known fields: key_schema, "),
        ("/topics/t", [1], JSON, "the body is [1]: must be an object with the fields key_schema, "),
        ("/topics/t", {"records": [{"valu": 1}]}, JSON, "records[0] has the unknown field 'valu'; known fields: key, partition, value"),
        ("/topics/t", {"records": [{"value": 1, "partition": "1"}]}, JSON, "records[0].partition is '1': must be a whole number"),
        ("/topics/t", {"records": [{"value": 5}]}, BINARY, "records[0].value is not a valid base64 string: it is 5"),
        ("/consumers/g", {"nme": "i"}, V2, "the body has the unknown field 'nme'; known fields: name, "),
        ("/consumers/g/instances/i/subscription", {}, V2, "the body says neither topics nor topic_pattern"),
        (
            "/consumers/g/instances/i/positions",
            {"offsets": [{"topic": "t", "partition": 0}]},
            V2,
            "offsets: Object missing required field `offset`",
        ),
        ("/consumers/g/instances/j/subscription", {"topics": ["t"]}, V2, "'j' of group 'g' was deleted, expired, or never made"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, path: str, body: Any, content_type: str, says: str) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        make(server)
        status, told = server.call(path, body, content_type=content_type)
        assert 400 <= status < 500 and says in told["message"], told


PROVOKED: list[tuple[int, int, Callable[[Served], Told]]] = [
    (400, 400, lambda server: produce(server, b"{")),
    (400, 400, lambda server: produce(server, b'{"records": [{"value": NaN}]}')),
    (400, 400, lambda server: produce(server, b"\xff")),
    (400, 400, lambda server: produce(server, b"[" * 100_000)),
    (400, 400, lambda server: produce(server, {"records": [{"value": "YWJj="}]}, BINARY)),
    (400, 400, lambda server: produce(server, {"records": [{"value": "YW-_"}]}, BINARY)),
    (400, 400, lambda server: produce(server, {"records": [{"key": 5}]}, BINARY)),
    (404, 40401, lambda server: server.call("/topics/other")),
    (404, 40401, lambda server: server.call("/topics/other/partitions/0/offsets")),
    (404, 40401, lambda server: produce(server, {"records": [{"value": 1}]}, path="/topics/other")),
    (404, 40401, lambda server: server.call(make(server) + "/subscription", {"topics": ["other"]}, content_type=V2)),
    (404, 40402, lambda server: server.call("/topics/t/partitions/1")),
    (404, 40402, lambda server: produce(server, {"records": [{"value": 1}]}, path="/topics/t/partitions/1")),
    (404, 40402, lambda server: server.call(make(server) + "/offsets", content_type=V2)),
    (404, 40403, lambda server: server.call("/consumers/g/instances/i/records")),
    (404, 40403, lambda server: server.call("/consumers/g/instances/i", method="DELETE")),
    (406, 406, lambda server: server.call("/topics", headers={"Accept": "text/html"})),
    (406, 406, lambda server: server.call("/topics", headers={"Accept": f"{V2};q=0"})),
    (408, 40801, not_json),
    (409, 40902, made_twice),
    (409, 40903, two_kinds_of_subscription),
    (409, 40903, lambda server: server.call(make(server) + "/records")),
    (409, 40903, lambda s: s.call(make(s) + "/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}, content_type=V2)),
    (409, 40903, lambda s: s.call(make(s) + "/subscription", {"topics": ["t"], "topic_pattern": "t"}, content_type=V2)),
    (410, 41001, committed_behind_the_end),
    (415, 415, lambda server: produce(server, {"records": [{"value": 1}]}, "application/json")),
    (415, 415, lambda server: server.call("/consumers/g", {}, content_type="text/plain")),
    (416, 41601, lambda server: server.call("/topics/t/partitions/0/records?offset=1")),
    (422, 422, lambda server: produce(server, {"records": []})),
    (422, 422, lambda server: produce(server, {"records": 1})),
    (422, 422, lambda server: produce(server, [])),
    (422, 422, lambda server: produce(server, {"records": [{"value": 1, "headers": []}]})),
    (422, 422, lambda server: produce(server, {"records": [{"value": 1, "partition": -1}]})),
    (422, 422, lambda server: produce(server, {"records": [{"value": 1, "partition": 0}]}, path="/topics/t/partitions/x")),
    (422, 422, lambda server: server.call("/consumers/g", {"format": "xml"}, content_type=V2)),
    (422, 422, lambda server: server.call(make(server) + "/subscription", {}, content_type=V2)),
    (422, 422, lambda server: server.call(make(server) + "/subscription", {"topic_pattern": "(?=a)a"}, content_type=V2)),
    (422, 422, lambda server: server.call(make(server) + "/assignments", {"partitions": [{"topic": "t"}]}, content_type=V2)),
    (422, 422, lambda s: s.call(make(s) + "/assignments", {"partitions": [{"topic": "t", "partition": 2**40}]}, content_type=V2)),
    (406, 40601, lambda server: server.call(make(server, format="json") + "/records", headers={"Accept": BINARY})),
    (422, 40001, lambda server: server.call("/consumers/g", {"fetch.min.bytes": 10_000_001}, content_type=V2)),
    (422, 42201, lambda server: produce(server, {"value_schema": '"int"', "records": [{"key": 1, "value": 1}]}, AVRO)),
    (422, 42202, lambda server: produce(server, {"records": [{"value": 1}]}, AVRO)),
    (422, 42204, lambda server: server.call("/consumers/g", {"auto.offset.reset": "newest"}, content_type=V2)),
    (422, 42204, lambda server: server.call("/consumers/g", {"auto.commit.enable": "maybe"}, content_type=V2)),
    (422, 42204, lambda server: server.call("/consumers/g", {"format": "avro"}, content_type=V2)),
    (422, 42205, lambda server: produce(server, {"value_schema": "{", "records": [{"value": 1}]}, AVRO)),
    (422, 42206, lambda server: produce(server, {"value_schema": '"int"', "records": [{"value": 1}]}, AVRO)),
    (422, 42207, lambda server: produce(server, b'{"records": [{"value": 1e999}]}')),
    (500, 50002, damaged_log),
    (500, 50003, offsets_of_an_open_transaction),
    (503, 50301, too_many_instances),
]


@pytest.mark.parametrize(("status", "code", "provoke"), PROVOKED)
def test_the_error_is_told(tmp_path: Path, status: int, code: int, provoke: Callable[[Served], Told]) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        told_status, told = provoke(server)
        assert (told_status, told["error_code"]) == (status, code), told
        assert len(told["message"]) > 10


def test_every_documented_code_is_provoked_or_cannot_be() -> None:
    provoked = {code for _, code, _ in PROVOKED}
    assert DOCUMENTED - provoked == IMPOSSIBLE.keys()


def test_every_code_is_in_the_table_of_the_documentation() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([\d, ]+) \|", DOCUMENT.read_text(), re.MULTILINE)
    told = {(int(status), int(code)) for status, codes in rows for code in codes.split(",")}
    assert told - {(401, 40101), (403, 40301), (413, 413), (503, 503)} == {(status, code) for status, code, _ in PROVOKED}


def test_what_is_refused_appends_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        assert produce(server, {"records": [{"value": "YWJj"}, {"value": "%"}]}, BINARY)[0] == 400
        assert server.database.log("t", 0).end_offset == 0


def test_a_record_that_is_too_large_is_left_out_alone(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t", config={"max.message.bytes": 1_000})
        status, told = produce(server, {"records": [{"value": 1}, {"value": "x" * 2_000}, {"value": 3}]})
        assert status == 200
        assert [(one["offset"], one["error_code"]) for one in told["offsets"]] == [(0, None), (None, 50002), (1, None)]
        assert "max.message.bytes=1000" in told["offsets"][1]["error"]
        assert [json.loads(record.value) for record in server.database.log("t", 0).read(0)] == [1, 3]


def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t", config={"cleanup.policy": "compact"})
        _, told = produce(server, {"records": [{"value": 1}, {"key": "k", "value": 2}]})
        assert [one["error_code"] for one in told["offsets"]] == [50002, None], told


def test_who_may_not_is_told_so(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        server.database.log("t", 0).append(b"1")
        secure(server.database.path, users=USERS, super_users=USERS)
        alice = server.by(*ALICE)
        instance = make(alice)
        partitions = {"partitions": [{"topic": "t", "partition": 0}]}
        assert alice.call(instance + "/assignments", partitions, content_type=V2)[0] == 204
        secure(server.database.path, "Allow alice@* Describe Topic t", users=USERS)
        assert alice.call("/topics") == (200, ["t"])
        for told in (
            alice.call("/topics/secret"),
            alice.call("/topics/t/partitions/0/records?offset=0"),
            alice.call(instance + "/records"),
            alice.call(instance + "/offsets", partitions, method="GET", content_type=V2),
            alice.call(instance + "/assignments", partitions, content_type=V2),
            alice.call(instance + "/positions/end", partitions, content_type=V2),
        ):
            assert (told[0], told[1]["error_code"]) == (403, 40301), told


def test_records_that_may_not_be_written_are_told_one_by_one(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        secure(server.database.path, "Allow alice@* Describe Topic t", users=USERS)
        status, told = produce(server.by(*ALICE), {"records": [{"value": 1}, {"value": 2}]})
        assert status == 403
        assert [one["error_code"] for one in told["offsets"]] == [40301, 40301]
        assert server.database.log("t", 0).end_offset == 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_nobody_writes_to_what_logdb_keeps_for_itself(tmp_path: Path, topic: str) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        offsets_of_an_open_transaction(server)  # which makes both
        before = server.call(f"/topics/{topic}/partitions/0/offsets")
        status, told = produce(server, {"records": [{"key": 1, "value": 1, "partition": 0}]}, path=f"/topics/{topic}")
        assert (status, [one["error_code"] for one in told["offsets"]]) == (200, [50002])
        assert "logdb alone writes to it" in told["offsets"][0]["error"]
        assert server.call(f"/topics/{topic}/partitions/0/offsets") == before


def test_a_type_that_is_refused_is_not_offered(tmp_path: Path) -> None:
    """Avro, JSON Schema and Protobuf need a registry: what a client is told to send is taken."""
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        status, body = server.call("/topics/t", {"records": [{"value": 1}]}, content_type="text/plain")
        assert status == 415
        offered = re.findall(r"application/[\w.+]+", body["message"])
        assert len(offered) == 2
        for kind in offered:
            assert server.call("/topics/t", {"records": [{"value": "MQ=="}]}, content_type=kind)[0] == 200
        consumer = "/consumers/offered"
        assert server.call(consumer, {"name": "one"}, content_type=V2)[0] == 200
        assert (
            server.call(f"{consumer}/instances/one/assignments", {"partitions": [{"topic": "t", "partition": 0}]}, content_type=V2)[0]
            == 204
        )
        status, body = server.call(f"{consumer}/instances/one/records", headers={"Accept": "text/plain"})
        assert status == 406
        offered = re.findall(r"application/[\w.+]+", body["message"])
        assert len(offered) == 3
        for kind in offered:
            assert server.call(f"{consumer}/instances/one/records?timeout=1", headers={"Accept": kind})[0] == 200
