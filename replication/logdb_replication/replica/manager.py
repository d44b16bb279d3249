"""All replicas of a node: which it leads, which it follows, as the controller says.

    foresee(state) ─► a partition is led by another      LedPartition ends, without a wait for a disk
    apply(state) ──► another topic has the name now     its LedPartition, or its Fetcher's part, ends
                ├──► the store has the topics of it
                ├──► a partition is led by this node    begin_epoch ──► LedPartition ──► ``led``
                ├──► by another                         LedPartition ends, the log follows ──► ``resigned``; Fetcher of that broker
                └──► by none, or not here               the same, without a fetcher

Threads: ``logdb-replicas`` syncs the logs that this node leads, ``logdb-proposals`` asks the controller, ``logdb-lag`` looks who lags;
``logdb-handovers`` gives partitions away (``handover``); two for each broker that is followed (``fetcher``).
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from logdb.disk import longest_sync_ms
from logdb.errors import LogdbError, NotLeaderOrFollower, SyncFailed, ThreadUnavailable, UnknownPartition, UnknownTopic
from logdb.model import TopicPartition, in_sync_count_min
from logdb.requests.nodes import PartitionState
from logdb.store.protocols import Leadership, ReadableReplica, ReplicaReport, Storage
from logdb.threads import renewed, started
from logdb_replication.controller.commands import AlterInSync, ElectPreferred, ResignLeader
from logdb_replication.controller.elections import preferred, relieved
from logdb_replication.controller.errors import PartitionChanged
from logdb_replication.controller.state import BrokerState, ClusterState, TopicState
from logdb_replication.logged_once import LoggedOnce
from logdb_replication.replica.fetcher import Fetcher, FollowedPartition
from logdb_replication.replica.flushing import Flushers
from logdb_replication.replica.handover import Handovers, commit_all
from logdb_replication.replica.leader import Leader, RegisteredNode
from logdb_replication.replica.led import LedPartition
from logdb_replication.replica.peer import Peer
from logdb_replication.replica.throttle import Throttle
from logdb_replication.replica.worker import Worker

logger = logging.getLogger(__name__)

LAG_MS, STALL_MS = 3_000, 1_000
"""Kafka's ``replica.lag.time.max.ms``, shorter; and how long a flush may take."""
PREFER_INTERVAL_MS = 7_000
"""How often a leader looks whether the first replica of its partitions could lead; the controller looks half as often."""
_TICK_MS = 500


class Role(NamedTuple):
    """What this node does with a partition: the topic, the epoch, and the node that it follows; None: it follows none."""

    topic_id: str
    leader_epoch: int
    leader: int | None


