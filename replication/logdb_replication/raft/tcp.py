"""Connections between voters, on sockets that do not block.

    open or accept ──► (TLS) ──► handshake, in a thread of its own ──► handed to the loop ──► frames, in the loop's thread

Handshake and frames are those of ``transport``; who speaks is a voter.

Each voter opens a connection to each other one and sends on it; it listens on those that the others open.  What is slow or may be hostile
(names, connects, TLS, proofs) happens in short-lived threads, bounded in number and time; the loop's thread only sees sockets of voters
that have proven the secret.  A message that finds no connection, or one whose queue is full, is dropped: Raft sends it again.

A connection has two queues.  Entries, with the heartbeats between them, and pieces of a snapshot may be many and large; a follower hears
its leader by each of them.  Votes, answers, and the heartbeats between two pieces are small, and overtake those: they wait for the rest of
one frame, and for what the kernel has not sent.

    send ──► urgent ──┐
        └──► bulk ────┴──► framed, one at a time ──► sending ──► the socket

Threading: ``wait``, ``send``, ``add``, ``drop``, ``destroy``: the node's thread.  ``wake``: any.
"""

import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from logdb.errors import InvalidMessage, ThreadUnavailable
from logdb.threads import renewed, started
from logdb_replication.raft.messages import Message, decode, encode
from logdb_replication.raft.voters import Peer, Voter, decode_voter, encode_voter
from logdb_replication.transport.errors import PeerRefused
from logdb_replication.transport.frames import FrameReader, FrameWriter
from logdb_replication.transport.handshake import HANDSHAKE_TIMEOUT_S, Handshake, Protocol
from logdb_replication.transport.sockets import Strangers, close, connected, line_limit, listening

logger = logging.getLogger(__name__)

PROTOCOL = Protocol(b"LDBQRM02", "voter", encode_voter, decode_voter)
RETRY_S = 0.2
QUEUE_SIZE_BYTES_MAX = 8 << 20
_URGENT_SIZE_BYTES_MAX = 256 << 10
_UNSENT_BYTES_MAX = 128 << 10  # in the kernel
_READ_SIZE_BYTES = 256 << 10
_Socket = socket.socket


class Queue:
    """Messages of one kind, as they are encoded; the last one may be longer than there is room."""

    def __init__(self, size_bytes_max: int) -> None:
        self._messages, self._size_bytes_max, self.size_bytes = deque[bytes](), size_bytes_max, 0

    def put(self, message: bytes) -> bool:
        """Whether there was room."""
        if self.size_bytes > self._size_bytes_max:
            return False
        self._messages.append(message)
        self.size_bytes += len(message)
        return True

    def take(self) -> bytes | None:
        if not self._messages:
            return None
        message = self._messages.popleft()
        self.size_bytes -= len(message)
        return message


class Link:
    """A connection that has shaken hands; ``writer`` where this voter opened it, else ``reader``.

    Attributes:
        sending: The rest of a frame.  The other side counts frames, so a message becomes a frame when its turn has come.
        full: The selector tells when the socket takes more.
    """

    def __init__(self, sock: _Socket, peer: Peer, *, writer: FrameWriter | None = None, reader: FrameReader | None = None) -> None:
        self.sock, self.peer, self.writer, self.reader = sock, peer, writer, reader
        self._urgent, self._bulk = Queue(_URGENT_SIZE_BYTES_MAX), Queue(QUEUE_SIZE_BYTES_MAX)
        self.sending, self.full = memoryview(b""), False

    def put(self, message: Message) -> bool:
        """Whether there was room."""
        kind = message["type"]
        is_bulk = kind == "append_entries" or (kind == "snapshot" and message["data"])
        return (self._bulk if is_bulk else self._urgent).put(encode(message))

    def has_more(self) -> bool:
        """Whether something is to be sent: ``sending`` is some of it."""
        if not self.sending:
            message = self._urgent.take() or self._bulk.take()
            if message is None:
                return False
            assert self.writer is not None
            self.sending = memoryview(self.writer.frame(message))
        return True

    @property
    def waiting_bytes(self) -> int:
        """What waits here."""
        return self._urgent.size_bytes + self._bulk.size_bytes + len(self.sending)


