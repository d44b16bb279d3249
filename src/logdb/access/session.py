"""A session of one principal: what the principal may not do is refused, the rest goes to the broker.

Every request goes one way, ``submit``: the rights that its class needs are checked; the broker carries it out, and it is counted under its
name; the answer leaves out what the principal may not describe.  A request that takes more than the rights of the principal has its step
in ``_STEPS``.  A door whose protocol refuses partitions one by one submits the part that is ``permitted``.

``append``, and the log of a partition (``access.log``), carry batches of records: they authorize the request and carry it out themselves.

Threading: as the broker.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from logdb.access.attempts import network
from logdb.access.authentication import ClientCertificate, Credential
from logdb.access.log import AuthorizedLog, ForwardedLog, LogToRead, ReplicaToRead
from logdb.access.quotas import Resource
from logdb.access.security_changes import SecurityChanges
from logdb.access.security_document import Token
from logdb.broker.broker import Broker
from logdb.broker.cluster_peers import OtherNodes
from logdb.broker.gaps import is_of_leader
from logdb.broker.metrics import Counts, Gauges, gauges
from logdb.broker.transaction_peers import leader_address, node_address
from logdb.codec.batch import FirstBatch, first_batch
from logdb.errors import (
    AuthenticationFailed,
    Closed,
    LogdbError,
    NotAuthorized,
    NotCoordinator,
    NotLeaderOrFollower,
    TopicDeleted,
    UnknownTopic,
)
from logdb.handles import Handle
from logdb.io import IO
from logdb.log.protocols import PartitionLog, ReplicaLog
from logdb.model import (
    BY_DEFAULT,
    DELETING_CONFIGS,
    INTERNAL_TOPICS,
    Buffer,
    Durability,
    ExpiredRecords,
    ListChange,
    TopicInfo,
    TopicPartition,
)
from logdb.requests.acls import ANY
from logdb.requests.cluster import CommittedEnd, EndMirroredTransactions, FindDecision, WillEndTransaction, WriteTransactionMarker
from logdb.requests.groups import Groups, JoinGroup
from logdb.requests.principals import ANONYMOUS, CLUSTER_NODE, Principal
from logdb.requests.records import OF_LOGS, Log, Produce, ReadBatches
from logdb.requests.request import Request
from logdb.requests.resources import AS_GOOD, CLUSTER, OPERATIONS, Operation, ResourceType, Right
from logdb.requests.security import SECURITY_REQUESTS, SubmittedCredentialStore
from logdb.requests.session import Session
from logdb.requests.topic_changes import (
    AlterConfigs,
    AlterTopic,
    CheckNewTopic,
    CheckPartitions,
    CreateTopic,
    DeleteTopic,
)
from logdb.requests.topics import Backup, EnforceRetention, Reports
from logdb.requests.transactions import Transactions
from logdb.store.protocols import Leadership

if TYPE_CHECKING:
    from logdb.access.access_control import AccessControl

_KNOWN_COUNT = 6  # of those that an error shows five
_ALLOWED_COUNT_MAX = 16
_READ = (ReadBatches.method,)
_Asked: TypeAlias = str | tuple[str, str | None, bool]
"""What decides whether a read is allowed: its topic.  An append: its topic, its transactional id, and whether it is a mirror's."""

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
Q = TypeVar("Q", bound=Request[Any])


class Measurements(NamedTuple):
    """Counters and gauges for a page of metrics."""

    counts: Counts
    gauges: Gauges


