"""Appends and fetches past aiohttp are answered as those are that go through it, and leave connection, memory and limits as those do."""

import base64
import errno
import socket
import struct
import threading
import tracemalloc
from asyncio.trsock import TransportSocket

import pytest

import logdb
from logdb.access.credentials import new_token, token_hash
from logdb.access.security_document import Token
from logdb.errors import Closed
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from logdb_http_api.door import express
from logdb_http_api.door.batches import Reading
from logdb_http_api.door.door import HttpDoor
from logdb_http_api.door.pipelined import Pipelined
from support.batches import Rec, encode_batch
from support.builders import until
from support.certificates import Authority
from support.security import secure
from support.serving import served
from support.wire import wire

PATH = "/logdb/v1/topics/t/partitions/0/batches"
TYPE = {"Content-Type": "application/vnd.logdb.batches"}
SMALL = encode_batch([Rec(value=b"a")])
LARGE = encode_batch([Rec(value=bytes(1000))] * 3000)


@pytest.fixture
def usual(monkeypatch):
    """The paths of the requests that went through aiohttp."""
    paths = []
    serve = HttpDoor._serve

    async def counted(door, http):
        paths.append(http.path)
        return await serve(door, http)

    monkeypatch.setattr(HttpDoor, "_serve", counted)
    return paths


@pytest.fixture
def server(tmp_path, usual):
    with served(tmp_path / "db", body_timeout_ms=400, keep_alive_ms=700, body_bytes_max=8 << 20) as it:
        it.database.create_topic("t", config={"max.message.bytes": 4 << 20})
        yield it


@pytest.fixture
def line(server):
    with wire(server.url) as it:
        yield it


