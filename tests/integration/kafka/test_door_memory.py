"""Memory that clients of the Kafka door can make it hold: by requests that wait, and by answers that they do not read."""

import contextlib
import gc
import socket
import struct
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from logdb.errors import LogdbError
from logdb_kafka_api import frames
from logdb_kafka_api.door import KafkaDoor
from logdb_kafka_api.handlers import fetch as fetching
from logdb_kafka_api.handlers import produce as handler
from support.batches import Rec, encode_batch
from support.kafka_door import kafka_door
from support.kafka_wire import Wire, frame, produce
from support.waiting import until

LONG = "t" * 249


@pytest.fixture
def served(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        served.db.create_topic(LONG)
        yield served


def door_of():
    (found,) = (one for one in gc.get_objects() if isinstance(one, KafkaDoor) and not one.draining)
    return found


@pytest.fixture
def door(served):
    return door_of()


@pytest.fixture
def silent(served):
    """A client that reads nothing."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = served.address.split(":")
        client.connect((host, int(port)))
        yield client


def produce_request(*parts):
    data = [{"index": 7, "records": part} for part in parts]
    return frame("Produce", 9, 1, acks=-1, timeout_ms=1, topic_data=[{"name": LONG, "partition_data": data}])


def data_of(topic, records):
    return [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]


def test_a_request_is_let_go_of_while_its_answer_is_sent(door, silent):
    batch = encode_batch([Rec(None, b"v")])
    request, large_bytes = produce_request(bytes(30 << 20), *[batch] * 20_000), 30 << 20
    tracemalloc.start()
    try:
        silent.sendall(request)
        until(lambda: any(one._writable is not None for one in door.connections))
        until(lambda: tracemalloc.get_traced_memory()[0] < large_bytes)
    finally:
        tracemalloc.stop()


def test_the_memory_of_an_answer_that_is_not_read_is_counted(door, silent):
    silent.sendall(produce_request(*[encode_batch([Rec(None, b"v")])] * 20_000))
    until(lambda: any(one._writable is not None for one in door.connections))
    assert door.memory.taken > 5_000_000
    silent.close()
    until(lambda: not door.memory.taken)


def test_requests_wait_for_their_turn_in_the_buffers_of_the_client(door, silent):
    poll = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    silent.sendall(frame("Fetch", 12, 1, max_wait_ms=60_000, min_bytes=1, topics=[{"topic": LONG, "partitions": [poll]}]))
    silent.settimeout(0.3)
    with pytest.raises(TimeoutError):
        silent.sendall((struct.pack(">ihh", 40_000, 18, 3) + bytes(39_996)) * 500)
    (connection,) = door.connections
    until(lambda: connection._turns.queued_bytes >= 40_000)
    assert connection._turns.queued_bytes < 400_000  # one read, and what was there


LARGE = encode_batch([Rec(None, bytes(250_000))])


def connected(served, stack):
    return stack.enter_context(Wire(served.address))


def test_frames_that_are_announced_and_not_sent_take_no_memory(tmp_path):
    with kafka_door(tmp_path / "db", memory_bytes_max=4 << 20) as served, contextlib.ExitStack() as stack:
        served.db.create_topic("t")
        for _ in range(20):
            connected(served, stack).socket.sendall(struct.pack(">ihh", 2 << 20, 0, 9) + bytes(10))
        honest = connected(served, stack)
        honest.socket.settimeout(8)
        assert produce(honest, LARGE)["error_code"] == 0


def test_of_frames_that_wait_for_each_others_memory_one_is_cut(tmp_path):
    with kafka_door(tmp_path / "db", memory_bytes_max=8 << 20) as served, contextlib.ExitStack() as stack:
        served.db.create_topic("t", config={"max.message.bytes": 4 << 20})
        door = door_of()
        door.memory._wait_s = 0.3
        wires = [connected(served, stack) for _ in range(3)]
        request = frame("Produce", 9, 1, acks=-1, timeout_ms=1, topic_data=data_of("t", encode_batch([Rec(None, bytes(3_900_000))])))
        with ThreadPoolExecutor(3) as threads:
            ends = list(threads.map(lambda wire: ended(wire, request), wires))
        assert "answered" in ends and served.db.log("t").end_offset == ends.count("answered")
        for wire in wires:
            wire.socket.close()
        until(lambda: not door.memory.taken)


def ended(wire, request):
    """What becomes of a request that comes in pieces."""
    try:
        for at in range(0, len(request), 200_000):
            wire.socket.sendall(request[at : at + 200_000])
            time.sleep(0.01)
        wire.receive()
    except (EOFError, ConnectionError):
        return "I was cut"
    return "answered"


@pytest.mark.parametrize(("count", "waits"), [(1, False), (64, False), (65, True)])
def test_a_request_for_very_many_partitions_is_not_answered_on_the_loop(count, waits):
    fast = SimpleNamespace(is_free=lambda *_: True, access=SimpleNamespace(appends_at_once=lambda *_: True), append_size=len)
    data = [{"index": n, "records": None, "expected_offset": -1, "mirrored": False} for n in range(count)]
    values = {"transactional_id": None, "durability": "", "topic_data": [{"name": "t", "partition_data": data}]}
    assert (handler.at_once(fast, None, handler.appends_of(values, 9)) is None) == waits


def asked(**values):
    return {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1, "current_leader_epoch": -1} | values


def committed(**values):
    return {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""} | values


REFUSED = {
    "Fetch": (
        11,
        {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "unknown", "partitions": [asked(partition=n) for n in range(100)]}]},
    ),
    "OffsetCommit": (
        8,
        {
            "group_id": "g",
            "member_id": "unknown",
            "generation_id_or_member_epoch": 3,
            "topics": [{"name": LONG, "partitions": [committed()]}],
        },
    ),
    "Heartbeat": (3, {"group_id": "g", "member_id": "unknown"}),
    "EndTxn": (3, {"transactional_id": "unknown", "producer_id": 5}),
}


@pytest.mark.parametrize("api", REFUSED)
def test_an_error_that_was_answered_is_free_without_the_garbage_collector(served, api):
    """Its traceback holds the frames of calls, which hold the request."""
    version, values = REFUSED[api]
    with connected(served, contextlib.ExitStack()) as wire:
        gc.collect()
        before = set(map(id, errors()))
        gc.disable()
        try:
            for _ in range(3):
                wire.ask(api, version, **values)
            until(lambda: all(id(one) in before for one in errors()), seconds=5)
        finally:
            gc.enable()


def errors():
    return [one for one in gc.get_objects() if isinstance(one, LogdbError)]


def test_a_long_poll_that_names_a_partition_very_often_holds_it_once(served, door):
    many = [asked(partition_max_bytes=1 << 20)] * 20_000
    with connected(served, contextlib.ExitStack()) as wire:
        wire.send("Fetch", 4, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=[{"topic": LONG, "partitions": many}])
        until(lambda: door.waits._bells)
        assert sum(isinstance(one, fetching.Read) for one in gc.get_objects()) == 1
        assert door.memory.taken < 2 << 20  # the frame's
        until(lambda: sum(isinstance(one, dict) and "fetch_offset" in one for one in gc.get_objects()) < 1_000)


def test_the_values_of_a_request_with_very_many_elements_are_counted(served, door, monkeypatch):
    taken, decode = [], frames.read_request

    def seen(*args):
        try:
            return decode(*args)
        finally:
            taken.append(door.memory.taken)

    monkeypatch.setattr(frames, "read_request", seen)
    with connected(served, contextlib.ExitStack()) as wire:
        wire.ask("Metadata", 1, topics=[{"name": "x"}] * 1_000)
        wire.ask("Metadata", 1, topics=[{"name": "x"}] * 20_000)
    assert taken[:2] == [0, 0] and taken[-1] >= 32 * 3 * 20_000
    until(lambda: not door.memory.taken)
