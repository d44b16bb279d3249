"""Connections between voters: a transport as pysyncobj wants it, on sockets that do not block.

    open or accept ──► (TLS) ──► handshake, in a thread of its own ──► handed to the loop ──► frames, in the loop's thread

Each voter opens a connection to each other one and sends on it; it listens on those that the others open.  What is slow or may be hostile
(names, connects, TLS, proofs) happens in short-lived threads, bounded in number and time; the loop's thread only sees sockets of voters
that have proven the secret.  A message that finds no connection, or one whose queue is full, is dropped: Raft sends it again.

Threading: ``wait``, ``send``, ``addNode``, ``dropNode``, ``destroy``: the node's thread.  ``wake``: any.
"""

import contextlib
import ipaddress
import logging
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable

from pysyncobj.transport import Transport

from logdb.errors import InvalidMessage, ThreadUnavailable
from logdb.line_limit import LineLimit
from logdb.threads import renewed, started
from logdb_replication.raft import frames
from logdb_replication.raft.errors import PeerRefused
from logdb_replication.raft.frames import FrameReader, FrameWriter
from logdb_replication.raft.messages import Message, decode, encode
from logdb_replication.raft.voters import Peer, Voter

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 3.0
HANDSHAKES_MAX = 16
BACKLOG = 128  # of the system: where it is full, a connection is tried again after a second
RETRY_S = 0.2
REFUSAL_LINE_COUNT_MAX, REFUSAL_WINDOW_MS = 10, 60_000  # log lines about strangers
QUEUE_SIZE_BYTES_MAX = 8 << 20
_READ_SIZE_BYTES = 256 << 10
_Socket = socket.socket


class Link:
    """A connection that has shaken hands; ``writer`` where this voter opened it, else ``reader``."""

    def __init__(self, sock: _Socket, peer: Peer, *, writer: FrameWriter | None = None, reader: FrameReader | None = None) -> None:
        self.sock, self.peer, self.writer, self.reader = sock, peer, writer, reader
        self.queue, self.full = bytearray(), False  # ``full``: the selector tells when the socket takes more


