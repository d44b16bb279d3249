"""kill -9 of the worker and of the broker at random: from file over topic to file each line arrives once, in order."""

import contextlib
import random
import time

import pytest

import logdb
from support.connect_workers import KILLS, SHARED, WORKER, BrokerProcess, WorkerProcess, random_seed, served, written
from support.ports import free_port
from support.waiting import until


@pytest.mark.parametrize(("kind", "isolation"), [("standalone", "thread"), ("distributed", "thread"), ("distributed", "process")])
def test_each_line_arrives_once(tmp_path, kind, isolation):
    chance = random.Random(seed := random_seed())
    port = free_port()
    broker = BrokerProcess(tmp_path / "db")
    properties = {**WORKER, "bootstrap.servers": broker.place, "listeners": f"http://127.0.0.1:{port}"}
    properties["task.isolation"] = isolation
    if kind == "standalone":
        properties["offset.storage.file.filename"] = f"{tmp_path}/offsets"
    else:
        properties |= SHARED
    source = {"name": "in", "connector.class": "FileStreamSource", "file": f"{tmp_path}/in.txt", "topic": "lines"}
    sink = {"name": "out", "connector.class": "FileStreamSink", "file": f"{tmp_path}/out.txt", "topics": "lines"}
    files = [written(tmp_path / "worker.properties", properties)]
    if kind == "standalone":
        files += [written(tmp_path / f"{one['name']}.properties", one) for one in (source, sink)]
    with contextlib.ExitStack() as stack:
        stack.callback(broker.kill)
        worker = WorkerProcess(kind, *files, port=port)
        stack.callback(lambda: worker.__exit__())  # noqa: PLW0108 -- of the last worker
        if kind == "distributed":
            for one in (source, sink):
                until(lambda one=one: worker.rest.call("PUT", f"/connectors/{one['name']}/config", one)[0] in (200, 201))
        count = 0
        for _ in range(KILLS):
            with (tmp_path / "in.txt").open("a") as file:
                for _ in range(chance.randrange(1, 20)):
                    size = chance.randrange(1, 200)
                    file.write("".join(f"line {number}\n" for number in range(count, count + size)))
                    file.flush()
                    count += size
                    time.sleep(chance.random() / 100)  # kills fall anywhere
            if chance.random() < 0.3:
                broker.kill()
                broker.start()
            else:
                worker.kill()
                worker.__exit__()
                worker = WorkerProcess(kind, *files, port=port)
        out = tmp_path / "out.txt"
        try:
            until(lambda: out.exists() and len(out.read_text().splitlines()) >= count, f"{seed=}", 60)
        except AssertionError:
            print(*worker.stderr, *(worker.rest.call("GET", f"/connectors/{one}/status") for one in ("in", "out")), sep="\n")
            raise
        assert out.read_text().splitlines() == [f"line {number}" for number in range(count)], f"{seed=}"


def test_a_worker_killed_before_its_first_commit_writes_no_line_twice(tmp_path):
    """The length of the file at the begin is committed before the first line: so the next worker knows what to truncate."""
    wanted = [f"{partition}:{number}" for partition in range(3) for number in range(100)]
    target = tmp_path / "out.txt"
    sink = {"name": "out", "connector.class": "FileStreamSink", "file": str(target), "topics": "lines"}
    with served(tmp_path / "db") as broker:
        with logdb.open(broker) as db:
            db.create_topic("lines", partitions=3)
            for partition in range(3):
                db.log("lines", partition).append_many([line.encode() for line in wanted if line.startswith(f"{partition}:")])
        for flush_interval_ms in ("3600000", "100"):
            port = free_port()
            properties = {
                **WORKER,
                "bootstrap.servers": broker,
                "listeners": f"http://127.0.0.1:{port}",
                "offset.storage.file.filename": f"{tmp_path}/offsets",
                "offset.flush.interval.ms": flush_interval_ms,
            }
            files = written(tmp_path / "worker.properties", properties), written(tmp_path / "out.properties", sink)
            with WorkerProcess("standalone", *files, port=port) as worker:
                until(lambda: target.exists() and len(target.read_text().splitlines()) >= len(wanted))
                if flush_interval_ms == "3600000":
                    worker.kill()
                else:
                    until(lambda: len(worker.rest.get("/connectors/out/offsets")["offsets"]) == 3)
    assert sorted(target.read_text().splitlines()) == sorted(wanted)
