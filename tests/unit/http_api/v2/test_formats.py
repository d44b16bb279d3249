"""v2/formats.py: which type is answered, and what keys and values become."""

import itertools
import json
from typing import Any

import pytest

from logdb.codec import RecordIterator
from logdb_http_api.errors import ApiError
from logdb_http_api.v2.formats import BINARY, CONTROL, JSON, PLAIN, READ, V2, RecordsAnswer, accepted, produced
from support.batches import Rec, encode_batch


@pytest.mark.parametrize(
    ("header", "offered", "wanted"),
    [
        (None, CONTROL, V2),
        ("", CONTROL, V2),
        ("*/*", CONTROL, V2),
        ("application/json", CONTROL, PLAIN),
        ("Application/JSON; charset=utf-8", CONTROL, PLAIN),
        (f"{V2};q=0.1, application/json;q=0.2", CONTROL, PLAIN),
        (f"{V2}, application/*;q=0.9", CONTROL, V2),
        (f"text/html, {JSON}", READ, JSON),
        (f"*/*;q=0.1, {JSON}", READ, JSON),
        (f"{BINARY};q=0, */*", READ, JSON),
    ],
)
def test_the_type_that_is_liked_best(header: str | None, offered: tuple[str, ...], wanted: str) -> None:
    assert accepted(header, offered) == wanted


@pytest.mark.parametrize("header", ["text/html", f"{V2};q=0", f"{V2};q=many", ",,;;", "application/jso"])
def test_a_client_that_takes_none_is_told(header: str) -> None:
    with pytest.raises(ApiError, match="406"):
        accepted(header, (V2,))


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ('{"a": [1, 2.50, null, true], "b": "x y"}', b'{"a":[1,2.5,null,true],"b":"x y"}'),
        ('"\\u00e9"', '"é"'.encode()),
        ('"\\ud83d\\ude00"', '"😀"'.encode()),
        ('"\\ud83d"', b'"\\ud83d"'),
        ("0", b"0"),
        ('""', b'""'),
        ("false", b"false"),
        ("null", None),
    ],
)
def test_json_is_stored_compactly(value: str, stored: bytes | None) -> None:
    rows = produced(JSON, b'{"records":[{"key":%s,"value":%s},{}]}' % (value.encode(), value.encode()))
    assert rows == ([stored, None], [stored, None], [None, None])


@pytest.mark.parametrize("given", ["YQ", "YQ=", "YQ===", "Y Q=", "YQ==YQ==", "YQ==\n", "YWJj=", "=", "YW-_", "é===", 5, True, ["YQ=="], {}])
def test_what_is_not_base64_is_refused(given: Any) -> None:
    with pytest.raises(ApiError, match=r"records\[1\].value is not a valid base64 string") as refused:
        produced(BINARY, json.dumps({"records": [{"value": "YQ=="}, {"value": given}]}).encode())
    assert refused.value.status == 400


def test_base64_is_stored_as_bytes() -> None:
    rows = produced(BINARY, b'{"records":[{"key":"","value":"AP8="},{"value":null,"partition":3}]}')
    assert rows == ([b"", None], [b"\x00\xff", None], [None, 3])


def test_records_without_bytes_take_memory_too() -> None:
    """A small compressed batch may hold millions of them."""
    (record,) = RecordIterator(lambda *_: iter([encode_batch([Rec(None, None)])]), 0, 1, "t", 0)
    found = RecordsAnswer(BINARY, 4 << 20)
    assert found.add(itertools.repeat(record, 1_000_000)) is record
    assert found.full
    assert 1000 < len(found) < 200_000
    assert len(found.body()) < found.memory_bytes_max // 2
