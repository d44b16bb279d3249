from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.codec.schema import (
    BOOL,
    BYTES,
    ERROR_MESSAGE,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Array,
    Field,
    Message,
    Struct,
    Type,
    read_uvarint,
    structs,
    write_uvarint,
)
from logdb.errors import InvalidMessage


def of(text: str) -> bytes:
    return bytes.fromhex(text)


def one(kind: Type, **options: Any) -> Message:
    """A message of one field; version 1 is flexible."""
    return Message("One", "0-1", "1+", Field("x", kind, **options))


@pytest.mark.parametrize(
    ("kind", "value", "plain", "flexible"),
    [
        (INT8, -2, "fe", "fe"),
        (INT16, -2, "fffe", "fffe"),
        (UINT16, 65_534, "fffe", "fffe"),
        (INT32, -2, "fffffffe", "fffffffe"),
        (UINT32, 2**32 - 2, "fffffffe", "fffffffe"),
        (INT64, -2, "fffffffffffffffe", "fffffffffffffffe"),
        (FLOAT64, 1.5, "3ff8000000000000", "3ff8000000000000"),
        (BOOL, True, "01", "01"),
        (UUID, bytes(range(16)), "000102030405060708090a0b0c0d0e0f", "000102030405060708090a0b0c0d0e0f"),
        (STRING, "grüß", "0006 6772c3bcc39f", "07 6772c3bcc39f"),
        (BYTES, b"ab", "00000002 6162", "03 6162"),
        (BYTES, b"x" * 200, "000000c8" + "78" * 200, "c901" + "78" * 200),
        (RECORDS, b"ab", "00000002 6162", "03 6162"),
        (Array(INT16), [1, 2], "00000002 0001 0002", "03 0001 0002"),
        (Array(STRING), ["a", ""], "00000002 0001 61 0000", "03 02 61 01"),
        (Struct(Field("y", INT8)), {"y": 1}, "01", "01 00"),
        (Array(Struct(Field("y", INT8))), [{"y": 1}, {"y": 2}], "00000002 01 02", "03 01 00 02 00"),
    ],
)
def test_types(kind: Type, value: Any, plain: str, flexible: str) -> None:
    message = one(kind)
    for version, data in ((0, of(plain)), (1, of(flexible + "00"))):
        assert message.encode({"x": value}, version) == data
        assert message.decode(data, version) == ({"x": value}, len(data))


@pytest.mark.parametrize(("kind", "plain"), [(STRING, "ffff"), (BYTES, "ffffffff"), (Array(INT8), "ffffffff")])
def test_null_where_it_is_allowed(kind: Type, plain: str) -> None:
    for version, data in ((0, of(plain)), (1, of("0000"))):
        assert one(kind, nullable="0+").encode({"x": None}, version) == data
        assert one(kind, nullable="0+").decode(data, version)[0] == {"x": None}
        with pytest.raises(InvalidMessage, match="null"):
            one(kind).encode({"x": None}, version)
        with pytest.raises(InvalidMessage, match="-1"):
            one(kind).decode(data, version)
    with pytest.raises(InvalidMessage):
        one(kind, nullable="1+").decode(of(plain), 0)


def test_a_struct_that_may_be_null() -> None:
    message = one(Struct(Field("y", INT8)), nullable="0+", default=None)
    for value, plain, flexible in ((None, "ff", "ff 00"), ({"y": 5}, "01 05", "01 05 00 00")):
        for version, data in ((0, of(plain)), (1, of(flexible))):
            assert message.encode({"x": value}, version) == data
            assert message.decode(data, version) == ({"x": value}, len(data))
    assert message.encode({}, 0) == of("ff")


def test_records_are_borrowed() -> None:
    data = bytearray(of("00000002 6162"))
    view = one(RECORDS).decode(data, 0)[0]["x"]
    data[4] = 0x63
    assert bytes(view) == b"cb"


def test_fields_come_and_go_with_versions() -> None:
    message = Message(
        "Four", "0-3", "none", Field("a", INT8), Field("b", INT8, "1+", default=-1), Field("c", INT8, "1-2"), Field("d", INT8, "2")
    )
    values = {"a": 1, "b": 2, "c": 3, "d": 4}
    assert [message.encode(values, version).hex() for version in range(4)] == ["01", "010203", "01020304", "0102"]
    assert message.decode(b"\1\2", 3)[0] == {"a": 1, "b": 2, "c": 0, "d": 0}
    assert message.decode(b"\1", 0)[0] == {"a": 1, "b": -1, "c": 0, "d": 0}
    assert message.encode({"a": 1}, 1) == of("01 ff 00")
    for call in (message.encode, message.decode):
        with pytest.raises(InvalidMessage, match="Four has versions 0 to 3, not 4"):
            call({} if call == message.encode else b"", 4)  # type: ignore[arg-type]


TAGGED = Message(
    "Tagged", "0-2", "1+", Field("a", INT8), Field("s", STRING, "1+", default=None, nullable="1+", tag=0), Field("n", INT32, "2+", tag=3)
)


def test_tagged_fields() -> None:
    full = {"a": 1, "s": "x", "n": 5}
    assert TAGGED.encode(full, 0) == of("01")
    assert TAGGED.encode(full, 1) == of("01 01 00 02 0278")
    assert TAGGED.encode(full, 2) == of("01 02 00 02 0278 03 04 00000005")
    assert TAGGED.encode({"a": 1}, 2) == TAGGED.encode({"a": 1, "s": None, "n": 0}, 2) == of("01 00")
    assert TAGGED.decode(of("01 02 00 02 0278 03 04 00000005"), 2)[0] == full
    assert TAGGED.decode(of("01 00"), 2)[0] == {"a": 1, "s": None, "n": 0}


