"""Promotion in place: a directory that was used embedded becomes the first replica of a new cluster.

    prepare   ``logdb cluster promote``, while no process has the directory: it is recovered, what was open is ended, everything is synced;
              the voter of the node that it becomes moves in; ``cluster.json`` is the commit point
    begin     the node has registered: one command gives the cluster its topics, with the node alone in sync
    finish    the other replicas have caught up: ``min.insync.replicas`` is what new topics get, and ``cluster.json`` says that it is over

Each step may be repeated after a crash.  From ``prepare`` on the directory opens embedded with ``mode="r"`` only, until
``logdb cluster leave``.
"""

import contextlib
import logging
import os
import threading

from logdb.broker.broker import Broker
from logdb.disk import exists, read_file, remove, sync_directory, write_file
from logdb.errors import ControllerUnavailable, LogdbError
from logdb.io import IO
from logdb.model import IN_SYNC_MIN
from logdb.requests.topic_changes import AlterTopic
from logdb.requests.topics import Flush, Topics
from logdb.store import cluster_file
from logdb.store.cluster_file import ClusterFile
from logdb.store.directories import make_directory, make_private, remove_tree
from logdb.store.store import Store
from logdb_replication import directory
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.commands import ImportedTopic, Promote, Registered
from logdb_replication.controller.state import ClusterState
from logdb_replication.metadata import ClusterMetadata
from logdb_replication.raft.errors import UnknownOutcome, WrongDirectory

logger = logging.getLogger(__name__)

_TRY_S = 2.0
_LOOK_S = 1.0


def prepare(path: str, config_path: str, *, execute: bool) -> ClusterFile:
    """Let a database's directory be the data directory of a node that has none but its voter's yet.

    In this order: the database is recovered and synced; the voter is copied; the node's own empty directory loses its mark, so that it
    cannot be started; ``path`` gets the mark: the commit point; the empty directory is removed.

    Args:
        execute: False: nothing is changed.

    Raises:
        WrongDirectory: ``path`` is a node's already, or the node has had topics, or its voter is in another directory.
        NotADatabase, DirectoryLocked, CorruptionError, InvalidClusterConfig: as they say.
    """
    io, path, config = IO(), os.path.abspath(path), ClusterConfig.load(config_path)
    empty = os.path.join(os.path.dirname(os.path.abspath(config_path)), directory.DATA_NAME)
    mark = ClusterFile(config.cluster, config.node, promoting=True)
    if (known := cluster_file.load(io, path)) is not None:
        if known[:2] != mark[:2] or os.path.realpath(path) == os.path.realpath(empty):
            raise WrongDirectory(path, f"it is that of node {known.node} of the cluster {known.cluster} already")
        mark = known
    else:
        if not exists(io, os.path.join(path, "catalogue")):
            raise WrongDirectory(path, "it holds no database")
        if exists(io, os.path.join(empty, "LOCK")):
            raise WrongDirectory(empty, f"node {config.node} has run with it: only a node that never did takes another directory")
        if exists(io, os.path.join(empty, cluster_file.FILE_NAME)):
            directory.check(io, empty, config)
        if not exists(io, os.path.join(empty, cluster_file.QUORUM_NAME)):
            reason = f"the voter of node {config.node}, as 'cluster init' makes it, is not there: another directory is this node's already"
            raise WrongDirectory(empty, reason)
        if not execute:
            return mark
        make_private(io, path)  # it will hold the secrets of the cluster
        _end_and_sync(path)
        _copy_voter(io, os.path.join(empty, cluster_file.QUORUM_NAME), os.path.join(path, cluster_file.QUORUM_NAME))
        if exists(io, mine := os.path.join(empty, cluster_file.FILE_NAME)):
            remove(io, mine)
        sync_directory(io, empty)
        cluster_file.create(io, path, mark)
    if execute and exists(io, empty) and set(io.listdir(empty)) <= {cluster_file.QUORUM_NAME}:  # others have been made there since
        remove_tree(io, empty)
        sync_directory(io, os.path.dirname(empty))
    return mark


def _end_and_sync(path: str) -> None:
    """Recover each log, end the transactions that no coordinator knows, fence their producers, and sync.

    A producer that still runs may have begun a transaction of which a crash has lost the begin: it may not go on with it.
    """
    with contextlib.closing(Store.open(path)) as store, contextlib.closing(Broker(store, store)) as broker:
        for topic in store.topic_names():
            for partition in range(store.topic(topic).partition_count):
                store.open_log(topic, partition)
        store.complete_transactions()
        for one in broker.transactions():
            broker.init_producer_id(one.transactional_id, transaction_timeout_ms=one.timeout_ms)
        store.submit(Flush())


def _copy_voter(io: IO, source: str, target: str) -> None:
    if exists(io, target):  # of a call that did not come to its end
        remove_tree(io, target)
    make_directory(io, target)
    make_private(io, target)
    for name in io.listdir(source):
        file = os.path.join(source, name)
        write_file(io, os.path.join(target, name), read_file(io, file, os.path.getsize(file) + 1))
    sync_directory(io, target)
    sync_directory(io, os.path.dirname(target))


def begin(store: Store, client: ControllerClient, config: ClusterConfig, registered: Registered) -> int:
    """Give the cluster what the directory has; returns the index of the first state that has it.  Waits for a quorum as long as it takes.

    Raises:
        ClusterNotEmpty: The cluster has topics or users of its own.
    """
    infos = store.submit(Topics(internal=True))
    topics = [
        ImportedTopic(
            info.name,
            info.topic_id,
            dict(info.config),
            tuple(max(0, store.open_log(info.name, number).leader_epoch) for number in range(info.partition_count)),
        )
        for info in infos
    ]
    command = Promote(
        config.node,
        registered.broker_epoch,
        store.database_id,
        tuple(topics),
        tuple(node.number for node in config.nodes),
        min(3, len(config.nodes)),
        store.take_producer_ids(1).start,
        store.security.read(),
    )
    while True:
        try:
            return client.propose(command, _TRY_S).index
        except (ControllerUnavailable, UnknownOutcome) as error:
            logger.warning("node %d waits for the other nodes: %s", config.node, error)


def finish(path: str, config: ClusterConfig, metadata: ClusterMetadata, ended: threading.Event) -> None:
    """Once all replicas are in sync, say so in the mark, and let acknowledgements wait for as many as those of new topics do."""
    while not ended.is_set():
        if metadata.wait(_is_replicated, _LOOK_S):
            try:
                _require_in_sync(config, metadata)
                cluster_file.create(IO(), path, ClusterFile(config.cluster, config.node))
            except LogdbError as error:
                logger.warning("node %d is promoted, but not to the end: %s", config.node, error)
                ended.wait(_LOOK_S)
            else:
                logger.warning("node %d is promoted: its %d topics have all of their replicas", config.node, len(metadata.state.topics))
                return


def _is_replicated(state: ClusterState) -> bool:
    return all(len(one.in_sync) == len(one.replicas) for topic in state.topics.values() for one in topic.partitions)


def _require_in_sync(config: ClusterConfig, metadata: ClusterMetadata) -> None:
    if len(config.nodes) >= 3:
        for topic in list(metadata.state.topics.values()):
            if IN_SYNC_MIN not in topic.config:
                metadata.submit(AlterTopic(topic.name, {IN_SYNC_MIN: 2}))
