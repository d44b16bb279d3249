"""A RabbitMQ classic queue: durable, persistent messages, publisher confirms; pika, RabbitMQ's client for Python.

A record is one message of raw bytes, key and value joined.  A node confirms a persistent message once it has synced it.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benches.peers import not_importable
from benches.peers._rabbitmq import no_node, node
from benches.peers._server import HOST, free_port
from benches.workload import KEY_SIZE_BYTES, Measure, Work, Wrong, rate

if TYPE_CHECKING:
    from pika import SelectConnection

_QUEUE = "t"
_AT_ONCE = 500  # messages between two looks at the socket


def missing() -> str | None:
    return no_node() or not_importable("pika")


@contextlib.contextmanager
def _node(work: Work) -> Iterator[int]:
    port = free_port()
    with node(work, port, f"listeners.tcp.1 = {HOST}:{port}\n"):
        yield port


def _messages(work: Work) -> list[bytes]:
    keys, values = work.records()
    return [key + value for key, value in zip(keys, values, strict=True)]


def _depth(port: int) -> int:
    """The messages in the queue."""
    import pika

    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
        found = connection.channel().queue_declare(_QUEUE, passive=True)
        return int(found.method.message_count)


def _check(work: Work, port: int) -> None:
    if (depth := _depth(port)) != work.count:
        raise Wrong(f"{work.count} messages were confirmed, {depth} are there")


def produce(work: Work) -> Measure:
    """All messages, until the last is confirmed."""
    with _node(work) as port:
        measure = _Publisher(work, _messages(work), port).run()
        _check(work, port)
        return measure


class _Publisher:
    """Publishes all messages on one channel, until the last is confirmed; the callbacks are pika's."""

    def __init__(self, work: Work, messages: list[bytes], port: int) -> None:
        import pika

        self._work, self._messages = work, messages
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._sent = 0
        self._began = self._ended = 0.0
        self._connection: SelectConnection = pika.SelectConnection(
            pika.ConnectionParameters(HOST, port), on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened)
        )

    def run(self) -> Measure:
        self._connection.ioloop.start()
        return rate(len(self._messages), self._ended - self._began)

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._settled)
        channel.queue_declare(_QUEUE, durable=True, callback=self._declared)

    def _declared(self, _: object) -> None:
        self._began = self._work.start()
        self._publish()

    def _publish(self) -> None:
        for message in self._messages[self._sent : self._sent + _AT_ONCE]:
            self._channel.basic_publish("", _QUEUE, message, self._persistent)
        self._sent += _AT_ONCE
        if self._sent < len(self._messages):
            self._connection.ioloop.add_callback_threadsafe(self._publish)

    def _settled(self, frame: Any) -> None:
        if type(frame.method).__name__ != "Ack":
            raise Wrong(f"a message is refused: {frame.method}")
        if frame.method.delivery_tag == len(self._messages):  # one queue confirms in order
            self._ended = time.perf_counter()
            self._connection.close()
            self._connection.ioloop.stop()


def send_each(work: Work) -> Measure:
    """One message at a time, confirmed: ms."""
    import pika

    messages = _messages(work)
    with _node(work) as port:
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
            channel = connection.channel()
            channel.queue_declare(_QUEUE, durable=True)
            channel.confirm_delivery()
            persistent = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", _QUEUE, messages[0], persistent)
            began = work.start()
            for message in messages[1:]:
                channel.basic_publish("", _QUEUE, message, persistent)  # raises what is not confirmed
            seconds = time.perf_counter() - began
        _check(work, port)
        return Measure(seconds / (work.count - 1) * 1e3, "ms")


def consume(work: Work) -> Measure:
    """Deliver all to one consumer that acknowledges a thousand at a time."""
    import pika

    messages = _messages(work)
    with _node(work) as port:
        _Publisher(work, messages, port).run()
        count = size_bytes = 0
        with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=10_000)
            began = work.start()
            for method, _, message in channel.consume(_QUEUE):
                size_bytes += len(message) - KEY_SIZE_BYTES
                count += 1
                if count % 1_000 == 0 or count == work.count:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                if count == work.count:
                    break
            seconds = time.perf_counter() - began
        work.check((count, size_bytes))
        return rate(count, seconds)


OPERATIONS = {operation.__name__: operation for operation in (produce, send_each, consume)}
