"""Statements of a sink, by the dialect.  Parameters have the keys of the table's columns."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import Executable, Table, bindparam
from sqlalchemy.dialects import mysql, postgresql, sqlite

_MYSQL = {"mysql", "mariadb"}


def upsert(table: Table, keys: Sequence[str], dialect: str, *, change: bool = True) -> Executable:
    """Insert, or set all other columns where the key is there.

    Args:
        keys: Keys of the columns of the primary key.
        change: False leaves a row that is there as it is.
    """
    others = [str(column.key) for column in table.c if column.key not in keys and change]
    if dialect in _MYSQL:
        insert = mysql.insert(table)
        changed = others or list(keys[:1])  # MySQL has no DO NOTHING: it sets a key to what it is
        return insert.on_duplicate_key_update({key: insert.inserted[key] for key in changed})
    insert_of: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert_of(table)
    columns = [table.c[key] for key in keys]
    if others:
        statement = statement.on_conflict_do_update(index_elements=columns, set_={key: statement.excluded[key] for key in others})
    else:
        statement = statement.on_conflict_do_nothing(index_elements=columns)
    if dialect == "postgresql":  # SQLAlchemy puts many rows into one such statement only if it returns something
        statement = statement.returning(sqlalchemy.literal_column("1"))
    return statement  # type: ignore[no-any-return]


def update(table: Table, keys: Sequence[str]) -> Executable:
    """Set all other columns of the row that has the key.  Parameters of the key have the prefix ``key_``."""
    others: dict[Any, Any] = {str(column.key): bindparam(str(column.key)) for column in table.c if column.key not in keys}
    return table.update().where(_is(table, keys)).values(others)


def delete(table: Table, keys: Sequence[str]) -> Executable:
    """Delete the row that has the key.  Parameters of the key have the prefix ``key_``."""
    return table.delete().where(_is(table, keys))


def _is(table: Table, keys: Sequence[str]) -> Any:
    return sqlalchemy.and_(*(table.c[key] == bindparam(f"key_{key}") for key in keys))
