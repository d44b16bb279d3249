"""What the leader of a partition knows of its followers: who is in sync, and up to where the log is replicated.

Pure: events in, effects out; no I/O, no clock, no thread.  One object for one leader epoch.

    fetched, flushed, changed, answered, tick  ──►  Effects(high watermark, change of the in-sync set to propose)

Rules (docs/inside/replication.md):
- The high watermark is the smallest *flushed* end over the maximal in-sync set: the one that the controller has, and those that a
  proposal under way would add.  It never goes back.  It stays where it is while fewer replicas than ``min.insync.replicas`` are in sync.
- A follower is added once its flushed end has reached the high watermark and the start of the epoch, in the broker epoch that it is
  registered with.  It is removed once it has lagged for ``lag_ms``; at once, however few members are left, if its log is damaged.
- A damaged log is begun anew only when no acknowledgement counts on it: its node is not in the maximal in-sync set.  It comes back by
  reports of a later lineage alone: those from before are late.
- A gap in the sequence of a producer that has appended nothing in this epoch is temporary for ``MISSING_MS``: the missing batches may be
  on their way from the former leader.  If this leader has refused a batch of the producer, the gap is permanent.
- One proposal is under way at a time: a compare-and-set on the partition epoch.  Whatever was proposed on one partition epoch may still
  come true until the controller has a newer one: until then all nodes that were proposed count.

Time only decides whom the leader proposes to remove; the controller, and the union of both sets, keep the records safe.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logdb.broker.gaps import MISSING_MS
from logdb.errors import NotLeaderOrFollower, StaleBrokerEpoch
from logdb.model import TopicPartition
from logdb.requests.nodes import PartitionState
from logdb.store.protocols import DAMAGED_OFFSET, LastFetch, Standing

_FAILED_COUNT_MAX = 1_000
RETRY_MS = 500
"""From a proposal without an answer, or with a refusal, to the next."""


class RegisteredNode(NamedTuple):
    """A node as the controller has registered it.

    ``fenced``: it is not to be added to an in-sync set; ``rack``: where consumers may read at it, "": nowhere; ``listeners``: its own.
    """

    broker_epoch: int
    fenced: bool = False
    rack: str = ""
    listeners: frozenset[str] = frozenset()


class InSyncChange(NamedTuple):
    """A proposal to the controller: another in-sync set, as pairs of node and broker epoch."""

    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[tuple[int, int], ...]


class Effects(NamedTuple):
    """What an event has brought; ``high_watermark``: None where it has not moved."""

    high_watermark: int | None = None
    proposal: InSyncChange | None = None


class ReplicaProgress:
    """A follower's ends, as it has reported them in one broker epoch, of one lineage of its log.

    ``target_offset``: where the log ended at ``target_ms``; once that is flushed, the follower had caught up at that time.
    ``start_offset``: where the follower's log begins; -1: unknown, of a node of an earlier version, which serves no consumers.
    ``is_damaged``: for good; what it has later is of another lineage.
    ``last_fetch``: of the session whose fetches repeat the last report; None: only reports count.
    """

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "flushed_offset",
        "is_damaged",
        "last_fetch",
        "lineage",
        "start_offset",
        "target_ms",
        "target_offset",
    )

    def __init__(self, broker_epoch: int, lineage: int, now_ms: int, log_end_offset: int) -> None:
        self.broker_epoch, self.lineage, self.flushed_offset, self.is_damaged = broker_epoch, lineage, -1, False
        self.start_offset = -1
        self.caught_up_ms = self.target_ms = now_ms
        self.target_offset = log_end_offset
        self.last_fetch: LastFetch | None = None

    def repeat(self, log_end_offset: int) -> None:
        """Take the last report again, as of the session's last fetch; ``log_end_offset``: where the log ended then, or before."""
        if self.last_fetch is not None and self.last_fetch.at_ms > self.target_ms:
            self.report(self.flushed_offset, log_end_offset, self.last_fetch.at_ms)

    def report(self, flushed_offset: int, log_end_offset: int, now_ms: int) -> None:
        if self.is_damaged or flushed_offset == DAMAGED_OFFSET:
            self.is_damaged, self.flushed_offset = True, -1
            return
        self.flushed_offset = max(self.flushed_offset, flushed_offset)  # a late report says less
        if self.flushed_offset >= log_end_offset:
            self.caught_up_ms = now_ms
        elif self.flushed_offset >= self.target_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.target_ms)
        else:
            return
        self.target_ms, self.target_offset = now_ms, log_end_offset


