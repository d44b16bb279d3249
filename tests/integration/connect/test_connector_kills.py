"""kill -9 of a worker at random: a growing, rotating file to a topic, and from there to a file and to objects; each line once."""

import random
import time
from pathlib import Path

import logdb
from logdb_connect.connectors.objects.source import ObjectStoreSourceConnector
from support.connect_tasks import Source
from support.connect_workers import KILLS, WORKER, WorkerProcess, random_seed, served, written
from support.ports import free_port
from support.waiting import until

CONNECTORS = (
    {
        "name": "in",
        "connector.class": "FileStreamSource",
        "topic": "lines",
        "rotated.file.pattern": "app.*",
        "rotated.file.quiet.ms": "100",
        "batch.size": "7",
    },
    {"name": "out", "connector.class": "FileStreamSink", "topics": "lines"},
    {
        "name": "objects",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "lines",
        "flush.size": "10",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
    },
)


class Writer:
    """A program that writes a log, and rotates it."""

    def __init__(self, path: Path) -> None:
        self._path, self.written = path, 0

    def write(self, count: int) -> None:
        with self._path.open("a") as file:
            for _ in range(count):
                file.write(f"line {self.written}\n")
                self.written += 1

    def rotate(self) -> None:
        self._path.rename(self._path.with_suffix(f".{self.written}"))


def test_each_line_is_once_in_file_and_objects(tmp_path):
    chance = random.Random(random_seed())
    where = {
        "in": {"file": f"{tmp_path}/app.log"},
        "out": {"file": f"{tmp_path}/out.txt"},
        "objects": {"store.url": f"file://{tmp_path}/store"},
    }
    writer = Writer(tmp_path / "app.log")
    with served(tmp_path / "db") as address, logdb.open(address) as db:
        db.create_topic("lines", partitions=2)
        port = free_port()
        worker = {**WORKER, "bootstrap.servers": address, "listeners": f"http://127.0.0.1:{port}"}
        worker |= {"offset.storage.file.filename": f"{tmp_path}/offsets"}
        files = [written(tmp_path / "worker.properties", worker)]
        files += [written(tmp_path / f"{one['name']}.properties", one | where[one["name"]]) for one in CONNECTORS]
        for turn in range(KILLS):
            with WorkerProcess("standalone", *files, port=port) as process:
                end = time.monotonic() + chance.uniform(0.1, 1.5)
                while time.monotonic() < end:
                    writer.write(chance.randrange(30))
                    time.sleep(0.01)
                if turn == 0:  # without an offset, a source begins with the present file: those that were rotated before are not its own
                    until(lambda: process.rest.get("/connectors/in/offsets")["offsets"])
                process.kill()
            if turn % 3 == 1:
                writer.rotate()
        writer.write(1)
        with WorkerProcess("standalone", *files, port=port) as process:
            until(lambda: len((tmp_path / "out.txt").read_text().splitlines()) >= writer.written, "all lines are in the file", 60)
            process.stop()
        stored = [record.value.decode() for part in range(2) for record in db.log("lines", part).read(0, isolation_level="read_committed")]
    wanted = [f"line {number}" for number in range(writer.written)]
    assert sorted(stored) == sorted(wanted)
    assert sorted((tmp_path / "out.txt").read_text().splitlines()) == sorted(wanted)
    objects = Source(ObjectStoreSourceConnector, {**where["objects"], "s3.poll.interval.ms": "0"}).drain()
    assert len(set(objects)) == len(objects) > writer.written - 20
    assert set(objects) <= set(wanted)
