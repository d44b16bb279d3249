"""What a worker with one connector takes."""

from pathlib import Path

from support.connect_workers import WORKER, WorkerProcess, served, written
from support.ports import free_port
from support.waiting import until

MEMORY_KB_MAX = 100_000


def test_a_worker_with_one_connector(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"line {number}\n" for number in range(200_000)))
    port = free_port()
    with served(tmp_path / "db") as broker:
        properties = {**WORKER, "bootstrap.servers": broker, "listeners": f"http://127.0.0.1:{port}"}
        files = [
            written(tmp_path / "worker.properties", {**properties, "offset.storage.file.filename": f"{tmp_path}/offsets"}),
            written(
                tmp_path / "in.properties",
                {"name": "in", "connector.class": "FileStreamSource", "file": f"{tmp_path}/in.txt", "topic": "lines"},
            ),
        ]
        with WorkerProcess("standalone", *files, port=port) as worker:
            size = len((tmp_path / "in.txt").read_bytes())
            until(lambda: [one["offset"]["position"] for one in worker.rest.get("/connectors/in/offsets")["offsets"]] == [size])
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{worker.process.pid}/status").read_text().splitlines())
            assert int(lines["VmHWM"].split()[0]) <= MEMORY_KB_MAX
            assert worker.stop() == 0
