"""HTTP/1.1 on one socket: what goes out is as it should be, and what comes in is believed within bounds."""

import contextlib
import socket
import threading

import pytest

from logdb_http_api.remote.http_socket import Broken, Head, HttpSocket, TooLong


@pytest.fixture
def ends():
    """A client's end, and the server's."""
    here, there = socket.socketpair()
    with here, there:
        there.settimeout(30)
        yield HttpSocket(here, {"Host": "h"}), there


def answered(ends, *pieces, size_bytes_max=1000, into=None, close=False):
    """Head and body of what the server says in pieces."""
    client, server = ends

    def say():
        with contextlib.suppress(BrokenPipeError):
            for piece in pieces:
                server.sendall(piece)
            if close:
                server.shutdown(socket.SHUT_WR)

    speaker = threading.Thread(target=say)
    speaker.start()
    try:
        head = client.head(lambda: None)
        return head, bytes(client.body(head, size_bytes_max, into))
    finally:
        speaker.join()


# ---------------------------------------------------------------- out


@pytest.mark.parametrize(
    ("method", "body", "wanted"),
    [
        ("GET", None, b"GET /p?q=1 HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n"),
        ("POST", None, b"POST /p?q=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nA: b\r\n\r\n"),
        ("POST", b"", b"POST /p?q=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nA: b\r\n\r\n"),
        ("POST", b"xy", b"POST /p?q=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nA: b\r\n\r\nxy"),
        ("POST", memoryview(bytes(100_000)), b"POST /p?q=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\nA: b\r\n\r\n" + bytes(100_000)),
    ],
    ids=["get", "no body", "empty body", "small", "large"],
)
def test_a_request(ends, method, body, wanted):
    client, server = ends
    sender = threading.Thread(target=client.send, args=(method, "/p?q=1", body, {"A": "b"}, 30))
    sender.start()
    came = b""
    while len(came) < len(wanted):
        came += server.recv(1 << 16)
    sender.join()
    assert came == wanted


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ä"])
def test_a_target_that_would_break_the_line(ends, target):
    with pytest.raises(ValueError, match="cannot be asked for"):
        ends[0].send("GET", target, None, {}, 30)


@pytest.mark.parametrize("headers", [{"A": "b\r\nX: y"}, {"A": "b\n"}, {"A\r\nX": "b"}, {"A": "b\0"}, {"": "b"}])
def test_a_header_that_would_break_the_line(ends, headers):
    with pytest.raises(ValueError, match="cannot be sent"):
        ends[0].send("GET", "/", None, headers, 30)


# ---------------------------------------------------------------- in


def test_an_answer_in_pieces_and_the_next(ends):
    answer = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nA:b\r\na: \tc \r\n\r\nhello"
    head, body = answered(ends, *(bytes([one]) for one in answer))
    assert (head, body) == (Head(201, {"content-length": "5", "a": "b, c"}, 5), b"hello")
    assert not ends[0].has_more
    assert ends[0].lasts
    assert answered(ends, answer + answer)[1] == b"hello"
    assert ends[0].has_more
    assert answered(ends)[1] == b"hello"


@pytest.mark.parametrize("length", [0, 3, 5000, 300_000])
def test_a_body_of_any_length(ends, length):
    body = bytes(range(250)) * 1200
    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length
    for into in (None, bytearray(300_000), bytearray(10)):
        assert answered(ends, said + body[:length], size_bytes_max=300_000, into=into)[1] == body[:length]


def test_a_body_lies_where_it_is_wanted_but_no_refusal_does(ends):
    into = bytearray(10)
    assert answered(ends, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", into=into)[1] == b"hello"
    assert into == b"hello\0\0\0\0\0"
    assert answered(ends, b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", into=into)[1] == b"no"
    assert into == b"hello\0\0\0\0\0"


def test_what_comes_before_the_answer(ends):
    client, server = ends
    waiting = []
    server.sendall(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\nA: b\r\n\r\nHTTP/1.1 204 No\r\n\r\n"
    )
    head = client.head(lambda: waiting.append(1))
    assert (head, client.body(head, 10, None), waiting) == (Head(204, {}, 0), b"", [1, 1])


def test_chunks(ends):
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: u\r\n\r\n"
    assert answered(ends, *(bytes([one]) for one in said))[1] == b"hello!"
    assert answered(ends, said)[1] == b"hello!"
    assert ends[0].lasts


def test_a_body_that_ends_with_the_connection(ends):
    assert answered(ends, b"HTTP/1.1 200 OK\r\n\r\nhello", close=True)[1] == b"hello"
    assert not ends[0].lasts


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: Close\r\n"])
def test_the_last_answer(ends, head):
    assert answered(ends, head + b"Content-Length: 1\r\n\r\nx")[1] == b"x"
    assert not ends[0].lasts


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1001),
    ],
)
def test_too_long(ends, said):
    with pytest.raises(TooLong):
        answered(ends, said)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 999 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + bytes(70_000) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + bytes(899),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello, world\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 101,
    ],
)
@pytest.mark.parametrize("into", [None, bytearray(1000)], ids=["new", "into"])
def test_what_is_no_answer(ends, said, into):
    with pytest.raises(Broken):
        answered(ends, said, into=into, close=True)
