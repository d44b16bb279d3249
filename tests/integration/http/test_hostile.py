"""What bad input gets: an error in JSON, never a traceback, never a hang; and the server's memory stays bounded."""

import gzip
import json
import os
import resource
import socket
import threading
import zlib

import pytest
import zstandard

from logdb.access.session import AuthorizedSession
from logdb.meta.catalogue import ReadTransaction
from logdb_http_api.door import documents
from support.server_process import server_process
from support.serving import served
from support.wire import Wire, wire

CALL = "/logdb/v1/calls/topics"
BATCHES = "/logdb/v1/topics/t/partitions/0/batches"
TYPE = "application/vnd.logdb.batches"
JSON = {"Content-Type": "application/json"}
MIB = 1 << 20
WIDE = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=27))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    limits = {"header_timeout_ms": 1_000, "body_timeout_ms": 1_000, "write_timeout_ms": 1_000, "connections_max": 60, "requests_max": 20}
    limits["connections_per_address_max"] = 60
    with served(
        tmp_path_factory.mktemp("hostile") / "db", body_bytes_max=4 * MIB, json_bytes_max=MIB, memory_bytes_max=16 * MIB, **limits
    ) as it:
        it.database.create_topic("t")
        yield it


@pytest.fixture
def line(server):
    with wire(server.url) as it:
        yield it


def refused(said, status, code=None):
    assert (said.status, said.json["error_code"]) == (status, code or status)
    assert said.json["message"]
    assert "Traceback" not in said.json["message"]
    assert said.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"", b"\xff\xfe", b"{}x", b'{"a":NaN}', b"[Infinity]", b'{"internal":"\\ud800"}', b"1" * 5_000, b'"' + b"x" * 100,
        b"[" * 200_000, b"[" * 500 + b"]" * 500, b'{"a":' * 500 + b"1" + b"}" * 500, "{}".encode("utf-16"),
    ],
)  # fmt: skip
def test_what_is_no_json(line, body):
    refused(line.ask("POST", CALL, body, JSON | {"Content-Length": str(len(body))}), 400)
    assert line.ask("GET", "/health/live").status == 200, "the connection goes on"


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'{"other":1}', b'{"internal":1}', b'{"internal":"yes"}', b'{"internal":[[]]}'])
def test_json_that_is_not_what_is_wanted(line, body):
    refused(line.ask("POST", CALL, body, JSON), 422)


def test_deep_and_wide_documents_are_within_bounds(server):
    deep = b"[" * documents.DEPTH_MAX + b"]" * documents.DEPTH_MAX
    assert documents.parse(deep) is not None
    assert documents.parse(b'{"a":"' + b"[{" * 1000 + b'\\"[\\\\"}') == {"a": "[{" * 1000 + '"[\\'}
    with wire(server.url) as line:
        refused(line.ask("POST", CALL, b"[" + b"[]," * 300_000 + b"[]]", JSON), 422)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/json-seq", "multipart/form-data; boundary=x"]
)
def test_another_content_type(line, content_type):
    refused(line.ask("POST", CALL, b"{}", {"Content-Type": content_type}), 415)
    refused(line.ask("POST", BATCHES, b"{}", {"Content-Type": content_type}), 415)


def test_what_is_not_there(line):
    refused(line.ask("GET", "/nope"), 404)
    refused(line.ask("GET", "/health/live/"), 404)
    refused(line.ask("GET", "/logdb/v1/topics//partitions/0/batches"), 404)
    refused(line.ask("GET", "/topics/%ff"), 400)
    said = line.ask("PATCH", CALL, b"{}", JSON)
    refused(said, 405)
    assert said.headers["allow"] == "POST"
    refused(line.ask("GET", BATCHES.replace("/t/", "/nosuch/")), 404, 40401)
    refused(line.ask("GET", BATCHES.replace("/0/", "/7/")), 404, 40402)
    refused(line.ask("GET", f"{BATCHES}?offset=5"), 416, 41601)


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1",
        "offset=x",
        "offset=9223372036854775808",
        "max_bytes=0",
        "wait_ms=1e3",
        "isolation_level=none",
        "offset=%00",
        "offset=%C2%B2",
    ],
)
def test_parameters_that_are_none(line, query):
    refused(line.ask("GET", f"{BATCHES}?{query}"), 422)


