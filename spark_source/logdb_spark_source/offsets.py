"""The begin and end of reading: the forms of Spark's Kafka source, and the offsets that they mean.

The forms: earliest, latest, JSON of offsets or of timestamps, one timestamp for all.  ``options`` decides which of several options counts.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import logdb
from logdb.errors import InvalidConfig
from logdb.log.isolation import IsolationLevel
from logdb.model import OFFSET_MAX, TopicPartition

EARLIEST, LATEST = -2, -1
_NAMES = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS = 'must be earliest, latest or JSON such as {"topic":{"0":23,"1":-1}}, where -2 is earliest and -1 latest'


@dataclass(frozen=True)
class Bound:
    """The begin, or the end, of all partitions.

    Attributes:
        option: The option with the value.
        by: The unit of ``value``.
        value: One for all partitions, or one for each; an offset may be ``EARLIEST`` or ``LATEST``.
    """

    option: str
    by: Literal["offset", "timestamp_ms"]
    value: int | Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> int:
        """The value of one partition."""
        return self.value if isinstance(self.value, int) else self.value[partition]

    def check_covers(self, partitions: Iterable[TopicPartition]) -> None:
        """Check that the values of partitions are exactly those of ``partitions``.

        Raises:
            InvalidConfig: Names the missing or extra ones.
        """
        if isinstance(self.value, int):
            return
        wanted = set(partitions)
        if missing := sorted(wanted - self.value.keys()):
            raise InvalidConfig(self.option, named(self.value), f"name every partition that is read; missing: {named(missing)}")
        if strange := sorted(self.value.keys() - wanted):
            raise InvalidConfig(self.option, named(self.value), f"name only partitions that are read; these are not: {named(strange)}")


def named(partitions: Iterable[TopicPartition]) -> str:
    """Some partitions, for a message."""
    shown = [f"{one.topic}-{one.partition}" for one in partitions]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def parse_offsets(option: str, text: str) -> Bound:
    """A word for all partitions, or JSON with an offset for each.

    Raises:
        InvalidConfig: It is neither.
    """
    word = text.strip().lower()
    if word in _NAMES:
        return Bound(option, "offset", _NAMES[word])
    return Bound(option, "offset", _by_partition(option, text, EARLIEST, _OFFSETS))


def parse_timestamps(option: str, text: str) -> Bound:
    """JSON with a timestamp, ms since 1970, for each partition.

    Raises:
        InvalidConfig: It is not.
    """
    expected = 'must be JSON of milliseconds since 1970, such as {"topic":{"0":1700000000000}}'
    return Bound(option, "timestamp_ms", _by_partition(option, text, 0, expected))


def parse_timestamp(option: str, text: str) -> Bound:
    """One timestamp, ms since 1970, for all partitions.

    Raises:
        InvalidConfig: It is not.
    """
    if not text.strip().isdecimal() or int(text) > OFFSET_MAX:
        raise InvalidConfig(option, text, "must be milliseconds since 1970")
    return Bound(option, "timestamp_ms", int(text))


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """JSON with a list of partitions for each topic.

    Raises:
        InvalidConfig: It is not.
    """
    expected = 'must be JSON such as {"topic":[0,1]}'
    found = [
        TopicPartition(topic, _number(option, text, at, 0, expected))
        for topic, numbers in _object(option, text, expected).items()
        for at in (numbers if isinstance(numbers, list) else _refuse(option, text, expected))
    ]
    if not found or len(set(found)) < len(found):
        _refuse(option, text, f"{expected}; name at least one partition, and each once")
    return tuple(sorted(found))


def _by_partition(option: str, text: str, least: int, expected: str) -> dict[TopicPartition, int]:
    found = {}
    for topic, numbers in _object(option, text, expected).items():
        for at, number in (numbers if isinstance(numbers, dict) else _refuse(option, text, expected)).items():
            if not at.isdecimal():
                _refuse(option, text, expected)
            found[TopicPartition(topic, int(at))] = _number(option, text, number, least, expected)
    return found


def _object(option: str, text: str, expected: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else _refuse(option, text, expected)


def _number(option: str, text: str, number: object, least: int, expected: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= OFFSET_MAX:
        return _refuse(option, text, expected)  # type: ignore[no-any-return]
    return number


def _refuse(option: str, text: str, expected: str) -> Any:
    raise InvalidConfig(option, text, expected)


# ---------------------------------------------------------------- what they come to


@dataclass(frozen=True)
class Resolver:
    """Finds the offsets of a database that bounds mean.

    Attributes:
        isolation_level: With read_committed, reading ends at the last stable offset.
        known_ends: The ends, if they are fixed; None: they are looked up each time.
    """

    database: logdb.Database
    isolation_level: IsolationLevel
    known_ends: Mapping[TopicPartition, int] | None = None

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of reading."""
        return {one: self._end(one) for one in partitions}

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The present log start offsets."""
        return {one: self.database.log(*one).start_offset for one in partitions}

    def starting(
        self, bound: Bound, partitions: Iterable[TopicPartition], *, strategy: Literal["error", "latest"]
    ) -> dict[TopicPartition, int]:
        """The offset at which each partition begins.

        Args:
            strategy: If no record is as young as a timestamp: fail, or begin at the end.

        Raises:
            InvalidConfig: With ``strategy`` error; names option and partition.
        """
        found = {}
        for one in partitions:
            offset = self._offset(bound, one)
            if offset is None and strategy == "error":
                what = f"{bound.of(one)} for {one.topic}-{one.partition}"
                otherwise = "with startingOffsetsByTimestampStrategy=latest reading begins at the end"
                raise InvalidConfig(bound.option, what, f"no record has that time or a later one; {otherwise}")
            found[one] = self._end(one) if offset is None else offset
        return found

    def ending(self, bound: Bound, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset at which each partition ends; the log end if no record is as young as a timestamp."""
        return {one: self._end(one) if (offset := self._offset(bound, one)) is None else offset for one in partitions}

    def _offset(self, bound: Bound, one: TopicPartition) -> int | None:
        """The offset of a bound; None for a timestamp after the last record's."""
        wanted = bound.of(one)
        if bound.by == "timestamp_ms":
            offset = self.database.log(*one).offset_for_timestamp(wanted)
            return offset if offset is None or offset < self._end(one) else None
        if wanted == EARLIEST:
            return self.database.log(*one).start_offset
        return self._end(one) if wanted == LATEST else wanted

    def _end(self, one: TopicPartition) -> int:
        if self.known_ends is not None:
            return self.known_ends[one]
        return self.database.log(*one).readable_end_offset(self.isolation_level)
