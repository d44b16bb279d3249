"""Downloads a backup from a server to a local file, in pieces; a snapshot is made from a backup.

A piece that fails is requested again, so a broken connection costs one piece.
"""

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from logdb.client import local
from logdb.disk import File, exists
from logdb.errors import BackupMismatch, InvalidAnswer, TargetNotEmpty
from logdb.io import IO
from logdb.requests.report import Copied, Progress
from logdb.store.copy.backup import new_file
from logdb.store.copy.backup_file import BackupReader
from logdb.store.directories import check_empty
from logdb_http_api.protocol import BACKUP, BACKUPS_PATH, Offer
from logdb_http_api.remote.answers import HttpAnswer
from logdb_http_api.remote.exchange import Exchange, send_request
from logdb_http_api.remote.wires import HttpRequest

if TYPE_CHECKING:
    from logdb_http_api.remote.connections import Connections

_PIECE_SIZE_BYTES = 4 << 20
_MAKING_MS = 86_400_000


def backup(connections: "Connections", io: IO, path: str, progress: Progress | None, base: str | None = None) -> Copied:
    """Request a backup, and download it to the new file ``path``; see ``Database.backup``."""
    path = os.path.abspath(path)
    if exists(io, path):
        raise TargetNotEmpty(path)
    outline = None if base is None else _outline(io, base)
    with new_file(io, path, private=connections.private) as file:
        try:
            made = send_request(connections, "POST", BACKUPS_PATH, outline, {"Content-Type": BACKUP}, safe=False, patience_ms=_MAKING_MS)
        except BackupMismatch as error:
            raise BackupMismatch(base or "", error.reason) from None
        offer: Offer = made.decoded(Offer)
        try:
            _download(connections, file, path, offer, progress)
        finally:
            send_request(connections, "DELETE", f"{BACKUPS_PATH}/{offer.id}")
    return offer.copied._replace(path=path)


def _outline(io: IO, base: str) -> bytes:
    """Raises ReadFailed, BackupDamaged."""
    with BackupReader(io, os.path.abspath(base)) as reader:
        return reader.outline()


def _download(connections: "Connections", file: File, path: str, offer: Offer, progress: Progress | None) -> None:
    """Download all pieces; each is requested while the one before it is written."""
    size_bytes = offer.copied.written_bytes
    exchange = _piece(connections, offer, 0)
    for start in range(0, size_bytes, _PIECE_SIZE_BYTES):
        answer = exchange.answer()
        stop = min(start + _PIECE_SIZE_BYTES, size_bytes)
        if stop < size_bytes:
            exchange = _piece(connections, offer, stop)
        if answer.status != 206 or len(answer.body) != stop - start:
            exchange.abandon()
            raise InvalidAnswer(answer.url, f"{len(answer.body)} bytes with status {answer.status}, where {stop - start} were asked for")
        file.write(answer.body, start)
        if progress is not None:
            progress(stop, size_bytes, os.path.basename(path))


def _piece(connections: "Connections", offer: Offer, start: int) -> Exchange[HttpAnswer]:
    headers = {"Range": f"bytes={start}-{start + _PIECE_SIZE_BYTES - 1}"}
    return Exchange(connections, HttpRequest("GET", f"{BACKUPS_PATH}/{offer.id}", headers=headers))


def snapshot(connections: "Connections", io: IO, path: str, progress: Progress | None) -> Copied:
    """Create a snapshot in the directory ``path`` from a backup; see ``Database.snapshot``."""
    from logdb.store.copy.restore import restore  # few programs need it

    path = os.path.abspath(path)
    check_empty(io, path)
    beside = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}-", dir=os.path.dirname(path))
    if not connections.private:
        os.chmod(beside, 0o755)  # noqa: S103 -- the snapshot is as private as its source
    try:
        file, directory = os.path.join(beside, "backup"), os.path.join(beside, "restored")
        written_bytes = backup(connections, io, file, progress).written_bytes
        restore([file], directory, io=io)
        with local.open_database(directory, mode="r", io=io) as restored:
            return restored.snapshot(path)._replace(written_bytes=written_bytes)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
