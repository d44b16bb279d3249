"""Requests about the whole database: the reports of recovery, the quorum, a check of every byte, and backups to download.

POST    /logdb/v1/backups        create a backup, in a directory that the next opening removes if this process does not; for an
                                 increment the body is the outline of its base
GET     /logdb/v1/backups/{id}   the file; with HTTP ranges, so that a broken download goes on
DELETE  /logdb/v1/backups/{id}   remove it; the door removes it after a time without requests
"""

import asyncio
import os
from functools import partial

from aiohttp import web

from logdb.errors import BackupDamaged, BackupMismatch
from logdb.requests.replicas import DescribeQuorum
from logdb.requests.report import Copied
from logdb.store.copy.backup_file import BackupReader
from logdb_http_api.door.file_ranges import file_answer
from logdb_http_api.door.kept_backups import KeptBackups, unknown_backup
from logdb_http_api.door.request import Request, answer, encoded
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body
from logdb_http_api.errors import ApiError
from logdb_http_api.protocol import BACKUP, BACKUPS_PATH, Offer, Quorum, Verified

routes = Routes()


@routes.get("/logdb/v1/reports", "The report of recovery", needs=("Describe Cluster",), gives={"application/json": list[str]})
async def reports(request: Request) -> web.StreamResponse:
    """One line each."""
    return encoded(await request.call(request.session.reports))


@routes.get("/logdb/v1/quorum", "The voters of the quorum", needs=("Describe Cluster",), gives={"application/json": Quorum})
async def quorum(request: Request) -> web.StreamResponse:
    """As the leader of the quorum knows them. A single node is its own only voter."""
    return encoded(Quorum.of(await request.call(request.session.submit, DescribeQuorum())))


@routes.post("/logdb/v1/verify", "Check every byte", needs=("ClusterAction Cluster",), gives={"application/json": Verified})
async def verify(request: Request) -> web.StreamResponse:
    """The problems that were found, and the amount of data that was checked."""
    return encoded(Verified.of(await request.call(request.session.verify)))


@routes.post(
    BACKUPS_PATH,
    "Make a backup to be downloaded",
    needs=("ClusterAction Cluster",),
    body=Body({BACKUP: bytes}, required=False),
    gives={"application/json": Offer},
    status=201,
    refuses=(409,),
)
async def make(request: Request) -> web.StreamResponse:
    """Answered when the backup is complete: its id and its size.  With the outline of an earlier backup it is an increment."""
    backups = request.door.backups
    request.session.need_backup()
    outline = await request.body(request.door.limits.json_bytes_max)
    if outline:
        request.require(BACKUP)
    name, path = backups.begin(request.door.access.directory)
    making = asyncio.ensure_future(request.call(_make, request, path, outline))
    try:
        copied = await asyncio.shield(making)
    except asyncio.CancelledError:  # the client is gone, but the thread still writes to the directory
        making.add_done_callback(partial(_drop, backups, name))
        raise
    except BaseException:
        await backups.remove(name)
        raise
    backups.find(name)
    return encoded(Offer(name, copied._replace(path="")), status=201)


def _drop(backups: KeptBackups, name: str, made: "asyncio.Future[Copied]") -> None:
    """Remove a backup whose client is gone, complete or not."""
    made.cancelled() or made.exception()
    backups.remove(name)


def _make(request: Request, path: str, outline: bytes | bytearray) -> Copied:
    os.mkdir(os.path.dirname(path), 0o700)
    return _increment(request, path, outline) if outline else request.session.backup(path)


def _increment(request: Request, path: str, outline: bytes | bytearray) -> Copied:
    """Create the increment to the backup with that outline.

    Raises:
        ApiError: The outline is invalid; 422.
        BackupMismatch: It is of another database.
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


@routes.get(f"{BACKUPS_PATH}/{{id}}", "Download a backup", needs=("ClusterAction Cluster",), gives={BACKUP: bytes})
async def download(request: Request) -> web.StreamResponse:
    """The file, or the requested range of it."""
    request.session.need_backup()
    name = request.path("id")
    path = request.door.backups.find(name)
    try:
        return await file_answer(request, path, name, BACKUP, lambda _: request.session.need_backup())
    except FileNotFoundError:  # it was removed meanwhile
        raise unknown_backup(name) from None


@routes.delete(f"{BACKUPS_PATH}/{{id}}", "Remove a backup", needs=("ClusterAction Cluster",), gives={"application/json": {"*": object}})
async def remove(request: Request) -> web.StreamResponse:
    """Remove a backup."""
    request.session.need_backup()
    backups = request.door.backups
    backups.find(request.path("id"))
    await backups.remove(request.path("id"))
    return answer({})
