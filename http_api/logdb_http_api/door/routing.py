"""Routing: the description of a route, and the way from a path to it.

One table of routes serves the door, the OpenAPI document and the tests of authorization.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, TypedDict, Unpack
from urllib.parse import unquote

from aiohttp import web

from logdb_http_api.door.request import Request
from logdb_http_api.door.schemas import Body, Parameter
from logdb_http_api.errors import ApiError

_FOUND_COUNT = 256

Handler: TypeAlias = Callable[[Request], Awaitable[web.StreamResponse]]


class Described(TypedDict, total=False):
    """The optional fields of ``Route``."""

    takes: tuple[Parameter, ...]
    body: Body
    gives: Mapping[str, Any]
    status: int
    refuses: tuple[int, ...]
    description: str
    leaves_out: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Route:
    """One method of one path.

    ``path`` has parameters as whole segments: ``/topics/{topic}``.  ``needs`` names the rights, in Kafka's words, such
    as ``"Read Topic"``; empty: none.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    needs: tuple[str, ...]
    takes: tuple[Parameter, ...] = ()  # beside those of the path
    body: Body | None = None
    gives: Mapping[str, Any] = field(default_factory=dict)  # shapes by content type; a stream of bytes is ``bytes``
    status: int = 200
    refuses: tuple[int, ...] = ()  # statuses, beside those that follow from path, body and needs
    description: str = ""  # empty: the handler's docstring
    leaves_out: bool = False  # a denied resource gets its own error, or is left out; the others are answered

    @property
    def module(self) -> str:
        """The module of its handler, below the add-on: ``v2.consumers``; modules of ``door`` without a prefix."""
        return self.handler.__module__.removeprefix("logdb_http_api.").removeprefix("door.")


class Routes:
    """Gathers the routes of a module.

    ::

        routes = Routes()

        @routes.get("/topics", "Names of all topics", needs=("Describe Topic",))
        async def topics(request: Request) -> web.StreamResponse: ...
    """

    def __init__(self) -> None:
        self.all: list[Route] = []

    def add(
        self, method: str, path: str, summary: str, *, needs: tuple[str, ...], **described: Unpack[Described]
    ) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.all.append(Route(method=method, path=path, handler=handler, summary=summary, needs=needs, **described))
            return handler

        return register

    def get(self, path: str, summary: str, *, needs: tuple[str, ...], **described: Unpack[Described]) -> Callable[[Handler], Handler]:
        return self.add("GET", path, summary, needs=needs, **described)

    def post(self, path: str, summary: str, *, needs: tuple[str, ...], **described: Unpack[Described]) -> Callable[[Handler], Handler]:
        return self.add("POST", path, summary, needs=needs, **described)

    def delete(self, path: str, summary: str, *, needs: tuple[str, ...], **described: Unpack[Described]) -> Callable[[Handler], Handler]:
        return self.add("DELETE", path, summary, needs=needs, **described)


class _Node:
    """A node of the tree of paths: what may follow after some segments."""

    __slots__ = ("methods", "named", "parameter")

    def __init__(self) -> None:
        self.named: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.methods: dict[str, Route] = {}


class Router:
    """Finds the route of a request.  A literal segment takes precedence over a parameter."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError if two routes are the same."""
        self._root = _Node()
        self._names: dict[Route, tuple[str, ...]] = {}
        self.find = lru_cache(_FOUND_COUNT)(self._route_of)
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in _segments(route.path):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.parameter = node = node.parameter or _Node()
            else:
                node = node.named.setdefault(segment, _Node())
        if route.method in node.methods:
            raise ValueError(f"{route.method} {route.path} is there already, as {node.methods[route.method].path}")
        node.methods[route.method] = route
        self._names[route] = tuple(names)

    def _route_of(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route, and its parameters, percent-decoded; ``find`` remembers the last ones.  HEAD has the route of GET.

        Args:
            path: As received, without the query.

        Raises:
            ApiError: No such path (404); another method (405).
        """
        try:
            segments = [unquote(segment, errors="strict") if "%" in segment else segment for segment in _segments(path)]
        except UnicodeDecodeError:
            raise ApiError(400, 400, f"{path[:200]!r}: what is percent-encoded is no UTF-8") from None
        found = _find(self._root, segments, 0, [])
        if found is None:
            raise ApiError(404, 404, f"there is nothing at {path[:200]}")
        node, values = found
        route = node.methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted([*node.methods, "HEAD"] if "GET" in node.methods else node.methods))
            raise ApiError(405, 405, f"{path[:200]} takes {allowed}, not {method[:20]}", headers={"Allow": allowed})
        return route, dict(zip(self._names[route], values, strict=True))


def _segments(path: str) -> list[str]:
    return path.removeprefix("/").split("/")


def _find(node: _Node, segments: list[str], at: int, values: list[str]) -> tuple[_Node, list[str]] | None:
    if at == len(segments):
        return (node, values) if node.methods else None
    following = node.named.get(segments[at])
    found = None if following is None else _find(following, segments, at + 1, values)
    if found is None and node.parameter is not None and segments[at]:
        found = _find(node.parameter, segments, at + 1, [*values, segments[at]])
    return found
