"""What a client has of a server's memory and threads is one share, whichever of its doors it comes to."""

import http.client
import time

import pytest

import logdb
from logdb.client.serving import make_server
from support.batches import Rec, encode_batch
from support.kafka_wire import Wire, frame

MIB = 1 << 20
DOORS = {"kafka": "127.0.0.1:0", "http": "127.0.0.1:0"}


@pytest.fixture
def server(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"max.message.bytes": 4 * MIB})
        with make_server(db._session, DOORS, memory_bytes_max=4 * MIB).start() as server:
            yield server


def test_all_doors_of_a_server_share(server):
    kafka, http = server._doors
    for name in ("requests", "memory", "threads", "changing", "appending"):
        assert getattr(kafka, name) is getattr(http, name), name
    assert http.instances._memory is kafka.memory


def test_a_client_of_two_doors_has_one_share_of_the_memory(server):
    kafka, _ = server._doors
    kafka.memory._wait_s = 0.2
    address, url = server.addresses
    batch = encode_batch([Rec(None, bytes(MIB))])

    def posted():
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        connection.request("POST", "/logdb/v1/topics/t/partitions/0/batches", batch, {"Content-Type": "application/vnd.logdb.batches"})
        status = connection.getresponse().status
        connection.close()
        return status

    with Wire(address) as wire:
        data = [{"name": "t", "partition_data": [{"index": 0, "records": encode_batch([Rec(None, bytes(2 * MIB - 1000))])}]}]
        request = frame("Produce", 9, 1, acks=-1, timeout_ms=1, topic_data=data)
        wire.socket.sendall(request[: MIB + 200_000])  # the frame has its memory, and is not whole
        until_s = time.monotonic() + 8
        while kafka.memory.taken < 3 * MIB // 2:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        assert posted() == 503
        wire.socket.sendall(request[MIB + 200_000 :])
        wire.receive()
        assert posted() == 200
