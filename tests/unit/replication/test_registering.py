"""A node that starts registers, and outwaits the session of its former process."""

import itertools

import pytest

from logdb.errors import ControllerUnavailable
from logdb.io import IO
from logdb_replication import directory
from logdb_replication import node as nodes
from logdb_replication.controller.commands import Registered
from logdb_replication.controller.errors import DuplicateBroker


class Controllers:
    """A client whose proposals are answered in turn, the last answer again and again; each takes some seconds of the clock."""

    def __init__(self, monkeypatch, *answers):
        self.now_s, self._answers = 0.0, itertools.chain(answers, itertools.repeat(answers[-1]))
        monkeypatch.setattr(nodes.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(nodes.time, "sleep", self._pass)

    def _pass(self, seconds):
        self.now_s += seconds

    def propose(self, _command, timeout_s):
        answer = next(self._answers)
        if isinstance(answer, ControllerUnavailable):
            self._pass(timeout_s)
        if isinstance(answer, Exception):
            raise answer
        return answer


AWAY, ALIVE, LET_IN = ControllerUnavailable(2_000, "no leader is known"), DuplicateBroker(1), Registered(5, 7)


@pytest.fixture
def register(tmp_path, monkeypatch):
    """Register node 1 with controllers that answer so."""
    directory.init(str(tmp_path / "c"), 3, (8081, 8082, 8083))
    node = nodes.Node(str(tmp_path / "c" / "node-1" / "data"), str(tmp_path / "c" / "node-1" / "cluster.toml"))

    def call(*answers):
        node._client = Controllers(monkeypatch, *answers)
        return node._register(IO(), "id", unclean=False)

    return call


def test_the_former_process_is_outwaited_after_a_long_wait_for_a_quorum(register):
    """All nodes were killed: the first leader of the quorum takes those that it knows for alive until their sessions lapse."""
    assert register(*[AWAY] * 5, *[ALIVE] * 15, LET_IN) == LET_IN
    assert register(ALIVE, ALIVE, AWAY, AWAY, ALIVE, ALIVE, LET_IN) == LET_IN


def test_another_process_that_lives_is_not_outwaited(register):
    with pytest.raises(DuplicateBroker):
        register(AWAY, ALIVE)


def test_a_node_that_is_not_ready_in_time_says_what_it_waits_for(tmp_path, monkeypatch, caplog):
    """It says so after the time, after twice and after four times as long, and no more once it is let in."""
    directory.init(str(tmp_path / "c"), 3, (8081, 8082, 8083))
    node, waits = nodes.Node(str(tmp_path / "c" / "node-1" / "data"), str(tmp_path / "c" / "node-1" / "cluster.toml")), []
    clock = Controllers(monkeypatch, AWAY)

    def wait(seconds):
        clock.now_s += seconds
        waits.append(seconds)
        node._step = lambda: f"step {len(waits)}"
        return len(waits) > 3

    monkeypatch.setattr(node._unfenced, "wait", wait)
    node._say_whether_ready()
    assert waits == [nodes.READY_S, nodes.READY_S, 2 * nodes.READY_S, 4 * nodes.READY_S]
    assert [record.getMessage() for record in caplog.records] == [
        f"node 1 is not ready {seconds} s after its start: step {step}" for step, seconds in enumerate((60, 120, 240), 1)
    ]
