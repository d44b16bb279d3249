"""Requests to servers and their answers: retries, failover, and leaders that are followed.

If the connection breaks, the request is sent again, to the next server, with growing pauses, until an answer comes or the time is over.
A request that must not be carried out twice is sent again only if no server can have received it.

A request that has got no answer as a frame ``_FRAME_TRIES_MAX`` times is sent as HTTP: a server that refuses a frame for its size closes
the connection, over HTTP it says why.  So a request that must not be carried out twice goes by HTTP at once.

A node of a cluster that does not lead what a request is about (``Request.key``) says who does: the request is sent there, and later ones
with this key go there first.  While no node leads it, or the leader cannot take the request yet, it is tried again.
"""

import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from logdb.errors import (
    CoordinatorLoading,
    LogdbError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OutOfOrderSequence,
    ServerUnavailable,
)
from logdb_http_api.remote.answers import HttpAnswer, RefusedUnread
from logdb_http_api.remote.connection import Address, ServerConnection
from logdb_http_api.remote.connections import Connections
from logdb_http_api.remote.wires import HttpRequest, Request

_FINAL_ALERTS = (
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERTIFICATE",
)
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.02, 1.0
_ELECTION_PAUSE_S_MAX = 0.1
_LED_ELSEWHERE = (NotLeaderOrFollower, NotCoordinator)
_NOT_YET = (*_LED_ELSEWHERE, CoordinatorLoading, OffsetNotAvailable, NotEnoughReplicas, NotEnoughReplicasAfterAppend)
"""The refusals of a node after which the same request may succeed soon, there or elsewhere."""
AFTER_APPEND = (NotEnoughReplicasAfterAppend, NotLeaderAfterAppend)
"""Those of a request that was carried out, as far as the node can tell."""
_TRY_S = 5.0  # how long one node of a cluster may take, if the request may be sent to another
_FRAME_TRIES_MAX = 5

R = TypeVar("R")


