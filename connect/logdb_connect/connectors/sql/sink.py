"""A sink into tables: insert, upsert or update; tables are created and extended on request (Confluent's ``JdbcSinkConnector``).

``put`` stores its records in one transaction, with their offsets in ``connect.offsets.table``.  So each record is stored once,
whatever dies at whatever moment.  A record that the database refuses is reported; the others of its batch are stored one by one.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import Column, Connection, Engine, Executable
from sqlalchemy.exc import DataError as RefusedValue
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError

from logdb import TopicPartition
from logdb_connect.config import ConfigDef, ConfigKey, at_least
from logdb_connect.connectors.sql.connection import CONNECTION, engine_of, reason, retriable, url_fault
from logdb_connect.connectors.sql.offsets import DEFAULT_TABLE, StoredOffsets
from logdb_connect.connectors.sql.rows import KAFKA_FIELDS, Convert, Layout, Layouts, conversion, converted, where
from logdb_connect.connectors.sql.settings import connected, zone_fault
from logdb_connect.connectors.sql.statements import delete, update, upsert
from logdb_connect.connectors.sql.tables import Name, Tables, quoted, table_of
from logdb_connect.data import SinkRecord
from logdb_connect.errors import ConnectError, DataError, RetriableError
from logdb_connect.plugin import Properties, SinkConnector, SinkTask
from logdb_connect.spark.settings import RUNNER, faults, on_spark, refuse_offsets

SINK = CONNECTION + ConfigDef(
    ConfigKey(
        "insert.mode",
        "STRING",
        "insert",
        "`insert` adds rows. `upsert` adds a row or replaces the row that has the key. `update` changes the row that has the key.",
        "HIGH",
        values=("insert", "upsert", "update"),
        group="Writes",
    ),
    ConfigKey("batch.size", "INT", 3000, "Rows in one statement.", check=at_least(1), group="Writes"),
    ConfigKey("delete.enabled", "BOOLEAN", False, "A record without value deletes the row. Needs `pk.mode=record_key`.", group="Writes"),
    ConfigKey(
        "connect.offsets.table",
        "STRING",
        DEFAULT_TABLE,
        "Table that keeps offsets beside the rows, for exactly once. Empty: at least once.",
        group="Writes",
    ),
    ConfigKey(
        "table.name.format",
        "STRING",
        "${topic}",
        "Name of the table, with or without its schema; `${topic}` is the topic.",
        group="Data Mapping",
    ),
    ConfigKey(
        "pk.mode",
        "STRING",
        "none",
        "Source of the primary key: nothing, topic, partition and offset (`kafka`), or a part of the record.",
        "HIGH",
        values=("none", "kafka", "record_key", "record_value", "record_header"),
        group="Data Mapping",
    ),
    ConfigKey(
        "pk.fields",
        "LIST",
        (),
        "Fields of the primary key; empty: all. With `kafka`: three column names, `__connect_topic,__connect_partition,__connect_offset`. "
        "For a key without fields: the column name.",
        group="Data Mapping",
    ),
    ConfigKey("fields.whitelist", "LIST", (), "Fields of the value that become columns; empty: all.", group="Data Mapping"),
    ConfigKey("auto.create", "BOOLEAN", False, "Create a table that is missing.", group="DDL Support"),
    ConfigKey("auto.evolve", "BOOLEAN", False, "Add columns that are missing.", group="DDL Support"),
    ConfigKey("max.retries", "INT", 10, "Retries while the database is away. Then the task fails.", check=at_least(0), group="Retries"),
    ConfigKey("retry.backoff.ms", "INT", 3000, "Pause before a retry.", check=at_least(0), group="Retries"),
)

T = TypeVar("T")

_REFUSED_MYSQL = {1048, 1264, 1265, 1292, 1364, 1366, 1406, 3140, 4025}


def _faults(config: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with settings together."""
    mode, fields = config["pk.mode"], config["pk.fields"]
    faults = {**zone_fault(config), **url_fault(config)}
    if (
        config["insert.mode"] in {"upsert", "update"}
        and mode in {"none", "kafka"}
        and not (mode == "kafka" and config["insert.mode"] == "upsert")
    ):
        faults["pk.mode"] = f"insert.mode={config['insert.mode']} needs a primary key: use record_key, record_value or record_header"
    if config["delete.enabled"] and mode != "record_key":
        faults["delete.enabled"] = f"delete.enabled=true needs pk.mode=record_key, not {mode}"
    if mode == "kafka" and fields and len(fields) != len(KAFKA_FIELDS):
        faults["pk.fields"] = f"pk.mode=kafka needs three names, or none for {','.join(KAFKA_FIELDS)}"
    if "${topic}" in config["table.name.format"].replace("${topic}", "", 1):
        faults["table.name.format"] = "${topic} may stand once"
    return faults


