"""Reads a topic while it is written: ``python -m benches.peers.kafka.follower ADDRESS COUNT rate|latency``.

Says when it has the first record, and, once it has all, how many there were, the bytes of their values, and, for ``latency``, how long
each was on its way, in ms: its value begins with the time.
"""

import json
import struct
import sys
import time

from confluent_kafka import Consumer, TopicPartition

from benches.peers.kafka.clients import TOPIC

_CONFIG = {
    "group.id": "follower",
    "enable.auto.commit": False,
    "log_level": 3,
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 1_000_000,
    "fetch.message.max.bytes": 8 << 20,
}


def main(address: str, wanted: str, measured: str) -> None:
    consumer = Consumer({"bootstrap.servers": address, **_CONFIG})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    unpack, clock = struct.Struct("<q").unpack_from, time.monotonic_ns
    most = 1_000 if measured == "rate" else 1
    count = size_bytes = 0
    latencies_ms: list[float] = []
    while count < int(wanted):
        found = consumer.consume(most, 0.02) if count else consumer.consume(1, 60)
        now = clock()
        if found and not count:
            print(json.dumps(True), flush=True)
        for message in found:
            size_bytes += len(message.value())
        if measured == "latency":
            latencies_ms += [(now - unpack(message.value())[0]) / 1e6 for message in found]
        count += len(found)
    print(json.dumps((count, size_bytes, latencies_ms)), flush=True)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
