"""``logdb serve --kafka`` as a shell sees it."""

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import time

import confluent_kafka.admin
import pytest

from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch
from support.certificates import Authority
from support.kafka_wire import Wire, fetch, produce
from support.security import secure

LOGDB = (sys.executable, "-m", "logdb.cli")


@contextlib.contextmanager
def serving(*args, cwd=None):
    process = subprocess.Popen([*LOGDB, "--json", "serve", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
    try:
        yield process, json.loads(process.stdout.readline())["addresses"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()
        process.stderr.close()


def test_it_prints_where_kafka_s_clients_find_it(tmp_path):
    began_s = time.monotonic()
    with serving(str(tmp_path / "db"), "--kafka", "127.0.0.1:0") as (_, addresses), Wire(*addresses) as wire:
        assert time.monotonic() - began_s < 10
        assert wire.ask("Metadata", 9, topics=[{"name": "t"}])["topics"][0]["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_both_doors_have_one_database(tmp_path):
    flags = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--auto-create-topics", "--num-partitions", "3")
    with serving(str(tmp_path / "db"), *flags) as (_, addresses):
        assert addresses[0].startswith("http://")
        with Wire(addresses[1]) as wire:
            assert len(wire.ask("Metadata", 9, topics=[{"name": "t"}])["topics"][0]["partitions"]) == 3
            assert produce(wire, encode_batch([Rec(b"k", b"v")]))["error_code"] == Code.NONE
        logdb = [*LOGDB, "-b", addresses[0], "consume", "t", "--from-beginning", "--max-messages", "1"]
        assert subprocess.run(logdb, capture_output=True, text=True, timeout=60).stdout == "v\n"


def test_kafka_s_file_opens_the_door(tmp_path):
    (tmp_path / "server.properties").write_text(
        "log.dirs=db\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093\nadvertised.listeners=PLAINTEXT://kafka.example:9092\n"
        "auto.create.topics.enable=true\nmax.connections=5\n"
    )
    with serving("--config", "server.properties", cwd=tmp_path) as (_, addresses), Wire(*addresses) as wire:
        answer = wire.ask("Metadata", 9, topics=[{"name": "t"}])
        assert [(one["host"], one["port"]) for one in answer["brokers"]] == [("kafka.example", 9092)]
        assert answer["topics"][0]["error_code"] == Code.NONE


def started_as_kafka(path, *args, **options):
    command = [*LOGDB, "kafka-server-start", *args]
    return subprocess.run(command, cwd=path, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_a_listener_gets_the_security_that_it_asks_for(tmp_path, protocol):
    authority = Authority(tmp_path / "authority")
    (tmp_path / "server.properties").write_text(
        f"log.dirs=db\nlisteners=CLIENTS://127.0.0.1:0,CONTROLLER://:9093\nlistener.security.protocol.map=CLIENTS:{protocol},CONTROLLER:PLAINTEXT\n"
        "ssl.keystore.type=PEM\nssl.keystore.location=server.pem\n"
    )
    files = authority.server()
    tls = ("--tls-cert", str(files.cert), "--tls-key", str(files.key)) if "SSL" in protocol else ()
    where = f"server.properties: listeners='CLIENTS://127.0.0.1:0,CONTROLLER://:9093': CLIENTS has the protocol {protocol}, which needs"
    if tls:
        done = started_as_kafka(tmp_path, "server.properties")
        assert (done.returncode, f"{where} TLS: give --tls-cert FILE, or set LOGDB_TLS_CERT" in done.stderr) == (2, True)
        assert not (tmp_path / "db").exists()
    client = {"security.protocol": protocol, "ssl.ca.location": str(authority.file)}
    if "SASL" in protocol:
        done = started_as_kafka(tmp_path, "server.properties", *tls)
        assert (done.returncode, f"{where} authentication: it is on once there is a user" in done.stderr) == (2, True)
        secure(tmp_path / "db", users={"alice": "wonderland"}, super_users=["alice"])
        client |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "wonderland"}
    with serving("--config", "server.properties", *tls, cwd=tmp_path) as (_, (address,)):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address, **client})
        assert len(admin.list_topics(timeout=20).brokers) == 1


def test_every_file_of_kafka_server_start_is_kafka_s(tmp_path):
    (tmp_path / "broker.conf").write_text("log.dirs = a,b\n")
    assert "broker.conf: log.dirs='a,b': a database has one directory" in started_as_kafka(tmp_path, "broker.conf").stderr
    command = [*LOGDB, "kafka-server-start", "/dev/stdin"]
    done = subprocess.run(command, cwd=tmp_path, input="listeners : PLAINTEXT://h\n", capture_output=True, text=True, timeout=60)
    assert "/dev/stdin: listeners='PLAINTEXT://h': must be NAME://HOST:PORT; PLAINTEXT://h:9092 is one" in done.stderr


def test_kafka_server_start_asks_for_a_file(tmp_path):
    (tmp_path / "logdb.toml").write_text("")
    done = started_as_kafka(tmp_path)
    assert (done.returncode, "kafka-server-start server.properties" in done.stderr) == (2, True)
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    assert "name a database: set log.dirs in the file" in started_as_kafka(tmp_path, "server.properties").stderr


def test_settings_of_http_are_those_of_the_door_that_is_made_for_a_connection(tmp_path):
    (tmp_path / "logdb.toml").write_text("instances_max = 1\nauto_create_topics = true\n")
    with serving(str(tmp_path / "db"), "--kafka", "127.0.0.1:0", cwd=tmp_path) as (_, (address,)):
        answers = []
        for _ in range(2):
            connection = http.client.HTTPConnection(address, timeout=30)
            connection.request("POST", "/consumers/g", b"{}", {"Content-Type": "application/vnd.kafka.v2+json"})
            answers.append(connection.getresponse())
            answers[-1].read()
            connection.close()
    assert [one.status for one in answers] == [200, 503]


@pytest.mark.parametrize("flags", [("--kafka", "0.0.0.0:0"), ("--kafka", "9092"), ("--kafka", "127.0.0.1:0", "--kafka-advertised", "x")])
def test_a_wrong_address_is_refused(tmp_path, flags):
    done = subprocess.run([*LOGDB, "serve", str(tmp_path / "db"), *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path):
    flags = (str(tmp_path / "db"), "--kafka", "127.0.0.1:0", "--auto-create-topics")
    process = subprocess.Popen([*LOGDB, "serve", *flags], stdout=subprocess.PIPE, text=True)
    with Wire(process.stdout.readline().strip()) as wire:
        wire.ask("Metadata", 9, topics=[{"name": "t"}])
        for _ in range(50):
            produce(wire, encode_batch([Rec(b"k", b"v")]))
        process.kill()
        process.wait(30)
        process.stdout.close()
    with serving(*flags) as (_, addresses), Wire(*addresses) as wire:
        answer = fetch(wire)
        assert (answer["error_code"], answer["high_watermark"]) == (Code.NONE, 50)


def test_the_file_of_kafka_s_own_distribution_starts_a_server(tmp_path):
    lines = [
        *("process.roles=broker,controller", "node.id=1", "controller.quorum.bootstrap.servers=localhost:9093"),
        *("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"),
        *("log.dirs=/tmp/kraft-combined-logs", "num.partitions=1", "log.retention.hours=168", "log.segment.bytes=1073741824"),
    ]
    (tmp_path / "server.properties").write_text("\n".join(lines))
    overrides = ("--override", f"log.dirs={tmp_path / 'db'}", "--override", "listeners=PLAINTEXT://:0")
    command = [*LOGDB, "kafka-server-start.sh", str(tmp_path / "server.properties"), *overrides]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        address = process.stdout.readline().strip()
        with Wire(address) as wire:
            assert [(one["host"], one["port"]) for one in wire.ask("Metadata", 9, topics=[])["brokers"]] == [("localhost", 9092)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert "no effect here: controller.quorum.bootstrap.servers, node.id, process.roles" in process.stderr.read()
