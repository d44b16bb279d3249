"""Changes of PostgreSQL by logical decoding: a replication slot, wal2json (format 2), psycopg2's replication cursor.

A slot is made once, with the snapshot that belongs to it.  It keeps the WAL until the records are stored: ``commit`` confirms.

An offset is the end of the last whole transaction (``lsn``), and how many changes of the next one are stored (``events`` of ``txId``).
The server sends a transaction again from its begin; the task leaves out the changes that it has.
"""

import logging
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
import psycopg2
import psycopg2.errors
from psycopg2.extras import LogicalReplicationConnection, ReplicationCursor
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from logdb_connect.config import ConfigDef, ConfigKey, revealed
from logdb_connect.connectors.capture.events import (
    COMMON,
    HOST,
    UNAVAILABLE,
    CapturedTable,
    Change,
    Chosen,
    Op,
    Recorder,
    naming_keys_alone,
    source_schema,
)
from logdb_connect.connectors.capture.snapshot import Catalog, rows_at_a_time
from logdb_connect.connectors.capture.task import CaptureConnector, CaptureTask, Offset
from logdb_connect.connectors.sql.columns import rows_of
from logdb_connect.connectors.sql.connection import engine_of, retriable
from logdb_connect.data import STRING, Schema, SourceRecord
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties

_log = logging.getLogger(__name__)

POSTGRESQL = (
    HOST
    + ConfigDef(
        ConfigKey("database.port", "INT", 5432, "Port of the database.", "HIGH", group="Connection"),
        ConfigKey("database.dbname", "STRING", "postgres", "Database to capture.", "HIGH", group="Connection"),
        ConfigKey(
            "slot.name", "STRING", "debezium", "Replication slot: a name that nothing else on the server uses.", "HIGH", group="Replication"
        ),
        ConfigKey("slot.drop.on.stop", "BOOLEAN", False, "Drop the slot when the task stops: later changes are lost.", group="Replication"),
        ConfigKey(
            "plugin.name", "STRING", "wal2json", "Output plugin; the connector uses wal2json, whatever it says.", "LOW", group="Replication"
        ),
        ConfigKey(
            "publication.name", "STRING", "dbz_publication", "Accepted, and not used: wal2json needs none.", "LOW", group="Replication"
        ),
        ConfigKey(
            "replica.identity.autoset.values",
            "LIST",
            (),
            "`SCHEMA.TABLE:FULL` sets the table's REPLICA IDENTITY, for whole rows in `before`.",
            "LOW",
            group="Replication",
        ),
        ConfigKey("status.update.interval.ms", "INT", 10_000, "Interval of messages to the server.", "LOW", group="Replication"),
    )
    + COMMON
    + ConfigDef(UNAVAILABLE)
)

_SOURCE = source_schema(
    "postgresql",
    schema=STRING,
    table=STRING,
    txId=Schema(type="int64", optional=True),
    lsn=Schema(type="int64", optional=True),
)
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_STREAM_END_S = 10  # a stream's process ends within this time
_AWAY = (psycopg2.OperationalError, psycopg2.InterfaceError)
_OPS: dict[str, Op] = {"I": "c", "U": "u", "D": "d"}
_OPTIONS = {"format-version": 2, "include-xids": 1, "include-timestamp": 1, "include-lsn": 1, "include-pk": 0, "include-transaction": 1}


