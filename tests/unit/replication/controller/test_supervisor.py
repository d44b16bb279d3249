"""The controller's process: what it refuses to start for, and that it never outlives its broker."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from logdb_replication.controller.errors import ControllerFailed
from logdb_replication.controller.supervisor import ControllerProcess
from logdb_replication.raft import files
from support.controller_cluster import Nodes
from support.controllers import CLUSTER
from support.waiting import until

BROKER = """
import sys
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.supervisor import ControllerProcess
process = ControllerProcess(ClusterConfig.load(sys.argv[1]), sys.argv[2])
process.start()
print(process.pid, flush=True)
sys.stdin.read()
"""


def lost(path: Path) -> None:
    (path / "quorum-1" / files.JOURNAL).unlink()


def damaged(path: Path) -> None:
    (path / "quorum-1" / files.VOTE).write_bytes(b"{}")


def nobodys(path: Path) -> None:
    (path / "quorum-1" / files.VOTER).unlink()


def another_node(path: Path) -> None:
    text = (path / "1.toml").read_text()
    (path / "1.toml").write_text(text.replace("node = 1", "node = 7").replace("number = 1", "number = 7"))


def another_cluster(path: Path) -> None:
    (path / "1.toml").write_text((path / "1.toml").read_text().replace(CLUSTER, CLUSTER.replace("6", "7")))


def no_config(path: Path) -> None:
    (path / "1.toml").unlink()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lost, "journal is missing"),
        (damaged, "vote is corrupt"),
        (nobodys, "no voter.json"),
        (another_node, "belongs to voter 1: must belong to voter 7"),
        (another_cluster, "to cluster 6.*: must belong to cluster 7"),
        (no_config, "the file is missing"),
    ],
)
def test_what_it_does_not_start_for(tmp_path, harm, reason):
    nodes = Nodes(tmp_path, 1)
    harm(tmp_path)
    with pytest.raises(ControllerFailed, match=reason):
        nodes.start()
    assert nodes.running[1].pid is not None
    nodes.close()


def test_an_address_that_is_taken_and_a_second_process(tmp_path):
    nodes = Nodes(tmp_path, 1)
    with socket.create_server(nodes.configs[1].own.controller), pytest.raises(ControllerFailed, match="in use"):
        nodes.start()
    nodes.start()
    with pytest.raises(ControllerFailed, match="another process runs this voter"):
        ControllerProcess(nodes.configs[1], str(tmp_path / "quorum-1")).start()
    assert nodes.leader() == 1
    nodes.close()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no death signal: the pipe ends the process there")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_broker(tmp_path, number):
    nodes = Nodes(tmp_path, 1)
    broker = subprocess.Popen(
        [sys.executable, "-c", BROKER, str(tmp_path / "1.toml"), str(tmp_path / "quorum-1")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        broker.send_signal(number)
        broker.wait(10)
    until(lambda: not running(pid), "the controller lives on")
    nodes.start()
    nodes.close()


def running(pid: int) -> bool:
    """Whether a process is there that is no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_that_ignores_the_end_of_its_pipe_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("logdb_replication.controller.supervisor.STOP_TIMEOUT_S", 0.2)
    nodes = Nodes(tmp_path, 1)
    nodes.start()
    pid = nodes.running[1].pid
    os.kill(pid, signal.SIGSTOP)
    nodes.running[1].stop()
    assert not running(pid)
    nodes.close()
