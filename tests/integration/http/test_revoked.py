"""What goes on after a request was let in ends with what was shown for it: a token, a password, a certificate, a right of an address."""

import base64
import http.client
import os
import threading
from urllib.parse import urlsplit

import pytest

import logdb
from logdb.access.credentials import new_token, token_hash
from logdb.access.security_document import Token
from logdb.errors import AuthenticationFailed
from logdb.io import IO
from logdb.requests.principals import Principal
from logdb_http_api.door import sse
from support.batches import Rec, encode_batch
from support.certificates import Authority
from support.security import secure
from support.serving import served
from support.waiting import until
from support.wire import wire

PASSWORD, SECRET = "correct horse", new_token()
GRANTS = ["Allow low@* Read Topic t", "Allow low@* Write Topic t", "Allow low@* Read Group g"]
TOKEN = Token("ci", Principal("User", "low"), token_hash(SECRET), 0, None)
BEARER, BASIC = f"Bearer {SECRET}", "Basic " + base64.b64encode(f"low:{PASSWORD}".encode()).decode()
V2 = {"Content-Type": "application/vnd.kafka.v2+json"}
BATCHES = "/logdb/v1/topics/t/partitions/0/batches"


class Clock(IO):
    """Goes as it goes, and as far ahead as it is told."""

    ahead_ms = 0

    def clock_ms(self):
        return super().clock_ms() + self.ahead_ms


@pytest.fixture
def clock():
    return Clock()


def allow(path, *, users=("low",), tokens=(TOKEN,), grants=GRANTS):
    secure(path, *grants, users=dict.fromkeys(users, PASSWORD), tokens=tokens)


@pytest.fixture
def server(tmp_path, clock):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append(b"first")
    allow(tmp_path / "db")
    with served(tmp_path / "db", opened={"io": clock}) as it:
        yield it


def revoke_token(server, clock):
    allow(server.database.path, tokens=())


def expire_token(server, clock):
    clock.ahead_ms = 3_600_001


def delete_user(server, clock):
    allow(server.database.path, users=(), tokens=())


def change_password(server, clock):
    secure(server.database.path, *GRANTS, users={"low": "another"})


ENDS = [(BEARER, revoke_token), (BEARER, expire_token), (BASIC, delete_user), (BASIC, change_password)]
ends = pytest.mark.parametrize(("who", "end"), ENDS, ids=lambda one: getattr(one, "__name__", ""))


def expiring(server, clock):
    """The token is one that expires in an hour."""
    allow(server.database.path, tokens=(TOKEN._replace(expires_ms=clock.clock_ms() + 3_600_000),))


class Stream:
    """Server-sent events."""

    def __init__(self, server, path, who):
        where = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
        self._connection.request("GET", path, headers={"Authorization": who, "Accept": "text/event-stream"} if who else {})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        assert self._answer.readline() == b":\n", "it has begun"

    def rest(self):
        """All that follows, to the end."""
        try:
            return self._answer.read()
        finally:
            self._connection.close()


@ends
@pytest.mark.parametrize(
    "path", ["/logdb/v1/topics/t/partitions/0/events", "/logdb/v1/topics/t/events", "/logdb/v1/watch"], ids=["partition", "topic", "watch"]
)
def test_event_streams_end(server, clock, who, end, path, monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_MS", 200)  # between two looks of a stream that has nothing to tell
    expiring(server, clock)
    streams = [Stream(server, path, who) for _ in range(2)]
    end(server, clock)
    server.database.log("t").append(b"secret")
    server.database.alter_topic("t", partitions=2)
    for stream in streams:
        said = stream.rest()
        assert b"event: error" in said
        assert b"40101" in said
        assert b"c2VjcmV0" not in said, "the record's value"
        assert b"partitions_added" not in said


def test_a_stream_that_has_nothing_to_tell_ends_too(server, clock, monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_MS", 100)
    streams = [Stream(server, path, BEARER) for path in ("/logdb/v1/topics/t/events", "/logdb/v1/watch")]
    revoke_token(server, clock)
    for stream in streams:
        assert b"40101" in stream.rest()


def test_what_was_begun_without_authentication_ends_when_it_is_turned_on(tmp_path):
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        streams = [Stream(server, path, None) for path in ("/logdb/v1/topics/t/events",)]
        secure(tmp_path / "db", "Allow *@* All Topic *")
        server.database.log("t").append(b"secret")
        for stream in streams:
            said = stream.rest()
            assert b"40101" in said
            assert b"c2VjcmV0" not in said


@ends
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{BATCHES}?offset=1&wait_ms=60000&min_bytes=1", b""),
        ("POST", "/logdb/v1/calls/wait", b'{"positions":[[{"topic":"t","partition":0},1]],"timeout_ms":60000}'),
        ("POST", "/logdb/v1/partitions", b'{"positions":[[{"topic":"t","partition":0},1]],"timeout_ms":60000}'),
    ],
    ids=["one", "call", "ends"],
)
def test_long_polls_tell_nothing(server, clock, who, end, method, path, body):
    expiring(server, clock)
    with wire(server.url) as line:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {who}\r\nContent-Type: application/json\r\n"
        line.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: server.server._doors[0].waits._bells, "the poll to wait")
        end(server, clock)
        server.database.log("t").append(b"secret")
        said = line.read()
        assert said.status == 401, said
        assert b"secret" not in said.body


