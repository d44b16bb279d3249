"""Spark's Kafka source and sink at three nodes: a program for the Spark that the source is published for.

Reads {"jars", "servers", "directory", "per_batch"} as JSON.  It copies the topic "in" to "out" by micro-batches.  Then it plans a read of
"in" by consumers in the rack "b", makes the file "planned" in the directory, waits for the file "go" there, and reads.  It prints the
values that it has read, as JSON.
"""

import json
import sys
import time
from pathlib import Path

from tests.compat.spark_answers import session

WAIT_S = 300


def main() -> None:
    request = json.load(sys.stdin)
    directory, servers = Path(request["directory"]), {"kafka.bootstrap.servers": request["servers"]}
    spark = session("local[2,4]", request["jars"])  # a task may fail three times, as on a cluster of Spark
    options = servers | {"subscribe": "in", "startingOffsets": "earliest"}
    frame = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=request["per_batch"]).load().select("key", "value")
    copied = frame.writeStream.format("kafka").options(**servers, topic="out", checkpointLocation=str(directory / "checkpoint"))
    copied.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    planned = spark.read.format("kafka").options(**options, minPartitions="12", **{"kafka.client.rack": "b"}).load().select("value")
    (directory / "planned").touch()
    until = time.monotonic() + WAIT_S
    while not (directory / "go").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    values = [bytes(row.value).decode() for row in planned.collect()]
    spark.stop()
    print(json.dumps(values))


if __name__ == "__main__":
    main()
