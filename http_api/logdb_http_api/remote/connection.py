"""Requests to servers: pooled connections with TLS and credentials, failover, retries.  ``wires`` has the bytes.

Requests of record batches are frames of Kafka's protocol, on connections of their own, which were upgraded; from a server that lets no
connection be upgraded they are HTTP for the next ``_PLAIN_S``.  A request that has got no answer as a frame ``_FRAME_TRIES_MAX`` times is
sent as HTTP: a server that refuses a frame for its size closes the connection, over HTTP it says why.

A request goes to the server that answered last.  If the connection breaks, the request is sent again, to the next server, with growing
pauses, until an answer comes or the time is over.  A request that must not be carried out twice is sent again only if no server can
have received it.

Until a server has answered for the first time, failed connections are retried for ``connect_timeout_ms`` alone: an address may be
wrong, or the server not started.  Later a missing server is retried for as long as an answer is awaited.

Threading: any number of threads, each with a connection of its own during a request.
"""

import base64
import contextlib
import logging
import os
import random
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit

from logdb.access.attempts import is_loopback
from logdb.errors import Closed, Forked, ServerUnavailable
from logdb.threads import renewed
from logdb_http_api.remote.answers import Answer, RefusedUnread, check
from logdb_http_api.remote.wires import FrameRequest, FrameWire, HttpRequest, HttpWire, Request

logger = logging.getLogger(__name__)

_FINAL_ALERTS = (
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
)
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.02, 1.0
_IDLE_COUNT_MAX = 8  # idle connections in the pool
_AHEAD_COUNT_MAX = 8
_PLAIN_S = 60.0
_FRAME_TRIES_MAX = 5

R = TypeVar("R")


class Security(NamedTuple):
    """Credentials and TLS settings; ``repr`` shows none of them."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    context: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return "<Security>"

    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            pair = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


class Address(NamedTuple):
    """The address of a server; ``url`` has no credentials."""

    url: str
    tls: bool
    host: str
    port: int | None
    prefix: str

    @property
    def default_port(self) -> int:
        return 443 if self.tls else 80

    @property
    def authority(self) -> str:
        """Host and port, as in the header ``Host``."""
        host = f"[{self.host}]" if ":" in self.host else self.host.encode("idna").decode()
        return host if self.port in (None, self.default_port) else f"{host}:{self.port}"

    @classmethod
    def of(cls, url: str) -> "Address":
        """Parse a URL.

        Raises:
            ValueError: It names no host, or has more than the address of a server.
        """
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        if not host or parts.query or parts.fragment or any(character.isspace() for character in host):
            raise ValueError(f"{shown!r} is not the URL of a server: wanted is http://host:port or https://host:port")
        return cls(shown, parts.scheme == "https", host, port, parts.path.rstrip("/"))


def credentials_of(url: str) -> tuple[str | None, str | None]:
    """User and password in a URL."""
    parts = urlsplit(url)
    return (None if parts.username is None else unquote(parts.username)), (None if parts.password is None else unquote(parts.password))


class Connection:
    """One connection to one server, for one request at a time, or for several behind one another."""

    def __init__(self, address: Address, security: Security, timeout_s: float) -> None:
        """Connect.

        Raises:
            OSError: The connection failed.
        """
        self.address = address
        sock = socket.create_connection((address.host, address.port or address.default_port), timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls:
                context = security.context or ssl.create_default_context()
                sock = context.wrap_socket(sock, server_hostname=address.host)
            headers = {"Host": address.authority, "Accept-Encoding": "identity", **security.headers()}
            self._wire: HttpWire | FrameWire = HttpWire(sock, address.url, headers)
        except BaseException:
            sock.close()
            raise

    @property
    def pipelines(self) -> bool:
        """Whether it carries frames, so that a request may be sent before those ahead of it are answered."""
        return self._wire.pipelines

    @property
    def lasts(self) -> bool:
        """Whether another request may follow."""
        return self._wire.lasts

    def is_usable(self) -> bool:
        """Whether it is open, without unread bytes."""
        if not self._wire.lasts or self._wire.has_more or self._wire.sock.fileno() < 0:
            return False
        waiting = select.poll()  # select() takes no descriptor from 1024 on
        waiting.register(self._wire.sock, select.POLLIN)
        return not waiting.poll(0)

    def upgrade(self, timeout_s: float) -> bool:
        """Carry frames from now on, if the server lets it."""
        assert isinstance(self._wire, HttpWire)
        self._wire.sock.settimeout(timeout_s)
        upgraded = self._wire.upgrade(self.address.prefix)
        self._wire = upgraded or self._wire
        return upgraded is not None

    def send(self, request: Request[Any], timeout_s: float) -> None:
        """Send a request; raises OSError, and ValueError if HTTP cannot carry it."""
        self._wire.sock.settimeout(timeout_s)
        if isinstance(self._wire, HttpWire):
            self._wire.send(request.http(), self.address.prefix)
        else:
            self._wire.send(cast("FrameRequest[Any]", request))

    def begin(self, on_waiting: Callable[[], object]) -> int | None:
        """Wait for the begin of the answer; returns the offset that it announces, if it does.

        Args:
            on_waiting: Called when the server reports that the answer waits for other members.
        """
        if isinstance(self._wire, FrameWire):
            return self._wire.begin()
        self._wire.begin(on_waiting)
        return None

    def receive(self, request: Request[Any]) -> Answer | dict[str, Any]:
        """The whole answer that has begun; see ``result``."""
        if isinstance(self._wire, HttpWire):
            return self._wire.receive(request.http())
        return self._wire.receive(cast("FrameRequest[Any]", request))

    def result(self, request: Request[R], answer: Answer | dict[str, Any]) -> R:
        """What an answer means; raises the server's refusal."""
        if isinstance(answer, Answer):
            check(answer)
            return request.of_http(answer)
        return cast("FrameRequest[R]", request).of_frame(answer, self.address.url)

    def cut(self) -> None:
        """Wake the thread that waits for an answer: none comes."""
        with contextlib.suppress(OSError):
            self._wire.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._wire.sock.close()

    def __del__(self) -> None:
        """Close a connection that Ctrl-C dropped between two steps."""
        with contextlib.suppress(AttributeError):  # it was never connected
            self.close()


