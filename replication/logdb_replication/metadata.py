"""The metadata of a cluster as the broker of one node sees it; a change is proposed to the controller.

    proposed ──► applied by a quorum ──► this node's copy ──► the store has the topics of it ──► the replicas follow ──► published

A change returns when this node has published it: what the same client asks next finds it here.  Another node may be behind.

Threading: ``publish`` from the thread of the copy, all else from any thread.
"""

import contextlib
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from logdb.errors import (
    ControllerUnavailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReassignment,
    InvalidReplicationFactor,
    InvalidSecurity,
    LogdbError,
    MetadataTimeout,
    NoReassignment,
    PreferredLeaderNotAvailable,
    ReplicaCountChanged,
    UnknownPartition,
    UnknownTopic,
)
from logdb.model import BY_DEFAULT, IN_SYNC_MIN, INTERNAL_TOPICS, ClusterEvent, ConfigValue, TopicEvent, TopicInfo, TopicPartition
from logdb.pools import Pool
from logdb.requests import replicas, topic_changes
from logdb.requests import topics as requests
from logdb.requests.nodes import BrokerInfo, PartitionState, QuorumInfo, QuorumVoter
from logdb.requests.request import Request
from logdb.store.json_line import SECURITY_SIZE_BYTES_MAX
from logdb.store.protocols import always
from logdb.store.store import Store
from logdb.store.topics import changed_config, check_assignment_count, check_new, check_partition_count, new_count, new_topic_id
from logdb.threads import renewed
from logdb_replication.changes_of_nodes import changes_of_nodes
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.commands import (
    REFUSALS,
    REPLICA_COUNT_MAX,
    AddPartitions,
    AlterTopic,
    Answer,
    Assignments,
    ChangeSecurity,
    Command,
    CreateTopic,
    DeleteTopic,
    ElectPreferred,
    ElectUnclean,
    LimitReassignments,
    PartitionIs,
    ProducerIds,
    Reassign,
    TakeProducerIds,
    TopicIs,
)
from logdb_replication.controller.elections import HandOverWait, is_electing, preferred
from logdb_replication.controller.errors import IneligibleReplica, PartitionChanged, StateChanged
from logdb_replication.controller.machine import answered
from logdb_replication.controller.messages import Described
from logdb_replication.controller.state import NODE_ID_MAX, ClusterState, TopicState
from logdb_replication.raft.errors import UnknownOutcome

T = TypeVar("T")
A = TypeVar("A")
Propose: TypeAlias = Callable[[Command], Answer]

TIMEOUT_S = 30.0
_FACTOR_MAX = 2**15 - 1  # of a command
_FIRST_START_S = 10.0
_REASSIGN_TRIES = 5
_PROPOSAL_COUNT_MAX = 8
_ELECT_AT_ONCE_S = 1.0  # left of a request's time, for the election of another leader than one that hangs
_OF_A_PARTITION: tuple[type[LogdbError], ...] = (
    *REFUSALS.kinds,
    NoReassignment,
    ElectionNotNeeded,
    PreferredLeaderNotAvailable,
    EligibleLeadersNotAvailable,
)
"""What one partition is refused for, while others of the same call may not be."""


class Controller(Protocol):
    """What this module needs of a ``controller.client.ControllerClient``."""

    @property
    def leader(self) -> int | None: ...

    def propose(self, command: Command, timeout_s: float) -> Answer: ...

    def describe(self, node: int | None = None) -> Described: ...


