"""One member of one group: joins, takes part in rebalances, says that it is alive, leaves.

Knows the classic group protocol from a client's side, and the bytes that members and leader exchange.  Does not know
records and positions: its consumer gives partitions up and takes them on.

::

             join_group              all have joined            the leader has assigned
    out ───────────────► joining ─────────────────► syncing ────────────────────────► stable
     ▲                      ▲                          │ rebalance in progress            │
     │                      └──────────────────────────┴──────────────────────────────────┘
     │  not a member any more: partitions are lost        something changed, or the group is being rebalanced
     └─────────────────────────────────────────────────────────────────────────────────────

While others are waited for, calls return and the next ``tend`` looks again; so any number of members may live in one thread.

Eager (any assignor that is not cooperative): everything is given up before joining again.  Cooperative (KIP-429): members
keep what they have, give up only what the new assignment lacks, and join again so that it can move.

Source: KIP-62, KIP-345 (static members), KIP-429; Kafka's AbstractCoordinator.
"""

import contextlib
import enum
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from logdb.client.consumer.assignors import Assignor, Member
from logdb.client.consumer.sticky_user_data import StickyUserData
from logdb.coordinator.consumer_protocol import Assignment, Subscription
from logdb.coordinator.events import JoinedMember, JoinResult, SyncResult
from logdb.errors import Closed, FencedInstance, IllegalGeneration, LogdbError, RebalanceInProgress, UnknownMember, UnknownTopic
from logdb.model import TopicPartition
from logdb.requests.session import Session

