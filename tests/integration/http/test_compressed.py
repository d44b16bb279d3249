"""Records of a compressed topic, read by those for whom the server decodes them."""

import json

import pytest

from support.serving import served
from support.wire import wire

READ = "/topics/t/partitions/0/records?offset=1"
EVENTS = b"GET /logdb/v1/topics/t/partitions/0/events?offset=1&format=json HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_topic_is_read_like_any_other(tmp_path, codec):
    with served(tmp_path / "db") as server:
        server.database.create_topic("t", config={"compression.type": codec})
        for number in range(4):
            server.database.log("t").append_many([b"%d" % number])
        status, records = server.call(READ, headers={"Accept": "application/vnd.kafka.json.v2+json"})
        assert (status, [record["value"] for record in records]) == (200, [1, 2, 3])
        with wire(server.url) as line:
            line.send(EVENTS)
            said = b""
            while said.count(b"\ndata: ") < 3:
                said += line.socket.recv(65536)
        values = [json.loads(part[6:])["value"] for part in said.split(b"\n") if part.startswith(b"data: ")]
        assert values == [1, 2, 3]
