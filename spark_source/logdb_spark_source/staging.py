"""Staged files: record batches on their way from Spark's tasks to the driver, one private file for each attempt of a task.

A staged file has only batches, back to back; its ``Staged``, which the task sends to the driver through Spark, has their partitions,
positions and checksums.  So a file counts only if its task's attempt does, and every byte is checked against a checksum that came
another way.  Files are not synced: after a power cut Spark runs the tasks again.

    <random>.staged     mode 0600; removed when the batch is committed or aborted, otherwise when it is a week old
    .token              a random number that the driver makes: a task that finds it shares the directory with the driver
"""

import contextlib
import errno
import os
import socket
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from logdb.codec import crc32c
from logdb.errors import CorruptionError, DiskFull, LogdbError, WriteFailed
from logdb.model import Buffer, TopicPartition

SUFFIX = ".staged"
_TOKEN = ".token"  # noqa: S105 -- it is no secret
REAP_AGE_S = 7 * 24 * 3_600
GROUP_SIZE_BYTES = 1 << 20  # per append, about; a log at level fsync syncs as much at once


class StagedFileMissing(LogdbError):
    """The driver cannot find a task's staged file; no record of the batch was committed."""

    def __init__(self, path: str, written_on: str) -> None:
        super().__init__(
            f"the staged file {path}, which a task on {written_on} wrote, was removed before the commit on {socket.gethostname()}."
            " Nothing of the batch was written: run the write, or start the query, again"
        )
        self.path, self.written_on = path, written_on


class StagingNotShared(LogdbError):
    """A task does not see the directory in which the driver looks for its staged files; nothing was written."""

    def __init__(self, directory: str, driver: str, found: str) -> None:
        super().__init__(
            f"on host {socket.gethostname()}: {directory} is not the directory of that name on the driver's host {driver}: {found}."
            " stagingPath must name a directory that driver and executors share. With url, leave stagingPath out: tasks then upload to the"
            " server"
        )
        self.directory, self.driver = directory, driver


class SharedDirectory(NamedTuple):
    """The directory of staged files as the driver sees it; ``token`` is in it, whatever the names of hosts and paths."""

    path: str
    driver: str
    token: str

    @classmethod
    def made(cls, path: str) -> "SharedDirectory":
        """On the driver: make the directory and its token, if they are missing.

        Raises:
            DiskFull, WriteFailed: The directory or the disk refuses them.
        """
        token_path = os.path.join(path, _TOKEN)
        with named_errors(token_path):
            make_directory(path)
            if not os.path.exists(token_path):
                unfinished = os.path.join(path, uuid.uuid4().hex + SUFFIX)
                try:
                    with open(unfinished, "x", encoding="ascii") as file:
                        file.write(uuid.uuid4().hex)
                    with contextlib.suppress(FileExistsError):  # another driver was faster
                        os.link(unfinished, token_path)
                finally:
                    remove(unfinished)
            return cls(path, socket.gethostname(), _read_token(token_path))

    def check(self) -> None:
        """In a task: return if this is the driver's directory.

        Raises:
            StagingNotShared: It is missing here, or another one.
        """
        try:
            found = _read_token(os.path.join(self.path, _TOKEN))
        except OSError as error:
            raise StagingNotShared(self.path, self.driver, error.strerror or str(error)) from None
        if found != self.token:
            raise StagingNotShared(self.path, self.driver, "they have different tokens (.token)")


