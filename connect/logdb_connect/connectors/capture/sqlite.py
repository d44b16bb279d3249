"""Changes of SQLite by triggers.  The connector adds to each captured table a table ``logdb_changes_TABLE`` and three triggers.

A trigger copies each change, in the transaction that makes it.  Rows of that table are deleted when their records are stored.
Where REPLACE removes a row of another key, SQLite calls the trigger only with ``PRAGMA recursive_triggers=on``.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Connection, Engine, RowMapping
from sqlalchemy.exc import DBAPIError

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.connectors.capture.events import COMMON, CapturedTable, Change, Chosen, Op, Recorder, source_schema
from logdb_connect.connectors.capture.snapshot import Catalog, rows_at_a_time
from logdb_connect.connectors.capture.task import CaptureConnector, CaptureTask, Offset
from logdb_connect.connectors.sql.columns import rows_of
from logdb_connect.connectors.sql.connection import engine_of, passes, reason, retriable
from logdb_connect.data import STRING, Schema, SourceRecord
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties

SQLITE = COMMON + ConfigDef(
    ConfigKey(
        "database.file",
        "STRING",
        REQUIRED,
        "The SQLite database. The connector adds tables and triggers to it.",
        "HIGH",
        group="Connection",
    )
)

_EVENTS = ("INSERT", "UPDATE", "DELETE")
PREFIX = "logdb_changes_"
_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_SOURCE = source_schema("sqlite", schema=STRING, table=STRING, position=Schema(type="int64", optional=True))


class SqliteCaptureTask(CaptureTask):
    """Reads tables of changes, one after the other."""

    config_def = SQLITE

    _engine: Engine | None = None

    def stop(self) -> None:
        if self._engine is not None:
            self._snapshot = None
            self._engine.dispose()

    def commit(self) -> None:
        """Delete changes whose records are stored."""
        if self._snapshot is not None:
            return
        for table, position in self._positions.items():
            if position == self._deleted.get(table):
                continue
            try:
                with self._engine_.begin() as connection:
                    connection.exec_driver_sql(f"DELETE FROM {_quoted(PREFIX + table)} WHERE position <= ?", (position,))  # noqa: S608
                self._deleted[table] = position
            except DBAPIError as error:
                if not passes(error):
                    raise ConnectError(f"Changes of {table} cannot be deleted: {reason(error)}") from error

    @property
    def _engine_(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _connect(self, properties: Properties) -> Recorder:
        file = self._config["database.file"]
        if not Path(file).is_file():
            raise ConnectError(f"There is no SQLite database {file}")
        self._engine = engine_of({"connection.url": f"jdbc:sqlite:{file}"}, writes=False)
        chosen = Chosen(self._config)
        self._catalog = Catalog(
            self._engine, self._config["topic.prefix"], _SOURCE, lambda schema, table: _is_users(table) and chosen(schema, table)
        )
        self._positions: dict[str, int] = {}
        self._deleted: dict[str, int] = {}
        self._version = -1
        return Recorder(self._config, properties.get("connector.class", ""), "sqlite", file)

    def _begin_snapshot(self, *, with_rows: bool) -> None:
        self._install(copied=False)
        self._snapshot = self._rows(with_rows=with_rows)

    def _continue(self, offset: Offset) -> None:
        self._install()
        self._positions = {table: int(position) for table, position in offset["positions"].items()}

    def _rows(self, *, with_rows: bool) -> Iterator[Sequence[Change]]:
        """All rows, in one transaction: behind it, changes from the positions that it sees."""
        with self._engine_.connect() as connection, connection.begin():
            self._positions = self._ends(connection)
            self._snapshot_position = {"positions": dict(self._positions)}
            ts_ms = connection.exec_driver_sql(f"SELECT {_NOW}").scalar_one()
            for table in self._tables if with_rows else ():
                source = {"schema": "main", "table": table.name, "position": None}
                for rows in rows_at_a_time(connection, table, self._config["snapshot.fetch.size"]):
                    yield [Change(table, "r", None, row, ts_ms, source) for row in rows]

    def _ends(self, connection: Connection) -> dict[str, int]:
        ends = {}
        for table in self._tables:
            found = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (PREFIX + table.name,)).scalar()
            ends[table.name] = int(found or 0)
        return ends

    def _changes(self) -> list[SourceRecord]:
        before = dict(self._positions)
        try:
            with retriable(self._engine_.url):
                self._install()
                return [each for table in self._tables for each in self._changes_of(table, self._config["max.batch.size"])]
        except RetriableError:
            self._positions = before  # what this poll has read is read again
            raise

    def _changes_of(self, table: CapturedTable, limit: int) -> list[SourceRecord]:
        query = f"SELECT * FROM {_quoted(PREFIX + table.name)} WHERE position > ? ORDER BY position LIMIT ?"  # noqa: S608
        with self._engine_.begin() as connection:
            found = connection.exec_driver_sql(query, (self._positions.get(table.name, 0), limit)).mappings().all()
        records: list[SourceRecord] = []
        for row in found:
            op: Op = row["op"]
            before = self._side(table, row, "before_") if op in "ud" else None
            after = self._side(table, row, "after_") if op != "d" else None
            self._positions[table.name] = position = row["position"]
            source = {"schema": "main", "table": table.name, "position": position}
            change = Change(table, op, before, after, row["ts_ms"], source)
            records += self._recorder.records(change, self._partition, {"positions": dict(self._positions)})
        return records

    @staticmethod
    def _side(table: CapturedTable, row: RowMapping, prefix: str) -> dict[str, Any]:
        return rows_of(table.fields, [[row[prefix + each.name] for each in table.fields]])[0]

    # ------------------------------------------------------------ triggers

    def _install(self, *, copied: bool = True) -> None:
        """Tables of changes and triggers, where they are missing or the columns are other ones.

        Args:
            copied: The rows of a table that is new are changes, too: the snapshot has not seen them.
        """
        with retriable(self._engine_.url), self._engine_.connect() as connection:
            version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
            connection.rollback()
        if version == self._version:
            return
        self._catalog.forget_all()
        self._tables = self._catalog.chosen()
        for table in self._tables:
            try:
                with self._engine_.connect() as connection:
                    self._install_one(connection, table, copied=copied)
            except DBAPIError as error:
                if passes(error):
                    raise RetriableError(f"{self._config['database.file']} cannot be changed now: {reason(error)}") from error
                raise ConnectError(f"Triggers of {table.name} cannot be made: {reason(error)}") from error
        self._version = version

    def _install_one(self, connection: Connection, table: CapturedTable, *, copied: bool) -> None:
        name = PREFIX + table.name
        wanted = [f"{side}_{each.name}" for side in ("before", "after") for each in table.fields]
        there = [row[0] for row in connection.exec_driver_sql("SELECT name FROM pragma_table_info(?)", (name,))]
        query = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? AND name LIKE ?"
        triggers = connection.exec_driver_sql(query, (table.name, PREFIX + "%")).scalar_one()
        if set(wanted) <= set(there) and triggers == len(_EVENTS):
            return
        columns = ", ".join(map(_quoted, wanted))
        if not there:
            made = f"CREATE TABLE {_quoted(name)} (position INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, ts_ms INTEGER, {columns})"
            connection.exec_driver_sql(made)
        for each in [each for each in wanted if there and each not in there]:
            connection.exec_driver_sql(f"ALTER TABLE {_quoted(name)} ADD COLUMN {_quoted(each)}")
        old, new = ([f"{row}.{_quoted(each.name)}" for each in table.fields] for row in ("OLD", "NEW"))
        nothing = ["NULL"] * len(table.fields)
        if not there and copied:
            listed = ", ".join([*nothing, *(_quoted(each.name) for each in table.fields)])
            rows = f"SELECT 'r', {_NOW}, {listed} FROM {_quoted(table.name)}"  # noqa: S608
            connection.exec_driver_sql(f"INSERT INTO {_quoted(name)} (op, ts_ms, {columns}) {rows}")
        for event, op, values in zip(_EVENTS, "cud", (nothing + new, old + new, old + nothing), strict=True):
            trigger = _quoted(f"{name}_{event.lower()}")
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {trigger}")
            connection.exec_driver_sql(
                f"CREATE TRIGGER {trigger} AFTER {event} ON {_quoted(table.name)} BEGIN INSERT INTO {_quoted(name)} "  # noqa: S608
                f"(op, ts_ms, {columns}) VALUES ('{op}', {_NOW}, {', '.join(values)}); END"
            )
        connection.commit()


class SqliteCaptureConnector(CaptureConnector):
    """Captures tables of an SQLite database."""

    config_def: ClassVar[ConfigDef] = SQLITE
    task_class: ClassVar[type] = SqliteCaptureTask


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_users(table: str) -> bool:
    return not table.startswith((PREFIX, "sqlite_", "logdb_connect_"))
