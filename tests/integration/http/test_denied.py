"""Every route of the door, asked by nobody, and by somebody who is allowed nothing.

A route that is not in the table fails, as does one that answers other than is said here: with data, or so that one could tell
what exists from what does not.
"""

import base64
import functools
import json
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

import logdb
from support.produced import batch
from support.security import secure
from support.serving import Served, served

PASSWORD = "correct horse"
BATCHES, V2 = "application/vnd.logdb.batches", "application/vnd.kafka.v2+json"
THERE = {"topic": "secret", "group": "secretgroup", "tx": "secrettx"}
NOT_THERE = {"topic": "absent", "group": "absentgroup", "tx": "absenttx"}
PARTITION = {"topic": "{topic}", "partition": 0}
POSITION = {**PARTITION, "offset": 0}
PRODUCER = {"producer_id": 4711, "producer_epoch": 0}
OFFSETS = [[PARTITION, {"offset": 0, "leader_epoch": -1, "metadata": ""}]]
MEMBER = {"group_id": "{group}", "generation": 1, "member_id": "m"}
JOINING = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocols": [["range", ""]]}
ACL = {
    "principal": {"kind": "User", "name": "mallory"},
    "host": "*",
    "operation": "All",
    "permission": "Allow",
    "resource_type": "Topic",
    "pattern_type": "Literal",
    "name": "{topic}",
}
V3_ACL = {
    "resource_type": "TOPIC",
    "resource_name": "{topic}",
    "pattern_type": "LITERAL",
    "principal": "User:mallory",
    "host": "*",
    "operation": "ALL",
    "permission": "ALLOW",
}
OF_CONSUMERS = "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers"


class Ask(NamedTuple):
    """A request that is well formed, and what somebody without ACLs is answered.

    ``path`` and ``body`` have names in braces.  ``found``: an answer with nothing in it, where lists leave out what may not be
    described; None: a refusal, with one of the ``statuses``.
    """

    path: str
    body: Any = None
    content_type: str = "application/json"
    found: Any = None
    statuses: tuple[int, ...] = (403,)

    def filled(self, names):
        return self._replace(path=_filled(self.path, names), body=_filled(self.body, names))


def _filled(value, names):
    if isinstance(value, str):
        for name, filling in names.items():
            value = value.replace("{" + name + "}", filling)
        return value
    if isinstance(value, dict):
        return {key: _filled(part, names) for key, part in value.items()}
    return [_filled(part, names) for part in value] if isinstance(value, list) else value


ANYBODY = object()  # the answer is the same to all, and has nothing in it that is anybody's
OF_TOPIC = "/logdb/v1/topics/{topic}/partitions/0"
UPLOADS = "/logdb/v1/topics/{topic}/partitions/{partition}/uploads"
OF_INSTANCE = "/consumers/{group}/instances/one"
V3 = "/v3/clusters/{cluster}"
V3_TOPIC, V3_GROUP = V3 + "/topics/{topic}", V3 + "/consumer-groups/{group}"


def call(name, body, **rest):
    return {("POST", f"/logdb/v1/calls/{name}"): Ask(f"/logdb/v1/calls/{name}", body, **rest)}


def of_instance(method, path="", body=None):
    """Instances belong to who made them: to others there are none, whether there are or not."""
    return {(method, "/consumers/{group}/instances/{instance}" + path): Ask(OF_INSTANCE + path, body, V2, statuses=(404,))}


def listing(kind, *parts):
    return {"kind": kind, "metadata": {"self": "/".join(("{url}" + V3, *parts)), "next": None}, "data": []}


