"""HTTP at the address of the Kafka door: the connection goes to the HTTP door, which is made if there is none."""

import contextlib
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

import logdb
from logdb.client.serving import make_server
from support.kafka_door import kafka_door
from support.kafka_wire import Wire

LOGDB = (sys.executable, "-m", "logdb.cli")


def test_a_session_at_the_address_of_the_kafka_door(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        with logdb.open(f"http://{served.address}") as db:
            db.create_topic("t", partitions=2)
            db.log("t", 1).append_many([b"%d" % n for n in range(5000)])
            assert [record.value for record in db.log("t", 1).read(0)] == [b"%d" % n for n in range(5000)]
        with Wire(served.address) as wire:
            assert len(wire.ask("Metadata", 9, topics=[{"name": "t"}])["topics"][0]["partitions"]) == 2


def test_the_door_that_is_there_is_used(tmp_path):
    doors = {"http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}
    with logdb.open(tmp_path) as db, make_server(db._session, doors, connections_max=2, connections_per_address_max=2).start() as server:
        http, kafka = (address.rpartition("/")[2] for address in server.addresses)
        with contextlib.ExitStack() as held:
            for address in (http, kafka):
                held.enter_context(held_open(address))
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(f"http://{kafka}/health/live", timeout=10)
        with held_open(kafka), Wire(kafka) as one, Wire(kafka) as two:  # the first has given its slot back
            assert one.ask("ApiVersions", 3)["error_code"] == two.ask("ApiVersions", 3)["error_code"] == 0


@contextlib.contextmanager
def held_open(address):
    """A connection with an answered request."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as held:
        for part in (b"GET", b" /health/live HTTP/1.1\r\nHost: x\r\n\r\n"):  # the begin alone says nothing
            held.sendall(part)
        assert held.recv(1 << 16).startswith(b"HTTP/1.1 200")
        yield held


@pytest.mark.parametrize(
    "begun", [b"GOT / HTTP/1.1\r\n\r\n", b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xffGET / HTTP/1.1\r\n\r\n"], ids=["other", "later"]
)
def test_what_is_no_first_request_of_http_is_a_frame(tmp_path, begun):
    with kafka_door(tmp_path / "db") as served:
        host, _, port = served.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(begun)
            received = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert b"HTTP" not in received


def test_kafka_s_quick_start_by_our_names(tmp_path):
    with kafka_door(tmp_path / "db") as served:

        def run(tool, *flags, lines=""):
            command = [*LOGDB, tool, *flags, "--bootstrap-server", served.address]
            done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert run("kafka-topics.sh", "--create", "--topic", "quickstart-events") == "Created topic quickstart-events.\n"
        assert "PartitionCount: 1\tReplicationFactor: 1" in run("kafka-topics.sh", "--describe", "--topic", "quickstart-events")
        lines = "This is my first event\nThis is my second event\n"
        assert run("kafka-console-producer.sh", "--topic", "quickstart-events", lines=lines) == ""
        flags = ("--topic", "quickstart-events", "--from-beginning", "--max-messages", "2")
        assert run("kafka-console-consumer.sh", *flags) == lines


def test_a_server_drains_both(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        held = held_open(served.address)
        client = held.__enter__()
    assert client.recv(1) == b""
    held.__exit__(None, None, None)
