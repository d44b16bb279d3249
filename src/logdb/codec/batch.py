"""Record batches: headers, scans, searches.

The one place in Python that knows the bytes of a RecordBatch v2 header; the C core does the rest (``_native/logdb_native.h``
says what each call does).  Functions report what is wrong with a batch; callers raise the error with the path.

Threading: functions share nothing.  A Scanner is used by one thread at a time.
"""

import operator
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

from logdb._native import ffi, lib
from logdb.errors import InvalidBatch
from logdb.model import OFFSET_MAX, Buffer, ProducerIdAndEpoch

HEADER_SIZE_BYTES = 61
CRC_FROM = 21
"""Position in a batch: the CRC covers the bytes from here to the end of the batch."""
BATCH_SIZE_BYTES_MAX = 2**31 - 1
HEADER_COUNT_MAX: int = lib.LOGDB_HEADER_COUNT_MAX
"""Headers of a record from outside, or from an append; a log of an earlier version may have records with more."""
INDEX_ENTRY_SIZE_BYTES = 8
TIME_INDEX_ENTRY_SIZE_BYTES = 12

CODEC_MASK = 7
LOG_APPEND_TIME = 8
TRANSACTIONAL = 16
CONTROL = 32
DELETE_HORIZON = 64

_HEADER = struct.Struct(">qiibIhiqqqhii")  # the fields of HeaderFields
_SPAN = struct.Struct(">qi11xi")  # base offset, length, [epoch, magic, CRC, attributes], last offset delta
_LENGTH_AND_ATTRIBUTES = struct.Struct(">8xi9xh")
_LENGTH_MAGIC_AND_ATTRIBUTES = struct.Struct(">8xi4xB4xh")
_LENGTH_AT, _LENGTH_FROM = 8, 12  # the length field counts the bytes behind it
_MAGIC_AT = 16
_LAST_OFFSET_DELTA = slice(23, 27)
_NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
_ATTRIBUTES_AT = 21  # two bytes; the codec is in the second

_from_buffer = ffi.from_buffer
_new = ffi.new
_scan = lib.logdb_scan
_expected_batch = lib.logdb_batch_expected
_SCAN_CRC, _SCAN_GAPS = lib.LOGDB_SCAN_CRC, lib.LOGDB_SCAN_GAPS
_begun = _new("logdb_scan_state *", {"max_timestamp": -1, "max_timestamp_offset": -1, "indexed_timestamp": -1, "last_base_offset": -1})
_BEGUN = _begun[0]  # the initial state of a scan; _begun owns it


class Status(IntEnum):
    """A result of the core; the numbers are ``logdb_status``."""

    OK = 0
    SHORT = 1
    ZERO = 2
    LENGTH = 3
    MAGIC = 4
    CRC = 5
    OFFSET = 6
    EPOCH = 7
    ATTRIBUTES = 8
    COUNT = 9
    RECORD = 10
    DELTA = 11
    KEY = 12
    TIMESTAMP = 13
    ROOM = 14
    HEADERS = 15


_STATUSES = tuple(Status)


# ---------------------------------------------------------------- the bytes of a header


class HeaderFields(NamedTuple):
    """A batch header as it lies in the file, field by field, unchecked."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def header_fields(batches: Buffer) -> Iterator[HeaderFields]:
    """The header of each batch in a buffer, which may hold hostile bytes; ends at the first header that is cut off or too short."""
    at = 0
    while len(batches) - at >= HEADER_SIZE_BYTES:
        fields = HeaderFields._make(_HEADER.unpack_from(batches, at))
        yield fields
        if fields.length < HEADER_SIZE_BYTES - _LENGTH_FROM:
            return
        at += fields.length + _LENGTH_FROM


def count_and_attributes(batches: Buffer) -> tuple[int, int]:
    """How many batches ``header_fields`` finds, and the attributes that at least one of them has."""
    at = count = attributes = 0
    while len(batches) - at >= HEADER_SIZE_BYTES:
        length, of_one = _LENGTH_AND_ATTRIBUTES.unpack_from(batches, at)
        count, attributes = count + 1, attributes | of_one
        if length < HEADER_SIZE_BYTES - _LENGTH_FROM:
            break
        at += length + _LENGTH_FROM
    return count, attributes


def codec_of_usual(batches: Buffer) -> int:
    """The number of the codec where the bytes are, by the header, one batch whose attributes say nothing else; -1: they are other ones."""
    if len(batches) < HEADER_SIZE_BYTES:
        return -1
    length, magic, attributes = _LENGTH_MAGIC_AND_ATTRIBUTES.unpack_from(batches)
    return attributes if length + _LENGTH_FROM == len(batches) and magic == 2 and not attributes & ~CODEC_MASK else -1


def transactional_producers(batches: Buffer) -> set[ProducerIdAndEpoch]:
    """The producers of the transactional batches in a buffer, which may hold hostile bytes."""
    if not count_and_attributes(batches)[1] & TRANSACTIONAL:  # most are not
        return set()
    return {ProducerIdAndEpoch(one.producer_id, one.producer_epoch) for one in header_fields(batches) if one.attributes & TRANSACTIONAL}


def producer_ids(batches: Buffer) -> set[int]:
    """The ids of the idempotent producers of the batches in a buffer, which may hold hostile bytes."""
    return {one.producer_id for one in header_fields(batches)} - {-1}


class FirstBatch(NamedTuple):
    """Whose the first batch of an append is; -1 each: no producer's."""

    producer_id: int
    producer_epoch: int
    sequence: int


