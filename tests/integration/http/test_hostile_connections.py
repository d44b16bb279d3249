"""One address that takes connections and says nothing keeps nobody else out, nor for long itself."""

import socket
from urllib.parse import urlsplit

import pytest

from support.certificates import Authority
from support.honest import honest
from support.serving import served
from support.waiting import until
from support.wire import Wire, wire

COUNT = 200
LIMITS = {"connections_max": COUNT, "header_timeout_ms": 60_000}


@pytest.fixture
def sockets():
    opened = []
    yield opened
    for one in opened:
        one.close()


def connect(server, sockets, count):
    where = urlsplit(server.url)
    for _ in range(count):
        sockets.append(socket.create_connection((where.hostname, where.port), 30))


def places_of(server):
    return server.server._doors[0]._connections.slots


def test_silent_connections_of_one_address_leave_room_for_others(tmp_path, sockets):
    with served(tmp_path / "db", **LIMITS) as server, honest(server.url) as client:
        connect(server, sockets, 2 * COUNT)
        until(lambda: places_of(server).count >= COUNT // 4, "the share of one address")
        asked = len(client.statuses)
        until(lambda: len(client.statuses) > asked + 20, "answers beside them")
        assert places_of(server).count <= COUNT // 4 + 2
        with wire(server.url) as refused:
            said = refused.read()
            assert (said.status, said.headers["retry-after"]) == (503, "1")


def test_handshakes_that_do_not_begin_or_go_on_leave_room_for_others(tmp_path, sockets):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    with (
        served(tmp_path / "db", tls_cert=files.cert, tls_key=files.key, **LIMITS) as server,
        honest(server.url, context=authority.context()) as client,
    ):
        connect(server, sockets, COUNT)
        for one in sockets[::2]:
            try:
                one.sendall(b"\x16\x03\x01\x02\x00")
            except OSError:
                continue  # it was one too many
        until(lambda: places_of(server).count >= COUNT // 4, "the share of one address")
        asked = len(client.statuses)
        until(lambda: len(client.statuses) > asked + 20, "answers beside them")
        assert places_of(server).count <= COUNT // 4 + 2


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"GET / HTTP/1.1\r\nX: "], ids=["nothing", "an empty line", "a head"])
def test_a_connection_on_which_nothing_is_asked_is_closed(tmp_path, begin):
    with served(tmp_path / "db", header_timeout_ms=300) as server, wire(server.url) as line:
        line.send(begin)
        assert line.is_closed()


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"], ids=["nothing", "a hello", "no TLS"])
def test_places_of_handshakes_that_fail_are_free_again(tmp_path, begin):
    files = Authority(tmp_path / "ca").server()
    with served(tmp_path / "db", tls_cert=files.cert, tls_key=files.key, header_timeout_ms=300) as server:
        lines = [Wire(server.url) for _ in range(3)]
        lines[0].send(begin)
        for line in lines:
            line.send(begin)
            while not line.is_closed():
                pass
            line.close()
        until(lambda: not places_of(server).count, "all places to be free")


def test_places_of_clients_that_leave_are_free_again(tmp_path):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    with served(tmp_path / "db", tls_cert=files.cert, tls_key=files.key) as server:
        for begin in (b"", b"\x16\x03\x01\x02\x00"):
            with wire(server.url) as line:
                line.send(begin)
                until(lambda: places_of(server).count, "the server to see it")
            until(lambda: not places_of(server).count, "the place to be free")
        served_over_tls = server._replace(context=authority.context())
        assert served_over_tls.call("/health/live")[0] == 200
        until(lambda: not places_of(server).count, "the place to be free")


def test_too_many_that_shook_hands_are_told_so(tmp_path):
    authority = Authority(tmp_path / "ca")
    files = authority.server()
    options = {"tls_cert": files.cert, "tls_key": files.key, "connections_max": 1}
    with served(tmp_path / "db", **options) as server, wire(server.url):
        until(lambda: places_of(server).count, "the only place to be taken")
        where = urlsplit(server.url)
        plain = socket.create_connection((where.hostname, where.port), 30, ("127.0.0.99", 0))
        with authority.context().wrap_socket(plain, server_hostname=where.hostname) as secured:
            assert secured.recv(65536).startswith(b"HTTP/1.1 503 ")
        until(lambda: places_of(server).count == 1, "its place to be free")
