"""Brokers of a cluster in this process: real stores, logs, doors and connections; the controller is a machine that all share."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from logdb.broker.broker import Broker
from logdb.client.serving import make_server
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.model import TopicPartition
from logdb.requests.nodes import PartitionState
from logdb.store.store import Store
from logdb_http_api.remote.connection import Security
from logdb_replication.controller import commands
from logdb_replication.controller.machine import Machine
from logdb_replication.local_topics import LocalTopics
from logdb_replication.replica.manager import ReplicaManager
from logdb_replication.replica.peer import HttpPeer

TOKEN = "the-nodes-token"
CLUSTER = "sim"
TOPIC_ID = "id-of-the-topic-000000"


class Controller:
    """The quorum and its log, without failures of its own; ``down``: it answers no request."""

    def __init__(self) -> None:
        self.machine, self._index, self._lock = Machine(CLUSTER), itertools.count(1), threading.Lock()
        self.moved = threading.Condition(self._lock)
        self.down = False

    @property
    def state(self):
        return self.machine.state

    def propose(self, command: Any) -> Any:
        if self.down:
            raise LogdbError("no controller")
        with self.moved:
            answer = self.machine.apply(next(self._index), commands.encode(command))
            self.moved.notify_all()
        return commands.decode_answer(answer)

    def partition(self, topic: str = "t", partition: int = 0) -> PartitionState:
        return self.state.partition(topic, partition)


class Node:
    """One broker; ``watches``: it hears of the controller's states."""

    def __init__(
        self, controller: Controller, nodes: dict[int, Node], number: int, path: Path, *, io: IO | None = None, scrub: int = 0, **times: int
    ):
        self.controller, self.nodes, self.number, self.path = controller, nodes, number, path
        self.store = Store.open(path, replicated=True, durability="fsync", scrub_bytes_per_second=scrub, io=io)
        self.topics = LocalTopics(self.store)
        self.suspected: list[int] = []
        self.led: list[tuple[TopicPartition, int]] = []
        self.watches = threading.Event()
        self.watches.set()
        self.manager = ReplicaManager(
            self.store,
            number,
            connect=lambda node: HttpPeer(self.nodes[node].url, Security(token=TOKEN)),
            propose=lambda command: self.controller.propose(command).state,
            bring=self.topics.bring,
            led=lambda where, epoch: self.led.append((where, epoch)),
            resigned=lambda where, epoch: None,
            suspect=self.suspected.append,
            **{"stall_ms": 60_000} | times,  # only a test of a hanging disk has a leader give up for one slow sync
        )
        self.broker = Broker(self.store, self.store, replication=self.manager)
        self.server = make_server(self.broker, {"http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}, cluster_token=TOKEN, drain_ms=0).start()
        self.url, self.kafka = self.server.addresses
        nodes[number] = self
        host, _, port = self.kafka.rpartition(":")
        command = commands.RegisterBroker(number, f"{number}-{time.monotonic_ns()}", {"kafka": (host, int(port))}, f"rack-{number}")
        self.broker_epoch = controller.propose(command).broker_epoch
        self.applied = self.foreseen = 0
        self._stopped = False
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._watch, self._hear)]
        for thread in self._threads:
            thread.start()
        self.unfence()

    def unfence(self) -> None:
        self.controller.propose(commands.UnfenceBroker(self.number, self.broker_epoch))

    def fence(self) -> None:
        self.controller.propose(commands.FenceBroker(self.number, self.broker_epoch))

    def _hear(self) -> None:
        """As the thread of ``StateCopy`` that watches, beside the one that tells."""
        while not self._stopped:
            with self.controller.moved:
                while not self._stopped and (self.controller.state.index <= self.foreseen or not self.watches.is_set()):
                    self.controller.moved.wait(0.05)
                state = self.controller.state
            if not self._stopped:
                self.manager.foresee(state)
                self.foreseen = state.index

    def _watch(self) -> None:
        while not self._stopped:
            with self.controller.moved:
                while not self._stopped and (self.controller.state.index <= self.applied or not self.watches.is_set()):
                    self.controller.moved.wait(0.05)
                state = self.controller.state
            if not self._stopped:
                self.manager.apply(state, self.broker_epoch)
                self.topics.drop(state)
                self.applied = state.index

    def log(self, topic: str = "t", partition: int = 0):
        return self.store.open_log(topic, partition)

    def stop(self) -> None:
        """End without a word to the controller; the store is closed."""
        self._stopped = True
        self.server.close()
        self.manager.close()
        for thread in self._threads:
            thread.join()
        self.broker.close()
        self.store.close()


class Replicas:
    """A cluster; a context manager."""

    def __init__(self, path: Path, count: int = 3, **options: Any) -> None:
        self.path, self.options = path, options
        self.controller, self.nodes = Controller(), {}
        for number in range(1, count + 1):
            self.start(number)

    def start(self, number: int) -> Node:
        return Node(self.controller, self.nodes, number, self.path / str(number), **self.options)

    def stop(self, number: int) -> None:
        self.nodes[number].stop()
        self.nodes[number].fence()

    def create_topic(self, name: str = "t", partitions: int = 1, **config: Any) -> None:
        config = {"min.insync.replicas": 2, "durability": "fsync"} | {key.replace("_", "."): value for key, value in config.items()}
        topic_id = f"{TOPIC_ID}{name}"[-22:]
        self.controller.propose(commands.CreateTopic(name, topic_id, config, partitions, len(self.nodes)))
        self.settle()

    def settle(self) -> None:
        """Wait until all nodes have applied what the controller has."""
        index = self.controller.state.index
        for node in self.nodes.values():
            eventually(lambda node=node: node.applied >= index or node._stopped)

    def leader(self, topic: str = "t", partition: int = 0) -> Node:
        return self.nodes[self.controller.partition(topic, partition).leader]

    def followers(self, topic: str = "t", partition: int = 0) -> list[Node]:
        return [node for node in self.nodes.values() if node.number != self.controller.partition(topic, partition).leader]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if not node._stopped:
                node.stop()


def eventually(check: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Return once ``check`` is true."""
    until = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < until, "it has not come true"
        time.sleep(0.005)
