"""Assignors: the leader of a group decides which member reads which partition, by one of these pure functions.

    assign(members, partition counts of the topics) -> partitions of each member, sorted

A topic without a count does not exist (any more) and is ignored.  The results equal those of kafka-python and of Kafka's Java
client, so that members of all three may lead one group.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from logdb.client.consumer import sticky
from logdb.errors import InvalidConfig
from logdb.mistakes import one_of
from logdb.model import TopicPartition

Assignments: TypeAlias = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """A member as the leader sees it.

    Attributes:
        owned: Its partitions in ``generation``; -1 if that is unknown.
    """

    member_id: str
    topics: tuple[str, ...]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


class Assignor(NamedTuple):
    """A way to assign partitions.

    Attributes:
        name: As members send it when they join.
        cooperative: Members keep their partitions during a rebalance, and give up only those that move (KIP-429).
        remembers: Members send their former partitions to the leader, in the user data of their subscription (KIP-54).
    """

    name: str
    assign: Callable[[Sequence[Member], Mapping[str, int]], Assignments]
    cooperative: bool = False
    remembers: bool = False


def assign_range(members: Sequence[Member], counts: Mapping[str, int]) -> Assignments:
    """Each topic's partitions are cut into runs, one for each of its members in order; the first members get one more.

    Members with an instance id come first, in its order, so that they keep what they had across restarts (KIP-345).

    Source: Kafka's RangeAssignor.
    """
    assigned: Assignments = {member.member_id: [] for member in members}
    for topic, subscribers in _subscribers(members).items():
        count = counts.get(topic, 0)
        size, more = divmod(count, len(subscribers))
        for number, member in enumerate(subscribers):
            start = size * number + min(number, more)
            stop = start + size + (number < more)
            assigned[member.member_id] += [TopicPartition(topic, partition) for partition in range(start, stop)]
    return _sorted(assigned)


def assign_round_robin(members: Sequence[Member], counts: Mapping[str, int]) -> Assignments:
    """All partitions of all topics are dealt out one by one; members that do not subscribe to the topic are skipped.

    Source: Kafka's RoundRobinAssignor.
    """
    assigned: Assignments = {member.member_id: [] for member in members}
    in_order, turn = _in_order(members), 0
    wanted = {member.member_id: set(member.topics) for member in members}
    for partition in _partitions(_subscribers(members), counts):
        while partition.topic not in wanted[in_order[turn % len(in_order)].member_id]:
            turn += 1
        assigned[in_order[turn % len(in_order)].member_id].append(partition)
        turn += 1
    return _sorted(assigned)


def assign_sticky(members: Sequence[Member], counts: Mapping[str, int]) -> Assignments:
    """As balanced as the subscriptions allow, then with as few moves as possible.

    Source: KIP-54.
    """
    return _sorted(sticky.assign(members, counts))


def assign_cooperatively(members: Sequence[Member], counts: Mapping[str, int]) -> Assignments:
    """Sticky in two rounds: a moving partition is unassigned until its owner has given it up and joined again.

    Source: KIP-429.
    """
    owners: dict[TopicPartition, Member] = {}
    for member in members:
        for partition in member.owned:
            if partition not in owners or member.generation > owners[partition].generation:
                owners[partition] = member
    return {
        member_id: [partition for partition in partitions if partition not in owners or owners[partition].member_id == member_id]
        for member_id, partitions in assign_sticky(members, counts).items()
    }


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky, remembers=True),
        Assignor("cooperative-sticky", assign_cooperatively, cooperative=True),
    )
}


def chosen(strategy: Iterable["str | Assignor"]) -> tuple[Assignor, ...]:
    """The assignors in ``partition_assignment_strategy``: names, or Assignor objects.

    Raises:
        InvalidConfig: None, an unknown name, or a name twice.
    """
    found: dict[str, Assignor] = {}
    for wanted in strategy:
        assignor = ASSIGNORS.get(wanted) if isinstance(wanted, str) else wanted
        if assignor is None or assignor.name in found:
            allowed = f"must be {one_of(ASSIGNORS)}, each at most once, or an Assignor"
            raise InvalidConfig("partition_assignment_strategy", wanted, allowed)
        found[assignor.name] = assignor
    if not found:
        raise InvalidConfig("partition_assignment_strategy", (), "name at least one")
    return tuple(found.values())


def _in_order(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=lambda member: (member.group_instance_id is None, member.group_instance_id or "", member.member_id))


def _subscribers(members: Sequence[Member]) -> dict[str, list[Member]]:
    found: dict[str, list[Member]] = defaultdict(list)
    for member in _in_order(members):
        for topic in member.topics:
            found[topic].append(member)
    return found


def _partitions(topics: Iterable[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic, partition) for topic in topics for partition in range(counts.get(topic, 0)))


def _sorted(assigned: Assignments) -> Assignments:
    return {member_id: sorted(partitions) for member_id, partitions in assigned.items()}
