"""The door of a controller for brokers: each connection has a thread, which shakes hands, then answers one request after the other.

Threading: ``close``: any thread.
"""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable

from logdb.threads import renewed, started
from logdb_replication.controller.connections import Accepted
from logdb_replication.controller.messages import FAILURES, Heartbeat, Reply, Request, failed
from logdb_replication.transport.sockets import Strangers, close, line_limit, listening

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 256
IDLE_TIMEOUT_S = 120.0
REPLY_TIMEOUT_S = 10.0
_ACCEPT_AGAIN_S = 0.1


class Listener:
    """Connections of brokers.

    Field             Changed by            Under      Trusted
    ``_connections``  connections           ``_lock``  sockets of nodes that have proven the secret
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
        self._cluster, self._secret, self._number = cluster, secret, number
        self._answer, self._gone = answer, gone
        self._lock = renewed(threading.Lock())
        self._connections: dict[object, socket.socket] = {}
        self._closed = False
        self._strangers = Strangers("logdb-controller-connection", "this controller", logger, tls, self._serve)
        self._listener = listening(bind)
        self._thread = started("logdb-controller-listener", self._accept)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no longer, and end all connections."""
        with self._lock:
            self._closed, open_ = True, list(self._connections.values())
        self._strangers.close()
        for sock in open_:
            close(sock)
        close(self._listener)
        self._thread.join()

    def _accept(self) -> None:
        lines = line_limit(logger)
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    if lines.may_write():
                        logger.warning("no connection is accepted: %s", error)
                    time.sleep(_ACCEPT_AGAIN_S)  # there are no descriptors: others close theirs
                continue
            self._strangers.take(sock)

    def _serve(self, sock: socket.socket, proven: Callable[[], bool]) -> None:
        accepted = Accepted(sock, self._cluster, self._secret, self._number, self._reason_against())
        key = object()
        with self._lock:
            if self._closed or not proven():
                return
            self._connections[key] = sock
        try:
            self._converse(accepted)
        finally:
            with self._lock:
                del self._connections[key]
            close(sock)

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
