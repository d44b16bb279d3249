"""Follows one broker: one fetch for all partitions that it leads, and reports of what was flushed.

A fetch names the partitions that have changed since the one before it (``fetch_session``).  Most changes come by its own answers.  So it
looks at all partitions twice a second, and before each fetch at those that were answered, or wait.

Two threads, a connection each.  The first asks where epochs end, cuts logs off, fetches, appends and flushes; its next fetch reports what
is flushed.  What the leader has taken meanwhile comes in that fetch's answer, so the more comes, the more one flush covers.  Of a large
answer the second thread flushes, and reports at once, while the first one fetches ahead: more waits at the leader.

A damaged log is reported as such until the leader counts on it no more; then it is set aside, and begins anew.  What was set aside goes
when the log has all that is replicated.

An answer is applied to a partition under its lock, unless the partition has ended: what came of a former leader changes nothing.
"""

import contextlib
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from logdb.codec import convert
from logdb.errors import InvalidAnswer, LogdbError, PolicyViolation, SyncFailed, UnexpectedOffset
from logdb.log.epochs import EpochEnd
from logdb.log.protocols import ReplicaLog
from logdb.model import TopicPartition
from logdb.requests.topics import DeleteRecords
from logdb.store.protocols import DAMAGED_OFFSET, Standing, Storage
from logdb.threads import renewed, started
from logdb_replication.replica.fetch_session import FetchSession
from logdb_replication.replica.flushing import Flushers
from logdb_replication.replica.follower import AskEpoch, BeginAnew, Fetch, Follower, LogState, TruncateTo
from logdb_replication.replica.peer import Peer, epochs_request, fetch_request
from logdb_replication.replica.throttle import Throttle
from logdb_replication.replica.worker import Worker

logger = logging.getLogger(__name__)

_WAIT_MS, _RETRY_MS, _FAILED_MS = 500, 50, 500
_FETCH_BYTES_MAX, _PARTITION_BYTES_MAX = 10 << 20, 1 << 20
_READERS_MS = 10_000  # from a consumer's last read
_FLUSHED_BYTES_MAX = 128 << 10  # to flush more takes longer than a fetch
_OFFSET_OUT_OF_RANGE = 1
_LOOK_MS, _LOOK_COUNT = 500, 10  # from one look at all partitions to the next, and a millisecond more for so many of them
_lineages = itertools.count(1)


