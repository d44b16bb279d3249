"""Starting threads, and locks in a forked child.

A failed start is ThreadUnavailable of the call that needed the thread; no state of it remains, so the next call tries again.

A forked child has the parent's locks as they were at the fork, held by threads that it lacks.  A handle of the parent refuses work in
the child, but may take a lock before it refuses.  So every lock of the library that a child can meet is ``renewed``: free in the
child, unless the forking thread holds it.  tests/unit/test_threads.py finds locks that are not.

Threading: all functions, from any thread.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from logdb.errors import ThreadUnavailable

P = TypeVar("P")

_RLock = type(threading.RLock())
_renewed: weakref.WeakSet[Any] = weakref.WeakSet()


def started(name: str, run: Callable[[], object]) -> threading.Thread:
    """A daemon thread that runs a function.

    Raises:
        ThreadUnavailable: The system could not start it.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ThreadUnavailable(name, str(error)) from error
    return thread


def renewed(primitive: P) -> P:
    """Make a lock, condition or event of ``threading`` free in forked children; returns it."""
    _renewed.add(primitive)
    return primitive


def renew(primitives: Iterable[Any]) -> None:
    """In a forked child: free these, except those that the forking thread holds."""
    for primitive in primitives:
        lock = getattr(primitive, "_lock", primitive)  # a condition has its lock there
        if not (isinstance(lock, _RLock) and lock._is_owned()):  # type: ignore[attr-defined]  # as threading itself does it
            primitive._at_fork_reinit()


os.register_at_fork(after_in_child=lambda: renew(list(_renewed)))
