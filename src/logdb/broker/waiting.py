"""Waiting until one of several logs has more records, and until the replicas of a log have what was appended.

A log of this process signals its growth; a log that another process writes is polled.

A record that lingers in memory counts: reading it writes it.  A record that is appended during a wait is seen when it is written,
after ``linger_ms``; a log with a long linger is therefore polled, too.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from logdb.errors import CommitTimeout, FencedLeaderEpoch, NotLeaderAfterAppend, NotLeaderOrFollower
from logdb.io import IO
from logdb.log.isolation import IsolationLevel
from logdb.log.protocols import ReplicaLog
from logdb.model import KnownLog
from logdb.store.protocols import Leadership

COMMIT_WAIT_MS_MAX = 30_000
"""How long an append waits for its in-sync replicas, which leave the set if they lag for a tenth of that."""
POLL_MS_MIN, POLL_MS_MAX = 1, 50


class Awaited(NamedTuple):
    """A reader's position in a log, where it waits for a record, and what it knows of the log."""

    log: ReplicaLog
    offset: int
    known: KnownLog

    @property
    def is_elsewhere(self) -> bool:
        """Whether the position is one of another log: of a deleted topic, past the end, or of a history that was cut off.

        A read from there raises: a wait for records ends at once.
        """
        log, (topic_id, leader_epoch) = self.log, self.known
        return topic_id not in {"", log.topic_id} or not log.epochs.holds(self.offset, leader_epoch, log.end_offset)


def wait_for_any(
    awaited: Sequence[Awaited],
    timeout_ms: int,
    *,
    isolation_level: IsolationLevel,
    io: IO,
    lingers_ms: int | None,
    check: Callable[[], object],
) -> bool:
    """Wait until a log has a record at its position, or a position is elsewhere; False where none has within ``timeout_ms``.

    Args:
        lingers_ms: How long a record may linger in memory; None: another process writes the log.
        check: Raises to end the wait early.
    """
    until_ms = io.monotonic_ms() + timeout_ms
    grown = threading.Event()
    if lingers_ms is not None:
        for log, _, _ in awaited:
            log.watch(grown)
    try:
        poll_ms = POLL_MS_MIN
        while True:
            grown.clear()
            check()
            if any(one.offset < end_of(one.log, isolation_level) or one.is_elsewhere for one in awaited):
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
            for log, _, _ in awaited:
                log.unwatch(grown)


def end_of(log: ReplicaLog, isolation_level: IsolationLevel) -> int:
    """The end offset of a log for a reader at that isolation level."""
    return log.last_stable_offset if isolation_level == "read_committed" else log.high_watermark


def commit(leadership: Leadership, offset: int, timeout_s: float = COMMIT_WAIT_MS_MAX / 1000) -> None:
    """Return once the in-sync replicas have what lies below ``offset``.

    Raises:
        NotLeaderAfterAppend, NotEnoughReplicasAfterAppend: as ``Leadership.is_committed``.
        CommitTimeout: They have not in time.
    """
    log, until = leadership.log, time.monotonic() + timeout_s

    def go_on() -> None:
        if not leadership.is_committed(offset) and time.monotonic() >= until:
            raise CommitTimeout(log.topic, log.partition, round(timeout_s * 1000))

    try:
        log.commit_to(offset, leader_epoch=leadership.leader_epoch, go_on=go_on)
    except (NotLeaderOrFollower, FencedLeaderEpoch) as error:
        if not leadership.is_committed(offset):  # the epoch may have ended just after the commit
            raise NotLeaderAfterAppend(log.topic, log.partition, leadership.leader_epoch) from error
