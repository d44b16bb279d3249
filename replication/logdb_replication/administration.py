"""What an operator asks of a running cluster, by the ``cluster.toml`` of any of its nodes: a user who can read its secret may ask.

Threading: each function makes its own connections.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from logdb.errors import LogdbError
from logdb_replication.config import ClusterConfig, format_address
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.commands import DrainBroker
from logdb_replication.controller.elections import HAND_OVER_S
from logdb_replication.controller.machine import Machine
from logdb_replication.controller.state import ClusterState

POLL_S = 0.2
_ELECTION_S = 10.0  # as long as a command waits to be applied


def quorum(config_path: str) -> list[dict[str, Any]]:
    """Each node's voter as it describes itself (``raft.node.Node.describe``), or why it does not: ``{"node", "address", "error"}``."""
    with controllers(config_path) as (config, client):
        found = []
        for node in config.nodes:
            voter = {"node": node.number, "address": format_address(node.controller)}
            try:
                found.append(voter | client.describe(node.number).quorum)
            except LogdbError as error:
                found.append(voter | {"error": str(error)})
        return found


def brokers(config_path: str) -> list[dict[str, Any]]:
    """The brokers by their numbers, with how many partitions each leads, has, and is in sync with."""
    with controllers(config_path) as (_, client):
        state = cluster_state(client)
    partitions = [partition for topic in state.topics.values() for partition in topic.partitions]
    leads = Counter(partition.leader for partition in partitions)
    has, in_sync = (Counter(node for partition in partitions for node in getattr(partition, name)) for name in ("replicas", "in_sync"))
    return [
        {
            "node": number,
            "addresses": {door: format_address(address) for door, address in broker.addresses.items()},
            "rack": broker.rack,
            "epoch": broker.epoch,
            "fenced": broker.fenced,
            "draining": broker.draining,
            "leads": leads[number],
            "replicas": has[number],
            "in_sync": in_sync[number],
        }
        for number, broker in sorted(state.brokers.items())
    ]


def drain(config_path: str, node: int, *, draining: bool, timeout_s: float, progress: Callable[[int], None]) -> int:
    """Move the leaderships of a broker to others; or, with ``draining`` False, let it lead again.

    Args:
        progress: Called with the number of partitions that it still leads.

    Returns:
        How many partitions it still leads: those whose other replicas are not in sync, or after the time all that are left.

    Raises:
        UnknownBroker: No such node has registered.
        ControllerUnavailable: There is no quorum.
    """
    with controllers(config_path) as (_, client):
        client.propose(DrainBroker(node, draining, in_order=draining))
        if not draining:
            return _led(cluster_state(client), node)
        now = time.monotonic()
        end, hand_over_end, least = now + timeout_s, now + HAND_OVER_S, -1
        while (left := _led(cluster_state(client), node)) and time.monotonic() < end:
            if least < 0 or left < least:
                least, hand_over_end = left, time.monotonic() + HAND_OVER_S
            elif time.monotonic() > hand_over_end:
                client.propose(DrainBroker(node, draining))  # it hangs, or no other replica is in sync
                hand_over_end = end
            progress(left)
            time.sleep(POLL_S)
        return left


def _led(state: ClusterState, node: int) -> int:
    return sum(partition.leader == node for topic in state.topics.values() for partition in topic.partitions)


@contextlib.contextmanager
def controllers(config_path: str) -> Iterator[tuple[ClusterConfig, ControllerClient]]:
    """The cluster of a ``cluster.toml``, and its controllers."""
    config = ClusterConfig.load(config_path)
    with contextlib.closing(ControllerClient(config, config.node)) as client:
        yield config, client


def cluster_state(client: ControllerClient) -> ClusterState:
    """The state, with all that was committed before this call: an operator sees what the last command did."""
    machine = Machine(client.cluster)
    while (found := client.read(machine.state.index, _ELECTION_S)).index > machine.state.index:
        if found.snapshot is not None:
            machine.restore(found.index, found.snapshot)
        for index, command in found.commands:
            machine.apply(index, command)
    return machine.state
