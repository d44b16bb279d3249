"""Produce with each field of a batch wrong in turn: the answer, and the log.  The rules are Kafka's (docs/reference/kafka.md)."""

import itertools
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import logdb.testing
from benches.peers.kafka import broker as kafka
from logdb.codec import compression
from logdb.codec.batch import header_fields
from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch
from support.kafka_wire import Wire, fetch, produce
from support.waiting import until

NOW = int(time.time() * 1000)
YEAR_1 = -62_135_596_800_000  # the zero time of Go and .NET
CODECS = pytest.mark.parametrize("codec", [0, 1, 4], ids=["none", "gzip", "zstd"])
numbers = itertools.count()


@pytest.fixture(scope="module")
def broker():
    with logdb.testing.broker() as running:
        yield running
        assert running.database.verify().problems == []


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as one:
        yield one


@pytest.fixture
def topic(broker, request):
    name = f"{request.node.originalname}-{next(numbers)}"
    broker.database.create_topic(name, **getattr(request, "param", {}))
    return name


def batch(*records, codec=0, **fields):
    """One batch as a client sends it; ``fields`` are those that are wrong."""
    compress = None if codec == 0 else lambda data: compression.compress(codec, data)
    return encode_batch(records or [Rec(b"k", b"v"), Rec(b"l", b"w")], codec=codec, compress=compress, **{"base_timestamp": NOW} | fields)


PRODUCER = {"producer_id": 1 << 40, "producer_epoch": 0, "base_sequence": 0}


FIELDS = [  # what is wrong; our code; Kafka's
    ({}, Code.NONE, Code.NONE),
    ({"base_offset": 5}, Code.NONE, Code.INVALID_RECORD),
    ({"base_offset": -1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"leader_epoch": -1}, Code.NONE, Code.NONE),
    ({"leader_epoch": 9}, Code.NONE, Code.NONE),
    ({"magic": 1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"magic": 3}, Code.INVALID_RECORD, Code.CORRUPT_MESSAGE),
    ({"crc": 7}, Code.CORRUPT_MESSAGE, Code.CORRUPT_MESSAGE),
    ({"attributes": 8}, Code.INVALID_TIMESTAMP, Code.NONE),
    ({"attributes": 16}, Code.INVALID_TXN_STATE, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ({"attributes": 32}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"attributes": 64}, Code.NONE, Code.NONE),
    ({"attributes": 128}, Code.INVALID_RECORD, Code.NONE),
    ({"attributes": 256}, Code.INVALID_RECORD, Code.NONE),
    ({"attributes": 7}, Code.INVALID_RECORD, Code.UNKNOWN_SERVER_ERROR),
    ({"last_offset_delta": 0}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"last_offset_delta": 2}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"last_offset_delta": -1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"max_timestamp": -1}, Code.NONE, Code.NONE),
    ({"max_timestamp": 0}, Code.NONE, Code.NONE),
    ({"max_timestamp": NOW + 1}, Code.NONE, Code.NONE),
    ({"max_timestamp": 2**63 - 1}, Code.NONE, Code.NONE),
    ({"max_timestamp": -1} | PRODUCER, Code.NONE, Code.NONE),
    (PRODUCER | {"producer_epoch": -1}, Code.INVALID_RECORD, Code.NONE),
    (PRODUCER | {"base_sequence": -1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"base_sequence": 3}, Code.NONE, Code.NONE),
    ({"record_count": 1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"record_count": 3}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"record_count": 0}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"record_count": -1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
]


@CODECS
@pytest.mark.parametrize(
    ("fields", "code"), [row[:2] for row in FIELDS], ids=[f"{number} {' '.join(row[0])}" for number, row in enumerate(FIELDS)]
)
def test_each_field_of_the_header(wire, topic, codec, fields, code):
    good = batch(codec=codec)
    for repeated in range(2):  # the second request repeats a good one
        answer = produce(wire, batch(codec=codec, **fields), topic=topic)
        assert (Code(answer["error_code"]), answer["base_offset"]) == (code, -1 if code else 4 * repeated * ("producer_id" not in fields))
        assert produce(wire, good, topic=topic)["error_code"] == Code.NONE
    for found in header_fields(fetch(wire, topic=topic)["records"]):
        assert (found.max_timestamp, found.base_timestamp) == (NOW, NOW)


