"""Record batches: checking, scanning, building, compression, columns.

Knows Kafka's RecordBatch v2 and the C code behind it; nothing else imports
``_native``.  Does not know files or topics.  ``codec.arrow`` and the codecs
import their packages only when they are used.
"""

from logdb._native._hot import FSYNC, INTERVAL, OS, BatchBuilder, Positions, Record, RecordIterator, murmur2
from logdb.codec.batch import (
    Header,
    Scanner,
    Status,
    check,
    crc32c,
    expected_batch,
    explain,
    find_batch,
    find_timestamp,
    header,
    index_search,
    last_offset,
    place,
    records_check,
    seal,
    span,
    split,
    time_index_search,
)

__all__ = [
    "FSYNC",
    "INTERVAL",
    "OS",
    "BatchBuilder",
    "Header",
    "Positions",
    "Record",
    "RecordIterator",
    "Scanner",
    "Status",
    "check",
    "crc32c",
    "expected_batch",
    "explain",
    "find_batch",
    "find_timestamp",
    "header",
    "index_search",
    "last_offset",
    "murmur2",
    "place",
    "records_check",
    "seal",
    "span",
    "split",
    "time_index_search",
]
