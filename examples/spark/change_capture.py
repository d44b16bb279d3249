"""Change data capture: what is inserted, updated and deleted in a table of SQLite or PostgreSQL becomes a compacted topic.

Key and value of a record are JSON: the row's primary key, and the row as it is since then, null where it was deleted.  Each
change comes once, in the order of its commit: a record says in a header which change it is, so a program that was killed goes on
behind the last record of the topic.  `replica.py` makes a table of the topic again.

    python examples/spark/change_capture.py --path db --topic customers --sqlite shop.sqlite --table customers
    python examples/spark/change_capture.py --path db --topic customers --postgres 'host=… dbname=shop' --table public.customers

SQLite: triggers copy each change into a second table; a blob becomes hex digits.  (Where REPLACE removes rows of other keys,
they need `PRAGMA recursive_triggers=on`.)  PostgreSQL: a slot of logical decoding, by wal2json; needs wal_level=logical.
"""

import argparse
import json
import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, Protocol

import logdb

POSITION = "position"  # the header
AT_ONCE = 10_000
FIRST_ROWS = "0/0:0"
NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric")


class Change(NamedTuple):
    position: str
    key: dict[str, Any]
    row: dict[str, Any] | None


class Origin(Protocol):
    def changes(self, after: str | None) -> Iterator[Change]: ...

    def forget(self, until: str) -> None: ...


def capture(db: logdb.Database, topic: str, origin: Origin) -> int:
    """Bring what has changed since the last record of the topic; returns how many changes that were."""
    db.create_topic(topic, config={"cleanup.policy": "compact"}, if_not_exists=True)  # of one partition: one order
    log, count = db.log(topic), 0
    known, end = None, log.end_offset
    for record in log.read(max(log.start_offset, end - 1), end_offset=end):
        known = (dict(record.headers)[POSITION] or b"").decode()
    all_changes = origin.changes(known)
    while changes := list(islice(all_changes, AT_ONCE)):
        rows = [None if change.row is None else _json(change.row) for change in changes]
        headers = [[(POSITION, change.position.encode())] for change in changes]
        keys = [_json(change.key) for change in changes]
        end = log.append_many(rows, keys, headers=headers, expected_offset=end).stop  # fails where another program captures, too
        known, count = changes[-1].position, count + len(changes)
    if known is not None:
        log.flush()
        origin.forget(known)
    return count


def _json(columns: dict[str, Any]) -> bytes:
    return json.dumps(columns, separators=(",", ":"), ensure_ascii=False).encode()


