"""logdb's own client sends and gets batches as Kafka's frames, with every credential, and as HTTP where no upgrade is let through."""

import contextlib
import socket
import struct
import threading

import pytest

import logdb
from logdb.access.credentials import new_token, token_hash
from logdb.access.security_document import Token
from logdb.access.session import AuthorizedSession
from logdb.codec.messages import FETCH_RESPONSE
from logdb.errors import (
    AuthenticationFailed,
    InvalidAnswer,
    LogdbError,
    LogTruncated,
    NotAuthorized,
    OffsetOutOfRange,
    ServerUnavailable,
    UnknownTopic,
)
from logdb.model import TopicPartition
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb_http_api.door.door import HttpDoor
from logdb_http_api.protocol import KAFKA_PATH
from logdb_http_api.remote.batch_requests import FetchRequest
from logdb_http_api.remote.wires import Broken, FrameWire, HttpRequest, HttpWire
from logdb_kafka_api.door import KafkaDoor
from support.batches import encode_log
from support.certificates import Authority
from support.security import secure
from support.serving import served
from support.waiting import until

PASSWORD = "a long password"


@pytest.fixture
def paths(monkeypatch):
    """The paths of the requests of HTTP."""
    found = []
    serve = HttpDoor._serve

    async def counted(door, http):
        found.append(http.path)
        return await serve(door, http)

    monkeypatch.setattr(HttpDoor, "_serve", counted)
    return found


@pytest.fixture
def server(tmp_path, paths):
    with served(tmp_path / "db") as it:
        yield it


def batches_of_a_client(url, **options):
    """Appends of many sizes, in every way, and what is read back."""
    with logdb.open(url, **options) as db:
        db.create_topic("of_a_client", config={"max.message.bytes": 4 << 20})
        log = db.log("of_a_client")
        wanted = []
        for count, size_bytes in ((1, 10), (500, 500), (1, 3 << 20), (20_000, 200), (1, 0)):
            values = [bytes([at % 251]) * size_bytes for at in range(count)]
            assert log.append_many(values) == range(len(wanted), len(wanted) + count)
            wanted += values
        with db.producer() as producer:
            producer.send("of_a_client", b"sent")
        with db.transaction("id") as tx:
            tx.send("of_a_client", b"committed")
        with pytest.raises(ZeroDivisionError), db.transaction("id") as tx:
            tx.send("of_a_client", b"aborted")
            raise ZeroDivisionError
        wanted += [b"sent", b"committed"]
        assert [record.value for record in log.read(0, isolation_level="read_committed")] == wanted
        column = [value.as_py() for batch in log.read_arrow(0, columns=["value"]) for value in batch.column(0)]
        assert column[: len(wanted)] == wanted


def until_at_rest(server):
    doors = server.server._doors
    until(lambda: not any(door.requests.taken or door.memory.taken or +door.appending for door in doors), "the doors to be at rest")


def test_batches_are_frames(server, paths):
    batches_of_a_client(server.url)
    assert KAFKA_PATH in paths
    assert not [path for path in paths if path.endswith("/batches")]
    until_at_rest(server)


@pytest.mark.parametrize("who", ["password", "token", "certificate", "nobody"])
def test_over_tls_by_every_credential(tmp_path, paths, who):
    authority, secret = Authority(tmp_path / "ca"), new_token()
    files, ann = authority.server(), authority.client("ann")
    options = {
        "password": {"user": "ann", "password": PASSWORD},
        "token": {"token": secret},
        "certificate": {"cert_file": ann.cert, "key_file": ann.key},
        "nobody": {},
    }[who]
    more = {"tls_client_ca": authority.file} if who == "certificate" else {}
    with served(tmp_path / "db", tls_cert=files.cert, tls_key=files.key, **more) as server:
        if who != "nobody":
            token = Token("t", Principal("User", "ann"), token_hash(secret), 0, None)
            secure(server.database.path, users={"ann": PASSWORD}, tokens=[token], super_users=["ann"])
        batches_of_a_client(server.url, ca_file=authority.file, **options)
        assert not [path for path in paths if path.endswith("/batches")]
        until_at_rest(server)


def test_who_may_not_is_told_by_class_and_fields(server):
    server.database.create_topic("t")
    secure(server.database.path, "Allow ann@* Describe Topic t", users={"ann": PASSWORD})
    with logdb.open(server.url, user="ann", password=PASSWORD) as db:
        log = db.log("t")
        batch = encode_log([[b"a"]])
        with pytest.raises(NotAuthorized, match="User:ann is not allowed to Write Topic 't'") as raised:
            log.append_batches(batch)
        assert (raised.value.principal, raised.value.operation, raised.value.resource) == ("User:ann", "Write", "Topic 't'")
        with pytest.raises(NotAuthorized, match="Read"):
            log.read(0)
        server.database.delete_topic("t")
        with pytest.raises((UnknownTopic, NotAuthorized)):
            log.append_batches(batch)


