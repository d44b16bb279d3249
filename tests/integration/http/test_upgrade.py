"""A connection of the HTTP door goes on in Kafka's wire protocol: as its principal, within the bounds of every other."""

import base64
import contextlib
import json
import socket
import ssl
import threading

import pytest

from logdb.requests.error_document import rebuild
from support.batches import Rec, encode_batch
from support.certificates import Authority
from support.kafka_wire import Wire as KafkaWire
from support.kafka_wire import frame
from support.security import secure
from support.serving import served
from support.waiting import until
from support.wire import wire

ASKED = {"Connection": "Upgrade", "Upgrade": "kafka"}
BATCH = encode_batch([Rec(value=b"x")])


class Upgraded(KafkaWire):
    """Kafka's protocol on a connection that was one of HTTP."""

    def __init__(self, sock):
        self.socket, self._correlation_id = sock, 0


def upgrade(sock, **headers):
    """Ask for the upgrade; returns the head of the answer."""
    lines = ["GET /logdb/v1/kafka HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in (ASKED | headers).items()), "", ""]
    sock.sendall("\r\n".join(lines).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1) or b"\r\n\r\n"
    return head


@contextlib.contextmanager
def upgraded(server, context=None, **headers):
    host, _, port = server.url.partition("://")[2].rpartition(":")
    plain = socket.create_connection((host, int(port)), 20)
    with context.wrap_socket(plain, server_hostname="localhost") if context else plain as sock:
        head = upgrade(sock, **headers)
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield Upgraded(sock)


def produce(line, records=BATCH, topic="t", *, version=12, expected_offset=-1, **values):
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records, "expected_offset": expected_offset}]}]
    answer = line.ask("Produce", version, acks=-1, timeout_ms=1000, topic_data=data, **values)
    return answer["responses"][0]["partition_responses"][0]


def fetch(line, offset=0, topic="t", *, last_fetched_epoch=-1, **values):
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "last_fetched_epoch": last_fetched_epoch}
    answer = line.ask("Fetch", 12, max_wait_ms=0, min_bytes=1, topics=[{"topic": topic, "partitions": [asked]}], **values)
    return answer["responses"][0]["partitions"][0]


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def doors(server):
    return server.server._named


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "db") as it:
        it.database.create_topic("t")
        yield it


def test_batches_go_in_and_out_without_a_kafka_listener(server):
    with upgraded(server) as line:
        assert produce(line)["base_offset"] == 0
        assert produce(line, detailed=True)["next_offset"] == 2
        large = encode_batch([Rec(value=bytes(1000))] * 300)
        assert produce(line, large, durability="fsync", detailed=True)["next_offset"] == 302
        found = fetch(line, detailed=True)
        assert (len(found["records"]), found["next_offset"], found["readable_end_offset"]) == (2 * len(BATCH) + len(large), 302, 302)
    assert server.server.addresses == (server.url,)
    until(lambda: not doors(server)["http"]._connections.open and not doors(server)["kafka"].connections, "both doors to know of the end")
    assert doors(server)["http"]._connections.slots.count == doors(server)["kafka"].slots.count == 0
    assert not doors(server)["http"].requests.taken


def test_errors_have_their_fields(server):
    with upgraded(server) as line:
        for answer, kind, fields in (
            (produce(line, topic="nothing", detailed=True), "UnknownTopic", {"topic": "nothing"}),
            (produce(line, expected_offset=7, detailed=True), "UnexpectedOffset", {"end_offset": 0}),
            (produce(line, b"no batches", detailed=True), "CorruptBatch", {}),
            (fetch(line, 9, detailed=True), "OffsetOutOfRange", {"offset": 9, "end_offset": 0}),
        ):
            error = rebuild(json.loads(answer["error"]))
            assert type(error).__name__ == kind
            assert vars(error).items() >= fields.items()
            assert answer["error_code"]
        assert produce(line, durability="never", detailed=True)["error_code"] == 42
        assert not {"error", "next_offset"} & {name for name, value in produce(line, expected_offset=7).items() if value not in (b"", -1)}
    assert server.database.log("t").end_offset == 0


