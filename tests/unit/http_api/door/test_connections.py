"""A connection that is given to another protocol."""

import asyncio

from aiohttp import web

from logdb_http_api.door.connections import Connections
from logdb_http_api.door.limits import HttpLimits


class Other(asyncio.Protocol):
    is_paused = False

    def pause_writing(self):
        self.is_paused = True


async def given(*, is_paused):
    """The protocol that was given a connection to whose client no more fits, or some does; and whether the time of the former one runs."""
    loop = asyncio.get_running_loop()
    connections = Connections(web.Server(web.Response), HttpLimits(), loop)
    server = await loop.create_server(connections.accept, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    while not connections.open:
        await asyncio.sleep(0)
    (connection,) = connections.open
    connection.busy, connection.asked_s = True, 0.0
    if is_paused:
        connection.pause_writing()
    connection.give_to(other := Other())
    found = other.is_paused, connection.is_timed()
    writer.close()
    connection.abort()
    connections.abort()
    server.close()
    return found


def test_a_full_buffer_pauses_the_protocol_that_gets_the_connection():
    assert asyncio.run(given(is_paused=True)) == (True, False)
    assert asyncio.run(given(is_paused=False)) == (False, False)
