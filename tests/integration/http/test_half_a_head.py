"""However a stream of requests is cut into packets, the same ones are carried out: no begin of a head is forgotten."""

import fcntl
import os
import socket
import struct
import termios

import pytest

from support.batches import Rec, encode_batch
from support.serving import served
from support.waiting import until
from support.wire import wire

PATH = "/logdb/v1/topics/t/partitions/0/batches"
BATCH = encode_batch([Rec(value=b"x")])
SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))


def post(path, content_type, body, more=""):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(path, content_type, *parts):
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body


PLAIN = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
APPEND = post(PATH, "application/vnd.logdb.batches", BATCH)
FETCH = f"GET {PATH}?offset=0&max_bytes=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
CALL = post("/logdb/v1/calls/partition_count", "application/json", b'{"topic":"t"}')
HIDDEN = post("/logdb/v1/calls/partition_count", "application/json", b'{"topic":"' + APPEND + b'"}')  # an append that is none
CHUNKED = chunked("/logdb/v1/calls/partition_count", "application/json", b'{"topic"\r\n\r\n', b':"t"}')
STREAMS = {
    "plain, append, fetch": PLAIN + APPEND + FETCH,
    "append, chunks, append": APPEND + CHUNKED + APPEND,
    "fetch, call, append": FETCH + CALL + APPEND,
    "hidden, empty lines, append": HIDDEN + b"\r\n\r\n" + APPEND + PLAIN,
    "chunks, chunks, fetch": CHUNKED + CHUNKED + FETCH,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("cut") / "db", header_timeout_ms=1_000) as it:
        it.database.create_topic("t")
        it.database.log("t").append_batches(BATCH)
        yield it


def door_of(server):
    return server.server._doors[0]


def cuts(stream):
    """Pairs of positions: near each other, near where a head ends, and far apart; with a scale, more of them."""
    ends = [at + 4 for at in range(len(stream)) if stream[at : at + 4] == b"\r\n\r\n"]
    near = {end + more for end in ends for more in (-3, -1, 0, 1)}
    for first in range(1, len(stream)) if SCALE > 1 else sorted({*range(1, len(stream), 11), *near}):
        seconds = range(first + 1, len(stream)) if SCALE > 4 else {first + 1, *near}
        yield from ((first, second) for second in seconds if first < second < len(stream))


def unread(line, server):
    """How many bytes of a connection the server has not taken yet."""
    own = line.socket.getsockname()
    for connection in list(door_of(server)._connections.open):
        if connection.peername == own and connection._wire is not None:
            room = fcntl.ioctl(connection._wire.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
            return struct.unpack("i", room)[0]
    return 1


def answers(server, stream, *positions):
    """What is answered to a stream that comes in parts; offsets from where the log ended before."""
    begin, said = server.database.log("t").end_offset, []
    with wire(server.url) as line:
        line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start, stop in zip((0, *positions), (*positions, len(stream)), strict=True):
            line.send(stream[start:stop])
            for _ in range(200):
                if not unread(line, server):
                    break  # but where a thread is at the connection: then it comes together with the next part
        for _ in range(count_of(stream)):
            one = line.read()
            body = one.json if "json" in one.headers.get("content-type", "") else one.body
            if isinstance(body, dict) and "base_offset" in body:
                body = {name: offset - begin for name, offset in body.items()}
            said.append((one.status, body))
    return said, server.database.log("t").end_offset - begin


def count_of(stream):
    return stream.count(b" HTTP/1.1\r\n") - stream.count(b'"POST ')


@pytest.mark.parametrize("name", STREAMS)
def test_every_cut_gets_the_same_answers(server, name):
    stream = STREAMS[name]
    whole = answers(server, stream)
    assert [status for status, _ in whole[0]] == [400 if name.startswith("hidden") else 200, 200, 200]
    assert whole[1] == sum("base_offset" in str(body) for _, body in whole[0])
    count = 0
    for first, second in cuts(stream):
        assert answers(server, stream, first, second) == whole, (first, second, stream[:first], stream[first:second])
        count += 1
    assert count > 150


@pytest.mark.parametrize("first", [PLAIN, CALL, CHUNKED, APPEND, FETCH], ids=["plain", "call", "chunks", "append", "fetch"])
def test_what_follows_half_a_head_is_no_request_of_its_own(server, first):
    """The append is the value of a header, whose line breaks make it no HTTP."""
    end = server.database.log("t").end_offset
    with wire(server.url) as line:
        line.send(first + b"GET /topics HTTP/1.1\r\nHost: x\r\nX: ")
        assert line.read().status == 200
        line.send(APPEND)
        assert line.read().status == 400
        assert line.is_closed()
    assert server.database.log("t").end_offset == end + (first == APPEND)


@pytest.mark.parametrize("first", [PLAIN, CALL, CHUNKED, APPEND], ids=["plain", "call", "chunks", "append"])
def test_half_a_head_behind_a_request_has_as_long_as_one_before_it(server, first):
    with wire(server.url) as line:
        line.send(first + b"GET / HTTP/1.1\r\nX: ")
        assert line.read().status == 200
        (connection,) = [one for one in door_of(server)._connections.open if one.peername == line.socket.getsockname()]
        until(lambda: connection.asked_s, "the server to wait for the rest of the head")
        assert line.is_closed()


def test_empty_lines_are_no_way_to_stay(server):
    with wire(server.url) as line:
        line.send(b"\r\n")
        assert line.is_closed()


@pytest.mark.parametrize("packets", [1, 2])
def test_chunks_that_are_none_are_refused_at_once_however_they_come(server, packets, caplog):
    whole = CHUNKED.replace(b"5\r\n:", b"xyz\r\n:")
    with wire(server.url) as line:
        if packets == 2:
            line.send(whole[:-25])
            until(lambda: not unread(line, server), "the server to take the head")
        line.send(whole[-25:] if packets == 2 else whole)
        said = line.read()
        assert (said.status, said.json["message"][:17]) == (400, "the body breaks o")
        assert line.is_closed()
    assert not caplog.records