class ReplicaManager:
    """``store.protocols.Replication``.

    | field              | changed by       | under           | to be trusted                                                       |
    |--------------------|------------------|-----------------|---------------------------------------------------------------------|
    | ``_led``           | apply            | ``_applying``   | always; a value of it may be over                                   |
    | ``_roles``         | apply            | ``_applying``   | what each partition was told last; absent: it has failed            |
    | ``_followed``      | apply            | ``_applying``   | what consumers may read of it: see ``replica``                      |
    | ``_fetchers``      | apply            | ``_applying``   | by the node that is followed                                        |
    | ``_ending``        | apply            | ``_applying``   | their threads may still run; they change no log                     |
    | ``_state``         | apply            | ``_applying``   | the last one applied                                                |
    | ``_newest``        | foresee, apply   | none            | the last one heard of; ``_state`` may wait for a disk               |
    | ``_is_partly_applied`` | apply        | ``_applying``   | true: a role could not be taken; the next tick tries again          |
    | ``_logged``        | apply            | ``_applying``   | of such a role: its epoch, and the kind of the error                |
    | ``_broker_epoch``  | apply            | ``_applying``   | of this node's registration                                         |
    | ``_failed``        | a failed sync    | none            | true: for good; nothing is led any more                             |
    | ``_unflushed``     | flushing threads | none            | on a full disk, and until when nothing is tried: the ticker tries   |
    | ``_damaged``,      | the ticker       | none            | its own: what was logged                                            |
    | ``_hangs``         |                  |                 |                                                                     |
    | ``_prefer_ms``,    | the ticker       | none            | its own: when it looks again; led by another than the first replica |
    | ``_uneven``        |                  |                 | at the last look                                                    |
    | ``is_lapsed``      | the node         | none            | true: the controller may have replaced this node as a leader        |
    """

    def __init__(
        self,
        storage: Storage,
        node_id: int,
        *,
        connect: Callable[[int], Peer],
        propose: Callable[[AlterInSync | ElectPreferred | ResignLeader], PartitionState],
        bring: Callable[[ClusterState], None],
        led: Callable[[TopicPartition, int], None],
        resigned: Callable[[TopicPartition, int], None],
        suspect: Callable[[int], None],
        lag_ms: int = LAG_MS,
        stall_ms: int = STALL_MS,
    ) -> None:
        """Begin with no replica, and start the threads.

        Args:
            connect: A new connection to a broker; raises OSError.
            propose: Asks the controller; returns the partition as it is then, or raises why not.
            bring: Lets the store have the topics of a state, as far as the disk has room; a log may be another topic's afterwards.
            led, resigned: Told that this node leads a partition since an epoch, or does not: in the thread of ``apply``.
            lag_ms: How long a follower may lag before it leaves the in-sync set.
            stall_ms: How long a sync may take before the disk counts as hanging: the session of a broker.
            suspect: Told that the connection to a leader has ended; quick, in any thread.

        Raises:
            ThreadUnavailable: A thread could not be started.
        """
        self._storage, self._node_id, self._lag_ms, self._stall_ms = storage, node_id, lag_ms, stall_ms
        self._connect, self._ask, self._bring, self._suspect = connect, propose, bring, suspect
        self._tell_led, self._tell_resigned = led, resigned
        self._led: dict[TopicPartition, LedPartition] = {}
        self._roles: dict[TopicPartition, Role] = {}
        self._logged = LoggedOnce[TopicPartition]()
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._throttle = Throttle()
        self._ending: list[Fetcher] = []
        self._state: ClusterState | None = None
        self._newest: ClusterState | None = None
        self._brokers: Mapping[int, RegisteredNode] = {}
        self._broker_epoch = -1
        self._failed = self.is_lapsed = self._is_partly_applied = self._hangs = False
        self._applying = renewed(threading.Lock())
        self._closed = renewed(threading.Event())
        self._unflushed: dict[LedPartition, int] = {}
        self._flushers = Flushers()
        self._damaged = LoggedOnce[TopicPartition]()
        self._resigning: threading.Thread | None = None
        self._now_ms = storage.io.monotonic_ms
        self._syncer: Worker[LedPartition] = Worker("logdb-replicas", self._flush)
        self._proposer: Worker[LedPartition] = Worker("logdb-proposals", self._propose)
        self._handovers = Handovers(self._asked, self._now_ms)
        self._prefer_ms, self._uneven = self._now_ms() + PREFER_INTERVAL_MS, set[TopicPartition]()
        self._drain_ms = 0
        self._ticker = started("logdb-lag", self._tick)

    # ------------------------------------------------------------ store.protocols.Replication

    def leads(self, topic: str, partition: int) -> Leadership:
        return self._leads(TopicPartition(topic, partition))

    def _leads(self, where: TopicPartition) -> LedPartition:
        found = self._led.get(where)
        if found is not None and found.is_over:
            found = self._led.get(where)  # a next epoch's takes its place before it is over
        if found is None or found.is_over or self._failed:
            raise self._not_led(where)
        return found

    def _not_led(self, where: TopicPartition) -> LogdbError:
        newest = self._newest
        state = None if newest is None else newest.partition(*where)
        if state is None:
            topic = None if newest is None else newest.topics.get(where.topic)
            return UnknownTopic(where.topic) if topic is None else UnknownPartition(*where, len(topic.partitions))
        leader = None if state.leader == self._node_id else state.leader
        return NotLeaderOrFollower(*where, leader, state.leader_epoch)

    def replica(self, topic: str, partition: int) -> ReadableReplica:
        where = TopicPartition(topic, partition)
        led, followed = self._led.get(where), self._followed.get(where)
        if led is None and followed is not None and self._is_readable(followed):
            return followed
        return self._leads(where)

    def _is_readable(self, one: FollowedPartition) -> bool:
        """Whether the newest state has this node in sync in the same epoch, and the leader has answered it lately, without an error.

        What lies below the high watermark is replicated in any case, so a failed sync here is no reason to refuse: the leader would name
        this node again.  But a follower that lags, or is cut off, would hold its readers up.
        """
        topic = None if self._newest is None else self._newest.topics.get(one.where.topic)
        if topic is None or topic.topic_id != one.topic_id or one.is_over or one.is_refused or self.is_lapsed:
            return False
        state = topic.partitions[one.where.partition]
        if state.leader_epoch != one.leader_epoch or state.leader is None or self._node_id not in state.in_sync:
            return False
        fetcher, now_ms = self._fetchers.get(state.leader), self._now_ms()
        if fetcher is None or fetcher.heard_ms is None or now_ms - fetcher.heard_ms > self._lag_ms:
            return False
        fetcher.read_ms = now_ms
        return True

    def reported(self, topic: str, partition: int, report: ReplicaReport) -> Leadership:
        found = self._leads(TopicPartition(topic, partition))
        found.reported(report, self._now_ms())
        return found

    def now_ms(self) -> int:
        return self._now_ms()

    # ------------------------------------------------------------ what the controller says

    def foresee(self, state: ClusterState) -> None:
        """End the leaderships that a state takes away; ``apply`` follows, and may wait for a disk that hangs.

        States in their order, from any thread; waits for no disk.
        """
        former, self._newest = self._newest, state  # first: what ``apply`` begins from now on is looked at there
        if former is None or former.topics is not state.topics:
            for where, led in list(self._led.items()):
                self._end_lost(where, led)

    def _end_lost(self, where: TopicPartition, led: LedPartition) -> None:
        """End a leadership that the newest state has given to another node, or whose topic it has no more."""
        topic = None if self._newest is None else self._newest.topics.get(where.topic)
        now = topic.partitions[where.partition] if topic is not None and topic.topic_id == led.topic_id else None
        if led.is_over or (now is not None and (now.leader_epoch <= led.leader_epoch or now.leader == self._node_id)):
            return
        led.end()
        if now is not None:
            self._tell_resigned(where, now.leader_epoch)

    def apply(self, state: ClusterState, broker_epoch: int) -> None:
        """Let the store have the topics of a state, and take the roles that it gives this node; states in their order, from one thread.

        Args:
            broker_epoch: Of this node's registration.
        """
        if self._newest is None or self._newest.index < state.index:
            self.foresee(state)
        with self._applying:
            if not self._closed.is_set():
                self._apply_all(state, broker_epoch)

    def _apply_all(self, state: ClusterState, broker_epoch: int) -> None:
        self._let_go(state)
        self._bring(state)
        self._broker_epoch, self._is_partly_applied = broker_epoch, False
        brokers = {node: _broker(broker) for node, broker in state.brokers.items()}
        same_brokers, self._brokers = brokers == self._brokers, brokers
        former, self._state = self._state, state
        self._throttle.limit(state.reassignment_bytes_per_s)
        followed: dict[int, list[FollowedPartition]] = {}
        for topic in state.topics.values():
            known = former is not None and former.topics.get(topic.name) is topic
            for number, partition in enumerate(topic.partitions):
                where = TopicPartition(topic.name, number)
                if not (known and same_brokers and where in self._roles):
                    self._apply(where, topic, partition, followed)
        for leader, partitions in followed.items():
            try:
                self._fetcher(leader).follow(partitions)
            except ThreadUnavailable as error:
                logger.error("node %d cannot be followed: %s", leader, error)
                self._is_partly_applied = True
                for one in partitions:
                    self._roles.pop(one.where, None)
        for leader in [node for node, fetcher in self._fetchers.items() if fetcher.is_empty]:
            self._end(self._fetchers.pop(leader))

    def progress(self) -> str:
        """How many partitions have the role that the newest state gives them, in words."""
        newest = self._newest
        count = 0 if newest is None else sum(len(topic.partitions) for topic in newest.topics.values())
        return f"{min(len(self._roles), count)} of {count} partitions have their role"

    def _let_go(self, state: ClusterState) -> None:
        """Leave the partitions of topics that a state does not have; one that was made anew has another id."""
        for where, role in list(self._roles.items()):
            topic = state.topics.get(where.topic)
            if topic is None or topic.topic_id != role.topic_id:
                self._leave(where)
                del self._roles[where]
        self._logged.keep(lambda where: where.topic in state.topics)

    def _end(self, fetcher: Fetcher) -> None:
        """The next state does not wait for a connection to a node that is gone."""
        fetcher.end()
        self._ending = [*(one for one in self._ending if one.is_alive), fetcher]

    def _apply(self, where: TopicPartition, topic: TopicState, state: PartitionState, followed: dict[int, list[FollowedPartition]]) -> None:
        role = Role(topic.topic_id, state.leader_epoch, state.leader if self._node_id in state.replicas else None)
        led = self._led.get(where)
        try:
            if self._roles.get(where) == role:
                if led is not None and not led.is_over:
                    led.changed(state, self._brokers, in_sync_count_min(topic.config), self._now_ms())
                    self._take_election(where, topic, state)
                self._take_reassignment(where, state, role)
                return
            self._roles.pop(where, None)
            if role.leader == self._node_id:
                self._lead(where, topic, state)
                self._take_election(where, topic, state)
            else:
                self._leave(where)
                self._follow(where, state, role, followed)
            self._roles[where] = role
            self._take_reassignment(where, state, role)
            if where in self._roles:
                self._logged.forget(where)
        except SyncFailed as error:
            self._fail(error)
        except LogdbError as error:
            self._is_partly_applied = True
            self._tell(where, state, str(error), type(error))

    def _leave(self, where: TopicPartition) -> None:
        """Lead or follow a partition no more: its log is left alone when this returns."""
        self._followed.pop(where, None)
        for fetcher in self._fetchers.values():
            fetcher.forget(where)
        led = self._led.pop(where, None)
        if led is not None and not led.is_over:
            led.end()

    def _follow(self, where: TopicPartition, state: PartitionState, role: Role, followed: dict[int, list[FollowedPartition]]) -> None:
        is_wanted = role.leader is not None or (state.is_elsewhere(self._node_id) and self._storage.has_segments(*where))
        log = self._storage.open_log(*where) if is_wanted else self._storage.open_logs.get(where)
        if log is not None:
            log.follow_leader(state.leader, state.leader_epoch)
        self._tell_resigned(where, state.leader_epoch)
        if role.leader is not None and log is not None:
            one = FollowedPartition(where, role.topic_id, role.leader_epoch, log)
            one.is_limited = self._is_limited(state)
            followed.setdefault(role.leader, []).append(one)
            self._followed[where] = one

    def _take_election(self, where: TopicPartition, topic: TopicState, state: PartitionState) -> None:
        """Hand over to the preferred leader, where an operator or a client has asked for its election."""
        led = self._led.get(where)
        if state.electing and led is not None and not led.is_over:
            self._handovers.begin(led, ElectPreferred(topic.name, topic.topic_id, where.partition, state.leader_epoch))

    def _take_reassignment(self, where: TopicPartition, state: PartitionState, role: Role) -> None:
        """Limit a replica that is being added; empty the log of one that was removed.

        The controller has removed it, and this node follows no leader: nothing can have its log count before it has applied a later state.
        """
        if role.leader in self._fetchers:
            self._fetchers[role.leader].limit(where, is_limited=self._is_limited(state))
        if state.is_elsewhere(self._node_id) and (log := self._storage.open_logs.get(where)) is not None and log.end_offset > 0:
            self._empty(where, state)

    def _empty(self, where: TopicPartition, state: PartitionState) -> None:
        """Let a log that was removed have nothing; where that fails, on a full disk, the next tick tries again."""
        try:
            self._storage.begin_anew(*where, 0)
        except SyncFailed:
            raise
        except LogdbError as error:
            self._is_partly_applied = True
            del self._roles[where]
            self._tell(where, state, f"it cannot be emptied: {error}", type(error))
        else:
            logger.info("%s is emptied: its replicas are %s now", where, state.replicas)

    def _tell(self, where: TopicPartition, state: PartitionState, text: str, kind: type[LogdbError]) -> None:
        """Log why a role could not be taken, once: it is tried again many times."""
        if self._logged.is_news(where, (state.leader_epoch, kind)):
            logger.error("%s in epoch %d, led by %s: %s", where, state.leader_epoch, state.leader, text)

    def _is_limited(self, state: PartitionState) -> bool:
        return self._node_id in state.adding and self._node_id not in state.in_sync

    def _lead(self, where: TopicPartition, topic: TopicState, state: PartitionState) -> None:
        """A leader that is elected again goes on in the new epoch: if it refused one batch of a producer in between, and took the next one,
        that would be out of sequence.
        """
        former = self._led.get(where)
        if former is None:
            self._leave(where)
        try:
            if self._failed:
                raise SyncFailed(self._storage.path, "a sync has failed before: this node leads nothing")
            log, now_ms = self._storage.open_log(*where), self._now_ms()
            start_offset = log.begin_epoch(state.leader_epoch)
        except BaseException:
            self._leave(where)
            raise
        leader = Leader(
            where,
            self._node_id,
            state,
            self._brokers,
            epoch_start_offset=start_offset,
            high_watermark=log.high_watermark,
            flushed_offset=log.flushed_offset,
            in_sync_count_min=in_sync_count_min(topic.config),
            lag_ms=self._lag_ms,
            now_ms=now_ms,
        )
        led = LedPartition(
            where, topic.topic_id, log, leader, flush=self._syncer.add, propose=self._proposer.add, is_lapsed=lambda: self.is_lapsed
        )
        self._led[where] = led
        if former is not None:
            former.end()
        led.watch()
        self._tell_led(where, state.leader_epoch)
        self._end_lost(where, led)  # a later state may have taken it away already

    def _fetcher(self, leader: int) -> Fetcher:
        if leader not in self._fetchers:
            self._fetchers[leader] = Fetcher(
                self._node_id,
                leader,
                self._storage,
                self._flushers,
                throttle=self._throttle,
                connect=self._connect,
                broker_epoch=lambda: self._broker_epoch,
                lost=self._suspect,
                failed=self._fail,
            )
        return self._fetchers[leader]

    # ------------------------------------------------------------ threads

    def _flush(self, partitions: Collection[LedPartition]) -> None:
        now_ms = self._now_ms()
        due = [led for led in partitions if now_ms >= self._unflushed.get(led, now_ms)]
        self._flushers.each(self._flush_one, due)

    def _flush_one(self, led: LedPartition) -> None:
        now_ms = self._now_ms()
        try:
            led.flush(self._now_ms)
            self._unflushed.pop(led, None)
        except SyncFailed as error:
            self._fail(error)
        except NotLeaderOrFollower:
            self._unflushed.pop(led, None)
        except LogdbError as error:
            if led not in self._unflushed:
                logger.error("%s cannot be flushed; another replica in sync takes over, if there is one: %s", led.where, error)
            self._unflushed[led] = now_ms + _TICK_MS // 2
        except Exception:
            logger.exception("%s", led.where)

    def _propose(self, partitions: Collection[LedPartition]) -> None:
        for led in partitions:
            command = led.take_proposal(self._node_id, self._broker_epoch)
            if command is None:
                continue
            if self._ends_leadership(led, command):
                self._handovers.begin(led, command)
            else:
                self._asked(led, command)

    def _ends_leadership(self, led: LedPartition, command: AlterInSync) -> bool:
        """Whether a reassignment ends with this in-sync set, which takes this node away."""
        target = led.state.target
        return bool(target) and self._node_id not in target and {*target} <= {replica.node_id for replica in command.in_sync}

    def _asked(self, led: LedPartition, command: AlterInSync | ElectPreferred | ResignLeader) -> bool:
        """Ask the controller; returns whether another node leads then."""
        state: PartitionState | None = None
        try:
            state = self._ask(command)
        except PartitionChanged as error:
            state = error.state
        except LogdbError as error:
            logger.info("%s: %s is not taken: %s", led.where, command, error)
        except Exception:
            logger.exception("%s: %s", led.where, command)
        if isinstance(command, AlterInSync):
            with contextlib.suppress(NotLeaderOrFollower):
                led.answered(state, self._now_ms())
        return state is not None and state.leader != self._node_id

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_MS / 1000):
            try:
                self._look_at_disk()
                for led in list(self._led.values()):
                    with contextlib.suppress(NotLeaderOrFollower):
                        led.tick(self._now_ms())
                self._look_for_damage()
                self._flush_again()
                self._take_what_is_left()
                self._prefer()
                self._drain()
            except Exception:
                logger.exception("the next look is in %d ms", _TICK_MS)

    def _take_what_is_left(self) -> None:
        """Try the roles again that could not be taken; a state that is being applied does it itself."""
        if self._is_partly_applied and self._applying.acquire(blocking=False):
            try:
                if self._state is not None:
                    self._apply_all(self._state, self._broker_epoch)
            finally:
                self._applying.release()
            if self._is_partly_applied:  # a log may be damaged: another replica leads
                self._resign(lambda where: where not in self._led)

    def _prefer(self) -> None:
        """Let first replicas lead again that could at two looks: a broker that has just come back may go again."""
        state = self._state
        if self._now_ms() < self._prefer_ms or state is None:
            return
        self._prefer_ms = self._now_ms() + PREFER_INTERVAL_MS
        uneven: set[TopicPartition] = set()
        for where, led in list(self._led.items()):
            one, topic = state.partition(*where), state.topics.get(where.topic)
            if led.is_over or one is None or topic is None or preferred(one, state.brokers) is one:
                continue
            uneven.add(where)
            if where in self._uneven and led.leader_epoch == one.leader_epoch:
                self._handovers.begin(led, ElectPreferred(topic.name, topic.topic_id, where.partition, one.leader_epoch))
        self._uneven = uneven

    def _drain(self) -> None:
        """Hand over all that another node can lead, while an operator has this node drain."""
        state = self._state
        own = None if state is None else state.brokers.get(self._node_id)
        if state is None or own is None or not own.draining or self._now_ms() < self._drain_ms:
            return
        for where, led in list(self._led.items()):
            one = state.partition(*where)
            if led.is_over or one is None or led.leader_epoch != one.leader_epoch:
                continue
            if relieved(one, self._node_id, state.brokers, draining=True) is not one:
                self._handovers.begin(led, ResignLeader(*where, one.leader_epoch))
                self._drain_ms = self._now_ms() + PREFER_INTERVAL_MS  # while no controller answers, appends go on between two tries

    def _look_at_disk(self) -> None:
        """Give leaderships away once a sync has failed, or while one hangs: nothing that is appended here would be acknowledged."""
        try:
            self._storage.check_writable()
        except SyncFailed as error:  # of another thread's sync, too
            self._fail(error)
        except LogdbError:
            return  # it is about to close
        if (hangs := self.disk_hangs) != self._hangs:
            if hangs:
                logger.error("a sync has not ended for %d ms: this node gives its leaderships away", self._stall_ms)
            else:
                logger.warning("syncs return again: this node may lead")
            self._hangs = hangs
        if hangs or self._failed:
            self._resign(lambda _: True)

    @property
    def disk_hangs(self) -> bool:
        """Whether a sync lasts so long that this node must lead nothing: neither what it leads, nor what it is asked to lead now."""
        return longest_sync_ms(self._storage.io, self._storage.path) >= self._stall_ms

    def _flush_again(self) -> None:
        """Give away what a full disk cannot take, and try again: there may be room now."""
        full = {led.where: led for led in list(self._unflushed)}
        if full:
            self._resign(lambda where: where in full)
        for led in full.values():
            self._syncer.add(led)

    def _look_for_damage(self) -> None:
        """Give damaged logs to replicas in sync, which have what is lost here; afterwards they are repaired as followers."""
        damaged = [led for led in list(self._led.values()) if led.log.damage is not None and not led.is_over]
        heirs = {led.where: led.has_heir for led in damaged}
        for led in damaged:
            has_heir = heirs[led.where]
            if self._damaged.is_news(led.where, (led.leader_epoch, has_heir)):
                what = "another replica in sync is asked to lead" if has_heir else "no other replica is in sync, so it is kept as it is"
                logger.error("%s is damaged, and led here; %s: %s", led.where, what, led.log.damage)
        if any(heirs.values()):
            self._resign(lambda where: heirs.get(where, False))

    def _fail(self, error: LogdbError) -> None:
        """A sync has failed: lead nothing any more.  The other leaders take this node out of their in-sync sets in time."""
        if self._failed or not isinstance(error, SyncFailed):
            return
        self._failed = True
        logger.error("this node no longer leads any partition: %s", error)
        for led in list(self._led.values()):
            led.end()  # the next look gives the leaderships away, and those that this node is given later

    def _resign(self, chosen: Callable[[TopicPartition], bool]) -> None:
        """Give partitions away that this node leads, as far as the controller says; in a thread, one at a time."""
        if self._resigning is None or not self._resigning.is_alive():
            self._resigning = started("logdb-resigning", lambda: self._give_away(chosen))

    def hand_over(self, timeout_s: float) -> None:
        """Before the controller lets other nodes lead: refuse appends, and wait until those before are committed, and so answered.

        No producer then has to send a batch again that its log already has.  What is not committed in time goes on as after a crash.
        """
        led = [one for one in list(self._led.values()) if not one.is_over and one.has_heir]
        for one in led:
            one.refuse_appends()
        commit_all(led, self._now_ms, timeout_s)

    def _has_heir(self, state: PartitionState) -> bool:
        """Whether the controller has another one to elect."""
        return any(node != self._node_id and node in self._brokers and not self._brokers[node].fenced for node in state.in_sync)

    def _give_away(self, chosen: Callable[[TopicPartition], bool]) -> None:
        topics = {} if self._state is None else self._state.topics
        led = [(TopicPartition(name, number), one) for name, topic in topics.items() for number, one in enumerate(topic.partitions)]
        for where, one in led:
            if one.leader == self._node_id and chosen(where) and self._has_heir(one):
                try:
                    self._ask(ResignLeader(*where, one.leader_epoch))
                except LogdbError as error:
                    logger.warning("%s: it cannot be given away: %s", where, error)

    def close(self) -> None:
        """End all leaderships and the threads; the logs stay as they are."""
        self._closed.set()
        self._ticker.join()
        self._handovers.end()
        with self._applying:
            for where, role in self._roles.items():
                self._leave(where)
                if (log := self._storage.open_logs.get(where)) is not None:
                    log.follow_leader(None, role.leader_epoch)  # which ends the waits for replicas
            for fetcher in self._fetchers.values():
                self._end(fetcher)
        for fetcher in self._ending:
            fetcher.join()
        for worker in (self._syncer, self._proposer):
            worker.end()
            worker.join()
        self._flushers.close()


def _broker(broker: BrokerState) -> RegisteredNode:
    """A broker that is about to end has no rack: no consumer is to read at it."""
    return RegisteredNode(broker.epoch, broker.fenced, "" if broker.draining else broker.rack, frozenset(broker.addresses))