def test_a_credential_that_is_revoked_ends_the_session(server):
    server.database.create_topic("t")
    secure(server.database.path, users={"ann": PASSWORD}, super_users=["ann"])
    with logdb.open(server.url, user="ann", password=PASSWORD) as db:
        log = db.log("t")
        log.append(b"a")
        secure(server.database.path, users={"ann": "another password"}, super_users=["ann"])
        with pytest.raises(AuthenticationFailed):
            log.append(b"b")
    assert server.database.log("t").end_offset == 1


def test_a_quota_holds_back_frames(server, monkeypatch):
    delays = []

    async def pause(door, delay_ms):
        delays.append(delay_ms)

    monkeypatch.setattr(KafkaDoor, "pause", pause)
    server.database.create_topic("t")
    quotas = {Principal("User", "ann"): Quota(produce_bytes=10_000)}
    secure(server.database.path, users={"ann": PASSWORD}, super_users=["ann"], quotas=quotas)
    with logdb.open(server.url, user="ann", password=PASSWORD, timeout_ms=60_000) as db:
        log = db.log("t")
        log.append(bytes(300_000))
        log.append(b"x")
    assert server.database.log("t").end_offset == 2
    until(lambda: len(delays) == 2, "the second delay, which begins behind the answer")
    assert min(delays) > 1_000


@pytest.mark.parametrize("expected_offset", [-1, -5, 1 << 63])
def test_an_expected_offset_that_is_none_appends_nothing(server, expected_offset):
    with logdb.open(server.url) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"x")
        batches = bytes(log.read_batches(0)[0])
        for one in (server.database.log("t"), log):
            error = ValueError if expected_offset < 0 else OverflowError
            with pytest.raises(error, match=f"expected_offset={expected_offset} is "):
                one.append(b"y", expected_offset=expected_offset)
            with pytest.raises(error, match=f"expected_offset={expected_offset} is "):
                one.append_many([b"y"], expected_offset=expected_offset)
            with pytest.raises(error, match=f"expected_offset={expected_offset} is "):
                one.append_batches(batches, expected_offset=expected_offset)
        assert log.end_offset == 1


def test_a_body_that_is_too_large_is_refused_as_over_http(tmp_path):
    with served(tmp_path / "db", body_bytes_max=100_000) as server, logdb.open(server.url) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"x")
        with pytest.raises(LogdbError, match="413"):
            log.append(bytes(200_000))
        assert log.append(b"y") == 1


def test_a_refusal_of_batches_that_must_not_be_sent_twice_is_told(tmp_path):
    with served(tmp_path / "db", body_bytes_max=100_000) as server, logdb.open(server.url) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"x")
        with pytest.raises(LogdbError, match="413"):
            log.append_batches(encode_log([[bytes(200_000)]]))
        assert log.append_batches(encode_log([[b"y"]])) == range(1, 2)


def test_a_leader_epoch_that_no_log_can_have(server):
    with logdb.open(server.url) as db:
        db.create_topic("t")
        db.log("t").append_many([b"x", b"y"])
        for epoch in (5, 2**31 - 1, 2**31, 2**63, 2**70):
            for offset, error in ((1, LogTruncated), (9, OffsetOutOfRange)):
                said = []
                for log in (server.database.log("t"), db.log("t")):
                    with pytest.raises(error) as raised:
                        log.read(offset, leader_epoch=epoch)
                    said.append(str(raised.value))
                assert said[0] == said[1]
        for epoch in (-1, -2, -(2**40)):
            for log in (server.database.log("t"), db.log("t")):
                assert [record.value for record in log.read(1, leader_epoch=epoch)] == [b"y"]


