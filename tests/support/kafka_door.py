"""A database behind a Kafka door, in this process."""

import contextlib
import socket
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import logdb
from logdb.client.serving import make_server
from logdb_kafka_api.apis import APIS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    import kafka as kafka_python

__all__ = ["Served", "Wire", "kafka_door", "kafka_python"]


class Served(NamedTuple):
    """The database, and where clients find it."""

    db: logdb.Database
    address: str


@contextlib.contextmanager
def kafka_door(path: Path, **options: Any) -> Iterator[Served]:
    with logdb.open(path) as db, make_server(db, {"kafka": "127.0.0.1:0"}, **options).start() as server:
        yield Served(db, server.addresses[0])


class Wire:
    """One connection on which requests are made by their tables."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.stream = self.socket.makefile("rb")

    def ask(self, key: int, version: int, **values: Any) -> dict[str, Any]:
        api = APIS[key]
        flexible = api.request.is_flexible(version)
        frame = struct.pack(">hhih2s", key, version, 7, 2, b"me") + b"\0" * flexible + api.request.encode(values, version)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self.stream.read(4))
        answer = self.stream.read(size)
        return api.response.decode(answer, version, 4 + (flexible and key != 18))[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.socket.close()
