"""Putting compacted segments in the place of those they were made of.

Knows the steps, and how an intent notes them.  Does not know what is in the segments, nor locks.

    .cleaned files synced, the directory synced -> the catalogue has the new segments and the intent (the commit point)
    -> each .cleaned file renamed, a segment's log before its indexes -> files that were merged into others, and sidecars of
    what was replaced, removed -> the directory synced -> intent cleared

Whoever meets a pending swap finds a new file under its ``.cleaned`` name or, once renamed, under its own: looked for
in that order, it is never missed, and never mistaken for the old one.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from logdb import disk
from logdb.disk import changing, exists, sync_directory
from logdb.io import IO
from logdb.log.sealed import segment_entry
from logdb.meta import Intent, SegmentEntry
from logdb.segment.segment import CLEANED

if TYPE_CHECKING:
    from logdb.log.cleaner import Replacement

SWAP = "swap"


class ReplacementIntent(NamedTuple):
    """What an intent says of files, all in one directory: which are to be renamed to these names, and which removed."""

    renamed: Sequence[str]
    removed: Sequence[str]


def intent_of(io: IO, topic: str, topic_id: str, partition: int, replacement: "Replacement", sidecars: Sequence[str]) -> Intent:
    """The intent of a swap: names of files to be renamed, and of files to be removed, ``sidecars`` among them."""
    made = [path.removesuffix(CLEANED) for segment in replacement.new for path in segment.paths() if exists(io, path)]
    old = [path for segment in replacement.old for path in segment.paths() if path not in made and exists(io, path)]
    body = {
        "topic_id": topic_id,
        "partition": partition,
        "renamed": [os.path.basename(path) for path in made],
        "removed": [os.path.basename(path) for path in (*old, *sidecars)],
    }
    return Intent(SWAP, topic, body)


def concerns(intent: Intent, topic: str, partition: int) -> bool:
    """Whether an intent is a swap of segments of that log."""
    return intent.kind == SWAP and (intent.topic, intent.body["partition"]) == (topic, partition)


def entries_of(topic: str, partition: int, replacement: "Replacement") -> list[SegmentEntry]:
    """What the catalogue is to say of the new segments."""
    return [segment_entry(topic, partition, segment, crc) for segment, crc in zip(replacement.new, replacement.crcs, strict=True)]


def of(intent: Intent) -> ReplacementIntent:
    return ReplacementIntent(intent.body["renamed"], intent.body["removed"])


def rename(io: IO, directory: str, swap: ReplacementIntent) -> None:
    """Give the new files their names; those that have them already are left alone.  Raises DiskFull, WriteFailed."""
    for name in swap.renamed:
        path = os.path.join(directory, name)
        if exists(io, path + CLEANED):
            with changing(path):
                io.rename(path + CLEANED, path)


def remove(io: IO, directory: str, swap: ReplacementIntent) -> None:
    """Remove what was merged into other files, and sync the directory.  Raises DiskFull, WriteFailed, SyncFailed."""
    for name in swap.removed:
        path = os.path.join(directory, name)
        if exists(io, path):
            disk.remove(io, path)
    sync_directory(io, directory)
