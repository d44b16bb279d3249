"""Common parts of all resources of Kafka's REST API v3: kind, URL, resource name (``crn:///kafka=…/topic=…``), checks of bodies, errors.

    status  error_code  meaning
    400     400         the body is not JSON, or has the wrong shape
    400     40002       refused as by Kafka's broker: a name, a config, a number of partitions, an existing name
    401     40101       not authenticated
    403     40301       not authorized
    404     404         no such cluster, broker, config, replica, group, consumer
    404     40402       a record for an unknown partition
    404     40403       unknown topic or partition
    413     413         a record larger than the topic accepts
    415     415         the body has another content type than JSON
    422     422         an empty body, a record that needs a schema, an invalid batch; the message begins with v2's code
    500     50002       every other error that the client cannot correct
    500     50003       every other error after which a retry may succeed

Other errors that the client can correct have the codes of the whole door.

Source: Confluent's kafka-rest, ``api/v3/openapi.yaml``, ``StatusCodeException``, ``RestConstraintViolationExceptionMapper``;
rest-utils, ``KafkaExceptionMapper``.
"""

import functools
from collections.abc import Iterable
from functools import partial
from typing import Any, cast
from urllib.parse import quote

from aiohttp import web

from logdb import errors
from logdb.errors import LogdbError
from logdb_http_api.door import documents
from logdb_http_api.door.request import Request, to_text
from logdb_http_api.door.routing import Handler
from logdb_http_api.errors import ApiError, code_of

ROOT = "/v3/clusters"
CLUSTER = ROOT + "/{cluster_id}"
NOT_HOSTED = (404, 40403)
REFUSED = (400, 40002)

_NAMES: dict[type[LogdbError], tuple[int, int]] = {
    errors.UnknownTopic: NOT_HOSTED,
    errors.UnknownPartition: NOT_HOSTED,
    errors.UnknownGroup: (404, 404),
    errors.TopicExists: REFUSED,
    errors.InvalidTopic: REFUSED,
    errors.InvalidPartitions: REFUSED,
    errors.InvalidReplicationFactor: REFUSED,
    errors.InvalidConfig: REFUSED,
    errors.InvalidGroup: REFUSED,
    errors.InvalidRecord: REFUSED,
    errors.InvalidTimestamp: REFUSED,
    errors.PolicyViolation: REFUSED,
    errors.InvalidSecurity: REFUSED,
    errors.SecurityDisabled: REFUSED,
    errors.RecordTooLarge: (413, 413),
    errors.NotAuthorized: (403, 40301),
    errors.AuthenticationFailed: (401, 40101),
    errors.Closed: (503, 503),
}


def told(error: LogdbError) -> ApiError:
    """The error in v3's form."""
    for kind, (status, code) in _NAMES.items():
        if isinstance(error, kind):
            return ApiError(status, code, str(error))
    status, code = code_of(error)
    if status < 500 and not error.retriable:
        return ApiError(status, code, str(error))
    return ApiError(500, 50003 if error.retriable else 50002, str(error))


def unprocessable(code: int, message: str) -> ApiError:
    """An error with a code of its own in v2, in v3's form."""
    return ApiError(422, 422, f"Error: {code} : {message}")


def not_found(kind: str, name: object) -> ApiError:
    """The error for an unknown resource."""
    return ApiError(404, 404, f"{kind} {name} cannot be found.")


def of_cluster(handler: Handler) -> Handler:
    """A handler for this cluster, whose errors have v3's form."""

    @functools.wraps(handler)
    async def handle(request: Request) -> web.StreamResponse:
        if request.path("cluster_id") != request.door.access.metadata.database_id:
            raise not_found("Cluster", request.path("cluster_id"))
        try:
            return await handler(request)
        except LogdbError as error:
            raise told(error) from error

    return handle


# ---------------------------------------------------------------- addresses and names


