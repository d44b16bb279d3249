"""Connections on loopback: strangers, and what voters are refused for."""

import contextlib
import re
import socket
import ssl
import time
import tracemalloc

import pytest
import trustme

from logdb.errors import InvalidMessage
from logdb_replication.raft import tcp
from logdb_replication.raft.messages import encode
from logdb_replication.raft.tcp import TcpTransport
from logdb_replication.raft.voters import Peer, Voter
from logdb_replication.transport import frames, handshake, sockets
from logdb_replication.transport.frames import FrameWriter, Keys

SECRET = b"s" * 32
MESSAGE = {"type": "request_vote", "start_id": 0, "term": 1, "last_log_index": 1, "last_log_term": 0}


@contextlib.contextmanager
def transport(number: int, *, cluster: str = "c", secret: bytes = SECRET, port: int = 0, incarnation: int | None = None, **tls):
    made = TcpTransport(cluster, secret, Voter(number, incarnation or number * 11, "localhost", 1), ("127.0.0.1", port), **tls)
    made._voter = made._voter._replace(port=made.port)
    made.got = []
    made.on_message = lambda peer, message: made.got.append((peer.voter, message))
    try:
        yield made
    finally:
        made.destroy()


def run(*transports: TcpTransport, until, seconds: float = 10):
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "it does not happen"
        for each in transports:
            each.wait(0.01)


def shaken(one: TcpTransport, other: TcpTransport) -> tuple[socket.socket, Keys]:
    """A connection to ``other`` made by hand, in the name of ``one``."""
    sock = socket.create_connection(("127.0.0.1", other.port), 5)
    deadline = time.monotonic() + 5
    sock.sendall(opening := one._handshake.hello(one._voter, other._voter))
    other.wait(1)
    accepting = one._handshake.receive_hello(sock, deadline)
    keys = Keys(SECRET, opening, accepting)
    assert handshake.receive(sock, 32, deadline) == keys.accepts
    sock.sendall(keys.opens)
    handshake.receive(sock, frames.HEAD.size, deadline)
    return sock, keys


def closed(sock: socket.socket, *transports: TcpTransport) -> bool:
    sock.settimeout(0.01)
    for _ in range(500):
        for each in transports:
            each.wait(0.01)
        try:
            if not sock.recv(1000):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_messages_go_both_ways_over_two_connections():
    with transport(1) as one, transport(2) as two:
        one.add(Peer(two._voter))
        two.add(Peer(one._voter))
        run(one, two, until=lambda: one._outgoing and two._outgoing)
        assert one.send(Peer(two._voter), MESSAGE)
        assert two.send(Peer(one._voter), MESSAGE)
        run(one, two, until=lambda: one.got and two.got)
        assert two.got == [(one._voter, MESSAGE)]


def test_a_large_message_waits_in_the_queue_and_a_full_queue_drops():
    with transport(1) as one, transport(2) as two:
        one.add(Peer(two._voter))
        run(one, two, until=lambda: one._outgoing)
        sent = 0
        while one.send(Peer(two._voter), piece(1, 3 << 20)):
            sent += 1
        assert 3 <= sent < 20
        run(one, two, until=lambda: len(two.got) == sent)
        assert one.send(Peer(two._voter), MESSAGE)


def piece(place: int, size_bytes: int = 256 << 10) -> dict[str, object]:
    """One of a snapshot; ``place`` tells it from others."""
    return {"type": "snapshot", "term": place, "round": 0, "index": 1, "offset": 0, "size_bytes": 1, "data": bytes(size_bytes)}


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_votes_overtake_a_snapshot_that_a_slow_voter_is_sent(is_encrypted):
    tls = contexts() if is_encrypted else {}
    with transport(1, **tls) as one, transport(2, **tls) as two:
        two._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)  # as far as a slow network goes
        one.add(Peer(two._voter))
        run(one, two, until=lambda: one._outgoing)
        sent = 0
        while one.send(Peer(two._voter), piece(sent)):
            sent += 1
        assert sent > 4
        votes = [MESSAGE | {"term": term} for term in range(3)]
        assert all(one.send(Peer(two._voter), vote) for vote in votes)
        run(one, two, until=lambda: len(two.got) == sent + 3)
        kinds = [message["type"] for _, message in two.got]
        assert kinds.index("request_vote") * (256 << 10) < 1 << 20
        for kind, count in (("snapshot", sent), ("request_vote", 3)):
            assert [message["term"] for _, message in two.got if message["type"] == kind] == list(range(count))


def test_what_waits_for_a_voter_that_takes_nothing_is_bounded():
    with transport(1) as one, transport(2) as two:
        one.add(Peer(two._voter))
        run(one, two, until=lambda: one._outgoing)
        (link,) = one._outgoing.values()
        while one.send(Peer(two._voter), piece(0)):
            pass
        count = 0
        while one.send(Peer(two._voter), MESSAGE):
            count += 1
            assert count < 100_000
        assert count > 1_000
        assert link.waiting_bytes < tcp.QUEUE_SIZE_BYTES_MAX + (1 << 20) + (256 << 10)


