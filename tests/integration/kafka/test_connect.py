"""Kafka Connect on the Kafka door: its workers, unchanged, with the file connectors and the settings of Kafka's property files.

Skipped, with the reason, where Java or Maven are missing.
"""

import contextlib
import json
import urllib.request

import pytest

from benches.peers.kafka.jars import PLATFORM
from logdb import testing
from support.feeding import fed
from support.java import java, properties, running, worker_settings

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]
SOURCE = {
    "connector_class": "FileStreamSource",
    "tasks_max": 1,
    "topic": "connect-test",
    "transaction_boundary": "interval",  # a transaction is open at nearly every time
    "transaction_boundary_interval_ms": 500,
}
SINK = {"connector_class": "FileStreamSink", "tasks_max": 1, "topics": "connect-test"}
STORAGE = {
    f"{kind}_storage_{name}": value
    for kind, topic in (("offset", "connect-offsets"), ("config", "connect-configs"), ("status", "connect-status"))
    for name, value in (("topic", topic), ("replication_factor", -1))
}


@pytest.fixture(scope="module", autouse=True)
def jars():
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)


def values(database, isolation_level="read_committed"):
    """The payloads of the topic, in its order."""
    return [json.loads(one.value)["payload"] for one in database.log("connect-test").read(0, isolation_level=isolation_level)]


class Worker:
    """A distributed worker, with the address of its REST API."""

    def __init__(self, address, directory, stack):
        settings = worker_settings()
        self.name = settings["listeners"].removeprefix("http://")
        file = properties(
            directory / f"connect-distributed-{self.name}.properties",
            bootstrap_servers=address,
            group_id="connect-cluster",
            **settings,
            **STORAGE,
            # of its own accord it waits minutes for a worker that does not come back
            scheduled_rebalance_max_delay_ms=0,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            exactly_once_source_support="enabled",
            consumer_isolation_level="read_committed",
        )
        command = java("org.apache.kafka.connect.cli.ConnectDistributed", file)
        self.program = stack.enter_context(running(command, directory / f"log-{self.name}"))

    def ask(self, method, path, config=None):
        """The answer to a request, which may have the config of a connector; None: there is none yet."""
        body = None if config is None else json.dumps({name.replace("_", "."): str(value) for name, value in config.items()}).encode()
        request = urllib.request.Request(f"http://{self.name}/connectors{path}", body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.loads(answer.read() or b"true")
        except OSError:
            return None

    def task_of(self, connector):
        """The worker that runs the task of a connector; None: none does."""
        status = self.ask("GET", f"/{connector}/status") or {"tasks": []}
        return next((task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"), None)


def test_distributed_workers(tmp_path, record_property):
    """The worker that reads a file is killed; the other one goes on, and each line comes once.  Offsets are told and reset at last."""
    source, sink = tmp_path / "test.txt", tmp_path / "test.sink.txt"
    lines = []
    with testing.broker() as (address, database), contextlib.ExitStack() as stack, source.open("a", buffering=1) as file:

        def write(number):
            file.write(f"line {number}\n")
            lines.append(f"line {number}")

        workers = [Worker(address, tmp_path, stack) for _ in range(2)]
        for worker in workers:
            worker.program.until(lambda asked=worker: asked.ask("GET", "") == [])
        workers[0].program.until(lambda: workers[0].ask("PUT", "/local-file-sink/config", {"file": sink, **SINK}))
        workers[1].program.until(lambda: workers[1].ask("PUT", "/local-file-source/config", {"file": source, **SOURCE}))
        with fed(write):
            name = workers[0].program.until(lambda: workers[0].task_of("local-file-source"))
            lost, left = sorted(workers, key=lambda worker: worker.name != name)
            log = database.log("connect-test")
            lost.program.until(lambda: 1_000 < log.last_stable_offset < log.end_offset)
            lost.program.kill()
            wanted = log.end_offset + 1_000
            left.program.until(lambda: log.last_stable_offset > wanted)
        left.program.until(lambda: len(values(database)) >= len(lines))
        left.program.until(lambda: len(set(sink.read_text().splitlines()) & set(lines)) == len(lines))
        assert values(database) == lines
        dropped = len(values(database, "read_uncommitted")) - len(lines)
        record_property("told", f"Connect: {len(lines)} lines, {dropped} of aborted transactions")
        for name in ("local-file-source", "local-file-sink"):
            left.program.until(lambda path=f"/{name}/stop": left.ask("PUT", path))
            told = left.program.until(lambda path=f"/{name}/offsets": left.ask("GET", path))
            assert [one["offset"] for one in told["offsets"]] in (
                [{"position": source.stat().st_size}],
                [{"kafka_offset": log.end_offset - 1}],
            )
            left.program.until(lambda path=f"/{name}/offsets": left.ask("DELETE", path))
            assert left.ask("GET", f"/{name}/offsets") == {"offsets": []}
