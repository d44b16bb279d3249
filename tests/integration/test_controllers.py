"""Three controllers in processes of their own, on loopback: proposals, watches, a leader that dies, brokers that fall silent or die."""

import contextlib
import dataclasses
import os
import shutil
import signal
import threading
import time

import pytest
import trustme

from logdb.errors import ControllerUnavailable
from logdb.io import IO
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.commands import CreateTopic, DrainBroker, TakeProducerIds
from logdb_replication.controller.errors import ControllerFailed
from logdb_replication.controller.state_copy import StateCopy
from logdb_replication.raft import files
from logdb_replication.raft.errors import VotersRefused
from support.controller_cluster import Broker, Nodes
from support.controllers import CLUSTER
from support.waiting import until


@pytest.fixture
def nodes(tmp_path):
    with contextlib.closing(Nodes(tmp_path)) as made:
        made.start()
        yield made


@pytest.fixture
def patient_nodes(tmp_path):
    """A session lasts 6 s."""
    with contextlib.closing(Nodes(tmp_path, settings='profile = "sd"\n')) as made:
        made.start()
        yield made


def test_what_one_proposes_all_watch(nodes):
    copies = [StateCopy(nodes.client(n), lambda state: None) for n in nodes.numbers]
    first = Broker(nodes, 1)
    first.come()
    answer = first.client.propose(CreateTopic("t", "id", {}, 3, 1))
    for copy in copies:
        assert copy.wait_for(answer.index, 10).topics["t"] == answer.topic
    until(lambda: all(copy.state == copies[0].state for copy in copies))
    for client, copy in zip(nodes.clients, copies, strict=False):
        client.close()
        copy.close()


def test_producer_ids_are_given_once_while_the_leader_is_killed(nodes, record_property):
    blocks, gaps, over = [], [], threading.Event()

    def take() -> None:
        client, answered = nodes.client(1), time.monotonic()
        while not over.is_set():
            answer = client.propose(TakeProducerIds(10), 20)
            gaps.append(time.monotonic() - answered)
            answered = time.monotonic()
            blocks.append(answer.first)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.5)
        nodes.signal(nodes.leader())
        wanted = len(blocks) + 10
        until(lambda wanted=wanted: len(blocks) > wanted)
    over.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    record_property("told", f"controllers, leader killed 3 times: {len(blocks)} proposals, longest gap {max(gaps):.2f} s")
    assert len(set(blocks)) == len(blocks)
    assert all(first % 10 == 0 for first in blocks)


def test_a_silent_broker_is_fenced_when_its_session_lapses(patient_nodes):
    nodes = patient_nodes
    brokers = {n: Broker(nodes, n) for n in nodes.numbers}
    for broker in brokers.values():
        broker.come()
    silent = time.monotonic()
    brokers[1].client.propose(CreateTopic("t", "id", {}, 3, 3))  # waits for those that are silent, too
    copy = StateCopy(nodes.client(2), lambda state: None)
    while not (copy.state.brokers and copy.state.brokers[3].fenced):
        for n in (1, 2):
            assert not brokers[n].beat().fenced
        assert time.monotonic() < silent + 20
        time.sleep(0.1)
    assert time.monotonic() - silent > 4
    assert {partition.leader for partition in copy.state.topics["t"].partitions} == {1, 2}
    assert all(partition.in_sync == tuple(n for n in partition.replicas if n != 3) for partition in copy.state.topics["t"].partitions)
    brokers[3].come()
    copy.close()


def test_a_dead_broker_is_fenced_at_once(patient_nodes):
    nodes = patient_nodes
    brokers = {n: Broker(nodes, n) for n in nodes.numbers}
    for broker in brokers.values():
        broker.come()
    client = nodes.client(2)
    assert not brokers[1].client.suspect(brokers[1].epoch, 2)  # it lives
    brokers[2].door.close()
    assert brokers[1].client.suspect(brokers[1].epoch, 2)
    found = {broker["node"]: broker["fenced"] for broker in client.describe(nodes.leader()).brokers}
    assert found[2]
    brokers[3].beat()
    brokers[3].die()  # its connection ends: no broker has to suspect it
    leader = nodes.leader()
    until(lambda: next(b["fenced"] for b in client.describe(leader).brokers if b["node"] == 3), seconds=5)


def test_a_broker_that_drains_is_told_so(nodes):
    broker = Broker(nodes, 1)
    broker.come()
    broker.client.propose(DrainBroker(1, True))
    assert broker.beat().draining


