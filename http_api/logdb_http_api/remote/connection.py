"""One connection to one server, with TLS and credentials; ``wires`` has the bytes, ``connections`` the pool."""

import base64
import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit

from logdb_http_api.protocol import FOLLOWS
from logdb_http_api.remote.answers import HttpAnswer, check
from logdb_http_api.remote.wires import FrameRequest, FrameWire, HttpRequest, HttpWire, Request

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
        if not host or parts.query or parts.fragment or not _is_host(host):
            raise ValueError(f"URL {shown!r}: must be http://host:port or https://host:port")
        return cls(shown, parts.scheme == "https", host, port, parts.path.rstrip("/"))


def _is_host(text: str) -> bool:
    """Whether sockets and TLS take it as the name of a host."""
    try:
        text.encode("idna")
    except UnicodeError:  # a label is empty or too long
        return False
    return text.isprintable() and " " not in text


def credentials_of(url: str) -> tuple[str | None, str | None]:
    """User and password in a URL."""
    parts = urlsplit(url)
    return (None if parts.username is None else unquote(parts.username)), (None if parts.password is None else unquote(parts.password))


class ServerConnection:
    """One connection to one server, for one request at a time, or for several behind one another.

    Attributes:
        pipelines: It carries frames, so that a request may be sent before those ahead of it are answered.
    """

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
            headers = {"Host": address.authority, "Accept-Encoding": "identity", FOLLOWS: "1", **security.headers()}
            self._wire: HttpWire | FrameWire = HttpWire(sock, address.url, headers)
            self.pipelines = False
            self._arriving = select.poll()  # select() takes no descriptor from 1024 on
            self._arriving.register(sock, select.POLLIN)
        except BaseException:
            sock.close()
            raise

    @property
    def lasts(self) -> bool:
        """Whether another request may follow."""
        return self._wire.lasts

    @property
    def socket(self) -> "socket.socket":
        return self._wire.sock

    def is_usable(self) -> bool:
        """Whether it is open, without unread bytes."""
        return self._wire.lasts and not self._wire.has_more and self._wire.sock.fileno() >= 0 and not self._arriving.poll(0)

    def upgrade(self, timeout_s: float) -> bool:
        """Carry frames from now on, if the server lets it."""
        assert isinstance(self._wire, HttpWire)
        self._wire.until = time.monotonic() + timeout_s
        self._wire.set_timeout()
        upgraded = self._wire.upgrade(self.address.prefix)
        if upgraded is not None:
            self._wire, self.pipelines = upgraded, True
        return self.pipelines

    def send(self, request: Request[Any], timeout_s: float) -> None:
        """Send a request; raises OSError, and ValueError if HTTP cannot carry it."""
        self._wire.until = time.monotonic() + timeout_s
        self._wire.set_timeout()
        if isinstance(self._wire, HttpWire):
            self._wire.send(request.http(), self.address.prefix)
        else:
            self._wire.send(_as_frames(request))

    def begin(self, until: float, on_waiting: Callable[[], object]) -> int | None:
        """Wait for the begin of the answer; returns the offset that it announces, if it does.

        Args:
            until: See ``wires``; counts for the whole answer.
            on_waiting: Called when the server reports that the answer waits for other members.
        """
        wire = self._wire
        wire.until = until
        if isinstance(wire, FrameWire):
            return wire.begin()
        wire.begin(on_waiting)
        return None

    def receive(self, request: Request[Any]) -> Any:
        """The whole answer that has begun; see ``result``."""
        if isinstance(self._wire, HttpWire):
            return self._wire.receive(request.http())
        return self._wire.receive(_as_frames(request))

    def result(self, request: Request[R], answer: Any) -> R:
        """What a received answer means; raises the server's refusal."""
        if isinstance(answer, HttpAnswer):
            check(answer)
            return request.of_http(answer)
        return _as_frames(request).of_frame(answer, self.address.url)

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


def _as_frames(request: Request[R]) -> FrameRequest[R]:
    """The same request: a connection that carries frames is taken for no other."""
    assert not isinstance(request, HttpRequest)
    return cast("FrameRequest[R]", request)
