"""Kafka's protocol by hand: one connection whose requests are the tables' own messages, or any bytes."""

import socket
import struct
from typing import Any, Self

from logdb.codec.messages import RESPONSE_HEADER
from logdb_kafka_api.apis import APIS

KEYS = {api.name: key for key, api in APIS.items()}
BY_ID = 13
"""The first version of Produce and of Fetch that names topics by their ids."""


class Wire:
    """A connection to a broker; its requests are answered in their order."""

    def __init__(self, address: str, timeout_s: float = 20.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, name: str, version: int, **values: Any) -> dict[str, Any]:
        """The answer to one request."""
        return self.answer(name, version, self.send(name, version, **values))

    def send(self, name: str, version: int, **values: Any) -> int:
        """Send a request; returns its correlation id."""
        self._correlation_id += 1
        self.socket.sendall(frame(name, version, self._correlation_id, **values))
        return self._correlation_id

    def answer(self, name: str, version: int, correlation_id: int) -> dict[str, Any]:
        """The next answer, which has to be that of the request."""
        api, body = APIS[KEYS[name]], self.receive()
        assert struct.unpack_from(">i", body) == (correlation_id,)
        position = RESPONSE_HEADER.decode(body, 1, 4)[1] if api.response.is_flexible(version) and name != "ApiVersions" else 4
        values, end = api.response.decode(body, version, position)
        assert end == len(body)
        return values

    def receive(self) -> bytes:
        """The next frame; EOFError: the broker has closed the connection."""
        return self._exactly(*struct.unpack(">i", self._exactly(4)))

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError(f"{len(data)} of {count} bytes came")
            data += more
        return data

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic, of which there need not be one: then zeros."""
        return self.ask("Metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=False)["topics"][0]["topic_id"]

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without a further byte."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True


def frame(name: str, version: int, correlation_id: int, **values: Any) -> bytes:
    """A request as it is sent."""
    api = APIS[KEYS[name]]
    header = struct.pack(">hhih4s", api.key, version, correlation_id, 4, b"test") + b"\0" * api.request.is_flexible(version)
    body = api.request.encode(values, version, prefix=header)
    return struct.pack(">i", len(body)) + body


def produce(
    wire: Wire, records: bytes, *, topic: str = "t", partition: int = 0, version: int = 9, acks: int = -1, **values: Any
) -> dict[str, Any]:
    """The answer for the one partition of a Produce request."""
    topic_id = wire.topic_id(topic) if version >= BY_ID else bytes(16)
    data = [{"name": topic, "topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}]
    answer = wire.ask("Produce", version, acks=acks, timeout_ms=1000, topic_data=data, **values)
    return answer["responses"][0]["partition_responses"][0]


def fetch(wire: Wire, offset: int = 0, *, topic: str = "t", partition: int = 0, version: int = 12, **values: Any) -> dict[str, Any]:
    """The answer for the one partition of a Fetch request."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1} | {
        name: values.pop(name) for name in ("partition_max_bytes", "current_leader_epoch") if name in values
    }
    topic_id = wire.topic_id(topic) if version >= BY_ID else bytes(16)
    topics = [{"topic": topic, "topic_id": topic_id, "partitions": [asked]}]
    answer = wire.ask("Fetch", version, **{"max_wait_ms": 0, "min_bytes": 1, "topics": topics} | values)
    return answer["responses"][0]["partitions"][0]