class AuthorizedSession(Handle, Session):
    """``requests.session.Session`` for one principal that calls from one address.

    A door makes one for each request, or for those of a connection that it carries out one after the other (``renew``).

    ``owner``: for whom a door counts what it shares out: the principal, or the address of an anonymous client.
    If the credential of the principal becomes invalid while the request is under way, its further calls are refused.

        field               changed by                                  trusted
        principal           nothing
        host, credential,   ``go_on_for``: a consumer instance that     by the one request that goes on
        owner               goes on for another request
        _seen_count         ``check``: the access control's changes     until the access control changes, or the credential
                            when the credential was last valid          expires
        _throttle_ms        ``charge``, ``take_throttle_ms``            by the door's one answer to the request
        _given_up           ``give_up``, any thread                     for good: what is not done ends and is undone
        _allowed            ``_authorize_again``: what it allowed       while the access control has changed so often
                            last, behind the changes by then
        forwards            the door, before the first request          always: another node may do what this one refuses, in a cluster
        gathers             the same                                    always: lists have what the other nodes coordinate, too

    Threading: no lock.  One request's calls may run in several threads; each field is set by one assignment.
    """

    def __init__(self, access: "AccessControl", broker: Broker, principal: Principal, host: str, credential: Credential | None) -> None:
        self.principal, self.host = principal, host
        self._access, self._broker, self.replication = access, broker, access.replication
        self._present(credential)
        self._throttle_ms = access.quotas.charge(principal, "request", 1)
        self._given_up = False
        self.forwards = self.gathers = False

    # ------------------------------------------------------------ what every call goes through

    def _present(self, credential: Credential | None) -> None:
        self.credential = credential
        self.owner = network(self.host) if self.principal == ANONYMOUS else self.principal
        self._expires_ms = credential.expires_ms if isinstance(credential, Token | ClientCertificate) else None
        self._seen_count = -1  # changes of the access control when it was looked at last
        self._allowed: tuple[int, frozenset[_Asked]] = -1, frozenset()

    def go_on_for(self, asking: "AuthorizedSession") -> None:
        """Serve another request of the same principal, which may come from another address, or with another credential."""
        self.host = asking.host
        self._present(asking.credential)

    def renew(self) -> None:
        """Serve the next request of the same client, which is counted.

        Raises:
            AuthenticationFailed: as ``check``.
        """
        access = self._access
        access.metrics.request()
        self._throttle_ms = access.quotas.charge(self.principal, "request", 1) if access.quotas.are_set else 0
        access.refresh()
        if access.change_count != self._seen_count or self._expires_ms is not None:
            self._look()

    def check(self) -> None:
        """Return if the credential is still valid.

        Raises:
            AuthenticationFailed: It was revoked, changed or deleted, or has expired.
        """
        seen_count = self._access.change_count
        if self.credential is not None and not self._access.is_valid(self.principal, self.credential):
            raise AuthenticationFailed(f"the credential of {self.principal} is no longer valid: it was revoked, changed or has expired")
        self._seen_count = seen_count

    def _look(self) -> None:
        """As ``check``; asks the access control only if it has changed, or if the credential expires."""
        if self._access.change_count != self._seen_count or (
            self._expires_ms is not None and self._expires_ms <= self._broker.io.clock_ms()
        ):
            self.check()

    def authorize(self, request: Request[Any]) -> None:
        """Return if the principal may make a request.

        Raises:
            NotAuthorized: It may not; the audit log names the first right that it lacks.
            AuthenticationFailed: as ``check``.
        """
        for operation, resource_type, names, listed, _ in request.needs:
            if listed:
                self.check()
            for name in names(request):
                if not self._may(operation, resource_type, name) and not self._has_as_good(operation, resource_type):
                    raise self._refusal(operation, resource_type, name)

    def _authorize_again(self, request: Request[Any], asked: _Asked) -> None:
        """As ``authorize``, once the access control is refreshed; a client uses the same topics again and again.

        Args:
            asked: What decides whether a request of this kind is allowed.
        """
        change_count = self._access.change_count
        known_count, allowed = self._allowed
        if known_count != change_count or asked not in allowed:
            self.authorize(request)
            kept = allowed if known_count == change_count and len(allowed) < _ALLOWED_COUNT_MAX else frozenset[_Asked]()
            self._allowed = change_count, kept | {asked}
        elif change_count != self._seen_count or self._expires_ms is not None:
            self._look()

    def permitted(self, request: Q) -> tuple[Q, dict[TopicPartition, NotAuthorized]]:
        """The request without the partitions of refused topics, and the error of each of these; the audit log has a line for each topic.

        Raises:
            NotAuthorized: The principal may make no part of it.
            AuthenticationFailed: as ``check``.
        """
        refused: dict[TopicPartition, NotAuthorized] = {}
        for operation, resource_type, names, _, each in request.needs:
            lacking = [name for name in names(request) if not self._may(operation, resource_type, name)]
            if lacking and not self._has_as_good(operation, resource_type):
                errors = {name: self._refusal(operation, resource_type, name) for name in lacking}
                if each is None:
                    raise errors[lacking[0]]
                refused |= {one: errors[one.topic] for one in request.named_partitions if one.topic in errors}
        return request.without(refused), refused

    def allows(self, request: Request[Any]) -> bool:
        """Whether the principal may make a request, without a line in the audit log."""
        return all(
            self._may(operation, resource_type, name) or self._has_as_good(operation, resource_type)
            for operation, resource_type, names, _, _ in request.needs
            for name in names(request)
        )

    def operations(self, resource_type: ResourceType, name: str = CLUSTER) -> list[Operation]:
        """What the principal may do with a resource; nothing where it may not describe it."""
        allowed: list[Operation] = [one for one in OPERATIONS[resource_type] if one != "All" and self._may(one, resource_type, name)]
        return allowed if "Describe" in allowed else []

    def need_any(self, needs: Sequence[Right]) -> None:
        """Return if the principal has one of these rights, or if none is given; once the request is known, ``authorize`` decides.

        Raises:
            NotAuthorized: It has none; the audit log names the first.
        """
        if needs and not any(self._has(*one) or self._has_as_good(*one[:2]) for one in needs):
            operation, resource_type, name = needs[0]
            raise self._refusal(operation, resource_type, name or (CLUSTER if resource_type == "Cluster" else ANY))

    def _may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        allowed = self._access.allows(self.principal, self.host, operation, resource_type, name)
        self._look()
        return allowed

    def _has_as_good(self, operation: Operation, resource_type: ResourceType) -> bool:
        other = AS_GOOD.get((operation, resource_type))
        return other is not None and self._has(*other)

    def _has(self, operation: Operation, resource_type: ResourceType, name: str | None) -> bool:
        if name is not None:
            return self._may(operation, resource_type, name)
        allowed = self._access.allows_some(self.principal, self.host, operation, resource_type)
        self._look()
        return allowed

    def _refusal(self, operation: Operation, resource_type: ResourceType, name: str) -> NotAuthorized:
        self._access.refused(self.principal, self.host, operation, resource_type, name)
        return NotAuthorized(str(self.principal), operation, f"{resource_type} {name!r}")

    def submit(self, request: Request[A]) -> A:
        """Carry a request out, as far as the principal may make it."""
        self.authorize(request)
        step: Callable[[AuthorizedSession, Any], Any] = _STEPS.get(type(request), AuthorizedSession.carry_out)
        answer: A = request.visible(step(self, request), self._may)
        return answer

    def carry_out(self, request: Request[A], **caller: Any) -> A:
        """Let the broker carry out what is authorized, and count it."""
        self._access.metrics.called(request.method)
        try:
            return self._broker.submit(request, **caller)
        except UnknownTopic as error:
            raise self._unknown(error) from None
        except (NotLeaderOrFollower, NotCoordinator) as error:
            return self._others(error).submit(request)

    def _others(self, refusal: NotLeaderOrFollower | NotCoordinator) -> OtherNodes:
        """The nodes of the cluster, one of which does what this one has refused; raises the refusal, unless the session forwards."""
        try:
            if not self.forwards or self._broker.nodes is None:
                raise refusal
            return self._broker.nodes
        finally:
            del refusal  # its traceback has this frame

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a method of the broker or of a log that is not a request, and count it."""
        self._access.metrics.called(function.__name__)
        try:
            return function(*args, **kwargs)
        except UnknownTopic as error:
            raise self._unknown(error) from None

    def nearest_address(self, log: AuthorizedLog, rack: str, offset: int) -> str | None:
        """The HTTP listener (HOST:PORT) of the follower in a rack that a client is to read ``log`` at from ``offset`` on; None: none is."""
        node = log.nearest(rack, offset, "http") if isinstance(log, ReplicaToRead) else None
        return None if node is None else node_address(self._broker.metadata, node, "http")

    def located(self, error: LogdbError) -> LogdbError:
        """The error; where another node leads, with the address of that one's HTTP door as ``leader_address``."""
        if isinstance(error, NotLeaderOrFollower | NotCoordinator):
            vars(error)["leader_address"] = leader_address(self._broker.metadata, TopicPartition(error.topic, error.partition))
        return error

    def _unknown(self, error: UnknownTopic) -> UnknownTopic:
        """The error with only the topics that the principal may describe."""
        if isinstance(error, TopicDeleted):
            return error
        names = (name for name in self._broker.metadata.topic_names() if name not in INTERNAL_TOPICS)
        known = (name for name in names if self._may("Describe", "Topic", name))
        return UnknownTopic(error.topic, known=tuple(islice(known, _KNOWN_COUNT)) or None)

    def charge(self, resource: Resource, amount: int) -> None:
        """Count against a quota."""
        delay_ms = self._access.quotas.charge(self.principal, resource, amount)
        self._throttle_ms = max(self._throttle_ms, delay_ms)

    def take_throttle_ms(self) -> int:
        """How long to delay the answer, because of what was done since the last call; 0: no quota was exceeded."""
        delay_ms, self._throttle_ms = self._throttle_ms, 0
        if delay_ms:
            self._access.metrics.throttled(delay_ms)
        return delay_ms

    @property
    def security(self) -> SubmittedCredentialStore:
        """Users, tokens, ACLs and quotas: those that the principal may describe and alter."""
        return SubmittedCredentialStore(self)

    @property
    def io(self) -> IO:
        return self._broker.io

    @property
    def clock(self) -> Callable[[], int] | None:
        return self._broker.clock

    @property
    def closed(self) -> bool:
        return self._broker.closed

    @property
    def look_interval_ms_max(self) -> int:
        return self._broker.look_interval_ms_max

    def check_open(self, *, writable: bool = False) -> None:
        self._broker.check_open(writable=writable)

    def close(self) -> None:
        """Nothing to do: other sessions use the broker."""

    def give_up(self) -> None:
        """The client is gone: long operations that are not done end, and are undone."""
        self._given_up = True

    def go_on(self) -> None:
        """Between the steps of a long operation.

        Raises:
            Closed: The client is gone.
        """
        if self._given_up:
            raise Closed(f"{self.principal} at {self.host} has hung up")

    def need_backup(self) -> None:
        """Return if the principal may have a backup, which contains everything."""
        self.authorize(Backup(""))

    # ------------------------------------------------------------ steps of some requests

    def _create(self, request: CreateTopic) -> TopicInfo:
        with self._adding(request.name, self._count(request)):
            return self.carry_out(request, go_on=self.go_on)

    def _count(self, request: CreateTopic | CheckNewTopic) -> int:
        if request.partitions != BY_DEFAULT:
            return request.partitions
        return self._broker.metadata.default_partition_count if request.assignments is None else len(request.assignments)

    def _check_new(self, request: CheckNewTopic) -> TopicInfo:
        self._check_adding(request.name, self._count(request))
        return self.carry_out(request)

    def _check_partitions(self, request: CheckPartitions) -> None:
        self._check_adding(request.name, request.partitions)
        self.carry_out(request)

    def _alter(self, request: AlterTopic) -> TopicInfo:
        note = self._deleting(request.name, request.config or {})
        with nullcontext() if request.partitions is None else self._adding(request.name, request.partitions):
            info = self.carry_out(request, go_on=self.go_on)
        note()
        return info

    def _alter_configs(self, request: AlterConfigs) -> None:
        config = dict(request.config)
        if request.replace and request.name is not None:
            try:
                config = dict.fromkeys(self._broker.metadata.topic(request.name).config) | config
            except UnknownTopic as error:
                raise self._unknown(error) from None
        note = self._deleting(None if request.validate_only else request.name, config)
        self.carry_out(request)
        note()

    def _deleting(self, name: str | None, config: Mapping[str, object]) -> Callable[[], None]:
        """What writes a line to the audit log once a topic has these configs: they decide which records are deleted."""
        given = {key: value for key, value in config.items() if key in DELETING_CONFIGS}
        if name is None or not given:
            return lambda: None
        gone: list[ExpiredRecords] = []
        with suppress(LogdbError):  # the change itself says what is wrong
            gone = self._broker.enforce_retention(name, dry_run=True, config=given)
        configs = ", ".join(f"{key}={_config_text(value)}" for key, value in given.items())
        deleted = (
            "; deletes records" + ",".join(f" of partition {one.partition} before {one.new_start_offset}" for one in gone) if gone else ""
        )
        return lambda: self._access.changed(self.principal, self.host, "alter_configs", f"{name}: {configs}{deleted}")

    def _delete(self, request: DeleteTopic) -> None:
        self.carry_out(request)
        self._access.metrics.forget(request.name)

    def _enforce_retention(self, request: EnforceRetention) -> list[ExpiredRecords]:
        if request.topic is not None:
            return self.carry_out(request)
        names = [name for name in self._broker.metadata.topic_names() if self._may("Delete", "Topic", name)]
        return [gone for name in names for gone in self.carry_out(EnforceRetention(name, request.dry_run, request.config))]

    def _join(self, request: JoinGroup) -> Any:
        """The member's host is that of the session; the request's is ignored."""
        return self.carry_out(replace(request, client_host=self.host))

    def _list(self, request: Request[list[Any]]) -> list[Any]:
        """What this node coordinates, and the other nodes that are alive."""
        found, nodes = self.carry_out(request), self._broker.nodes
        if self.gathers and nodes is not None:
            others = [one for one in self._broker.metadata.brokers() if one.node_id != self._broker.metadata.node_id and not one.fenced]
            places = {("node", one.node_id): one.address("http") for one in others}
            for answer in nodes.ask(dict.fromkeys(places, request), places).values():
                if isinstance(answer, LogdbError):
                    raise answer
                found += answer
        return sorted(found)

    def _of_nodes(self, request: Request[A]) -> A:
        """What the nodes of a cluster ask one another: no user may, a super user neither."""
        if self.principal != CLUSTER_NODE:
            raise self._refusal("ClusterAction", "Cluster", CLUSTER)
        return self.carry_out(request)

    def _change_security(self, request: Request[A]) -> A:
        self._access.metrics.called(request.method)
        return SecurityChanges(self, self._access).carry_out(request)

    def _check_adding(self, topic: str, count: int) -> None:
        """Raise what ``_adding`` would."""
        self._access.partitions.check(self.principal, topic, count, self._partition_counts, bounded=self._is_bounded())

    def _adding(self, topic: str, count: int) -> AbstractContextManager[None]:
        """A block in which a topic gets so many partitions; raises InvalidPartitions if they are too many."""
        return self._access.partitions.adding(self.principal, topic, count, self._partition_counts, bounded=self._is_bounded())

    def _partition_counts(self) -> dict[str, int]:
        return {info.name: info.partition_count for info in self._broker.topics()}

    def _is_bounded(self) -> bool:
        return not self._access.is_super_user(self.principal)

    # ------------------------------------------------------------ records

    def open_log(self, request: Log) -> AuthorizedLog:
        """As ``log``, with all that a listener asks of a log."""
        self.authorize(request)
        return self._open_log(request)

    def _open_log(self, request: Log) -> AuthorizedLog:
        try:
            return AuthorizedLog(self, self._log(request.topic, request.partition))
        except NotLeaderOrFollower as error:
            return ForwardedLog(self, self._others(error).submit(request))

    def _log(self, topic: str, partition: int) -> ReplicaLog:
        self._access.metrics.called("log")
        try:
            return self._broker.served_log(topic, partition)
        except UnknownTopic as error:
            raise self._unknown(error) from None

    def log_to_read(self, topic: str, partition: int, *, at_followers: bool = False, for_ends: bool = False) -> LogToRead | ForwardedLog:
        """The log of a partition for one read of a page, which is counted here; the next read opens it again.

        The read is authorized by the ACLs that ``AccessControl.refresh`` has found last.

        Args:
            at_followers: Also of a follower in sync, on a cluster's node: a ``ReplicaToRead``.
            for_ends: It is asked for its ends alone: no read is counted.
        """
        self._authorize_again(ReadBatches(topic, partition, 0), topic)
        of_any_replica = at_followers and self.replication is not None
        self._access.metrics.called("replica" if of_any_replica else "log", *(() if for_ends else _READ))
        try:
            if at_followers and self.replication is not None:
                return ReplicaToRead(self, self.replication.replica(topic, partition))
            return LogToRead(self, self._broker.served_log(topic, partition))
        except UnknownTopic as error:
            raise self._unknown(error) from None
        except NotLeaderOrFollower as error:
            return ForwardedLog(self, self._others(error).log(topic, partition))

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The start and end offset of a partition, as its leader has them: the replica of this node may lag, or not be."""
        log = self.open_log(Log(topic, partition))
        if self.replication is not None:
            log.check_end_known()
        return log.start_offset, log.end_offset

    def _read_batches(self, request: ReadBatches) -> tuple[memoryview, int]:
        log = self.log(request.topic, request.partition)
        return log.read_batches(request.offset, request.size_bytes_max, isolation_level=request.isolation_level)

    def _ask_log(self, request: Request[A]) -> A:
        """Let a partition's log carry out a request, and count it."""
        arguments = request.arguments()
        where = TopicPartition(arguments.pop("topic"), arguments.pop("partition"))
        log: PartitionLog
        try:
            log = self._log(*where)
        except NotLeaderOrFollower as error:
            log = self._others(error).log(*where)
        self._access.metrics.called(request.method)
        answer: A = getattr(log, request.method)(**arguments)
        return answer

    def submit_batches(self, request: Produce, batches: Buffer) -> range:
        self._access.refresh()
        return self.append(request, batches)

    def append(
        self,
        request: Produce,
        batches: Buffer,
        *,
        log: ReplicaLog | None = None,
        verify_only: bool = False,
        topic_id: str = "",
    ) -> range:
        """As ``submit_batches`` of the broker, for a session that was made or renewed a moment ago.

        Args:
            log: What ``usual_log`` has found a moment ago.

        Raises:
            TopicDeleted: Another topic has the name now.
            errors of ``Session.produce``.
        """
        access = self._access
        self._authorize_again(request, (request.topic, request.transactional_id, request.mirrored))
        access.metrics.called(request.method)
        try:
            if log is None:
                offsets = self._broker.submit_batches(request, batches, verify_only=verify_only, topic_id=topic_id)
            else:
                offsets = log.append_batches(batches, durability=request.durability)
        except UnknownTopic as error:
            raise self._unknown(error) from None
        except NotLeaderOrFollower as error:
            if is_of_leader(error):
                raise
            offsets = self._others(error).submit_batches(request, batches)
        except LogdbError as error:
            self._refused(request, error, first_batch(batches))
            raise
        self.appended(request.topic, len(offsets), len(batches))
        return offsets

    def usual_log(self, where: TopicPartition, durability: Durability | None, topic_id: str) -> ReplicaLog | None:
        """The log that takes a batch at its end as it is, and waits for no disk; None: the broker has more to do for the append.

        The batch is one that ``codec.batch.codec_of_usual`` knows: of no transaction.
        """
        log = self._broker.log_at_once(where, durability)
        return log if log is not None and (not topic_id or topic_id == log.topic_id) else None

    def leadership(
        self, topic: str, partition: int, *, acknowledged_by_all: bool = True, first: Callable[[], FirstBatch] | None = None
    ) -> Leadership | None:
        """On a cluster's node, before an append: what to wait for behind it; None: the append is forwarded, and waits there.

        Args:
            first: Says whose the first batch is; called if the append is refused.

        Raises:
            NotAuthorized: The principal may not append.
            NotLeaderOrFollower, NotEnoughReplicas: as ``Leadership.check_append``.
        """
        assert self.replication is not None
        request = Produce(topic, partition)
        self.authorize(request)
        try:
            leadership = self.replication.leads(topic, partition)
        except NotLeaderOrFollower as error:
            self._others(error)
            return None
        try:
            leadership.check_append(acknowledged_by_all=acknowledged_by_all)
        except LogdbError as error:
            if first is not None:
                self._refused(request, error, first())
            raise
        return leadership

    def _refused(self, request: Produce, error: LogdbError, first: FirstBatch) -> None:
        """An append was refused: raises another error where the batches of its producer may only be out of order (``broker.gaps``)."""
        self._broker.gaps.refused(TopicPartition(request.topic, request.partition), error, first, self._broker.io.monotonic_ms())

    def appended_to(self, topic: str, partition: int) -> ReplicaLog:
        """The log that ``produce`` has just appended to: who may write to it may know its ends."""
        return self._broker.log_in_use(topic, partition)

    def appended(self, topic: str, record_count: int, size_bytes: int) -> None:
        """Count what went into a topic."""
        self._access.metrics.appended(topic, record_count, size_bytes)
        if self._access.quotas.are_set:
            self.charge("produce", size_bytes)

    def fetched(self, topic: str, size_bytes: int) -> None:
        """Count what came out of a topic."""
        self._access.metrics.fetched(topic, size_bytes)
        if self._access.quotas.are_set:
            self.charge("fetch", size_bytes)

    # ------------------------------------------------------------ the server

    def metrics(self) -> Measurements:
        """What was counted so far, and how topics and groups are now."""
        self.authorize(Reports())
        return Measurements(self._access.metrics.counts(), gauges(self._broker))


