"""The files of a table's directory: durable writes, names of data files, and the FileIO that pyiceberg writes through."""

import contextlib
import io
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from pyiceberg.io import FileIO, InputFile, OutputFile

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


def write_through(path: str, write: Callable[[IO[bytes]], None]) -> str:
    """Write a temporary file beside ``path``, synced; returns its path."""
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    with open(temporary, "xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def link(source: str, target: str) -> None:
    """Give the file ``source`` the further name ``target``; another file of that name, which may be damaged, is replaced."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samefile(source, target):
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
        return open(path_of(self.location), "rb")


class _SyncedFile(io.FileIO):
    """Is synced when it is closed."""

    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
        super().close()


class _Output(OutputFile):
    def __len__(self) -> int:
        return os.path.getsize(path_of(self.location))

    def exists(self) -> bool:
        return os.path.exists(path_of(self.location))

    def to_input_file(self) -> InputFile:
        return _Input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        return _SyncedFile(path_of(self.location), "w" if overwrite else "x")


class SyncedFileIO(FileIO):
    """Local files; what is written is durable when its file is closed."""

    def new_input(self, location: str) -> InputFile:
        return _Input(location)

    def new_output(self, location: str) -> OutputFile:
        return _Output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        os.unlink(path_of(location if isinstance(location, str) else location.location))


def names_in(path: str) -> set[str]:
    """The names of the files in a directory."""
    return {entry.name for entry in Path(path).iterdir()}