class FollowedPartition:
    """A partition that this node follows, in one leader epoch: ``store.protocols.ReadableReplica``.

    | field          | changed by                 | under     | to be trusted                                                   |
    |----------------|----------------------------|-----------|-----------------------------------------------------------------|
    | ``follower``   | the fetching thread        | ``lock``  | always                                                          |
    | ``is_over``    | the manager                | ``lock``  | true: for good; the log is not the fetcher's any more           |
    | ``is_refused`` | the fetching thread        | none      | true: the leader's last answer was an error, or a step failed   |
    | ``retry_ms``   | the fetching thread        | none      | its own: nothing is asked before that time                      |
    | ``lineage``    | the fetching thread        | ``lock``  | of the log: grows where it begins anew after damage             |
    | ``is_told``    | the fetching thread        | none      | its own: the damage was logged                                  |
    | ``told``       | its threads                | none      | what error of a disk was logged; None: the last flush was well  |
    | ``is_tidy``    | the fetching thread        | ``lock``  | nothing of the log is set aside                                 |
    | ``is_limited`` | the manager                | none      | a replica that is being added: the throttle holds for it        |
    """

    def __init__(self, where: TopicPartition, topic_id: str, leader_epoch: int, log: ReplicaLog) -> None:
        self.where, self.topic_id, self.leader_epoch, self.log = where, topic_id, leader_epoch, log
        self.follower, self.is_over, self.retry_ms, self.is_limited = Follower(), False, 0, False
        self.lineage, self.is_told, self.is_tidy, self.is_refused = next(_lineages), False, False, False
        self.told: type[LogdbError] | None = None
        self.lock = renewed(threading.Lock())

    def end(self) -> None:
        with self.lock:
            self.is_over = True

    def tell(self, error: LogdbError) -> None:
        """Log an error that may pass, once: it is tried again many times."""
        if self.told is not type(error):
            self.told = type(error)
            logger.warning("fetching %s failed; it is retried until it succeeds: %s", self.where, error)

    def nearest(self, rack: str, offset: int, listener: str) -> int | None:
        """This replica serves every consumer that comes here: its leader has chosen it."""
        del rack, offset, listener
        return None

    @property
    def state(self) -> LogState:
        return LogState(self.log.epochs, self.log.start_offset, self.log.end_offset)

    def next(self) -> AskEpoch | Fetch:
        return self.follower.next(self.state)

    def asked(self) -> dict[str, Any]:
        """What a fetch says of it; the flushed end of a log that may part from the leader's, or is damaged, is none.

        Of a partition that is over nothing is flushed: the log may have records of the next leader epoch by now.
        No high watermark: the answer says something of it in any case.
        """
        with self.lock:
            is_the_leaders = self.follower.is_checked and self.log.read_only_reason is None and not self.is_over
            flushed_offset = self.log.flushed_offset if is_the_leaders else -1
            return {
                "partition": self.where.partition,
                "current_leader_epoch": self.leader_epoch,
                "fetch_offset": self.log.end_offset,
                "log_start_offset": self.log.start_offset,
                "flushed_offset": flushed_offset if self.log.damage is None or self.is_over else DAMAGED_OFFSET,
                "high_watermark": self.log.high_watermark if self.log.damage is None and self.is_tidy else -1,
                "lineage": self.lineage,
                "partition_max_bytes": _PARTITION_BYTES_MAX,
            }