def test_an_append_that_fails_for_no_reason_of_the_client_ends_no_connection(server, paths, monkeypatch, caplog):
    with logdb.open(server.url) as db:
        db.create_topic("t")
        log = db.log("t")
        assert log.append(b"x") == 0
        with monkeypatch.context() as broken:
            broken.setattr(AuthorizedSession, "append", lambda *_, **__: 1 // 0)
            with pytest.raises(LogdbError, match="error code -1"):
                log.append(b"y")
        assert log.append(b"z") == 1
    assert paths.count(KAFKA_PATH) == 1
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


# ---------------------------------------------------------------- where no upgrade is let through


class Stripping:
    """A proxy that does not know Upgrade: it removes what is of one connection (RFC 9110, section 7.6.1)."""

    def __init__(self, url):
        host, _, port = url.partition("://")[2].rpartition(":")
        self._target, self._sockets = (host, int(port)), []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, server = self._listener.accept()[0], socket.create_connection(self._target)
                self._sockets += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    @staticmethod
    def passed(data):
        return data.replace(b"Upgrade: kafka\r\n", b"").replace(b"Connection: Upgrade\r\n", b"")

    def _pass(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(self.passed(data))
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self):
        for one in (self._listener, *self._sockets):
            one.close()


class Swallowing(Stripping):
    """A proxy that never answers a request for an upgrade."""

    @staticmethod
    def passed(data):
        return b"" if b"Upgrade: kafka" in data else data


class Misleading(Stripping):
    """A proxy that says that the connection goes on in another protocol."""

    @staticmethod
    def passed(data):
        return data.replace(b"Upgrade: kafka", b"Upgrade: websocket") if data.startswith(b"HTTP/1.1 101 ") else data


@pytest.mark.parametrize(("kind", "timeout_ms"), [(Swallowing, 2_000), (Misleading, 5_000)])
def test_batches_go_by_http_where_an_upgrade_leads_nowhere(server, paths, kind, timeout_ms):
    proxy = kind(server.url)
    try:
        with logdb.open(proxy.url, timeout_ms=timeout_ms) as db:
            db.create_topic("t")
            log = db.log("t")
            assert [log.append(b"x"), log.append(b"y")] == [0, 1]
    finally:
        proxy.close()
    assert len([path for path in paths if path.endswith("/batches")]) == 2


def test_a_proxy_that_lets_no_upgrade_through(server, paths):
    proxy = Stripping(server.url)
    try:
        batches_of_a_client(proxy.url)
    finally:
        proxy.close()
    assert paths.count(KAFKA_PATH) == 1, "it is asked once a minute"
    assert [path for path in paths if path.endswith("/batches")]


# ---------------------------------------------------------------- what no server of logdb answers


def answers(*frames):
    """The two ends of a connection on which these frames have come."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"".join(frames))
    theirs.shutdown(socket.SHUT_WR)
    ours.settimeout(5)
    return ours, theirs


def framed(values, correlation_id=0, header=b"\0"):
    body = struct.pack(">i", correlation_id) + header + FETCH_RESPONSE.encode(values, 12)
    return struct.pack(">i", len(body)) + body


ASKED = FetchRequest(TopicPartition("t", 0), 0, 1 << 20, committed=False)
GOOD = {"topic": "t", "partitions": [{"partition_index": 0, "error_code": 0, "records": b"", "next_offset": 0, "readable_end_offset": 0}]}


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"", Broken),
        (b"\0\0\0\x01", Broken),
        (struct.pack(">iib", 4, 0, 0), Broken),
        (struct.pack(">iib", -1, 0, 0), Broken),
        (struct.pack(">iib", 2**31 - 1, 0, 0) + b"short", Broken),
        (framed({"responses": [GOOD]}, correlation_id=1), Broken),
        (framed({"responses": [GOOD]}, header=b"\2"), Broken),
        (framed({"responses": [GOOD]}, header=b"\1\x65\x08" + bytes(8)), Broken),
        (framed({"responses": []}), InvalidAnswer),
        (framed({"responses": [GOOD, GOOD]}), InvalidAnswer),
        (struct.pack(">iib", 25, 0, 0) + b"\xff" * 20, InvalidAnswer),
        (framed({"responses": [{"topic": "t", "partitions": [{"partition_index": 0, "error_code": 3, "records": b""}]}]}), LogdbError),
        (
            framed(
                {
                    "responses": [
                        {"topic": "t", "partitions": [{"partition_index": 0, "error_code": 3, "records": b"", "error": b"[" * 9999}]}
                    ]
                }
            ),
            LogdbError,
        ),
    ],
)
def test_no_answer_to_a_frame(frame, error):
    ours, theirs = answers(frame)
    with ours, theirs:
        wire = FrameWire(ours, "http://liar")
        wire.send(ASKED)
        with pytest.raises(error):
            wire.begin()
            ASKED.of_frame(wire.receive(ASKED), "http://liar")


def test_a_good_answer_to_a_frame():
    ours, theirs = answers(framed({"responses": [GOOD]}, header=b"\1\x64\x08" + bytes(7) + b"\7"))
    with ours, theirs:
        wire = FrameWire(ours, "http://honest")
        wire.send(ASKED)
        assert wire.begin() == 7
        assert ASKED.of_frame(wire.receive(ASKED), "http://honest").next_offset == 0


@pytest.mark.parametrize("upgraded", [True, False])
def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for(upgraded):
    ours, theirs = socket.socketpair()
    ended = threading.Event()

    def drip():
        with contextlib.suppress(OSError):
            theirs.recv(1 << 16)
            for byte in framed({"responses": [GOOD]}) if upgraded else b"HTTP/1.1 200 OK\r\nServer: slow\r\n\r\n":
                theirs.send(bytes((byte,)))
                if ended.wait(0.03):
                    return

    with ours, theirs:
        ours.settimeout(0.3)
        wire = FrameWire(ours, "http://slow") if upgraded else HttpWire(ours, "http://slow", {"Host": "slow"})
        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises(TimeoutError):
            if isinstance(wire, FrameWire):
                wire.send(ASKED)
                wire.begin()
                wire.receive(ASKED)
            else:
                wire.send(HttpRequest("GET", "/"), "")
                wire.begin(lambda: None)
        ended.set()
        dripping.join()


def test_a_server_that_never_answers_frames(tmp_path):
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        with logdb.open(server.url, timeout_ms=300) as db:
            log = db.log("t")
            log.append(b"a")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FrameWire, "begin", lambda wire: (_ for _ in ()).throw(TimeoutError("nothing came")))
                with pytest.raises(ServerUnavailable):
                    log.append(b"b")
            log.append(b"c")
        assert [record.value for record in server.database.log("t").read(0)][-1] == b"c"
