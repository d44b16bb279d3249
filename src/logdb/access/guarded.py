"""A session of somebody: a broker's, but for what they may not do.

Knows which of Kafka's operations, on which resources, each call needs.  Does not know who may do what (``gate``), nor how a call is
carried out (``broker``).

    call                                                needs
    topics, changes, transactions                       Describe of each: others are left out
    groups                                              Describe Cluster, or Describe of each: others are left out
    describe_topic, partition_count, log                Describe Topic
    describe_configs                                    DescribeConfigs Topic
    read, read_batches, … of a log; wait                Read Topic
    append, append_many, append_batches of a log        Write Topic
    produce                                             Write Topic; and Write TransactionalId where one is given
    create_topic, check_new_topic                       Create Cluster, or Create Topic
    alter_topic                                         Alter Topic for partitions; AlterConfigs Topic for configs
    check_topic_configs                                 AlterConfigs Topic
    delete_topic, delete_records, enforce_retention     Delete Topic
    compact                                             Alter Topic
    init_producer_id                                    Write TransactionalId; without one as flush
    flush                                               IdempotentWrite Cluster, or Write of some Topic
    add_partitions                                      Write TransactionalId, Write Topic of each
    add_offsets                                         Write TransactionalId, Read Group
    commit_transaction_offsets                          Write TransactionalId, Read Group, Read Topic of each
    end_transaction, abort_transaction                  Write TransactionalId
    describe_transaction                                Describe TransactionalId; topics without Describe are left out
    join_group, sync_group, heartbeat, leave_group      Read Group
    commit_offsets                                      Read Group, Read Topic of each
    fetch_offsets                                       Describe Group, Describe Topic of each; of all: others are left out
    describe_group                                      Describe Group
    delete_group                                        Delete Group
    delete_offsets                                      Delete Group, Read Topic of each
    metrics, reports                                    Describe Cluster
    verify, backup                                      ClusterAction Cluster
    security                                            see ``guarded_security``

A topic that may not be described is refused whether it exists or not; one that may be, and does not exist, is unknown, and the
error names only others that may be described.

Source: Kafka's ``KafkaApis``.  Where it leaves out what is refused and does the rest (the partitions of a commit, say), all of it is
refused here.

Threading: as the broker; ``take_throttle_ms`` is for the one request that the session was made for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from logdb.access.acls import ANY, CLUSTER, Need, Operation, ResourceType
from logdb.access.authentication import Certified, Shown
from logdb.access.guarded_log import GuardedLog
from logdb.access.guarded_security import GuardedSecurity
from logdb.access.principals import Principal
from logdb.access.quotas import Resource
from logdb.access.security_file import Token
from logdb.broker.broker import Broker
from logdb.broker.metrics import Counts, Gauges, gauges
from logdb.broker.watch import KEPT_COUNT
from logdb.coordinator.events import GroupInfo, GroupSummary, JoinResult, SyncResult, TransactionInfo
from logdb.errors import AuthenticationFailed, Closed, NotAuthorized, UnknownTopic
from logdb.io import IO
from logdb.log.isolation import IsolationLevel
from logdb.model import (
    INTERNAL_TOPICS,
    Buffer,
    Changes,
    ConfigValue,
    Durability,
    ExpiredRecords,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicInfo,
    TopicPartition,
)
from logdb.store.check.report import Copied, Report

if TYPE_CHECKING:
    from logdb.access.access_control import AccessControl

_KNOWN_COUNT = 6  # of those that an error shows five
_INSTEAD: Mapping[tuple[Operation, ResourceType], Need] = {
    ("Create", "Topic"): ("Create", "Cluster", None),
    ("IdempotentWrite", "Cluster"): ("Write", "Topic", None),
}
"""What is as good."""

P = ParamSpec("P")
R = TypeVar("R")


class Measured(NamedTuple):
    """What a scraper wants to know."""

    counts: Counts
    gauges: Gauges


class GuardedSession:
    """``client.session.Session`` for one principal that calls from one address; a door makes one for each request.

    What the principal has shown of who it is counts for as long as the request takes, or its calls are refused.
    """

    def __init__(self, gate: "AccessControl", broker: Broker, principal: Principal, host: str, shown: Shown | None) -> None:
        self.principal, self.host = principal, host
        self._gate, self._broker = gate, broker
        self._show(shown)
        self._throttle_ms = gate.quotas.charge(principal, "request", 1)
        self._given_up = False

    # ------------------------------------------------------------ what every call goes through

    def _show(self, shown: Shown | None) -> None:
        self.shown = shown
        self._until_ms = shown.expires_ms if isinstance(shown, Token) else shown.until_ms if isinstance(shown, Certified) else None
        self._seen_count = -1  # changes of the gate when it was looked at last

    def go_on_for(self, asking: "GuardedSession") -> None:
        """Be a session for who asks now: the same principal, perhaps from elsewhere, or by something else that it has shown."""
        self.host = asking.host
        self._show(asking.shown)

    def check(self) -> None:
        """Go on if what the principal has shown still counts.

        Raises:
            AuthenticationFailed: It was revoked, changed or deleted, or has expired.
        """
        if self.shown is not None and not self._gate.counts(self.principal, self.shown):
            raise AuthenticationFailed(f"what {self.principal} has shown counts no more: it was revoked or changed, or has expired")

    def _look(self) -> None:
        """As ``check``, right after the gate was asked for something else: at once, unless there is a change, or the time is over."""
        seen_count = self._gate.change_count
        if seen_count != self._seen_count or (self._until_ms is not None and self._until_ms <= self._broker.io.clock_ms()):
            self.check()
            self._seen_count = seen_count

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER) -> bool:
        """Whether the principal may do this."""
        allowed = self._gate.allows(self.principal, self.host, operation, resource_type, name)
        self._look()
        return allowed

    def need(self, operation: Operation, resource_type: ResourceType, *names: str) -> None:
        """Go on if the principal may do this with all of the resources.

        Raises:
            NotAuthorized: Not with one of them; there is a line of it in the audit log.
            AuthenticationFailed: as ``check``.
        """
        for name in names:
            allowed = self._gate.allows(self.principal, self.host, operation, resource_type, name)
            self._look()
            if not allowed:
                self.refuse(operation, resource_type, name)

    def need_any(self, needs: Sequence[Need]) -> None:
        """Go on if the principal may do one of these, or if there are none: what a call needs is asked again once it is known.

        Raises:
            NotAuthorized: It may do none; there is a line of the first in the audit log.
        """
        if needs and not any(self._may_some(*one) or self._may_some(*_INSTEAD.get(one[:2], one)) for one in needs):
            operation, resource_type, name = needs[0]
            self.refuse(operation, resource_type, name or (CLUSTER if resource_type == "Cluster" else ANY))

    def _may_some(self, operation: Operation, resource_type: ResourceType, name: str | None) -> bool:
        if name is not None:
            return self.may(operation, resource_type, name)
        return self._gate.allows_some(self.principal, self.host, operation, resource_type)

    def refuse(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        self._gate.refused(self.principal, self.host, operation, resource_type, name)
        raise NotAuthorized(str(self.principal), operation, f"{resource_type} {name!r}")

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Let the broker do something, and count it; an unknown topic does not tell which there are."""
        self._gate.metrics.called(function.__name__)
        try:
            return function(*args, **kwargs)
        except UnknownTopic as error:
            names = (name for name in self._broker.topic_names() if name not in INTERNAL_TOPICS)
            known = (name for name in names if self.may("Describe", "Topic", name))
            raise UnknownTopic(error.topic, known=tuple(islice(known, _KNOWN_COUNT)) or None) from None

    def charge(self, resource: Resource, amount: int) -> None:
        """Count what is under a quota."""
        delay_ms = self._gate.quotas.charge(self.principal, resource, amount)
        self._throttle_ms = max(self._throttle_ms, delay_ms)

    def take_throttle_ms(self) -> int:
        """For how long to hold back the answer to what was done since this was asked last: 0 unless a quota was exceeded."""
        delay_ms, self._throttle_ms = self._throttle_ms, 0
        if delay_ms:
            self._gate.metrics.throttled(delay_ms)
        return delay_ms

    @property
    def security(self) -> GuardedSecurity:
        """Users, tokens, ACLs and quotas, as far as the principal may know and change them."""
        return GuardedSecurity(self, self._gate)

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
        """The broker stays open: it is not this session's."""

    def give_up(self) -> None:
        """Whoever asks is gone: what takes long, and is not done, ends and is undone."""
        self._given_up = True

    # ------------------------------------------------------------ topics and logs

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None, if_not_exists: bool = False
    ) -> TopicInfo:
        self._need_to_create(name)
        with self._adding(name, partitions):
            return self.call(
                self._broker.create_topic, name, partitions=partitions, config=config, if_not_exists=if_not_exists, go_on=self._go_on
            )

    def check_new_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None) -> TopicInfo:
        """What ``create_topic`` would make, or raise, without doing it."""
        self._need_to_create(name)
        self._gate.partitions.check(self.principal, name, partitions, self._partition_counts, bounded=self._is_bounded())
        return self.call(self._broker.check_new_topic, name, partitions=partitions, config=config)

    def _adding(self, topic: str, count: int) -> AbstractContextManager[None]:
        """While a topic comes to have so many partitions; raises InvalidPartitions where they are too many."""
        return self._gate.partitions.adding(self.principal, topic, count, self._partition_counts, bounded=self._is_bounded())

    def _partition_counts(self) -> dict[str, int]:
        return {info.name: info.partition_count for info in self._broker.topics()}

    def _is_bounded(self) -> bool:
        return not self._gate.is_super_user(self.principal)

    def _go_on(self) -> None:
        """Raise once whoever asks is gone."""
        if self._given_up:
            raise Closed(f"{self.principal} at {self.host} has hung up")

    def _need_to_create(self, name: str) -> None:
        if not self.may("Create", "Cluster"):
            self.need("Create", "Topic", name)

    def check_topic_configs(self, name: str, config: Mapping[str, object]) -> None:
        """Raise what ``alter_topic`` would, without doing it."""
        self.need("AlterConfigs", "Topic", name)
        self.call(self._broker.check_topic_configs, name, config)

    def alter_topic(self, name: str, *, config: Mapping[str, object] | None = None, partitions: int | None = None) -> TopicInfo:
        if partitions is not None:
            self.need("Alter", "Topic", name)
        if config or partitions is None:
            self.need("AlterConfigs", "Topic", name)
        with nullcontext() if partitions is None else self._adding(name, partitions):
            return self.call(self._broker.alter_topic, name, config=config, partitions=partitions, go_on=self._go_on)

    def delete_topic(self, name: str) -> None:
        self.need("Delete", "Topic", name)
        self.call(self._broker.delete_topic, name)
        self._gate.metrics.forget(name)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        self.need("Delete", "Topic", topic)
        return self.call(self._broker.delete_records, topic, partition, before_offset)

    def enforce_retention(self, topic: str | None = None, *, dry_run: bool = False) -> list[ExpiredRecords]:
        if topic is not None:
            self.need("Delete", "Topic", topic)
            return self.call(self._broker.enforce_retention, topic, dry_run=dry_run)
        names = [name for name in self._broker.topic_names() if self.may("Delete", "Topic", name)]
        return [gone for name in names for gone in self.call(self._broker.enforce_retention, name, dry_run=dry_run)]

    def compact(self, topic: str, partition: int | None = None) -> None:
        self.need("Alter", "Topic", topic)
        self.call(self._broker.compact, topic, partition)

    def reports(self) -> tuple[str, ...]:
        self.need("Describe", "Cluster", CLUSTER)
        return self.call(self._broker.reports)

    def verify(self) -> Report:
        self.need("ClusterAction", "Cluster", CLUSTER)
        return self.call(self._broker.verify)

    def backup(self, path: str, base: str | None = None) -> Copied:
        self.need_backup()
        return self.call(self._broker.backup, path, base)

    def need_backup(self) -> None:
        """Go on if the principal may have a backup, which holds everything."""
        self.need("ClusterAction", "Cluster", CLUSTER)

    def flush(self, sync: bool = True) -> None:
        self._need_writer()
        self.call(self._broker.flush, sync)

    def _need_writer(self) -> None:
        """See that the principal may write at all (KIP-679)."""
        allowed = self._gate.allows_some(self.principal, self.host, "Write", "Topic")
        self._look()
        if not allowed:
            self.need("IdempotentWrite", "Cluster", CLUSTER)

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        found = self.call(self._broker.topics, internal=internal)
        return [info for info in found if self.may("Describe", "Topic", info.name)]

    def changes(self, position: str | None, timeout_ms: int, *, count_max: int = KEPT_COUNT) -> Changes:
        self.check()
        changes = self.call(self._broker.changes, position, timeout_ms, count_max=count_max)
        return changes._replace(events=tuple(event for event in changes.events if self.may("Describe", "Topic", event.topic.name)))

    def describe_topic(self, name: str) -> TopicInfo:
        self.need("Describe", "Topic", name)
        return self.call(self._broker.describe_topic, name)

    def describe_configs(self, name: str) -> Mapping[str, ConfigValue]:
        """The configs of a topic that were set, for whoever administrates it; raises UnknownTopic."""
        self.need("DescribeConfigs", "Topic", name)
        return self.call(self._broker.describe_topic, name).config

    def partition_count(self, topic: str) -> int:
        self.need("Describe", "Topic", topic)
        return self.call(self._broker.partition_count, topic)

    def log(self, topic: str, partition: int = 0) -> GuardedLog:
        self.need("Describe", "Topic", topic)
        return GuardedLog(self, self.call(self._broker.log, topic, partition))

    def wait(
        self, positions: Mapping[TopicPartition, int], timeout_ms: int, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> bool:
        self._need_of_topics("Read", positions)
        return self.call(self._broker.wait, positions, timeout_ms, isolation_level=isolation_level)

    def _need_of_topics(self, operation: Operation, partitions: Iterable[TopicPartition]) -> None:
        self.need(operation, "Topic", *{topic for topic, _ in partitions})

    # ------------------------------------------------------------ producing

    def produce(
        self,
        topic: str,
        partition: int,
        batches: Buffer,
        *,
        durability: Durability | None = None,
        transactional_id: str | None = None,
        expected_offset: int | None = None,
    ) -> range:
        if transactional_id is not None:
            self.need("Write", "TransactionalId", transactional_id)
        self.need("Write", "Topic", topic)
        offsets = self.call(
            self._broker.produce,
            topic,
            partition,
            batches,
            durability=durability,
            transactional_id=transactional_id,
            expected_offset=expected_offset,
        )
        self.appended(topic, len(offsets), len(batches))
        return offsets

    def appended(self, topic: str, record_count: int, size_bytes: int) -> None:
        """Count what went into a topic."""
        self._gate.metrics.appended(topic, record_count, size_bytes)
        self.charge("produce", size_bytes)

    def fetched(self, topic: str, size_bytes: int) -> None:
        """Count what came out of a topic."""
        self._gate.metrics.fetched(topic, size_bytes)
        self.charge("fetch", size_bytes)

    def init_producer_id(
        self, transactional_id: str | None = None, *, transaction_timeout_ms: int = 60_000, producer: ProducerIdAndEpoch | None = None
    ) -> ProducerIdAndEpoch:
        if transactional_id is None:
            self._need_writer()
        else:
            self.need("Write", "TransactionalId", transactional_id)
        return self.call(self._broker.init_producer_id, transactional_id, transaction_timeout_ms=transaction_timeout_ms, producer=producer)

    # ------------------------------------------------------------ transactions

    def add_partitions(self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> None:
        wanted = tuple(partitions)
        self.need("Write", "TransactionalId", transactional_id)
        self._need_of_topics("Write", wanted)
        self.call(self._broker.add_partitions, transactional_id, producer, wanted)

    def add_offsets(self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str) -> None:
        self.need("Write", "TransactionalId", transactional_id)
        self.need("Read", "Group", group_id)
        self.call(self._broker.add_offsets, transactional_id, producer, group_id)

    def commit_transaction_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        group_instance_id: str | None = None,
    ) -> None:
        self.need("Write", "TransactionalId", transactional_id)
        self.need("Read", "Group", group_id)
        self._need_of_topics("Read", offsets)
        self.call(
            self._broker.commit_transaction_offsets,
            transactional_id,
            producer,
            group_id,
            offsets,
            member_id=member_id,
            generation=generation,
            group_instance_id=group_instance_id,
        )

    def end_transaction(self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> ProducerIdAndEpoch:
        self.need("Write", "TransactionalId", transactional_id)
        return self.call(self._broker.end_transaction, transactional_id, producer, commit=commit)

    # ------------------------------------------------------------ groups

    def join_group(
        self,
        group_id: str,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str = "consumer",
        protocols: Sequence[tuple[str, bytes]],
        client_id: str = "",
        client_host: str = "",  # noqa: ARG002 -- nobody says that of themselves
    ) -> "Future[JoinResult]":
        """As a broker's; ``client_host`` is the session's, whatever is given."""
        self.need("Read", "Group", group_id)
        return self.call(
            self._broker.join_group,
            group_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            client_id=client_id,
            client_host=self.host,
        )

    def sync_group(
        self,
        group_id: str,
        *,
        generation: int,
        member_id: str,
        group_instance_id: str | None = None,
        assignments: Mapping[str, bytes],
    ) -> "Future[SyncResult]":
        self.need("Read", "Group", group_id)
        return self.call(
            self._broker.sync_group,
            group_id,
            generation=generation,
            member_id=member_id,
            group_instance_id=group_instance_id,
            assignments=assignments,
        )

    def heartbeat(self, group_id: str, *, generation: int, member_id: str, group_instance_id: str | None = None) -> None:
        self.need("Read", "Group", group_id)
        self.call(self._broker.heartbeat, group_id, generation=generation, member_id=member_id, group_instance_id=group_instance_id)

    def leave_group(self, group_id: str, member_ids: Iterable[str] = (), *, group_instance_ids: Iterable[str] = ()) -> None:
        self.need("Read", "Group", group_id)
        self.call(self._broker.leave_group, group_id, member_ids, group_instance_ids=group_instance_ids)

    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        group_instance_id: str | None = None,
    ) -> "Future[None]":
        self.need("Read", "Group", group_id)
        self._need_of_topics("Read", offsets)
        return self.call(
            self._broker.commit_offsets,
            group_id,
            offsets,
            member_id=member_id,
            generation=generation,
            group_instance_id=group_instance_id,
        )

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.need("Describe", "Group", group_id)
        wanted = None if partitions is None else tuple(partitions)
        self._need_of_topics("Describe", wanted or ())
        found = self.call(self._broker.fetch_offsets, group_id, wanted, require_stable=require_stable)
        return {partition: committed for partition, committed in found.items() if self.may("Describe", "Topic", partition.topic)}

    # ------------------------------------------------------------ administration

    def groups(self) -> list[GroupSummary]:
        found = self.call(self._broker.groups)
        return found if self.may("Describe", "Cluster") else [one for one in found if self.may("Describe", "Group", one.group_id)]

    def describe_group(self, group_id: str) -> GroupInfo:
        self.need("Describe", "Group", group_id)
        return self.call(self._broker.describe_group, group_id)

    def delete_group(self, group_id: str) -> None:
        self.need("Delete", "Group", group_id)
        self.call(self._broker.delete_group, group_id)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        wanted = tuple(partitions)
        self.need("Delete", "Group", group_id)
        self._need_of_topics("Read", wanted)
        self.call(self._broker.delete_offsets, group_id, wanted)

    def transactions(self) -> list[TransactionInfo]:
        found = self.call(self._broker.transactions)
        return [self._shown(info) for info in found if self.may("Describe", "TransactionalId", info.transactional_id)]

    def describe_transaction(self, transactional_id: str) -> TransactionInfo:
        self.need("Describe", "TransactionalId", transactional_id)
        return self._shown(self.call(self._broker.describe_transaction, transactional_id))

    def _shown(self, info: TransactionInfo) -> TransactionInfo:
        shown = (partition for partition in info.partitions if self.may("Describe", "Topic", partition.topic))
        return info._replace(partitions=tuple(shown))

    def abort_transaction(self, transactional_id: str) -> None:
        self.need("Write", "TransactionalId", transactional_id)
        self.call(self._broker.abort_transaction, transactional_id)

    def metrics(self) -> Measured:
        """What was counted so far, and how topics and groups are now."""
        self.need("Describe", "Cluster", CLUSTER)
        return Measured(self._gate.metrics.counts(), gauges(self._broker))
