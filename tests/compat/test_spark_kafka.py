"""Spark's Kafka source over a real Kafka and over our Kafka door, and our source over a directory and over a server: the same options,
the same answers.

One broker and one Spark for all cases; the Spark is the one that Spark's Kafka source is published for.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

import logdb
from benches.peers.kafka import broker
from benches.peers.kafka.jars import SPARK_SOURCE
from benches.peers.spark import environment

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]

EPOCH_MS = 1_700_000_000_000
PARTITION_COUNTS = {"t": 3, "u": 2, "u-other": 1, "committed": 1, "cut": 1, "written": 3, "sunk": 3, "copied": 1, "copy": 1}
CUT_OFFSET = 4  # records of "cut" before it are deleted


class Line(NamedTuple):
    """One record, as both sides get it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


LINES = [
    *(
        Line(
            "t", n % 3, None if n % 5 == 0 else b"k%d" % (n % 7), None if n % 11 == 0 else b"v%d" % n, EPOCH_MS + 10 * n, [("n", b"%d" % n)]
        )
        for n in range(100)
    ),
    *(Line("u", n % 2, b"k", b"u%d" % n, EPOCH_MS + 500 + n) for n in range(20)),
    *(Line("cut", 0, b"k", b"c%d" % n, EPOCH_MS + n) for n in range(10)),
    Line("u-other", 0, b"k", b"other", EPOCH_MS, [("a", b"1"), ("a", None), ("b", b"")]),
]


def by_timestamp(topic: str, timestamp_ms: int, but: Mapping[int, int] = {}) -> str:
    """The same for each partition; ``but``: others for some."""
    return json.dumps({topic: {str(partition): but.get(partition, timestamp_ms) for partition in range(PARTITION_COUNTS[topic])}})


def batch(name: str, **options: str) -> dict[str, Any]:
    return {"name": name, "kind": "batch", "options": options}


def stream(name: str, **options: str) -> dict[str, Any]:
    return {"name": name, "kind": "stream", "options": options}


EQUAL = [
    batch("headers", subscribe="t, u-other", includeHeaders="true"),
    batch("pattern", subscribePattern="u.*"),
    batch("assign, with more tasks", assign='{"t": [0, 2], "u": [1]}', minPartitions="7"),
    batch(
        "between offsets",
        subscribe="t",
        startingOffsets='{"t": {"0": -2, "1": 2, "2": 3}}',
        endingOffsets='{"t": {"0": 9, "1": 2, "2": -1}}',
    ),
    batch("between timestamps", subscribe="t,u", startingTimestamp=str(EPOCH_MS + 505), endingTimestamp=str(EPOCH_MS + 700)),
    batch(
        "by timestamp before offsets, one after the last record",
        subscribe="t",
        startingOffsetsByTimestamp=by_timestamp("t", EPOCH_MS + 333, {1: 2 * EPOCH_MS}),
        startingOffsetsByTimestampStrategy="latest",
        startingOffsets='{"t": {"0": 0, "1": 0, "2": 0}}',
    ),
    batch("names in capitals, ending by timestamp", SUBSCRIBE="t", ENDINGOFFSETSBYTIMESTAMP=by_timestamp("t", EPOCH_MS + 333)),
    batch(
        "one timestamp before timestamps and offsets",
        subscribe="t",
        startingTimestamp=str(EPOCH_MS + 900),
        startingOffsetsByTimestamp=by_timestamp("t", EPOCH_MS),
        startingOffsets='{"t": {"0": 0, "1": 0, "2": 0}}',
    ),
    batch("uncommitted, few records a task", subscribe="committed", maxRecordsPerPartition="4"),
    batch("committed", subscribe="committed", **{"kafka.isolation.level": "read_committed"}),
    batch("what was deleted is no loss", subscribe="cut", startingOffsets='{"cut": {"0": 1}}', failOnDataLoss="false"),
    stream("stream of a pattern, forty at a time", subscribePattern="[tu]", startingOffsets="earliest", maxOffsetsPerTrigger="40"),
    stream("stream from latest", subscribe="t"),
    stream("stream from offsets", subscribe="t", startingOffsets='{"t": {"0": 3, "1": -2, "2": -1}}'),
    stream("stream from a timestamp", subscribe="t", startingTimestamp=str(EPOCH_MS + 505)),
    {
        "name": "write",
        "kind": "write",
        "sources": ["kafka", "url"],  # the directory has a writer already
        "options": {},
        "topic": "written",
        "schema": "topic string, partition int, key string, value string, headers array<struct<key:string,value:binary>>",
        "rows": [["written", n % 3, f"k{n}", f"v{n}", []] for n in range(9)],
    },
    {
        "name": "write by Kafka's sink",
        "kind": "write",
        "sources": ["kafka", "door"],
        "options": {},
        "topic": "sunk",
        "schema": "topic string, partition int, key string, value string, headers array<struct<key:string,value:binary>>",
        "rows": [["sunk", n % 3, f"k{n}", f"v{n}", []] for n in range(9)],
    },
    {
        "name": "copy by Kafka's source and sink",
        "kind": "copy",
        "sources": ["kafka", "door"],
        "options": {"subscribe": "copied", "startingOffsets": "earliest"},
        "schema": "topic string, key string, value string",
        "rows": [["copied", f"k{n}", f"v{n}"] for n in range(9)],
        "copied_to": "copy",
    },
]

