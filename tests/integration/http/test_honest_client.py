"""Hostile clients, and an honest one beside them, who is answered within a second whatever they do.

The hostile ones have a password, and at most the rights that the test says; the honest one is another principal.  The server is a
process of its own, as it would otherwise share the interpreter's lock with those who attack it.
"""

import base64
import contextlib
import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import logdb
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from support.security import secure
from support.server_process import ServerProcess, server_process
from support.waiting import until
from support.wire import Said, Wire, wire

PASSWORD = "correct horse"
ANSWERED_S = 1.0
V2, JSON_V2, JSON = "application/vnd.kafka.v2+json", "application/vnd.kafka.json.v2+json", "application/json"
TOPIC = "orders-of-the-european-subsidiaries-2026"


def authorization(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()


def head(user: str, method: str, path: str, content_type: str = "", size_bytes: int | None = None) -> bytes:
    """The head of a request, whose body does not come by itself."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {authorization(user)}"]
    lines += [f"Content-Type: {content_type}"] * bool(content_type) + [f"Content-Length: {size_bytes}"] * (size_bytes is not None)
    return "\r\n".join([*lines, "", ""]).encode()


def ask(line: Wire, user: str, method: str, path: str, body: Any = None, content_type: str = JSON) -> Said:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    line.send(head(user, method, path, content_type if data else "", len(data)) + data)
    return line.read()


class Honest(NamedTuple):
    """What an honest client was answered: status and seconds of each request."""

    asked: list[tuple[int, float]]

    def check(self, least: int = 1) -> None:
        assert len(self.asked) >= least
        assert {status for status, _ in self.asked} <= {200}
        beside = os.getloadavg()[0] / (os.cpu_count() or 1)  # what else runs on this machine slows both down
        assert max(took_s for _, took_s in self.asked) < ANSWERED_S * max(1.0, beside)


@contextlib.contextmanager
def honest_client(url: str) -> Iterator[Honest]:
    """Produces, reads and lists all the time, on connections of its own."""
    honest, stop = Honest([]), threading.Event()
    asks = (
        ("GET", "/topics", None, ""),
        ("POST", "/topics/theirs", {"records": [{"value": 1}]}, JSON_V2),
        ("GET", "/logdb/v1/topics/theirs/partitions/0/batches?offset=0&max_bytes=1048576", None, ""),
        ("POST", "/logdb/v1/calls/describe_topic", {"name": "theirs"}, JSON),
    )

    def go_on() -> None:
        with wire(url) as line:
            while True:
                for method, path, body, content_type in asks:
                    began_s = time.monotonic()
                    status = ask(line, "honest", method, path, body, content_type).status
                    honest.asked.append((status, time.monotonic() - began_s))
                    if status == 0:
                        return
                if stop.wait(0.01):
                    return

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield honest
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def attacked(path: Path, *acls: str, flags: tuple[str, ...] = (), **topics: int) -> Iterator[ServerProcess]:
    """A server with two principals, of whom ``honest`` is a super user and ``low`` may do what the ACLs say; both are known to it."""
    with logdb.open(path) as db:
        for name in ("theirs", TOPIC):
            db.create_topic(name)
        for name, count in topics.items():
            db.create_topic(name, partitions=count)
    secure(path, *acls, users={"honest": PASSWORD, "low": PASSWORD}, super_users=["honest"])
    with server_process(path, *flags) as server:
        for user in ("honest", "low"):
            with wire(server.url) as line:
                assert ask(line, user, "GET", "/topics").status == 200
        yield server


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize("pattern", ["{|(.+)+!|}", "(.+)+!", "(a|aa|.)+!|x"])
def test_a_topic_pattern_that_would_be_matched_for_ever(tmp_path, pattern):
    with attacked(tmp_path / "db", "Allow low@* Read Group g", f"Allow low@* Describe Topic {TOPIC}") as server, wire(server.url) as line:
        assert ask(line, "low", "POST", "/consumers/g", {"name": "i"}, V2).status == 200
        with honest_client(server.url) as honest:
            for _ in range(3):
                said = ask(line, "low", "POST", "/consumers/g/instances/i/subscription", {"topic_pattern": pattern}, V2)
                assert said.status == 204
        honest.check(4)


# ---------------------------------------------------------------- partitions

CREATE = ("Allow low@* Create Topic low…", "Allow low@* Alter Topic low…", "Allow low@* Delete Topic low…")


def test_partitions_by_the_hundred_thousand(tmp_path):
    with attacked(tmp_path / "db", *CREATE) as server, wire(server.url) as line, honest_client(server.url) as honest:
        for at in range(32):
            said = ask(line, "low", "POST", "/logdb/v1/calls/create_topic", {"name": f"low.{at}", "partitions": 100_000})
            assert (said.status, said.json["error"], said.json["fields"]["count"]) == (400, "InvalidPartitions", 100_000)
            assert "a request adds 1000 at most (partitions_per_request_max)" in said.json["message"]
    honest.check(4)


def test_topics_of_many_partitions_whose_client_hangs_up(tmp_path):
    """As many as a principal may ask for at once: another creates, and opens, topics beside it, and what was given up is not there."""
    flags = ("--partitions-per-request-max", "4000", "--partitions-per-principal-max", "1000000", "--partitions-max", "1000000")
    with attacked(tmp_path / "db", *CREATE, flags=flags, others=20) as server, honest_client(server.url) as honest:
        for at in range(40):
            with wire(server.url) as line:
                data = json.dumps({"name": f"low.{at}", "partitions": 4_000}).encode()
                line.send(head("low", "POST", "/logdb/v1/calls/create_topic", JSON, len(data)) + data)
                if at == 0:
                    until(lambda: list((tmp_path / "db").glob("*.tmp")), "it to be begun")
        with wire(server.url) as line:
            for at in range(20):
                for path, body in (("create_topic", {"name": f"mine.{at}"}), ("partition_count", {"topic": f"mine.{at}"})):
                    assert ask(line, "honest", "POST", f"/logdb/v1/calls/{path}", body).status == 200
                assert ask(line, "honest", "GET", f"/topics/others/partitions/{at}/offsets").status == 200
            until(lambda: not list((tmp_path / "db").glob("*.tmp")), "what was begun to be undone")
            names = ask(line, "honest", "GET", "/topics").json
        assert not [name for name in names if name.startswith("low.")]
    honest.check(4)


def test_topics_of_one_principal_are_bounded(tmp_path):
    with attacked(tmp_path / "db", *CREATE, flags=("--partitions-per-principal-max", "30")) as server, wire(server.url) as line:
        for at in range(3):
            assert ask(line, "low", "POST", "/logdb/v1/calls/create_topic", {"name": f"low.{at}", "partitions": 10}).status == 200
        for path, body in (("create_topic", {"name": "low.3"}), ("alter_topic", {"name": "low.0", "partitions": 11})):
            said = ask(line, "low", "POST", f"/logdb/v1/calls/{path}", body)
            assert (said.status, "has made 30 since the server was started, of 30" in said.json["message"]) == (400, True)
        cluster = ask(line, "low", "GET", "/v3/clusters").json["data"][0]["cluster_id"]
        for only_checked in (False, True):
            body = {"topic_name": "low.3", "validate_only": only_checked}
            assert ask(line, "low", "POST", f"/v3/clusters/{cluster}/topics", body).json["error_code"] == 40002
        assert ask(line, "low", "POST", "/logdb/v1/calls/delete_topic", {"name": "low.0"}).status == 200
        assert ask(line, "low", "POST", "/logdb/v1/calls/create_topic", {"name": "low.3"}).status == 200
        assert ask(line, "honest", "POST", "/logdb/v1/calls/create_topic", {"name": "mine", "partitions": 40}).status == 200


# ---------------------------------------------------------------- bodies of JSON

POSITION = {"topic": "t", "partition": 0}
MANY = {  # what a principal that is allowed nothing can send to a route; bytes: as they are
    "partitions": ("/logdb/v1/partitions", {"positions": [[POSITION, 0]] * 20_000}),
    "wait": ("/logdb/v1/calls/wait", {"positions": [[POSITION, 0]] * 150_000, "timeout_ms": 0}),
    "commit": ("/logdb/v1/calls/commit_offsets", {"group_id": "g", "offsets": [[POSITION, {"offset": 1}]] * 20_000}),
    "pairs": ("/logdb/v1/calls/create_topic", b'{"name":"x","config":[' + b",".join([b'["a",1]'] * 1_000_000) + b"]}"),
    "arrays, 60 deep": ("/logdb/v1/calls/topics", b'{"internal":[' + b",".join([b"[" * 60 + b"]" * 60] * 8_600) + b"]}"),
    "objects": ("/logdb/v1/calls/topics", b'{"internal":[' + b",".join([b"{}"] * 340_000) + b"]}"),
    "floats": ("/logdb/v1/calls/topics", b'{"internal":[' + b",".join([b"1e1"] * 260_000) + b"]}"),
    "strings": ("/logdb/v1/calls/topics", b'{"internal":[' + b",".join([b'""'] * 340_000) + b"]}"),
    "records": ("/topics/theirs", {"records": [{"value": 1}] * 500_000}),
    "entries": ("/v3/clusters/{cluster}/topics/theirs/records:batch", {"entries": [{"id": str(at)} for at in range(100_000)]}),
    "acls": ("/v3/clusters/{cluster}/acls:batch", {"data": [{"resource_type": "TOPIC", "resource_name": "a"}] * 15_000}),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Of one whose principal ``low`` may do nothing."""
    with attacked(tmp_path_factory.mktemp("nothing") / "db") as server:
        yield server


@pytest.mark.parametrize("name", MANY)
def test_bodies_of_json_from_who_may_do_nothing(server, name):
    """As they are, and compressed to some kilobytes; from several connections at once."""
    path, body = MANY[name]
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    content_type = JSON_V2 if path.startswith("/topics") else "application/vnd.logdb.batches" if path.endswith("batches") else JSON
    with wire(server.url) as line:
        path = path.replace("{cluster}", ask(line, "low", "GET", "/v3/clusters").json["data"][0]["cluster_id"])
    with honest_client(server.url) as honest:
        said = at_once(4, lambda: sent(server.url, path, data, content_type) + sent(server.url, path, gzip.compress(data, 1), content_type))
    assert {status for each in said for status in each} <= {200, 403, 413, 422}
    honest.check(4)


def sent(url: str, path: str, data: bytes, content_type: str) -> list[int]:
    """The status of a request of ``low``, who reads it before all of the body is sent."""
    coding = b"Content-Encoding: gzip\r\n" if data.startswith(b"\x1f\x8b") else b""
    with wire(url) as line:
        line.send(head("low", "POST", path, content_type, len(data)).replace(b"\r\n\r\n", b"\r\n" + coding + b"\r\n"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            line.send(data)
        return [line.read().status]


def at_once(count: int, function: Callable[[], Any]) -> list[Any]:
    """What so many threads come to that do the same."""
    with ThreadPoolExecutor(count) as threads:
        return [future.result() for future in [threads.submit(function) for _ in range(count)]]


@pytest.mark.parametrize("record", [b'{"value":1}', b'{"value":{"a":[1e1,2e2,{}]}}', b'{"value":' + b"[" * 50 + b"]" * 50 + b"}"])
def test_large_bodies_of_records_from_who_may_write(tmp_path, record):
    body = b'{"records":[' + b",".join([record] * (6_000_000 // len(record))) + b"]}"
    with attacked(tmp_path / "db", "Allow low@* Write Topic t", t=1) as server, honest_client(server.url) as honest:
        said = at_once(4, lambda: sent(server.url, "/topics/t", body, JSON_V2))
    assert {status for each in said for status in each} <= {200, 413}
    honest.check(4)


def test_a_list_of_all_partitions(tmp_path):
    with attacked(tmp_path / "db", "Allow low@* Describe Topic t", t=3_000) as server, wire(server.url) as line:
        cluster = ask(line, "low", "GET", "/v3/clusters").json["data"][0]["cluster_id"]
        with honest_client(server.url) as honest:
            for path in (
                "/topics/t",
                f"/v3/clusters/{cluster}/topics/t/partitions",
                f"/v3/clusters/{cluster}/brokers/0/partition-replicas",
            ):
                assert ask(line, "low", "GET", path).status == 200
            assert len(ask(line, "low", "POST", "/logdb/v1/calls/describe_topic", {"name": "t"}).json["partitions"]) == 3_000
        honest.check(4)


# ---------------------------------------------------------------- bodies that do not come, answers that are not read


@pytest.mark.parametrize(
    ("path", "content_type", "size_bytes", "count"),
    [
        ("/topics/theirs", JSON_V2, 8_000_000, 520),
        ("/logdb/v1/calls/topics", JSON, 1_000_000, 520),
        ("/logdb/v1/topics/theirs/partitions/0/batches", "application/vnd.logdb.batches", 1 << 20, 260),
    ],
)
@pytest.mark.parametrize("acls", [(), ("Allow low@* Write Topic theirs",)], ids=["no ACL", "who may"])
def test_bodies_that_are_announced_and_do_not_come(tmp_path, path, content_type, size_bytes, count, acls):
    with attacked(tmp_path / "db", *acls) as server, contextlib.ExitStack() as closing:
        for _ in range(count):
            closing.enter_context(wire(server.url)).send(head("low", "POST", path, content_type, size_bytes))
        with honest_client(server.url) as honest:
            until(lambda: len(honest.asked) >= 40, "the honest one to be answered")
        honest.check(40)


def test_bodies_that_dribble(tmp_path):
    """So fast as not to be cut off: what has come is counted, and of that one principal has no more than it leaves."""
    with attacked(tmp_path / "db", "Allow low@* Write Topic t", flags=("--memory-bytes-max", str(16 << 20)), t=1) as server:
        begun = head("low", "POST", "/logdb/v1/topics/t/partitions/0/batches", "application/vnd.logdb.batches", 8 << 20)
        with contextlib.ExitStack() as closing:
            lines = [closing.enter_context(wire(server.url)) for _ in range(200)]
            with honest_client(server.url) as honest:
                for line in lines:
                    line.send(begun + bytes(200_000))
                count = len(honest.asked)
                until(lambda: len(honest.asked) >= count + 40, "the honest one to be answered")
            honest.check(40)


@pytest.mark.parametrize("wait", ["", "&wait_ms=0"], ids=["past aiohttp", "aiohttp"])
def test_slow_readers(tmp_path, wait):
    path = f"/logdb/v1/topics/t/partitions/0/batches?offset=0&max_bytes=67108864{wait}"
    with attacked(tmp_path / "db", "Allow low@* Read Topic t", t=1) as server, contextlib.ExitStack() as closing:
        fill(server.url, 12)
        slow = [closing.enter_context(wire(server.url)) for _ in range(8)]
        for line in slow:
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.send(head("low", "GET", path))
        assert all(line.socket.recv(1) for line in slow[:4])
        with honest_client(server.url) as honest:
            until(lambda: len(honest.asked) >= 40, "the honest one to be answered")
        honest.check(40)


def test_answers_of_which_there_are_many_are_not_read(tmp_path):
    """Each is small enough that nobody would count it."""
    with attacked(tmp_path / "db") as server, contextlib.ExitStack() as closing:
        before = server.rss_bytes
        for _ in range(600):
            line = closing.enter_context(wire(server.url))
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.send(head("low", "GET", "/openapi.json"))
        with honest_client(server.url) as honest:
            until(lambda: len(honest.asked) >= 40, "the honest one to be answered")
        honest.check(40)
        assert server.rss_bytes_max < before + (256 << 20)


@pytest.mark.parametrize("wait", ["", "&min_bytes=2000000&wait_ms=60000"], ids=["a quota", "a long poll"])
def test_fetches_that_wait_count_what_was_read(tmp_path, wait):
    """While an answer of a kilobyte is held back, or waits for more, the 64 MiB that were asked for are not taken."""
    with attacked(tmp_path / "db", "Allow low@* Read Topic t", t=1) as server, contextlib.ExitStack() as closing:
        fill(server.url, 1, 1000)
        if not wait:
            quota(tmp_path / "db", "Allow low@* Read Topic t")
        for _ in range(8):
            line = closing.enter_context(wire(server.url))
            line.send(head("low", "GET", f"/logdb/v1/topics/t/partitions/0/batches?offset=0&max_bytes=67108864{wait}"))
        with honest_client(server.url) as honest:
            until(lambda: len(honest.asked) >= 40, "the honest one to be answered")
            with wire(server.url) as line:  # as much as there is for one alone, which none of those waits has
                said = ask(line, "honest", "GET", "/logdb/v1/topics/t/partitions/0/batches?offset=0&max_bytes=67108864")
                assert said.status == 200
        honest.check(40)


def fill(url: str, count: int, size: int = 1_000_000) -> None:
    """Records of that size for the topic ``t``."""
    with wire(url) as line:
        for _ in range(count):
            assert ask(line, "honest", "POST", "/topics/t", {"records": [{"value": "x" * size}]}, JSON_V2).status == 200


def quota(path: Path, *acls: str) -> None:
    """``low`` may read ten bytes in a second."""
    quotas = {Principal("User", "low"): Quota(fetch_bytes=10)}
    secure(path, *acls, users={"honest": PASSWORD, "low": PASSWORD}, super_users=["honest"], quotas=quotas)
