"""Handles: objects that stand for something open in this process, such as files, threads or a connection.

A handle refuses ``copy`` and ``pickle``: a copy would share locks and files with the original, and know nothing of its end.
A class also refuses each of Python's implicit protocols that it lacks while a reader expects it (``refusing``).
"""

from collections.abc import Callable
from typing import Any, NoReturn, SupportsIndex


class Handle:
    """A base class; it adds no field."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"cannot copy or pickle {self!r}: it is open in this process. Open the database again where you need it.")


def refusing(name: str, call: str) -> Callable[..., NoReturn]:
    """The special method ``name``, which raises TypeError; ``call`` is the right call, with ``{}`` in place of the class."""

    def refuse(self: Any, *_: Any) -> NoReturn:
        """Raise TypeError, which names the right call."""
        raise TypeError(call.format(type(self).__name__))

    refuse.__name__ = name
    return refuse
