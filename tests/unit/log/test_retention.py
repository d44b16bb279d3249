from logdb.log.retention import expired
from logdb.meta import SegmentEntry
from logdb.model import OFFSET_MAX

DAY = 86_400_000


def sealed(*rows):
    """One segment of 10 offsets for each (size, max timestamp, last append)."""
    return [
        SegmentEntry("t", 0, 10 * slot, size_bytes, 0, 10 * slot + 10, max_timestamp, append_ms)
        for slot, (size_bytes, max_timestamp, append_ms) in enumerate(rows)
    ]


def gone(segments, *, active=0, now=0, ms=-1, size=-1, limit=OFFSET_MAX):
    total = sum(segment.size_bytes for segment in segments) + active
    found = expired(segments, log_size_bytes=total, now_ms=now, retention_ms=ms, retention_bytes=size, limit_offset=limit)
    assert list(found) == segments[: len(found)]
    return len(found)


def test_without_limits_all_stays():
    assert gone(sealed((100, 0, 0), (100, 0, 0)), now=10**15) == 0


def test_age_counts_from_the_later_of_the_largest_timestamp_and_the_last_append():
    by_time, loaded_today = (100, 5 * DAY, 0), (100, 0, 5 * DAY)
    for segment in (by_time, loaded_today):
        assert gone(sealed(segment), now=5 * DAY + 1000, ms=1000) == 0
        assert gone(sealed(segment), now=5 * DAY + 1001, ms=1000) == 1


def test_age_stops_at_the_first_segment_that_is_young():
    segments = sealed((100, 0, 0), (100, 9 * DAY, 0), (100, 0, 0))
    assert gone(segments, now=5 * DAY, ms=DAY) == 1


def test_a_retention_of_0_ms_still_spares_what_was_appended_now():
    assert gone(sealed((1, 7, 7)), now=7, ms=0) == 0
    assert gone(sealed((1, 7, 7)), now=8, ms=0) == 1


def test_size_leaves_at_least_what_is_to_be_kept():
    segments = sealed((100, 0, 0), (100, 0, 0), (100, 0, 0))
    assert gone(segments, active=50, size=351) == 0
    assert gone(segments, active=50, size=250) == 1
    assert gone(segments, active=50, size=151) == 1
    assert gone(segments, active=50, size=150) == 2
    assert gone(segments, active=50, size=0) == 3


def test_the_clock_may_stand_before_the_records():
    assert gone(sealed((100, 9 * DAY, 9 * DAY)), now=0, ms=1) == 0


def test_nothing_at_or_past_the_limit_goes():
    segments = sealed((100, 0, 0), (100, 0, 0))
    assert gone(segments, now=DAY, ms=1, size=0, limit=20) == 2
    assert gone(segments, now=DAY, ms=1, size=0, limit=19) == 1
    assert gone(segments, now=DAY, ms=1, size=0, limit=9) == 0