class Fetcher:
    """All partitions that one broker leads and this node follows.

    | field            | changed by               | under      | to be trusted                                                |
    |------------------|--------------------------|------------|--------------------------------------------------------------|
    | ``_partitions``  | follow, forget           | ``_lock``  | always                                                       |
    | ``_peer``        | the fetching thread      | ``_lock``  | under it; cut by others                                      |
    | ``_is_cut``      | follow, end              | ``_lock``  | true: the connection was ended here; the broker is not gone  |
    | ``_is_told``     | the fetching thread      | none       | its own: ``lost`` was called since the last connection       |
    | ``_unflushed``   | the fetching thread      | none       | its own: what the answer that is taken has appended to       |
    | ``_session``,    | the fetching thread      | none       | its own: of the connection; the partition that was asked for |
    | ``_asked``       |                          |            | last by its name, which may be over                          |
    | ``_touched``     | any thread               | none       | partitions that have changed since they were looked at       |
    | ``_waiting``     | the fetching thread      | none       | its own: those that wait for a time, or may have to          |
    | ``_look_ms``     | the fetching thread;     | none       | when all partitions are looked at; 0: at once                |
    |                  | ``limit``                |            |                                                              |
    | ``_closed``      | end                      | ``_lock``  | for good                                                     |
    | ``heard_ms``     | the fetching thread      | none       | when the leader answered a fetch last; None: it has not      |
    | ``read_ms``      | the manager              | none       | when a consumer read one of the partitions last              |
    """

    def __init__(
        self,
        node_id: int,
        leader: int,
        storage: Storage,
        flushers: Flushers,
        *,
        throttle: Throttle,
        connect: Callable[[int], Peer],
        broker_epoch: Callable[[], int],
        lost: Callable[[int], None],
        failed: Callable[[LogdbError], None],
    ) -> None:
        """Start the threads.

        Args:
            throttle: Of this node.
            connect: Makes a connection to a broker; raises OSError.
            broker_epoch: Of this node.
            lost: Told that the connection to the leader has ended.
            failed: Told that a flush has failed.

        Raises:
            ThreadUnavailable: A thread could not be started.
        """
        self.leader, self._node_id, self._storage, self._flushers = leader, node_id, storage, flushers
        self._throttle, self._connect, self._broker_epoch, self._lost, self._failed = throttle, connect, broker_epoch, lost, failed
        self._partitions: dict[TopicPartition, FollowedPartition] = {}
        self._peer: Peer | None = None
        self._is_cut = self._closed = self._is_told = False
        self._unflushed: list[FollowedPartition] = []
        self._session = FetchSession[FollowedPartition]()
        self._asked: dict[TopicPartition, FollowedPartition] = {}
        self._touched, self._waiting, self._look_ms = deque[FollowedPartition](), set[FollowedPartition](), 0
        self.heard_ms: int | None = None
        self.read_ms: int | None = None
        self._lock = renewed(threading.Condition())
        self._reporting: Peer | None = None
        self._reporter: Worker[FollowedPartition] = Worker(f"logdb-flush-{leader}", self._flush_and_report)
        self._thread = started(f"logdb-fetch-{leader}", self._run)

    # ------------------------------------------------------------ the manager

    def follow(self, partitions: Iterable[FollowedPartition]) -> None:
        """Follow more partitions, at once."""
        with self._lock:
            self._partitions |= {one.where: one for one in partitions}
            self._cut()

    def forget(self, where: TopicPartition) -> None:
        """Follow a partition no more: its log is left alone when this returns."""
        with self._lock:
            partition = self._partitions.pop(where, None)
        if partition is not None:
            partition.end()
            self._touched.append(partition)

    def limit(self, where: TopicPartition, *, is_limited: bool) -> None:
        """Whether the throttle holds for a partition."""
        partition = self._partitions.get(where)
        if partition is not None:
            partition.is_limited, self._look_ms = is_limited, 0

    @property
    def is_empty(self) -> bool:
        return not self._partitions

    @property
    def is_alive(self) -> bool:
        """Whether its threads may still run."""
        return self._thread.is_alive() or self._reporter.is_alive

    def end(self) -> None:
        """Let the threads end; they may still wait for the disk, or for a connection."""
        with self._lock:
            self._closed = True
            self._cut()
            reporting = self._reporting
        if reporting is not None:
            reporting.cut()
        self._reporter.end()

    def join(self) -> None:
        """Wait for that."""
        self._thread.join()
        self._reporter.join()

    def _cut(self) -> None:
        """Let the fetching thread look again, now; under the lock."""
        self._lock.notify_all()
        if self._peer is not None:
            self._is_cut = True
            self._peer.cut()

    # ------------------------------------------------------------ fetching

    def _run(self) -> None:
        while not self._closed:
            try:
                self._round()
            except (OSError, InvalidAnswer) as error:
                self._disconnected(error)
            except Exception:
                logger.exception("following node %d", self.leader)
                self._session.reset()  # what the leader has taken of the last request is unknown
                self._asked.clear()
                self._pause(_WAIT_MS)

    def _round(self) -> None:
        now_ms = self._storage.io.monotonic_ms()
        with self._lock:
            if not self._partitions:
                if not self._closed:
                    self._lock.wait()
                return
        peer = self._connected()
        looked = self._to_look_at(now_ms)
        ready = [(one, max(one.retry_ms, self._throttle.free_ms if one.is_limited else 0)) for one in looked]
        self._waiting = {one for one, ready_ms in ready if ready_ms > now_ms or one.is_limited}
        waiting_ms = min((ready_ms - now_ms for _, ready_ms in ready if ready_ms > now_ms), default=_WAIT_MS)
        due = [one for one, ready_ms in ready if ready_ms <= now_ms]
        for one in self._waiting.difference(due):
            self._session.unwant(one)
        if damaged := [one for one in due if one.log.damage is not None]:
            self._touched.extend(due)
            self._report_damage(peer, damaged)
            return
        asks = [(one, one.next()) for one in due]
        epochs = [(one, ask.epoch) for one, ask in asks if isinstance(ask, AskEpoch)]
        if epochs:
            self._touched.extend(due)
            self._check_epochs(peer, epochs)
            return
        for one in due:
            self._session.want(one, one.asked())
        if len(self._session):
            self._fetch(peer, min(waiting_ms, _WAIT_MS))
        else:
            self._pause(min(waiting_ms, _WAIT_MS))  # the limit may be another one soon

    def _to_look_at(self, now_ms: int) -> list[FollowedPartition]:
        """The partitions that may have changed; those that are followed no more leave the session."""
        touched = dict.fromkeys(self._touched.popleft() for _ in range(len(self._touched))) | dict.fromkeys(self._waiting)
        for one in touched:
            if one.is_over:
                self._session.unwant(one)
        with self._lock:
            if self._session.is_new or now_ms >= self._look_ms:
                self._look_ms = now_ms + _LOOK_MS + len(self._partitions) // _LOOK_COUNT
                return list(self._partitions.values())
        return [one for one in touched if not one.is_over]

    def _connected(self) -> Peer:
        if self._peer is None:
            peer = self._connect(self.leader)
            self._session.reset()
            self._asked.clear()
            with self._lock:
                self._peer, self._is_cut, self._is_told = peer, False, False
                if self._closed:
                    peer.cut()
        return self._peer

    def _disconnected(self, error: Exception) -> None:
        with self._lock:
            self._peer = None
            is_cut, self._is_cut = self._is_cut, False
        if is_cut:
            return
        logger.info("following node %d: %s", self.leader, error)
        if not self._is_told:
            self._is_told = True
            self._lost(self.leader)
        self._pause(_RETRY_MS)

    def _pause(self, wait_ms: int) -> None:
        with self._lock:
            if not self._closed:
                self._lock.wait(wait_ms / 1000)

    def _check_epochs(self, peer: Peer, asked: Sequence[tuple[FollowedPartition, int]]) -> None:
        topics = _by_topic(
            (one, {"partition": one.where.partition, "current_leader_epoch": one.leader_epoch, "leader_epoch": epoch})
            for one, epoch in asked
        )
        answer = peer.ask(epochs_request({"replica_id": self._node_id, "topics": topics}, len(asked)))
        found = _by_partition(answer["topics"], "partition")
        for one, _ in asked:
            self._apply(one, found.get(one.where), self._epoch_answered)

    def _fetch(self, peer: Peer, wait_ms: int) -> None:
        request = self._session.request()
        values = self._values(_by_topic((one, dict(asked)) for one, asked in request.named.items())) | {
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": _FETCH_BYTES_MAX,
            "session_id": min(request.epoch, 1),
            "session_epoch": request.epoch,
            "forgotten_topics_data": _forgotten(request.forgotten),
            "has_readers": self.read_ms is not None and self._storage.io.monotonic_ms() - self.read_ms < _READERS_MS,
        }
        answer = peer.ask(fetch_request(values, len(self._session)), wait_ms / 1000)
        if answer["error_code"]:
            self._session.reset()
            self._pause(_RETRY_MS)
            return
        found = _by_partition(answer["responses"], "partition_index")
        self._session.answered(answer["session_id"])
        for named in request.named:
            self._asked[named.where], named.is_refused = named, False  # unless the answer says so
        for where, news in found.items():
            if (one := self._asked.get(where)) is None:
                continue
            self._touched.append(one)
            if news["error_code"]:
                self._session.drop(one)
            else:
                self._session.told(one, news["high_watermark"])
            self._apply(one, news, self._fetched)
        self.heard_ms = self._storage.io.monotonic_ms()
        unflushed, self._unflushed = self._unflushed, []
        if sum(len(one["records"] or b"") for one in found.values()) <= _FLUSHED_BYTES_MAX:
            self._flush(unflushed)
        else:
            for one in unflushed:
                self._reporter.add(one)

    def _report_damage(self, peer: Peer, damaged: Sequence[FollowedPartition]) -> None:
        for one in damaged:
            if not one.is_told:
                logger.error("%s is damaged, and will be fetched again from node %d: %s", one.where, self.leader, one.log.damage)
                one.is_told = True
            self._wait(one, _FAILED_MS)
        values = self._request(damaged) | {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0}
        found = _by_partition(peer.ask(fetch_request(values, len(damaged)))["responses"], "partition_index")
        for one in damaged:
            self._apply(one, found.get(one.where), self._damage_reported)

    def _damage_reported(self, one: FollowedPartition, found: dict[str, Any]) -> None:
        if not found["error_code"] and found["standing"] == Standing.MAY_BEGIN_ANEW:
            one.follower.damaged()
            self._begin_anew(one)

    def _request(self, partitions: Iterable[FollowedPartition]) -> dict[str, Any]:
        return self._values(_by_topic((one, one.asked()) for one in partitions))

    def _values(self, topics: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"replica_id": self._node_id, "replica_epoch": self._broker_epoch(), "topics": topics}

    # ------------------------------------------------------------ answers

    def _apply(
        self, one: FollowedPartition, found: dict[str, Any] | None, take: Callable[[FollowedPartition, dict[str, Any]], None]
    ) -> None:
        """Take an answer for one partition; an error lets it wait, the others go on."""
        with one.lock:
            if one.is_over or found is None:
                return
            try:
                if not found["error_code"] or (found["error_code"] == _OFFSET_OUT_OF_RANGE and "records" in found):
                    take(one, found)
                else:
                    self._wait(one, _RETRY_MS)
            except UnexpectedOffset:
                one.follower.parted()
                self._wait(one, _RETRY_MS)
            except SyncFailed as error:
                self._failed(error)
                self._wait(one, _FAILED_MS)
            except LogdbError as error:
                one.tell(error)
                self._wait(one, _FAILED_MS)

    def _wait(self, one: FollowedPartition, wait_ms: int) -> None:
        one.is_refused = True
        one.retry_ms = self._storage.io.monotonic_ms() + wait_ms

    def _epoch_answered(self, one: FollowedPartition, found: dict[str, Any]) -> None:
        known = found["leader_epoch"] >= 0 and found["end_offset"] >= 0
        step = one.follower.epoch_answered(EpochEnd(found["leader_epoch"], found["end_offset"]) if known else None, one.state)
        if isinstance(step, TruncateTo):
            logger.info("%s is truncated to %d, where it differs from its leader's log", one.where, step.offset)
            self._storage.truncate_to(*one.where, step.offset)
            one.follower.stepped()
        elif isinstance(step, BeginAnew):
            self._begin_anew(one)

    def _fetched(self, one: FollowedPartition, found: dict[str, Any]) -> None:
        log = one.log
        if found["error_code"] == _OFFSET_OUT_OF_RANGE:
            if one.follower.out_of_range(found["log_start_offset"], one.state) is not None:
                self._begin_anew(one)
            return
        if found["records"]:
            log.follow_append(found["records"], durability="os")
            if one.is_limited:
                self._throttle.took(len(found["records"]), self._storage.io.monotonic_ms())
        if log.end_offset > log.flushed_offset:  # what the former leader's log had, too
            self._unflushed.append(one)
        self._move_high_watermark(one, found)
        self._tidy(one, found)
        start_offset = min(found["log_start_offset"], log.high_watermark)
        if start_offset > log.start_offset:
            with contextlib.suppress(PolicyViolation):  # it is compacted alone
                self._storage.submit(DeleteRecords(*one.where, start_offset))

    def _tidy(self, one: FollowedPartition, found: dict[str, Any]) -> None:
        """Let go of what was set aside, once the log has all that is replicated; under the lock of the partition."""
        if not one.is_tidy and one.log.damage is None and found["standing"] == Standing.CAUGHT_UP:
            self._storage.remove_damaged(*one.where)
            one.is_tidy = True

    def _begin_anew(self, one: FollowedPartition) -> None:
        """Begin the log with the leader's first batch, which may begin before the leader's log start."""
        offset = 0
        while True:
            found = self._first_batch(one, offset)
            if found["error_code"] != _OFFSET_OUT_OF_RANGE or found["log_start_offset"] <= offset:
                break
            offset = found["log_start_offset"]
        if found["error_code"]:
            self._wait(one, _RETRY_MS)
            return
        start_offset = found["log_start_offset"]
        if found["records"]:
            start_offset = next(convert.headers(memoryview(found["records"])))[1].base_offset
        logger.info("%s is reset to start at %d", one.where, start_offset)
        self._storage.begin_anew(*one.where, start_offset)
        one.follower.stepped()
        one.lineage, one.is_told, one.is_tidy, one.retry_ms = next(_lineages), False, False, 0

    def _first_batch(self, one: FollowedPartition, offset: int) -> dict[str, Any]:
        assert self._peer is not None
        asked = {
            "partition": one.where.partition,
            "current_leader_epoch": one.leader_epoch,
            "fetch_offset": offset,
            "partition_max_bytes": 1,
        }
        values = self._request(()) | {"topics": _by_topic([(one, asked)]), "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
        found = _by_partition(self._peer.ask(fetch_request(values, 1))["responses"], "partition_index").get(one.where)
        if found is None:
            raise InvalidAnswer(f"node {self.leader}", f"nothing about {one.where}")
        return found

    # ------------------------------------------------------------ flushing and reporting

    def _flush_and_report(self, partitions: Collection[FollowedPartition]) -> None:
        flushed = self._flush(partitions)
        self._touched.extend(flushed)
        if flushed and not self._closed:
            self._report(flushed)
        if len(flushed) < len(partitions):
            self._pause(_FAILED_MS)

    def _flush(self, partitions: Collection[FollowedPartition]) -> list[FollowedPartition]:
        """Flush logs; returns those for which it succeeded."""
        flushed: list[FollowedPartition] = []

        def flush(one: FollowedPartition) -> None:
            try:
                one.log.flush()
                one.told = None
                flushed.append(one)
            except SyncFailed as error:
                self._failed(error)
            except LogdbError as error:
                one.tell(error)  # a full disk: it is tried again, also where the leader has no news
                self._reporter.add(one)
            except Exception:
                logger.exception("%s", one.where)

        self._flushers.each(flush, [one for one in partitions if not one.is_over])
        return flushed

    def _report(self, partitions: Sequence[FollowedPartition]) -> None:
        lineages = {one: one.lineage for one in partitions}
        try:
            if self._reporting is None:
                self._reporting = self._connect(self.leader)
            values = self._request(partitions) | {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0}
            answer = self._reporting.ask(fetch_request(values, len(partitions)))
        except (OSError, InvalidAnswer) as error:
            self._reporting = None
            logger.debug("reporting to node %d: %s", self.leader, error)
            return  # the next fetch reports, too
        answers = _by_partition(answer["responses"], "partition_index")
        for one in partitions:
            with one.lock:
                if one.where in answers and not one.is_over and one.lineage == lineages[one]:
                    self._move_high_watermark(one, answers[one.where])
                    self._tidy(one, answers[one.where])

    def _move_high_watermark(self, one: FollowedPartition, found: dict[str, Any]) -> None:
        """Know what is replicated, of a log that is the begin of the leader's."""
        if one.follower.is_checked and not found["error_code"] and found["high_watermark"] > one.log.high_watermark:
            one.log.move_high_watermark(found["high_watermark"], leader_epoch=one.leader_epoch)


def _by_topic(asked: Iterable[tuple[FollowedPartition, dict[str, Any]]]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for one, values in asked:
        topic = topics.setdefault(one.where.topic, {"topic": one.where.topic, "logdb_topic_id": one.topic_id, "partitions": []})
        topic["partitions"].append(values)
    return list(topics.values())


def _forgotten(partitions: Iterable[FollowedPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one.where.topic, []).append(one.where.partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]


def _by_partition(topics: Iterable[dict[str, Any]], number: str) -> dict[TopicPartition, dict[str, Any]]:
    return {TopicPartition(topic["topic"], one[number]): one for topic in topics for one in topic["partitions"]}
