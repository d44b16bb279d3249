"""Random frames, and whole frames that were changed: an error of the frame, in bounded time and memory.

The door answers them, or closes the connection, and goes on.
"""

import contextlib
import logging
import os
import random
import socket
import struct
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from logdb.codec import schema
from logdb.codec.schema import Array, Message, Struct, Type
from logdb.errors import InvalidMessage
from logdb_kafka_api.api import Api
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.frames import ELEMENTS_MAX, UnsupportedApi, encode_response, read_header, read_request
from support.kafka_door import kafka_door

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
FRAMES, DOOR_FRAMES = 150 * SCALE, 10 * SCALE
LENGTHS = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x80\x80\x80\x80\x08",
    b"\xff\xff\xff\xff\x0f",
    b"\x00",
    b"\x80",
]


def value(kind: Type, rng: random.Random) -> object:
    if isinstance(kind, Array):
        return [value(kind._element, rng) for _ in range(rng.choice((0, 1, 1, 3)))]
    if isinstance(kind, Struct):
        return {field.name: value(field.kind, rng) for field in kind._fields}
    if kind is schema.STRING:
        return "ab"[: rng.randrange(3)]
    if isinstance(kind.default, bytes):
        return rng.randbytes(16)
    return kind.default


def values(message: Message, rng: random.Random) -> dict[str, object]:
    return {field.name: value(field.kind, rng) for field in message._struct._fields}


def whole(api: Api, version: int, rng: random.Random) -> bytes:
    header = struct.pack(">hhih2s", api.key, version, 7, 2, b"me") + b"\0" * api.request.is_flexible(version)
    return header + api.request.encode(values(api.request, rng), version)


def changed(frame: bytes, rng: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at : at + 1] = rng.randbytes(1)
            case 2:
                length = rng.choice(LENGTHS)
                data[at : at + len(length)] = length
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(5))
            case 4:
                data[at:at] = data[at : at + rng.randrange(40)]
    return bytes(data)


def read(frame: bytes) -> None:
    """What a connection does with a frame: what is read can be answered."""
    with contextlib.suppress(InvalidMessage, UnsupportedApi):
        header, position = read_header(frame, APIS)
        request = read_request(header, frame, position)
        data = header.api.request.encode(request, header.version)
        assert header.api.request.encode(header.api.request.decode(data, header.version)[0], header.version) == data
        assert encode_response(header, {})


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_changed_frames(api: Api) -> None:
    rng = random.Random(api.key)
    for _ in range(FRAMES):
        version = rng.choice(api.request.versions)
        frame = whole(api, version, rng)
        read_request(*_at(frame))
        read(changed(frame, rng))


def _at(frame: bytes) -> tuple:
    header, position = read_header(frame, APIS)
    return header, frame, position


def test_random_frames() -> None:
    rng = random.Random(0)
    keys = [*APIS, -1, 4, 27, 1000]
    for _ in range(20 * FRAMES):
        read(rng.randbytes(rng.randrange(60)))
        read(struct.pack(">hhih", rng.choice(keys), rng.randrange(-1, 14), 7, -1) + rng.randbytes(rng.randrange(60)))


@pytest.mark.parametrize(
    "fill", [b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff", b"\x00\x00\x00\x01", b"\x00\x00\xff\xff", b"\x80\x80\x04"]
)
def test_a_large_frame_takes_little_more_than_its_bytes(fill: bytes) -> None:
    size_bytes = 1 << 18
    for api in APIS.values():
        for version in (api.request.versions[0], api.request.versions[-1]):
            header = struct.pack(">hhih", api.key, version, 7, -1) + b"\0" * api.request.is_flexible(version)
            frame = header + fill * (size_bytes // len(fill))
            begin = time.process_time()
            tracemalloc.start()
            read(frame)
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak_bytes < 8 * size_bytes + 600 * ELEMENTS_MAX
            assert time.process_time() - begin < 5


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_door_answers_or_closes(address, caplog, api: Api) -> None:
    """What a handler did not expect would be an error in the log."""
    rng, connection = random.Random(api.key), None
    for _ in range(DOOR_FRAMES):
        frame = whole(api, rng.choice(api.request.versions), rng)
        frame = changed(frame, rng) if rng.random() < 0.6 else frame
        connection = connection or socket.create_connection(address, timeout=0.25)
        try:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            is_open = bool(connection.recv(1 << 16))
        except (TimeoutError, ConnectionError):  # it waits for other members or for records, or is closed
            is_open = False
        if not is_open:
            connection.close()
            connection = None
    if connection is not None:
        connection.close()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[tuple[str, int]]:
    with kafka_door(tmp_path_factory.mktemp("kafka") / "db", drain_ms=0) as served:
        served.db.create_topic("a")
        served.db.create_topic("ab")
        host, _, port = served.address.rpartition(":")
        yield host, int(port)
