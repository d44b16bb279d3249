"""A member's side of the group protocol, with a coordinator in memory and a clock that stands still."""

from concurrent.futures import Future

import pytest

from logdb.client.consumer.assignors import ASSIGNORS
from logdb.client.consumer.membership import Membership, StickyUserData
from logdb.errors import DiskFull, FencedInstance, InconsistentProtocol, InvalidGroup
from logdb.model import TopicPartition
from logdb.requests.groups import JoinGroup
from support.group_session import GroupSession

TIMEOUT_MS = 10_000


class Reader:
    """A consumer, as far as its membership knows it; writes down what happens to it."""

    def __init__(self, session, name, *, topics=("t",), strategy=("range",), instance=None, group_id="g"):
        self.wanted, self.parts, self.story, self.failure = topics, set(), [], None
        self.name, self.session = name, session
        self.membership = Membership(
            session,
            self,
            group_id=group_id,
            group_instance_id=instance,
            client_id=name,
            assignors=[ASSIGNORS[wanted] for wanted in strategy],
            timeout_ms=TIMEOUT_MS,
        )

    def topics(self):
        return self.wanted

    def owned(self):
        return sorted(self.parts)

    def give_up(self, partitions, *, lost=False):
        self.story.append(("lost" if lost else "revoked", numbers(partitions)))
        self.parts -= set(partitions)
        self._fail()

    def take_on(self, partitions):
        self.story.append(("assigned", numbers(partitions)))
        self.parts |= set(partitions)
        self._fail()

    def _fail(self):
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    @property
    def numbers(self):
        return numbers(self.parts)


def numbers(partitions):
    return sorted(partition for _, partition in partitions)


def settle(*readers):
    """Let all take part until nothing changes, and each partition has at most one reader at every moment."""
    for _ in range(8):
        for reader in readers:
            reader.membership.tend()
            held = [partition for other in readers for partition in other.parts]
            assert len(held) == len(set(held))


@pytest.fixture
def session():
    return GroupSession(t=4, u=2)


EAGER, COOPERATIVE = ("range",), ("cooperative-sticky",)


@pytest.mark.parametrize("strategy", [EAGER, ("roundrobin",), ("sticky",), COOPERATIVE])
def test_one_member_has_all_at_once(session, strategy):
    alone = Reader(session, "a", strategy=strategy)
    alone.membership.tend()
    assert alone.story == [("assigned", [0, 1, 2, 3])]
    assert alone.membership.metadata[:4] == ("g", 1, "a-1", None)


def test_an_eager_rebalance_takes_everything_away_first(session):
    first, second = Reader(session, "a"), Reader(session, "b")
    settle(first)
    settle(first, second)
    assert (first.numbers, second.numbers) == ([0, 1], [2, 3])
    assert first.story[1:] == [("revoked", [0, 1, 2, 3]), ("assigned", [0, 1])]


def test_a_cooperative_rebalance_takes_away_only_what_moves(session):
    first, second = Reader(session, "a", strategy=COOPERATIVE), Reader(session, "b", strategy=COOPERATIVE)
    settle(first)
    settle(first, second)
    assert (first.numbers, second.numbers) == ([0, 1], [2, 3])
    assert first.story[1:] == [("revoked", [2, 3])]
    assert second.story == [("assigned", [2, 3])]
    second.membership.leave()
    settle(first)
    assert first.story[2:] == [("assigned", [2, 3])]


def test_sticky_members_remember_across_rebalances(session):
    readers = [Reader(session, name, strategy=("sticky",)) for name in "abc"]
    settle(*readers)
    before = [reader.numbers for reader in readers]
    readers[1].membership.leave()
    settle(readers[0], readers[2])
    assert set(before[0]) <= set(readers[0].numbers) and set(before[2]) <= set(readers[2].numbers)


