"""The reading half of Iceberg's REST catalogue: topics with a table, as tables of the namespace ``logdb``.

Source: https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml.  ``logdb.store.tables`` has the tables.  Locations
are paths of this machine.  An engine reads these files itself, or gets them here: ``files`` is a route of logdb, for ``logdb_iceberg``.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

from aiohttp import web

from logdb.access.session import AuthorizedSession
from logdb.errors import CorruptionError, ReadFailed
from logdb.io import IO
from logdb.store.tables import current_metadata, is_table, read_metadata, refuse_links, table_directory
from logdb_http_api.door.file_ranges import file_answer
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Parameter
from logdb_http_api.errors import ApiError

R = TypeVar("R")

PATH = "/iceberg/"
_NAMESPACE = "logdb"
_UNKNOWN_TABLE, _UNKNOWN_NAMESPACE, _UNKNOWN_FILE = 40408, 40409, 40410
_KINDS = {
    _UNKNOWN_TABLE: "NoSuchTableException", _UNKNOWN_NAMESPACE: "NoSuchNamespaceException",
    400: "BadRequestException", 401: "NotAuthorizedException", 403: "ForbiddenException", 404: "NotFoundException",
    405: "UnsupportedOperationException", 429: "SlowDownException", 503: "ServiceUnavailableException",
}  # fmt: skip
_LISTED = "/v1/{prefix}/namespaces"
_ENDPOINTS = [
    f"GET {_LISTED}", f"GET {_LISTED}/{{namespace}}", f"HEAD {_LISTED}/{{namespace}}", f"GET {_LISTED}/{{namespace}}/tables",
    f"GET {_LISTED}/{{namespace}}/tables/{{table}}", f"HEAD {_LISTED}/{{namespace}}/tables/{{table}}",
]  # fmt: skip
_TRIES = 3
_FILE = "application/octet-stream"
_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,120}(\.metadata)?\.(parquet|avro|json)")

logger = logging.getLogger(__name__)
routes = Routes()


def error_body(status: int, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an error in the form of the catalogue, beside that of the listener's other errors."""
    kind = _KINDS.get(body.get("error_code", status), _KINDS.get(status, "InternalServerError"))
    return {**body, "error": {"message": body.get("message", ""), "type": kind, "code": status}}


@routes.get("/iceberg/v1/config", "Iceberg: the configuration of the catalogue", needs=(), gives={"application/json": object})
async def config(_request: Request) -> web.StreamResponse:
    """Without overrides; ``endpoints`` names the routes that are served."""
    return answer({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})


@routes.get(
    "/iceberg/v1/namespaces",
    "Iceberg: the namespace",
    needs=(),
    takes=(Parameter("parent", str, "List the namespaces below this one: there are none."),),
    gives={"application/json": {"namespaces": list[list[str]]}},
    refuses=(404,),
)
async def namespaces(request: Request) -> web.StreamResponse:
    """The one namespace, ``logdb``; it has no namespaces below it."""
    parent = request.query("parent")
    if parent:
        _check_namespace(parent)
    return answer({"namespaces": [] if parent else [[_NAMESPACE]]})


@routes.get("/iceberg/v1/namespaces/{namespace}", "Iceberg: the namespace", needs=(), gives={"application/json": object}, refuses=(404,))
async def namespace(request: Request) -> web.StreamResponse:
    """Its properties: none."""
    _check_namespace(request.path("namespace"))
    return answer({"namespace": [_NAMESPACE], "properties": {}})


@routes.get(
    "/iceberg/v1/namespaces/{namespace}/tables",
    "Iceberg: the tables",
    needs=("Read Topic",),
    gives={"application/json": object},
    refuses=(404,),
    leaves_out=True,
)
async def tables(request: Request) -> web.StreamResponse:
    """The topics that have a table and that the principal may read."""
    _check_namespace(request.path("namespace"))
    names = await request.call(_tables, request.session, request.door.access.directory)
    return answer({"identifiers": [{"namespace": [_NAMESPACE], "name": name} for name in names]})


@routes.get(
    "/iceberg/v1/namespaces/{namespace}/tables/{table}",
    "Iceberg: the metadata of a table",
    needs=("Read Topic",),
    gives={"application/json": object},
    refuses=(404,),
)
async def table(request: Request) -> web.StreamResponse:
    """The current metadata, with all snapshots.  Locations are paths of the server's machine."""
    _check_namespace(request.path("namespace"))
    body = await request.call(_metadata, request.session, request.door.access.directory, request.path("table"))
    return web.Response(body=body, content_type="application/json")


