"""The snapshot: rows of tables, read in one transaction, some at each poll."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy import Column, Connection, Engine, cast, select
from sqlalchemy.types import NullType

from logdb_connect.connectors.capture.events import CapturedTable, captured_table
from logdb_connect.connectors.sql.columns import field_of, rows_of
from logdb_connect.connectors.sql.tables import quoted, table_of
from logdb_connect.data import Schema

_UTC = ZoneInfo("UTC")
_SYSTEM = {"pg_catalog", "information_schema", "mysql", "performance_schema", "sys"}


class Catalog:
    """Tables of the database as they are now.

    Args:
        prefix: ``topic.prefix``.
        source: The schema of the envelope's ``source``.
        names_keys_alone: Whether changes of a table name its key alone.
    """

    def __init__(
        self,
        engine: Engine,
        prefix: str,
        source: Schema,
        chosen: Callable[[str, str], bool],
        names_keys_alone: Callable[[str, str], bool] = lambda _schema, _name: False,
    ) -> None:
        self._engine, self._prefix, self._source, self._chosen = engine, prefix, source, chosen
        self._names_keys_alone = names_keys_alone
        self._known: dict[tuple[str, str], CapturedTable] = {}

    def chosen(self) -> list[CapturedTable]:
        """All tables that the settings choose, by name."""
        inspector = sqlalchemy.inspect(self._engine)
        if self._engine.dialect.name == "sqlite":
            names = [("main", table) for table in inspector.get_table_names()]
        else:
            schemas = [each for each in inspector.get_schema_names() if each not in _SYSTEM]
            names = [(schema, table) for schema in schemas for table in inspector.get_table_names(schema=schema)]
        return [self.table(*name) for name in sorted(names) if self._chosen(*name)]

    def table(self, schema: str, name: str) -> CapturedTable:
        """A table; looked up once until ``forget``."""
        found = self._known.get((schema, name))
        if found is None:
            found = self._known[schema, name] = self._look_up(schema, name)
        return found

    def forget(self, schema: str, name: str) -> None:
        """Look it up again: its columns have changed."""
        self._known.pop((schema, name), None)

    def forget_all(self) -> None:
        self._known.clear()

    def _look_up(self, schema: str, name: str) -> CapturedTable:
        inspector = sqlalchemy.inspect(self._engine)
        inside = schema if self._engine.dialect.name != "sqlite" else None
        keys = inspector.get_pk_constraint(name, schema=inside)["constrained_columns"]
        dialect = self._engine.dialect.name
        fields = [
            field_of(each["name"], each["type"], dialect, _UTC, optional=bool(each["nullable"]) and each["name"] not in keys)
            for each in inspector.get_columns(name, schema=inside)
        ]
        alone = self._names_keys_alone(schema, name)
        return captured_table(self._prefix, self._source, schema, name, fields, keys, names_keys_alone=alone)


def rows_at_a_time(connection: Connection, table: CapturedTable, size: int) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, ``size`` at a time."""
    dialect = connection.engine.dialect.name
    columns: list[Column[Any]] = [Column(quoted(each.name), _bare(dialect, each.schema)) for each in table.fields]
    source = table_of((table.schema if dialect != "sqlite" else None, table.name), columns)
    texts = [
        cast(column, sqlalchemy.Text).label(None) if dialect == "postgresql" and field.schema.type == "string" else column
        for field, column in zip(table.fields, source.c, strict=True)
    ]
    result = connection.execution_options(yield_per=size).execute(select(*texts))
    for rows in result.partitions(size):
        chunk: Sequence[Sequence[Any]] = rows
        yield rows_of(table.fields, chunk)


def _bare(dialect: str, schema: Schema) -> Any:
    return sqlalchemy.LargeBinary() if dialect == "postgresql" and schema.type == "bytes" and schema.name is None else NullType()
