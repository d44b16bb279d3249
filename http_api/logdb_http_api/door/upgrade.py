"""The upgrade of a connection to Kafka's wire protocol (RFC 9110, section 7.8): from its answer on, the Kafka door has the connection.

aiohttp's handler waits until the connection ends, as that of a WebSocket does: so aiohttp neither reads nor closes it.
"""

import asyncio

from aiohttp import HttpVersion11, web

from logdb.access.authentication import Identity
from logdb.serving.server import Given
from logdb_http_api.door.request import Request
from logdb_http_api.door.routing import Routes
from logdb_http_api.errors import ApiError
from logdb_http_api.protocol import KAFKA_PATH, KAFKA_PROTOCOL

_UPGRADE = {"Upgrade": KAFKA_PROTOCOL, "Connection": "Upgrade"}

routes = Routes()


@routes.get(KAFKA_PATH, "Change to Kafka's wire protocol", needs=(), status=101, refuses=(400, 401, 426))
async def upgrade(request: Request) -> web.StreamResponse:
    """``Upgrade: kafka`` (HTTP/1.1): answered with 101, then the connection speaks Kafka's protocol, as the principal of this request."""
    http, connection = request.http, request.connection
    if not _is_asked(http) or request.is_head:
        raise ApiError(426, 426, f"use GET of HTTP/1.1 with the header Upgrade: {KAFKA_PROTOCOL}", headers=_UPGRADE)
    given = Given(Identity(request.session.principal, request.session.credential), connection.connection_lost)
    protocol = await request.door.upgrade("kafka", given)
    if connection.has_more or http.body_exists:
        raise ApiError(400, 400, "a body, or bytes before the answer to the upgrade, would be taken for frames")
    response = web.StreamResponse(status=101, headers=_UPGRADE)
    await response.prepare(http)
    connection.give_to(protocol)
    request.door.log(request, response)
    with request.waiting():
        await asyncio.get_running_loop().create_future()  # cancelled by the end of the connection
    return response


def _is_asked(http: web.BaseRequest) -> bool:
    tokens = {token.strip().lower() for value in http.headers.getall("Connection", ()) for token in value.split(",")}
    return http.version >= HttpVersion11 and "upgrade" in tokens and http.headers.get("Upgrade", "").strip().lower() == KAFKA_PROTOCOL