def first_batch(batches: Buffer) -> FirstBatch:
    """Whose the first batch in a buffer is, which may hold hostile bytes."""
    first = next(header_fields(batches), None)
    return FirstBatch(-1, -1, -1) if first is None else FirstBatch(first.producer_id, first.producer_epoch, first.base_sequence)


def build_batch(
    records: bytes,
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    attributes: int,
    timestamp: int,
    record_count: int,
    producer: ProducerIdAndEpoch = _NO_PRODUCER,
) -> bytes:
    """One whole batch of encoded ``records`` without a base sequence, all with the same timestamp (-1: none)."""
    last_offset_delta = last_offset - base_offset
    head = _HEADER.pack(base_offset, 0, leader_epoch, 2, 0, 0, last_offset_delta, timestamp, timestamp, *producer, -1, record_count)
    batch = bytearray(head + records)
    seal(batch, attributes, timestamp)
    return bytes(batch)


def set_length_and_magic(batch: bytearray) -> None:
    """Set length and magic byte of ``batch``, which is all of one batch; the CRC does not cover them."""
    batch[_LENGTH_AT:_LENGTH_FROM] = (len(batch) - _LENGTH_FROM).to_bytes(4, "big")
    batch[_MAGIC_AT] = 2


def set_last_offset_delta(batch: bytearray | memoryview, delta: int) -> None:
    """Set the last offset delta of a batch; the CRC covers it."""
    batch[_LAST_OFFSET_DELTA] = delta.to_bytes(4, "big")


def set_uncompressed(batches: bytearray, position: int) -> None:
    """The last batch of ``batches``, at ``position``, has become uncompressed: set its length, clear its codec; the CRC stays."""
    size_bytes = len(batches) - position
    batches[position + _LENGTH_AT : position + _LENGTH_FROM] = (size_bytes - _LENGTH_FROM).to_bytes(4, "big")
    batches[position + _ATTRIBUTES_AT + 1] &= ~CODEC_MASK


def size_at(batches: Buffer, position: int) -> int:
    """The size in bytes of the checked batch at ``position``."""
    return int.from_bytes(batches[position + _LENGTH_AT : position + _LENGTH_FROM], "big") + _LENGTH_FROM


def magic_at(batches: Buffer, position: int) -> int:
    """The magic byte of the batch at ``position``."""
    return batches[position + _MAGIC_AT]


def attributes_at(batches: Buffer, position: int) -> int:
    """The attributes of the batch at ``position``."""
    return int.from_bytes(batches[position + _ATTRIBUTES_AT : position + _ATTRIBUTES_AT + 2], "big")


# ---------------------------------------------------------------- one batch


class Header(NamedTuple):
    """The header of one batch; the fields are ``logdb_batch``'s, in its order."""

    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    size_bytes: int
    leader_epoch: int
    base_sequence: int
    record_count: int
    crc: int
    attributes: int
    producer_epoch: int
    magic: int


_header_fields = operator.attrgetter(*Header._fields)


def header_of(batch: Any) -> Header | None:
    """The header of a ``logdb_batch`` of the core; None if the header was cut off."""
    return Header._make(_header_fields(batch)) if batch.size_bytes else None