ASKS = {
    # ---------------------------------------------------------------- the door's own
    ("GET", "/"): Ask("/", found=ANYBODY),
    ("GET", "/page/{file}"): Ask("/page/app.js", found=ANYBODY),
    ("GET", "/health/live"): Ask("/health/live", found=ANYBODY),
    ("GET", "/health/ready"): Ask("/health/ready", found=ANYBODY),
    ("GET", "/status/ready"): Ask("/status/ready", found=ANYBODY),
    ("GET", "/openapi.json"): Ask("/openapi.json", found=ANYBODY),
    ("GET", "/metrics"): Ask("/metrics"),
    ("GET", "/iceberg/v1/config"): Ask("/iceberg/v1/config", found=ANYBODY),
    ("GET", "/iceberg/v1/namespaces"): Ask("/iceberg/v1/namespaces", found={"namespaces": [["logdb"]]}),
    ("GET", "/iceberg/v1/namespaces/{namespace}"): Ask("/iceberg/v1/namespaces/logdb", found={"namespace": ["logdb"], "properties": {}}),
    ("GET", "/iceberg/v1/namespaces/{namespace}/tables"): Ask("/iceberg/v1/namespaces/logdb/tables", found={"identifiers": []}),
    ("GET", "/iceberg/v1/namespaces/{namespace}/tables/{table}"): Ask("/iceberg/v1/namespaces/logdb/tables/{topic}"),
    ("GET", "/iceberg/v1/namespaces/{namespace}/tables/{table}/files/{part}/{file}"): Ask(
        "/iceberg/v1/namespaces/logdb/tables/{topic}/files/data/x.parquet"
    ),
    ("GET", "/logdb/v1/reports"): Ask("/logdb/v1/reports"),
    ("GET", "/logdb/v1/quorum"): Ask("/logdb/v1/quorum"),
    ("POST", "/logdb/v1/verify"): Ask("/logdb/v1/verify", {}),
    ("POST", "/logdb/v1/backups"): Ask("/logdb/v1/backups", {}),
    ("GET", "/logdb/v1/backups/{id}"): Ask("/logdb/v1/backups/x"),
    ("DELETE", "/logdb/v1/backups/{id}"): Ask("/logdb/v1/backups/x"),
    ("GET", "/logdb/v1/kafka"): Ask("/logdb/v1/kafka", statuses=(426,)),
    ("GET", "/logdb/v1/watch"): Ask("/logdb/v1/watch", found={"events": [], "position": "{position}", "complete": True}),
    ("GET", "/logdb/v1/topics/{topic}/events"): Ask("/logdb/v1/topics/{topic}/events?offset=earliest"),
    ("GET", "/logdb/v1/topics/{topic}/partitions/{partition}/events"): Ask(OF_TOPIC + "/events?offset=0"),
    ("POST", "/logdb/v1/topics/{topic}/partitions/{partition}/batches"): Ask(OF_TOPIC + "/batches", batch([b"x"], 1, 0, 0), BATCHES),
    ("GET", "/logdb/v1/topics/{topic}/partitions/{partition}/batches"): Ask(OF_TOPIC + "/batches?offset=0"),
    ("PUT", UPLOADS + "/{id}"): Ask(OF_TOPIC + "/uploads/" + "0" * 32, batch([b"x"], 1, 0, 0), BATCHES),
    ("GET", UPLOADS + "/{id}"): Ask(OF_TOPIC + "/uploads/" + "0" * 32),
    ("POST", UPLOADS): Ask(OF_TOPIC + "/uploads", {"uploads": [], **PRODUCER, "sequence": 0}),
    ("POST", UPLOADS + "/discard"): Ask(OF_TOPIC + "/uploads/discard", {"ids": ["0" * 32]}),
    ("POST", "/logdb/v1/partitions"): Ask("/logdb/v1/partitions", {"positions": [[PARTITION, 0]]}, found=[None]),
    ("GET", "/logdb/v1/topics/{topic}/partitions/{partition}/timestamps/latest"): Ask(OF_TOPIC + "/timestamps/latest"),
    ("GET", "/logdb/v1/topics/{topic}/partitions/{partition}/timestamps/{timestamp_ms}"): Ask(OF_TOPIC + "/timestamps/0"),
    ("GET", "/logdb/v1/topics/{topic}/partitions/{partition}/epochs/{offset}"): Ask(OF_TOPIC + "/epochs/0"),
    ("GET", "/logdb/v1/topics/{topic}/partitions/{partition}/transactions"): Ask(OF_TOPIC + "/transactions"),
    ("GET", "/logdb/v1/topics/{topic}/partitions/{partition}/producers"): Ask(OF_TOPIC + "/producers"),
    ("POST", "/logdb/v1/topics/{topic}/partitions/{partition}/flush"): Ask(OF_TOPIC + "/flush", {}),
    # ---------------------------------------------------------------- calls of a session
    **call("topics", {"internal": True}, found=[]),
    **call("cluster_nodes", {}, found={"serving": [], "partitions": [], "addresses": [], "database_id": "{cluster}"}),
    **call("groups", {}, found=[]),
    **call("transactions", {}, found=[]),
    **call("describe_topic", {"name": "{topic}"}),
    **call("partition_count", {"topic": "{topic}"}),
    **call("create_topic", {"name": "{topic}"}),
    **call("alter_topic", {"name": "{topic}", "partitions": 5}),
    **call("delete_topic", {"name": "{topic}"}),
    **call("delete_records", {**PARTITION, "before_offset": 1}),
    **call("enforce_retention", {"topic": "{topic}"}),
    **call("compact", {"topic": "{topic}"}),
    **call("flush", {}),
    **call("wait", {"positions": [[PARTITION, 0]], "timeout_ms": 60_000}),
    **call(
        "write_transaction_marker", {"leader_of": PARTITION, "producer": PRODUCER, "last_epoch": 0, "commit": True, "coordinator_epoch": 0}
    ),
    **call("will_end_transaction", {"leader_of": PARTITION, "producer": PRODUCER, "partition": PARTITION}),
    **call("end_mirrored_transactions", {"leader_of": PARTITION}),
    **call("committed_end", {"leader_of": PARTITION}),
    **call("find_decision", {"leader_of": PARTITION, "producer": PRODUCER, "partition": PARTITION}),
    **call("init_producer_id", {"transactional_id": "{tx}"}),
    **call("add_partitions", {"transactional_id": "{tx}", "producer": PRODUCER, "partitions": [PARTITION]}),
    **call("add_offsets", {"transactional_id": "{tx}", "producer": PRODUCER, "group_id": "{group}"}),
    **call("commit_transaction_offsets", {"transactional_id": "{tx}", "producer": PRODUCER, "group_id": "{group}", "offsets": OFFSETS}),
    **call("end_transaction", {"transactional_id": "{tx}", "producer": PRODUCER, "commit": True}),
    **call("join_group", {"group_id": "{group}", **JOINING}),
    **call("sync_group", {**MEMBER, "assignments": []}),
    **call("heartbeat", MEMBER),
    **call("leave_group", {"group_id": "{group}", "member_id": "m"}),
    **call("commit_offsets", {"group_id": "{group}", "offsets": OFFSETS}),
    **call("fetch_offsets", {"group_id": "{group}"}),
    **call("describe_group", {"group_id": "{group}"}),
    **call("delete_group", {"group_id": "{group}"}),
    **call("delete_offsets", {"group_id": "{group}", "partitions": [PARTITION]}),
    **call("describe_transaction", {"transactional_id": "{tx}"}),
    **call("abort_transaction", {"transactional_id": "{tx}"}),
    # ---------------------------------------------------------------- users, tokens, ACLs
    **call("users", {}),
    **call("add_user", {"name": "{topic}", "credentials": [], "super_user": True}),
    **call("set_password", {"name": "{topic}", "credentials": []}),
    **call("alter_credentials", {"name": "{topic}", "credentials": []}),
    **call("alter_user", {"name": "mallory", "super_user": True}),
    **call("delete_users", {"names": ["root"]}),
    **call("tokens", {}),
    **call("add_token", {"name": "{topic}", "owner": "root", "sha256": "0" * 64}),
    **call("revoke_tokens", {"names": ["{topic}"]}),
    **call("acls", {}),
    **call("add_acls", {"acls": [ACL]}),
    **call("delete_acls", {"filters": [{}]}),
    ("GET", "/logdb/v1/connect/connectors"): Ask("/logdb/v1/connect/connectors"),
    ("POST", "/logdb/v1/connect/connectors/{connector}/{action}"): Ask("/logdb/v1/connect/connectors/{topic}/pause"),
    ("POST", "/logdb/v1/connect/connectors/{connector}/tasks/{task}/restart"): Ask("/logdb/v1/connect/connectors/{topic}/tasks/0/restart"),
    # ---------------------------------------------------------------- REST v2
    ("GET", "/brokers"): Ask("/brokers", found={"brokers": [0]}),
    ("GET", "/topics"): Ask("/topics", found=[]),
    ("GET", "/topics/{topic}"): Ask("/topics/{topic}"),
    ("GET", "/topics/{topic}/partitions"): Ask("/topics/{topic}/partitions"),
    ("GET", "/topics/{topic}/partitions/{partition}"): Ask("/topics/{topic}/partitions/0"),
    ("GET", "/topics/{topic}/partitions/{partition}/offsets"): Ask("/topics/{topic}/partitions/0/offsets"),
    ("GET", "/topics/{topic}/partitions/{partition}/records"): Ask("/topics/{topic}/partitions/0/records?offset=0"),
    ("POST", "/topics/{topic}"): Ask("/topics/{topic}", {"records": [{"value": 1}]}, "application/vnd.kafka.json.v2+json"),
    ("POST", "/topics/{topic}/partitions/{partition}"): Ask(
        "/topics/{topic}/partitions/0", {"records": [{"value": 1}]}, "application/vnd.kafka.json.v2+json"
    ),
    ("POST", "/consumers/{group}"): Ask("/consumers/{group}", {"name": "one"}, V2),
    **of_instance("DELETE"),
    **of_instance("POST", "/subscription", {"topics": ["{topic}"]}),
    **of_instance("GET", "/subscription"),
    **of_instance("DELETE", "/subscription"),
    **of_instance("POST", "/assignments", {"partitions": [PARTITION]}),
    **of_instance("GET", "/assignments"),
    **of_instance("GET", "/records"),
    **of_instance("POST", "/offsets", {"offsets": [POSITION]}),
    **of_instance("GET", "/offsets", {"partitions": [PARTITION]}),
    **of_instance("POST", "/positions", {"offsets": [POSITION]}),
    **of_instance("POST", "/positions/beginning", {"partitions": [PARTITION]}),
    **of_instance("POST", "/positions/end", {"partitions": [PARTITION]}),
    # ---------------------------------------------------------------- REST v3
    ("GET", "/v3/clusters"): Ask("/v3/clusters", found=ANYBODY),
    ("GET", "/v3/clusters/{cluster_id}"): Ask(V3, found=ANYBODY),
    ("GET", "/v3/clusters/{cluster_id}/brokers"): Ask(V3 + "/brokers", found=ANYBODY),
    ("GET", "/v3/clusters/{cluster_id}/brokers/{broker_id}"): Ask(V3 + "/brokers/0", found=ANYBODY),
    ("GET", "/v3/clusters/{cluster_id}/broker-configs"): Ask(V3 + "/broker-configs", found=ANYBODY),
    ("GET", "/v3/clusters/{cluster_id}/brokers/{broker_id}/configs"): Ask(V3 + "/brokers/0/configs", found=ANYBODY),
    ("GET", "/v3/clusters/{cluster_id}/brokers/{broker_id}/partition-replicas"): Ask(
        V3 + "/brokers/0/partition-replicas", found=listing("KafkaReplicaList", "brokers", "0", "partition-replicas")
    ),
    ("GET", "/v3/clusters/{cluster_id}/topics"): Ask(V3 + "/topics", found=listing("KafkaTopicList", "topics")),
    ("POST", "/v3/clusters/{cluster_id}/topics"): Ask(V3 + "/topics", {"topic_name": "{topic}"}),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}"): Ask(V3_TOPIC),
    ("PATCH", "/v3/clusters/{cluster_id}/topics/{topic_name}"): Ask(V3_TOPIC, {"partitions_count": 5}),
    ("DELETE", "/v3/clusters/{cluster_id}/topics/{topic_name}"): Ask(V3_TOPIC),
    ("GET", "/v3/clusters/{cluster_id}/topics/-/configs"): Ask(
        V3 + "/topics/-/configs", found=listing("KafkaTopicConfigList", "topics", "-", "configs")
    ),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs"): Ask(V3_TOPIC + "/configs"),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs/{name}"): Ask(V3_TOPIC + "/configs/retention.ms"),
    ("PUT", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs/{name}"): Ask(V3_TOPIC + "/configs/retention.ms", {"value": "5"}),
    ("DELETE", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs/{name}"): Ask(V3_TOPIC + "/configs/retention.ms"),
    ("POST", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs:alter"): Ask(
        V3_TOPIC + "/configs:alter", {"data": [{"name": "retention.ms", "value": "5"}]}
    ),
    ("GET", "/v3/clusters/{cluster_id}/topics/-/partitions/-/reassignment"): Ask(V3 + "/topics/-/partitions/-/reassignment"),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/-/reassignment"): Ask(V3_TOPIC + "/partitions/-/reassignment"),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/reassignment"): Ask(
        V3_TOPIC + "/partitions/0/reassignment"
    ),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions"): Ask(V3_TOPIC + "/partitions"),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}"): Ask(V3_TOPIC + "/partitions/0"),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/offset"): Ask(V3_TOPIC + "/partitions/0/offset"),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/replicas"): Ask(V3_TOPIC + "/partitions/0/replicas"),
    ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/replicas/{broker_id}"): Ask(
        V3_TOPIC + "/partitions/0/replicas/0"
    ),
    ("POST", "/v3/clusters/{cluster_id}/topics/{topic_name}/records"): Ask(
        V3_TOPIC + "/records", {"value": {"type": "STRING", "data": "x"}}
    ),
    ("POST", "/v3/clusters/{cluster_id}/topics/{topic_name}/records:batch"): Ask(
        V3_TOPIC + "/records:batch", {"entries": [{"id": "1", "value": {"type": "STRING", "data": "x"}}]}
    ),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups"): Ask(
        V3 + "/consumer-groups", found=listing("KafkaConsumerGroupList", "consumer-groups")
    ),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}"): Ask(V3_GROUP),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers"): Ask(V3_GROUP + "/consumers"),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers/{consumer_id}"): Ask(V3_GROUP + "/consumers/c"),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers/{consumer_id}/assignments"): Ask(
        V3_GROUP + "/consumers/c/assignments"
    ),
    (
        "GET",
        f"{OF_CONSUMERS}/{{consumer_id}}/assignments/{{topic_name}}/partitions/{{partition_id}}",
    ): Ask(V3_GROUP + "/consumers/c/assignments/{topic}/partitions/0"),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lag-summary"): Ask(V3_GROUP + "/lag-summary"),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lags"): Ask(V3_GROUP + "/lags"),
    ("GET", "/v3/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lags/{topic_name}/partitions/{partition_id}"): Ask(
        V3_GROUP + "/lags/{topic}/partitions/0"
    ),
    ("GET", "/v3/clusters/{cluster_id}/acls"): Ask(V3 + "/acls"),
    ("POST", "/v3/clusters/{cluster_id}/acls"): Ask(V3 + "/acls", V3_ACL),
    ("POST", "/v3/clusters/{cluster_id}/acls:batch"): Ask(V3 + "/acls:batch", {"data": [V3_ACL]}),
    ("DELETE", "/v3/clusters/{cluster_id}/acls"): Ask(V3 + "/acls?resource_type=ANY&pattern_type=ANY&operation=ANY&permission=ANY"),
}
OPEN = {"/", "/page/{file}", "/health/live", "/health/ready", "/status/ready"}
VALUE = b"the value that nobody may see"


