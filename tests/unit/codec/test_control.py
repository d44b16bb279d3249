"""Control records by hand, whole and broken."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.codec import Status, check
from logdb.codec.control import ControlRecord, ControlType, build, parse
from logdb.errors import InvalidBatch
from logdb.model import ProducerIdAndEpoch
from support.batches import Rec, encode_batch, varint

CONTROL = 32 | 16


def encode_marker(kind: int, epoch: int = 7, *, key_version: int = 0, value_version: int = 0, more: bytes = b"", offset: int = 41) -> bytes:
    record = Rec(struct.pack(">hh", key_version, kind) + more, struct.pack(">hi", value_version, epoch) + more)
    return encode_batch([record], attributes=CONTROL, base_offset=offset, producer_id=9, producer_epoch=1)


@pytest.mark.parametrize(("kind", "name"), [(0, ControlType.ABORT), (1, ControlType.COMMIT)])
@pytest.mark.parametrize("epoch", [0, 7, 2**31 - 1])
def test_transaction_markers(kind: int, name: ControlType, epoch: int) -> None:
    found = parse(encode_marker(kind, epoch))
    assert found == ControlRecord(name, epoch)
    assert isinstance(found.type, ControlType)


@pytest.mark.parametrize("kind", ControlType)
@pytest.mark.parametrize("epoch", [0, 2**31 - 1])
def test_a_marker_that_was_built(kind: ControlType, epoch: int) -> None:
    batch = build(kind, ProducerIdAndEpoch(9, 3), epoch, 1_700_000_000_000)
    assert parse(batch) == (kind, epoch)
    status, head, _ = check(batch)
    assert (status, head is not None) == (Status.OK, True)
    record = Rec(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, epoch))
    assert batch == encode_batch([record], attributes=CONTROL, base_timestamp=1_700_000_000_000, producer_id=9, producer_epoch=3)


def test_the_worked_example() -> None:
    batch = encode_batch([Rec(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x05")], attributes=CONTROL)
    assert batch[61:] == bytes.fromhex("20 00 00 00 08 00000001 0c 000000000005 00")
    assert parse(batch) == (ControlType.COMMIT, 5)


def test_later_versions_may_say_more() -> None:
    assert parse(encode_marker(1, key_version=1, value_version=3, more=b"more")) == (ControlType.COMMIT, 7)


@pytest.mark.parametrize("kind", [2, 6, 500, -1])
def test_other_types_are_numbers_without_an_epoch(kind: int) -> None:
    batch = encode_batch([Rec(struct.pack(">hh", 0, kind), None)], attributes=32)
    assert parse(batch) == (kind, None)
    assert not isinstance(parse(batch).type, ControlType)


def test_what_follows_the_batch_is_not_looked_at() -> None:
    assert parse(memoryview(encode_marker(0) + b"anything")) == (ControlType.ABORT, 7)


BROKEN = {
    "data batch": (encode_batch([Rec(b"\0\0\0\1", b"\0\0\0\0\0\5")], attributes=16), "not a control batch: attributes 0x0010, 1 records"),
    "compressed": (encode_batch([b""], attributes=CONTROL, codec=1), "not a control batch: attributes 0x0031"),
    "two records": (encode_batch([Rec(b"\0\0\0\1")] * 2, attributes=CONTROL), "2 records"),
    "no record": (encode_batch([], attributes=CONTROL), "0 records"),
    "null key": (encode_batch([Rec(None, b"")], attributes=CONTROL), "key has 0 bytes, at least 4"),
    "short key": (encode_batch([Rec(b"\0\0\0", b"")], attributes=CONTROL), "key has 3 bytes, at least 4"),
    "null value": (encode_batch([Rec(b"\0\0\0\1", None)], attributes=CONTROL), "value has 0 bytes, at least 6"),
    "short value": (encode_batch([Rec(b"\0\0\0\1", bytes(5))], attributes=CONTROL), "value has 5 bytes, at least 6"),
    "key version": (encode_marker(1, key_version=-1), "key has version -1"),
    "value version": (encode_marker(1, value_version=-2), "value has version -2"),
    "record size": (encode_batch([b""], attributes=CONTROL, body=varint(9) + bytes(8)), "record has 9 bytes, the batch has 8 for it"),
    "key overruns": (
        encode_batch([b""], attributes=CONTROL, body=varint(7) + b"\0\0\0" + varint(9) + bytes(3)),
        "9 bytes in a control record",
    ),
    "endless number": (encode_batch([b""], attributes=CONTROL, body=b"\xff" * 12), "number of the control record does not end"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_markers_are_refused_with_the_reason(name: str) -> None:
    batch, reason = BROKEN[name]
    with pytest.raises(InvalidBatch) as caught:
        parse(batch)
    assert reason in caught.value.reason
    assert caught.value.position == 0


def test_half_a_marker_is_refused() -> None:
    batch = encode_marker(1)
    for size in range(len(batch)):
        with pytest.raises(InvalidBatch):
            parse(batch[:size])


@given(st.binary(max_size=40))
def test_noise_raises_nothing_else(body: bytes) -> None:
    try:
        found = parse(encode_batch([b""], attributes=CONTROL, body=varint(len(body)) + body))
    except InvalidBatch:
        return
    assert isinstance(found, ControlRecord)
