"""following.py: what an event is made of, within bounds."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from logdb.codec import RecordIterator
from logdb.codec.batch import HEADER_COUNT_MAX
from logdb.errors import SerializationError
from logdb_http_api.door.following import Following
from support.batches import Rec, encode_batch


def following(*records: Rec, forms: tuple[str, str] = ("string", "string")) -> Following:
    """A reader of a log with these records, whose form is not looked at."""
    batch = encode_batch(list(records))

    def read(offset: int, *, end_offset: int, leader_epoch: int | None, isolation_level: str) -> RecordIterator:
        return RecordIterator(lambda *_: iter([batch]), offset, end_offset, "t", 0)

    log = SimpleNamespace(start_offset=0, end_offset=len(records), readable_end_offset=lambda _: len(records), read=read, topic_id="id")
    session: Any = SimpleNamespace(partition_count=lambda _: 1, log=lambda *_: log)
    made = Following(session, "t", 0, forms, "read_uncommitted", "")
    made.begin("earliest", None)
    return made


def test_headers_are_told_as_json() -> None:
    reader = following(Rec(b"k", b"v", (('a"ü', b"\xff"), ("n", None))), Rec(None, b""))
    first, second = (json.loads(frame.partition(b"data: ")[2]) for frame in reader.take().split(b"\n\n")[:2])
    assert first["headers"] == [{"name": 'a"ü', "value": "/w=="}, {"name": "n", "value": None}]
    assert (second["headers"], second["key"], second["value"]) == ([], None, "")


def test_keys_have_a_form_of_their_own() -> None:
    reader = following(Rec(b"user-7", b'{"n": 1}'), forms=("string", "json"))
    event = json.loads(reader.take().partition(b"data: ")[2].partition(b"\n")[0])
    assert (event["key"], event["value"]) == ("user-7", {"n": 1})


def test_a_record_of_an_earlier_version_with_too_many_headers_is_named() -> None:
    """4,000,000 headers of 3 bytes became 1.2 GB."""
    reader = following(Rec(b"k", b"v"), Rec(b"k", b"v", (("h", b""),) * (HEADER_COUNT_MAX + 1)))
    assert b'"offset":0' in reader.take()
    with pytest.raises(SerializationError, match="t-0 at offset 1: the record has 100001 headers: an event has at most 100000"):
        reader.take()
