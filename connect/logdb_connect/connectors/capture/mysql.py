"""Changes of MySQL and MariaDB by the binary log, as a replica reads it (mysql-replication).

The log must have whole rows and the names of their columns: ``binlog_format=ROW``, ``binlog_row_image=FULL``, ``binlog_row_metadata=FULL``.

An offset is the end of the last whole transaction (``file``, ``pos``), how many row events of the next one are stored (``event``),
and how many rows of the event after them (``row``).  A task reads the transaction again from its begin, and leaves those out.
"""

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import quote

import pymysql
from pymysql.constants import CR
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, HeartbeatLogEvent, MariadbGtidEvent, QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from sqlalchemy import Connection, Engine, text

from logdb_connect.config import ConfigDef, ConfigKey, revealed
from logdb_connect.connectors.capture.events import COMMON, HOST, CapturedTable, Change, Chosen, Op, Recorder, source_schema
from logdb_connect.connectors.capture.snapshot import Catalog, rows_at_a_time
from logdb_connect.connectors.capture.task import CaptureConnector, CaptureTask, Offset
from logdb_connect.connectors.sql.columns import rows_of
from logdb_connect.connectors.sql.connection import engine_of, retriable
from logdb_connect.data import OPTIONAL_STRING, STRING, Schema, SourceRecord
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties

_log = logging.getLogger(__name__)

MYSQL = (
    HOST
    + ConfigDef(
        ConfigKey("database.port", "INT", 3306, "Port of the database.", "HIGH", group="Connection"),
        ConfigKey(
            "database.server.id",
            "LONG",
            5401,
            "Number of the connector among the replicas: its own, on the whole server.",
            "HIGH",
            group="Replication",
        ),
        ConfigKey("database.include.list", "LIST", (), "Databases to capture; empty: all.", "HIGH", group="Tables"),
        ConfigKey("database.exclude.list", "LIST", (), "Databases to leave out.", group="Tables"),
    )
    + COMMON
)

_SOURCE = source_schema(
    "mysql",
    table=STRING,
    server_id=Schema(type="int64"),
    gtid=OPTIONAL_STRING,
    file=STRING,
    pos=Schema(type="int64"),
    row=Schema(type="int32"),
)
_EVENTS = [
    WriteRowsEvent,
    UpdateRowsEvent,
    DeleteRowsEvent,
    XidEvent,
    QueryEvent,
    GtidEvent,
    MariadbGtidEvent,
    HeartbeatLogEvent,
    RotateEvent,
]
_OPS: dict[type, Op] = {WriteRowsEvent: "c", UpdateRowsEvent: "u", DeleteRowsEvent: "d"}
_WANTED = {"log_bin": ("ON", "1"), "binlog_format": ("ROW",), "binlog_row_image": ("FULL",), "binlog_row_metadata": ("FULL",)}
_reader: Any = BinLogStreamReader  # it ships no types
_LOST = 1236
_STANDALONE = 1  # of a GTID of MariaDB: no transaction, but one statement
_ENDS = ("COMMIT", "ROLLBACK")
_INSIDE = ("SAVEPOINT", "ROLLBACK TO", "RELEASE")