class Sqlite:
    """A table with a primary key; its changes are in `<table>_changes`, in the order in which they were made."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self._connection, self._table, self._log = connection, table, f"{table}_changes"
        described = connection.execute(f"SELECT name, pk FROM pragma_table_info('{table}') ORDER BY cid").fetchall()
        self._columns = [name for name, _ in described]
        self._key = [name for name, place in sorted(described, key=lambda column: column[1]) if place]
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", [self._log]).fetchone():
                self._install()

    def changes(self, after: str | None) -> Iterator[Change]:
        rows = self._connection.execute(f"SELECT * FROM {self._log} WHERE position > ? ORDER BY position", [int(after or 0)])
        for position, deleted, *values in rows:
            row = {name: value.hex() if isinstance(value, bytes) else value for name, value in zip(self._columns, values, strict=True)}
            yield Change(str(position), {name: row[name] for name in self._key}, None if deleted else row)

    def forget(self, until: str) -> None:
        with self._connection:
            self._connection.execute(f"DELETE FROM {self._log} WHERE position <= ?", [int(until)])

    def _install(self) -> None:
        """The second table, with the rows that there are, and the triggers that fill it."""
        columns = ", ".join(f'"{name}"' for name in self._columns)
        self._connection.execute(f"CREATE TABLE {self._log} (position INTEGER PRIMARY KEY AUTOINCREMENT, deleted, {columns})")
        self._connection.execute(f"INSERT INTO {self._log} SELECT NULL, 0, {columns} FROM {self._table}")
        old, new = (", ".join(f'{which}."{name}"' for name in self._columns) for which in ("OLD", "NEW"))
        moved = " OR ".join(f'OLD."{name}" IS NOT NEW."{name}"' for name in self._key)
        for when, statements in {
            "INSERT": f"INSERT INTO {self._log} SELECT NULL, 0, {new};",
            "DELETE": f"INSERT INTO {self._log} SELECT NULL, 1, {old};",
            "UPDATE": f"INSERT INTO {self._log} SELECT NULL, 1, {old} WHERE {moved}; INSERT INTO {self._log} SELECT NULL, 0, {new};",
        }.items():
            self._connection.execute(f"CREATE TRIGGER {self._log}_{when} AFTER {when} ON {self._table} BEGIN {statements} END")


class Postgres:
    """A table with a primary key, by a connection of psycopg with autocommit; its changes are in the slot `logdb_<table>`.

    Values are as wal2json has them: text, but for whole numbers and booleans; numbers with a fraction are text, lest one be rounded.
    """

    def __init__(self, connection: Any, table: str) -> None:
        self._connection, self._table, self._slot = connection, table, "logdb_" + table.replace(".", "_")
        self._types, self._key = self._describe()
        self._seen: str | None = None  # the end of the last transaction, of this table or of others
        if not connection.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [self._slot]).fetchone():
            connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")  # or an update leaves out what is large and as before
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'wal2json')", [self._slot])

    def changes(self, after: str | None) -> Iterator[Change]:
        """Positions are `end of the transaction in the WAL:number of the change`; rows from before the slot have `0/0:0`."""
        done = _order(after or FIRST_ROWS)
        if done == _order(FIRST_ROWS):
            yield from self._first_rows()
        query = "SELECT lsn::text, data FROM pg_logical_slot_peek_changes(%s, NULL, NULL, 'add-tables', %s)"
        for lsn, data in self._connection.execute(query, [self._slot, self._table]):
            states = (state for change in json.loads(data, parse_float=str)["change"] for state in self._states(change))
            for number, (key, row) in enumerate(states, 1):
                if _order(f"{lsn}:{number}") > done:
                    yield Change(f"{lsn}:{number}", key, row)
            self._seen = lsn

    def forget(self, until: str) -> None:  # noqa: ARG002 -- and what other tables did since then
        if self._seen is not None:
            self._connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self._slot, self._seen])

    def _describe(self) -> tuple[dict[str, str], list[str]]:
        """The type of each column, and the names of the primary key's."""
        query = """SELECT attname, atttypid::regtype::text, array_position(indkey::int2[], attnum) FROM pg_attribute
                   LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary
                   WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
        found = self._connection.execute(query, [self._table]).fetchall()
        places = sorted((place, name) for name, _, place in found if place is not None)
        return {name: kind for name, kind, _ in found}, [name for _, name in places]

    def _first_rows(self) -> Iterator[Change]:
        columns = ", ".join(f'"{name}"::text' for name in self._types)
        for values in self._connection.execute(f"SELECT {columns} FROM {self._table}"):
            row = {name: _value(kind, text) for (name, kind), text in zip(self._types.items(), values, strict=True)}
            yield Change(FIRST_ROWS, {name: row[name] for name in self._key}, row)

    def _states(self, change: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        """What one change makes of keys: (key, row), or (key, None) where there is no row of that key any more."""
        old = change.get("oldkeys", {"keynames": [], "keyvalues": []})
        before = dict(zip(old["keynames"], old["keyvalues"], strict=True))  # without nulls
        given = dict(zip(change.get("columnnames", []), change.get("columnvalues", []), strict=True))
        after = {name: given.get(name, before.get(name)) for name in self._types}
        old_key, new_key = ({name: row.get(name) for name in self._key} for row in (before, after))
        if before and (not given or old_key != new_key):
            yield old_key, None
        if given:
            yield new_key, after


def _value(kind: str, text: str | None) -> Any:
    """A value as wal2json has it, of what it is as text."""
    if text is None or kind not in (*NUMBERS, "boolean", "bytea"):
        return text
    return text.removeprefix("\\x") if kind == "bytea" else json.loads(text, parse_float=str)


def _order(position: str) -> tuple[int, int, int]:
    lsn, _, number = position.partition(":")
    high, _, low = lsn.partition("/")
    return int(high, 16), int(low, 16), int(number)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", help="the log's directory")
    where.add_argument("--url", help="its server")
    parser.add_argument("--topic", required=True)
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--sqlite", metavar="FILE")
    origin.add_argument("--postgres", metavar="CONNECTION", help="as libpq takes it; needs the package psycopg")
    parser.add_argument("--table", required=True)
    given = parser.parse_args(arguments)
    with logdb.open(given.path or given.url) as db:
        if given.sqlite:
            count = capture(db, given.topic, Sqlite(sqlite3.connect(given.sqlite), given.table))
        else:
            import psycopg

            with psycopg.connect(given.postgres, autocommit=True) as connection:
                count = capture(db, given.topic, Postgres(connection, given.table))
    print(f"{count:,} changes")


if __name__ == "__main__":
    main()
