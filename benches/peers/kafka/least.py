"""A broker that only checks and writes: ``python -m benches.peers.kafka.least PORT FILE``.

It shows what an acknowledged record costs a server on asyncio at the least.  The CRC of each Produce's batch is checked by our core, its
bytes are written to FILE by one ``pwrite``, and it is acknowledged.  It gets no offset, and nothing looks at its records, its producer, or
who may write.  All else is answered as ``nothing`` does.
"""

import asyncio
import os
import struct
import sys

from benches.peers._server import HOST
from benches.peers.kafka.nothing import Nothing
from logdb.codec.batch import Status, check
from logdb_kafka_api import frames
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.errors import Code
from logdb_kafka_api.repeated import RepeatedProduce

_SIZE_AND_KEY = struct.Struct(">ih")
_SIZE_BYTES = 4
_PRODUCE = 0
_ROOM_BYTES = 4 << 20
_APPENDED = {"error_code": Code.NONE, "base_offset": 0, "log_append_time_ms": -1, "log_start_offset": 0}


class End:
    """The end of the file that batches go to."""

    def __init__(self, path: str) -> None:
        self._file, self._position = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 0

    def append(self, batch: memoryview) -> None:
        assert check(batch)[0] is Status.OK
        os.pwrite(self._file, batch, self._position)
        self._position += len(batch)


class Least(asyncio.BufferedProtocol):
    """One connection, whose Produce requests differ in their records alone."""

    def __init__(self, broker: Nothing, end: End) -> None:
        self._broker, self._end = broker, end
        self._room, self._filled = memoryview(bytearray(_ROOM_BYTES)), 0
        self._repeated: RepeatedProduce | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        at, answers = 0, bytearray()
        while self._filled - at >= _SIZE_AND_KEY.size:
            size, key = _SIZE_AND_KEY.unpack_from(self._room, at)
            begin, at_next = at + _SIZE_BYTES, at + _SIZE_BYTES + size
            if at_next > self._filled:
                break
            frame = self._room[begin:at_next]
            answers += self._produced(frame) if key == _PRODUCE else b"".join(self._broker.answer(bytes(frame)))
            at = at_next
        if at:
            left = bytes(self._room[at : self._filled])
            self._filled = len(left)
            self._room[: self._filled] = left
        if answers:
            self._transport.write(answers)

    def _produced(self, frame: memoryview) -> bytes:
        if self._repeated is None:
            header, position = frames.read_header(frame, APIS)
            self._repeated = RepeatedProduce(header, frames.read_request(header, frame, position), frame)
        read = self._repeated.read(frame)
        assert read is not None
        correlation_id, records = read
        self._end.append(records)
        return b"".join(self._repeated.encode(correlation_id, _APPENDED))


async def main(port: str, file: str) -> None:
    broker, end = Nothing(int(port), b""), End(file)
    server = await asyncio.get_running_loop().create_server(lambda: Least(broker, end), HOST, int(port))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
