"""A broker that does nothing: ``python -m benches.peers.kafka.nothing PORT [SEGMENT …]``.  It shows what a client is capable of.

Produce is acknowledged without being looked at: the kernel drops its bytes (``MSG_TRUNC``), so that not even a copy is paid for.  Fetch
sends what lies in memory, read beforehand from the segments of a log.  All else, which a client asks a few times, has the shortest answer
that is one.  Knows one topic with one partition, whatever it is called, and groups of one member.  Stores nothing, checks nothing.
"""

import bisect
import functools
import itertools
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benches.peers._server import HOST
from benches.peers.kafka.clients import TOPIC
from logdb.codec.batch import header_fields
from logdb.model import Buffer
from logdb_kafka_api import frames
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.frames import RequestHeader

_HEAD = struct.Struct(">ihhi")
_PRODUCE = 0
_DROPPED_BYTES = 1 << 20  # at a time
_SERVED = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 22)
_LOG_OVERHEAD_BYTES = 12
_EARLIEST = -2
_TOPIC_ID = bytes(15) + b"\1"


class Nothing:
    """The answers.  Threading: a thread for each connection; what they share does not change."""

    def __init__(self, port: int, log: bytes) -> None:
        self._port, self._log = port, memoryview(log)
        self._offsets, self._positions = [0], [0]
        for one in header_fields(log):
            self._offsets.append(one.base_offset + one.last_offset_delta + 1)
            self._positions.append(self._positions[-1] + one.length + _LOG_OVERHEAD_BYTES)
        self._members = itertools.count()

    def serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        dropped = bytearray(_DROPPED_BYTES)
        with client:
            while len(head := client.recv(_HEAD.size, socket.MSG_WAITALL)) == _HEAD.size:
                size, key, version, correlation_id = _HEAD.unpack(head)
                left = size + 4 - _HEAD.size
                if key == _PRODUCE:
                    while left:
                        left -= client.recv_into(dropped, min(left, _DROPPED_BYTES), socket.MSG_TRUNC)
                    answer = _acknowledgement(version)
                    client.sendall(answer[:4] + struct.pack(">i", correlation_id) + answer[8:])
                    continue
                for part in self.answer(head[4:] + client.recv(left, socket.MSG_WAITALL)):
                    client.sendall(part)

    def answer(self, frame: bytes) -> Sequence[Buffer]:
        """The answer to a request, given without its size, that is no Produce."""
        try:
            header, position = frames.read_header(frame, APIS)
        except frames.UnsupportedApi as error:
            if error.header is None:
                raise
            # ApiVersions is asked again in a version that there is
            return frames.encode_response(error.header, {"error_code": 35, "api_keys": _versions()})
        return frames.encode_response(header, self._answer(header, frames.read_request(header, frame, position)))

    def _answer(self, header: RequestHeader, asked: dict[str, Any]) -> dict[str, Any]:
        match header.api.key:
            case 1:
                return self._fetch(asked)
            case 2:
                is_earliest = asked["topics"][0]["partitions"][0]["timestamp"] == _EARLIEST
                return _of_partition({"offset": 0 if is_earliest else self._offsets[-1]})
            case 3:
                partition = {"partition_index": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1]}
                topic = {"name": TOPIC, "topic_id": _TOPIC_ID, "partitions": [partition]}
                return {"brokers": [self._here() | {"node_id": 1}], "cluster_id": "none", "controller_id": 1, "topics": [topic]}
            case 8:
                return _of_partition({})
            case 9:
                of_topic = {
                    "name": TOPIC,
                    "topic_id": _TOPIC_ID,
                    "partitions": [{"partition_index": 0, "committed_offset": -1, "metadata": ""}],
                }
                return {"topics": [of_topic], "groups": [{"group_id": one["group_id"], "topics": [of_topic]} for one in asked["groups"]]}
            case 10:
                there = self._here() | {"node_id": 1}
                return there | {"coordinators": [there | {"key": key} for key in asked["coordinator_keys"]]}
            case 11:
                member = asked["member_id"] or f"member-{next(self._members)}"
                protocol = asked["protocols"][0]
                joined = {"member_id": member, "metadata": bytes(protocol["metadata"])}
                named = {"protocol_type": asked["protocol_type"], "protocol_name": protocol["name"], "leader": member, "member_id": member}
                return {"generation_id": 1, "members": [joined], **named}
            case 14:
                named = {name: asked[name] for name in ("protocol_type", "protocol_name")}
                return {"assignment": bytes(asked["assignments"][0]["assignment"]), **named}
            case 18:
                return {"api_keys": _versions()}
            case 22:
                return {"producer_id": 1, "producer_epoch": 0}
            case _:
                return {"members": [{"member_id": one["member_id"]} for one in asked.get("members", ())]}

    def _here(self) -> dict[str, Any]:
        return {"host": HOST, "port": self._port}

    def _fetch(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Whole batches from the one that has the offset on, at least one."""
        wanted = [one for topic in asked["topics"] for one in topic["partitions"]]
        end = self._offsets[-1]
        if not wanted or wanted[0]["fetch_offset"] >= end:
            time.sleep(asked["max_wait_ms"] / 1e3)
            return {"responses": []} if not wanted else {"responses": [_partition(end, b"")]}
        first = bisect.bisect_right(self._offsets, wanted[0]["fetch_offset"]) - 1
        begin = self._positions[first]
        most = min(asked["max_bytes"], wanted[0]["partition_max_bytes"])
        last = max(bisect.bisect_right(self._positions, begin + most) - 1, first + 1)
        return {"responses": [_partition(end, self._log[begin : self._positions[last]])]}


def _of_partition(values: dict[str, Any]) -> dict[str, Any]:
    return {"topics": [{"name": TOPIC, "topic_id": _TOPIC_ID, "partitions": [{"partition_index": 0, **values}]}]}


def _partition(end: int, records: "bytes | memoryview") -> dict[str, Any]:
    marks = {"high_watermark": end, "last_stable_offset": end, "log_start_offset": 0}
    return {
        "topic": TOPIC,
        "topic_id": _TOPIC_ID,
        "partitions": [{"partition_index": 0, **marks, "aborted_transactions": [], "records": records}],
    }


def _versions() -> list[dict[str, int]]:
    ranges = {key: APIS[key].request.versions for key in _SERVED}
    return [{"api_key": key, "min_version": versions[0], "max_version": versions[-1]} for key, versions in ranges.items()]


@functools.cache
def _acknowledgement(version: int) -> bytes:
    answers = [{"name": TOPIC, "partition_responses": [{"index": 0, "base_offset": 0}]}]
    return b"".join(frames.encode_response(RequestHeader(APIS[_PRODUCE], version, 0, None), {"responses": answers}))


def main(port: str, *segments: str) -> None:
    broker = Nothing(int(port), b"".join(Path(segment).read_bytes() for segment in segments))
    with socket.create_server((HOST, int(port)), backlog=128) as listener:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=broker.serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