def test_as_the_principal_of_the_request(server):
    secure(server.database.path, "Allow ann@* Write Topic t", users={"ann": "a long password", "ben": "a long password"})
    with upgraded(server, **basic("ann", "a long password")) as line:
        assert produce(line)["base_offset"] == 0
        assert fetch(line)["error_code"] == 29
        assert line.ask("SaslHandshake", 1, mechanism="PLAIN")["error_code"] == 34
    with upgraded(server, **basic("ben", "a long password")) as line:
        assert produce(line)["error_code"] == 29
        secure(server.database.path, users={"ann": "a long password"})
        line.send("Produce", 9, acks=-1, timeout_ms=1000, topic_data=[])
        assert line.is_closed()
    with wire(server.url) as line:
        assert line.ask("GET", "/logdb/v1/kafka", headers=ASKED | basic("ann", "wrong")).status == 401
        assert line.ask("GET", "/logdb/v1/kafka", headers=ASKED).status == 401
        assert line.ask("GET", "/logdb/v1/kafka", headers=ASKED | {"Origin": "https://pages.example.org"}).status == 403


def test_over_tls_as_the_certificate_says(tmp_path):
    authority = Authority(tmp_path / "ca")
    files, ann = authority.server(), authority.client("ann")
    with served(tmp_path / "db", tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.file) as server:
        server.database.create_topic("t")
        secure(server.database.path, "Allow ann@* Write Topic t")
        context = ssl.create_default_context(cafile=authority.file)
        context.load_cert_chain(ann.cert, ann.key)
        with upgraded(server, context) as line:
            large = encode_batch([Rec(value=bytes(1000))] * 900)
            for at in range(3):
                assert produce(line, large)["base_offset"] == 900 * at


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /logdb/v1/kafka HTTP/1.0\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: kafka\r\n\r\n",
        b"GET /logdb/v1/kafka HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /logdb/v1/kafka HTTP/1.1\r\nHost: x\r\nUpgrade: kafka\r\n\r\n",
        b"GET /logdb/v1/kafka HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET /logdb/v1/kafka HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=["1.0", "nothing", "no connection", "h2c", "websocket"],
)
def test_another_upgrade_is_none(server, request_):
    with wire(server.url) as line:
        line.send(request_)
        said = line.read()
        assert (said.status, said.headers["upgrade"]) == (426, "kafka")
        if b"1.0" not in request_:
            assert line.ask("GET", "/health/live").status == 200, "the connection goes on"


@pytest.mark.parametrize("early", [frame("ApiVersions", 0, 1), b"\0", b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_bytes_before_the_answer_are_no_frames(server, early):
    with wire(server.url) as line:
        line.send(b"GET /logdb/v1/kafka HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: kafka\r\n\r\n" + early)
        assert line.read().status == 400
        if early.startswith(b"GET"):
            assert line.read().status == 200


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 5\r\n\r\n", b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n"]
)
def test_a_body_is_no_frame(server, framing):
    with wire(server.url) as line:
        asked = b"GET /logdb/v1/kafka HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: kafka\r\nContent-Type: application/json\r\n"
        line.send(asked + framing)
        assert line.read().status == 400


@pytest.mark.parametrize(
    "bytes_",
    [b"\xff\xff\xff\xff\0\0", b"\0\0\0\1\0\0", b"\x7f\xff\xff\xff\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08\x7f\xff\0\0\0\0\0\0"],
)
def test_what_is_no_frame_closes_the_connection(server, bytes_, caplog):
    with upgraded(server) as line:
        line.socket.sendall(bytes_)
        assert line.is_closed()
    until(lambda: not doors(server)["http"]._connections.slots.count, "the slot to be free")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_connection_keeps_its_slot(tmp_path):
    with served(tmp_path / "db", connections_max=2, connections_per_address_max=2) as server:
        with upgraded(server), upgraded(server), wire(server.url) as third:
            assert third.read().status == 503
        until(lambda: not doors(server)["http"]._connections.slots.count, "both to be free")
        with upgraded(server):
            pass


def test_an_idle_connection_is_closed(tmp_path):
    with served(tmp_path / "db", keep_alive_ms=300) as server, upgraded(server) as line:
        line.ask("ApiVersions", 0)
        assert line.is_closed()


def test_a_server_that_drains_answers_what_is_under_way(tmp_path):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served(tmp_path / "db"))
        server.database.create_topic("t")
        idle, waiting = stack.enter_context(upgraded(server)), stack.enter_context(upgraded(server))
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        sent = waiting.send("Fetch", 12, max_wait_ms=60_000, min_bytes=1, topics=[{"topic": "t", "partitions": [asked]}])
        idle.ask("ApiVersions", 0)
        until(lambda: any(one._is_busy for one in doors(server)["kafka"].connections), "the fetch to wait")
        ending = threading.Thread(target=server.server.close)
        ending.start()
        assert idle.is_closed()
        assert not waiting.answer("Fetch", 12, sent)["responses"][0]["partitions"][0]["error_code"]
        assert waiting.is_closed()
        ending.join(20)
        assert not ending.is_alive()