def test_a_voter_that_is_answered_is_connected_with():
    with transport(1) as one, transport(2) as two:
        one.add(Peer(two._voter))
        two.on_message = two.send
        run(one, two, until=lambda: one._outgoing)
        run(one, two, until=lambda: one.got or not one.send(Peer(two._voter), MESSAGE))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cluster": "d"}, "a voter of another cluster|closed the connection"),
        ({"secret": b"t" * 32}, "does not have the cluster's secret"),
        ({"number": 2}, "two voters with the number 2"),
        ({"wanted": 99}, "this is voter 2 .*, not 2 "),
        ({"admit": "voter 1 has another incarnation here"}, "another incarnation here"),
    ],
)
def test_who_is_refused_learns_why(changes, reason, caplog):
    changes = {"number": 1, **changes}
    wanted, admit = changes.pop("wanted", None), changes.pop("admit", "")
    with transport(2) as two, transport(**changes) as one:
        two.admit = lambda voter: admit
        one.add(Peer(two._voter._replace(incarnation=wanted) if wanted else two._voter))
        run(one, two, until=lambda: any(re.search(reason, record.getMessage()) for record in caplog.records))
        assert not one._outgoing
        assert not two._incoming


def test_a_stranger_costs_a_hello_and_no_more(caplog):
    with transport(2) as two:
        tracemalloc.start()
        try:
            strangers = []
            for place in range(3 * sockets.STRANGERS_MAX):
                strangers.append(socket.create_connection(("127.0.0.1", two.port), 5))
                with contextlib.suppress(OSError):
                    strangers[-1].sendall((b"\xff\xff" if place % 2 else b"\x00\x50") + bytes(60))
                two.wait(0.1)
                assert len(two._strangers) <= sockets.STRANGERS_MAX
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2 << 20
        assert closed(strangers[0], two)
        with transport(1) as one:  # they do not keep a voter out
            one.add(Peer(two._voter))
            run(one, two, until=lambda: one._outgoing)
        for sock in strangers:
            sock.close()
    told = [record for record in caplog.records if record.getMessage().startswith("a connection to this voter")]
    assert len([record for record in told if record.levelname == "WARNING"]) == sockets.REFUSAL_LINE_COUNT_MAX


def test_a_replayed_frame_ends_the_connection():
    with transport(1) as one, transport(2) as two:
        sock, keys = shaken(one, two)
        frame = FrameWriter(keys.forth).frame(encode(MESSAGE))
        sock.sendall(frame)
        run(two, until=lambda: two.got)
        sock.sendall(frame)
        assert closed(sock, two)
        assert len(two.got) == 1
        again, _ = shaken(one, two)
        again.sendall(frame)  # on another connection: its key is another
        assert closed(again, two)
        assert len(two.got) == 1
        sock.close()
        again.close()


@pytest.mark.parametrize("kind", ["garbage", "huge", "no message"])
def test_hostile_frames_end_the_connection(kind):
    with transport(1) as one, transport(2) as two:
        sock, keys = shaken(one, two)
        sock.sendall(
            {
                "garbage": bytes(range(256)) * 300,
                "huge": b"\x7f\xff\xff\xff" + bytes(32),
                "no message": FrameWriter(keys.forth).frame(b"\x80\x04."),
            }[kind]
        )
        assert closed(sock, two)
        assert two.got == []
        sock.close()


def test_an_error_of_the_voter_is_no_fault_of_the_connection():
    """It leaves ``wait``, whatever its class, so that the voter stops."""
    with transport(1) as one, transport(2) as two:

        def fails(peer, message):
            raise InvalidMessage(0, "the state cannot be restored")

        two.on_message = fails
        one.add(Peer(two._voter))
        run(one, two, until=lambda: one._outgoing)
        assert one.send(Peer(two._voter), MESSAGE)
        with pytest.raises(InvalidMessage, match="cannot be restored"):
            run(two, until=lambda: not two._incoming)


def contexts() -> dict[str, ssl.SSLContext]:
    """TLS for both sides of a connection."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    authority.issue_cert("localhost").configure_cert(client)
    authority.configure_trust(client)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    return {"server_tls": server, "client_tls": client}


def test_over_tls():
    tls = contexts()
    with transport(1, **tls) as one, transport(2, **tls) as two:
        one.add(Peer(two._voter))
        run(one, two, until=lambda: one._outgoing)
        assert one.send(Peer(two._voter), piece(1, 3 << 20))
        assert one.send(Peer(two._voter), MESSAGE)
        run(one, two, until=lambda: len(two.got) == 2)
        with transport(3) as plain:
            plain.add(Peer(two._voter))
            for _ in range(10):
                plain.wait(0.02)
                two.wait(0.02)
            assert not plain._outgoing
