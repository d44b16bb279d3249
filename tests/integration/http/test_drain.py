"""The end of a server: what is under way is answered, what waits is answered at once, and the directory is closed cleanly."""

import asyncio
import contextlib
import json
import signal
import socket
import threading

import pytest

import logdb
from logdb.client.serving import make_server
from logdb.errors import ServerUnavailable
from support.batches import Rec, encode_batch
from support.server_process import ServerProcess, server_process
from support.serving import served
from support.waiting import until
from support.wire import Wire, wire

JOIN = {"group_id": "g", "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocols": [["range", ""]]}
JSON = {"Content-Type": "application/json"}
BATCHES = "/logdb/v1/topics/t/partitions/0/batches"
BATCH = encode_batch([Rec(value=b"x")])


def call(line, name, /, **arguments):
    return line.ask("POST", f"/logdb/v1/calls/{name}", json.dumps(arguments).encode(), JSON)


def begin(line, body):
    """A request whose body has not come yet."""
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.logdb.batches\r\nContent-Length: %d\r\n\r\n"
    line.send(head % (BATCHES.encode(), len(body)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_under_way_is_answered(tmp_path, number):
    server = ServerProcess(tmp_path / "db")
    with wire(server.url) as idle, wire(server.url) as sending, wire(server.url) as polling:
        assert call(idle, "create_topic", name="t").status == 200
        begin(sending, BATCH)
        polling.send(b"GET %s?wait_ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n" % BATCHES.encode())
        assert call(idle, "topics").status == 200, "those before have begun"
        server.process.send_signal(number)
        said = polling.read()
        assert (said.status, said.body, said.headers["connection"]) == (200, b"", "close")
        assert idle.is_closed()
        with pytest.raises(ConnectionRefusedError):
            Wire(server.url)
        sending.send(BATCH)
        said = sending.read()
        assert (said.json, said.headers["connection"]) == ({"base_offset": 0, "next_offset": 1}, "close")
    assert server.ended() == (0 if number == signal.SIGTERM else 128 + number)
    with logdb.open(tmp_path / "db") as db:
        assert db.reports == ()
        assert [record.value for record in db.log("t").read(0)] == [b"x"]


def test_what_never_ends_is_cut_off_in_time(tmp_path):
    server = ServerProcess(tmp_path / "db", "--drain-ms", "300")
    with wire(server.url) as line, wire(server.url) as other:
        begin(line, BATCH)
        assert other.ask("GET", "/health/live").status == 200
        assert server.end() == 0
        assert line.read().status == 0


def test_a_second_signal_cuts_off(tmp_path):
    server = ServerProcess(tmp_path / "db", "--drain-ms", "600000")
    with wire(server.url) as line, wire(server.url) as other:
        begin(line, BATCH)
        assert other.ask("GET", "/health/live").status == 200
        server.process.send_signal(signal.SIGTERM)
        assert other.is_closed()
        assert server.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert line.read().status == 0
    with logdb.open(tmp_path / "db") as db:
        assert db.reports == ()


def test_a_join_that_waits_is_told(tmp_path):
    with served(tmp_path / "db") as it, wire(it.url) as first, wire(it.url) as second:
        assert call(first, "join_group", **JOIN).status == 200
        second.send(b"POST /logdb/v1/calls/join_group HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        second.send(b"Content-Length: %d\r\n\r\n%s" % (len(json.dumps(JOIN)), json.dumps(JOIN).encode()))
        while json.loads(call(first, "describe_group", group_id="g").body)["state"] != "PreparingRebalance":
            pass
        ending = threading.Thread(target=it.server.close)
        ending.start()
        assert second.read().status == 102
        assert second.read().status == 503
        ending.join(10)
        assert not ending.is_alive()


def test_a_member_whose_client_went_away_while_it_joined_is_taken_out(tmp_path):
    with served(tmp_path / "db") as it, wire(it.url) as first:
        member = call(first, "join_group", **JOIN).json["member_id"]
        join_and_go_away(it, JOIN)
        joined = call(first, "join_group", **JOIN | {"member_id": member})
        assert joined.status == 200
        while len(it.database.describe_group("g").members) != 1 or it.database.describe_group("g").state != "PreparingRebalance":
            pass
        assert it.database.describe_group("g").members[0].member_id == member


def test_a_new_member_that_knows_its_id_is_taken_out_at_once(tmp_path):
    new = JOIN | {"require_member_id": True}
    with served(tmp_path / "db") as it, wire(it.url) as first:
        member = call(first, "join_group", **JOIN).json["member_id"]
        required = call(first, "join_group", **new)
        join_and_go_away(it, new | {"member_id": required.json["fields"]["member_id"]})
        until(lambda: [one.member_id for one in it.database.describe_group("g").members] == [member], "it is taken out")


def join_and_go_away(it, join):
    """Join, and close the connection while the join waits for the other member."""
    with wire(it.url) as second:
        second.send(b"POST /logdb/v1/calls/join_group HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        second.send(b"Content-Length: %d\r\n\r\n%s" % (len(json.dumps(join)), json.dumps(join).encode()))
        until(lambda: it.database.describe_group("g").state == "PreparingRebalance", "the join waits")


def test_closing_the_database_closes_the_server(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        server = logdb.serve(db, http="127.0.0.1:0")
    with pytest.raises(ServerUnavailable):
        logdb.open(server.addresses[0], timeout_ms=300).topics()
    server.close()


def test_a_server_of_a_directory_in_use_and_of_a_port_in_use(tmp_path, capfd):
    with server_process(tmp_path / "db") as server:
        for path, flags, code in ((tmp_path / "db", (), 2), (tmp_path / "other", ("--http", server.url.removeprefix("http://")), 1)):
            with pytest.raises(AssertionError, match=f"ended with {code}"):
                ServerProcess(path, *flags)
        said = capfd.readouterr().err
        assert f"process {server.process.pid}" in said
        assert f"cannot listen at {server.url.removeprefix('http://')}" in said


@pytest.mark.parametrize("step_count", range(5))
def test_a_connection_that_comes_as_the_server_ends_is_closed(tmp_path, step_count):
    """However far the event loop is with it: nobody is left who would answer."""

    async def serve_and_end(server):
        await server.open()
        host, _, port = server.addresses[0].removeprefix("http://").rpartition(":")
        client = socket.create_connection((host, int(port)), timeout=20)
        for _ in range(step_count):
            await asyncio.sleep(0)
        await server.drain()
        return client

    with logdb.open(tmp_path / "db") as db:
        server = make_server(db._session, {"http": "127.0.0.1:0"})
        with asyncio.run(serve_and_end(server)) as client, contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
