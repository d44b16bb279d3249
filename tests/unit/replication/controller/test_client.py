"""How a broker finds the controller that leads: controllers on loopback whose answers the test gives."""

import contextlib
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from logdb.errors import Closed, ControllerUnavailable, StaleBrokerEpoch, TopicExists
from logdb_replication.controller import commands
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.commands import ChangeSecurity, Done, FenceBroker, Refused
from logdb_replication.controller.errors import DuplicateBroker, UnknownCommand
from logdb_replication.controller.listener import Listener
from logdb_replication.controller.messages import Described, Heard, Heartbeat, Proposed, Watched
from logdb_replication.controller.state_copy import StateCopy
from logdb_replication.raft.errors import CommandTooLarge, NotQuorumLeader, QuorumStopped, UnknownOutcome
from support.controllers import CLUSTER, Controllers

SECRET = b"s" * 32
DONE = commands.encode_answer(Done(7))


class Played:
    """Controllers 1 to 3; each answer is a function of the request, None: that one does not run."""

    def __init__(self, *, election_timeout_ms: int = 2_000, **answers) -> None:
        self.asked: list[tuple[int, object]] = []
        self.listeners, nodes = {}, []
        for number, answer in enumerate(answers.values(), 1):
            listener = Listener(("127.0.0.1", 0), CLUSTER, SECRET, number, self._answering(number, answer), lambda node: None)
            self.listeners[number] = listener
            nodes.append(SimpleNamespace(number=number, controller=("127.0.0.1", listener.port)))
            if answer is None:
                listener.close()
        self.config = SimpleNamespace(
            cluster=CLUSTER, secret=SECRET, nodes=nodes, tls_cert=None,
            times=SimpleNamespace(election_timeout_ms=election_timeout_ms), of=lambda number: nodes[number - 1],
        )  # fmt: skip
        self.client = ControllerClient(self.config, 1)

    def _answering(self, number, answer):
        def answering(_node, request):
            self.asked.append((number, request))
            return answer(request)

        return answering

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        for listener in self.listeners.values():
            with contextlib.suppress(OSError):
                listener.close()

    def numbers(self) -> list[int]:
        return [number for number, _ in self.asked]


def raising(*errors):
    left = list(errors)

    def answer(_request):
        raise left.pop(0) if len(left) > 1 else left[0]

    return answer


def done(_request):
    return Proposed(DONE)


def test_where_none_leads_the_reason_of_each_controller_is_told():
    answers = {"one": raising(NotQuorumLeader(None)), "two": raising(QuorumStopped("a disk")), "three": None}
    with Played(**answers) as played, pytest.raises(ControllerUnavailable) as caught:
        played.client.propose(FenceBroker(1, 1), 0.5)
    told = str(caught.value)
    assert [part in told for part in ("node 1: this voter does not lead", "a disk", "node 3: ")] == [True] * 3, told


def test_an_operators_question_waits_for_an_election():
    """Without one it fails at once: no controller answers."""
    electing = raising(*[NotQuorumLeader(None)] * 3)

    def elected(request):
        return electing(request) if len(played.asked) < 6 else Watched(7, None, [])

    with Played(one=elected, two=elected, three=None) as played:
        with pytest.raises(ControllerUnavailable, match="no leader is known"):
            played.client.read(0, 0.0)
        assert played.client.read(0, 30.0).index == 7
    with Played(one=None, two=None, three=None) as played, pytest.raises(ControllerUnavailable, match="refused"):
        played.client.read(0, 30.0)
    assert played.asked == []


def test_the_one_that_is_named_is_asked_next_and_first_from_then_on():
    with Played(one=raising(NotQuorumLeader(3)), two=done, three=done) as played:
        for _ in range(2):
            assert played.client.propose(FenceBroker(1, 1)) == Done(7)
        assert played.numbers() == [1, 3, 3]
        assert played.client.leader == 3


