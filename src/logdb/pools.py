"""A pool of threads for calls that may wait, with errors of ``logdb.errors``.

Threading: any thread.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from logdb.errors import Closed, ThreadUnavailable


class Pool(ThreadPoolExecutor):
    """As many threads as needed, up to a number; if the system starts no more, the present ones take turns."""

    def __init__(self, thread_count: int, name: str) -> None:
        super().__init__(thread_count, thread_name_prefix=name)
        self._name = name

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Call a function in a thread.

        Raises:
            ThreadUnavailable: The pool has no thread, and the system could not start one: the function is not called.
            Closed: The pool was shut down.
        """
        try:
            return super().submit(function, *args, **kwargs)
        except RuntimeError as error:
            raise Closed(f"{self._name}: {error}") from error

    def _adjust_thread_count(self) -> None:  # overrides the library's, with its locks held
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError) as error:
            if not self._threads:
                self._work_queue.get_nowait()  # the call that needs a thread; without threads the queue has no other
                raise ThreadUnavailable(self._name, str(error)) from error
