"""The calls of a session, each a route: ``POST /logdb/v1/calls/{name}`` with the arguments as a JSON object.

Knows which calls there are and what each needs; their arguments and results are the type hints of ``Session``, and of ``CredentialStore``
for users, tokens and ACLs.  Does not know what a call does.  The remote session is the other side.
"""

import asyncio
import contextlib
import inspect
import typing
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from logdb.access.security import CredentialStore
from logdb.client.database import Database
from logdb.client.session import Session
from logdb.coordinator import events
from logdb.log import isolation
from logdb_http_api import wire
from logdb_http_api.door import documents
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body
from logdb_http_api.errors import ApiError

if TYPE_CHECKING:
    from logdb.coordinator.events import JoinResult

PATH = "/logdb/v1/calls/"

# Kafka's operation and resource that each call needs: the session itself refuses whoever lacks it.
NEEDS: dict[str, tuple[str, ...]] = {
    "topics": ("Describe Topic",),
    "describe_topic": ("Describe Topic",),
    "partition_count": ("Describe Topic",),
    "create_topic": ("Create Topic",),
    "alter_topic": ("Alter Topic", "AlterConfigs Topic"),
    "delete_topic": ("Delete Topic",),
    "delete_records": ("Delete Topic",),
    "enforce_retention": ("Delete Topic",),
    "compact": ("Alter Topic",),
    "flush": ("IdempotentWrite Cluster",),
    "wait": ("Read Topic",),
    "init_producer_id": ("IdempotentWrite Cluster", "Write TransactionalId"),
    "add_partitions": ("Write TransactionalId", "Write Topic"),
    "add_offsets": ("Write TransactionalId", "Read Group"),
    "commit_transaction_offsets": ("Write TransactionalId", "Read Group", "Read Topic"),
    "end_transaction": ("Write TransactionalId",),
    "join_group": ("Read Group",),
    "sync_group": ("Read Group",),
    "heartbeat": ("Read Group",),
    "leave_group": ("Read Group",),
    "commit_offsets": ("Read Group", "Read Topic"),
    "fetch_offsets": ("Describe Group", "Describe Topic"),
    "groups": ("Describe Group",),
    "describe_group": ("Describe Group",),
    "delete_group": ("Delete Group",),
    "delete_offsets": ("Delete Group", "Read Topic"),
    "transactions": ("Describe TransactionalId",),
    "describe_transaction": ("Describe TransactionalId",),
    "abort_transaction": ("Write TransactionalId",),
    "users": ("Alter Cluster",),
    "add_user": ("Alter Cluster",),
    "set_password": ("Alter Cluster",),
    "alter_user": ("Alter Cluster",),
    "delete_users": ("Alter Cluster",),
    "tokens": ("Alter Cluster",),
    "add_token": ("Alter Cluster",),
    "revoke_tokens": ("Alter Cluster",),
    "acls": ("Describe Cluster",),
    "add_acls": ("Alter Cluster",),
    "delete_acls": ("Alter Cluster",),
}


class Shape(NamedTuple):
    """A call's parameters and result, by their types."""

    parameters: dict[str, Any]
    required: frozenset[str]
    result: Any


def shape(name: str) -> Shape:
    """What the call takes and returns."""
    function = getattr(CredentialStore if hasattr(CredentialStore, name) else Session, name)
    known = {**vars(events), "Future": Future, "IsolationLevel": isolation.IsolationLevel}
    hints = typing.get_type_hints(function, localns=known)
    result = hints.pop("return")
    if typing.get_origin(result) is Future:
        (result,) = typing.get_args(result)
    result = type(None) if result is None else result
    parameters = list(inspect.signature(function).parameters.values())[1:]
    required = frozenset(one.name for one in parameters if one.default is inspect.Parameter.empty)
    return Shape(hints, required, result)


_CHANGES = ("create_topic", "alter_topic", "delete_topic")
_LISTS = ("topics", "groups", "transactions")  # of what may be described

SHAPES = {name: shape(name) for name in NEEDS}
routes = Routes()


