"""Which heads are taken past aiohttp: those of logdb's own client, and not one that could mean something else."""

import pytest

from logdb.model import TopicPartition
from logdb.serving.fetch import Wanted
from logdb_http_api.door.express import Append, Fetch, append_of, fetch_of

PATH = "/logdb/v1/topics/t.a-b_c/partitions/7/batches"
HOST = "Host: localhost:8080"
LINES = ("Host: localhost:8080", "Content-Type: application/vnd.logdb.batches", "Content-Length: 147")


def head(*lines, path=PATH, version="HTTP/1.1", method="POST"):
    return "\r\n".join((f"{method} {path} {version}", *lines, "", "")).encode("latin-1")


@pytest.mark.parametrize(
    ("query", "durability", "expected_offset"),
    [
        ("", None, None),
        ("?", None, None),
        ("?durability=fsync", "fsync", None),
        ("?expected_offset=12", None, 12),
        ("?expected_offset=0&durability=os", "os", 0),
    ],
)
def test_what_the_client_says(query, durability, expected_offset):
    wanted = Append(TopicPartition("t.a-b_c", 7), durability, expected_offset, 147, False)
    assert append_of(head(*LINES, path=PATH + query)) == wanted
    assert append_of(head(*reversed(LINES), "Accept-Encoding: identity", path=PATH + query)) == wanted


@pytest.mark.parametrize("given", ["Bearer x", "Basic YTpi"])
def test_who_asks(given):
    asked = append_of(head(*LINES, f"Authorization: {given}"))
    assert asked == Append(TopicPartition("t.a-b_c", 7), None, None, 147, False, given)
    fetch = fetch_of(head(HOST, f"Authorization: {given}", method="GET", path=f"{PATH}?offset=1&max_bytes=1"))
    assert fetch is not None
    assert fetch.authorization == given


def test_a_name_of_the_internet_is_one():
    asked = append_of(head("Host: logdb.example.org", *LINES[1:]))
    assert asked is not None
    assert asked.of_internet


@pytest.mark.parametrize(
    "query",
    [
        "?durability=never",
        "?expected_offset=-1",
        "?expected_offset=9223372036854775808",
        "?expected_offset=5durability=os",
        "?expected_offset=5&",
        "?&durability=os",
        "?durability=os&expected_offset=5",
        "?expected_offset=5&expected_offset=6",
        "?transactional_id=t",
        "?expected%5Foffset=5",
    ],
)
def test_queries_for_aiohttp(query):
    assert append_of(head(*LINES, path=PATH + query)) is None


@pytest.mark.parametrize(
    "given",
    [
        head(*LINES, method="PUT"),
        head(*LINES, version="HTTP/1.0"),
        head(*LINES, path="/logdb/v1/topics/t/partitions/-1/batches"),
        head(*LINES, path="/logdb/v1/topics/t/partitions/1/batches/"),
        head(*LINES, path="/logdb/v1/topics/t%2Fa/partitions/1/batches"),
        head(*LINES, path="/logdb/v1/topics//partitions/1/batches"),
        head(*LINES[1:]),
        head(LINES[0], LINES[1]),
        head(LINES[0], LINES[2]),
        head(LINES[0], "Content-Type: application/json", LINES[2]),
        head(LINES[0], LINES[1], "Content-Length: +147"),
        head(LINES[0], LINES[1], "Content-Length: 1,147"),
        head(LINES[0], LINES[1], "Content-Length: \xb2"),
        head(LINES[0], LINES[1], "Content-Length : 147"),
        head(*LINES, "Content-Length: 147"),
        head(*LINES, "Content-Length: 148"),
        head(*LINES, "Transfer-Encoding: chunked"),
        head(*LINES, "Content-Encoding: gzip"),
        head(*LINES, "Authorization: Negotiate x"),
        head(*LINES, "Authorization: Bearer x y"),
        head(*LINES, "Authorization: Bearer x", "Authorization: Bearer x"),
        head(*LINES, "Sec-Fetch-Site: cross-site"),
        head(*LINES, "Origin: https://evil.example"),
        head(*LINES, "Expect: 100-continue"),
        head(*LINES, "Connection: close"),
        head(*LINES, "Upgrade: websocket"),
        head(*LINES, " folded"),
        head(*LINES, "Accept-Encoding: a\nTransfer-Encoding: chunked"),
        head("Host: a b", *LINES[1:]),
        head("Host: [zz]", *LINES[1:]),
        head(*LINES).replace(b"\r\nHost", b"\nHost"),
    ],
)
def test_heads_for_aiohttp(given):
    assert append_of(given) is None


@pytest.mark.parametrize(("more", "isolation_level"), [("", "read_uncommitted"), ("&isolation_level=read_committed", "read_committed")])
def test_a_fetch_of_the_client(more, isolation_level):
    given = head(HOST, "Accept-Encoding: identity", method="GET", path=f"{PATH}?offset=12&max_bytes=65536{more}")
    assert fetch_of(given) == Fetch(Wanted("t.a-b_c", 7, 12, 65536), isolation_level, False)


@pytest.mark.parametrize(
    "given",
    [
        head(HOST, method="GET"),
        head(HOST, method="GET", path=f"{PATH}?offset=12"),
        head(HOST, method="GET", path=f"{PATH}?max_bytes=1&offset=12"),
        head(HOST, method="GET", path=f"{PATH}?offset=-1&max_bytes=1"),
        head(HOST, method="GET", path=f"{PATH}?offset=9223372036854775808&max_bytes=1"),
        head(HOST, method="GET", path=f"{PATH}?offset=1&max_bytes=0"),
        head(HOST, method="GET", path=f"{PATH}?offset=1&max_bytes=67108865"),
        head(HOST, method="GET", path=f"{PATH}?offset=1&max_bytes=1&wait_ms=5"),
        head(HOST, method="GET", path=f"{PATH}?offset=1&max_bytes=1&isolation_level=else"),
        head(HOST, method="HEAD", path=f"{PATH}?offset=1&max_bytes=1"),
        head(HOST, method="GET", path=f"{PATH}?offset=1&max_bytes=1", version="HTTP/1.0"),
        head(method="GET", path=f"{PATH}?offset=1&max_bytes=1"),
        head(HOST, "Content-Length: 0", method="GET", path=f"{PATH}?offset=1&max_bytes=1"),
        head(HOST, "Authorization: Digest x", method="GET", path=f"{PATH}?offset=1&max_bytes=1"),
        head(HOST, "Origin: https://evil.example", method="GET", path=f"{PATH}?offset=1&max_bytes=1"),
        head(HOST, "Sec-Fetch-Site: cross-site", method="GET", path=f"{PATH}?offset=1&max_bytes=1"),
        head(HOST, "Connection: close", method="GET", path=f"{PATH}?offset=1&max_bytes=1"),
    ],
)
def test_fetches_for_aiohttp(given):
    assert fetch_of(given) is None