class _Target:
    """Statements for one table and one layout, made once; and the rows that wait for them."""

    def __init__(self, name: Name, layout: Layout, matched: Mapping[str, Any], settings: "_Settings") -> None:
        self.layout, self.name = layout, name
        self.has_plain_keys = not any(layout.fields[each].type == "string" for each in layout.keys)  # a collation may take "a" for "A"
        self.fields = [field for field in layout.fields if field in matched]
        self._places = [index for index, field in enumerate(layout.fields) if field in matched]
        self._all = len(self._places) == len(layout.fields)
        self._params = [f"c{index}" for index in range(len(self.fields))]
        columns: list[Column[Any]] = [
            Column(quoted(matched[field][0]), key=param) for field, param in zip(self.fields, self._params, strict=True)
        ]
        table = table_of(name, columns)
        self._keys = self._params[: len(layout.keys)]
        self.conversions: list[Convert | None] = [
            conversion(layout.fields[field], matched[field][1], settings.dialect, settings.zone) for field in self.fields
        ]
        self.is_upsert = settings.mode == "upsert"
        self._delete = delete(table, self._keys) if self._keys else None
        if self.is_upsert:
            self._write: Executable = upsert(table, self._keys, settings.dialect)
        elif settings.mode == "update":
            self._write = update(table, self._keys)
            self._params = [f"key_{each}" if each in self._keys else each for each in self._params]
        else:
            self._write = table.insert()
        self._size = settings.batch_size

    def picked(self, row: list[Any]) -> list[Any]:
        """The values of the columns that the table has."""
        return row if self._all else [row[place] for place in self._places]

    def write(self, connection: Connection, rows: Sequence[list[Any]]) -> None:
        for start in range(0, len(rows), self._size):
            connection.execute(self._write, [dict(zip(self._params, row, strict=True)) for row in rows[start : start + self._size]])

    def delete(self, connection: Connection, keys: Sequence[Sequence[Any]]) -> None:
        names = [f"key_{each}" for each in self._keys]
        assert self._delete is not None
        for start in range(0, len(keys), self._size):
            connection.execute(self._delete, [dict(zip(names, key, strict=True)) for key in keys[start : start + self._size]])


