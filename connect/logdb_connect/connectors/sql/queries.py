"""Queries of a source: which rows come after a position, and where the next query continues."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy import Column, ColumnElement, Connection, Engine, Select, and_, case, cast, func, literal, or_, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import NullType, TypeEngine

from logdb_connect.connectors.sql.columns import ColumnField, field_of, rows_of, struct_of
from logdb_connect.connectors.sql.result_types import result_types
from logdb_connect.connectors.sql.tables import quoted, shown, table_of
from logdb_connect.data import SourceBatch
from logdb_connect.errors import ConnectError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = "logdb_moment"
_SQLITE_FORMAT = "%Y-%m-%d %H:%M:%f"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position behind the last row: its number, its time, or both.  None: before the first row."""

    number: int | None = None
    moment: datetime | None = None

    @classmethod
    def of(cls, offset: Mapping[str, Any] | None, config: Mapping[str, Any]) -> "Cursor":
        """The position of an offset as Confluent's connector writes it, or the first one."""
        if not offset:
            begin = config["timestamp.initial"]
            return cls(None, None if begin is None else datetime.now(UTC) if begin == -1 else _EPOCH + timedelta(milliseconds=begin))
        milliseconds, nanoseconds = offset.get("timestamp"), int(offset.get("timestamp_nanos") or 0)
        number = offset.get("incrementing")
        if milliseconds is None:
            return cls(number, None)
        seconds = int(milliseconds) // 1000
        micro = nanoseconds // 1000 if nanoseconds else int(milliseconds) % 1000 * 1000
        return cls(number, _EPOCH + timedelta(seconds=seconds, microseconds=micro))

    def offset(self) -> dict[str, int]:
        """The offset of this position."""
        found: dict[str, int] = {} if self.number is None else {"incrementing": self.number}
        if self.moment is not None:
            microseconds = (self.moment - _EPOCH) // timedelta(microseconds=1)
            found |= {"timestamp": microseconds // 1000, "timestamp_nanos": microseconds % 1_000_000 * 1000}
        return found


class Reader(Protocol):
    """Reads one table, or one query.

    Attributes:
        partition: Of the offsets.
        cursor: Where the next query begins.
        has_more: Whether the last query was cut at ``batch.max.rows``.
    """

    partition: Mapping[str, str]
    cursor: Cursor
    has_more: bool

    def read(self) -> SourceBatch | None:
        """The next rows, or None."""


class _Modes:
    """What a query of a table and a query of a query have in common."""

    partition: Mapping[str, str]
    topic: str
    has_more = False

    def __init__(self, engine: Engine, config: Mapping[str, Any]) -> None:
        self._engine, self._config = engine, config
        self._dialect = engine.dialect.name
        self._zone = ZoneInfo(config["db.timezone"])
        self._limit: int = config["batch.max.rows"]
        self._has_number, self._has_moment = "incrementing" in config["mode"], "timestamp" in config["mode"]
        self._rows: tuple[Connection, Iterator[Sequence[Any]]] | None = None
        self.cursor = Cursor()

    def read(self) -> SourceBatch | None:
        if not self.has_more:
            self._describe()
        if self._config["mode"] == "bulk":
            rows, offset = self._bulk(), {}
        else:
            with self._engine.begin() as connection:
                rows = self._after(connection)
            if rows:
                self.cursor = self._position(rows[-1])
            offset = self.cursor.offset()
        if not rows:
            return None
        fields = self._fields(rows)
        schema = struct_of(self._name, fields)
        return SourceBatch(
            source_partition=self.partition, offset=offset, topic=self.topic, values=rows_of(fields, rows), value_schema=schema
        )

    _name = ""

    def _describe(self) -> None:
        """Look at the columns: they may have changed since the last round."""
        raise NotImplementedError

    def _fields(self, rows: Sequence[Sequence[Any]]) -> Sequence[ColumnField]:
        raise NotImplementedError

    def _select(self) -> Select[Any]:
        """All columns; the last two are the time and the number of the mode, as far as it has them."""
        raise NotImplementedError

    def _number_column(self) -> ColumnElement[Any]:
        raise NotImplementedError

    def _moment_columns(self) -> Sequence[ColumnElement[Any]]:
        raise NotImplementedError

    def _moment_zone(self) -> ZoneInfo | None:
        """The zone of the time's values, None where they have their own."""
        raise NotImplementedError

    def _position(self, row: Sequence[Any]) -> Cursor:
        number = int(row[-1]) if self._has_number else None
        moment = self._aware(row[-1 - self._has_number]) if self._has_moment else None
        return Cursor(number, moment)

    def _bulk(self) -> list[Sequence[Any]]:
        """The next rows of one query, which stays open until it ends."""
        if self._rows is None:
            connection = self._engine.connect().execution_options(yield_per=self._limit)
            self._rows = connection, iter(connection.execute(self._suffixed(self._select())))
        connection, found = self._rows
        try:
            rows: list[Sequence[Any]] = list(islice(found, self._limit))
        except BaseException:
            self._rows = None
            connection.close()
            raise
        self.has_more = len(rows) == self._limit
        if not self.has_more:
            self._rows = None
            connection.close()
        return rows

    def _after(self, connection: Connection) -> list[Sequence[Any]]:
        """The rows behind the cursor, at most ``batch.max.rows`` and those of the last one's time."""
        query = self._select()
        order: list[Any] = []
        if self._has_moment:
            moment = self._moment()
            end = self._now(connection) - timedelta(milliseconds=self._config["timestamp.delay.interval.ms"])
            query, order = query.where(moment < self._bound(end)), [moment]
        if self._has_number:
            order.append(self._number_column())
        if (behind := self._behind()) is not None:
            query = query.where(behind)
        ordered = query.order_by(*order)
        if self._config["query.suffix"]:
            return list(connection.execute(self._suffixed(ordered)))
        rows: list[Sequence[Any]] = list(connection.execute(ordered.limit(self._limit)))
        self.has_more = len(rows) == self._limit
        if self.has_more and not self._has_number:
            return self._whole(connection, query, rows)
        return rows

    def _whole(self, connection: Connection, query: Select[Any], rows: list[Sequence[Any]]) -> list[Sequence[Any]]:
        """Without the rows of the last time, of which there may be more; they alone, if there are no others."""
        last = rows[-1][-1]
        earlier = [row for row in rows if row[-1] != last]
        if earlier:
            return earlier
        return list(connection.execute(query.where(self._moment() == self._bound(self._aware(last)))))

    def _behind(self) -> ColumnElement[bool] | None:
        number, moment = self.cursor.number, self.cursor.moment
        later = self._moment() > self._bound(moment) if self._has_moment and moment is not None else None
        greater = self._number_column() > number if self._has_number and number is not None else None
        if not self._has_moment:
            return greater
        if later is None or moment is None or greater is None:
            return later
        return or_(later, and_(self._moment() == self._bound(moment), greater))

    def _moment(self) -> ColumnElement[Any]:
        columns = self._moment_columns()
        found = func.coalesce(*columns) if len(columns) > 1 else columns[0]
        if self._dialect != "sqlite":
            return found
        of_number = func.strftime(literal(_SQLITE_FORMAT), found / 1000.0, literal("unixepoch"))  # milliseconds, as JDBC writes
        return case((func.typeof(found) == "text", func.strftime(literal(_SQLITE_FORMAT), found)), else_=of_number)

    def _bound(self, moment: datetime) -> Any:
        """A time as the database compares it."""
        zone = self._moment_zone()
        if self._dialect == "sqlite":
            return moment.astimezone(self._zone).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
        return moment if zone is None else moment.astimezone(zone).replace(tzinfo=None)

    def _aware(self, value: Any) -> datetime:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=self._moment_zone() or self._zone)).astimezone(UTC)

    def _now(self, connection: Connection) -> datetime:
        """The database's time."""
        if self._dialect == "sqlite":
            return datetime.now(UTC)
        if self._dialect == "postgresql":
            return self._aware(connection.scalar(select(func.current_timestamp())))
        return datetime.fromisoformat(str(connection.scalar(text("SELECT UTC_TIMESTAMP(6)")))).replace(tzinfo=UTC)

    def _suffixed(self, query: Select[Any]) -> Select[Any]:
        suffix = self._config["query.suffix"]
        return query.suffix_with(_literal(suffix)) if suffix else query

    def _positions(self) -> list[ColumnElement[Any]]:
        """What ``_position`` looks at."""
        found: list[ColumnElement[Any]] = [self._moment().label(_MOMENT)] if self._has_moment else []
        return [*found, self._number_column().label("logdb_number")] if self._has_number else found


