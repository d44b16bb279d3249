"""Clients that take what they can get: connections, memory, partitions, work that is not theirs to ask for."""

import contextlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import logdb.testing
from logdb.access.log import AuthorizedLog
from logdb.access.session import AuthorizedSession
from logdb.codec import compression
from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch
from support.kafka_door import kafka_door
from support.kafka_wire import Wire, fetch, frame, produce
from support.security import secure

MIB = 1 << 20
BATCH = encode_batch([Rec(b"k", b"v")])
USERS = {"mallory": "secret", "alice": "secret"}


# ---------------------------------------------------------------- connections


@pytest.fixture
def process(tmp_path):
    """A server in a process of its own, and its address."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    command = [sys.executable, "-m", "logdb.cli", "serve", str(tmp_path / "db"), "--kafka", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server, server.stdout.readline().strip()
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0


def rss_bytes(process):
    (line,) = (line for line in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_ten_thousand_half_open_connections_leave_room_for_others(process):
    """Four addresses, half of whose connections begin a frame, take a quarter of all slots each at most."""
    server, address = process
    host, port = address.rsplit(":", 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 12_000:
        pytest.skip(f"{hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 12_000), hard))
    before_bytes, opened = rss_bytes(server), []
    try:
        for n in range(10_000):
            opened.append(socket.create_connection((host, int(port)), 30, (f"127.0.0.{2 + n % 4}", 0)))
            if n % 2:
                with contextlib.suppress(OSError):
                    opened[-1].sendall(b"\x00\x00\x10\x00\x00\x00")
            if not n % 1_000:
                began_s = time.monotonic()
                with Wire(address) as wire:
                    assert produce(wire, BATCH)["error_code"] == Code.NONE
                assert time.monotonic() - began_s < 5
        assert rss_bytes(server) - before_bytes < 200 * MIB
    finally:
        for one in opened:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with Wire(address) as wire:
        assert fetch(wire)["high_watermark"] == 10


def test_silent_connections_of_one_address_leave_room_for_others(tmp_path):
    with kafka_door(tmp_path / "db", connections_max=40, header_timeout_ms=60_000) as served, contextlib.ExitStack() as stack:
        served.db.create_topic("t")
        host, port = served.address.rsplit(":", 1)
        silent = [stack.enter_context(socket.create_connection((host, int(port)), 20, ("127.0.0.2", 0))) for _ in range(80)]
        with Wire(served.address) as wire:
            assert produce(wire, BATCH)["error_code"] == Code.NONE
        for one in silent[10:]:  # a quarter of all is kept
            with contextlib.suppress(ConnectionResetError):
                assert not one.recv(1)


# ---------------------------------------------------------------- memory, partitions, work


@pytest.fixture
def guarded(tmp_path):
    """Mallory may write to the topic ``mine`` and create topics; alice may do all with ``t``."""
    with kafka_door(tmp_path / "db", memory_bytes_max=8 * MIB) as served:
        for topic in ("t", "mine"):
            served.db.create_topic(topic, config={"max.message.bytes": 4 * MIB})
        acls = ["Allow alice@* All Topic t", "Allow mallory@* All Topic mine", "Allow mallory@* Create Topic new"]
        secure(served.db.path, *acls, users=USERS)
        yield served


@contextlib.contextmanager
def authenticated(served, user):
    with Wire(served.address) as wire:
        wire.ask("SaslHandshake", 1, mechanism="PLAIN")
        assert wire.ask("SaslAuthenticate", 1, auth_bytes=f"\0{user}\0{USERS[user]}".encode())["error_code"] == Code.NONE
        yield wire


def test_a_principal_that_takes_all_memory_leaves_some_for_others(guarded):
    """Frames that are not whole have their memory for as long as they come."""
    data = [{"name": "mine", "partition_data": [{"index": 0, "records": encode_batch([Rec(None, bytes(3 * MIB))])}]}]
    request = frame("Produce", 9, 1, acks=-1, timeout_ms=1, topic_data=data)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            wire = stack.enter_context(authenticated(guarded, "mallory"))
            wire.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                wire.socket.send(request[:-1])
        alice = stack.enter_context(authenticated(guarded, "alice"))
        for _ in range(2):
            assert produce(alice, encode_batch([Rec(None, bytes(MIB))]))["error_code"] == Code.NONE


def test_a_hundred_thousand_partitions_are_not_made(guarded):
    asked = {"name": "new", "num_partitions": 100_000, "replication_factor": 1, "assignments": [], "configs": []}
    with authenticated(guarded, "mallory") as wire:
        (made,) = wire.ask("CreateTopics", 5, topics=[asked], timeout_ms=1)["topics"]
        assert made["error_code"] == Code.INVALID_PARTITIONS
        grown = wire.ask("CreatePartitions", 3, topics=[{"name": "mine", "count": 100_000, "assignments": None}], timeout_ms=1)["results"]
        assert [one["error_code"] for one in grown] == [Code.INVALID_PARTITIONS]
    assert [topic.partition_count for topic in guarded.db.topics()] == [1, 1]


def test_who_asks_for_very_many_partitions_holds_up_no_other(guarded):
    many = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 2**31 - 1, "current_leader_epoch": -1} for n in range(8_000)]
    with authenticated(guarded, "mallory") as wire, authenticated(guarded, "alice") as alice:
        first = wire.send(
            "Fetch", 11, max_wait_ms=0, min_bytes=2**31 - 1, max_bytes=2**31 - 1, topics=[{"topic": "mine", "partitions": many}]
        )
        longest_s, answered = 0.0, False
        wire.socket.setblocking(False)
        while not answered:
            began_s = time.monotonic()
            assert produce(alice, BATCH)["error_code"] == Code.NONE
            longest_s = max(longest_s, time.monotonic() - began_s)
            with contextlib.suppress(BlockingIOError):
                answered = bool(wire.socket.recv(4, socket.MSG_PEEK))
        wire.socket.settimeout(20)
        (found,) = wire.answer("Fetch", 11, first)["responses"]
        assert [one["error_code"] for one in found["partitions"]] == [Code.NONE] + [Code.UNKNOWN_TOPIC_OR_PARTITION] * 7_999
    assert longest_s < 5


# ---------------------------------------------------------------- one thing very often


def test_a_partition_that_is_named_twice_is_not_looked_up(guarded, monkeypatch):
    times: list[int] = []
    monkeypatch.setattr(AuthorizedLog, "record_since", lambda self, timestamp_ms: times.append(timestamp_ms))
    twice = [{"partition_index": 0, "timestamp": 5 + n} for n in range(2)]
    topics = [{"name": "t", "partitions": twice}, {"name": "t", "partitions": twice[1:]}]
    with authenticated(guarded, "alice") as wire:
        answer = wire.ask("ListOffsets", 6, replica_id=-1, topics=topics)
        assert {one["error_code"] for topic in answer["topics"] for one in topic["partitions"]} == {Code.INVALID_REQUEST}
        assert not times


def test_a_lookup_ends_with_its_client(tmp_path, monkeypatch):
    """Its session is given up: between two partitions the thread sees that."""
    looked_up, gone, seen = threading.Event(), threading.Event(), []

    def record_since(self, timestamp_ms):
        seen.append(timestamp_ms)
        looked_up.set()
        assert gone.wait(20)

    def given_up(self, give_up=AuthorizedSession.give_up):
        give_up(self)
        gone.set()

    monkeypatch.setattr(AuthorizedLog, "record_since", record_since)
    monkeypatch.setattr(AuthorizedSession, "give_up", given_up)
    with kafka_door(tmp_path / "db") as served:
        served.db.create_topic("t", partitions=100)
        asked = [{"partition_index": n, "timestamp": 5} for n in range(100)]
        with Wire(served.address) as wire:
            wire.send("ListOffsets", 6, replica_id=-1, topics=[{"name": "t", "partitions": asked}])
            assert looked_up.wait(20)
    assert seen == [5]  # the threads have ended with the server


def test_what_is_named_very_often_is_done_once(tmp_path):
    with kafka_door(tmp_path / "db") as served, Wire(served.address) as wire:
        for topic in ("t", "u"):
            served.db.create_topic(topic)
        deleted = wire.ask("DeleteTopics", 4, topic_names=["t"] * 50_000 + ["u", "none"])["responses"]
        codes = {"t": Code.INVALID_REQUEST, "u": Code.NONE, "none": Code.UNKNOWN_TOPIC_OR_PARTITION}
        assert {one["name"]: one["error_code"] for one in deleted} == codes
        assert len(deleted) == len(codes)
        assert [topic.name for topic in served.db.topics()] == ["t"]
        (left,) = wire.ask("LeaveGroup", 3, group_id="g", members=[{"member_id": "m"}] * 50_000)["members"]
        assert left["error_code"] == Code.UNKNOWN_MEMBER_ID
        (dead,) = wire.ask("DeleteGroups", 1, groups_names=["g"] * 50_000)["results"]
        assert dead["error_code"] == Code.GROUP_ID_NOT_FOUND
        (before,) = wire.ask("DeleteRecords", 1, topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}] * 50_000}])[
            "topics"
        ]
        assert [one["error_code"] for one in before["partitions"]] == [Code.NONE]


def test_nothing_is_decompressed_for_a_client_that_may_not_write(guarded, monkeypatch):
    calls, pieces = [], compression.pieces

    def seen(*args):
        calls.append(args[0])
        return pieces(*args)

    monkeypatch.setattr(compression, "pieces", seen)
    records = encode_batch([Rec(b"k", bytes(10_000))] * 10, codec=4, compress=lambda data: compression.compress(4, data))
    with authenticated(guarded, "mallory") as wire:
        refused = produce(wire, records, topic="t", version=9)
        assert (refused["error_code"], calls) == (Code.TOPIC_AUTHORIZATION_FAILED, [])
        assert produce(wire, encode_batch([Rec(b"k", b"v")], attributes=8), topic="t")["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
        assert produce(wire, BATCH + BATCH, topic="t")["error_code"] == Code.TOPIC_AUTHORIZATION_FAILED
        assert produce(wire, records, topic="mine")["error_code"] == Code.NONE
    assert calls == [4]
