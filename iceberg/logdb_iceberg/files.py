"""The files of a table's directory: durable writes, names of data files, and the FileIO that pyiceberg writes through."""

import contextlib
import errno
import io
import os
import re
import stat
import uuid
from collections.abc import Callable
from typing import IO, Any, NamedTuple

from pyiceberg.io import FileIO, InputFile, OutputFile

from logdb import io as logdb_io
from logdb.errors import CorruptionError, ReadFailed
from logdb.store.tables import METADATA_SIZE_BYTES_MAX

_DATA_FILE = re.compile(r"(\d{5,10})-(\d{20})-(\d{20})-([0-9a-f]{8})(?:-(\d{20}))?\.parquet")
_SCHEME = "file://"


class DataFileName(NamedTuple):
    """What the name of a data file says: the offsets of its segment; ``from_offset``: it has the records from there on."""

    partition: int
    base_offset: int
    next_offset: int
    crc: int
    from_offset: int | None = None

    def __str__(self) -> str:
        after = "" if self.from_offset is None else f"-{self.from_offset:020d}"
        return f"{self.partition:05d}-{self.base_offset:020d}-{self.next_offset:020d}-{self.crc:08x}{after}.parquet"

    @classmethod
    def of(cls, name: str) -> "DataFileName":
        """Raises ValueError."""
        if (found := _DATA_FILE.fullmatch(name)) is None:
            raise ValueError(f"{name!r} is not the name of a data file of logdb")
        partition, base, following, crc, start = found.groups()
        return cls(int(partition), int(base), int(following), int(crc, 16), None if start is None else int(start))


def location_of(path: str) -> str:
    """The location of a local path, as manifests have it."""
    return _SCHEME + path


def path_of(location: str) -> str:
    return location.removeprefix(_SCHEME)


# ---------------------------------------------------------------- durable steps


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: str) -> None:
    """Make a directory that only the user may read, and its parent, durably."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        make_directory(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        sync_directory(parent)


def opened(path: str) -> IO[bytes]:
    """A file, for reading.

    Raises:
        FileNotFoundError: There is none.
        CorruptionError: It is a pipe, a socket or a device.
        ReadFailed: It is a symbolic link, or cannot be opened.
    """
    try:
        return os.fdopen(logdb_io.IO().open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
    except FileNotFoundError:
        raise
    except logdb_io.NotRegular as error:
        raise CorruptionError(path, 0, str(error.strerror)) from error
    except OSError as error:
        raise ReadFailed(path, 0, "it is a symbolic link" if error.errno == errno.ELOOP else str(error)) from error


def write_through(path: str, write: Callable[[IO[bytes]], None]) -> str:
    """Write a temporary file beside ``path``, synced; returns its path."""
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    with open(temporary, "xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def is_link(source: str, target: str) -> bool:
    """Whether ``target`` is a further name of the file ``source``."""
    try:
        return os.path.samestat(os.lstat(source), os.lstat(target))
    except FileNotFoundError:
        return False


def size_bytes_of(path: str) -> int | None:
    """The size of a regular file; None if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def link(source: str, target: str) -> None:
    """Give the file ``source`` the further name ``target``; another file of that name, which may be damaged, is replaced."""
    if is_link(source, target):
        return
    temporary = f"{target}.{uuid.uuid4().hex[:8]}.tmp"
    os.link(source, temporary)
    os.replace(temporary, target)


# ---------------------------------------------------------------- pyiceberg


class _Input(InputFile):
    def __len__(self) -> int:
        return os.path.getsize(path_of(self.location))

    def exists(self) -> bool:
        return os.path.exists(path_of(self.location))

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 -- as pyiceberg calls it
        file = opened(path_of(self.location))
        if (size_bytes := os.fstat(file.fileno()).st_size) > METADATA_SIZE_BYTES_MAX:  # pyiceberg reads it as a whole
            file.close()
            raise CorruptionError(path_of(self.location), 0, f"it has {size_bytes} bytes: must be at most {METADATA_SIZE_BYTES_MAX}")
        return file


class _SyncedFile(io.FileIO):
    """Is synced when it is closed."""

    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
        super().close()


def _opened_itself(path: str, flags: int) -> int:
    return logdb_io.IO().open(path, flags | os.O_NOFOLLOW, 0o666)


class _Output(OutputFile):
    def __len__(self) -> int:
        return os.path.getsize(path_of(self.location))

    def exists(self) -> bool:
        return os.path.exists(path_of(self.location))

    def to_input_file(self) -> InputFile:
        return _Input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        return _SyncedFile(path_of(self.location), "w" if overwrite else "x", opener=_opened_itself)


class SyncedFileIO(FileIO):
    """Local files; what is written is durable when its file is closed."""

    def new_input(self, location: str) -> InputFile:
        return _Input(location)

    def new_output(self, location: str) -> OutputFile:
        return _Output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        os.unlink(path_of(location if isinstance(location, str) else location.location))


def remove_files(directory: str, is_removed: Callable[[str], bool]) -> None:
    """Remove files of a directory by their names; raises OSError if it is a symbolic link."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in os.listdir(fd):
            if is_removed(name):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
