"""Sinks on Spark: each record is once in the files and in the database, whatever is killed."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
import pytest

import logdb
from support.connect_workers import WORKER, WorkerProcess, served, standalone, written
from support.ports import free_port
from support.processes import arguments
from support.spark import JAVA_OPTIONS
from support.waiting import until

SPARK = {
    "logdb.runner": "spark",
    "spark.master": "local[2]",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "logdb.spark.max.offsets.per.trigger": "1000",
}
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}
TESTS = str(Path(__file__).parents[2])
START_S = 300
"""A JVM and a session of Spark on a busy machine."""


def _objects(directory: Path, **more: str) -> dict[str, str]:
    return {
        "name": "files",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "orders",
        "store.url": f"file://{directory}/out",
        "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
        "flush.size": "300",
        "spark.sql.streaming.checkpointLocation": f"{directory}/checkpoints",
        **JSON,
        **SPARK,
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def _table(directory: Path) -> dict[str, str]:
    return {
        "name": "table",
        "connector.class": "JdbcSink",
        "topics": "orders",
        "connection.url": f"jdbc:sqlite:{directory}/rows.db",
        "auto.create": "true",
        "pk.mode": "kafka",
        "insert.mode": "insert",
        "spark.sql.streaming.checkpointLocation": f"{directory}/checkpoints",
        **JSON,
        **SPARK,
    }


def _append(db: logdb.Database, begin: int, end: int) -> None:
    for partition in range(2):
        numbers = range(begin + partition, end, 2)
        db.log("orders", partition).append_many([json.dumps({"id": number, "text": f"t{number}"}).encode() for number in numbers])


def _files(directory: Path) -> list[int]:
    """The ids in all Parquet files, as any reader sees them."""
    place = directory / "out" / "topics" / "orders"
    if not place.exists():
        return []
    for _ in range(50):
        try:
            return pyarrow.dataset.dataset(place, partitioning="hive").to_table(columns=["id"])["id"].to_pylist()
        except (OSError, pyarrow.ArrowException, ValueError, KeyError):  # a batch is replaced just now, or nothing is there yet
            time.sleep(0.05)
    return []


def _rows(directory: Path) -> list[int]:
    if not (directory / "rows.db").exists():
        return []
    with sqlite3.connect(directory / "rows.db", timeout=30) as connection:
        try:
            return [row[0] for row in connection.execute('select "id" from "orders"')]
        except sqlite3.OperationalError:
            return []


@pytest.mark.parametrize(("properties", "stored"), [(_objects, _files), (_table, _rows)], ids=["parquet", "jdbc"])
def test_each_record_is_stored_once_after_kills_of_the_worker(
    tmp_path: Path, properties: Callable[[Path], dict[str, str]], stored: Callable[[Path], list[int]]
) -> None:
    with served(tmp_path / "db") as address, logdb.open(address) as db:
        db.create_topic("orders", partitions=2)
        _append(db, 0, 3_000)
        port = free_port()
        worker = {**WORKER, "bootstrap.servers": address, "listeners": f"http://127.0.0.1:{port}"}
        connector = properties(tmp_path)
        files = [
            written(tmp_path / "worker.properties", {"offset.storage.file.filename": f"{tmp_path}/offsets", **worker}),
            written(tmp_path / "sink.properties", connector),
        ]
        with WorkerProcess("standalone", *files, port=port) as process:
            until(lambda: len(stored(tmp_path)) > 500, "records are stored", START_S)
            process.kill()  # amid the query: each micro-batch has a thousand offsets at most
        _append(db, 3_000, 3_500)
        with WorkerProcess("standalone", *files, port=port) as process:
            until(lambda: len(set(stored(tmp_path))) == 3_500, "all records are stored", START_S)
            path = f"/connectors/{connector['name']}/offsets"
            until(lambda: sum(one["offset"]["kafka_offset"] for one in process.rest.get(path)["offsets"]) == 3_500)
            assert process.rest.states(connector["name"]) == ["RUNNING", "RUNNING"]
            assert process.stop() == 0
    assert [number for number, times in Counter(stored(tmp_path)).items() if times > 1] == []
    assert sorted(stored(tmp_path)) == list(range(3_500))


def test_states_formats_and_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bad record, pause and stop; lines of JSON in directories of a field."""
    more = {
        "format_class": "JsonFormat",
        "partitioner_class": "FieldPartitioner",
        "partition_field_name": "kind",
        "tasks_max": "4",
        "rotate_interval_ms": "10",
        "spark_of_mine_password": "hush-hush",
    }
    config = _objects(tmp_path, **more)
    with served(tmp_path / "db") as address, logdb.open(address) as db:
        db.create_topic("orders", partitions=1)
        log = db.log("orders")
        log.append(value=b'{"kind": "a", "n": [1, {"x": null}]}')
        with standalone(address, tmp_path, config, task_shutdown_graceful_timeout_ms="20000") as rest:
            until(lambda: rest.states("files") == ["RUNNING", "RUNNING"], "it runs", START_S)
            lines = arguments()
            assert any(b"SparkSubmit" in line for line in lines) and not any(b"hush-hush" in line for line in lines)
            found = tmp_path / "out" / "topics" / "orders"
            until(lambda: list(found.glob("batch=*-0/kind=a/*.txt")), "a file is written", START_S)
            (file,) = found.glob("batch=*/kind=a/*.txt")
            assert file.read_text() == '{"kind":"a","n":[1,{"x":null}]}\n'
            for name in ("rotate.interval.ms", "tasks.max"):
                assert f"connector files: {name} has no effect with logdb.runner=spark" in caplog.text
            log.append(value=b"{")
            until(lambda: rest.states("files") == ["RUNNING", "FAILED"], "the bad record fails it", START_S)
            assert "Tolerance exceeded in error handler: VALUE_CONVERTER" in rest.get("/connectors/files/status")["tasks"][0]["trace"]
            assert rest.call("PUT", "/connectors/files/config", {**config, "errors.tolerance": "all"})[0] == 200
            until(lambda: rest.states("files") == ["RUNNING", "RUNNING"], "it skips the bad record", START_S)
            log.append(value=b'{"kind": "b"}')
            until(lambda: list(found.glob("batch=*/kind=b/*.txt")), "the next one follows", START_S)
            assert rest.call("PUT", "/connectors/files/pause")[0] == 202
            until(lambda: rest.states("files") == ["PAUSED", "PAUSED"], "it pauses", START_S)
            assert rest.call("PUT", "/connectors/files/stop")[0] == 204
            until(lambda: rest.states("files") == ["STOPPED"], "it stops", START_S)
            status, answer = rest.call("DELETE", "/connectors/files/offsets")
            assert (status, "are in its checkpoint" in answer["message"]) == (500, True)


