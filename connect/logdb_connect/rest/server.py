"""The REST API in a thread with an event loop of its own.  Work is done in threads: nothing waits on the loop."""

import asyncio
import base64
import contextlib
import hmac
import ipaddress
import logging
import ssl
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from logdb.errors import InsecureAddress
from logdb.serving.server import check_address
from logdb_connect.errors import ConfigError, ConnectError
from logdb_connect.properties import read
from logdb_connect.rest.routes import Handler, Served, make_app, refused
from logdb_connect.runtime.herder import Herder

logger = logging.getLogger(__name__)
_SHUTDOWN_S = 2


class RestServer:
    """Serves a herder at all listeners; until ``serve`` names one, it answers that the worker starts.

    Attributes:
        addresses: Scheme, host and port of each listener, once it has started.
        ended: Set when the server has failed.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Check the listeners.

        Raises:
            ConfigError: One could be reached by others, without TLS or users.
        """
        from logdb_connect.runtime.starting import listeners

        self._config, self._served = config, Served()
        self.addresses = listeners(config)
        self._users = read(config["rest.users.file"]) if config["rest.users.file"] else {}
        for scheme, host, port in self.addresses:
            shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                check_address(shown, tls=scheme == "https", authentication=bool(self._users), insecure=config["rest.insecure"])
            except InsecureAddress:
                raise ConfigError(
                    "listeners",
                    f"listeners={scheme}://{shown}: others can reach it. A caller may read files and reach hosts as this worker can. Use "
                    "https with rest.ssl.certfile and rest.users.file, listen at 127.0.0.1, or set rest.insecure=true",
                ) from None
            except ValueError as error:
                raise ConfigError("listeners", f"listeners={scheme}://{shown}: {error}") from None
        self.ended = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="connect-rest", daemon=True)

    def start(self) -> None:
        """Listen.

        Raises:
            ConnectError: An address is taken.
        """
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        except BaseException:
            self.stop()
            raise

    def wait_for(self, what: str) -> None:
        """Answer that the worker starts once this has come."""
        self._served.waits_for = what

    def serve(self, herder: Herder) -> None:
        self._served.herder = herder

    def stop(self) -> None:
        """Answer what is under way, and end."""
        if self._loop.is_closed():
            return
        if self._runner is not None:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(_SHUTDOWN_S + 3)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        with contextlib.suppress(RuntimeError):
            self._loop.close()

    async def _open(self) -> None:
        app = make_app(self._served)
        app.middlewares.insert(0, self._not_from_a_page)
        if self._users:
            app.middlewares.insert(1, self._authenticated)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        opened: list[tuple[str, str, int]] = []
        for scheme, host, port in self.addresses:
            site = web.TCPSite(self._runner, host, port, ssl_context=self._tls() if scheme == "https" else None)
            try:
                await site.start()
            except OSError as error:
                raise ConnectError(
                    f"listeners={scheme}://{host}:{port}: cannot listen: {error.strerror or error}; name another port"
                ) from None
            opened.append((scheme, host, self._runner.addresses[len(opened)][1]))
        self.addresses = opened

    def _tls(self) -> ssl.SSLContext:
        if not self._config["rest.ssl.certfile"]:
            raise ConfigError("rest.ssl.certfile", "an https listener needs rest.ssl.certfile, and rest.ssl.keyfile where it lacks the key")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._config["rest.ssl.certfile"], self._config["rest.ssl.keyfile"])
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("rest.ssl.certfile", f"rest.ssl.certfile={self._config['rest.ssl.certfile']}: {error}") from None
        return context

    @web.middleware
    async def _not_from_a_page(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what a web page of others lets a browser send: it would reach a listener at loopback.

        Such a request has another origin, a body that is not JSON, or the name of a host that the page's owner has redirected.
        """
        host = request.host
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return refused(403, f"requests from pages of {origin} are refused")
        if not self._users and not self._is_known(urlsplit(f"//{host}").hostname or ""):
            return refused(403, f"the host {host} is not one of this worker; use its address, or set rest.advertised.host.name")
        if request.method != "GET" and request.can_read_body and request.content_type != "application/json":
            return refused(415, "HTTP 415 Unsupported Media Type: send the header Content-Type: application/json")
        return await handler(request)

    def _is_known(self, host: str) -> bool:
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return True
        return host in {"localhost", self._config["rest.advertised.host.name"], *(name for _, name, _ in self.addresses)}

    @web.middleware
    async def _authenticated(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST" and request.path.endswith("/tasks"):
            return await handler(request)  # it checks the signature of a worker
        if len(request.headers.getall("Authorization", ())) > 1:
            return refused(400, "Authorization is there twice: send one")
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        with contextlib.suppress(ValueError):
            user, _, password = base64.b64decode(given).decode().partition(":") if kind.lower() == "basic" else ("", "", "")
            if user in self._users and hmac.compare_digest(password.encode(), self._users[user].encode()):
                return await handler(request)
        answer = refused(401, "User cannot access the resource.")
        answer.headers["WWW-Authenticate"] = "Basic"
        return answer
