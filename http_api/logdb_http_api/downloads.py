"""The database as a whole: what recovery found, a check of every byte, and backups to be downloaded.

Knows how a backup is made, lies beside the data for a while, and goes.  Does not know what is in it.

    POST    /logdb/v1/backups        made, in a directory that the next opening removes if this process does not; the body is
                                     the outline of the one that it is to go onto, if there is one
    GET     /logdb/v1/backups/{id}   a file; HTTP ranges, so that a download goes on where it broke off
    DELETE  /logdb/v1/backups/{id}   or by itself, once nobody has asked for it for a while
"""

import asyncio
import os
import shutil
import uuid
from typing import NamedTuple

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

from logdb.errors import BackupDamaged, BackupMismatch
from logdb.store.backup_file import BackupReader
from logdb.store.report import Checked, Copied, Problem, Report
from logdb_http_api import wire
from logdb_http_api.errors import ApiError
from logdb_http_api.request import Request, answer
from logdb_http_api.routing import Body, Routes

KEPT_S = 900.0
BACKUP = "application/vnd.logdb.backup"
_SLICE_BYTES = 256 << 10
_UNKNOWN_BACKUP = 40499

routes = Routes()


class Verified(NamedTuple):
    """What a check found; as ``Report``."""

    problems: list[Problem]
    notes: list[str]
    checked: Checked

    @classmethod
    def of(cls, report: Report) -> "Verified":
        return cls(report.problems, report.notes, report.checked)


class Offer(NamedTuple):
    """A backup that can be downloaded; ``copied.written_bytes`` is its size."""

    id: str
    copied: Copied


class Downloads:
    """The backups that lie there."""

    def __init__(self) -> None:
        self._directories: dict[str, str] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}

    def begin(self, parent: str) -> tuple[str, str]:
        """The id and the file of a backup that is to be made."""
        name = str(uuid.uuid4())
        directory = self._directories[name] = os.path.join(parent, f"{name}.tmp")
        os.mkdir(directory, 0o700)
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

    def remove(self, name: str) -> None:
        """Remove a backup, if it is there."""
        if (end := self._ends.pop(name, None)) is not None:
            end.cancel()
        if (directory := self._directories.pop(name, None)) is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Remove all."""
        for name in list(self._directories):
            self.remove(name)


def _check(request: Request) -> None:
    """Raise unless whoever asks may have a backup."""
    request.door.gate.session(request.principal, request.http.remote or "").need_backup()


@routes.get("/logdb/v1/reports", "What recovery found and did", needs=("Describe Cluster",), gives={"application/json": list[str]})
async def reports(request: Request) -> web.StreamResponse:
    """One line each."""
    return answer(wire.encode(await request.call(request.session.reports)))


@routes.post("/logdb/v1/verify", "Check every byte", needs=("ClusterAction Cluster",), gives={"application/json": Verified})
async def verify(request: Request) -> web.StreamResponse:
    """What is wrong, and how much was looked at."""
    return answer(wire.encode(Verified.of(await request.call(request.session.verify))))


@routes.post(
    "/logdb/v1/backups",
    "Make a backup to be downloaded",
    needs=("ClusterAction Cluster",),
    body=Body({BACKUP: bytes}, required=False),
    gives={"application/json": Offer},
    status=201,
    refuses=(409,),
)
async def make(request: Request) -> web.StreamResponse:
    """Answered when it is made: its id, and how much is in it.  With the outline of an earlier one it is what that lacks."""
    downloads = request.door.downloads
    request.session.need_backup()
    outline = await request.body(request.door.limits.json_bytes_max)
    if outline:
        request.require(BACKUP)
    name, path = await request.call(downloads.begin, request.door.gate.directory)
    try:
        if outline:
            copied = await request.call(_increment, request, path, outline)
        else:
            copied = await request.call(request.session.backup, path)
        downloads.find(name)
    except BaseException:
        downloads.remove(name)
        raise
    return answer(wire.encode(Offer(name, copied._replace(path=""))), status=201)


def _increment(request: Request, path: str, outline: bytes | bytearray) -> Copied:
    """Make a backup of what the one with that outline lacks.

    Raises:
        ApiError: It is none; 422.
        BackupMismatch: It is another database's.
    """
    base = f"{path}.base"
    with open(base, "xb") as file:
        file.write(outline)
    try:
        with BackupReader(request.session.io, base, list_size_bytes_max=request.door.limits.json_bytes_max):
            pass
        return request.session.backup(path, base)
    except BackupDamaged as error:
        raise ApiError(422, 422, f"not the outline of a backup: damaged at byte {error.position}: {error.reason}") from None
    except BackupMismatch as error:
        raise BackupMismatch("whose outline was sent", error.reason) from None
    finally:
        os.unlink(base)


@routes.get("/logdb/v1/backups/{id}", "Download a backup", needs=("ClusterAction Cluster",), gives={BACKUP: bytes})
async def download(request: Request) -> web.StreamResponse:
    """The file, or the range of it that is asked for."""
    _check(request)
    path, tag = request.door.downloads.find(request.path("id")), f'"{request.path("id")}"'
    size_bytes = (await request.call(os.stat, path)).st_size
    headers = {"Accept-Ranges": "bytes", "ETag": tag}
    if "Range" not in request.http.headers or request.http.headers.get("If-Range", tag) != tag:  # it was begun with another one
        return web.Response(body=_Piece(path, 0, size_bytes), headers=headers)
    start, stop = _range(request, size_bytes)
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size_bytes}"
    return web.Response(body=_Piece(path, start, stop), status=206, headers=headers)


def _range(request: Request, size_bytes: int) -> tuple[int, int]:
    """From where to where the file is wanted (RFC 9110, 14).

    Raises:
        ApiError: There is nothing there; 416.
    """
    try:
        start, stop, _ = request.http.http_range.indices(size_bytes)
    except ValueError:
        start = stop = size_bytes
    if start >= stop:
        raise ApiError(416, 41600, f"the backup has {size_bytes} bytes, wanted is {request.http.headers.get('Range', '')[:40]}")
    return start, stop


class _Piece(payload.Payload):
    """A part of a file, read a slice at a time, as the client takes it."""

    def __init__(self, path: str, start: int, stop: int) -> None:
        super().__init__(path, content_type=BACKUP)
        self._path, self._start, self._stop = path, start, stop
        self._size = stop - start

    async def write(self, writer: AbstractStreamWriter) -> None:
        fd = await asyncio.to_thread(os.open, self._path, os.O_RDONLY)
        try:
            at = self._start
            while at < self._stop:
                data = await asyncio.to_thread(os.pread, fd, min(_SLICE_BYTES, self._stop - at), at)
                if not data:
                    raise ConnectionError(f"{self._path} ends at {at}, before {self._stop}")
                await writer.write(data)
                at += len(data)
        finally:
            os.close(fd)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 -- aiohttp's
        raise TypeError("a backup is no text")


@routes.delete("/logdb/v1/backups/{id}", "Remove a backup", needs=("ClusterAction Cluster",), gives={"application/json": {"*": object}})
async def remove(request: Request) -> web.StreamResponse:
    """Nobody wants it any more."""
    _check(request)
    downloads = request.door.downloads
    downloads.find(request.path("id"))
    await request.call(downloads.remove, request.path("id"))
    return answer({})
