"""Answers of Spark's Kafka source and of ours to the same questions: a program for the Spark that both run on.

Reads {"jars", "sources": {name: {"format", "options"}}, "cases": [...]}, where a case may name the sources it is for, and prints
{case: {source: answer}}, both as JSON.  An answer is {"rows": [...]}, or {"error": what Spark said}.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benches.peers import SHORT_LIVED

ORDER = ("topic", "partition", "offset")
READS = ("batch", "stream")
SLOW = "Python worker failed to connect back"
"""What Spark says where a busy machine takes more than ten seconds to start a Python process; a read is begun again then."""


def main() -> None:
    request = json.load(sys.stdin)
    spark = session("local[2]", request["jars"])
    from pyspark_logdb import DefaultSource

    spark.dataSource.register(DefaultSource)
    sources = request["sources"]
    answers = {
        case["name"]: {name: answer(spark, sources[name], case) for name in case.get("sources", sources)} for case in request["cases"]
    }
    spark.stop()
    print(json.dumps(answers))


def session(master: str, jars: str) -> SparkSession:
    """A session that says nothing."""
    builder = SparkSession.builder.master(master).config("spark.jars", jars)
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(SHORT_LIVED),
    }.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def answer(spark: SparkSession, source: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    """What one source says to one case."""
    ask = {"batch": batch, "stream": stream, "write": write, "copy": copy}[case["kind"]]
    while True:
        try:
            return {"rows": ask(spark, source, case)}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            if SLOW not in str(error) or case["kind"] not in READS:
                return {"error": str(error)[-2000:]}


def batch(spark: SparkSession, source: dict[str, Any], case: dict[str, Any]) -> Any:
    """All rows, in the order of their offsets, and what columns they have."""
    frame = spark.read.format(source["format"]).options(**source["options"], **case["options"]).load()
    return {"schema": frame.schema.simpleString(), "rows": rows(frame)}


def stream(spark: SparkSession, source: dict[str, Any], case: dict[str, Any]) -> Any:
    """The rows of all micro-batches until nothing more is there."""
    frame = spark.readStream.format(source["format"]).options(**source["options"], **case["options"]).load()
    found: list[Any] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            frame.writeStream.foreachBatch(lambda part, _number: found.extend(rows(part)))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
    return sorted(found, key=lambda row: [row[name] for name in ORDER])  # of all batches


def copy(spark: SparkSession, source: dict[str, Any], case: dict[str, Any]) -> Any:
    """A topic that a stream copies to another one: it ends, there is more, and it goes on from its checkpoint."""
    frame = spark.readStream.format(source["format"]).options(**source["options"], **case["options"]).load()
    begun = frame.writeStream.format(source["format"]).options(**source["options"], topic=case["copied_to"]).trigger(availableNow=True)
    with tempfile.TemporaryDirectory() as checkpoint:
        for _ in range(2):
            save(spark, source, case)
            begun.option("checkpointLocation", checkpoint).start().awaitTermination(120)
    return rows(spark.read.format(source["format"]).options(**source["options"], subscribe=case["copied_to"]).load().drop("timestamp"))


def save(spark: SparkSession, source: dict[str, Any], case: dict[str, Any]) -> None:
    frame = spark.createDataFrame([tuple(row) for row in case["rows"]], case["schema"]).coalesce(1)
    frame.write.format(source["format"]).mode("append").options(**source["options"], **case["options"]).save()


def write(spark: SparkSession, source: dict[str, Any], case: dict[str, Any]) -> Any:
    """Rows that were written to the topic, read back."""
    save(spark, source, case)
    read = spark.read.format(source["format"]).options(**source["options"], includeHeaders="true", subscribe=case["topic"]).load()
    return rows(read.drop("timestamp"))


def rows(frame: DataFrame) -> list[Any]:
    """In order: Spark would read everything twice to sort it."""
    found = [plain(row.asDict(recursive=True)) for row in frame.collect()]
    return sorted(found, key=lambda row: [row[name] for name in ORDER if name in row])


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value if isinstance(value, str | int | float | None) else str(value)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main()
