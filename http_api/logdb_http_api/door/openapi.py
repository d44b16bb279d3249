"""``/openapi.json``: the OpenAPI 3.1 document of the door's routes."""

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from logdb import __version__
from logdb_http_api.door.request import Request
from logdb_http_api.door.routing import Route, Routes
from logdb_http_api.door.schemas import Number, Schemas

routes = Routes()

_PARAMETER = re.compile(r"{(\w+)}")
_OF_PATHS: Mapping[str, Any] = {
    **dict.fromkeys(("partition", "partition_id", "broker_id"), Number(0, 2**31 - 1)),
    **dict.fromkeys(("offset", "task"), Number(0)),
    "timestamp_ms": Number(-(2**63)),
}
_IN_PATHS = {
    "topic": "The topic's name.",
    "topic_name": "The topic's name.",
    "partition": "The partition's number, from 0 on.",
    "partition_id": "The partition's number, from 0 on.",
    "offset": "The record's offset.",
    "timestamp_ms": "Milliseconds since 1970; negative: before.",
    "group": "The group's id.",
    "instance": "The consumer instance's name.",
    "id": "The id of the backup, as its making has answered; or of the upload, as the client has chosen it.",
    "cluster_id": "The cluster's id, as GET /v3/clusters answers.",
    "broker_id": "The broker's number; 0 without a cluster.",
    "consumer_group_id": "The group's id.",
    "consumer_id": "The member's id.",
    "name": "The config's key.",
    "part": "The directory of the table: data or metadata.",
    "file": "The file's name.",
    "namespace": "The namespace: logdb.",
    "table": "The topic's name.",
    "connector": "The connector's name.",
    "task": "The task's number, from 0 on.",
    "action": "pause, resume or restart.",
}
_RECORDS = "Records as JSON: keys and values embedded as base64, text or JSON."
_TAGS = {
    "Health": ("Whether the server lives and takes requests, and its numbers for Prometheus.", ("health", "metrics_page", "openapi")),
    "Iceberg": ("The reading half of Iceberg's REST catalogue: topics as tables.", ("iceberg",)),
    "Page": ("The page at / for browsers, and its files.", ("page",)),
    "Raw batches": ("Record batches as they lie in the log: Kafka's RecordBatch v2.", ("batches", "uploads", "partitions", "upgrade")),
    "Calls": ("The calls of `logdb.open(url)`: methods of a session, arguments and results as JSON.", ("calls",)),
    "Connect": ("The connectors of the Connect worker that the server knows, for the page.", ("connect_worker",)),
    "Events": ("Records and changes of topics as server-sent events.", ("events",)),
    "Database": ("The database as a whole: recovery, the quorum, verification, backups.", ("downloads",)),
    "REST v2": (f"Kafka's REST API v2. {_RECORDS}", ("v2.routes",)),
    "REST v2 consumers": ("Consumer instances of Kafka's REST API v2.", ("v2.consumers",)),
    "REST v3": ("Kafka's REST API v3: clusters, brokers, topics, configs, partitions.", ("v3.routes",)),
    "REST v3 records": (f"Appending by Kafka's REST API v3. {_RECORDS}", ("v3.records",)),
    "REST v3 groups": ("Consumer groups of Kafka's REST API v3.", ("v3.groups",)),
    "REST v3 ACLs": ("ACLs of Kafka's REST API v3.", ("v3.acls",)),
}
"""The tags: their descriptions, and the modules of their routes."""
_TAG_OF = {module: tag for tag, (_, modules) in _TAGS.items() for module in modules}
_SCHEMES = {"basic": {"type": "http", "scheme": "basic"}, "bearer": {"type": "http", "scheme": "bearer"}}
_SECURITY: list[dict[str, list[str]]] = [{"basic": []}, {"bearer": []}, {}]  # {}: authentication may be off
_ERROR = {
    "type": "object",
    "description": "Why a request was refused; error_code is Kafka REST's where it has one.  error, fields, notes: of an error of logdb's.",
    "properties": {
        "error_code": {"type": "integer"},
        "message": {"type": "string"},
        "error": {"type": "string"},
        "fields": {"type": "object"},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["error_code", "message"],
}
_REASONS = {
    101: "The protocol is switched",
    200: "Done",
    201: "Made",
    204: "Done",
    206: "A part",
    207: "Done in part",
    400: "The request is malformed",
    401: "The credentials are missing or not valid",
    403: "The principal is not authorized",
    404: "It does not exist",
    405: "The path has other methods",
    406: "The client accepts none of its types",
    409: "It conflicts with the present state",
    410: "It was removed",
    412: "The log ends at another offset",
    413: "The body is too large",
    415: "The body is of another type",
    416: "The offset is out of range",
    422: "A value is not allowed",
    426: "The connection must change to another protocol",
    502: "The Connect worker has an error, or does not answer",
    503: "Not now",
    504: "The Connect worker did not answer in time",
    507: "There is no room",
}


@routes.get("/openapi.json", "This document", needs=(), gives={"application/json": object})
async def openapi(request: Request) -> web.StreamResponse:
    """All routes of this server in OpenAPI 3.1."""
    body = await request.call(lambda: request.door.description)
    return web.Response(body=body, content_type="application/json")


def document(described: Iterable[Route]) -> dict[str, Any]:
    """The document of some routes."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in described:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "logdb",
            "version": __version__,
            "description": "A log database: topics, partitions, offsets. HEAD is answered wherever GET is.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that this document is of."}],
        "tags": [{"name": tag, "description": said} for tag, (said, _) in _TAGS.items()],
        "security": _SECURITY,
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR, **schemas.named}, "securitySchemes": _SCHEMES},
    }


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": route.summary,
        "description": _description(route),
        "tags": [_TAG_OF.get(route.module, route.module)],
        "responses": _responses(route, schemas),
        "x-logdb-needs": list(route.needs),
    }
    if parameters := _parameters(route, schemas):
        operation["parameters"] = parameters
    if route.body is not None:
        content = {kind: _content(shape, schemas) for kind, shape in route.body.content.items()}
        operation["requestBody"] = {"content": content, "required": route.body.required}
    if not route.needs:
        operation["security"] = []
    return operation


def _description(route: Route) -> str:
    """The description of a route; at least its needs."""
    if said := route.description or inspect.getdoc(route.handler):
        return said.replace("``", "`")
    return f"{route.summary}. Needs {', '.join(route.needs) or 'nothing'}."


def _parameters(route: Route, schemas: Schemas) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _IN_PATHS[name],
            "schema": schemas.of(_OF_PATHS[name]) if name in _OF_PATHS else _name(),
        }
        for name in _PARAMETER.findall(route.path)
    ]
    others = [
        {"name": one.name, "in": one.where, "required": one.required, "description": one.said, "schema": schemas.of(one.shape)}
        for one in route.takes
    ]
    return in_path + others


def _name() -> dict[str, Any]:
    return {"type": "string", "minLength": 1}


def _content(shape: Any, schemas: Schemas) -> dict[str, Any]:
    """The content of a shape; ``bytes`` is not JSON."""
    return {"schema": {} if shape is bytes else schemas.of(shape)}


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    content = {kind: _content(shape, schemas) for kind, shape in route.gives.items()}
    done: dict[str, Any] = {"description": _REASONS[route.status]} | ({"content": content} if content else {})
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    refused = {str(status): {"description": _REASONS[status], "content": refusal} for status in sorted(_refusals(route))}
    return {str(route.status): done, **refused, "4XX": {"description": "Refused", "content": refusal}}


def _refusals(route: Route) -> set[int]:
    """The statuses of a route's errors."""
    statuses = {503, *route.refuses}
    if route.needs:
        statuses |= {401, 403}
    if "{" in route.path:
        statuses.add(404)
    if route.body is not None:
        statuses |= {400, 413, 415, 422}
    if route.takes:
        statuses.add(422)
    return statuses