class ClusterMetadata:
    """``store.protocols.Metadata`` of one node.

    =========== ============ ============ ======================================================================
    field       changed by   under        to be trusted
    =========== ============ ============ ======================================================================
    ``_state``  ``publish``  ``_changed`` a value: the store has its topics, and the replicas are told of it
    ``_newest`` ``foresee``  ``_changed`` a value: the last state heard of
    ``_topics`` both         ``_changed`` the topics of ``_state``, led by those that lead them in ``_newest``
    =========== ============ ============ ======================================================================

    ``_listeners`` grow while the node starts, before the first state.
    """

    def __init__(self, config: ClusterConfig, store: Store, controller: Controller) -> None:
        """Without topics and brokers, until a state is published."""
        self.node_id, self._nodes = config.node, frozenset(one.number for one in config.nodes)
        self._store, self._controller = store, controller
        self._state = self._newest = ClusterState(config.cluster)
        self._topics = self._state.topics
        self._changed = renewed(threading.Condition())
        self._listeners: tuple[Callable[[ClusterEvent], None], ...] = ()
        self.security = ClusterSecurity(self)

    def publish(self, state: ClusterState) -> None:
        """Let readers see a state, and changes that wait for it return."""
        former = self._state
        with self._changed:
            self._state = state
            self._newest = state if state.index >= self._newest.index else self._newest
            self._topics = self._led_as_in_newest()
            self._changed.notify_all()
        if former.index:  # what there was at the start is no news
            for event in changes_of_nodes(former, state):
                for function in self._listeners:
                    function(event)

    def foresee(self, state: ClusterState) -> None:
        """Let readers see what other nodes lead in a state that is not published yet."""
        with self._changed:
            self._newest = state
            self._topics = self._led_as_in_newest()

    def _led_as_in_newest(self) -> dict[str, TopicState]:
        if self._newest.topics is self._state.topics:
            return self._state.topics
        found = dict(self._state.topics)
        for name, topic in found.items():
            newest = self._newest.topics.get(name)
            if newest is not None and newest is not topic and newest.topic_id == topic.topic_id:
                pairs = zip(topic.partitions, newest.partitions, strict=False)
                led = tuple(now if now.leader != self.node_id else before for before, now in pairs)
                found[name] = TopicState(topic.name, topic.topic_id, topic.config, led)
        return found

    # ------------------------------------------------------------ what there is

    @property
    def state(self) -> ClusterState:
        return self._state

    @property
    def controller_id(self) -> int | None:
        return self._controller.leader

    @property
    def database_id(self) -> str:
        return self._state.cluster_id

    def submit(self, request: Request[A], **caller: Callable[[], None]) -> A:
        answer: A = _STEPS[type(request)](self, request, **caller)
        return answer

    def _describe_quorum(self, _: replicas.DescribeQuorum) -> QuorumInfo:
        try:
            found = self._controller.describe().quorum
            if (leader := found["leader"]) is not None and leader != found["voter"]:
                with contextlib.suppress(ControllerUnavailable):  # then as the other one knows it
                    found = self._controller.describe(leader).quorum
        except ControllerUnavailable as error:
            raise MetadataTimeout(str(error)) from error
        return QuorumInfo(found["leader"], found["term"], found["committed"] + 1, tuple(map(_voter, found["voters"])))

    def brokers(self) -> tuple[BrokerInfo, ...]:
        found = sorted(self._state.brokers.values(), key=lambda broker: broker.node_id)
        return tuple(BrokerInfo(broker.node_id, broker.addresses, broker.rack, broker.fenced) for broker in found)

    def _list_topics(self, request: requests.Topics) -> list[TopicInfo]:
        found = (_info(topic) for _, topic in sorted(self._topics.items()))
        return [info for info in found if request.internal or not info.internal]

    def topic_names(self) -> tuple[str, ...]:
        return tuple(sorted(self._state.topics))

    def partition_state(self, topic: str, partition: int) -> PartitionState:
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise UnknownPartition(topic, partition, len(partitions))
        return partitions[partition]

    def topic(self, name: str) -> TopicState:
        topics = self._topics
        if (topic := topics.get(name)) is None:
            raise UnknownTopic(name, known=tuple(sorted(topics)))
        return topic

    def change_number(self) -> int:
        return self._state.index

    def listen(self, function: Callable[[TopicEvent | ClusterEvent], None]) -> None:
        self._store.listen(function)
        self._listeners = (*self._listeners, function)

    @property
    def default_partition_count(self) -> int:
        return 2 * len(self._nodes)

    @property
    def default_replication_factor(self) -> int:
        return min(3, len(self._nodes))

    # ------------------------------------------------------------ changes

    def propose(self, command: Command, timeout_s: float | None = None) -> Answer:
        """The answer to a command, once this node has published a state with its change.

        Args:
            timeout_s: At most ``TIMEOUT_S``, which None is.

        Raises:
            MetadataTimeout: No quorum answered in time, or this node is behind.
            LogdbError: The command was refused.
        """
        timeout_s = TIMEOUT_S if timeout_s is None else min(timeout_s, TIMEOUT_S)
        until = time.monotonic() + timeout_s
        answer = self._asked(command, timeout_s)
        if not self.wait(lambda state: state.index >= answer.index, max(0.0, until - time.monotonic())):
            raise MetadataTimeout("the change is made, but this node has not received it yet")
        return answer

    def _asked(self, command: Command, timeout_s: float) -> Answer:
        try:
            return self._controller.propose(command, timeout_s)
        except (ControllerUnavailable, UnknownOutcome) as error:
            raise MetadataTimeout(str(error)) from error

    def _proposer(self, timeout_ms: int | None) -> Propose:
        """``propose`` for changes that have so long together."""
        if timeout_ms is None:
            return self.propose
        until = time.monotonic() + timeout_ms / 1000
        return lambda command: self.propose(command, max(0.0, until - time.monotonic()))

    def wait(self, condition: Callable[[ClusterState], bool], timeout_s: float) -> bool:
        """Return once a state is published that fulfils a condition, or when the time is over: whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self._state), timeout_s)

    def _create_topic(self, request: topic_changes.CreateTopic, go_on: Callable[[], None] = always) -> TopicInfo:
        wanted = self._creation(request, if_not_exists=request.if_not_exists)
        count, named = wanted.replication_factor, self._nodes.intersection(chain.from_iterable(wanted.assignments))
        if count <= len(self._nodes):  # at the first start of a cluster its brokers come one by one
            self.wait(lambda state: len(state.brokers) >= count and named <= state.brokers.keys(), _FIRST_START_S)
        go_on()
        answer = self.propose(wanted)
        assert isinstance(answer, TopicIs)
        return _info(answer.topic)

    def _check_new_topic(self, request: topic_changes.CheckNewTopic) -> TopicInfo:
        answer = answered(self._state, self._creation(request))
        assert isinstance(answer, TopicIs)
        return _info(answer.topic)._replace(topic_id="")

    def _creation(self, request: topic_changes.CreateTopic | topic_changes.CheckNewTopic, *, if_not_exists: bool = False) -> CreateTopic:
        """The command that creates a topic."""
        count = new_count(request.name, request.partitions, request.assignments, self.default_partition_count)
        parsed = check_new(request.name, count, request.config or {})
        given = _assignments(request.name, 0, request.assignments)
        factor = self._factor(request.replication_factor, given)
        if factor >= 3:
            parsed.setdefault(IN_SYNC_MIN, 2)
        return CreateTopic(request.name, new_topic_id(), parsed, count, factor, if_not_exists, given)

    def _factor(self, given: int | None, assignments: Assignments) -> int:
        if assignments and given in (None, BY_DEFAULT):
            return len(assignments[0])
        factor = self.default_replication_factor if given is None or given == BY_DEFAULT else given
        if not 1 <= factor <= _FACTOR_MAX:
            raise InvalidReplicationFactor(factor, len(self._state.brokers))
        return factor

    def _check_configs(self, request: topic_changes.CheckTopicConfigs) -> None:
        self._config_after(request.name, request.config)

    def _check_partitions(self, request: topic_changes.CheckPartitions) -> None:
        if (command := self._addition(request.name, request.partitions, request.assignments)) is not None:
            answered(self._state, command)

    def _addition(self, name: str, count: int, assignments: Sequence[Sequence[int]] | None) -> AddPartitions | None:
        """The command that lets a topic have so many partitions; None: it has them."""
        topic = self.topic(name)
        known = len(topic.partitions)
        check_partition_count(name, count, known)
        if assignments is not None:
            check_assignment_count(name, count - known, known, assignments)
        given = _assignments(name, known, assignments)
        return None if count == known else AddPartitions(name, topic.topic_id, known, count, given)

    def _alter_topic(self, request: topic_changes.AlterTopic, go_on: Callable[[], None] = always) -> TopicInfo:
        name, count, assignments, config = request.name, request.partitions, request.assignments, request.config or {}
        self._config_after(name, config)
        added_count = 0
        if count is not None or assignments is not None:
            addition = self._addition(name, self.topic(name).partition_count if count is None else count, assignments)
            if addition is not None:
                go_on()
                self.propose(addition)
                added_count = addition.count - addition.known_count
        if config:
            self._retried(lambda: self._alter(name, config, added_count=added_count))
        return _info(self.topic(name))

    def _alter_configs(self, request: topic_changes.AlterConfigs) -> None:
        name, config, replace = request.name, request.config, request.replace
        assert name is not None  # those of the node are the broker's
        self._config_after(name, config, replace=replace)
        if (config or replace) and not request.validate_only:
            self._retried(lambda: self._alter(name, config, replace=replace))

    def _config_after(self, name: str, config: Mapping[str, object], *, replace: bool = False) -> dict[str, ConfigValue]:
        topic = self.topic(name)
        return changed_config(name, topic.config, topic.partition_count, config, replace=replace)

    def _alter(self, name: str, config: Mapping[str, object], *, replace: bool = False, added_count: int = 0) -> None:
        """Alter the configs; ``added_count``: so many partitions the same request has added, which begin with its schema."""
        topic = self.topic(name)
        changed = changed_config(name, topic.config, topic.partition_count - added_count, config, replace=replace)
        self.propose(AlterTopic(name, topic.topic_id, topic.config, changed))

    def _retried(self, change: Callable[[], T]) -> T:
        """Do a compare-and-set until no other change comes between."""
        while True:
            index = self._state.index
            try:
                return change()
            except StateChanged:
                self.wait(lambda state: state.index > index, TIMEOUT_S)  # noqa: B023 -- called in this round

    def _delete_topic(self, request: topic_changes.DeleteTopic) -> None:
        self.propose(DeleteTopic(request.name, self.topic(request.name).topic_id))

    # ------------------------------------------------------------ replicas and leaders

    def _reassign_each(self, request: replicas.Reassign) -> dict[TopicPartition, LogdbError | None]:
        propose, targets = self._proposer(request.timeout_ms), request.targets

        def reassign(where: TopicPartition) -> None:
            self._reassign(where, targets[where], propose, may_change_count=request.may_change_count)

        return self._outcomes(reassign, targets)

    def _reassign(self, where: TopicPartition, nodes: Sequence[int] | None, propose: Propose, *, may_change_count: bool) -> None:
        partition = self.partition_state(*where)
        if nodes is None and not partition.target:
            raise NoReassignment(*where)
        target = tuple(nodes or ())
        if nodes is not None:
            if not target:
                raise InvalidReassignment(*where, target, "one is needed at least")
            if target == partition.assignment:  # a client repeats a request that took long
                return
            if not may_change_count and len(target) != (count := len(partition.assignment)):
                raise ReplicaCountChanged(*where, target, f"they are {len(target)} in place of {count}")
        propose_reassignment(propose, self.topic(where.topic), where.partition, target)

    def _elect_leaders(self, request: replicas.ElectLeaders) -> dict[TopicPartition, LogdbError | None]:
        unclean = request.unclean
        propose = self._proposer(request.timeout_ms)
        until_s = inf if request.timeout_ms is None else time.monotonic() + request.timeout_ms / 1000 - _ELECT_AT_ONCE_S

        def elect(wanted: Collection[TopicPartition]) -> dict[TopicPartition, LogdbError | None]:
            if unclean:
                return self._outcomes(partial(self._elect_unclean, propose), wanted)
            return self._elect_preferred(propose, until_s, wanted)

        if request.partitions is not None:
            return elect(request.partitions)
        led_by_others = [
            TopicPartition(name, number)
            for name, topic in self._state.topics.items()
            for number, one in enumerate(topic.partitions)
            if one.leader is None or (not unclean and not one.is_led_as_preferred)
        ]
        return {where: error for where, error in elect(led_by_others).items() if not isinstance(error, ElectionNotNeeded)}

    def _elect_preferred(
        self, propose: Propose, until_s: float, wanted: Collection[TopicPartition]
    ) -> dict[TopicPartition, LogdbError | None]:
        """Let all leaders hand over; those that do not in time are replaced at once."""
        asked: dict[TopicPartition, ElectPreferred] = {}
        outcomes = self._outcomes(partial(self._begin_election, propose, asked), wanted)
        wait = HandOverWait(len(asked), time.monotonic(), until_s)
        while left_s := wait.left_s(count := self._electing_count(self._state, asked), time.monotonic()):
            self.wait(lambda state, count=count: self._electing_count(state, asked) < count, left_s)  # type: ignore[misc]
        return outcomes | self._outcomes(partial(self._end_election, propose, asked), list(asked))

    @staticmethod
    def _electing_count(state: ClusterState, asked: Iterable[TopicPartition]) -> int:
        return sum(is_electing(state, where) for where in asked)

    def _begin_election(self, propose: Propose, asked: dict[TopicPartition, ElectPreferred], where: TopicPartition) -> None:
        """Ask the leader of a partition to hand over to the preferred one, which is then in ``asked``."""
        topic, partition = self.topic(where.topic), self.partition_state(*where)
        if partition.is_led_as_preferred:
            raise ElectionNotNeeded(*where, partition.preferred_leader)
        if preferred(partition, self._state.brokers) is partition:
            raise PreferredLeaderNotAvailable(*where, partition.preferred_leader)
        command = ElectPreferred(topic.name, topic.topic_id, where.partition, partition.leader_epoch)
        propose(replace(command, in_order=True))
        asked[where] = command

    def _end_election(self, propose: Propose, asked: Mapping[TopicPartition, ElectPreferred], where: TopicPartition) -> None:
        """Elect the preferred leader at once, if the present one has not handed over."""
        if is_electing(self._state, where):
            propose(asked[where])  # its leader hangs
        partition = self.partition_state(*where)
        if not partition.is_led_as_preferred:
            raise PreferredLeaderNotAvailable(*where, partition.preferred_leader)

    def _elect_unclean(self, propose: Propose, where: TopicPartition) -> None:
        topic, partition = self.topic(where.topic), self.partition_state(*where)
        if partition.leader is not None:
            raise ElectionNotNeeded(*where, partition.leader)
        alive = [node for node in partition.replicas if not self._state.brokers[node].fenced]
        if not alive:
            raise EligibleLeadersNotAvailable(*where, partition.replicas)
        try:
            answer = propose(ElectUnclean(topic.name, topic.topic_id, where.partition, partition.leader_epoch, alive[0]))
        except IneligibleReplica:  # it has died meanwhile
            raise EligibleLeadersNotAvailable(*where, partition.replicas) from None
        assert isinstance(answer, PartitionIs)
        if answer.state.leader is None:
            raise EligibleLeadersNotAvailable(*where, partition.replicas)

    def _outcomes(
        self, change: Callable[[TopicPartition], None], wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogdbError | None]:
        """The error of each partition; several are changed at once, for a change waits until all brokers know it."""
        topics = self._state.topics
        outcomes: dict[TopicPartition, LogdbError | None] = {
            one: None if one.topic in topics else UnknownTopic(one.topic) for one in wanted
        }
        left = iter([where for where in outcomes if where.topic in topics])

        def change_next() -> None:
            try:
                for where in left:
                    outcomes[where] = _refusal(change, where)
            finally:
                deque(left, maxlen=0)  # after a failure the others end, too

        pool = Pool(_PROPOSAL_COUNT_MAX, "logdb-partitions")
        try:
            for done in [pool.submit(change_next) for _ in range(min(_PROPOSAL_COUNT_MAX, len(outcomes)))]:
                done.result()
        finally:
            pool.shutdown()
        return outcomes

    @property
    def reassignment_bytes_per_s(self) -> int | None:
        return self._state.reassignment_bytes_per_s

    def limit_reassignments(self, bytes_per_s: int | None) -> None:
        self.propose(LimitReassignments(bytes_per_s))

    def take_producer_ids(self, count: int) -> range:
        least = first_producer_id(self.database_id)
        answer = self._asked(TakeProducerIds(count, least if self._state.next_producer_id < least else 0), TIMEOUT_S)
        assert isinstance(answer, ProducerIds)
        return range(answer.first, answer.first + answer.count)


_STEPS: Mapping[type[Request[Any]], Callable[..., Any]] = {
    requests.Topics: ClusterMetadata._list_topics,
    topic_changes.CreateTopic: ClusterMetadata._create_topic,
    topic_changes.CheckNewTopic: ClusterMetadata._check_new_topic,
    topic_changes.AlterTopic: ClusterMetadata._alter_topic,
    topic_changes.CheckPartitions: ClusterMetadata._check_partitions,
    topic_changes.CheckTopicConfigs: ClusterMetadata._check_configs,
    topic_changes.AlterConfigs: ClusterMetadata._alter_configs,
    topic_changes.DeleteTopic: ClusterMetadata._delete_topic,
    replicas.DescribeQuorum: ClusterMetadata._describe_quorum,
    replicas.Reassign: ClusterMetadata._reassign_each,
    replicas.ElectLeaders: ClusterMetadata._elect_leaders,
}
"""What carries a request out."""


def first_producer_id(cluster_id: str) -> int:
    """Where a cluster's producer ids begin: two clusters begin elsewhere, but for one pair in 10**12, and a directory lower.

    The batches of a mirror have the ids of its source.  Once it is written to, a new producer with the id of a copied batch would have its
    first records taken for a repetition: acknowledged, and never written.
    """
    return 1 << 61 | int.from_bytes(hashlib.sha256(cluster_id.encode()).digest()[:5]) << 20


class ClusterSecurity:
    """``store.protocols.SecurityDocument``: the document is in the state."""

    name = "the document of users, tokens and ACLs of the cluster"

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def read(self) -> bytes | None:
        return self._metadata.state.security

    def follow(self, take: Callable[[bytes | None], None]) -> "FollowingSecurity":
        return FollowingSecurity(self._metadata, take)

    def change(self, edit: "Callable[[bytes | None], tuple[bytes, T]]") -> T:
        return self._metadata._retried(lambda: self._change(edit))

    def _change(self, edit: "Callable[[bytes | None], tuple[bytes, T]]") -> T:
        state = self._metadata.state
        document, result = edit(state.security)
        if len(document) > SECURITY_SIZE_BYTES_MAX:
            raise InvalidSecurity(f"{self.name} would have {len(document)} bytes: must be at most {SECURITY_SIZE_BYTES_MAX}")
        self._metadata.propose(ChangeSecurity(state.security_version, document))
        return result


class FollowingSecurity:
    """``store.protocols.Following``."""

    def __init__(self, metadata: ClusterMetadata, take: Callable[[bytes | None], None]) -> None:
        self._metadata, self._take = metadata, take
        self._lock = renewed(threading.Lock())
        self._version = -1

    @property
    def is_there(self) -> bool:
        return self._metadata.state.security is not None

    def refresh(self) -> None:
        if self._metadata.state.security_version == self._version:
            return
        with self._lock:
            state = self._metadata.state
            if state.security_version == self._version:
                return
            try:
                self._take(state.security)
            finally:
                self._version = state.security_version  # one that is damaged is not taken twice

    def close(self) -> None:
        """There is nothing to let go of."""


def propose_reassignment(propose: Propose, topic: TopicState, number: int, target: tuple[int, ...]) -> None:
    """Propose a compare-and-set of a partition's replicas until no other change comes between; an empty target cancels."""
    _check_nodes(topic.name, number, target)
    known = topic.partitions[number].replicas
    for left in reversed(range(_REASSIGN_TRIES)):
        try:
            propose(Reassign(topic.name, topic.topic_id, number, target, known))
        except PartitionChanged as error:
            if not left:
                raise
            known = error.state.replicas
        else:
            return


