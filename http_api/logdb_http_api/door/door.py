"""The HTTP door: listens, authenticates requests, and passes them to handlers, within its limits.

tls.py             the certificate, and the begin of a connection with TLS
connections.py     one protocol object per connection: its timeouts and its end
authentication.py  the principal of a request
routing.py         method and path -> route
request.py         the argument of a handler; the body within bounds
sending.py         its response, sent as fast as the client reads
express.py         record batches in and out, without routing, request and sending
pipelined.py       requests that a client pipelines behind them
"""

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from aiohttp import web

from logdb.access.access_control import AccessControl
from logdb.access.certificates import PrincipalRule
from logdb.errors import LogdbError
from logdb.model import TopicPartition
from logdb.pools import Pool
from logdb.serving.connection_slots import descriptors
from logdb_http_api.door import access_log, batches, calls, downloads, events, health, metrics_page, openapi, partitions, sending
from logdb_http_api.door.authentication import CHALLENGE, OPEN_PATHS, Authenticator
from logdb_http_api.door.connections import Connection, Connections
from logdb_http_api.door.express import Express
from logdb_http_api.door.kept_backups import KeptBackups
from logdb_http_api.door.limits import Limits
from logdb_http_api.door.request import Request, host_and_port
from logdb_http_api.door.routing import Route, Router
from logdb_http_api.door.shares import WAIT_S, Shares
from logdb_http_api.door.tls import Certificate, PendingHandshakes, Place
from logdb_http_api.errors import ApiError, describe, headers_of
from logdb_http_api.v2 import consumers as v2_consumers
from logdb_http_api.v2 import routes as v2
from logdb_http_api.v2.instances import Instances
from logdb_http_api.v3 import acls as v3_acls
from logdb_http_api.v3 import groups as v3_groups
from logdb_http_api.v3 import records as v3_records
from logdb_http_api.v3 import routes as v3

logger = logging.getLogger(__name__)

_MAKING_COUNT, _DECODING_COUNT, _CHANGING_COUNT = 4, 2, 2
_SMALL_ANSWER_BYTES = 64 << 10  # an answer of at most this size is handed to the transport as a whole
_THREAD_COUNT = 64  # of which one owner has half
_BACKLOG = 1024
_ACCEPT_ROUND_COUNT = 2


