"""Sinks on Spark, without Spark: what executors do with Arrow batches, properties without effect, messages of a driver."""

import datetime
import fnmatch
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.connectors import limits
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.connectors.sql.sink import JdbcSinkConnector
from logdb_connect.errors import ConnectError
from logdb_connect.providers import Secret
from logdb_connect.runtime.spark import offsets_of, private_names
from logdb_connect.spark import databases, objects
from logdb_connect.spark.query import advice, is_retriable
from logdb_connect.spark.settings import CHECKPOINT, NO_EFFECT, checkpoint_of, faults, hadoop, without_effect
from support.connect_workers import WORKER
from support.connector_tables import PAGE

JSON = "org.apache.kafka.connect.json.JsonConverter"
OBJECTS = {"name": "o", "store.url": "file:///out", "flush.size": "10", "logdb.runner": "spark", CHECKPOINT: "/checkpoints"}


def _job(config: dict[str, str], *, schemas: bool = False) -> dict[str, Any]:
    converter = {"value.converter": JSON, "value.converter.schemas.enable": str(schemas).lower()}
    shared = {"name": "n", "connector.class": "Sink", **converter}
    return {"name": "n", "worker": {**WORKER, "bootstrap.servers": "x"}, "config": {**shared, **config}}


def _batch(*values: object, begin: int = 0, partition: int = 0) -> pyarrow.RecordBatch:
    """Rows of format("logdb")."""
    count = len(values)
    return pyarrow.RecordBatch.from_pydict(
        {
            "key": pyarrow.array([f"k{number}".encode() for number in range(count)], pyarrow.binary()),
            "value": pyarrow.array([None if one is None else json.dumps(one).encode() for one in values], pyarrow.binary()),
            "topic": ["t"] * count,
            "partition": pyarrow.array([partition] * count, pyarrow.int32()),
            "offset": range(begin, begin + count),
            "timestamp": pyarrow.array([datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.UTC)] * count, pyarrow.timestamp("us", "UTC")),
            "headers": pyarrow.array([[{"key": "h", "value": b"1"}]] * count),
        }
    )


def test_a_task_that_runs_twice_stores_each_row_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/rows.db"
    job = _job({"connection.url": url, "topics": "t", "auto.create": "true", "table.name.format": "rows"})
    rows = [{"id": number} for number in range(7)]

    def run(*batches: pyarrow.RecordBatch) -> int:
        return sum(batch.column("count")[0].as_py() for batch in databases._stored(job, iter(batches)))

    assert run(_batch(*rows[:3]), _batch(*rows[3:5], begin=3), _batch({"id": 100}, partition=1)) == 6
    run(_batch(*rows[:5]), _batch({"id": 100}, partition=1))  # Spark runs the task again: its end was not noted
    run(_batch(*rows[3:], begin=3))  # a batch that was half done
    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        assert sorted(connection.execute("select id from rows")) == [(number,) for number in (0, 1, 2, 3, 4, 5, 6, 100)]
    with pytest.raises(ConnectError, match="must have a struct as its value"):
        run(_batch("text", begin=7))


def test_values_become_rows_of_one_schema_each() -> None:
    field = {"type": "string", "optional": True, "field": "kind"}
    schemas = [{"type": "struct", "fields": [{"type": "int64", "optional": False, "field": name}, field]} for name in ("a", "b")]
    values = [{"schema": schemas[n % 2], "payload": {"ab"[n % 2]: n, "kind": f"x{n}"}} for n in range(4)]
    parquet = {**OBJECTS, "format.class": "ParquetFormat", "partitioner.class": "DailyPartitioner", "timestamp.extractor": "Record"}
    job = _job({**parquet, "locale": "en", "timezone": "UTC", "behavior.on.null.values": "ignore"}, schemas=True)
    (found,) = objects._found(job, iter([_batch(*values, None)]))
    rows = found.to_pylist()
    assert [(row["topic"], row["directories"]) for row in rows] == [("t", '["year", "month", "day"]')] * 2
    for row, name in zip(rows, "ab", strict=True):
        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(row["schema"]))
        assert schema.names == [name, "kind"]
        for part in ("year", "month", "day"):
            schema = schema.append(pyarrow.field(part, pyarrow.string()))
        made = [
            one
            for batch in objects._rows(job, "t", row["id"], schema.serialize().to_pybytes(), iter([_batch(*values)]))
            for one in batch.to_pylist()
        ]
        day = {"year": "2024", "month": "01", "day": "02"}
        assert made == [{name: n, "kind": f"x{n}", **day} for n in range(4) if "ab"[n % 2] == name]


