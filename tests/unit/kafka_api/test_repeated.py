import itertools

import pytest

from logdb.errors import InvalidMessage
from logdb.requests.records import Produce
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.errors import Code
from logdb_kafka_api.frames import UnsupportedApi, encode_response, read_header, read_request
from logdb_kafka_api.repeated import RepeatedProduce, repeatable

PRODUCE = APIS[0]
VERSIONS = [version for version in PRODUCE.request.versions if version >= 5]
IDS = 13  # the first version that names topics by ids
TOPIC_ID = bytes(range(16))
SIZES = (1, 126, 127, 128, 16_383, 16_384, 70_000)  # on both sides of where a compact size takes another byte


KNOWN = {TOPIC_ID: {"name": "t", "logdb_topic_id": "i"}}


def frame_of(version, correlation_id, records, *, topic="t", partition=0, acks=-1, client=b"me", **more):
    data = [{"name": topic, "topic_id": TOPIC_ID, "partition_data": [{"index": partition, "records": records}]}]
    values = {"transactional_id": None, "acks": acks, "timeout_ms": 30_000, "topic_data": data, **more}
    head = b"\0\0" + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + len(client).to_bytes(2, "big") + client
    tags = b"\0" if PRODUCE.request.is_flexible(version) else b""
    return head + tags + PRODUCE.request.encode(values, version)


def decoded(frame):
    """As the door reads a frame that repeats nothing; None: it is no request."""
    try:
        header, position = read_header(frame, APIS)
        values = read_request(header, frame, position)
        if header.version >= IDS:
            for one in values["topic_data"]:
                one.update(KNOWN.get(one["topic_id"], {"name": "", "logdb_topic_id": ""}))
        return header, values
    except (UnsupportedApi, InvalidMessage):
        return None


def repeated(frame):
    return RepeatedProduce(*decoded(frame), frame)


def read(known, frame):
    """A frame as it is read by a request that it repeats; None: it does not."""
    found = known.read(frame)
    if found is None:
        return None
    correlation_id, records = found
    ((topic, part),) = ((topic, part) for topic in known.values["topic_data"] for part in topic["partition_data"])
    data = [topic | {"partition_data": [part | {"records": records}]}]
    return known.header._replace(correlation_id=correlation_id), known.values | {"topic_data": data}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_repeats_another_reads_as_if_it_were_decoded(version):
    for first, second in itertools.product(SIZES, repeat=2):
        frame = frame_of(version, 8, bytes(second))
        assert read(repeated(frame_of(version, 7, bytes(first))), frame) == decoded(frame)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_frame_may_lie_in_any_buffer(kind):
    frame = kind(frame_of(9, 8, b"second"))
    assert read(repeated(kind(frame_of(9, 7, b"first"))), frame) == decoded(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_byte_differs_it_reads_as_decoded_or_is_another_request(version):
    known, frame = repeated(frame_of(version, 7, b"first")), frame_of(version, 8, b"second")
    count = 0
    for at, value in itertools.product(range(len(frame)), (0, 1, 2, 7, 127, 128, 255)):
        changed = frame[:at] + bytes((value,)) + frame[at + 1 :]
        found = read(known, changed)
        assert found is None or found == decoded(changed)
        count += found is not None
    assert count >= 7 * len(b"second")  # the records may have any bytes


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_off_or_longer_repeats_nothing(version):
    known, frame = repeated(frame_of(version, 7, b"first")), frame_of(version, 8, b"second")
    assert all(known.read(frame[:end]) is None for end in range(len(frame)))
    assert known.read(frame + b"\0") is None


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "u"},
        {"partition": 1},
        {"acks": 1},
        {"client": b"him"},
        {"transactional_id": "x"},
        {"timeout_ms": 1},
        {"durability": "os"},
    ],
    ids=str,
)
def test_a_request_that_says_something_else_repeats_nothing(other):
    assert repeated(frame_of(9, 7, b"records")).read(frame_of(9, 8, b"records", **other)) is None
    assert repeated(frame_of(9, 7, b"records")).read(frame_of(10, 8, b"records")) is None


@pytest.mark.parametrize("topic", ["t", "_log_off_log_tim_log_sta"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_what_encode_response_makes(version, topic):
    frame = frame_of(version, 7, b"records", topic=topic)
    known = repeated(frame)
    for number, base_offset in enumerate((0, 1, 1 << 40)):
        header = decoded(frame)[0]._replace(correlation_id=number)
        answer = {"index": 0, "error_code": Code.NONE, "base_offset": base_offset, "log_append_time_ms": -1, "log_start_offset": number}
        values = {"responses": [{"name": topic, "topic_id": TOPIC_ID, "partition_responses": [answer]}]}
        assert b"".join(known.encode(number, answer)) == b"".join(encode_response(header, values))
        refused = {"index": 0, "error_code": Code.INVALID_RECORD, "base_offset": -1, "error_message": "no"}
        values = {"responses": [{"name": topic, "topic_id": TOPIC_ID, "partition_responses": [refused]}]}
        assert b"".join(known.encode(number, refused)) == b"".join(encode_response(header, values))
    assert repeated(frame_of(version, 7, b"records", acks=0)).encode(1, answer) == ()


def test_nothing_of_the_records_is_kept():
    frame = bytearray(frame_of(9, 7, b"records"))
    known = repeated(frame)
    frame.clear()  # would raise if a view of it were kept
    assert read(known, frame_of(9, 8, b"others"))[1]["topic_data"][0]["partition_data"][0]["records"] == b"others"


@pytest.mark.parametrize(
    ("version", "records", "more"),
    [
        (4, b"records", {}),
        (9, None, {}),
        (9, b"", {}),
        (9, b"records", {"detailed": True}),
        (9, b"records", {"acks": 2}),
        (9, b"records", {"durability": "none"}),
        (9, b"records", {"transactional_id": "x"}),
        (9, b"records", {"client": b"x" * 1_024}),
        (9, b"records", {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"x", "mirrored": True}]}]}),
        (9, b"records", {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"x", "expected_offset": 7}]}]}),
        (13, b"records", {"topic_data": [{"topic_id": b"x" * 16, "partition_data": [{"index": 0, "records": b"x"}]}]}),
        (9, b"records", {"topic_data": []}),
        (9, b"records", {"topic_data": [{"name": "t", "partition_data": [{"index": n, "records": b"x"} for n in range(2)]}]}),
        (9, b"records", {"topic_data": [{"name": name, "partition_data": [{"index": 0, "records": b"x"}]} for name in "tu"]}),
    ],
)
def test_other_requests_are_not_remembered(version, records, more):
    frame = frame_of(version, 7, records, **more)
    assert repeatable(*decoded(frame), frame) is None


@pytest.mark.parametrize("more", [{}, {"acks": 0}, {"durability": "os"}], ids=str)
def test_a_small_request_for_one_partition_is_remembered(more):
    frame = frame_of(9, 7, bytes(70_000), partition=3, **more)
    assert repeatable(*decoded(frame), frame) == ("t", 3)
    assert repeated(frame).where == ("t", 3)
    assert repeated(frame).asked == Produce("t", 3, durability=more.get("durability"))
    assert repeated(frame).topic_id == ""


def test_a_request_that_names_its_topic_by_the_id_keeps_what_it_stands_for():
    known = repeated(frame_of(IDS, 7, b"records"))
    assert (known.where, known.topic_id) == (("t", 0), "i")
