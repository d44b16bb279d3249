"""Routes for ACLs in Kafka's REST API v3: search, create, delete.

Source: Confluent's kafka-rest, ``api/v3/openapi.yaml``, ``AclsResource``.  As there, words may be in lower case.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from aiohttp import web

from logdb.errors import InvalidSecurity
from logdb.mistakes import one_of
from logdb.requests.acls import Acl, AclFilter, spelled
from logdb.requests.principals import Principal
from logdb.requests.resources import OPERATIONS
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Parameter
from logdb_http_api.errors import ApiError
from logdb_http_api.v3 import shapes
from logdb_http_api.v3.resources import CLUSTER, objects, of_cluster, read_object, text, unprocessable, url

ACLS = CLUSTER + "/acls"
BATCH_COUNT_MAX = 10_000
_ANY, _MATCH = "ANY", "MATCH"

_TYPES = {spelled(kind): kind for kind in OPERATIONS}
_OPERATIONS = {spelled(one): one for operations in OPERATIONS.values() for one in operations}
_PATTERNS = {spelled(one): one for one in ("Literal", "Prefixed")}
_PERMISSIONS = {spelled(one): one for one in ("Deny", "Allow")}

routes = Routes()


class _Field(NamedTuple):
    """The spelling of an ACL's field; ``words``: its values, None: any text."""

    name: str
    words: Mapping[str, str] | None
    said: str


_FIELDS = {
    "resource_type": _Field("resource_type", _TYPES, "ANY, TOPIC, GROUP, CLUSTER or TRANSACTIONAL_ID."),
    "name": _Field("resource_name", None, "The resource's name; without it, all."),
    "pattern_type": _Field("pattern_type", _PATTERNS, "ANY, MATCH (all that apply to that name), LITERAL or PREFIXED."),
    "principal": _Field("principal", None, "The principal, such as User:alice; without it, all."),
    "host": _Field("host", None, "The client's address; without it, all."),
    "operation": _Field("operation", _OPERATIONS, "ANY, ALL, READ, DESCRIBE_CONFIGS, …"),
    "permission": _Field("permission", _PERMISSIONS, "ANY, ALLOW or DENY."),
}
_NAMES = tuple(one.name for one in _FIELDS.values())
_SEARCHED = tuple(Parameter(one.name, str, one.said) for one in _FIELDS.values())
_DELETED = tuple(Parameter(one.name, str, one.said, required=one.words is not None) for one in _FIELDS.values())


# ---------------------------------------------------------------- routes


@routes.get(
    ACLS,
    "Search ACLs",
    needs=("Describe Cluster",),
    takes=_SEARCHED,
    gives=shapes.all_of(shapes.ACL),
    refuses=(400,),
)
@of_cluster
async def search(request: Request) -> web.StreamResponse:
    wanted = _filter(request, required=False)
    given = {one.name: value for one in _FIELDS.values() if (value := request.query(one.name))}
    metadata = {"self": _url(request, given), "next": None}

    def found() -> web.Response:
        acls = request.session.security.acls([wanted])
        return answer({"kind": "KafkaAclList", "metadata": metadata, "data": [_shown(request, acl) for acl in acls]})

    return await request.call(found)


@routes.post(ACLS, "Create an ACL", needs=("Alter Cluster",), body=shapes.NEW_ACL, status=201)
@of_cluster
async def create(request: Request) -> web.StreamResponse:
    acl = _acl(await read_object(request, *_NAMES))
    await request.call(request.session.security.add_acls, [acl])
    return web.Response(status=201, headers={"Location": _url(request, _spelled(acl))})


@routes.post(ACLS + ":batch", "Create several ACLs, all or none", needs=("Alter Cluster",), body=shapes.NEW_ACLS, status=201)
@of_cluster
async def create_batch(request: Request) -> web.StreamResponse:
    acls = [_acl(entry) for entry in objects(await read_object(request, "data"), "data", *_NAMES)]
    if not 1 <= len(acls) <= BATCH_COUNT_MAX:
        raise unprocessable(42208, f"A batch of {len(acls)} ACLs: must be 1 to {BATCH_COUNT_MAX}.")
    await request.call(request.session.security.add_acls, acls)
    return web.Response(status=201)


@routes.delete(
    ACLS,
    "Delete ACLs by a search",
    needs=("Alter Cluster",),
    takes=_DELETED,
    gives=shapes.one({"data": [shapes.ACL]}),
    refuses=(400,),
)
@of_cluster
async def delete(request: Request) -> web.StreamResponse:
    """The deleted ACLs.  The four words are required, so that a forgotten one does not mean all."""
    gone = await request.call(request.session.security.delete_acls, [_filter(request, required=True)])
    return answer({"data": [_shown(request, acl) for acl in gone]})


# ---------------------------------------------------------------- from and to JSON


def _shown(request: Request, acl: Acl) -> dict[str, Any]:
    fields = _spelled(acl)
    return {"kind": "KafkaAcl", "metadata": {"self": _url(request, fields)}, "cluster_id": request.path("cluster_id"), **fields}


def _spelled(acl: Acl) -> dict[str, str]:
    given = acl._asdict()
    return {one.name: str(given[name]) if one.words is None else spelled(given[name]) for name, one in _FIELDS.items()}


def _url(request: Request, query: Mapping[str, str]) -> str:
    place = url(request, request.path("cluster_id"), "acls")
    return f"{place}?{urlencode(query, safe='*', quote_via=quote)}" if query else place


def _acl(entry: Mapping[str, Any]) -> Acl:
    """The ACL in an object.

    Raises:
        ApiError, InvalidSecurity: It is invalid.
    """
    given = {name: _value(one, text(dict(entry), one.name)) for name, one in _FIELDS.items()}
    try:
        return Acl(**given).check()
    except ValueError as error:
        raise InvalidSecurity(str(error)) from None


def _filter(request: Request, *, required: bool) -> AclFilter:
    """The filter in the query.

    Args:
        required: A missing word is an error.
    """
    given: dict[str, Any] = {}
    for name, one in _FIELDS.items():
        said = request.query(one.name) or None
        if said is None and required and one.words is not None:
            raise ApiError(400, 400, f"Bad Request: {one.name} is required; {_ANY} means all")
        if said is None or (one.words is not None and said.upper() == _ANY):
            continue
        if one.words is _PATTERNS and said.upper() == _MATCH:
            given["match"] = True
        else:
            given[name] = _value(one, said)
    return AclFilter(**given)


def _value(field: _Field, said: str) -> Any:
    """A field's value in logdb's spelling.

    Raises:
        ApiError: It is not one of the allowed words; 400.
    """
    if field.words is not None:
        if said.upper() not in field.words:
            raise ApiError(400, 400, f"Bad Request: {field.name} is {said[:40]!r}: must be {one_of(field.words)}")
        return field.words[said.upper()]
    if field.name != "principal":
        return said
    try:
        return Principal.parse(said)
    except ValueError as error:
        raise ApiError(400, 400, f"Bad Request: {error}") from None
