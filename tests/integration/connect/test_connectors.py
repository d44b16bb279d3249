"""Connectors in a worker: what a worker and a connector only do together."""

import json
from pathlib import Path

import logdb
from support.connect_workers import WORKER, WorkerProcess, served, standalone, written
from support.moto_server import CREDENTIALS, s3
from support.ports import free_port
from support.waiting import until

__all__ = ["s3"]

EXAMPLES = Path(__file__).parents[3] / "examples" / "connect"


def test_a_file_sink_that_is_killed_before_its_first_commit_has_each_line_once(tmp_path):
    out = tmp_path / "out.txt"
    with served(tmp_path / "db") as address, logdb.open(address) as db:
        db.create_topic("lines", partitions=2)
        port = free_port()
        worker = {**WORKER, "bootstrap.servers": address, "listeners": f"http://127.0.0.1:{port}", "offset.flush.interval.ms": "60000"}
        files = [
            written(tmp_path / "worker.properties", {"offset.storage.file.filename": f"{tmp_path}/offsets", **worker}),
            written(
                tmp_path / "sink.properties", {"name": "out", "connector.class": "FileStreamSink", "file": str(out), "topics": "lines"}
            ),
        ]
        for turn in range(3):
            with WorkerProcess("standalone", *files, port=port) as process:
                for part in range(2):  # the second partition begins when lines of the first one are not committed yet
                    line = f"line {turn} of {part}\n"
                    db.log("lines", part).append(value=line.strip().encode())
                    until(lambda line=line: out.exists() and line in out.read_text())
                process.kill()
        with WorkerProcess("standalone", *files, port=port) as process:
            process.rest.await_states("out", "RUNNING", "RUNNING")
            until(lambda: len(out.read_text().splitlines()) == 6)
            process.stop()
    assert sorted(out.read_text().splitlines()) == [f"line {turn} of {part}" for turn in range(3) for part in range(2)]


def test_made_up_records_reach_s3(tmp_path, s3):
    bucket = s3.bucket("worker")
    datagen = {
        "name": "users",
        "connector.class": "io.confluent.kafka.connect.datagen.DatagenConnector",
        "kafka.topic": "users",
        "quickstart": "users",
        "max.interval": "0",
        "iterations": "1000",
    }
    sink = {
        "name": "to-s3",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "users",
        "s3.bucket.name": bucket,
        "store.url": s3.url,
        "flush.size": "100",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        **CREDENTIALS,
    }
    converter = {"value_converter": "org.apache.kafka.connect.json.JsonConverter"}
    with standalone(str(tmp_path / "db"), tmp_path, datagen, sink, **converter):
        until(lambda: len(s3.objects(bucket)) == 10)
    rows = [json.loads(line) for _, data in sorted(s3.objects(bucket).items()) for line in data.splitlines()]
    assert len(rows) == 1000
    assert {"registertime", "userid", "regionid", "gender"} == rows[0].keys()


def test_the_plugins_of_the_examples(tmp_path):
    heart = {"name": "heart", "connector.class": "heartbeat:HeartbeatConnector", "topic": "beats", "interval.ms": "20"}
    for turn in (1, 2):
        with standalone(str(tmp_path / "db"), tmp_path, heart, plugin_path=str(EXAMPLES)) as rest:
            rest.await_states("heart", "RUNNING", "RUNNING")
            until(lambda turn=turn: any(one["offset"]["next"] > 5 * turn for one in rest.get("/connectors/heart/offsets")["offsets"]))
    with logdb.open(tmp_path / "db") as db:
        values = [record.value.decode() for record in db.log("beats", 0).read(0, isolation_level="read_committed")]
    assert values == [f"beat {number}" for number in range(len(values))]
    out = tmp_path / "out.txt"
    append = {"name": "append", "connector.class": "append:AppendConnector", "topics": "beats", "file": str(out)}
    with standalone(str(tmp_path / "db"), tmp_path, append, plugin_path=str(EXAMPLES)) as rest:
        until(lambda: rest.get("/connectors/append/offsets")["offsets"] and out.read_text().count("\n") == len(values))
    assert [line.split(" ", 2)[2] for line in out.read_text().splitlines()] == values
