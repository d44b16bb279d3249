"""Kafka Streams on the Kafka door: its programs, unchanged, with their changelog and repartition topics in logdb.

Skipped, with the reason, where Java or Maven are missing.
"""

import subprocess
import sys

import confluent_kafka
import pytest

import logdb
from benches.peers.kafka.jars import PLATFORM
from logdb import testing
from support.feeding import fed
from support.java import compiled, java, running
from support.ports import free_port
from support.word_counts import SOURCE, check, exactly_once, word_of

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def jars():
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)


def records(database, topic, isolation_level="read_committed"):
    """What consumers find, partition by partition."""
    partitions = range(database.describe_topic(topic).partition_count)
    return [record for one in partitions for record in database.log(topic, one).read(0, isolation_level=isolation_level)]


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    return compiled(SOURCE, tmp_path_factory.mktemp("classes"))


def test_a_stateful_program_is_killed(classes, tmp_path, record_property):
    """Once it comes back to its directory, once to an empty one, where its changelog is all that there is."""
    with testing.broker(session_timeout_ms_min=1000) as (address, database):
        for name in ("words", "counts"):
            database.create_topic(name, partitions=3)
        logs, counts = [[database.log(name, one) for one in range(3)] for name in ("words", "counts")]
        sent = []

        def is_amid(least):
            """Whether so much is written, and the end of a transaction is neither written nor decided."""
            if sum(log.end_offset for log in counts) < least or all(log.last_stable_offset == log.end_offset for log in counts):
                return False
            return not {one.state for one in database.transactions()} & {"PrepareCommit", "PrepareAbort"}

        def send(number):
            logs[number % 3].append(word_of(number).encode(), b"%d" % number)
            sent.append(word_of(number))

        with fed(send):
            for number in (1, 1, 2):
                file = exactly_once(address, tmp_path, f"state-{number}")
                with running(java("WordCounts", file, classes=classes), tmp_path / "log") as program:
                    enough = sum(log.end_offset for log in counts) + 1_000
                    program.kill_while(lambda least=enough: is_amid(least), address)
        with running(java("WordCounts", file, classes=classes), tmp_path / "log") as program:
            program.until(lambda: len(records(database, "counts")) >= len(sent))
        found, all_records = (records(database, "counts", level) for level in ("read_committed", "read_uncommitted"))
        check([(one.key.decode(), int(one.value)) for one in found], sent)
        assert len(all_records) > len(found)  # transactions were open
        names = [f"word-counts-KSTREAM-AGGREGATE-STATE-STORE-0000000002-{kind}" for kind in ("changelog", "repartition")]
        changelog, repartition = [sum(database.log(name, one).start_offset for one in range(3)) for name in names]
        assert changelog == 0 < repartition  # the program deletes what it has read
        record_property("told", f"Streams: {len(sent)} words, {len(all_records) - len(found)} counts of aborted transactions")


def test_the_server_is_killed_under_it(classes, tmp_path):
    """The program and the clients go on where the directory is served again."""
    with logdb.open(tmp_path / "db") as database:
        for name in ("words", "counts"):
            database.create_topic(name, partitions=3)
    address, sent, told = f"127.0.0.1:{free_port()}", [], []
    options = {"bootstrap.servers": address, "log_level": 0}
    producer = confluent_kafka.Producer(options | {"enable.idempotence": True, "linger.ms": 1})
    consumer = confluent_kafka.Consumer(options | {"group.id": "g", "isolation.level": "read_committed", "reconnect.backoff.max.ms": 500})
    consumer.assign([confluent_kafka.TopicPartition("counts", one, 0) for one in range(3)])

    def serve():
        flags = ("--kafka", address, "--session-timeout-ms-min", "1000")
        command = [sys.executable, "-m", "logdb.cli", "serve", str(tmp_path / "db"), *flags]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def send(number):
        producer.produce("words", word_of(number).encode(), b"%d" % number, partition=number % 3)
        producer.poll(0)
        sent.append(word_of(number))

    def read():
        told.extend((one.key().decode(), int(one.value())) for one in consumer.consume(1_000, 0.05) if one.error() is None)
        return len(told)

    file = exactly_once(address, tmp_path)
    server = serve()
    try:
        with running(java("WordCounts", file, classes=classes), tmp_path / "log") as program:
            with fed(send):
                for _ in range(3):
                    wanted = read() + 1_000
                    program.until(lambda least=wanted: read() >= least)
                    server.kill()
                    server.wait(30)
                    server = serve()
            assert producer.flush(60) == 0
            program.until(lambda: read() >= len(sent))
        check(told, sent)
    finally:
        consumer.close()
        server.terminate()
        assert server.wait(30) == 0
