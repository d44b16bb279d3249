"""Golden exchanges over HTTP: what is asked, and what is to be answered.

``<url>`` stands for where the server is, ``<any>`` for whatever is there; ``replaced`` says what else stands for what.
"""

import http.client
import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.serving import Served
from support.tools import needs

Transport = Callable[[str, str, dict[str, str], bytes | None], tuple[int, str, bytes]]


def by_library(method: str, url: str, headers: dict[str, str], body: bytes | None) -> tuple[int, str, bytes]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=30)
    try:
        connection.request(method, url.removeprefix(f"http://{place.netloc}"), body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()


def by_curl(method: str, url: str, headers: dict[str, str], body: bytes | None) -> tuple[int, str, bytes]:
    options = ["--request", method, "--write-out", "\n%{http_code} %{content_type}"]
    for name, value in headers.items():
        options += ["--header", f"{name}: {value}"]
    if body is not None:
        options += ["--data-binary", "@-"]
    answer, _, written = curl(*options, url, body=body).rpartition(b"\n")
    status, _, content_type = written.decode().partition(" ")
    return int(status), content_type, answer


def curl(*options: str, body: bytes | None = None) -> bytes:
    """What curl writes to its standard output."""
    command = ["curl", "--silent", "--show-error", "--max-time", "30", *options]
    return subprocess.run(command, input=body or b"", capture_output=True, check=True, timeout=60).stdout


def matches(found: Any, wanted: Any) -> bool:
    if wanted == "<any>":
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        return list(found) == list(wanted) and all(matches(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(matches, found, wanted))
    return bool(found == wanted)


TRANSPORTS = (by_library, pytest.param(by_curl, marks=needs("curl")))


def check(server: Served, transport: Transport, golden: Mapping[str, Any], name: str, replaced: Mapping[str, str] | None = None) -> None:
    """Ask all that a golden file asks, in order."""
    written = json.dumps(golden["exchanges"])
    for placeholder, text in {"<url>": server.url, **(replaced or {})}.items():
        written = written.replace(placeholder, text)
    for at, exchange in enumerate(json.loads(written)):
        request, wanted = exchange["request"], exchange["response"]
        body = json.dumps(request["body"]).encode() if "body" in request else None
        headers = {"Host": urlsplit(server.url).netloc} | request.get("headers", {})
        status, content_type, answer = transport(request["method"], server.node_for(request["path"]) + request["path"], headers, body)
        where = f"{name}[{at}] {request['method']} {request['path']}: {status} {content_type} {answer[:2000]!r}"
        assert status == wanted["status"], where
        if "body" in wanted:
            assert content_type.partition(";")[0] == wanted.get("content_type", "application/json"), where
            assert matches(server.noted(json.loads(answer)), wanted["body"]), where
        else:
            assert not answer, where