def header(buf: Buffer, size_bytes_max: int = BATCH_SIZE_BYTES_MAX) -> tuple[Status, Header | None]:
    """Decode the batch header at the begin of ``buf`` and check its fields.

    ``check`` also checks the CRC.

    Args:
        buf: uint8[n], from the first byte of a batch.
        size_bytes_max: Largest batch that is not ``Status.LENGTH``.

    Returns:
        ``Status.SHORT`` where ``buf`` ends before the batch does; the header is
        None only where there are fewer than 61 bytes.
    """
    batch = ffi.new("logdb_batch *")
    data = _from_buffer(buf)
    return _STATUSES[lib.logdb_batch_header(data, len(data), size_bytes_max, batch)], header_of(batch)


class Span(NamedTuple):
    """Offsets and size that a batch header claims."""

    base_offset: int
    last_offset: int
    size_bytes: int


def span(buf: Buffer, position: int = 0) -> Span | None:
    """Offsets and size in the batch header at ``position`` of ``buf``, unchecked; None if the header is cut off."""
    if len(buf) - position < HEADER_SIZE_BYTES:
        return None
    base_offset, length, last_offset_delta = _SPAN.unpack_from(buf, position)
    return Span(base_offset, base_offset + last_offset_delta, length + _LENGTH_FROM)


def expected_batch(buf: bytes, offset: int, last_offset: int, leader_epoch: int) -> int:
    """The size of the batch at the begin of ``buf`` if it is the expected one, otherwise 0.

    Expected is a whole, good (CRC), uncompressed batch that holds ``offset``, ends at ``last_offset`` and has the
    ``leader_epoch`` (-1: any).
    """
    return int(_expected_batch(buf, len(buf), offset, last_offset, leader_epoch))


def check(buf: Buffer, size_bytes_max: int = BATCH_SIZE_BYTES_MAX) -> tuple[Status, Header | None, int]:
    """Like ``header``, and the CRC; also returns the computed CRC (0 where it was not computed)."""
    batch = ffi.new("logdb_batch *")
    crc = ffi.new("uint32_t *")
    data = _from_buffer(buf)
    status = _STATUSES[lib.logdb_batch_check(data, len(data), size_bytes_max, batch, crc)]
    return status, header_of(batch), crc[0]


def records_check(records: Buffer, batch: Header, *, keys_required: bool = False) -> Status:
    """Walk the records of a batch from outside; OK only if all of them agree with the header.

    Args:
        records: uint8[n], the bytes behind the header, decompressed.
        batch: The header.
        keys_required: Refuse null keys (compacted topics).
    """
    data = _from_buffer(records)
    flags = lib.LOGDB_RECORDS_KEYED if keys_required else 0
    return _STATUSES[lib.logdb_records_check(data, len(data), ffi.new("logdb_batch *", tuple(batch)), flags, ffi.NULL)]


