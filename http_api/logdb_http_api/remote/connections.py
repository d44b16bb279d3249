"""The pool of connections to the servers of one database: which server a request goes to, and over which connection.

A request goes to the server that answered last; on a cluster to the node that leads what it is about, if one has said so.

Requests of record batches are frames of Kafka's protocol, on connections of their own, which were upgraded; from a server that lets no
connection be upgraded they are HTTP for the next ``_PLAIN_S``.

Until a server has answered for the first time, failed connections are retried for ``connect_timeout_ms`` alone: an address may be
wrong, or the server not started.  Later a missing server is retried for as long as an answer is awaited.

Threading: any number of threads, each with a connection of its own during a request.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Hashable, Sequence

from logdb.access.attempts import is_loopback
from logdb.errors import Closed, Forked
from logdb.threads import renewed
from logdb_http_api.remote.connection import Address, Security, ServerConnection

logger = logging.getLogger(__name__)

_LEADER_COUNT_MAX, _ADDRESS_COUNT_MAX = 10_000, 16
_IDLE_COUNT_MAX = 8  # idle connections in the pool
_AHEAD_COUNT_MAX = 8
_PLAIN_S = 60.0
_AVOIDED_S = 30.0


class Connections:
    """The pool of connections to the servers of one database."""

    def __init__(self, urls: Sequence[str], security: Security, *, timeout_ms: int, connect_timeout_ms: int, rack: str = "") -> None:
        """``rack``: the client's; "": it reads at leaders alone."""
        self.rack = rack
        self._avoided: dict[Address, float] = {}  # followers that have failed a reader, until when they are left alone
        self._addresses = tuple(Address.of(url) for url in urls)
        self.urls = tuple(address.url for address in self._addresses)
        self._security, self.timeout_s, self._connect_timeout_s = security, timeout_ms / 1000, connect_timeout_ms / 1000
        self.connect_until = time.monotonic() + self._connect_timeout_s  # 0 once a server has answered
        self._told = False  # whether the log says that no server answers
        self._at = 0
        self._unreachable: set[Address] = set()  # leaders of which the log says that they do not answer
        self.leaders: dict[Hashable, Address] = {}  # by the key of a request; an entry may be out of date
        self.redirect_count = 0
        self._plain_until: dict[Address, float] = {}  # servers that let no connection be upgraded
        self._idle: list[ServerConnection] = []
        self._busy = set[weakref.ref[ServerConnection]]()  # a connection that Ctrl-C dropped between two steps leaves it by itself
        self._lock = renewed(threading.Lock())
        self.ahead = threading.BoundedSemaphore(_AHEAD_COUNT_MAX)  # bounds requests whose answers are read later
        self._owner = os.getpid()
        self.ended, self.closed = renewed(threading.Event()), False

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
            raise Forked(f"the database was opened by process {self._owner}, this is its child {os.getpid()}: open it again in the child")
        if self.closed:
            raise Closed("the database is closed")

    @property
    def is_cluster(self) -> bool:
        """Whether a server has named another one as a leader."""
        return self.redirect_count > 0

    def take(self, timeout_s: float, *, frames: bool = False, leader: Address | None = None) -> ServerConnection:
        """A connection for one request.

        Args:
            frames: One that carries frames, if the server lets it.
            leader: The server; None: the one in use; for frames any, preferably the one that answered last.
        """
        self.check_open()
        address = leader or self._addresses[self._at % len(self._addresses)]
        frames = frames and (not self._plain_until or self._may_upgrade(address))
        if frames and (connection := self._pooled(leader, pipelines=True)) is not None:
            return connection
        is_pooled = (connection := self._pooled(address, pipelines=False)) is not None  # another knows no position of a watch
        if connection is None:
            connect_timeout_s = self._connect_timeout_s / len(self._addresses) if self.connect_until else self.timeout_s
            connection = self._lent(ServerConnection(address, self._security, min(timeout_s, connect_timeout_s)))
            self._unreachable.discard(address)
        if not frames or not self._may_upgrade(connection.address) or self._is_upgraded(connection, timeout_s, is_pooled=is_pooled):
            return connection
        self.give_back(connection)
        return self.take(timeout_s, leader=leader)

    def _may_upgrade(self, address: Address) -> bool:
        return time.monotonic() >= self._plain_until.get(address, 0.0)

    def _is_upgraded(self, connection: ServerConnection, timeout_s: float, *, is_pooled: bool) -> bool:
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

    def _pooled(self, leader: Address | None, *, pipelines: bool) -> ServerConnection | None:
        """The idle connection that was used last, and is usable; ``leader``: to that server."""
        while True:
            with self._lock:
                for at in range(len(self._idle) - 1, -1, -1):
                    connection = self._idle[at]
                    if connection.pipelines == pipelines and (leader is None or connection.address == leader):
                        del self._idle[at]
                        self._busy.add(weakref.ref(connection, self._busy.discard))
                        break
                else:
                    return None
            if connection.is_usable():
                return connection
            self.drop(connection)

    def _lent(self, connection: ServerConnection) -> ServerConnection:
        with self._lock:
            if not self.closed:
                self._busy.add(weakref.ref(connection, self._busy.discard))
                return connection
        connection.close()
        raise Closed("the database is closed")

    def give_back(self, connection: ServerConnection) -> None:
        """Return a connection whose answer was read to its end."""
        with self._lock:
            self._busy.discard(weakref.ref(connection))
            if not self.closed and connection.lasts and len(self._idle) < _IDLE_COUNT_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def drop(self, connection: ServerConnection, *, broken: bool = False) -> None:
        """Close a connection; ``broken``: the next server is used from now on."""
        with self._lock:
            self._busy.discard(weakref.ref(connection))
        connection.close()
        if broken:
            self.fail_over(connection.address)

    def fail_over(self, address: Address | None) -> None:
        """Use the next server from now on, if this one is in use; it leads nothing any more, as far as is known."""
        if address is None or self._addresses[self._at % len(self._addresses)] == address:
            self._at += 1
        if address in list(self.leaders.values()):
            self.leaders = {key: leader for key, leader in list(self.leaders.items()) if leader != address}  # others change it

    def redirected(self, key: Hashable | None, place: object) -> Address | None:
        """A server has said where the leader is of what a request with this key is about: ``place``, see ``learn``."""
        self.redirect_count += 1
        return self.learn(key, place)

    def learn(self, key: Hashable | None, place: object) -> Address | None:
        """The server that leads what requests with this key are about, from now on.

        Args:
            place: HOST:PORT; anything else: it names none.
        """
        leader = self._named(place) if isinstance(place, str) and place else None
        if leader is None:
            self.leaders.pop(key, None)
            return None
        if leader not in self._addresses and len(self._addresses) < _ADDRESS_COUNT_MAX:
            self._addresses += (leader,)
        if key is not None:
            if len(self.leaders) >= _LEADER_COUNT_MAX:
                self.leaders = {}
            self.leaders[key] = leader
        return leader

    def _named(self, place: str) -> Address | None:
        """The server at HOST:PORT, a text that a server has sent; None: it is no such text."""
        first = self._addresses[0]
        try:
            address = Address.of(f"{'https' if first.tls else 'http'}://{place}{first.prefix}")
        except ValueError:
            return None
        return address if address.prefix == first.prefix and "@" not in place else None

    def follower(self, place: str) -> Address | None:
        """The follower that a leader has named, HOST:PORT; None: it has named none, or one that has failed a moment ago."""
        address = self._named(place) if place else None
        return None if address is None or time.monotonic() < self._avoided.get(address, 0.0) else address

    def avoid(self, follower: Address) -> None:
        """A follower has failed a reader: readers stay at leaders for a while."""
        self._avoided[follower] = time.monotonic() + _AVOIDED_S

    def answered(self) -> None:
        """A server has answered."""
        self.connect_until, self._told = 0.0, False

    def failed(self, count: int, reason: str, left_s: float) -> None:
        """A request has failed ``count`` times, and is tried again: log it, once all servers have been tried."""
        if count >= len(self.urls) and not self._told:
            self._told = True
            logger.warning("no server answers at %s: %s; trying again for %.3g s", ", ".join(self.urls), reason, left_s)

    def leader_failed(self, leader: Address, reason: str, left_s: float) -> None:
        """A request has failed at the server that another one has named, and is tried again: log it, once until that server answers."""
        if leader not in self._unreachable:
            self._unreachable.add(leader)
            logger.warning("%s, the leader of the partition, does not answer: %s; retrying for %.3g s", leader.url, reason, left_s)

    def close(self) -> None:
        """End all running requests."""
        with self._lock:
            self.closed = True
            self.ended.set()
            idle, self._idle, busy = self._idle, [], self._busy.copy()
        for connection in idle:
            connection.close()
        if os.getpid() == self._owner:
            for one in busy:
                if (found := one()) is not None:
                    found.cut()