class PostgresCaptureTask(CaptureTask):
    """Reads one slot."""

    config_def = POSTGRESQL

    _engine: Engine | None = None
    _cursor: ReplicationCursor | None = None

    # ------------------------------------------------------------ life

    def _connect(self, properties: Properties) -> Recorder:
        config = self._config
        self._where = {
            "host": config["database.hostname"],
            "port": config["database.port"],
            "user": config["database.user"],
            "password": revealed(config["database.password"]),
            "dbname": config["database.dbname"],
        }
        url = f"postgresql://{quote(config['database.hostname'])}:{config['database.port']}/{quote(config['database.dbname'])}"
        self._engine = engine_of(
            {"connection.url": url, "connection.user": self._where["user"], "connection.password": config["database.password"]}, writes=True
        )
        if config["plugin.name"] != "wal2json":
            _log.warning("plugin.name=%s: the connector uses wal2json", config["plugin.name"])
        self._catalog = Catalog(self._engine, config["topic.prefix"], _SOURCE, Chosen(config), self._names_keys_alone)
        self._chosen = Chosen(config)
        self._signatures: dict[tuple[str, str], dict[str, str]] = {}  # types of columns, as far as changes have named them
        self._seen: dict[tuple[tuple[str, str], tuple[tuple[str, str], ...]], CapturedTable] = {}  # by the columns of a change
        self._reset({"lsn": 0})
        with retriable(self._engine.url), self._engine.begin() as connection:
            level = connection.scalar(text("SHOW wal_level"))
            for each in config["replica.identity.autoset.values"]:
                self._set_identity(connection, each)
        if level != "logical":
            raise ConnectError(f"wal_level of the server is {level}: it must be logical, and takes a restart of the server")
        return Recorder(config, properties.get("connector.class", ""), "postgresql", config["database.dbname"])

    def _names_keys_alone(self, schema: str, name: str) -> bool:
        """Whether the table's REPLICA IDENTITY is not FULL."""
        query = text(
            "SELECT relreplident <> 'f' FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname = :schema AND relname = :name"
        )
        with self._engine_.begin() as connection:
            return bool(connection.scalar(query, {"schema": schema, "name": name}))

    def _set_identity(self, connection: Any, setting: str) -> None:
        name, _, value = setting.rpartition(":")
        schema, _, table = name.rpartition(".")
        if value.upper() not in {"FULL", "DEFAULT", "NOTHING"} or not table:
            raise ConnectError(f"replica.identity.autoset.values has {setting}: it must be SCHEMA.TABLE:FULL, DEFAULT or NOTHING")
        quoted = connection.engine.dialect.identifier_preparer.quote_identifier
        connection.execute(
            text(f"ALTER TABLE {quoted(schema or 'public')}.{quoted(table)} REPLICA IDENTITY {value.upper()}".replace(":", "\\:"))
        )

    def stop(self) -> None:
        self._close_stream()
        self._snapshot = None
        if self._engine is not None:
            if self._config["slot.drop.on.stop"]:
                self._drop_slot_at_stop()
            self._engine.dispose()

    def _reset(self, offset: Offset) -> None:
        """Continue behind an offset."""
        self._resume = offset
        self._lsn = int(offset["lsn"])  # the end of the last whole transaction
        self._stored_lsn = self._lsn
        self._skipped: tuple[int, int] | None = None  # of this transaction: so many changes
        if offset.get("events"):
            self._skipped = int(offset["txId"]), int(offset["events"])
        self._xid: int | None = None
        self._ts_ms = 0
        self._events = 0
        self._is_idle = False

    # ------------------------------------------------------------ slot and snapshot

    def _begin_snapshot(self, *, with_rows: bool) -> None:
        slot = self._config["slot.name"]
        try:
            self._drop_slot()
            connection = psycopg2.connect(**self._where, connection_factory=LogicalReplicationConnection)
        except psycopg2.OperationalError as error:
            raise RetriableError(f"The slot {slot} cannot be made now: {' '.join(str(error).split())}. Retry is safe.") from error
        try:
            cursor = connection.cursor()
            cursor.create_replication_slot(slot, output_plugin="wal2json")
            _, position, snapshot, _ = cursor.fetchone()
        except psycopg2.errors.UndefinedFile as error:
            connection.close()
            raise ConnectError("wal2json is not installed on the server: apt-get install postgresql-NN-wal2json") from error
        except psycopg2.errors.DuplicateObject as error:
            connection.close()
            raise RetriableError(f"Another program uses the slot {slot}: each connector needs a slot.name of its own.") from error
        except psycopg2.Error as error:
            connection.close()
            raise ConnectError(f"The slot {slot} cannot be made: {' '.join(str(error).split())}") from error
        lsn = _number(position)
        self._snapshot_position = {"lsn": lsn}
        self._snapshot = self._rows(connection, snapshot if with_rows else None, lsn)

    def _drop_slot(self) -> bool:
        """Drop the slot, unless a program uses it.  Return whether it is gone."""
        assert self._engine is not None
        slot = {"slot": self._config["slot.name"]}
        with retriable(self._engine.url), self._engine.begin() as connection:
            query = text("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = :slot AND NOT active")
            connection.execute(query, slot)
            return connection.execute(text("SELECT 1 FROM pg_replication_slots WHERE slot_name = :slot"), slot).first() is None

    def _drop_slot_at_stop(self) -> None:
        """The server's process of the closed stream still uses the slot for a moment."""
        end, why = time.monotonic() + _STREAM_END_S, "a program still uses it"
        try:
            while not self._drop_slot():
                if time.monotonic() > end:
                    break
                time.sleep(0.02)
            else:
                return
        except (DBAPIError, RetriableError) as error:
            why = " ".join(str(error).split())
        _log.warning("The slot %s is not dropped, and keeps the server's WAL: %s", self._config["slot.name"], why)

    def _rows(self, exporting: Any, snapshot: str | None, lsn: int) -> Iterator[Sequence[Change]]:
        """The rows that the slot's snapshot sees."""
        assert self._engine is not None
        try:
            if snapshot is None:
                return
            with retriable(self._engine.url), self._engine.connect() as plain:
                connection = plain.execution_options(isolation_level="REPEATABLE READ")
                with connection.begin():
                    connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
                    ts_ms = connection.scalar(text("SELECT CAST(extract(epoch FROM now()) * 1000 AS bigint)"))
                    for table in self._catalog.chosen():
                        source = {"schema": table.schema, "table": table.name, "txId": None, "lsn": lsn}
                        for rows in rows_at_a_time(connection, table, self._config["snapshot.fetch.size"]):
                            yield [Change(table, "r", None, row, ts_ms, source) for row in rows]
        finally:
            exporting.close()

    def _more_of_snapshot(self) -> Any:
        try:
            return super()._more_of_snapshot()
        except RetriableError as error:
            raise ConnectError(f"The snapshot was interrupted; restart the task to begin it again. {error}") from error

    def _snapshot_ended(self) -> None:
        self._reset(self._snapshot_position)

    # ------------------------------------------------------------ changes

    def _continue(self, offset: Offset) -> None:
        assert self._engine is not None
        self._reset(offset)
        with retriable(self._engine.url), self._engine.begin() as connection:
            query = text("SELECT CAST(confirmed_flush_lsn AS text) FROM pg_replication_slots WHERE slot_name = :slot")
            confirmed = connection.scalar(query, {"slot": self._config["slot.name"]})
        if confirmed is None:
            raise ConnectError(
                f"The slot {self._config['slot.name']} is gone, and with it changes that were not captured. "
                "Delete the connector's offsets for a new snapshot, or set snapshot.mode=always"
            )

    def _changes(self) -> list[SourceRecord]:
        """Changes that have arrived."""
        try:
            if self._cursor is None:
                self._open_stream()
            records = self._read()
        except (psycopg2.Error, RetriableError) as error:
            self._close_stream()
            self._reset(self._resume)  # what this poll has read is read again
            if isinstance(error, RetriableError):
                raise
            slot, reason = self._config["slot.name"], " ".join(str(error).split())
            if isinstance(error, psycopg2.errors.ObjectInUse):
                raise RetriableError(f"Another program reads the slot {slot}: {reason}. Retry is safe.") from error
            if isinstance(error, _AWAY) or type(error) is psycopg2.DatabaseError:  # the last: a connection that broke
                raise RetriableError(f"The slot {slot} cannot be read now: {reason}. Retry is safe.") from error
            raise ConnectError(f"The slot {slot} cannot be read: {reason}") from error
        if self._xid is None:
            self._resume = {"lsn": self._lsn}
        elif records:
            self._resume = records[-1].source_offset
        return records

    def _open_stream(self) -> None:
        """Begin at the end of the last whole transaction whose records were given."""
        connection = psycopg2.connect(**self._where, connection_factory=LogicalReplicationConnection)
        self._cursor = cursor = connection.cursor()
        interval = max(1, self._config["status.update.interval.ms"] // 1000)
        cursor.start_replication(self._config["slot.name"], options=_OPTIONS, decode=True, start_lsn=self._lsn, status_interval=interval)

    def _close_stream(self) -> None:
        if (cursor := self._cursor) is not None:
            self._cursor = None
            with suppress(psycopg2.Error):
                cursor.connection.close()

    def _read(self) -> list[SourceRecord]:
        assert self._cursor is not None
        records: list[SourceRecord] = []
        limit = self._config["max.batch.size"]
        while len(records) < limit and (message := self._cursor.read_message()) is not None:
            self._is_idle = False
            self._take(_decode(message.payload), message.data_start, records)
        if not records:
            self._confirm_idle()
        return records

    def _take(self, change: dict[str, Any], lsn: int, records: list[SourceRecord]) -> None:
        match change["action"]:
            case "B":
                self._xid, self._events = int(change["xid"]), 0
                self._ts_ms = _milliseconds(change["timestamp"])
            case "C":
                self._lsn, self._xid, self._events, self._skipped = lsn, None, 0, None
                if records:  # the last record of a transaction says that it is whole
                    records[-1].source_offset = {"lsn": lsn}
            case "I" | "U" | "D":
                self._events += 1
                if self._skipped is not None and self._skipped[0] == self._xid and self._events <= self._skipped[1]:
                    return
                if self._chosen(change["schema"], change["table"]):
                    offset = {"lsn": self._lsn, "txId": self._xid, "events": self._events}
                    records += self._recorder.records(self._change(change, lsn), self._partition, offset)

    def _change(self, change: Mapping[str, Any], lsn: int) -> Change:
        table, identity = self._table(change), change.get("identity")
        op = _OPS[change["action"]]
        before = None if identity is None else self._row(table, identity)
        known = {} if before is None or identity is None else {each["name"]: before.get(each["name"]) for each in identity}
        if before is not None and not table.names_keys_alone and len(known) < len(table.fields):
            table = naming_keys_alone(table)  # its REPLICA IDENTITY has changed
        after = None if op == "d" else self._row(table, change["columns"], known)
        source = {"schema": table.schema, "table": table.name, "txId": self._xid, "lsn": lsn}
        return Change(table, op, before, after, self._ts_ms, source)

    def _table(self, change: Mapping[str, Any]) -> CapturedTable:
        """The table, looked up again when its columns are other ones."""
        name = change["schema"], change["table"]
        columns = tuple([(each["name"], each["type"]) for each in change.get("columns", ())])
        known = self._seen.get((name, columns))
        if known is None:
            signature = dict(columns)
            before = self._signatures.get(name, {})
            fewer = change["action"] == "I" and len(columns) < len(before)  # an update leaves out large values that are as before
            other = fewer or any(before.get(column) != kind for column, kind in columns)
            if other:  # or the first time: the table may have changed since the snapshot
                self._catalog.forget(*name)
                self._seen = {key: table for key, table in self._seen.items() if key[0] != name}
                before = {}
            self._signatures[name] = {**before, **signature}
            with retriable(self._engine_.url):
                known = self._seen[name, columns] = self._catalog.table(*name)
        return known

    @property
    def _engine_(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _row(self, table: CapturedTable, columns: Sequence[Mapping[str, Any]], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A row of wal2json's columns.

        Args:
            known: For a row after a change: columns of the row before.  A large value that did not change is left out of ``columns``.
        """
        given = {
            each["name"]: _value(each) if type(each["value"]) is Decimal or each["type"] == "bytea" else each["value"] for each in columns
        }
        row = rows_of(table.fields, [[given.get(each.name) for each in table.fields]])[0]
        if known is None:
            return row
        placeholder = self._config["unavailable.value.placeholder"]
        for each in [each for each in table.fields if each.name not in given]:
            if each.name in known:
                row[each.name] = known[each.name]
            elif each.schema.type == "string" and each.name not in table.keys:
                row[each.name] = placeholder
            elif each.schema.type == "bytes" and each.schema.name is None:
                row[each.name] = placeholder.encode()
        return row

    def _pause(self, seconds: float) -> None:
        """Wait for the server's next message, so that a change arrives at once."""
        if self._cursor is None:
            self.context.wait(seconds)
            return
        with suppress(OSError, ValueError, psycopg2.Error):
            select.select([self._cursor], [], [], min(seconds, 0.5))

    # ------------------------------------------------------------ what the server may forget

    def commit(self) -> None:
        """Records are stored up to the last whole transaction: the server may forget it."""
        if self._snapshot is None:
            self._confirm(self._lsn)

    def _confirm_idle(self) -> None:
        """Confirm changes of other tables and databases, too: the WAL would be kept for them."""
        if self._xid is None and self._cursor is not None and self._is_idle and self._cursor.wal_end > self._lsn:
            self._confirm(self._cursor.wal_end)
        self._is_idle = True

    def _confirm(self, lsn: int) -> None:
        if self._cursor is not None and lsn > self._stored_lsn:
            with suppress(psycopg2.Error):
                self._cursor.send_feedback(write_lsn=lsn, flush_lsn=lsn, reply=False, force=True)
                self._stored_lsn = lsn


class PostgresConnector(CaptureConnector):
    """Captures tables of a PostgreSQL database."""

    config_def: ClassVar[ConfigDef] = POSTGRESQL
    task_class: ClassVar[type] = PostgresCaptureTask


def _value(column: Mapping[str, Any]) -> Any:
    value = column["value"]
    if value is None:
        return None
    kind = column["type"]
    if kind == "bytea":
        return bytes.fromhex(value)
    if isinstance(value, Decimal) and not kind.startswith("numeric"):
        return float(value)
    return value


def _number(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _milliseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
