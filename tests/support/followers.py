"""A leader's log and a follower's: what a replica does with the calls of one log, without a network."""

from __future__ import annotations

import os
from typing import Any

import logdb
from logdb.codec import convert
from logdb.log.producers import Producer
from logdb.store.store import Store
from support.produced import Bare


def open_replica(path: str | os.PathLike[str], **options: Any) -> Bare:
    """A database whose leader epochs a controller gives; nobody ends its transactions."""
    return Bare(Store.open(path, replicated=True, **options))


def fetch(leader: logdb.Log, follower: logdb.Log, size_bytes: int = 1 << 20, **options: Any) -> bool:
    """Append to the follower what one fetch from the leader brings; False if that is nothing."""
    batches, _ = leader.read_batches(follower.end_offset, size_bytes)
    follower.follow_append(batches, **options)
    return bool(batches)


def catch_up(leader: logdb.Log, follower: logdb.Log, size_bytes: int = 1 << 20, **options: Any) -> None:
    while fetch(leader, follower, size_bytes, **options):
        pass


def batches_of(log: logdb.Log) -> bytes:
    """The batches of a whole log, as they lie in it."""
    parts, offset = [], log.start_offset
    while True:
        batches, offset = log.read_batches(offset)
        if not batches:
            return b"".join(parts)
        parts.append(bytes(batches))


def producers_of(log: logdb.Log) -> list[Producer]:
    """What is known of the producers, but for when they sent it: that is each log's own."""
    return [producer._replace(timestamp_ms=0, started_ms=0) for producer in sorted(log.producers())]


def epochs_of(log: logdb.Log) -> tuple[tuple[int, int], ...]:
    """The leader epochs that have a record."""
    return tuple(entry for entry in log.epochs.entries if entry[1] < log.end_offset)


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
