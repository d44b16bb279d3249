"""Producing by REST v3: a stream of records, each with its report."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from support.exchanges import curl
from support.security import secure
from support.serving import Served, served
from support.tools import needs


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "db") as server:
        server.database.create_topic("trades", partitions=3)
        yield server


def records_path(server: Served, topic: str = "trades") -> str:
    return f"/v3/clusters/{server.call('/v3/clusters')[1]['data'][0]['cluster_id']}/topics/{topic}/records"


def stream_by_curl(server: Served, body: bytes) -> list[dict]:
    headers = ["--header", "Content-Type: application/json", "--header", "Transfer-Encoding: chunked"]
    answer = curl("--request", "POST", "--upload-file", "-", *headers, server.url + records_path(server), body=body)
    return [json.loads(line) for line in answer.splitlines()]


def values_in(server: Served, topic: str = "trades") -> dict[int, list]:
    info = server.database.describe_topic(topic)
    return {number: [record.value for record in server.database.log(topic, number).read(0)] for number in range(info.partition_count)}


class Stream:
    """A request whose body comes little by little."""

    def __init__(self, server: Served, path: str, *, receive_buffer_bytes: int | None = None) -> None:
        place = urlsplit(server.url)
        self.socket = socket.socket()
        self.socket.settimeout(30)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect((place.hostname, place.port))
        head = f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        if server.authorization is not None:
            head = head.removesuffix("\r\n") + f"Authorization: {server.authorization}\r\n\r\n"
        self.socket.sendall(head.encode())
        self.received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.socket.sendall(b"0\r\n\r\n")

    def wait_for(self, text: bytes) -> None:
        while text not in self.received:
            piece = self.socket.recv(1 << 16)
            assert piece, f"the stream ended without {text!r}: {self.received[-500:]!r}"
            self.received += piece


@needs("curl")
def test_curl_streams_records_and_gets_a_report_for_each_in_order(server: Served) -> None:
    body = b"".join(
        b'{"key":{"type":"STRING","data":"user-%d"},"value":{"type":"JSON","data":{"n":%d}}}\n' % (n % 7, n) for n in range(5_000)
    )
    reports = stream_by_curl(server, body)
    assert [report["error_code"] for report in reports] == [200] * 5_000
    kept = values_in(server)
    assert [json.loads(kept[report["partition_id"]][report["offset"]])["n"] for report in reports] == list(range(5_000))
    assert len({report["partition_id"] for report in reports}) > 1


def test_a_report_comes_while_the_stream_goes_on(server: Served) -> None:
    with Stream(server, records_path(server)) as stream:
        for number in range(3):
            stream.send(b'{"partition_id":0,"value":{"type":"STRING","data":"a"}}')
            stream.wait_for(b'"offset":%d,' % number)
        stream.send(b'{"partition_id":0,"value":{"type":"STR')
        stream.send(b'ING","data":"b"}}')
        stream.wait_for(b'"offset":3,')
        stream.end()
        stream.wait_for(b"\r\n0\r\n\r\n")
        assert stream.received.startswith(b"HTTP/1.1 200 ")
        assert values_in(server)[0] == [b"a", b"a", b"a", b"b"]


@needs("curl")
def test_a_record_that_fails_is_reported_in_its_place_and_the_others_are_appended(server: Served) -> None:
    server.database.alter_topic("trades", config={"max.message.bytes": 1_000})
    text = '{"partition_id":1,"value":{"type":"STRING","data":"%s"}}'
    body = "".join(text % data for data in ("a", "b" * 2_000, "c", "d" * 2_000, "e")) + '{"partition_id":3}{"partition_id":1}'
    assert [report["error_code"] for report in stream_by_curl(server, body.encode())] == [200, 413, 200, 413, 200, 40402, 200]
    assert values_in(server)[1] == [b"a", b"c", b"e", None]


def test_what_is_no_json_is_the_last_report(server: Served) -> None:
    with Stream(server, records_path(server)) as stream:
        stream.send(b'{"partition_id":0} ] {"partition_id":0}')
        stream.wait_for(b'"error_code":400,')
        stream.wait_for(b"\r\n0\r\n\r\n")
        assert len(values_in(server)[0]) == 1


def test_all_kinds_of_embedding(server: Served) -> None:
    record = {
        "partition_id": 2,
        "headers": [{"name": "h", "value": "SGVhZGVy"}, {"name": "none", "value": None}],
        "key": {"type": "JSON", "data": {"é": [1, 2.5, None]}},
        "value": {"type": "BINARY", "data": "AP8="},
        "timestamp": "2021-02-05T19:14:42.123Z",
    }
    assert server.call(records_path(server), record)[1]["error_code"] == 200
    (kept,) = server.database.log("trades", 2).read(0)
    assert kept.key == '{"é":[1,2.5,null]}'.encode()
    assert kept.value == b"\x00\xff"
    assert [tuple(header) for header in kept.headers] == [("h", b"Header"), ("none", None)]
    assert kept.timestamp_ms == 1_612_552_482_123


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_a_time_before_1970_is_kept(server: Served, text: str) -> None:
    name = f"before-1970-{text[:4]}{len(text)}"
    server.database.create_topic(name)
    report = server.call(records_path(server, name), {"timestamp": text})[1]
    assert report["timestamp"] == text
    (kept,) = server.database.log(name).read(0)
    assert kept.timestamp_ms == (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def test_where_the_log_takes_its_own_time_a_report_does_not_say_it(server: Served) -> None:
    server.database.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    report = server.call(records_path(server, "stamped"), {"timestamp": "2021-02-05T19:14:42Z"})[1]
    assert report["error_code"] == 200
    assert report["timestamp"] is None


def test_the_time_that_is_reported_is_the_one_that_is_kept(server: Served) -> None:
    report = server.call(records_path(server), {"partition_id": 0})[1]
    (kept,) = server.database.log("trades", 0).read(0)
    expected = f"{kept.timestamp_ms // 1000 % 60:02d}.{kept.timestamp_ms % 1000:03d}Z" if kept.timestamp_ms % 1000 else "Z"
    assert report["timestamp"].endswith(expected)


def test_who_does_not_read_reports_is_not_read_from_and_holds_up_nobody(server: Served) -> None:
    with Stream(server, records_path(server), receive_buffer_bytes=4_096) as stream:
        body = b'{"partition_id":0,"value":{"type":"STRING","data":"x"}}\n' * 1_000
        stream.socket.settimeout(1)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 1_000:
                stream.send(body)
                sent += 1
        appended = server.database.log("trades", 0).end_offset
        assert 0 < appended < 1_000_000
        assert server.call(records_path(server), {"partition_id": 1})[1]["error_code"] == 200


def test_a_client_that_goes_away_in_mid_record_leaves_what_was_whole(server: Served) -> None:
    with Stream(server, records_path(server)) as stream:
        stream.send(b'{"partition_id":0,"value":{"type":"STRING","data":"whole"}}{"partition_id":0,')
        stream.wait_for(b'"offset":0,')
    assert server.call(records_path(server), {"partition_id": 0})[1]["offset"] == 1


def test_streams_side_by_side_do_not_mix(server: Served) -> None:
    path = records_path(server)

    def produce(name: str) -> None:
        for number in range(20):
            server.call(path, {"partition_id": 0, "value": {"type": "STRING", "data": f"{name}{number}"}})

    threads = [threading.Thread(target=produce, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [value.decode() for value in values_in(server)[0]]
    assert len(kept) == 60
    for name in "abc":
        assert [value for value in kept if value[0] == name] == [f"{name}{number}" for number in range(20)]


def test_a_stream_ends_with_a_report_when_the_server_drains(server: Served) -> None:
    with Stream(server, records_path(server)) as stream:
        stream.send(b'{"partition_id":0}')
        stream.wait_for(b'"offset":0,')
        closing = threading.Thread(target=server.server.close)
        closing.start()
        stream.wait_for(b'"error_code":503,')
        stream.wait_for(b"\r\n0\r\n\r\n")
    closing.join()


def test_a_large_record_counts_among_what_requests_hold_until_it_is_whole(server: Served) -> None:
    server.database.alter_topic("trades", config={"max.message.bytes": 1 << 20})
    memory = server.server._doors[0].memory

    def wait_for_taken(size_bytes: int) -> None:
        for _ in range(10_000):
            if memory.taken == size_bytes:
                return
            assert server.call("/health/live")[0] == 200
        raise AssertionError(f"requests hold {memory.taken} bytes, not {size_bytes}")

    begin, rest = b'{"value":{"type":"STRING","data":"', b"x" * 200_000
    with Stream(server, records_path(server)) as stream:
        stream.send(begin + rest)
        wait_for_taken(len(begin + rest))
        stream.send(rest)
        wait_for_taken(len(begin + rest + rest))
        stream.send(b'"}}')
        stream.wait_for(b'"size":400000')
        wait_for_taken(0)


def test_who_is_over_a_quota_is_read_from_more_slowly(server: Served) -> None:
    path = records_path(server)
    quotas = {Principal("User", "alice"): Quota(produce_bytes=100_000)}
    secure(server.database.path, "Allow alice@* Write Topic trades", users={"alice": "secret"}, quotas=quotas)
    body = b'{"partition_id":0,"value":{"type":"STRING","data":"%b"}}' % (b"x" * 50_000)
    with Stream(server.by("alice", "secret"), path) as stream:
        began = time.monotonic()
        for number in range(4):
            stream.send(body)
            stream.wait_for(b'"offset":%d,' % number)
        assert time.monotonic() - began > 0.4
