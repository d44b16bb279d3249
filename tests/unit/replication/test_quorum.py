"""A quorum of one voter on a real disk: what the controller calls.  Three voters: tests/integration/test_quorum.py."""

import socket
import threading
import time

import pytest

from logdb.io import IO
from logdb_replication.raft import files
from logdb_replication.raft.errors import CommandFailed, NotQuorumLeader, QuorumStopped, UnknownOutcome, WrongDirectory
from logdb_replication.raft.quorum import Quorum, Voter
from support.faulty_io import FaultyIO

SECRET = b"s" * 32


class Machine:
    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()

    def apply(self, index: int, command: bytes) -> bytes:
        self.gate.wait()
        if command == b"raise":
            raise ValueError("asked to")
        self.commands.append(command)
        return b"%d" % len(self.commands)

    def snapshot(self) -> bytes:
        return b"\n".join(self.commands)

    def restore(self, index: int, state: bytes) -> None:
        self.commands = state.split(b"\n")


def opened(path, machine: Machine, *, number: int = 1, count: int = 1, port: int = 0, io: IO | None = None) -> Quorum:
    if not path.exists():
        voters = [Voter(place, place, "127.0.0.1", 1) for place in range(1, count + 1)]
        files.create(IO(), str(path), "c", voters[0], voters)
    return Quorum(number, ("127.0.0.1", port), str(path), machine.apply, machine.snapshot, machine.restore, secret=SECRET, io=io)


def led(quorum: Quorum) -> Quorum:
    end = time.monotonic() + 10
    while not quorum.is_leader:
        assert time.monotonic() < end, "it does not lead"
        time.sleep(0.01)
    return quorum


def test_commands_and_barriers_survive_a_close(tmp_path):
    machine = Machine()
    with opened(tmp_path / "q", machine) as quorum:
        led(quorum)
        assert [quorum.propose(b"%d" % place, 5) for place in range(3)] == [b"1", b"2", b"3"]
        assert quorum.barrier(5) == quorum.describe()["applied"]
        assert quorum.leader == 1
        with pytest.raises(CommandFailed, match="asked to"):
            quorum.propose(b"raise", 5)
    with pytest.raises(QuorumStopped, match="closed"):
        quorum.propose(b"x", 1)
    machine = Machine()
    with opened(tmp_path / "q", machine) as quorum:
        led(quorum).barrier(5)
        assert machine.commands == [b"0", b"1", b"2"]


def test_a_voter_alone_of_three_answers_within_the_time(tmp_path):
    with opened(tmp_path / "q", Machine(), count=3) as quorum:
        for ask in (lambda: quorum.propose(b"a", 1), lambda: quorum.barrier(1)):
            with pytest.raises(NotQuorumLeader):
                ask()
        assert quorum.leader is None


def test_a_command_that_is_not_settled_in_time_has_an_unknown_outcome(tmp_path):
    machine = Machine()
    with opened(tmp_path / "q", machine) as quorum:
        led(quorum).propose(b"a", 5)
        machine.gate.clear()
        with pytest.raises(UnknownOutcome):
            quorum.propose(b"b", 0.3)
        machine.gate.set()
        quorum.barrier(5)
        assert machine.commands == [b"a", b"b"]


def test_a_voter_whose_thread_hangs_does_not_say_that_it_leads(tmp_path):
    """The others have elected another one; who asked this one for the leader would wait for it as long as it hangs."""
    machine = Machine()
    with opened(tmp_path / "q", machine) as quorum:
        led(quorum).propose(b"a", 5)
        machine.gate.clear()
        with pytest.raises(UnknownOutcome):
            quorum.propose(b"b", 1.5)
        assert not quorum.is_leader
        assert quorum.leader is None
        machine.gate.set()
        led(quorum).barrier(5)
        assert quorum.leader == 1


def test_a_disk_that_fails_stops_the_voter(tmp_path):
    io = FaultyIO()
    quorum = opened(tmp_path / "q", Machine(), io=io)
    led(quorum).propose(b"a", 5)
    io.fail("fdatasync")
    with pytest.raises(UnknownOutcome):
        quorum.propose(b"b", 5)
    assert quorum.describe()["state"] == "stopped"
    assert "q/journal" in quorum.describe()["failure"]
    with pytest.raises(QuorumStopped):
        quorum.barrier(1)
    assert not quorum.may_restart  # a sync that has failed is final
    quorum.close()


def test_a_full_disk_stops_the_voter_until_it_is_opened_again(tmp_path):
    io, machine = FaultyIO(), Machine()
    quorum = opened(tmp_path / "q", machine, io=io)
    led(quorum).propose(b"a", 5)
    io.fill_up()
    with pytest.raises(UnknownOutcome):
        quorum.propose(b"b", 5)
    assert quorum.may_restart
    quorum.close()
    with opened(tmp_path / "q", machine) as quorum:
        led(quorum).propose(b"c", 5)
    assert machine.commands[0] == b"a"
    assert machine.commands[-1] == b"c"


def test_another_voters_directory_and_a_port_that_is_taken_leave_nothing_behind(tmp_path):
    with pytest.raises(WrongDirectory, match="belongs to voter 1: must belong to voter 2"):
        opened(tmp_path / "q", Machine(), number=2)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        opened(tmp_path / "q", Machine(), port=taken.getsockname()[1])
    opened(tmp_path / "q", Machine()).close()