def url(request: Request, *parts: object) -> str:
    """The URL of ``/v3/clusters``, as the client knows it."""
    path = "".join(f"/{quote(str(part), safe='-._~:')}" for part in parts)
    return f"{request.http.url.origin()}{ROOT}{path}"


def related(request: Request, *parts: object) -> dict[str, str]:
    """A link to another resource of this cluster."""
    return {"related": url(request, request.door.access.metadata.database_id, *parts)}


def broker_link(request: Request, number: int | None) -> dict[str, str] | None:
    """A link to a broker; None: there is none now."""
    return None if number is None else related(request, "brokers", number)


def resource(request: Request, kind: str, parts: Iterable[object], name: str, /, **fields: Any) -> dict[str, Any]:
    """One resource.

    Args:
        parts: Of its URL below the cluster.
        name: Its name within the cluster, ``/topic=t``.
    """
    cluster_id = request.door.access.metadata.database_id
    metadata = {"self": url(request, cluster_id, *parts), "resource_name": f"crn:///kafka={cluster_id}{name}"}
    return {"kind": kind, "metadata": metadata, "cluster_id": cluster_id, **fields}


def collection(request: Request, kind: str, parts: Iterable[object], data: Iterable[Any]) -> web.Response:
    """All resources of a kind, on one page; ``data`` is made while it is written: call this in a thread if there may be many."""
    metadata = {"self": url(request, request.door.access.metadata.database_id, *parts), "next": None}
    begin = to_text({"kind": kind, "metadata": metadata}).removesuffix("}")
    return web.Response(body=f'{begin},"data":[{",".join(map(to_text, data))}]}}'.encode(), content_type="application/json")


# ---------------------------------------------------------------- bodies


async def read_object(request: Request, *names: str, size_bytes_max: int | None = None) -> dict[str, Any]:
    """The body as a JSON object with only these fields.

    Args:
        size_bytes_max: None: the door's limit for calls.

    Raises:
        ApiError: It is invalid (400), empty (422), or has another content type (415).
    """
    require_json(request)
    if not request.http.can_read_body:
        raise unprocessable(42206, "Payload error. Request body is empty. Data is required.")
    data = await request.body(size_bytes_max or request.door.limits.call_bytes_max)
    body = await request.parsed(data, partial(documents.parse, surrogates=True))
    require_fields(body, "the body", *names)
    return cast(dict[str, Any], body)


def require_fields(value: object, where: str, *names: str) -> None:
    """Raise unless a value is an object with only these fields; 400.  A misspelled field must not mean the default."""
    if wrong := documents.wrong_fields(value, names):
        raise ApiError(400, 400, f"Bad Request: {where} {wrong}")


def require_json(request: Request) -> None:
    """Raise unless the content type is JSON; 415."""
    if request.http.content_type != "application/json":
        raise ApiError(415, 415, f"HTTP 415 Unsupported Media Type: Content-Type is {request.http.content_type}: must be application/json")


def malformed(where: str, value: object, wanted: str) -> ApiError:
    """The error for an invalid part of a body."""
    return ApiError(400, 400, f"Bad Request: {where} is {value!r:.80}: must be {wanted}")


def whole(body: dict[str, Any], name: str, default: int | None = None) -> int | None:
    """A whole number of a body, by default ``default``."""
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise malformed(name, value, "a whole number")
    return value


def flag(body: dict[str, Any], name: str) -> bool:
    """true or false, by default false."""
    value = body.get(name)
    if value not in (None, True, False) or type(value) is int:
        raise malformed(name, value, "true or false")
    return bool(value)


def text(body: dict[str, Any], name: str) -> str:
    """A required string."""
    value = body.get(name)
    if not isinstance(value, str):
        raise malformed(name, value, "a string")
    return value


def objects(body: dict[str, Any], name: str, *names: str) -> list[dict[str, Any]]:
    """A list of objects with only the fields ``names``, by default empty."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed(name, value, "a list of objects")
    for at, item in enumerate(value):
        require_fields(item, f"{name}[{at}]", *names)
    return value
