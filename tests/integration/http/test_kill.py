"""kill -9 of a server under load, again and again on one directory: every acknowledged record is there, at every level."""

import http.client
import os
import threading
import time

import pytest

import logdb
from support.batches import Rec, encode_batch
from support.server_process import ServerProcess

ROUNDS = 4 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))
CLIENTS = 4
TYPE = {"Content-Type": "application/vnd.logdb.batches"}


def produce(url, client, acknowledged, begun):
    """Send values that nobody else sends, until the server is gone; note what was acknowledged, and where."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    number = 0
    try:
        while True:
            values = [b"%s %d" % (client, number + row) + bytes(number % 500) for row in range(1 + number % 7)]
            connection.request(
                "POST", "/logdb/v1/topics/t/partitions/0/batches", encode_batch([Rec(value=value) for value in values]), TYPE
            )
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status == 200, said
            base = int(said.split(b":")[1].split(b",")[0])
            acknowledged.update(enumerate(values, base))
            begun.set()
            number += len(values)
    except (OSError, http.client.HTTPException):
        return
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["os", "interval", "fsync"])
def test_every_acknowledged_record_is_there(tmp_path, level, record_property):
    acknowledged, opened_s = {}, 0.0
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 200_000, "flush.ms": 20})
    for turn in range(ROUNDS):
        began_s = time.monotonic()
        server = ServerProcess(tmp_path / "db", "--durability", level)
        opened_s = max(opened_s, time.monotonic() - began_s)
        begun = [threading.Event() for _ in range(CLIENTS)]
        clients = [
            threading.Thread(target=produce, args=(server.url, b"%d-%d" % (turn, client), acknowledged, begun[client]))
            for client in range(CLIENTS)
        ]
        for thread in clients:
            thread.start()
        assert all(event.wait(30) for event in begun)
        time.sleep(0.2)  # how long the load lasts; nothing depends on it
        server.kill()
        for thread in clients:
            thread.join()
        with logdb.open(tmp_path / "db", mode="r") as db:
            there = {record.offset: record.value for record in db.log("t").read(0)}
        lost = {offset: value for offset, value in acknowledged.items() if there.get(offset) != value}
        assert not lost, f"turn {turn}: {len(lost)} of {len(acknowledged)} acknowledged records"
    record_property(
        "told", f"kill -9 of a server at {level}: {len(acknowledged)} acknowledged records, {ROUNDS} times; start {opened_s:.2f} s at most"
    )
