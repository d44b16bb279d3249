import pytest

from logdb.cli.terminal.params import OffsetSpec, numbers, parse_offset_spec, parse_time


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("1970-01-01 00:00:01", 1_000),
        ("1969-12-31T23:59:59.999", -1),
        ("1969-12-31T23:59:59.999001", -1),
        ("2024-01-01T00:00:00.999600Z", 1_704_067_200_999),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_times(text, ms):
    assert parse_time(text) == ms


@pytest.mark.parametrize("text", ["", "now", "1.5", "2013-13-01", "-9223372036854775809", "9223372036854775808", "9" * 5000])
def test_no_times(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("beginning", OffsetSpec("beginning")),
        ("earliest", OffsetSpec("beginning")),
        ("end", OffsetSpec("end")),
        ("latest", OffsetSpec("end")),
        ("12", OffsetSpec("offset", 12)),
        ("-12", OffsetSpec("tail", 12)),
        ("s@5", OffsetSpec("from-time", 5)),
        ("e@1970-01-02", OffsetSpec("to-time", 86_400_000)),
    ],
)
def test_places(text, meant):
    assert parse_offset_spec(text) == meant


@pytest.mark.parametrize("text", ["stored", "s@", "5@s", "1e3"])
def test_no_places(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_offset_spec(text)


def test_partition_numbers():
    assert numbers("0,2,4-6") == {0, 2, 4, 5}
    assert numbers("-2") == {0, 1}