@ends
def test_the_next_request_of_a_connection_is_refused(server, clock, who, end):
    expiring(server, clock)
    batch = encode_batch([Rec(value=b"x")])
    asked = f"POST {BATCHES} HTTP/1.1\r\nHost: x\r\nAuthorization: {who}\r\nContent-Type: application/vnd.logdb.batches\r\n"
    with wire(server.url) as line:
        for status in (200, 200, 401):
            line.send(f"{asked}Content-Length: {len(batch)}\r\n\r\n".encode() + batch)
            assert line.read().status == status
            if status == 200 and server.database.log("t").end_offset == 3:
                end(server, clock)


def test_a_certificate_that_expires_ends_its_connection_s_requests(tmp_path, clock):
    authority = Authority(tmp_path / "ca")
    files, alice = authority.server(), authority.client("low")
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    allow(tmp_path / "db")
    options = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": authority.file}
    with served(tmp_path / "db", opened={"io": clock}, **options) as server:
        where = urlsplit(server.url)
        connection = http.client.HTTPSConnection(where.hostname, where.port, timeout=30, context=authority.context(alice))
        asked = ((BATCHES + "?offset=0&max_bytes=100", 200), ("/topics", 200))
        for path, status in asked:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read() is not None) == (status, True)
        clock.ahead_ms = 10_000 * 365 * 86_400_000
        for path, _ in asked:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert (answer.status, b"good until" in answer.read()) == (401, True)
        connection.close()


def test_a_remote_watch_ends(server, clock):
    with logdb.open(server.url, token=SECRET) as db:
        changes, told = db.watch(timeout_ms=60_000), []

        def follow():
            try:
                told.extend(changes)
            except AuthenticationFailed as error:
                told.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        until(lambda: server.server._doors[0]._pending, "the watch to wait")
        revoke_token(server, clock)
        server.database.alter_topic("t", partitions=2)
        thread.join()
        assert [type(one) for one in told] == [AuthenticationFailed]


def test_a_download_ends(tmp_path, clock):
    grants = [*GRANTS, "Allow low@* ClusterAction Cluster kafka-cluster"]
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        for _ in range(40):
            db.log("t").append(os.urandom(1_000_000))  # which no compression makes smaller
    allow(tmp_path / "db", grants=grants)
    with served(tmp_path / "db", opened={"io": clock}) as server, wire(server.url) as line:
        offer = line.ask("POST", "/logdb/v1/backups", headers={"Authorization": BEARER}).json
        with wire(server.url) as other:
            other.send(f"GET /logdb/v1/backups/{offer['id']} HTTP/1.1\r\nHost: x\r\nAuthorization: {BEARER}\r\n\r\n".encode())
            assert other.socket.recv(12) == b"HTTP/1.1 200", "and no more of it for now"
            allow(tmp_path / "db", grants=grants, tokens=())
            came = b"".join(iter(lambda: other.socket.recv(1 << 20), b""))
            assert len(came) < offer["copied"]["written_bytes"]


# ---------------------------------------------------------------- consumer instances


def ask(server, method, path, body=b"", who=BASIC, source="127.0.0.1"):
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30, source_address=(source, 0))
    connection.request(method, path, body or None, {"Authorization": who} | V2)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


INSTANCE = "/consumers/g/instances/i"


def instance(server, who=BASIC):
    assert ask(server, "POST", "/consumers/g", b'{"name":"i","auto.offset.reset":"earliest"}', who)[0] == 200
    assert ask(server, "POST", f"{INSTANCE}/subscription", b'{"topics":["t"]}', who)[0] == 204


@ends
def test_a_read_that_waits_tells_nothing(server, clock, who, end):
    expiring(server, clock)
    instance(server, who)
    assert b"Zmlyc3Q" in ask(server, "GET", f"{INSTANCE}/records?timeout=5000", who=who)[1]
    said = []
    reader = threading.Thread(target=lambda: said.append(ask(server, "GET", f"{INSTANCE}/records?timeout=60000", who=who)))
    (waiting,) = server.server._doors[0].instances._all.values()
    reader.start()
    until(lambda: waiting._waiting, "the read to wait")
    end(server, clock)
    server.database.log("t").append(b"secret")
    reader.join()
    assert said[0][0] == 401, said


def test_an_instance_goes_on_for_who_shows_something_else(server, clock):
    """The token that made it is revoked; the password of its user still counts."""
    instance(server, BEARER)
    revoke_token(server, clock)
    assert ask(server, "GET", f"{INSTANCE}/records?timeout=1", who=BEARER)[0] == 401
    status, said = ask(server, "GET", f"{INSTANCE}/records?timeout=5000")
    assert (status, b"Zmlyc3Q" in said) == (200, True)
    assert ask(server, "POST", f"{INSTANCE}/offsets")[0] == 200
    assert ask(server, "DELETE", INSTANCE)[0] == 204


def test_an_instance_is_used_from_where_each_request_comes(server):
    allow(server.database.path, grants=["Allow low@* Read Group g", "Allow low@127.0.0.1 Read Topic t"])
    instance(server)
    for source, status in (("127.0.0.2", 403), ("127.0.0.1", 200), ("127.0.0.2", 403)):
        got, said = ask(server, "GET", f"{INSTANCE}/records?timeout=1000", source=source)
        assert (got, b"Zmlyc3Q" in said) == (status, status == 200), source
        server.database.log("t").append(b"first")
    assert ask(server, "POST", f"{INSTANCE}/offsets", source="127.0.0.2")[0] == 403
    assert ask(server, "POST", f"{INSTANCE}/offsets", source="127.0.0.1")[0] == 200