class MySqlCaptureTask(CaptureTask):
    """Reads one binary log."""

    config_def = MYSQL

    _engine: Engine | None = None
    _stream: Any = None

    def _connect(self, properties: Properties) -> Recorder:
        config = self._config
        self._where = {
            "host": config["database.hostname"],
            "port": config["database.port"],
            "user": config["database.user"],
            "password": revealed(config["database.password"]) or "",
            "connect_timeout": 10,
        }
        url = f"mysql://{quote(config['database.hostname'])}:{config['database.port']}/"
        login = {"connection.user": config["database.user"], "connection.password": config["database.password"]}
        self._engine = engine_of({"connection.url": url, **login}, writes=False)
        tables, included, excluded = Chosen(config), config["database.include.list"], config["database.exclude.list"]
        self._chosen: Callable[[str, str], bool] = lambda schema, table: (
            (not included or schema in included) and schema not in excluded and tables(schema, table)
        )
        self._catalog = Catalog(self._engine, config["topic.prefix"], _SOURCE, self._chosen)
        with retriable(self._engine.url), self._engine.connect() as connection:
            self._is_mariadb = "MariaDB" in str(connection.scalar(text("SELECT version()")))
            for name, allowed in _WANTED.items():
                value = connection.exec_driver_sql(f"SHOW VARIABLES LIKE '{name}'").fetchone()
                if value is None or str(value[1]).upper() not in allowed:
                    given = "missing" if value is None else value[1]
                    raise ConnectError(
                        f"{name} of the server is {given}: it must be {allowed[0]}, for whole rows with the names of columns"
                    )
        return Recorder(config, properties.get("connector.class", ""), "mysql", "")

    def stop(self) -> None:
        self._close_stream()
        self._snapshot = None
        if self._engine is not None:
            self._engine.dispose()

    def _reset(self, offset: Offset) -> None:
        """Continue behind an offset."""
        self._resume = offset
        self._file, self._pos = str(offset["file"]), int(offset["pos"])  # the end of the last whole transaction
        self._given = int(offset.get("event", 0)), int(offset.get("row", 0))
        self._gtid: str | None = offset.get("gtid")
        self._event = 0  # of the transaction
        self._in_transaction = False
        self._rest: list[tuple[Change, Offset]] = []

    # ------------------------------------------------------------ snapshot

    def _begin_snapshot(self, *, with_rows: bool) -> None:
        self._snapshot = self._rows(with_rows=with_rows)

    def _rows(self, *, with_rows: bool) -> Iterator[Sequence[Change]]:
        """The rows at one position of the log."""
        assert self._engine is not None
        with self._engine.connect() as plain:
            connection = plain.execution_options(isolation_level="REPEATABLE READ")
            file, pos = self._consistent(connection)
            self._snapshot_position = {"file": file, "pos": pos}
            ts_ms = time.time_ns() // 1_000_000
            for table in self._catalog.chosen() if with_rows else ():
                source = self._source(table, 0, file, pos, None)
                for rows in rows_at_a_time(connection, table, self._config["snapshot.fetch.size"]):
                    yield [Change(table, "r", None, row, ts_ms, source) for row in rows]
            connection.rollback()

    def _consistent(self, connection: Connection) -> tuple[str, int]:
        """Begin a transaction, and say which position of the log it sees.  MySQL, unlike MariaDB, needs a lock for this moment."""
        if self._is_mariadb:
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            found = {str(name).lower(): value for name, value in connection.execute(text("SHOW STATUS LIKE 'binlog_snapshot_%'"))}
            return str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])
        connection.exec_driver_sql("FLUSH TABLES WITH READ LOCK")
        try:
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            try:
                file, pos, *_ = connection.exec_driver_sql("SHOW BINARY LOG STATUS").one()
            except pymysql.Error:
                file, pos, *_ = connection.exec_driver_sql("SHOW MASTER STATUS").one()
        finally:
            connection.exec_driver_sql("UNLOCK TABLES")
        return str(file), int(pos)

    def _snapshot_ended(self) -> None:
        self._reset(self._snapshot_position)

    def _continue(self, offset: Offset) -> None:
        self._reset(offset)

    # ------------------------------------------------------------ changes

    def _changes(self) -> list[SourceRecord]:
        """The next changes; waits for them as long as a heartbeat takes."""
        try:
            if self._stream is None:
                self._open_stream()
            records = self._read()
        except pymysql.Error as error:
            self._close_stream()
            self._reset(self._resume)  # what this poll has read is read again
            number = error.args[0] if error.args else None
            reason = " ".join(map(str, error.args))
            if number == _LOST:
                raise ConnectError(
                    f"The server no longer has its log from {self._file}:{self._pos} on: {reason}. "
                    "Delete the connector's offsets for a new snapshot, or set snapshot.mode=always"
                ) from error
            if isinstance(error, pymysql.OperationalError | pymysql.InterfaceError | pymysql.InternalError):
                raise RetriableError(f"The binary log cannot be read now: {reason}. Retry is safe.") from error
            raise ConnectError(f"The binary log cannot be read: {reason}") from error
        except (OSError, EOFError, RetriableError) as error:
            self._close_stream()
            self._reset(self._resume)
            raise RetriableError(f"The binary log cannot be read now: {error}. Retry is safe.") from error
        if not self._in_transaction and not self._rest:
            self._resume = self._offset()
        elif records:
            self._resume = records[-1].source_offset
        return records

    def _open_stream(self) -> None:
        """Read from the end of the last whole transaction."""
        self._stream = _reader(
            connection_settings=self._where,
            server_id=self._config["database.server.id"],
            only_events=_EVENTS,
            resume_stream=True,
            blocking=True,
            log_file=self._file,
            log_pos=self._pos,
            slave_heartbeat=max(0.02, self._config["poll.interval.ms"] / 1000),
            enable_logging=False,
            pymysql_wrapper=_connections(),
        )

    def _close_stream(self) -> None:
        if (stream := self._stream) is not None:
            self._stream = None
            with suppress(pymysql.Error, OSError):
                stream.close()

    def _read(self) -> list[SourceRecord]:
        records: list[SourceRecord] = []
        limit = self._config["max.batch.size"]
        while len(records) < limit:
            while self._rest and len(records) < limit:
                change, offset = self._rest.pop(0)
                records += self._recorder.records(change, self._partition, offset)
            if self._rest:
                break
            event = self._stream.fetchone()
            if event is None or isinstance(event, HeartbeatLogEvent):
                break
            self._take(event, records)
        return records

    def _take(self, event: Any, records: list[SourceRecord]) -> None:
        match event:
            case RowsEvent():
                self._in_transaction = True
                self._take_rows(event)
            case XidEvent():
                self._boundary(records)
            case QueryEvent():
                query = event.query.lstrip().upper()
                if query.startswith("BEGIN"):
                    self._in_transaction = True
                elif not query.startswith(_INSIDE) and (query.startswith(_ENDS) or not self._in_transaction):
                    self._boundary(records)
                    self._catalog.forget_all()  # a table may have other columns
            case MariadbGtidEvent() | GtidEvent():
                self._gtid = event.gtid
                self._in_transaction = not (isinstance(event, MariadbGtidEvent) and event.flags & _STANDALONE)
            case RotateEvent() if not self._in_transaction:
                self._file, self._pos = str(self._stream.log_file), int(self._stream.log_pos)

    def _boundary(self, records: list[SourceRecord]) -> None:
        """A transaction ends here."""
        self._file, self._pos = str(self._stream.log_file), int(self._stream.log_pos)
        self._event, self._given, self._in_transaction = 0, (0, 0), False
        if records:
            records[-1].source_offset = self._offset()

    def _offset(self, event: int = 0, row: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = {"file": self._file, "pos": self._pos}
        if event or row:
            found |= {"event": event, "row": row}
        return found if self._gtid is None else {**found, "gtid": self._gtid}

    def _take_rows(self, event: Any) -> None:
        number = self._event
        self._event += 1
        skipped_events, skipped_rows = self._given
        if number < skipped_events or not self._chosen(event.schema, event.table):
            return
        with retriable(self._engine_.url):
            table = self._catalog.table(event.schema, event.table)
        op = _OPS[type(event)]
        rows: list[dict[str, Any]] = event.rows
        skip = skipped_rows if number == skipped_events else 0
        for index, row in enumerate(rows[skip:], skip):
            before, after = (row.get("before_values"), row.get("after_values")) if op == "u" else (None, row["values"])
            if op == "d":
                before, after = after, None
            offset = self._offset(number, index + 1) if index + 1 < len(rows) else self._offset(number + 1)
            source = self._source(table, event.packet.server_id, self._file, self._pos, self._gtid, index)
            change = Change(table, op, self._row(table, before), self._row(table, after), event.timestamp * 1000, source)
            self._rest.append((change, offset))

    @property
    def _engine_(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _source(self, table: CapturedTable, server: int, file: str, pos: int, gtid: str | None, row: int = 0) -> dict[str, Any]:
        return {"db": table.schema, "table": table.name, "server_id": server, "gtid": gtid, "file": file, "pos": pos, "row": row}

    @staticmethod
    def _row(table: CapturedTable, values: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if values is None:
            return None
        return rows_of(table.fields, [[_plain(values.get(each.name)) for each in table.fields]])[0]

    def _pause(self, seconds: float) -> None:
        """The log itself waits for changes."""


class MySqlConnector(CaptureConnector):
    """Captures tables of a MySQL or MariaDB server."""

    config_def: ClassVar[ConfigDef] = MYSQL
    task_class: ClassVar[type] = MySqlCaptureTask


class MariaDbConnector(MySqlConnector):
    """The same: the server says which one it is."""


def _connections() -> Callable[..., Any]:
    """Makes the connections of one reader: one for the log, and some for questions, which name a database.

    A reader whose connection broke would connect again where it is, amid a transaction: a new reader begins before it.
    """
    count = itertools.count()

    def connect(*, db: str | None = None, **settings: Any) -> Any:
        if db is None and next(count):
            raise pymysql.OperationalError(CR.CR_SERVER_LOST, "the connection broke")
        return pymysql.connect(**settings, **({} if db is None else {"database": db}))

    return connect


def _plain(value: Any) -> Any:
    """A value as a query gives it: JSON is text, a SET is its names."""
    if isinstance(value, set):
        return ",".join(sorted(value))
    if isinstance(value, dict | list):
        return json.dumps(_text(value), ensure_ascii=False)
    return value


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_text(key): _text(each) for key, each in value.items()}
    return [_text(each) for each in value] if isinstance(value, list) else value
