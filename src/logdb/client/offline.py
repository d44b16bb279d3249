"""Checking and mending a directory as a whole.

Knows nothing itself: what does the work is imported when it is called, since few programs call it.
"""

import os
from collections.abc import Iterable

from logdb.client.addresses import path_of
from logdb.io import IO
from logdb.store.check.report import Copied, Progress, Report


def verify(path: str | os.PathLike[str], *, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Check every byte of a database's directory against its neighbours; changes nothing.

    Works on a closed directory, on one that a crash left, and beside a living writer.

    Args:
        path: The directory.
        io: What touches the files; for tests.
        progress: Called now and then with bytes done, bytes in all, and what is being looked at.

    Returns:
        What was looked at and what is wrong; ``report.ok`` where nothing is.

    Raises:
        NotADatabase: There is none.
    """
    from logdb.store.check.verify import verify as work

    return work(path_of(path), io=io, progress=progress)


def restore(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    io: IO | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Make a database of a backup or a snapshot; afterwards it opens for writing.

    Every byte is checked.  Each partition begins a new leader epoch, so that a position in what was
    lost behind its end is told from one in what will be written (``LogTruncated``).

    Args:
        sources: A backup's file, with all those that it goes onto, in any order; or the directory of a snapshot.
        path: A directory that is not there yet, or empty.
        io: What touches the files; for tests.
        progress: as ``verify``.

    Returns:
        How much was restored.

    Raises:
        TargetNotEmpty: Something is there already.
        BackupDamaged, CorruptionError: A byte is not as it was written; nothing is left in ``path``.
        BackupMismatch: The files are not one full backup and the increments onto it.
        UnsupportedFormat: A newer logdb wrote it.
        ReadFailed: A source is not there, or cannot be read.
        DiskFull, WriteFailed, SyncFailed: There is no database.
    """
    from logdb.store.copy.restore import restore as work

    if isinstance(sources, (str, os.PathLike)):
        sources = (sources,)
    return work([path_of(source) for source in sources], path_of(path), io=io, progress=progress)


def repair(path: str | os.PathLike[str], *, execute: bool = False, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Mend a damaged directory: rebuild catalogue and indexes, and move damaged bytes aside.

    Never deletes what it cannot read.  Every good record stays readable under its offset.

    Args:
        path: The directory; nobody else may have it open.
        execute: Do it; otherwise only say in ``report.actions`` what would be done.
        io, progress: as ``verify``.

    Raises:
        DirectoryLocked: Somebody has it open for writing.
        ReadOnly: It is a snapshot.
        NotADatabase: There is none.
    """
    from logdb.store.check.repair import repair as work

    return work(path_of(path), execute=execute, io=io, progress=progress)
