"""A partition that this node leads, in one leader epoch: the rules of ``leader`` on its log, for followers and producers."""

import threading
from collections.abc import Callable, Collection, Mapping

from logdb.broker.gaps import is_for_now, missing
from logdb.errors import (
    FencedLeaderEpoch,
    LogdbError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequence,
    UnknownLeaderEpoch,
    UnknownTopic,
)
from logdb.log.producers import is_gap
from logdb.log.protocols import ReplicaLog
from logdb.model import OFFSET_MAX, TopicPartition
from logdb.requests.nodes import PartitionState
from logdb.store.protocols import LastFetch, ReplicaReport, Standing
from logdb.threads import renewed
from logdb_replication.controller.commands import AlterInSync, Replica
from logdb_replication.replica.leader import Effects, InSyncChange, Leader, RegisteredNode


class LedPartition:
    """``store.protocols.Leadership``.

    | field            | changed by                              | under      | to be trusted                                       |
    |------------------|-----------------------------------------|------------|-----------------------------------------------------|
    | ``_leader``      | each event                              | ``_lock``  | under it; its ``high_watermark`` always             |
    | ``_proposal``    | each event; ``take_proposal``           | ``_lock``  | None: the controller is to be asked nothing         |
    | ``_asked``       | ``flush``                               | none       | a hint: up to there it is flushed, or soon will be  |
    | ``_is_leaving``  | ``refuse_appends``, ``take_appends``    | none       | true: no append of a client begins                  |
    | ``is_over``      | ``end``                                 | ``_lock``  | true: for good; nothing of this epoch moves         |

    Threading: any thread.  ``_lock`` is held for no I/O; the lock of the log's view is taken under it.
    """

    def __init__(
        self,
        where: TopicPartition,
        topic_id: str,
        log: ReplicaLog,
        leader: Leader,
        *,
        flush: "Callable[[LedPartition], None]",
        propose: "Callable[[LedPartition], None]",
        is_lapsed: Callable[[], bool],
    ) -> None:
        """Lead from now on; ``watch`` begins the syncs.

        Args:
            flush: Has ``flush`` called soon, in a thread.
            propose: Has ``take_proposal`` called soon, in a thread.
            is_lapsed: Whether the controller may have replaced this node.
        """
        self.where, self.topic_id, self.log, self._leader = where, topic_id, log, leader
        self._flush, self._propose, self._is_lapsed = flush, propose, is_lapsed
        self._proposal: InSyncChange | None = None
        self.is_over, self._is_leaving, self._asked = False, False, -1
        self._lock = renewed(threading.Lock())

    @property
    def leader_epoch(self) -> int:
        return self._leader.state.leader_epoch

    @property
    def state(self) -> PartitionState:
        return self._leader.state

    # ------------------------------------------------------------ for producers

    def _over(self) -> NotLeaderOrFollower:
        return NotLeaderOrFollower(*self.where, None, self.leader_epoch)

    def check_not_over(self) -> None:
        if self.is_over:
            raise self._over()

    def check_append(self, *, acknowledged_by_all: bool) -> None:
        leader = self._leader
        if self.is_over or self._is_leaving or (not acknowledged_by_all and self._is_lapsed()):
            raise self._over()
        if acknowledged_by_all and not leader.has_enough_in_sync:
            raise NotEnoughReplicas(*self.where, leader.in_sync_count, leader.in_sync_count_min)

    def refuse_appends(self) -> None:
        """This node is about to give the partition to another one: producers find it there, and those that wait here get their answers."""
        self._is_leaving = True

    def take_appends(self) -> None:
        """The controller has elected no other leader."""
        self._is_leaving = False

    def is_new(self, now_ms: int) -> bool:
        return self._leader.is_new(now_ms)

    def refused(self, error: LogdbError, producer_ids: Collection[int], now_ms: int) -> None:
        with self._lock:
            if isinstance(error, OutOfOrderSequence):
                if is_gap(error) and self._leader.may_send_missing(error.producer_id, error.last_offset, now_ms):
                    raise missing(self.where, error.producer_id, error.expected_sequence, error.sequence, self.leader_epoch) from error
            elif not is_for_now(error):
                self._leader.failed(producer_ids)

    def is_committed(self, offset: int) -> bool:
        leader = self._leader
        if leader.high_watermark >= offset:  # also once the epoch is over: it has moved in this epoch alone
            return True
        if self.is_over:
            raise NotLeaderAfterAppend(*self.where, self.leader_epoch)
        if not leader.has_enough_in_sync:
            raise NotEnoughReplicasAfterAppend(*self.where, leader.in_sync_count, leader.in_sync_count_min)
        return False

    def awaited_end(self, log: ReplicaLog) -> int:
        del log
        return OFFSET_MAX if self.is_over or not self._leader.has_enough_in_sync else self._leader.high_watermark

    # ------------------------------------------------------------ for consumers

    def nearest(self, rack: str, offset: int, listener: str) -> int | None:
        with self._lock:
            return None if self.is_over else self._leader.nearest(rack, offset, listener)

    # ------------------------------------------------------------ for followers

    def reported(self, report: ReplicaReport, now_ms: int) -> None:
        """A follower has reported; raises as ``Replication.reported``."""
        if report.topic_id != self.topic_id:
            raise UnknownTopic(self.where.topic)
        if report.leader_epoch != self.leader_epoch:
            error = FencedLeaderEpoch if report.leader_epoch < self.leader_epoch else UnknownLeaderEpoch
            raise error(*self.where, report.leader_epoch, self.leader_epoch)
        end_offset = self.log.end_offset
        _, broker_epoch, _, _, flushed_offset, lineage, last_fetch, start_offset = report
        self._do(
            lambda leader: leader.fetched(
                report.node_id, broker_epoch, flushed_offset, end_offset, now_ms, lineage, last_fetch, start_offset
            )
        )

    def left_session(self, node_id: int, last_fetch: LastFetch) -> None:
        """See ``Leader.left_session``."""
        with self._lock:
            self._leader.left_session(node_id, last_fetch)

    @property
    def has_heir(self) -> bool:
        """See ``Leader.has_heir``."""
        with self._lock:
            return self._leader.has_heir

    def standing(self, node_id: int) -> Standing:
        with self._lock:
            return Standing.COUNTED if self.is_over else self._leader.standing(node_id)

    # ------------------------------------------------------------ the log, and time

    def set(self) -> None:
        """The log calls this when one of its ends has moved: under locks of its own, so the work is done elsewhere."""
        if not self.is_over and self.log.end_offset != self._asked:
            self._flush(self)

    def flush(self, now_ms: Callable[[], int]) -> None:
        """Make durable what was written; raises as ``ReplicaLog.flush``."""
        if self.is_over:
            return
        self._asked = self.log.end_offset
        try:
            self.log.flush()
        except BaseException:
            self._asked = -1
            raise
        flushed = self.log.flushed_offset
        self._do(lambda leader: leader.flushed(flushed, self.log.end_offset, now_ms()))

    def tick(self, now_ms: int) -> None:
        end_offset = self.log.end_offset
        self._do(lambda leader: leader.tick(end_offset, now_ms))
        if self._leader.high_watermark < end_offset:
            self.log.wake()  # a wait for replicas looks at its time

    # ------------------------------------------------------------ the controller

    def changed(self, state: PartitionState, brokers: Mapping[int, RegisteredNode], in_sync_count_min: int, now_ms: int) -> None:
        """The controller has told a state of this leader epoch."""
        had_enough = self._leader.has_enough_in_sync
        self._do(lambda leader: leader.changed(state, brokers, in_sync_count_min, now_ms))
        if had_enough and not self._leader.has_enough_in_sync:
            self.log.wake()  # appends that wait for replicas are told

    def take_proposal(self, node_id: int, broker_epoch: int) -> AlterInSync | None:
        """What to ask the controller next; ``answered`` has to follow."""
        with self._lock:
            change, self._proposal = self._proposal, None
        if change is None or self.is_over:
            return None
        return AlterInSync(
            node_id,
            broker_epoch,
            self.where.topic,
            self.topic_id,
            self.where.partition,
            change.leader_epoch,
            change.partition_epoch,
            tuple(Replica(*pair) for pair in change.in_sync),
        )

    def answered(self, state: PartitionState | None, now_ms: int) -> None:
        """See ``Leader.answered``."""
        self._do(lambda leader: leader.answered(state, now_ms))
        if not self._leader.has_enough_in_sync:
            self.log.wake()

    # ------------------------------------------------------------ the begin and the end

    def watch(self) -> None:
        self.log.watch(self)
        self._flush(self)

    def end(self) -> None:
        """The epoch is over: when this returns, the high watermark moves no more, and no append is acknowledged."""
        with self._lock:
            self.is_over = True
        self.log.unwatch(self)
        self.log.wake()

    def _do(self, event: Callable[[Leader], Effects]) -> None:
        with self._lock:
            if self.is_over:
                raise self._over()
            effects = event(self._leader)
            self._proposal = effects.proposal or self._proposal
        if effects.high_watermark is not None:
            self.log.move_high_watermark(effects.high_watermark, leader_epoch=self.leader_epoch)
        if effects.proposal is not None:
            self._propose(self)
