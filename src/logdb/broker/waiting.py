"""Waiting until one of several logs has more records.

A log of this process signals its growth; a log that another process writes is polled.

A record that lingers in memory counts: reading it writes it.  A record that is appended during a wait is seen when it is written,
after ``linger_ms``; a log with a long linger is therefore polled, too.
"""

import threading
from collections.abc import Callable, Sequence

from logdb.io import IO
from logdb.log.isolation import IsolationLevel
from logdb.store.protocols import ReplicaLog

POLL_MS_MIN, POLL_MS_MAX = 1, 50


def wait_for_any(
    positions: Sequence[tuple[ReplicaLog, int]],
    timeout_ms: int,
    *,
    isolation_level: IsolationLevel,
    io: IO,
    lingers_ms: int | None,
    check: Callable[[], object],
) -> bool:
    """Wait until a log has a record at its position; False where none has within ``timeout_ms``.

    Args:
        lingers_ms: How long a record may linger in memory; None: another process writes the log.
        check: Raises to end the wait early.
    """
    until_ms = io.monotonic_ms() + timeout_ms
    grown = threading.Event()
    if lingers_ms is not None:
        for log, _ in positions:
            log.watch(grown)
    try:
        poll_ms = POLL_MS_MIN
        while True:
            grown.clear()
            check()
            if any(position < end_of(log, isolation_level) for log, position in positions):
                return True
            left_ms = until_ms - io.monotonic_ms()
            if left_ms <= 0:
                return False
            if lingers_ms is None:
                grown.wait(min(left_ms, poll_ms) / 1000)
                poll_ms = min(2 * poll_ms, POLL_MS_MAX)
            else:
                grown.wait((left_ms if lingers_ms <= POLL_MS_MAX else min(left_ms, POLL_MS_MAX)) / 1000)
    finally:
        if lingers_ms is not None:
            for log, _ in positions:
                log.unwatch(grown)


def end_of(log: ReplicaLog, isolation_level: IsolationLevel) -> int:
    """The end offset of a log for a reader at that isolation level."""
    return log.last_stable_offset if isolation_level == "read_committed" else log.high_watermark
