"""Parameter types of several verbs: topic names, configs, offset specs, times (spans and sizes: ``units``).

For completion in the shell, topic names are read from the database.
"""

import contextlib
import datetime
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click
from click.shell_completion import CompletionItem

from logdb.cli.terminal.session import Session
from logdb.cli.terminal.units import Kind, parse_duration
from logdb.client.addresses import path_of
from logdb.model import OFFSET_MAX, timestamp_ms_of

Pairs = Sequence[tuple[str, str]]


class TopicName(Kind):
    """A topic's name; the shell completes it from the database."""

    name = "topic"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        session = ctx.ensure_object(Session)
        session.servers.asks = False
        try:
            with session.read() as db:
                topics = db.topics()
        except Exception:  # noqa: BLE001  # a shell that asks for names must never see a traceback
            return []
        return [
            CompletionItem(topic.name, help=f"{topic.partition_count} partitions") for topic in topics if topic.name.startswith(incomplete)
        ]


class ConfigKey(Kind):
    """A topic config's key, completed by the shell."""

    name = "key"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from logdb.model import TOPIC_CONFIGS

        return [CompletionItem(name, help=key.meaning) for name, key in TOPIC_CONFIGS.items() if name.startswith(incomplete)]


class Pair(ConfigKey):
    """``key=value``."""

    name = "key=value"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


class Config(Pair):
    """``key=value`` of a topic's config; a time or a size may have a unit."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        from logdb.model import plain_config

        key, text = super().convert(value, param, ctx)
        return key, str(plain_config(key, text))


class Time(Kind):
    """A moment: milliseconds since 1970, or an ISO 8601 date or date and time (UTC unless it says otherwise)."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_time(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither milliseconds since 1970 nor a time like 2013-07-04T12:00:00", param, ctx)


def is_timestamp(number: int) -> bool:
    """Whether a record can have it: a signed number of 64 bits."""
    return -OFFSET_MAX - 1 <= number <= OFFSET_MAX


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of a time in milliseconds or in ISO 8601, rounded down; UTC without a zone.

    Raises:
        ValueError: It is neither, or more than 64 bits.
    """
    if re.fullmatch(r"-?\d+", text):
        if not is_timestamp(number := int(text)):
            raise ValueError(f"{number} is outside of 64 bits")
        return number
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return timestamp_ms_of(moment)


@dataclass(frozen=True)
class OffsetSpec:
    """A begin or an end of reading, as in kcat and in Kafka's OffsetSpec.

    ``number``, by ``kind``: the offset, the number of records before the end, or the time in milliseconds.  ``latest-time``: the record
    with the latest timestamp; ``none``: what no partition has.
    """

    kind: Literal["beginning", "end", "offset", "tail", "from-time", "to-time", "latest-time", "none"]
    number: int = 0


class OffsetSpecType(Kind):
    """beginning, end, N, -N (that many before the end), a date or s@TIME to begin at, e@TIME to end before."""

    name = "offset"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> OffsetSpec:
        if isinstance(value, OffsetSpec):
            return value
        try:
            return parse_offset_spec(str(value))
        except ValueError:
            self.fail(f"{value!r} is none of beginning, end, N, -N, 2013-07-04, s@TIME, e@TIME", param, ctx)


def parse_offset_spec(text: str) -> OffsetSpec:
    """The spec in the ``--offset`` of kcat or the console consumer.

    Raises:
        ValueError: It is not a spec.
    """
    if text in ("beginning", "earliest", "start"):
        return OffsetSpec("beginning")
    if text in ("end", "latest"):
        return OffsetSpec("end")
    if text.startswith("s@"):
        return OffsetSpec("from-time", parse_time(text[2:]))
    if text.startswith("e@"):
        return OffsetSpec("to-time", parse_time(text[2:]))
    if re.match(r"\d{4}-\d", text):
        return OffsetSpec("from-time", parse_time(text))
    number = int(text)
    return OffsetSpec("tail", -number) if text.startswith("-") else OffsetSpec("offset", number)


class Since(Kind):
    """A time as ``Time`` has it, or how long ago: 2h; the place to begin at."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> OffsetSpec:
        if isinstance(value, OffsetSpec):
            return value
        text = str(value)
        with contextlib.suppress(ValueError):
            return OffsetSpec("from-time", round(time.time() * 1000) - parse_duration(text))
        try:
            return OffsetSpec("from-time", parse_time(text))
        except ValueError:
            self.fail(f"{text!r} is neither a time like 2013-07-04T12:00:00 nor a duration like 2h or 7d", param, ctx)


def matching_names(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that a regular expression matches completely; a comma means "or", as in Kafka's tools.

    Raises:
        click.BadParameter: It is not a regular expression.
    """
    try:
        wanted = re.compile(pattern.replace(",", "|"))
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is neither a topic nor a regular expression: {error}") from None
    return [name for name in names if wanted.fullmatch(name)]


class JavaClass(Kind):
    """A class that Kafka's tools would load: their own default alone is known, in whichever package an older Kafka has it."""

    name = "class"

    def __init__(self, known: str) -> None:
        self._known = known

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.endswith("." + self._known.rpartition(".")[2]):
            self.fail(f"{value}: known is {self._known}", param, ctx)
        return value


class Target(click.Path):
    """A file or a directory to write; it need not exist."""

    def convert(self, value: "str | os.PathLike[str]", param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return path_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def numbers(text: str) -> set[int]:
    """Partition numbers: ``0,2`` and ``1-3`` (without the 3, as kafka-get-offsets has it).

    Raises:
        ValueError: It is not of this form.
    """
    return set().union(*(range(*bounds(part)) for part in text.split(",")))


def bounds(part: str, count: int | None = None) -> tuple[int, int]:
    """The first partition of ``2``, ``1-3``, ``-3`` or ``1-``, and that beyond the last; ``count``: of partitions."""
    first, dash, beyond = part.partition("-")
    if not dash:
        return int(part), int(part) + 1
    return int(first or 0), count if count is not None and not beyond else int(beyond)


TOPIC = TopicName()
TARGET = Target()
CONFIG_KEY = ConfigKey()
PAIR = Pair()
CONFIG = Config()
TIME = Time()
OFFSET_SPEC = OffsetSpecType()
SINCE = Since()
