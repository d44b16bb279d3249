"""From records to rows: which fields become columns, and values as drivers take them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from logdb_connect.connectors.sql.tables import UNKNOWN
from logdb_connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, SinkRecord
from logdb_connect.errors import DataError

Convert = Callable[[Any], Any]

KAFKA_FIELDS = ("__connect_topic", "__connect_partition", "__connect_offset")
_KAFKA_SCHEMAS = (Schema(type="string"), Schema(type="int32"), Schema(type="int64"))
_INFERRED: dict[type, Schema] = {
    bool: Schema(type="boolean", optional=True),
    int: Schema(type="int64", optional=True),
    float: Schema(type="float64", optional=True),
    str: Schema(type="string", optional=True),
    bytes: Schema(type="bytes", optional=True),
    Decimal: Schema(type="bytes", name=DECIMAL, optional=True),
    datetime: Schema(type="int64", name=TIMESTAMP, optional=True),
    date: Schema(type="int32", name=DATE, optional=True),
    time: Schema(type="int32", name=TIME, optional=True),
    dict: Schema(type="struct", optional=True),
    list: Schema(type="array", optional=True),
    type(None): UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """How records of one topic and of one pair of schemas become rows.

    Attributes:
        fields: Names and schemas of all columns, those of the primary key first.
        keys: The names of the primary key's.
        has_value: False: a tombstone, which has the key alone.
    """

    fields: dict[str, Schema]
    keys: tuple[str, ...]
    has_value: bool
    of_key: tuple[str, ...]
    of_value: tuple[str, ...]


class Layouts:
    """Makes layouts, one for each pair of schemas.  Schemas that are the same object are looked at once.

    Args:
        config: ``pk.mode``, ``pk.fields``, ``fields.whitelist`` and ``delete.enabled`` of the sink.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._mode: str = config["pk.mode"]
        self._names: list[str] = config["pk.fields"]
        self._allowed: list[str] = config["fields.whitelist"]
        self._deletes: bool = config["delete.enabled"]
        self._inferred: dict[tuple[Any, ...], Schema] = {}
        self._known: dict[tuple[int, int], tuple[Schema | None, Schema | None, Layout]] = {}  # the schemas keep their ids taken

    def of(self, record: SinkRecord) -> Layout:
        """The layout of a record.

        Raises:
            DataError: The record has no key or value of the form that the settings need.
        """
        key_schema = self._schema(record.key, record.key_schema) if self._mode == "record_key" else None
        value_schema = None if record.value is None else self._schema(record.value, record.value_schema)
        if self._mode == "record_header":
            key_schema = self._schema({each.key: each.value for each in record.headers}, None)
        found = self._known.get((id(key_schema), id(value_schema)))
        if found is None:
            if len(self._known) >= 1000:  # schemas without end, each of its own
                self._known.clear()
            layout = self._made(record, key_schema, value_schema)
            found = self._known[id(key_schema), id(value_schema)] = (key_schema, value_schema, layout)
        return found[2]

    def row(self, record: SinkRecord, layout: Layout) -> list[Any]:
        """The values of the layout's fields, in their order."""
        if self._mode == "kafka":
            row: list[Any] = [record.original_topic, record.original_partition, record.offset]
        elif self._mode == "record_key":
            key = record.key
            row = [key.get(each) for each in layout.of_key] if isinstance(key, dict) else [key]
        elif self._mode == "record_header":
            headers = {each.key: each.value for each in record.headers}
            row = [headers.get(each) for each in layout.of_key]
        else:
            row = []
        if layout.of_value:
            row += [record.value.get(each) for each in layout.of_value]
        return row

    def _schema(self, value: Any, schema: Schema | None) -> Schema:
        """The schema of a value, or one that its Python types suggest."""
        if schema is not None:
            return schema
        if not isinstance(value, dict):
            return _inferred(value)
        signature = tuple((name, type(each)) for name, each in value.items())
        if (known := self._inferred.get(signature)) is None:
            fields = tuple(Field(str(name), _inferred(each)) for name, each in value.items())
            if len(self._inferred) >= 1000:
                self._inferred.clear()
            known = self._inferred[signature] = Schema(type="struct", fields=fields)
        return known

    def _made(self, record: SinkRecord, key_schema: Schema | None, value_schema: Schema | None) -> Layout:
        if value_schema is None and not (self._deletes and self._mode == "record_key"):
            raise DataError(f"{where(record)} has no value: tombstones need delete.enabled=true and pk.mode=record_key")
        if value_schema is not None and value_schema.type != "struct":
            raise DataError(f"{where(record)} must have a struct as its value, not {value_schema.type}: a row has named columns")
        values = {} if value_schema is None else {each.name: each.schema for each in value_schema.fields}
        keys = self._keys(record, key_schema, values)
        of_value = [name for name in values if name not in keys and (not self._allowed or name in self._allowed)]
        of_key = list(keys)
        if self._mode == "record_value":
            of_value, of_key = [*keys, *of_value], []
        fields = {**keys, **{name: values[name] for name in of_value}}
        if not fields:
            raise DataError(f"{where(record)} has no fields")
        return Layout(fields, tuple(keys), value_schema is not None, tuple(of_key), tuple(of_value))

    def _keys(self, record: SinkRecord, key_schema: Schema | None, values: dict[str, Schema]) -> dict[str, Schema]:
        """The columns of the primary key."""
        match self._mode:
            case "none":
                return {}
            case "kafka":
                return dict(zip(self._names or KAFKA_FIELDS, _KAFKA_SCHEMAS, strict=True))
            case "record_value":
                have, what = values, "value"
            case _ if key_schema is not None and key_schema.type == "struct":
                have, what = {each.name: each.schema for each in key_schema.fields}, "key" if self._mode == "record_key" else "headers"
            case _ if key_schema is None or record.key is None:
                raise DataError(f"{where(record)} must have a key, since pk.mode is record_key")
            case _ if key_schema.type in {"array", "map"} or len(self._names) != 1:
                raise DataError(f"{where(record)} has a key of type {key_schema.type}: pk.fields must name the one column for it")
            case _:
                return {self._names[0]: key_schema}
        if missing := [name for name in self._names if name not in have]:
            raise DataError(f"{where(record)} has no field {', '.join(missing)} in its {what}: pk.fields names it")
        names = self._names or list(have)
        if not names:
            raise DataError(f"{where(record)} has no fields in its {what}")
        return {name: have[name] for name in names}


