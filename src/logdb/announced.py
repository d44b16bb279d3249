"""What installed packages announce as entry points: the listeners of a server, the sessions behind URLs, commands.

Looked up once in a process: a look reads a file of each installed package.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@functools.cache
def announced(group: str) -> "Mapping[str, EntryPoint]":
    """The entry points of a group, by name.

    If two packages announce the same name, the first on ``sys.path`` has it.  Only files that contain the group are parsed:
    ``importlib.metadata.entry_points`` parses the file of each package, which takes three times as long.
    """
    from importlib.metadata import distributions  # a directory needs none of these

    found: dict[str, EntryPoint] = {}
    for package in distributions():
        if f"[{group}]" in (package.read_text("entry_points.txt") or ""):
            for point in package.entry_points.select(group=group):
                found.setdefault(point.name, point)
    return found
