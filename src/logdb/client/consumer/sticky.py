"""The sticky assignment: as balanced as the subscriptions allow, and of such assignments one with few moves.

Balanced means: the partition counts of two members differ by one at most, unless the one with fewer may not have any partition of
the other.  The steps:

1. Members keep their former partitions that exist and that they still subscribe to; if two claim one, the later generation wins.
2. Each other partition goes to the member with the fewest partitions that subscribes to its topic.
3. While a pair of members is not balanced, a partition moves from the fuller one to the other: new partitions first, if no
   member had to give one up; then all others.  A partition goes back to the member that a later generation took it
   from, if that helps.  Two members never exchange partitions of one topic: a partition that moved from A to B moves back
   before another one moves from B to A.

``assignors.assign_cooperatively`` holds a partition back until its former member has let it go.
4. If the balance is no better than before step 3, step 3 is undone.

Ties are decided by the smallest name, so that all leaders compute the same result.

Source: KIP-54; kafka-python's StickyPartitionAssignor.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from logdb.model import TopicPartition

if TYPE_CHECKING:
    from logdb.client.consumer.assignors import Member

Held = dict[str, list[TopicPartition]]


def assign(members: "Sequence[Member]", counts: Mapping[str, int]) -> Held:
    """The partitions of each member; ``counts`` are the partitions of each topic."""
    return _Assignment(members, counts).balanced()


class _Assignment:
    """The working state of one assignment.

    Attributes:
        may: The partitions that each member may have.
        takers: The members that may have each partition.
        held: The partitions of each member so far.
        owner: The member of each partition so far.
        before: The former member, if a later generation gave the partition to another one.
    """

    def __init__(self, members: "Sequence[Member]", counts: Mapping[str, int]) -> None:
        self.may: dict[str, list[TopicPartition]] = {}
        self.takers: dict[TopicPartition, list[str]] = {
            TopicPartition(topic, partition): []
            for topic in sorted({topic for member in members for topic in member.topics})
            for partition in range(counts.get(topic, 0))
        }
        for member in members:
            wanted = [TopicPartition(topic, partition) for topic in sorted(set(member.topics)) for partition in range(counts.get(topic, 0))]
            self.may[member.member_id] = wanted
            for partition in wanted:
                self.takers[partition].append(member.member_id)
        self.held: Held = {}
        self.before: dict[TopicPartition, str] = {}
        self._take_up(members)
        self.owner = {partition: member_id for member_id, partitions in self.held.items() for partition in partitions}
        self.fresh = not self.held
        for member in members:
            self.held.setdefault(member.member_id, [])
        self.gave_up = False  # a member lost a partition of a topic that it no longer subscribes to
        self._moves = _Moves()

    def _take_up(self, members: "Sequence[Member]") -> None:
        """Take the former partitions of members; of several claims the one of the latest generation."""
        claims: dict[TopicPartition, dict[int, str]] = {}
        for member in members:
            for partition in member.owned:
                claims.setdefault(partition, {}).setdefault(member.generation, member.member_id)
        for partition, by_generation in claims.items():
            latest, *earlier = sorted(by_generation, reverse=True)
            self.held.setdefault(by_generation[latest], []).append(partition)
            if earlier:
                self.before[partition] = by_generation[earlier[0]]

    # ------------------------------------------------------------ the steps

    def balanced(self) -> Held:
        candidates = self._candidates()
        unassigned = self._without_what_stays(candidates)
        initializing = not any(self.held.values())
        for partition in unassigned:
            self._assign(partition)
        fixed = {member_id: self.held.pop(member_id) for member_id in self.may if not self._takes_part(member_id)}
        movable = [partition for partition in candidates if len(self.takers[partition]) > 1]
        unbalanced = {member_id: list(partitions) for member_id, partitions in self.held.items()}
        if not self.gave_up:
            self._move([partition for partition in unassigned if len(self.takers[partition]) > 1])
        moved = self._move(movable)
        if not initializing and moved and _imbalance(self.held) >= _imbalance(unbalanced):
            self.held = unbalanced
        return self.held | fixed

    def _candidates(self) -> list[TopicPartition]:
        """All partitions, in the order of their moves.

        By the number of possible members; if every member may have every partition, those of the fullest members first, in turn.
        """
        by_takers = sorted(self.takers, key=lambda partition: (len(self.takers[partition]), partition))
        if self.fresh or not (_all_equal(self.takers.values()) and _all_equal(self.may.values())):
            return by_takers
        left = {member_id: [partition for partition in had if partition in self.takers] for member_id, had in self.held.items()}
        first: dict[TopicPartition, None] = {}
        while True:
            fullest = max(left, key=lambda member_id: (len(left[member_id]), member_id))
            if not left[fullest]:
                break
            wanderers = [partition for partition in left[fullest] if partition in self.before]
            partition = min(wanderers) if wanderers else left[fullest][-1]
            left[fullest].remove(partition)
            first[partition] = None
        return [*first, *(partition for partition in by_takers if partition not in first)]

    def _without_what_stays(self, candidates: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The unassigned candidates; drops partitions that do not exist or that their member does not want any more."""
        stays = set()
        for member_id, partitions in self.held.items():
            kept = [partition for partition in partitions if member_id in self.takers.get(partition, ())]
            self.gave_up = self.gave_up or any(partition in self.takers for partition in set(partitions).difference(kept))
            for partition in set(partitions).difference(kept):
                del self.owner[partition]
            self.held[member_id] = kept
            stays.update(kept)
        return [partition for partition in candidates if partition not in stays]

    def _assign(self, partition: TopicPartition) -> None:
        if self.takers[partition]:
            self._give(partition, self._emptiest(self.takers[partition]))

    def _takes_part(self, member_id: str) -> bool:
        """Whether any partition may move to the member or away from it."""
        held = self.held[member_id]
        return len(held) < len(self.may[member_id]) or any(len(self.takers[partition]) > 1 for partition in held)

    def _move(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions until that helps no more; returns whether any moved."""
        moved, again = False, True
        while again:
            again = False
            for partition in partitions:
                if self._is_balanced():
                    break
                if (taker := self._better(partition)) is not None:
                    self._move_one(partition, taker)
                    moved = again = True
        return moved

    def _better(self, partition: TopicPartition) -> str | None:
        """The member that should have the partition instead of its owner."""
        size = len(self.held[self.owner[partition]])
        before = self.before.get(partition)
        if before is not None and before in self.takers[partition] and size > len(self.held[before]) + 1:
            return before
        emptiest = self._emptiest(self.takers[partition])
        return emptiest if size > len(self.held[emptiest]) + 1 else None

    def _move_one(self, partition: TopicPartition, taker: str) -> None:
        """Move the partition from its owner to ``taker``, or one of the same topic that came from there."""
        owner = self.owner[partition]
        instead = self._moves.instead_of(partition, owner, taker)
        if self.owner[instead] != owner:  # both have moved before; so has the one that the owner got in exchange
            self._hand_over(partition, self.owner[instead])
        self._hand_over(instead, taker)

    def _hand_over(self, partition: TopicPartition, taker: str) -> None:
        owner = self.owner[partition]
        self._moves.note(partition, owner, taker)
        self.held[owner].remove(partition)
        self._give(partition, taker)

    def _give(self, partition: TopicPartition, taker: str) -> None:
        self.held[taker].append(partition)
        self.owner[partition] = taker

    def _emptiest(self, member_ids: Iterable[str]) -> str:
        return min(member_ids, key=self._fullness())

    def _fullness(self) -> Callable[[str], tuple[int, str]]:
        held = self.held
        return lambda member_id: (len(held[member_id]), member_id)

    def _is_balanced(self) -> bool:
        sizes = {member_id: len(partitions) for member_id, partitions in self.held.items()}
        if min(sizes.values()) >= max(sizes.values()) - 1:
            return True
        return not any(
            sizes[member_id] < sizes[self.owner[partition]]
            for member_id in sorted(sizes, key=sizes.__getitem__)  # the emptiest first: it is the likeliest to get one
            if sizes[member_id] < len(self.may[member_id])
            for partition in self.may[member_id]
            if self.owner[partition] != member_id
        )


class _Moves:
    """The moves in this assignment: which partitions, from whom to whom."""

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: defaultdict[tuple[str, str, str], set[TopicPartition]] = defaultdict(set)

    def note(self, partition: TopicPartition, owner: str, taker: str) -> None:
        """Move a partition; after an earlier move it counts as one move from its first owner to the last."""
        first = owner
        if (pair := self._pairs.pop(partition, None)) is not None:
            self._moved[partition.topic, *pair].remove(partition)
            first = pair[0]
        if first != taker:
            self._pairs[partition] = (first, taker)
            self._moved[partition.topic, first, taker].add(partition)

    def instead_of(self, partition: TopicPartition, owner: str, taker: str) -> TopicPartition:
        """A partition of the same topic that moved from ``taker`` to the first owner of this one; without one, this one."""
        first = self._pairs[partition][0] if partition in self._pairs else owner
        return min(self._moved[partition.topic, taker, first], default=partition)


def _all_equal(lists: Iterable[Sequence[object]]) -> bool:
    rest = iter(lists)
    first = next(rest, None)
    return all(other == first for other in rest)


def _imbalance(held: Held) -> int:
    """The sum of the differences of all pairs of members."""
    sizes = sorted(len(partitions) for partitions in held.values())
    return sum(size * (2 * rank - len(sizes) + 1) for rank, size in enumerate(sizes))
