"""Secrets of a driver: the file with those of Spark, at every end of the driver, and the credentials of the database."""

import json
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import logdb
from logdb_connect.client import connected
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.errors import ConnectError
from logdb_connect.runtime import spark
from logdb_connect.runtime.tasks import TaskId
from logdb_connect.spark.settings import CHECKPOINT

SECRET = {"spark.my.password": "hush-hush"}
_KEEP = (
    "import json, os, signal, sys; from logdb_connect.spark import driver; job = json.loads(sys.stdin.readline()); driver.job.update(job); "
    "driver.keep_private({name: job['conf'][name] for name in job['private']}, job['directory']); "
    "assert 'hush' in open(driver._private).read(); print(driver._private, file=sys.stderr, flush=True); "
)


def test_a_driver_whose_worker_has_ended_deletes_it(tmp_path):
    directory = tmp_path / "private"
    directory.mkdir()
    job = {"conf": SECRET, "private": list(SECRET), "directory": str(directory)}
    words = [sys.executable, "-c", f"{_KEEP} driver._listen()"]
    made = subprocess.run(words, input=json.dumps(job) + "\n", stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert Path(made.stderr.strip()).parent == directory, made.stderr
    assert not directory.exists()


@contextmanager
def runner_at(place):
    given = {"name": "o", "store.url": "file:///out", "flush.size": "10", "logdb.runner": "spark", CHECKPOINT: "/checkpoints", **SECRET}
    with closing(connected({"bootstrap.servers": place})) as client:
        settings = spark.SparkSettings(
            kind="objects",
            pattern="^t$",
            group_id="g",
            worker={"bootstrap.servers": place},
            config=ObjectStoreSinkConnector.config_def.parse(given),
            used_topic=lambda _: None,
        )
        yield spark.SparkRunner(TaskId("o", 0), "STARTED", lambda *_: None, properties=given, client=client, settings=settings)


def test_a_worker_deletes_it_after_a_driver_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(spark, "_COMMAND", (sys.executable, "-c", f"{_KEEP} os.kill(os.getpid(), signal.SIGKILL)"))
    with runner_at(str(tmp_path / "db")) as runner, pytest.raises(ConnectError, match="Its driver ended with -9") as failed:
        runner._run()
    path = Path(str(failed.value).split("\n")[1])
    assert path.suffix == ".conf"
    assert not path.parent.exists()


def test_credentials_of_urls_are_no_options_of_spark(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        db.security.add_user("a@b", "hush-hush", super_user=True)
        with runner_at(server.addresses[0].replace("//", "//a%40b:hush-hush@")) as runner:
            assert runner._place() == {"url": server.addresses[0]}
            environment = runner._environment()
    assert (environment["LOGDB_USER"], environment["LOGDB_PASSWORD"]) == ("a@b", "hush-hush")
