"""KeyboardInterrupt where a signal handler may raise it: at the n-th such place of the code of logdb that a call runs.

Python runs signal handlers at the entry of a function and after a call of C.  A profile function sees these places.  An exception that
it raises comes out of them, as one of a handler does.  Only the calling thread is interrupted: Python runs handlers in the main thread.

CPython 3.14 also runs handlers between the ``__enter__`` of a ``with`` statement and its block, and then leaves the lock locked
(https://github.com/python/cpython/issues/148874).  No code can be safe from that: these places are not tried.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

SOURCES = ("/logdb/", "/logdb_http_api/", "/logdb_kafka_api/", "/logdb_replication/")
TIMEOUT_S = 20


class Interrupted:
    """A call that is interrupted at its ``number``-th place.

    Attributes:
        place: Where it was; None: the call has fewer places.
        error: What came out of the call.
    """

    def __init__(self, number: int, call: Callable[[], object]) -> None:
        self.place: str | None = None
        self.error: BaseException | None = None
        self._left, self._number = number, number
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            call()
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            self.error = error
        finally:
            sys.setprofile(before)

    @property
    def places(self) -> int:
        """How many places were passed."""
        return self._number - self._left

    def _look(self, frame: FrameType, event: str, function: Any) -> None:
        if event not in ("call", "c_return") or self.place is not None:
            return
        if event == "c_return" and function.__name__ == "__enter__":
            return
        code = frame.f_code
        if any(part in code.co_filename for part in SOURCES) and "/tests/" not in code.co_filename:
            self._left -= 1
            if self._left <= 0 and not _in_destructor(frame):
                self.place = f"{event} in {code.co_qualname}, {Path(code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt


def _in_destructor(frame: FrameType | None) -> bool:
    """Whether ``__del__`` runs: Python reports an exception there, and goes on."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def finished(call: Callable[[], object], what: str) -> None:
    """Run a call in another thread; AssertionError with all stacks if it does not end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 -- raised below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if thread.is_alive():
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [f"{names.get(ident)}:\n{''.join(traceback.format_stack(frame, 8))}" for ident, frame in sys._current_frames().items()]
        raise AssertionError(f"{what}: still waiting after {TIMEOUT_S} s\n" + "\n".join(stacks))
    if errors:
        raise AssertionError(f"{what}: {errors[0]!r}") from errors[0]