class Exchange(Generic[R]):
    """One request, which is sent at once, and its answer, which may be read later.

    The caller calls ``answer`` or ``abandon``.
    """

    _connection: ServerConnection | None = None
    _followed: ServerConnection | None = None  # another request was sent on it meanwhile
    _failure: Exception | None = None
    _leader: Address | None = None  # that a refusal has named
    _failed_leader: ServerUnavailable | None = None  # a leader that a refusal has named does not answer
    _redirect_count = 0  # of the connections, when it was sent
    _is_begun = False  # whether the answer is
    _announced: int | None = None
    _sent = False  # True: a server may have received it
    _sent_count = 0
    repeated = False  # an earlier try may have been carried out
    _waited_for, _pause_s, _failure_count = False, _PAUSE_S_MIN, 0

    def __init__(
        self,
        connections: Connections,
        request: Request[R],
        *,
        safe: bool = True,
        patience_ms: int = 0,
        on_waiting: Callable[[], object] = lambda: None,
        behind: "Exchange[Any] | None" = None,
        until: float | None = None,
    ) -> None:
        """Send the request.

        Args:
            safe, patience_ms: See ``send_request``.
            until: When the time is over, by the monotonic clock; None: ``patience_ms`` after the caller begins to wait for the answer.
            on_waiting: See ``ServerConnection.begin``.
            behind: An earlier exchange, which is answered first, over the same connection if it lasts; see ``may_be_followed``.
        """
        self._connections, self._request = connections, request
        self._safe, self._on_waiting = safe, on_waiting
        self._patience_s = connections.timeout_s + patience_ms / 1000
        self._try_s = _TRY_S + max(0, patience_ms) / 1000
        self._given_until = until
        self._until, self._behind = self._deadline(), behind
        try:
            self._send()
        except OSError as error:
            self._failure = error
        except BaseException:  # also from outside (Ctrl-C)
            self.abandon()
            raise

    def _deadline(self) -> float:
        until = time.monotonic() + self._patience_s if self._given_until is None else self._given_until
        return max(until, self._connections.connect_until)

    @property
    def was_sent(self) -> bool:
        """Whether a server may have carried the request out."""
        return self._sent or self.repeated

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
            except LogdbError as error:
                self._give_back(connection)
                if not self._may_follow(error):
                    raise
                self._follow(error, connection.address)
                continue
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)
            return result

    def _may_follow(self, error: LogdbError) -> bool:
        """Whether the request is to be sent again after this refusal.

        A gap in the sequences, behind a request that was sent elsewhere meanwhile, is none once that one is answered.
        """
        if isinstance(error, OutOfOrderSequence):
            return self._safe and self._redirect_count != self._connections.redirect_count
        return isinstance(error, _NOT_YET) and (self._safe or not isinstance(error, AFTER_APPEND))

    def _follow(self, error: LogdbError, said_by: Address) -> None:
        """Send the request to the server that leads what it is about, or wait until there is one.

        Raises:
            LogdbError: The refusal, or why the leader that it names does not answer; the time is over.
        """
        former, self._leader = self._leader, None
        self._sent_count -= 1  # it was answered
        self.repeated |= isinstance(error, AFTER_APPEND)
        if isinstance(error, _LED_ELSEWHERE):
            self._leader = self._connections.redirected(self._request.key, vars(error).get("leader_address"))
        left_s = self._until - time.monotonic()
        try:
            if left_s <= 0:
                raise (self._failed_leader or error) from None
        finally:
            del error  # its traceback has this frame
        if self._leader in (None, former, said_by):
            self._connections.ended.wait(min(self._pause_s, left_s))
            self._pause_s = min(2 * self._pause_s, _ELECTION_PAUSE_S_MAX)
            self._connections.check_open()

    def _give_back(self, connection: ServerConnection) -> None:
        if connection is not self._followed:
            self._connections.give_back(connection)

    def announced(self) -> int | None:
        """Wait for the begin of the answer; returns the offset that it announces.  None: it announces none, or failed: see ``answer``."""
        try:
            self._begin()
        except (OSError, LogdbError) as error:
            self._failure = error
            return None
        return self._announced

    def _begin(self) -> ServerConnection:
        if self._failure is not None:
            error, self._failure = self._failure, None
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        if not self._waited_for:
            self._until, self._waited_for = self._deadline(), True
        if self._connection is None:
            self._send()
        connection = self._connection
        assert connection is not None
        if not self._is_begun:
            self._announced = connection.begin(self._until, self._on_waiting)
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
        connections, request = self._connections, self._request
        if connection is None:
            frames = self._safe and self._sent_count < _FRAME_TRIES_MAX and not isinstance(request, HttpRequest)
            leader = self._leader or (connections.leaders.get(request.key) if connections.leaders else None)
            if self._safe and connections.redirect_count:
                left_s = min(left_s, self._try_s)
            connection = connections.take(left_s, frames=frames, leader=leader)
        self._connection, self._redirect_count = connection, connections.redirect_count
        self._sent = True
        self._sent_count += 1
        connection.send(request, left_s)

    def _lost(self, error: Exception) -> None:
        """The connection broke: wait before the next try, or give up."""
        connection, self._connection = self._connection, None
        leader = None
        if connection is not None:
            self._connections.drop(connection, broken=True)
        else:
            leader = self._leader or self._connections.leaders.get(self._request.key)
            self._connections.fail_over(leader)
        self._leader = None
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
        self._wait(error, error, leader)

    def _wait(self, reason: Exception, cause: Exception | None, leader: Address | None = None) -> None:
        """Wait before the next try; ``leader``: it has failed at that server, which another one has named."""
        pause_s = self._pause_s * random.uniform(0.5, 1)  # noqa: S311 -- it spreads the retries of clients; it is no secret
        self._pause_s = min(2 * self._pause_s, _ELECTION_PAUSE_S_MAX if self._connections.is_cluster else _PAUSE_S_MAX)
        left_s = (self._connections.connect_until or self._until) - time.monotonic()
        said = _words(reason) if leader is None else f"the leader {leader.url}: {_words(reason)}"
        if pause_s >= left_s:
            raise ServerUnavailable(self._connections.urls, said) from cause
        if leader is None:
            self._connections.failed(self._failure_count, _words(reason), left_s)
        else:
            self._failed_leader = ServerUnavailable(self._connections.urls, said)
            self._connections.leader_failed(leader, _words(reason), left_s)
        self._connections.ended.wait(pause_s)
        self._connections.check_open()

    @property
    def socket(self) -> "socket.socket | None":
        """On which the answer comes; None: the connection is lost."""
        return None if self._connection is None or self._failure is not None else self._connection.socket

    def abandon(self) -> None:
        """Drop the answer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.drop(connection)


class FollowerFailed(Exception):
    """A follower did not answer, or refused; the leader is asked instead."""


class FollowerExchange(Exchange[R]):
    """One request of a follower, in one try: whatever fails, the leader is asked at once.

    ``answer`` raises FollowerFailed, or the LogdbError of the follower.
    """

    def __init__(self, connections: Connections, request: Request[R], follower: Address, *, behind: "Exchange[Any] | None" = None) -> None:
        self.follower = self._leader = follower
        try:
            super().__init__(connections, request, behind=behind)
        except LogdbError as error:  # it refused the connection's upgrade: ``answer`` says so
            self._failure = error

    def _deadline(self) -> float:
        return time.monotonic() + min(_TRY_S, self._connections.timeout_s)

    def _may_follow(self, error: LogdbError) -> bool:  # noqa: ARG002 -- whatever it says
        return False

    def _lost(self, error: Exception) -> None:
        self.abandon()
        self._connections.check_open()
        raise FollowerFailed(_words(error)) from error

    def _wait(self, reason: Exception, cause: Exception | None, leader: Address | None = None) -> None:  # noqa: ARG002 -- it does not
        raise FollowerFailed(_words(reason)) from cause


def send_request(
    connections: Connections,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    *,
    safe: bool = True,
    patience_ms: int = 0,
    key: Hashable | None = None,
) -> HttpAnswer:
    """Send a request, and wait for the answer; see ``Exchange``.

    Args:
        safe: The request may be carried out twice.
        patience_ms: Added to the time that a request may take; below 0: it has so much less.
        key: See ``wires.Request``.

    Raises:
        ServerUnavailable: No server answered in time.
        LogdbError: The server's refusal.
    """
    return Exchange(connections, HttpRequest(method, path, body, headers or {}, key=key), safe=safe, patience_ms=patience_ms).answer()


def first_answered(exchanges: Sequence[Exchange[R]], timeout_s: float) -> list[Exchange[R]]:
    """Wait for the first of several answers to begin; returns the exchanges whose ``answer`` does not wait.  None after the timeout."""
    sockets = [exchange.socket for exchange in exchanges]
    if None in sockets:
        return [exchange for exchange, sock in zip(exchanges, sockets, strict=True) if sock is None]
    waiting = select.poll()
    found = {sock.fileno(): exchange for exchange, sock in zip(exchanges, sockets, strict=True) if sock is not None}
    for number in found:
        waiting.register(number, select.POLLIN)
    return [found[number] for number, _ in waiting.poll(timeout_s * 1000)]


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
