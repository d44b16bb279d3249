"""A stream and a table, joined: every transfer counts for a balance, of a customer's e-mail addresses the last one.

`transfers` is a stream (customer: amount in cents), `emails` a table (customer: address, null where it was withdrawn), a
compacted topic.  `statements` has for each customer with both the balance and where to send it, whichever of them changed.
A customer's addresses lie in one partition, so the one of the highest offset is the last one.

    logdb spark run examples/spark/bank_statements.py --path db --checkpoint statements
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import logdb
from logdb_spark_source import session, upsert

TRANSFERS, EMAILS, STATEMENTS = "transfers", "emails", "statements"


def create_topics(db: logdb.Database, partitions: int = 2) -> None:
    db.create_topic(TRANSFERS, partitions=partitions, if_not_exists=True)
    for table in (EMAILS, STATEMENTS):
        db.create_topic(table, partitions=partitions, config={"cleanup.policy": "compact"}, if_not_exists=True)


def keep_statements(spark: SparkSession, place: dict[str, str], checkpoint: str, **limits: str) -> StreamingQuery:
    options = {"subscribe": f"{TRANSFERS},{EMAILS}", "startingOffsets": "earliest", "columns": "key,value,topic,offset", **place, **limits}
    records = spark.readStream.format("logdb").options(**options).load().withColumn("text", F.decode("value", "UTF-8"))
    customers = records.groupBy("key").agg(
        F.sum(F.when(F.col("topic") == TRANSFERS, F.col("text").cast("long"))).alias("balance"),
        F.max_by("text", F.when(F.col("topic") == EMAILS, F.col("offset"))).alias("email"),
    )
    both = F.col("balance").isNotNull() & F.col("email").isNotNull()
    statements = customers.select("key", F.when(both, F.to_json(F.struct("email", "balance"))).alias("value"))  # null: none any more
    changes = statements.writeStream.outputMode("update").foreachBatch(upsert(STATEMENTS, **place))
    return changes.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", help="the database's directory")
    where.add_argument("--url", help="its server")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is; begun anew if it is empty")
    given = parser.parse_args(arguments)
    with logdb.open(given.path or given.url) as db:
        create_topics(db)
    place = {"path": given.path} if given.path else {"url": given.url}
    keep_statements(session(), place, given.checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