def _config_text(value: object) -> str:
    if isinstance(value, ListChange):
        return ("-" if value.removed else "+") + ",".join(value.names)
    return "default" if value is None else str(value)


_STEPS: Mapping[type[Request[Any]], Callable[[AuthorizedSession, Any], Any]] = {
    CreateTopic: AuthorizedSession._create,
    CheckNewTopic: AuthorizedSession._check_new,
    CheckPartitions: AuthorizedSession._check_partitions,
    AlterTopic: AuthorizedSession._alter,
    AlterConfigs: AuthorizedSession._alter_configs,
    DeleteTopic: AuthorizedSession._delete,
    EnforceRetention: AuthorizedSession._enforce_retention,
    JoinGroup: AuthorizedSession._join,
    **dict.fromkeys(
        (CommittedEnd, EndMirroredTransactions, FindDecision, WillEndTransaction, WriteTransactionMarker), AuthorizedSession._of_nodes
    ),
    Groups: AuthorizedSession._list,
    Transactions: AuthorizedSession._list,
    Log: AuthorizedSession._open_log,
    ReadBatches: AuthorizedSession._read_batches,
    **dict.fromkeys(OF_LOGS, AuthorizedSession._ask_log),
    **dict.fromkeys(SECURITY_REQUESTS, AuthorizedSession._change_security),
}
"""What is done for a request for which ``carry_out`` is not enough: limits of the principal, its host, topics one by one, a log."""