class TableReader(_Modes):
    """Reads a table."""

    def __init__(self, engine: Engine, config: Mapping[str, Any], schema: str | None, table: str) -> None:
        super().__init__(engine, config)
        self._where = (schema, table)
        self._name, self.topic = table, config["topic.prefix"] + table
        self.partition = {"protocol": "1", "table": shown(self._where)}

    def _describe(self) -> None:
        schema, table = self._where
        inspector = sqlalchemy.inspect(self._engine)
        described = inspector.get_columns(table, schema=schema)
        key = inspector.get_pk_constraint(table, schema=schema)["constrained_columns"]
        self._types: dict[str, TypeEngine[Any]] = {each["name"]: each["type"] for each in described}
        self._nullable = {each["name"]: bool(each["nullable"]) and each["name"] not in key for each in described}
        self._number = self._config["incrementing.column.name"]
        if self._has_number and not self._number:
            if len(key) != 1 or not isinstance(self._types[key[0]], sqlalchemy.Integer):
                raise ConnectError(f"The table {shown(self._where)} has no auto-increment column: set incrementing.column.name")
            self._number = key[0]
        self._check()
        table_columns: list[Column[Any]] = [Column(quoted(name), self._bare(kind)) for name, kind in self._types.items()]
        self._table = table_of(self._where, table_columns)
        mapping = self._config["numeric.mapping"]
        self._described = [
            field_of(name, kind, self._dialect, self._zone, optional=self._nullable[name], mapping=mapping)
            for name, kind in self._types.items()
        ]

    def _bare(self, kind: TypeEngine[Any]) -> TypeEngine[Any]:
        """The type by which SQLAlchemy reads a column; ``columns`` converts where it is none."""
        return kind if isinstance(kind, sqlalchemy.LargeBinary) and self._dialect == "postgresql" else NullType()

    def _check(self) -> None:
        wanted = [*([self._number] if self._has_number else []), *(self._config["timestamp.column.name"] if self._has_moment else [])]
        if missing := [each for each in wanted if each not in self._types]:
            raise ConnectError(f"The table {shown(self._where)} has no column {', '.join(missing)}")
        if not self._config["validate.non.null"]:
            return
        nullable = [self._number] if self._has_number and self._nullable[self._number] else []
        if self._has_moment and all(self._nullable[each] for each in self._config["timestamp.column.name"]):
            nullable += self._config["timestamp.column.name"]
        if nullable:
            allowed = "make it NOT NULL, or set validate.non.null=false: rows with null are then left out"
            raise ConnectError(f"The column {', '.join(nullable)} of the table {shown(self._where)} allows null: {allowed}")

    def _fields(self, rows: Sequence[Sequence[Any]]) -> Sequence[ColumnField]:
        return self._described

    def _select(self) -> Select[Any]:
        columns = []
        for field, column in zip(self._described, self._table.c, strict=True):
            as_text = self._dialect == "postgresql" and field.schema.type == "string"  # what it has no literal for, too
            columns.append(cast(column, sqlalchemy.Text).label(None) if as_text else column)
        return select(*columns, *self._positions())

    def _number_column(self) -> ColumnElement[Any]:
        column: Column[Any] = self._table.c[self._number]
        return column

    def _moment_columns(self) -> Sequence[ColumnElement[Any]]:
        return [self._table.c[each] for each in self._config["timestamp.column.name"]]

    def _moment_zone(self) -> ZoneInfo | None:
        kind = self._types[self._config["timestamp.column.name"][0]]
        if self._dialect == "postgresql":
            return None
        return ZoneInfo("UTC") if isinstance(kind, mysql.TIMESTAMP) else self._zone


