"""The starts of voters; what older copies do under faults is in tests/property/test_quorum_simulation.py."""

import pytest

from logdb.errors import CorruptionError
from logdb.io import IO
from logdb_replication.raft import files
from logdb_replication.raft.errors import VoterRolledBack
from logdb_replication.raft.starts import IDS_MAX, Known, Others, Start, VoterProgress
from logdb_replication.raft.starts_file import StartsFile
from logdb_replication.raft.voters import Peer
from support.quorum_simulation import DIRECTORY, Simulation, Slot

AT = VoterProgress(5, True, 40)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / files.STARTS)


# ---------------------------------------------------------------- the file


def test_a_directory_without_the_file_has_never_started(path):
    starts = StartsFile(IO(), path)
    assert starts.own == Start(0, ())
    assert starts.others == {}
    starts.begin(7)
    starts.begin(8)
    assert StartsFile(IO(), path).own == Start(2, (8, 7))


def test_so_many_ids_are_kept(path):
    starts = StartsFile(IO(), path)
    for number in range(1, IDS_MAX + 10):
        starts.begin(number)
    assert StartsFile(IO(), path).own == Start(IDS_MAX + 9, tuple(range(IDS_MAX + 9, 9, -1)))


def test_what_is_remembered_of_others_is_in_the_file(path):
    starts, others = StartsFile(IO(), path), Others({})
    assert others.remember((2, 22), Start(3, (9, 8)), AT)
    starts.store(others.all())
    assert StartsFile(IO(), path).others == {2: Known(22, 3, 9, AT)}


def test_progress_of_others_moves_forward_only():
    others = Others({2: Known(22, 3, 9, AT)})
    assert others.note((2, 22), VoterProgress(5, False, 41))
    assert not others.note((2, 22), VoterProgress(4, True, 90))
    assert not others.note((2, 23), VoterProgress(9, True, 90))  # another incarnation, whose start is not known
    assert not others.remember((2, 22), Start(3, (9,)), AT)  # as it was told before
    assert others.known((2, 22)) == Known(22, 3, 9, VoterProgress(5, True, 41))
    assert others.remember((2, 23), Start(1, (1,)), VoterProgress())
    assert others.known((2, 22)) is None


def test_a_refused_directory_does_not_start_again(path):
    StartsFile(IO(), path).store({}, "voter 1 says: no")
    with pytest.raises(VoterRolledBack, match=r"older copy of the voter's: voter 1 says: no.*logdb cluster join"):
        StartsFile(IO(), path).begin(1)


@pytest.mark.parametrize("letter", ["x", "\0", "\ufffd"])
def test_a_long_reason_of_another_voter_is_cut(path, letter):
    StartsFile(IO(), path).store({}, letter * (4 << 20))
    with pytest.raises(VoterRolledBack, match=letter):
        StartsFile(IO(), path).check()


def test_each_flipped_byte_is_found(path):
    starts = StartsFile(IO(), path)
    starts.begin(7)
    starts.store({2: Known(22, 3, 9, AT)})
    with open(path, "rb") as file:
        whole = file.read()
    for place in range(len(whole) - 1):
        with open(path, "wb") as file:
            file.write(whole[:place] + bytes((whole[place] ^ 0x20,)) + whole[place + 1 :])
        with pytest.raises(CorruptionError):
            StartsFile(IO(), path)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("number", "ids", "progress", "reason"),
    [
        (9, (1, 2), AT, ""),  # the start that is known, told again
        (9, (1, 2), VoterProgress(), ""),  # a message that comes late
        (10, (3, 1), AT, ""),
        (12, (5, 4, 3, 1), VoterProgress(6), ""),  # starts that were not heard of
        (9 + IDS_MAX, tuple(range(50, 50 + IDS_MAX)), AT, ""),  # too long ago to tell
        (8, (2,), AT, "has had a start 9"),
        (9, (3, 2), AT, "has had a start 9"),
        (11, (5, 4, 3), VoterProgress(9, True, 90), "has had a start 9"),  # started until it had as many
        (10, (3, 1), VoterProgress(4, True, 90), "was at term 5, voted, index 40, and this directory is at term 4, voted, index 90"),
        (10, (3, 1), VoterProgress(5, False, 40), "is at term 5 index 40"),
        (10, (3, 1), VoterProgress(5, True, 39), "is at term 5, voted, index 39"),
    ],
)
def test_what_is_an_older_copy(number, ids, progress, reason):
    found = Known(22, 9, 1, AT).refuses(Start(number, ids), progress)
    assert (reason in found) if reason else (found == "")