class TcpTransport(Transport):  # type: ignore[misc]  # pysyncobj ships no types
    """The connections of one voter.

    Field            Changed by                            Trusted
    ``_outgoing``    the node's thread                     authenticated links, by peer
    ``_wanted``      the node's thread                     peers to be connected with: when to try next
    ``_arrived``     handshakes; taken by the node's       under ``_lock``
    ``_shaking``     handshakes                            under ``_lock``: connections that have proven nothing, by a key of their own
    """

    def __init__(
        self,
        cluster: str,
        secret: bytes,
        voter: Voter,
        bind: tuple[str, int],
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        """Listen at ``bind``; raises OSError where that cannot be.

        Args:
            secret: The cluster's, 16 bytes at least.
            server_tls, client_tls: Both, or none: connections are not encrypted then.
        """
        super().__init__(None, None, ())
        if len(secret) < frames.SECRET_SIZE_BYTES_MIN:
            raise ValueError(f"a secret of {len(secret)} bytes; at least {frames.SECRET_SIZE_BYTES_MIN} are needed")
        self._listener = listening(bind)  # before all else that must be closed
        self._cluster, self._secret, self._voter = cluster, secret, voter
        self._server_tls, self._client_tls = server_tls, client_tls
        self._selector = selectors.DefaultSelector()
        self._lock = renewed(threading.Lock())
        self._arrived: deque[Link] = deque()
        self._shaking: dict[object, _Socket] = {}
        self._dialing: set[object] = set()
        self._wanted: dict[Peer, float] = {}
        self._outgoing: dict[Peer, Link] = {}
        self._incoming: dict[Peer, Link] = {}
        self._refusals: dict[object, str] = {}
        self._lines = line_limit(logger)
        self.start_id = 0  # of this voter's start, in every message
        self.admit: Callable[[Voter], str] = lambda _: ""  # why a voter is refused, which has proven the secret
        self._closed = False
        self._awake, self._wakes = socket.socketpair()
        self._awake.setblocking(False)
        self._wakes.setblocking(False)
        self._selector.register(self._awake, selectors.EVENT_READ, None)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    # ------------------------------------------------------------ as pysyncobj calls it

    def addNode(self, peer: Peer) -> None:
        self._wanted[peer] = 0.0

    def dropNode(self, peer: Peer) -> None:
        self._wanted.pop(peer, None)
        if (link := self._outgoing.get(peer)) is not None:
            self._drop(link, "no voter any more")

    def send(self, peer: Peer, message: Message) -> bool:
        link = self._outgoing.get(peer)
        if link is None:
            if peer not in self._wanted and not self._closed:
                self._dial(peer)  # it asked, and is no voter that is known here yet
            return False
        if len(link.queue) > QUEUE_SIZE_BYTES_MAX:
            return False
        assert link.writer is not None
        link.queue += link.writer.frame(encode({**message, "start_id": self.start_id}))
        self._flush(link)
        return True

    def destroy(self) -> None:
        """Close everything; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with self._lock:
            for sock in [*self._shaking.values(), *(link.sock for link in self._arrived)]:
                _close(sock)
        for link in [*self._outgoing.values(), *self._incoming.values()]:
            _close(link.sock)
        self._outgoing.clear()
        self._incoming.clear()
        for sock in (self._listener, self._awake, self._wakes):
            sock.close()
        self._selector.close()

    # ------------------------------------------------------------ the loop

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake; closed: nothing waits
            self._wakes.send(b"\0")

    def wait(self, timeout_s: float) -> None:
        """Wait for something to do, and do it."""
        if self._closed:
            return
        for peer, due in list(self._wanted.items()):
            if peer not in self._outgoing and due <= time.monotonic():
                self._wanted[peer] = time.monotonic() + RETRY_S
                self._dial(peer)
        for key, events in self._selector.select(min(timeout_s, RETRY_S)):
            if self._is_closed():  # a message has stopped the voter
                return
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._awake:
                self._take_arrived()
            elif isinstance(key.data, Link):
                if events & selectors.EVENT_WRITE:
                    self._flush(key.data)
                if events & selectors.EVENT_READ:
                    self._read(key.data)

    def _is_closed(self) -> bool:
        return self._closed

    def _take_arrived(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(4096)
        while True:
            with self._lock:
                if not self._arrived:
                    return
                link = self._arrived.popleft()
            links = self._outgoing if link.writer is not None else self._incoming
            if (old := links.pop(link.peer, None)) is not None:
                self._forget(old)
            links[link.peer] = link
            link.sock.setblocking(False)
            self._selector.register(link.sock, selectors.EVENT_READ, link)
            if links is self._outgoing:
                self._onNodeConnected(link.peer)

    def _read(self, link: Link) -> None:
        try:
            data = link.sock.recv(_READ_SIZE_BYTES)
            while isinstance(link.sock, ssl.SSLSocket) and link.sock.pending():
                data += link.sock.recv(link.sock.pending())
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._drop(link, str(error))
            return
        if not data or link.reader is None:
            self._drop(link, "closed" if not data else "it has nothing to say here")
            return
        try:
            for payload in link.reader.feed(data):
                self._onMessageReceived(link.peer, decode(payload))
                if self._is_closed():
                    return
        except (PeerRefused, InvalidMessage) as error:
            logger.warning("voter %s: %s", link.peer, error)
            self._drop(link, str(error))

    def _flush(self, link: Link) -> None:
        try:
            while link.queue:
                del link.queue[: link.sock.send(memoryview(link.queue)[:_READ_SIZE_BYTES].tobytes())]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._drop(link, str(error))
            return
        if link.full != bool(link.queue):
            link.full = bool(link.queue)
            self._selector.modify(link.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if link.full else 0), link)

    def _drop(self, link: Link, reason: str) -> None:
        links = self._outgoing if link.writer is not None else self._incoming
        if links.get(link.peer) is link:
            del links[link.peer]
            self._forget(link)
            logger.debug("connection with voter %s: %s", link.peer, reason)
            if links is self._outgoing:
                self._onNodeDisconnected(link.peer)

    def _forget(self, link: Link) -> None:
        self._selector.unregister(link.sock)
        _close(link.sock)

    # ------------------------------------------------------------ handshakes, each in a thread

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        with self._lock:
            if len(self._shaking) >= HANDSHAKES_MAX:  # strangers that wait do not keep voters out
                _close(self._shaking.pop(next(iter(self._shaking))))
            self._shaking[(key := object())] = sock
        self._begin("logdb-quorum-accept", key, lambda: self._shake_accepted(key, sock))

    def _dial(self, peer: Peer) -> None:
        if peer not in self._dialing:
            self._dialing.add(peer)
            self._begin("logdb-quorum-dial", peer, lambda: self._shake_dialed(peer))

    def _begin(self, name: str, of: object, shake: Callable[[], Link]) -> None:
        def run() -> None:
            try:
                link = shake()
                with self._lock:
                    self._refusals.pop(of, None)
                    if not self._closed:
                        self._arrived.append(link)
                    else:
                        _close(link.sock)
            except (OSError, PeerRefused) as error:
                self._tell(of, error)
            finally:
                with self._lock:
                    self._dialing.discard(of)
                    self._shaking.pop(of, None)
            self.wake()

        try:
            started(name, run)
        except ThreadUnavailable as error:
            if self._lines.may_write():
                logger.warning("%s", error)
            with self._lock:
                self._dialing.discard(of)
                if (sock := self._shaking.pop(of, None)) is not None:
                    _close(sock)

    def _tell(self, of: object, error: Exception) -> None:
        """A voter's refusal is logged once, those of strangers within a limit; that a voter is away, not at all."""
        if not isinstance(error, PeerRefused) or self._refusals.get(of) == str(error):
            logger.debug("no connection with %s: %s", of, error)
        elif isinstance(of, Peer):
            self._refusals[of] = str(error)
            logger.warning("%s: %s", of, error)
        elif self._lines.may_write():
            logger.warning("a connection to this voter: %s", error)

    def _shake_dialed(self, peer: Peer) -> Link:
        sock = socket.create_connection((peer.voter.host, peer.voter.port), HANDSHAKE_TIMEOUT_S)
        try:
            sock = _prepared(sock)
            if self._client_tls is not None:
                sock = self._client_tls.wrap_socket(sock, server_hostname=peer.voter.host)
            opening = frames.hello(self._cluster, self._voter, peer.voter)
            sock.sendall(opening)
            accepting = _receive_hello(sock)
            sender, _ = frames.read_hello(accepting, self._cluster)
            keys = frames.Keys(self._secret, opening, accepting)
            frames.check(_receive(sock, frames.MAC_SIZE_BYTES), keys.accepts)
            sock.sendall(keys.opens)
            size_bytes, mac = frames.HEAD.unpack(head := _receive(sock, frames.HEAD.size))
            del mac
            if size_bytes > frames.HELLO_SIZE_BYTES_MAX:
                raise PeerRefused("its answer is too long")
            (reason,) = FrameReader(keys.back).feed(head + _receive(sock, size_bytes))
            if reason:
                raise PeerRefused(f"voter {sender} says: {reason.decode(errors='replace')}")
            if sender.id != peer.id:
                raise PeerRefused(f"voter {sender} answered")
            return Link(sock, peer, writer=FrameWriter(keys.forth))
        except BaseException:
            _close(sock)
            raise

    def _shake_accepted(self, key: object, sock: _Socket) -> Link:
        try:
            sock.settimeout(HANDSHAKE_TIMEOUT_S)
            sock = _prepared(sock)
            if self._server_tls is not None:
                sock = wrapped = self._server_tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                with self._lock:
                    if key in self._shaking:
                        self._shaking[key] = sock
                wrapped.do_handshake()
            opening = _receive_hello(sock)
            sender, target = frames.read_hello(opening, self._cluster)
            accepting = frames.hello(self._cluster, self._voter, sender)
            keys = frames.Keys(self._secret, opening, accepting)
            sock.sendall(accepting + keys.accepts)
            frames.check(_receive(sock, frames.MAC_SIZE_BYTES), keys.opens)
            reason = self._reason_against(sender, target)
            sock.sendall(FrameWriter(keys.back).frame(reason.encode()))
            if reason:
                raise PeerRefused(f"voter {sender}: {reason}")
            return Link(sock, Peer(sender), reader=FrameReader(keys.forth))
        except BaseException:
            _close(sock)
            raise

    def _reason_against(self, sender: Voter, target: Voter) -> str:
        if sender.number == self._voter.number:
            return f"two voters with the number {sender.number}"
        if target.id != self._voter.id:
            return f"this is voter {self._voter}, not {target}"
        return self.admit(sender)


def line_limit(logger: logging.Logger) -> LineLimit:
    """The bound on the lines of ``logger`` about connections that have proven nothing."""

    def monotonic_ms() -> int:
        return time.monotonic_ns() // 1_000_000

    return LineLimit(logger, "refused connections", monotonic_ms, count_max=REFUSAL_LINE_COUNT_MAX, window_ms=REFUSAL_WINDOW_MS)


def listening(bind: tuple[str, int]) -> _Socket:
    """A socket that listens at an address; the host empty: at all of this machine.  Raises OSError."""
    host, _ = bind
    everywhere = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
    return socket.create_server(bind, family=family, backlog=BACKLOG, dualstack_ipv6=everywhere)


def bind_address(address: tuple[str, int]) -> tuple[str, int]:
    """Where to listen so that others reach this machine at ``address``.

    By its name that is everywhere: many a machine knows its own name as 127.0.1.1.
    """
    host, port = address
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return address
    return address if host == "localhost" else ("", port)


def _prepared(sock: _Socket) -> _Socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _receive(sock: _Socket, size_bytes: int) -> bytes:
    deadline, data = time.monotonic() + HANDSHAKE_TIMEOUT_S, b""
    while len(data) < size_bytes:
        if not (part := sock.recv(size_bytes - len(data))) or time.monotonic() > deadline:
            raise PeerRefused("it closed the connection, or is too slow")
        data += part
    return data


def _receive_hello(sock: _Socket) -> bytes:
    length = _receive(sock, frames.LENGTH.size)
    if (size_bytes := frames.LENGTH.unpack(length)[0]) > frames.HELLO_SIZE_BYTES_MAX:
        raise PeerRefused(f"a hello of {size_bytes} bytes")
    return length + _receive(sock, size_bytes)


def _close(sock: _Socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
    sock.close()
