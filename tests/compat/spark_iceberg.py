"""Spark reads Iceberg tables through a REST catalogue.

Reads {"jars"} in the first line.  Then each line is {"uri", "table", "token", "where"}; prints the rows that the table has, as JSON.
"""

import base64
import json
import sys
from typing import Any

from pyspark.sql import SparkSession

COLUMNS = ("partition", "offset", "topic", "key", "value", "unix_micros(timestamp) AS micros", "timestampType", "headers")


def main() -> None:
    request = json.loads(sys.stdin.readline())
    settings = {
        "spark.jars": request["jars"], "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2", "spark.python.authenticate.socketTimeout": "300s",
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for number, line in enumerate(sys.stdin):
        print(json.dumps(answer(spark, f"c{number}", json.loads(line))), flush=True)
    spark.stop()


def answer(spark: SparkSession, catalogue: str, request: dict[str, Any]) -> dict[str, Any]:
    """The rows, or the error; each request has a catalogue of its own: what Spark has cached of an earlier one is not asked."""
    place = f"spark.sql.catalog.{catalogue}"
    spark.conf.set(place, "org.apache.iceberg.spark.SparkCatalog")
    given = {"type": "rest", "uri": request["uri"]} | ({"token": request["token"]} if request.get("token") else {})
    for key, value in given.items():
        spark.conf.set(f"{place}.{key}", value)
    try:
        frame = spark.table(f"{catalogue}.logdb.`{request['table']}`").where(request.get("where") or "true")
        columns = COLUMNS if "offset" in frame.columns else ("*",)
        return {"rows": [shown(row.asDict(recursive=True)) for row in frame.selectExpr(*columns).collect()]}
    except Exception as error:  # noqa: BLE001 -- whatever Spark raises is the answer
        return {"error": str(error)[:2000]}


def shown(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shown(one) for one in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else value


if __name__ == "__main__":
    main()
