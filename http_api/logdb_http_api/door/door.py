"""The HTTP door: listens, authenticates requests, and passes them to handlers, within its limits.

connections.py     one protocol object per connection: its timeouts and its end
authentication.py  the principal of a request
routing.py         method and path -> route
request.py         the argument of a handler; the body within bounds
sending.py         its response, sent as fast as the client reads
upgrade.py         connections that go on in Kafka's protocol
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from aiohttp import web

from logdb.access.access_control import AccessControl
from logdb.access.certificates import PrincipalRule
from logdb.errors import LogdbError, NotCoordinator, NotLeaderOrFollower
from logdb.requests.principals import CLUSTER_NODE
from logdb.serving.connection_slots import ConnectionSlot
from logdb.serving.listener import Listener
from logdb.serving.resources import DoorResources
from logdb.serving.shares import Shares
from logdb.serving.tls import Certificate, FilePath
from logdb_http_api.door import (
    access_log,
    batches,
    calls,
    connect_worker,
    downloads,
    events,
    health,
    iceberg,
    metrics_page,
    openapi,
    page,
    partitions,
    sending,
    upgrade,
    uploads,
)
from logdb_http_api.door.authentication import OPEN_PATHS, Authenticator, challenge
from logdb_http_api.door.connect_worker import ConnectWorker
from logdb_http_api.door.connections import Connections, HttpConnection
from logdb_http_api.door.kept_backups import KeptBackups
from logdb_http_api.door.kept_uploads import KeptUploads
from logdb_http_api.door.limits import HttpLimits
from logdb_http_api.door.request import Request
from logdb_http_api.door.routing import Route, Router
from logdb_http_api.errors import REFUSALS, describe, headers_of
from logdb_http_api.protocol import FOLLOWS
from logdb_http_api.v2 import consumers as v2_consumers
from logdb_http_api.v2 import routes as v2
from logdb_http_api.v2.instances import Instances
from logdb_http_api.v3 import acls as v3_acls
from logdb_http_api.v3 import groups as v3_groups
from logdb_http_api.v3 import records as v3_records
from logdb_http_api.v3 import routes as v3

logger = logging.getLogger(__name__)

_MAKING_COUNT, _DECODING_COUNT = 4, 2
_EXPIRY_S = 600.0
_SMALL_ANSWER_BYTES = 64 << 10  # an answer of at most this size is handed to the transport as a whole


class HttpDoor(DoorResources):
    """One address that serves HTTP.

    Attributes:
        making: Answers whose size is unknown before they are there.
        decoding: Large bodies of JSON that are parsed.
        instances: Consumers of REST v2.
        backups: To be downloaded.
        uploads: To be appended.
        connect_worker: Whose connectors the page shows; None: the server knows none.
    """

    limits: HttpLimits

    LIMITS = HttpLimits
    OPTIONS = frozenset(("access_log", "connect_url", "connect_credentials", "connect_ca"))

    def __init__(
        self,
        access: AccessControl,
        address: str,
        *,
        access_log: bool = False,
        tls_cert: FilePath | None = None,
        tls_key: FilePath | None = None,
        tls_client_ca: FilePath | None = None,
        tls_principal: PrincipalRule = "cn",
        connect_url: str | None = None,
        connect_credentials: FilePath | None = None,
        connect_ca: FilePath | None = None,
        **limits: Any,
    ) -> None:
        """Check the options; ``open`` listens.

        Args:
            access_log: Write a line of JSON for each request to the logger ``logdb.access``.
            connect_url, connect_credentials, connect_ca: See ``ConnectWorker``; none: there is no worker.
            tls_cert, tls_key, tls_client_ca: See ``Certificate``; none: no TLS.
            tls_principal: The rule by which a certificate becomes a principal: see ``access.certificates``.
            limits: See ``HttpLimits``.

        Raises:
            InvalidCertificate: The certificate cannot be used.
            ValueError: The address, or an option, is invalid.
        """
        super().__init__(access, HttpLimits(**limits), "logdb-http")
        self._address = address
        self._certificate = Certificate.of_options(tls_cert, tls_key, tls_client_ca, alpn=("http/1.1",))
        self._authenticator = Authenticator(access, tls_principal)
        self._access_log = access_log
        self.making = Shares(_MAKING_COUNT, "answers of unknown size")
        self.decoding = Shares(_DECODING_COUNT, "large bodies of JSON")
        self.routes: tuple[Route, ...] = (
            *page.routes.all,
            *health.routes.all,
            *metrics_page.routes.all,
            *openapi.routes.all,
            *batches.routes.all,
            *uploads.routes.all,
            *upgrade.routes.all,
            *partitions.routes.all,
            *calls.routes.all,
            *connect_worker.routes.all,
            *events.routes.all,
            *downloads.routes.all,
            *iceberg.routes.all,
            *v2.routes.all,
            *v2_consumers.routes.all,
            *v3.routes.all,
            *v3_records.routes.all,
            *v3_groups.routes.all,
            *v3_acls.routes.all,
        )
        self.connect_worker = None if connect_url is None else ConnectWorker(connect_url, connect_credentials, connect_ca)
        self.backups = KeptBackups()
        self._expiry: asyncio.TimerHandle | None = None
        page.files()

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
        """Listen, if there is an address; returns the URL.

        Raises:
            OSError: The system refuses the address.
        """
        self.begin_waits()
        self.instances = Instances(self.limits, self.memory)
        self.uploads = KeptUploads(
            self.access.directory,
            bytes_max=self.limits.uploads_bytes_max,
            owner_bytes_max=self.limits.uploads_per_principal_bytes_max,
            idle_ms=self.limits.upload_idle_ms,
        )
        self._router = Router(self.routes)
        server = web.Server(self._serve, handler_cancellation=True)
        self._connections = Connections(server, self.limits, asyncio.get_running_loop())
        self._listener = Listener(
            self._address,
            self._certificate,
            self._connections.slots,
            self.accept,
            handshake_timeout_ms=self.limits.header_timeout_ms,
        )
        if self.uploads.is_used:
            self.expire_uploads()
        if not self._address:
            return ()
        return (f"{'http' if self._certificate is None else 'https'}://{await self._listener.open()}",)

    def accept(self, slot: ConnectionSlot | None = None) -> HttpConnection:
        """The protocol for a connection; None: it takes a slot itself."""
        return self._connections.accept(slot)

    def expire_uploads(self) -> None:
        """From now on remove old uploads from time to time, until there are none."""
        if self._expiry is None and not self.draining:
            delay_s = min(self.limits.upload_idle_ms / 1000, _EXPIRY_S)
            self._expiry = asyncio.get_running_loop().call_later(delay_s, self._remove_old_uploads)

    def _remove_old_uploads(self) -> None:
        self._expiry = None
        if not self.draining and self.uploads.is_used:
            self.executor.submit(self.uploads.remove_old)
            self.expire_uploads()

    async def drain(self, timeout_ms: int) -> None:
        """Take nothing new, answer what is under way, then close; what waits for records is answered at once."""
        self.end_waits()
        if self._expiry is not None:
            self._expiry.cancel()
        try:
            await self._listener.stop()
            self._connections.close_idle()
            async with asyncio.timeout(timeout_ms / 1000):
                await self.instances.close()
                await self._connections.all_closed()
        except TimeoutError:
            if self._connections.open:
                logger.warning("%d connections are cut off after %d ms", len(self._connections.open), timeout_ms)
        finally:
            self._listener.abort_handshakes()
            self._connections.abort()
            self.backups.close()
            if self.connect_worker is not None:
                await self.connect_worker.close()
            self._authenticator.close()
            self.executor.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------ a request

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; called by aiohttp."""
        request = Request(http, self)
        request.connection.begin(http)
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
            request.connection.end()
        self.log(request, response)
        return sent

    def log(self, request: Request, response: web.StreamResponse) -> None:
        """Write a line of an answered request, if that is an option."""
        if self._access_log:
            access_log.write(request, response)

    async def _answer(self, request: Request) -> web.StreamResponse:
        """The response to a request, or to its error; raises ConnectionError if the client is gone."""
        try:
            http = request.http
            route, parameters = self._router.find(http.method, http.rel_url.raw_path)
            principal, credential = await self._authenticator.identity(http, route)
            session = self.access.session(principal, http.remote or "", credential)
            session.gathers = self.access.is_replicated and principal != CLUSTER_NODE
            session.forwards = session.gathers and FOLLOWS not in http.headers
            request.begin(session, parameters, () if route.leaves_out else route.needs)
            if route.path not in OPEN_PATHS:
                request.take_slot()
            response = await route.handler(request)
            if isinstance(response, web.Response) and not isinstance(response.body, sending.Parts):
                size_bytes = len(response.body) if isinstance(response.body, bytes) else 0
                await request.keep_memory(size_bytes if size_bytes > _SMALL_ANSWER_BYTES else 0)
            return response
        except (*REFUSALS, LogdbError) as error:
            request.give_memory_back()
            if isinstance(error, NotLeaderOrFollower | NotCoordinator):
                request.session.located(error)
            return _refusal(error, request)
        except ConnectionError:
            raise  # the client is gone
        except Exception as error:
            logger.exception("%s %s", request.http.method, request.http.path)
            if request.http.writer.output_size:
                raise ConnectionError("an answer broke off") from error
            return _refusal(error, request)


def _refusal(error: Exception, request: Request) -> web.Response:
    status, body = describe(error)
    if request.http.rel_url.raw_path.startswith(iceberg.PATH):
        body = iceberg.error_body(status, body)
    headers = headers_of(error)
    if status == 401:
        headers["WWW-Authenticate"] = challenge(request.http)
    response = web.Response(body=json.dumps(body).encode(), status=status, content_type=request.error_type, headers=headers)
    if status == 408:
        response.force_close()
    return response
