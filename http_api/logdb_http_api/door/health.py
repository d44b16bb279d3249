"""Probes of liveness and readiness."""

from aiohttp import web

from logdb.errors import LogdbError, ReadOnly
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.errors import DRAINING, ApiError

routes = Routes()
STATUS = {"application/json": {"status": str}}


@routes.get("/health/live", "The process runs", needs=(), gives=STATUS)
async def live(_request: Request) -> web.StreamResponse:
    """Liveness: 200 as long as the process answers at all."""
    return answer({"status": "live"})


@routes.get("/health/ready", "The server takes requests: 503 while it drains, and once a sync has failed", needs=(), gives=STATUS)
async def ready(request: Request) -> web.StreamResponse:
    """Readiness, for load balancers: 200 while the server accepts requests, otherwise 503 with the reason."""
    if request.door.draining:
        raise ApiError(503, DRAINING, "the server is draining")
    try:
        request.session.check_open(writable=True)
    except ReadOnly:
        pass  # it was opened for reading, and serves reads
    except LogdbError as error:
        raise ApiError(503, 503, str(error)) from None
    return answer({"status": "ready"})