def _inferred(value: Any) -> Schema:
    found = _INFERRED.get(type(value))
    if found is None:
        raise DataError(f"A value of the Python type {type(value).__name__} has no column type")
    return found


def where(record: SinkRecord) -> str:
    """How messages name a record."""
    return f"The record {record.original_topic}-{record.original_partition}@{record.offset}"


def conversion(schema: Schema, column: TypeEngine[Any], dialect: str, zone: ZoneInfo) -> Convert | None:
    """Makes a value what the driver takes for the column; None: it is already.

    Raises:
        DataError: The column cannot keep values of the schema.
    """
    if schema.type in {"struct", "map", "array"}:
        if isinstance(column, sqlalchemy.JSON):
            return lambda value: None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
        if schema.type == "array" and isinstance(column, sqlalchemy.ARRAY):
            return None
        raise DataError(f"A column of type {column!r} keeps no {schema.type}: only JSON columns do")
    text = dialect == "sqlite"
    match schema.name:
        case name if name == TIMESTAMP:
            return _moment(column, text=text, zone=zone)
        case name if name in {DATE, TIME} and text:
            return lambda value: value.isoformat() if hasattr(value, "isoformat") else value
        case name if name == DECIMAL and text:
            return lambda value: None if value is None else str(value)
    return None


def _moment(column: TypeEngine[Any], *, text: bool, zone: ZoneInfo) -> Convert:
    utc = ZoneInfo("UTC")
    zoned = bool(getattr(column, "timezone", False))
    zone = utc if isinstance(column, mysql.TIMESTAMP) else zone  # of MySQL: the session is in UTC

    def convert(value: Any) -> Any:
        if not isinstance(value, datetime):
            return value
        aware = value.replace(tzinfo=utc) if value.tzinfo is None else value
        if zoned:
            return aware
        local = aware.astimezone(zone).replace(tzinfo=None)
        return local.isoformat(sep=" ", timespec="microseconds") if text else local

    return convert


def converted(rows: Sequence[list[Any]], conversions: Sequence[Convert | None]) -> None:
    """Convert the columns of rows in place."""
    for index, convert in enumerate(conversions):
        if convert is not None:
            for row in rows:
                row[index] = convert(row[index])
