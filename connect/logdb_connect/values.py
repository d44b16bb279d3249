"""Values as text, and back, with the types that Kafka infers (``org.apache.kafka.connect.data.Values``).

``parse`` reads the text of headers and of literals.  A whole number gets the smallest integer type; one with a fraction is a float32,
or what is larger; ``2020-01-31``, ``10:15:30.000Z`` and both with ``T`` between are dates and times; ``[…]`` and ``{…}`` are arrays and
maps; anything else is a string.
"""

import base64
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from logdb_connect import logical
from logdb_connect.data import DATE, STRING, TIME, TIMESTAMP, Schema
from logdb_connect.errors import DataError
from logdb_connect.java_dates import DatePattern

_TOKENS = re.compile(r'(?:\\.|\\\Z|[^:,{}\[\]"\\])+|[:,{}\[\]"]', re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_RANKS: Final = ("int8", "int16", "int32", "int64", "float32", "float64")
_BOOLEAN: Final = Schema(type="boolean")
_DATE_FORMAT: Final = DatePattern("yyyy-MM-dd")
_TIME_FORMAT: Final = DatePattern("HH:mm:ss.SSS'Z'")
_TIMESTAMP_FORMAT: Final = DatePattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
DATE_SCHEMA: Final = Schema(type="int32", name=DATE, version=1)
TIME_SCHEMA: Final = Schema(type="int32", name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema(type="int64", name=TIMESTAMP, version=1)
Parsed = tuple[Schema | None, Any]
_NULL: Final[Parsed] = (None, None)


def parse(text: str) -> Parsed:
    """The schema and the value that a text stands for."""
    return _Parser(text).parse(is_embedded=False) if text else (STRING, text)


def number_text(value: float, *, narrow: bool = False) -> str:
    """A floating point number as Java writes it: ``1.0E10``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(logical.float32_text(value) if narrow else repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text, minus = "".join(map(str, digits)), "-" if sign else ""
    if text == "0":
        return f"{minus}0.0"
    point = len(text) + exponent  # how many digits stand before the point
    if -2 <= point <= 7:
        whole, fraction = (text[:point], text[point:]) if point > 0 else ("0", "0" * -point + text)
        return f"{minus}{whole.ljust(point, '0')}.{fraction or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def date_text(value: datetime | date | time) -> str:
    """A time in Kafka's form of ISO 8601; a timestamp at midnight is a date alone."""
    if isinstance(value, time):
        return _TIME_FORMAT.format(logical.timestamp_of(logical.time_ms(value)))
    if not isinstance(value, datetime):
        return _DATE_FORMAT.format(logical.timestamp_of(logical.date_days(value) * logical.DAY_MS))
    milliseconds = logical.timestamp_ms(value)
    is_date = milliseconds >= logical.DAY_MS and milliseconds % logical.DAY_MS == 0
    return (_DATE_FORMAT if is_date else _TIMESTAMP_FORMAT).format(logical.timestamp_of(milliseconds))


def text_of(schema: Schema | None, value: Any, *, is_embedded: bool = False) -> str:
    """The text that ``parse`` reads.

    Raises:
        DataError: The value has a type that Connect does not know.
    """
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return str(value)
        case float():
            return number_text(value, narrow=schema is not None and schema.type == "float32")
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if is_embedded else value
        case bytes() | bytearray() | memoryview():
            text = base64.b64encode(value).decode()
            return f'"{text}"' if is_embedded else text
        case list() | tuple():
            item = None if schema is None else schema.values
            return "[" + ",".join(text_of(item, each, is_embedded=True) for each in value) + "]"
        case Mapping():
            return "{" + ",".join(_entry_text(schema, key, each) for key, each in value.items()) + "}"
        case date() | time():
            return date_text(value)
        case _:
            raise DataError(f"Failed to serialize unexpected value type {type(value).__name__}")


def _entry_text(schema: Schema | None, key: Any, value: Any) -> str:
    keys = values = None
    if schema is not None and schema.type == "map":
        keys, values = schema.keys, schema.values
    elif schema is not None and (field := schema.field(key)) is not None:
        values = field.schema
        value = field.schema.default if value is None else value
    return f"{text_of(keys, key, is_embedded=True)}:{text_of(values, value, is_embedded=True)}"


class _Merged:
    """The schema of several values: the widest of their numbers, or else their one type."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._is_compatible = True

    def add(self, latest: Schema | None) -> None:
        if latest is None or not self._is_compatible:
            return
        known = self.schema
        if known is None:
            self.schema = latest
        elif known.type != latest.type:
            both = known.type in _RANKS and latest.type in _RANKS
            self.schema = max(known, latest, key=lambda one: _RANKS.index(one.type)) if both else None
        else:
            self.schema = latest
        self._is_compatible = self.schema is not None


class _Parser:
    """Reads one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKENS.findall(text)
        self._at = 0

    def _has_next(self) -> bool:
        return self._at < len(self._tokens)

    def _next(self) -> str:
        token = self._tokens[self._at] if self._has_next() else ""
        self._at += 1
        return str(token)

    def _consumes(self, expected: str) -> bool:
        """Skip space; whether the next token was the expected one."""
        while self._at < len(self._tokens) - 1 and not self._tokens[self._at].strip():
            self._at += 1
        if self._has_next() and self._tokens[self._at].strip() == expected:
            self._at += 1
            return True
        return False

    def _is_literal(self, literal: str, *, is_embedded: bool) -> bool:
        start = self._at
        if self._consumes(literal) and (is_embedded or not self._has_next()):
            return True
        self._at = start
        return False

    def parse(self, *, is_embedded: bool) -> Parsed:
        if not self._has_next():
            return _NULL
        if is_embedded and self._consumes('"'):
            return self._quoted()
        if self._is_literal("null", is_embedded=is_embedded):
            return _NULL
        for literal in ("true", "false"):
            if self._is_literal(literal, is_embedded=is_embedded):
                return _BOOLEAN, literal == "true"
        start = self._at
        try:
            if self._consumes("["):
                return self._array()
            if self._consumes("{"):
                return self._map()
        except DataError:
            self._at = start
        token = self._next()
        return self._token(token.strip(), is_embedded=is_embedded) if token.strip() else (STRING, token)

    def _token(self, token: str, *, is_embedded: bool) -> Parsed:
        if token[0].isdigit() and (found := self._temporal_of_tokens(token)) is not None:
            return found
        if (token[0].isdigit() or token[0] in "+-") and _NUMBER.fullmatch(token):
            return _number(token)
        if is_embedded:
            raise DataError("Failed to parse embedded value")
        return STRING, self._text

    def _temporal_of_tokens(self, token: str) -> Parsed | None:
        # A colon that is not escaped ends a token: a time has five.
        rest = self._tokens[self._at : self._at + 4]
        if len(rest) == 4 and (found := _temporal(token + "".join(rest))) is not None:
            self._at += 4
            return found
        return _temporal(token)

    def _quoted(self) -> Parsed:
        content = ""
        while self._has_next():
            if self._consumes('"'):
                break
            content += self._next()
        return _temporal(content) or (STRING, content)

    def _array(self) -> Parsed:
        items: list[Any] = []
        merged = _Merged()
        while self._has_next():
            if self._consumes("]"):
                if merged.schema is None:
                    return Schema(type="array"), items
                return Schema(type="array", values=merged.schema), [_aligned(merged.schema, each) for each in items]
            if self._consumes(","):
                raise DataError(f"Unable to parse an empty array element: {self._text}")
            schema, value = self.parse(is_embedded=True)
            merged.add(schema)
            items.append(value)
            at = self._at
            if self._consumes("]"):
                self._at = at
            elif not self._consumes(","):
                raise DataError("Array elements missing ',' delimiter")
        raise DataError(f"Array is missing terminating ']': {self._text}")

    def _map(self) -> Parsed:
        entries: dict[Any, Any] = {}
        keys, values = _Merged(), _Merged()
        while self._has_next():
            if self._consumes("}"):
                made = Schema(type="map", keys=keys.schema, values=values.schema if keys.schema else None)
                return made, {_aligned(made.keys, key): _aligned(made.values, each) for key, each in entries.items()}
            if self._consumes(","):
                raise DataError(f"Unable to parse a map entry with no key or value: {self._text}")
            key_schema, key = self.parse(is_embedded=True)
            if key is None:
                raise DataError(f"Map entry may not have a null key: {self._text}")
            if isinstance(key, list | dict):
                raise DataError(f"Map entry may not have a key of several values: {self._text}")
            if not self._consumes(":"):
                raise DataError(f"Map entry is missing ':' in {self._text}")
            value_schema, value = self.parse(is_embedded=True)
            entries[key] = value
            self._consumes(",")
            keys.add(key_schema)
            values.add(value_schema)
        raise DataError(f"Map is missing terminating '}}': {self._text}")


def _aligned(schema: Schema | None, value: Any) -> Any:
    if value is None and schema is not None:
        raise DataError("Unable to convert a null value to a schema that requires a value")
    is_float = schema is not None and schema.type in {"float32", "float64"}
    return float(value) if is_float and isinstance(value, int) and not isinstance(value, bool) else value


def _number(token: str) -> Parsed:
    number = Decimal(token)
    if number.adjusted() < 40 and number == number.to_integral_value():
        whole = int(number)
        for kind, bits in logical.INTEGERS.items():
            if -(1 << bits) <= whole < 1 << bits:
                return Schema(type=kind), whole  # type: ignore[arg-type]
    scale = logical.scale_in(number)
    if scale != 0:
        if math.isfinite(narrow := logical.float32_of(float(number))):
            return Schema(type="float32"), narrow
        if math.isfinite(wide := float(number)):
            return Schema(type="float64"), wide
    return logical.decimal_schema(scale), number


def _temporal(token: str) -> Parsed | None:
    token = token.replace("\\:", ":")
    match len(token):
        case 10:
            schema, pattern = DATE_SCHEMA, _DATE_FORMAT
        case 13:
            schema, pattern = TIME_SCHEMA, _TIME_FORMAT
        case 24:
            schema, pattern = TIMESTAMP_SCHEMA, _TIMESTAMP_FORMAT
        case _:
            return None
    try:
        at = pattern.parse(token)
    except ValueError:
        return None
    return schema, at.date() if schema is DATE_SCHEMA else at.time() if schema is TIME_SCHEMA else at
