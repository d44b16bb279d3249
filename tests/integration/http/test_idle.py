"""A thousand clients that wait for records, beside one that writes them: no thread for any, and little memory."""

import asyncio
import json
import re
import threading

import pytest

from support.batches import Rec, encode_batch
from support.server_process import server_process
from support.wire import wire

COUNT = 1_000
JSON = {"Content-Type": "application/json"}
BATCH = encode_batch([Rec(value=b"x")])
BATCHES = {"Content-Type": "application/vnd.logdb.batches"}


async def ask(reader, writer, path, begun):
    """Ask, again where so many at once are too many; returns the head of the answer."""
    while True:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        begun()
        head = await reader.readuntil(b"\r\n\r\n")
        if b"503" not in head.partition(b"\r\n")[0]:
            return head
        await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))


async def long_poll(address, topic, begun):
    """Wait for the first record; returns the answer."""
    reader, writer = await asyncio.open_connection(*address)
    head = await ask(reader, writer, f"/logdb/v1/topics/{topic}/partitions/0/batches?offset=0&wait_ms=60000&max_bytes=4096", begun)
    body = await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
    writer.close()
    return head + body


async def events(address, topic, begun):
    """Follow the partition up to its first record; returns the answer so far."""
    reader, writer = await asyncio.open_connection(*address)
    head = await ask(reader, writer, f"/logdb/v1/topics/{topic}/partitions/0/events?offset=0", lambda: None)
    head += await reader.readuntil(b":\n\n")
    begun()
    body = await reader.readuntil(b'"offset":0,')
    writer.close()
    return head + body


async def clients(server, wait, topic, begun):
    host, port = server.url.removeprefix("http://").split(":")
    return await asyncio.gather(*(wait((host, int(port)), topic, begun) for _ in range(COUNT)))


@pytest.mark.parametrize(("wait", "told"), [(long_poll, b"Logdb-Next-Offset: 1\r\n"), (events, b"id: 0.0\n")], ids=["polls", "events"])
def test_idle_clients_beside_a_live_producer(tmp_path, record_property, wait, told):
    with server_process(tmp_path / "db") as server:
        with wire(server.url) as line:
            for name in ("idle", "live"):
                assert line.ask("POST", "/logdb/v1/calls/create_topic", json.dumps({"name": name}).encode(), JSON).status == 200
        before, begun, answers = server.rss_bytes, threading.Semaphore(0), []
        waiting = threading.Thread(target=lambda: answers.extend(asyncio.run(clients(server, wait, "idle", begun.release))))
        waiting.start()
        for _ in range(COUNT):
            begun.acquire()
        with wire(server.url) as line:  # only now: on a busy machine it would be idle for too long, and closed
            while connection_count(server) < COUNT:
                pass
            during, threads = server.rss_bytes, thread_count(server)
            for offset in range(500):
                said = append(line, "live")
                assert said.status == 200, said
                assert said.json == {"base_offset": offset, "next_offset": offset + 1}
            assert waiting.is_alive()
            assert append(line, "idle").status == 200
            waiting.join()
        assert len(answers) == COUNT
        assert all(answer.startswith(b"HTTP/1.1 200") and told in answer for answer in answers)
        record_property("told", f"{COUNT} {wait.__name__}: server {before >> 20} MiB before, {during >> 20} MiB while they wait")
        assert during - before < 64 << 20
        assert threads < 50


def append(line, topic):
    """Append, also while so many polls arrive that there are too many requests."""
    while (said := line.ask("POST", f"/logdb/v1/topics/{topic}/partitions/0/batches", BATCH, BATCHES)).status == 503:
        pass
    return said


def connection_count(server):
    """How many connections the server has taken."""
    port = int(server.url.rpartition(":")[2])
    with open(f"/proc/{server.process.pid}/net/tcp", encoding="ascii") as file:
        return sum(1 for row in file if row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "01") - 1


def thread_count(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        return int(re.search(r"Threads:\s+(\d+)", file.read())[1])


def test_many_partitions_in_one_request(tmp_path):
    with server_process(tmp_path / "db") as server, wire(server.url) as line, wire(server.url) as other:
        assert line.ask("POST", "/logdb/v1/calls/create_topic", b'{"name":"t","partitions":100}', JSON).status == 200
        wanted = {"positions": [[{"topic": "t", "partition": at}, 0] for at in range(100)], "timeout_ms": 60_000}
        line.send(b"POST /logdb/v1/partitions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        body = json.dumps(wanted).encode()
        line.send(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert other.ask("POST", "/logdb/v1/topics/t/partitions/77/batches", BATCH, BATCHES).status == 200
        assert [at for at, state in enumerate(line.read().json) if state["end_offset"]] == [77]
