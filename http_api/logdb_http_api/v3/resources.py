"""What every resource of Kafka's REST API v3 has: its kind, its address, its name, and the names of its errors.

Knows URLs, Confluent's resource names (``crn:///kafka=…/topic=…``), how bodies are checked, and how v3 calls what went wrong.
Does not know which resources there are.

    status  error_code  meaning
    400     400         the body is not JSON, or not of the shape that is wanted
    400     40002       what Kafka's broker would refuse: a name, a config, a number of partitions, what exists already
    401     40101       nobody knows who asks
    403     40301       who asks may not
    404     404         no such cluster, broker, config, replica, group, consumer
    404     40402       a record for a partition that there is not
    404     40403       no such topic, or partition
    413     413         a record larger than the topic takes
    415     415         the body is said to be something else than JSON
    422     422         a body that is empty, a record that needs a schema, a batch that is none; the message begins with v2's code
    500     50002       everything else that the asker cannot mend
    500     50003       everything else that may go well if it is tried again

Everything else that the asker can mend is called as everywhere at the door.

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
    """The error as v3 tells it."""
    for kind, (status, code) in _NAMES.items():
        if isinstance(error, kind):
            return ApiError(status, code, str(error))
    status, code = code_of(error)
    if status < 500 and not error.retriable:
        return ApiError(status, code, str(error))
    return ApiError(500, 50003 if error.retriable else 50002, str(error))


def unprocessable(code: int, message: str) -> ApiError:
    """What v2 has a code of its own for, as v3 tells it."""
    return ApiError(422, 422, f"Error: {code} : {message}")


def not_found(kind: str, name: object) -> ApiError:
    """There is no such thing."""
    return ApiError(404, 404, f"{kind} {name} cannot be found.")


def of_cluster(handler: Handler) -> Handler:
    """A handler for this cluster alone, whose errors are told as in v3."""

    @functools.wraps(handler)
    async def handle(request: Request) -> web.StreamResponse:
        if request.path("cluster_id") != request.door.access.database_id:
            raise not_found("Cluster", request.path("cluster_id"))
        try:
            return await handler(request)
        except LogdbError as error:
            raise told(error) from error

    return handle


# ---------------------------------------------------------------- addresses and names


def url(request: Request, *parts: object) -> str:
    """The address of what lies below ``/v3/clusters``, as the client reaches it."""
    path = "".join(f"/{quote(str(part), safe='-._~:')}" for part in parts)
    return f"{request.http.url.origin()}{ROOT}{path}"


def related(request: Request, *parts: object) -> dict[str, str]:
    """A link to another resource of this cluster."""
    return {"related": url(request, request.door.access.database_id, *parts)}


def resource(request: Request, kind: str, parts: Iterable[object], name: str, /, **fields: Any) -> dict[str, Any]:
    """One resource.

    Args:
        parts: Of its address below the cluster.
        name: Of the resource within the cluster, ``/topic=t``.
    """
    cluster_id = request.door.access.database_id
    metadata = {"self": url(request, cluster_id, *parts), "resource_name": f"crn:///kafka={cluster_id}{name}"}
    return {"kind": kind, "metadata": metadata, "cluster_id": cluster_id, **fields}


def collection(request: Request, kind: str, parts: Iterable[object], data: Iterable[Any]) -> web.Response:
    """All resources of a kind, on one page; ``data`` is made as it is written: call this in a thread where it may be much."""
    metadata = {"self": url(request, request.door.access.database_id, *parts), "next": None}
    begin = to_text({"kind": kind, "metadata": metadata}).removesuffix("}")
    return web.Response(body=f'{begin},"data":[{",".join(map(to_text, data))}]}}'.encode(), content_type="application/json")


# ---------------------------------------------------------------- bodies


async def read_object(request: Request, *names: str, size_bytes_max: int | None = None) -> dict[str, Any]:
    """The body as a JSON object, with no fields but these.

    Args:
        size_bytes_max: None: the door's limit for calls.

    Raises:
        ApiError: It is none (400), empty (422), or said to be something else (415).
    """
    require_json(request)
    if not request.http.can_read_body:
        raise unprocessable(42206, "Payload error. Request body is empty. Data is required.")
    data = await request.body(size_bytes_max or request.door.limits.call_bytes_max)
    body = await request.parsed(data, partial(documents.parse, surrogates=True))
    require_fields(body, "the body", *names)
    return cast(dict[str, Any], body)


def require_fields(value: object, where: str, *names: str) -> None:
    """Raise unless a value is an object with no fields but these; 400.  What is misspelled does not mean the default."""
    if wrong := documents.wrong_fields(value, names):
        raise ApiError(400, 400, f"Bad Request: {where} {wrong}")


def require_json(request: Request) -> None:
    """Raise unless the body is said to be JSON; 415."""
    if request.http.content_type != "application/json":
        raise ApiError(415, 415, f"HTTP 415 Unsupported Media Type: the body is {request.http.content_type}, wanted is application/json")


def malformed(where: str, value: object, wanted: str) -> ApiError:
    """A part of a body that is not what it is to be."""
    return ApiError(400, 400, f"Bad Request: {where} is {value!r:.80}, wanted is {wanted}")


def whole(body: dict[str, Any], name: str, default: int | None = None) -> int | None:
    """A whole number of a body, ``default`` where there is none."""
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise malformed(name, value, "a whole number")
    return value


def flag(body: dict[str, Any], name: str) -> bool:
    """true or false; false where there is none."""
    value = body.get(name)
    if value not in (None, True, False) or type(value) is int:
        raise malformed(name, value, "true or false")
    return bool(value)


def text(body: dict[str, Any], name: str) -> str:
    """A string that has to be there."""
    value = body.get(name)
    if not isinstance(value, str):
        raise malformed(name, value, "a string")
    return value


def objects(body: dict[str, Any], name: str, *names: str) -> list[dict[str, Any]]:
    """A list of objects with no fields but ``names``, empty where there is none."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed(name, value, "a list of objects")
    for at, item in enumerate(value):
        require_fields(item, f"{name}[{at}]", *names)
    return value