def place(buf: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of the batch at ``position`` of ``buf``; the CRC does not cover them."""
    data = _from_buffer(buf, require_writable=True)
    if not 0 <= position <= len(data) - HEADER_SIZE_BYTES:
        raise ValueError(f"no batch header fits at byte {position} of {len(data)}")
    lib.logdb_batch_place(ffi.cast("uint8_t *", data) + position, base_offset, leader_epoch)


def seal(buf: bytearray | memoryview, attributes: int, max_timestamp: int) -> None:
    """Set length, attributes, max timestamp and CRC of the batch ``buf`` after its bytes changed."""
    data = _from_buffer(buf, require_writable=True)
    if not HEADER_SIZE_BYTES <= len(data) <= BATCH_SIZE_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes are not one batch")
    lib.logdb_batch_seal(data, len(data), attributes, max_timestamp)


# ---------------------------------------------------------------- a buffer of batches


def _field(name: str) -> Any:
    """A field of a Scanner's C state; it is read without a Python frame."""

    def put(scanner: "Scanner", value: int) -> None:
        setattr(scanner._state, name, value)

    return property(operator.attrgetter(f"_state.{name}"), put)


class Scanner:
    """Walks contiguous batches, buffer after buffer, and makes their index entries.

    A segment's scanner lives as long as the segment is active, or resumes from another one's state: all fields may be set.
    """

    _ROOM = 64  # index entries per call of the core; 128 KiB at one per 4 KiB take 32

    next_offset: int = _field("next_offset")
    """Base offset expected of the next batch."""
    position: int = _field("position")
    """File position of the next batch."""
    end_offset: int = _field("end_offset")
    """The scan stops, OK, before the first batch at or after this offset."""
    max_timestamp: int = _field("max_timestamp")
    """Largest so far, -1 at the begin of a segment."""
    max_timestamp_offset: int = _field("max_timestamp_offset")
    """Last offset of the batch with ``max_timestamp``."""
    unindexed_bytes: int = _field("unindexed_bytes")
    """Bytes since the last entry of the offset index."""
    indexed_timestamp: int = _field("indexed_timestamp")
    """Timestamp of the last entry of the time index, -1 without one."""
    last_base_offset: int = _field("last_base_offset")
    """Base offset of the last good batch."""
    last_size_bytes: int = _field("last_size_bytes")
    """Size of the last good batch."""
    used: int = _field("used")
    """Bytes of good batches in the last call's buffer."""
    batch_count: int = _field("batch_count")
    """Good batches of the last call."""
    record_count: int = _field("record_count")
    """Records of the last call, control records included."""
    produced_count: int = _field("produced_count")
    """Batches of the last call that have a producer id."""
    attributes: int = _field("attributes")
    """Attributes of the last call's batches, or-ed."""
    codecs: int = _field("codecs")
    """Bit n is set where a batch of the last call has codec n."""
    computed_crc: int = _field("computed_crc")
    """CRC of the batch that ended the last call with ``Status.CRC``."""
    expected_epoch: int = _field("expected_epoch")
    """Epoch expected of the batch that ended the last call with ``Status.EPOCH``."""

    def __init__(
        self,
        *,
        segment_base_offset: int,
        next_offset: int | None = None,
        position: int = 0,
        end_offset: int = OFFSET_MAX,
        epochs: Sequence[tuple[int, int]] | None = None,
        gaps: bool = False,
        check_crc: bool = True,
        with_index: bool = True,
        index_interval_bytes: int = 4096,
        batch_size_max: int = BATCH_SIZE_BYTES_MAX,
    ) -> None:
        """Begin at a batch boundary.

        Args:
            segment_base_offset: Index entries are relative to it.
            next_offset: Base offset of the first batch; None: the segment's.
            position: File position of the first batch.
            end_offset: See the attribute.
            epochs: (epoch, start offset) of the checkpoint, ascending; None: epochs are not checked.
            gaps: Offsets may jump forward between batches (compacted segments).
            check_crc: False for batches that were just built or checked.
            with_index: Whether ``index`` and ``time_index`` are filled.
            index_interval_bytes: An entry is added when more bytes than that follow the last one.
            batch_size_max: Larger batches are ``Status.LENGTH``.
        """
        self.index = bytearray()
        self.time_index = bytearray()
        state = self._state = _new("logdb_scan_state *", _BEGUN)
        state.flags = (_SCAN_CRC if check_crc else 0) | (_SCAN_GAPS if gaps else 0)
        state.index_interval_bytes = index_interval_bytes
        state.batch_size_max = batch_size_max
        state.segment_base_offset = segment_base_offset
        state.next_offset = segment_base_offset if next_offset is None else next_offset
        state.position = position
        state.end_offset = end_offset
        if epochs is not None:
            self._epochs = _new("int64_t[]", list(chain.from_iterable(epochs)))
            state.epochs = self._epochs
            state.epoch_count = len(epochs)
        if with_index:
            self._entries = ffi.new("uint8_t[]", self._ROOM * INDEX_ENTRY_SIZE_BYTES)
            self._time_entries = ffi.new("uint8_t[]", self._ROOM * TIME_INDEX_ENTRY_SIZE_BYTES)
            self._entries_view = memoryview(ffi.buffer(self._entries))
            self._time_entries_view = memoryview(ffi.buffer(self._time_entries))
            state.index = self._entries
            state.time_index = self._time_entries
            state.index_room = self._ROOM

    def scan(self, buf: Buffer, size_bytes: int | None = None) -> Status:
        """Walk the batches in ``buf`` and stop before the first that is not whole and good.

        Args:
            buf: uint8[n], borrowed for the call; begins where the last call's ``used`` ended.
            size_bytes: Use only so many bytes of ``buf``; None: all.

        Returns:
            OK at the end of the buffer or at ``end_offset``; SHORT if the batch at ``used`` continues past the buffer;
            otherwise what is wrong with it.
        """
        state = self._state
        data = _from_buffer(buf)
        size = len(data)
        if size_bytes is not None:
            if not 0 <= size_bytes <= size:
                raise ValueError(f"size_bytes={size_bytes} of a buffer of {size}")
            size = size_bytes
        status = _scan(data, size, state)
        if state.index_count:
            self._take_entries()
            if status == Status.ROOM:
                status = self._scan_on(ffi.cast("uint8_t *", data), size)
        return _STATUSES[status]

    def stopped(self) -> Header | None:
        """Header of the batch that ended the last call with a status other than OK; None if the header is cut off."""
        return header_of(self._state.stopped)

    def resume(self, index: bytes, time_index: bytes) -> None:
        """Take the entries of an index up to, and including, that of the batch at ``position``."""
        self.index += index
        self.time_index += time_index
        if time_index:
            timestamp = int.from_bytes(time_index[-TIME_INDEX_ENTRY_SIZE_BYTES:-4], "big", signed=True)
            offset = int.from_bytes(time_index[-4:], "big") + self._state.segment_base_offset
            self.max_timestamp, self.max_timestamp_offset, self.indexed_timestamp = timestamp, offset, timestamp

    def close_time_index(self) -> None:
        """Add the entry of the largest timestamp, if it is missing, as Kafka does at the end of a segment."""
        if self.max_timestamp > self.indexed_timestamp:
            offset = self.max_timestamp_offset - self._state.segment_base_offset
            self.time_index = _extended(self.time_index, self.max_timestamp.to_bytes(8, "big", signed=True) + offset.to_bytes(4, "big"))
            self.indexed_timestamp = self.max_timestamp

    def require(self, *, check_crc: bool, epochs: Sequence[tuple[int, int]] | None) -> None:
        """Change the checks from here on: CRCs (with them, that offsets have no gaps) and leader epochs."""
        state = self._state
        state.flags = (state.flags & ~(_SCAN_CRC | _SCAN_GAPS)) | _SCAN_CRC if check_crc else state.flags & ~_SCAN_CRC
        self._epochs = ffi.new("int64_t[]", list(chain.from_iterable(epochs or ())))
        state.epochs = self._epochs if epochs is not None else ffi.NULL
        state.epoch_count = len(epochs or ())

    def _take_entries(self) -> None:
        state = self._state
        self.index = _extended(self.index, self._entries_view[: state.index_count * INDEX_ENTRY_SIZE_BYTES])
        self.time_index = _extended(self.time_index, self._time_entries_view[: state.time_index_count * TIME_INDEX_ENTRY_SIZE_BYTES])

    def _scan_on(self, data: Any, size: int) -> int:
        """Continue after LOGDB_E_ROOM, and put the sums over all calls of the core into the state."""
        state = self._state
        used = batch_count = record_count = produced_count = attributes = codecs = 0
        status = int(Status.ROOM)
        while True:
            used += state.used
            batch_count += state.batch_count
            record_count += state.record_count
            produced_count += state.produced_count
            attributes |= state.attributes
            codecs |= state.codecs
            if status != Status.ROOM:
                break
            status = _scan(data + used, size - used, state)
            self._take_entries()
        state.used, state.batch_count, state.record_count = used, batch_count, record_count
        state.produced_count, state.attributes, state.codecs = produced_count, attributes, codecs
        return status


def split(batches: memoryview, size_bytes: int) -> list[memoryview]:
    """Cut checked batches into runs of at most ``size_bytes``, or one larger batch."""
    parts, start, at = [], 0, 0
    while at < len(batches):
        size = size_at(batches, at)
        if at > start and at + size - start > size_bytes:
            parts.append(batches[start:at])
            start = at
        at += size
    return [*parts, batches[start:at]] if at > start else parts


def last_offset(batches: memoryview) -> int:
    """The last offset in a buffer of checked batches."""
    at = 0
    while (after := at + size_at(batches, at)) < len(batches):
        at = after
    base_offset, _, last_offset_delta = _SPAN.unpack_from(batches, at)
    return int(base_offset + last_offset_delta)


def find_batch(buf: Buffer, *, offset_min: int = 0, size_bytes_max: int = BATCH_SIZE_BYTES_MAX) -> int:
    """Position of the first whole batch with a good CRC that begins anywhere in ``buf``, or -1.

    Batches of more than ``size_bytes_max`` bytes, or with a base offset below ``offset_min``, are skipped.
    """
    data = _from_buffer(buf)
    return int(lib.logdb_find_batch(data, len(data), size_bytes_max, offset_min))


def index_search(index: Buffer, count: int, relative_offset: int) -> int:
    """First entry of an offset index (uint8[count * 8]) whose offset is >= ``relative_offset``; ``count`` if none is."""
    data = index if type(index) is bytes else _from_buffer(index)
    if not 0 <= count * INDEX_ENTRY_SIZE_BYTES <= len(data):
        raise ValueError(f"{count} entries in {len(data)} bytes")
    return int(lib.logdb_index_search(data, count, relative_offset))


def time_index_search(time_index: Buffer, count: int, timestamp: int) -> int:
    """Last entry of a time index (uint8[count * 12]) whose timestamp is < ``timestamp``; -1 if none is."""
    data = _from_buffer(time_index)
    if not 0 <= count * TIME_INDEX_ENTRY_SIZE_BYTES <= len(data):
        raise ValueError(f"{count} entries in {len(data)} bytes")
    return int(lib.logdb_time_index_search(data, count, timestamp))


def find_timestamp(buf: Buffer, from_offset: int, timestamp: int) -> tuple[int, int] | None:
    """First record at or after ``from_offset`` whose timestamp is at least ``timestamp``.

    Args:
        buf: uint8[n], checked uncompressed batches, back to back; a partial one at the end is ignored.
        from_offset: Records before it are ignored.
        timestamp: In ms since 1970.

    Returns:
        Its offset and timestamp in ms, or None.

    Raises:
        InvalidBatch: Records contradict themselves though the CRC is good.
    """
    data = _from_buffer(buf)
    offset = ffi.new("int64_t *")
    found = ffi.new("int64_t *")
    status = _STATUSES[lib.logdb_find_timestamp(data, len(data), from_offset, timestamp, offset, found)]
    if status not in (Status.OK, Status.SHORT):
        raise InvalidBatch(0, explain(status))
    return None if status == Status.SHORT else (offset[0], found[0])


# ---------------------------------------------------------------- words

_REASONS = {
    Status.OK: "nothing is wrong",
    Status.SHORT: "the batch is cut off",
    Status.ZERO: "zeroes where a batch header should be",
    Status.LENGTH: "the length of the batch is out of bounds",
    Status.MAGIC: "the magic byte is not 2",
    Status.CRC: "the CRC does not match",
    Status.OFFSET: "the offsets do not follow those before or overflow",
    Status.EPOCH: "the leader epoch is not the checkpoint's",
    Status.ATTRIBUTES: "an unknown codec or attribute",
    Status.COUNT: "the record count does not fit the offsets or the bytes",
    Status.RECORD: "a record overruns the batch or contradicts itself",
    Status.DELTA: "the offset deltas of the records do not lead from the first to the last offset",
    Status.KEY: "a record without a key where keys are required",
    Status.TIMESTAMP: "the max timestamp is not the largest of the records",
    Status.ROOM: "there is no room for the result",
    Status.HEADERS: f"a record has more than {lib.LOGDB_HEADER_COUNT_MAX} headers",
}


def explain(status: Status, source: Scanner | Header | None = None, *, computed_crc: int | None = None) -> str:
    """The problem as text, with both values where there are two.

    Args:
        status: What is wrong.
        source: The scanner that stopped with ``status``, or the header of the batch.
        computed_crc: For ``Status.CRC`` with a header.
    """
    scanner = source if isinstance(source, Scanner) else None
    batch = scanner.stopped() if scanner else source if isinstance(source, Header) else None
    reason = _REASONS[status]
    if batch is None:
        return reason
    if scanner and status == Status.CRC:
        computed_crc = scanner.computed_crc
    detail = {
        Status.SHORT: f"it has {batch.size_bytes} bytes",
        Status.LENGTH: f"{batch.size_bytes} bytes",
        Status.MAGIC: f"it is {batch.magic}",
        Status.CRC: f"stored {batch.crc:#010x}" + ("" if computed_crc is None else f", computed {computed_crc:#010x}"),
        Status.OFFSET: f"offsets {batch.base_offset} to {batch.last_offset}" + (f", expected {scanner.next_offset}" if scanner else ""),
        Status.EPOCH: f"{batch.leader_epoch}" + (f", expected {scanner.expected_epoch}" if scanner else ""),
        Status.ATTRIBUTES: f"attributes {batch.attributes & 0xFFFF:#06x}",
        Status.COUNT: f"{batch.record_count} records, offsets {batch.base_offset} to {batch.last_offset}, {batch.size_bytes} bytes",
        Status.DELTA: f"offsets {batch.base_offset} to {batch.last_offset}",
        Status.TIMESTAMP: f"stored {batch.max_timestamp} ms",
    }.get(status)
    return f"{reason}: {detail}" if detail else reason


def _extended(entries: bytearray, more: Buffer) -> bytearray:
    """``entries`` with ``more`` appended; a new object while a reader searches the old one, which then cannot grow."""
    try:
        entries += more
    except BufferError:
        return entries + more
    return entries
