"""examples/spark/real_time.py, for the Spark that its connector is published for.

Reads {"jars", "url", "kafka", "count"}; prints the latencies in ms, and how many batches had ended by then; both as JSON.
"""

import json
import sys
import tempfile

from pyspark.sql import SparkSession

import logdb
from examples.spark.real_time import copy, latencies_ms


def main() -> None:
    request = json.load(sys.stdin)
    settings = {"spark.jars": request["jars"], "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"}
    builder = SparkSession.builder.master("local[3]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with logdb.open(request["url"]) as db, tempfile.TemporaryDirectory() as checkpoint:
        query = copy(spark, request["kafka"], checkpoint)
        found = latencies_ms(db, query, request["count"])
        answer = {"latencies_ms": found, "batches": len(query.recentProgress)}
        query.stop()
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