@routes.get(
    "/iceberg/v1/namespaces/{namespace}/tables/{table}/files/{part}/{file}",
    "Iceberg: a file of a table",
    needs=("Read Topic",),
    gives={_FILE: bytes},
    refuses=(404, 416),
)
async def files(request: Request) -> web.StreamResponse:
    """A file in the table's directory, or the requested range of it; ``part``: ``data`` or ``metadata``.  Its bytes count as fetched."""
    _check_namespace(request.path("namespace"))
    topic, part, name = request.path("table"), request.path("part"), request.path("file")
    path = await request.call(_file_path, request.session, request.door.access.directory, topic, part, name)

    def allow(size_bytes: int) -> None:
        request.session.need_any([("Read", "Topic", topic)])
        request.session.fetched(topic, size_bytes)

    try:
        return await file_answer(request, path, f"{part}/{name}", _FILE, allow)
    except FileNotFoundError:
        message = f"table {_NAMESPACE}.{topic[:250]} has no file {part}/{name}: load the table again, its snapshot may have expired"
        raise ApiError(404, _UNKNOWN_FILE, message) from None


def _file_path(session: AuthorizedSession, directory: str, topic: str, part: str, name: str) -> str:
    """The path of a file of a table; each name is checked before it becomes part of a path."""
    session.need_any([("Read", "Topic", topic)])
    topic_id = _topic_id(session, topic)
    if topic_id is None or _of_current(session, directory, topic, partial(_owner_at, session.io)) != topic_id:
        raise _no_table(topic)
    if part not in {"data", "metadata"} or _FILE_NAME.fullmatch(name) is None:
        raise ApiError(404, _UNKNOWN_FILE, f"table {_NAMESPACE}.{topic} has no file {f'{part}/{name}'[:250]!r}")
    return os.path.join(table_directory(directory, topic), part, name)


def _check_namespace(name: str) -> None:
    if name != _NAMESPACE:
        raise ApiError(404, _UNKNOWN_NAMESPACE, f"namespace {name[:250]!r} does not exist: the only one is {_NAMESPACE!r}")


def _tables(session: AuthorizedSession, directory: str) -> list[str]:
    """The tables that the principal may read; one that cannot be read is left out, and logged once."""
    owner, found = partial(_owner_at, session.io), []
    for topic in session.topics():
        if not is_table(topic.config) or "Read" not in session.operations("Topic", topic.name):
            continue
        try:
            if _of_current(session, directory, topic.name, owner) == topic.topic_id:
                found.append(topic.name)
        except (ApiError, ReadFailed, CorruptionError) as error:
            _tell_unreadable(topic.name, str(error))
    return found


@lru_cache(256)  # clients list the tables often
def _tell_unreadable(name: str, message: str) -> None:
    logger.error("table %s.%s is left out of the list: %s", _NAMESPACE, name, message)


def _metadata(session: AuthorizedSession, directory: str, name: str) -> bytes:
    """The answer with the metadata of a table; the name is looked up among the topics before it becomes a path."""
    session.need_any([("Read", "Topic", name)])
    topic_id = _topic_id(session, name)
    found = None if topic_id is None else _of_current(session, directory, name, partial(_loaded, session.io))
    if found is None or _owner(found["metadata"]) != topic_id:
        raise _no_table(name)
    return json.dumps(found).encode()


def _topic_id(session: AuthorizedSession, name: str) -> str | None:
    """The id of a topic that is to have a table."""
    return next((topic.topic_id for topic in session.topics() if topic.name == name and is_table(topic.config)), None)


def _of_current(session: AuthorizedSession, directory: str, name: str, read: Callable[[str], R]) -> R | None:
    """What ``read`` makes of the path of a table's current metadata; None: there is none."""
    place = table_directory(directory, name)
    refuse_links(session.io, place)
    for tries in range(1, _TRIES + 1):
        if (found := current_metadata(session.io, place)) is None:
            break
        try:
            return read(found[1])
        except FileNotFoundError:  # it is so old by now that it was removed
            if tries == _TRIES:
                raise
    return None


def _loaded(io: IO, path: str) -> dict[str, Any]:
    try:
        metadata = read_metadata(io, path)
    except ValueError as error:
        raise ApiError(500, 500, f"{os.path.basename(path)} is damaged: {error}") from None
    return {"metadata-location": f"file://{path}", "metadata": metadata, "config": {}}


def _owner(metadata: Any) -> Any:
    """The id of the topic that a table is of: a topic that was deleted leaves its table for a while to one of the same name."""
    properties = metadata.get("properties") if isinstance(metadata, dict) else None
    return properties.get("logdb.topic-id") if isinstance(properties, dict) else None


def _owner_at(io: IO, path: str) -> Any:
    return _owner_of_version(io, path, io.path_version(path))


@lru_cache(256)  # a file of metadata may be large, and engines ask for many ranges
def _owner_of_version(io: IO, path: str, _version: tuple[int, ...] | None) -> Any:
    return _owner(_loaded(io, path)["metadata"])


def _no_table(name: str) -> ApiError:
    return ApiError(
        404, _UNKNOWN_TABLE, f"table {_NAMESPACE}.{name[:250]} does not exist: no topic of that name has a sealed segment in a table"
    )
