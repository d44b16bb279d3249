"""One sync for many logs.

A sync of one file waits for the cache of its disk, about as long for a clean file as for a dirty one.  So the syncs of 10,000 logs
wait 10,000 times, and a sync of their file system waits twice.  It covers segments, directory entries and epoch checkpoints.

    begin_shared of each log ──► sync of the file system ──► end_shared of each: flushed
                                              └──► refused, or not known ──► each log is synced alone

A sync that failed is final for each of the files, as if each had been synced alone (``disk.sync_together``).  No lock of a log is held
while the sync waits.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from logdb.disk import write_files_together
from logdb.errors import LogdbError, SyncFailed
from logdb.io import IO
from logdb.log.log_sync import Saving, Shared
from logdb.segment.files import FILES, FileHolder, sync_together

if TYPE_CHECKING:
    from logdb.log.log import Log

logger = logging.getLogger(__name__)

COUNT_MIN = 128
"""Logs for which a shared sync is worth that it also waits for what other programs have written."""
_COUNT_MAX = 2_048  # files that one such sync holds open
_FINISHED_TOGETHER = 1_024  # logs: each has up to four files open


def sync(io: IO, logs: "Sequence[Log]", failed: "Callable[[Log, Exception], None]") -> None:
    """Sync written records of logs, as ``Log.sync`` of each.

    Args:
        failed: Is called with each log that could not be synced, and the error.
    """
    alone = list(logs)
    if len(logs) >= COUNT_MIN:
        alone, count = [], max(1, min(_COUNT_MAX, FILES.limit // 4))
        for at in range(0, len(logs), count):
            alone += _sync_some(io, logs[at : at + count])
    for log in alone:
        try:
            log.sync()
        except Exception as error:  # noqa: BLE001 -- an error of one log must not keep the others unsynced
            failed(log, error)


def finish(io: IO, logs: "Sequence[Log]") -> "dict[Log, SyncFailed]":
    """Make the syncs of ``Log.finish`` for many logs: what is left of it waits for no disk.

    Returns:
        The logs whose sync has failed.  Any other error is met again by ``Log.finish``.
    """
    failures: dict[Log, SyncFailed] = {}
    count = max(1, min(_FINISHED_TOGETHER, FILES.limit // 16))
    for at in range(0, len(logs) if len(logs) >= COUNT_MIN else 0, count):
        begun = [log for log in logs[at : at + count] if log.begin_finish()]
        sync(io, begun, lambda log, error: failures.update({log: error} if isinstance(error, SyncFailed) else {}))
        saved = _save_ends(io, [log for log in begun if log not in failures], failures)
        _sync_ends(io, saved, failures)
    return failures


def _save_ends(io: IO, logs: "Sequence[Log]", failures: "dict[Log, SyncFailed]") -> "list[Log]":
    """Save the indexes and producers of logs that are synced; returns those of which that succeeded."""
    savings: dict[Log, Saving] = {}
    for log in logs:
        with contextlib.suppress(LogdbError):
            savings[log] = log.syncs.begin_saving(final=True)
    saved = []
    errors = write_files_together(io, [saving.writes for saving in savings.values()])
    for (log, saving), error in zip(savings.items(), errors, strict=True):
        if error is None:
            log.syncs.end_saving(saving)
            saved.append(log)
        elif isinstance(error, SyncFailed):
            failures[log] = error
    return saved


def _sync_ends(io: IO, logs: "Sequence[Log]", failures: "dict[Log, SyncFailed]") -> None:
    """Sync the recovery points, the high watermarks and the directories of logs."""
    by_device: dict[int, dict[Log, tuple[FileHolder, int]]] = {}
    for log in logs:
        with contextlib.suppress(LogdbError, OSError):
            if (written := log.note_end()) is not None:
                written[0].open()
                device, _ = written[0].file_id or (0, 0)
                by_device.setdefault(device, {})[log] = written
    for ends in by_device.values():
        try:
            is_synced = sync_together(io, [file for file, _ in ends.values()])
        except SyncFailed as error:
            failures.update(dict.fromkeys(ends, error))
        except (LogdbError, OSError) as error:
            logger.debug("a sync of the ends of %d logs: %s", len(ends), error)
        else:
            for log, (_, count) in ends.items() if is_synced else ():
                log.end_synced(count)


def _sync_some(io: IO, logs: "Sequence[Log]") -> "list[Log]":
    """Returns those that have to be synced alone: there was no shared sync, or one with another error than ``Log.sync`` has."""
    by_device: dict[int, list[Shared]] = {}
    alone: list[Log] = []
    for log in logs:
        if (shared := log.syncs.begin_shared()) is not None:
            try:
                shared.tail[-1].open()
                device, _ = shared.tail[-1].file_id or (0, 0)  # it is known once the file was open
                by_device.setdefault(device, []).append(shared)
            except (LogdbError, OSError):  # its topic was deleted, say
                log.syncs.undo_shared(shared)
                alone.append(log)
    for begun in by_device.values():
        if not _sync_device(io, begun):
            alone += [shared.log for shared in begun]
    return alone


def _sync_device(io: IO, begun: Sequence[Shared]) -> bool:
    is_synced = False
    try:
        segments = [segment for shared in begun for segment in shared.tail if segment.dirty or segment is shared.tail[-1]]
        is_synced = sync_together(io, segments)
    except (LogdbError, OSError) as error:  # after a failed sync each log refuses its own
        logger.log(logging.ERROR if isinstance(error, SyncFailed) else logging.DEBUG, "a sync of %d logs: %s", len(begun), error)
    finally:
        for shared in begun:
            (shared.log.syncs.end_shared if is_synced else shared.log.syncs.undo_shared)(shared)
    return is_synced
