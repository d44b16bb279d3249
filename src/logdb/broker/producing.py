"""What of a buffer of record batches the broker looks at before the log does.

Knows where the header keeps producer and attributes.  Checks nothing: the log checks it all.
"""

import struct

from logdb.codec.batch import HEADER_SIZE_BYTES, TRANSACTIONAL
from logdb.model import Buffer, ProducerIdAndEpoch

_FIELDS = struct.Struct(">8xi9xh20xqh")  # length, attributes, producer id and epoch
_LENGTH_FROM = 12


def transactional_producers(batches: Buffer) -> set[ProducerIdAndEpoch]:
    """The producers of the transactional batches in a buffer, which may hold hostile bytes."""
    found, at, view = set(), 0, memoryview(batches)
    while len(view) - at >= HEADER_SIZE_BYTES:
        length, attributes, producer_id, producer_epoch = _FIELDS.unpack_from(view, at)
        if attributes & TRANSACTIONAL:
            found.add(ProducerIdAndEpoch(producer_id, producer_epoch))
        if length < HEADER_SIZE_BYTES - _LENGTH_FROM:
            break
        at += length + _LENGTH_FROM
    return found