class _Run:
    """Records whose statements may be made together."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._writes: _Target | None = None
        self._deletes: _Target | None = None
        self._rows: list[list[Any]] = []
        self._by_key: dict[tuple[Any, ...], list[Any]] = {}  # PostgreSQL refuses a key that is twice in a statement: the last row counts
        self._deleted: dict[tuple[Any, ...], list[Any]] = {}

    def takes(self, target: _Target) -> bool:
        """Whether a record of ``target`` may follow.  A run deletes before it upserts: keys that are equal must be so here, too."""
        last = self._writes or self._deletes
        if last is None or target is self._writes or target is self._deletes:
            return True
        first_of_kind = (self._writes if target.layout.has_value else self._deletes) is None
        return first_of_kind and target.is_upsert and target.has_plain_keys and last.has_plain_keys and target.name == last.name

    def add(self, record: SinkRecord, target: _Target) -> None:
        row = target.picked(self._layouts.row(record, target.layout))
        if target.layout.has_value and not target.is_upsert:
            self._writes = target
            self._rows.append(row)
            return
        key = _hashable(row[: len(target.layout.keys)])
        self._by_key.pop(key, None)
        if target.layout.has_value:
            self._writes = target
            self._by_key[key] = row
        else:
            self._deletes = target
            self._deleted[key] = row

    def write(self, connection: Connection) -> None:
        if self._deletes is not None:
            keys = list(self._deleted.values())
            converted(keys, self._deletes.conversions)
            self._deletes.delete(connection, keys)
        rows = self._rows or list(self._by_key.values())
        if self._writes is not None and rows:
            converted(rows, self._writes.conversions)
            self._writes.write(connection, rows)


class _Settings:
    """Settings that statements depend on."""

    def __init__(self, config: Mapping[str, Any], dialect: str) -> None:
        self.mode: str = config["insert.mode"]
        self.batch_size: int = config["batch.size"]
        self.dialect = dialect
        self.zone = ZoneInfo(config["db.timezone"])


class JdbcSinkTask(SinkTask):
    """Writes records to tables.  One thread; one transaction for each ``put``."""

    _engine: Engine | None = None

    def start(self, properties: Properties) -> None:
        config = SINK.parse(properties)
        if faults := _faults(config):
            raise ConnectError("; ".join(faults.values()))
        self._config = config
        self._engine = engine_of(config, writes=True)
        self._settings = _Settings(config, self._engine.dialect.name)
        self._tables = Tables(
            self._engine,
            create=config["auto.create"],
            evolve=config["auto.evolve"],
            lower_case=config["quote.sql.identifiers"] == "never",
        )
        self._layouts = Layouts(config)
        self._targets: dict[tuple[str, int], tuple[Layout, _Target]] = {}
        self._failures = 0
        self._stored: StoredOffsets | None = None
        connected(self._engine, config, self.context.wait)
        if table := config["connect.offsets.table"]:
            self._stored = StoredOffsets(self._engine, table, properties["name"])
            self._again(self._stored.create)

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        if self._stored is None or not partitions:
            return
        for partition, offset in self._again(lambda: self._read_offsets(partitions)).items():
            committed = self.context.committed(partition)
            if offset and offset >= (0 if committed is None else committed.offset):  # the worker notices if the log does not have it
                self.context.seek(partition, offset)

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        assert self._engine is not None
        try:
            with retriable(self._engine.url):
                self._put(list(records))  # a worker makes them when they are looked at
        except RetriableError as error:
            self._tables.forget()
            self._targets.clear()
            if self._failures >= self._config["max.retries"]:
                raise ConnectError(f"{error} {self._failures} retries failed (max.retries)") from error
            self._failures += 1
            self.context.wait(self._config["retry.backoff.ms"] / 1000)
            raise
        except DBAPIError as error:
            raise ConnectError(f"The database refused a statement: {reason(error)}") from error
        self._failures = 0

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _again(self, action: Callable[[], T]) -> T:
        """Do something while a task starts, or gets partitions: as often as ``max.retries`` allows."""
        assert self._engine is not None
        for attempt in count(1):
            try:
                with retriable(self._engine.url):
                    return action()
            except RetriableError as error:
                if attempt > self._config["max.retries"]:
                    raise ConnectError(f"{error} {attempt - 1} retries failed (max.retries)") from error
                self.context.wait(self._config["retry.backoff.ms"] / 1000)
        raise AssertionError

    def _read_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        assert self._engine is not None and self._stored is not None
        with self._engine.begin() as connection:
            self._stored.begin(connection, partitions)
            return self._stored.read(connection, partitions)

    def _put(self, records: Sequence[SinkRecord]) -> None:
        """Store all, or each by itself where one is refused."""
        try:
            self._store(records)
        except (DataError, StatementError, ValueError, OverflowError) as error:
            if not _is_of_a_record(error):
                raise
            self._tables.forget()
            self._targets.clear()
            for record in records:
                self._put_one(record)

    def _put_one(self, record: SinkRecord) -> None:
        try:
            self._store([record])
        except (DataError, StatementError, ValueError, OverflowError) as error:
            if not _is_of_a_record(error):
                raise
            said = reason(error)
            self.context.report(record, DataError(said if where(record) in said else f"{where(record)} was refused: {said}"))

    def _store(self, records: Sequence[SinkRecord]) -> None:
        """Store records and their offsets in one transaction; those that are stored already are left out."""
        assert self._engine is not None
        # creates and extends tables: in transactions of their own
        work = [(record, target) for record in records if (target := self._target(record)) is not None]
        with self._engine.begin() as connection:
            if self._stored is not None:
                last = {(record.original_topic, record.original_partition): record.offset for record in records}
                ends = {TopicPartition(*at): offset + 1 for at, offset in last.items()}
                done = self._stored.read(connection, ends, lock=True)
                if missing := ends.keys() - done.keys():
                    self._stored.begin(connection, missing)
                stored = {(at.topic, at.partition): end for at, end in done.items()}
                work = [
                    (record, target)
                    for record, target in work
                    if record.offset >= stored.get((record.original_topic, record.original_partition), 0)
                ]
                if later := {each: end for each, end in ends.items() if end > done.get(each, 0)}:
                    self._stored.write(connection, later)
            self._write(connection, work)

    def _write(self, connection: Connection, work: Sequence[tuple[SinkRecord, _Target]]) -> None:
        """Runs of records of one target, in order; in a run of upserts there may be deletes, too."""
        start = 0
        while start < len(work):
            run = _Run(self._layouts)
            while start < len(work) and run.takes(work[start][1]):
                run.add(*work[start])
                start += 1
            run.write(connection)

    def _target(self, record: SinkRecord) -> _Target | None:
        """Where a record goes; None: it deletes from a table that does not exist."""
        layout = self._layouts.of(record)
        known = self._targets.get((record.topic, id(layout)))
        if known is None:
            name = self._tables.name(self._config["table.name.format"].replace("${topic}", record.topic))
            if not layout.has_value and not self._tables.exists(name):
                return None
            matched = self._tables.prepare(name, layout.fields, layout.keys)
            known = self._targets[record.topic, id(layout)] = (layout, _Target(name, layout, matched, self._settings))
        return known[1]


class JdbcSinkConnector(SinkConnector):
    """Writes topics to tables."""

    config_def: ClassVar[ConfigDef] = SINK + RUNNER
    task_class: ClassVar[type] = JdbcSinkTask
    spark = "sql"

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties] * (1 if on_spark(self._properties) else max_tasks)

    def validate(self, properties: Properties) -> Mapping[str, str]:
        config = self.config_def.parse(properties)
        return {**_faults(config), **faults(config, self.spark)}

    def alter_offsets(self, properties: Properties, offsets: Mapping[TopicPartition, int | None]) -> None:
        refuse_offsets(properties)
        config = SINK.parse(properties)
        if not config["connect.offsets.table"]:
            return
        engine = engine_of(config, writes=True)
        try:
            stored = StoredOffsets(engine, config["connect.offsets.table"], properties["name"])
            with retriable(engine.url):
                stored.create()
                with engine.begin() as connection:
                    stored.remove(connection, [each for each, offset in offsets.items() if offset is None])
                    if kept := {each: offset for each, offset in offsets.items() if offset is not None}:
                        stored.write(connection, kept)
        finally:
            engine.dispose()


def _hashable(key: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(bytes(each) if isinstance(each, bytearray) else each for each in key)


def _is_of_a_record(error: Exception) -> bool:
    """Whether the record is at fault, rather than the database, the table or the settings."""
    if isinstance(error, DBAPIError):
        arguments = error.orig.args if error.orig is not None else ()
        return isinstance(error, IntegrityError | RefusedValue) or bool(arguments and arguments[0] in _REFUSED_MYSQL)
    return True