@pytest.mark.foreign
def test_kafka_answers_as_the_table_says(tmp_path):
    """Each difference between the two is a decision in docs/reference/kafka.md."""
    if reason := kafka.missing():
        pytest.skip(reason)
    cases = list(itertools.product((0, 1, 4), FIELDS))
    answers: dict[tuple[int, str], tuple[str, set[int]]] = {}
    with kafka.broker(tmp_path / "kafka", heap=kafka.SMALL_HEAP) as address, Wire(address) as wire:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("t", len(cases), 1)])["t"].result(30)
        for partition, (codec, (fields, *_)) in enumerate(cases):
            until(lambda at=partition: not produce(wire, batch(), partition=at)["error_code"])  # it leads the partition
            answer = produce(wire, batch(codec=codec, **fields), partition=partition)
            stored = {one.max_timestamp for one in header_fields(fetch(wire, partition=partition)["records"])}
            answers[codec, str(fields)] = Code(answer["error_code"]).name, stored
    expected = {(codec, str(fields)): (code.name, {NOW}) for codec, (fields, _, code) in cases}
    assert [(case, answer, expected[case]) for case, answer in answers.items() if answer != expected[case]] == []


@CODECS
@pytest.mark.parametrize("deltas", [(1, 2), (0, 2), (1, 0), (0, 0)])
def test_offset_deltas_with_gaps_are_refused(wire, topic, codec, deltas):
    """Kafka stores such records as they are, or compresses them anew."""
    records = [Rec(b"k", b"v", offset_delta=delta) for delta in deltas]
    assert produce(wire, batch(*records, codec=codec, last_offset_delta=1), topic=topic)["error_code"] == Code.INVALID_RECORD


@CODECS
@pytest.mark.parametrize("stored_ms", [None, -1, 0])
@pytest.mark.parametrize("times", [[-1], [-2, -1], [YEAR_1], [NOW, -1, YEAR_1], [-(2**63)]], ids=["none", "-2", "year 1", "now", "least"])
def test_timestamps_before_1970_are_stored(broker, wire, topic, codec, stored_ms, times):
    """librdkafka's batches of them have a max timestamp of 0."""
    records = [Rec(b"k", b"v", timestamp_ms=at) for at in times]
    for _ in range(2):
        assert produce(wire, batch(*records, codec=codec, base_timestamp=times[0], max_timestamp=stored_ms), topic=topic)["error_code"] == 0
    assert [record.timestamp_ms for record in broker.database.log(topic).read(0)] == times * 2
    assert {found.max_timestamp for found in header_fields(fetch(wire, topic=topic)["records"])} == {max(times)}


@pytest.mark.parametrize("topic", [{"config": {"cleanup.policy": "compact"}}], indirect=True)
@CODECS
def test_records_without_a_key_are_named(wire, topic, codec):
    records = [Rec(None if number % 10 == 0 else b"k", b"v") for number in range(30)]
    for version in (7, 8, 9):
        answer = produce(wire, batch(*records, codec=codec), topic=topic, version=version)
        assert answer["error_code"] == Code.INVALID_RECORD
        if version >= 8:
            assert [one["batch_index"] for one in answer["record_errors"]] == [0, 10, 20]
            assert "without a key" in answer["record_errors"][0]["batch_index_error_message"]
            assert "without a key" in answer["error_message"]
    left = [record for record in records if record.key is not None]
    assert produce(wire, batch(*left, codec=codec), topic=topic)["error_code"] == Code.NONE


BOUNDS = {"message.timestamp.before.max.ms": 3_600_000, "message.timestamp.after.max.ms": 3_600_000}


@pytest.mark.parametrize("topic", [{"config": BOUNDS}], indirect=True)
@CODECS
def test_records_with_timestamps_out_of_bounds_are_named(broker, wire, topic, codec):
    times = [NOW, NOW - 10**8, -1, NOW + 10**8, 0, NOW]
    answer = produce(wire, batch(*[Rec(b"k", b"v", timestamp_ms=at) for at in times], codec=codec), topic=topic)
    assert answer["error_code"] == Code.INVALID_TIMESTAMP
    assert [one["batch_index"] for one in answer["record_errors"]] == [1, 3, 4]
    assert "message.timestamp.before.max.ms" in answer["error_message"]
    good = [at for at in times if at in (NOW, -1)]
    assert produce(wire, batch(*[Rec(b"k", b"v", timestamp_ms=at) for at in good], codec=codec), topic=topic)["error_code"] == Code.NONE
    assert [record.timestamp_ms for record in broker.database.log(topic).read(0)] == good


@pytest.mark.parametrize("topic", [{"config": {"cleanup.policy": "compact"}}], indirect=True)
@CODECS
def test_a_thousand_records_are_named_at_most(wire, topic, codec):
    answer = produce(wire, batch(*[Rec(None, b"")] * 5000, codec=codec), topic=topic)
    assert [one["batch_index"] for one in answer["record_errors"]] == list(range(1000))
