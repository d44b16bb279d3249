"""What ``verify`` and ``repair`` say.

Knows words and numbers.  Does not know files.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass(kw_only=True)
class Report:
    """What was looked at, what is wrong, and what was or would be done about it."""

    problems: list[Problem] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    executed: bool = False
    file_count: int = 0
    size_bytes: int = 0
    batch_count: int = 0
    record_count: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def add(self, path: str, position: int, kind: str, reason: str) -> None:
        self.problems.append(Problem(path, position, kind, reason))