def test_one_more_member_than_partitions_is_idle(session):
    session.counts["t"] = 3
    readers = [Reader(session, name, strategy=COOPERATIVE) for name in "abcd"]
    settle(*readers)
    assert sorted(len(reader.parts) for reader in readers) == [0, 1, 1, 1]
    assert sorted(number for reader in readers for number in reader.numbers) == [0, 1, 2]


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_a_member_that_stops_is_replaced_and_learns_it(session, strategy):
    silent, other = Reader(session, "a", strategy=strategy), Reader(session, "b", strategy=strategy)
    settle(silent, other)
    for _ in range(4):
        session.pass_ms(TIMEOUT_MS // 3)
        other.membership.tend()
    settle(other)
    assert other.numbers == [0, 1, 2, 3]
    had = silent.numbers
    silent.membership.tend()
    assert silent.story[-1] == ("lost", had)
    assert silent.membership.metadata.member_id == "a-3", "it joins as a new member"
    settle(silent, other)
    assert sorted(silent.numbers + other.numbers) == [0, 1, 2, 3] and len(silent.numbers) == 2


def test_members_that_poll_now_and_then_stay(session):
    readers = [Reader(session, name) for name in "ab"]
    settle(*readers)
    before = [list(reader.story) for reader in readers]
    for _ in range(20):
        session.pass_ms(TIMEOUT_MS - 1)
        for reader in readers:
            reader.membership.tend()
    assert [reader.story for reader in readers] == before
    assert readers[0].membership.metadata.generation == 2


def test_the_leader_shares_new_partitions_out(session):
    readers = [Reader(session, name, strategy=COOPERATIVE) for name in "ab"]
    settle(*readers)
    session.counts["t"] = 6
    settle(*readers)
    assert sorted(readers[0].numbers + readers[1].numbers) == [0, 1, 2, 3, 4, 5]
    del session.counts["t"]
    settle(*readers)
    assert readers[0].numbers + readers[1].numbers == []


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
def test_another_subscription(session, strategy):
    reader = Reader(session, "a", strategy=strategy)
    settle(reader)
    reader.wanted = ("u",)
    settle(reader)
    assert reader.parts == {TopicPartition("u", 0), TopicPartition("u", 1)}
    assert reader.story == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3]), ("assigned", [0, 1])]


def test_a_subscription_that_changes_while_the_group_is_rebalanced(session):
    first, second = Reader(session, "a"), Reader(session, "b")
    settle(first)
    second.membership.tend()
    second.wanted = ("u",)
    settle(first, second)
    assert (len(first.parts), second.parts) == (4, {TopicPartition("u", 0), TopicPartition("u", 1)})


# ---------------------------------------------------------------- leaving


def test_leaving(session):
    first, second = Reader(session, "a"), Reader(session, "b")
    settle(first, second)
    second.membership.leave()
    second.membership.leave()
    settle(first)
    assert first.numbers == [0, 1, 2, 3]
    assert second.membership.metadata[:4] == ("g", -1, "", None)


def test_leaving_while_the_others_are_waited_for(session):
    first, newcomer = Reader(session, "a"), Reader(session, "b")
    settle(first)
    newcomer.membership.tend()
    assert newcomer.membership.answer is not None
    newcomer.membership.leave()
    assert len(session.coordinator.describe("g").members) == 1, "at once, not with the next rebalance"
    settle(first)
    assert first.numbers == [0, 1, 2, 3]


class LateSession(GroupSession):
    """A session that answers joins when the test lets it."""

    def __init__(self, **counts):
        super().__init__(**counts)
        self._late = []

    def submit(self, request):
        answer = super().submit(request)
        if isinstance(request, JoinGroup):
            self._late.append((answer, answer := Future()))
        return answer

    def answer(self):
        answered, self._late = self._late, []
        for answer, late in answered:
            late.set_exception(error) if (error := answer.exception()) is not None else late.set_result(answer.result())


def test_leaving_before_the_answer_that_has_the_members_id():
    session = LateSession(t=4)
    gone, other = Reader(session, "a"), Reader(session, "b")
    gone.membership.tend()
    gone.membership.leave()
    session.answer()
    for _ in range(4):
        other.membership.tend()
        session.answer()
    assert other.numbers == [0, 1, 2, 3], "the group waits for no member that was given an id and has left"


