"""Spark on three machines that share the network and the Python packages, and nothing else."""

import json
import os
import subprocess
import sys

import pytest

import logdb
from support.spark_cluster import machines, needs_machines
from support.staged import values
from support.waiting import until

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(1_800), *needs_machines()]  # six processes of Java

PARTITIONS, PER_PARTITION = 4, 5_000

PROGRAM = """
import json, os, socket, sys
import logdb
import pyarrow
from logdb_spark_source import session

path, driver, staging = sys.argv[1:]


def sums(batches):
    total = sum(int(value) for batch in batches for value in batch["value"].to_pylist())
    yield pyarrow.RecordBatch.from_pydict({"machine": [os.stat("/tmp").st_dev], "total": [total]})


def failure(call):
    try:
        call()
    except Exception as error:
        from logdb_spark_source.running import _sentence
        return _sentence(str(error))


spark = session()
found = {"partitions": spark.conf.get("spark.sql.shuffle.partitions")}
with logdb.open(path) as database, logdb.serve(database, http=f"{driver}:0", insecure=True) as server:
    place = {"url": server.addresses[0]}
    frame = spark.read.format("logdb").options(**place, subscribe="numbers", columns="value").load()
    found["rows"] = [row.asDict() for row in frame.mapInArrow(sums, "machine long, total long").collect()]
    frame.write.format("logdb").options(**place, topic="copies").mode("append").save()
    found["uploads"] = os.listdir(f"{path}/uploads")
    write = frame.write.format("logdb").options(**place, topic="copies", stagingPath=staging).mode("append")
    found["staged on the driver"] = failure(write.save)
found["path on the driver"] = failure(lambda: spark.read.format("logdb").options(path=path, subscribe="numbers").load().count())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with machines(tmp_path_factory.mktemp("machines") / "cluster") as started:
        yield started


def test_the_sink_over_a_url_needs_nothing_that_the_machines_share(cluster, tmp_path):
    path, program = tmp_path / "db", tmp_path / "program.py"
    program.write_text(PROGRAM)
    with logdb.open(path) as db:
        db.create_topic("numbers", partitions=PARTITIONS)
        db.create_topic("copies")
        for partition in range(PARTITIONS):
            db.log("numbers", partition).append_many([b"%d" % number for number in range(PER_PARTITION)])
    settings = [part for key, value in cluster.settings.items() for part in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-m", "logdb.cli", "spark", "run", "--master", cluster.address, *settings, str(program)]

    done = subprocess.run(
        [*command, path, cluster.driver, tmp_path / "staging"], capture_output=True, text=True, env=os.environ, timeout=1_500
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    with logdb.open(path, mode="r") as db:
        copies = sorted(int(value) for value in values(db, "copies"))
    assert sum(row["total"] for row in found["rows"]) == PARTITIONS * sum(range(PER_PARTITION))
    assert len({row["machine"] for row in found["rows"]} - {os.stat("/tmp").st_dev}) == 2, "two machines, and not this one"
    assert copies == sorted(list(range(PER_PARTITION)) * PARTITIONS)
    assert found["uploads"] == []
    assert found["partitions"] == "2", "the cores of the executors, not those of the driver"
    assert "is not the directory of that name on the driver's host" in found["staged on the driver"]
    assert "every executor must see the directory" in found["path on the driver"].lower()
    look = "import glob; print(glob.glob('/tmp/**/*.staged', recursive=True) + glob.glob('/tmp/logdb-spark*'))"
    for worker in range(2):  # its executor ends a moment after the program
        until(lambda worker=worker: cluster.run(worker, look).stdout.strip() == "[]", f"worker {worker} leaves no file", 60)