def test_batches_that_are_none(server, line):
    for body in (b"x", b"\0" * 61, b"\x03" * 100, b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 60):
        refused(line.ask("POST", BATCHES, body, {"Content-Type": TYPE}), 422, 42213)
    assert server.database.log("t").end_offset == 0


# ---------------------------------------------------------------- sizes


def test_a_body_that_is_too_large_is_refused_before_it_is_read(line):
    line.send(
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 1099511627776\r\n\r\n" % (BATCHES.encode(), TYPE.encode())
    )
    refused(line.read(), 413)


def test_a_client_that_asks_before_it_sends_gets_an_answer(line):
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    line.send(head % (CALL.encode(), 2))
    assert line.read().status == 100
    line.send(b"{}")
    assert line.read().status == 200
    line.send(head % (CALL.encode(), 2 * MIB))
    refused(line.read(), 413)


def test_a_body_without_a_length_is_cut_off(line):
    line.send(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % (BATCHES.encode(), TYPE.encode()))
    for _ in range(6):
        line.send(b"100000\r\n" + b"x" * MIB + b"\r\n")
    refused(line.read(), 413)


def bomb_of(coding):
    zeroes = b" " * MIB
    if coding == "gzip":
        compressor = zlib.compressobj(9, wbits=31)
        return b"".join(compressor.compress(zeroes) for _ in range(128)) + compressor.flush()
    if coding == "members":
        return gzip.compress(zeroes * 4) * 100
    compressor = zstandard.ZstdCompressor().compressobj()
    return b"".join(compressor.compress(zeroes) for _ in range(128)) + compressor.flush()


@pytest.mark.parametrize("kind", ["gzip", "members", "zstd"])
def test_bombs(server, kind):
    coding, bomb = "zstd" if kind == "zstd" else "gzip", bomb_of(kind)
    for path, content_type in ((CALL, "application/json"), (BATCHES, TYPE)):
        with wire(server.url) as line:
            refused(line.ask("POST", path, bomb, {"Content-Type": content_type, "Content-Encoding": coding}), 413)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"{}"), ("gzip", gzip.compress(b"{}")[:-1]), ("gzip", gzip.compress(b"") * 2_000), ("gzip", gzip.compress(b"{}") + b"x"),
        ("zstd", b"{}"), ("zstd", zstandard.compress(b"{}")[:-1]), ("zstd", zstandard.compress(b"{}") + b"x"),
        ("zstd", WIDE.compressobj().compress(b"{}" * MIB)),
    ],
    ids=["no gzip", "cut gzip", "many gzips", "gzip and more", "no zstd", "cut zstd", "zstd and more", "wide zstd"],
)  # fmt: skip
def test_codings_that_are_none(line, coding, body):
    refused(line.ask("POST", CALL, body, JSON | {"Content-Encoding": coding}), 400)


def test_a_coding_that_is_not_known(line):
    refused(line.ask("POST", CALL, b"{}", JSON | {"Content-Encoding": "br"}), 415)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_that_comes_compressed(line, coding):
    body = json.dumps({"internal": True}).encode()
    whole = gzip.compress(body[:5]) + gzip.compress(body[5:]) if coding == "gzip" else zstandard.compress(body)
    said = line.ask("POST", CALL, whole, JSON | {"Content-Encoding": coding})
    assert (said.status, said.json[0]["name"]) == (200, "t")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"GET /%s HTTP/1.1\r\n\r\n" % (b"x" * 100_000),
        b"GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n" % (b"x" * 100_000), b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
    ],
)  # fmt: skip
def test_heads_that_are_none(server, line, head):
    line.send(head)
    said = line.read()
    assert said.status in {0, 400}
    if said.status:
        refused(said, 400)
        assert line.is_closed()
    assert server.call("/health/live")[0] == 200


