"""server.py: a connection on which another door's protocol is spoken."""

import asyncio
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from logdb.serving import server
from logdb.serving.limits import Limits
from logdb.serving.server import Server


class Transport:
    def __init__(self):
        self.calls, self.protocol = [], None

    def __getattr__(self, name):
        return lambda *given: self.calls.append(name)

    def set_protocol(self, protocol):
        self.protocol = protocol

    def get_protocol(self):
        return self.protocol


class Accepted(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data = data


class Door:
    LIMITS, OPTIONS = Limits, frozenset()
    made: ClassVar[list["Door"]] = []

    def __init__(self, access, address, **options):
        self.address, self.options, self.state = address, options, "made"
        Door.made.append(self)

    async def open(self):
        self.state = "open"
        return (self.address,) if self.address else ()

    def accept(self, slot=None):
        self.accepted = Accepted()
        return self.accepted

    async def drain(self, timeout_ms):
        self.state = "drained"


class Access:
    authentication = False

    def close(self):
        pass


@pytest.fixture
def opened(monkeypatch):
    def load(point):
        if point.name == "missing":
            raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")
        return Door

    points = {name: EntryPoint(name, "x:y", "logdb.doors") for name in ("one", "other", "missing")}
    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(server, "announced", lambda group: points)
    monkeypatch.setattr(Door, "made", [])
    return Server(Access(), {"one": "127.0.0.1:0"}, memory_bytes_max=7)


def test_a_door_is_made_for_the_first_connection(opened):
    async def run():
        await opened.open()
        (one,) = Door.made
        transports = [Transport() for _ in range(3)]
        for transport in transports:
            one.hand_over("other", transport, b"GET /")
        await asyncio.gather(*opened._handing_over)
        _, other = Door.made
        assert (other.address, other.options, other.state) == ("", one.options, "open")
        assert {transport.protocol.data for transport in transports} == {b"GET /"}
        assert transports[0].calls == ["pause_reading", "resume_reading"]
        one.hand_over("other", transports[0], b"")
        await opened.drain()
        assert (one.state, other.state) == ("drained", "drained")

    asyncio.run(run())


def test_a_door_that_pauses_at_once_stays_paused(opened, monkeypatch):
    """Requests that came with the first one are many: the HTTP door reads no more until they are answered."""
    monkeypatch.setattr(Accepted, "data_received", lambda self, data: self.transport.pause_reading())

    async def run():
        await opened.open()
        Door.made[0].hand_over("other", transport := Transport(), b"GET /")
        await asyncio.gather(*opened._handing_over)
        assert transport.calls[-1] == "pause_reading"
        await opened.drain()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["missing", "nosuch"])
def test_a_door_that_cannot_be_made_ends_the_connection(opened, name, caplog):
    async def run():
        await opened.open()
        Door.made[0].hand_over(name, transport := Transport(), b"GET /")
        await asyncio.gather(*opened._handing_over)
        assert transport.calls == ["pause_reading", "abort"]

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert "a connection is closed" in caplog.text


def test_a_server_that_drains_takes_none(opened):
    async def run():
        await opened.open()
        await opened.drain()
        Door.made[0].hand_over("other", transport := Transport(), b"GET /")
        assert (transport.calls, len(Door.made)) == (["abort"], 1)

    asyncio.run(run())
