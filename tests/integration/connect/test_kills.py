"""kill -9 of a worker: what its sinks have written is neither lost nor doubled."""

import logdb
from support.connect_workers import WORKER, WorkerProcess, served, written
from support.ports import free_port
from support.waiting import until


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
