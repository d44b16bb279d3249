"""Bodies of record batches over plain HTTP: they leave connection, memory and limits as they were, whatever becomes of them."""

import socket
import struct
import threading
import tracemalloc

import pytest

from logdb.errors import Closed
from logdb.serving.fetch import UnabortedRead
from logdb_http_api.door import connections
from support.batches import Rec, encode_batch
from support.serving import served
from support.waiting import until
from support.wire import wire

PATH = "/logdb/v1/topics/t/partitions/0/batches"
TYPE = {"Content-Type": "application/vnd.logdb.batches"}
SMALL = encode_batch([Rec(value=b"a")])
LARGE = encode_batch([Rec(value=bytes(1000))] * 3000)


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "_LINGERING_S", 0.2)
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


def fetch(offset=0, max_bytes=65_536, more="", path=PATH):
    return f"{path}?offset={offset}&max_bytes={max_bytes}{more}"


def asked(target):
    return f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


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
def test_answers_to_appends(server, line, body, query, path, status):
    line.send(request(body, query, path))
    said = line.read()
    assert said.status == status
    assert server.database.log("t").end_offset == (said.json["next_offset"] if status == 200 else 0)
    until_at_rest(server)


def test_what_comes_in_pieces_is_whole_and_the_next_request_is_another(server, line):
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
        assert (said.status, said.headers["retry-after"]) == (503, "1")
        until_at_rest(server)
        assert server.database.log("t").end_offset == 0


def test_who_leaves_leaves_nothing(server):
    with wire(server.url) as line:
        line.send(request(LARGE)[:300_000])
    with wire(server.url) as line:
        line.send(request(SMALL))
        assert line.read().json == {"base_offset": 0, "next_offset": 1}
    until_at_rest(server)
    assert server.database.log("t").end_offset == 1


def test_too_much_is_refused_before_it_is_read(line):
    line.send(request(bytes(9 << 20))[:1000])
    assert line.read().status == 413


def test_an_idle_connection_is_closed(line):
    line.send(request(SMALL))
    line.read()
    assert line.is_closed()


def test_a_name_of_the_internet_is_refused_at_the_loopback(server, line):
    line.send(request(SMALL).replace(b"Host: x", b"Host: pages.example.org"))
    assert line.read().status == 403
    assert server.database.log("t").end_offset == 0


def test_what_goes_wrong_is_told_without_its_text(server, line, monkeypatch, caplog):
    def fail(*args, **options):
        raise RuntimeError("a secret")

    monkeypatch.setattr("logdb.access.session.AuthorizedSession.submit_batches", fail)
    for body in (SMALL, LARGE):
        line.send(request(body))
        said = line.read()
        assert (said.status, said.json) == (500, {"error_code": 500, "message": "internal error"})
    assert "a secret" in caplog.text
    monkeypatch.setattr(
        "logdb.access.session.AuthorizedSession.submit_batches", lambda *args, **options: (_ for _ in ()).throw(Closed("it ends"))
    )
    line.send(request(SMALL))
    said = line.read()
    assert (said.status, said.headers["retry-after"]) == (503, "1")


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
    read, left = UnabortedRead.read, threading.Event()

    def held(*args, **options):
        read(*args, **options)
        left.wait()

    monkeypatch.setattr(UnabortedRead, "read", held)
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

    monkeypatch.setattr("logdb.access.session.AuthorizedSession.log_to_read", fail)
    line.send(asked(fetch()))
    said = line.read()
    assert (said.status, said.json) == (500, {"error_code": 500, "message": "internal error"})
    assert "a secret" in caplog.text


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
def test_answers_to_fetches(server, line, target, status):
    log = server.database.log("t")
    for batches in (LARGE, SMALL, LARGE):
        log.append_batches(batches)
    line.send(asked(target))
    said = line.read()
    assert said.status == status
    line.send(asked(target))
    assert line.read().body == said.body, "and the connection goes on"
    until_at_rest(server)