class Connections:
    """The pool of connections to the servers of one database."""

    def __init__(self, urls: Sequence[str], security: Security, *, timeout_ms: int, connect_timeout_ms: int) -> None:
        self._addresses = tuple(Address.of(url) for url in urls)
        self.urls = tuple(address.url for address in self._addresses)
        self._security, self.timeout_s, self._connect_timeout_s = security, timeout_ms / 1000, connect_timeout_ms / 1000
        self.connect_until = time.monotonic() + self._connect_timeout_s  # 0 once a server has answered
        self._told = False  # whether the log says that no server answers
        self._at = 0
        self._plain_until: dict[Address, float] = {}  # servers that let no connection be upgraded
        self._idle: list[Connection] = []
        self._busy = weakref.WeakSet[Connection]()
        self._lock = renewed(threading.Lock())
        self.ahead = threading.BoundedSemaphore(_AHEAD_COUNT_MAX)  # bounds requests whose answers are read later
        self._owner = os.getpid()
        self.ended = renewed(threading.Event())

    @property
    def closed(self) -> bool:
        return self.ended.is_set()

    @property
    def open_url(self) -> str | None:
        """The first URL that others may eavesdrop on: neither https nor this machine."""
        return next((one.url for one in self._addresses if not (one.tls or one.host == "localhost" or is_loopback(one.host))), None)

    @property
    def private(self) -> bool:
        """Whether answers are private: requests have credentials, or go over TLS."""
        return bool(self._security.headers()) or any(one.tls for one in self._addresses)

    def __repr__(self) -> str:
        return f"<Connections to {', '.join(self.urls)}>"

    def check_open(self) -> None:
        """Raise unless requests can be sent.

        Raises:
            Closed, Forked: The database was closed, or opened by the parent process.
        """
        if os.getpid() != self._owner:
            raise Forked(f"the database was opened by process {self._owner}, this is its child {os.getpid()}: open it anew")
        if self.closed:
            raise Closed("the database is closed")

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        safe: bool = True,
        patience_ms: int = 0,
    ) -> Answer:
        """Send a request, and wait for the answer; see ``Exchange``.

        Args:
            safe: The request may be carried out twice.
            patience_ms: Added to the time that a request may take.

        Raises:
            ServerUnavailable: No server answered in time.
            LogdbError: The server's refusal.
        """
        return Exchange(self, HttpRequest(method, path, body, headers or {}), safe=safe, patience_ms=patience_ms).answer()

    def take(self, timeout_s: float, *, frames: bool = False) -> Connection:
        """A connection for one request; ``frames``: one that carries frames, if the server lets it."""
        self.check_open()
        address = self._addresses[self._at % len(self._addresses)]
        frames = frames and self._may_upgrade(address)
        if frames and (connection := self._pooled(pipelines=True)) is not None:
            return self._lent(connection)
        if is_pooled := (connection := self._pooled(pipelines=False)) is not None:
            connection = self._lent(connection)
        else:
            connect_timeout_s = self._connect_timeout_s / len(self._addresses) if self.connect_until else self.timeout_s
            connection = self._lent(Connection(address, self._security, min(timeout_s, connect_timeout_s)))
        if not frames or not self._may_upgrade(connection.address) or self._is_upgraded(connection, timeout_s, is_pooled=is_pooled):
            return connection
        self.give_back(connection)
        return self.take(timeout_s)

    def _may_upgrade(self, address: Address) -> bool:
        return time.monotonic() >= self._plain_until.get(address, 0.0)

    def _is_upgraded(self, connection: Connection, timeout_s: float, *, is_pooled: bool) -> bool:
        """Upgrade a connection; False: its server does not let it, and is not asked again for a while."""
        try:
            if connection.upgrade(timeout_s / 2):  # the rest is for the request, should a proxy never answer this one
                return True
        except BaseException:
            self.drop(connection)
            if not is_pooled:  # the server, or a proxy, may close it for this request
                self._plain_until[connection.address] = time.monotonic() + _PLAIN_S
            raise
        self._plain_until[connection.address] = time.monotonic() + _PLAIN_S
        return False

    def _pooled(self, *, pipelines: bool) -> Connection | None:
        """The idle connection that was used last, and is usable."""
        while True:
            with self._lock:
                at = next((at for at in range(len(self._idle) - 1, -1, -1) if self._idle[at].pipelines == pipelines), None)
                if at is None:
                    return None
                connection = self._idle.pop(at)
            if connection.is_usable():
                return connection
            connection.close()

    def _lent(self, connection: Connection) -> Connection:
        with self._lock:
            if not self.closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise Closed("the database is closed")

    def give_back(self, connection: Connection) -> None:
        """Return a connection whose answer was read to its end."""
        with self._lock:
            self._busy.discard(connection)
            if not self.closed and connection.lasts and len(self._idle) < _IDLE_COUNT_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def drop(self, connection: Connection, *, broken: bool = False) -> None:
        """Close a connection; ``broken``: the next server is used from now on."""
        with self._lock:
            self._busy.discard(connection)
        connection.close()
        if broken:
            self.fail_over(connection.address)

    def fail_over(self, address: Address | None) -> None:
        """Use the next server from now on, if this one is in use."""
        if address is None or self._addresses[self._at % len(self._addresses)] == address:
            self._at += 1

    def answered(self) -> None:
        """A server has answered."""
        self.connect_until, self._told = 0.0, False

    def failed(self, count: int, reason: str, left_s: float) -> None:
        """A request has failed ``count`` times, and is tried again: log it, once all servers have been tried."""
        if count >= len(self.urls) and not self._told:
            self._told = True
            logger.warning("no server answers at %s: %s; trying again for %.3g s", ", ".join(self.urls), reason, left_s)

    def close(self) -> None:
        """End all running requests."""
        with self._lock:
            self.ended.set()
            idle, self._idle, busy = self._idle, [], list(self._busy)
        for connection in idle:
            connection.close()
        if os.getpid() == self._owner:
            for connection in busy:
                connection.cut()


