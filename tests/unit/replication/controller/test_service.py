"""What a controller answers, over a quorum that the test plays: it leads or not, and applies what is proposed at once."""

import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from logdb.errors import StaleBrokerEpoch
from logdb.io import IO
from logdb_replication.config import Times
from logdb_replication.controller import commands
from logdb_replication.controller import service as services
from logdb_replication.controller.commands import CreateTopic, FenceBroker, RegisterBroker, ResignLeader, TakeProducerIds
from logdb_replication.controller.errors import ClocksApart, DuplicateBroker, UnknownBroker, UnknownCommand
from logdb_replication.controller.feed import Feed
from logdb_replication.controller.messages import Describe, Heard, Heartbeat, Propose, Suspect, Suspected, Watch
from logdb_replication.controller.service import Service
from logdb_replication.raft.errors import BarrierTimeout, NotQuorumLeader, QuorumStopped, UnknownOutcome
from support.controllers import CLUSTER
from support.waiting import until

NOW_MS = 1_800_000_000_000


class PlayedQuorum:
    def __init__(self, feed: Feed) -> None:
        self.feed, self.is_leader, self.leader, self.failure, self.barriers = feed, True, 1, None, 0
        self.barrier_fails = False

    def propose(self, command: bytes, timeout_s: float) -> bytes:
        if not self.is_leader:
            raise NotQuorumLeader(self.leader)
        return self.feed.apply(self.feed.state.index + 1, command)

    def barrier(self, timeout_s: float) -> int:
        if self.barrier_fails:
            raise BarrierTimeout(round(timeout_s * 1000))
        self.barriers += 1
        return self.feed.state.index

    def describe(self):
        return {"state": "leader" if self.is_leader else "follower"}


class Clock(IO):
    """A clock that the test moves."""

    now_ms = 0

    def clock_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return self.now_ms


