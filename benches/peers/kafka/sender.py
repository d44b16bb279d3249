"""One of several producers: ``python -m benches.peers.kafka.sender ADDRESS COUNT VALUE_SIZE DIRECTORY ready|confluent``.

Says when its records are made, begins when it is sent a line, and says when all are acknowledged.
"""

import itertools
import json
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from benches.peers.kafka.clients import TOPIC, producer_of, send
from benches.workload import BATCH_COUNT, Work, Wrong

_IN_FLIGHT = 5


def confluent(work: Work, address: str) -> Callable[[], None]:
    keys, values = work.records()
    producer = producer_of(address)
    producer.list_topics(TOPIC, timeout=60)
    return lambda: send(producer, keys, values)


def ready(work: Work, address: str) -> Callable[[], None]:
    """Requests of one batch each, as Java's clients send them: the batches, and the frames around them, are made before."""
    from benches.peers.logdb import ready_batches
    from logdb_kafka_api.apis import APIS

    frames = []
    for batch in ready_batches(work):
        data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
        message = APIS[0].request.encode({"acks": -1, "timeout_ms": 30_000, "topic_data": data}, 7)
        frames.append(struct.pack(">ihhih", 10 + len(message), 0, 7, len(frames), -1) + message)
    frames = list(itertools.islice(itertools.cycle(frames), work.count // BATCH_COUNT))
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run() -> None:
        for number, frame in enumerate(frames):
            if number >= _IN_FLIGHT:
                _acknowledged(connection)
            connection.sendall(frame)
        for _ in frames[-_IN_FLIGHT:]:
            _acknowledged(connection)

    return run


def _acknowledged(connection: socket.socket) -> None:
    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    answer = connection.recv(size, socket.MSG_WAITALL)
    code = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(TOPIC) + 4 + 4)[0]
    if code:
        raise Wrong(f"a batch is refused with {code}")


def main(address: str, count: str, value_size: str, directory: str, kind: str) -> None:
    run = {"confluent": confluent, "ready": ready}[kind](Work(Path(directory), int(count), int(value_size)), address)
    print(json.dumps(True), flush=True)
    sys.stdin.readline()
    run()
    print(json.dumps(True), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
