"""The connectors of a Connect worker, for the page: their states, and a few changes.

The server asks the one worker that its operator has named, by fixed paths, with the server's own credentials.  Nothing of a client's
request goes on but the name of a connector and the number of a task.  Of the answers, only states and traces come back: the configs of
connectors may hold passwords.  Redirects are not followed; answers and times are bounded.

Threading: the event loop of the door.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
from aiohttp import web

from logdb.mistakes import must_be, one_of
from logdb.requests.resources import CLUSTER
from logdb.serving.server import is_loopback
from logdb.serving.shares import Shares
from logdb.serving.tls import FilePath
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.errors import ApiError

_CALLS_COUNT = 4
_TIMEOUT_S = 15.0
_ANSWER_BYTES_MAX = 4 << 20
_MESSAGE_LENGTH_MAX = 2_000
_TRACE_LENGTH_MAX = 20_000
_NONE_NAMED = "this server knows no Connect worker: start it with --connect-url URL"
_ACTIONS = {"pause": ("PUT", "pause"), "resume": ("PUT", "resume"), "restart": ("POST", "restart?includeTasks=true")}
_RELAYED = (404, 409)
"""Statuses of a worker that are the client's, too."""

routes = Routes()
_STATE = {"state": str, "worker": str, "trace": str | None}
_CONNECTOR = {"name": str, "type": str, **_STATE, "tasks": [{"id": int, **_STATE}]}


