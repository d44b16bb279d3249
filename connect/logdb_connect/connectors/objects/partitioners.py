"""Which directory of an object store a record belongs to: Confluent's partitioners, by their names.

The directory of a record must be a function of the record alone where each record shall be stored once.  Only the extractor ``Wallclock``
is none.
"""

import datetime
import re
import time
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logdb_connect.data import Schema
from logdb_connect.errors import ConfigError, DataError

Partitioner = Callable[[Any, Schema | None, int, int | None], str]
"""The directory of a value, its schema, the partition of its topic, and its time, which an extractor found."""
Extractor = Callable[[Any, int | None], int]
"""The time of a record, in milliseconds since 1970, from its value and its timestamp."""

_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
_QUARTER_MS = 900_000
"""Zones change their offset only at multiples of this."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def by_kafka_partition(value: Any, schema: Schema | None, partition: int, time_ms: int | None) -> str:
    """``partition=0``: DefaultPartitioner."""
    return f"partition={partition}"


def field_of(value: Any, path: str) -> Any:
    """A field of a value, such as ``a.b`` for a field of a field.

    Raises:
        DataError: There is none.
    """
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise DataError(f"Field '{path}' is not present in the record")
        value = value[name]
    return value


def by_fields(names: Sequence[str], delimiter: str) -> Partitioner:
    """``a=1/b=x``: FieldPartitioner."""

    def directory(value: Any, schema: Schema | None, partition: int, time_ms: int | None) -> str:
        return delimiter.join(f"{name}={_segment(name, field_of(value, name), delimiter)}" for name in names)

    return directory


def _segment(name: str, value: Any, delimiter: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            if value.isprintable() and not any(part in {".", ".."} for part in re.split(f"[/{re.escape(delimiter)}]", value)):
                return value
            raise DataError(f"Field '{name}' has the value {value!r}, which cannot be part of an object's name")
    raise DataError(f"Field '{name}' has the type {type(value).__name__}: a partitioning field must be an integer, a string or a boolean")


def by_time(duration_ms: int, pattern: str, zone_name: str) -> Partitioner:
    """``year=2026/month=11/day=28``: TimeBasedPartitioner.

    Raises:
        ConfigError: The pattern or the zone is unknown.
    """
    zone, write = zone_of(zone_name), time_pattern(pattern)
    offsets: dict[int, int] = {}
    names: dict[int, str] = {}

    def directory(value: Any, schema: Schema | None, partition: int, time_ms: int | None) -> str:
        assert time_ms is not None
        quarter = time_ms // _QUARTER_MS
        if (offset := offsets.get(quarter)) is None:
            if len(offsets) > 10_000:
                offsets.clear()
                names.clear()
            offset = offsets[quarter] = local_offset_ms(time_ms, zone)
        begin = (time_ms + offset) // duration_ms * duration_ms
        if (name := names.get(begin)) is None:
            name = names[begin] = write(_moment(begin).replace(tzinfo=None))
        return name

    return directory


def local_offset_ms(time_ms: int, zone: datetime.tzinfo) -> int:
    """How far the zone is ahead of UTC at a time."""
    offset = _moment(time_ms, zone).utcoffset()
    assert offset is not None
    return offset // datetime.timedelta(milliseconds=1)


def _moment(time_ms: int, zone: datetime.tzinfo = datetime.UTC) -> datetime.datetime:
    try:
        return (_EPOCH + datetime.timedelta(milliseconds=time_ms)).astimezone(zone)
    except OverflowError:
        raise DataError(f"The time of a record, {time_ms} ms since 1970, is not between the years 1 and 9999") from None


def zone_of(name: str) -> datetime.tzinfo:
    """A zone by its name, or by ``+hh:mm``."""
    if found := re.fullmatch(r"([+-])(\d\d):(\d\d)", name):
        sign = -1 if found[1] == "-" else 1
        return datetime.timezone(sign * datetime.timedelta(hours=int(found[2]), minutes=int(found[3])))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            "timezone", f"Invalid value {name} for configuration timezone: The datetime zone id '{name}' is not recognised"
        ) from None


# Joda's patterns ----------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']+")
_NUMBERS: Mapping[str, Callable[[datetime.datetime], int]] = {
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "h": lambda at: (at.hour - 1) % 12 + 1,
    "K": lambda at: at.hour % 12,
    "k": lambda at: at.hour or 24,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "e": lambda at: at.isoweekday(),
    "w": lambda at: at.isocalendar().week,
}
_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905


def time_pattern(pattern: str) -> Callable[[datetime.datetime], str]:
    """A writer of times by a pattern of Joda, such as ``'year'=YYYY/'month'=MM``.

    Raises:
        ConfigError: The pattern has a letter that is not supported.
    """
    parts, at = [], 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            raise _bad_pattern(pattern, "a quote has no end")
        parts.append(_part(found, pattern))
        at = found.end()
    return lambda moment: "".join(part(moment) for part in parts)


def _part(found: "re.Match[str]", pattern: str) -> Callable[[datetime.datetime], str]:
    text, letter, width = found[0], found[2], len(found[0])
    if letter is None:
        literal = (found[1].replace("''", "'") or "'") if found[1] is not None else text
        return lambda moment: literal
    if letter in "yYx":
        if width == 2:
            return lambda moment: f"{_year(letter, moment) % 100:02}"
        return lambda moment: f"{_year(letter, moment):0{width}}"
    if letter == "M" and width > 2:
        return lambda moment: _MONTHS[moment.month - 1][: 3 if width == 3 else None]
    if letter in _NUMBERS:
        number = _NUMBERS[letter]
        return lambda moment: f"{number(moment):0{width}}"
    if letter == "E":
        return lambda moment: _DAYS[moment.weekday()][: None if width > 3 else 3]
    if letter == "S":
        return lambda moment: f"{moment.microsecond // 1000:03}"[:width].ljust(width, "0")
    if letter == "a":
        return lambda moment: "AM" if moment.hour < 12 else "PM"
    raise _bad_pattern(pattern, f"the letter {letter} is not supported")


def _year(letter: str, moment: datetime.datetime) -> int:
    return moment.isocalendar().year if letter == "x" else moment.year


def _bad_pattern(pattern: str, why: str) -> ConfigError:
    return ConfigError("path.format", f"Invalid value {pattern} for configuration path.format: {why}")


# Times of records ---------------------------------------------------------------------------------------------------------------


def extractor_of(name: str, field: str) -> Extractor:
    """An extractor by Confluent's name.

    Raises:
        ConfigError: None has this name.
    """
    short = re.sub(r"^.*\$|TimestampExtractor$", "", name)
    match short:
        case "Wallclock":
            return lambda value, timestamp_ms: time.time_ns() // 1_000_000
        case "Record":
            return _record_time
        case "RecordField":
            return lambda value, timestamp_ms: _time_of(field_of(value, field), field)
    raise ConfigError(
        "timestamp.extractor", f"Invalid timestamp extractor: {name}; timestamp.extractor must be Wallclock, Record or RecordField"
    )


def _record_time(value: Any, timestamp_ms: int | None) -> int:
    if timestamp_ms is None:
        raise DataError("The record has no timestamp; timestamp.extractor=Record needs one")
    return timestamp_ms


def _time_of(found: Any, field: str) -> int:
    if isinstance(found, str) and _NUMBER.fullmatch(found):
        found = int(found)
    if isinstance(found, str):
        try:
            found = datetime.datetime.fromisoformat(found)
        except ValueError:
            raise DataError(f"Field '{field}' has the value {found!r}, which is neither a number nor an ISO 8601 time") from None
    if isinstance(found, datetime.datetime):
        aware = found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
        return (aware - _EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise DataError(f"Error extracting timestamp from record field: {field} has the type {type(found).__name__}")
    return int(found)


def partitioner_of(config: Mapping[str, Any]) -> tuple[Partitioner, Extractor | None]:
    """The partitioner that the properties name, and its extractor of times if it has one.

    Raises:
        ConfigError: A property that it needs is missing or wrong.
    """
    delimiter, name = config["directory.delim"], config["partitioner.class"]
    short = name.rpartition(".")[2]
    if short == "DefaultPartitioner":
        return by_kafka_partition, None
    if short == "FieldPartitioner":
        fields = config["partition.field.name"]
        if not fields or not all(part.strip() for each in fields for part in each.split(".")):
            raise ConfigError("partition.field.name", "partition.field.name must name at least one field for FieldPartitioner")
        return by_fields(fields, delimiter), None
    duration, pattern = config["partition.duration.ms"], config["path.format"]
    if short in {"DailyPartitioner", "HourlyPartitioner"}:
        duration = _DAY_MS if short == "DailyPartitioner" else _HOUR_MS
        levels = ["'year'=YYYY", "'month'=MM", "'day'=dd", "'hour'=HH"]
        pattern = delimiter.join(levels[: 3 if short == "DailyPartitioner" else 4])
    elif short != "TimeBasedPartitioner":
        raise ConfigError(
            "partitioner.class",
            f"Partitioner class not found: {name}; partitioner.class must be DefaultPartitioner, FieldPartitioner, TimeBasedPartitioner, "
            "DailyPartitioner or HourlyPartitioner",
        )
    if duration <= 0:
        raise ConfigError("partition.duration.ms", f"Invalid value {duration} for configuration partition.duration.ms: must be positive")
    pattern = pattern.strip().removesuffix(delimiter)
    for key, given in (("path.format", pattern), ("locale", config["locale"]), ("timezone", config["timezone"])):
        if not given.strip():
            what = key.replace(".", " ").capitalize()
            raise ConfigError(key, f"Invalid value {given} for configuration {key}: {what} cannot be empty.")
    if re.search("MMM|E", re.sub("'[^']*'", "", pattern)) and not config["locale"].lower().startswith("en"):
        raise ConfigError("locale", f"path.format={pattern} writes names of months or days; these exist for English locales only")
    return by_time(duration, pattern, config["timezone"]), extractor_of(config["timestamp.extractor"], config["timestamp.field"])
