"""A table that follows another one: its changes, captured by Connect, are applied to a table of SQLite.

`examples/connect/capture-sqlite.properties` and `capture-postgresql.properties` bring the changes.

Shows a stream into a store that Spark does not know.  Of each micro-batch the executors find the last state of each key; the
driver writes them in one transaction.  To write a batch twice does no harm: it says what rows are, not what is added.

    logdb spark run examples/spark/replica.py --path db --topic shop.main.customers --checkpoint replica \\
        --sqlite replica.sqlite --table customers --key id --columns id,name,email
"""

import argparse
import json
import sqlite3
from contextlib import closing
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from logdb_spark_source import session


class Replica(NamedTuple):
    file: str
    table: str
    key: list[str]
    columns: list[str]

    def create(self) -> None:
        """Columns have no type: values stay what they are."""
        with closing(sqlite3.connect(self.file)) as connection:
            names, key = ", ".join(self.columns), ", ".join(self.key)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self.table} ({names}, PRIMARY KEY ({key}))")

    def apply(self, changes: DataFrame, _batch_id: int) -> None:
        last = changes.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
        delete = f"DELETE FROM {self.table} WHERE " + " AND ".join(f"{name} = ?" for name in self.key)
        insert = f"INSERT OR REPLACE INTO {self.table} VALUES ({', '.join('?' * len(self.columns))})"
        with closing(sqlite3.connect(self.file)) as connection, connection:
            for key, value in last.toLocalIterator():
                if value is None:
                    connection.execute(delete, [json.loads(key)[name] for name in self.key])
                else:
                    connection.execute(insert, [json.loads(value)[name] for name in self.columns])


def follow(spark: SparkSession, place: dict[str, str], topic: str, replica: Replica, checkpoint: str) -> StreamingQuery:
    replica.create()
    options = {"subscribe": topic, "startingOffsets": "earliest", "columns": "key,value,offset", **place}
    changes = spark.readStream.format("logdb").options(**options).load()
    written = changes.writeStream.foreachBatch(replica.apply).option("checkpointLocation", checkpoint)
    return written.trigger(availableNow=True).start()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", help="the log's directory")
    where.add_argument("--url", help="its server")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is; begun anew if it is empty")
    parser.add_argument("--sqlite", metavar="FILE", required=True, help="where the replica is to be")
    parser.add_argument("--table", required=True)
    parser.add_argument("--key", type=lambda text: text.split(","), required=True, help="columns of the primary key, as a,b")
    parser.add_argument("--columns", type=lambda text: text.split(","), required=True, help="all columns, as a,b,c")
    given = parser.parse_args(arguments)
    place = {"path": given.path} if given.path else {"url": given.url}
    replica = Replica(given.sqlite, given.table, given.key, given.columns)
    follow(session(), place, given.topic, replica, given.checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
