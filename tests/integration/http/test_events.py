"""Server-sent events: records of a partition and of a topic, and what becomes of topics."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import threading
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

import logdb
from support.server_process import server_process
from support.serving import served
from support.tools import needs


class Event(NamedTuple):
    id: str | None
    kind: str
    data: dict


class Client:
    """What a browser's EventSource does, by hand."""

    def __init__(self, url, path, **headers):
        place = urlsplit(url)
        self.connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
        wanted = {"Accept": "text/event-stream"} | {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("GET", path, headers=wanted)
        self.response = self.connection.getresponse()
        self.last_id = headers.get("Last_Event_ID")

    def __enter__(self):
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"] == "text/event-stream"
        assert self.response.headers["Cache-Control"] == "no-store"
        return self

    def __exit__(self, *_exception):
        self.connection.close()
        self.response.close()

    def block(self):
        """The lines up to the next empty one; None at the end."""
        lines = []
        while line := self.response.readline().decode():
            if line == "\n":
                return lines
            lines.append(line.rstrip("\n"))
        return None

    def next(self):
        """The next event; None at the end."""
        while (lines := self.block()) is not None:
            fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
            if fields:
                self.last_id = fields.get("id", self.last_id)
                return Event(fields.get("id"), fields.get("event", "message"), json.loads(fields["data"]))
        return None

    def take(self, count):
        return [self.next() for _ in range(count)]


@pytest.fixture
def s(tmp_path):
    with served(tmp_path / "db") as s:
        s.database.create_topic("t", partitions=3)
        yield s


ONE = "/logdb/v1/topics/t/partitions/0/events"
ALL = "/logdb/v1/topics/t/events"


def test_records_of_a_partition(s):
    log = s.database.log("t", 0)
    log.append(b"\x00\xff", b"key", headers=[("h", b"1"), ("none", None)], timestamp_ms=17)
    with Client(s.url, f"{ONE}?offset=0") as client:
        assert client.next() == Event(
            "0.0",
            "message",
            {
                "topic": "t",
                "partition": 0,
                "offset": 0,
                "timestamp_ms": 17,
                "key": "a2V5",
                "value": "AP8=",
                "headers": [{"name": "h", "value": "MQ=="}, {"name": "none", "value": None}],
            },
        )
        log.append(None)
        log.flush()
        event = client.next()
        assert (event.id, event.data["value"], event.data["key"]) == ("1.0", None, None)


def test_times_that_no_calendar_has(s):
    times = [-1, -2, 0, -62_135_596_800_001, 253_402_300_800_000, -(2**63), 2**63 - 1]
    s.database.alter_topic("t", config={"message.timestamp.after.max.ms": 2**63 - 1})
    s.database.log("t", 0).append_many([b"v"] * len(times), timestamps_ms=times)
    for path in (f"{ONE}?offset=0", f"{ALL}?offset=earliest"):
        with Client(s.url, path) as client:
            assert [event.data["timestamp_ms"] for event in client.take(len(times))] == times


@pytest.mark.parametrize(
    ("form", "value", "told"),
    [
        ("binary", b"{}", "e30="),
        ("string", "é\n\r\u2028".encode(), "é\n\r\u2028"),
        ("json", b'{"a":\r\n [1, 2.50,\n"x\\n"]}', {"a": [1, 2.5, "x\n"]}),
        ("json", b"12345678901234567890123", 12345678901234567890123),
        ("json", None, None),
    ],
)
def test_formats(s, form, value, told):
    s.database.log("t", 0).append_many([value, value])
    with Client(s.url, f"{ONE}?offset=earliest&format={form}") as client:
        assert [event.data["value"] for event in client.take(2)] == [told, told]


def test_what_is_not_of_the_format_ends_it_after_what_comes_before(s):
    s.database.log("t", 0).append_many([b"1", b"{", b"2"])
    with Client(s.url, f"{ONE}?offset=0&format=json") as client:
        assert client.next().data["value"] == 1
        event = client.next()
        assert event.kind == "error" and event.id is None
        assert event.data["error"] == "SerializationError" and "t-0 at offset 1" in event.data["message"]
        assert event.data["fields"] == {"topic": "t", "partition": 0, "offset": 1}
        assert client.next() is None
    with Client(s.url, f"{ONE}?format=json", Last_Event_ID="1") as client:
        assert client.next().data["value"] == 2


def test_keys_may_have_another_format(s):
    s.database.log("t", 0).append(b'{"n": 1}', b"user-7")
    with Client(s.url, f"{ONE}?offset=0&format=json&key_format=string") as client:
        data = client.next().data
        assert (data["key"], data["value"]) == ("user-7", {"n": 1})


def test_from_now_on(s):
    s.database.log("t", 0).append_many([b"old"] * 5)
    with Client(s.url, ONE) as client:
        assert client.block() == [":"], "it is open"
        s.database.log("t", 0).append_many([b"new"])
        assert client.next().id == "5.0"


@pytest.mark.parametrize("path", [ONE, ALL])
def test_resuming_neither_loses_nor_repeats(s, path):
    count, partitions = 3000, (0,) if path == ONE else (0, 1, 2)
    writers = [threading.Thread(target=write, args=(s.database.log("t", partition), count)) for partition in partitions]
    for writer in writers:
        writer.start()
    seen, headers, connections = {partition: [] for partition in partitions}, {}, 0
    while sum(map(len, seen.values())) < count * len(partitions):
        with Client(s.url, f"{path}?offset=earliest&format=string", **headers) as client:
            connections += 1
            left = count * len(partitions) - sum(map(len, seen.values()))
            for event in client.take(min(left, 37 * connections)):
                assert event.kind == "message", event
                seen[event.data["partition"]].append((event.data["offset"], event.data["value"]))
            headers = {"Last_Event_ID": client.last_id}
    for writer in writers:
        writer.join()
    assert connections > 5
    assert seen == {partition: [(offset, str(offset)) for offset in range(count)] for partition in partitions}


def write(log, count):
    for offset in range(0, count, 10):
        log.append_many([b"%d" % number for number in range(offset, offset + 10)])


def test_transactions(s):
    with contextlib.suppress(ZeroDivisionError), s.database.transaction("x") as transaction:
        transaction.send("t", b"aborted", partition=0)
        transaction.flush()
        raise ZeroDivisionError
    with s.database.transaction("x") as transaction:
        transaction.send("t", b"committed", partition=0)
    with Client(s.url, f"{ONE}?offset=0&isolation_level=read_committed&format=string") as client:
        assert client.next().data["value"] == "committed"
    with Client(s.url, f"{ONE}?offset=0&format=string") as client:
        assert [event.data["value"] for event in client.take(2)] == ["aborted", "committed"]


@pytest.mark.parametrize("path", [ONE, ALL])
def test_a_stream_that_does_not_follow_ends_behind_the_last_record(s, path):
    """Also where the log ends with records that are left out: an aborted one and its marker."""
    s.database.log("t", 0).append_many([b"x" * 1000] * 200)
    with contextlib.suppress(ZeroDivisionError), s.database.transaction("x") as transaction:
        transaction.send("t", b"aborted", partition=0)
        transaction.flush()
        raise ZeroDivisionError
    asked = "follow=false&isolation_level=read_committed"
    with Client(s.url, f"{path}?offset=earliest&{asked}") as client:
        assert [event.data["offset"] for event in client.take(200)] == list(range(200))
        assert client.next() is None
    with Client(s.url, f"{path}?offset=latest&{asked}") as client:
        assert client.next() is None


def test_partitions_that_are_added_are_told_from_their_begin(s):
    with Client(s.url, ALL) as client:
        client.block()
        s.database.alter_topic("t", partitions=4)
        s.database.log("t", 3).append_many([b"new"])
        s.database.log("t", 0).append_many([b"wakes"])
        assert {event.data["partition"]: event.data["offset"] for event in client.take(2)} == {0: 0, 3: 0}
        assert client.last_id.count("-") == 3


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/logdb/v1/topics/nosuch/events", {}, 404, 40401),
        ("/logdb/v1/topics/nosuch/partitions/0/events", {}, 404, 40401),
        ("/logdb/v1/topics/t/partitions/3/events", {}, 404, 40402),
        ("/logdb/v1/topics/t/partitions/x/events", {}, 422, 422),
        (f"{ONE}?offset=1", {}, 416, 41601),
        (f"{ONE}?offset=-1", {}, 422, 422),
        (f"{ONE}?offset=99999999999999999999", {}, 422, 422),
        (f"{ALL}?offset=0", {}, 422, 422),
        (f"{ALL}?follow=perhaps", {}, 422, 422),
        (f"{ONE}?format=xml", {}, 422, 422),
        (f"{ONE}?isolation_level=none", {}, 422, 422),
        (ONE, {"Last_Event_ID": "x"}, 422, 422),
        (ONE, {"Last_Event_ID": "1-2"}, 422, 422),
        (ONE, {"Last_Event_ID": "5"}, 416, 41601),
        (ALL, {"Last_Event_ID": "0-0-0-0"}, 422, 422),
        (ALL, {"Last_Event_ID": "0-1"}, 416, 41601),
    ],
)
def test_what_cannot_be_told(s, path, headers, status, code):
    client = Client(s.url, path, **headers)
    assert client.response.status == status
    assert json.loads(client.response.read())["error_code"] == code
    client.connection.close()


