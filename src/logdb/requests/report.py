"""The reports of ``verify``, ``repair``, ``snapshot``, ``backup`` and ``restore``."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called now and then with the bytes done, the bytes in all, and the path of the file at hand."""


class Problem(NamedTuple):
    """One contradiction or damage.  ``position`` is the byte in the file, -1 if it has none."""

    path: str
    position: int
    kind: str
    reason: str

    def __str__(self) -> str:
        where = self.path if self.position < 0 else f"{self.path} at byte {self.position}"
        return f"{where}: {self.kind}: {self.reason}"


class Copied(NamedTuple):
    """The result of a snapshot, a backup or a restore.

    ``id``: of the snapshot, the backup, or the restored database.  ``size_bytes``: of its segments.
    ``written_bytes``: the bytes of segments that were copied and not linked; for a backup, the size of its file.
    """

    path: str
    id: str
    partition_count: int
    size_bytes: int
    written_bytes: int


class Checked(NamedTuple):
    """How much was checked."""

    files: int
    bytes: int
    batches: int
    records: int


class Report:
    """How much was checked, which problems were found, and which actions were or would be taken.

    ``notes``: no damage, but worth knowing, as files set aside, or a tail that a crash left unfinished.
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
        """Whether there is no problem."""
        return not self.problems

    @property
    def checked(self) -> Checked:
        return Checked(self.file_count, self.size_bytes, self.batch_count, self.record_count)

    def add(self, path: str, position: int, kind: str, reason: str) -> None:
        self.problems.append(Problem(path, position, kind, reason))

    def count(self, other: "Report") -> None:
        """Add another report's problems, notes and counts."""
        self.problems += other.problems
        self.notes += other.notes
        self.file_count += other.file_count
        self.size_bytes += other.size_bytes
        self.batch_count += other.batch_count
        self.record_count += other.record_count
