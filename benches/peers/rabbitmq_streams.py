"""RabbitMQ streams: a node of one's own with the stream plugin alone, and rstream, RabbitMQ's client for Python.

A record is one message of raw bytes, key and value joined; it is confirmed once the node has written it to the stream's segment.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from benches.peers import not_importable
from benches.peers._rabbitmq import no_node, node
from benches.peers._server import HOST, free_port
from benches.workload import BATCH_COUNT, KEY_SIZE_BYTES, Measure, Work, rate

if TYPE_CHECKING:
    from rstream import ConfirmationStatus, Producer

    Send = Callable[[Producer, list[bytes]], Awaitable[None]]

_STREAM = "t"
_LOGIN: dict[str, Any] = {"username": "guest", "password": "guest", "host": HOST}
_ENTRY_COUNT = 100  # messages a sub-entry: faster here than 20, 50, 200 or 500


def missing() -> str | None:
    return no_node() or not_importable("rstream")


@contextlib.contextmanager
def _node(work: Work) -> Iterator[tuple[asyncio.Runner, int]]:
    """A node; yields an event loop and the port of its stream plugin."""
    port = free_port()
    config = f"listeners.tcp = none\nstream.listeners.tcp.1 = {HOST}:{port}\n"
    config += f"stream.advertised_host = {HOST}\nstream.advertised_port = {port}\n"
    with node(work, port, config, "rabbitmq_stream"), asyncio.Runner() as loop:
        yield loop, port


async def _publish(work: Work, port: int, send: "Send") -> Measure:
    """All records by ``send``, which returns when the last is confirmed."""
    from rstream import Producer

    keys, values = work.records()
    messages = [key + value for key, value in zip(keys, values, strict=True)]
    async with Producer(port=port, **_LOGIN) as producer:
        await producer.create_stream(_STREAM)
        await producer.send_wait(_STREAM, messages.pop())  # declares the publisher, which takes a third of a second
        began = work.start()
        await send(producer, messages)
        return rate(len(messages), time.perf_counter() - began)


async def _send_batches(producer: "Producer", messages: list[bytes]) -> None:
    """1,000 messages a frame."""
    confirms = _Confirms(len(messages))
    for at in range(0, len(messages), BATCH_COUNT):
        await producer.send_batch(_STREAM, messages[at : at + BATCH_COUNT], on_publish_confirm=confirms)
    await confirms.all_there.wait()


async def _send_entries(producer: "Producer", messages: list[bytes]) -> None:
    """Sub-entries of 100 messages, each stored as it is sent; handed on ten at a time: rstream's own timer does so twice a second."""
    confirms = _Confirms(-(-len(messages) // _ENTRY_COUNT))
    for at in range(0, len(messages), _ENTRY_COUNT):
        await producer.send_sub_entry(_STREAM, messages[at : at + _ENTRY_COUNT], on_publish_confirm=confirms)
        if at % BATCH_COUNT == 0:
            await producer._publish_buffered_messages(_STREAM)
    await producer._publish_buffered_messages(_STREAM)
    await confirms.all_there.wait()


class _Confirms:
    """A callback that counts answers, good or bad: what is missing is found when the stream is read."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.all_there = asyncio.Event()

    def __call__(self, status: "ConfirmationStatus") -> None:
        self._left -= 1
        if not self._left:
            self.all_there.set()


async def _publish_each(work: Work, port: int) -> Measure:
    from rstream import Producer

    value = bytes(work.value_size)
    async with Producer(port=port, **_LOGIN) as producer:
        await producer.create_stream(_STREAM)
        await producer.send_wait(_STREAM, value)
        began = work.start()
        for _ in range(work.count - 1):
            await producer.send_wait(_STREAM, value)
        return Measure((time.perf_counter() - began) / (work.count - 1) * 1e3, "ms")


async def _scan(work: Work, port: int, consumers: contextlib.AsyncExitStack, key_size_bytes: int = KEY_SIZE_BYTES) -> tuple[int, int]:
    """Subscribe from the first message and wait for the last; closing, which takes rstream half a second, is left to ``consumers``."""
    from rstream import Consumer

    count = size_bytes = 0
    done = asyncio.Event()

    def take(message: bytes, context: object) -> None:
        nonlocal count, size_bytes
        size_bytes += len(message) - key_size_bytes
        count += 1
        if count == work.count:
            done.set()

    consumer = await consumers.enter_async_context(Consumer(port=port, **_LOGIN))
    await consumer.subscribe(_STREAM, take)
    await done.wait()
    return count, size_bytes


async def _read_once(work: Work, port: int, key_size_bytes: int = KEY_SIZE_BYTES) -> tuple[int, int]:
    async with contextlib.AsyncExitStack() as consumers:
        return await _scan(work, port, consumers, key_size_bytes)


def _append_many(work: Work, send: "Send") -> Measure:
    with _node(work) as (loop, port):
        measure = loop.run(_publish(work, port, send))
        work.check(loop.run(_read_once(work, port)))
        return measure


def append_many(work: Work) -> Measure:
    """A message a record."""
    return _append_many(work, _send_batches)


def append_entries(work: Work) -> Measure:
    """A hundred records an entry."""
    return _append_many(work, _send_entries)


def scan_values(work: Work) -> Measure:
    consumers = contextlib.AsyncExitStack()
    with _node(work) as (loop, port):
        loop.run(_publish(work, port, _send_entries))
        measure = work.passes(lambda: loop.run(_scan(work, port, consumers)))
        loop.run(consumers.aclose())
        return measure


def append(work: Work) -> Measure:
    """One record a call, acknowledged: ms."""
    with _node(work) as (loop, port):
        measure = loop.run(_publish_each(work, port))
        work.check(loop.run(_read_once(work, port, key_size_bytes=0)))
        return measure


OPERATIONS = {operation.__name__: operation for operation in (append_many, append_entries, scan_values, append)}