def test_too_many_partitions_to_be_followed_together(s):
    s.database.create_topic("wide", partitions=257)
    status, body = s.call("/logdb/v1/topics/wide/events")
    assert status == 422 and "at most 256" in body["message"]


def test_a_topic_that_is_deleted_ends_it(s):
    with Client(s.url, ALL) as client:
        client.block()
        s.database.delete_topic("t")
        event = client.next()
        assert (event.kind, event.data["error_code"]) == ("error", 40401)
        assert client.next() is None


def test_keep_alive(s, monkeypatch):
    monkeypatch.setattr("logdb_http_api.door.sse.KEEP_ALIVE_MS", 1)
    for path in (ONE, ALL, "/logdb/v1/watch"):
        with Client(s.url, path) as client:
            assert [client.block() for _ in range(5)] == [[":"]] * 5


def test_draining_ends_it(tmp_path):
    with served(tmp_path / "db") as s:
        s.database.create_topic("t", partitions=3)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Client(s.url, path)) for path in (ONE, ALL, "/logdb/v1/watch")]
            for client in clients:
                client.block()
            closing = threading.Thread(target=s.server.close)
            closing.start()
            for client in clients:
                assert client.next() is None
            closing.join(60)
            assert not closing.is_alive()


def test_no_thread_is_held_while_idle(s):
    """More streams than the door has threads, and all are told."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(s.url, (ONE, ALL)[number % 2])) for number in range(100)]
        watchers = [stack.enter_context(Client(s.url, "/logdb/v1/watch")) for _ in range(50)]
        for client in (*clients, *watchers):
            client.block()
        s.database.log("t", 0).append_many([b"v"])
        s.database.create_topic("u")
        assert {client.next().data["offset"] for client in clients} == {0}
        assert {client.next().kind for client in watchers} == {"topic_created"}


def test_a_client_that_does_not_read_is_let_go_of_and_holds_little(tmp_path):
    with served(tmp_path / "db", write_timeout_ms=200) as s:
        s.database.create_topic("t")
        s.database.log("t").append_many([b"x" * 10_000] * 5_000)
        place = urlsplit(s.url)
        door, *_ = s.server._doors
        with socket.create_connection((place.hostname, place.port), timeout=30) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /logdb/v1/topics/t/partitions/0/events?offset=0 HTTP/1.1\r\nHost: x\r\n\r\n")
            most = 0
            while not door._connections.open:
                pass
            while door._connections.open:
                most = max(most, door.memory.taken)
            assert 0 < most <= 128 << 10
        with Client(s.url, f"{ONE}?offset=4999") as client:
            assert client.next().id == "4999.0"


def test_events_that_there_is_no_memory_for_are_not_kept(tmp_path, record_property):
    count, size_bytes = 150, 1_000_000
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"max.message.bytes": 2 * size_bytes})
        db.log("t").append_many([bytes(size_bytes)] * 8)
    with server_process(tmp_path / "db", "--memory-bytes-max", str(16 << 20)) as server, contextlib.ExitStack() as closing:
        place, before = urlsplit(server.url), server.rss_bytes
        slow = [closing.enter_context(socket.socket()) for _ in range(count)]
        for each in slow:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect((place.hostname, place.port))
            each.sendall(b"GET /logdb/v1/topics/t/partitions/0/events?offset=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [each.recv(1) for each in slow] == [b"H"] * count  # an event, which they do not read, or that there is no room
        record_property("told", f"{count} readers of large events: {before >> 20} MiB before, {server.rss_bytes_max >> 20} MiB at most")
        assert server.rss_bytes_max < before + count * size_bytes


# ---------------------------------------------------------------- topics


def test_what_becomes_of_topics(s):
    with Client(s.url, "/logdb/v1/watch") as client:
        client.block()
        s.database.create_topic("u", partitions=2, config={"retention.ms": 5})
        event = client.next()
        assert event.kind == "topic_created"
        topic_id, config = s.database.describe_topic("u").topic_id, dict(s.database.describe_topic("u").config)
        assert config["retention.ms"] == 5
        wanted = {"name": "u", "topic_id": topic_id, "partition_count": 2, "config": config, "internal": False}
        assert event.data == wanted
        s.database.alter_topic("u", partitions=3, config={"retention.ms": 6})
        s.database.delete_topic("u")
        assert [event.kind for event in client.take(3)] == ["partitions_added", "topic_altered", "topic_deleted"]


def test_what_became_of_topics_while_nobody_listened(s):
    with Client(s.url, "/logdb/v1/watch") as client:
        client.block()
        s.database.create_topic("first")
        last = client.next().id
    for name in "abc":
        s.database.create_topic(name)
    seen = []
    while len(seen) < 3:
        with Client(s.url, "/logdb/v1/watch", Last_Event_ID=last) as client:
            seen.append(client.next().data["name"])
            last = client.last_id
    assert seen == ["a", "b", "c"]
    with Client(s.url, "/logdb/v1/watch", Last_Event_ID="of-another-run") as client:
        assert client.next().kind == "reset"
        s.database.create_topic("d")
        assert client.next().data["name"] == "d"


def test_watching_by_long_poll(s):
    status, begin = s.call("/logdb/v1/watch")
    assert status == 200 and begin["events"] == [] and begin["complete"]
    s.database.create_topic("a")
    s.database.create_topic("b")
    status, first = s.call(f"/logdb/v1/watch?position={begin['position']}&timeout_ms=60000&count_max=1")
    assert [event["topic"]["name"] for event in first["events"]] == ["a"]
    status, second = s.call(f"/logdb/v1/watch?position={first['position']}&timeout_ms=60000")
    assert [event["topic"]["name"] for event in second["events"]] == ["b"]
    status, none = s.call(f"/logdb/v1/watch?position={second['position']}&timeout_ms=1")
    assert status == 200 and none == {"events": [], "position": second["position"], "complete": True}
    assert not s.call("/logdb/v1/watch?position=unknown")[1]["complete"]
    assert s.call("/logdb/v1/watch?count_max=0")[0] == 422


# ---------------------------------------------------------------- curl


@needs("curl")
def test_curl_resumes(s):
    log = s.database.log("t", 0)
    log.append_many([b"%d" % number for number in range(20)])

    def curl(*options):
        command = ["curl", "-sN", "--max-time", "60", *options, f"{s.url}{ONE}?offset=0&format=json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                for line in child.stdout:
                    if line.startswith("id: "):
                        yield int(line.removeprefix("id: ").partition(".")[0])
            finally:
                child.send_signal(signal.SIGKILL)

    first = curl()
    seen = [next(first) for _ in range(7)]
    first.close()
    second = curl("-H", f"Last-Event-ID: {seen[-1]}.0")
    seen += [next(second) for _ in range(13)]
    log.append_many([b"20"])
    seen.append(next(second))
    second.close()
    assert seen == list(range(21))


def test_beside_a_writer_in_another_process(tmp_path):
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(logdb.open(tmp_path / "db"))
        writer.create_topic("t", partitions=3)
        reader = stack.enter_context(logdb.open(tmp_path / "db", mode="r"))
        (url,) = stack.enter_context(logdb.serve(reader, http="127.0.0.1:0")).addresses
        records = stack.enter_context(Client(url, f"{ALL}?format=string"))
        topics = stack.enter_context(Client(url, "/logdb/v1/watch"))
        records.block()
        topics.block()
        writer.log("t", 1).append_many([b"v"])
        writer.create_topic("u")
        assert records.next().data["value"] == "v"
        assert topics.next().data["name"] == "u"
