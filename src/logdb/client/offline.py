"""``verify``, ``repair`` and ``restore``: work on a whole directory; imported at their first call, since few programs need them."""

import os
from collections.abc import Iterable

from logdb.client.addresses import path_of
from logdb.io import IO
from logdb.requests.report import Copied, Progress, Report


def verify(path: str | os.PathLike[str], *, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Check every byte of a database's directory; it only reads the files.

    Works on a closed directory, after a crash, and beside a writer.

    Args:
        path: The directory.
        io: What touches the files; for tests.
        progress: Called now and then with the bytes done, the bytes in all, and the path of the file at hand.

    Returns:
        How much was checked, and the problems; ``report.ok`` says whether all is well.

    Raises:
        NotADatabase: The directory holds no database.
        ReadFailed: The process that reads the catalogue failed to start, or ran out of memory or files.  The catalogue may be good.
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
    """Make a database from a backup or a snapshot; it opens for writing.

    Every byte is checked.  Each partition begins a new leader epoch, which separates positions in lost records of the source from
    positions in new ones (``LogTruncated``).

    Args:
        sources: A backup with all backups that it builds on, in any order; or the directory of a snapshot.
        path: A directory that is missing or empty.
        io: What touches the files; for tests.
        progress: as ``verify``.

    Returns:
        The size of the restored database.

    Raises:
        TargetNotEmpty: ``path`` is not empty.
        BackupDamaged, CorruptionError: A byte has changed; ``path`` is removed.
        BackupMismatch: The files are not one full backup and its increments.
        UnsupportedFormat: A newer logdb wrote it.
        ReadFailed: A source is missing, or cannot be read.
        DiskFull, WriteFailed, SyncFailed: No database was made.
    """
    from logdb.store.copy.restore import restore as work

    if isinstance(sources, (str, os.PathLike)):
        sources = (sources,)
    return work([path_of(source) for source in sources], path_of(path), io=io, progress=progress)


def repair(path: str | os.PathLike[str], *, execute: bool = False, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Repair a damaged directory: rebuild catalogue and indexes, and move damaged bytes aside.

    Damaged bytes stay on the disk.  Every good record keeps its offset.

    Args:
        path: The directory.  Close the database first, in all processes.
        execute: Carry it out; otherwise only list the actions in ``report.actions``.
        io, progress: as ``verify``.

    Raises:
        DirectoryLocked: A process has it open for writing.
        ReadOnly: It is a snapshot.
        NotADatabase: The directory holds no database.
    """
    from logdb.store.check.repair import repair as work

    return work(path_of(path), execute=execute, io=io, progress=progress)
