from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from logdb_connect import Schema
from logdb_connect.converters.simple_header import SimpleHeaderConverter
from logdb_connect.data import BYTES, STRING
from logdb_connect.java_dates import DatePattern
from logdb_connect.values import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA, number_text, parse, text_of


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("127", "int8", 127),
        ("-129", "int16", -129),
        ("1e3", "int16", 1000),
        ("9223372036854775808", "bytes", Decimal(1 << 63)),
        ("1.5", "float32", 1.5),
        ("true", "boolean", True),
        ("true}", "string", "true}"),
        ("[1,2.5]", "array", [1.0, 2.5]),
        ("[1,null]", "string", "[1,null]"),
        ('{"a":1}', "map", {"a": 1}),
    ],
)
def test_types_are_inferred(text, kind, value):
    schema, found = parse(text)
    assert (schema.type, found) == (kind, value)


def test_times_come_back():
    at = datetime(2020, 1, 31, 10, 15, 30, 123000, UTC)
    for schema, value in ((DATE_SCHEMA, at.date()), (TIME_SCHEMA, time(10, 15, 30, 123000)), (TIMESTAMP_SCHEMA, at)):
        assert parse(text_of(schema, value)) == (schema, value)
    assert text_of(DATE_SCHEMA, date(1960, 1, 1)) == "1960-01-01"


def test_numbers_as_java_writes_them():
    texts = {1e7: "1.0E7", 9999999.0: "9999999.0", 0.001: "0.001", 1e-4: "1.0E-4", -0.0: "-0.0", 123.25: "123.25", 1e300: "1.0E300"}
    assert {number: number_text(number) for number in texts} == texts
    assert number_text(0.1 + 1e-9, narrow=True) == "0.1"


def test_a_header_of_a_thousand_brackets_is_bytes():
    converter = SimpleHeaderConverter()
    assert converter.to_connect_header("t", "h", b"[" * 10_000) == (BYTES, b"[" * 10_000)
    assert converter.to_connect_header("t", "h", b"x") == (STRING, "x")
    assert converter.to_connect_header("t", "h", None) == (None, None)
    assert converter.from_connect_header("t", "h", Schema(type="map", keys=STRING, values=STRING), {'a"': "\\"}) == b'{"a\\"":"\\\\"}'


@pytest.mark.parametrize("pattern", ["yyyy-bb", "YYYY", "'open"])
def test_patterns_that_are_refused(pattern):
    with pytest.raises(ValueError, match=r"Illegal pattern character|Unterminated quote"):
        DatePattern(pattern)
