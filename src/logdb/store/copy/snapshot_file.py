"""``SNAPSHOT``: the file that marks a directory as a snapshot, and has the checksum of its catalogue.

A directory with this file, damaged or not, is opened for reading only, and without a lock: its sealed segments may be
hard links to those of an open database.  One line of compact JSON with the keys below, in this order, and a newline:

    {"format":1,"snapshot_id":"<uuid>","database_id":"<uuid>","created_ms":1764000000000,
     "catalogue_size":32768,"catalogue_crc":"<8 hex digits>","crc":"<8 hex digits>"}

``catalogue_size`` and ``catalogue_crc`` (CRC-32C) are those of ``catalogue/data.mdb``, ``crc`` is that of the
same line without the key ``crc``.
"""

import os
from typing import Any, NamedTuple

from logdb.disk import read_file
from logdb.io import IO
from logdb.store import json_line

FILE_NAME = "SNAPSHOT"
FORMAT = 1
_SIZE_BYTES_MAX = 1 << 12


class SnapshotFile(NamedTuple):
    """The content of one ``SNAPSHOT``; ``created_ms`` is in milliseconds since 1970."""

    snapshot_id: str
    database_id: str
    created_ms: int
    catalogue_size: int
    catalogue_crc: int


def encode(content: SnapshotFile) -> bytes:
    return json_line.encode({**content._asdict(), "catalogue_crc": f"{content.catalogue_crc:08x}"}, FORMAT)


def decode(data: bytes, path: str) -> SnapshotFile:
    """Parse a ``SNAPSHOT``.

    Raises:
        CorruptionError: The data is not exactly what ``encode`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """

    def build(fields: dict[str, Any]) -> SnapshotFile:
        return SnapshotFile(**{**fields, "catalogue_crc": int(fields["catalogue_crc"], 16)})

    return json_line.decode(data, path, FORMAT, "the mark of a snapshot", build, encode)


def load(io: IO, directory: str) -> SnapshotFile | None:
    """Read a directory's file; None where the directory is not a snapshot.  Raises CorruptionError, UnsupportedFormat."""
    path = os.path.join(directory, FILE_NAME)
    try:
        data = read_file(io, path, _SIZE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode(data, path)
