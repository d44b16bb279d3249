"""Produce with each field of a batch wrong in turn: the answer, and the log.  The rules are Kafka's (docs/reference/kafka.md)."""

import itertools
import re
import struct
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import logdb.testing
from benches.peers.kafka import broker as kafka
from logdb.codec import compression
from logdb.codec.batch import header_fields
from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch, encode_record
from support.builders import _varint
from support.kafka_wire import Wire, fetch, produce
from support.waiting import until

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kafka.md"
NOW = int(time.time() * 1000)
LATER = NOW + 2 * 3_600_000  # past message.timestamp.after.max.ms
YEAR_1 = -62_135_596_800_000  # the zero time of Go and .NET
CODECS = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
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


def batch(*records, codec=0, length_by=0, **fields):
    """One batch as a client sends it; ``fields`` are those that are wrong, ``length_by``: how much its length is too large."""
    compress = None if codec == 0 else lambda data: compression.compress(codec, data)
    records = records or [Rec(b"k", b"v"), Rec(b"l", b"w")]
    data = bytearray(encode_batch(records, codec=codec, compress=compress, **{"base_timestamp": NOW} | fields))
    (length,) = struct.unpack_from(">i", data, 8)
    struct.pack_into(">i", data, 8, length + length_by)
    return bytes(data)


PRODUCER = {"producer_id": 1 << 40, "producer_epoch": 0, "base_sequence": 0}


FIELDS = [  # what is wrong; our code; Kafka's
    ({}, Code.NONE, Code.NONE),
    ({"base_offset": 5}, Code.NONE, Code.INVALID_RECORD),
    ({"base_offset": -1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"length": -1}, Code.CORRUPT_MESSAGE, Code.CORRUPT_MESSAGE),
    ({"length": 0}, Code.CORRUPT_MESSAGE, Code.CORRUPT_MESSAGE),
    ({"length": 48}, Code.CORRUPT_MESSAGE, Code.CORRUPT_MESSAGE),
    ({"length": 2**31 - 1}, Code.MESSAGE_TOO_LARGE, Code.UNKNOWN_SERVER_ERROR),
    ({"length_by": -1}, Code.CORRUPT_MESSAGE, Code.CORRUPT_MESSAGE),
    ({"length_by": 1}, Code.CORRUPT_MESSAGE, Code.INVALID_RECORD),
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
    ({"base_timestamp": -1}, Code.NONE, Code.NONE),
    ({"base_timestamp": 0}, Code.NONE, Code.NONE),
    ({"base_timestamp": YEAR_1}, Code.NONE, Code.NONE),
    ({"base_timestamp": -(2**63)}, Code.NONE, Code.INVALID_TIMESTAMP),
    ({"base_timestamp": LATER}, Code.INVALID_TIMESTAMP, Code.INVALID_TIMESTAMP),
    ({"base_timestamp": 2**63 - 1}, Code.INVALID_TIMESTAMP, Code.INVALID_TIMESTAMP),
    ({"max_timestamp": -1}, Code.NONE, Code.NONE),
    ({"max_timestamp": 0}, Code.NONE, Code.NONE),
    ({"max_timestamp": NOW + 1}, Code.NONE, Code.NONE),
    ({"max_timestamp": 2**63 - 1}, Code.NONE, Code.NONE),
    ({"max_timestamp": -1} | PRODUCER, Code.NONE, Code.NONE),
    (PRODUCER, Code.NONE, Code.NONE),
    ({"producer_id": 5}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"producer_id": -2}, Code.NONE, Code.NONE),
    (PRODUCER | {"producer_id": -2}, Code.NONE, Code.NONE),
    (PRODUCER | {"producer_id": 2**63 - 1}, Code.NONE, Code.NONE),
    ({"producer_epoch": 3}, Code.NONE, Code.NONE),
    (PRODUCER | {"producer_epoch": -1}, Code.INVALID_RECORD, Code.NONE),
    (PRODUCER | {"producer_epoch": -2}, Code.INVALID_RECORD, Code.INVALID_PRODUCER_EPOCH),
    (PRODUCER | {"base_sequence": -1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"base_sequence": 3}, Code.NONE, Code.NONE),
    ({"record_count": 1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"record_count": 3}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"record_count": 0}, Code.INVALID_RECORD, Code.INVALID_RECORD),
    ({"record_count": -1}, Code.INVALID_RECORD, Code.INVALID_RECORD),
]


class Sent(NamedTuple):
    """A record as it is sent, and as it is stored."""

    offset_delta: int
    timestamp_ms: int = NOW
    attributes: int = 0

    def encoded(self):
        """With a key, a value, and a length of one byte."""
        data = bytearray(encode_record(Rec(b"k", b"v"), self.offset_delta, self.timestamp_ms - NOW))
        data[1] = self.attributes
        return bytes(data)


