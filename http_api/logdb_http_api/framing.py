"""Batches of several partitions in one body: frames, each a header and what belongs to it.

    frame    uint32, big-endian: bytes of the header, 1 to 65,536
             the header: a JSON object, UTF-8; "topic", "partition", "size_bytes", and what else the route says
             size_bytes bytes: whole record batches, back to back

Frames stand back to back until the body ends.  Example, a frame of t-0 with no batches:

    00 00 00 2a  {"topic":"t","partition":0,"size_bytes":0}

Knows bytes.  Does not know what the headers say, but those three.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from logdb.model import Buffer
from logdb_http_api.door import documents
from logdb_http_api.errors import ApiError

HEADER_BYTES_MAX = 1 << 16
_LENGTH = struct.Struct(">I")


class Frame(NamedTuple):
    """Batches of one partition; ``header`` has what else is said of it."""

    topic: str
    partition: int
    header: dict[str, Any]
    batches: memoryview


class Malformed(ValueError):
    """Not frames; says where and why."""


def head(topic: str, partition: int, size_bytes: int, header: Mapping[str, Any]) -> bytes:
    """What comes before the batches of a frame."""
    text = json.dumps({"topic": topic, "partition": partition, "size_bytes": size_bytes, **header}, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def frames(body: Buffer) -> Iterator[Frame]:
    """The frames of a body, which may hold hostile bytes; their batches are views of it.

    Raises:
        Malformed: It is none.
    """
    view, at = memoryview(body), 0
    while at < len(view):
        header, begin = _header(view, at)
        topic, partition, size_bytes = (header.pop(name, None) for name in ("topic", "partition", "size_bytes"))
        if not (isinstance(topic, str) and _is_count(partition) and _is_count(size_bytes)):
            raise Malformed(f"byte {at}: a header needs topic, partition and size_bytes")
        end = begin + size_bytes
        if end > len(view):
            raise Malformed(f"byte {begin}: {size_bytes} bytes are to follow, the body has {len(view) - begin}")
        yield Frame(topic, partition, header, view[begin:end])
        at = end


def _header(view: memoryview, at: int) -> tuple[dict[str, Any], int]:
    """A header, and where it ends."""
    if at + _LENGTH.size > len(view):
        raise Malformed(f"byte {at}: no room for the length of a header")
    (length,) = _LENGTH.unpack_from(view, at)
    begin = at + _LENGTH.size
    if not 1 <= length <= HEADER_BYTES_MAX or begin + length > len(view):
        raise Malformed(f"byte {at}: a header of {length} bytes; 1 to {HEADER_BYTES_MAX} are allowed, {len(view) - begin} are there")
    try:
        header = documents.parse(view[begin : begin + length])
    except ApiError as error:
        raise Malformed(f"byte {begin}: in a header, {error}") from None
    if not isinstance(header, dict):
        raise Malformed(f"byte {begin}: the header is no object")
    return header, begin + length


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
