"""Types of the columns of a query, as the driver describes its result."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

_POSTGRESQL: dict[int, TypeEngine[Any]] = {
    16: sqlalchemy.Boolean(),
    17: sqlalchemy.LargeBinary(),
    20: sqlalchemy.BigInteger(),
    21: sqlalchemy.SmallInteger(),
    23: sqlalchemy.Integer(),
    26: sqlalchemy.BigInteger(),  # oid
    700: sqlalchemy.REAL(),
    701: sqlalchemy.Double(),
    1082: sqlalchemy.Date(),
    1083: sqlalchemy.Time(),
    1114: sqlalchemy.DateTime(),
    1184: sqlalchemy.DateTime(timezone=True),
}
_MYSQL: dict[int, TypeEngine[Any]] = {
    1: mysql.TINYINT(),
    2: sqlalchemy.SmallInteger(),
    3: sqlalchemy.BigInteger(),  # INT, maybe unsigned
    4: mysql.FLOAT(),
    5: sqlalchemy.Double(),
    7: mysql.TIMESTAMP(),
    8: sqlalchemy.BigInteger(),
    9: sqlalchemy.Integer(),
    10: sqlalchemy.Date(),
    11: sqlalchemy.Time(),
    12: sqlalchemy.DateTime(),
    13: sqlalchemy.Integer(),  # YEAR
}
_NUMERIC_POSTGRESQL, _NUMERIC_MYSQL = 1700, (0, 246)


def result_types(dialect: str, description: Sequence[Sequence[Any]]) -> list[TypeEngine[Any]]:
    """The type of each column; of SQLite's there are none: an empty list."""
    if dialect == "sqlite":
        return []
    return [_type(dialect, each) for each in description]


def _type(dialect: str, column: Sequence[Any]) -> TypeEngine[Any]:
    code, precision, scale = column[1], column[4], column[5]
    if dialect == "postgresql":
        if code == _NUMERIC_POSTGRESQL:
            return sqlalchemy.Numeric(precision, scale) if precision not in {None, 65535} else sqlalchemy.Numeric()
        return _POSTGRESQL.get(code, sqlalchemy.Text())
    if code in _NUMERIC_MYSQL:
        return sqlalchemy.Numeric(precision, scale)
    return _MYSQL.get(code, sqlalchemy.Text())
