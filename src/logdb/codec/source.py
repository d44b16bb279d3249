"""A function that is written as source, line by line, and compiled: how ``schema`` makes encoders and decoders.

The source holds names and numbers of our own tables; no byte of a message becomes source.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of one function, and the objects that they name."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Without lines; ``objects``: by the names that lines may use."""
        self._lines: list[str] = []
        self._indent = ""
        self._objects, self._numbers = dict(objects), itertools.count()

    def add(self, *lines: str) -> None:
        """Add lines to the open block."""
        self._lines += (self._indent + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Within the context, lines belong to the block of that head."""
        self.add(head)
        self._indent += " "
        begin = len(self._lines)
        yield
        if len(self._lines) == begin:
            self.add("pass")
        self._indent = self._indent[1:]

    def name(self) -> str:
        """The name of another variable."""
        return f"x{next(self._numbers)}"

    def object(self, value: Any) -> str:
        """The name by which lines may use an object."""
        name = self.name()
        self._objects[name] = value
        return name

    def function(self, name: str) -> Callable[..., Any]:
        """The function of that name, which the lines define."""
        exec("\n".join(self._lines), self._objects)  # noqa: S102 -- as dataclasses do; see above
        function: Callable[..., Any] = self._objects[name]
        return function
