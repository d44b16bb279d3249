"""Word count: the lines of `streams-plaintext-input`, counted into the compacted topic `streams-wordcount-output`.

Shows a stream with a state, whose changes are written by key, once, however often the program is killed.
`WordCount.java` is the same program on Kafka Streams.

    logdb topics create streams-plaintext-input --data-dir db
    echo 'all streams lead to the log' | logdb produce streams-plaintext-input --data-dir db
    logdb spark run examples/spark/word_count.py --path db --checkpoint count
    logdb consume streams-wordcount-output --data-dir db --format '%k %s\\n'
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import logdb
from logdb_spark_source import session, streams

LINES, COUNTS = "streams-plaintext-input", "streams-wordcount-output"


def create_topics(db: logdb.Database) -> None:
    db.create_topic(LINES, if_not_exists=True)
    db.create_topic(COUNTS, config={"cleanup.policy": "compact"}, if_not_exists=True)


def count_words(spark: SparkSession, place: dict[str, str], checkpoint: str, *, follow: bool = False) -> StreamingQuery:
    lines = streams.stream(spark, LINES, columns="value", **place)
    words = lines.select(F.explode(F.split(F.lower(F.col("value").cast("string")), r"\W+")).alias("word")).where("word <> ''")
    counts = words.groupBy("word").count().selectExpr("word AS key", "cast(count AS string) AS value")
    changes = streams.to_table(counts, COUNTS, **place)
    timed = changes.trigger(processingTime="1 second") if follow else changes.trigger(availableNow=True)
    return timed.option("checkpointLocation", checkpoint).start()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", help="the database's directory")
    where.add_argument("--url", help="its server")
    parser.add_argument("--checkpoint", required=True, help="where Spark keeps how far it is; begun anew if it is empty")
    parser.add_argument("--follow", action="store_true", help="wait for more lines instead of ending with the last one")
    given = parser.parse_args(arguments)
    with logdb.open(given.path or given.url) as db:
        create_topics(db)
    place = {"path": given.path} if given.path else {"url": given.url}
    count_words(session(), place, given.checkpoint, follow=given.follow).awaitTermination()


if __name__ == "__main__":
    main()
