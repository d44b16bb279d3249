"""The demo, on a few flights: it checks its own answers, and fails where they are wrong."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import free_port

DEMO = Path(__file__).parents[2] / "demo" / "flights.py"


def test_the_demo_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--count", "20000", "--data-dir", str(tmp_path / "flights")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "All three are equal." in done.stdout
    assert "bytes were given back" in done.stdout
    assert "no problem" in done.stdout
    assert "the library" in done.stdout
    assert done.stdout.index("Try next") < done.stdout.index("make demo-cluster")


@pytest.mark.slow  # three nodes start, one of them twice
def test_the_demo_of_a_cluster_loses_nothing(tmp_path: Path) -> None:
    ports = ",".join(str(free_port()) for _ in range(3))
    command = [sys.executable, str(DEMO.with_name("cluster.py")), "--path", str(tmp_path), "--ports", ports, "--kills", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "each is there once, in order" in " ".join(done.stdout.split())


def test_a_cluster_whose_port_is_taken_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = f"{free_port()},{taken.getsockname()[1]},{free_port()}"
        command = [sys.executable, str(DEMO.with_name("cluster.py")), "--serve", "--path", str(tmp_path), "--ports", ports]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("node 2 did not start: ")
    assert ports.split(",")[1] in done.stderr
    assert "in use" in done.stderr
