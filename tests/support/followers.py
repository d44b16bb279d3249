"""A leader's log and a follower's: what a replica does with the calls of one log, without a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import logdb
from logdb.codec import convert
from logdb.log.producers import Producer
from logdb.model import OFFSET_MAX
from logdb.store.store import Store
from support.produced import Bare


class Unlimited(Bare):
    """A database of replicas that readers see all of, as if the high watermark were always past the end."""

    def log(self, topic: str, partition: int = 0) -> logdb.Log:
        log = super().log(topic, partition)
        if log.high_watermark_file is not None:
            log.high_watermark_file, log.view = None, log.view._replace(high_watermark=OFFSET_MAX)
            os.unlink(os.path.join(log.directory, "high-watermark"))
        return log


def open_replica(path: str | os.PathLike[str], *, limited: bool = False, **options: Any) -> Bare:
    """A database whose leader epochs a controller gives; no broker ends its transactions.

    Its logs take records of clients, as if a leader epoch had begun with each opening.

    Args:
        limited: Readers see it up to the high watermark, which has to be moved.
    """
    store = Store.open(path, replicated=True, **options)
    opened = store.writer.logs
    begin = opened._begin
    with store._state.topics_lock:  # of each opening
        opened._begin = lambda log: (begin(log), log.lead())
        for log in list(store.open_logs.values()):  # a thread in the background was first
            log.lead()
    return (Bare if limited else Unlimited)(store)


HISTORY_VALUE_SIZE_BYTES = 100 << 10  # some ten records are a page of a read


def write_history(log: logdb.Log, epoch: int, end_offset: int) -> None:
    """Begin a leader epoch, and append up to an offset; each value begins with ``OFFSET of epoch EPOCH``."""
    log.begin_epoch(epoch)
    for offset in range(log.end_offset, end_offset):
        log.append_many([b"%d of epoch %d " % (offset, epoch) * (HISTORY_VALUE_SIZE_BYTES // 16)])
    log.flush()


def _values(batches: Iterable[Any]) -> Iterator[bytes]:
    for batch in batches:
        yield from batch["value"].to_pylist()


WAYS_TO_READ: dict[str, Callable[..., Iterator[bytes | None]]] = {
    "records": lambda log, **options: (record.value for record in log.read(0, **options)),
    "columns": lambda log, **options: _values(log.read_arrow(0, use_threads=False, **options)),
}
"""The values of a log, page by page."""


def fetch(leader: logdb.Log, follower: logdb.Log, size_bytes: int = 1 << 20, **options: Any) -> bool:
    """Append to the follower what one fetch from the leader brings; False if that is nothing."""
    batches, _ = leader.read_batches(max(follower.end_offset, leader.start_offset), size_bytes, replica=True)
    follower.follow_append(batches, **options)
    return bool(batches)


def catch_up(leader: logdb.Log, follower: logdb.Log, size_bytes: int = 1 << 20, **options: Any) -> None:
    while fetch(leader, follower, size_bytes, **options):
        pass


def batches_of(log: logdb.Log, offset: int | None = None) -> bytes:
    """The batches of a log from an offset, or from its start on, as they lie in it."""
    parts, offset = [], log.start_offset if offset is None else offset
    while True:
        batches, offset = log.read_batches(offset)
        if not batches:
            return b"".join(parts)
        parts.append(bytes(batches))


def producers_of(log: logdb.Log) -> list[Producer]:
    """What is known of the producers, but for when they sent it: that is each log's own."""
    return [producer._replace(timestamp_ms=0, started_ms=0) for producer in sorted(log.producers())]


def epochs_of(log: logdb.Log) -> tuple[tuple[int, int], ...]:
    """The leader epochs that have a record, and where each begins in what is left of the log."""
    offsets = sorted({log.start_offset, *(start for _, start in log.epochs.entries if log.start_offset < start)})
    return tuple((log.epochs.at(offset), offset) for offset in offsets if offset < log.end_offset)


def check_equal(leader: logdb.Log, follower: logdb.Log, where: str = "") -> None:
    """The follower has what its leader has, byte for byte."""
    end = leader.end_offset
    assert follower.end_offset == end, where
    assert batches_of(follower) == batches_of(leader), where
    assert epochs_of(follower) == epochs_of(leader), where
    assert producers_of(follower) == producers_of(leader), where
    start = max(leader.start_offset, follower.start_offset)
    assert follower.aborted_transactions(start, end) == leader.aborted_transactions(start, end), where
    assert follower.last_stable_offset == leader.last_stable_offset, where


def first_offset(batches: bytes | memoryview) -> int:
    return next(convert.headers(memoryview(batches)))[1].base_offset


def align(leader: logdb.Log, db: Bare) -> None:
    """Cut the log of ``db`` off where it parts from its leader's, and begin it anew where they have nothing in common.

    Source: KIP-101, KIP-279.
    """
    follower, store = db.log("t"), db._store
    while follower.epochs.entries:
        answer = leader.epoch_end(follower.epochs.latest)
        parts = follower.epochs.divergence(answer, follower.end_offset)
        if answer is None or parts is None or parts.end_offset < follower.start_offset:
            begin_anew(leader, db)
            return
        store.truncate_to("t", 0, parts.end_offset)
        if parts.leader_epoch == answer.leader_epoch:
            break
    if not leader.start_offset <= follower.end_offset <= leader.end_offset or _is_empty_within_a_batch(leader, follower):
        begin_anew(leader, db)


def _is_empty_within_a_batch(leader: logdb.Log, follower: logdb.Log) -> bool:
    """Whether a follower that has no record asks for one that is not the first of its batch.  Source: Kafka's ``Partition``."""
    if follower.start_offset < follower.end_offset:
        return False
    batches, _ = leader.read_batches(follower.end_offset, 1, replica=True)
    return bool(batches) and first_offset(batches) < follower.end_offset


def begin_anew(leader: logdb.Log, db: Bare) -> None:
    """Let the log of ``db`` begin with the leader's first batch, which may begin before the leader's log start."""
    batches, _ = leader.read_batches(leader.start_offset, 1)
    start_offset = first_offset(batches) if batches else leader.start_offset
    db._store.begin_anew("t", 0, start_offset)