def test_a_controller_that_is_away_is_passed_over_and_asked_last():
    with Played(one=None, two=raising(NotQuorumLeader(None)), three=done) as played:
        for _ in range(2):
            assert played.client.propose(FenceBroker(1, 1)) == Done(7)
        assert played.numbers() == [2, 3, 3]


def test_what_is_refused_is_not_asked_again():
    answer = Refused(9, *commands.REFUSALS.written(TopicExists("t")))
    with Played(one=lambda _: Proposed(commands.encode_answer(answer)), two=done, three=done) as played:
        with pytest.raises(TopicExists):
            played.client.propose(FenceBroker(1, 1))
        assert played.numbers() == [1]


@pytest.mark.parametrize("error", [CommandTooLarge(2, 1), UnknownCommand("x"), DuplicateBroker(1)])
def test_what_no_controller_takes_is_not_asked_again(error):
    with Played(one=raising(error), two=done, three=done) as played:
        with pytest.raises(type(error)):
            played.client.propose(FenceBroker(1, 1))
        assert played.numbers() == [1]


def test_an_unknown_outcome_is_proposed_again_and_told_where_it_stays_unknown():
    with Played(one=raising(UnknownOutcome("x")), two=done, three=done) as played:
        assert played.client.propose(FenceBroker(1, 1)) == Done(7)
    for first, error in ((UnknownOutcome("x"), UnknownOutcome), (NotQuorumLeader(None), ControllerUnavailable)):
        with Played(one=raising(first, NotQuorumLeader(None)), two=None, three=None) as played, pytest.raises(error):
            played.client.propose(FenceBroker(1, 1), 0.2)


def test_a_controller_that_hangs_is_given_up():
    over = threading.Event()

    def hang(request):
        over.wait(20)
        return Heard(True, True)

    with Played(election_timeout_ms=100, one=hang, two=raising(NotQuorumLeader(3)), three=lambda _: Heard(False, False)) as played:
        began = time.monotonic()
        assert played.client.heartbeat(1, 1, 1, 5) == Heard(False, False)
        assert time.monotonic() - began < 2
        over.set()


def test_a_controller_that_hangs_is_watched_last_for_some_time():
    over = threading.Event()
    new = Watched(9, None, [(9, b"x")])
    with Played(election_timeout_ms=300, one=lambda _: over.wait(20) and new, two=lambda _: new, three=lambda _: new) as played:
        for _ in range(3):
            assert played.client.watch(3, 10) == new
        assert played.numbers() == [1, 2, 2, 2]
        over.set()


def test_heartbeats_and_suspicions_that_are_refused():
    with Played(one=raising(StaleBrokerEpoch(1, 2, 3)), two=done, three=done) as played:
        with pytest.raises(StaleBrokerEpoch):
            played.client.heartbeat(1, 1, 1)
        with pytest.raises(StaleBrokerEpoch):
            played.client.suspect(1, 2)
        assert played.asked[0] == (1, Heartbeat(1, 1, 1))


def test_a_watch_is_answered_by_the_nodes_own_or_by_any():
    new = Watched(9, None, [(9, b"x")])
    with Played(one=lambda _: new, two=done, three=done) as played:
        assert played.client.watch(3, 10) == new
    with Played(one=raising(QuorumStopped("a disk")), two=None, three=lambda _: new) as played:
        assert played.client.watch(3, 10) == new
        with pytest.raises(ControllerUnavailable, match=r"node 1: .*a disk"):
            played.client.describe(1)
    with Played(one=None, two=None, three=lambda _: Described({}, [])) as played:
        assert played.client.describe() == Described({}, [])
        with pytest.raises(ControllerUnavailable, match="node 2"):
            played.client.describe(2)


def test_a_connection_that_the_controller_has_closed_is_made_again():
    with Played(one=done, two=raising(NotQuorumLeader(1)), three=raising(NotQuorumLeader(1))) as played:
        assert played.client.propose(FenceBroker(1, 1)) == Done(7)
        for sock in list(played.listeners[1]._connections.values()):
            sock.shutdown(socket.SHUT_RDWR)
        assert played.client.propose(FenceBroker(1, 1)) == Done(7)
        assert played.numbers() == [1, 1]


