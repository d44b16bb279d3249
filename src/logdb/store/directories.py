"""Directories that are created and removed as a whole.

A directory is built under a temporary name beside its final one, and renamed when everything in it is durable: after a
kill the final name does not exist.  While it is built it holds an empty, locked (flock) file ``BUILDING.tmp``; if no
process holds that lock, the process that built the directory is dead.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from stat import S_IMODE, S_IRWXG, S_IRWXO, S_ISDIR, S_ISLNK, S_ISREG

from logdb.disk import File, changing, exists, looking, sync_directory
from logdb.errors import DirectoryLocked, DiskFull, LogdbError, TargetInside, TargetNotEmpty, WriteFailed
from logdb.io import IO

logger = logging.getLogger(__name__)

UNFINISHED = (".tmp", "-delete")  # suffixes of directories that are not complete yet, or partly removed
_OTHERS = S_IRWXG | S_IRWXO
_BUILDING = "BUILDING.tmp"


def make_directory(io: IO, path: str) -> None:
    """Make a directory and its missing parents, each durable in its own parent."""
    parent = os.path.dirname(path)
    if exists(io, path):
        return
    make_directory(io, parent)
    with changing(path), contextlib.suppress(FileExistsError):  # another process made it meanwhile
        io.mkdir(path, apart=True)
    try:
        sync_directory(io, parent)
    except (DiskFull, WriteFailed):  # otherwise the next try would take it for durable
        with contextlib.suppress(OSError):
            io.rmdir(path)
        raise


def remove_tree(io: IO, path: str) -> None:
    """Remove a file, or a directory with all that is in it.

    Raises:
        DiskFull, WriteFailed: Part of it is left.
    """
    with changing(path):
        if S_ISDIR(os.lstat(path).st_mode):
            for name in io.listdir(path):
                remove_tree(io, os.path.join(path, name))
            io.rmdir(path)
        else:
            io.unlink(path)


def is_private(io: IO, path: str) -> bool:
    """Whether only its owner may access a file or directory."""
    with looking(path):
        return not io.mode(path) & _OTHERS


def make_private(io: IO, path: str) -> None:
    """Remove all rights of others to a directory and everything in it, unless it has none; ``path`` may be a symbolic link.

    The directory comes first, so that files created meanwhile are private.  What a link in it leads to stays as it is.

    Raises:
        WriteFailed: It belongs to another user.
    """
    if not is_private(io, path):
        _remove_rights(io, os.path.realpath(path))


def _remove_rights(io: IO, path: str) -> None:
    names: list[str] = []
    with changing(path), contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
        mode = io.mode(path, follow_link=False)
        if S_ISLNK(mode):
            logger.warning("%s is a symbolic link: the modes of its target stay, other users may be able to read it", path)
            return
        if not (S_ISREG(mode) or S_ISDIR(mode)):
            return  # a socket or a pipe of somebody else
        if mode & _OTHERS:
            io.chmod(path, S_IMODE(mode) & ~_OTHERS)
        names = io.listdir(path) if S_ISDIR(mode) else []
    for name in names:
        _remove_rights(io, os.path.join(path, name))


def close_to_others(io: IO, path: str) -> None:
    """As ``make_private``, of a directory that was made before it held secrets; a failure is logged."""
    try:
        make_private(io, path)
    except LogdbError as error:
        logger.warning("%s may be read by others on this machine: %s", path, error)


@contextlib.contextmanager
def building(io: IO, target: str, *, private: bool = False) -> Iterator[str]:
    """Yield a temporary directory that becomes ``target``, durably, when the block ends; after an error there is no ``target``.

    The block syncs the directories in it; its own entries are synced here.

    Args:
        private: Only its owner may read it, as the source.

    Raises:
        TargetNotEmpty: ``target``, or the temporary name, exists and is something else.
        DirectoryLocked: Another process is building it.
        DiskFull, WriteFailed, SyncFailed: see ``logdb.errors``.
    """
    parent, temporary = os.path.dirname(target), f"{target}.tmp"
    check_empty(io, target)
    make_directory(io, parent)
    with _begin(io, temporary, private=private):
        try:
            yield temporary
            sync_directory(io, temporary)
            with changing(target):
                io.rename(temporary, target)
        except BaseException:
            _discard(io, temporary)
            raise
        try:
            sync_directory(io, parent)
        except (DiskFull, WriteFailed):  # after a failed sync it may be durable
            _discard(io, target)
            raise
        with contextlib.suppress(OSError):  # a leftover file does no harm
            io.unlink(os.path.join(target, _BUILDING))


def _discard(io: IO, path: str) -> None:
    """Remove an unfinished directory as far as possible: the next try removes the rest."""
    with contextlib.suppress(OSError, LogdbError):
        remove_tree(io, path)


def check_outside(target: str, path: str) -> None:
    """Raise TargetInside if ``target`` is in the database at ``path``."""
    if os.path.commonpath((os.path.realpath(target), os.path.realpath(path))) == os.path.realpath(path):
        raise TargetInside(target, path)


def check_empty(io: IO, target: str) -> None:
    """Raise TargetNotEmpty if ``target`` is neither missing nor an empty directory."""
    with looking(target):
        try:
            taken = bool(io.listdir(target))
        except FileNotFoundError:
            taken = False
        except (NotADirectoryError, PermissionError):  # a file, or a directory of another user
            taken = True
    if taken:
        raise TargetNotEmpty(target)


def _begin(io: IO, temporary: str, *, private: bool) -> File:
    """Make the temporary directory, after removing the one of a killed process; returns the locked file."""
    mark = os.path.join(temporary, _BUILDING)
    if exists(io, temporary):
        if exists(io, mark):
            _lock(io, mark).close()
            remove_tree(io, temporary)
        else:
            check_empty(io, temporary)
            with changing(temporary):
                io.rmdir(temporary)
    with changing(temporary):
        io.mkdir(temporary, apart=True)
        if private:
            io.chmod(temporary, S_IMODE(io.mode(temporary)) & ~_OTHERS)
    try:
        locked = _lock(io, mark)
    except BaseException:
        with contextlib.suppress(OSError):
            io.rmdir(temporary)
        raise
    try:
        sync_directory(io, temporary)  # before anything else is in it: after a power cut the next try must recognise it
    except BaseException:
        locked.close()
        raise
    return locked


def _lock(io: IO, mark: str) -> File:
    file = File(io, mark, os.O_RDWR | os.O_CREAT)
    try:
        if file.lock():
            return file
    except BaseException:
        file.close()
        raise
    file.close()
    raise DirectoryLocked(os.path.dirname(mark), pid=0, host="", since="")
