"""Changes as records: plain rows, or Debezium's envelope; keys, topics, schemas.  And the settings that all captures share.

The plain form is a table as a topic: the key is the primary key, the value is the row, null where it was deleted, and the header
``op`` says how it came: r (read by the snapshot), c (created), u (updated), d (deleted).
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least
from logdb_connect.connectors.sql.columns import ColumnField, struct_of
from logdb_connect.data import OPTIONAL_STRING, STRING, Field, Header, Schema, SourceRecord, struct

Op = Literal["r", "c", "u", "d"]

SNAPSHOT_MODES = ("initial", "always", "initial_only", "no_data", "never")

COMMON = ConfigDef(
    ConfigKey("topic.prefix", "STRING", REQUIRED, "First part of topic names: `PREFIX.SCHEMA.TABLE`.", "HIGH", group="Output"),
    ConfigKey(
        "table.include.list",
        "LIST",
        (),
        "Expressions of tables to capture; each matches all of `SCHEMA.TABLE`. Empty: all.",
        "HIGH",
        group="Tables",
    ),
    ConfigKey("table.exclude.list", "LIST", (), "Expressions of tables to leave out.", "HIGH", group="Tables"),
    ConfigKey(
        "snapshot.mode",
        "STRING",
        "initial",
        "Snapshot at the first start (`initial`), at each start (`always`), alone (`initial_only`), or none (`no_data`, `never`).",
        "HIGH",
        values=SNAPSHOT_MODES,
        group="Snapshot",
    ),
    ConfigKey("snapshot.fetch.size", "INT", 2000, "Rows of one poll of the snapshot.", "LOW", at_least(1), group="Snapshot"),
    ConfigKey(
        "envelope",
        "BOOLEAN",
        None,
        "Debezium's envelope (`before`, `after`, `source`, `op`, `ts_ms`) instead of the row. "
        "Default: true if `connector.class` is Debezium's name.",
        "HIGH",
        group="Output",
    ),
    ConfigKey("tombstones.on.delete", "BOOLEAN", True, "After the envelope of a delete, a record with a null value.", group="Output"),
    ConfigKey("max.batch.size", "INT", 2048, "Changes of one poll.", "LOW", at_least(1), group="Output"),
    ConfigKey("poll.interval.ms", "LONG", 500, "Pause when there are no changes.", "LOW", at_least(1), group="Output"),
)
HOST = ConfigDef(
    ConfigKey("database.hostname", "STRING", REQUIRED, "Host of the database.", "HIGH", group="Connection"),
    ConfigKey("database.user", "STRING", REQUIRED, "User that may replicate.", "HIGH", group="Connection"),
    ConfigKey("database.password", "PASSWORD", None, "Password of the user.", "HIGH", group="Connection"),
)
UNAVAILABLE = ConfigKey(
    "unavailable.value.placeholder",
    "STRING",
    "__debezium_unavailable_value",
    "Value of a large column that did not change, where the table's REPLICA IDENTITY is not FULL.",
    "LOW",
    group="Output",
)


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table, as its records have it.

    Attributes:
        keys: Columns of the primary key; empty where there is none: records then have no key.
        names_keys_alone: ``before`` of a change may have the key alone: its other fields are optional.
    """

    schema: str
    name: str
    topic: str
    fields: Sequence[ColumnField]
    keys: Sequence[str]
    value_schema: Schema
    key_schema: Schema | None
    envelope_schema: Schema
    names_keys_alone: bool = False


def captured_table(
    topic_prefix: str,
    source: Schema,
    schema: str,
    name: str,
    fields: Sequence[ColumnField],
    keys: Sequence[str],
    *,
    names_keys_alone: bool = False,
) -> CapturedTable:
    """A table with its schemas.

    Args:
        source: Of the envelope's field ``source``.
        names_keys_alone: See ``CapturedTable``.
    """
    topic = f"{topic_prefix}.{schema}.{name}"
    row = struct_of(f"{topic}.Value", fields)
    by_name = {each.name: each.schema for each in fields}
    key = Schema(type="struct", name=f"{topic}.Key", fields=tuple(Field(each, by_name[each].replace(optional=False)) for each in keys))
    envelope = struct(
        f"{topic}.Envelope",
        before=(_of_key(f"{topic}.Before", row, keys) if names_keys_alone else row).replace(optional=True),
        after=row.replace(optional=True),
        source=source,
        op=STRING,
        ts_ms=Schema(type="int64", optional=True),
    )
    return CapturedTable(schema, name, topic, fields, keys, row, key if keys else None, envelope, names_keys_alone)


def _of_key(name: str, row: Schema, keys: Sequence[str]) -> Schema:
    """Of a row of which the key alone is known.  Avro has one schema for each name, so it has a name of its own."""
    fields = [each if each.name in keys else Field(each.name, each.schema.replace(optional=True)) for each in row.fields]
    return Schema(type="struct", name=name, fields=tuple(fields))