class ConnectWorker:
    """The worker that a server asks."""

    def __init__(self, url: str, credentials: FilePath | None = None, ca: FilePath | None = None) -> None:
        """Nothing is asked yet.

        Args:
            url: Of its REST API.
            credentials: A file with the line ``USER:PASSWORD``.
            ca: A file of the authorities that are trusted, PEM; None: those of the system.

        Raises:
            ValueError: It is no such URL, the password would be sent in the clear, or a file cannot be used.
        """
        self.url = _checked(url)
        parts = urlsplit(self.url)
        self._headers = {} if credentials is None else {"Authorization": _authorization_in(credentials)}
        if self._headers and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise ValueError(f"connect_url is {url!r}: connect_credentials needs https, or a worker at this machine")
        if ca is not None and parts.scheme == "http":
            raise ValueError(f"connect_url is {url!r}: connect_ca needs https")
        self._tls = None if ca is None else _trusting(ca)
        self._session: aiohttp.ClientSession | None = None
        self._calls = Shares(_CALLS_COUNT, "requests to the Connect worker", wait_s=_TIMEOUT_S)

    async def ask(self, request: Request, method: str, path: str) -> Any:
        """The JSON of an answer; None: it has none.

        Args:
            request: What it is for: a few are answered at a time, and each has memory for the answer.

        Raises:
            ApiError: The worker refuses (404, 409), has another error (502), or does not answer (502, 504).
            NoRoom: Too many requests wait for the worker.
        """
        async with request.share(self._calls):
            await request.take_memory(_ANSWER_BYTES_MAX)
            return self._document(*await self._answered(method, path))

    async def _answered(self, method: str, path: str) -> tuple[int, bytes]:
        session = await self._opened()
        try:
            async with session.request(method, f"{self.url}{path}", allow_redirects=False) as answered:
                return answered.status, await _bounded(answered)
        except TimeoutError:
            changed = "" if method == "GET" else "; it may have done this all the same"
            raise ApiError(504, 504, f"the Connect worker at {self.url} did not answer within {_TIMEOUT_S:g} s{changed}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ApiError(502, 502, f"the Connect worker at {self.url} does not answer: {_shown(error)}; a retry is safe") from None

    def _document(self, status: int, content: bytes) -> Any:
        try:
            document = json.loads(content) if content else None
        except (ValueError, RecursionError):
            raise ApiError(502, 502, f"what answers at {self.url} is no Connect worker: its answer is not JSON") from None
        if 200 <= status < 300:
            return document
        message = document.get("message") if isinstance(document, dict) else None
        told = str(message)[:_MESSAGE_LENGTH_MAX] if isinstance(message, str) else "no message"
        if status in _RELAYED:
            raise ApiError(status, status, told)
        if status in (401, 403):
            raise ApiError(502, 502, f"the Connect worker at {self.url} refuses this server ({status}): {told}; see --connect-credentials")
        raise ApiError(502, 502, f"the Connect worker at {self.url} answers with status {status}: {told}")

    async def _opened(self) -> aiohttp.ClientSession:
        if self._tls is None and self.url.startswith("https:"):
            self._tls = await asyncio.to_thread(ssl.create_default_context)  # reads the system's authorities
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=_CALLS_COUNT, ssl=self._tls or True, force_close=True),  # a worker may have restarted
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _checked(url: str) -> str:
    """The URL without a slash at its end; ValueError: it is none of a worker."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.username is not None or parts.password is not None:
        raise ValueError("connect_url has a user or a password, which others can see: name a file by connect_credentials")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise ValueError(must_be("connect_url", url, "http://HOST:PORT or https://HOST:PORT"))
    return url.rstrip("/")


def _authorization_in(path: FilePath) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            user, colon, password = file.readline().rstrip("\r\n").partition(":")
    except OSError as error:
        raise ValueError(f"connect_credentials={path}: {error.strerror}") from None
    if not user or not colon:
        raise ValueError(f"connect_credentials={path}: its first line must be USER:PASSWORD")
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _trusting(path: FilePath) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(path))
    except OSError as error:  # no file, or no certificates in it
        raise ValueError(f"connect_ca={path}: {error.strerror or error}") from None


async def _bounded(answered: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for piece in answered.content.iter_any():
        content += piece
        if len(content) > _ANSWER_BYTES_MAX:
            raise ValueError(f"its answer is larger than {_ANSWER_BYTES_MAX} bytes")
    return bytes(content)


def _shown(error: Exception) -> str:
    return str(error)[:_MESSAGE_LENGTH_MAX] or type(error).__name__


# ------------------------------------------------------------ routes


@routes.get(
    "/logdb/v1/connect/connectors",
    "Connect: connectors and tasks of the worker, with their states",
    needs=("Describe Cluster",),
    gives={"application/json": {"worker": str | None, "connectors": [_CONNECTOR]}},
    refuses=(502, 504),
)
async def connectors(request: Request) -> web.StreamResponse:
    """``worker``: the URL of the worker that the server asks, ``--connect-url``; null: it has none.  A FAILED part has a trace."""
    request.session.need_any([("Describe", "Cluster", CLUSTER)])
    worker = request.door.connect_worker
    if worker is None:
        return answer({"worker": None, "connectors": []})
    document = await worker.ask(request, "GET", "/connectors?expand=status")
    try:
        listed = [_connector(name, one["status"]) for name, one in sorted(document.items())]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise ApiError(502, 502, f"what answers at {worker.url} is no Connect worker: its list of connectors has another form") from None
    return answer({"worker": worker.url, "connectors": listed})


def _connector(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    tasks = [{"id": int(one["id"]), **_part(one)} for one in status["tasks"]]
    return {"name": str(name), "type": str(status.get("type", "unknown")), **_part(status["connector"]), "tasks": tasks}


def _part(one: Mapping[str, Any]) -> dict[str, Any]:
    trace = one.get("trace")
    return {
        "state": str(one["state"]),
        "worker": str(one.get("worker_id", "")),
        "trace": None if trace is None else str(trace)[-_TRACE_LENGTH_MAX:],
    }


@routes.post(
    "/logdb/v1/connect/connectors/{connector}/{action}",
    "Connect: pause, resume or restart a connector",
    needs=("Alter Cluster",),
    status=204,
    refuses=(404, 409, 422, 502, 504),
)
async def change(request: Request) -> web.StreamResponse:
    """``action``: ``pause``, ``resume`` or ``restart``, which also restarts the tasks.  409: the group of workers rebalances; retry."""
    request.session.need_any([("Alter", "Cluster", CLUSTER)])
    action = request.path("action")
    if action not in _ACTIONS:
        raise ApiError(422, 422, must_be("action", action[:40], one_of(tuple(_ACTIONS))))
    method, rest = _ACTIONS[action]
    return await _change(request, method, f"/connectors/{_segment(request.path('connector'))}/{rest}")


@routes.post(
    "/logdb/v1/connect/connectors/{connector}/tasks/{task}/restart",
    "Connect: restart a task",
    needs=("Alter Cluster",),
    status=204,
    refuses=(404, 409, 422, 502, 504),
)
async def restart_task(request: Request) -> web.StreamResponse:
    """409: the group of workers rebalances; retry."""
    request.session.need_any([("Alter", "Cluster", CLUSTER)])
    task = request.path_number("task")
    return await _change(request, "POST", f"/connectors/{_segment(request.path('connector'))}/tasks/{task}/restart")


async def _change(request: Request, method: str, path: str) -> web.StreamResponse:
    worker = request.door.connect_worker
    if worker is None:
        raise ApiError(404, 404, _NONE_NAMED)
    await worker.ask(request, method, path)
    return web.Response(status=204)


def _segment(name: str) -> str:
    """A name as one segment of a path, which no client resolves: it leads to no other path."""
    if name in (".", ".."):
        raise ApiError(404, 404, f"Connector {name} not found")
    return quote(name, safe="")
