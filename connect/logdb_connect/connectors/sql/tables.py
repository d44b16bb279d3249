"""Tables of a sink: found, created and extended; and the types that columns get for schemas of Connect."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import Column, Engine, MetaData, Table
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn, CreateTable, ExecutableDDLElement
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import TypeEngine

from logdb_connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Schema
from logdb_connect.errors import ConnectError, DataError

Name = tuple[str | None, str]
"""Schema and table."""

UNKNOWN = Schema(type="string", optional=True, name="logdb.connect.Unknown")
"""Of a null in a record without schema: a column that the table has is set to null, another is left out."""

_KEY_LENGTH = 255  # MySQL indexes no TEXT


class AddColumn(ExecutableDDLElement):
    """``ALTER TABLE … ADD``; SQLAlchemy itself has none."""

    def __init__(self, column: Column[Any]) -> None:
        self.column = column


@compiles(AddColumn)
def _add_column(element: AddColumn, compiler: Any, **_: Any) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.process(CreateColumn(element.column))}"


_TYPES: dict[str, TypeEngine[Any]] = {
    "int8": sqlalchemy.SmallInteger(),
    "int16": sqlalchemy.SmallInteger(),
    "int32": sqlalchemy.Integer(),
    "int64": sqlalchemy.BigInteger(),
    "float32": sqlalchemy.REAL(),
    "float64": sqlalchemy.Double(),
    "boolean": sqlalchemy.Boolean(),
    "string": sqlalchemy.Text(),
    "bytes": sqlalchemy.LargeBinary(),
    DECIMAL: sqlalchemy.Numeric(),
    DATE: sqlalchemy.Date(),
    TIME: sqlalchemy.Time(),
    TIMESTAMP: sqlalchemy.DateTime(),
}
_MYSQL_TYPES: dict[str, TypeEngine[Any]] = {
    **_TYPES,
    "int8": mysql.TINYINT(),
    "float32": mysql.FLOAT(),
    "string": mysql.LONGTEXT(),
    "bytes": mysql.LONGBLOB(),
    TIME: mysql.TIME(fsp=3),
    TIMESTAMP: mysql.DATETIME(fsp=6),
}
_MYSQL_KEY_TYPES: dict[str, TypeEngine[Any]] = {
    **_MYSQL_TYPES,
    "string": sqlalchemy.String(_KEY_LENGTH),
    "bytes": mysql.VARBINARY(_KEY_LENGTH),
}


def column_type(schema: Schema, dialect: str, *, is_key: bool) -> TypeEngine[Any]:
    """The type of a column for values of ``schema``.

    Raises:
        DataError: There is none: structs, arrays and maps.
    """
    of_mysql = dialect in {"mysql", "mariadb"}
    if of_mysql and schema.name == DECIMAL:
        return sqlalchemy.Numeric(65, int(dict(schema.parameters).get("scale", "0")))
    types = _TYPES if not of_mysql else _MYSQL_KEY_TYPES if is_key else _MYSQL_TYPES
    found = types.get(schema.name if schema.name in {DECIMAL, DATE, TIME, TIMESTAMP} else schema.type)
    if found is None:
        raise DataError(f"{schema.name or 'The schema'} ({schema.type}) type doesn't have a mapping to the SQL database column type")
    return found


class Tables:
    """What is known of the tables that a sink writes to.  Of one task, used by its thread alone.

    Columns are looked up once for each table; ``forget`` drops what is known, after an error or a new connection.
    """

    def __init__(self, engine: Engine, *, create: bool, evolve: bool, lower_case: bool) -> None:
        self._engine, self._create, self._evolve = engine, create, evolve
        self._lower_case = lower_case and engine.dialect.name == "postgresql"
        self._known: dict[Name, dict[str, TypeEngine[Any]]] = {}

    def forget(self) -> None:
        self._known.clear()

    def name(self, text: str) -> Name:
        """Schema and table of a name such as ``shop.orders``; SQLite has no schemas, so that all of it is the table's.

        Raises:
            ConnectError: The name has too many parts.
        """
        text = text.lower() if self._lower_case else text
        if self._engine.dialect.name == "sqlite":
            return None, text
        parts = text.split(".")
        if len(parts) == 3 and parts[0] == self._engine.url.database and self._engine.dialect.name == "postgresql":
            parts = parts[1:]
        if len(parts) > 2 or not all(parts):
            raise ConnectError(
                f"The table name {text} must be TABLE or SCHEMA.TABLE: change table.name.format, or the topic by a transform"
            )
        return (parts[0] if len(parts) == 2 else None), parts[-1]

    def column(self, name: str) -> str:
        return name.lower() if self._lower_case else name

    def exists(self, name: Name) -> bool:
        """Whether the table is there."""
        if name not in self._known and (found := self._look_up(name)) is not None:
            self._known[name] = found
        return name in self._known

    def prepare(self, name: Name, fields: Mapping[str, Schema], keys: Sequence[str]) -> dict[str, tuple[str, TypeEngine[Any]]]:
        """The column and its type of each field; creates or extends the table where that is allowed.

        Raises:
            ConnectError: The table or a column is missing.
        """
        if name not in self._known:
            self._known[name] = self._look_up(name) or self._made(name, fields, keys)
        matched = self._matched(name, fields)
        if missing := [each for each, schema in fields.items() if each not in matched and schema is not UNKNOWN]:
            self._extend(name, {each: fields[each] for each in missing})
            matched = self._matched(name, fields)
        return matched

    def _matched(self, name: Name, fields: Mapping[str, Schema]) -> dict[str, tuple[str, TypeEngine[Any]]]:
        known = self._known[name]
        lower = {column.lower(): column for column in known} if self._engine.dialect.name != "postgresql" else {}
        found = {each: self.column(each) for each in fields}
        found = {each: column if column in known else lower.get(column.lower(), "") for each, column in found.items()}
        return {each: (column, known[column]) for each, column in found.items() if column}

    def _look_up(self, name: Name) -> dict[str, TypeEngine[Any]] | None:
        inspector = sqlalchemy.inspect(self._engine)
        schema, table = name
        if not inspector.has_table(table, schema=schema):
            return None
        return {each["name"]: each["type"] for each in inspector.get_columns(table, schema=schema)}

    def _made(self, name: Name, fields: Mapping[str, Schema], keys: Sequence[str]) -> dict[str, TypeEngine[Any]]:
        if not self._create:
            raise ConnectError(f'Table "{shown(name)}" is missing and auto-creation is disabled: create it, or set auto.create=true')
        columns = [self._new_column(each, schema, is_key=each in keys) for each, schema in fields.items() if schema is not UNKNOWN]
        self._execute(name, CreateTable(table_of(name, columns)))
        return self._after_change(name)

    def _extend(self, name: Name, fields: Mapping[str, Schema]) -> None:
        listed = ", ".join(fields)
        if not self._evolve:
            raise ConnectError(f'Table "{shown(name)}" is missing fields ({listed}) and auto-evolution is disabled: set auto.evolve=true')
        for each, schema in fields.items():
            if not schema.optional and schema.default is None:
                raise ConnectError(
                    f'Cannot ALTER table "{shown(name)}" to add missing field {each}, as the field is not optional and has no default value'
                )
            table_of(name, [column := self._new_column(each, schema, is_key=False)])
            self._execute(name, AddColumn(column))
        self._known[name] = self._after_change(name)

    def _new_column(self, field: str, schema: Schema, *, is_key: bool) -> Column[Any]:
        kind = column_type(schema, self._engine.dialect.name, is_key=is_key)
        nullable = not is_key and (schema.optional or schema.default is not None)
        return Column(quoted(self.column(field)), kind, primary_key=is_key, nullable=nullable, autoincrement=False)

    def _execute(self, name: Name, statement: ExecutableDDLElement) -> None:
        try:
            with self._engine.begin() as connection:
                connection.execute(statement)
        except DBAPIError as error:
            if error.connection_invalidated or (self._look_up(name) or {}).keys() == self._known.get(name, {}).keys():
                raise  # else another task has created or extended it at this moment

    def _after_change(self, name: Name) -> dict[str, TypeEngine[Any]]:
        found = self._look_up(name)
        if found is None:
            raise ConnectError(f'Table "{shown(name)}" was created, and is not there: was it dropped?')
        return found


def quoted(name: str) -> quoted_name:
    """An identifier that SQLAlchemy quotes."""
    return quoted_name(name, quote=True)


def table_of(name: Name, columns: Sequence[Column[Any]]) -> Table:
    """A table of these columns, for a statement."""
    schema, table = name
    return Table(quoted(table), MetaData(), *columns, schema=None if schema is None else quoted(schema))


def shown(name: Name) -> str:
    """The name of a table for a message."""
    return ".".join(part for part in name if part is not None)
