"""The options of ``format("logdb")`` for reading: names, values, precedence.

They are those of Spark's Kafka source, and its own.  ``selection`` and ``offsets`` compare them with the database.

Names are compared without case, as Spark's are.  Each error has the option and its allowed values.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

from logdb.errors import InvalidConfig
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.mistakes import one_of
from logdb.model import OFFSET_MAX
from logdb_spark_source import columns
from logdb_spark_source.location import Location
from logdb_spark_source.offsets import EARLIEST, LATEST, Bound, parse_offsets, parse_partitions, parse_timestamp, parse_timestamps
from logdb_spark_source.selection import Selection

PLACE = ("path", "url")
_SELECTION = ("assign", "subscribe", "subscribePattern")
_STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_ISOLATION = ("isolationLevel", "kafka.isolation.level")
_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
READING = (
    *PLACE,
    *_SELECTION,
    *_STARTING,
    "startingOffsetsByTimestampStrategy",
    *_ENDING,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    *_STREAM,
    "includeHeaders",
    *_ISOLATION,
    "columns",
)
"""All options for reading."""

_SECRETS = ("user", "password", "token")
_OF_A_BROKER = re.compile(r"kafka\.|kafkaConsumer\.|fetchOffset\.|groupIdPrefix$", re.IGNORECASE)
_STRATEGIES = ("error", "latest")
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY_MS = 15 * 60_000


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Source, range and manner of a read.  Attributes are the options of these names."""

    place: Location
    selection: Selection
    starting: Bound | None
    ending: Bound | None
    strategy: Literal["error", "latest"]
    fail_on_data_loss: bool
    include_headers: bool
    isolation_level: IsolationLevel
    columns: tuple[str, ...]
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ReadOptions":
        """Parse Spark's options.

        Raises:
            InvalidConfig: One is unknown, missing, contradicts another or has an invalid value.
        """
        options = Given(given, READING)
        include_headers = options.flag("includeHeaders", default=False)
        names = options.text("columns")
        least, most = options.count("minOffsetsPerTrigger"), options.count("maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise InvalidConfig("minOffsetsPerTrigger", least, f"at most maxOffsetsPerTrigger={most}")
        delay_ms = options.duration_ms("maxTriggerDelay")
        return cls(
            place=place_of(options),
            selection=_selection(options),
            starting=_bound(options, _STARTING),
            ending=_bound(options, _ENDING),
            strategy=cast('Literal["error", "latest"]', options.word("startingOffsetsByTimestampStrategy", _STRATEGIES) or "error"),
            fail_on_data_loss=options.flag("failOnDataLoss", default=True),
            include_headers=include_headers,
            isolation_level=cast("IsolationLevel", options.word(options.either(_ISOLATION), ISOLATION_LEVELS) or "read_uncommitted"),
            columns=columns.chosen(None if names is None else _listed(names), headers=include_headers),
            min_partitions=options.count("minPartitions"),
            max_records_per_partition=options.count("maxRecordsPerPartition"),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=_DELAY_MS if delay_ms is None else delay_ms,
        )

    def start_of_batch(self) -> Bound:
        """The begin of a batch; by default earliest.

        Raises:
            InvalidConfig: It is latest.
        """
        bound = self.starting or Bound("startingOffsets", "offset", EARLIEST)
        _refuse_mark(bound, LATEST, "a batch cannot begin at latest (-1): must be earliest (-2), an offset or a timestamp")
        return bound

    def end_of_batch(self) -> Bound:
        """The end of a batch; by default latest.

        Raises:
            InvalidConfig: It is earliest.
        """
        bound = self.ending or Bound("endingOffsets", "offset", LATEST)
        _refuse_mark(bound, EARLIEST, "a batch cannot end at earliest (-2): must be latest (-1), an offset or a timestamp")
        return bound

    def start_of_stream(self) -> Bound:
        """The begin of a stream without a checkpoint; by default latest.

        Raises:
            InvalidConfig: An end is given.
        """
        if self.ending is not None:
            raise InvalidConfig(self.ending.option, "…", "only batches have an end")
        return self.starting or Bound("startingOffsets", "offset", LATEST)


class Given:
    """Options as given: looked up without case, and parsed by type.

    Raises:
        InvalidConfig: One is neither in ``known`` nor in ``also``, or has a secret.
    """

    def __init__(self, given: Mapping[str, str], known: Sequence[str], *, also: Sequence[str] = ()) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        passed = {name.lower() for name in also}
        self._check(known, passed)

    def _check(self, known: Sequence[str], passed: set[str]) -> None:
        by_lower = {name.lower(): name for name in known}
        for name in self._given.keys() - passed:
            if name in _SECRETS:
                reason = "set LOGDB_TOKEN, or LOGDB_USER and LOGDB_PASSWORD, for driver and executors, because plans are logged"
                raise InvalidConfig(name, "…", reason)
            if name == "kafka.bootstrap.servers":
                raise InvalidConfig(name, self._given[name], "format('logdb') has url=http://host:port, or path=directory, instead")
            if name not in by_lower and not _OF_A_BROKER.match(name):
                close = difflib.get_close_matches(name, by_lower, n=1)
                hint = f"did you mean {by_lower[close[0]]}? " if close else ""
                raise InvalidConfig(name, self._given[name], f"{hint}there is no such option; options are {', '.join(known)}")

    def text(self, name: str) -> str | None:
        """The value as given; None without one."""
        return self._given.get(name.lower())

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of some options that were given."""
        return [name for name in names if name.lower() in self._given]

    def either(self, names: Sequence[str]) -> str:
        """The spelling of an option that was given; the first if none was."""
        return (self.among(names) or list(names))[0]

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.word(name, ("true", "false"))
        return default if value is None else value == "true"

    def word(self, name: str, allowed: Sequence[str]) -> str | None:
        """One of some words, in lower case."""
        value = self.text(name)
        if value is None:
            return None
        if value.strip().lower() not in allowed:
            raise InvalidConfig(name, value, f"must be {one_of(allowed)}")
        return value.strip().lower()

    def count(self, name: str) -> int | None:
        """A number, 1 or more."""
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or not 1 <= int(value) <= OFFSET_MAX:
            raise InvalidConfig(name, value, "must be a number, 1 or more")
        return int(value)

    def duration_ms(self, name: str) -> int | None:
        """A time such as 15m, 10s, 500ms or, in milliseconds, 500."""
        value = self.text(name)
        if value is None:
            return None
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
        if found is None or found[2] not in _UNITS_MS:
            raise InvalidConfig(name, value, "must be a time such as 15m, 10s, 500ms or 1h")
        return int(found[1]) * _UNITS_MS[found[2]]


def place_of(options: Given) -> Location:
    """The location of the database, from the options ``path`` and ``url``.

    Raises:
        InvalidConfig: Both or none are given, or the value is invalid.
    """
    given = options.among(PLACE)
    if len(given) != 1:
        raise InvalidConfig(" and ".join(given) or "path", None, "give exactly one of path (a directory) and url (of a server)")
    name = given[0]
    value = (options.text(name) or "").strip()
    if name == "path":
        return Location(path=directory_of(name, value))
    urls = _listed(value)
    for url in urls or [value]:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            reason = "a URL without user and password: set LOGDB_USER and LOGDB_PASSWORD for driver and executors"
            raise InvalidConfig(name, f"{parts.scheme}://…@{parts.hostname}", f"must be {reason}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfig(name, value, "must be http://host:port or https://host:port; separate several by commas")
    return Location(urls=tuple(urls))


def directory_of(name: str, value: str) -> str:
    """The directory in the option ``name``, absolute: a path, or a URI of the scheme file.

    Raises:
        InvalidConfig: It is not a directory.
    """
    path = value
    if "://" in value or value.startswith("file:"):
        parts = urlsplit(value)
        if name == "path" and parts.scheme in ("http", "https"):
            raise InvalidConfig(name, "…", "use the option url for a server")
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise InvalidConfig(name, value, "must be a directory that driver and executors see, such as /data/db or file:///data/db")
        path = parts.path
    if not path:
        raise InvalidConfig(name, value, "must be a directory")
    return os.path.abspath(path)


def _selection(options: Given) -> Selection:
    given = options.among(_SELECTION)
    if len(given) != 1:
        raise InvalidConfig(" and ".join(given) or "subscribe", None, f"give exactly one of {', '.join(_SELECTION)}")
    option = given[0]
    value = (options.text(option) or "").strip()
    if option == "assign":
        return Selection(option=option, assigned=parse_partitions(option, value))
    if option == "subscribe":
        topics = _listed(value)
        if not topics:
            raise InvalidConfig(option, value, "must be names of topics, separated by commas")
        return Selection(option=option, topics=tuple(sorted(set(topics))))
    try:
        re.compile(value)
    except re.error as error:
        raise InvalidConfig(option, value, f"must be a regular expression: {error}") from None
    if not value:
        raise InvalidConfig(option, value, "must be a regular expression that matches whole names of topics")
    return Selection(option=option, pattern=value)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _bound(options: Given, names: Sequence[str]) -> Bound | None:
    """The bound that counts of (one timestamp, timestamps by partition, offsets): the first given one; all are checked."""
    timestamp, by_timestamp, by_offset = (options.text(name) for name in names)
    found = [
        None if timestamp is None else parse_timestamp(names[0], timestamp),
        None if by_timestamp is None else parse_timestamps(names[1], by_timestamp),
        None if by_offset is None else parse_offsets(names[2], by_offset),
    ]
    return next((bound for bound in found if bound is not None), None)


def _refuse_mark(bound: Bound, mark: int, reason: str) -> None:
    values = [bound.value] if isinstance(bound.value, int) else bound.value.values()
    if bound.by == "offset" and mark in values:
        raise InvalidConfig(bound.option, mark, reason)
