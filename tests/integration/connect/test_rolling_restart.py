"""A rolling restart of two workers with four connectors: how long delivery stops, and that each line arrives once."""

import contextlib
import itertools
import threading
import time

from support.connect_workers import SHARED, WORKER, WorkerProcess, served, written
from support.ports import free_port
from support.waiting import until

DELAY_S = 30
LANES = ("one", "two")


class Lane:
    """A file that grows all the time, and the longest pause in which its copy did not."""

    def __init__(self, directory, name):
        self.name, self.source, self.copy = name, directory / f"{name}.in", directory / f"{name}.out"
        self.written, self.pause_s = 0, 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def configs(self):
        yield f"{self.name}-source", {"connector.class": "FileStreamSource", "file": str(self.source), "topic": self.name}
        yield f"{self.name}-sink", {"connector.class": "FileStreamSink", "file": str(self.copy), "topics": self.name}

    def arrived(self):
        return self.copy.read_text().splitlines() if self.copy.exists() else []

    def _run(self):
        size, changed = 0, time.monotonic()
        with self.source.open("a", buffering=1) as file:
            while not self._stop.wait(0.02):
                file.write(f"{self.written}\n")
                self.written += 1
                now = self.copy.stat().st_size
                if now != size:
                    size, changed = now, time.monotonic()
                self.pause_s = max(self.pause_s, time.monotonic() - changed)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def test_delivery_stops_for_less_than_the_delay(tmp_path):
    lanes = [Lane(tmp_path, name) for name in LANES]
    configs = dict(itertools.chain.from_iterable(lane.configs() for lane in lanes))
    for lane in lanes:
        lane.source.write_text("begin\n")
    with served(tmp_path / "db") as broker, contextlib.ExitStack() as stack:
        workers = {}

        def start(port):
            properties = {**WORKER, **SHARED, "bootstrap.servers": broker, "listeners": f"http://127.0.0.1:{port}"}
            properties["scheduled.rebalance.max.delay.ms"] = str(DELAY_S * 1000)
            workers[port] = WorkerProcess("distributed", written(tmp_path / f"{port}.properties", properties), port=port)
            stack.callback(workers[port].__exit__)

        def shares():
            """How many connectors and tasks each worker runs."""
            found = [next(iter(workers.values())).rest.call("GET", f"/connectors/{name}/status")[1] for name in configs]
            parts = [part for each in found if "connector" in each for part in (each["connector"], *each["tasks"])]
            running = [part["worker_id"] for part in parts if part["state"] == "RUNNING"]
            return sorted(running.count(f"127.0.0.1:{port}") for port in workers)

        for port in (free_port(), free_port()):
            start(port)
        for name, config in configs.items():
            until(lambda name=name, config=config: workers[port].rest.call("PUT", f"/connectors/{name}/config", config)[0] in (200, 201))
        until(lambda: shares() == [4, 4], "each worker runs half")
        until(lambda: all(lane.arrived() for lane in lanes), "delivery has begun")
        for lane in lanes:
            stack.enter_context(lane)
        for port in list(workers):
            assert workers.pop(port).stop() == 0
            start(port)
            until(lambda: shares() == [4, 4], "the worker that returns has its share again", DELAY_S + 30)
        for lane in lanes:
            lane.__exit__()
            until(lambda lane=lane: len(lane.arrived()) > lane.written, "all lines arrive")
            assert lane.arrived() == ["begin", *map(str, range(lane.written))]
        print("longest pauses:", *(f"{lane.pause_s:.1f} s" for lane in lanes))
        assert max(lane.pause_s for lane in lanes) < DELAY_S