RECORDS = [  # the field that is wrong; records; our code; Kafka's, of an uncompressed batch and of a compressed one
    ("attributes", (Sent(0, attributes=1), Sent(1)), Code.NONE, Code.NONE, Code.NONE),
    ("attributes", (Sent(0), Sent(1, attributes=255)), Code.NONE, Code.NONE, Code.NONE),
    ("timestamp", (Sent(0, -1), Sent(1)), Code.NONE, Code.NONE, Code.NONE),
    ("timestamp", (Sent(0), Sent(1, 0)), Code.NONE, Code.NONE, Code.NONE),
    ("timestamp", (Sent(0), Sent(1, YEAR_1)), Code.NONE, Code.NONE, Code.NONE),
    ("timestamp", (Sent(0, -(2**62)), Sent(1)), Code.NONE, Code.NONE, Code.NONE),
    ("timestamp", (Sent(0, NOW - 2**63 + 1), Sent(1)), Code.NONE, Code.INVALID_TIMESTAMP, Code.INVALID_TIMESTAMP),
    ("timestamp", (Sent(0), Sent(1, LATER)), Code.INVALID_TIMESTAMP, Code.INVALID_TIMESTAMP, Code.INVALID_TIMESTAMP),
    ("offset delta", (Sent(1), Sent(2)), Code.INVALID_RECORD, Code.NONE, Code.UNKNOWN_SERVER_ERROR),
    ("offset delta", (Sent(0), Sent(2)), Code.INVALID_RECORD, Code.NONE, Code.UNKNOWN_SERVER_ERROR),
    ("offset delta", (Sent(1), Sent(0)), Code.INVALID_RECORD, Code.NONE, Code.UNKNOWN_SERVER_ERROR),
    ("offset delta", (Sent(0), Sent(0)), Code.INVALID_RECORD, Code.NONE, Code.UNKNOWN_SERVER_ERROR),
    ("offset delta", (Sent(-1), Sent(0)), Code.INVALID_RECORD, Code.NONE, Code.UNKNOWN_SERVER_ERROR),
]


def batch_of(sent, codec):
    """A batch of records as they are, with the header of a batch of as many."""
    body = b"".join(one.encoded() for one in sent)
    body = compression.compress(codec, body) if codec else body
    return batch(*[Rec(b"k", b"v")] * len(sent), codec=codec, body=body)


def stored(data):
    """The records of the last batch, as they lie in it."""
    (*_, header) = header_fields(data)
    body = bytes(data[-(header.length - 49) :])
    codec, at, found = header.attributes & 7, 0, []
    body = bytes(compression.decompress(codec, body, 1 << 20)) if codec else body
    while at < len(body):
        size, at = _varint(body, at)
        timestamp, behind = _varint(body, at + 1)
        found.append(Sent(_varint(body, behind)[0], header.base_timestamp + timestamp, body[at]))
        at += size
    return tuple(found)


@CODECS
@pytest.mark.parametrize(
    ("fields", "code"), [row[:2] for row in FIELDS], ids=[f"{number} {' '.join(row[0])}" for number, row in enumerate(FIELDS)]
)
def test_each_field_of_the_header(wire, topic, codec, fields, code):
    good, is_idempotent = batch(codec=codec), fields.get("producer_id", -1) >= 0
    for repeated in range(2):  # the second request repeats a good one
        answer = produce(wire, batch(codec=codec, **fields), topic=topic)
        assert (Code(answer["error_code"]), answer["base_offset"]) == (code, -1 if code else 4 * repeated * (not is_idempotent))
        assert produce(wire, good, topic=topic)["error_code"] == Code.NONE
    times = {NOW} if code else {NOW, fields.get("base_timestamp", NOW)}
    headers = list(header_fields(fetch(wire, topic=topic)["records"]))
    assert {(found.max_timestamp, found.base_timestamp) for found in headers} == {(at, at) for at in times}


@CODECS
@pytest.mark.parametrize(("field", "sent", "code"), [row[:3] for row in RECORDS])
def test_each_field_of_a_record(wire, topic, codec, field, sent, code):
    assert produce(wire, batch_of(sent, codec), topic=topic)["error_code"] == code
    if code == Code.NONE:
        assert stored(fetch(wire, topic=topic)["records"]) == sent


@pytest.mark.foreign
def test_kafka_answers_as_the_tables_say(tmp_path):
    """Each difference between the two is a decision in docs/reference/kafka.md."""
    if reason := kafka.missing():
        pytest.skip(reason)
    cases = [
        (codec, str(fields), batch(codec=codec, **fields), code, {NOW} if code else {NOW, fields.get("base_timestamp", NOW)}, ())
        for codec, (fields, _, code) in itertools.product(range(5), FIELDS)
    ] + [
        (codec, str(sent), batch_of(sent, codec), compressed if codec else plain, set(), sent)
        for codec, (_, sent, _, plain, compressed) in itertools.product(range(5), RECORDS)
    ]
    answers, expected = [], []
    with kafka.broker(tmp_path / "kafka", heap=kafka.SMALL_HEAP) as address, Wire(address) as wire:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("t", len(cases), 1)])["t"].result(30)
        for partition, (codec, what, data, code, times, sent) in enumerate(cases):
            until(lambda at=partition: not produce(wire, batch(), partition=at)["error_code"])  # it leads the partition
            answer = Code(produce(wire, data, partition=partition)["error_code"])
            found = bytes(fetch(wire, partition=partition)["records"])
            answers.append((codec, what, answer, {one.max_timestamp for one in header_fields(found)} if times else times))
            expected.append((codec, what, code, {max(-1, at) for at in times}))
            if sent and not answer:
                assert stored(found) == sent
    assert [pair for pair in zip(answers, expected, strict=True) if pair[0] != pair[1]] == []


def test_each_difference_is_a_row_of_the_page():
    section = PAGE.read_text(encoding="utf-8").split("## Fields of a batch")[1].split("\n## ")[0]
    written = "".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))
    wrong = {name for fields, ours, kafkas in FIELDS if ours != kafkas for name, value in fields.items() if PRODUCER.get(name) != value}
    of_records = {f"a record's {field}" for field, _, *codes in RECORDS if len(set(codes)) > 1}
    names = of_records | {name.removesuffix("_by").replace("_", " ") for name in wrong}
    assert [name for name in names if name not in written] == []


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