class TcpTransport:
    """The connections of one voter: a ``node.Transport``.

    Field            Changed by                            Trusted
    ``_outgoing``    the node's thread                     authenticated links, by peer
    ``_wanted``      the node's thread                     peers to be connected with: when to try next
    ``_arrived``     handshakes; taken by the node's       under ``_lock``
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
        self._handshake = Handshake(PROTOCOL, cluster, secret)
        self._listener = listening(bind)  # before all else that must be closed
        self._voter, self._tls = voter, client_tls
        self._strangers = Strangers("logdb-quorum-accept", "this voter", logger, server_tls, self._shake_accepted)
        self._selector = selectors.DefaultSelector()
        self._lock = renewed(threading.Lock())
        self._arrived: deque[Link] = deque()
        self._dialing: set[Peer] = set()
        self._wanted: dict[Peer, float] = {}
        self._outgoing: dict[Peer, Link] = {}
        self._incoming: dict[Peer, Link] = {}
        self._refusals: dict[Peer, str] = {}
        self._lines = line_limit(logger)
        self.start_id = 0  # of this voter's start, in every message
        self.admit: Callable[[Voter], str] = lambda _: ""  # why a voter is refused, which has proven the secret
        self.on_connected: Callable[[Peer], None] = lambda _: None
        self.on_disconnected: Callable[[Peer], None] = lambda _: None
        self.on_message: Callable[[Peer, Message], None] = lambda _, __: None
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

    # ------------------------------------------------------------ as the node calls it

    def add(self, peer: Peer) -> None:
        self._wanted[peer] = 0.0

    def drop(self, peer: Peer) -> None:
        self._wanted.pop(peer, None)
        if (link := self._outgoing.get(peer)) is not None:
            self._drop(link, "no voter any more")

    def send(self, peer: Peer, message: Message) -> bool:
        link = self._outgoing.get(peer)
        if link is None:
            if peer not in self._wanted and not self._closed:
                self._dial(peer)  # it asked, and is no voter that is known here yet
            return False
        has_room = link.put({**message, "start_id": self.start_id})
        self._flush(link)
        return has_room

    def destroy(self) -> None:
        """Close everything; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._strangers.close()
        with self._lock:
            arrived = list(self._arrived)
        for link in arrived:
            close(link.sock)
        for link in [*self._outgoing.values(), *self._incoming.values()]:
            close(link.sock)
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
                self.on_connected(link.peer)

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
        for message in self._messages(link, link.reader, data):
            self.on_message(link.peer, message)  # whatever this raises ends the voter
            if self._is_closed():
                return

    def _messages(self, link: Link, reader: FrameReader, data: bytes) -> Iterator[Message]:
        """The messages that these bytes complete; bytes that are none end the connection."""
        try:
            for payload in reader.feed(data):
                yield decode(payload)
        except (PeerRefused, InvalidMessage) as error:
            logger.warning("voter %s: %s", link.peer, error)
            self._drop(link, str(error))

    def _flush(self, link: Link) -> None:
        try:
            while link.has_more():
                link.sending = link.sending[link.sock.send(link.sending) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._drop(link, str(error))
            return
        if link.full != bool(link.sending):
            link.full = bool(link.sending)
            self._selector.modify(link.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if link.full else 0), link)

    def _drop(self, link: Link, reason: str) -> None:
        links = self._outgoing if link.writer is not None else self._incoming
        if links.get(link.peer) is link:
            del links[link.peer]
            self._forget(link)
            logger.debug("connection with voter %s: %s", link.peer, reason)
            if links is self._outgoing:
                self.on_disconnected(link.peer)

    def _forget(self, link: Link) -> None:
        self._selector.unregister(link.sock)
        close(link.sock)

    # ------------------------------------------------------------ handshakes, each in a thread

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self._strangers.take(self._listener.accept()[0])

    def _shake_accepted(self, sock: _Socket, proven: Callable[[], bool]) -> None:
        sender, framed = self._handshake.accept(sock, self._voter, self._reason_against, time.monotonic() + HANDSHAKE_TIMEOUT_S)
        if proven():
            self._hand_over(Link(sock, Peer(sender), reader=framed.reader))

    def _dial(self, peer: Peer) -> None:
        if peer in self._dialing:
            return
        self._dialing.add(peer)
        try:
            started("logdb-quorum-dial", lambda: self._dialed(peer))
        except ThreadUnavailable as error:
            if self._lines.may_write():
                logger.warning("%s", error)
            self._dialing.discard(peer)

    def _dialed(self, peer: Peer) -> None:
        try:
            link = self._shake_dialed(peer)
            self._refusals.pop(peer, None)
            self._hand_over(link)
        except PeerRefused as error:
            if self._refusals.get(peer) != str(error):  # it is logged once; that a voter is away, not at all
                self._refusals[peer] = str(error)
                logger.warning("%s: %s", peer, error)
        except OSError as error:
            logger.debug("no connection with %s: %s", peer, error)
        finally:
            self._dialing.discard(peer)
            self.wake()

    def _shake_dialed(self, peer: Peer) -> Link:
        deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S
        sock = connected((peer.voter.host, peer.voter.port), HANDSHAKE_TIMEOUT_S, self._tls)
        try:
            sender, framed = self._handshake.open(sock, self._voter, peer.voter, deadline)
            if sender.id != peer.id:
                raise PeerRefused(f"voter {sender} answered")
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES_MAX)
            return Link(sock, peer, writer=framed.writer)
        except BaseException:
            close(sock)
            raise

    def _hand_over(self, link: Link) -> None:
        with self._lock:
            if not self._closed:
                self._arrived.append(link)
                self.wake()
                return
        close(link.sock)

    def _reason_against(self, sender: Voter, target: Voter) -> str:
        if sender.number == self._voter.number:
            return f"two voters with the number {sender.number}"
        if target.id != self._voter.id:
            return f"this is voter {self._voter}, not {target}"
        return self.admit(sender)