async def _arguments(request: Request, name: str) -> dict[str, Any]:
    """The call's arguments, checked.

    Raises:
        ApiError: They are not what the call takes; 422.
    """
    return await request.json(partial(_checked, name))


def _checked(name: str, given: Any) -> dict[str, Any]:
    parameters, required, _ = SHAPES[name]
    if wrong := documents.wrong_fields(given, sorted(parameters), sorted(required)):
        raise ApiError(422, 422, f"{name}: the body {wrong}")
    try:
        return {key: wire.decode(parameters[key], value, key) for key, value in given.items()}
    except wire.Malformed as error:
        raise ApiError(422, 422, f"{name}: {error}") from None


def _handler(name: str) -> Callable[[Request], Any]:
    async def call(request: Request) -> web.StreamResponse:
        arguments = await _arguments(request, name)
        whose = request.session.security if hasattr(CredentialStore, name) else request.session
        result = await (request.change if name in _CHANGES else request.call)(_carried_out, getattr(whose, name), arguments)
        if isinstance(result, Future):
            return answer(wire.encode(await _outcome(request, result)))
        return result

    return call


def _carried_out(function: Callable[..., Any], arguments: dict[str, Any]) -> "web.Response | Future[Any]":
    """The answer, or what becomes of it: a topic may have a hundred thousand partitions."""
    result = function(**arguments)
    return result if isinstance(result, Future) else answer(wire.encode(result))


async def _outcome(request: Request, future: "Future[Any]") -> Any:
    """What a call comes to; where it has to wait for that, the client is told."""
    if not future.done():
        await request.say_waiting()
    return await request.outcome(future)


async def _join_group(request: Request) -> web.StreamResponse:
    """A member that is not told its id, because its client went away, is taken out again."""
    arguments = await _arguments(request, "join_group")
    joined = await request.call(request.session.join_group, **arguments)
    try:
        return answer(wire.encode(await _outcome(request, joined)))
    except asyncio.CancelledError:
        if not arguments.get("member_id") and arguments.get("group_instance_id") is None:
            joined.add_done_callback(partial(_take_out, request, arguments["group_id"]))
        raise


def _take_out(request: Request, group_id: str, joined: "Future[JoinResult]") -> None:
    """Called by whoever completed the join, who may hold the group's lock: a thread of the door's does it."""
    if joined.exception() is None:
        with contextlib.suppress(RuntimeError):  # the door is closed: the member's time runs out
            request.door.executor.submit(request.session.leave_group, group_id, [joined.result().member_id])


async def _wait(request: Request) -> web.StreamResponse:
    """Whether the principal may read them, and whether there is something already, the session says; then no thread waits."""
    arguments = await _arguments(request, "wait")
    found = await request.call(request.session.wait, **arguments | {"timeout_ms": 0})
    if not found and arguments["timeout_ms"] > 0:
        found = await request.wait(**arguments)
    return answer(found)


_HANDLERS: dict[str, Callable[[Request], Any]] = {"join_group": _join_group, "wait": _wait}


def _arguments_of(name: str) -> Body:
    """The object that a call takes."""
    parameters, required, _ = SHAPES[name]
    return Body({"application/json": {key if key in required else f"{key}?": kind for key, kind in parameters.items()}})


def _description(name: str) -> str:
    """What the method says of itself; of one that does as another, what that says."""
    of = CredentialStore if hasattr(CredentialStore, name) else Session
    said = inspect.getdoc(getattr(of, name)) or ""
    return inspect.getdoc(getattr(Database, name)) or "" if said.startswith("See ``Database.") else said


for _name, _needs in NEEDS.items():
    routes.post(
        PATH + _name,
        f"{'CredentialStore' if hasattr(CredentialStore, _name) else 'Session'}.{_name}",
        needs=_needs,
        body=_arguments_of(_name),
        gives={"application/json": SHAPES[_name].result},
        description=_description(_name),
        leaves_out=_name in _LISTS,
    )(_HANDLERS.get(_name) or _handler(_name))
