"""An outbox: rows that an application writes in its own transactions become records, in the order of their numbers, each once.

The table has a growing number.  Databases give numbers before a transaction commits.  So a row may appear behind a greater number
that was read already: the task reads up to a gap, and goes on when no transaction is left that could fill it.

    SQLite      One transaction writes at a time: numbers appear in order.  The number must be AUTOINCREMENT, or deleted ones return.
    PostgreSQL  Who inserts holds a lock of the table from before it gets a number until it ends.  A gap is settled when all holders
                that were seen after it have ended.  Nobody waits.
    MySQL       The same, but ordinary users cannot see the holders: first a locking read waits for rows of the gap, then
                ``LOCK TABLES … READ`` waits for the writers, for at most a second each time.

Columns have the names of Debezium's outbox, and its properties change them.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import sqlalchemy
from sqlalchemy import Column, Connection, Engine, Select, Table, select, text
from sqlalchemy.exc import DBAPIError

from logdb_connect import logical
from logdb_connect.config import ConfigDef, ConfigKey, at_least
from logdb_connect.connectors.sql.connection import CONNECTION, engine_of, passes, reason, retriable, url_fault
from logdb_connect.connectors.sql.settings import check_offsets, connected, zone_fault
from logdb_connect.connectors.sql.tables import Name, quoted, shown, table_of
from logdb_connect.data import OPTIONAL_STRING, STRING, Field, Header, Schema, SourceRecord
from logdb_connect.errors import ConnectError, DataError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

_log = logging.getLogger(__name__)

OUTBOX = CONNECTION + ConfigDef(
    ConfigKey("table.include.list", "STRING", "outbox", "The outbox: `TABLE` or `SCHEMA.TABLE`.", "HIGH", group="Table"),
    ConfigKey(
        "incrementing.column.name", "STRING", "", "The growing number; empty: the column of `table.field.event.id`.", "HIGH", group="Table"
    ),
    ConfigKey("table.field.event.id", "STRING", "id", "Column of the event's identifier: the header `id`.", group="Table"),
    ConfigKey("table.field.event.key", "STRING", "aggregateid", "Column of the record's key.", group="Table"),
    ConfigKey("table.field.event.payload", "STRING", "payload", "Column of the record's value.", group="Table"),
    ConfigKey("table.field.event.timestamp", "STRING", "", "Column of the record's timestamp; empty: the time of writing.", group="Table"),
    ConfigKey(
        "table.fields.additional.placement",
        "LIST",
        (),
        "More columns, as `COLUMN:header:NAME` or `COLUMN:envelope:NAME`; an envelope makes the value a struct. `NAME` is optional.",
        group="Table",
    ),
    ConfigKey("table.expand.json.payload", "BOOLEAN", False, "Parse the payload: the value is a map instead of text.", group="Table"),
    ConfigKey("route.by.field", "STRING", "aggregatetype", "Column that decides the topic.", group="Router"),
    ConfigKey(
        "route.topic.regex", "STRING", "(?<routedByValue>.*)", "Expression that the column's value must match.", "LOW", group="Router"
    ),
    ConfigKey("route.topic.replacement", "STRING", "outbox.event.${routedByValue}", "Name of the topic.", group="Router"),
    ConfigKey("route.tombstone.on.empty.payload", "BOOLEAN", False, "An empty payload becomes a null value.", group="Router"),
    ConfigKey("outbox.delete.enabled", "BOOLEAN", False, "Delete rows when their records are stored.", "HIGH", group="Table"),
    ConfigKey("poll.interval.ms", "INT", 500, "Pause when there are no rows.", check=at_least(1), group="Table"),
    ConfigKey("batch.max.rows", "INT", 1000, "Rows of one poll.", "LOW", at_least(1), group="Table"),
)

_PLACES = ("header", "envelope")
_LOCK_SECONDS, _LOCK_TIMEOUT = 1, 1205


class OutboxSourceTask(SourceTask):
    """Reads the outbox, behind the last number whose record is stored."""

    _engine: Engine | None = None

    def start(self, properties: Properties) -> None:
        config = OUTBOX.parse(properties)
        if faults := _faults(config):
            raise ConnectError("; ".join(faults.values()))
        self._config = config
        engine = engine_of(config, writes=False)
        self._engine = engine.execution_options(isolation_level="READ COMMITTED") if engine.dialect.name != "sqlite" else engine
        connected(self._engine, config, self.context.wait)
        with retriable(self._engine.url):
            self._outbox = _Outbox(self._engine, config)
        self._partition = {"table": self._outbox.shown}
        known = self.context.offset(self._partition)
        self._last: int | None = None if known is None else int(known["number"])
        self._router = _Router(config)
        self._waits = False

    def poll(self) -> list[SourceRecord] | None:
        assert self._engine is not None
        if self._waits:
            self.context.wait(self._config["poll.interval.ms"] / 1000)
            self._waits = False
        with retriable(self._engine.url):
            rows = self._outbox.after(self._last, self._config["batch.max.rows"])
        if not rows:
            self._waits = True
            return None
        records = [self._record(row) for row in rows]
        self._last = rows[-1][self._outbox.number]
        return records

    def commit(self) -> None:
        """Delete the rows of all records that ``poll`` gave; those that cannot be deleted now are with the next ones."""
        assert self._engine is not None
        if self._last is None or not self._config["outbox.delete.enabled"]:
            return
        try:
            self._outbox.delete(self._last)
        except DBAPIError as error:
            if not passes(error):
                raise ConnectError(f"Rows of {self._outbox.shown} cannot be deleted: {reason(error)}") from error
            _log.warning("Rows of %s are deleted later: %s", self._outbox.shown, reason(error))

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _record(self, row: Mapping[str, Any]) -> SourceRecord:
        topic, key, value, schema, headers, timestamp = self._router.event(row, self._outbox.shown)
        return SourceRecord(
            source_partition=self._partition,
            source_offset={"number": row[self._outbox.number]},
            topic=topic,
            key=key,
            key_schema=OPTIONAL_STRING,
            value=value,
            value_schema=schema,
            headers=headers,
            timestamp_ms=timestamp,
        )


class OutboxSourceConnector(SourceConnector):
    """Publishes the rows of an outbox.  One task, for their order."""

    config_def: ClassVar[ConfigDef] = OUTBOX
    task_class: ClassVar[type] = OutboxSourceTask

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties] if max_tasks else []

    def validate(self, properties: Properties) -> Mapping[str, str]:
        return _faults(OUTBOX.parse(properties))

    def alter_offsets(self, properties: Properties, offsets: Mapping[str, Any]) -> None:
        check_offsets(offsets, ("table",), ("number",))


def _faults(config: Mapping[str, Any]) -> dict[str, str]:
    faults = {**zone_fault(config), **url_fault(config)}
    for each in config["table.fields.additional.placement"]:
        parts = each.split(":")
        if len(parts) not in {2, 3} or parts[1] not in _PLACES or not all(parts):
            faults["table.fields.additional.placement"] = f"{each} must be COLUMN:header, COLUMN:envelope, or one of both with :NAME"
    try:
        _pattern(config["route.topic.regex"])
    except re.error as error:
        faults["route.topic.regex"] = f"{config['route.topic.regex']} is no regular expression: {error}"
    return faults


def _pattern(java: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", java))


class _Router:
    """Makes records of rows, as Debezium's outbox event router does."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._pattern = _pattern(config["route.topic.regex"])
        replacement = config["route.topic.replacement"].replace("\\", "\\\\")
        self._replacement = re.sub(r"\$\{(\w+)\}|\$(\d+)", lambda match: rf"\g<{match[1] or match[2]}>", replacement)
        placements = [each.split(":") for each in config["table.fields.additional.placement"]]
        self._headers = [(parts[0], parts[-1] if len(parts) == 3 else parts[0]) for parts in placements if parts[1] == "header"]
        self._envelope = [(parts[0], parts[-1] if len(parts) == 3 else parts[0]) for parts in placements if parts[1] == "envelope"]

    @property
    def columns(self) -> list[str]:
        """The columns that an outbox must have."""
        config = self._config
        named = [config[f"table.field.event.{each}"] for each in ("id", "key", "payload", "timestamp")]
        more = [column for column, _ in (*self._headers, *self._envelope)]
        return list(dict.fromkeys(each for each in [*named, config["route.by.field"], *more] if each))

    def event(self, row: Mapping[str, Any], table: str) -> tuple[str, str | None, Any, Schema | None, list[Header], int | None]:
        """Topic, key, value, schema of the value, headers and timestamp of a row."""
        config = self._config
        route = row[config["route.by.field"]]
        if route is None or (match := self._pattern.fullmatch(str(route))) is None:
            shown_id = row[config["table.field.event.id"]]
            raise DataError(
                f"The row {shown_id} of {table} has {config['route.by.field']}={route}: it must match {config['route.topic.regex']}"
            )
        topic = match.expand(self._replacement)
        key = row[config["table.field.event.key"]]
        headers = [Header("id", _text(row[config["table.field.event.id"]]), STRING)]
        headers += [Header(name, None if row[column] is None else _text(row[column]), OPTIONAL_STRING) for column, name in self._headers]
        value, schema = self._value(row)
        return topic, None if key is None else _text(key), value, schema, headers, self._timestamp(row)

    def _value(self, row: Mapping[str, Any]) -> tuple[Any, Schema | None]:
        config = self._config
        payload = row[config["table.field.event.payload"]]
        if isinstance(payload, memoryview | bytearray):
            payload = bytes(payload)
        if not payload and (payload is None or config["route.tombstone.on.empty.payload"]):
            return None, None
        schema: Schema | None = Schema(type="bytes", optional=True) if isinstance(payload, bytes) else OPTIONAL_STRING
        if isinstance(payload, dict | list):  # JSON columns
            payload = payload if config["table.expand.json.payload"] else json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
            schema = None if config["table.expand.json.payload"] else schema
        elif config["table.expand.json.payload"]:
            try:
                payload, schema = json.loads(payload), None
            except ValueError:
                _log.warning("The payload of the event %s is no JSON: its text is the value", row[config["table.field.event.id"]])
        if not self._envelope:
            return payload, schema
        values = {name: None if row[column] is None else _text(row[column]) for column, name in self._envelope}
        if schema is None:
            return {"payload": payload, **values}, None
        fields = (Field("payload", schema), *(Field(name, OPTIONAL_STRING) for name in values))
        return {"payload": payload, **values}, Schema(type="struct", fields=fields)

    def _timestamp(self, row: Mapping[str, Any]) -> int | None:
        column = self._config["table.field.event.timestamp"]
        if not column or (value := row[column]) is None:
            return None
        if isinstance(value, int):
            return value
        return logical.timestamp_ms(value if isinstance(value, datetime) else datetime.fromisoformat(str(value)))


