"""Term and vote: the promise to vote once in a term, in a small file of one line.

    {"format":1,"term":7,"vote":[2,1234],"commit":40,"crc":"…"}

``commit``: an index that was committed and durable here.  The file is replaced as a whole: written, synced, renamed, the directory synced.
"""

from collections.abc import Mapping
from typing import Any

from logdb.disk import read_file, replace_file
from logdb.io import IO
from logdb.store import json_line

_FORMAT = 1
_SIZE_BYTES_MAX = 4096


class Vote:
    """What the file says; ``voted_for``: number and incarnation, None: no vote in this term yet."""

    def __init__(self, io: IO, path: str) -> None:
        """Read the file.

        Raises:
            FileNotFoundError: There is none.
            CorruptionError: It is damaged: the voter does not start, for it may have forgotten its vote.
        """
        self._io, self.path = io, path
        self.voted_for: tuple[int, int] | None = None
        json_line.decode(read_file(io, path, _SIZE_BYTES_MAX), path, _FORMAT, "a vote", self._read)

    def _read(self, fields: Mapping[str, Any]) -> None:
        self.term, self.commit = int(fields["term"]), int(fields["commit"])
        if fields["vote"] is not None:
            number, incarnation = fields["vote"]
            self.voted_for = (int(number), int(incarnation))

    def store(self, term: int, voted_for: tuple[int, int] | None, commit: int) -> None:
        """Durable when it returns; an error is final: the node stops."""
        replace_file(self._io, self.path, encode(term, voted_for, commit))
        self.term, self.voted_for, self.commit = term, voted_for, commit


def encode(term: int, voted_for: tuple[int, int] | None, commit: int) -> bytes:
    return json_line.encode({"term": term, "vote": voted_for, "commit": commit}, _FORMAT)
