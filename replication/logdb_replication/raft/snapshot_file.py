"""The file of a voter's snapshot: replaced as a whole, and checked before any of it is used."""

import os

from logdb.disk import File, replace_file
from logdb.io import IO
from logdb_replication.raft import snapshots
from logdb_replication.raft.snapshots import Snapshot


class SnapshotFile:
    """The file of the last snapshot; ``index``, ``term``, ``voters`` and ``size_bytes`` are its own, and change together."""

    def __init__(self, io: IO, path: str) -> None:
        """There is one in every voter's directory; raises FileNotFoundError, CorruptionError."""
        self._io, self.path = io, path
        self._open()

    def _open(self) -> None:
        """Check the file and keep it open, so that what is sent of it is one snapshot whatever takes its place."""
        self._file = File(self._io, self.path, os.O_RDONLY)
        snapshot = self.load()
        self.index, self.term, self.voters = snapshot.index, snapshot.term, snapshot.voters

    def load(self) -> Snapshot:
        """The snapshot, checked."""
        data = self._file.content(snapshots.SIZE_BYTES_MAX)
        self.size_bytes = len(data)
        return snapshots.decode(data, self.path)

    def store(self, data: bytes) -> None:
        """Replace the file by the bytes of ``snapshots.encode``, durably; read back and checked.  An error is final: the node stops."""
        replace_file(self._io, self.path, data)
        self._open()

    def read(self, offset: int, size_bytes: int) -> bytes:
        """From any offset, also one that no file can have: nothing is behind the end."""
        return self._file.read(size_bytes, offset) if offset < self.size_bytes else b""

    def close(self) -> None:
        self._file.close()
