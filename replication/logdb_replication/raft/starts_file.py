"""The file ``starts`` of a voter's directory: its own starts, and what it remembers of the others (``starts``).

    {"format":1,"start":12,"ids":[7301,…],"refused":"","others":[[2,1234,9,8822,5,true,40],…],"crc":"…"}

``ids``: drawn at each start, the newest first.  ``others``: number, incarnation, number and id of the last start, term, voted, durable.
``refused``: why another voter has refused this directory, which then never starts again; empty: none has.  The file is replaced as a whole.

Threading: one thread.
"""

import os
from collections.abc import Mapping
from typing import Any

from logdb.disk import exists, read_file, replace_file
from logdb.io import IO
from logdb.store import json_line
from logdb_replication.raft.errors import VoterRolledBack
from logdb_replication.raft.starts import IDS_MAX, Known, Start, VoterProgress

_FORMAT = 1
_SIZE_BYTES_MAX = 1 << 16
_REASON_SIZE_MAX = 1_000  # letters of what another voter says


class StartsFile:
    """What the file says; ``own`` and ``others`` are on disk."""

    def __init__(self, io: IO, path: str) -> None:
        """Read the file; none: the voter has never started.  Raises CorruptionError: it is damaged."""
        self._io, self.path = io, path
        self.own, self._refused = Start(0, ()), ""
        self.others: Mapping[int, Known] = {}
        if not exists(io, path):
            return
        json_line.decode(read_file(io, path, _SIZE_BYTES_MAX), path, _FORMAT, "the starts of a voter", self._read)

    def _read(self, fields: Mapping[str, Any]) -> None:
        self.own, self._refused = Start(int(fields["start"]), tuple(map(int, fields["ids"]))), str(fields["refused"])
        self.others = {
            int(number): Known(int(incarnation), int(start), int(id_), VoterProgress(int(term), bool(voted), int(durable)))
            for number, incarnation, start, id_, term, voted, durable in fields["others"]
        }

    def check(self) -> None:
        """Raises VoterRolledBack where another voter has refused this directory."""
        if self._refused:
            raise VoterRolledBack(os.path.dirname(self.path), self._refused)

    def begin(self, id_: int) -> None:
        """A start of this voter: durable when it returns.  Raises VoterRolledBack."""
        self.check()
        self.own = Start(self.own.number + 1, (id_, *self.own.ids)[:IDS_MAX])
        self.store(self.others)

    def store(self, others: Mapping[int, Known], refused: str = "") -> None:
        """Replace the file, durably; ``refused``: another voter has refused this directory, which does not start again.

        An error is final: the node stops.
        """
        self.others, self._refused = others, refused[:_REASON_SIZE_MAX] or self._refused
        rows = [[number, *known[:3], *known.progress] for number, known in sorted(others.items())]
        fields = {"start": self.own.number, "ids": self.own.ids, "refused": self._refused, "others": rows}
        replace_file(self._io, self.path, json_line.encode(fields, _FORMAT))
