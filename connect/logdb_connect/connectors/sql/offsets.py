"""Offsets of a sink beside its rows: both are committed in one transaction, so that each record is stored once."""

from collections.abc import Iterable, Mapping

import sqlalchemy
from sqlalchemy import Column, Connection, Engine

from logdb import TopicPartition
from logdb_connect.connectors.sql.statements import upsert
from logdb_connect.connectors.sql.tables import quoted, table_of
from logdb_connect.errors import ConnectError

DEFAULT_TABLE = "logdb_connect_offsets"


class StoredOffsets:
    """The table of offsets.  A row says which record comes next: of this connector, topic and partition.

    ``lock`` also keeps others out until the transaction ends: a task that lives on beside its successor stores nothing twice.
    """

    def __init__(self, engine: Engine, table: str, connector: str) -> None:
        self._engine, self._connector = engine, connector
        self._table = table_of(
            (None, table),
            [
                Column(quoted("connector"), sqlalchemy.String(255), primary_key=True),
                Column(quoted("topic"), sqlalchemy.String(249), primary_key=True),
                Column(quoted("partition"), sqlalchemy.Integer, primary_key=True, autoincrement=False),
                Column(quoted("next_offset"), sqlalchemy.BigInteger, nullable=False),
            ],
        )
        columns = self._table.c
        self._mine = columns["connector"] == connector
        key = ["connector", "topic", "partition"]
        self._upsert = upsert(self._table, key, engine.dialect.name)
        self._insert = upsert(self._table, key, engine.dialect.name, change=False)

    def create(self) -> None:
        """Make the table, unless it is there.

        Raises:
            ConnectError: The user may not.
        """
        try:
            with self._engine.begin() as connection:
                self._table.create(connection, checkfirst=True)
        except sqlalchemy.exc.DBAPIError as error:
            if error.connection_invalidated or isinstance(error, sqlalchemy.exc.OperationalError):
                raise
            if not sqlalchemy.inspect(self._engine).has_table(self._table.name):
                raise ConnectError(
                    f"The table {self._table.name} for offsets cannot be created: {error.orig}. "
                    "Create it, or set connect.offsets.table to nothing: records may then be stored twice after a failure"
                ) from error

    def read(self, connection: Connection, partitions: Iterable[TopicPartition], *, lock: bool = False) -> dict[TopicPartition, int]:
        """The next offset of each of ``partitions`` that has one."""
        columns = self._table.c
        wanted = set(partitions)
        found = sqlalchemy.select(columns["topic"], columns["partition"], columns["next_offset"]).where(
            self._mine, columns["topic"].in_(sorted({each.topic for each in wanted}))
        )
        rows = connection.execute(found.order_by(columns["topic"], columns["partition"]).with_for_update() if lock else found)
        return {each: offset for topic, partition, offset in rows if (each := TopicPartition(topic, partition)) in wanted}

    def begin(self, connection: Connection, partitions: Iterable[TopicPartition]) -> None:
        """Make the rows of partitions that have none, for ``lock``: only a row that is there can be locked."""
        connection.execute(self._insert, self._rows(dict.fromkeys(partitions, 0)))

    def write(self, connection: Connection, offsets: Mapping[TopicPartition, int]) -> None:
        connection.execute(self._upsert, self._rows(offsets))

    def remove(self, connection: Connection, partitions: Iterable[TopicPartition]) -> None:
        columns = self._table.c
        for each in partitions:
            mine = self._table.delete().where(self._mine, columns["topic"] == each.topic, columns["partition"] == each.partition)
            connection.execute(mine)

    def _rows(self, offsets: Mapping[TopicPartition, int]) -> list[dict[str, object]]:
        return [
            {"connector": self._connector, "topic": each.topic, "partition": each.partition, "next_offset": offset}
            for each, offset in sorted(offsets.items())
        ]
