"""``broker.json`` of a node's data directory: as which incarnations its broker has registered, or was about to.

    written: the new one before it registers · it alone once it has registered

A directory whose file lacks the incarnation that the controllers know is an older copy: its replicas may lack what was acknowledged since.
One line of compact JSON with a CRC (``store.json_line``): ``{"format":1,"incarnations":["<newest>",…],"crc":"<8 hex digits>"}``.
"""

import logging
import os

from logdb.disk import read_file, replace_file
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.store import cluster_file, json_line
from logdb_replication.controller.commands import FORMER_COUNT_MAX

logger = logging.getLogger(__name__)

_FORMAT, _SIZE_BYTES_MAX = 1, 1 << 14


def load(io: IO, directory: str) -> tuple[str, ...]:
    """The incarnations, the newest first; none where there is no file, or a damaged one: the broker is then taken for an older one's."""
    path = os.path.join(directory, cluster_file.BROKER_NAME)
    try:
        data = read_file(io, path, _SIZE_BYTES_MAX)
        return json_line.decode(data, path, _FORMAT, "the incarnations of a broker", lambda fields: tuple(map(str, fields["incarnations"])))
    except FileNotFoundError:
        return ()
    except CorruptionError as error:
        logger.error("the replicas here have to catch up: %s", error)
        return ()


def save(io: IO, directory: str, incarnations: tuple[str, ...]) -> None:
    """Note them durably: the newest ones, and the oldest, which has registered; raises DiskFull, WriteFailed, SyncFailed."""
    kept = incarnations[: FORMER_COUNT_MAX - 1] + incarnations[FORMER_COUNT_MAX - 1 :][-1:]
    path = os.path.join(directory, cluster_file.BROKER_NAME)
    replace_file(io, path, json_line.encode({"incarnations": list(kept)}, _FORMAT))
