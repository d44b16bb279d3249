"""A session behind a URL: ``submit`` is an exchange with the server.

A request is encoded and sent as it is (``requests.coding``).  This module has the cached answers, the timeouts, and the meaning of an
error at a second try.
"""

import operator
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from logdb import codec
from logdb.client.consumer.subscription import CHECK_INTERVAL_MS_MAX
from logdb.errors import (
    InvalidTransactionState,
    LogdbError,
    NotLeaderOrFollower,
    ServerUnavailable,
    UnknownCredential,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
    without_frames,
)
from logdb.handles import Handle
from logdb.io import IO
from logdb.mistakes import wrong_type
from logdb.model import (
    SERVED_TOPIC_DEFAULTS,
    Buffer,
    ClusterEvent,
    TopicEvent,
    TopicInfo,
    TopicPartition,
)
from logdb.pools import Pool
from logdb.requests import coding, groups, topics, transactions
from logdb.requests.records import Log, Produce
from logdb.requests.report import Copied, Report
from logdb.requests.request import Request
from logdb.requests.security import DeleteUsers, RevokeTokens
from logdb.requests.session import Session
from logdb.requests.topic_changes import AlterTopic, CreateTopic, DeleteTopic
from logdb.threads import started
from logdb_http_api.protocol import CALLS_PATH, WATCH_PATH, Verified
from logdb_http_api.remote import downloading
from logdb_http_api.remote.batch_requests import ProduceRequest
from logdb_http_api.remote.connection import Security
from logdb_http_api.remote.connections import Connections
from logdb_http_api.remote.end_offsets import EndOffsets
from logdb_http_api.remote.exchange import Exchange, send_request
from logdb_http_api.remote.log import RemoteLog
from logdb_http_api.remote.uploads import RemoteUploads
from logdb_http_api.remote.watching import Watching
from logdb_http_api.remote.wires import HttpRequest

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)

_JSON = {"Content-Type": "application/json"}
_INFO_GOOD_S = 1.0  # how long the description of a topic is cached
_LEADERS_ANSWER_S = 1.0  # the time for a description of a topic by the leaders of its partitions
_ANSWER_WAIT_S = 2.0  # for a group's answer, or the report that it waits for other members
NODES_TIMEOUT_MS, _NODES_BATCH_SIZE = 5_000, 262_144
_ASKED_COUNT_MAX = 16  # requests to several nodes at once
_LONG_MS = 3_600_000  # the time for a request that works through a whole topic

# The error of a repeated request whose first try was carried out.
_DONE_BEFORE: Mapping[type[Request[Any]], type[LogdbError]] = {
    DeleteTopic: UnknownTopic,
    groups.DeleteGroup: UnknownGroup,
    groups.DeleteOffsets: UnknownGroup,
    groups.LeaveGroup: UnknownMember,
    transactions.AbortTransaction: InvalidTransactionState,
    DeleteUsers: UnknownCredential,
    RevokeTokens: UnknownCredential,
}
_LONG = (topics.Compact, topics.EnforceRetention, topics.Flush)