def _text(value: Any) -> str:
    return bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else str(value)


class _Outbox:
    """The table, and what is known of gaps in its numbers.

    Attributes:
        number: The column of the growing number.
        shown: The table's name, for messages and offsets.
    """

    def __init__(self, engine: Engine, config: Mapping[str, Any]) -> None:
        self._engine, self._dialect = engine, engine.dialect.name
        schema, _, table = (
            config["table.include.list"].rpartition(".") if self._dialect != "sqlite" else ("", "", config["table.include.list"])
        )
        self._name: Name = (schema or None, table)
        self.shown = shown(self._name)
        self.number: str = config["incrementing.column.name"] or config["table.field.event.id"]
        inspector = sqlalchemy.inspect(engine)
        if not inspector.has_table(table, schema=schema or None):
            raise ConnectError(f"There is no table {self.shown}: create it, or change table.include.list")
        types = {each["name"]: each["type"] for each in inspector.get_columns(table, schema=schema or None)}
        wanted = list(dict.fromkeys([self.number, *_Router(config).columns]))
        if missing := [each for each in wanted if each not in types]:
            raise ConnectError(f"The table {self.shown} has no column {', '.join(missing)}")
        if not isinstance(types[self.number], sqlalchemy.Integer):
            raise ConnectError(
                f"The column {self.number} of {self.shown} must be a growing number, not {types[self.number]!r}: "
                "add one, such as BIGSERIAL or AUTO_INCREMENT, and name it in incrementing.column.name"
            )
        columns: list[Column[Any]] = [Column(quoted(each)) for each in wanted]
        self._table: Table = table_of(self._name, columns)
        self._column: Column[Any] = self._table.c[self.number]
        self._gap: tuple[int, frozenset[str]] | None = None  # a number that was read behind it, and who could fill it
        with engine.begin() as connection:
            self._check(connection)

    def after(self, last: int | None, limit: int) -> list[Mapping[str, Any]]:
        """The next rows, as far as no other can appear before them."""
        with self._engine.begin() as connection:
            rows = self._rows(connection, last, limit)
        until = len(rows) if self._dialect == "sqlite" else self._before_gap(rows, last)
        if until == len(rows):
            return rows
        settled = self._settled(rows[-1][self.number], last)
        if settled is None:
            return rows[:until]
        with self._engine.begin() as connection:  # again: rows that appeared meanwhile come at their place
            return self._rows(connection, last, None, settled)

    def delete(self, until: int) -> None:
        with self._engine.begin() as connection:
            connection.execute(self._table.delete().where(self._column <= until))

    def _rows(self, connection: Connection, last: int | None, limit: int | None, end: int | None = None) -> list[Mapping[str, Any]]:
        query: Select[Any] = select(*self._table.c).order_by(self._column)
        if last is not None:
            query = query.where(self._column > last)
        if end is not None:
            query = query.where(self._column <= end)
        return [dict(row) for row in connection.execute(query.limit(limit) if limit is not None else query).mappings()]

    def _before_gap(self, rows: Sequence[Mapping[str, Any]], last: int | None) -> int:
        """How many rows come before the first gap."""
        expected = None if last is None else last + 1
        for index, row in enumerate(rows):
            if row[self.number] != expected:
                return index
            expected = row[self.number] + 1
        return len(rows)

    # ------------------------------------------------------------ gaps

    def _settled(self, end: int, last: int | None) -> int | None:
        """The number up to which no more rows can appear; None while a transaction may fill the gap.  ``end`` was read just now."""
        with self._engine.connect() as connection:
            if self._dialect == "postgresql":
                return self._settled_postgresql(connection, end, last)
            return end if self._is_settled_mysql(connection, end, last) else None

    def _settled_postgresql(self, connection: Connection, end: int, last: int | None) -> int | None:
        query = text(
            "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = CAST(:name AS regclass) "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND mode = 'RowExclusiveLock'"
        )
        writers = frozenset(connection.scalars(query, {"name": self._engine.dialect.identifier_preparer.format_table(self._table)}))
        if self._gap is None or (last is not None and self._gap[0] <= last):
            self._gap = end, writers
        known, left = self._gap[0], self._gap[1] & writers
        self._gap = (known, left) if left else None
        return None if left else known

    def _is_settled_mysql(self, connection: Connection, end: int, last: int | None) -> bool:
        behind = self._column > last if last is not None else sqlalchemy.true()
        query = select(self._column).where(behind, self._column <= end).with_for_update(read=True)
        table = self._engine.dialect.identifier_preparer.format_table(self._table)
        try:
            connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}, innodb_lock_wait_timeout = {_LOCK_SECONDS}")
            connection.execute(query).all()
            connection.rollback()
            connection.exec_driver_sql(f"LOCK TABLES {table} READ")
            connection.exec_driver_sql("UNLOCK TABLES")
        except DBAPIError as error:
            if error.orig is not None and error.orig.args[:1] == (_LOCK_TIMEOUT,):
                return False
            raise
        finally:
            connection.invalidate()  # the session's settings go with it
        return True

    def _check(self, connection: Connection) -> None:
        """Refuse numbers that do not appear in order even so."""
        if self._dialect == "sqlite":
            made = connection.scalar(text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = :name"), {"name": self._name[1]})
            if not re.search(r"\bautoincrement\b", str(made), re.IGNORECASE):
                raise ConnectError(
                    f"The column {self.number} of {self.shown} must be INTEGER PRIMARY KEY AUTOINCREMENT: "
                    "SQLite otherwise gives the numbers of deleted rows again, and their events would be lost"
                )
        elif self._dialect == "postgresql":
            query = text(
                "SELECT seqcache FROM pg_sequence WHERE seqcache > 1 "
                "AND seqrelid = CAST(pg_get_serial_sequence(:name, :column) AS regclass)"
            )
            quoted_name = self._engine.dialect.identifier_preparer.format_table(self._table)
            if cached := connection.scalar(query, {"name": quoted_name, "column": self.number}):
                raise ConnectError(
                    f"The sequence of {self.shown}.{self.number} has CACHE {cached}: sessions take numbers out of order. Set CACHE 1"
                )
        elif (step := connection.scalar(text("SELECT @@auto_increment_increment"))) != 1:
            raise ConnectError(f"auto_increment_increment is {step}: several servers give numbers, out of order. It must be 1")
