"""aiokafka's batches read by us, and ours by aiokafka, in all five codecs; its C code and its Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy
from hypothesis import given

import logdb
from logdb.codec import convert
from logdb.codec.batch import Status, check
from logdb.model import COMPRESSION_TYPES
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log
from support.peers import RECORDS, Row, any_records, rows_expected, rows_of

CODECS = pytest.mark.parametrize("codec", range(5), ids=COMPRESSION_TYPES)
BUILDERS = pytest.mark.parametrize("builder", [DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy], ids=["c", "python"])
READERS = pytest.mark.parametrize("reader", [MemoryRecords, _MemoryRecordsPy], ids=["c", "python"])
Builder = Callable[..., Any]
Reader = Callable[[bytes], Any]


def build(builder: Builder, records: list[Rec], codec: int, **given: Any) -> bytes:
    options = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **given}
    batch = builder(magic=2, compression_type=codec, batch_size=1 << 30, **options)
    for offset, record in enumerate(records):
        headers = list(record.headers)
        assert batch.append(offset, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=headers) is not None
    return bytes(batch.build())


def read(reader: Reader, batches: bytes) -> list[Row]:
    memory, rows = reader(batches), []
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        rows += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    return rows


@CODECS
@BUILDERS
def test_its_batches_are_read_by_us(codec: int, builder: Builder) -> None:
    batch = build(builder, RECORDS, codec)
    assert batch[22] & 7 == codec
    assert rows_of(batch) == rows_expected(RECORDS)


@CODECS
@READERS
def test_ours_are_read_by_it(codec: int, reader: Reader) -> None:
    log = encode_log([RECORDS[:100], RECORDS[100:101], RECORDS[101:]])
    assert read(reader, convert.compress_batches(log, codec)) == rows_expected(RECORDS)


@given(any_records)
def test_any_batch_both_ways(records: list[Rec]) -> None:
    for codec in range(5):  # it leaves uncompressed what would not get smaller
        assert rows_of(build(DefaultRecordBatchBuilder, records, codec)) == rows_expected(records)
        assert read(MemoryRecords, convert.compress_batches(encode_batch(records), codec)) == rows_expected(records)


@CODECS
@BUILDERS
@READERS
def test_producer_fields_and_append_time_survive(codec: int, builder: Builder, reader: Reader) -> None:
    theirs = build(builder, RECORDS, codec, is_transactional=1, producer_id=77, producer_epoch=3, base_sequence=9)
    status, header, _ = check(theirs)
    assert status == Status.OK
    assert header is not None
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.attributes) == (77, 3, 9, 16 | codec)
    batches = bytearray(theirs)
    convert.stamp_append_time(batches, BASE_TIMESTAMP + 99)
    batch = reader(bytes(batches)).next_batch()
    assert batch.validate_crc()
    assert (batch.timestamp_type, batch.max_timestamp, batch.producer_id) == (1, BASE_TIMESTAMP + 99, 77)
    assert {record.timestamp for record in batch} == {BASE_TIMESTAMP + 99}


@CODECS
@BUILDERS
@READERS
def test_its_batches_through_a_segment(tmp_path: Path, codec: int, builder: Builder, reader: Reader) -> None:
    with logdb.open(tmp_path) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"first")
        assert log.append_batches(build(builder, RECORDS, codec)) == range(1, len(RECORDS) + 1)
        rows = [(r.offset - 1, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in log.read(1)]
    assert rows == rows_expected(RECORDS)
    (segment,) = tmp_path.glob("t-0/*.log")
    assert [(row[0] - 1, *row[1:]) for row in read(reader, segment.read_bytes())[1:]] == rows_expected(RECORDS)


@CODECS
@READERS
def test_our_segments_are_read_by_it(tmp_path: Path, codec: int, reader: Reader) -> None:
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
    assert read(reader, data) == rows_expected(RECORDS)
