"""Requests of Kafka's protocol by hand, each sent to the node of a cluster that a client would send it to."""

import contextlib
import itertools
from typing import Any, Self

import pytest

from support import three_brokers
from support.kafka_wire import Wire

_GROUP, _TRANSACTION = 0, 1
_OF_LEADERS = {
    "DeleteRecords": ("topics", "name", "partitions", "partition_index"),
    "DescribeProducers": ("topics", "name", "partition_indexes", None),
    "Fetch": ("topics", "topic", "partitions", "partition"),
    "ListOffsets": ("topics", "name", "partitions", "partition_index"),
    "OffsetForLeaderEpoch": ("topics", "topic", "partitions", "partition"),
    "Produce": ("topic_data", "name", "partition_data", "index"),
}
"""Where these requests name their topics and partitions."""
_OF_ALL = {"ListGroups": "groups", "ListTransactions": "transaction_states"}
"""What every node answers with its own part of."""
_OF_COORDINATORS = {"DescribeGroups": ("groups", "groups"), "DeleteGroups": ("groups_names", "results")}
"""Where these requests name groups, and their answers have them."""


class ClusterWire:
    """In place of ``kafka_wire.Wire``: a connection to each node.

    A request goes to the coordinator of its group or transactional id, to the leader of its first partition, or to all nodes whose parts
    make its answer; any other one to each node in turn.  Authentication is by all connections.
    """

    def __init__(self, addresses: str) -> None:
        with contextlib.ExitStack() as stack:
            self._nodes = {address: stack.enter_context(Wire(address)) for address in addresses.split(",")}
            self._stack = stack.pop_all()
        self._turns = itertools.cycle(self._nodes.values())
        self._asked: list[Wire] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getattr__(self, name: str) -> Any:
        if name not in ("receive", "socket"):
            raise AttributeError(name)
        pytest.skip("its frames go through one connection")

    def ask(self, name: str, version: int, **values: Any) -> dict[str, Any]:
        """The answer to one request."""
        if name.startswith("Sasl"):
            if values.get("mechanism", "PLAIN") != "PLAIN":
                pytest.skip("its proof is for one connection")
            return self._ask_all(name, version, values)[0]
        if name in _OF_ALL:
            return _merged(_OF_ALL[name], self._ask_all(name, version, values))
        if name in _OF_COORDINATORS:
            asked, answered = _OF_COORDINATORS[name]
            groups = itertools.groupby(values[asked], lambda group: self._coordinator(group, _GROUP))
            return _merged(answered, [node.ask(name, version, **values | {asked: list(part)}) for node, part in groups])
        return self.answer(name, version, self.send(name, version, **values))

    def _ask_all(self, name: str, version: int, values: dict[str, Any]) -> list[dict[str, Any]]:
        self._asked = list(self._nodes.values())
        return [node.ask(name, version, **values) for node in self._asked]

    def send(self, name: str, version: int, **values: Any) -> tuple[Wire, int]:
        """Send a request; returns what ``answer`` takes."""
        node = self._node_for(name, values)
        self._asked = [node]
        return node, node.send(name, version, **values)

    def answer(self, name: str, version: int, sent: tuple[Wire, int]) -> dict[str, Any]:
        node, correlation_id = sent
        return node.answer(name, version, correlation_id)

    def is_closed(self) -> bool:
        """Whether the broker has closed the connection of the last request, or all where it was one of authentication."""
        assert self._asked, "nothing was sent"
        return all(node.is_closed() for node in self._asked)

    def _node_for(self, name: str, values: dict[str, Any]) -> Wire:
        if name in _OF_LEADERS and (first := _first_partition(name, values)):
            return self._leader(*first)
        if name != "FindCoordinator" and (found := _coordinated(name, values)):
            return self._coordinator(*found)
        return next(self._turns)

    def _coordinator(self, key: str, key_type: int) -> Wire:
        return self._at(next(self._turns).ask("FindCoordinator", 3, key=key, key_type=key_type))

    def _leader(self, topic: str, partition: int) -> Wire:
        metadata = next(self._turns).ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
        leaders = {one["partition_index"]: one["leader_id"] for one in metadata["topics"][0]["partitions"]}
        nodes = {one["node_id"]: one for one in metadata["brokers"]}
        return self._at(nodes[leaders[partition]]) if partition in leaders else next(self._turns)

    def _at(self, node: dict[str, Any]) -> Wire:
        return self._nodes.get(f"{node['host']}:{node['port']}") or next(self._turns)


def _merged(parts: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    return answers[0] | {parts: [part for answer in answers for part in answer[parts]]}


def _first_partition(name: str, values: dict[str, Any]) -> tuple[str, int] | None:
    topics, topic, partitions, index = _OF_LEADERS[name]
    for first in values[topics]:
        partition = first[partitions][0]
        return first[topic], partition if index is None else partition[index]
    return None


def _coordinated(name: str, values: dict[str, Any]) -> tuple[str, int] | None:
    """The first group or transactional id that a request names, and which of both it is."""
    groups = [values.get("group_id"), *(one["group_id"] for one in values.get("groups", ()))]
    group = next((one for one in groups if one), None)
    if group and name != "AddOffsetsToTxn":
        return group, _GROUP
    ids = [values.get("transactional_id"), *(values.get("transactional_ids") or ())]
    return next(((one, _TRANSACTION) for one in ids if one), None)


def wire_to(address: str) -> Wire | ClusterWire:
    """A connection to a broker, or to each node of a cluster."""
    return ClusterWire(address) if three_brokers.Shared.chosen else Wire(address)
