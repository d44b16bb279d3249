"""The door itself: what every answer has in common, whatever was asked."""

import asyncio
import errno
import gzip
import json
import logging
import socket
import threading

import pytest
import zstandard

import logdb
from logdb.errors import InsecureAddress, SyncFailed
from logdb.serving.server import Server
from support.batches import Rec, encode_batch
from support.faulty_io import FaultyIO
from support.serving import served
from support.waiting import until
from support.wire import wire

CREATE = "/logdb/v1/calls/create_topic"
TOPICS = "/logdb/v1/calls/topics"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "db") as it:
        yield it


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"), ("zstd", "zstd"), ("gzip, zstd", "zstd"), ("gzip;q=1.0, zstd;q=0.1", "gzip"), ("br", None), ("", None),
        ("gzip;q=0", None), ("identity", None), ("zstd;q=x", None),
    ],
)  # fmt: skip
def test_json_goes_out_in_a_coding_that_the_client_takes(server, accepted, coding):
    for number in range(40):
        server.database.create_topic(f"topic-{number}")
    with wire(server.url) as line:
        said = line.ask("POST", TOPICS, b"{}", JSON | {"Accept-Encoding": accepted})
        assert (said.status, said.headers.get("content-encoding"), said.headers["vary"]) == (200, coding, "Accept-Encoding")
        body = {"gzip": gzip.decompress, "zstd": zstandard.decompress, None: bytes}[coding](said.body)
        assert len(json.loads(body)) == 40
        assert "content-encoding" not in line.ask("GET", "/health/live", headers={"Accept-Encoding": accepted}).headers, "too small"


def test_batches_go_out_as_they_lie(server):
    server.database.create_topic("t")
    server.database.log("t").append_many([b"x"] * 10_000)
    with wire(server.url) as line:
        said = line.ask("GET", "/logdb/v1/topics/t/partitions/0/batches", headers={"Accept-Encoding": "gzip, zstd"})
        assert "content-encoding" not in said.headers


def test_one_connection_takes_many_requests_also_at_once(server):
    with wire(server.url) as line:
        for _ in range(3):
            assert line.ask("GET", "/health/live").status == 200
        line.send(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        assert [line.read().status for _ in range(100)] == [200] * 100
        assert line.ask("GET", "/health/live", headers={"Connection": "close"}).status == 200
        assert line.is_closed()


def test_an_idle_connection_is_closed(tmp_path):
    with served(tmp_path / "db", keep_alive_ms=200) as server, wire(server.url) as line, wire(server.url) as silent:
        assert line.ask("GET", "/health/live").status == 200
        assert line.is_closed()
        assert silent.is_closed()


def test_a_client_that_does_not_read_is_cut_off(tmp_path):
    with served(tmp_path / "db", write_timeout_ms=300) as server:
        server.database.create_topic("t")
        server.database.log("t").append_many([bytes(1000)] * 60_000)
        with wire(server.url) as line:
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.send(b"GET /logdb/v1/topics/t/partitions/0/batches?max_bytes=67108864 HTTP/1.1\r\nHost: x\r\n\r\n")
            (door,) = server.server._doors
            until(lambda: door.memory.taken, "the answer is on its way")
            until(lambda: not door.memory.taken, "and given up")
            assert not door._connections.open


def test_topics_made_through_a_server_forget(tmp_path):
    with served(tmp_path / "db", topic_config={"segment.bytes": "1000000"}) as server:
        config = dict(server.call(CREATE, {"name": "a"})[1]["config"])
        assert config == {"retention.ms": 604_800_000, "segment.bytes": 1_000_000}
        config = dict(server.call(CREATE, {"name": "b", "config": [["retention.ms", -1]]})[1]["config"])
        assert config["retention.ms"] == -1
        assert server.database.create_topic("c").config == {}, "what the application makes itself does not"


def test_the_server_says_that_it_is_not_ready_once_a_sync_has_failed(tmp_path):
    io = FaultyIO()
    db = logdb.open(tmp_path / "db", io=io)
    with logdb.serve(db, http="127.0.0.1:0") as server, wire(server.addresses[0]) as line:
        db.create_topic("t")
        assert line.ask("GET", "/health/ready").status == 200
        io.fail("fdatasync", errno.EIO, "t-0")
        db.log("t").append(b"x")
        with pytest.raises(SyncFailed):
            db.flush()
        said = line.ask("GET", "/health/ready")
        assert (said.status, "read-only until reopened" in said.json["message"]) == (503, True)
        assert line.ask("GET", "/health/live").status == 200
    db.close()


def test_the_access_log_has_facts_and_no_secrets(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "logdb.access"), served(tmp_path / "db", access_log=True) as server, wire(server.url) as line:
        line.ask("GET", "/health/live?password=hush", headers={"Cookie": "hush"})
        line.ask("POST", "/nope", b"hush")
        line.ask("GET", "/health/live")  # those before are written down by now
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "logdb.access"]
    assert [(one["method"], one["path"], one["status"], one["principal"]) for one in lines[:2]] == [
        ("GET", "/health/live", 200, "User:ANONYMOUS"),
        ("POST", "/nope", 404, None),
    ]
    assert "hush" not in caplog.text
    assert all(one["ms"] >= 0 and one["response_bytes"] > 0 and one["host"] == "127.0.0.1" for one in lines)


