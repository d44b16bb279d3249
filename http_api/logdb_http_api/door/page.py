"""The page at ``/``: its files, and the headers that a browser needs for them.

The files are package data, in ``logdb_http_api/page``.  They are read once, before the server listens, and served from memory: a name in
a URL is looked up among their names.  The page is a client like any other, so its files hold no secrets and need no authentication.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from aiohttp import web

from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.errors import ApiError

INDEX = "index.html"
PATHS = frozenset(("/", "/page/{file}"))
"""The paths of the page."""
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # ask again each time, with the ETag
}
_HINT = {
    "message": "logdb's HTTP API. A browser gets a page at this address.",
    "openapi": "/openapi.json",
    "topics": "/topics",
    "metrics": "/metrics",
}
_HTML = re.compile(r"\s*text/html\s*(;.*)?", re.IGNORECASE)
_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0{0,3})?\s*(;|$)", re.IGNORECASE)

routes = Routes()


class File(NamedTuple):
    """One file of the page."""

    content_type: str
    body: bytes
    etag: str


@cache
def files() -> Mapping[str, File]:
    """All files of the page by their names.  Reads the disk at the first call."""
    found = {}
    for entry in (resources.files("logdb_http_api") / "page").iterdir():
        if (kind := _TYPES.get(entry.name.rpartition(".")[2])) is not None:
            body = entry.read_bytes()
            found[entry.name] = File(kind, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


@routes.get(
    "/",
    "A page for browsers; for other clients, where the description is",
    needs=(),
    gives={"text/html": str, "application/json": {"message": str, "openapi": str, "topics": str, "metrics": str}},
)
async def root(request: Request) -> web.StreamResponse:
    """A client that accepts ``text/html`` gets the page, any other client gets JSON that names ``/openapi.json``."""
    accepted = request.http.headers.get("Accept", "").split(",")
    if any(_HTML.fullmatch(kind) and not _REFUSED.search(kind) for kind in accepted):
        return _sent(request, files()[INDEX])
    return answer(_HINT, headers={"Vary": "Accept"})


@routes.get(
    "/page/{file}",
    "A file of the page",
    needs=(),
    gives={"text/javascript": str, "text/css": str, "image/svg+xml": str, "text/html": str},
)
async def file(request: Request) -> web.StreamResponse:
    """A file that the page loads."""
    name = request.path("file")
    found = files().get(name)
    if found is None:
        raise ApiError(404, 404, f"the page has no file {name[:80]!r}")
    return _sent(request, found)


def _sent(request: Request, found: File) -> web.Response:
    """The file, or 304 if the client has it."""
    headers = {**_HEADERS, "Content-Type": found.content_type, "ETag": found.etag, "Vary": "Accept"}
    known = request.http.headers.get("If-None-Match", "")
    if known.strip() == "*" or found.etag in (one.strip().removeprefix("W/") for one in known.split(",")):
        del headers["Content-Type"]
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.body, headers=headers)
