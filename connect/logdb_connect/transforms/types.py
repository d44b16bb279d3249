"""Transforms of types: casts between them, and times between their forms."""

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from logdb_connect import logical, values
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.data import DATE, DECIMAL, STRING, TIME, TIMESTAMP, ConnectRecord, Field, Schema, SchemaType
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.java_dates import DatePattern
from logdb_connect.transforms import base

_OUTPUTS: Final = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
_INPUTS: Final = (*_OUTPUTS, "bytes")
_FLOAT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_UNEXPECTED = "Unexpected type in Cast transformation: "


def _names(kinds: tuple[str, ...]) -> str:
    return f"[{', '.join(kind.upper() for kind in kinds)}]"


def _casts(spec: list[str]) -> dict[str | None, SchemaType]:
    """The type of each field; of the whole under None."""
    if not spec:
        raise ConfigError("spec", "Must specify at least one field to cast.")
    casts: dict[str | None, SchemaType] = {}
    for mapping in spec:
        parts = [part.strip() for part in mapping.split(":")]
        if len(parts) > 2:
            raise ConfigError("spec", f"Invalid value {spec} for configuration renames: Invalid rename mapping: {mapping}")
        kind = parts[-1].lower()
        if kind not in {*_INPUTS, "array", "map", "struct"}:
            raise ConfigError("spec", f"Invalid type found in casting spec: {parts[-1]}")
        if kind not in _OUTPUTS:
            message = f"Cast transformation does not support casting to {kind.upper()}; supported types are {_names(_OUTPUTS)}"
            raise ConfigError("spec", message)
        casts[parts[0] if len(parts) == 2 else None] = kind  # type: ignore[assignment]
    if None in casts and len(spec) > 1:
        message = "Cast transformations that specify a type to cast the entire value to may only specify a single cast in their spec"
        raise ConfigError("spec", message)
    return casts


def _spec_fault(spec: list[str]) -> str | None:
    try:
        _casts(spec)
    except ConfigError as error:
        return str(error)
    return None