class RemoteSession(Handle, Session):
    """See ``requests.session.Session``."""

    io = IO()
    look_interval_ms_max = CHECK_INTERVAL_MS_MAX
    clock: Callable[[], int] | None = None

    def __init__(self, connections: Connections, *, batch_size: int, clock: Callable[[], int] | None = None) -> None:
        self.connections, self._batch_size, self.clock = connections, batch_size, clock
        self.ends = EndOffsets(connections, self.describe_topic)
        self.watching = Watching(self.ends)
        self.uploads = RemoteUploads(connections)
        self._logs: dict[TopicPartition, RemoteLog] = {}
        self._infos: dict[str, tuple[TopicInfo, float]] = {}  # a topic, and when the entry expires
        self._commits = Pool(1, "logdb-commit")  # one thread keeps their order

    @property
    def closed(self) -> bool:
        return self.connections.closed

    def close(self) -> None:
        self.connections.close()
        self.watching.close()
        self._commits.shutdown(wait=False)

    def check_open(self, *, writable: bool = False) -> None:  # noqa: ARG002 -- the server refuses writes
        self.connections.check_open()

    def submit(self, request: Request[A]) -> A:
        """Let the server carry out a request."""
        self.check_open()
        answer: Any
        if (step := _STEPS.get(type(request))) is not None:
            answer = step(self, request)
        elif request.local:
            raise NotImplementedError(f"{request.method}: works only inside the server's process, not over a URL")
        elif isinstance(request, groups.CommitOffsets):
            answer = self._commits.submit(self._asked, request)
        elif isinstance(request, groups.JoinGroup):
            answer = self._in_thread(request, request.rebalance_timeout_ms)
        elif isinstance(request, groups.SyncGroup):
            answer = self._in_thread(request, _LONG_MS)
        else:
            answer = self._asked(request, _LONG_MS if isinstance(request, _LONG) else 0)
        return answer  # type: ignore[no-any-return]  # of the type that the request names

    def _asked(self, request: Request[Any], patience_ms: int = 0, on_waiting: Callable[[], object] = lambda: None) -> Any:
        """The server's answer.

        Args:
            patience_ms: Added to the time that a request may take.
            on_waiting: Called when the server reports that its answer waits for other members.
        """
        body, safe = coding.encode(request), request.is_repeatable
        path = CALLS_PATH + request.method
        asked = HttpRequest("POST", path, body, _JSON, key=_key(request))
        exchange = Exchange(self.connections, asked, safe=safe, patience_ms=patience_ms, on_waiting=on_waiting)
        try:
            answer = exchange.answer()
        except LogdbError as error:
            if exchange.repeated and isinstance(error, _DONE_BEFORE.get(type(request), ())):
                return None
            raise
        return answer.decoded(request.answer)

    def ask(self, requests: Mapping[K, Request[A]], places: Mapping[K, str | None]) -> dict[K, A | LogdbError]:
        """See ``broker.cluster_peers.OtherNodes``."""
        self.check_open()
        for key, place in places.items():
            self.connections.learn(key, place)
        answers: dict[K, A | LogdbError] = {}
        left = list(requests.items())
        while left:
            due, left = left[:_ASKED_COUNT_MAX], left[_ASKED_COUNT_MAX:]
            until = time.monotonic() + self.connections.timeout_s  # for all of these: they wait side by side
            exchanges = [
                Exchange(
                    self.connections,
                    HttpRequest("POST", CALLS_PATH + request.method, coding.encode(request), _JSON, key=where),
                    until=until,
                )
                for where, request in due
            ]
            for (where, request), exchange in zip(due, exchanges, strict=True):
                try:
                    answers[where] = exchange.answer().decoded(request.answer)
                except LogdbError as error:
                    answers[where] = without_frames(error)
        return answers

    def learn(self, event: TopicEvent | ClusterEvent) -> None:
        """See ``broker.cluster_peers.OtherNodes``."""
        if isinstance(event, ClusterEvent):
            return
        if event.kind == "topic_deleted":
            self._deleted(event.topic.name)
            return
        self._infos.pop(event.topic.name, None)
        for log in self._logs_of(event.topic.name):
            log.configure(event.topic)

    def _in_thread(self, request: Request[Any], patience_ms: int) -> "Future[Any]":
        """Send a request that waits for other members, in a thread of its own: it may wait for another request."""
        future: Future[Any] = Future()
        told = threading.Event()
        future.add_done_callback(lambda _: told.set())

        def run() -> None:
            try:
                future.set_result(self._asked(request, patience_ms, told.set))
            except BaseException as error:  # noqa: BLE001 -- the future raises it
                future.set_exception(error)

        started(f"logdb-{request.method}", run)
        told.wait(_ANSWER_WAIT_S)  # as in a local session, a request that needs no other member is done when this returns
        return future

    # ------------------------------------------------------------ topics

    def _create_topic(self, request: CreateTopic) -> TopicInfo:
        config = {**dict.fromkeys(SERVED_TOPIC_DEFAULTS), **(request.config or {})}  # None: the server's options apply instead
        return self._change_topic(replace(request, config=config))

    def _change_topic(self, request: CreateTopic | AlterTopic) -> TopicInfo:
        info: TopicInfo = self._asked(request)
        self._learn(info)
        return info

    def _delete_topic(self, request: DeleteTopic) -> None:
        self._asked(request)
        self._deleted(request.name)

    def described_by_leaders(self, name: str) -> TopicInfo:
        """As ``describe_topic``; the offsets and sizes of a cluster's partitions are those of their leaders.

        The node that answers may lag, or have no replica; its own numbers are told if a leader does not answer within a second.
        What the disk of a leader holds is not known.
        """
        info = self.describe_topic(name)
        led = [TopicPartition(name, one.partition) for one in info.partitions if one.leader]  # 0: without a cluster
        try:
            states = self.ends.states(led, _LEADERS_ANSWER_S) if led else {}
        except (NotLeaderOrFollower, ServerUnavailable):
            return info
        partitions = list(info.partitions)
        for where, state in states.items():
            if state is not None:
                partitions[where.partition] = partitions[where.partition]._replace(
                    start_offset=state.start_offset, end_offset=state.end_offset, size_bytes=state.size_bytes, disk_bytes=None
                )
        return info._replace(partitions=tuple(partitions))

    def _delete_records(self, request: topics.DeleteRecords) -> Any:
        if request.before_offset == -1:  # sent as an offset: a second try deletes no more than the first
            request = replace(request, before_offset=self.log(request.topic, request.partition).end_offset)
        return self._records_deleted(request)

    def _records_deleted(self, request: topics.DeleteRecords | topics.EnforceRetention) -> Any:
        answer = self._asked(request, _LONG_MS if isinstance(request, _LONG) else 0)
        self.ends.appended()
        return answer

    def _partition_count(self, request: topics.PartitionCount) -> int:
        return self._info(request.topic).partition_count

    def _info(self, topic: str) -> TopicInfo:
        """The description of a topic, at most a moment old."""
        if not isinstance(topic, str):
            raise wrong_type("topic", topic, (str,))
        self.check_open()
        info, until = self._infos.get(topic, (None, 0.0))
        if info is None or time.monotonic() >= until:
            try:
                info = self.describe_topic(topic)
            except UnknownTopic:
                self._deleted(topic)
                raise
            self._learn(info)
        return info

    def _learn(self, info: TopicInfo) -> None:
        """Cache the description of a topic."""
        before, _ = self._infos.get(info.name, (None, 0.0))
        if before is not None and before.topic_id != info.topic_id:
            self._deleted(info.name, info.topic_id)
        self._infos[info.name] = (info, time.monotonic() + _INFO_GOOD_S)
        if before is not None and before.config != info.config:
            for log in self._logs_of(info.name):
                log.configure(info)

    def _open_log(self, request: Log) -> RemoteLog:
        topic, partition = request.topic, request.partition
        where = TopicPartition(topic, operator.index(partition))
        log = self._logs.get(where)
        if log is None:
            info = self._info(topic)
            if not 0 <= partition < info.partition_count:
                self._infos.pop(topic)
                info = self._info(topic)  # partitions may have been added
            if not 0 <= partition < info.partition_count:
                raise UnknownPartition(topic, partition, info.partition_count)
            log = self._logs.setdefault(where, RemoteLog(self, topic, where.partition, info, self._batch_size))
        else:
            self.check_open()
        self.ends.expect(where)
        return log.handle()

    def _logs_of(self, topic: str) -> list[RemoteLog]:
        return [log for where, log in list(self._logs.items()) if where.topic == topic]

    def _deleted(self, topic: str, current_id: str | None = None) -> None:
        """A topic was deleted; ``current_id``: of the topic that has its name now."""
        for log in self._logs_of(topic):
            log.topic_deleted(current_id)
        self.forget(topic)

    def forget(self, topic: str) -> None:
        """Forget what is known of a topic: another has its name."""
        self._infos.pop(topic, None)
        self.ends.forget(topic)
        for log in self._logs_of(topic):
            self._logs.pop(TopicPartition(topic, log.partition), None)

    def _wait(self, request: topics.Wait) -> bool:
        return self.ends.wait(request.positions, request.timeout_ms, request.isolation_level, request.known)

    # ------------------------------------------------------------ the whole

    def _reports(self, request: topics.Reports) -> Any:
        return send_request(self.connections, "GET", "/logdb/v1/reports").decoded(request.answer)

    def _verify(self, _: topics.Verify) -> Report:
        found: Verified = send_request(self.connections, "POST", "/logdb/v1/verify", patience_ms=_LONG_MS).decoded(Verified)
        report = Report()
        report.problems, report.notes = found.problems, found.notes
        report.file_count, report.size_bytes, report.batch_count, report.record_count = found.checked
        return report

    def _backup(self, request: topics.Backup) -> Copied:
        return downloading.backup(self.connections, self.io, request.path, None, request.base)

    def _changes(self, request: topics.Changes) -> Any:
        given = {**request.arguments(), "cluster": "true"}
        path = f"{WATCH_PATH}?{urlencode({name: value for name, value in given.items() if value is not None})}"
        answer = send_request(self.connections, "GET", path, headers={"Accept": "application/json"}, patience_ms=request.timeout_ms)
        return answer.decoded(request.answer)

    # ------------------------------------------------------------ producing

    def submit_batches(self, request: Produce, batches: Buffer) -> range:
        head = codec.header(batches)[1] if memoryview(batches) else None
        safe = request.mirrored or head is None or head.producer_id >= 0  # the log recognizes repeated batches of a producer
        said = Exchange(self.connections, ProduceRequest(request, batches), safe=safe).answer()
        self.ends.appended()
        return range(said.base_offset, said.next_offset)