@pytest.fixture(scope="module")
def s(tmp_path_factory):
    """A server with a topic, a group with an offset and a consumer instance, and a transactional id; all of them root's."""
    path = tmp_path_factory.mktemp("denied") / "db"
    with logdb.open(path) as db:
        db.create_topic("secret")
        db.log("secret").append_many([VALUE])
        with db.transaction("secrettx") as transaction:
            transaction.send("secret", VALUE)
        with db.consumer(group_id="secretgroup") as consumer:
            consumer.assign([logdb.TopicPartition("secret", 0)])
            consumer.commit({logdb.TopicPartition("secret", 0): logdb.OffsetAndMetadata(1, metadata=VALUE.decode())})
    secure(path, users={"root": PASSWORD, "mallory": PASSWORD}, super_users=["root"])
    with served(path) as s:
        status, _ = s.by("root", PASSWORD).call("/consumers/secretgroup", {"name": "one"}, content_type=V2)
        assert status == 200
        yield s


def routes(s):
    door, *_ = s.server._doors
    return {(route.method, route.path): route for route in door.routes}


@functools.cache
def cluster_id(url):
    """Of the server there; root may know it."""
    return Served(None, url, None).by("root", PASSWORD).call("/v3/clusters")[1]["data"][0]["cluster_id"]