REFUSED = [
    batch("two ways to subscribe", subscribe="t", subscribePattern="t"),
    batch("no way to subscribe"),
    batch("malformed offsets", subscribe="t", startingOffsets="{t"),
    batch("offsets of another topic", subscribe="t", startingOffsets='{"u": {"0": 0}}'),
    batch("a partition is missing", subscribe="t", startingOffsets='{"t": {"0": 0}}'),
    batch("what was deleted", subscribe="cut", startingOffsets='{"cut": {"0": 1}}'),
    batch("a partition from latest", subscribe="t", startingOffsets='{"t": {"0": 3, "1": -2, "2": -1}}'),
    batch("from latest", subscribe="t", startingOffsets="latest"),
    batch("to earliest", subscribe="t", endingOffsets="earliest"),
    batch("a timestamp after the last record, strictly", subscribe="t", startingTimestamp=str(2 * EPOCH_MS)),
    batch("tasks that are no number", subscribe="t", minPartitions="many"),
    batch("a topic that does not exist", subscribe="missing"),
    stream("a stream of two", subscribe="t", assign='{"t": [0]}'),
    stream("a stream that ends", subscribe="t", endingOffsets="latest"),
]

OURS = ["door", "path", "url"]
EVERYWHERE = {
    "headers",
    "pattern",
    "committed",
    "by timestamp before offsets, one after the last record",
    "stream of a pattern, forty at a time",
    "what was deleted",
}
"""What each of ``OURS`` is asked; each other case is for one of them in turn, as they share what reads options."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    for reason in (broker.missing(), SPARK_SOURCE.missing(), environment.missing()):
        if reason:
            pytest.skip(reason)
    directory = tmp_path_factory.mktemp("spark")
    with broker.broker(directory / "kafka", heap=broker.SMALL_HEAP) as address, logdb.open(directory / "db") as database:
        fill_kafka(address)
        fill(database)
        with logdb.serve(database, http="127.0.0.1:0", kafka="127.0.0.1:0") as server:
            yield ask(directory / "db", server.addresses, address)


def ask(path: Path, addresses: Sequence[str], address: str) -> dict[str, Any]:
    url, door = addresses
    sources = {
        "kafka": {"format": "kafka", "options": {"kafka.bootstrap.servers": address}},
        "door": {"format": "kafka", "options": {"kafka.bootstrap.servers": door}},
        "path": {"format": "logdb", "options": {"path": str(path)}},
        "url": {"format": "logdb", "options": {"url": url}},
    }
    jars = ",".join(map(str, sorted(SPARK_SOURCE.directory.glob("*.jar"))))
    in_turn = itertools.cycle(OURS)
    cases = [{"sources": ["kafka", *(OURS if case["name"] in EVERYWHERE else [next(in_turn)])]} | case for case in [*EQUAL, *REFUSED]]
    answers: dict[str, Any] = environment.run(
        "tests.compat.spark_answers", {"jars": jars, "sources": sources, "cases": cases}, seconds_max=800
    )
    return answers


def fill_kafka(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for done in admin.create_topics([NewTopic(name, count, 1) for name, count in PARTITION_COUNTS.items()]).values():
        done.result(60)
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for line in LINES:
        producer.produce(
            line.topic, line.value, line.key, partition=line.partition, timestamp=line.timestamp_ms, headers=list(line.headers) or None
        )
    assert producer.flush(60) == 0
    for deleted in admin.delete_records([KafkaPartition("cut", 0, CUT_OFFSET)]).values():
        deleted.result(60)
    producer = Producer({"bootstrap.servers": address, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(60)
    for number, ends in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce("committed", b"%d" % number, partition=0, timestamp=EPOCH_MS + number)
        producer.flush(60)
        (producer.commit_transaction if ends == "commit" else producer.abort_transaction)(60)


def fill(database: logdb.Database) -> None:
    for name, count in PARTITION_COUNTS.items():
        database.create_topic(name, partitions=count)
    for line in LINES:
        database.log(line.topic, line.partition).append(line.value, line.key, headers=line.headers, timestamp_ms=line.timestamp_ms)
    database.delete_records("cut", 0, CUT_OFFSET)
    with database.producer(transactional_id="x") as producer:
        for number, ends in enumerate(("commit", "abort", "commit")):
            producer.begin_transaction()
            for _ in range(5):
                producer.send("committed", b"%d" % number, partition=0, timestamp_ms=EPOCH_MS + number)
            producer.flush()
            (producer.commit_transaction if ends == "commit" else producer.abort_transaction)()
    database.flush()


@pytest.mark.parametrize("name", [case["name"] for case in EQUAL])
def test_the_same_answer(answers: dict[str, Any], name: str) -> None:
    kafka, *ours = (answers[name][source] for source in answers[name])
    assert "rows" in kafka, kafka
    assert ours == [kafka] * len(ours)


@pytest.mark.parametrize("name", [case["name"] for case in REFUSED])
def test_both_refuse(answers: dict[str, Any], name: str) -> None:
    assert all("error" in answer for answer in answers[name].values()), answers[name]
