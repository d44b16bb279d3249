import os
import time
from unittest.mock import Mock

import pytest

import logdb
from logdb.errors import DirectoryLocked, ReadOnly, TargetNotEmpty, WriteFailed
from logdb.io import IO
from logdb.requests.topic_changes import CreateTopic
from logdb.store.store import Store
from logdb_replication.config import ClusterConfig
from logdb_replication.controller import commands
from logdb_replication.controller.commands import ChangeSecurity, Promote, RegisterBroker
from logdb_replication.controller.machine import Machine
from logdb_replication.directory import check, init, leave
from logdb_replication.errors import InvalidCluster
from logdb_replication.promotion import prepare
from logdb_replication.raft.errors import WrongDirectory
from logdb_replication.raft.files import VoterFiles
from logdb_replication.raft.quorum import Quorum
from support.security import secure

PORTS = [8081, 8082, 8083]


def configs(path) -> list[ClusterConfig]:
    return [ClusterConfig.load(str(path / f"node-{number}" / "cluster.toml")) for number in (1, 2, 3)]


def test_three_directories_that_belong_together(tmp_path):
    cluster, nodes = init(str(tmp_path / "c"), 3, PORTS, [9091, 9092, 9093])
    assert [os.path.basename(node.directory) for node in nodes] == ["node-1", "node-2", "node-3"]
    assert sorted(os.listdir(tmp_path / "c" / "node-1")) == ["cluster.secret", "cluster.toml", "data"]
    one, two, three = configs(tmp_path / "c")
    assert {config.cluster for config in (one, two, three)} == {cluster}
    assert one.nodes == two.nodes == three.nodes
    assert one.secret == two.secret == three.secret
    assert [config.node for config in (one, two, three)] == [1, 2, 3]
    assert [node.http for node in one.nodes] == [f"http://127.0.0.1:{port}" for port in PORTS]
    assert two.kafka == ("127.0.0.1", 9092)
    for config in (one, two, three):
        data = os.path.join(os.path.dirname(config.path), "data")
        check(IO(), data, config)
        files = VoterFiles(IO(), os.path.join(data, "quorum"))
        assert (files.cluster, files.number) == (cluster, config.node)
        assert [(voter.number, (voter.host, voter.port)) for voter in files.snapshot.voters] == [
            (node.number, node.quorum) for node in config.nodes
        ]
        files.close()


def test_only_the_owner_may_read_them(tmp_path):
    init(str(tmp_path), 1, [8081])
    assert (tmp_path / "node-1").stat().st_mode & 0o077 == 0
    assert (tmp_path / "node-1" / "cluster.secret").stat().st_mode & 0o077 == 0


def test_on_several_hosts(tmp_path):
    init(str(tmp_path), 3, [8080] * 3, hosts=["board1", "board2", "fe80::1"])
    assert [node.http for node in configs(tmp_path)[0].nodes] == ["http://board1:8080", "http://board2:8080", "http://[fe80::1]:8080"]


def test_what_is_there_is_refused_and_left_alone(tmp_path):
    init(str(tmp_path), 3, PORTS)
    before = {name: (tmp_path / name / "cluster.toml").read_bytes() for name in os.listdir(tmp_path)}
    with pytest.raises(TargetNotEmpty, match="node-1"):
        init(str(tmp_path), 3, PORTS)
    assert {name: (tmp_path / name / "cluster.toml").read_bytes() for name in os.listdir(tmp_path)} == before


def test_one_that_is_there_keeps_the_others_from_being_made(tmp_path):
    (tmp_path / "node-3").mkdir()
    (tmp_path / "node-3" / "mine").touch()
    with pytest.raises(TargetNotEmpty, match="node-3"):
        init(str(tmp_path), 3, PORTS)
    assert os.listdir(tmp_path) == ["node-3"]


@pytest.mark.parametrize(("count", "given", "words"), [
    (2, {"http_ports": [1, 2]}, "nodes 2: must be 1, 3 or 5"),
    (3, {"http_ports": [1, 2]}, "http-ports 1,2: must be 3 ports, one for each node"),
    (3, {"http_ports": PORTS, "kafka_ports": [1]}, "kafka-ports 1:"),
    (3, {"http_ports": PORTS, "hosts": ["a"]}, "hosts a:"),
    (3, {"http_ports": [8081, 8081, 8082]}, "127.0.0.1:8081: must be the address of one listener only"),
    (3, {"http_ports": PORTS, "kafka_ports": [9091, 9092, 8081]}, "127.0.0.1:8081: must be the address of one listener only"),
    (1, {"http_ports": [65536]}, "65536"),
    (1, {"http_ports": [8081], "hosts": ["a b"]}, "a b:8081"),
])  # fmt: skip
def test_numbers_that_do_not_fit_together(tmp_path, count, given, words):
    with pytest.raises(InvalidCluster, match=words):
        init(str(tmp_path / "c"), count, **given)
    assert not os.path.exists(tmp_path / "c")


