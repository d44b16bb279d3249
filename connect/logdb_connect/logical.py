"""Kafka's logical types: between Python's values and the numbers or bytes that stand for them, and what values a schema allows.

Pure functions.  A value that does not fit raises ``DataError``; the messages are Kafka's where Kafka has one.
"""

import decimal
import math
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from logdb_connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Schema, SchemaType
from logdb_connect.errors import DataError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DATE: Final = date(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DIGITS_MAX = 100_000
_BYTES_MAX = 41_525  # of so many digits: Python takes a time that grows with their square
DAY_MS: Final = 86_400_000
NAMES: Final = frozenset({DECIMAL, DATE, TIME, TIMESTAMP})
INTEGERS: Final[Mapping[str, int]] = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
"""How many bits the numbers of an integer type have, beside the sign."""
_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "float32": (float, int),
    "float64": (float, int),
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "array": (list, tuple),
    "map": (Mapping,),
    "struct": (Mapping,),
}
_EXACT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.InvalidOperation])


def scale_of(schema: Schema) -> int:
    """How many digits after the point the values of a ``DECIMAL`` have."""
    text = dict(schema.parameters).get("scale")
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError:
        raise DataError("Invalid scale parameter found in Decimal schema: ") from None


def decimal_schema(scale: int, *, optional: bool = False, default: Decimal | None = None) -> Schema:
    return Schema(type="bytes", name=DECIMAL, version=1, parameters=(("scale", str(scale)),), optional=optional, default=default)


def scale_in(value: Decimal) -> int:
    """How many digits after the point a number has; less than 0 for ``1E+3``."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise DataError(f"Invalid type for Decimal, expected a finite number but was {value}")
    return -exponent


def unscaled(value: Decimal, scale: int) -> int:
    """The whole number that is ``value`` times ten to the power of ``scale``."""
    if (given := scale_in(value)) > scale:
        raise DataError(f"Decimal value has mismatching scale for given Decimal schema. Schema has scale {scale}, value has scale {given}.")
    if scale - given > _DIGITS_MAX:
        raise DataError(f"Decimal value of scale {given} is too far from the schema's scale {scale}")
    return int(value.scaleb(scale, _EXACT))


def decimal_to_bytes(value: Decimal, scale: int) -> bytes:
    """The unscaled number, two's complement, most significant byte first, as short as it can be."""
    number = unscaled(value, scale)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def decimal_of_bytes(data: bytes, scale: int) -> Decimal:
    if not data:
        raise DataError("Invalid bytes for Decimal field")
    if len(data) > _BYTES_MAX:
        raise DataError(f"Decimal of {len(data)} bytes: must be at most {_BYTES_MAX} bytes")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)


def timestamp_ms(value: datetime) -> int:
    """Milliseconds since 1970; a time without zone is in UTC."""
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // _MILLISECOND


def timestamp_of(milliseconds: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise DataError(f"Timestamp of {milliseconds} ms since 1970 is not between the years 1 and 9999") from None


def date_days(value: date) -> int:
    """Days since 1970-01-01."""
    return (value - EPOCH_DATE).days


def date_of(days: int) -> date:
    try:
        return EPOCH_DATE + timedelta(days=days)
    except OverflowError:
        raise DataError(f"Date of {days} days since 1970-01-01 is not between the years 1 and 9999") from None


def time_ms(value: time) -> int:
    """Milliseconds since midnight."""
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def time_of(milliseconds: int) -> time:
    if not 0 <= milliseconds < DAY_MS:
        raise DataError("Time values must use number of milliseconds greater than 0 and less than 86400000")
    seconds, rest = divmod(milliseconds, 1000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * 1000)


def to_number(schema: Schema, value: Any) -> int:
    """Days or milliseconds of a value of ``DATE``, ``TIME`` or ``TIMESTAMP``."""
    if schema.name == TIMESTAMP and isinstance(value, datetime):
        return timestamp_ms(value)
    if schema.name == DATE and isinstance(value, date) and not isinstance(value, datetime):
        return date_days(value)
    if schema.name == TIME and isinstance(value, time):
        return time_ms(value)
    raise DataError(f"Invalid type for {short_name(schema)}, expected {short_name(schema)} but was {type(value).__name__}")


def of_number(schema: Schema, number: int) -> datetime | date | time:
    """The value of ``DATE``, ``TIME`` or ``TIMESTAMP`` that days or milliseconds stand for."""
    return timestamp_of(number) if schema.name == TIMESTAMP else date_of(number) if schema.name == DATE else time_of(number)


def short_name(schema: Schema) -> str:
    """``Timestamp``, as messages have it."""
    return (schema.name or schema.type).rpartition(".")[2]


def float32_of(value: float) -> float:
    """The nearest number that fits 32 bits."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def float32_text(value: float) -> str:
    """As few digits as tell a number of 32 bits from its neighbours."""
    rounded = float32_of(value)
    if not math.isfinite(rounded):
        return str(rounded)
    return next((text for digits in range(1, 9) if float32_of(float(text := f"{rounded:.{digits}g}")) == rounded), f"{rounded:.9g}")


def fits(kind: SchemaType, value: Any) -> bool:
    """Whether a value other than None is of a type, apart from what it contains."""
    if (bits := INTEGERS.get(kind)) is not None:
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    return isinstance(value, _CLASSES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def check(schema: Schema, value: Any, what: str | None = None) -> None:
    """Raises ``DataError`` unless ``value`` is one of ``schema`` (``ConnectSchema.validateValue``)."""
    place = f" for field: {what!r}" if what else ""
    if value is None:
        if not schema.optional:
            named = f": {what!r}" if what else ""
            raise DataError(f"Invalid value: null used for required field{named}, schema type: {schema.type.upper()}")
        return
    if schema.name in NAMES:
        if schema.name == DECIMAL:
            if not isinstance(value, Decimal):
                raise DataError(f"Invalid type for Decimal{place}, expected Decimal but was {type(value).__name__}")
        else:
            to_number(schema, value)
        return
    if not fits(schema.type, value):
        raise DataError(f"Invalid Java object for schema with type {schema.type.upper()}: {type(value).__name__}{place}")
    if schema.type == "struct":
        for field in schema.fields:
            if field.schema.default is None or value.get(field.name) is not None:
                check(field.schema, value.get(field.name), field.name)
    elif schema.type == "array" and schema.values is not None:
        for each in value:
            check(schema.values, each, what)
    elif schema.type == "map" and schema.keys is not None and schema.values is not None:
        for key, each in value.items():
            check(schema.keys, key, what)
            check(schema.values, each, what)
