"""Targets and sources that fail, through the REST API of a worker: its status says why, no record is lost, and another connector goes on.

Wrong classes, properties, ports, names, records and offsets: ``test_standalone``.  A database: ``databases/test_pipeline``.
"""

import json

import pytest

import logdb
from support.connect_workers import served, standalone
from support.moto_server import CREDENTIALS, s3
from support.waiting import until

__all__ = ["s3"]


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path / "db") as address:
        yield address


def file_source(path, name):
    return {"name": name, "connector.class": "FileStreamSource", "file": str(path), "topic": name}


def values(broker, topic):
    with logdb.open(broker) as db:
        if topic not in [one.name for one in db.topics()]:
            return []
        return [record.value.decode() for record in db.log(topic).read(0, isolation_level="read_committed")]


def append(path, *lines):
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_a_file_that_vanishes(broker, tmp_path, caplog):
    """The source waits for it, and reads the next one of this name from its start."""
    vanishing, other = tmp_path / "vanishing.txt", tmp_path / "other.txt"
    append(vanishing, "a", "b")
    append(other, "1")
    with standalone(broker, tmp_path, file_source(vanishing, "vanishing"), file_source(other, "other")) as rest:
        until(lambda: values(broker, "vanishing") == ["a", "b"])
        vanishing.unlink()
        until(lambda: f"{vanishing}" in caplog.text)
        append(other, "2")
        until(lambda: values(broker, "other") == ["1", "2"])
        assert rest.states("vanishing") == ["RUNNING", "RUNNING"]
        append(vanishing, "c", "d")
        until(lambda: values(broker, "vanishing") == ["a", "b", "c", "d"])
    assert values(broker, "vanishing") == ["a", "b", "c", "d"]


def test_a_bucket_that_refuses(broker, tmp_path, s3):
    """The task fails and names the bucket.  Once the bucket takes objects, a restart delivers each record."""
    lines, other = tmp_path / "lines.txt", tmp_path / "other.txt"
    append(lines, *range(6))
    sink = {
        "name": "objects",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "lines",
        "store.url": s3.url,
        "s3.bucket.name": "refuses",
        "flush.size": "3",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        **CREDENTIALS,
    }
    with standalone(broker, tmp_path, file_source(lines, "lines"), sink, file_source(other, "other")) as rest:
        rest.await_states("objects", "RUNNING", "FAILED")
        assert "refuses" in rest.get("/connectors/objects/status")["tasks"][0]["trace"]
        append(other, "1")
        until(lambda: values(broker, "other") == ["1"])
        assert rest.states("other") == ["RUNNING", "RUNNING"]
        s3.bucket("refuses")
        assert rest.call("POST", "/connectors/objects/restart?includeTasks=true&onlyFailed=true")[0] == 202
        until(lambda: len(s3.objects("refuses")) == 2)
        rest.await_states("objects", "RUNNING", "RUNNING")
    found = b"".join(text for _, text in sorted(s3.objects("refuses").items()))
    assert [json.loads(line) for line in found.splitlines()] == [str(number) for number in range(6)]
