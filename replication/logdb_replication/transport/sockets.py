"""Where a node listens for other nodes, and its connections that have proven nothing yet.

A stranger costs a thread and a hello's bytes for ``HANDSHAKE_TIMEOUT_S``.  ``STRANGERS_MAX`` of them wait at a time; the oldest makes way.
"""

import contextlib
import ipaddress
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable

from logdb.errors import LogdbError, ThreadUnavailable
from logdb.line_limit import LineLimit
from logdb.threads import renewed, started
from logdb_replication.transport.errors import PeerRefused
from logdb_replication.transport.handshake import HANDSHAKE_TIMEOUT_S

STRANGERS_MAX = 16
BACKLOG = 128  # of the system: where it is full, a connection is tried again after a second
REFUSAL_LINE_COUNT_MAX, REFUSAL_WINDOW_MS = 10, 60_000  # log lines about strangers


class Strangers:
    """Connections that were accepted and have proven nothing.  Threading: any thread.

    Field         Changed by             Under      Trusted
    ``_shaking``  take, each connection  ``_lock``  sockets, the oldest first, by a key of their own
    ``_closed``   close                  ``_lock``
    """

    def __init__(
        self,
        name: str,
        at: str,
        logger: logging.Logger,
        tls: ssl.SSLContext | None,
        serve: Callable[[socket.socket, Callable[[], bool]], None],
    ) -> None:
        """Args:
        name: Of each connection's thread.
        at: What they have connected to, for log lines.
        serve: Called in the connection's thread with a socket that blocks, and with ``proven``.  When the other side has proven the
            secret it calls that, once: the socket is its own from then on.  False: it has made way.
        """
        self._name, self._at, self._logger, self._tls, self._serve = name, at, logger, tls, serve
        self._lock = renewed(threading.Lock())
        self._shaking: dict[object, socket.socket] = {}
        self._closed = False
        self._lines = line_limit(logger)

    def __len__(self) -> int:
        return len(self._shaking)

    def take(self, sock: socket.socket) -> None:
        """A connection was accepted."""
        key = object()
        with self._lock:
            if len(self._shaking) >= STRANGERS_MAX:  # strangers that wait do not keep nodes out
                close(self._shaking.pop(next(iter(self._shaking))))
            self._shaking[key] = sock
        try:
            started(self._name, lambda: self._run(key, sock))
        except ThreadUnavailable as error:
            if self._lines.may_write():
                self._logger.warning("%s", error)
            self._end(key, sock)

    def close(self) -> None:
        """End those that have proven nothing; none is proven from now on."""
        with self._lock:
            self._closed, shaking = True, list(self._shaking.values())
        for sock in shaking:
            close(sock)

    def _run(self, key: object, sock: socket.socket) -> None:
        try:
            self._serve(self._prepared(key, sock), lambda: self._proven(key))
        except (OSError, LogdbError) as error:
            if not isinstance(error, PeerRefused):
                self._logger.debug("a connection to %s: %s", self._at, error)
            elif self._lines.may_write():
                self._logger.warning("a connection to %s: %s", self._at, error)
        except Exception:
            if self._lines.may_write():
                self._logger.exception("a connection to %s", self._at)
        finally:
            self._end(key, sock)

    def _prepared(self, key: object, sock: socket.socket) -> socket.socket:
        sock.settimeout(HANDSHAKE_TIMEOUT_S)
        prepare(sock)
        if self._tls is None:
            return sock
        wrapped = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            if is_here := key in self._shaking:
                self._shaking[key] = wrapped
        if not is_here:
            close(wrapped)
            raise PeerRefused("others came, and it had proven nothing yet")
        wrapped.do_handshake()
        return wrapped

    def _proven(self, key: object) -> bool:
        with self._lock:
            return not self._closed and self._shaking.pop(key, None) is not None

    def _end(self, key: object, sock: socket.socket) -> None:
        """Close what is still a stranger's: the socket as it was accepted, and the one of TLS around it."""
        with self._lock:
            known = self._shaking.pop(key, None)
        for each in (sock, known):
            if known is not None and each is not None:
                close(each)


def connected(address: tuple[str, int], timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    """A connection to another node, by TLS where there is a context; raises OSError."""
    sock = socket.create_connection(address, timeout_s)
    try:
        prepare(sock)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=address[0])
    except BaseException:
        close(sock)
        raise


def line_limit(logger: logging.Logger) -> LineLimit:
    """The bound on the lines of ``logger`` about connections that have proven nothing."""

    def monotonic_ms() -> int:
        return time.monotonic_ns() // 1_000_000

    return LineLimit(logger, "refused connections", monotonic_ms, count_max=REFUSAL_LINE_COUNT_MAX, window_ms=REFUSAL_WINDOW_MS)


def listening(bind: tuple[str, int]) -> socket.socket:
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


def prepare(sock: socket.socket) -> None:
    """Small frames go at once, and a machine that is gone is found out."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def close(sock: socket.socket) -> None:
    """Close it; a thread that reads it wakes."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
