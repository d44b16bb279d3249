"""Directories that are made and removed as a whole.

Knows names and the order in which they become durable.  Does not know what lies in them.

A directory is built under another name beside the one it is to have, and renamed when all in it is durable:
a process that is killed leaves nothing under the name.  While it is built it holds an empty file
``BUILDING.tmp``, locked (flock): one that nobody holds was left by somebody who was killed.
"""

import contextlib
import os
from collections.abc import Iterator
from stat import S_IMODE, S_IRWXG, S_IRWXO, S_ISDIR

from logdb.disk import File, changing, exists, looking, sync_directory
from logdb.errors import DirectoryLocked, DiskFull, LogdbError, TargetInside, TargetNotEmpty, WriteFailed
from logdb.io import IO

UNFINISHED = (".tmp", "-delete")  # how the name of a directory ends that is not all there yet, or any more
_OTHERS = S_IRWXG | S_IRWXO
_BUILDING = "BUILDING.tmp"


def make_directory(io: IO, path: str) -> None:
    """Make a directory, and those above it that are missing, each durable in the one that holds it."""
    parent = os.path.dirname(path)
    if exists(io, path):
        return
    make_directory(io, parent)
    with changing(path), contextlib.suppress(FileExistsError):  # made by somebody else meanwhile
        io.mkdir(path, apart=True)
    try:
        sync_directory(io, parent)
    except (DiskFull, WriteFailed):  # else the next try would take it for durable
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
    """Whether a file or directory is its owner's only."""
    with looking(path):
        return not io.mode(path) & _OTHERS


def make_private(io: IO, path: str) -> None:
    """Take from others all they may do with a directory and what is in it; first with itself, so that what is made meanwhile is private.

    Raises:
        WriteFailed: It is somebody else's.
    """
    names: list[str] = []
    with changing(path), contextlib.suppress(FileNotFoundError):  # it went meanwhile
        mode = io.mode(path)
        io.chmod(path, S_IMODE(mode) & ~_OTHERS)
        names = io.listdir(path) if S_ISDIR(mode) else []
    for name in names:
        make_private(io, os.path.join(path, name))


@contextlib.contextmanager
def building(io: IO, target: str, *, private: bool = False) -> Iterator[str]:
    """Build the directory ``target`` under another name, which is yielded; afterwards it is there, durable, or nothing is.

    What lies directly in it is synced here; directories in it are the caller's to sync.

    Args:
        private: It is its owner's only, as what it is made from.

    Raises:
        TargetNotEmpty: ``target``, or the name it is built under, is taken by something else.
        DirectoryLocked: Somebody is building it.
        DiskFull, WriteFailed, SyncFailed: as they say.
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
        with contextlib.suppress(OSError):  # it does no harm
            io.unlink(os.path.join(target, _BUILDING))


def _discard(io: IO, path: str) -> None:
    """Remove what was built, as far as that can be done: the next try removes the rest."""
    with contextlib.suppress(OSError, LogdbError):
        remove_tree(io, path)


def check_outside(target: str, path: str) -> None:
    """See that ``target`` is not in the database at ``path``; raises TargetInside."""
    if os.path.commonpath((os.path.realpath(target), os.path.realpath(path))) == os.path.realpath(path):
        raise TargetInside(target, path)


def check_empty(io: IO, target: str) -> None:
    """See that a directory can be put there; raises TargetNotEmpty."""
    with looking(target):
        try:
            taken = bool(io.listdir(target))
        except FileNotFoundError:
            taken = False
        except (NotADirectoryError, PermissionError):  # a file, or one of somebody else's
            taken = True
    if taken:
        raise TargetNotEmpty(target)


def _begin(io: IO, temporary: str, *, private: bool) -> File:
    """Make the directory to build in, after removing what one who was killed left there; returns the locked file."""
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
        sync_directory(io, temporary)  # before all else that will be in it, or a power cut might leave what nobody knows
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