class QueryReader(_Modes):
    """Reads a query that the user wrote, as it is."""

    def __init__(self, engine: Engine, config: Mapping[str, Any]) -> None:
        super().__init__(engine, config)
        self._query = config["query"].strip().rstrip(";")
        self.topic, self.partition = config["topic.prefix"], {"query": "query"}
        self._known: dict[str, TypeEngine[Any]] = {}
        self._number = config["incrementing.column.name"]

    def _describe(self) -> None:
        with self._engine.begin() as connection:
            result = connection.execute(select(text("*")).select_from(self._from()).limit(0))
            names, types = list(result.keys()), result_types(self._dialect, result.cursor.description or ())
        self._names = names
        self._types = dict(zip(names, types, strict=True)) if types else {}

    def _from(self) -> Any:
        return _literal(f"({self._query}) AS logdb_query")

    def _select(self) -> Select[Any]:
        if self._config["mode"] == "bulk":
            return select(text("*")).select_from(self._from())
        columns: list[ColumnElement[Any]] = [sqlalchemy.column(quoted(name)) for name in self._names]
        return select(*columns, *self._positions()).select_from(self._from())

    def _fields(self, rows: Sequence[Sequence[Any]]) -> Sequence[ColumnField]:
        types = self._types or self._seen(rows)
        return [
            field_of(name, types[name], self._dialect, self._zone, optional=True, mapping=self._config["numeric.mapping"])
            for name in self._names
        ]

    def _seen(self, rows: Sequence[Sequence[Any]]) -> Mapping[str, TypeEngine[Any]]:
        """SQLite does not know the types of a query: the values have them; text where there are several."""
        for index, name in enumerate(self._names):
            kinds = {type(row[index]) for row in rows} - {type(None)}
            if name in self._known and not isinstance(self._known[name], NullType):
                kinds.add(_PYTHON.get(type(self._known[name]), str))
            kind = next(iter(kinds)) if len(kinds) == 1 else float if kinds == {int, float} else str if kinds else None
            self._known[name] = NullType() if kind is None else _SQLITE[kind]
        return self._known

    def _number_column(self) -> ColumnElement[Any]:
        return sqlalchemy.column(quoted(self._number))

    def _moment_columns(self) -> Sequence[ColumnElement[Any]]:
        return [sqlalchemy.column(quoted(each)) for each in self._config["timestamp.column.name"]]

    def _moment_zone(self) -> ZoneInfo | None:
        if self._dialect == "postgresql":
            return None
        return ZoneInfo("UTC") if isinstance(self._types.get(self._config["timestamp.column.name"][0]), mysql.TIMESTAMP) else self._zone


_SQLITE: dict[type, TypeEngine[Any]] = {
    int: sqlalchemy.Integer(),
    float: sqlalchemy.Double(),
    str: sqlalchemy.Text(),
    bytes: sqlalchemy.LargeBinary(),
}
_PYTHON = {type(kind): python for python, kind in _SQLITE.items()}


def _literal(statement: str) -> Any:
    """Text of a user that SQLAlchemy takes as it is."""
    return text(statement.replace(":", "\\:"))
