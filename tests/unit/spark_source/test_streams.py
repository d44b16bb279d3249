from datetime import UTC, datetime, timedelta, timezone

import pytest

from logdb_spark_source.streams import windowed_key_bytes


def test_the_key_of_a_window_is_the_key_and_the_begin():
    begin = datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert windowed_key_bytes(b"/a", begin) == b"/a" + bytes.fromhex("0000019ca8a03e80")
    assert windowed_key_bytes(b"/a", begin.astimezone(timezone(timedelta(hours=2)))) == windowed_key_bytes(b"/a", begin)
    assert windowed_key_bytes(b"", datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)) == b"\xff" * 8


def test_a_begin_without_a_time_zone_is_refused():
    with pytest.raises(ValueError, match="time zone"):
        windowed_key_bytes(b"/a", datetime(2026, 3, 1))  # noqa: DTZ001 -- that is the mistake
