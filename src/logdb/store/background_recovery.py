"""The thread that recovers, after an unclean stop, the logs that nobody has asked for yet.

Knows which logs there are, and that ``LOCK`` may say so once all are known to be whole.  Does not know how a log is recovered.
"""

import contextlib
import logging
import threading
from collections.abc import Callable

from logdb.errors import LogdbError, UnknownPartition, UnknownTopic
from logdb.log.log import Log
from logdb.store.entries import Entries
from logdb.store.lock import LockFile
from logdb.threads import started

logger = logging.getLogger(__name__)


class BackgroundRecovery:
    """One pass over all logs.  ``done``: whether they are all recovered."""

    def __init__(self, entries: Entries, log: Callable[[str, int], Log], lock_file: LockFile) -> None:
        """``log``: opens one, and recovers it for that."""
        self._entries, self._log, self._lock_file = entries, log, lock_file
        self.done = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; raises ThreadUnavailable."""
        self._thread = started("logdb-recovery", self._run)

    def join(self) -> None:
        """Return once it is through."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        whole = [self._recover(topic, partition) for topic, partition in self._entries.names()]
        if not all(whole):
            return
        try:
            self._lock_file.mark_recovered()
            self.done = True
        except LogdbError as error:
            logger.error("recovery in the background: %s", error)

    def _recover(self, topic: str, partition: int) -> bool:
        """Whether the log is whole, or gone; one that is not does not keep the others waiting."""
        try:
            with contextlib.suppress(UnknownTopic, UnknownPartition):
                self._log(topic, partition)
        except (LogdbError, OSError) as error:
            logger.error("recovery of %s-%d in the background: %s", topic, partition, error)
            return False
        return True
