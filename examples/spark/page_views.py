"""Hopping windows: the views of each page in the last ten minutes, every five minutes, written back by page and window.

Shows event time: a view counts in the two windows that its timestamp lies in, whenever it comes; one that is more than ten
minutes behind the youngest comes too late, and is left out.  What a window holds is kept no longer than that.
`PageViews.java` is the same program on Kafka Streams.

    logdb spark run examples/spark/page_views.py --path db --checkpoint views
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import logdb
from logdb_spark_source import session, streams

VIEWS, COUNTS = "page-views", "page-views-per-window"
SIZE, ADVANCE, LATE_MAX = "10 minutes", "5 minutes", "10 minutes"


def create_topics(db: logdb.Database) -> None:
    db.create_topic(VIEWS, if_not_exists=True)
    db.create_topic(COUNTS, config={"cleanup.policy": "compact"}, if_not_exists=True)


def count_views(spark: SparkSession, place: dict[str, str], checkpoint: str, **limits: str) -> StreamingQuery:
    """Each record of `page-views` has the page as its key; the key of a count is `page@begin of the window`, UTC."""
    views = streams.stream(spark, VIEWS, columns="key,timestamp", **place, **limits)
    counts = streams.windows(views, SIZE, advance=ADVANCE, grace=LATE_MAX).count()
    begin = F.date_format(F.to_utc_timestamp("window.start", F.current_timezone()), "yyyy-MM-dd'T'HH:mm'Z'")
    rows = counts.select(F.concat_ws("@", F.decode("key", "UTF-8"), begin).alias("key"), F.col("count").cast("string").alias("value"))
    changes = streams.to_table(rows, COUNTS, **place)
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
    count_views(session(), place, given.checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
