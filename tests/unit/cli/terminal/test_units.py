import click
import pytest

from logdb.cli.terminal.units import DURATION, MILLISECONDS, SIZE, Duration
from logdb.errors import InvalidConfig
from logdb.model import check_config

SECONDS = Duration("s", least=1)


@pytest.mark.parametrize(
    ("kind", "text", "meant"),
    [
        (DURATION, "30d", 2_592_000_000),
        (DURATION, "2w", 1_209_600_000),
        (DURATION, "12h", 43_200_000),
        (DURATION, "90m", 5_400_000),
        (DURATION, "90min", 5_400_000),
        (DURATION, "1.5s", 1_500),
        (DURATION, "500ms", 500),
        (DURATION, "30 D", 2_592_000_000),
        (DURATION, "P1D", 86_400_000),
        (DURATION, "PT1H30M", 5_400_000),
        (MILLISECONDS, "10000", 10_000),
        (MILLISECONDS, "10s", 10_000),
        (SECONDS, "2", 2_000),
        (SECONDS, "0.5", 500),
        (SECONDS, "500ms", 500),
        (SIZE, "1000", 1_000),
        (SIZE, "1kB", 1_000),
        (SIZE, "1KiB", 1_024),
        (SIZE, "64MiB", 67_108_864),
        (SIZE, "3 gb", 3_000_000_000),
        (SIZE, "7B", 7),
    ],
)
def test_what_is_meant(kind, text, meant):
    assert kind.convert(text, None, None) == meant


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (DURATION, "30", "not a duration like 30d"),
        (DURATION, "soon", "not a duration"),
        (DURATION, "", "not a duration"),
        (DURATION, "-1d", "not a duration"),
        (DURATION, "1y", "not a duration"),
        (DURATION, "٣d", "not a duration"),
        (DURATION, "99999999d", "must be 0 to 1000000000000"),
        (MILLISECONDS, "x", "a plain number is in ms"),
        (SECONDS, "0", "must be 1 to"),
        (SIZE, "64M", "KiB, MiB"),
        (SIZE, "1.5MB", "not a size"),
        (SIZE, "-1", "not a size"),
        (SIZE, "iB", "not a size"),
    ],
)
def test_what_is_not(kind, text, said):
    with pytest.raises(click.BadParameter, match=said):
        kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("retention.bytes", "1G", "1GiB is 1073741824"),
        ("retention.ms", "7 days", ": 7d is 604800000"),
        ("retention.ms", "90 mins", ": 90m is 5400000"),
        ("retention.ms", "10 Milliseconds", ": 10ms is 10"),
        ("retention.ms", "2 months", "2^63-1]"),
        ("retention.ms", "soon", "2^63-1]"),
        ("min.cleanable.dirty.ratio", "7d", "[0, 1]"),
        ("retention.ms", 1.5, "2^63-1]"),
    ],
)
def test_a_config_takes_kafkas_plain_numbers_and_says_which(key, value, said):
    with pytest.raises(InvalidConfig) as raised:
        check_config({key: value})
    assert str(raised.value).endswith(said)
