"""Nodes of a cluster over the real state machine and real stores; what stands between them is called directly."""

import threading
from types import SimpleNamespace

from logdb.store.store import Store
from logdb_replication.controller import commands
from logdb_replication.controller.commands import RegisterBroker, UnfenceBroker
from logdb_replication.controller.machine import Machine
from logdb_replication.local_topics import LocalTopics
from logdb_replication.metadata import ClusterMetadata


class Controller:
    """The state machine of a cluster, and the nodes that follow it at once."""

    def __init__(self) -> None:
        self.machine, self.index, self.nodes, self._lock = Machine("c"), 0, [], threading.RLock()
        for node in (1, 2, 3):
            self.propose(RegisterBroker(node, f"i{node}", {"http": ("127.0.0.1", 8000 + node)}, f"rack{node}"))
            self.propose(UnfenceBroker(node, node))

    leader = 3

    def propose(self, command, timeout_s=1.0):
        with self._lock:
            self.index += 1
            answer = self.machine.apply(self.index, commands.encode(command))
            for node in self.nodes:
                node.take(self.machine.state)
            return commands.decode_answer(answer)


class Node:
    """A store that has the topics of the cluster, and its metadata."""

    def __init__(self, path, controller: Controller, number: int) -> None:
        self.store = Store.open(path, replicated=True, durability="fsync")
        self.topics = LocalTopics(self.store)
        nodes = tuple(SimpleNamespace(number=one) for one in (1, 2, 3))
        self.metadata = ClusterMetadata(SimpleNamespace(cluster="c", node=number, nodes=nodes), self.store, controller)
        controller.nodes.append(self)
        self.take(controller.machine.state)

    def take(self, state) -> None:
        self.topics.bring(state)
        self.topics.drop(state)
        self.metadata.publish(state)
