"""A member of a group: joins, takes part in rebalances, sends heartbeats, leaves.

The client's side of the classic group protocol, with the bytes that members and leader exchange.  ``Share``, the consumer, gives
up partitions and takes them on.

::

             join_group              all have joined            the leader has assigned
    out ───────────────► joining ─────────────────► syncing ────────────────────────► stable
     ▲                      ▲                          │ rebalance in progress            │
     │                      └──────────────────────────┴──────────────────────────────────┘
     │  not a member any more: partitions are lost        something changed, or the group is being rebalanced
     └─────────────────────────────────────────────────────────────────────────────────────

While other members are awaited, calls return and the next ``tend`` checks again; so any number of members may live in one thread.

The first join of a dynamic member is answered at once, with its id; it then joins with this id (KIP-394).  So it can leave while its join
waits for the other members.

Eager (every assignor that is not cooperative): members give up all partitions before they join again.  Cooperative (KIP-429): members
keep their partitions, give up only those that the new assignment lacks, and join again so that these can move.

Source: KIP-62, KIP-345 (static members), KIP-394, KIP-429; Kafka's AbstractCoordinator.
"""

import contextlib
import enum
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from logdb.client.consumer.assignors import Assignor, Member
from logdb.codec.schema import INT32, STRING, Array, Field, Message, Struct
from logdb.coordinator.consumer_protocol import Assignment, Subscription
from logdb.errors import (
    Closed,
    FencedInstance,
    IllegalGeneration,
    InvalidMessage,
    LogdbError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
    UnknownTopic,
)
from logdb.model import NO_TOPIC_IDS, Buffer, TopicPartition
from logdb.requests.groups import JoinedMember, JoinResult, SyncResult
from logdb.requests.session import Session

logger = logging.getLogger(__name__)


_STICKY_USER_DATA = Message(
    "StickyAssignorUserData",
    "0-1",
    "none",
    Field("partitions", Array(Struct(Field("topic", STRING), Field("partitions", Array(INT32))))),
    Field("generation", INT32, "1+", default=-1),
)