_PROGRAM = """
import os, pathlib, sys
sys.path.append(os.environ["TESTS"])
from logdb_connect.spark import driver
from support.processes import arguments
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
driver.forget_private()
seen = sum(b"hush" in line for line in arguments())
found = [spark.conf.get("spark.of.mine"), spark.conf.get("spark.ui.enabled"), seen, os.path.exists(driver._private)]
pathlib.Path(sys.argv[0] + ".out").write_text(repr(found))
"""


def test_secrets_of_spark_reach_the_session_and_no_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    secret = " hush:=#! \\ é \U0001f600 'x' \"y\""
    config = {name: text for name, text in SPARK.items() if name.startswith("spark.driver")}
    job = {"private": {"spark.of.mine": secret}, "directory": str(tmp_path), "config": config}
    code = (
        "import json, sys; from logdb_connect.spark import driver; from logdb_spark_source.running import run; "
        "job = json.load(sys.stdin); driver.keep_private(job['private'], job['directory']); "
        "print(run(sys.argv[1], master='local[1]', config=job['config']))"
    )
    words, environment = [sys.executable, "-c", code, str(program)], {**os.environ, "TESTS": TESTS}
    made = subprocess.run(words, input=json.dumps(job), capture_output=True, text=True, timeout=START_S, env=environment)
    assert (made.returncode, made.stdout.strip()) == (0, "None"), made.stderr
    assert Path(f"{program}.out").read_text() == repr([secret.strip(), "false", 0, False])


def test_what_cannot_run_on_spark_is_refused(tmp_path: Path) -> None:
    config = _objects(tmp_path)
    with served(tmp_path / "db") as address, standalone(address, tmp_path) as rest:

        def errors(**changes: str | None) -> dict[str, str]:
            given = {name: text for name, text in {**config, **changes}.items() if text is not None}
            answer = rest.call("PUT", f"/connector-plugins/{given['connector.class']}/config/validate", given)[1]
            return {one["value"]["name"]: one["value"]["errors"][0] for one in answer["configs"] if one["value"]["errors"]}

        assert errors() == {}
        assert errors(**{"logdb.runner": "flink"}) == {
            "logdb.runner": "Invalid value flink for configuration logdb.runner: must be one of worker, spark"
        }
        assert list(errors(**{"spark.sql.streaming.checkpointLocation": None})) == ["spark.sql.streaming.checkpointLocation"]
        assert list(errors(**{"format.class": "ByteArrayFormat"})) == ["format.class"]
        assert list(errors(**{"store.url": "az://account/container"})) == ["store.url"]
        assert list(errors(**{"errors.deadletterqueue.topic.name": "dlq"})) == ["errors.deadletterqueue.topic.name"]
        assert "runs in the worker alone" in errors(**{"connector.class": "FileStreamSink"})["logdb.runner"]