_STEPS: Mapping[type[Request[Any]], Callable[[RemoteSession, Any], Any]] = {
    CreateTopic: RemoteSession._create_topic,
    AlterTopic: RemoteSession._change_topic,
    DeleteTopic: RemoteSession._delete_topic,
    Log: RemoteSession._open_log,
    topics.DeleteRecords: RemoteSession._delete_records,
    topics.EnforceRetention: RemoteSession._records_deleted,
    topics.PartitionCount: RemoteSession._partition_count,
    topics.Wait: RemoteSession._wait,
    topics.Changes: RemoteSession._changes,
    topics.Reports: RemoteSession._reports,
    topics.Verify: RemoteSession._verify,
    topics.Backup: RemoteSession._backup,
}
"""What one exchange is not enough for: what is known of topics and logs changes, or answers; or a route of its own."""


def _key(request: Request[Any]) -> Hashable | None:
    """What the answering node of a cluster has to lead: the partition of the group, or of the transactional id; None: nothing, or all."""
    if isinstance(request, transactions.AddOffsets):
        return "transactional_id", request.transactional_id
    if (where := getattr(request, "leader_of", None)) is not None:
        return cast("Hashable", where)
    for name in ("group_id", "transactional_id"):
        if (value := getattr(request, name, None)) is not None:
            return name, value
    return None


def nodes_session(urls: Sequence[str], security: Security, *, timeout_ms: int = NODES_TIMEOUT_MS) -> RemoteSession:
    """A session of one node of a cluster with all of them (``broker.cluster_peers.OtherNodes``); it asks nothing before it is used."""
    connections = Connections(urls, security, timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms)
    return RemoteSession(connections, batch_size=_NODES_BATCH_SIZE)
