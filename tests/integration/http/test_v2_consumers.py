"""Consumer instances of REST v2: what is read, once and in order, whatever clients do."""

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import logdb
from logdb.io import IO
from support.serving import Served, served

V2 = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
EARLIEST = {"format": "json", "auto.offset.reset": "earliest"}


class Instance:
    """One consumer instance, as its client sees it."""

    def __init__(self, server: Served, name: str = "i", group: str = "g", **options: Any) -> None:
        self._server = server
        status, told = server.call(f"/consumers/{group}", EARLIEST | options | {"name": name}, content_type=V2)
        assert status == 200, told
        self.path = told["base_uri"].removeprefix(server.url)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The answer; any but 2xx fails."""
        status, told = self.try_(path, body, method)
        assert status in (200, 204), told
        return told

    def try_(self, path: str, body: Any = None, method: str | None = None) -> tuple[int, Any]:
        return self._server.call(self.path + path, body, content_type=V2, method=method)

    def values(self, query: str = "timeout=30000") -> list[Any]:
        return [record["value"] for record in self.ask(f"/records?{query}")]


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        yield server


def assigned(server: Served, **options: Any) -> Instance:
    instance = Instance(server, **options)
    instance.ask("/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
    return instance


def append(server: Served, *values: bytes) -> None:
    log = server.database.log("t", 0)
    log.append_many(values)
    log.flush(sync=False)


def test_max_bytes_cuts_and_nothing_is_lost(server: Served) -> None:
    append(server, *(b"%d" % number for number in range(100, 400)))
    instance, found = assigned(server), []
    while values := instance.values("max_bytes=100&timeout=1"):
        assert len(values) <= 33
        found += values
    assert found == list(range(100, 400))


def test_a_record_over_max_bytes_comes_alone(server: Served) -> None:
    append(server, b'"%s"' % (b"x" * 1_000), b"2")
    instance = assigned(server)
    assert instance.values("max_bytes=10") == ["x" * 1_000]
    assert instance.values("max_bytes=10") == [2]


def test_what_is_not_json_stops_the_reader_and_can_be_passed(server: Served) -> None:
    append(server, b"1", b"\xffnot json", b"3")
    instance = assigned(server)
    assert instance.values() == [1]
    for _ in range(2):
        status, told = instance.try_("/records")
        assert (status, told["error_code"]) == (408, 40801)
        assert "t-0 at offset 1" in told["message"]
    instance.ask("/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 2}]})
    assert instance.values() == [3]


def test_numbers_keep_their_digits(server: Served) -> None:
    append(server, b"1.10000000000000000001", b"123456789012345678901234567890")
    request = urllib.request.Request(server.url + assigned(server).path + "/records")
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = answer.read()
    assert b'"value":1.10000000000000000001,' in body
    assert b'"value":123456789012345678901234567890,' in body


def test_a_long_poll_is_woken_by_a_record(server: Served) -> None:
    instance = assigned(server)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.values)
        append(server, b"1")
        assert waiting.result(timeout=20) == [1]


def test_a_long_poll_beside_a_writer_in_another_handle_is_woken(tmp_path: Path) -> None:
    with logdb.open(tmp_path / "db") as writer, ThreadPoolExecutor(2) as pool:
        log = writer.create_topic("t") and writer.log("t", 0)
        log.append(b"0")
        log.flush()
        with served(tmp_path / "db", opened={"mode": "r"}) as server:
            instance = assigned(server)
            assert instance.values() == [0]
            for offset in range(1, 10):  # some of them wait already when the record comes
                waiting = pool.submit(instance.values)
                path = f"/topics/t/partitions/0/records?offset={offset}&timeout=30000"
                reading = pool.submit(server.call, path, headers={"Accept": JSON})
                log.append(b"1")
                log.flush()
                assert waiting.result(timeout=20) == [1]
                assert reading.result(timeout=20)[1][0]["offset"] == offset


def test_fetch_min_bytes_is_waited_for(server: Served) -> None:
    instance = assigned(server, **{"fetch.min.bytes": 6, "consumer.request.timeout.ms": 30_000})
    append(server, b"111")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.values)
        append(server, b"222")
        assert waiting.result(timeout=20) == [111, 222]


def test_a_client_that_goes_away_loses_nothing(server: Served) -> None:
    instance = assigned(server, **{"fetch.min.bytes": 100, "consumer.request.timeout.ms": 30_000})
    append(server, b"1")
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port)) as client:
        client.sendall(b"GET %s/records HTTP/1.1\r\nHost: x\r\n\r\n" % instance.path.encode())
    assert instance.values("timeout=1000") == [1]


def test_readers_of_one_instance_share_its_records(server: Served) -> None:
    append(server, *(b"%d" % number for number in range(2_000)))
    instance = assigned(server)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: instance.values("max_bytes=200"), range(20)))
    found = [value for part in parts for value in part]
    assert sorted(found) == list(range(len(found)))
    assert all(part and part == sorted(part) for part in parts)


def test_members_of_a_group_share_partitions(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server, ThreadPoolExecutor(2) as pool:
        server.database.create_topic("t", partitions=2)
        members = [Instance(server, name) for name in ("a", "b")]
        for member in members:
            member.ask("/subscription", {"topics": ["t"]})
        owned: list[list[int]] = []
        while [len(mine) for mine in owned] != [1, 1]:
            list(pool.map(lambda member: member.values("timeout=100"), members))
            owned = [[one["partition"] for one in member.ask("/assignments")["partitions"]] for member in members]
        assert sorted(owned) == [[0], [1]]
        for number in range(10):
            server.call(f"/topics/t/partitions/{number % 2}", {"records": [{"value": number}]}, content_type=JSON)
        for member, (partition,) in zip(members, owned, strict=True):
            assert member.values() == list(range(partition, 10, 2))


@pytest.mark.parametrize(("automatic", "again"), [("true", []), ("false", [1, 2])])
def test_deleting_an_instance_commits_what_it_is_to(server: Served, automatic: str, again: list[int]) -> None:
    append(server, b"1", b"2")
    for expected in ([1, 2], again):
        instance = Instance(server, **{"auto.commit.enable": automatic})
        instance.ask("/subscription", {"topics": ["t"]})
        assert instance.values("timeout=10000" if expected else "timeout=300") == expected
        instance.ask("", method="DELETE")


def test_a_pattern_means_whole_names(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        for name in ("logs.a", "logs.b", "my-logs.c"):
            server.database.create_topic(name)
        instance = Instance(server)
        instance.ask("/subscription", {"topic_pattern": r"logs\..+"})
        assert sorted(instance.ask("/subscription")["topics"]) == ["logs.a", "logs.b"]


def test_positions_can_be_times(server: Served) -> None:
    server.database.log("t", 0).append_many([b"1", b"2", b"3"], timestamps_ms=[1_000_000, 2_000_000, 3_000_000])
    instance = assigned(server)
    for timestamp in ("1970-01-01T00:33:20Z", 2_000, "1970-01-01T01:33:20+01:00"):
        instance.ask("/positions", {"timestamps": [{"topic": "t", "partition": 0, "timestamp": timestamp}]})
        assert instance.values() == [2, 3]


def test_a_position_in_iso_8601_has_each_of_its_milliseconds(server: Served) -> None:
    """As a 64-bit float in seconds, it lies below its millisecond."""
    at_ms = 1_090_576_541_557
    server.database.log("t", 0).append_many([b"1", b"2", b"3"], timestamps_ms=[at_ms - 1, at_ms, at_ms + 1])
    instance = assigned(server)
    for timestamp in ("2004-07-23T09:55:41.557Z", "2004-07-23T09:55:41.557999", "2004-07-23T11:55:41.557+02:00"):
        instance.ask("/positions", {"timestamps": [{"topic": "t", "partition": 0, "timestamp": timestamp}]})
        assert instance.values() == [2, 3]


@pytest.mark.parametrize(
    ("timestamp", "first"),
    [(-1e300, 1), ("0001-01-01T00:00:00+14:00", 2), (-62_135_596_800.001, 2), ("1969-12-31T23:59:59.999Z", 3), (0, 4), (1e15, 5)],
)
def test_positions_can_be_times_that_no_calendar_has(tmp_path: Path, timestamp: str | float, first: int) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t", config={"message.timestamp.after.max.ms": 2**63 - 1})
        times = [-(2**63), -62_135_596_800_001, -1, 5, 2**63 - 1]
        server.database.log("t", 0).append_many([b"%d" % number for number in range(1, 6)], timestamps_ms=times)
        instance = assigned(server)
        instance.ask("/positions", {"timestamps": [{"topic": "t", "partition": 0, "timestamp": timestamp}]})
        assert instance.values() == [*range(first, 6)]


def test_an_instance_that_is_left_alone_expires(tmp_path: Path) -> None:
    class Clock(IO):
        ahead_ms = 0

        def monotonic_ms(self) -> int:
            return super().monotonic_ms() + self.ahead_ms

    clock = Clock()
    with served(tmp_path / "db", opened={"io": clock}) as server:
        server.database.create_topic("t")
        instance = assigned(server)
        clock.ahead_ms += 299_000
        assert instance.values("timeout=1") == []
        clock.ahead_ms += 299_000
        assert instance.values("timeout=1") == []
        clock.ahead_ms += 301_000
        assert instance.try_("/records")[1]["error_code"] == 40403
        assigned(server)  # the name is free


def in_thread(call: Callable[[], Any]) -> "tuple[threading.Thread, list[Any]]":
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


@pytest.mark.parametrize(
    ("host", "status", "told"),
    [
        (b"Host: logs.localhost:81\r\n", b"200", b'"base_uri":"http://logs.localhost:81/consumers/g/instances/i"'),
        (b"Host: [::1]:81\r\n", b"200", b'"base_uri":"http://[::1]:81/consumers/g/instances/i"'),
        (b"", b"200", b'"base_uri":"http://127.0.0.1:'),
        *((b"Host: " + host + b"\r\n", b"400", b"Host is") for host in (b"[", b"x:y", b"\xff", b"a b", b"h:99999999", b"a/b", b"u@h")),
    ],
)
def test_the_url_of_an_instance_is_where_its_client_found_the_server(server: Served, host: bytes, status: bytes, told: bytes) -> None:
    place = urlsplit(server.url)
    head = b"POST /consumers/g HTTP/1.0\r\n%sContent-Type: application/json\r\nContent-Length: 12\r\n\r\n" % host
    with socket.create_connection((place.hostname, place.port), timeout=20) as client:
        client.sendall(head + b'{"name":"i"}')
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.split(b" ")[1] == status
    assert told in answer
    server.call("/consumers/g/instances/i", method="DELETE")


def test_deleting_an_instance_ends_a_read_that_waits(server: Served) -> None:
    instance = assigned(server)
    thread, results = in_thread(lambda: instance.try_("/records?timeout=60000"))
    instance.ask("", method="DELETE")
    thread.join(timeout=20)
    assert results[0][0] == 404


def test_draining_commits_and_ends_reads_that_wait(tmp_path: Path) -> None:
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        append(server, b"1")
        instance = Instance(server)
        instance.ask("/subscription", {"topics": ["t"]})
        assert instance.values() == [1]

        def read() -> None:
            with contextlib.suppress(OSError):  # the server was quicker
                instance.try_("/records?timeout=60000")

        thread, _ = in_thread(read)
        server.server.close()
        thread.join(timeout=20)
        assert not thread.is_alive()
        assert server.database.groups()[0].group_id == "g"
        with server.database.consumer(group_id="g", auto_offset_reset="none") as consumer:
            assert consumer.committed(("t", 0)).offset == 1


def test_no_option_makes_a_read_wait_for_longer_than_the_server_lets_it(tmp_path: Path) -> None:
    with served(tmp_path / "db", wait_ms_max=20) as server:
        server.database.create_topic("t")
        assert assigned(server, **{"consumer.request.timeout.ms": 300_000}).values("") == []
