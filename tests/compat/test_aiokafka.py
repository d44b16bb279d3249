"""aiokafka's batches read by us, and ours by aiokafka, in all five codecs, by its C code; test_kafka_python.py has what else a batch says.

Its Python code is kafka-python's.
"""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given

from logdb.codec import convert
from logdb.model import COMPRESSION_TYPES
from support.batches import Rec, encode_batch, encode_log
from support.peers import RECORDS, Row, any_records, rows_expected, rows_of

CODECS = pytest.mark.parametrize("codec", range(5), ids=COMPRESSION_TYPES)


def build(records: list[Rec], codec: int, **given: Any) -> bytes:
    options = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **given}
    batch = DefaultRecordBatchBuilder(magic=2, compression_type=codec, batch_size=1 << 30, **options)
    for offset, record in enumerate(records):
        headers = list(record.headers)
        assert batch.append(offset, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=headers) is not None
    return bytes(batch.build())


def read(batches: bytes) -> list[Row]:
    memory, rows = MemoryRecords(batches), []
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        rows += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    return rows


@CODECS
def test_both_ways(codec: int) -> None:
    batch = build(RECORDS, codec)
    assert batch[22] & 7 == codec
    assert rows_of(batch) == rows_expected(RECORDS)
    log = encode_log([RECORDS[:100], RECORDS[100:101], RECORDS[101:]])
    assert read(convert.compress_batches(log, codec)) == rows_expected(RECORDS)


@given(any_records)
def test_any_batch_both_ways(records: list[Rec]) -> None:
    for codec in range(5):  # it leaves uncompressed what would not get smaller
        assert rows_of(build(records, codec)) == rows_expected(records)
        assert read(convert.compress_batches(encode_batch(records), codec)) == rows_expected(records)
