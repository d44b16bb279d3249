"""What ``verify``, ``repair`` and those that copy a database say.

Knows words and numbers.  Does not know files.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called now and then with bytes done, bytes in all, and what is being looked at."""


class Problem(NamedTuple):
    """One thing that is wrong.  ``position`` is the byte in the file, -1 where there is none."""

    path: str
    position: int
    kind: str
    reason: str

    def __str__(self) -> str:
        where = self.path if self.position < 0 else f"{self.path} at byte {self.position}"
        return f"{where}: {self.kind}: {self.reason}"


class Copied(NamedTuple):
    """What a snapshot, a backup or a restore made.

    ``id``: of the snapshot or backup, or of the database that was restored.  ``size_bytes``: of the segments in it.
    ``written_bytes``: of those, what was not linked; for a backup, the size of its file.
    """

    path: str
    id: str
    partition_count: int
    size_bytes: int
    written_bytes: int


class Checked(NamedTuple):
    """How much was looked at."""

    files: int
    bytes: int
    batches: int
    records: int


class Report:
    """What was looked at, what is wrong, and what was or would be done about it.

    ``notes`` say what is no damage but worth knowing: files set aside, a tail that a crash tore.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.actions: list[str] = []
        self.executed = False
        self.file_count = self.size_bytes = self.batch_count = self.record_count = 0

    def __repr__(self) -> str:
        return f"<Report {self.checked} problems={self.problems} actions={self.actions}>"

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def checked(self) -> Checked:
        return Checked(self.file_count, self.size_bytes, self.batch_count, self.record_count)

    def add(self, path: str, position: int, kind: str, reason: str) -> None:
        self.problems.append(Problem(path, position, kind, reason))

    def count(self, other: "Report") -> None:
        """Take over what another report found."""
        self.problems += other.problems
        self.notes += other.notes
        self.file_count += other.file_count
        self.size_bytes += other.size_bytes
        self.batch_count += other.batch_count
        self.record_count += other.record_count