class StickyUserData(NamedTuple):
    """The partitions that a member had in a generation; with the assignor "sticky" a member sends them to the leader.

    Source: KIP-54, KIP-341; Kafka's StickyAssignorUserData.json (versions 0 and 1, which have no mark).
    """

    partitions: tuple[TopicPartition, ...]
    generation: int = -1

    def encode(self) -> bytes:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            topics.setdefault(topic, []).append(partition)
        entries = [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
        return _STICKY_USER_DATA.encode({"partitions": entries, "generation": self.generation}, 1)

    @staticmethod
    def decode(data: Buffer) -> "StickyUserData | None":
        """Decode a member's bytes; None where they are something else, which is ignored."""
        for version in (1, 0):
            try:
                values, size_bytes = _STICKY_USER_DATA.decode(data, version)
            except InvalidMessage:
                continue
            if size_bytes == len(data):
                partitions = (TopicPartition(entry["topic"], number) for entry in values["partitions"] for number in entry["partitions"])
                return StickyUserData(tuple(partitions), values["generation"])
        return None


class GroupMetadata(NamedTuple):
    """The identity of a consumer in its group; without a ``member_id`` it is not a member.

    ``topic_ids``: of the topics that it reads, by name.  A commit for another topic of that name is refused.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[str, str] = NO_TOPIC_IDS


class Share(Protocol):
    """The part of a consumer that a membership uses."""

    def topics(self) -> tuple[str, ...]:
        """The topics subscribed to."""

    def owned(self) -> list[TopicPartition]:
        """The partitions that are read now."""

    def give_up(self, partitions: Sequence[TopicPartition], *, lost: bool = False) -> None:
        """Stop reading these.  ``lost``: another member already has them, so that they cannot be committed."""

    def take_on(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these too."""


class State(enum.Enum):
    """The state of a member."""

    OUT = enum.auto()
    JOINING = enum.auto()
    SYNCING = enum.auto()
    STABLE = enum.auto()


class Membership:
    """A member, or a future one; ``tend`` does the work that is due.

    Attributes:
        removal_is_known: If the group has removed the member, another call of the application raises it; ``tend`` then logs no warning.
    """

    def __init__(
        self,
        session: Session,
        share: Share,
        *,
        group_id: str,
        group_instance_id: str | None,
        client_id: str,
        assignors: Sequence[Assignor],
        timeout_ms: int,
    ) -> None:
        self._session, self._share = session, share
        self._client_id, self._assignors, self._timeout_ms = client_id, assignors, timeout_ms
        self._cooperative = all(assignor.cooperative for assignor in assignors)
        self._state = State.OUT
        self.metadata = GroupMetadata(group_id, group_instance_id=group_instance_id)
        self._answer: Future[Any] | None = None  # while joining or syncing
        self._joined_topics: tuple[str, ...] = ()
        self._counts: Mapping[str, int] | None = None  # as leader: the partition counts that the assignment was made from
        self._last: StickyUserData | None = None
        self._fenced: FencedInstance | None = None
        self.removal_is_known = False

    @property
    def answer(self) -> "Future[Any] | None":
        """The answer that other members have to complete; None without one."""
        return self._answer

    def tend(self, counts: Mapping[str, int] = MappingProxyType({})) -> None:
        """Do the work that does not wait for other members.

        Args:
            counts: Partition counts of topics, as of now; those of others are looked up where they are needed.

        Raises:
            FencedInstance: Another member has taken over the instance; close this consumer.
            InconsistentProtocol, InvalidGroup: The member cannot join.
            any exception of a listener: The rebalance continues with the next call.
        """
        if self._fenced is not None:
            raise self._fenced
        if self._state is State.STABLE:
            self._look(counts)
        while self._state is not State.STABLE and (self._answer is None or self._answer.done()):
            self._step()

    def leave(self) -> None:
        """Leave the group.  A static member stays in it until its session times out, and may come back (KIP-345)."""
        answer, (group_id, _, member_id, instance, _) = self._answer, self.metadata
        if instance is None and member_id:
            with contextlib.suppress(UnknownMember, Closed):  # the group has removed it, or the database is closed
                self._session.leave_group(group_id, member_id)
        elif instance is None and answer is not None:
            answer.add_done_callback(self._leave_late)
        self._go_out(member_id="")

    def _leave_late(self, answer: "Future[JoinResult]") -> None:
        """Leave after a first join whose answer, with the member's id, came too late."""
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, MemberIdRequired):
            with contextlib.suppress(LogdbError):
                self._session.leave_group(self.metadata.group_id, error.member_id)

    def _go_out(self, *, member_id: str) -> None:
        self._state, self._answer, self._counts = State.OUT, None, None
        self.metadata = self.metadata._replace(generation=-1, member_id=member_id)

    # ------------------------------------------------------------ a member of a generation

    def _look(self, counts: Mapping[str, int]) -> None:
        """Check whether the member has to join again."""
        if self._share.topics() != self._joined_topics:
            self._prepare("the subscription changed")
        elif self._counts not in (None, counts) and self._count(self._counts, counts) != self._counts:
            self._prepare("partitions were added, or topics deleted")
        else:
            self._heartbeat()

    def _heartbeat(self) -> None:
        group_id, generation, member_id, instance, _ = self.metadata
        try:
            self._session.heartbeat(group_id, generation=generation, member_id=member_id, group_instance_id=instance)
            self.removal_is_known = False
        except RebalanceInProgress:
            self._prepare("the group is being rebalanced")
        except (UnknownMember, IllegalGeneration, FencedInstance) as error:
            self._expelled(error)

    def _expelled(self, error: UnknownMember | IllegalGeneration | FencedInstance) -> None:
        """The group has removed this member."""
        if isinstance(error, FencedInstance) or self.removal_is_known or self.metadata.generation < 0:
            logger.info("%s", error)
        else:
            logger.warning("%s. It joins again, and records since its last commit come again", error)
        self._go_out(member_id=self.metadata.member_id if isinstance(error, IllegalGeneration) else "")
        self._last = None
        self._fenced = error if isinstance(error, FencedInstance) else None
        if owned := self._share.owned():
            self._share.give_up(owned, lost=True)
        if self._fenced is not None:
            raise self._fenced

    def _prepare(self, reason: str) -> None:
        """Give up the partitions that must go before joining."""
        logger.info("group %s, member %s joins: %s", self.metadata.group_id, self.metadata.member_id, reason)
        self._state, self._answer = State.OUT, None
        topics = self._share.topics()
        owned = self._share.owned()
        leaving = [partition for partition in owned if partition.topic not in topics] if self._cooperative else owned
        if leaving:
            self._share.give_up(leaving)

    # ------------------------------------------------------------ into a generation

    def _step(self) -> None:
        """Join, or continue with the answer."""
        answer, state = self._answer, self._state
        try:
            if answer is None:
                self._join()
            elif state is State.JOINING:
                self._sync(answer.result())
            else:
                self._begin(answer.result())
        except MemberIdRequired as error:
            self._go_out(member_id=error.member_id)
        except RebalanceInProgress:
            self._prepare("the group is being rebalanced")
        except (UnknownMember, IllegalGeneration, FencedInstance) as error:
            self._expelled(error)
        except LogdbError:
            self._state, self._answer = State.OUT, None
            raise

    def _join(self) -> None:
        group_id, generation, member_id, instance, _ = self.metadata
        self._joined_topics = self._share.topics()
        self._answer = self._session.join_group(
            group_id,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=self._timeout_ms,
            rebalance_timeout_ms=self._timeout_ms,
            protocols=[(assignor.name, self._subscription(assignor, generation)) for assignor in self._assignors],
            client_id=self._client_id,
            require_member_id=generation < 0,
        )
        self._state = State.JOINING

    def _subscription(self, assignor: Assignor, generation: int) -> bytes:
        user_data = self._last.encode() if assignor.remembers and self._last is not None else b""
        return Subscription(self._joined_topics, user_data, tuple(self._share.owned()), generation).encode()

    def _sync(self, joined: JoinResult) -> None:
        group_id, _, _, instance, _ = self.metadata
        self.metadata = self.metadata._replace(generation=joined.generation, member_id=joined.member_id)
        assignments = self._assign(joined) if joined.leader_id == joined.member_id else {}
        self._answer = self._session.sync_group(
            group_id,
            generation=joined.generation,
            member_id=joined.member_id,
            group_instance_id=instance,
            assignments={} if joined.skip_assignment else assignments,
        )
        self._state = State.SYNCING

    def _begin(self, synced: SyncResult) -> None:
        """The generation begins: take the new partitions, give up those that move to others."""
        assigned = Assignment.decode(synced.assignment).partitions
        owned = set(self._share.owned())
        self._state, self._answer, self.removal_is_known = State.STABLE, None, False
        self._last = StickyUserData(assigned, self.metadata.generation)
        wanted = self._share.topics()
        revoked = sorted(owned.difference(assigned))
        added = sorted(partition for partition in set(assigned).difference(owned) if partition.topic in wanted)
        logger.info("group %s, generation %d: %s", self.metadata.group_id, self.metadata.generation, [str(one) for one in assigned])
        try:
            if revoked:
                self._share.give_up(revoked)
        finally:
            try:
                if added:
                    self._share.take_on(added)
            finally:
                if revoked:
                    self._prepare("revoked partitions can be assigned now")

    # ------------------------------------------------------------ the leader

    def _assign(self, joined: JoinResult) -> dict[str, bytes]:
        """Assign the partitions; from now on this member, the leader, checks the topics of all members."""
        assignor = next(assignor for assignor in self._assignors if assignor.name == joined.protocol)
        members = [_member(assignor, member) for member in joined.members]
        self._counts = self._count({topic for member in members for topic in member.topics})
        assigned = assignor.assign(members, {topic: count for topic, count in self._counts.items() if count})
        return {member_id: Assignment(tuple(partitions)).encode() for member_id, partitions in assigned.items()}

    def _count(self, topics: Iterable[str], known: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
        """The partition count of each topic, 0 for an unknown topic."""
        counts = dict.fromkeys(topics, 0)
        for topic in counts:
            with contextlib.suppress(UnknownTopic):
                counts[topic] = known[topic] if topic in known else self._session.partition_count(topic)
        return counts


def _member(assignor: Assignor, joined: JoinedMember) -> Member:
    told = Subscription.decode(joined.metadata)
    owned, generation = told.owned_partitions, told.generation
    if assignor.remembers and told.user_data and (had := StickyUserData.decode(told.user_data)) is not None:
        owned, generation = had
    return Member(joined.member_id, told.topics, joined.group_instance_id, owned, generation)
