"""Hostile clients, and an honest one beside them, who is answered within a second whatever they do.

The hostile ones have a password, and at most the rights that the test says; the honest one is another principal.  The server is a
process of its own, as it would otherwise share the interpreter's lock with those who attack it.
"""

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import logdb
from support.security import secure
from support.server_process import ServerProcess, server_process
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
        assert max(took_s for _, took_s in self.asked) < ANSWERED_S


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