def test_values_without_schema_get_one_of_all_that_they_have() -> None:
    job = _job({**OBJECTS, "format.class": "ParquetFormat"})
    (found,) = objects._found(job, iter([_batch({"a": 1}, {"b": [1.5]})]))
    (row,) = found.to_pylist()
    assert str(pyarrow.ipc.read_schema(pyarrow.py_buffer(row["schema"]))) == "a: int64\nb: list<item: double>\n  child 0, item: double"
    job = _job({**OBJECTS, "format.class": "JsonFormat"})
    (found,) = objects._found(job, iter([_batch({"a": 1}, {"b": [1.5]}, 3)]))
    (row,) = found.to_pylist()
    schema = pyarrow.schema([("value", pyarrow.string()), ("partition", pyarrow.string())]).serialize().to_pybytes()
    (made,) = objects._rows(job, "t", "", schema, iter([_batch({"a": 1}, 3, partition=2)]))
    assert made.to_pylist() == [{"value": '{"a":1}', "partition": "2"}, {"value": "3", "partition": "2"}]
    job = _job({**OBJECTS, "format.class": "ParquetFormat"})
    with pytest.raises(ConnectError, match="ParquetFormat stores structs"):
        list(objects._found(job, iter([_batch(3)])))
    timed = {"partitioner.class": "TimeBasedPartitioner", "path.format": "YYYY/MM", "partition.duration.ms": "1", "locale": "en"}
    job = _job({**OBJECTS, **timed, "timezone": "UTC"})
    with pytest.raises(ConnectError, match="needs directories such as 'year'=YYYY"):
        list(objects._found(job, iter([_batch(3)])))


def test_properties_without_effect_are_properties_and_on_the_page() -> None:
    section = PAGE.read_text().partition("## Sinks on Spark")[2].partition("\n## ")[0]
    told = {name for row in re.findall(r"^\|(.*)\| no effect \|$", section, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    for kind, connector in (("objects", ObjectStoreSinkConnector), ("sql", JdbcSinkConnector)):
        assert NO_EFFECT[kind] <= {key.name for key in connector.config_def}
        assert {name for name in NO_EFFECT[kind] if not any(fnmatch.fnmatchcase(name, one) for one in told)} == set()
    given = {"tasks.max": "4", "rotate.interval.ms": "1", "flush.size": "3", "consumer.override.max.poll.records": "1"}
    assert without_effect(given, "objects") == ["consumer.override.max.poll.records", "rotate.interval.ms", "tasks.max"]
    assert without_effect(given, "sql") == ["consumer.override.max.poll.records", "tasks.max"]


def test_a_worker_with_limits_refuses_spark() -> None:
    config = ObjectStoreSinkConnector.config_def.parse(OBJECTS)
    assert faults(config, "objects") == {}
    limits.configure(directories=["/data"])
    try:
        assert "properties of Spark can run any code" in faults(config, "objects")["logdb.runner"]
    finally:
        limits.configure()


def test_settings_of_s3_and_names_of_checkpoints() -> None:
    given = {"s3.bucket.name": "b", "store.url": "http://minio:9000", "aws.access.key.id": "id", "aws.secret.access.key": "secret"}
    found = hadoop(ObjectStoreSinkConnector.config_def.parse({**OBJECTS, **given}))
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://minio:9000"
    assert found["spark.hadoop.fs.s3a.secret.key"] == "secret"
    assert hadoop(ObjectStoreSinkConnector.config_def.parse(OBJECTS)) == {}
    assert checkpoint_of("a/b", {CHECKPOINT: "s3a://b/c/"}) == "s3a://b/c/a%2fb"


def test_which_settings_of_spark_are_private() -> None:
    given = {
        "spark.my.word": Secret("x"),
        "spark.my.other": "x",
        "spark.ssl.keyPassword": "x",
        "spark.driver.extraJavaOptions": Secret("-Dx=y"),  # an argument of the JVM, in any case
        "spark.authenticate.secret": Secret("x"),
        "connection.password": Secret("x"),
    }
    assert private_names(given) == ["spark.my.word", "spark.ssl.keyPassword", "spark.authenticate.secret"]


def test_what_a_driver_says() -> None:
    assert offsets_of('{"offsets": {"t": {"0": 5}}, "topics": {"t": "id"}}') == {TopicPartition("t", 0): OffsetAndMetadata(5)}
    assert is_retriable("… logdb.errors.ServerUnavailable: http://x does not answer")
    assert is_retriable("Python worker failed to connect back.")
    assert not is_retriable("… logdb_connect.errors.DataError: no JSON; logdb.errors.CorruptionError: x")
    assert "spark-avro_2.13:4.3.0" in advice("[AVRO_DATA_SOURCE_NOT_ENABLED] Failed to find data source: avro. Avro is", "4.3.0")
    for name in ("S3AFileSystem", "S3A"):  # of objects, and of a checkpoint
        assert "hadoop-aws" in advice(f"java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.{name} not found", "4.3.0")
    assert advice("java.io.IOException: No space left on device", "4.3.0") == ""
