"""A stream joined with a table: each order gets the e-mail address that its customer has at that time.

`orders` is a stream, `emails` a compacted topic, both keyed by customer. A tombstone deletes an address.
`EnrichedOrders.java` is the same program on Kafka Streams.

    logdb spark run examples/spark/enriched_orders.py --path db --checkpoint orders
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import logdb
from logdb_spark_source import session, streams

ORDERS, EMAILS, ENRICHED = "orders", "emails", "enriched-orders"


def create_topics(db: logdb.Database, partitions: int = 2) -> None:
    db.create_topic(ORDERS, partitions=partitions, if_not_exists=True)
    db.create_topic(EMAILS, partitions=partitions, config={"cleanup.policy": "compact"}, if_not_exists=True)
    db.create_topic(ENRICHED, partitions=partitions, if_not_exists=True)


def enrich_orders(spark: SparkSession, place: dict[str, str], checkpoint: str, *, follow: bool = False) -> StreamingQuery:
    orders = streams.join_latest(streams.stream(spark, ORDERS, **place), EMAILS, **place, name="email")
    email = F.coalesce(F.decode("email", "UTF-8"), F.lit("nobody"))
    enriched = orders.withColumn("value", F.concat_ws(" -> ", F.decode("value", "UTF-8"), email))
    writer = streams.to(enriched, ENRICHED, **place)
    timed = writer.trigger(processingTime="1 second") if follow else writer.trigger(availableNow=True)
    return timed.option("checkpointLocation", checkpoint).start()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", help="the database's directory")
    where.add_argument("--url", help="its server")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is; begun anew if it is empty")
    parser.add_argument("--follow", action="store_true", help="wait for more orders instead of ending with the last one")
    given = parser.parse_args(arguments)
    with logdb.open(given.path or given.url) as db:
        create_topics(db)
    place = {"path": given.path} if given.path else {"url": given.url}
    enrich_orders(session(), place, given.checkpoint, follow=given.follow).awaitTermination()


if __name__ == "__main__":
    main()