def test_a_directory_that_is_not_the_config_s(tmp_path):
    init(str(tmp_path / "a"), 3, PORTS)
    init(str(tmp_path / "b"), 3, PORTS)
    one, two, _ = configs(tmp_path / "a")
    with pytest.raises(WrongDirectory, match=r"it is node 1's, .* is node 2's"):
        check(IO(), str(tmp_path / "a" / "node-1" / "data"), two)
    with pytest.raises(WrongDirectory, match=f"it is of cluster .* of cluster {one.cluster}"):
        check(IO(), str(tmp_path / "b" / "node-1" / "data"), one)
    with pytest.raises(WrongDirectory, match="logdb cluster init"):
        check(IO(), str(tmp_path), one)
    with pytest.raises(WrongDirectory, match=f"has lost its disk: logdb cluster join {tmp_path} --cluster {one.path}"):
        check(IO(), str(tmp_path), one)


# ---------------------------------------------------------------- leaving


def quorum_of(path, machine: Machine) -> Quorum:
    """The quorum of a cluster of one node, once it leads."""
    config = ClusterConfig.load(str(path / "node-1" / "cluster.toml"))
    data = str(path / "node-1" / "data" / "quorum")
    quorum = Quorum(1, ("127.0.0.1", 0), data, machine.apply, machine.snapshot, machine.restore, secret=config.secret)
    while not quorum.is_leader:
        time.sleep(0.01)
    return quorum


def test_a_directory_that_leaves_keeps_records_and_users(tmp_path):
    cluster, _ = init(str(tmp_path), 1, [8081])
    data = str(tmp_path / "node-1" / "data")
    with logdb.open(tmp_path / "users") as db:
        secure(db.path, users={"alice": "secret"})
        document = db._session.metadata.security.read()
    with quorum_of(tmp_path, Machine(cluster)) as quorum:
        quorum.propose(commands.encode(ChangeSecurity(0, document)), 5)
        with pytest.raises(WrongDirectory, match="another process runs this voter"):
            leave(data, execute=True)
    store = Store.open(data, replicated=True)
    store.submit(CreateTopic("t", config={"durability": "fsync"}))
    store.open_log("t").begin_epoch(3)
    store.open_log("t").append(b"x")
    with pytest.raises(DirectoryLocked):
        leave(data, execute=True)
    store.close()
    assert leave(data, execute=False) == leave(data, execute=True) == (cluster, 1, False)
    with logdb.open(data) as db:
        assert [record.value for record in db.log("t").read(0)] == [b"x"]
        db.log("t").append(b"y")
        assert db._session.metadata.security.read() == document
    assert logdb.verify(data).ok
    with pytest.raises(WrongDirectory, match="no node of a cluster"):
        leave(data, execute=True)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_promoted_directory_that_leaves_gets_the_users_of_a_cluster_that_has_taken_its_own(tmp_path, is_taken):
    cluster, _ = init(str(tmp_path), 1, [8081])
    data = str(tmp_path / "data")
    logdb.open(data).close()
    secure(data, users={"mine": "secret"})
    with logdb.open(data, mode="r") as db:
        own, database_id = db._session.metadata.security.read(), db._session.metadata.database_id
    with logdb.open(tmp_path / "theirs") as db:
        secure(db.path, users={"theirs": "secret"})
        theirs = db._session.metadata.security.read()
    promotes = [RegisterBroker(1, "i", {}), Promote(1, 1, database_id, (), (1,), 1, 1, own)] if is_taken else []
    with quorum_of(tmp_path, Machine(cluster)) as quorum:
        for command in (*promotes, ChangeSecurity(int(is_taken), theirs)):
            quorum.propose(commands.encode(command), 5)
    prepare(data, str(tmp_path / "node-1" / "cluster.toml"), execute=True)
    leave(data, execute=True)
    with logdb.open(data) as db:
        assert db._session.metadata.security.read() == (theirs if is_taken else own)


def test_leaving_that_was_cut_off_is_finished_by_the_next_call(tmp_path, monkeypatch):
    init(str(tmp_path), 1, [8081])
    data = str(tmp_path / "node-1" / "data")
    monkeypatch.setattr("logdb_replication.directory.remove", raising := Mock(side_effect=WriteFailed(data, "cut off")))
    with pytest.raises(WriteFailed):
        leave(data, execute=True)
    monkeypatch.undo()
    assert raising.called
    with pytest.raises(ReadOnly):
        logdb.open(data)
    leave(data, execute=True)
    logdb.open(data).close()
    assert "quorum-delete" not in os.listdir(data)
