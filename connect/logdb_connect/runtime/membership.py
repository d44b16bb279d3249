"""A worker's membership in the group of workers: joins, syncs, beats, leaves (Kafka's classic protocol, type ``connect``).

Workers send what they run, and their URL; the leader sends everyone's work.  Both as JSON, under the protocol name ``logdb``: a Java
worker cannot join this group.

Threading: ``join`` and ``leave`` in the herder's thread; heartbeats have one of their own, so that slow work does not end a membership.
"""

import concurrent.futures
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from logdb import LogdbError
from logdb.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember
from logdb_connect.logdb_client import LogdbClient
from logdb_connect.runtime.assignment import Work
from logdb_connect.runtime.tasks import TaskId

logger = logging.getLogger(__name__)
PROTOCOL_TYPE, PROTOCOL = "connect", "logdb"


class Member(NamedTuple):
    """A worker as the leader sees it."""

    url: str
    offset: int
    work: Work


class Assignment(NamedTuple):
    """A worker's work in a generation.

    ``offset``: of the config topic, which the worker reads up to there first.  ``delay_ms``: when the leader assigns what waits.
    ``everyone``: the work of each worker, by its URL.
    """

    leader_url: str
    offset: int
    work: Work
    delay_ms: int
    everyone: Mapping[str, Work]


class Joined(NamedTuple):
    """A generation begins."""

    generation: int
    leads: bool
    assignment: Assignment


class Lost(Exception):
    """The worker was removed from the group: others may have its work."""


class Membership:
    """One worker's place in the group."""

    def __init__(
        self,
        client: LogdbClient,
        group_id: str,
        client_id: str,
        *,
        session_ms: int,
        heartbeat_ms: int,
        rebalance_ms: int,
        wake: Callable[[], None],
    ) -> None:
        self._client, self._group_id, self._client_id = client, group_id, client_id
        self._session_ms, self._heartbeat_s, self._rebalance_ms, self._wake = session_ms, heartbeat_ms / 1000, rebalance_ms, wake
        self.member_id, self.generation = "", -1
        self._stop = threading.Event()
        self._confirmed = 0.0
        self._problem: LogdbError | None = None
        self._thread: threading.Thread | None = None

    def was_member(self, since: float) -> bool:
        """Whether the group has answered a heartbeat that was sent then, or later."""
        return self._confirmed >= since and self.generation >= 0

    def check(self) -> bool:
        """Whether the worker must join again.

        Raises:
            Lost: It is no member any more.
        """
        problem, self._problem = self._problem, None
        if isinstance(problem, UnknownMember | IllegalGeneration | FencedInstance):
            self._forget(problem)
            raise Lost(str(problem))
        return problem is not None

    def join(self, me: Member, assign: Callable[[Mapping[str, Member]], Mapping[str, Assignment]]) -> Joined | None:
        """Take part in a rebalance; None: another one has begun, join again.

        Args:
            assign: Called on the leader.

        Raises:
            Lost: It was no member any more.
        """
        session = self._client.session
        try:
            joined = session.join_group(
                self._group_id,
                member_id=self.member_id,
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._rebalance_ms,
                protocol_type=PROTOCOL_TYPE,
                protocols=[(PROTOCOL, encoded(**member_document(me)))],
                client_id=self._client_id,
            ).result(self._rebalance_ms / 1000 + self._session_ms / 1000)
            self.member_id, self.generation = joined.member_id, joined.generation
            leads = joined.leader_id == joined.member_id
            assignments = {}
            if leads:
                members = {one.member_id: member for one in joined.members if (member := _member(one.metadata)) is not None}
                assignments = {member_id: encoded(**assignment_document(one)) for member_id, one in assign(members).items()}
            synced = session.sync_group(
                self._group_id, generation=self.generation, member_id=self.member_id, assignments=assignments
            ).result(self._rebalance_ms / 1000)
        except (RebalanceInProgress, concurrent.futures.TimeoutError):
            return None
        except (UnknownMember, IllegalGeneration, FencedInstance) as error:
            self._forget(error)
            raise Lost(str(error)) from error
        self._problem = None
        self._beat()
        return Joined(self.generation, leads, assignment_of(json.loads(synced.assignment or b"{}")))

    def leave(self) -> None:
        """Leave the group."""
        self._stop.set()
        if self.member_id:
            try:
                self._client.session.leave_group(self._group_id, self.member_id)
            except LogdbError as error:
                logger.info("group %s: %s", self._group_id, error)
        self.member_id, self.generation = "", -1

    def _forget(self, error: LogdbError) -> None:
        logger.warning("group %s: %s", self._group_id, error)
        if not isinstance(error, IllegalGeneration):
            self.member_id = ""
        self.generation = -1

    def _beat(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="connect-heartbeat", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(min(self._heartbeat_s, 1.0)):
            member_id, generation = self.member_id, self.generation
            if not member_id or generation < 0 or self._problem is not None:
                continue
            try:
                sent = time.monotonic()
                self._client.session.heartbeat(self._group_id, generation=generation, member_id=member_id)
                self._confirmed = sent
            except LogdbError as error:
                if isinstance(error, RebalanceInProgress | UnknownMember | IllegalGeneration | FencedInstance):
                    if (member_id, generation) == (self.member_id, self.generation):
                        self._problem = error
                        self._wake()
                elif not error.retriable:
                    logger.warning("group %s: %s", self._group_id, error)


def encoded(**document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def member_document(member: Member) -> dict[str, Any]:
    return {"url": member.url, "offset": member.offset, **_listed(member.work)}


def assignment_document(one: Assignment) -> dict[str, Any]:
    everyone = {url: _listed(work) for url, work in one.everyone.items()}
    return {"leader": one.leader_url, "offset": one.offset, "delay_ms": one.delay_ms, "everyone": everyone, **_listed(one.work)}


def assignment_of(document: Mapping[str, Any]) -> Assignment:
    everyone = {url: _work(work) for url, work in document.get("everyone", {}).items()}
    return Assignment(document.get("leader", ""), document.get("offset", 0), _work(document), document.get("delay_ms", 0), everyone)


def _listed(work: Work) -> dict[str, Any]:
    return {"connectors": sorted(work.connectors), "tasks": sorted(map(list, work.tasks))}


def _work(document: Mapping[str, Any]) -> Work:
    return Work(frozenset(document.get("connectors", ())), frozenset(TaskId(name, number) for name, number in document.get("tasks", ())))


def member_of(document: Mapping[str, Any]) -> Member:
    return Member(str(document["url"]), int(document["offset"]), _work(document))


def _member(metadata: bytes) -> Member | None:
    """None: another program is in the group; it gets no work."""
    try:
        return member_of(json.loads(metadata))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        logger.warning("a member of the group is no worker of this kind: %s: %s", type(error).__name__, error)
        return None
