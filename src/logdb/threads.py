"""Threads that cannot be started, and locks in a forked child.

A start that fails is an error by name, of the function that wanted the thread: nothing is noted of a thread that does not
run, so the next call tries again.

A forked child has the locks of its parent as they were, held by threads that it does not have.  A handle of the parent's
refuses work in the child, but a lock may come before the refusal.  So every lock of the library that a child can meet is
``renewed``: it is free in the child, unless the thread that forked holds it.  tests/unit/test_threads.py finds those that are not.

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
        ThreadUnavailable: The system gave none.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ThreadUnavailable(name, str(error)) from error
    return thread


def renewed(primitive: P) -> P:
    """Have a lock, condition or event of ``threading`` be free in a forked child; returns it."""
    _renewed.add(primitive)
    return primitive


def renew(primitives: Iterable[Any]) -> None:
    """In a forked child: have these be free, unless the thread that forked holds them."""
    for primitive in primitives:
        lock = getattr(primitive, "_lock", primitive)  # of a condition
        if not (isinstance(lock, _RLock) and lock._is_owned()):  # type: ignore[attr-defined]  # as threading itself does it
            primitive._at_fork_reinit()


os.register_at_fork(after_in_child=lambda: renew(list(_renewed)))
