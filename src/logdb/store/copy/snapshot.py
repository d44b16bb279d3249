"""``db.snapshot``: a frozen copy of a database, made while it is written to.

The steps:

    1. buffered records are written, active segments over 64 MiB are rolled, rolled segments are sealed
    2. with the transaction lock held exclusively: the end of every partition is captured
    3. while no file may be removed: all files are linked into a directory built beside the target
    4. the source continues: active segments are copied up to their captured ends, small files are written
    5. the catalogue, then ``SNAPSHOT``, then the directories are synced
    6. the directory is renamed to the target: the commit point
"""

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from logdb.disk import changing, device, write_file
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.requests.report import Copied, Progress
from logdb.store.copy import frozen as freezing
from logdb.store.copy import snapshot_file
from logdb.store.copy.frozen import Frozen, FrozenLog
from logdb.store.copy.snapshot_file import SnapshotFile
from logdb.store.directories import building, check_empty, check_outside, is_private, remove_tree

if TYPE_CHECKING:
    from logdb.store.store import Store

logger = logging.getLogger(__name__)


def snapshot(store: "Store", target: str, progress: Progress | None = None) -> Copied:
    """Make a snapshot of an open database in the directory ``target``; see ``Database.snapshot``."""
    io, target = store.io, os.path.abspath(target)
    check_outside(target, store.path)
    check_empty(io, target)
    with building(io, target, private=is_private(io, store.path)) as path:
        if store.mode == "a" and device(io, path) != device(io, store.path):
            with held(store) as frozen:
                return _write(io, frozen, path, store.clock_ms(), progress)._replace(path=target)
        with freezing.freeze(store) as current:
            frozen = replace(current, logs=[freezing.hold(io, log, os.path.join(path, log.name)) for log in current.logs])
        return _write(io, frozen, path, store.clock_ms(), progress)._replace(path=target)


@contextlib.contextmanager
def held(store: "Store") -> Iterator[Frozen]:
    """The database at this moment; its files are linked in a temporary directory until the block ends.

    A database that is open for reading is used as it is, since no process writes to it.
    """
    if store.mode == "r":
        with freezing.freeze(store) as current:
            yield current
        return
    io, directory = store.io, os.path.join(store.path, f"{uuid.uuid4()}.tmp")
    with changing(directory):
        io.mkdir(directory)
    try:
        with freezing.freeze(store) as current:
            frozen = replace(current, logs=[freezing.hold(io, log, os.path.join(directory, log.name)) for log in current.logs])
        yield frozen
    finally:
        try:
            remove_tree(io, directory)
        except LogdbError as error:  # the next opening removes it
            logger.warning("removing the links that were held: %s", error)


def _write(io: IO, frozen: Frozen, path: str, created_ms: int, progress: Progress | None) -> Copied:
    """Complete the directories in ``path``, copy the files that were not linked, and write the catalogue and ``SNAPSHOT``."""
    tell = _teller(frozen, path, progress)
    for log in frozen.logs:
        directory = os.path.join(path, log.name)
        if log.directory == directory:
            freezing.complete(io, log, directory, tell)
        else:
            freezing.copy(io, log, directory, tell)
    size_bytes, crc = freezing.write_catalogue(io, path, frozen)
    mark = SnapshotFile(str(uuid.uuid4()), frozen.database_id, created_ms, size_bytes, crc)
    write_file(io, os.path.join(path, snapshot_file.FILE_NAME), snapshot_file.encode(mark))
    written = sum(_size_to_copy(log, path) for log in frozen.logs)
    return Copied(path, mark.snapshot_id, len(frozen.logs), frozen.size_bytes, written)


def _teller(frozen: Frozen, path: str, progress: Progress | None) -> freezing.Tell:
    """A function that counts the copied bytes for ``progress``."""
    done, total = 0, sum(_size_to_copy(log, path) for log in frozen.logs)

    def tell(file: str, size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        if progress is not None:
            progress(min(done, total), total, os.path.relpath(file, path))

    return tell


def _size_to_copy(log: FrozenLog, path: str) -> int:
    """Bytes of segments that were not linked."""
    linked = os.path.dirname(log.directory) == path
    return log.end.position if linked and log.tail_path else 0 if linked else log.size_bytes