def test_a_controller_that_dies_with_the_question_leaves_the_outcome_unknown():
    def die(_request):
        played.listeners[1]._listener.close()
        if len(played.asked) > 1:
            raise OSError("killed")  # ends the connection
        return Proposed(DONE)

    with Played(one=die, two=None, three=None) as played:
        assert played.client.propose(FenceBroker(1, 1)) == Done(7)
        with pytest.raises(UnknownOutcome):
            played.client.propose(FenceBroker(1, 1), 0.2)


def test_a_command_that_no_entry_can_hold_is_refused_where_it_is_made():
    with Played(one=done, two=done, three=done) as played:
        with pytest.raises(CommandTooLarge):
            played.client.propose(ChangeSecurity(0, bytes(1 << 20)))
        assert played.asked == []


def test_a_closed_client_ends_what_waits():
    over = threading.Event()
    with Played(one=lambda _: over.wait(20) and Watched(1), two=None, three=None) as played:
        caught = []

        def watch() -> None:
            try:
                played.client.watch(0, 20_000)
            except Closed as error:
                caught.append(error)

        thread = threading.Thread(target=watch)
        thread.start()
        while not played.asked:
            time.sleep(0.01)
        played.client.close()
        thread.join(10)
        assert caught
        with pytest.raises(Closed):
            played.client.propose(FenceBroker(1, 1))
        over.set()


# ---------------------------------------------------------------- the copy


def copied(answer):
    """A copy that is given these replies one after the other, and the states that it told of."""
    told = []

    class Client:
        cluster = CLUSTER

        def watch(self, since, wait_ms):
            return answer(since)

    return StateCopy(Client(), lambda _: None, told.append), told


def test_a_copy_takes_snapshots_and_commands_in_order_and_never_goes_back():
    made = Controllers(brokers=2)
    states, log = [made.state], []
    take = commands.encode(commands.TakeProducerIds(1))
    for _ in range(4):
        index = made.state.index + 1
        made.machine.apply(index, take)
        log.append((index, take))
        states.append(made.state)
    other = Controllers(brokers=2)
    replies = [
        Watched(other.state.index, other.machine.snapshot()),
        Watched(log[1][0], None, log[:2]),
        Watched(log[0][0], None, log[:1]),  # of a controller that is behind
        Watched(other.state.index, other.machine.snapshot()),
        Watched(log[3][0], None, log),
    ]

    def answer(_since):
        if replies:
            return replies.pop(0)
        time.sleep(0.01)
        return Watched(0)

    copy, told = copied(answer)
    assert copy.wait_for(states[-1].index, 10) == states[-1]
    assert told == [states[0], states[2], states[4]]
    with pytest.raises(ControllerUnavailable, match="not at 99"):
        copy.wait_for(99, 0.05)
    copy.close()
    with pytest.raises(Closed):
        copy.wait_for(99, 5)


def test_a_copy_stops_at_a_command_of_a_newer_version(caplog):
    copy, told = copied(lambda since: Watched(5, None, [(5, b"\xc1")]))
    with pytest.raises(UnknownCommand):
        copy.wait_for(5, 10)
    assert not told
    assert "stay at index 0" in caplog.text
    copy.close()


def test_a_copy_goes_on_after_an_outage_and_after_an_error_of_who_is_told(caplog):
    take = commands.encode(commands.TakeProducerIds(1))
    outages = [ControllerUnavailable(1, "x")]

    def answer(since):
        if outages:
            raise outages.pop()
        time.sleep(0.01)
        return Watched(since + 1, None, [(since + 1, take)])

    copy, _ = copied(answer)
    copy._changed = lambda state: 1 / 0
    assert copy.wait_for(2, 10).next_producer_id >= 2
    copy.close()
    assert "ZeroDivisionError" in caplog.text
