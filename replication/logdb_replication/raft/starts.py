"""The starts of a voter, and what it remembers of the others: an older copy of a directory is noticed by it.

    {"format":1,"start":12,"ids":[7301,…],"refused":"","others":[[2,1234,9,8822,5,true,40],…],"crc":"…"}

``ids``: drawn at each start, the newest first.  ``others``: number, incarnation, number and id of the last start, term, voted, durable.
``refused``: why another voter has refused this directory, which then never starts again; empty: none has.  The file is replaced as a whole.
docs/inside/decisions/0009-older-copies-of-voters.md has the rules, and what they do not notice.

Threading: one thread.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from logdb.disk import exists, read_file, replace_file
from logdb.io import IO
from logdb.store import json_line
from logdb_replication.raft.errors import VoterRolledBack

IDS_MAX = 32
_FORMAT = 1
_SIZE_BYTES_MAX = 1 << 16
_REASON_SIZE_MAX = 1_000  # letters of what another voter says


class Start(NamedTuple):
    """One start of a voter; ``ids``: its own, and those of the starts before it, the newest first."""

    number: int
    ids: tuple[int, ...]


class Progress(NamedTuple):
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

    def reaches(self, other: "Progress") -> bool:
        """Whether a voter that was at ``other`` can be here."""
        return self.term > other.term or (self.term == other.term and self.voted >= other.voted and self.durable >= other.durable)

    def and_also(self, other: "Progress") -> "Progress":
        """What a voter has reached that has reached both."""
        if self.term != other.term:
            return max(self, other)
        return Progress(self.term, self.voted or other.voted, max(self.durable, other.durable))


class Known(NamedTuple):
    """What is remembered of another voter: its last start, and its progress."""

    incarnation: int
    number: int
    id: int
    progress: Progress

    def refuses(self, start: Start, progress: Progress) -> str:
        """Why a directory that starts so is an older copy; empty: it may be the latest."""
        place = start.number - self.number  # of the known start among those of the directory
        if place < 0 or (place < len(start.ids) and start.ids[place] != self.id):
            return f"the voter has had a start {self.number} that is not this directory's, which has had {start.number}"
        if place and not progress.reaches(self.progress):
            return f"the voter was at {self.progress}, and this directory is at {progress}"
        return ""


class Starts:
    """The file ``starts`` of a voter's directory.

    Field          Changed by              Trusted
    ``own``        ``begin``               on disk
    ``_others``    ``remember``, ``note``  by number, also of voters that have left: one that comes back with an older copy is refused;
                                           starts are on disk, progress is since ``keep``
    ``_refused``   ``refuse``              on disk
    """

    def __init__(self, io: IO, path: str) -> None:
        """Read the file; none: the voter has never started.  Raises CorruptionError: it is damaged."""
        self._io, self.path = io, path
        self.own, self._refused = Start(0, ()), ""
        self._others: dict[int, Known] = {}
        self._kept = True
        if not exists(io, path):
            return
        json_line.decode(read_file(io, path, _SIZE_BYTES_MAX), path, _FORMAT, "the starts of a voter", self._read)

    def _read(self, fields: Mapping[str, Any]) -> None:
        self.own, self._refused = Start(int(fields["start"]), tuple(map(int, fields["ids"]))), str(fields["refused"])
        for number, incarnation, start, id_, term, voted, durable in fields["others"]:
            self._others[int(number)] = Known(int(incarnation), int(start), int(id_), Progress(int(term), bool(voted), int(durable)))

    def check(self) -> None:
        """Raises VoterRolledBack where another voter has refused this directory."""
        if self._refused:
            raise VoterRolledBack(os.path.dirname(self.path), self._refused)

    def begin(self, id_: int) -> None:
        """A start of this voter: durable when it returns.  Raises VoterRolledBack."""
        self.check()
        self.own = Start(self.own.number + 1, (id_, *self.own.ids)[:IDS_MAX])
        self._store()

    def refuse(self, reason: str) -> None:
        """Another voter has refused this directory: it does not start again."""
        self._refused = reason[:_REASON_SIZE_MAX]
        self._store()

    def known(self, voter: tuple[int, int]) -> Known | None:
        """What is remembered of a voter; None: nothing of this incarnation."""
        number, incarnation = voter
        known = self._others.get(number)
        return known if known is not None and known.incarnation == incarnation else None

    def remember(self, voter: tuple[int, int], start: Start, progress: Progress) -> None:
        """The last start of another voter: durable when it returns."""
        number, incarnation = voter
        known = self.known(voter)
        if known is None or known.id != start.ids[0]:
            self._others[number] = Known(incarnation, start.number, start.ids[0], progress)
            self._store()
        self.note(voter, progress)

    def note(self, voter: tuple[int, int], progress: Progress) -> None:
        """Another voter has come so far at least; in memory until ``keep``."""
        known = self.known(voter)
        if known is not None and not known.progress.reaches(progress):
            self._others[voter[0]] = known._replace(progress=known.progress.and_also(progress))
            self._kept = False

    def keep(self) -> None:
        """Make durable what was noted."""
        if not self._kept:
            self._store()

    def _store(self) -> None:
        """An error is final: the node stops."""
        others = [[number, *known[:3], *known.progress] for number, known in sorted(self._others.items())]
        fields = {"start": self.own.number, "ids": self.own.ids, "refused": self._refused, "others": others}
        replace_file(self._io, self.path, json_line.encode(fields, _FORMAT))
        self._kept = True
