"""kafka-python's batches read by us, and ours by kafka-python, in all five codecs."""

import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import logdb
from logdb.codec import convert
from logdb.codec.batch import Status, check
from logdb.codec.control import ControlType, parse
from logdb.model import COMPRESSION_TYPES
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log
from support.peers import RECORDS, Row, any_records, rows_expected, rows_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

CODECS = pytest.mark.parametrize("codec", range(5), ids=COMPRESSION_TYPES)


def build(records: list[Rec], codec: int, **given: Any) -> bytes:
    options = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **given}
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=codec, batch_size=1 << 30, **options)
    for offset, record in enumerate(records):
        assert builder.append(offset, record.timestamp_ms, record.key, record.value, list(record.headers)) is not None
    return bytes(builder.build())


def read(batches: bytes) -> list[Row]:
    memory, rows = MemoryRecords(batches), []
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        rows += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
    return rows


@CODECS
def test_its_batches_are_read_by_us(codec: int) -> None:
    batch = build(RECORDS, codec)
    assert batch[22] & 7 == codec
    assert rows_of(batch) == rows_expected(RECORDS)


@CODECS
def test_ours_are_read_by_it(codec: int) -> None:
    log = encode_log([RECORDS[:100], RECORDS[100:101], RECORDS[101:]])
    assert read(convert.compress_batches(log, codec)) == rows_expected(RECORDS)


@given(any_records)
def test_any_batch_both_ways(records: list[Rec]) -> None:
    for codec in range(5):  # it leaves uncompressed what would not get smaller
        assert rows_of(build(records, codec)) == rows_expected(records)
        assert read(convert.compress_batches(encode_batch(records), codec)) == rows_expected(records)


@CODECS
def test_producer_fields_and_append_time_survive(codec: int) -> None:
    theirs = build(RECORDS, codec, is_transactional=1, producer_id=77, producer_epoch=3, base_sequence=9)
    status, header, _ = check(theirs)
    assert status == Status.OK
    assert header is not None
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.attributes) == (77, 3, 9, 16 | codec)
    batches = bytearray(theirs)
    convert.stamp_append_time(batches, BASE_TIMESTAMP + 99)
    batch = MemoryRecords(bytes(batches)).next_batch()
    assert batch.validate_crc()
    assert (batch.timestamp_type, batch.max_timestamp, batch.producer_id) == (1, BASE_TIMESTAMP + 99, 77)
    assert {record.timestamp for record in batch} == {BASE_TIMESTAMP + 99}


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_control_records_are_the_same_to_both(kind: ControlType) -> None:
    marker = encode_batch([Rec(b"\0\0" + kind.to_bytes(2, "big"), b"\0\0\0\0\0\5")], attributes=48, producer_id=4)
    (record,) = MemoryRecords(marker).next_batch()
    assert (record.abort, record.commit) == (kind == ControlType.ABORT, kind == ControlType.COMMIT)
    assert parse(marker).type == kind


@CODECS
def test_its_batches_through_a_segment(tmp_path: Path, codec: int) -> None:
    with logdb.open(tmp_path) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"first")
        assert log.append_batches(build(RECORDS, codec)) == range(1, len(RECORDS) + 1)
        rows = [(r.offset - 1, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in log.read(1)]
    assert rows == rows_expected(RECORDS)
    (segment,) = tmp_path.glob("t-0/*.log")
    assert [(row[0] - 1, *row[1:]) for row in read(segment.read_bytes())[1:]] == rows_expected(RECORDS)


@CODECS
def test_our_segments_are_read_by_it(tmp_path: Path, codec: int) -> None:
    with logdb.open(tmp_path) as db:
        db.create_topic("t", config={"compression.type": COMPRESSION_TYPES[codec]})
        db.log("t").append_many(
            [r.value for r in RECORDS],
            [r.key for r in RECORDS],
            headers=[r.headers for r in RECORDS],
            timestamps_ms=[r.timestamp_ms for r in RECORDS],
        )
    (segment,) = tmp_path.glob("t-0/*.log")
    data = segment.read_bytes()
    assert data[22] & 7 == codec
    assert read(data) == rows_expected(RECORDS)