def _assignments(topic: str, known: int, given: Sequence[Sequence[int]] | None) -> Assignments:
    """The nodes of each partition that is added to the ``known`` ones; raises unless a command can hold them."""
    assignments = tuple(tuple(nodes) for nodes in given or ())
    for number, nodes in enumerate(assignments, known):
        _check_nodes(topic, number, nodes)
    return assignments


def _check_nodes(topic: str, number: int, nodes: tuple[int, ...]) -> None:
    """Raise unless a command can hold the nodes of a partition; which of them may be, the controllers know."""
    if len(nodes) > REPLICA_COUNT_MAX:
        raise InvalidReassignment(topic, number, nodes, f"must be at most {REPLICA_COUNT_MAX} nodes")
    if unknown := [node for node in nodes if not 1 <= node <= NODE_ID_MAX]:
        raise InvalidReassignment(topic, number, nodes, f"node {unknown[0]} has never registered")


def _refusal(change: Callable[[TopicPartition], None], where: TopicPartition) -> LogdbError | None:
    """The error of a partition whose change is refused."""
    try:
        change(where)
    except UnknownTopic:
        return UnknownTopic(where.topic)  # not every client may know the others
    except _OF_A_PARTITION as error:
        return error.with_traceback(None)
    return None


def _voter(described: Mapping[str, Any]) -> QuorumVoter:
    """One of ``raft.node.Node.describe``."""
    host, _, port = described["address"].rpartition(":")
    end = None if described["matched"] is None else described["matched"] + 1
    return QuorumVoter(described["number"], int(described["incarnation"], 16), end, described["answered_ms_ago"], (host, int(port)))


def _info(topic: TopicState) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_count=topic.partition_count,
        config=dict(topic.config),
        internal=topic.name in INTERNAL_TOPICS,
    )
