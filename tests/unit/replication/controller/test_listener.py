"""The controller's door on loopback: strangers, floods, what a node is refused for, and what a connection carries."""

import contextlib
import errno
import itertools
import socket
import ssl
import struct
import threading
import time
import tracemalloc

import pytest
import trustme

from logdb.errors import InvalidMessage, StaleBrokerEpoch
from logdb_replication.controller import connections
from logdb_replication.controller import listener as listeners
from logdb_replication.controller.connections import ControllerConnection
from logdb_replication.controller.listener import Listener
from logdb_replication.controller.messages import Describe, Described, Heard, Heartbeat, Propose, Proposed, Watch, Watched, encode
from logdb_replication.raft.errors import NotQuorumLeader
from logdb_replication.transport import handshake, sockets
from logdb_replication.transport.errors import PeerRefused
from logdb_replication.transport.frames import FrameWriter, Keys
from support.waiting import until

SECRET = b"s" * 32
OURS = handshake.Handshake(connections.PROTOCOL, "c", SECRET)


class Door:
    """A listener whose answers the test gives."""

    def __init__(self, **tls) -> None:
        self.asked, self.gone, self.answer = [], [], lambda request: Proposed(b"x")
        self.listener = Listener(("127.0.0.1", 0), "c", SECRET, 1, self._answer, self.gone.append, **tls)
        self.address = ("127.0.0.1", self.listener.port)

    def _answer(self, node, request):
        self.asked.append((node, request))
        return self.answer(request)

    def connection(self, *, cluster="c", secret=SECRET, target=1, sender=2, tls=None, timeout_s=5) -> ControllerConnection:
        return ControllerConnection(self.address, cluster, secret, sender, target, timeout_s, tls)

    def stranger(self, data: bytes = b"") -> socket.socket:
        sock = socket.create_connection(self.address, 5)
        sock.settimeout(10)
        with contextlib.suppress(OSError):
            sock.sendall(data)
        return sock

    def shaken(self) -> tuple[socket.socket, Keys]:
        """A connection made by hand."""
        sock = self.stranger(opening := OURS.hello(2, 1))
        deadline = time.monotonic() + 5
        accepting = OURS.receive_hello(sock, deadline)
        keys = Keys(SECRET, opening, accepting)
        assert handshake.receive(sock, 32, deadline) == keys.accepts
        sock.sendall(keys.opens)
        handshake.receive(sock, 36, deadline)  # an empty frame: welcome
        sock.settimeout(10)
        return sock, keys


@pytest.fixture
def door():
    made = Door()
    yield made
    made.listener.close()


def ended(sock: socket.socket) -> bool:
    try:
        while sock.recv(1000):
            pass
    except ConnectionError:
        return True
    finally:
        sock.close()
    return True


def test_requests_and_replies_in_turn(door):
    with contextlib.closing(door.connection()) as connection:
        for count in range(3):
            assert connection.ask(Propose(b"%d" % count, 10), 5) == Proposed(b"x")
    assert door.asked == [(2, Propose(b"%d" % count, 10)) for count in range(3)]
    assert door.gone == []


def test_a_refusal_leaves_the_connection_open(door):
    def answer(request):
        raise StaleBrokerEpoch(1, 2, 3) if isinstance(request, Heartbeat) else NotQuorumLeader(3)

    door.answer = answer
    with contextlib.closing(door.connection()) as connection:
        for _ in range(2):
            with pytest.raises(StaleBrokerEpoch, match="broker epoch 3"):
                connection.ask(Heartbeat(1, 2, 3), 5)
            with pytest.raises(NotQuorumLeader) as caught:
                connection.ask(Describe(), 5)
            assert caught.value.leader == 3


def test_a_large_reply_comes_in_pieces(door):
    large = Watched(7, bytes(range(256)) * 40_000)
    door.answer = lambda request: large
    with contextlib.closing(door.connection()) as connection:
        assert connection.ask(Watch(1, 0), 10) == large


def test_the_end_of_a_connection_with_heartbeats_is_told(door):
    door.answer = lambda request: Heard(False, False)
    connection = door.connection(sender=3)
    connection.ask(Heartbeat(1, 1, 1), 5)
    connection.close()
    until(lambda: door.gone == [3])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cluster": "d"}, "another cluster|closed the connection"),
        ({"secret": b"t" * 32}, "does not have the cluster's secret"),
        ({"target": 2}, "this is the controller of node 1, not of node 2"),
    ],
)
def test_who_is_refused_learns_why(door, changes, reason):
    with pytest.raises(PeerRefused, match=reason):
        door.connection(**changes)
    assert not door.listener._connections


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + bytes(100),
        bytes(84),
        b"LDBQRM01" + bytes(76),
        handshake.Handshake(connections.PROTOCOL, "other", SECRET).hello(1, 2),
        OURS.hello(2, 1) + bytes(32),
        b"\xff" * 4096,
    ],
    ids=["HTTP", "zeroes", "a magic alone", "another cluster", "no proof", "noise"],
)
def test_a_stranger_is_closed(door, data):
    assert ended(door.stranger(data))
    until(lambda: not door.listener._strangers)
    assert door.asked == []


