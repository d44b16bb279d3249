"""The requests of a session, each a route: ``POST /logdb/v1/calls/{method}`` with the request as a JSON object.

The class of a request has its fields, its answer and its needs.  The remote session is the other side.

Bounds are checked before memory is taken: the size of a body (``Request.body``), whether the principal may do anything of that kind, how
deep the document is and how much memory it would take (``documents``); then the fields by their types.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from logdb.client.database import Database
from logdb.errors import MemberIdRequired
from logdb.requests import cluster, groups, topic_changes, topics, transactions
from logdb.requests.groups import JoinGroup, LeaveGroup, SyncGroup
from logdb.requests.request import REQUESTS
from logdb.requests.request import Request as SessionRequest
from logdb.requests.security import SECURITY_REQUESTS, CredentialStore
from logdb.requests.session import Session
from logdb.requests.topic_changes import AlterTopic, CreateTopic, DeleteTopic
from logdb.requests.topics import Wait
from logdb_http_api.door.request import Request, encoded
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body
from logdb_http_api.protocol import CALLS_PATH

if TYPE_CHECKING:
    from logdb.requests.groups import JoinResult

_ELSEWHERE = (topics.Changes, topics.Reports, topics.Verify, topics.Backup)  # have routes of their own
CALLS = [
    kind
    for module in (topics, topic_changes, transactions, groups, cluster)
    for kind in REQUESTS.values()
    if kind.__module__ == module.__name__ and kind not in _ELSEWHERE and not kind.local
] + list(SECURITY_REQUESTS)
_CHANGES = (CreateTopic, AlterTopic, DeleteTopic)
_WAIT_FOR_MEMBERS = (JoinGroup, SyncGroup)

routes = Routes()


def _handler(kind: type[SessionRequest[Any]]) -> Callable[[Request], Any]:
    async def call(http: Request) -> web.StreamResponse:
        given = await http.decoded(kind)
        result = await (http.change if kind in _CHANGES else http.call)(_carried_out, http, given)
        return encoded(await _outcome(http, kind, result)) if isinstance(result, Future) else result

    return call


def _carried_out(http: Request, given: SessionRequest[Any]) -> "web.Response | Future[Any]":
    """The answer, or its future; a topic may have a hundred thousand partitions, so the answer is encoded here, off the loop."""
    answer = http.session.submit(given)
    return answer if isinstance(answer, Future) else encoded(answer)


async def _outcome(http: Request, kind: type[SessionRequest[Any]], future: "Future[Any]") -> Any:
    """The result of a future; a member that has to wait for others is told so, as clients that know the call expect it."""
    if kind in _WAIT_FOR_MEMBERS and not future.done():
        await http.say_waiting()
    return await http.outcome(future)


async def _join_group(http: Request) -> web.StreamResponse:
    """If the client goes away before the answer, a new member leaves the group again."""
    given = await http.decoded(JoinGroup)
    joined = await http.call(http.session.submit, given)
    try:
        return encoded(await _outcome(http, JoinGroup, joined))
    except asyncio.CancelledError:
        is_new = given.require_member_id or not given.member_id
        if is_new and given.group_instance_id is None:
            if given.member_id:
                _remove_member(http, given.group_id, given.member_id)
            else:
                joined.add_done_callback(partial(_remove_joined, http, given.group_id))
        raise


def _remove_joined(http: Request, group_id: str, joined: "Future[JoinResult]") -> None:
    """Remove a member that has learnt its id from an answer that nobody reads."""
    error = joined.exception()
    if error is None or isinstance(error, MemberIdRequired):
        _remove_member(http, group_id, joined.result().member_id if error is None else error.member_id)


def _remove_member(http: Request, group_id: str, member_id: str) -> None:
    """Remove a member, in a thread of the door: the calling thread may be the event loop's, or hold the group's lock."""
    with contextlib.suppress(RuntimeError):  # the door is closed: the member's session expires
        http.door.executor.submit(http.session.submit, LeaveGroup(group_id, member_id))


async def _wait(http: Request) -> web.StreamResponse:
    """The session authorizes the reads, and checks for records; the wait itself holds no thread."""
    given = await http.decoded(Wait)
    found = await http.call(http.session.submit, Wait(given.positions, 0, given.isolation_level, given.known))
    if not found and given.timeout_ms > 0:
        found = await http.wait(given.positions, given.timeout_ms, isolation_level=given.isolation_level, known=given.known)
    return encoded(found)


_HANDLERS: dict[type[SessionRequest[Any]], Callable[[Request], Any]] = {JoinGroup: _join_group, Wait: _wait}


def _description(kind: type[SessionRequest[Any]]) -> str:
    """The docstring of the method, or of the method that it refers to."""
    of = CredentialStore if kind in SECURITY_REQUESTS else Session
    if kind.__module__ == cluster.__name__:
        return inspect.getdoc(kind) or ""
    said = inspect.getdoc(getattr(of, kind.method)) or ""
    return inspect.getdoc(getattr(Database, kind.method)) or "" if said.startswith("See ``Database.") else said


for _kind in CALLS:
    routes.post(
        CALLS_PATH + _kind.method,
        f"{'CredentialStore' if _kind in SECURITY_REQUESTS else 'Session'}.{_kind.method}",
        needs=tuple(map(str, _kind.needs)),
        body=Body({"application/json": _kind}),
        gives={"application/json": _kind.answer},
        description=_description(_kind),
        leaves_out=any(need.listed for need in _kind.needs),
    )(_HANDLERS.get(_kind) or _handler(_kind))
