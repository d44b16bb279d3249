"""kill -9 of the worker and of the broker at random: from file over topic to file each line arrives once, in order."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.connect_workers import SHARED, WORKER, WorkerProcess, written
from support.ports import free_port
from support.waiting import until

ROUNDS = 10 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))


class Broker:
    """``logdb serve`` as a process."""

    def __init__(self, directory: Path) -> None:
        self._directory, self.port = directory, free_port()
        self.start()

    def start(self) -> None:
        command = os.path.join(os.path.dirname(sys.executable), "logdb")
        words = [command, "serve", str(self._directory), "--kafka", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("kind", ["standalone", "distributed"])
def test_each_line_arrives_once(tmp_path, kind):
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    chance = random.Random(seed)
    port = free_port()
    broker = Broker(tmp_path / "db")
    properties = {**WORKER, "bootstrap.servers": f"127.0.0.1:{broker.port}", "listeners": f"http://127.0.0.1:{port}"}
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
        stack.callback(lambda: broker.process.poll() is None and broker.kill())
        worker = WorkerProcess(kind, *files, port=port)
        stack.callback(lambda: worker.__exit__())  # noqa: PLW0108 -- of the last worker
        if kind == "distributed":
            for one in (source, sink):
                until(lambda one=one: worker.rest.call("PUT", f"/connectors/{one['name']}/config", one)[0] in (200, 201))
        count = 0
        for _ in range(ROUNDS):
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
