import struct

import pytest

from logdb.codec.schema import INT32, RECORDS, Array, Field, Message, Scattered, Struct, write_uvarint
from logdb.errors import InvalidMessage
from logdb_kafka_api.apis import APIS
from logdb_kafka_api.frames import ELEMENTS_MAX, RequestHeader, UnsupportedApi, encode_response, read_header, read_request


def of(text: str) -> bytes:
    return bytes.fromhex(text)


def test_a_request_of_header_version_1() -> None:
    frame = of("0003 0001 00000007 0002 6162 00000001 0001 74")
    header, position = read_header(frame, APIS)
    assert header == (APIS[3], 1, 7, "ab", False)
    assert read_request(header, frame, position)["topics"] == [{"topic_id": bytes(16), "name": "t"}]


def test_a_request_of_header_version_2() -> None:
    frame = of("0012 0003 00000007 ffff 01 05 02 6162") + of("02 78 02 79 00")
    header, position = read_header(frame, APIS)
    assert header == (APIS[18], 3, 7, None, True)
    assert read_request(header, frame, position) == {"client_software_name": "x", "client_software_version": "y"}


def test_a_client_that_asks_for_newer_versions_gets_them_in_version_0() -> None:
    with pytest.raises(UnsupportedApi, match="API 18 in version 99") as caught:
        read_header(of("0012 0063 00000007 0002 6162 01 ff"), APIS)
    assert caught.value.header == (APIS[18], 0, 7, "ab", False)
    body = encode_response(caught.value.header, {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]})
    assert b"".join(body) == of("00000010 00000007 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize(("key", "version"), [(4, 0), (-1, 0), (32_767, 0), (1, 3), (1, 99), (3, -1)])
def test_other_apis_and_versions(key: int, version: int) -> None:
    with pytest.raises(UnsupportedApi) as caught:
        read_header(struct.pack(">hhih", key, version, 1, -1), APIS)
    assert (caught.value.key, caught.value.version, caught.value.header) == (key, version, None)


@pytest.mark.parametrize(
    "frame", ["", "0003", "0003 0001 00000007", "0003 0001 00000007 0005 61", "0003 0001 00000007 0001 ff", "0012 0003 00000007 ffff"]
)
def test_what_is_no_header(frame: str) -> None:
    with pytest.raises(InvalidMessage):
        read_header(of(frame), APIS)


def test_bytes_behind_a_request_are_ignored() -> None:
    """What librdkafka sends to list all topics: its null array takes three bytes more than a compact one."""
    frame = of("0003 000c 00000003 0007 72646b61666b61 00 00000000 01 00 0000")
    assert read_request(*_header_and_frame(frame))["topics"] is None


def _header_and_frame(frame: bytes) -> tuple[RequestHeader, bytes, int]:
    header, position = read_header(frame, APIS)
    return header, frame, position


def test_arrays_of_a_request_are_bounded_together() -> None:
    partitions = 1000
    topic = struct.pack(">h1s", 1, b"t") + struct.pack(">i", partitions) + bytes(partitions * 12)
    for topics in (ELEMENTS_MAX // partitions - 1, ELEMENTS_MAX // partitions):
        frame = struct.pack(">hhih", 2, 1, 7, -1) + struct.pack(">ii", -1, topics) + topic * topics
        call = _header_and_frame(frame)
        if topics * (partitions + 1) <= ELEMENTS_MAX:
            assert len(read_request(*call)["topics"]) == topics
        else:
            with pytest.raises(InvalidMessage, match="must be at most"):
                read_request(*call)


@pytest.mark.parametrize("is_of_header", [True, False])
def test_tagged_fields_of_a_request_are_bounded(is_of_header: bool) -> None:
    """Each takes three bytes here, and as long as an element."""
    begin = struct.pack(">hhih", 18, 3, 7, -1) + (b"" if is_of_header else b"\0\x01\x01")
    for count in (1_000, ELEMENTS_MAX + 1):
        fields = bytearray()
        write_uvarint(fields, count)
        for tag in range(count):
            write_uvarint(fields, tag)
            fields.append(0)
        frame = begin + fields + (b"\x01\x01\0" if is_of_header else b"")
        if count < ELEMENTS_MAX:
            assert read_request(*_header_and_frame(frame))["client_software_name"] == ""
        else:
            with pytest.raises(InvalidMessage, match="too many elements"):
                read_request(*_header_and_frame(frame))


def test_batches_of_a_response_are_not_copied() -> None:
    batches = [memoryview(bytearray(b"a" * 1000)), memoryview(bytearray(b"b" * 10))]
    partitions = [{"partition_index": at, "records": batch} for at, batch in enumerate([*batches, None])]
    for version in APIS[1].response.versions:
        values = {"responses": [{"topic": "t", "partitions": partitions}]}
        parts = encode_response(RequestHeader(APIS[1], version, 9, None, APIS[1].request.is_flexible(version)), values)
        assert [part for part in parts if any(part is batch for batch in batches)] == batches
        frame = b"".join(parts)
        assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 9)
        begin = 9 if version >= 12 else 8
        assert frame[begin:] == APIS[1].response.encode(values, version)


def test_records_at_the_end_of_a_message() -> None:
    message = Message("M", "0", "none", Field("x", INT32), Field("all", Array(Struct(Field("r", RECORDS)))))
    out = Scattered()
    message.write(out, {"x": 1, "all": [{"r": b""}, {"r": b"xy"}]}, 0)
    assert out.size_bytes == 18
    assert out.buffers() == [of("00000001 00000002 00000000 00000002"), b"xy"]


def test_an_answer_that_is_too_large() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return 1 << 30

    values = {"responses": [{"topic": "t", "partitions": [{"records": Large(b"x")}, {"records": Large(b"x")}]}]}
    with pytest.raises(InvalidMessage, match="FetchResponse of 2147483"):
        encode_response(RequestHeader(APIS[1], 4, 9, None, False), values)
