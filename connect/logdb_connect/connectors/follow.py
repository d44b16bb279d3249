"""Follows a text file that grows, is rotated or is truncated: complete lines, and where to continue after them.

A position is a number of bytes.  Beside it stand the file's inode and a mark: a digest of bytes at the file's begin and before the
position.  So a file is known again after a rename; and another file that got the same name or the same inode is not taken for it.

One thread.  Nothing is kept of what was read but not consumed: each read begins at the position.
"""

import fnmatch
import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

from logdb_connect.errors import ConnectError

_log = logging.getLogger(__name__)

_BLOCK = 1 << 18
_ROTATION_S = 1.0
_MARKED = 256
"""Bytes at the begin, and bytes before the position, that the mark is of."""


class Follower:
    """A file, and the position in it.

    Attributes:
        position: Where the next line begins.
    """

    def __init__(self, path: str, *, rotated: str | None = None, line_bytes_max: int = 1 << 24, settle_s: float = 1.0) -> None:
        """Nothing is opened yet.

        Args:
            rotated: A pattern of the names that rotation gives, in the same directory, such as ``app.log.*``.
            settle_s: How long a file that was rotated away must be quiet before the new one is read.
        """
        self._path, self._rotated, self._line_bytes_max, self._settle_s = path, rotated, line_bytes_max, settle_s
        self._descriptor: int | None = None
        self._inode = 0
        self.position = 0
        self._head = self._tail = b""
        self._resumes: Mapping[str, Any] | None = None
        self._successor_seen: float | None = None
        self._missing_since: float | None = None
        self._is_missing = False

    def resume(self, offset: Mapping[str, Any] | None) -> None:
        """Continue at what ``offset`` gave, with the first ``read``."""
        self._resumes = offset

    @property
    def offset(self) -> dict[str, Any]:
        """Where to continue, as JSON values; ``position`` is Kafka's name."""
        return {"position": self.position, "inode": self._inode, "mark": _mark(self._head, self._tail)}

    def read(self) -> bytes:
        """Complete lines after the position, with their ends; none where there are none now.  Gives the same until they are consumed.

        Raises:
            ConnectError: It is no regular file, may not be read, or a line is too long.
        """
        if self._descriptor is None and not self._open():
            return b""
        descriptor = self._descriptor
        assert descriptor is not None
        if not self._is_unchanged(descriptor):
            _log.warning("%s was truncated at or before byte %d: reading it from its start", self._path, self.position)
            self._begin(descriptor, 0)
        block = os.pread(descriptor, _BLOCK, self.position)
        while not (end := end_of_lines(block)) and len(block) % _BLOCK == 0 and block:
            if len(block) > self._line_bytes_max:
                break
            if not (more := os.pread(descriptor, _BLOCK, self.position + len(block))):
                break
            block += more
        if len(block) > self._line_bytes_max:
            self._check_lengths(block[:end] or block)
        if not end and self._is_rotated_away(descriptor, len(block)):
            if block:
                return block  # the last line of a finished file
            self._next(descriptor)
        return block[:end]

    def consume(self, data: bytes) -> None:
        """Move the position behind ``data``, which ``read`` gave."""
        self.position += len(data)
        if len(self._head) < _MARKED:
            self._head = (self._head + data[:_MARKED])[:_MARKED]
        self._tail = data[-_MARKED:] if len(data) >= _MARKED else (self._tail + data)[-_MARKED:]

    def close(self) -> None:
        """Close the file; ``read`` would open it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    # Opening ------------------------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        offset, descriptor = self._resumes, _opened(self._path)
        if offset is None:
            if descriptor is not None:
                self._begin(descriptor, 0)
        elif (found := self._found(offset, descriptor)) is not None:
            if descriptor is not None and descriptor != found:
                os.close(descriptor)
            self._begin(found, int(offset["position"]))
            descriptor = found
        elif descriptor is not None:
            _log.warning("The file that was read as %s is gone: reading the present one from its start", self._path)
            self._begin(descriptor, 0)
        if descriptor is None:
            if not self._is_missing:
                _log.warning("Couldn't find file %s for FileStreamSourceTask, sleeping to wait for it to be created", self._path)
            self._is_missing = True
            return False
        self._resumes, self._is_missing = None, False
        return True

    def _found(self, offset: Mapping[str, Any], present: int | None) -> int | None:
        """The file that ``offset`` is of: the one with the name, or a renamed one; else one with the same content."""
        position, inode, mark = int(offset["position"]), offset.get("inode"), offset.get("mark")
        if present is not None and (inode is None or os.fstat(present).st_ino == inode):
            return present if _matches(present, position, mark) else None
        for path in self._beside():
            if path.stat().st_ino == inode and (descriptor := _opened(path.path)) is not None:
                if _matches(descriptor, position, mark):
                    return descriptor
                os.close(descriptor)
        return present if present is not None and mark is not None and position and _matches(present, position, mark) else None

    def _begin(self, descriptor: int, position: int) -> None:
        self._descriptor, self.position = descriptor, position
        self._inode = os.fstat(descriptor).st_ino
        self._head, self._tail = _ends(descriptor, position)
        self._successor_seen = None

    # The end of a file --------------------------------------------------------------------------------------------------------

    def _is_unchanged(self, descriptor: int) -> bool:
        return _ends(descriptor, self.position) == (self._head, self._tail)

    def _is_rotated_away(self, descriptor: int, unfinished: int) -> bool:
        """Whether another file has the name and something in it, and this one has been quiet since."""
        try:
            successor = os.stat(self._path)
        except FileNotFoundError:
            self._tell_missing()
            return False
        self._missing_since, self._is_missing = None, False
        if successor.st_ino == self._inode or not successor.st_size:
            self._successor_seen = None
            return False
        now = time.monotonic()
        if self._successor_seen is None:
            self._successor_seen = now
        written = os.fstat(descriptor)
        if written.st_size != self.position + unfinished:
            return False
        quiet_s = time.time() - written.st_mtime
        return min(now - self._successor_seen, max(quiet_s, 0)) >= self._settle_s

    def _tell_missing(self) -> None:
        """Warn once of a name that stays without a file; a rotation soon gives it another one."""
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if not self._is_missing and now - self._missing_since >= _ROTATION_S:
            self._is_missing = True
            _log.warning("The file %s is gone: waiting for another one of this name", self._path)

    def _next(self, finished: int) -> None:
        """To the file that follows a finished one."""
        offset, was = self.offset, os.fstat(finished)
        self.close()
        if was.st_nlink == 0 and (present := _opened(self._path)) is not None:
            if self.position and _matches(present, self.position, offset["mark"]):
                self._begin(present, self.position)  # an editor saved the file under its name
                return
            os.close(present)
        later = sorted(
            (written_ns, each.path)
            for each in self._beside()
            if each.stat().st_ino != was.st_ino and (written_ns := each.stat().st_mtime_ns) > was.st_mtime_ns
        )
        matching = [path for _, path in later if self._rotated and fnmatch.fnmatchcase(os.path.basename(path), self._rotated)]
        path = matching[0] if matching else self._path
        name = os.path.basename(self._path)
        if self._rotated is None and (missed := [other for _, other in later if os.path.basename(other).startswith(name)]):
            _log.warning("%s may be rotated files that are not read: set rotated.file.pattern to read them", ", ".join(missed))
        if (descriptor := _opened(path)) is not None:
            self._begin(descriptor, 0)

    def _beside(self) -> Iterator["os.DirEntry[str]"]:
        """Regular files in the directory of the file, other than the file itself."""
        here = os.path.dirname(os.path.realpath(self._path))
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and entry.name != os.path.basename(self._path):
                    yield entry

    def _check_lengths(self, block: bytes) -> None:
        place = self.position
        for line in block.splitlines(keepends=True):
            if len(line) > self._line_bytes_max:
                raise ConnectError(
                    f"The line at byte {place} of {self._path} has more than line.max.bytes={self._line_bytes_max} bytes. "
                    "Raise line.max.bytes, or correct the file; the task then continues with this line."
                )
            place += len(line)


def _opened(path: str) -> int | None:
    """A descriptor of a regular file, or None where there is none of this name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe's open would wait
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConnectError(f"Cannot read {path}: {error.strerror}. Correct the file or its permissions, then restart the task.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConnectError(f"Cannot follow {path}: it must be a regular file. Leave out `file` to read the standard input.")
    return descriptor


def end_of_lines(block: bytes) -> int:
    r"""The length of what consists of complete lines.  A line ends with \n, \r\n or \r; a last \r may be half of \r\n."""
    end = block.rfind(b"\n") + 1
    return max(end, block.rfind(b"\r", end, len(block) - 1) + 1)


def _ends(descriptor: int, position: int) -> tuple[bytes, bytes]:
    marked = min(position, _MARKED)
    return os.pread(descriptor, marked, 0), os.pread(descriptor, marked, position - marked)


def _mark(head: bytes, tail: bytes) -> str:
    return hashlib.blake2b(head + tail, digest_size=8).hexdigest()


def _matches(descriptor: int, position: int, mark: str | None) -> bool:
    if os.fstat(descriptor).st_size < position:
        return False
    return mark is None or _mark(*_ends(descriptor, position)) == mark
