"""The door of a controller for brokers: each connection has a thread, which shakes hands, then answers one request after the other.

A stranger costs a thread and a hello's bytes for ``HANDSHAKE_TIMEOUT_S``; ``SHAKING_MAX`` of them wait at a time, and the oldest makes way.

Threading: ``close``: any thread.
"""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable

from logdb.errors import LogdbError, ThreadUnavailable
from logdb.threads import renewed, started
from logdb_replication.controller.connections import HANDSHAKE_TIMEOUT_S, Accepted, close, prepare
from logdb_replication.controller.messages import FAILURES, Heartbeat, Reply, Request, failed
from logdb_replication.raft.errors import PeerRefused
from logdb_replication.raft.tcp import line_limit, listening

logger = logging.getLogger(__name__)

SHAKING_MAX = 16
CONNECTIONS_MAX = 256
IDLE_TIMEOUT_S = 120.0
REPLY_TIMEOUT_S = 10.0
_ACCEPT_AGAIN_S = 0.1


class Listener:
    """Connections of brokers.

    Field             Changed by            Under      Trusted
    ``_shaking``      connections           ``_lock``  sockets that have proven nothing, the oldest first
    ``_connections``  connections           ``_lock``  those that have
    ``_closed``       close                 ``_lock``
    """

    def __init__(
        self,
        bind: tuple[str, int],
        cluster: str,
        secret: bytes,
        number: int,
        answer: Callable[[int, Request], Reply],
        gone: Callable[[int], None],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Listen at ``bind``.

        Args:
            answer: Gives the reply to a node's request; raises one of ``FAILURES``.
            gone: Called where a connection ends that a node's heartbeats came over.

        Raises:
            OSError: It cannot listen there.
        """
        self._cluster, self._secret, self._number, self._tls = cluster, secret, number, tls
        self._answer, self._gone = answer, gone
        self._lock = renewed(threading.Lock())
        self._shaking: dict[object, socket.socket] = {}
        self._connections: dict[object, socket.socket] = {}
        self._closed = False
        self._lines = line_limit(logger)
        self._listener = listening(bind)
        self._thread = started("logdb-controller-listener", self._accept)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no longer, and end all connections."""
        with self._lock:
            self._closed = True
            open_ = [*self._shaking.values(), *self._connections.values()]
        for sock in open_:
            close(sock)
        close(self._listener)
        self._thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    logger.warning("no connection is accepted: %s", error)
                    time.sleep(_ACCEPT_AGAIN_S)  # there are no descriptors: others close theirs
                continue
            key = object()
            with self._lock:
                if len(self._shaking) >= SHAKING_MAX:  # strangers that wait do not keep brokers out
                    close(self._shaking.pop(next(iter(self._shaking))))
                self._shaking[key] = sock
            try:
                started("logdb-controller-connection", lambda key=key, sock=sock: self._serve(key, sock))  # type: ignore[misc]
            except ThreadUnavailable as error:
                if self._lines.may_write():
                    logger.warning("%s", error)
                self._forget(key, sock)

    def _serve(self, key: object, sock: socket.socket) -> None:
        try:
            sock = self._prepared(key, sock)
            accepted = Accepted(sock, self._cluster, self._secret, self._number, self._reason_against())
            with self._lock:
                if self._closed or self._shaking.pop(key, None) is None:
                    return  # it has made way
                self._connections[key] = sock
            self._converse(accepted)
        except (OSError, LogdbError) as error:
            if not isinstance(error, PeerRefused):
                logger.debug("a connection to this controller: %s", error)
            elif self._lines.may_write():
                logger.warning("a connection to this controller: %s", error)
        except Exception:
            if self._lines.may_write():
                logger.exception("a connection to this controller")
        finally:
            self._forget(key, sock)

    def _prepared(self, key: object, sock: socket.socket) -> socket.socket:
        sock.settimeout(HANDSHAKE_TIMEOUT_S)
        prepare(sock)
        if self._tls is None:
            return sock
        wrapped = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            if key in self._shaking:
                self._shaking[key] = wrapped
        wrapped.do_handshake()
        return wrapped

    def _reason_against(self) -> str:
        with self._lock:
            return f"{CONNECTIONS_MAX} connections are open" if len(self._connections) >= CONNECTIONS_MAX else ""

    def _converse(self, accepted: Accepted) -> None:
        beats = False
        try:
            while (request := accepted.request(IDLE_TIMEOUT_S)) is not None:
                beats = beats or isinstance(request, Heartbeat)
                try:
                    reply = self._answer(accepted.node, request)
                except FAILURES.kinds as error:
                    reply = failed(error)
                accepted.reply(reply, REPLY_TIMEOUT_S)
        finally:
            if beats and not self._closed:
                self._gone(accepted.node)

    def _forget(self, key: object, sock: socket.socket) -> None:
        with self._lock:
            known = self._shaking.pop(key, None) or self._connections.pop(key, None)
        for each in (sock, known):  # another one where the begin of TLS has failed
            if each is not None:
                close(each)
