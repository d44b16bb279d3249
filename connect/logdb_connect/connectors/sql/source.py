"""A source of tables or of a query: incrementing column, timestamp column, both, or bulk (Confluent's ``JdbcSourceConnector``).

One poll is one query of one table, at most ``batch.max.rows`` rows beside those of the same moment.  No query stays open between polls.
A batch ends where no row of the same position is left, so that a task continues exactly behind the last committed batch.
"""

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import sqlalchemy
from sqlalchemy import Engine

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least
from logdb_connect.connectors.sql.connection import CONNECTION, engine_of, reason, retriable, url_fault
from logdb_connect.connectors.sql.queries import Cursor, QueryReader, Reader, TableReader
from logdb_connect.connectors.sql.settings import check_offsets, connected, zone_fault
from logdb_connect.data import SourceBatch
from logdb_connect.errors import ConnectError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

_log = logging.getLogger(__name__)

MODES = ("bulk", "timestamp", "incrementing", "timestamp+incrementing")
MAPPINGS = ("none", "precision_only", "best_fit", "best_fit_eager_double")

SOURCE = CONNECTION + ConfigDef(
    ConfigKey(
        "mode",
        "STRING",
        REQUIRED,
        "Detection of new rows: all rows at each poll (`bulk`), by a growing column, by a column of the last change, or by both.",
        "HIGH",
        values=MODES,
        group="Mode",
    ),
    ConfigKey("incrementing.column.name", "STRING", "", "The growing column; empty: the table's own auto-increment column.", group="Mode"),
    ConfigKey("timestamp.column.name", "LIST", (), "Columns of the last change; the first that is not null counts.", group="Mode"),
    ConfigKey("timestamp.initial", "LONG", None, "Begin at this time, in milliseconds since 1970; `-1`: now.", "LOW", group="Mode"),
    ConfigKey("timestamp.delay.interval.ms", "LONG", 0, "Rows younger than this wait, for transactions that commit late.", group="Mode"),
    ConfigKey("validate.non.null", "BOOLEAN", True, "Refuse columns of the mode that allow null.", "LOW", group="Mode"),
    ConfigKey("query", "STRING", "", "Read this query, instead of tables. The topic is `topic.prefix`.", group="Mode"),
    ConfigKey("query.suffix", "STRING", "", "Text at the end of each query.", "LOW", group="Mode"),
    ConfigKey("table.whitelist", "LIST", (), "Tables to read: `orders` or `shop.orders`; empty: all.", group="Tables"),
    ConfigKey("table.blacklist", "LIST", (), "Tables to leave out.", group="Tables"),
    ConfigKey("schema.pattern", "STRING", None, "Schema of the tables; default: the user's.", group="Tables"),
    ConfigKey("table.types", "LIST", ["TABLE"], "Kinds of tables.", "LOW", values=("TABLE", "VIEW"), group="Tables"),
    ConfigKey("table.poll.interval.ms", "LONG", 60_000, "Interval of looking for new tables.", "LOW", at_least(1), group="Tables"),
    ConfigKey("topic.prefix", "STRING", "", "Prefix of topics: `topic.prefix` and the table's name.", "HIGH", group="Output"),
    ConfigKey("poll.interval.ms", "INT", 5000, "Interval of polls of one table.", "HIGH", at_least(0), group="Output"),
    ConfigKey("batch.max.rows", "INT", 100, "Rows of one poll.", "LOW", at_least(1), group="Output"),
    ConfigKey("numeric.mapping", "STRING", "none", "Whether decimals become integers and floats where they fit.", "LOW", values=MAPPINGS),
)


class JdbcSourceTask(SourceTask):
    """Reads some tables, or a query, in turn."""

    _engine: Engine | None = None

    def start(self, properties: Properties) -> None:
        config = SOURCE.parse(properties)
        if faults := _faults(config):
            raise ConnectError("; ".join(faults.values()))
        self._engine = engine_of(config, writes=False)
        connected(self._engine, config, self.context.wait)
        self._interval = config["poll.interval.ms"] / 1000
        self._readers: list[Reader] = []
        self._due: dict[int, float] = {}
        names: list[Sequence[str | None]] = json.loads(properties.get("tables", "[]"))
        with retriable(self._engine.url):
            if config["query"]:
                self._readers.append(QueryReader(self._engine, config))
            for schema, table in names:
                assert table is not None
                self._readers.append(TableReader(self._engine, config, schema, table))
        for reader in self._readers:
            reader.cursor = Cursor.of(self.context.offset(reader.partition), config)

    def poll(self) -> SourceBatch | None:
        assert self._engine is not None
        now = time.monotonic()
        place = min(range(len(self._readers)), key=lambda each: self._due.get(each, 0.0), default=None)
        if place is None or (wait := self._due.get(place, 0.0) - now) > 0:
            self.context.wait(min(wait, 0.5) if place is not None else 0.5)
            return None
        reader = self._readers[place]
        with retriable(self._engine.url):
            batch = reader.read()
        if batch is None or not reader.has_more:
            self._due[place] = time.monotonic() + self._interval
        else:
            self._due[place] = now  # the others come first, if they are due
        return batch

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()