class Exchange(Generic[R]):
    """One request, which is sent at once, and its answer, which may be read later.

    The caller calls ``answer`` or ``abandon``.
    """

    def __init__(
        self,
        connections: Connections,
        request: Request[R],
        *,
        safe: bool = True,
        patience_ms: int = 0,
        on_waiting: Callable[[], object] = lambda: None,
        behind: "Exchange[Any] | None" = None,
    ) -> None:
        """Send the request.

        Args:
            safe, patience_ms: See ``Connections.request``.
            on_waiting: See ``Connection.begin``.
            behind: An earlier exchange, which is answered first, over the same connection if it lasts; see ``may_be_followed``.
        """
        self._connections, self._request = connections, request
        self._safe, self._on_waiting = safe, on_waiting
        self._patience_s = connections.timeout_s + patience_ms / 1000
        self._until, self._waited_for = self._deadline(), False
        self._connection: Connection | None = None
        self._behind = behind
        self._followed: Connection | None = None  # another request was sent on it meanwhile
        self._failure: Exception | None = None
        self._is_begun = False  # whether the answer is
        self._announced: int | None = None
        self._sent = False  # True: a server may have received it
        self._sent_count = 0
        self.repeated = False  # an earlier try may have been carried out
        self._pause_s, self._failure_count = _PAUSE_S_MIN, 0
        try:
            self._send()
        except OSError as error:
            self._failure = error
        except BaseException:  # also from outside (Ctrl-C)
            self.abandon()
            raise

    def _deadline(self) -> float:
        return max(time.monotonic() + self._patience_s, self._connections.connect_until)

    @property
    def may_be_followed(self) -> bool:
        """Whether a request that is sent behind this one arrives behind it."""
        return self._failure is None and self._connection is not None and self._connection.pipelines

    def answer(self) -> R:
        """Wait for the answer; sends the request again if needed.

        Raises:
            ServerUnavailable: No server answered in time; with ``safe=False`` the request may have been carried out.
            InvalidAnswer: The bytes are not a valid answer.
            LogdbError: The server's refusal.
        """
        while True:
            try:
                connection = self._begin()
                answer = connection.receive(self._request)
            except OSError as error:
                self._lost(error)
                continue
            except BaseException:  # also from outside (Ctrl-C)
                self.abandon()
                raise
            self._connection = None
            try:
                result = connection.result(self._request, answer)
            except RefusedUnread as refused:
                self._connections.drop(connection, broken=True)
                self._failure_count += 1
                self._wait(refused.error, None)
                continue
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)
            return result

    def _give_back(self, connection: Connection) -> None:
        if connection is not self._followed:
            self._connections.give_back(connection)

    def announced(self) -> int | None:
        """Wait for the begin of the answer; returns the offset that it announces.  None: it announces none, or failed: see ``answer``."""
        try:
            self._begin()
        except OSError as error:
            self._failure = error
            return None
        return self._announced

    def _begin(self) -> Connection:
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error
        if not self._waited_for:
            self._until, self._waited_for = self._deadline(), True
        if self._connection is None:
            self._send()
        connection = self._connection
        assert connection is not None
        if not self._is_begun:
            self._announced = connection.begin(self._on_waiting)
            self._is_begun = True
            self._connections.answered()
        return connection

    def _send(self) -> None:
        left_s = max(0.001, self._until - time.monotonic())
        self._sent = self._is_begun = False
        behind, self._behind = self._behind, None
        if behind is not None and behind.may_be_followed:
            connection = behind._followed = behind._connection
        else:
            connection = None
        frames = self._sent_count < _FRAME_TRIES_MAX and not isinstance(self._request, HttpRequest)
        self._connection = connection = connection or self._connections.take(left_s, frames=frames)
        self._sent = True
        self._sent_count += 1
        connection.send(self._request, left_s)

    def _lost(self, error: Exception) -> None:
        """The connection broke: wait before the next try, or give up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.drop(connection, broken=True)
        else:
            self._connections.fail_over(None)
        self._failure_count += (
            connection is None or self._connections.connect_until > 0
        )  # a pooled connection may have been closed by the server
        self._connections.check_open()
        if isinstance(error, ssl.SSLError) and _is_final(error):
            raise ServerUnavailable(self._connections.urls, _words(error)) from error
        if self._sent:
            self.repeated = True
            if not self._safe:
                reason = f"{str(error) or type(error).__name__}; whether it was carried out is not known"
                raise ServerUnavailable(self._connections.urls, reason) from error
        self._wait(error, error)

    def _wait(self, reason: Exception, cause: Exception | None) -> None:
        pause_s = self._pause_s * random.uniform(0.5, 1)  # noqa: S311 -- it spreads the retries of clients; it is no secret
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        left_s = (self._connections.connect_until or self._until) - time.monotonic()
        if pause_s >= left_s:
            raise ServerUnavailable(self._connections.urls, _words(reason)) from cause
        self._connections.failed(self._failure_count, _words(reason), left_s)
        self._connections.ended.wait(pause_s)
        self._connections.check_open()

    def abandon(self) -> None:
        """Drop the answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.drop(connection)


def _words(reason: Exception) -> str:
    """Why a try failed: the system's text, without its number."""
    if isinstance(reason, ssl.SSLError):
        return "no TLS is spoken there: http:// asks without" if reason.reason == "WRONG_VERSION_NUMBER" else str(reason)
    said = reason.strerror if isinstance(reason, OSError) else None
    return said or str(reason) or type(reason).__name__


def _is_final(error: ssl.SSLError) -> bool:
    """Whether a retry is useless: one side distrusts the other's certificate, or the server speaks no TLS."""
    reason = error.reason or ""
    return isinstance(error, ssl.SSLCertVerificationError) or reason == "WRONG_VERSION_NUMBER" or reason.endswith(_FINAL_ALERTS)
