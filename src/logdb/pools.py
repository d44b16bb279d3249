"""Threads for calls that may wait: the library's, with errors by name.

Threading: any thread.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from logdb.errors import Closed, ThreadUnavailable


class Pool(ThreadPoolExecutor):
    """As many threads as are needed, up to a number; where the system gives no more, those that there are take turns."""

    def __init__(self, thread_count: int, name: str) -> None:
        super().__init__(thread_count, thread_name_prefix=name)
        self._name = name

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Have a thread call a function.

        Raises:
            ThreadUnavailable: There is no thread, and the system gave none: the function is not called.
            Closed: The pool was shut down.
        """
        try:
            return super().submit(function, *args, **kwargs)
        except RuntimeError as error:
            raise Closed(f"{self._name}: {error}") from error

    def _adjust_thread_count(self) -> None:  # of the library's, with its locks held
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError) as error:
            if not self._threads:
                self._work_queue.get_nowait()  # what was to be called: without a thread nothing else is in there
                raise ThreadUnavailable(self._name, str(error)) from error
