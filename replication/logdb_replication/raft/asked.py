"""What is asked of a voter: commands, barriers, changes of the voters.  Each has a future, which ``inbox`` settles once."""

from concurrent.futures import Future
from typing import TypeAlias

from logdb_replication.raft.voters import Voter


class Pending:
    """A command: ``future`` gives what ``apply`` returned."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.future: Future[bytes] = Future()


class Reading:
    """A barrier: ``future`` gives an applied index that holds all that was acknowledged before."""

    data = b""

    def __init__(self) -> None:
        self.future: Future[int] = Future()
        self.index = self.round = 0


class VotersChange:
    """A voter to add (``add``) or to remove; ``future`` is done when the change is committed."""

    data = b""

    def __init__(self, voter: Voter, *, add: bool) -> None:
        self.voter, self.add = voter, add
        self.future: Future[bytes] = Future()


Asked: TypeAlias = Pending | Reading | VotersChange
