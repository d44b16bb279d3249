"""Replacing segments with compacted ones: the steps on files, and the intent that makes them one change.

    .cleaned files synced, the directory synced -> the catalogue has the new segments and the intent (the commit point)
    -> each .cleaned file renamed, a segment's log before its indexes -> files of segments that were merged into others, and
    sidecars of replaced segments, removed -> the directory synced -> intent cleared

While a replacement is pending, a reader looks for a new file first under its ``.cleaned`` name, then under its own: in this
order it always finds the new file, never the old one.
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

KIND = "swap"  # as the catalogue stores it


class ReplacementIntent(NamedTuple):
    """The files that an intent names, all in one directory: those to rename (their final names), and those to remove."""

    renamed: Sequence[str]
    removed: Sequence[str]


def intent_of(io: IO, topic: str, topic_id: str, partition: int, replacement: "Replacement", sidecars: Sequence[str]) -> Intent:
    """The intent that replaces segments; ``sidecars`` are files to remove, too."""
    made = [path.removesuffix(CLEANED) for segment in replacement.new for path in segment.paths() if exists(io, path)]
    old = [path for segment in replacement.old for path in segment.paths() if path not in made and exists(io, path)]
    body = {
        "topic_id": topic_id,
        "partition": partition,
        "renamed": [os.path.basename(path) for path in made],
        "removed": [os.path.basename(path) for path in (*old, *sidecars)],
    }
    return Intent(KIND, topic, body)


def concerns(intent: Intent, topic: str, partition: int) -> bool:
    """Whether an intent replaces segments of that log."""
    return intent.kind == KIND and (intent.topic, intent.body["partition"]) == (topic, partition)


def entries_of(topic: str, partition: int, replacement: "Replacement") -> list[SegmentEntry]:
    """The catalogue's entries of the new segments."""
    return [segment_entry(topic, partition, segment, crc) for segment, crc in zip(replacement.new, replacement.crcs, strict=True)]


def decode(intent: Intent) -> ReplacementIntent:
    return ReplacementIntent(intent.body["renamed"], intent.body["removed"])


def rename(io: IO, directory: str, intent: ReplacementIntent) -> None:
    """Rename the new files, except those that are renamed already.  Raises DiskFull, WriteFailed."""
    for name in intent.renamed:
        path = os.path.join(directory, name)
        if exists(io, path + CLEANED):
            with changing(path):
                io.rename(path + CLEANED, path)


def remove(io: IO, directory: str, intent: ReplacementIntent) -> None:
    """Remove the replaced files, and sync the directory.  Raises DiskFull, WriteFailed, SyncFailed."""
    for name in intent.removed:
        path = os.path.join(directory, name)
        if exists(io, path):
            disk.remove(io, path)
    sync_directory(io, directory)