def request(body, query="", path=PATH):
    return (
        f"POST {path}{query} HTTP/1.1\r\nHost: x\r\nContent-Type: {TYPE['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def door_of(server):
    return server.server._doors[0]


def until_at_rest(server):
    """Wait until nothing is under way, and nobody holds memory."""
    door = door_of(server)
    until(lambda: (door.requests.taken, door.memory.taken, +door.appending) == (0, 0, {}), "the door to be at rest")


@pytest.mark.parametrize(
    ("body", "query", "path", "status"),
    [
        (SMALL, "", PATH, 200),
        (SMALL, "?durability=fsync", PATH, 200),
        (LARGE, "", PATH, 200),
        (b"", "", PATH, 200),
        (SMALL, "?expected_offset=77", PATH, 412),
        (LARGE, "?expected_offset=77", PATH, 412),
        (b"no batches at all", "", PATH, 422),
        (SMALL, "", PATH.replace("/t/", "/nothing/"), 404),
        (LARGE, "", PATH.replace("/0/", "/5/"), 404),
    ],
)
def test_the_answer_is_the_usual_one(server, line, usual, body, query, path, status):
    line.send(request(body, query, path))
    past = line.read()
    assert not usual, "it went past aiohttp"
    through = line.ask("POST", path + query, body, TYPE | {"Content-Length": str(len(body)), "X-Else": "1"})
    assert usual == [path], "and this did not"
    assert past.status == through.status == status
    assert past.headers.keys() == through.headers.keys()
    if status != 200:
        assert past.json == through.json
        assert server.database.log("t").end_offset == 0
    else:
        count = past.json["next_offset"] - past.json["base_offset"]
        assert through.json == {"base_offset": count, "next_offset": 2 * count}
    until_at_rest(server)


def test_what_comes_in_pieces_is_whole_and_the_next_request_is_another(server, line, usual):
    one = request(LARGE)
    for begin, end in ((0, 10), (10, 200), (200, 70_000), (70_000, 1_500_000)):
        line.send(one[begin:end])
    line.send(one[1_500_000:] + request(SMALL) + request(LARGE) + b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [line.read().json for _ in range(3)] == [
        {"base_offset": 0, "next_offset": 3000},
        {"base_offset": 3000, "next_offset": 3001},
        {"base_offset": 3001, "next_offset": 6001},
    ]
    assert line.read().status == 200
    assert [len(record.value) for record in server.database.log("t").read(2998)][:4] == [1000, 1000, 1, 1000]
    until_at_rest(server)


# ---------------------------------------------------------------- one behind the other


@pytest.fixture
def taken(monkeypatch):
    """Sizes of the bodies that a thread took behind the one it was at."""
    sizes = []
    take = Pipelined.take

    def counted(pipelined, head_bytes, body):
        sizes.append(len(body))
        take(pipelined, head_bytes, body)

    monkeypatch.setattr(Pipelined, "take", counted)
    return sizes


@pytest.fixture
def send_all(line, monkeypatch):
    """Send requests of which the first is appended once the last was sent."""
    sent = threading.Event()
    append = express._append

    def held(*args):
        sent.wait()
        return append(*args)

    def send(*requests):
        sent.clear()
        line.send(b"".join(requests))
        sent.set()

    monkeypatch.setattr(express, "_append", held)
    return send


def test_what_lies_ready_behind_a_request_is_appended_by_its_thread(server, line, usual, taken, send_all):
    other = PATH.replace("/0/", "/1/")
    server.database.alter_topic("t", partitions=2)
    send_all(request(LARGE), request(SMALL), request(SMALL, "?expected_offset=5"), request(SMALL), request(SMALL, path=other))
    said = [line.read() for _ in range(5)]
    assert [one.status for one in said] == [200, 200, 412, 200, 200]
    assert [one.json["base_offset"] for one in said if one.status == 200] == [0, 3000, 3001, 0]
    assert taken == [len(SMALL)] * 3, "the last is of another partition"
    assert not usual
    until_at_rest(server)


def test_a_thread_takes_so_many_in_a_row_and_the_loop_the_others(server, line, taken, send_all):
    send_all(request(LARGE), *[request(SMALL)] * 20)
    assert [line.read().json["base_offset"] for _ in range(21)] == [0, *range(3000, 3020)]
    assert len(taken) == 16
    until_at_rest(server)


def test_other_requests_behind_one_are_answered(line, usual, taken, send_all):
    send_all(request(LARGE), request(SMALL).replace(b"Host: x", b"Host: x\r\nX-Else: 1"), request(SMALL), asked("/health/live"))
    assert [line.read().status for _ in range(4)] == [200] * 4
    assert not taken
    assert usual == [PATH, PATH, "/health/live"]


def test_a_larger_one_than_there_is_memory_for_is_the_loop_s(server, line, taken):
    line.send(request(LARGE) + request(LARGE + LARGE))
    assert [line.read().json["base_offset"] for _ in range(2)] == [0, 3000]
    assert not taken
    until_at_rest(server)


def test_who_leaves_with_requests_behind_one_leaves_nothing_half(server, send_all, line):
    send_all(request(LARGE), request(SMALL), request(SMALL))
    line.close()
    log = server.database.log("t")
    until(lambda: log.end_offset >= 3000, "the first to be appended")
    until_at_rest(server)
    assert [len(record.value) for record in log.read(2999)][1:] == [1] * (log.end_offset - 3000)


def test_one_of_which_not_all_comes_is_the_loop_s(server, line, taken, monkeypatch):
    given_up, has = threading.Event(), Pipelined.has

    def looked(*args):
        if found := has(*args):
            return found
        given_up.set()
        return False

    monkeypatch.setattr(Pipelined, "has", looked)
    whole = request(LARGE)
    line.send(whole + whole[:5000])
    assert line.read().json["base_offset"] == 0
    assert given_up.wait(30)
    line.send(whole[5000:])
    assert line.read().json["base_offset"] == 3000
    assert not taken
    until_at_rest(server)


def test_a_server_that_ends_takes_no_more(tmp_path, taken, monkeypatch):
    with served(tmp_path / "db") as server, wire(server.url) as line:
        server.database.create_topic("t", config={"max.message.bytes": 4 << 20})
        append = express._append

        def ending(*args):
            server.server._doors[0].draining = True
            return append(*args)

        monkeypatch.setattr(express, "_append", ending)
        line.send(request(LARGE) + request(SMALL))
        assert line.read().status == 200
        assert not taken


@pytest.mark.parametrize("few", ["the door's", "the process's"])
def test_without_a_descriptor_for_the_thread_the_loop_does_it_all(line, taken, send_all, monkeypatch, few):
    if few == "the door's":
        monkeypatch.setattr("logdb_http_api.door.express._AT_SOCKETS_COUNT_MAX", 0)
    else:
        monkeypatch.setattr(TransportSocket, "dup", lambda sock: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many")))
    send_all(request(LARGE), request(SMALL))
    assert [line.read().json["base_offset"] for _ in range(2)] == [0, 3000]
    assert not taken


class Narrow:
    """A socket that takes forty bytes at once."""

    def __init__(self, sock):
        self._sock = sock

    def send(self, data, flags):
        return self._sock.send(data[:40], flags)

    def __getattr__(self, name):
        return getattr(self._sock, name)


@pytest.fixture
def narrow(monkeypatch):
    made = Pipelined.__init__
    monkeypatch.setattr(Pipelined, "__init__", lambda pipelined, sock: made(pipelined, Narrow(sock)))


def test_who_reads_slowly_gets_the_rest_of_an_answer_from_the_loop(server, narrow, line, taken):
    for at in range(2):
        line.send(request(LARGE))
        assert line.read().json["base_offset"] == 3000 * at
    until_at_rest(server)


def test_the_rest_of_an_answer_is_not_changed_by_the_end_of_the_server(tmp_path, narrow, monkeypatch):
    with served(tmp_path / "db") as server, wire(server.url) as line:
        server.database.create_topic("t", config={"max.message.bytes": 4 << 20})
        answer = Pipelined.answer

        def ending(pipelined, said):
            unsent = answer(pipelined, said)
            connections = door_of(server)._connections
            connections.loop.call_soon_threadsafe(setattr, connections, "draining", True)
            return unsent

        monkeypatch.setattr(Pipelined, "answer", ending)
        line.send(request(LARGE))
        said = line.read()
        assert (said.status, said.json) == (200, {"base_offset": 0, "next_offset": 3000})
        assert "connection" not in said.headers
        assert line.is_closed()


def test_a_connection_that_fails_behind_an_answer_gets_no_other(server, line, monkeypatch):
    def fail(pipelined):
        raise TimeoutError("its network is gone")

    monkeypatch.setattr(Pipelined, "head", fail)
    line.send(request(LARGE))
    assert line.read().status == 200
    assert line.is_closed()
    until_at_rest(server)


def test_a_long_head_is_aiohttp_s(server, line, usual):
    line.send(request(SMALL).replace(b"Host: x", b"Host: x\r\nAccept-Encoding: " + b"x" * 3000))
    assert line.read().status == 200
    assert usual == [PATH]


def test_requests_take_turns_with_those_of_aiohttp(line, usual):
    for at in range(3):
        line.send(request(SMALL))
        assert line.read().json["base_offset"] == 2 * at
        assert line.ask("POST", PATH, SMALL, TYPE | {"X-Else": "1"}).json["base_offset"] == 2 * at + 1
    assert len(usual) == 3


def test_a_body_has_no_more_memory_than_was_counted_for_it(tmp_path):
    whole = request(LARGE + LARGE)
    with served(tmp_path / "db") as server, wire(server.url) as line:
        server.database.create_topic("t", config={"max.message.bytes": 4 << 20})
        tracemalloc.start()
        try:
            line.send(whole[:300_000])
            until(lambda: door_of(server).memory.taken, "the body to be begun")
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
        finally:
            tracemalloc.stop()
        line.send(whole[300_000:])
        assert line.read().json["next_offset"] == 6000


def test_a_body_that_does_not_come_is_given_up(server, line):
    line.send(request(LARGE)[:300_000])
    said = line.read()
    assert (said.status, said.headers["connection"]) == (408, "close")
    assert line.is_closed()
    until_at_rest(server)
    assert server.database.log("t").end_offset == 0


def test_who_is_refused_half_way_gets_to_read_why(tmp_path, monkeypatch):
    monkeypatch.setattr("logdb.serving.resources.MEMORY_WAIT_S", 0.05)
    with served(tmp_path / "db", memory_bytes_max=12 << 20) as server, wire(server.url) as line:
        server.database.create_topic("t", config={"max.message.bytes": 8 << 20})
        body = request(encode_batch([Rec(value=bytes(1000))] * 5000))
        line.send(body[:100_000])
        memory = door_of(server).memory
        until(lambda: memory.taken, "the body to be begun")
        memory.taken += 7 << 20  # as if others had come
        line.send(body[100_000:])
        said = line.read()
        memory.taken -= 7 << 20
        assert (said.status, said.headers["connection"], said.headers["retry-after"]) == (503, "close", "1")
        assert line.is_closed()
        until_at_rest(server)
        assert server.database.log("t").end_offset == 0


def test_who_leaves_leaves_nothing(server, usual):
    with wire(server.url) as line:
        line.send(request(LARGE)[:300_000])
    with wire(server.url) as line:
        line.send(request(SMALL))
        assert line.read().json == {"base_offset": 0, "next_offset": 1}
    until_at_rest(server)
    assert server.database.log("t").end_offset == 1
    assert not usual


def test_too_much_is_refused_before_it_is_read(line):
    line.send(request(bytes(9 << 20))[:1000])
    assert line.read().status == 413


def test_an_idle_connection_is_closed(line, usual):
    line.send(request(SMALL))
    line.read()
    assert line.is_closed()
    assert not usual


def test_a_name_of_the_internet_is_refused_at_the_loopback(server, line):
    line.send(request(SMALL).replace(b"Host: x", b"Host: pages.example.org"))
    assert line.read().status == 403
    assert server.database.log("t").end_offset == 0


def test_who_has_to_say_who_they_are_does(server, line, usual):
    secure(server.database.path, users={"ann": "a long password"})
    line.send(request(SMALL))
    assert line.read().status == 401
    assert usual == [PATH]


# ---------------------------------------------------------------- for somebody


@pytest.fixture
def secured(server):
    """Authentication is on: the tokens of ann, who may write and read t, of ben, who may nothing, and of cat, who has a quota."""
    secrets = {name: new_token() for name in ("ann", "ben", "cat")}
    tokens = [Token(name, Principal("User", name), token_hash(secret), 0, None) for name, secret in secrets.items()]
    secure(
        server.database.path,
        *("Allow ann@* Write Topic t", "Allow ann@* Read Topic t", "Allow cat@* Write Topic t"),
        users={"ann": "a long password"},
        tokens=tokens,
        quotas={Principal("User", "cat"): Quota(produce_bytes=1 << 30)},
    )
    return {name: f"Bearer {secret}" for name, secret in secrets.items()}


def by(given, asked):
    """A request with who asks it."""
    return asked.replace(b"Host: x\r\n", b"Host: x\r\nAuthorization: " + given.encode() + b"\r\n")


def test_a_token_is_looked_at_without_aiohttp(server, usual, secured):
    for name, status in (("ann", 200), ("ben", 403)):
        for one in (request(SMALL), request(LARGE), asked(fetch(0, 1))):
            with wire(server.url) as line:  # who may not is told before the large one is read, and the connection is closed
                line.send(by(secured[name], one))
                past = line.read()
            assert not usual, "it went past aiohttp"
            with wire(server.url) as line:
                line.send(by(secured[name], one).replace(b"Host: x", b"Host: x\r\nX-Else: 1"))
                through = line.read()
            assert len(usual) == 1, "and this did not"
            usual.clear()
            assert past.status == through.status == status
            assert past.headers.keys() - {"connection"} == through.headers.keys()
    until_at_rest(server)


def test_who_has_quotas_is_held_back_by_aiohttp(line, usual, secured):
    line.send(by(secured["cat"], request(SMALL)))
    assert line.read().status == 200
    assert usual == [PATH]


def test_a_password_is_hashed_once_and_recognized_then(server, line, usual, secured):
    given = "Basic " + base64.b64encode(b"ann:a long password").decode()
    for _ in range(3):
        line.send(by(given, request(SMALL)))
        assert line.read().status == 200
    assert usual == [PATH]


def test_who_is_not_recognized_is_counted_once(server, line, usual, secured):
    for given in ("Bearer nothing", "Basic " + base64.b64encode(b"ann:wrong").decode(), "Basic %%%"):
        line.send(by(given, request(SMALL)))
        assert line.read().status == 401
    assert usual == [PATH] * 3
    assert door_of(server).access.metrics.counts().failed_authentications == 3


def test_a_token_that_is_revoked_in_between_is_none(server, line, taken, secured, monkeypatch):
    append = express._append

    def revoking(*args):
        answer = append(*args)
        secure(server.database.path, users={"ann": "a long password"})
        return answer

    monkeypatch.setattr(express, "_append", revoking)
    given = secured["ann"]
    line.send(by(given, request(LARGE)) + by(given, request(SMALL)))
    assert [line.read().status for _ in range(2)] == [200, 401]
    assert not taken


@pytest.mark.parametrize("header", ["Authorization: Bearer x", "authorization: Bearer x", "Authorization:Bearer x", "AUTHORIZATION: x"])
def test_a_head_that_says_who_asks_is_not_remembered(server, line, header):
    express_ = door_of(server)._connections.express.__self__
    line.send(request(SMALL))
    assert line.read().status == 200
    line.send(request(SMALL).replace(b"Host: x", f"Host: x\r\n{header}".encode()))
    assert line.read().status == 200
    assert express_._known.cache_info().currsize == 1


def test_a_client_with_a_password_goes_past_aiohttp(server, usual):
    secure(server.database.path, users={"ann": "a long password"}, super_users=["ann"])
    appends_of_a_client(server.url, usual, user="ann", password="a long password")


def test_a_client_with_a_certificate_goes_past_aiohttp(tmp_path, usual):
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.server()
    ann = authority.client("ann")
    with served(tmp_path / "db", tls_cert=certificate, tls_key=key, tls_client_ca=authority.file) as server:
        secure(server.database.path, super_users=["ann"])
        appends_of_a_client(server.url, usual, ca_file=authority.file, cert_file=ann.cert, key_file=ann.key)
        until_at_rest(server)


# ---------------------------------------------------------------- what goes wrong


def test_what_goes_wrong_is_told_without_its_text(server, line, monkeypatch, caplog):
    def fail(*args, **options):
        raise RuntimeError("a secret")

    monkeypatch.setattr("logdb.access.session.AuthorizedSession.produce", fail)
    for body in (SMALL, LARGE):
        line.send(request(body))
        said = line.read()
        assert (said.status, said.json) == (500, {"error_code": 500, "message": "internal error"})
    assert "a secret" in caplog.text
    monkeypatch.setattr("logdb.access.session.AuthorizedSession.produce", lambda *args, **options: (_ for _ in ()).throw(Closed("it ends")))
    line.send(request(SMALL))
    said = line.read()
    assert (said.status, said.headers["retry-after"]) == (503, "1")


def test_the_access_log_knows_all(tmp_path, usual):
    with served(tmp_path / "db", access_log=True) as server, wire(server.url) as line:
        server.database.create_topic("t")
        line.send(request(SMALL))
        assert line.read().status == 200
    assert usual == [PATH]


def appends_of_a_client(url, usual, **options):
    """Appends of many sizes by logdb's own client, none of which goes through aiohttp, and what is read back."""
    with logdb.open(url, **options) as db:
        db.create_topic("of_a_client", config={"max.message.bytes": 4 << 20})
        log = db.log("of_a_client")
        log.append(b"first")  # the producer is one from here on
        usual.clear()
        wanted = [b"first"]
        for count, size_bytes in ((1, 10), (500, 500), (1, 3 << 20), (20_000, 200), (1, 0)):
            values = [bytes([at % 251]) * size_bytes for at in range(count)]
            assert log.append_many(values) == range(len(wanted), len(wanted) + count)
            wanted += values
        assert not usual
        assert [record.value for record in log.read(0)] == wanted


def test_logdb_s_own_client_goes_past_aiohttp(server, usual):
    appends_of_a_client(server.url, usual)


def test_over_tls(tmp_path, usual):
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.server()
    with served(tmp_path / "db", tls_cert=certificate, tls_key=key) as server:
        appends_of_a_client(server.url, usual, ca_file=authority.file)
        until_at_rest(server)


# ---------------------------------------------------------------- out


def fetch(offset=0, max_bytes=65_536, more="", path=PATH):
    return f"{path}?offset={offset}&max_bytes={max_bytes}{more}"


def asked(target):
    return f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.fixture
def send_behind(line, monkeypatch):
    """Send fetches of which the first is read once the others were sent."""
    begun, sent = threading.Event(), threading.Event()
    read = express._read

    def held(*args):
        begun.set()
        sent.wait()
        return read(*args)

    def send(first, *others):
        line.send(first)
        assert begun.wait(30)
        line.send(b"".join(others))
        sent.set()

    monkeypatch.setattr(express, "_read", held)
    return send


def test_fetches_behind_one_another_are_one_thread_s(server, line, usual, taken, send_behind):
    server.database.log("t").append_batches(LARGE)
    server.database.log("t").append_batches(LARGE)
    send_behind(*(asked(fetch(offset, 1 << 20)) for offset in (0, 3000, 0)), asked(fetch(0, 2 << 20)))
    first, second, again, larger = (line.read().body for _ in range(4))
    assert first == again == LARGE
    assert second[:8] == (3000).to_bytes(8, "big")
    assert larger == LARGE
    assert not usual
    assert taken == [0, 0], "there is memory for what the first asks, and the last asks more"
    until_at_rest(server)


def test_an_answer_that_the_client_is_slow_to_read_is_whole(server, line, taken, send_behind):
    for _ in range(3):
        server.database.log("t").append_batches(LARGE)
    send_behind(asked(fetch(0, 8 << 20)), asked(fetch(3000, 1)))
    (connection,) = door_of(server)._connections.open
    until(lambda: connection.full_s, "the loop to have what the client does not read")
    whole = line.read().body
    assert not taken
    assert len(whole) == 2 * len(LARGE)
    assert whole[12 : len(LARGE)] == LARGE[12:]  # the first bytes are an offset and an epoch
    assert whole[len(LARGE) :].startswith(line.read().body)
    until_at_rest(server)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (fetch(), 200),
        (fetch(max_bytes=1), 200),
        (fetch(3001), 200),
        (fetch(6001), 200),
        (fetch(max_bytes=8 << 20), 200),
        (fetch(max_bytes=8 << 20, more="&isolation_level=read_committed"), 200),
        (fetch(6002), 416),
        (fetch(path=PATH.replace("/t/", "/nothing/")), 404),
        (fetch(path=PATH.replace("/0/", "/5/")), 404),
    ],
)
def test_an_answer_to_a_fetch_is_the_usual_one(server, line, usual, target, status):
    log = server.database.log("t")
    for batches in (LARGE, SMALL, LARGE):
        log.append_batches(batches)
    line.send(asked(target))
    past = line.read()
    assert not usual, "it went past aiohttp"
    through = line.ask("GET", target, headers={"X-Else": "1"})
    assert len(usual) == 1, "and this did not"
    assert past.status == through.status == status
    assert past.body == through.body
    assert past.headers | {"date": ""} == through.headers | {"date": ""}
    line.send(asked(target))
    assert line.read().body == through.body, "and the connection goes on"
    until_at_rest(server)


def test_who_reads_slowly_gets_it_all_and_who_leaves_costs_nothing(server):
    log = server.database.log("t")
    for _ in range(5):
        log.append_batches(LARGE)
    for read_bytes in (100, 1 << 20):
        with wire(server.url) as line:
            line.send(asked(fetch(max_bytes=8 << 20)))
            line._read.read(read_bytes)
        until_at_rest(server)
    with wire(server.url) as line:
        line.send(asked(fetch(max_bytes=8 << 20)))
        size_bytes = len(line.read().body)
        assert 6_000_000 < size_bytes <= 8 << 20
        line.send(asked(fetch()) + asked(fetch(14_999)))
        assert [line.read().status for _ in range(2)] == [200, 200]
    until_at_rest(server)


def test_who_leaves_before_the_answer_is_sent_none(server, monkeypatch, caplog):
    log = server.database.log("t")
    for _ in range(2):
        log.append_batches(LARGE)
    read, left = Reading.read, threading.Event()

    def held(*args):
        read(*args)
        left.wait()

    monkeypatch.setattr(Reading, "read", held)
    with wire(server.url) as line:
        line.send(asked(fetch(max_bytes=8 << 20)))
        until(lambda: door_of(server).requests.taken, "the fetch to be begun")
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    left.set()
    until_at_rest(server)
    assert not caplog.records, "asyncio says so of each write to a connection that is gone"


def test_a_fetch_that_goes_wrong_is_told_without_its_text(line, monkeypatch, caplog):
    def fail(*args, **options):
        raise RuntimeError("a secret")

    monkeypatch.setattr("logdb.access.session.AuthorizedSession.log", fail)
    line.send(asked(fetch()))
    said = line.read()
    assert (said.status, said.json) == (500, {"error_code": 500, "message": "internal error"})
    assert "a secret" in caplog.text
