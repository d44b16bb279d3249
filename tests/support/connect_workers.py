"""Connect's workers for tests: in this process, or as processes that are killed; and calls of their REST API."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from unittest import mock

import logdb
from logdb_connect.client import Client
from logdb_connect.runtime import starting
from support import three_brokers
from support.ports import free_port
from support.waiting import until

LOGDB = os.path.join(os.path.dirname(sys.executable), "logdb")
KILLS = 6 * int(os.environ.get("LOGDB_TEST_SCALE", "1"))
"""Rounds of kills: 6 in ``make check``, 102 in ``make fault``."""
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "100",
    "task.shutdown.graceful.timeout.ms": "2000",
}
SHARED = {
    "exactly.once.source.support": "enabled",
    "group.id": "workers",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "offset.storage.partitions": "2",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
}


def written(path: Path, properties: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


class Rest:
    """Calls of a worker's REST API."""

    def __init__(self, port: int) -> None:
        self.port = port

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            content = error.read()
            return error.code, json.loads(content) if content else None

    def get(self, path: str) -> Any:
        status, document = self.call("GET", path)
        assert status == 200, (status, document)
        return document

    def states(self, name: str) -> list[str]:
        """The states of a connector and its tasks; empty where there is none yet."""
        status, document = self.call("GET", f"/connectors/{name}/status")
        if status != 200:
            return []
        return [document["connector"]["state"], *(task["state"] for task in document["tasks"])]

    def await_states(self, name: str, *wanted: str) -> None:
        self._await(lambda: self.states(name) == list(wanted), name)

    def _await(self, condition: Callable[[], bool], name: str) -> None:
        try:
            until(condition)
        except AssertionError as error:
            raise AssertionError(f"{name}: {self.call('GET', f'/connectors/{name}/status')}") from error


def _of_one_partition(client: Client, name: str, *, partitions: int = -1, **more: Any) -> None:
    """``Client.create_topic``, with a server's default: a cluster's is six."""
    _create_topic(client, name, partitions=1 if partitions == -1 else partitions, **more)


_create_topic = Client.create_topic


@contextlib.contextmanager
def served(directory: Path) -> Iterator[str]:
    """A served database; its URL.  With ``--brokers 3`` that of a node, which need not lead anything."""
    if three_brokers.Shared.chosen:
        with three_brokers.opened(), mock.patch.object(Client, "create_topic", _of_one_partition):
            yield random.choice(three_brokers.Shared.cluster().urls)
        return
    with logdb.open(directory) as db, logdb.serve(db, http="127.0.0.1:0") as server:
        yield server.addresses[0]


@contextlib.contextmanager
def standalone(place: str, directory: Path, *connectors: Mapping[str, str], **more: str) -> Iterator[Rest]:
    """A standalone worker in this process."""
    port = free_port()
    properties = {**WORKER, "bootstrap.servers": place, "listeners": f"http://127.0.0.1:{port}", **_dotted(more)}
    worker = written(directory / "worker.properties", {"offset.storage.file.filename": f"{directory}/offsets", **properties})
    files = [written(directory / f"{one['name']}.properties", one) for one in connectors]
    with starting.standalone(worker, files):
        yield Rest(port)


@contextlib.contextmanager
def distributed(place: str, directory: Path, name: str = "worker", **more: str) -> Iterator[Rest]:
    """A distributed worker in this process."""
    port = free_port()
    properties = {**WORKER, **SHARED, "bootstrap.servers": place, "listeners": f"http://127.0.0.1:{port}", **_dotted(more)}
    with starting.distributed(written(directory / f"{name}.properties", properties)):
        yield Rest(port)


def random_seed() -> int:
    """Of a test that kills at random; ``LOGDB_KILLS_SEED`` repeats one."""
    seed = int(os.environ.get("LOGDB_KILLS_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"LOGDB_KILLS_SEED={seed}")
    return seed


class BrokerProcess:
    """``logdb serve`` as a process, which starts again at the same port."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port = free_port()
        self.place = f"127.0.0.1:{self.port}"
        self._words = [LOGDB, "serve", str(directory), "--kafka", self.place, *options]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class WorkerProcess:
    """A worker as a process, once it is ready.  ``kind``: standalone or distributed."""

    def __init__(self, kind: str, *files: str, port: int) -> None:
        command = [sys.executable, "-X", "faulthandler", LOGDB, "connect", kind, *files]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.rest = Rest(port)
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self._reading = [threading.Thread(target=self._read, args=(each,), daemon=True) for each in ("stdout", "stderr")]
        for thread in self._reading:
            thread.start()
        try:
            until(lambda: self.stdout or self.process.poll() is not None, "the worker is ready", 60)
        except AssertionError as error:
            self.process.send_signal(signal.SIGABRT)  # it prints its stacks, and ends
            self.process.wait(60)
            self.__exit__()
            raise AssertionError("".join([f"{error}\n", *self.stderr])) from None
        assert self.stdout, "".join(self.stderr)

    def _read(self, name: str) -> None:
        with getattr(self.process, name) as lines:
            for line in lines:
                getattr(self, name).append(line)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        for thread in self._reading:
            thread.join()


def _dotted(more: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in more.items()}