def test_a_controller_that_dies_is_started_again_and_a_stopped_one_ends(nodes):
    first = nodes.running[1].pid
    nodes.signal(1)
    until(lambda: nodes.running[1].pid != first)
    client = nodes.client(1)

    def answers() -> bool:
        with contextlib.suppress(ControllerUnavailable):
            return client.describe(1).quorum["voter"] == 1
        return False

    until(answers)
    nodes.running[1].stop()
    with pytest.raises(ProcessLookupError):
        os.kill(nodes.running[1].pid, 0)


def test_all_are_killed_and_know_what_was_acknowledged(patient_nodes):
    nodes = patient_nodes
    broker = Broker(nodes, 1)
    broker.come()
    broker.client.propose(CreateTopic("t", "id", {}, 1, 1))
    ids = [broker.client.propose(TakeProducerIds(10), 20).first for _ in range(50)]
    for n in nodes.numbers:
        nodes.signal(n)
    client = nodes.client(2)
    assert client.propose(TakeProducerIds(10), 20).first == ids[-1] + 10
    copy = StateCopy(nodes.client(3), lambda state: None)
    until(lambda: copy.state.next_producer_id == ids[-1] + 20)
    assert copy.state.topics["t"].topic_id == "id"


def test_a_leader_that_is_stopped_is_replaced_and_follows_when_it_goes_on(nodes):
    client = nodes.client(1)
    first = client.propose(TakeProducerIds(10), 20).first
    leader = nodes.leader()
    nodes.signal(leader, signal.SIGSTOP)
    other = nodes.client(next(n for n in nodes.numbers if n != leader))
    began = time.monotonic()
    assert other.propose(TakeProducerIds(10), 20).first == first + 10
    assert time.monotonic() - began < 10
    nodes.signal(leader, signal.SIGCONT)
    copy = StateCopy(nodes.client(leader), lambda state: None)
    until(lambda: copy.state.next_producer_id == first + 20)


def test_a_voter_that_lost_its_journal_is_removed_and_added_as_a_new_one(patient_nodes):
    nodes = patient_nodes
    client, number = nodes.client(1), nodes.leader() % 3 + 1
    nodes.running.pop(number).stop()
    directory, old = nodes.path / f"quorum-{number}", nodes.voters[number - 1]
    (directory / files.JOURNAL).unlink()
    with pytest.raises(ControllerFailed, match="is missing"):
        nodes.start(number)
    with pytest.raises(VotersRefused, match="is one of them"):
        client.change_voters(old, add=True)
    client.change_voters(old, add=False)
    shutil.rmtree(directory)
    new = old._replace(incarnation=old.incarnation + 1)
    files.create(IO(), str(directory), CLUSTER, new, ())
    nodes.start(number)
    client.propose(TakeProducerIds(10), 20)
    client.change_voters(new, add=True)
    until(lambda: client.describe(number).quorum["state"] == "follower")
    copy = StateCopy(nodes.client(number), lambda state: None)
    until(lambda: copy.state.next_producer_id == 10)


def test_an_older_copy_of_a_controllers_directory_is_refused(nodes):
    client, number = nodes.client(1), nodes.leader() % 3 + 1
    directory, copy = nodes.path / f"quorum-{number}", nodes.path / "copy"
    nodes.running[number].stop()
    shutil.copytree(directory, copy)
    nodes.start(number)
    copied = StateCopy(nodes.client(number), lambda state: None)
    first = client.propose(TakeProducerIds(10), 20).first
    until(lambda: copied.state.next_producer_id == first + 10)
    copied.close()
    nodes.running[number].stop()
    shutil.rmtree(directory)
    copy.rename(directory)
    nodes.start(number)
    until(lambda: client.describe(number).quorum["state"] == "stopped")
    assert "has had a start 2 that is not this directory's" in client.describe(number).quorum["failure"]
    assert client.propose(TakeProducerIds(10), 20).first == first + 10
    nodes.running.pop(number).stop()
    with pytest.raises(ControllerFailed, match=r"is an older copy of the voter's.*logdb cluster join"):
        nodes.start(number)


def test_over_tls(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "node.pem"))
    with contextlib.closing(Nodes(tmp_path, settings='tls_cert = "node.pem"\ntls_ca = "ca.pem"\n')) as nodes:
        nodes.start()
        assert nodes.client(1).propose(TakeProducerIds(10), 20).first == 0
        plain = ControllerClient(dataclasses.replace(nodes.configs[1], tls_cert=None), 1)
        with pytest.raises(ControllerUnavailable):
            plain.describe()
        plain.close()
