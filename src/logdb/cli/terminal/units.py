"""Parameter types with units: time spans and sizes."""

import re

import click

from logdb.model import parse_size_bytes, parse_span_ms

_SPAN_MS_MAX = 10**12  # thirty years


class Kind(click.ParamType):  # type: ignore[type-arg]  # click before 8.4 has no arguments to give it
    """A parameter type."""


class WholeNumber(click.IntRange):
    """A whole number in a range; an error says so."""

    name = "whole number"


class Duration(Kind):
    """A time span with units, 30d or 90m, or as ISO 8601 has it: P1D, PT1H30M; in milliseconds.

    ``unit``: of a plain number; empty: plain numbers are refused.
    """

    name = "duration"

    def __init__(self, unit: str = "", least: int = 0) -> None:
        self._unit, self._least = unit, least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        alone = f"; a plain number is in {self._unit}" if self._unit else ""
        try:
            span_ms = parse_duration(text, self._unit)
        except ValueError:
            self.fail(f"{text!r} is not a duration like 30d, 90m, 500ms or PT1H30M{alone}", param, ctx)
        if not self._least <= span_ms <= _SPAN_MS_MAX:
            self.fail(f"{text!r} is {span_ms} ms: must be {self._least} to {_SPAN_MS_MAX}", param, ctx)
        return span_ms


def parse_duration(text: str, unit: str = "") -> int:
    """Milliseconds of a time span with a unit, or in ISO 8601; of a plain number, in ``unit``.

    Raises:
        ValueError: It is not a time span, or a plain number without ``unit``.
    """
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", text, re.ASCII)
    if found is None or not any(found.groups()):
        return parse_span_ms(f"{text}{unit}" if re.fullmatch(r"[\d.]+", text, re.ASCII) else text)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 1000 * (((24 * days + hours) * 60 + minutes) * 60 + seconds)


class Size(Kind):
    """Bytes: a number, or one with a unit, 64MiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is not a size: must be a number of bytes, or {error}", param, ctx)


def parse_size(text: str) -> int:
    """Bytes of a size with a unit, or of a plain number.

    Raises:
        ValueError: It is not a size.
    """
    return parse_size_bytes(f"{text}B" if re.fullmatch(r"\d+", text, re.ASCII) else text)


DURATION = Duration()
MILLISECONDS = Duration("ms")
SIZE = Size()