# ---------------------------------------------------------------- static members


def test_an_instance_comes_back_to_what_it_had_without_a_rebalance(session):
    first, second = Reader(session, "a", instance="one"), Reader(session, "b", instance="two")
    settle(first, second)
    generation = first.membership.metadata.generation
    second.membership.leave()  # its process ends
    settle(first)
    again = Reader(session, "c", instance="two")
    settle(first, again)
    assert (first.numbers, again.numbers) == ([0, 1], [2, 3])
    assert first.membership.metadata.generation == again.membership.metadata.generation == generation


def test_a_leading_instance_comes_back_and_leads_on(session):
    first, second = Reader(session, "a", instance="one"), Reader(session, "b", instance="two")
    settle(first, second)
    first.membership.leave()
    again = Reader(session, "c", instance="one")
    settle(again, second)
    assert (again.numbers, second.numbers) == ([0, 1], [2, 3])
    session.counts["t"] = 6
    settle(again, second)
    assert (again.numbers, second.numbers) == ([0, 1, 2], [3, 4, 5])


def test_an_instance_that_does_not_come_back_is_replaced(session):
    first, second = Reader(session, "a", instance="one"), Reader(session, "b", instance="two")
    settle(first, second)
    second.membership.leave()
    for _ in range(4):
        session.pass_ms(TIMEOUT_MS // 3)
        settle(first)
    assert first.numbers == [0, 1, 2, 3]


def test_a_second_process_of_an_instance_fences_the_first(session):
    first = Reader(session, "a", instance="one")
    settle(first)
    second = Reader(session, "b", instance="one")
    second.membership.tend()
    for _ in range(2):
        with pytest.raises(FencedInstance):
            first.membership.tend()
    assert first.story[-1] == ("lost", [0, 1, 2, 3])
    settle(second)
    assert second.numbers == [0, 1, 2, 3]


# ---------------------------------------------------------------- failures


def test_what_cannot_join(session):
    settle(Reader(session, "a", strategy=EAGER))
    with pytest.raises(InconsistentProtocol):
        Reader(session, "b", strategy=COOPERATIVE).membership.tend()
    with pytest.raises(InvalidGroup):
        Reader(session, "b", group_id="").membership.tend()


def test_members_with_different_preferences_agree(session):
    old, new = Reader(session, "a", strategy=("range", "cooperative-sticky")), Reader(session, "b", strategy=COOPERATIVE)
    settle(old, new)
    assert session.coordinator.describe("g").protocol == "cooperative-sticky"
    assert sorted(old.numbers + new.numbers) == [0, 1, 2, 3]


def test_a_failed_call_is_tried_again(session):
    reader = Reader(session, "a")
    session.failures.append(DiskFull("__consumer_offsets-0", 10, "full"))
    with pytest.raises(DiskFull):
        reader.membership.tend()
    settle(reader)
    assert reader.numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("strategy", [EAGER, COOPERATIVE])
@pytest.mark.parametrize("when", ["assigned", "revoked"])
def test_a_listener_that_fails_does_not_stop_the_rebalance(session, strategy, when):
    first, second = Reader(session, "a", strategy=strategy), Reader(session, "b", strategy=strategy)
    if when == "assigned":
        first.failure = RuntimeError("the application's")
        with pytest.raises(RuntimeError):
            first.membership.tend()
    settle(first)
    if when == "revoked":
        second.membership.tend()
        first.failure = RuntimeError("the application's")
        with pytest.raises(RuntimeError):
            settle(first, second)
    settle(first, second)
    assert (first.numbers, second.numbers) == ([0, 1], [2, 3])


# ---------------------------------------------------------------- user data


def test_user_data_of_sticky():
    data = StickyUserData((TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 3)), 7)
    decoded = StickyUserData.decode(data.encode())
    assert decoded is not None and (sorted(decoded.partitions), decoded.generation) == (sorted(data.partitions), 7)
    assert StickyUserData.decode(data.encode()[:-4]) == decoded._replace(generation=-1), "version 0"
    assert StickyUserData.decode(b"?") is None
