"""What installed packages announce as entry points: the listeners of a server, the sessions behind URLs, commands.

Looked up once in a process: a look reads a file of each installed package, 20 ms where there are many.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@functools.cache
def announced(group: str) -> "Mapping[str, EntryPoint]":
    """The entry points of a group, by name."""
    from importlib.metadata import entry_points  # a directory needs none of these

    return {point.name: point for point in entry_points(group=group)}
