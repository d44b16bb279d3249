"""The directory of a node: how ``logdb cluster init`` makes those of a new cluster, what a start checks, how one leaves its cluster.

DIR/node-1/cluster.toml        see ``config``
          cluster.secret       the same in each directory; only its owner may read it
          data/cluster.json    the mark: cluster and node (``logdb.store.cluster_file``)
               quorum/         the voter (``raft.files``)
"""

import contextlib
import json
import os
import random
import secrets
import socket
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from logdb.disk import File, changing, exists, remove, sync_directory, write_file
from logdb.io import IO
from logdb.mistakes import one_of
from logdb.store import cluster_file
from logdb.store.cluster_file import ClusterFile
from logdb.store.directories import UNFINISHED, building, check_empty, make_directory, make_private
from logdb.store.lock import LockFile
from logdb.store.security_file import SecurityFile
from logdb.store.store import Store
from logdb_replication.config import (
    NODE_COUNTS,
    RACK_ALLOWED,
    Address,
    ClusterConfig,
    NodeAddresses,
    format_address,
    is_rack,
    parse_address,
)
from logdb_replication.controller.machine import Machine
from logdb_replication.controller.state import ClusterState
from logdb_replication.errors import InvalidCluster, InvalidClusterConfig
from logdb_replication.raft import files
from logdb_replication.raft.errors import WrongDirectory
from logdb_replication.raft.messages import COMMAND, VOTERS
from logdb_replication.raft.voters import Voter, decode_voters

LOOPBACK = "127.0.0.1"
CONFIG_NAME, SECRET_NAME, DATA_NAME = "cluster.toml", "cluster.secret", "data"
_OWN_PORTS = range(10_000, 32_000)  # below those that systems give to outgoing connections, which would take them from a stopped node


class NewNode(NamedTuple):
    """One node of a new cluster; ``kafka``: None without that door; ``rack``: "" without one."""

    directory: str
    addresses: NodeAddresses
    kafka: Address | None
    rack: str = ""


def init(
    directory: str,
    count: int,
    http_ports: Sequence[int],
    kafka_ports: Sequence[int] = (),
    hosts: Sequence[str] = (),
    racks: Sequence[str] = (),
) -> tuple[str, list[NewNode]]:
    """Make the directories ``node-1`` … of a new cluster in ``directory``, each whole or not at all.

    Args:
        http_ports, kafka_ports: One for each node, or no ``kafka_ports``: then there is no Kafka door.
        hosts: Where the nodes reach each other; none: all run on this machine.
        racks: That of each node; none: they have none.

    Returns:
        The id of the cluster, and its nodes.

    Raises:
        InvalidCluster: The numbers do not fit together.
        TargetNotEmpty: A node's directory is there.
        DiskFull, WriteFailed, SyncFailed: Directories of the first nodes may be there.
    """
    if count not in NODE_COUNTS:
        raise InvalidCluster("nodes", count, f"must be {one_of(NODE_COUNTS)}")
    for name, given in (("http-ports", http_ports), ("kafka-ports", kafka_ports), ("hosts", hosts), ("racks", racks)):
        if len(given) != count and (given or name == "http-ports"):
            raise InvalidCluster(name, ",".join(map(str, given)), f"must be {count} {name.rpartition('-')[2]}, one for each node")
    for rack in racks:
        if not is_rack(rack):
            raise InvalidCluster("racks", rack, f"must be {RACK_ALLOWED}")
    nodes = _nodes(os.path.abspath(directory), http_ports, kafka_ports, hosts or [LOOPBACK] * count, racks or [""] * count)
    _check_addresses(nodes)
    io, cluster, secret = IO(), str(uuid.uuid4()), secrets.token_hex(32)
    for node in nodes:
        check_empty(io, node.directory)
    voters = [Voter(node.addresses.number, secrets.randbits(63), *node.addresses.quorum) for node in nodes]
    make_directory(io, os.path.abspath(directory))
    for node, voter in zip(nodes, voters, strict=True):
        with building(io, node.directory, private=True) as path:
            _make(io, path, _text(cluster, node, nodes), secret, cluster, voter, voters)
    return cluster, nodes


