"""Backups for download: their directories beside the data, and the times after which they are removed."""

import asyncio
import os
import shutil
import uuid
from collections.abc import Iterable

from logdb_http_api.errors import ApiError

KEPT_S = 900.0
_UNKNOWN_BACKUP = 40499


class KeptBackups:
    """All backups of a door.

    Threading: the door's event loop.
    """

    def __init__(self) -> None:
        self._directories: dict[str, str] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}

    def begin(self, parent: str) -> tuple[str, str]:
        """The id and the file of a new backup; the caller creates the directory, then the backup."""
        name = str(uuid.uuid4())
        directory = self._directories[name] = os.path.join(parent, f"{name}.tmp")
        return name, os.path.join(directory, "backup")

    def find(self, name: str) -> str:
        """The file of a backup; the time until its removal begins again.

        Raises:
            ApiError: The backup is unknown or was removed; 404.
        """
        directory = self._directories.get(name)
        if directory is None:
            raise unknown_backup(name)
        if (end := self._ends.get(name)) is not None:
            end.cancel()
        self._ends[name] = asyncio.get_running_loop().call_later(KEPT_S, self.remove, name)
        return os.path.join(directory, "backup")

    def remove(self, name: str) -> asyncio.Future[None]:
        """Remove a backup, if it exists; off the loop, because removing a large file takes time."""
        if (end := self._ends.pop(name, None)) is not None:
            end.cancel()
        directories = [directory] if (directory := self._directories.pop(name, None)) is not None else []
        return asyncio.get_running_loop().run_in_executor(None, _remove, directories)

    def close(self) -> None:
        """Remove all backups."""
        for end in self._ends.values():
            end.cancel()
        _remove(self._directories.values())
        self._directories.clear()


def unknown_backup(name: str) -> ApiError:
    """The refusal of a backup that does not exist, or no longer."""
    return ApiError(404, _UNKNOWN_BACKUP, f"backup {name[:40]!r} is unknown or was removed: request another one")


def _remove(directories: Iterable[str]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