# ---------------------------------------------------------------- slow, or gone


def test_headers_that_don_t_come(line):
    line.send(b"GET /health/live HTTP/1.1\r\nX: ")
    assert line.is_closed()


def test_headers_that_drip(line):
    line.send(b"GET /health/live HTTP/1.1\r\nX: ")
    stop = threading.Event()

    def drip():
        while not stop.wait(0.05):
            try:
                line.send(b"x")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    assert line.is_closed()
    stop.set()
    thread.join()


def test_a_body_that_does_not_come(line):
    line.send(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{" % CALL.encode())
    said = line.read()
    refused(said, 408)
    assert said.headers["connection"] == "close"


def test_a_body_that_breaks_off(server):
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\n" % (BATCHES.encode(), TYPE.encode())
    for rest in (b"Content-Length: 1000\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n10\r\nabc"):
        with wire(server.url) as line:
            line.send(head + rest)
    with wire(server.url) as line:
        line.send(head + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n")
        assert line.read().status in {0, 400}
    assert server.call("/health/live")[0] == 200
    assert server.database.log("t").end_offset == 0


def test_too_many_connections(server):
    lines = []
    try:
        for _ in range(60):
            lines.append(Wire(server.url))
            assert lines[-1].ask("GET", "/health/live").status == 200
        with wire(server.url) as one_more:
            said = one_more.read()
            refused(said, 503)
            assert said.headers["retry-after"] == "1"
    finally:
        for line in lines:
            line.close()


def test_connections_leave_descriptors_for_files(tmp_path):
    with server_process(tmp_path / "db", "--connections-per-address-max", "200") as process:
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        lines = [Wire(process.url) for _ in range(120)]
        try:
            said = [line.ask("GET", "/health/live").status for line in lines]
            assert said == [200] * 75 + [503] * 45
            assert lines[0].ask("POST", "/logdb/v1/calls/create_topic", b'{"name":"t"}', JSON).status == 200
        finally:
            for line in lines:
                line.close()


def test_too_many_requests(server, monkeypatch):
    """Of all that there may be, one address has half."""
    began, go_on, submit = threading.Semaphore(0), threading.Event(), AuthorizedSession.submit

    def held(*args, **options):
        began.release()
        go_on.wait(30)
        return submit(*args, **options)

    monkeypatch.setattr(AuthorizedSession, "submit", held)
    body = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" % CALL.encode()
    lines = [Wire(server.url) for _ in range(10)]
    try:
        for line in lines:
            line.send(body)
        for _ in lines:
            assert began.acquire(timeout=30)
        with wire(server.url) as one_more:
            said = one_more.ask("POST", CALL, b"{}", JSON)
            refused(said, 503)
            assert said.headers["retry-after"] == "1"
            assert one_more.ask("GET", "/health/live").status == 200
            go_on.set()
            for line in lines:
                assert line.read().status == 200
            assert one_more.ask("POST", CALL, b"{}", JSON).status == 200
    finally:
        go_on.set()
        for line in lines:
            line.close()


def test_requests_whose_body_does_not_come_are_not_worked_on(server):
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n" % CALL.encode()
    lines = []
    try:
        for _ in range(40):
            lines.append(Wire(server.url))
            lines[-1].send(head)
        with wire(server.url) as one_more:
            for _ in range(10):
                assert one_more.ask("POST", CALL, b"{}", JSON).status == 200
        for line in lines:
            line.send(b"{}")
            assert line.read().status in {200, 408}
    finally:
        for line in lines:
            line.close()


# ---------------------------------------------------------------- memory


def test_the_memory_of_the_server_stays_bounded(tmp_path, record_property):
    """All of it at once, at the defaults but for the times: what all bodies and answers may take is 256 MiB."""
    flags = ("--body-timeout-ms", "2000", "--write-timeout-ms", "2000", "--memory-bytes-max", str(64 * MIB))
    with server_process(tmp_path / "db", *flags) as server:
        before = server.rss_bytes
        with wire(server.url) as line:
            assert line.ask("POST", "/logdb/v1/calls/create_topic", b'{"name":"t"}', JSON).status == 200
        floods = [hoard_bodies, hoard_bodies, hoard_answers, send_bombs, send_heads]
        threads = [threading.Thread(target=flood, args=(server.url,)) for flood in floods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with wire(server.url) as line:
            assert line.ask("GET", "/health/ready").status == 200
        record_property("told", f"server under hostile input: {before >> 20} MiB before, {server.rss_bytes_max >> 20} MiB at most")
        assert server.rss_bytes_max < before + 64 * MIB + 160 * MIB


def hoard_bodies(url):
    """Bodies of 48 MiB that stop short of their end."""
    lines = []
    for _ in range(6):
        line = Wire(url)
        line.socket.settimeout(0.5)
        lines.append(line)
        line.send(
            b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (BATCHES.encode(), TYPE.encode(), 48 * MIB)
        )
        try:
            for _ in range(47):
                line.send(b"x" * MIB)
        except OSError:
            continue
    for line in lines:
        line.close()


def hoard_answers(url):
    """Answers that nobody reads."""
    lines = []
    for _ in range(40):
        line = Wire(url)
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines.append(line)
        line.send(b"GET /logdb/v1/topics/t/partitions/0/batches HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    for line in lines:
        line.close()


def send_bombs(url):
    bomb = bomb_of("zstd")
    for _ in range(3):
        with wire(url) as line:
            assert line.ask("POST", CALL, bomb, JSON | {"Content-Encoding": "zstd"}).status == 413


def send_heads(url):
    for _ in range(200):
        with wire(url) as line:
            line.send(b"GET /%s HTTP/1.1\r\n" % (b"x" * 7000))


def test_topics_that_are_not_there_cost_little(server, monkeypatch):
    """A list of all topics is not made for each of them."""
    listed = []
    monkeypatch.setattr(ReadTransaction, "topics", listed.append)
    asked = [{"topic": f"nothing{at}", "partition": 0} for at in range(10)]
    status, said = server.call("/logdb/v1/partitions", {"positions": [[where, 0] for where in asked]})
    assert (status, said) == (200, [None] * 10)
    assert listed == []


def test_too_many_positions(line):
    refused(line.ask("POST", "/logdb/v1/partitions", many_positions(10_001), JSON), 422)


def many_positions(count):
    return json.dumps({"positions": [[{"topic": "t", "partition": at}, 0] for at in range(count)]}).encode()


@pytest.mark.parametrize("host", ["a b:1", "x:99999999", "x:65536", ":", "[::1", "[:::::]", "\udc80", "user@h", "h/../x", "a" * 300])
def test_a_host_that_is_none(server, line, host):
    cluster_id = server.call("/v3/clusters")[1]["data"][0]["cluster_id"]
    head = f"POST /v3/clusters/{cluster_id}/topics HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    line.send(head.encode(errors="surrogateescape") + b'Content-Length: 18\r\n\r\n{"topic_name":"n"}')
    refused(line.read(), 400)
    assert "n" not in [topic.name for topic in server.database.topics()]


def test_a_download_that_breaks_off_is_followed_by_nothing(tmp_path):
    """An error is no part of a backup, whose reader goes on behind what it has."""
    with served(tmp_path / "db") as server, wire(server.url) as line:
        server.database.create_topic("t")
        for _ in range(60):
            server.database.log("t").append(os.urandom(1_000_000))
        offer = line.ask("POST", "/logdb/v1/backups").json
        line.send(f"GET /logdb/v1/backups/{offer['id']} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        (file,) = (tmp_path / "db").glob("*.tmp/backup")
        line.socket.recv(1)
        os.truncate(file, 20 << 20)
        came = b"".join(iter(lambda: line.socket.recv(1 << 20), b""))
        assert len(came) < offer["copied"]["written_bytes"]
        assert b"HTTP/1.1" not in came[1000:]