def check(io: IO, path: str, config: ClusterConfig) -> ClusterFile:
    """See that a data directory is that of the node that a config names; returns its mark.

    Raises:
        WrongDirectory: It is no node's, or another's, or of another cluster.
        CorruptionError, UnsupportedFormat: Its mark cannot be read.
    """
    found = cluster_file.load(io, path)
    if found is None:
        join = f"a new one, and one that has lost its disk: logdb cluster join {path} --cluster {config.path}"
        raise WrongDirectory(path, f"no node of a cluster has this directory. For a node of a new cluster: logdb cluster init; for {join}")
    if found.cluster != config.cluster:
        raise WrongDirectory(path, f"it is of cluster {found.cluster}, {config.path} of cluster {config.cluster}")
    if found.node != config.node:
        raise WrongDirectory(path, f"it is node {found.node}'s, {config.path} is node {config.node}'s")
    return found


def check_quorum(io: IO, path: str, config: ClusterConfig) -> None:
    """See that a config names the voters that the quorum has, as far as the voter of a data directory knows; the node does not run.

    It may name more: nodes that are to join, or have left.  A voter that has just been added knows none.

    Raises:
        InvalidClusterConfig: It lacks one, or has another address of it.
        VoterLost, CorruptionError: The voter cannot start.
    """
    with contextlib.closing(files.VoterFiles(io, os.path.join(path, cluster_file.QUORUM_NAME))) as voter:
        changes = [command for command, _, _ in voter.journal[:] if command[:1] == VOTERS]
        known = decode_voters(changes[-1][1:])[0] if changes else voter.snapshot.voters
    named = {node.number: format_address(node.quorum) for node in config.nodes}
    voters = {voter.number: format_address((voter.host, voter.port)) for voter in known}
    if not voters.items() <= named.items():
        raise InvalidClusterConfig(config.path, "nodes.quorum", named, f"the voters of the quorum are {voters}")


def leave(path: str, *, execute: bool) -> ClusterFile:
    """Take the directory of a node that does not run out of its cluster: from then on it opens embedded, to write, too.

    The users, tokens and ACLs that the node knows become its ``security.json``; those of a cluster that has not taken what a promoted
    directory had do not.  Topics without a replica here are empty.  In this order:

        1. ``security.json``
        2. ``quorum/`` gets a name of unfinished work, which the next opening removes: the node cannot start any more
        3. ``broker.json`` and ``cluster.json`` are removed: the commit point.  After a crash before it, a second call finishes.

    Args:
        execute: False: nothing is changed.

    Returns:
        What it was the directory of.

    Raises:
        WrongDirectory: It is no node's.
        DirectoryLocked, WrongDirectory: The node runs.
        CorruptionError, VoterLost: The users cannot be read; nothing has changed.
    """
    io, path = IO(), os.path.abspath(path)
    if (mark := cluster_file.load(io, path)) is None:
        raise WrongDirectory(path, "no node of a cluster has this directory")
    lock = LockFile.acquire(io, os.path.join(path, "LOCK"))
    with contextlib.ExitStack() as closing:
        closing.callback(lock.release)
        quorum = os.path.join(path, cluster_file.QUORUM_NAME)
        if exists(io, quorum):
            state = _state_of(io, quorum, mark.cluster)
            if not execute:
                return mark
            document = state.security
            if document is not None and not (mark.promoting and state.promoted != _database_id(path)):
                SecurityFile(io, path).change(lambda _: (document, None))
            with changing(quorum):
                io.rename(quorum, quorum + UNFINISHED[1])
            sync_directory(io, path)
        if execute:
            for name in (cluster_file.BROKER_NAME, cluster_file.FILE_NAME):
                if exists(io, os.path.join(path, name)):
                    remove(io, os.path.join(path, name))
            sync_directory(io, path)
    return mark


def _database_id(path: str) -> str:
    with contextlib.closing(Store.open(path, mode="r")) as store:
        return store.database_id


