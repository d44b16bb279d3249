"""Nodes of a cluster on loopback: their directories, and a controller's process for each; brokers are clients of the test."""

import contextlib
import os
import random
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from logdb.errors import ControllerUnavailable
from logdb.io import IO
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.commands import RegisterBroker, Registered
from logdb_replication.controller.supervisor import ControllerProcess
from logdb_replication.raft import files
from logdb_replication.raft.voters import Voter
from support.controllers import CLUSTER
from support.ports import free_port
from support.waiting import until

WAIT_S = 30


class Nodes:
    """Controllers by the numbers of their nodes."""

    def __init__(self, path: Path, count: int = 3, *, secret: str = "s" * 32, settings: str = "") -> None:
        """``settings``: more lines for each ``cluster.toml``."""
        ports = [free_port() for _ in range(2 * count)]
        self.path, self.numbers = path, list(range(1, count + 1))
        addresses = {n: (ports[2 * n - 2], ports[2 * n - 1]) for n in self.numbers}
        self.voters = voters = [Voter(n, random.getrandbits(62), "127.0.0.1", addresses[n][0]) for n in self.numbers]
        scheme = "https" if "tls_cert" in settings else "http"
        tables = "".join(
            f'[[nodes]]\nnumber = {n}\nquorum = "127.0.0.1:{quorum}"\ncontroller = "127.0.0.1:{own}"\nhttp = "{scheme}://127.0.0.1:{n}"\n'
            for n, (quorum, own) in addresses.items()
        )
        self.configs: dict[int, ClusterConfig] = {}
        for n in self.numbers:
            files.create(IO(), str(path / f"quorum-{n}"), CLUSTER, voters[n - 1], voters)
            (path / f"{n}.secret").write_text(secret)
            (path / f"{n}.secret").chmod(0o600)
            (path / f"{n}.toml").write_text(f'cluster = "{CLUSTER}"\nnode = {n}\nsecret_file = "{n}.secret"\n{settings}{tables}')
            self.configs[n] = ClusterConfig.load(str(path / f"{n}.toml"))
        self.running: dict[int, ControllerProcess] = {}
        self.clients: list[ControllerClient] = []
        self.doors: list[socket.socket] = []

    def start(self, *numbers: int) -> None:
        for n in numbers or self.numbers:
            self.running[n] = ControllerProcess(self.configs[n], str(self.path / f"quorum-{n}"))
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda n: self.running[n].start(), numbers or self.numbers))

    def client(self, n: int = 1) -> ControllerClient:
        self.clients.append(made := ControllerClient(self.configs[n], n))
        return made

    def leader(self) -> int:
        """The node whose controller leads."""
        client, found = self.client(), list[int]()

        def look() -> bool:
            for n in self.running:
                with contextlib.suppress(ControllerUnavailable):
                    if client.describe(n).quorum["state"] == "leader":
                        found.append(n)
            return bool(found)

        until(look, "no leader")
        client.close()
        return found[0]

    def signal(self, n: int, number: int = signal.SIGKILL) -> None:
        pid = self.running[n].pid
        assert pid is not None
        os.kill(pid, number)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for door in self.doors:
            door.close()
        for process in self.running.values():
            process.stop()


class Broker:
    """A broker as the controllers see it: registered, with a port that it listens at, and heartbeats when the test says."""

    def __init__(self, nodes: Nodes, n: int, incarnation: str = "a") -> None:
        self.number, self.client = n, nodes.client(n)
        self.door = socket.create_server(("127.0.0.1", 0))
        nodes.doors.append(self.door)
        address = ("127.0.0.1", self.door.getsockname()[1])
        answer = self.client.propose(RegisterBroker(n, incarnation, {"http": address}), WAIT_S)
        assert isinstance(answer, Registered)
        self.epoch, self.index = answer.broker_epoch, answer.index

    def beat(self):
        return self.client.heartbeat(self.epoch, self.index, IO().clock_ms(), 5)

    def come(self) -> None:
        """Until it is no longer fenced."""
        until(lambda: not self._beat_with_the_latest().fenced)

    def _beat_with_the_latest(self):
        self.index = max(self.index, self.client.watch(self.index, 0).index)
        return self.beat()

    def die(self) -> None:
        self.door.close()
        self.client.close()