def ask(s, method, one, names):
    """Status and body of a request; as if from elsewhere, as ``/metrics`` is open to this machine."""
    cluster = cluster_id(s.url)
    one = one.filled({**names, "cluster": cluster})
    body = one.body
    return s.call(one.path, body, method=method, content_type=one.content_type, headers={"X-Forwarded-For": "203.0.113.9"})


def shown(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def test_every_route_is_in_the_table_and_nothing_else(s):
    assert routes(s).keys() == ASKS.keys()


@pytest.mark.parametrize(("method", "path"), ASKS)
def test_nobody(s, method, path):
    status, body = ask(s, method, ASKS[method, path], THERE)
    if path in OPEN:
        assert status == 200
    else:
        assert (status, body["error_code"]) == (401, 40101)
        assert VALUE not in shown(body)


@pytest.mark.parametrize(("method", "path"), ASKS)
def test_somebody_who_is_allowed_nothing(s, method, path):
    one, mallory = ASKS[method, path], s.by("mallory", PASSWORD)
    status, body = ask(mallory, method, one, THERE)
    other_status, other = ask(mallory, method, one, NOT_THERE)
    for secret in (VALUE, base64.b64encode(VALUE), s.database.describe_topic("secret").topic_id.encode()):
        assert secret not in shown(body)
    assert status == other_status, "what is there cannot be told from what is not"
    if one.found is None:
        assert status in one.statuses, body
        assert body["error_code"] == other["error_code"]
        assert neutral(body) == neutral(other)
    else:
        assert status == 200, body
        if one.found is not ANYBODY:
            assert neutral(body) == neutral(expected(s, one, body))
        elif isinstance(body, bytes):
            assert body.replace(b"secret", b"absent") == other
        else:
            assert neutral(body) == neutral(other)


@pytest.mark.parametrize("path", [path for method, path in ASKS if method == "GET"])
def test_head_is_refused_as_get_is(s, path):
    for one in (s, s.by("mallory", PASSWORD)):
        got, head = (ask(one, method, ASKS["GET", path], THERE) for method in ("GET", "HEAD"))
        assert head[0] == got[0] and not head[1]


def neutral(body):
    """What is said, whatever it was about."""
    return json.loads(json.dumps(body).replace("secret", "absent"))


def expected(s, one, body):
    cluster = cluster_id(s.url)
    position = body.get("position") if isinstance(body, dict) else None
    return _filled(one.found, {"url": s.url, "cluster": cluster, "position": position or ""})


def test_nothing_was_changed(s):
    assert [info.name for info in s.database.topics()] == ["secret"]
    info = s.database.describe_topic("secret")
    assert info.partition_count == 1 and not info.config
    assert [record.value for record in s.database.log("secret").read(0)] == [VALUE, VALUE]
    assert [group.group_id for group in s.database.groups()] == ["secretgroup"]
    assert [one.transactional_id for one in s.database.transactions()] == ["secrettx"]
    assert [(user.name, user.super_user) for user in s.database.security.users().users] == [("mallory", False), ("root", True)]
    assert s.database.security.acls() == s.database.security.tokens() == []


def test_an_event_stream_says_nothing_to_who_may_not(s):
    """Not even the headers of a stream."""
    place = urlsplit(s.url)
    token = base64.b64encode(f"mallory:{PASSWORD}".encode()).decode()
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        head = f"GET /logdb/v1/topics/secret/events?offset=earliest HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {token}\r\n"
        connection.sendall(f"{head}Accept: text/event-stream\r\nConnection: close\r\n\r\n".encode())
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 403") and b"text/event-stream" not in said
