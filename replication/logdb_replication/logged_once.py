"""What was logged of a thing that is tried again many times: the log says it once.

Threading: one thread at a time (the caller's lock).
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class LoggedOnce(Generic[K]):
    """The last that was logged of each thing."""

    def __init__(self) -> None:
        self._said: dict[K, object] = {}

    def is_news(self, thing: K, said: object) -> bool:
        """Whether something else was logged of a thing last, or nothing; from now on this was."""
        is_news = thing not in self._said or self._said[thing] != said
        self._said[thing] = said
        return is_news

    def forget(self, thing: K) -> None:
        """All is well with it: whatever is said of it next is news."""
        self._said.pop(thing, None)

    def keep(self, is_there: Callable[[K], bool]) -> None:
        """Forget the others."""
        self._said = {thing: said for thing, said in self._said.items() if is_there(thing)}
