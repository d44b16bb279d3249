"""Opening a directory: checks that it is a database, takes its lock, and opens its catalogue.  ``store.store`` does the rest."""

import os
from typing import NamedTuple

from logdb.disk import exists, names_in
from logdb.errors import CatalogueDamaged, NotADatabase, ReadOnly
from logdb.io import IO
from logdb.meta import Catalogue, check_file
from logdb.store import cluster_file, lock, topic_file
from logdb.store.copy import snapshot_file
from logdb.store.copy.snapshot_file import SnapshotFile
from logdb.store.directories import UNFINISHED, make_directory
from logdb.store.lock import LockFile, LockState


class Opened(NamedTuple):
    """A directory that this process may write to, as the last writer left it.

    ``clean``: it was closed, or is new.  ``distrust_cache``: a sync failed, so data read from the page cache may not be on the disk.
    """

    lock_file: LockFile
    catalogue: Catalogue
    clean: bool
    distrust_cache: bool

    def close(self) -> None:
        """Close the catalogue and release the lock."""
        self.catalogue.close()
        self.lock_file.release()


def open_for_writing(io: IO, path: str, *, replicated: bool = False) -> Opened:
    """Lock a directory, which is created if it is missing, and open its catalogue.

    Args:
        replicated: By the node whose directory it is, if it is a cluster's.

    Raises:
        DirectoryLocked, NotADatabase, CatalogueDamaged, UnsupportedFormat: see ``logdb.errors``.
        ReadOnly: It is a snapshot; or a cluster's, and ``replicated`` is False.
    """
    make_directory(io, path)
    try:
        names = set(names_in(io, path))
    except NotADirectoryError:
        raise NotADatabase(f"{path} is no directory") from None
    if snapshot_file.FILE_NAME in names:
        raise ReadOnly(f"{path} is a snapshot: open it with mode='r', or copy it by logdb restore and open the copy")
    if not replicated and (node := cluster_file.load(io, path)) is not None:
        raise ReadOnly(
            f"{path} is that of node {node.node} of the cluster {node.cluster}: serve it by logdb serve --cluster, open it with mode='r', "
            "or take it out of the cluster by logdb cluster leave"
        )
    new = not names - {"LOCK", cluster_file.FILE_NAME, cluster_file.QUORUM_NAME}
    create = not _holds_partitions(io, path, names)  # without partitions, a lost catalogue had no content
    if not new and "LOCK" not in names and "catalogue" not in names and create:
        raise NotADatabase(f"{path} is not empty and holds no logdb database")
    lock_file = LockFile.acquire(io, os.path.join(path, "LOCK"))
    try:
        _check_catalogue(io, path, lock_file.previous)
        catalogue = Catalogue.open(os.path.join(path, "catalogue"), create=create, io=io)
    except BaseException:
        lock_file.release()
        raise
    return Opened(lock_file, catalogue, lock_file.previous.clean or create, lock_file.previous.failed_sync)


def open_for_reading(io: IO, path: str) -> tuple[Catalogue, SnapshotFile | None]:
    """The catalogue of a directory, which another process may be writing to, and the content of ``SNAPSHOT`` if it is a snapshot.

    Raises:
        NotADatabase, CatalogueDamaged, UnsupportedFormat: see ``logdb.errors``.
    """
    lock_path, catalogue_path = os.path.join(path, "LOCK"), os.path.join(path, "catalogue")
    if not exists(io, lock_path) and not exists(io, catalogue_path):
        raise NotADatabase(f"{path} holds no logdb database" if exists(io, path) else f"{path} does not exist")
    snapshot = snapshot_file.load(io, path)
    if snapshot is not None:
        check_file(io, catalogue_path, (snapshot.catalogue_size, snapshot.catalogue_crc))
        return Catalogue.open(catalogue_path, create=False, read_only=True, no_lock=True, io=io), snapshot
    state = lock.read_state(io, lock_path)
    lock.check_format(lock_path, state)
    try:
        _check_catalogue(io, path, state)
    except CatalogueDamaged:
        if lock.read_state(io, lock_path).sequence == state.sequence:  # otherwise a writer came meanwhile
            raise
    return Catalogue.open(catalogue_path, create=False, read_only=True, io=io), None


def _check_catalogue(io: IO, path: str, left: LockState) -> None:
    """Check the catalogue against the checksum of the last clean close; after any other stop there is none."""
    if left.clean and left.catalogue_size is not None and left.catalogue_crc is not None:
        check_file(io, os.path.join(path, "catalogue"), (left.catalogue_size, left.catalogue_crc))


def _holds_partitions(io: IO, path: str, names: set[str]) -> bool:
    whole = (name for name in names if not name.endswith(UNFINISHED))
    return any(exists(io, os.path.join(path, name, topic_file.FILE_NAME)) for name in whole)