def test_an_empty_tagged_array_is_left_out() -> None:
    message = Message("Tagged", "0", "0+", Field("a", Array(INT8), tag=0), Field("b", Array(INT8), nullable="0+", tag=1))
    assert message.encode({"a": [], "b": []}, 0) == of("00")
    assert message.encode({"a": [1], "b": None}, 0) == of("02 00 02 02 01 01 01 00")


def test_all_arrays_together_are_bounded() -> None:
    inner = structs(Field("b", Array(INT8)))
    message = Message("Nested", "0", "0+", Field("a", inner), Field("t", Array(INT8), tag=0))
    data = message.encode({"a": [{"b": [1, 2]}, {"b": [3]}], "t": [4]}, 0)
    assert message.decode(data, 0, elements_max=6)[1] == len(data)
    for limit in range(6):
        with pytest.raises(InvalidMessage, match="elements, must be at most"):
            message.decode(data, 0, elements_max=limit)


def test_tagged_fields_of_newer_writers_are_passed_over() -> None:
    assert TAGGED.decode(of("01 03 00 02 0278 02 01 ff 03 04 00000005"), 2)[0] == {"a": 1, "s": "x", "n": 5}


@pytest.mark.parametrize(
    "data",
    [
        "01",
        "01 01",
        "01 01 00",
        "01 01 00 05 0278",
        "01 01 00 03 027800",
        "01 02 03 04 00000005 00 02 0278",
        "01 02 00 02 0278 00 02 0278",
        "01 ffffffff0f",
    ],
    ids=["none", "no tag", "no size", "too long", "too short", "not in order", "twice", "four billion"],
)
def test_bad_tagged_fields(data: str) -> None:
    with pytest.raises(InvalidMessage):
        TAGGED.decode(of(data), 2)


@pytest.mark.parametrize(
    ("kind", "data", "version"),
    [
        (INT32, "000000", 0),
        (STRING, "0002 61", 0),
        (STRING, "fffe", 0),
        (STRING, "0001 ff", 0),
        (BYTES, "7fffffff", 0),
        (BYTES, "ffffffff0f", 1),
        (BYTES, "8080808080", 1),
        (BYTES, "ffffffff7f", 1),
        (BYTES, "80", 1),
        (Array(INT8), "7fffffff", 0),
        (Array(Array(INT8)), "00000001 7fffffff", 0),
        (Array(Struct(Field("y", INT8))), "ffffffff0f 00", 1),
    ],
)
def test_hostile_bytes(kind: Type, data: str, version: int) -> None:
    with pytest.raises(InvalidMessage):
        one(kind).decode(of(data), version)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [(INT8, 128, "One: "), (INT16, "x", "One: "), (UINT32, -1, "One: "), (STRING, "x" * 32_768, "limit is 32767")],
)
def test_values_that_do_not_fit(kind: Type, value: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        one(kind).encode({"x": value}, 0)


def test_a_long_string_fits_where_lengths_are_compact() -> None:
    data = one(STRING).encode({"x": "x" * 32_768}, 1)
    assert one(STRING).decode(data, 1)[0] == {"x": "x" * 32_768}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("given", "written"), [("x" * 32_767, "x" * 32_767), ("x" * 40_000, "x" * 32_767), ("é" * 20_000, "é" * 16_383), ("", "")]
)
def test_an_error_message_is_cut_to_what_every_client_reads(given: str, written: str, version: int) -> None:
    assert one(STRING).decode(one(ERROR_MESSAGE).encode({"x": given}, version), version)[0] == {"x": written}


def test_a_message_within_bytes() -> None:
    assert one(INT8).encode({"x": 5}, 0, prefix=b"ab") == b"ab\5"
    assert one(INT8).decode(b"ab\5cd", 0, 2) == ({"x": 5}, 3)
    with pytest.raises(InvalidMessage) as invalid:
        one(INT32).decode(b"ab\5cd", 0, 2)
    assert invalid.value.position == 2


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31 - 1, 2**32 - 1])
def test_varints(number: int) -> None:
    data = bytearray()
    write_uvarint(data, number)
    assert read_uvarint(data, 0) == (number, len(data))


EVERYTHING = Message(
    "Everything",
    "0-1",
    "1+",
    Field("i", INT64),
    Field("s", STRING, nullable="0+"),
    Field("a", Array(Struct(Field("b", BYTES, nullable="0+"), Field("l", Array(STRING))))),
    Field("t", Array(INT8), "1+", tag=1),
)
values = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(),
        "a": st.lists(st.fixed_dictionaries({"b": st.none() | st.binary(), "l": st.lists(st.text())})),
        "t": st.lists(st.integers(-128, 127), min_size=1),
    }
)


@given(values=values, version=st.sampled_from([0, 1]))
def test_what_was_encoded_is_decoded(values: Any, version: int) -> None:
    data = EVERYTHING.encode(values, version)
    assert EVERYTHING.decode(data, version) == ((values if version else values | {"t": ()}), len(data))


@given(data=st.binary(), version=st.sampled_from([0, 1]))
def test_any_bytes_are_decoded_or_refused(data: bytes, version: int) -> None:
    try:
        _, end = EVERYTHING.decode(data, version)
    except InvalidMessage:
        return
    assert end <= len(data)


@given(values=values, version=st.sampled_from([0, 1]), cut=st.floats(0, 1, exclude_max=True))
def test_a_part_is_not_the_whole(values: Any, version: int, cut: float) -> None:
    data = EVERYTHING.encode(values, version)
    with pytest.raises(InvalidMessage):
        EVERYTHING.decode(data[: int(len(data) * cut)], version)
