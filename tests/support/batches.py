"""Record batches by hand: an encoder that shares no code with the library.

Written from docs/inside/format.md alone, slow and plain, so that tests of the C core
and of a builder of batches have something to disagree with.  Any header
field can be forced, to make batches that lie.
"""

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
BASE_TIMESTAMP = 1_700_000_000_000


class Rec(NamedTuple):
    """One record to encode; ``timestamp_ms`` None: the batch's base, ``offset_delta`` None: the one before plus one."""

    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str | bytes, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    offset_delta: int | None = None


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C, a byte at a time (RFC 3720, appendix B.4)."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]


def varint(number: int) -> bytes:
    """Zig-zag varint of a number in [-2^63, 2^63)."""
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag >= 128:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def encode_bytes(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Rec, offset_delta: int, timestamp_delta: int) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + encode_bytes(record.key) + encode_bytes(record.value)
    body += varint(len(record.headers))
    for key, value in record.headers:
        body += encode_bytes(key.encode() if isinstance(key, str) else key) + encode_bytes(value)
    return varint(len(body)) + body


def encode_records(records: Iterable[Rec], base_timestamp: int = BASE_TIMESTAMP) -> bytes:
    """The part of a batch after its header, uncompressed."""
    out, delta = [], -1
    for record in records:
        delta = delta + 1 if record.offset_delta is None else record.offset_delta
        timestamp = base_timestamp if record.timestamp_ms is None else record.timestamp_ms
        out.append(encode_record(record, delta, timestamp - base_timestamp))
    return b"".join(out)


def encode_batch(
    records: Iterable[Rec | bytes | tuple[bytes | None, bytes | None]],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    base_timestamp: int = BASE_TIMESTAMP,
    max_timestamp: int | None = None,
    attributes: int = 0,
    codec: int = 0,
    compress: Callable[[bytes], bytes] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    magic: int = 2,
    crc: int | None = None,
    length: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """One whole batch.

    Args:
        records: Records; plain bytes are a value, a pair is (key, value).
        codec: Number of the codec, 0 to 4, put into the attributes.
        compress: What turns the encoded records into the batch's tail; None: as they are.
        body: The tail itself instead of the encoded records.
        max_timestamp, last_offset_delta, record_count, crc, length: None: as they should be.
    """
    recs = [r if isinstance(r, Rec) else Rec(value=r) if isinstance(r, bytes) else Rec(*r) for r in records]
    if body is None:
        body = encode_records(recs, base_timestamp)
        body = compress(body) if compress else body
    if max_timestamp is None:
        stamps = (base_timestamp if r.timestamp_ms is None else r.timestamp_ms for r in recs)
        max_timestamp = max(stamps, default=base_timestamp)
    if last_offset_delta is None:
        delta = -1
        for r in recs:
            delta = delta + 1 if r.offset_delta is None else r.offset_delta
        last_offset_delta = max(delta, 0)
    fields = (
        attributes | codec,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(recs) if record_count is None else record_count,
    )
    tail = struct.pack(">hiqqqhii", *fields) + body
    length = len(tail) + 9 if length is None else length
    crc = crc32c(tail) if crc is None else crc
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + tail


def encode_log(batches: Iterable[Iterable[Rec | bytes]], *, base_offset: int = 0, leader_epoch: int = 0) -> bytes:
    """Batches back to back, offsets running on."""
    out = []
    for records in batches:
        out.append(encode_batch(records, base_offset=base_offset, leader_epoch=leader_epoch))
        base_offset += struct.unpack_from(">i", out[-1], 23)[0] + 1
    return b"".join(out)