def test_a_handler_that_fails_is_no_traceback_to_the_client(server, caplog, monkeypatch):
    def fail(*_args, **_options):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("logdb.broker.broker.Broker.submit", fail)
    with caplog.at_level(logging.CRITICAL, "logdb_http_api"):
        status, said = server.call(TOPICS, {})
    assert (status, said) == (500, {"error_code": 500, "message": "internal error"})
    assert server.call("/health/live")[0] == 200


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.168.1.1:0", "0:0", "2130706433:0"])
def test_an_address_that_others_reach_is_refused(tmp_path, address):
    with logdb.open(tmp_path / "db") as db, pytest.raises(InsecureAddress, match="--insecure") as caught:
        logdb.serve(db, http=address)
    assert address in str(caught.value)


def test_a_name_that_others_reach_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
    with logdb.open(tmp_path / "db") as db, pytest.raises(InsecureAddress, match=r"example\.org:80 is public"):
        logdb.serve(db, http="example.org:80")


def test_a_name_that_does_not_resolve_is_said_to(tmp_path):
    with (
        logdb.open(tmp_path / "db") as db,
        pytest.raises(ValueError, match=r"'nosuch\.invalid:80': the name nosuch\.invalid does not resolve"),
    ):
        logdb.serve(db, http="nosuch.invalid:80")


def test_an_address_without_a_host_is_none(tmp_path):
    with logdb.open(tmp_path / "db") as db, pytest.raises(ValueError, match=r"must be host:port.*127\.0\.0\.1:8080.*0\.0\.0\.0:8080"):
        logdb.serve(db, http=":8080")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:0", "localhost:0"])
def test_loopback_is_served(tmp_path, address):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http=address) as server, wire(server.addresses[0]) as line:
        assert repr(server) == f"<Server at {server.addresses[0]}>"
        assert line.ask("GET", "/health/live").status == 200


def test_other_addresses_are_served_where_that_is_spelled_out(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="0.0.0.0:0", insecure=True) as server:
        port = server.addresses[0].rpartition(":")[2]
        with wire(f"http://127.0.0.1:{port}") as line:
            assert line.ask("GET", "/health/live").status == 200


def test_an_option_that_there_is_not_is_named(tmp_path):
    with served(tmp_path / "db") as server:
        with pytest.raises(TypeError, match="a URL is opened without mode; options are user, "):
            logdb.open(server.url, mode="r")
        with pytest.raises(TypeError, match="a directory is opened without user; options are mode, "):
            logdb.open(tmp_path / "other", user="alice")
        told = r"no option nonsense; it has access_log, .*http, kafka, .*num_partitions, .*; its limits are body_bytes_max, "
        with pytest.raises(TypeError, match=told):
            logdb.serve(server.database, http="127.0.0.1:0", nonsense=1)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"http": "127.0.0.1"}, ValueError), ({"http": "127.0.0.1:x"}, ValueError), ({"http": "127.0.0.1:65536"}, ValueError),
        ({"http": "127.0.0.1:0", "body_bytes_max": 0}, ValueError), ({"http": "127.0.0.1:0", "nonsense": 1}, TypeError),
        ({"http": "127.0.0.1:0", "topic_config": {"no.such.key": 1}}, logdb.errors.InvalidConfig),
    ],
)  # fmt: skip
def test_options_that_there_are_not(tmp_path, options, error):
    with logdb.open(tmp_path / "db") as db, pytest.raises(error):
        logdb.serve(db, **options)


def test_the_address_is_named_that_cannot_be_listened_at(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        address = server.addresses[0].removeprefix("http://")
        with pytest.raises(OSError, match=f"cannot listen at {address}: Address already in use$"):
            logdb.serve(db, http=address)


def test_many_threads_of_many_clients(server):
    """Requests on the loop and in threads, side by side; every record is acknowledged once."""
    server.call(CREATE, {"name": "t", "partitions": 4})
    batch, offsets = encode_batch([Rec(value=b"x")]), [[] for _ in range(4)]

    def produce(client):
        with wire(server.url) as line:
            for turn in range(50):
                level = ("os", "interval", "fsync")[turn % 3]
                where = f"/logdb/v1/topics/t/partitions/{client % 4}/batches?durability={level}"
                offsets[client % 4].append(
                    line.ask("POST", where, batch, {"Content-Type": "application/vnd.logdb.batches"}).json["base_offset"]
                )

    threads = [threading.Thread(target=produce, args=(client,)) for client in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sorted(each) for each in offsets] == [list(range(100))] * 4


def test_a_server_on_a_loop_of_the_application(tmp_path):
    async def main(db):
        from logdb.access.access_control import AccessControl

        server = Server(AccessControl(db._session), {"http": "127.0.0.1:0"})
        await server.open()
        reader, writer = await asyncio.open_connection(*server.addresses[0].removeprefix("http://").split(":"))
        writer.write(b"GET /health/live HTTP/1.0\r\n\r\n")
        said = await reader.read()
        writer.close()
        await server.drain()
        return said

    with logdb.open(tmp_path / "db") as db:
        assert asyncio.run(main(db)).startswith(b"HTTP/1.0 200")