def _state_of(io: IO, quorum: str, cluster: str) -> ClusterState:
    """The last state that a voter knows."""
    with contextlib.closing(files.VoterFiles(io, quorum)) as voter:
        machine, snapshot = Machine(cluster), voter.snapshot.load()
        if snapshot.state:
            machine.restore(snapshot.index, snapshot.state)
        for command, index, _ in voter.journal[:]:
            if command[:1] == COMMAND and index > snapshot.index:
                machine.apply(index, command[1:])
        return machine.state


def _nodes(
    directory: str, http_ports: Sequence[int], kafka_ports: Sequence[int], hosts: Sequence[str], racks: Sequence[str]
) -> list[NewNode]:
    taken = {*http_ports, *kafka_ports}
    nodes = []
    for place, (host, port, rack) in enumerate(zip(hosts, http_ports, racks, strict=True)):
        quorum, controller = (host, _free_port(taken)), (host, _free_port(taken))
        addresses = NodeAddresses(place + 1, quorum, controller, f"http://{format_address((host, port))}")
        kafka = (host, kafka_ports[place]) if kafka_ports else None
        nodes.append(NewNode(os.path.join(directory, f"node-{place + 1}"), addresses, kafka, rack))
    return nodes


def _check_addresses(nodes: Sequence[NewNode]) -> None:
    doors = [node.addresses.http.removeprefix("http://") for node in nodes] + [format_address(node.kafka) for node in nodes if node.kafka]
    for door in doors:
        try:
            parse_address(door)
        except ValueError as error:
            raise InvalidCluster("address", door, str(error)) from None
        if doors.count(door) > 1:
            raise InvalidCluster("http-ports, kafka-ports", door, "must be the address of one listener only")


def _free_port(taken: set[int]) -> int:
    """A port that is free on this machine, and was not given before."""
    for port in random.SystemRandom().sample(_OWN_PORTS, len(_OWN_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            if port not in taken:
                probe.bind((LOOPBACK, port))
                taken.add(port)
                return port
    raise InvalidCluster("ports", f"{_OWN_PORTS[0]} to {_OWN_PORTS[-1]}", "none of them is free")


def _make(io: IO, path: str, text: str, secret: str, cluster: str, voter: Voter, voters: Sequence[Voter]) -> None:
    data = os.path.join(path, DATA_NAME)
    make_directory(io, data)
    make_private(io, data)
    files.create(io, os.path.join(data, cluster_file.QUORUM_NAME), cluster, voter, voters)
    cluster_file.create(io, data, ClusterFile(cluster, voter.number))
    File(io, os.path.join(path, SECRET_NAME), os.O_RDWR | os.O_CREAT, 0o600).close()
    write_file(io, os.path.join(path, SECRET_NAME), f"{secret}\n".encode())
    write_file(io, os.path.join(path, CONFIG_NAME), text.encode())
    sync_directory(io, path)


def _text(cluster: str, node: NewNode, nodes: Sequence[NewNode]) -> str:
    """The ``cluster.toml`` of a node."""
    kafka = (
        f'kafka = "{format_address(node.kafka)}"\n' if node.kafka else '# kafka = "127.0.0.1:9092"      # a listener for Kafka\'s clients\n'
    )
    return (
        f'cluster = "{cluster}"\n'
        f"node = {node.addresses.number}                            # differs from node to node, as rack, http and kafka do\n"
        f'secret_file = "{SECRET_NAME}"      # the same on each node; it makes a process a node\n'
        'profile = "ssd"                     # or "sd": timeouts for SD cards\n'
        f"rack = {json.dumps(node.rack, ensure_ascii=False):<27} # replicas are spread over racks; Kafka clients there read here\n"
        f'http = "{format_address(node.addresses.http_address)}"\n{kafka}'
        '# tls_cert = "node.pem"             # with tls_ca: TLS of the listeners, and between the nodes\n'
        '# tls_ca = "ca.pem"\n'
    ) + "".join(
        f"\n[[nodes]]\nnumber = {each.number}\n"
        f'quorum = "{format_address(each.quorum)}"\ncontroller = "{format_address(each.controller)}"\nhttp = "{each.http}"\n'
        for each in (known.addresses for known in nodes)
    )
