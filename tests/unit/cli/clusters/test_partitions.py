"""``logdb partitions elect`` over the controllers' state machine; tests/integration/cluster has real nodes."""

import contextlib
import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from logdb.cli.app import cli
from logdb_replication import directory, reassignment
from logdb_replication.config import ClusterConfig
from logdb_replication.controller import elections
from logdb_replication.controller.commands import FenceBroker
from logdb_replication.controller.messages import Watched
from support.controllers import CLUSTER, Controllers
from support.ports import free_port


@pytest.fixture
def controllers(monkeypatch, tmp_path):
    """Node 1 is fenced: ``t``, of which it alone is in sync, has no leader, and another node leads the partition of ``u`` that prefers it.

    No node answers at its HTTP door.
    """
    _, (node, *_) = directory.init(str(tmp_path), 3, [free_port() for _ in range(3)])
    config = ClusterConfig.load(f"{node.directory}/cluster.toml")
    monkeypatch.setenv("LOGDB_CLUSTER", config.path)
    monkeypatch.setattr(reassignment, "_TIMEOUT_MS", 1)
    made = Controllers(brokers=3)
    client = SimpleNamespace(
        cluster=CLUSTER,
        propose=made.apply,
        read=lambda since, _: Watched(made.state.index, made.machine.snapshot() if made.state.index > since else None),
    )
    monkeypatch.setattr(reassignment, "controllers", lambda _: contextlib.nullcontext((config, client)))
    made.create("t", factor=2)
    made.apply(made.in_sync(1))
    made.create("u", partitions=3, factor=2, config={"min.insync.replicas": 2})
    made.apply(FenceBroker(1, made.epochs[1]))
    assert made.state.partition("t", 0).leader is None
    return made


def elect(*words, code=0):
    result = CliRunner().invoke(cli, ["partitions", "elect", *words])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(("node", "reason"), [("9", "node 9 cannot be in sync with t-0: it is no replica"), ("1", "it is fenced")])
def test_what_is_refused_is_refused_before_it_is_done(controllers, node, reason):
    before = controllers.state
    for words in ((), ("--yes",)):
        assert reason in elect("--unclean", node, "--topic", "t", *words, code=2).stderr
    assert controllers.state.topics == before.topics


def test_an_unclean_election_shows_first(controllers):
    before = controllers.state
    assert "nothing was done; --yes lets node 2 lead" in elect("--unclean", "2", "--topic", "t", "--partition", "0").stderr
    assert controllers.state is before
    assert "node 2 leads" in elect("--unclean", "2", "--topic", "t", "--yes").stderr
    assert controllers.state.partition("t", 0).leader == 2


@pytest.mark.parametrize("words", [(), ("--topic", "t"), ("--topic", "t", "--partition", "0")])
def test_partitions_without_a_leader_are_named(controllers, words):
    said = elect(*words, code=1).stderr
    assert "t-0 has no leader: none of its replicas in sync runs: node 1" in said
    assert "logdb partitions elect --unclean NODE --topic TOPIC --partition N" in said
    assert json.loads(elect(*words, "--json", code=1).stdout)["without_leader"] == [{"topic": "t", "partition": 0, "in_sync": [1]}]


def test_only_what_is_named_is_elected(controllers, monkeypatch):
    monkeypatch.setattr(elections, "HAND_OVER_S", 0.01)  # no leader is there to hand over
    controllers.unfence(1)
    (away,) = [number for number, one in enumerate(controllers.state.topics["u"].partitions) if one.leader != one.preferred_leader]
    for named, leads in (((away + 1) % 3, False), (away, True)):
        elect("--topic", "u", "--partition", str(named))
        one = controllers.state.partition("u", away)
        assert (one.leader == one.preferred_leader) == leads


def test_a_wrong_call(controllers):
    assert "unknown topic 'x'" in elect("--topic", "x", code=2).stderr
    assert "topic 't' has no partition 7" in elect("--topic", "t", "--partition", "7", code=2).stderr
    assert "--partition needs --topic" in elect("--partition", "0", code=2).stderr
    assert "--unclean needs --topic" in elect("--unclean", "1", code=2).stderr
