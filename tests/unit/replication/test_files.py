import contextlib
import os
import tracemalloc

import pytest

from logdb.errors import CorruptionError
from logdb.io import IO
from logdb_replication.raft import files, snapshots
from logdb_replication.raft.errors import VoterLost, WrongDirectory
from logdb_replication.raft.snapshot_file import SnapshotFile
from logdb_replication.raft.snapshots import Snapshot
from logdb_replication.raft.voters import Voter

VOTERS = tuple(Voter(number, 2**63 + number, f"board{number}.local", 9_092) for number in (1, 2, 3))


@pytest.fixture
def directory(tmp_path):
    path = str(tmp_path / "quorum")
    files.create(IO(), path, "c1", VOTERS[1], VOTERS)
    return path


def test_a_new_voter(directory):
    opened = files.VoterFiles(IO(), directory)
    assert (opened.cluster, opened.number, opened.incarnation) == ("c1", 2, 2**63 + 2)
    assert opened.snapshot.voters == VOTERS
    assert (opened.journal.last, opened.journal.vote.term) == (1, 0)
    opened.close()
    files.VoterFiles(IO(), directory).close()


@pytest.mark.parametrize("name", [files.JOURNAL, files.VOTE, files.SNAPSHOT])
def test_a_voter_that_has_lost_a_file_does_not_start(directory, name):
    os.unlink(os.path.join(directory, name))
    with pytest.raises(VoterLost, match=f"{name} is missing.*add it again as a new voter"):
        files.VoterFiles(IO(), directory)
    assert name not in os.listdir(directory)


def test_a_directory_is_made_once_and_opened_by_one_process(directory, tmp_path):
    with pytest.raises(WrongDirectory, match="empty"):
        files.create(IO(), directory, "c1", VOTERS[1], VOTERS)
    with pytest.raises(WrongDirectory, match=r"no voter\.json"):
        files.VoterFiles(IO(), str(tmp_path))
    opened = files.VoterFiles(IO(), directory)
    with pytest.raises(WrongDirectory, match="another process"):
        files.VoterFiles(IO(), directory)
    opened.close()


@pytest.mark.parametrize("name", [files.VOTER, files.VOTE, files.SNAPSHOT, files.JOURNAL])
def test_each_flipped_byte_of_a_new_voter_is_found(directory, name):
    path = os.path.join(directory, name)
    with open(path, "rb") as file:
        whole = file.read()
    for place in range(len(whole) - whole.endswith(b"\n")):
        with open(path, "wb") as file:
            file.write(whole[:place] + bytes((whole[place] ^ 0x20,)) + whole[place + 1 :])
        with pytest.raises(CorruptionError):
            files.VoterFiles(IO(), directory)


def test_a_snapshot_comes_back_and_what_was_open_stays(directory):
    file = SnapshotFile(IO(), os.path.join(directory, files.SNAPSHOT))
    snapshot = Snapshot(70, 3, VOTERS[:2], b"state" * 1_000)
    data = snapshots.encode(snapshot)
    file.store(data)
    assert file.load() == snapshot
    assert (file.index, file.term, file.voters, file.size_bytes) == (70, 3, VOTERS[:2], len(data))
    assert file.read(10, 20) + file.read(30, 10**6) == data[10:]


@pytest.mark.parametrize("offset", [10**6, 2**63, 2**64 - 1])
def test_nothing_is_behind_the_end_of_a_snapshot(directory, offset):
    with contextlib.closing(SnapshotFile(IO(), os.path.join(directory, files.SNAPSHOT))) as file:
        assert file.read(offset, 1 << 18) == b""


def test_a_journal_that_a_crash_has_left_behind_a_snapshot_is_begun_anew(directory):
    opened = files.VoterFiles(IO(), directory)
    opened.journal.add(b"\0x", 2, 1)
    opened.journal.sync()
    opened.snapshot.store(snapshots.encode(Snapshot(9, 4, VOTERS, b"s")))
    opened.close()
    again = files.VoterFiles(IO(), directory)
    assert again.journal[:] == [(b"\x01", 9, 4)]
    again.close()


def test_a_snapshot_that_went_back_is_damage(directory):
    opened = files.VoterFiles(IO(), directory)
    opened.journal.reset(9, 4)
    opened.close()
    with pytest.raises(CorruptionError, match="begins at index 9, the snapshot ends at 1"):
        files.VoterFiles(IO(), directory)


def test_a_snapshot_takes_memory_for_what_it_holds(directory):
    tracemalloc.start()  # counts a buffer by its size, touched or not
    try:
        with contextlib.closing(SnapshotFile(IO(), os.path.join(directory, files.SNAPSHOT))) as file:
            file.store(snapshots.encode(Snapshot(9, 4, VOTERS, b"s")))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
