import datetime

import pytest

from logdb_connect.connectors.objects.partitioners import by_fields, by_time, extractor_of, partitioner_of, time_pattern
from logdb_connect.errors import ConfigError, DataError

NOON = datetime.datetime(2026, 11, 28, 12, 5, 9, 87_000, tzinfo=datetime.UTC)
NOON_MS = int(NOON.timestamp() * 1000)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", "year=2026/month=11/day=28/hour=12"),
        ("yyyy-M-d", "2026-11-28"),
        ("YY/MMM/MMMM/E/EEEE/D/a", "26/Nov/November/Sat/Saturday/332/PM"),
        ("h:K:k:m:ss.SSS", "12:0:12:5:09.087"),
        ("'it''s' '' xxxx-'w'ww-e", "it's ' 2026-w48-6"),
        ("''yyyy", "'2026"),
    ],
)
def test_patterns_of_joda(pattern, written):
    assert time_pattern(pattern)(NOON.replace(tzinfo=None)) == written


@pytest.mark.parametrize("pattern", ["yyyy'", "zzz", "Q"])
def test_bad_patterns(pattern):
    with pytest.raises(ConfigError, match=r"path\.format"):
        time_pattern(pattern)


@pytest.mark.parametrize(
    ("zone", "duration", "wanted"),
    [
        ("UTC", HOUR_MS, "2026-11-28 12:00"),
        ("UTC", 24 * HOUR_MS, "2026-11-28 00:00"),
        ("America/New_York", 24 * HOUR_MS, "2026-11-28 00:00"),
        ("Asia/Kolkata", HOUR_MS, "2026-11-28 17:00"),
        ("+02:00", 5 * 60_000, "2026-11-28 14:05"),
    ],
)
def test_times_are_rounded_in_their_zone(zone, duration, wanted):
    assert by_time(duration, "yyyy-MM-dd HH:mm", zone)(None, None, 0, NOON_MS) == wanted


def test_a_day_of_23_hours():
    directory = by_time(24 * HOUR_MS, "yyyy-MM-dd", "Europe/Berlin")
    days = [
        directory(None, None, 0, int(datetime.datetime(2026, 3, 28, 22, tzinfo=datetime.UTC).timestamp() * 1000) + n * HOUR_MS)
        for n in range(26)
    ]
    assert [days.count(f"2026-03-{day}") for day in (28, 29, 30)] == [1, 23, 2]


def test_fields():
    directory = by_fields(["a", "b.c"], "/")
    assert directory({"a": 1, "b": {"c": "x y"}}, None, 0, None) == "a=1/b.c=x y"
    assert directory({"a": True, "b": {"c": None}}, None, 0, None) == "a=true/b.c=null"
    for value, words in [
        ({"a": 1}, r"'b\.c' is not present"),
        ("text", "'a' is not present"),
        ({"a": 1.5, "b": {"c": 1}}, "'a' has the type float"),
        ({"a": "../../etc", "b": {"c": 1}}, "cannot be part of an object's name"),
        ({"a": "x\n", "b": {"c": 1}}, "cannot be part of an object's name"),
    ]:
        with pytest.raises(DataError, match=words):
            directory(value, None, 0, None)


def test_extractors():
    field = extractor_of("RecordField", "at.ms")
    for found in (NOON_MS, str(NOON_MS), NOON, NOON.isoformat(), "2026-11-28T13:05:09.087+01:00", float(NOON_MS)):
        assert field({"at": {"ms": found}}, None) == NOON_MS
    assert extractor_of("io.confluent.connect.storage.partitioner.TimeBasedPartitioner$RecordTimestampExtractor", "")(None, 5) == 5
    assert abs(extractor_of("Wallclock", "")(None, None) - datetime.datetime.now(datetime.UTC).timestamp() * 1000) < 5000
    for value in ({"at": {"ms": "soon"}}, {"at": {"ms": True}}, {"at": {}}, None):
        with pytest.raises(DataError):
            field(value, 7)
    assert [extractor_of("Record", "")(None, at) for at in (-2, -(2**63))] == [-2, -(2**63)]
    with pytest.raises(DataError, match="no timestamp"):
        extractor_of("Record", "")(None, None)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York", "-18:00", "+18:00"])
def test_times_without_a_date_are_refused(zone):
    at = by_time(7 * 24 * HOUR_MS, "yyyy-MM-dd", zone)
    assert at(None, None, 0, -1).startswith("1969-12-2") or at(None, None, 0, -1) == "1970-01-01"
    for time_ms in (-(2**63), 2**63 - 1, -62_135_596_800_001, -62_135_596_800_000, 253_402_300_800_000):
        with pytest.raises(DataError, match="not between the years 1 and 9999"):
            at(None, None, 0, time_ms)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"partitioner.class": "Nobody"}, "partitioner.class"),
        ({"partitioner.class": "FieldPartitioner"}, "partition.field.name"),
        ({"partition.duration.ms": 0}, "partition.duration.ms"),
        ({"path.format": "/"}, "path.format"),
        ({"locale": ""}, "locale"),
        ({"locale": "fr-FR", "path.format": "MMM"}, "locale"),
        ({"timezone": ""}, "timezone"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"timestamp.extractor": "x"}, "timestamp.extractor"),
    ],
)
def test_bad_properties(changes, name):
    good = {
        "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
        "directory.delim": "/",
        "partition.field.name": [],
        "partition.duration.ms": 1000,
        "path.format": "yyyy/",
        "locale": "en-US",
        "timezone": "UTC",
        "timestamp.extractor": "Record",
        "timestamp.field": "timestamp",
    }
    assert partitioner_of(good)[0](None, None, 0, NOON_MS) == "2026"
    with pytest.raises(ConfigError) as caught:
        partitioner_of(good | changes)
    assert caught.value.name == name