class HttpDoor:
    """One address that serves HTTP."""

    def __init__(
        self,
        access: AccessControl,
        address: str,
        *,
        access_log: bool = False,
        tls_cert: Place | None = None,
        tls_key: Place | None = None,
        tls_client_ca: Place | None = None,
        tls_principal: PrincipalRule = "cn",
        **limits: Any,
    ) -> None:
        """Check the options; ``open`` listens.

        Args:
            access_log: Write a line of JSON for each request to the logger ``logdb.access``.
            tls_cert, tls_key, tls_client_ca: See ``Certificate``; none: no TLS.
            tls_principal: The rule by which a certificate becomes a principal: see ``access.certificates``.
            limits: See ``Limits``.

        Raises:
            InvalidCertificate: The certificate cannot be used.
            ValueError, TypeError: An invalid address, or an unknown option.
        """
        if unknown := limits.keys() - Limits.__slots__:
            raise TypeError(f"a server has no option {', '.join(sorted(unknown))}; its limits are {', '.join(Limits.__slots__)}")
        self.access, self.limits = access, Limits(**limits)
        self._host, self._port = _host_and_port(address)
        if tls_cert is None and (tls_key is not None or tls_client_ca is not None):
            raise ValueError("tls_key and tls_client_ca are of use only with tls_cert")
        self._certificate = None if tls_cert is None else Certificate(tls_cert, tls_key, tls_client_ca)
        self._authenticator = Authenticator(access, tls_principal)
        self._access_log = access_log
        self.executor = Pool(_THREAD_COUNT, "logdb-http")
        self.slots = Shares(self.limits.requests_max, "requests")
        self.memory = Shares(self.limits.memory_bytes_max, "bytes of memory", wait_s=WAIT_S)
        self.threads = Shares(_THREAD_COUNT, "threads")
        self.making = Shares(_MAKING_COUNT, "answers of unknown size")
        self.decoding = Shares(_DECODING_COUNT, "large bodies of JSON")
        self.changing = Shares(_CHANGING_COUNT, "changes of topics")
        self.routes: tuple[Route, ...] = (
            *health.routes.all,
            *metrics_page.routes.all,
            *openapi.routes.all,
            *batches.routes.all,
            *partitions.routes.all,
            *calls.routes.all,
            *events.routes.all,
            *downloads.routes.all,
            *v2.routes.all,
            *v2_consumers.routes.all,
            *v3.routes.all,
            *v3_records.routes.all,
            *v3_groups.routes.all,
            *v3_acls.routes.all,
        )
        self.instances = Instances(self.limits, self.memory)
        self.backups = KeptBackups()
        self.appending: Counter[TopicPartition] = Counter()  # appends in threads, for which an append on the loop would wait
        self.draining = False
        self._pending: set[asyncio.Future[Any]] = set()
        self.ending = asyncio.Event()

    @cached_property
    def description(self) -> bytes:
        """The OpenAPI document of all routes, as JSON."""
        return json.dumps(openapi.document(self.routes)).encode()

    def reload(self) -> None:
        """Read the certificate again, for connections from now on; any thread.

        Raises:
            InvalidCertificate: The new certificate cannot be used; the former one stays in use.
        """
        if self._certificate is not None:
            self._certificate.reload()

    async def open(self) -> Sequence[str]:
        """Listen; returns the URL.

        Raises:
            OSError: The system refuses the address.
        """
        loop = asyncio.get_running_loop()
        self.waits = self.access.waits()
        self._router = Router(self.routes)
        express = None if self._access_log else Express(self, self._authenticator).take
        self._connections = Connections(web.Server(self._serve, handler_cancellation=True), self.limits, loop, express)
        accept: Callable[[], asyncio.Protocol] = self._connections.accept
        scheme = "http"
        self._handshakes = None if self._certificate is None else PendingHandshakes(self._certificate, self._connections)
        if self._handshakes is not None:
            accept, scheme = self._handshakes.begin, "https"
        self._listener = await loop.create_server(accept, self._host, self._port, backlog=descriptors(_BACKLOG))
        host, port = self._listener.sockets[0].getsockname()[:2]
        return (f"{scheme}://{host_and_port(host, port)}",)

    async def drain(self, timeout_ms: int) -> None:
        """Accept no more requests, answer the running ones, then close; waits for records end at once."""
        self.draining = True
        self.ending.set()
        self.waits.release()
        for told in self._pending:
            _tell_draining(told)
        try:
            await self._stop_listening()
            self._connections.close_idle()
            async with asyncio.timeout(timeout_ms / 1000):
                await self.instances.close()
                await self._connections.all_closed()
        except TimeoutError:
            logger.warning("%d connections are cut off after %d ms", len(self._connections.open), timeout_ms)
        finally:
            if self._handshakes is not None:
                self._handshakes.abort()
            self._connections.abort()
            self.backups.close()
            self._authenticator.close()
            self.executor.shutdown(wait=False, cancel_futures=True)

    async def _stop_listening(self) -> None:
        """Accept no more connections; ``_connections`` has all accepted ones when this returns.

        After an accept, asyncio takes two rounds of the loop to make a connection, and loses it if the listener is closed
        meanwhile: it would be neither answered nor closed.
        """
        loop = asyncio.get_running_loop()
        try:
            for listening in self._listener.sockets:
                loop.remove_reader(listening.fileno())
            for _ in range(_ACCEPT_ROUND_COUNT):
                await asyncio.sleep(0)
        finally:
            self._listener.close()

    @contextlib.contextmanager
    def drained_by(self, told: "asyncio.Future[Any]") -> Iterator[None]:
        """While a request waits for ``told``, draining ends the wait with an ApiError (503)."""
        self._pending.add(told)
        if self.draining:
            _tell_draining(told)
        try:
            yield
        finally:
            self._pending.discard(told)

    # ------------------------------------------------------------ a request

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; called by aiohttp."""
        connection, began_s = http.protocol, time.perf_counter()
        assert isinstance(connection, Connection)
        connection.begin()
        request = Request(http, self)
        try:
            response = await self._answer(request)
            if (delay_ms := await request.hold_back()) and not response.prepared:
                response.headers["Logdb-Throttle-Ms"] = str(delay_ms)
            if self.draining:
                response.force_close()
            with request.waiting():
                sent = await sending.send(http, response)
        finally:
            request.end()
            connection.end()
        if self._access_log:
            access_log.write(request, response, time.perf_counter() - began_s)
        return sent

    async def _answer(self, request: Request) -> web.StreamResponse:
        """The response to a request, or to its error; raises ConnectionError if the client is gone."""
        try:
            http = request.http
            route, parameters = self._router.find(http.method, http.rel_url.raw_path)
            principal, credential = await self._authenticator.identity(http, route)
            session = self.access.session(principal, http.remote or "", credential)
            request.begin(session, parameters, () if route.leaves_out else route.needs)
            if route.path not in OPEN_PATHS:
                request.take_slot()
            response = await route.handler(request)
            if isinstance(response, web.Response) and not isinstance(response.body, sending.Parts):
                size_bytes = len(response.body) if isinstance(response.body, bytes) else 0
                await request.keep_memory(size_bytes if size_bytes > _SMALL_ANSWER_BYTES else 0)
            return response
        except (ApiError, LogdbError) as error:
            request.give_memory_back()
            return _refusal(error, request)
        except ConnectionError:
            raise  # the client is gone
        except Exception as error:
            logger.exception("%s %s", request.http.method, request.http.path)
            if request.http.writer.output_size:
                raise ConnectionError("an answer broke off") from error
            return _refusal(error, request)


def _tell_draining(told: "asyncio.Future[Any]") -> None:
    if not told.done():
        told.set_exception(ApiError(503, 503, "the server is draining"))


def _refusal(error: Exception, request: Request) -> web.Response:
    status, body = describe(error)
    headers = headers_of(error)
    if status == 401:
        headers["WWW-Authenticate"] = CHALLENGE
    response = web.Response(body=json.dumps(body).encode(), status=status, content_type=request.error_type, headers=headers)
    if status == 408:
        response.force_close()
    return response


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r}: wanted is host:port, the port in [0, 65535]")
    return host.removeprefix("[").removesuffix("]"), int(port)
