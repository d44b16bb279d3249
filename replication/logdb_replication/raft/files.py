"""The directory of a voter: which voter it is of, and that nothing of it is missing.

    voter.json   the cluster and the voter: made last by ``create``, so what it promises is there; locked while the voter runs
    journal · vote · snapshot
    starts       made by the first start (``starts_file``): another voter refuses an older copy of the directory

A directory with ``voter.json`` and without one of the next three has lost it.  The voter could have promised what it no longer knows, so it
does not start; it is removed from the quorum and added again, from an empty directory, under a new incarnation.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from logdb.disk import File, changing, exists, names_in, read_file, replace_file, sync_directory
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.store import json_line
from logdb.store.directories import close_to_others, make_private
from logdb_replication.raft import journal, snapshots, vote
from logdb_replication.raft.errors import VoterLost, WrongDirectory
from logdb_replication.raft.messages import NO_OP
from logdb_replication.raft.snapshot_file import SnapshotFile
from logdb_replication.raft.starts_file import StartsFile
from logdb_replication.raft.voters import Voter

VOTER, JOURNAL, VOTE, SNAPSHOT, STARTS = "voter.json", "journal", "vote", "snapshot", "starts"
_FORMAT = 1
_SIZE_BYTES_MAX = 4096


def create(io: IO, directory: str, cluster: str, voter: Voter, voters: Iterable[Voter]) -> None:
    """Make an empty directory a voter's.

    Args:
        cluster: The id of the cluster: voters of another one are refused.
        voter: Its incarnation must be new.
        voters: Those that begin the quorum, each with the same list; none for a voter that will be added to one that runs.

    Raises:
        WrongDirectory: The directory has files.
    """
    try:
        if names_in(io, directory):
            raise WrongDirectory(directory, "a new voter needs an empty directory")
    except FileNotFoundError:
        with changing(directory):
            io.mkdir(directory)
    make_private(io, directory)  # the journal and the snapshot hold the keys of users
    first = snapshots.Snapshot(1, 0, tuple(sorted(voters)), b"")
    replace_file(io, os.path.join(directory, SNAPSHOT), snapshots.encode(first))
    replace_file(io, os.path.join(directory, JOURNAL), journal.encode([(NO_OP, 1, 0)]))
    replace_file(io, os.path.join(directory, VOTE), vote.encode(0, None, 1))
    fields = {"cluster": cluster, "number": voter.number, "incarnation": voter.incarnation}
    replace_file(io, os.path.join(directory, VOTER), json_line.encode(fields, _FORMAT))
    sync_directory(io, os.path.dirname(os.path.abspath(directory)))


def _voter(fields: Mapping[str, Any]) -> tuple[str, int, int]:
    return str(fields["cluster"]), int(fields["number"]), int(fields["incarnation"])


class VoterFiles:
    """The files of a voter that runs; locked against another process."""

    def __init__(self, io: IO, directory: str) -> None:
        """Open and check all of them.

        Raises:
            WrongDirectory: ``create`` has not made this directory a voter's, or was interrupted; or the voter runs already.
            VoterLost: A file is missing.
            CorruptionError: A file is damaged, or two contradict each other.
        """
        self.io, self.directory = io, directory
        path = os.path.join(directory, VOTER)
        try:
            self._lock = File(io, path, os.O_RDWR)
        except FileNotFoundError:
            raise WrongDirectory(directory, "no voter's directory: it has no voter.json") from None
        if not self._lock.lock():
            raise WrongDirectory(directory, "another process runs this voter")
        data = read_file(io, path, _SIZE_BYTES_MAX)
        self.cluster, self.number, self.incarnation = json_line.decode(data, path, _FORMAT, "a voter", _voter)
        for name in (SNAPSHOT, VOTE, JOURNAL):
            if not exists(io, os.path.join(directory, name)):
                raise VoterLost(os.path.join(directory, name))
        close_to_others(io, directory)  # an earlier version made it
        self.starts = StartsFile(io, os.path.join(directory, STARTS))
        self.snapshot = SnapshotFile(io, os.path.join(directory, SNAPSHOT))
        self.journal = journal.Journal(io, os.path.join(directory, JOURNAL), vote.Vote(io, os.path.join(directory, VOTE)))
        self._reconcile()

    def _reconcile(self) -> None:
        """Finish what a crash has left between a snapshot and the journal that it makes shorter."""
        index, term = self.snapshot.index, self.snapshot.term
        if self.journal.base > index:
            raise CorruptionError(self.journal.path, 0, f"it begins at index {self.journal.base}, the snapshot ends at {index}")
        if self.journal.term(index) != term:  # the snapshot was a leader's, and the entries behind it contradict it or are missing
            self.journal.reset(index, term)

    def close(self) -> None:
        """Let go of them; nothing is written."""
        self.journal.close()
        self.snapshot.close()
        self._lock.unlock()
        self._lock.close()