def naming_keys_alone(table: CapturedTable) -> CapturedTable:
    """The table, for changes that name the key alone."""
    fields = [each.schema for each in table.envelope_schema.fields if each.name == "source"]
    prefix = table.topic.removesuffix(f".{table.schema}.{table.name}")
    return captured_table(prefix, fields[0], table.schema, table.name, table.fields, table.keys, names_keys_alone=True)


def source_schema(connector: str, **fields: Schema) -> Schema:
    """The schema of the envelope's ``source``: common fields, and those of one kind of database."""
    number = Schema(type="int64")
    common = {"version": STRING, "connector": STRING, "name": STRING, "ts_ms": number, "snapshot": OPTIONAL_STRING, "db": STRING}
    listed = tuple(Field(name, schema) for name, schema in {**common, **fields}.items())
    return Schema(type="struct", name=f"io.debezium.connector.{connector}.Source", fields=listed)


@dataclass(frozen=True, slots=True)
class Change:
    """One row that changed; ``source`` are the fields of ``source_schema`` that are not common to all."""

    table: CapturedTable
    op: Op
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    ts_ms: int
    source: Mapping[str, Any]


class Recorder:
    """Makes records of changes."""

    def __init__(self, config: Mapping[str, Any], connector_class: str, connector: str, database: str) -> None:
        given: bool | None = config["envelope"]
        self._envelope = connector_class.startswith("io.debezium.") if given is None else given
        self._tombstones: bool = config["tombstones.on.delete"]
        self._common = {"version": "logdb", "connector": connector, "name": config["topic.prefix"], "db": database}

    def records(self, change: Change, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> list[SourceRecord]:
        """The records of a change.  A row that got another key is deleted under the old one, as Debezium has it."""
        key = self._key(change.table, change.after if change.op != "d" else change.before)
        if change.op == "u" and change.before is not None and change.table.keys:
            old = self._key(change.table, change.before)
            if None not in old.values() and old != key:
                gone = Change(change.table, "d", change.before, None, change.ts_ms, change.source)
                new = Change(change.table, "c", None, change.after, change.ts_ms, change.source)
                return self._records(gone, old, partition, offset) + self._records(new, key, partition, offset)
        return self._records(change, key, partition, offset)

    def _records(
        self, change: Change, key: Mapping[str, Any], partition: Mapping[str, Any], offset: Mapping[str, Any]
    ) -> list[SourceRecord]:
        table = change.table
        if self._envelope:
            records = [self._record(change, key, partition, offset, self._whole(change), table.envelope_schema)]
            if change.op == "d" and self._tombstones and table.keys:
                records.append(self._record(change, key, partition, offset, None, None))
            return records
        schema = None if change.after is None else table.value_schema
        return [self._record(change, key, partition, offset, change.after, schema, _HEADERS[change.op])]

    def _whole(self, change: Change) -> dict[str, Any]:
        """The envelope."""
        snapshot = "true" if change.op == "r" else "false"
        return {
            "before": change.before,
            "after": change.after,
            "source": {**self._common, "ts_ms": change.ts_ms, "snapshot": snapshot, **change.source},
            "op": change.op,
            "ts_ms": time.time_ns() // 1_000_000,
        }

    @staticmethod
    def _record(
        change: Change,
        key: Mapping[str, Any],
        partition: Mapping[str, Any],
        offset: Mapping[str, Any],
        value: Mapping[str, Any] | None,
        value_schema: Schema | None,
        headers: Sequence[Header] = (),
    ) -> SourceRecord:
        return SourceRecord(
            source_partition=partition,
            source_offset=offset,
            topic=change.table.topic,
            key=key if change.table.keys else None,
            key_schema=change.table.key_schema,
            value=value,
            value_schema=value_schema,
            headers=headers,
            timestamp_ms=change.ts_ms,
        )

    @staticmethod
    def _key(table: CapturedTable, row: Mapping[str, Any] | None) -> dict[str, Any]:
        return {name: row.get(name) for name in table.keys} if row else dict.fromkeys(table.keys)


_HEADERS = {op: (Header("op", op, STRING),) for op in "rcud"}


class Chosen:
    """Which tables ``table.include.list`` and ``table.exclude.list`` choose."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._include = [re.compile(each, re.IGNORECASE) for each in config["table.include.list"]]
        self._exclude = [re.compile(each, re.IGNORECASE) for each in config["table.exclude.list"]]
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, schema: str, table: str) -> bool:
        known = self._known.get((schema, table))
        if known is None:
            known = self._known[schema, table] = self._matches(f"{schema}.{table}")
        return known

    def _matches(self, name: str) -> bool:
        if any(each.fullmatch(name) for each in self._exclude):
            return False
        return not self._include or any(each.fullmatch(name) for each in self._include)


def expression_faults(config: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the lists of tables."""
    faults = {}
    for name in ("table.include.list", "table.exclude.list"):
        for each in config[name]:
            try:
                re.compile(each)
            except re.error as error:
                faults[name] = f"{each} is no regular expression: {error}"
    if config["table.include.list"] and config["table.exclude.list"]:
        faults["table.exclude.list"] = "table.include.list and table.exclude.list are exclusive"
    return faults