class JdbcSourceConnector(SourceConnector):
    """Reads tables into topics.  A thread looks for new tables."""

    config_def: ClassVar[ConfigDef] = SOURCE
    task_class: ClassVar[type] = JdbcSourceTask

    _engine: Engine | None = None

    def start(self, properties: Properties) -> None:
        super().start(properties)
        self._config = SOURCE.parse(properties)
        self._engine = engine_of(self._config, writes=False)
        self._stopped = threading.Event()
        self._tables: list[tuple[str | None, str]] | None = None
        if not self._config["query"]:
            threading.Thread(target=self._watch, name=f"tables of {properties.get('name', 'a connector')}", daemon=True).start()

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        assert self._engine is not None
        if self._config["query"]:
            return [self._properties]
        if self._tables is None:
            connected(self._engine, self._config, self._stopped.wait)
            self._tables = self._found()
        self._warn(self._tables)
        if not self._tables:
            return []
        count = min(max_tasks, len(self._tables))
        least, more = divmod(len(self._tables), count)
        configs, start = [], 0
        for index in range(count):
            end = start + least + (index < more)
            configs.append({**self._properties, "tables": json.dumps(self._tables[start:end])})
            start = end
        return configs

    def validate(self, properties: Properties) -> Mapping[str, str]:
        return _faults(SOURCE.parse(properties))

    def exactly_once(self, properties: Properties) -> bool:
        return str(SOURCE.parse(properties)["mode"]) != "bulk"

    def alter_offsets(self, properties: Properties, offsets: Mapping[str, Any]) -> None:
        check_offsets(offsets, ("table", "query"), ("incrementing", "timestamp", "timestamp_nanos"))

    def stop(self) -> None:
        if self._engine is not None:
            self._stopped.set()
            self._engine.dispose()

    def _found(self) -> list[tuple[str | None, str]]:
        """The tables that the settings choose, sorted."""
        assert self._engine is not None
        config = self._config
        inspector = sqlalchemy.inspect(self._engine)
        own: str | None = config["schema.pattern"] or (inspector.default_schema_name if self._engine.dialect.name != "sqlite" else None)
        wanted, left_out = config["table.whitelist"], set(config["table.blacklist"])
        names: set[tuple[str | None, str]] = set()
        for schema in {own, *(each.rpartition(".")[0] for each in wanted if "." in each and self._engine.dialect.name != "sqlite")}:
            kinds = {"TABLE": inspector.get_table_names, "VIEW": inspector.get_view_names}
            names |= {(schema, name) for kind in config["table.types"] for name in kinds[kind](schema=schema)}
        chosen = [
            (schema, name)
            for schema, name in names
            if (not wanted or f"{schema}.{name}" in wanted or (schema == own and name in wanted))
            and not {name, f"{schema}.{name}"} & left_out
        ]
        return sorted(chosen, key=lambda each: (each[0] or "", each[1]))

    def _warn(self, found: Sequence[tuple[str | None, str]]) -> None:
        """Name the tables of ``table.whitelist`` that the database does not have."""
        known = {text for schema, name in found for text in (name, f"{schema}.{name}")}
        missing = [name for name in self._config["table.whitelist"] if name not in known]
        name, interval_ms = self._properties.get("name"), self._config["table.poll.interval.ms"]
        if missing:
            names = ", ".join(missing)
            _log.warning("%s: the database has no table %s (table.whitelist); it looks again every %s ms", name, names, interval_ms)
        elif not found:
            _log.warning("%s: the database has no table that the settings choose; it looks again every %s ms", name, interval_ms)

    def _watch(self) -> None:
        while not self._stopped.wait(self._config["table.poll.interval.ms"] / 1000):
            try:
                found = self._found()
            except sqlalchemy.exc.SQLAlchemyError as error:
                _log.warning("The database does not list its tables now: %s", reason(error))
                continue
            if self._tables is not None and found != self._tables and not self._stopped.is_set():
                self._tables = found
                self.context.request_task_reconfiguration()


def _faults(config: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with settings together."""
    mode, faults = config["mode"], {**zone_fault(config), **url_fault(config)}
    if "timestamp" in mode and not config["timestamp.column.name"]:
        faults["timestamp.column.name"] = f"mode={mode} needs timestamp.column.name"
    if "incrementing" in mode and config["query"] and not config["incrementing.column.name"]:
        faults["incrementing.column.name"] = f"mode={mode} of a query needs incrementing.column.name"
    if config["query"] and (config["table.whitelist"] or config["table.blacklist"]):
        faults["query"] = "Do not specify table filtering configs with 'query'. Remove table.whitelist and table.blacklist, or query"
    if not config["query"] and config["table.whitelist"] and config["table.blacklist"]:
        faults["table.blacklist"] = "table.whitelist and table.blacklist are exclusive"
    return faults