def test_a_flood_of_strangers_costs_little_and_keeps_no_broker_out(door):
    tracemalloc.start()
    try:
        strangers = [door.stranger(b"LDB") for _ in range(4 * sockets.STRANGERS_MAX)]
        until(lambda: len(door.listener._strangers) <= sockets.STRANGERS_MAX)
        with contextlib.closing(door.connection()) as connection:
            assert connection.ask(Describe(), 5) == Proposed(b"x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert ended(strangers[0])
    for sock in strangers:
        sock.close()


def test_refusals_of_strangers_are_counted_not_written(door, caplog):
    for _ in range(3 * sockets.REFUSAL_LINE_COUNT_MAX):
        with pytest.raises((OSError, PeerRefused)):
            door.connection(secret=b"x" * 32)
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == sockets.REFUSAL_LINE_COUNT_MAX


def test_a_stranger_that_says_nothing_is_closed_in_time(door, monkeypatch):
    monkeypatch.setattr(connections, "HANDSHAKE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(sockets, "HANDSHAKE_TIMEOUT_S", 0.1)
    assert ended(door.stranger(b"LD"))


def test_there_are_so_many_connections(door, monkeypatch):
    monkeypatch.setattr(listeners, "CONNECTIONS_MAX", 1)
    with contextlib.closing(door.connection()) as connection:
        assert connection.ask(Describe(), 5)
        with pytest.raises(PeerRefused, match="1 connections are open"):
            door.connection()
    until(lambda: not door.listener._connections)
    door.connection().close()


@pytest.mark.parametrize(
    "frame",
    [
        lambda keys: b"\x7f\xff\xff\xff" + bytes(32),
        lambda keys: bytes(range(256)) * 300,
        lambda keys: FrameWriter(keys.back).frame(encode(Describe())),
        lambda keys: FrameWriter(keys.forth).frame(b"\xc1"),
        lambda keys: FrameWriter(keys.forth).frame(b""),
        lambda keys: FrameWriter(keys.forth).frame(encode(Watched(1))),
        lambda keys: FrameWriter(keys.forth).frame(encode(Watch(0, 10**9))),
        lambda keys: 2 * FrameWriter(keys.forth).frame(encode(Describe())),
    ],
    ids=["huge", "garbage", "another key", "no message", "empty", "a reply", "too long a wait", "replayed"],
)
def test_a_hostile_frame_ends_the_connection(door, frame):
    sock, keys = door.shaken()
    sock.sendall(frame(keys))
    assert ended(sock)
    until(lambda: not door.listener._connections)


def test_a_controller_that_answers_nonsense_is_no_controller(door):
    class Odd(Describe, frozen=True, tag="Odd"):
        pass

    door.answer = lambda request: Odd()
    with contextlib.closing(door.connection()) as connection, pytest.raises(InvalidMessage):
        connection.ask(Describe(), 5)


def test_an_answer_that_takes_too_long_is_not_waited_for(door):
    over = threading.Event()
    door.answer = lambda request: over.wait(10) and Proposed(b"")
    with contextlib.closing(door.connection()) as connection, pytest.raises(TimeoutError):
        connection.ask(Describe(), 0.1)
    over.set()


def test_without_descriptors_few_lines_are_written(door, caplog, monkeypatch):
    monkeypatch.setattr(listeners, "_ACCEPT_AGAIN_S", 0.001)
    failures, real = itertools.count(), door.listener._listener

    class Failing:
        def accept(self):
            if next(failures) < 3 * sockets.REFUSAL_LINE_COUNT_MAX:
                raise OSError(errno.EMFILE, "Too many open files")
            return real.accept()

        def __getattr__(self, name):
            return getattr(real, name)

    door.listener._listener = Failing()
    for _ in range(2):  # the first wakes the thread that accepts
        with contextlib.closing(door.connection()) as connection:
            connection.ask(Describe(), 5)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == sockets.REFUSAL_LINE_COUNT_MAX
    assert {line.partition(":")[0] for line in lines} == {"no connection is accepted"}


def test_an_error_of_ours_ends_the_connection_and_not_the_listener(door, caplog):
    door.answer = lambda request: struct.pack("x", 1)
    with contextlib.closing(door.connection()) as connection, pytest.raises((PeerRefused, OSError)):
        connection.ask(Describe(), 5)
    until(lambda: "struct.error" in caplog.text)
    door.answer = lambda request: Described({}, [])
    with contextlib.closing(door.connection()) as connection:
        assert connection.ask(Describe(), 5) == Described({}, [])


def test_over_tls():
    authority, other = trustme.CA(), trustme.CA()
    server, client, foreign = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.issue_cert("node").configure_cert(client)
    other.issue_cert("node").configure_cert(foreign)
    for context in (server, client, foreign):
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    door = Door(tls=server)
    with contextlib.closing(door.listener):
        with contextlib.closing(door.connection(tls=client)) as connection:
            assert connection.ask(Describe(), 5) == Proposed(b"x")
        for tls in (None, foreign):
            with pytest.raises((PeerRefused, OSError)):
                door.connection(tls=tls, timeout_s=1).ask(Describe(), 1)
        assert len(door.asked) == 1