def _read_token(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(64)


class Piece(NamedTuple):
    """Contiguous whole batches of one partition in a staged file."""

    partition: TopicPartition
    position: int
    size_bytes: int
    crc: int


class Staged(NamedTuple):
    """The output of one attempt of a task; ``pieces`` in the order of its rows, empty without rows.

    ``host``: the machine that wrote it.
    """

    path: str
    host: str
    pieces: tuple[Piece, ...]
    record_count: int

    @property
    def size_bytes(self) -> int:
        last = self.pieces[-1] if self.pieces else None
        return 0 if last is None else last.position + last.size_bytes


class StagingFile:
    """The file of one attempt of a task; created with the first batches.  Threading: one thread."""

    def __init__(self, directory: str) -> None:
        self._directory, self._path = directory, os.path.join(directory, uuid.uuid4().hex + SUFFIX)
        self._fd = -1
        self._pieces: list[Piece] = []
        self._size_bytes = self._record_count = 0

    def add(self, partition: TopicPartition, batches: Buffer, record_count: int) -> None:
        """Write whole batches, uint8[n], borrowed for the call.

        Raises:
            DiskFull, WriteFailed: The directory or the disk refuses the bytes.
        """
        size_bytes = len(batches)
        with named_errors(self._path, size_bytes):
            if self._fd < 0:
                self._open()
            rest = memoryview(batches)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self._pieces.append(Piece(partition, self._size_bytes, size_bytes, crc32c(batches)))
        self._size_bytes += size_bytes
        self._record_count += record_count

    def _open(self) -> None:
        make_directory(self._directory)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def close(self) -> Staged:
        """Close the file; returns its description for the driver."""
        self._close()
        return Staged(self._path, socket.gethostname(), tuple(self._pieces), self._record_count)

    def discard(self) -> None:
        """The attempt has failed: remove the file."""
        if self._fd >= 0:
            self._close()
            remove(self._path)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def make_directory(path: str) -> None:
    """Create the directory of staged files if it is missing; check that other users cannot replace files in it.

    Raises:
        WriteFailed: It belongs to another user, or everybody may remove its files.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.stat(path)
    open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    if open_to_all or found.st_uid not in (os.getuid(), 0):
        owned = f"user {found.st_uid} owns it, with mode {stat.S_IMODE(found.st_mode):o}"
        raise WriteFailed(path, f"{owned}: must be a directory of user {os.getuid()} or of root, writable by its owner only")


@contextlib.contextmanager
def named_errors(path: str, size_bytes: int = 0) -> Iterator[None]:
    """Map errors of changing the file ``path`` to DiskFull or WriteFailed."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(path, size_bytes, error.strerror or str(error)) from error
        raise WriteFailed(path, str(error)) from error


# ---------------------------------------------------------------- on the driver


def check_there(files: Iterable[Staged]) -> None:
    """Check first that all files exist, with their sizes.

    Raises:
        StagedFileMissing: One is missing: the directory is not shared, or was cleaned.
        CorruptionError: One has another size than was written.
    """
    for staged in files:
        if not staged.pieces:
            continue
        try:
            size_bytes = os.stat(staged.path).st_size
        except FileNotFoundError:
            raise StagedFileMissing(staged.path, staged.host) from None
        if size_bytes != staged.size_bytes:
            position = min(size_bytes, staged.size_bytes)
            raise CorruptionError(staged.path, position, f"{staged.size_bytes} bytes were staged, {size_bytes} are there")


def gathered(files: Iterable[Staged]) -> Iterator[tuple[TopicPartition, bytearray]]:
    """The batches of all files, partition by partition, in the order of the files; about ``GROUP_SIZE_BYTES`` at a time.

    Yields:
        A partition and whole batches, uint8[n], the caller's.

    Raises:
        CorruptionError: A checksum does not match.
        StagedFileMissing: A file was removed.
    """
    pieces: dict[TopicPartition, list[tuple[Staged, Piece]]] = {}
    for staged in files:
        for piece in staged.pieces:
            pieces.setdefault(piece.partition, []).append((staged, piece))
    for partition in sorted(pieces):
        group = bytearray()
        for staged, piece in pieces[partition]:
            if group and len(group) + piece.size_bytes > GROUP_SIZE_BYTES:
                yield partition, group
                group = bytearray()
            group += _read(staged, piece)
        yield partition, group


def _read(staged: Staged, piece: Piece) -> bytes:
    try:
        with open(staged.path, "rb", buffering=0) as file:
            batches = os.pread(file.fileno(), piece.size_bytes, piece.position)
    except FileNotFoundError:
        raise StagedFileMissing(staged.path, staged.host) from None
    if len(batches) != piece.size_bytes:
        raise CorruptionError(staged.path, piece.position, f"{piece.size_bytes} bytes were staged, {len(batches)} are there")
    if (crc := crc32c(batches)) != piece.crc:
        raise CorruptionError(staged.path, piece.position, f"CRC of {len(batches)} staged bytes {crc:#010x}, it was {piece.crc:#010x}")
    return batches


def discard(files: Iterable[Staged]) -> None:
    """Remove files that are no longer needed."""
    for staged in files:
        if staged.pieces:
            remove(staged.path)


def remove(path: str) -> None:
    """Remove a file if possible; otherwise it is removed when it is a week old."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def reap(directory: str) -> None:
    """Remove staged files that are a week old: those of killed tasks, of failed attempts, of dead drivers."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            if entry.name.endswith(SUFFIX) and time.time() - entry.stat().st_mtime > REAP_AGE_S:
                remove(entry.path)
