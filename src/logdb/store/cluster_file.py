"""``cluster.json``: the file that marks a directory as that of a cluster's node.

The logs of such a directory are replicas: its node alone writes to it, others open it for reading.  One line of compact JSON with the
keys below, in this order, and a newline:

    {"format":1,"cluster":"<uuid>","node":1,"crc":"<8 hex digits>"}

``crc`` is the CRC-32C of the same line without the key ``crc``.  Before it, a directory that was embedded and is being promoted has
``"promoting":true`` until its topics have all of their replicas.
"""

import os
from typing import Any, NamedTuple

from logdb.disk import read_file, replace_file
from logdb.io import IO
from logdb.store import json_line

FILE_NAME, QUORUM_NAME = "cluster.json", "quorum"
BROKER_NAME = "broker.json"  # of the node that runs: ``logdb_replication.incarnations``
FORMAT = 1
SIZE_BYTES_MAX = 1 << 12


class ClusterFile(NamedTuple):
    """The content of one ``cluster.json``: the id of the cluster, the number of the node, and whether it gives the cluster its topics."""

    cluster: str
    node: int
    promoting: bool = False


def encode(content: ClusterFile) -> bytes:
    fields = content._asdict()
    if not content.promoting:
        del fields["promoting"]
    return json_line.encode(fields, FORMAT)


def decode(data: bytes, path: str) -> ClusterFile:
    """Parse a ``cluster.json``.

    Raises:
        CorruptionError: The data is not exactly what ``encode`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """

    def build(fields: dict[str, Any]) -> ClusterFile:
        return ClusterFile(str(fields["cluster"]), int(fields["node"]), fields.get("promoting") is True)

    return json_line.decode(data, path, FORMAT, "the mark of a cluster's node", build, encode)


def load(io: IO, directory: str) -> ClusterFile | None:
    """Read a directory's file; None where the directory is no node's.  Raises CorruptionError, UnsupportedFormat."""
    path = os.path.join(directory, FILE_NAME)
    try:
        data = read_file(io, path, SIZE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode(data, path)


def create(io: IO, directory: str, content: ClusterFile) -> None:
    """Mark a directory, durably."""
    replace_file(io, os.path.join(directory, FILE_NAME), encode(content))
