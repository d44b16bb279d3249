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


class Late:
    """A clock for a loop."""

    now_s = 1_000.0

    def __call__(self):
        return self.now_s


def told(story, **limits):
    """Tell a story of one connection that a client has opened, with the loop's clock; the loop runs no timers meanwhile."""

    async def main():
        loop, clock = asyncio.get_running_loop(), Late()
        connections = Connections(web.Server(web.Response), HttpLimits(**limits), loop)
        server = await loop.create_server(connections.accept, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while not connections.open:
            await asyncio.sleep(0)
        (connection,) = connections.open
        connections._sweeper.cancel()
        loop.time, connections._sweeper = clock, None
        connection.asked_s = clock.now_s
        connections.watch()
        try:
            story(connections, connection, clock)
        finally:
            del loop.time
            writer.close()
            connections.abort()
            server.close()
            await connections.all_closed()

    asyncio.run(main())


HEAD = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_client_is_timed_until_its_headers_have_come_and_no_longer():
    """However long the server takes to begin with the request: thousands of others may be before it."""

    def story(connections, connection, clock):
        connection.data_received(HEAD[:20])
        assert connection.asked_s == clock.now_s
        connection.data_received(HEAD[20:])
        assert not connection.is_timed()
        connection.data_received(HEAD[:20])  # of the next request, which waits behind it
        clock.now_s += 1_000
        assert not connection.is_too_slow(connections.now_s(), connections.limits)

    told(story)


def test_time_in_which_the_loop_took_nothing_is_not_the_clients():
    def story(connections, connection, clock):
        connection.data_received(HEAD[:20])
        closing = []
        for late_s in (0.0, 30.0, 0.0, 0.0, 0.0):  # the sweeper comes each 2.5 s, if the loop lets it
            clock.now_s = connections._sweeper.when() + late_s
            connections._sweeper.cancel()
            connections._sweep()
            closing.append(connection._wire.is_closing())
        assert closing == [False] * 4 + [True]
        assert clock.now_s == 1_000 + 30 + 12.5

    told(story, header_timeout_ms=10_000)
