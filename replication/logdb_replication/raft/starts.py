"""The starts of voters, and what one remembers of the others: an older copy of a directory is noticed by it.

docs/inside/decisions/0009-older-copies-of-voters.md has the rules, and what they do not notice.  ``starts_file`` has the file.

Threading: one thread.
"""

from collections.abc import Mapping
from typing import NamedTuple

IDS_MAX = 32


class Start(NamedTuple):
    """One start of a voter; ``ids``: its own, and those of the starts before it, the newest first."""

    number: int
    ids: tuple[int, ...]


class VoterProgress(NamedTuple):
    """How far a voter has come on its disk; never less later on.

    Attributes:
        voted: It has voted in ``term``.
        durable: Index of the last entry that is durable, if it is of ``term``; else 0.
    """

    term: int = 0
    voted: bool = False
    durable: int = 0

    def __str__(self) -> str:
        return f"term {self.term}{', voted,' if self.voted else ''} index {self.durable}"

    def reaches(self, other: "VoterProgress") -> bool:
        """Whether a voter that was at ``other`` can be here."""
        return self.term > other.term or (self.term == other.term and self.voted >= other.voted and self.durable >= other.durable)

    def and_also(self, other: "VoterProgress") -> "VoterProgress":
        """What a voter has reached that has reached both."""
        if self.term != other.term:
            return max(self, other)
        return VoterProgress(self.term, self.voted or other.voted, max(self.durable, other.durable))


class Known(NamedTuple):
    """What is remembered of another voter: its last start, and its progress."""

    incarnation: int
    number: int
    id: int
    progress: VoterProgress

    def refuses(self, start: Start, progress: VoterProgress) -> str:
        """Why a directory that starts so is an older copy; empty: it may be the latest."""
        place = start.number - self.number  # of the known start among those of the directory
        if place < 0 or (place < len(start.ids) and start.ids[place] != self.id):
            return f"the voter has had a start {self.number} that is not this directory's, which has had {start.number}"
        if place and not progress.reaches(self.progress):
            return f"the voter was at {self.progress}, and this directory is at {progress}"
        return ""


class Others:
    """The other voters by number, also those that have left: one that comes back with an older copy is refused."""

    def __init__(self, others: Mapping[int, Known]) -> None:
        self._others = dict(others)

    def all(self) -> dict[int, Known]:
        """A copy, for the file."""
        return dict(self._others)

    def known(self, voter: tuple[int, int]) -> Known | None:
        """What is remembered of a voter; None: nothing of this incarnation."""
        number, incarnation = voter
        known = self._others.get(number)
        return known if known is not None and known.incarnation == incarnation else None

    def remember(self, voter: tuple[int, int], start: Start, progress: VoterProgress) -> bool:
        """Take the last start of another voter; True: it is a new one, and must be durable before a message of it counts."""
        known = self.known(voter)
        is_new = known is None or known.id != start.ids[0]
        if is_new:
            self._others[voter[0]] = Known(voter[1], start.number, start.ids[0], progress)
        return is_new

    def note(self, voter: tuple[int, int], progress: VoterProgress) -> bool:
        """Another voter has come so far at least; True: that is news, which the file need not have at once."""
        known = self.known(voter)
        if known is None or known.progress.reaches(progress):
            return False
        self._others[voter[0]] = known._replace(progress=known.progress.and_also(progress))
        return True