# ---------------------------------------------------------------- stories


@pytest.fixture
def simulation():
    made = Simulation(1)
    with made.running():
        yield made


def led(simulation: Simulation) -> Slot:
    assert simulation.run(5, lambda: (leader := simulation.leader()) is not None and leader.node.core.commit >= leader.node.core.noop)
    simulation.run(0.1)
    return simulation.leader()


def restarted(slot: Slot, files_: dict[str, bytes] | None = None) -> None:
    """Its machine loses its power, and comes back; with ``files_`` in the directory."""
    if slot.node is not None:
        slot.end(cut=True)
    if files_ is not None:
        slot.io.restore(files_)
        slot.taken_back = True
    slot.start()


def test_all_restart_at_once_and_need_no_leader(simulation):
    led(simulation)
    for slot in simulation.slots:
        slot.end(cut=True)
    for slot in simulation.slots:
        slot.start()
    assert simulation.run(0.1, lambda: all(slot.node.core.takes_part for slot in simulation.slots))
    led(simulation)


def test_one_that_is_away_is_waited_for_a_while_and_one_alone_does_not_take_part(simulation):
    led(simulation)
    one, two, three = simulation.slots
    for slot in simulation.slots:
        slot.end(cut=True)
    one.start()
    assert not simulation.run(3, lambda: one.node.core.takes_part)
    assert one.node.core.term == one.node._files.journal.vote.term == 1  # it asks for no votes
    two.start()
    assert not simulation.run(0.5, lambda: two.node.core.takes_part)
    assert simulation.run(0.5, lambda: two.node.core.takes_part)
    assert three.node is None
    led(simulation)


def test_a_start_that_dies_before_it_is_told_does_no_harm(simulation):
    led(simulation)
    one = simulation.slots[0]
    one.end(cut=True)
    for _ in range(3):
        files.VoterFiles(one.io, DIRECTORY).starts.begin(1)
        one.io.cut(simulation.rng)
    restarted(one)
    assert one.node.core.start.number == 5
    assert simulation.run(1, lambda: one.node.core.takes_part)


@pytest.mark.parametrize("starts", [0, 1, 5])
def test_an_older_copy_is_refused_however_often_it_was_started(simulation, starts):
    led(simulation)
    one = simulation.slots[0]
    copy = one.io.copied()
    restarted(one)
    simulation.run(1)
    one.end(cut=True)
    one.io.restore(copy)
    for number in range(starts):  # the other voters hear of none of these
        one.io.new_process()
        files.VoterFiles(one.io, DIRECTORY).starts.begin(number)
    restarted(one, one.io.copied())
    assert simulation.run(1, lambda: simulation.counts["refused copies"])
    assert any("has had a start 2 that is not this directory's" in line for line in simulation.story)


def test_a_copy_of_the_last_start_is_refused_by_those_who_were_killed_since(simulation):
    leader = led(simulation)
    one = next(slot for slot in simulation.slots if slot is not leader)
    copy = one.io.copied()
    simulation.propose(leader, b"later")
    simulation.run(0.5)
    one.end(cut=False)
    simulation.run(0.1)  # the others see its connections end
    for other in simulation.slots:
        if other is not one:
            restarted(other)
    restarted(one, copy)
    assert simulation.run(1, lambda: simulation.counts["refused copies"])
    assert any("was at term 1, voted, index 3, and this directory is at term 1, voted, index 2" in line for line in simulation.story)


def test_a_message_of_a_start_that_is_not_known_is_dropped_and_asked_about(simulation):
    leader = led(simulation)
    one = next(slot for slot in simulation.slots if slot is not leader)
    del leader.node.core.starts_of[Peer(one.voter)]
    matched = leader.node.core.match[Peer(one.voter)]
    simulation.propose(leader, b"a")
    leader.node.core.match[Peer(one.voter)] = 0
    assert simulation.run(1, lambda: leader.node.core.match[Peer(one.voter)] > matched)
    assert leader.node.core.starts_of[Peer(one.voter)] == one.node.core.start.ids[0]