class Cast(base.PartTransform):
    """Converts fields, or the whole key or value, to another type."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "spec",
            "LIST",
            REQUIRED,
            "List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of Maps or Structs. "
            "A single type to cast the entire value. Valid types are int8, int16, int32, int64, float32, float64, boolean, and string. "
            "Note that binary fields can only be cast to string.",
            "HIGH",
            _spec_fault,
        ),
        base.REPLACE_NULL,
    )
    _purpose: Final = "cast types"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._casts, self._defaults = _casts(config["spec"]), config["replace.null.with.default"]
        self._whole = self._casts.get(None)
        self._schemas = base.Schemas(self._schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        updated = None if schema is None else self._schemas[schema]
        if self._whole is not None:
            return self.changed(record, updated, cast(schema, value, self._whole))
        if schema is None:
            given = base.require_map(value, self._purpose)
            made = {name: cast(None, given.get(name), kind) for name, kind in self._casts.items() if name is not None}
            return self.changed(record, None, {**given, **made})
        given = base.require_struct(schema, value, self._purpose)
        made = {}
        for field in schema.fields:
            found, kind = base.get(field, given, defaults=self._defaults), self._casts.get(field.name)
            made[field.name] = found if kind is None else cast(field.schema, found, kind)
        return self.changed(record, updated, made)

    def _schema(self, schema: Schema) -> Schema:
        default = schema.default
        if self._whole is not None:
            made = base.bare(schema, type=self._whole)
            default = cast(schema, default, self._whole)
        else:
            made = base.with_fields(schema, [Field(field.name, self._field_schema(field)) for field in schema.fields])
        return made.replace(optional=schema.optional, default=default)

    def _field_schema(self, field: Field) -> Schema:
        kind = self._casts.get(field.name)
        if kind is None:
            return field.schema
        return Schema(type=kind, optional=field.schema.optional, default=cast(field.schema, field.schema.default, kind))


class CastKey(Cast):
    """``Cast`` of keys."""

    part = "key"


class CastValue(Cast):
    """``Cast`` of values."""

    part = "value"


def cast(schema: Schema | None, value: Any, kind: SchemaType) -> Any:
    """A value as another type.  Whole numbers lose their high bits, as Java's do.

    Raises:
        DataError: The text is no such number, or the type cannot be cast.
    """
    if value is None:
        return None
    given = schema.type if schema is not None else _type_of(value)
    if given not in _INPUTS:
        raise DataError(f"Cast transformation does not support casting from {given.upper()}; supported types are {_names(_INPUTS)}")
    if kind == "string":
        return _cast_to_string(schema, value)
    if schema is not None and schema.name in logical.NAMES and schema.name != DECIMAL:
        value = logical.to_number(schema, value)
    if not isinstance(value, bool | int | float | Decimal | str):
        raise DataError(f"{_UNEXPECTED}{type(value).__name__}")
    try:
        if kind == "boolean":
            return value.lower() == "true" if isinstance(value, str) else _whole(value, 63) != 0
        return _cast_to_float(value, kind) if kind in {"float32", "float64"} else _whole(value, logical.INTEGERS[kind])
    except ValueError:
        raise DataError(f"Value ({value}) was out of range for requested data type") from None


def _type_of(value: Any) -> str:
    for kinds, name in (((bool,), "boolean"), ((int,), "int64"), ((float,), "float64"), ((str,), "string"), ((bytes, bytearray), "bytes")):
        if isinstance(value, kinds):
            return name
    if isinstance(value, list | tuple | Mapping):
        return "map" if isinstance(value, Mapping) else "array"
    raise DataError(f"Cast transformation was passed a value of type {type(value).__name__} which is not supported by Connect's data API")


def _cast_to_string(schema: Schema | None, value: Any) -> str:
    if isinstance(value, date | time):
        return values.date_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return values.text_of(schema, value)


def _whole(value: bool | float | Decimal | str, bits: int) -> int:
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value) or not -(1 << bits) <= int(value) < 1 << bits:
            raise ValueError(value)
        return int(value)
    if isinstance(value, float):  # to 32 bits, or 64, and only then to fewer
        limit = 1 << max(bits, 31)
        number = 0 if math.isnan(value) else int(max(-limit, min(value, limit - 1)))
        number = min(number, limit - 1)
    elif isinstance(value, Decimal):
        number = int(value) if value.adjusted() < 4_000 else 0
    else:
        number = int(value)
    return (number + (1 << bits)) % (1 << (bits + 1)) - (1 << bits)


def _cast_to_float(value: bool | float | Decimal | str, kind: str) -> float:
    if isinstance(value, str):
        text = value.strip()
        if text.lstrip("+-") in {"NaN", "Infinity"}:
            number = float(text)
        elif found := _FLOAT.fullmatch(text):
            number = float(found[1])
        else:
            raise ValueError(value)
    else:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
    return logical.float32_of(number) if kind == "float32" else number


# ---------------------------------------------------------------- times

_UNITS: Final[Mapping[str, tuple[int, int]]] = {  # milliseconds times the first, divided by the second
    "seconds": (1, 1000),
    "milliseconds": (1, 1),
    "microseconds": (1000, 1),
    "nanoseconds": (1_000_000, 1),
}
_TARGETS: Final[Mapping[str, Schema]] = {
    "string": STRING,
    "unix": Schema(type="int64"),
    "Date": values.DATE_SCHEMA,
    "Time": values.TIME_SCHEMA,
    "Timestamp": values.TIMESTAMP_SCHEMA,
}
_KINDS: Final[Mapping[str, str]] = {TIMESTAMP: "Timestamp", DATE: "Date", TIME: "Time"}


def _quotient(number: int, divisor: int) -> int:
    """Towards zero."""
    return number // divisor if number >= 0 else -(-number // divisor)


class TimestampConverter(base.PartTransform):
    """Converts a time: to text, a number, a date, a time of day or a timestamp."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("field", "STRING", "", "The field containing the timestamp, or empty if the entire value is a timestamp", "HIGH"),
        ConfigKey(
            "target.type",
            "STRING",
            REQUIRED,
            "The desired timestamp representation: string, unix, Date, Time, or Timestamp",
            "HIGH",
            values=tuple(_TARGETS),
        ),
        ConfigKey(
            "format",
            "STRING",
            "",
            "A SimpleDateFormat-compatible format for the timestamp. Used to generate the output when type=string or used to parse "
            "the input if the input is a string.",
        ),
        ConfigKey(
            "unix.precision",
            "STRING",
            "milliseconds",
            "The desired Unix precision for the timestamp: seconds, milliseconds, microseconds, or nanoseconds. Used to generate the "
            "output when type=unix or used to parse the input if the input is a Long. Note: This SMT will cause precision loss during "
            "conversions from, and to, values with sub-millisecond components.",
            "LOW",
            values=tuple(_UNITS),
        ),
        base.REPLACE_NULL,
    )
    _purpose: Final = "converting timestamp formats"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._field, self._target, self._defaults = config["field"], config["target.type"], config["replace.null.with.default"]
        self._unit, pattern = _UNITS[config["unix.precision"]], config["format"]
        if self._target == "string" and not pattern.strip():
            raise ConfigError("format", "TimestampConverter requires format option to be specified when using string timestamps")
        try:
            self._pattern = DatePattern(pattern) if pattern.strip() else None
        except ValueError as error:
            message = f"TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: {pattern}: {error}"
            raise ConfigError("format", message) from None
        self._schemas = base.Schemas(self._schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            if value is None or not self._field:
                return self.changed(record, None, self._converted(None, value))
            given = base.require_map(value, self._purpose)
            return self.changed(record, None, {**given, self._field: self._converted(None, given.get(self._field))})
        if not self._field:
            updated = _TARGETS[self._target].replace(optional=schema.optional)
            return self.changed(record, updated, self._converted(_kind_of(schema), value))
        if value is not None:
            value = self._in_struct(schema, base.require_struct(schema, value, self._purpose))
        return self.changed(record, self._schemas[schema], value)

    def _in_struct(self, schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
        made = {}
        for field in schema.fields:
            found = base.get(field, value, defaults=self._defaults)
            made[field.name] = self._converted(_kind_of(field.schema), found) if field.name == self._field else found
        return made

    def _schema(self, schema: Schema) -> Schema:
        target = _TARGETS[self._target]
        fields = [
            Field(field.name, target.replace(optional=field.schema.optional)) if field.name == self._field else field
            for field in schema.fields
        ]
        default = None if schema.default is None else self._in_struct(schema, schema.default)
        return base.with_fields(schema, fields).replace(optional=schema.optional, default=default)

    def _converted(self, kind: str | None, value: Any) -> Any:
        return None if value is None else self._to_target(self._to_time(kind or _inferred(value), value))

    def _to_time(self, kind: str, value: Any) -> datetime:
        if kind == "string":
            if not isinstance(value, str):
                raise DataError(f"Expected string timestamp to be a String, but found {type(value).__name__}")
            if self._pattern is None:
                raise DataError("Could not parse timestamp: the property format is not set")
            try:
                return self._pattern.parse(value)
            except ValueError:
                raise DataError(f"Could not parse timestamp: value ({value}) does not match pattern ({self._pattern.pattern})") from None
        if kind == "unix":
            if not isinstance(value, int) or isinstance(value, bool):
                raise DataError(f"Expected Unix timestamp to be a Long, but found {type(value).__name__}")
            return logical.timestamp_of(_quotient(value * self._unit[1], self._unit[0]))
        match value:
            case datetime():
                return logical.timestamp_of(logical.timestamp_ms(value))
            case date():
                return logical.timestamp_of(logical.date_days(value) * logical.DAY_MS)
            case time():
                return logical.timestamp_of(logical.time_ms(value))
            case _:
                raise DataError(f"Expected {kind} to be a java.util.Date, but found {type(value).__name__}")

    def _to_target(self, at: datetime) -> Any:
        match self._target:
            case "string":
                assert self._pattern is not None
                return self._pattern.format(at)
            case "unix":
                return _quotient(logical.timestamp_ms(at) * self._unit[0], self._unit[1])
            case "Date":
                return at.date()
            case "Time":
                return at.time()
            case _:
                return at


def _kind_of(schema: Schema) -> str:
    if (kind := _KINDS.get(schema.name or "")) is not None:
        return kind
    if schema.type in {"string", "int64"}:
        return "string" if schema.type == "string" else "unix"
    raise DataError(f"Schema {schema.type} does not correspond to a known timestamp type format")


def _inferred(value: Any) -> str:
    kinds: tuple[tuple[Callable[[Any], bool], str], ...] = (
        (lambda given: isinstance(given, date | time), "Timestamp"),
        (lambda given: isinstance(given, int) and not isinstance(given, bool), "unix"),
        (lambda given: isinstance(given, str), "string"),
    )
    for fits, kind in kinds:
        if fits(value):
            return kind
    raise DataError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")


class TimestampConverterKey(TimestampConverter):
    """``TimestampConverter`` of keys."""

    part = "key"


class TimestampConverterValue(TimestampConverter):
    """``TimestampConverter`` of values."""

    part = "value"
