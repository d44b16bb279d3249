"""Heartbeats and votes of three voters over real connections, while a snapshot fills a slow network and the sync of a disk hangs."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logdb.io import IO
from logdb_replication.raft import files
from logdb_replication.raft.errors import UnknownOutcome
from logdb_replication.raft.quorum import Quorum, QuorumOptions, Voter
from support.ports import free_port
from support.replicas import eventually

SECRET = b"s" * 32
STATE_BYTES, BYTES_PER_S, HANG_S = 4 << 20, 1 << 20, 2.5
OPTIONS = QuorumOptions(snapshot_bytes=1_000, entries_kept=0)
PIECE_BYTES = 16 << 10


class Machine:
    """A state that takes long to send."""

    def __init__(self) -> None:
        self.index, self._ballast = 0, os.urandom(STATE_BYTES)

    def apply(self, index: int, command: bytes) -> bytes:
        self.index = index
        return command

    def snapshot(self) -> bytes:
        return self.index.to_bytes(8, "big") + self._ballast

    def restore(self, index: int, state: bytes) -> None:
        self.index = int.from_bytes(state[:8], "big")


class HangingIO(IO):
    """A disk whose syncs wait while ``hangs`` is set."""

    def __init__(self) -> None:
        self.hangs, self.goes_on = threading.Event(), threading.Event()

    def fdatasync(self, fd: int) -> None:
        if self.hangs.is_set():
            self.goes_on.wait(60)
        super().fdatasync(fd)


class SlowNetwork:
    """The way to a voter: what is sent to it comes at so many bytes a second; its answers come at once."""

    def __init__(self, target: int) -> None:
        self._target, self.sent_bytes, self._sockets = target, 0, list[socket.socket]()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                try:
                    other = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    one.close()
                    continue
                self._sockets += [one, other]
                for way in ((one, other, BYTES_PER_S), (other, one, 1 << 40)):
                    threading.Thread(target=self._carry, args=way, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, bytes_per_s: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                time.sleep(len(data) / bytes_per_s)
                target.sendall(data)
                self.sent_bytes += len(data) * (bytes_per_s == BYTES_PER_S)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for sock in (self._listener, *self._sockets):
            sock.close()


class Voters:
    """Three voters in this process; the way to the third is slow."""

    def __init__(self, path: Path) -> None:
        self._path, self._ports = path, [free_port() for _ in range(3)]
        self.network = SlowNetwork(self._ports[2])
        ports = [*self._ports[:2], self.network.port]
        self._voters = [Voter(number, number, "127.0.0.1", port) for number, port in enumerate(ports, 1)]
        for voter in self._voters:
            files.create(IO(), str(path / str(voter.number)), "c", voter, self._voters)
        self.disks = [HangingIO() for _ in range(3)]
        self.running: dict[int, Quorum] = {}

    def start(self, number: int) -> None:
        machine, voter = Machine(), self._voters[number - 1]
        self.running[number] = Quorum(
            number, (voter.host, voter.port), str(self._path / str(number)), machine.apply, machine.snapshot, machine.restore,
            secret=SECRET, bind=("127.0.0.1", self._ports[number - 1]), options=OPTIONS, io=self.disks[number - 1],
        )  # fmt: skip

    def leader(self) -> int:
        eventually(lambda: any(quorum.is_leader for quorum in self.running.values()), 20)
        return next(number for number, quorum in self.running.items() if quorum.is_leader)


@pytest.fixture
def voters(tmp_path) -> Iterator[Voters]:
    made = Voters(tmp_path)
    try:
        yield made
    finally:
        for disk in made.disks:
            disk.goes_on.set()
        for quorum in made.running.values():
            quorum.close()
        made.network.close()


def sending_a_snapshot(voters: Voters) -> tuple[Quorum, int]:
    """The leader, which sends a snapshot to the third voter, and the number of the other follower."""
    voters.start(1)
    voters.start(2)
    leader = voters.leader()
    voters.running[leader].propose(bytes(1_000), 10)
    eventually(lambda: voters.running[leader].describe()["journal_start"] > 1)
    voters.start(3)
    eventually(lambda: voters.network.sent_bytes > STATE_BYTES // 8, 20)
    return voters.running[leader], 3 - leader


def test_a_leader_stays_while_a_snapshot_is_sent_and_the_disk_of_the_other_follower_hangs(voters, record_property):
    """A majority has to answer the leader: the voter whose disk hangs does not, so the one that is sent the snapshot must."""
    leader, other = sending_a_snapshot(voters)
    term, began = leader.describe()["term"], time.monotonic()
    voters.disks[other - 1].hangs.set()
    with pytest.raises(UnknownOutcome):
        leader.propose(b"b", HANG_S)
    assert voters.network.sent_bytes < STATE_BYTES
    assert leader.is_leader
    voters.disks[other - 1].goes_on.set()
    eventually(lambda: voters.running[3].describe()["snapshot"] > 1)
    took_s, times = time.monotonic() - began, voters.network.sent_bytes / STATE_BYTES
    assert leader.is_leader
    assert {quorum.describe()["term"] for quorum in voters.running.values()} == {term}
    record_property("told", f"a snapshot of {STATE_BYTES >> 20} MiB over 1 MiB/s: {took_s:.1f} s, {times:.2f} times its size")
    assert times < 1.5


def test_a_voter_that_is_sent_a_snapshot_votes(voters, record_property):
    leader, other = sending_a_snapshot(voters)
    began = time.monotonic()
    leader.close()
    eventually(lambda: voters.running[other].is_leader, 20)
    took_s = time.monotonic() - began
    record_property("told", f"another leader after {took_s:.2f} s, while a snapshot was sent over 1 MiB/s")
    assert took_s < 5
