"""Backups that were made to be downloaded, and lie beside the data for a while.

Knows directories and times.  Does not know requests, nor what is in a backup.
"""

import asyncio
import os
import shutil
import uuid
from collections.abc import Iterable

from logdb_http_api.errors import ApiError

KEPT_S = 900.0
_UNKNOWN_BACKUP = 40499


class KeptBackups:
    """All backups of a door.  Used on its loop."""

    def __init__(self) -> None:
        self._directories: dict[str, str] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}

    def begin(self, parent: str) -> tuple[str, str]:
        """The id of a backup that is to be made, and the file: whoever makes it makes its directory first."""
        name = str(uuid.uuid4())
        directory = self._directories[name] = os.path.join(parent, f"{name}.tmp")
        return name, os.path.join(directory, "backup")

    def find(self, name: str) -> str:
        """The file of a backup, which stays for another while.

        Raises:
            ApiError: There is none; 404.
        """
        directory = self._directories.get(name)
        if directory is None:
            raise ApiError(404, _UNKNOWN_BACKUP, f"there is no backup {name[:40]!r} (any more): ask for another one")
        if (end := self._ends.get(name)) is not None:
            end.cancel()
        self._ends[name] = asyncio.get_running_loop().call_later(KEPT_S, self.remove, name)
        return os.path.join(directory, "backup")

    def remove(self, name: str) -> asyncio.Future[None]:
        """Remove a backup, if it is there; off the loop, since a large file takes its time to go."""
        if (end := self._ends.pop(name, None)) is not None:
            end.cancel()
        directories = [directory] if (directory := self._directories.pop(name, None)) is not None else []
        return asyncio.get_running_loop().run_in_executor(None, _remove, directories)

    def close(self) -> None:
        """Remove all; returns when they are gone."""
        for end in self._ends.values():
            end.cancel()
        _remove(self._directories.values())
        self._directories.clear()


def _remove(directories: Iterable[str]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
