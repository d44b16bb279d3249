"""Columns of a table as fields of a struct: the schema of each type, and values as Connect has them."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from logdb_connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema
from logdb_connect.errors import DataError

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A column: the field that it becomes, and how its values are converted (None: they are right)."""

    name: str
    schema: Schema
    convert: Convert | None


def field_of(name: str, kind: TypeEngine[Any], dialect: str, zone: ZoneInfo, *, optional: bool, mapping: str = "none") -> ColumnField:
    """The field of a column of the type ``kind``.

    Args:
        zone: Of timestamps without zone.
        mapping: ``numeric.mapping``.
    """
    schema = _schema(kind, dialect, mapping).replace(optional=optional)
    return ColumnField(name, schema, _conversion(name, schema, kind, dialect, zone))


def struct_of(name: str, fields: Iterable[ColumnField]) -> Schema:
    """The schema of a row."""
    return Schema(type="struct", name=name, fields=tuple(Field(each.name, each.schema) for each in fields))


def rows_of(fields: Sequence[ColumnField], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as structs; a row may have more values than there are fields."""
    names = [each.name for each in fields]
    structs = [dict(zip(names, row, strict=False)) for row in rows]
    for each in fields:
        if (convert := each.convert) is not None:
            name = each.name
            for struct in structs:
                if (value := struct[name]) is not None:
                    struct[name] = convert(value)
    return structs


def _schema(kind: TypeEngine[Any], dialect: str, mapping: str) -> Schema:
    match kind:
        case sqlalchemy.Boolean():
            return Schema(type="boolean")
        case sqlalchemy.Integer():
            return Schema(type="int64" if dialect == "sqlite" else _integer(kind))
        case sqlalchemy.Float():
            single = (
                isinstance(kind, sqlalchemy.REAL | sqlalchemy.FLOAT) and not isinstance(kind, sqlalchemy.Double) and dialect != "sqlite"
            )
            return Schema(type="float32" if single and (kind.precision or 0) <= 24 else "float64")
        case sqlalchemy.Numeric():
            return _decimal(kind, dialect, mapping)
        case sqlalchemy.DateTime():
            return Schema(type="int64", name=TIMESTAMP)
        case sqlalchemy.Date():
            return Schema(type="int32", name=DATE)
        case sqlalchemy.Time():
            return Schema(type="int32", name=TIME)
        case sqlalchemy.LargeBinary() | sqlalchemy.types._Binary():  # MySQL's BINARY has no public base
            return Schema(type="bytes")
        case mysql.YEAR():
            return Schema(type="int32")
    return Schema(type="string")


def _integer(kind: sqlalchemy.Integer) -> Any:
    unsigned = bool(getattr(kind, "unsigned", False))
    match kind:
        case sqlalchemy.BigInteger():
            return "int64"
        case mysql.TINYINT():
            return "int16" if unsigned else "int8"
        case sqlalchemy.SmallInteger():
            return "int32" if unsigned else "int16"
    return "int64" if unsigned else "int32"


def _decimal(kind: sqlalchemy.Numeric[Any], dialect: str, mapping: str) -> Schema:
    precision, scale = kind.precision, kind.scale
    if mapping != "none" and precision is not None and precision < 19 and not scale:
        size = "int64" if precision > 9 else "int32" if precision > 4 else "int16" if precision > 2 else "int8"
        return Schema(type=size)  # type: ignore[arg-type]
    if (mapping == "best_fit_eager_double" and scale != 0) or (mapping == "best_fit" and (precision or 99) < 19 and scale):
        return Schema(type="float64")
    if scale is None and (precision is None or dialect == "sqlite"):
        return Schema(type="string")  # each value has a scale of its own
    return Schema(type="bytes", name=DECIMAL, parameters=(("scale", str(scale or 0)),))


def _conversion(name: str, schema: Schema, kind: TypeEngine[Any], dialect: str, zone: ZoneInfo) -> Convert | None:
    """How a value becomes one of ``schema``; drivers differ in what they give."""

    def convert(value: Any) -> Any:
        try:
            return plain(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise DataError(f"The value {value!r:.100} of the column {name} is no {schema.name or schema.type}: {error}") from error

    match schema.name or schema.type:
        case name_ if name_ == DECIMAL:
            quantum = Decimal(1).scaleb(-int(dict(schema.parameters)["scale"]))
            plain: Convert = lambda value: (
                value if isinstance(value, Decimal) and dialect != "sqlite" else Decimal(str(value)).quantize(quantum)
            )
        case name_ if name_ == TIMESTAMP:
            plain = _to_moment(ZoneInfo("UTC") if isinstance(kind, mysql.TIMESTAMP) else zone)
        case name_ if name_ == DATE:
            plain = _to_date
        case name_ if name_ == TIME:
            plain = _to_time
        case "string":
            plain = _to_text
        case "bytes":
            plain = lambda value: value.encode() if isinstance(value, str) else bytes(value)
        case "boolean":
            plain = bool
        case "float32" | "float64":
            plain = float
        case _ if dialect == "sqlite" or not isinstance(kind, sqlalchemy.Integer):
            plain = _to_integer
        case _:
            return None
    return convert


def _to_integer(value: Any) -> int:
    if (number := int(value)) != value:
        raise ValueError("it has a fraction")
    return number


def _to_moment(zone: ZoneInfo) -> Convert:
    def convert(value: Any) -> datetime:
        if isinstance(value, int | float):  # milliseconds, as JDBC's driver of SQLite writes
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)

    return convert


def _to_date(value: Any) -> date:
    if isinstance(value, int):
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)).date()
    return value if isinstance(value, date) else date.fromisoformat(str(value)[:10])


def _to_time(value: Any) -> time:
    if isinstance(value, timedelta):  # PyMySQL
        if not timedelta(0) <= value < timedelta(days=1):
            raise ValueError("it is not within one day")
        return (datetime(1970, 1, 1, tzinfo=UTC) + value).time()
    return value.replace(tzinfo=None) if isinstance(value, time) else time.fromisoformat(str(value))


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return value.decode() if isinstance(value, bytes) else str(value)
