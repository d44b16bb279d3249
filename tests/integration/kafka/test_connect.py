"""Kafka Connect on the Kafka door: its workers, unchanged, with the file connectors and the settings of Kafka's property files.

Skipped, with the reason, where Java or Maven are missing.
"""

import contextlib
import json
import urllib.request

import pytest

from benches.peers._server import free_port
from benches.peers.kafka.jars import PLATFORM
from logdb import testing
from support.feeding import fed
from support.java import java, properties, running

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONVERTERS = {"key_converter": JSON, "value_converter": JSON, "key_converter_schemas_enable": True, "value_converter_schemas_enable": True}
SOURCE = {"connector_class": "FileStreamSource", "tasks_max": 1, "topic": "connect-test"}
SINK = {"connector_class": "FileStreamSink", "tasks_max": 1, "topics": "connect-test"}
STORAGE = {
    f"{kind}_storage_{name}": value
    for kind, topic in (("offset", "connect-offsets"), ("config", "connect-configs"), ("status", "connect-status"))
    for name, value in (("topic", topic), ("replication_factor", 1))
}


@pytest.fixture(scope="module", autouse=True)
def jars():
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)


def plugins():
    """Where the file connectors are; a scan of all jars for others takes seconds."""
    return {"plugin_path": next(PLATFORM.directory.glob("connect-file-*.jar")), "plugin_discovery": "service_load"}


def values(database, isolation_level="read_committed"):
    """The payloads of the topic, in its order."""
    return [json.loads(one.value)["payload"] for one in database.log("connect-test").read(0, isolation_level=isolation_level)]


def test_the_standalone_worker(tmp_path):
    """A file goes to a topic and from it to a file; a second worker goes on where the first one ended."""
    source, sink = tmp_path / "test.txt", tmp_path / "test.sink.txt"
    source.write_text("foo\nbar\n")
    with testing.broker() as (address, database):
        worker = properties(
            tmp_path / "connect-standalone.properties",
            bootstrap_servers=address,
            **CONVERTERS,
            offset_storage_file_filename=tmp_path / "connect.offsets",
            offset_flush_interval_ms=10_000,
            **plugins(),
            listeners=f"http://127.0.0.1:{free_port()}",
        )
        connectors = [
            properties(tmp_path / "connect-file-source.properties", name="local-file-source", file=source, **SOURCE),
            properties(tmp_path / "connect-file-sink.properties", name="local-file-sink", file=sink, **SINK),
        ]
        command = java("org.apache.kafka.connect.cli.ConnectStandalone", worker, *connectors)
        lines = ["foo", "bar"]
        for line in ("Another line", "and one more"):
            with running(command, tmp_path / "log") as connect:
                connect.until(lambda: sink.exists() and sink.read_text().splitlines() == lines)
                with source.open("a") as file:
                    file.write(f"{line}\n")
                lines.append(line)
                connect.until(lambda: sink.read_text().splitlines() == lines)
        assert values(database) == lines
        first = next(database.log("connect-test").read(0))
        assert first.value == b'{"schema":{"type":"string","optional":false},"payload":"foo"}'


# ---------------------------------------------------------------- distributed


class Worker:
    """A distributed worker, with the address of its REST API."""

    def __init__(self, address, directory, stack):
        self.name = f"127.0.0.1:{free_port()}"
        file = properties(
            directory / f"connect-distributed-{self.name}.properties",
            bootstrap_servers=address,
            group_id="connect-cluster",
            **CONVERTERS,
            **STORAGE,
            offset_flush_interval_ms=10_000,
            **plugins(),
            listeners=f"http://{self.name}",
            # of its own accord it waits minutes for a worker that does not come back
            scheduled_rebalance_max_delay_ms=0,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            exactly_once_source_support="enabled",
            consumer_isolation_level="read_committed",
        )
        command = java("org.apache.kafka.connect.cli.ConnectDistributed", file)
        self.program = stack.enter_context(running(command, directory / f"log-{self.name}"))

    def ask(self, path, config=None):
        """What a path says; with a config, it is put there first.  None: not yet."""
        body = None if config is None else json.dumps({name.replace("_", "."): str(value) for name, value in config.items()}).encode()
        request = urllib.request.Request(f"http://{self.name}{path}", body, {"Content-Type": "application/json"})
        request.method = "GET" if body is None else "PUT"
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def task_of(self, connector):
        """The worker that runs the task of a connector; None: none does."""
        status = self.ask(f"/connectors/{connector}/status") or {"tasks": []}
        return next((task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"), None)


def test_distributed_workers(tmp_path, record_property):
    """The worker that reads a file is killed; the other one goes on, and each line comes once."""
    source, sink = tmp_path / "test.txt", tmp_path / "test.sink.txt"
    lines = []
    with testing.broker() as (address, database), contextlib.ExitStack() as stack, source.open("a", buffering=1) as file:

        def write(number):
            file.write(f"line {number}\n")
            lines.append(f"line {number}")

        workers = [Worker(address, tmp_path, stack) for _ in range(2)]
        for worker in workers:
            worker.program.until(lambda asked=worker: asked.ask("/connectors") == [])
        workers[0].program.until(lambda: workers[0].ask("/connectors/local-file-sink/config", {"file": sink, **SINK}))
        workers[1].program.until(lambda: workers[1].ask("/connectors/local-file-source/config", {"file": source, **SOURCE}))
        with fed(write):
            name = workers[0].program.until(lambda: workers[0].task_of("local-file-source"))
            lost, left = sorted(workers, key=lambda worker: worker.name != name)
            lost.program.until(lambda: len(values(database)) > 1_000)
            lost.program.kill()
            wanted = len(values(database)) + 1_000
            left.program.until(lambda: len(values(database)) >= wanted)
        left.program.until(lambda: len(values(database)) >= len(lines))
        left.program.until(lambda: len(set(sink.read_text().splitlines()) & set(lines)) == len(lines))
        assert values(database) == lines
        dropped = len(values(database, "read_uncommitted")) - len(lines)
        record_property("told", f"Connect: {len(lines)} lines, {dropped} of aborted transactions")
