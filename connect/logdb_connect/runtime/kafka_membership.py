"""A worker's membership where the group of workers is on a Kafka: librdkafka knows no protocols of others, so this is one on top.

The group is one of consumers, of a topic with one partition (``members_topic``).  Who has the partition leads.  Workers talk in that
topic, in JSON:

    {"ask": MEMBER}                                    a worker wants to take part in a rebalance
    {"begin": [MEMBER, …], "leader": MEMBER}           the leader begins one: its generation is the offset of this record
    {"join": GENERATION, "member": MEMBER, …}          what a member runs, and its URL
    {"assign": GENERATION, "assignments": {…}}         everyone's work

The leader begins a rebalance when it is asked, and when the group has other members than in the last one.  Before it assigns, it has the
group confirm that it still is a member: a former leader assigns nothing.

Threading: ``join`` and ``leave`` in the herder's thread; one thread reads.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from logdb import AnyRecord, LogdbError
from logdb_connect.kafka_client import KafkaClient, KafkaGroup
from logdb_connect.runtime.membership import (
    Assignment,
    Joined,
    Lost,
    Member,
    assignment_document,
    assignment_of,
    encoded,
    member_document,
    member_of,
)

logger = logging.getLogger(__name__)

_READ_S, _LOOK_S, _ASK_S = 0.1, 0.5, 2.0
_RETENTION_MS = 3_600_000


class _Round(NamedTuple):
    """A rebalance; its members have joined, or have not yet."""

    generation: int
    leader: str
    members: frozenset[str]
    joined: dict[str, Member]


_NO_ROUND = _Round(-1, "", frozenset(), {})


class KafkaMembership:
    """One worker's place in the group."""

    def __init__(
        self, client: KafkaClient, group_id: str, members_topic: str, *, session_ms: int, heartbeat_ms: int, rebalance_ms: int,
        wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._client, self._group_id, self._topic = client, group_id, members_topic
        self._session_ms, self._heartbeat_ms, self._rebalance_s, self._wake = session_ms, heartbeat_ms, rebalance_ms / 1000, wake
        self.generation = -1
        self._round = _NO_ROUND
        self._assigned: Mapping[str, Any] | None = None  # of the round
        self._asked = False
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._producer = client.producer({"linger.ms": "0"})
        self._group: KafkaGroup | None = None
        self._thread = threading.Thread(target=self._run, name="connect-members", daemon=True)

    def was_member(self, since: float) -> bool:  # noqa: ARG002 -- it asks now, which is later
        """Whether the group confirms that this worker is a member."""
        return self.generation >= 0 and self._group is not None and self._group.confirms()

    def check(self) -> bool:
        """Whether the worker must join again.

        Raises:
            Lost: It is no member any more.
        """
        group = self._group
        if group is None:
            return False
        with self._changed:
            lost = group.take_lost() or (self._round.generation > self.generation and group.member_id not in self._round.members)
            if lost and self.generation >= 0:
                self.generation = -1
                raise Lost(f"group {self._group_id} has removed this worker")
            return group.member_id in self._round.members and self._round.generation != self.generation

    def join(self, me: Member, assign: Callable[[Mapping[str, Member]], Mapping[str, Assignment]]) -> Joined | None:
        """Take part in a rebalance; None: there is none yet, or another one has begun: join again.

        Args:
            assign: Called on the leader.
        """
        group = self._started()
        round_ = self._round_to_join(group)
        if round_ is None:
            return None
        self._say({"join": round_.generation, "member": group.member_id, **member_document(me)})
        if round_.leader == group.member_id and not self._lead(group, round_, assign):
            return None
        if not self._until(lambda: self._assigned is not None or self._round is not round_, self._rebalance_s):
            return None
        with self._changed:
            assigned = self._assigned
            if self._round is not round_ or assigned is None or group.member_id not in assigned:
                return None
            self.generation = round_.generation
        return Joined(round_.generation, round_.leader == group.member_id, assignment_of(assigned[group.member_id]))

    def leave(self) -> None:
        """Leave the group."""
        self._stop.set()
        if self._group is not None:
            self._thread.join()
            self._group.close()
        self._producer.close(5_000)
        self.generation = -1

    # ------------------------------------------------------------ rounds

    def _started(self) -> KafkaGroup:
        if self._group is None:
            if not self._client.has_topic(self._topic):
                replication = self._client.possible_replication(3)
                self._client.create_topic(self._topic, partitions=1, replication=replication, retention_ms=_RETENTION_MS)
            self._group = self._client.group(
                self._group_id, self._topic, session_ms=self._session_ms, heartbeat_ms=self._heartbeat_ms, rebalance_s=self._rebalance_s
            )
            self._thread.start()
        return self._group

    def _round_to_join(self, group: KafkaGroup) -> _Round | None:
        """A round that this worker has not joined; it asks for one."""

        def is_new() -> bool:
            return self._round.generation > self.generation and group.member_id in self._round.members

        with self._changed:
            there = is_new()
        if not there:
            if group.member_id:
                self._say({"ask": group.member_id})
            if not self._until(is_new, _ASK_S):
                return None
        with self._changed:
            return self._round

    def _lead(self, group: KafkaGroup, round_: _Round, assign: Callable[[Mapping[str, Member]], Mapping[str, Assignment]]) -> bool:
        self._until(lambda: round_.members <= round_.joined.keys() or self._round is not round_, self._rebalance_s)
        with self._changed:
            if self._round is not round_:
                return False
            joined = dict(round_.joined)
        if not group.leads() or not group.confirms():
            return False
        assignments = {member: assignment_document(one) for member, one in assign(joined).items()}
        self._say({"assign": round_.generation, "assignments": assignments})
        return True

    def _until(self, what: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._stop.is_set() or what(), seconds) and not self._stop.is_set()

    def _say(self, document: Mapping[str, Any]) -> None:
        self._producer.send(self._topic, encoded(**document))
        self._producer.flush()

    # ------------------------------------------------------------ the thread that reads

    def _run(self) -> None:
        assert self._group is not None
        look_at = 0.0
        while not self._stop.is_set():
            try:
                for record in self._group.poll(_READ_S):
                    self._heard(record)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + _LOOK_S
                    self._look(self._group)
            except LogdbError as error:
                logger.warning("group %s: a retry follows: %s", self._group_id, error)
                self._stop.wait(_LOOK_S)

    def _look(self, group: KafkaGroup) -> None:
        """The leader begins a round; anyone joins again that was lost."""
        if group.is_lost():
            self._wake()
        if not group.leads():
            return
        members = group.members()
        if members is None or group.member_id not in members:
            return
        with self._changed:
            due = self._asked or members != self._round.members or self._round.leader != group.member_id
            self._asked = False
        if due:
            self._say({"begin": sorted(members), "leader": group.member_id})

    def _heard(self, record: AnyRecord) -> None:
        """Whoever may write to the topic can write anything."""
        try:
            document = json.loads(record.value)
            with self._changed:
                self._take(record.offset, document)
                self._changed.notify_all()
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            logger.warning("topic %s: the record at offset %d is left out, no worker wrote it: %s", self._topic, record.offset, error)

    def _take(self, offset: int, document: Mapping[str, Any]) -> None:
        if "ask" in document:
            self._asked = True
        elif "begin" in document:
            self._round, self._assigned = _Round(offset, str(document["leader"]), frozenset(map(str, document["begin"])), {}), None
            self._wake()
        elif document.get("join") == self._round.generation:
            self._round.joined[str(document["member"])] = member_of(document)
        elif document.get("assign") == self._round.generation:
            assignments = dict(document["assignments"])
            for one in assignments.values():
                assignment_of(one)
            self._assigned = assignments
