"""The thread that, after an unclean stop, recovers the logs that no call has opened yet; then ``LOCK`` is marked recovered."""

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
    """One pass over all logs.  ``done``: whether all are recovered."""

    def __init__(self, entries: Entries, log: Callable[[str, int], Log], lock_file: LockFile) -> None:
        """``log``: opens a log, which recovers it."""
        self._entries, self._log, self._lock_file = entries, log, lock_file
        self.done = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; raises ThreadUnavailable."""
        self._thread = started("logdb-recovery", self._run)

    def join(self) -> None:
        """Wait until the pass has ended."""
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
        """Whether the log is recovered, or deleted; a failed one does not stop the pass."""
        try:
            with contextlib.suppress(UnknownTopic, UnknownPartition):
                self._log(topic, partition)
        except (LogdbError, OSError) as error:
            logger.error("recovery of %s-%d in the background: %s", topic, partition, error)
            return False
        return True
