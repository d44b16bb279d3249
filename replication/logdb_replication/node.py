"""One node of a cluster: its store, its controller, its replicas and its broker, from the start to the end.

    start   config and directory checked · store opened (and locked) · controller started · registered, fenced ·
            the state followed: topics made, replicas begun · doors opened by the caller · ``begin``: heartbeats, unfenced
    end     ``leave``: others lead · doors closed by the caller · fenced · replicas, broker, copy, store, controller closed

A node that is killed is fenced by the controller, when its session lapses or its machine refuses connections.

Threading: ``running``, ``begin`` and ``leave`` from one thread at a time.  Heartbeats have a thread of their own.
"""

import contextlib
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from logdb.broker.broker import Broker
from logdb.coordinator.transactions import TransactionConfig
from logdb.errors import Closed, ControllerUnavailable, LogdbError, StaleBrokerEpoch
from logdb.io import IO
from logdb.model import INTERNAL_TOPICS, TopicPartition
from logdb.pools import Pool
from logdb.requests.nodes import PartitionState
from logdb.store import cluster_file
from logdb.store.directories import close_to_others
from logdb.store.store import Store
from logdb.threads import renewed, started
from logdb_http_api.remote.connection import Security
from logdb_http_api.remote.session import nodes_session
from logdb_replication import directory, incarnations, promotion
from logdb_replication.config import ClusterConfig, format_address
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.commands import (
    AlterInSync,
    DrainBroker,
    ElectPreferred,
    FenceBroker,
    PartitionIs,
    RegisterBroker,
    Registered,
    ResignLeader,
)
from logdb_replication.controller.errors import DuplicateBroker, UnknownBroker
from logdb_replication.controller.state import ClusterState
from logdb_replication.controller.state_copy import StateCopy
from logdb_replication.controller.supervisor import ControllerProcess
from logdb_replication.controller.tls import node_tls
from logdb_replication.lateness import Lateness
from logdb_replication.local_topics import LocalTopics
from logdb_replication.metadata import ClusterMetadata
from logdb_replication.raft.errors import UnknownOutcome
from logdb_replication.replica.manager import ReplicaManager
from logdb_replication.replica.peer import HttpPeer
from logdb_replication.tokens import cluster_token

logger = logging.getLogger(__name__)

_REGISTER_S, _AGAIN_S = 2.0, 0.1
_SAY_S = 5.0
READY_S = 60.0
"""The time in which a node is to be let in, counted from its start; the test of a starved machine has 300 partitions."""
_LATE_HALF_LIFE_S = 10.0
_PROPOSE_S = 5.0
_THREADS_MAX = 16  # for what the replicas bring about: brokers are suspected, coordinators resign, and are loaded, which waits for replicas
_HAND_OVER_S = 1.0
_LEAVE_S = 2.5
_FENCE_S = 1.0


