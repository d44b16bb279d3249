"""NATS JetStream: a nats-server with a stream in files, and nats-py.

A record is one message, key and value joined.  The server syncs every two minutes, its default.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benches.peers import not_importable
from benches.peers._server import HOST, free_port, not_installed, program, running
from benches.workload import KEY_SIZE_BYTES, Measure, Work, rate

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_STREAM = "t"


def missing() -> str | None:
    return not_installed("nats-server") or not_importable("nats")


@contextlib.contextmanager
def _client(work: Work) -> "Iterator[tuple[asyncio.Runner, Client]]":
    """A connection to a new server, and the event loop that it lives in; the stream is there, in files, which is its default."""
    import nats

    port = free_port()
    command = (program("nats-server") or "", "-a", HOST, "-p", str(port), "-js", "-sd", str(work.directory))
    with running(command, port, work.directory / "output"), asyncio.Runner() as loop:
        client = loop.run(nats.connect(f"nats://{HOST}:{port}"))
        loop.run(client.jetstream().add_stream(name=_STREAM, subjects=[_STREAM]))
        yield loop, client
        loop.run(client.close())


async def _publish(work: Work, client: "Client") -> Measure:
    """Publish all, then wait for as many acknowledgements: a third of what nats-py's own ``publish_async`` costs."""
    messages = [key + value for key, value in zip(*work.records(), strict=True)]
    left, all_there = len(messages), asyncio.Event()

    async def acknowledged(_: "Msg") -> None:  # good or bad: what is missing is found when the stream is read
        nonlocal left
        left -= 1
        if not left:
            all_there.set()

    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=acknowledged)
    began = work.start()
    for message in messages:
        await client.publish(_STREAM, message, reply=inbox)
    await all_there.wait()
    return rate(work.count, time.perf_counter() - began)


async def _scan(work: Work, client: "Client", key_size_bytes: int = KEY_SIZE_BYTES) -> tuple[int, int]:
    """An ordered consumer from the first message to the last: three times as fast as fetching batches."""
    count = size_bytes = 0
    done = asyncio.Event()

    async def take(message: "Msg") -> None:
        nonlocal count, size_bytes
        size_bytes += len(message.data) - key_size_bytes
        count += 1
        if count == work.count:
            done.set()

    subscription = await client.jetstream().subscribe(_STREAM, ordered_consumer=True, cb=take)
    await done.wait()
    await subscription.unsubscribe()
    return count, size_bytes


async def _publish_each(work: Work, client: "Client") -> Measure:
    publish, value = client.jetstream().publish, bytes(work.value_size)
    await publish(_STREAM, value)
    began = work.start()
    for _ in range(work.count - 1):
        await publish(_STREAM, value)
    return Measure((time.perf_counter() - began) / (work.count - 1) * 1e3, "ms")


def append_many(work: Work) -> Measure:
    with _client(work) as (loop, client):
        measure = loop.run(_publish(work, client))
        work.check(loop.run(_scan(work, client)))
        return measure


def scan_values(work: Work) -> Measure:
    with _client(work) as (loop, client):
        loop.run(_publish(work, client))
        return work.passes(lambda: loop.run(_scan(work, client)))


def append(work: Work) -> Measure:
    """One record a call, acknowledged: ms."""
    with _client(work) as (loop, client):
        measure = loop.run(_publish_each(work, client))
        work.check(loop.run(_scan(work, client, key_size_bytes=0)))
        return measure


OPERATIONS = {operation.__name__: operation for operation in (append_many, scan_values, append)}