class Controller:
    def __init__(self, monkeypatch, *, leading: bool = True) -> None:
        monkeypatch.setattr(services, "INTERVAL_MS", 2)
        self.refusing = set()
        monkeypatch.setattr(services, "_refuses", lambda addresses: addresses["http"][1] in self.refusing)
        self.feed, self.clock = Feed(CLUSTER), Clock()
        self.quorum = PlayedQuorum(self.feed)
        self.quorum.is_leader = leading
        self.service = Service(self.quorum, self.feed, Times(100, 100, 300), self.clock)
        if leading:
            until(lambda: self.service._leading)

    def propose(self, command):
        return commands.decode_answer(self.service.answer(9, Propose(commands.encode(command), 1000)).answer)

    def register(self, node: int, incarnation: str = "a") -> int:
        return self.propose(RegisterBroker(node, incarnation, {"http": ("h", node)})).broker_epoch

    def come(self, node: int) -> int:
        epoch = self.register(node)
        assert self.service.answer(node, Heartbeat(epoch, self.feed.state.index, NOW_MS)) == Heard(False, False)
        return epoch

    def fenced(self, node: int) -> bool:
        return self.feed.state.brokers[node].fenced

    def pass_ms(self, count: int, beating=()) -> None:
        """Time passes in steps that a running controller sees."""
        for _ in range(count // 2):
            self.clock.now_ms += 2
            for node, epoch in beating:
                self.service.answer(node, Heartbeat(epoch, 0, NOW_MS))
            seen = self.service._sessions._passed_ms
            until(lambda seen=seen: self.service._sessions._passed_ms > seen)


@pytest.fixture
def controller(monkeypatch):
    made = Controller(monkeypatch)
    yield made
    made.service.close()


def test_a_heartbeat_unfences_a_broker_that_has_caught_up(controller):
    epoch = controller.register(1)
    index = controller.feed.state.index
    assert controller.service.answer(1, Heartbeat(epoch, index - 1, NOW_MS)) == Heard(True, False)
    assert controller.service.answer(1, Heartbeat(epoch, index, NOW_MS)) == Heard(False, False)


def test_a_broker_that_could_not_be_unfenced_is_at_its_next_heartbeat(controller, monkeypatch):
    epoch, index = controller.register(1), controller.feed.state.index
    with monkeypatch.context() as patch:
        patch.setattr(controller.service, "_decide", _outcome_is_unknown)
        with pytest.raises(UnknownOutcome):
            controller.service.answer(1, Heartbeat(epoch, index, NOW_MS))
    controller.propose(TakeProducerIds(1))  # others go on: the broker is behind by then
    assert controller.service.answer(1, Describe()).brokers[0]["behind"] == 0
    assert controller.service.answer(1, Heartbeat(epoch, index, NOW_MS)) == Heard(False, False)


def _outcome_is_unknown(command):
    raise UnknownOutcome("no majority has answered")


@pytest.mark.parametrize(("way", "sign"), [("ahead of", 1), ("behind", -1)])
def test_a_broker_whose_clock_is_apart_stays_fenced_until_it_is_set(controller, way, sign):
    epoch, index = controller.register(1), controller.feed.state.index
    with pytest.raises(ClocksApart, match=f"the clock of node 1 is 61 s {way} that of the controller; 60 s is the most allowed"):
        controller.service.answer(1, Heartbeat(epoch, index, NOW_MS + sign * 61_000))
    assert controller.fenced(1)
    assert controller.service.answer(1, Heartbeat(epoch, index, NOW_MS + sign * 60_000)) == Heard(False, False)
    assert controller.service.answer(1, Heartbeat(epoch, index, 0)) == Heard(False, False)  # one that runs goes on


def test_a_silent_broker_is_fenced_after_its_session_and_the_others_are_not(controller):
    epochs = {node: controller.come(node) for node in (1, 2)}
    controller.pass_ms(80, [(1, epochs[1])])
    assert not controller.fenced(2)
    controller.pass_ms(40, [(1, epochs[1])])
    until(lambda: controller.fenced(2))
    assert not controller.fenced(1)
    assert controller.service.answer(2, Heartbeat(epochs[2], controller.feed.state.index, NOW_MS)) == Heard(False, False)


def test_topics_that_are_created_at_once_are_spread(controller):
    for node in (1, 2, 3):
        controller.come(node)
    with ThreadPoolExecutor(6) as pool:
        created = list(pool.map(lambda n: controller.propose(CreateTopic(f"t{n}", f"id{n}", {}, 2, 1)).topic, range(6)))
    assert all(len({partition.leader for partition in topic.partitions}) == 2 for topic in created)
    leaders = Counter(partition.leader for topic in created for partition in topic.partitions)
    assert leaders == {1: 4, 2: 4, 3: 4}


def test_a_topic_is_created_once_every_broker_that_lives_knows_it(controller):
    epochs = {node: controller.come(node) for node in (1, 2)}
    controller.register(3)  # fenced
    with ThreadPoolExecutor(1) as pool:
        created = pool.submit(controller.propose, CreateTopic("t", "id", {}, 1, 1))
        until(lambda: "t" in controller.feed.state.topics)
        index = controller.feed.state.index
        controller.service.answer(1, Heartbeat(epochs[1], index, NOW_MS))
        controller.service.answer(2, Heartbeat(epochs[2], index - 1, NOW_MS))
        assert not created.done()
        controller.service.answer(2, Heartbeat(epochs[2], index, NOW_MS))
        assert created.result(10).topic.name == "t"


def test_a_broker_that_is_silent_holds_a_new_topic_up_for_half_of_the_time_at_most(controller):
    controller.come(1)
    assert controller.propose(CreateTopic("t", "id", {}, 1, 1)).topic.name == "t"


def test_a_suspect_is_fenced_if_its_machine_refuses(controller):
    epochs = {node: controller.come(node) for node in (1, 2)}
    assert controller.service.answer(1, Suspect(epochs[1], 2)) == Suspected(False)
    controller.refusing.add(2)
    assert controller.service.answer(1, Suspect(epochs[1], 2)) == Suspected(True)
    assert controller.fenced(2)
    with pytest.raises(UnknownBroker):
        controller.service.answer(1, Suspect(epochs[1], 3))
    controller.refusing.add(1)
    controller.service.gone(1)
    until(lambda: controller.fenced(1))


def test_first_replicas_lead_again_after_some_time(controller, monkeypatch):
    monkeypatch.setattr(services, "SPREAD_INTERVAL_MS", 40)
    epochs = {node: controller.come(node) for node in (1, 2)}
    beating = list(epochs.items())
    controller.service._spread_ms = 40
    controller.propose(CreateTopic("t", "id", {}, 1, 2))
    controller.propose(ResignLeader("t", 0, 0))
    controller.pass_ms(60, beating)
    assert controller.feed.state.partition("t", 0).leader == 2  # one look is not enough
    controller.pass_ms(60, beating)
    assert controller.feed.state.partition("t", 0)[:2] == (1, 2)


def test_who_is_not_registered_is_told_so(controller):
    with pytest.raises(UnknownBroker):
        controller.service.answer(1, Heartbeat(1, 1, NOW_MS))
    controller.register(1)
    epoch = controller.register(1, "b")
    for request in (Heartbeat(epoch - 1, 1, NOW_MS), Suspect(epoch - 1, 1)):
        with pytest.raises(StaleBrokerEpoch):
            controller.service.answer(1, request)


def test_who_may_have_registered_with_a_newer_leader_is_not_sent_away(controller):
    epoch = controller.come(1)
    controller.quorum.barrier_fails = True  # this one leads no longer, and has not noticed
    for node, newer in ((1, epoch + 1), (2, 7)):
        with pytest.raises(NotQuorumLeader):
            controller.service.answer(node, Heartbeat(newer, 9, NOW_MS))
    with pytest.raises(StaleBrokerEpoch):
        controller.service.answer(1, Heartbeat(epoch - 1, 9, NOW_MS))
    controller.quorum.barrier_fails = False
    with pytest.raises(UnknownBroker):
        controller.service.answer(2, Heartbeat(7, 9, NOW_MS))


def test_a_second_process_of_a_node_waits_until_the_first_is_dead(controller):
    epoch = controller.come(1)
    with pytest.raises(DuplicateBroker):
        controller.register(1, "b")
    assert controller.register(1) == epoch
    controller.pass_ms(110)
    assert controller.register(1, "b") > epoch


def test_a_controller_that_does_not_lead_answers_watches_alone(monkeypatch):
    controller = Controller(monkeypatch, leading=False)
    controller.quorum.leader = 3
    for request in (Heartbeat(1, 1, NOW_MS), Suspect(1, 2), Propose(commands.encode(FenceBroker(1, 1)), 100)):
        with pytest.raises(NotQuorumLeader) as caught:
            controller.service.answer(1, request)
        assert caught.value.leader == 3
    assert controller.service.answer(1, Watch(0, 0)).index == 0
    assert controller.service.answer(1, Describe()).quorum == {"state": "follower"}
    controller.quorum.leader = None
    with pytest.raises(NotQuorumLeader):  # another one may know more
        controller.service.answer(1, Watch(0, 0))
    controller.quorum.failure = QuorumStopped("a disk")
    with pytest.raises(QuorumStopped, match="a disk"):
        controller.service.answer(1, Watch(0, 0))
    controller.service.close()


def test_the_latest_state_comes_after_a_barrier(controller):
    controller.come(1)
    before = controller.quorum.barriers
    assert controller.service.answer(2, Watch(0, 0, latest=True)).index == controller.feed.state.index
    assert controller.quorum.barriers == before + 1
    controller.quorum.barrier_fails = True  # this one leads no longer, and has not noticed
    with pytest.raises(NotQuorumLeader):
        controller.service.answer(2, Watch(0, 0, latest=True))
    assert controller.service.answer(2, Watch(0, 0)).index == controller.feed.state.index


def test_a_new_leader_answers_after_its_barrier_and_looks_for_dead_brokers(controller):
    controller.come(1)
    controller.come(2)
    controller.quorum.is_leader, controller.quorum.leader = False, 2
    until(lambda: not controller.service._leading)
    controller.refusing.add(2)
    controller.quorum.barrier_fails = controller.quorum.is_leader = True
    with pytest.raises(NotQuorumLeader) as caught:
        controller.service.answer(1, Heartbeat(1, 1, NOW_MS))
    assert caught.value.leader is None
    controller.clock.now_ms += 3_600_000
    controller.quorum.barrier_fails = False
    until(lambda: controller.fenced(2))
    assert not controller.fenced(1)


def test_what_is_no_command_is_not_proposed(controller):
    with pytest.raises(UnknownCommand):
        controller.service.answer(1, Propose(b"\xc1", 100))
    assert controller.feed.state.index == 0
    controller.come(1)
    answer = controller.propose(CreateTopic("t", "id", {}, 1, 1))
    assert answer.topic.partitions[0].leader == 1


def test_describe_names_the_brokers(controller):
    epoch = controller.come(1)
    found = controller.service.answer(2, Describe())
    assert found.brokers == [
        {
            "node": 1,
            "incarnation": "a",
            "epoch": epoch,
            "addresses": {"http": "h:1"},
            "rack": "",
            "fenced": False,
            "draining": False,
            "heard_ms_ago": 0,
            "behind": None,
        }
    ]


def test_a_machine_refuses_where_no_process_listens_and_says_nothing_where_it_is_slow(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = door.getsockname()
        assert not services._refuses({"kafka": ("127.0.0.1", 1), "http": address})
    assert services._refuses({"http": address})
    assert not services._refuses({})
    for error in (TimeoutError(), OSError(113, "No route to host"), socket.gaierror(-2, "Name or service not known")):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(socket, "create_connection", fail)
        assert not services._refuses({"http": address})