class Node:
    """A node of the cluster that a ``cluster.toml`` names.

    =============== =============== ====================================================================
    field           changed by      to be trusted
    =============== =============== ====================================================================
    ``_unfenced``   heartbeats      set: the controller has let this node lead, since ``begin``
    ``_ended``      ``running``     set for good: no more heartbeats
    ``_beat_is_due`` copy, heartbeats set: this node knows more than it has told the controller
    ``_reason``     heartbeats      why this node was not let in, as far as it knows
    ``_step``       ``running``,    what the start is at, until ``_unfenced`` is set
                    ``begin``
    ``_has_quorum`` ``leave``       at the end: False: the controllers did not answer a moment ago
    =============== =============== ====================================================================
    """

    def __init__(self, path: str, config_path: str) -> None:
        """Check the config, and that ``path`` is the directory of its node.

        Raises:
            InvalidClusterConfig, WrongDirectory, CorruptionError, ReadFailed: as they say; nothing is started.
        """
        self.config = ClusterConfig.load(config_path)
        self._promoting = directory.check(IO(), path, self.config).promoting
        self._path = path
        self._unfenced, self._ended = renewed(threading.Event()), renewed(threading.Event())
        self._beat_is_due = renewed(threading.Event())
        self._has_quorum, self._reason = True, "it has not caught up yet"
        self._step: Callable[[], str] = lambda: "it opens its directory"
        self._security = Security(token=cluster_token(self.config.secret, self.config.cluster), context=node_tls(self.config).client)

    @property
    def settings(self) -> dict[str, Any]:
        """What its server has from the file: addresses, TLS, and the token of the other nodes."""
        config = self.config
        given = {
            "http": format_address(config.http),
            "kafka": config.kafka and format_address(config.kafka),
            "kafka_advertised": config.kafka_advertised and format_address(config.kafka_advertised),
            "tls_cert": config.tls_cert,
            "tls_key": config.tls_key,
            "cluster_token": cluster_token(config.secret, config.cluster),
        }
        return {name: value for name, value in given.items() if value is not None}

    @property
    def inner_addresses(self) -> list[str]:
        """Where its controller listens."""
        return [format_address(self.config.own.quorum), format_address(self.config.own.controller)]

    # ------------------------------------------------------------ from start to end

    @contextlib.contextmanager
    def running(self, **options: Any) -> Iterator[Broker]:
        """Run the node within the block, which serves the broker.

        Args:
            options: Of ``Store.open``.

        Raises:
            DirectoryLocked: Another process has the directory.
            InvalidClusterConfig, VoterLost, CorruptionError: The voter of the directory is not the config's, or has lost a file.
            ControllerFailed: The controller does not start, because its address is taken most often.
            DuplicateBroker: Another process is registered as this node, and lives.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(self._unfenced.set)  # the last step: nothing waits for it any more
            started("logdb-readiness", self._say_whether_ready)
            scrub = self.config.scrub_bytes_per_second
            store = Store.open(self._path, replicated=True, durability="fsync", scrub_bytes_per_second=scrub, **options)
            closing.callback(store.close)
            self._io = store.io
            close_to_others(store.io, self._path)
            directory.check_quorum(store.io, self._path, self.config)
            controller = ControllerProcess(self.config, os.path.join(self._path, cluster_file.QUORUM_NAME))
            closing.callback(controller.stop)
            self._step = lambda: "its controller starts"
            controller.start()
            client = self._client = ControllerClient(self.config, self.config.node)
            closing.callback(client.close)
            self._metadata = ClusterMetadata(self.config, store, client)
            self._topics = LocalTopics(store)
            pool = Pool(_THREADS_MAX, "logdb-node")
            closing.callback(pool.shutdown)
            nodes = nodes_session([node.http for node in self.config.nodes], self._security)
            replicas = self._replicas = self._manager(store, client, pool)
            transactions = TransactionConfig(defer_additions=False, abort_on_recovery=False)
            broker = self._broker = Broker(store, self._metadata, transaction_config=transactions, replication=replicas, nodes=nodes)
            closing.callback(broker.close)
            closing.callback(replicas.close)  # first: what the broker waits for is not to come any more
            closing.callback(nodes.close)
            self._step = lambda: "it registers with the controllers; a majority of them must run"
            self._registered = self._register(store.io, store.database_id, unclean=_is_unclean(store))
            self._first_index = promotion.begin(store, client, self.config, self._registered) if self._promoting else self._registered.index
            copy = self._copy = StateCopy(client, self._take, self._foresee)
            closing.callback(self._stop, client, copy)
            self._step = lambda: f"it opens its partitions: {replicas.progress()}"
            self._wait_for_first_state(copy)
            yield broker

    def _manager(self, store: Store, client: ControllerClient, pool: Pool) -> ReplicaManager:
        config = self.config

        def propose(command: AlterInSync | ElectPreferred | ResignLeader) -> PartitionState:
            answer = client.propose(command, _PROPOSE_S)
            assert isinstance(answer, PartitionIs)
            return answer.state

        def suspect(node: int) -> None:
            pool.submit(_unless_closed, client.suspect, self._registered.broker_epoch, node)

        def led(where: TopicPartition, epoch: int) -> None:
            if where.topic in INTERNAL_TOPICS:
                pool.submit(_unless_closed, self._broker.load_coordinator, where, epoch)

        def resigned(where: TopicPartition, epoch: int) -> None:
            if where.topic in INTERNAL_TOPICS:
                pool.submit(_unless_closed, self._broker.resign_coordinator, where, epoch)

        return ReplicaManager(
            store,
            config.node,
            connect=lambda node: HttpPeer(config.of(node).http, self._security),
            propose=propose,
            bring=self._topics.bring,
            led=led,
            resigned=resigned,
            suspect=suspect,
            lag_ms=3 * config.times.session_ms,
            stall_ms=config.times.session_ms,
        )

    def _register(self, io: IO, directory_id: str, *, unclean: bool) -> Registered:
        """Tell the controllers that this process is the node; waits for a quorum as long as it takes.

        A quorum that has just got its leader takes the former process for alive, for the time of a session.
        """
        config, incarnation = self.config, uuid.uuid4().hex
        former = incarnations.load(io, self._path)
        incarnations.save(io, self._path, (incarnation, *former))
        command = RegisterBroker(config.node, incarnation, config.advertised, config.rack, unclean, directory_id, former)
        end: float | None = None
        while True:
            try:
                answer = self._client.propose(command, _REGISTER_S)
            except (ControllerUnavailable, UnknownOutcome) as error:
                end = None
                logger.warning("node %d waits for the other nodes: %s", config.node, error)
            except DuplicateBroker:
                end = end or time.monotonic() + 3 * config.times.session_ms / 1000
                if time.monotonic() > end:  # the former process of this node would have been fenced
                    raise
                time.sleep(_AGAIN_S)
            else:
                assert isinstance(answer, Registered)
                incarnations.save(io, self._path, (incarnation,))
                return answer

    def _say_whether_ready(self) -> None:
        """Log it if the node is not ready in time, and each time when it has taken twice as long.

        The node goes on with its start: another one would have to do the same.
        """
        began, wait_s = time.monotonic(), READY_S
        while not self._unfenced.wait(wait_s):
            wait_s = time.monotonic() - began
            logger.error("node %d is not ready %.0f s after its start: %s", self.config.node, wait_s, self._step())

    def _wait_for_first_state(self, copy: StateCopy) -> None:
        """Until the store and the replicas have followed the state in which this node is registered; says now and then what is missing."""
        said = 0
        while not self._ended.is_set():
            try:
                copy.wait_for(self._first_index, _REGISTER_S)
                return
            except ControllerUnavailable as error:
                said += 1
                if not said & (said - 1):  # the first time, the second, the fourth …
                    logger.warning("node %d opens its partitions: %s; %s", self.config.node, error, self._replicas.progress())

    def _foresee(self, state: ClusterState) -> None:
        """Lead no longer what a state gives to others, and say who leads it: to have the store follow may take as long as a disk hangs."""
        if state.index >= self._first_index:
            self._replicas.foresee(state)
            self._metadata.foresee(state)

    def _take(self, state: ClusterState) -> None:
        """Have the store and the replicas follow the state."""
        if state.index < self._first_index:  # it does not know yet all topics that this node has
            return
        self._replicas.apply(state, self._registered.broker_epoch)
        self._topics.drop(state)
        self._metadata.publish(state)
        self._beat_is_due.set()  # who has changed it waits for the brokers to know

    def _stop(self, client: ControllerClient, copy: StateCopy) -> None:
        self._ended.set()
        self._beat_is_due.set()
        with contextlib.suppress(LogdbError):
            if self._has_quorum:  # otherwise the session lapses
                client.propose(FenceBroker(self.config.node, self._registered.broker_epoch), _FENCE_S)
        client.close()
        copy.close()

    # ------------------------------------------------------------ while its doors are open

    def begin(self) -> None:
        """The doors are open: say so to the controller, now and with each heartbeat; returns once it has let this node lead."""
        self._step = lambda: f"it waits to be let in by the controller: {self._reason}"
        started("logdb-heartbeats", self._beat)
        if self._promoting:
            started("logdb-promotion", partial(promotion.finish, self._path, self.config, self._metadata, self._ended))
        while not (self._unfenced.wait(_SAY_S) or self._ended.is_set()):
            logger.warning("node %d waits to be let in by the controller: %s", self.config.node, self._reason)

    def leave(self) -> None:
        """Let other nodes lead what this one leads, as far as there are any: its doors are about to close."""
        self._unfenced.set()  # end a ``begin`` that waits
        self._replicas.hand_over(_HAND_OVER_S)
        try:
            self._client.propose(DrainBroker(self.config.node, draining=True), _LEAVE_S)
            self._metadata.wait(self._leads_nothing_that_others_can, _LEAVE_S)
        except LogdbError as error:
            logger.warning("node %d leaves without telling the others: %s", self.config.node, error)
            self._has_quorum = False

    def _leads_nothing_that_others_can(self, state: ClusterState) -> bool:
        able = {node for node, broker in state.brokers.items() if not broker.fenced and not broker.draining}
        return not any(
            partition.leader == self.config.node and able.intersection(partition.in_sync)
            for topic in state.topics.values()
            for partition in topic.partitions
        )

    def _beat(self) -> None:
        times, heard_ms = self.config.times, 0
        interval_s = times.heartbeat_ms / 1000
        late = Lateness(_LATE_HALF_LIFE_S, times.session_ms / 1000)
        while not self._ended.is_set():
            self._beat_is_due.clear()
            sent_ms = self._io.monotonic_ms()
            try:
                # One that could not lead is silent, so that it is fenced.
                if (failure := self._copy.failure) is not None:
                    self._reason = str(failure)
                elif self._replicas.disk_hangs:
                    self._reason = f"a sync of its disk has not ended for {times.session_ms} ms"
                else:
                    self._be_heard(2 * interval_s, late)
                    self._reason = "the controllers know more than it has applied yet"
                    heard_ms = sent_ms
            except (StaleBrokerEpoch, UnknownBroker) as error:
                logger.critical("node %d ends: another process has registered as this node: %s", self.config.node, error)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except LogdbError as error:
                self._reason = str(error)
                logger.info("a heartbeat has failed: %s", error)
            except Exception:
                logger.exception("no controller has received a heartbeat of this node")
            self._replicas.is_lapsed = self._io.monotonic_ms() - heard_ms > times.session_ms
            self._beat_is_due.wait(interval_s)

    def _be_heard(self, timeout_s: float, late: Lateness) -> None:
        """One heartbeat; a controller that answered late before has so much more time."""
        own = self._registered.broker_epoch, self._metadata.state.index, self._io.clock_ms()
        began = time.monotonic()
        try:
            if not self._client.heartbeat(*own, timeout_s + late.at(began)).fenced:
                self._unfenced.set()
        finally:
            late.note(time.monotonic() - began, began)


def _unless_closed(call: Callable[..., object], *arguments: object) -> None:
    """Call a function in a thread of its own; what it raises is logged: the next state, or the next request, tries again."""
    try:
        call(*arguments)
    except Closed:
        pass
    except LogdbError as error:
        logger.info("%s: %s", getattr(call, "__name__", call), error)


def _is_unclean(store: Store) -> bool:
    """Whether replicas may lack what was flushed: recovery lets such a log take no records."""
    if store.was_closed:
        return False
    try:
        logs = (
            store.open_log(topic, partition) for topic in store.topic_names() for partition in range(store.topic(topic).partition_count)
        )
        return any(log.read_only_reason is not None for log in logs)
    except LogdbError as error:
        logger.error("a log cannot be opened: %s", error)
        return True
