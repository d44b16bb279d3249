"""The disks of a cluster's nodes, under real processes: faulty_libc.so is loaded into them, and a byte says what their calls meet."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Trouble = Literal["hangs", "fails", "is full", "writes short"]
_SWITCH: dict[Trouble, bytes] = {"hangs": b"h", "fails": b"e", "is full": b"f", "writes short": b"s"}
_WELL = b"\0"


class NodeDisk:
    """What the calls of a node's processes under ``root`` meet.

    A disk that ``hangs`` does so in syncs, until it is well; one that ``fails`` fails them with EIO.
    """

    def __init__(self, root: Path, library: str) -> None:
        self._root, self._library = root, library
        self._switch = root.parent / "switch"
        self._switch.write_bytes(_WELL)

    @contextlib.contextmanager
    def trouble(self, trouble: Trouble) -> Iterator[None]:
        """In the block, for processes that run and for those that start."""
        self._turn(_SWITCH[trouble])
        try:
            yield
        finally:
            self._turn(_WELL)

    def _turn(self, to: bytes) -> None:
        with self._switch.open("r+b") as file:
            file.write(to)

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that use this disk."""
        return {"LD_PRELOAD": self._library, "LOGDB_FAULT": f"root={self._root}\nswitch={self._switch}"}