logger = logging.getLogger(__name__)


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group, as far as the group knows; without a ``member_id`` it is no member."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Share(Protocol):
    """What a membership asks of its consumer."""

    def topics(self) -> tuple[str, ...]:
        """What is subscribed to now."""

    def owned(self) -> list[TopicPartition]:
        """The partitions that are read now."""

    def give_up(self, partitions: Sequence[TopicPartition], *, lost: bool = False) -> None:
        """Read these no more.  ``lost``: they are another member's already, so that nothing can be committed."""

    def take_on(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these too."""


class State(enum.Enum):
    """Where a member is on its way into a generation."""

    OUT = enum.auto()
    JOINING = enum.auto()
    SYNCING = enum.auto()
    STABLE = enum.auto()


class Membership:
    """A member, or one to be; ``tend`` does whatever is due."""

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
        self._metadata = GroupMetadata(group_id, group_instance_id=group_instance_id)
        self._answer: Future[Any] | None = None  # while joining or syncing
        self._joined_topics: tuple[str, ...] = ()
        self._counts: Mapping[str, int] | None = None  # of the leader: the partitions that it shared out
        self._last: StickyUserData | None = None
        self._fenced: FencedInstance | None = None

    @property
    def metadata(self) -> GroupMetadata:
        return self._metadata

    @property
    def answer(self) -> "Future[Any] | None":
        """What is waited for, if it is other members."""
        return self._answer

    def tend(self) -> None:
        """Do what can be done without waiting for other members.

        Raises:
            FencedInstance: Another member has taken over the instance; this one is to be closed.
            InconsistentProtocol, InvalidGroup: It cannot join.
            whatever a listener raises: The rebalance goes on with the next call.
        """
        if self._fenced is not None:
            raise self._fenced
        if self._state is State.STABLE:
            self._look()
        while self._state is not State.STABLE and (self._answer is None or self._answer.done()):
            self._step()

    def leave(self) -> None:
        """Be no member any more.  A static one stays on the list: until its session is over it may come back."""
        answer, (group_id, _, member_id, instance) = self._answer, self._metadata
        if instance is None and member_id:
            with contextlib.suppress(UnknownMember, Closed):  # it was given up on before, or the groups are gone with the database
                self._session.leave_group(group_id, (member_id,))
        elif instance is None and answer is not None:
            answer.add_done_callback(self._leave_late)
        self._go_out(member_id="")

    def _leave_late(self, answer: "Future[JoinResult]") -> None:
        """The group has let in a member that left before it knew its own id."""
        if not answer.cancelled() and answer.exception() is None:
            with contextlib.suppress(LogdbError):
                self._session.leave_group(self._metadata.group_id, (answer.result().member_id,))

    def _go_out(self, *, member_id: str) -> None:
        self._state, self._answer, self._counts = State.OUT, None, None
        self._metadata = self._metadata._replace(generation=-1, member_id=member_id)

    # ------------------------------------------------------------ a member of a generation

    def _look(self) -> None:
        """Find out whether the member is to join again."""
        if self._share.topics() != self._joined_topics:
            self._prepare("the subscription changed")
        elif self._counts is not None and self._count(self._counts) != self._counts:
            self._prepare("partitions were added, or topics deleted")
        else:
            self._heartbeat()

    def _heartbeat(self) -> None:
        group_id, generation, member_id, instance = self._metadata
        try:
            self._session.heartbeat(group_id, generation=generation, member_id=member_id, group_instance_id=instance)
        except RebalanceInProgress:
            self._prepare("the group is being rebalanced")
        except (UnknownMember, IllegalGeneration, FencedInstance) as error:
            self._expelled(error)

    def _expelled(self, error: UnknownMember | IllegalGeneration | FencedInstance) -> None:
        """The group goes on without this member."""
        logger.warning("%s", error)
        self._go_out(member_id=self._metadata.member_id if isinstance(error, IllegalGeneration) else "")
        self._last = None
        self._fenced = error if isinstance(error, FencedInstance) else None
        if owned := self._share.owned():
            self._share.give_up(owned, lost=True)
        if self._fenced is not None:
            raise self._fenced

    def _prepare(self, reason: str) -> None:
        """Give up what has to be before joining."""
        logger.info("group %s, member %s joins: %s", self._metadata.group_id, self._metadata.member_id, reason)
        self._state, self._answer = State.OUT, None
        topics = self._share.topics()
        owned = self._share.owned()
        leaving = [partition for partition in owned if partition.topic not in topics] if self._cooperative else owned
        if leaving:
            self._share.give_up(leaving)

    # ------------------------------------------------------------ into a generation

    def _step(self) -> None:
        """Join, or go on with the answer that has come."""
        answer, state = self._answer, self._state
        try:
            if answer is None:
                self._join()
            elif state is State.JOINING:
                self._sync(answer.result())
            else:
                self._begin(answer.result())
        except RebalanceInProgress:
            self._prepare("the group is being rebalanced")
        except (UnknownMember, IllegalGeneration, FencedInstance) as error:
            self._expelled(error)
        except LogdbError:
            self._state, self._answer = State.OUT, None
            raise

    def _join(self) -> None:
        group_id, generation, member_id, instance = self._metadata
        self._joined_topics = self._share.topics()
        self._answer = self._session.join_group(
            group_id,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=self._timeout_ms,
            rebalance_timeout_ms=self._timeout_ms,
            protocols=[(assignor.name, self._subscription(assignor, generation)) for assignor in self._assignors],
            client_id=self._client_id,
        )
        self._state = State.JOINING

    def _subscription(self, assignor: Assignor, generation: int) -> bytes:
        user_data = self._last.encode() if assignor.remembers and self._last is not None else b""
        return Subscription(self._joined_topics, user_data, tuple(self._share.owned()), generation).encode()

    def _sync(self, joined: JoinResult) -> None:
        group_id, _, _, instance = self._metadata
        self._metadata = self._metadata._replace(generation=joined.generation, member_id=joined.member_id)
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
        """The generation begins: take on what is new, and let go of what others are to have."""
        assigned = Assignment.decode(synced.assignment).partitions
        owned = set(self._share.owned())
        self._state, self._answer = State.STABLE, None
        self._last = StickyUserData(assigned, self._metadata.generation)
        wanted = self._share.topics()
        revoked = sorted(owned.difference(assigned))
        added = sorted(partition for partition in set(assigned).difference(owned) if partition.topic in wanted)
        logger.info("group %s, generation %d: %s", self._metadata.group_id, self._metadata.generation, [str(one) for one in assigned])
        try:
            if revoked:
                self._share.give_up(revoked)
        finally:
            try:
                if added:
                    self._share.take_on(added)
            finally:
                if revoked:
                    self._prepare("what was given up can move now")

    # ------------------------------------------------------------ the leader

    def _assign(self, joined: JoinResult) -> dict[str, bytes]:
        """Share the partitions out; from now on this member watches the topics of all."""
        assignor = next(assignor for assignor in self._assignors if assignor.name == joined.protocol)
        members = [_member(assignor, member) for member in joined.members]
        self._counts = self._count({topic for member in members for topic in member.topics})
        assigned = assignor.assign(members, {topic: count for topic, count in self._counts.items() if count})
        return {member_id: Assignment(tuple(partitions)).encode() for member_id, partitions in assigned.items()}

    def _count(self, topics: Iterable[str]) -> dict[str, int]:
        """The partitions of each topic, 0 where there is no such topic."""
        counts = dict.fromkeys(topics, 0)
        for topic in counts:
            with contextlib.suppress(UnknownTopic):
                counts[topic] = self._session.partition_count(topic)
        return counts


def _member(assignor: Assignor, joined: JoinedMember) -> Member:
    told = Subscription.decode(joined.metadata)
    owned, generation = told.owned_partitions, told.generation
    if assignor.remembers and told.user_data and (had := StickyUserData.decode(told.user_data)) is not None:
        owned, generation = had
    return Member(joined.member_id, told.topics, joined.group_instance_id, owned, generation)