class Leader:
    """One leader epoch of a partition on this node.

    | field                | changed by                 | to be trusted                                                          |
    |----------------------|----------------------------|------------------------------------------------------------------------|
    | ``state``            | changed, answered          | the newest that the controller is known to have                        |
    | ``high_watermark``   | any event                  | always: below it all of the maximal in-sync set has flushed            |
    | ``flushed_offset``   | flushed                    | a lower bound of what this node has flushed                            |
    | ``_followers``       | fetched                    | a lower bound of what they have flushed                                |
    | ``_proposed``        | any event; a newer state   | the nodes that the controller may have added since ``state``           |
    | ``_is_asking``       | any event; answered        | a proposal is under way                                                |
    | ``_failed``          | failed                     | producers of which this leader has refused a batch for good; bounded   |
    """

    def __init__(
        self,
        where: TopicPartition,
        node_id: int,
        state: PartitionState,
        brokers: Mapping[int, RegisteredNode],
        *,
        epoch_start_offset: int,
        high_watermark: int,
        flushed_offset: int,
        in_sync_count_min: int,
        lag_ms: int,
        now_ms: int,
    ) -> None:
        """Begin an epoch at ``epoch_start_offset``; ``high_watermark``: what the log has known before."""
        self._where, self._node_id = where, node_id
        self.state, self._brokers, self.in_sync_count_min = state, brokers, in_sync_count_min
        self.epoch_start_offset, self.high_watermark, self.flushed_offset = epoch_start_offset, high_watermark, flushed_offset
        self._lag_ms, self._log_end_offset, self._began_ms = lag_ms, epoch_start_offset, now_ms
        self._followers: dict[int, ReplicaProgress] = {}
        self._proposed: frozenset[int] = frozenset()
        self._is_asking, self._retry_ms = False, now_ms
        self._failed: dict[int, None] = {}

    # ------------------------------------------------------------ producers

    def failed(self, producer_ids: Iterable[int]) -> None:
        """A batch of each of these producers was refused for good."""
        self._failed.update(dict.fromkeys(producer_ids))
        while len(self._failed) > _FAILED_COUNT_MAX:
            del self._failed[next(iter(self._failed))]

    def may_send_missing(self, producer_id: int, last_offset: int, now_ms: int) -> bool:
        """Whether the batches that are missing before a producer's next one may still come from the former leader.

        Args:
            last_offset: The last record of the producer in the log; -1 without one.
        """
        return self.is_new(now_ms) and last_offset < self.epoch_start_offset and producer_id not in self._failed

    def is_new(self, now_ms: int) -> bool:
        """Whether batches that producers have sent to the former leader may still come."""
        return now_ms - self._began_ms < MISSING_MS

    # ------------------------------------------------------------ events

    def fetched(
        self,
        node_id: int,
        broker_epoch: int,
        flushed_offset: int,
        log_end_offset: int,
        now_ms: int,
        lineage: int = 0,
        last_fetch: LastFetch | None = None,
        start_offset: int = -1,
    ) -> Effects:
        """A follower has reported its flushed end; one past the end of this log is none: that log is not the begin of this one.

        Args:
            log_end_offset: Of this log.
            lineage, start_offset: Of the follower's.
            last_fetch: Of the session that repeats the report from now on; None: the one that there is does so.

        Raises:
            NotLeaderOrFollower: The node has no replica.
            StaleBrokerEpoch: It has registered again since.
        """
        progress = self._checked(node_id, broker_epoch)
        if progress is not None and lineage < progress.lineage:
            return Effects()  # late: of a log that has begun anew since
        if progress is None or lineage > progress.lineage:
            progress = self._followers[node_id] = ReplicaProgress(broker_epoch, lineage, now_ms, log_end_offset)
        self._ends_at(log_end_offset)
        progress.start_offset = start_offset
        progress.last_fetch = last_fetch or progress.last_fetch
        progress.report(flushed_offset if flushed_offset <= log_end_offset else -1, log_end_offset, now_ms)
        return self._effects(now_ms)

    def left_session(self, node_id: int, last_fetch: LastFetch) -> None:
        """A session repeats the report of a follower no more; another one, which has begun since, goes on."""
        progress = self._followers.get(node_id)
        if progress is not None and progress.last_fetch is last_fetch:
            progress.repeat(self._log_end_offset)
            progress.last_fetch = None

    def _ends_at(self, log_end_offset: int) -> None:
        """The log ends there now: until then, followers that repeat their report had what they had."""
        for progress in self._followers.values():
            progress.repeat(self._log_end_offset)
        self._log_end_offset = log_end_offset

    def _checked(self, node_id: int, broker_epoch: int) -> ReplicaProgress | None:
        """What is known of a follower in this broker epoch."""
        if node_id not in self.state.replicas or node_id == self._node_id:
            raise NotLeaderOrFollower(*self._where, self.state.leader, self.state.leader_epoch)
        broker, progress = self._brokers.get(node_id), self._followers.get(node_id)
        known = max(-1 if broker is None else broker.broker_epoch, -1 if progress is None else progress.broker_epoch)
        if broker_epoch < known:
            raise StaleBrokerEpoch(node_id, broker_epoch, known)
        return progress if progress is not None and progress.broker_epoch == broker_epoch else None

    def flushed(self, flushed_offset: int, log_end_offset: int, now_ms: int) -> Effects:
        """This node has flushed up to an offset."""
        self.flushed_offset = max(self.flushed_offset, flushed_offset)
        self._ends_at(log_end_offset)
        return self._effects(now_ms)

    def changed(self, state: PartitionState, brokers: Mapping[int, RegisteredNode], in_sync_count_min: int, now_ms: int) -> Effects:
        """The controller has told a state of this leader epoch."""
        self._brokers, self.in_sync_count_min = brokers, in_sync_count_min
        self._take(state)
        return self._effects(now_ms)

    def answered(self, state: PartitionState | None, now_ms: int) -> Effects:
        """The controller has answered the proposal.

        Args:
            state: As the controller has it now; None: it was refused for another reason, or the outcome is unknown.
        """
        self._is_asking = False
        if state is None or not self._take(state) or self._may_finish_reassignment():
            self._retry_ms = now_ms + RETRY_MS
        return self._effects(now_ms)

    def tick(self, log_end_offset: int, now_ms: int) -> Effects:
        """Time has passed."""
        self._ends_at(log_end_offset)
        return self._effects(now_ms)

    def _take(self, state: PartitionState) -> bool:
        """Know a newer state of this leader epoch; False: it is none."""
        is_newer = state.leader_epoch == self.state.leader_epoch and state.partition_epoch > self.state.partition_epoch
        if is_newer:
            self.state, self._proposed = state, frozenset()
        return is_newer

    # ------------------------------------------------------------ effects

    def _effects(self, now_ms: int) -> Effects:
        return Effects(self._moved(), self._proposal(now_ms))

    def standing(self, node_id: int) -> Standing:
        """How far this leader counts on a follower's log: it may begin anew where no high watermark counts on it, now or later."""
        if self._is_damaged(node_id):
            return Standing.COUNTED if node_id in self.maximal_in_sync else Standing.MAY_BEGIN_ANEW
        has_all = self._flushed_by(node_id) >= max(self.high_watermark, self.epoch_start_offset)
        return Standing.CAUGHT_UP if has_all else Standing.COUNTED

    def nearest(self, rack: str, offset: int, listener: str) -> int | None:
        """The follower in a rack that a consumer is to read from ``offset`` on: the one that has flushed most; None: this node.

        It is in sync, its broker is not fenced and has the listener, and it has the offset.

        Source: KIP-392, Kafka's ``RackAwareReplicaSelector``.
        """
        own = self._brokers.get(self._node_id)
        if not rack or (own is not None and own.rack == rack):
            return None
        found: list[tuple[int, int, int]] = []
        for node, progress in self._followers.items():
            broker = self._brokers.get(node)
            if broker is None or broker.fenced or broker.rack != rack or broker.broker_epoch != progress.broker_epoch:
                continue
            if listener not in broker.listeners:
                continue
            if node in self.state.in_sync and 0 <= progress.start_offset <= offset <= progress.flushed_offset:
                found.append((progress.flushed_offset, progress.caught_up_ms, node))
        return max(found)[2] if found else None

    @property
    def has_heir(self) -> bool:
        """Whether another member of the in-sync set can lead: none is damaged, and one is not fenced."""
        others = [node for node in self.state.in_sync if node != self._node_id]
        return not all(map(self._is_fenced, others)) and not any(map(self._is_damaged, others))

    def _is_damaged(self, node_id: int) -> bool:
        progress = self._followers.get(node_id)
        return progress is not None and progress.is_damaged

    @property
    def maximal_in_sync(self) -> set[int]:
        """The replicas that may be in the controller's in-sync set, now or soon."""
        return {*self.state.in_sync, *self._proposed}

    @property
    def in_sync_count(self) -> int:
        """The members of the in-sync set that are not fenced: a fenced one stays where too few are left."""
        return sum(node == self._node_id or not self._is_fenced(node) for node in self.state.in_sync)

    @property
    def has_enough_in_sync(self) -> bool:
        return self.in_sync_count >= self.in_sync_count_min

    def _is_fenced(self, node_id: int) -> bool:
        broker = self._brokers.get(node_id)
        return broker is None or broker.fenced

    def _flushed_by(self, node_id: int) -> int:
        if node_id == self._node_id:
            return self.flushed_offset
        progress = self._followers.get(node_id)
        return -1 if progress is None else progress.flushed_offset

    def _moved(self) -> int | None:
        if len(self.state.in_sync) < min(self.in_sync_count_min, len(self.state.replicas)):
            return None
        offset = min(map(self._flushed_by, self.maximal_in_sync | {self._node_id}))
        if offset <= self.high_watermark:
            return None
        self.high_watermark = offset
        return offset

    def _proposal(self, now_ms: int) -> InSyncChange | None:
        if self._is_asking or now_ms < self._retry_ms:
            return None
        wanted = [node for node in self.state.replicas if self._is_to_be_in_sync(node, now_ms)]
        if len(wanted) < min(self.in_sync_count_min, len(self.state.replicas)):  # nothing would be committed without those that lag
            lagging = {node for node in self.state.in_sync if not self._is_damaged(node)}
            wanted = [node for node in self.state.replicas if node in wanted or node in lagging]
        is_same = set(wanted) == set(self.state.in_sync) and self._proposed <= set(wanted)
        if is_same and not self._may_finish_reassignment():
            return None
        self._is_asking, self._proposed = True, self._proposed | frozenset(wanted)
        pairs = tuple((node, self._epoch_of(node)) for node in wanted)
        return InSyncChange(self.state.leader_epoch, self.state.partition_epoch, pairs)

    def _may_finish_reassignment(self) -> bool:
        """Whether only a proposal is missing: a leader that goes hands over first; one that stays may have taken over from it."""
        target = self.state.target
        return bool(target) and all(node in self.state.in_sync and not self._is_fenced(node) for node in target)

    def _epoch_of(self, node_id: int) -> int:
        progress, broker = self._followers.get(node_id), self._brokers.get(node_id)
        return progress.broker_epoch if progress is not None else -1 if broker is None else broker.broker_epoch

    def _is_to_be_in_sync(self, node_id: int, now_ms: int) -> bool:
        if node_id == self._node_id:
            return True
        if self._is_damaged(node_id):
            return False
        progress = self._followers.get(node_id)
        if node_id in self.state.in_sync:
            since_ms = self._began_ms if progress is None else progress.caught_up_ms
            return self._flushed_by(node_id) >= self._log_end_offset or now_ms - since_ms <= self._lag_ms
        broker = self._brokers.get(node_id)
        if progress is None or broker is None or broker.fenced or broker.broker_epoch != progress.broker_epoch:
            return False
        return progress.flushed_offset >= max(self.high_watermark, self.epoch_start_offset)
