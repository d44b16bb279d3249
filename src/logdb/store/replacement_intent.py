"""Replacing segments with rewritten ones: the steps on files, and the intent that makes them one change.

    .cleaned files synced, the directory synced -> the catalogue has the new segments and the intent (the commit point)
    -> each .cleaned file renamed, a segment's log before its indexes -> files of segments that were merged into others, and
    sidecars of replaced segments, removed -> the directory synced -> intent cleared

A truncation (docs/inside/durability.md, "Leaders and followers") drops the leader epochs that begin at the new log end offset before it
removes files, and removes all files behind that offset, too.

While a replacement is pending, a reader looks for a new file first under its ``.cleaned`` name, then under its own: in this
order it always finds the new file, never the old one.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from logdb import disk
from logdb.disk import changing, exists, names_in, sync_directory
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log.epochs import LeaderEpochs
from logdb.log.sealed import segment_entry
from logdb.meta import Intent, SegmentEntry
from logdb.segment.segment import CLEANED

if TYPE_CHECKING:
    from logdb.log.cleaner import Replacement

COMPACTION, TRUNCATION = "swap", "truncate"  # as the catalogue stores them
DAMAGED = ".damaged"  # the end of a name: a segment that was set aside


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
    return Intent(COMPACTION, topic, body)


def replaces(intent: Intent) -> bool:
    """Whether an intent replaces segments."""
    return intent.kind in (COMPACTION, TRUNCATION)


def concerns(intent: Intent, topic: str, partition: int) -> bool:
    """Whether an intent replaces segments of that log."""
    return replaces(intent) and (intent.topic, intent.body["partition"]) == (topic, partition)


def entries_of(topic: str, partition: int, replacement: "Replacement") -> list[SegmentEntry]:
    """The catalogue's entries of the new segments."""
    return [segment_entry(topic, partition, segment, crc) for segment, crc in zip(replacement.new, replacement.crcs, strict=True)]


def decode(intent: Intent) -> ReplacementIntent:
    return ReplacementIntent(intent.body["renamed"], intent.body["removed"])


def finish(io: IO, directory: str, intent: Intent) -> None:
    """All steps on files behind the commit; steps that were done are left alone.  Raises DiskFull, WriteFailed, SyncFailed."""
    rename(io, directory, decode(intent))
    if intent.kind == TRUNCATION:
        _drop_epochs(io, directory, intent.body["epochs_offset"])
        for name in intent.body.get("set_aside", ()):
            path = os.path.join(directory, name)
            if exists(io, path):
                with changing(path):
                    io.rename(path, path + DAMAGED)
    remove(io, directory, decode(intent))


def _drop_epochs(io: IO, directory: str, offset: int) -> None:
    """Drop the leader epochs that begin at an offset or past it; a damaged checkpoint is left to the opening, unless all are dropped."""
    path = os.path.join(directory, epochs_file.FILE_NAME)
    with contextlib.suppress(CorruptionError):
        known = epochs_file.load(io, path) if offset else None
        left = (known or LeaderEpochs()).before(offset)
        if known is None or known.entries != left.entries:  # without a file, an opening would miss it
            epochs_file.save(io, path, left)


def damaged_in(io: IO, directory: str) -> list[str]:
    """The segments that were set aside."""
    return [os.path.join(directory, name) for name in names_in(io, directory) if name.endswith(DAMAGED)]


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
