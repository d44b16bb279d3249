import struct

import pytest

from logdb.codec import messages
from logdb.errors import InvalidAnswer, InvalidMessage, LogdbError
from logdb.model import TopicPartition
from logdb.requests.records import Produce
from logdb_http_api.remote.batch_requests import Appended, ProduceRequest

WHERE = TopicPartition("orders", 7)
VERSION = 12
HEADER = struct.Struct(">ihhih5sb")


def asked(request: ProduceRequest) -> dict:
    """What a server reads of the frame."""
    data = b"".join(bytes(part) for part in request.frame(42))
    size_bytes, key, version, correlation_id, _, client_id, tagged = HEADER.unpack_from(data)
    assert (size_bytes, key, version, correlation_id, client_id, tagged) == (len(data) - 4, 0, VERSION, 42, b"logdb", 0)
    values, end = messages.PRODUCE_REQUEST.decode(data, VERSION, HEADER.size)
    assert end == len(data)
    return values


@pytest.mark.parametrize("size_bytes", [0, 1, 100, 126, 127, 128, 16_383, 16_384, 300_000])
def test_a_frame_has_the_batches(size_bytes):
    batches = bytes(at % 251 for at in range(size_bytes))
    for _ in range(2):  # the second one by what is kept of the first
        values = asked(ProduceRequest(Produce(*WHERE), batches))
        (topic,) = values["topic_data"]
        (one,) = topic["partition_data"]
        assert (topic["name"], one["index"], bytes(one["records"])) == (*WHERE, batches)
        assert (values["detailed"], values["durability"], values["transactional_id"]) == (True, "", None)
        assert (one["expected_offset"], one["mirrored"]) == (-1, False)


@pytest.mark.parametrize(
    "options",
    [
        {"durability": "fsync"},
        {"transactional_id": "x" * 200},
        {"expected_offset": 0},
        {"expected_offset": 1 << 40, "mirrored": True},
    ],
)
def test_a_frame_has_what_was_asked(options):
    asked(ProduceRequest(Produce(*WHERE), b"before"))
    values = asked(ProduceRequest(Produce(*WHERE, **options), b"batch"))
    (one,) = values["topic_data"][0]["partition_data"]
    assert bytes(one["records"]) == b"batch"
    found = {**values, **one}
    assert {name: found[name] for name in options} == options


def answer(topic: str = WHERE.topic, throttle_ms: int = 0, **changed: object) -> bytes:
    one = {"index": WHERE.partition, "base_offset": 5, "next_offset": 6} | changed
    values = {"responses": [{"name": topic, "partition_responses": [one]}], "throttle_time_ms": throttle_ms}
    return messages.PRODUCE_RESPONSE.encode(values, VERSION)


def said(data: bytes, record_count: int = 1) -> Appended:
    request = ProduceRequest(Produce(*WHERE), b"batch", record_count)
    return request.of_frame(request.decoded(data), "http://s")


@pytest.mark.parametrize("offset", [0, 5, (1 << 62) - 1, 0x01020304_05060708])
def test_offsets_of_an_answer(offset):
    assert said(answer(base_offset=offset, next_offset=offset + 1)) == (offset, offset + 1)


def test_an_unusual_answer_means_the_same():
    assert said(answer(throttle_ms=9)) == said(answer(log_start_offset=3)) == said(answer(error_message="none")) == (5, 6)


def test_a_refusal_is_none_of_the_usual_answers():
    with pytest.raises(LogdbError, match="code 87"):
        said(answer(error_code=87))


@pytest.mark.parametrize(("base_offset", "next_offset"), [(-1, 0), (5, 7), (6, 5)])
def test_offsets_that_cannot_be(base_offset, next_offset):
    with pytest.raises(InvalidAnswer):
        said(answer(base_offset=base_offset, next_offset=next_offset))


def test_bytes_that_are_no_answer():
    for size_bytes in range(len(answer())):
        with pytest.raises(InvalidMessage):
            said(answer()[:size_bytes])
