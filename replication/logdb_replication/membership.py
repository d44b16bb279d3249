"""Nodes that come to a running cluster, and go: the quorum's voters change one at a time.

    join    DATA gets a voter with a new incarnation  ──►  the voter of before is removed  ──►  the new one is added  ──►  the node starts

A new node, and one whose disk was lost, come by the same steps; a second call does what the first one has left.  A change is
refused after which no majority of the voters would answer.

Threading: each function makes its own connections.
"""

import contextlib
import os
import secrets
from collections.abc import Set as AbstractSet
from typing import Any

from logdb.errors import LogdbError
from logdb.io import IO
from logdb.store import cluster_file
from logdb.store.cluster_file import ClusterFile
from logdb.store.directories import building
from logdb.store.lock import LockFile
from logdb_replication import directory
from logdb_replication.administration import controllers
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.messages import Described
from logdb_replication.errors import InvalidCluster
from logdb_replication.raft import files
from logdb_replication.raft.voters import Voter


def join(path: str, config_path: str) -> dict[str, Any]:
    """Make an empty data directory that of the node whose ``cluster.toml`` is given, and its voter one of the quorum.

    Returns:
        The node, its incarnation, and ``replaced``: the incarnation of before, or None.

    Raises:
        InvalidCluster: The node's controller runs: it has not lost its directory; or too few of the others answer.
        TargetNotEmpty, WrongDirectory: The directory has files, and no earlier call has made them.
        VoterRolledBack: The directory is an older copy, which must be moved away first.
        DirectoryLocked: The node runs.
        VotersRefused: Another change of the voters is under way.
        ControllerUnavailable: There is no quorum without the node.
    """
    io, path = IO(), os.path.abspath(path)
    with controllers(config_path) as (config, client):
        voters = _voters(client.describe())
        known = voters.get(config.node)
        if _answers(client, config.node):
            raise InvalidCluster("node", config.node, "its controller runs: stop the node first")
        _check_majority(client, voters.keys() - {config.node}, 1)
        voter = _made(io, path, config)
        incarnation = f"{voter.incarnation:016x}"
        replaced = None if known is None or known["incarnation"] == incarnation else known
        if replaced is not None:
            client.change_voters(voter._replace(incarnation=int(replaced["incarnation"], 16)), add=False)
        if known is None or replaced is not None:
            client.change_voters(voter, add=True)
    return {"node": config.node, "incarnation": incarnation, "replaced": None if replaced is None else replaced["incarnation"]}


def _voters(described: Described) -> dict[int, dict[str, Any]]:
    return {int(voter["number"]): voter for voter in described.quorum["voters"]}


def _answers(client: ControllerClient, node: int) -> bool:
    try:
        client.describe(node)
    except LogdbError:
        return False
    return True


def _check_majority(client: ControllerClient, others: AbstractSet[int], more: int) -> None:
    """Refuse a change after which ``others``, and so many that do not run yet, are no quorum; it counts a voter that has just died."""
    silent = [node for node in sorted(others) if not _answers(client, node)]
    alive = len(others) - len(silent)
    if 2 * alive <= len(others) + more:
        without = f"; no answer from node {', '.join(map(str, silent))}" if silent else ""
        raise InvalidCluster(
            "quorum", len(others) + more, f"{alive} of the voters that it would have answer: a majority is needed{without}"
        )


def _made(io: IO, path: str, config: ClusterConfig) -> Voter:
    """The voter of the directory, which is made unless an earlier call has made it and the node has not started since."""
    if cluster_file.load(io, path) is None:
        voter = Voter(config.node, secrets.randbits(63), *config.own.quorum)
        with building(io, path, private=True) as temporary:
            files.create(io, os.path.join(temporary, cluster_file.QUORUM_NAME), config.cluster, voter, ())
            cluster_file.create(io, temporary, ClusterFile(config.cluster, config.node))
        return voter
    directory.check(io, path, config)
    lock = LockFile.acquire(io, os.path.join(path, "LOCK"))
    with contextlib.ExitStack() as closing:
        closing.callback(lock.release)
        opened = closing.enter_context(contextlib.closing(files.VoterFiles(io, os.path.join(path, cluster_file.QUORUM_NAME))))
        opened.starts.check()
        return Voter(config.node, opened.incarnation, *config.own.quorum)


def remove(config_path: str, node: int) -> list[int]:
    """Take the voter of a node out of the quorum; returns the numbers of those that are left.

    A second call does nothing: that the first one was done may be all that was not heard.

    Raises:
        InvalidCluster: The cluster has never had the node, or too few of the others answer.
        VotersRefused: It leads the quorum: stop it first.
        ControllerUnavailable: There is no quorum.
    """
    with controllers(config_path) as (_, client):
        described = client.describe()
        voters = _voters(described)
        if node not in voters and any(broker["node"] == node for broker in described.brokers):
            return sorted(voters)
        if node not in voters:
            raise InvalidCluster("node", node, f"the voters of the quorum are {', '.join(map(str, sorted(voters)))}")
        _check_majority(client, voters.keys() - {node}, 0)
        host, _, port = voters[node]["address"].rpartition(":")
        client.change_voters(Voter(node, int(voters[node]["incarnation"], 16), host, int(port)), add=False)
    return sorted(set(voters) - {node})
