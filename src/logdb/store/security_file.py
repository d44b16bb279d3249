"""The file ``security.json``: the document of users, tokens, ACLs and quotas of one directory.

It is readable by its owner only, as all of the directory is from the first change on.  A change replaces the whole file, synced, so a
crash leaves the old or the new one.  A process that changes it holds the lock of ``security.lock``; readers need no lock.
``access.security_document`` has the format of its bytes.

A reader looks at the file every ``LOOK_MS``; ``change`` waits for as long before it returns.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from logdb.disk import File, changing, looking, read_file, replace_file
from logdb.errors import DirectoryLocked, InvalidSecurity, LogdbError, ReadFailed
from logdb.io import IO
from logdb.store.directories import make_private
from logdb.store.json_line import SECURITY_FILE_NAME, SECURITY_LOCK_NAME, SECURITY_SIZE_BYTES_MAX
from logdb.threads import renewed

LOOK_MS = 10
_LOCK_WAIT_S, _LOCK_POLL_S = 10.0, 0.005
_UNREAD = (-1,)  # the version of no file

T = TypeVar("T")


class SecurityFile:
    """The document of one directory, in its file; see ``protocols.SecurityDocument``.

    Threading: any number of threads, and of processes.
    """

    def __init__(self, io: IO, directory: str) -> None:
        self._io, self._directory, self.name = io, directory, os.path.join(directory, SECURITY_FILE_NAME)

    def read(self) -> bytes | None:
        """The document; None where there is none.  Raises ReadFailed."""
        try:
            return read_file(self._io, self.name, SECURITY_SIZE_BYTES_MAX)
        except FileNotFoundError:
            return None

    def follow(self, take: Callable[[bytes | None], None]) -> "Watched":
        return Watched(self._io, self.name, take)

    def change(self, edit: "Callable[[bytes | None], tuple[bytes, T]]") -> T:
        """Change the file, or create it.

        Raises:
            DirectoryLocked: Another process has held the lock for ten seconds.
            InvalidSecurity: The new document is larger than readers accept.
            DiskFull, WriteFailed, SyncFailed: The file is unchanged.
        """
        with _locked(self._io, os.path.join(self._directory, SECURITY_LOCK_NAME)):
            data, result = edit(self.read())
            if len(data) > SECURITY_SIZE_BYTES_MAX:
                raise InvalidSecurity(f"{self.name} would have {len(data)} bytes: must be at most {SECURITY_SIZE_BYTES_MAX}")
            make_private(self._io, self._directory)
            with changing(self.name):
                with contextlib.suppress(FileNotFoundError):  # of a call that was killed, or of somebody else, with another mode
                    self._io.unlink(self.name + ".tmp")
                File(self._io, self.name + ".tmp", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600).close()
            replace_file(self._io, self.name, data)
        time.sleep((LOOK_MS + 1) / 1000)  # clocks of ms are up to one behind
        return result


@contextlib.contextmanager
def _locked(io: IO, path: str) -> Iterator[None]:
    with changing(path):
        file = File(io, path, os.O_RDWR | os.O_CREAT, 0o600)
    with file:
        until = time.monotonic() + _LOCK_WAIT_S
        while not file.lock():
            if time.monotonic() >= until:
                raise DirectoryLocked(path, pid=0, host="", since="")
            time.sleep(_LOCK_POLL_S)
        try:
            yield
        finally:
            file.unlock()


class Watched:
    """The file as it was at most ``LOOK_MS`` ago; read again whenever it was replaced.

    The file stays open, so that no other file gets its inode number: a stat of the name tells whether it was replaced.

    Threading: any number of threads.
    """

    def __init__(self, io: IO, path: str, take: Callable[[bytes | None], None]) -> None:
        """Nothing is read yet.

        Args:
            take: Called with the content; None: the file is absent.  It may raise that the content is damaged.
        """
        self._io, self.path, self._take = io, path, take
        self._lock = renewed(threading.Lock())
        self._file: File | None = None
        self._version: tuple[int, ...] | None = _UNREAD
        self._looked_ms = -LOOK_MS

    def refresh(self) -> None:
        """Call ``take`` if the file was replaced; looks once in ``LOOK_MS``.

        Raises:
            LogdbError: What ``take`` raises; the file is read again when it was replaced.
            ReadFailed: The file cannot be read; the next look tries again.
        """
        now_ms = self._io.monotonic_ms()
        if now_ms - self._looked_ms < LOOK_MS:
            return
        with self._lock:
            with looking(self.path):
                version = self._io.path_version(self.path)
            try:
                if version != self._version:
                    self._take(self._read())
                    self._version = version
            except ReadFailed:
                raise
            except LogdbError:
                self._version = version  # a damaged file is not read twice
                raise
            finally:
                self._looked_ms = now_ms

    @property
    def is_there(self) -> bool:
        """Whether the file existed at the last look."""
        return self._file is not None

    def _read(self) -> bytes | None:
        self._let_go()
        try:
            self._file = File(self._io, self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        return self._file.content(SECURITY_SIZE_BYTES_MAX)

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close the file; ``take`` is not called any more."""
        with self._lock:
            self._let_go()
