"""The interface of producers, consumers and transactions to a broker in the process, or behind a URL.

A session carries out requests.  Here are the methods that make them, what each takes and what it raises; records go in and out by
``produce`` and ``log``.  Each session inherits from ``Session`` and has ``submit``: ``broker.Broker`` in the process, one behind a URL,
one of a principal.  Client classes use nothing of a session but this.

Threading: every method, from any thread.  Requests that wait for other members of a group return futures; all others
return when they are done, and what they changed is then durable at the level of the internal topic that holds it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from logdb import requests
from logdb.errors import LogdbError, without_frames
from logdb.io import IO
from logdb.log.protocols import PartitionLog
from logdb.model import (
    BY_DEFAULT,
    NO_TOPIC_IDS,
    NOTHING_KNOWN,
    Buffer,
    Changes,
    ConfigValue,
    Durability,
    ExpiredRecords,
    KnownLog,
    ListChange,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicInfo,
    TopicPartition,
)
from logdb.requests.nodes import ClusterNodes

if TYPE_CHECKING:
    from logdb.log.isolation import IsolationLevel
    from logdb.requests import topic_changes
    from logdb.requests.groups import GroupInfo, GroupSummary, JoinResult, SyncResult
    from logdb.requests.records import Produce
    from logdb.requests.report import Copied, Report
    from logdb.requests.request import Request
    from logdb.requests.transactions import TransactionInfo

A = TypeVar("A")
CHANGE_COUNT_MAX = 1024
"""Changes of topics that are kept, and told at once."""


class Session(Protocol):
    """One way to a database: topics, records, groups and transactions.

    A class that inherits from it carries requests out by ``submit``; the methods make them.

    Attributes:
        io: Files and clock.
        clock: Milliseconds since 1970, for records without a timestamp; None: the machine's.
        look_interval_ms_max: The longest interval between two checks of a consumer while nothing changes; longer where each is a request.
    """

    def submit(self, request: "Request[A]") -> A:
        """Carry a request out; one that waits is answered by a future.

        Raises:
            NotImplementedError: The request is local (``local``), and the session is behind a URL.
        """

    @property
    def io(self) -> IO: ...
    @property
    def clock(self) -> Callable[[], int] | None: ...
    @property
    def closed(self) -> bool: ...

    @property
    def topic_change_count(self) -> int | None:
        """A number that changes with every change of topics; None: a session that learns of changes by looking.

        Raises:
            Closed, Forked: The database was closed.
        """
        return None

    def check_open(self, *, writable: bool = False) -> None:
        """Raise unless it is open (to write).

        Raises:
            Closed, ReadOnly, Forked: see ``logdb.errors``.
        """

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BY_DEFAULT,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        if_not_exists: bool = False,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> TopicInfo:
        """See ``Database.create_topic``."""
        return self.submit(
            requests.topic_changes.CreateTopic(
                name=name,
                partitions=partitions,
                config=cast("topic_changes.Config | None", config),
                if_not_exists=if_not_exists,
                replication_factor=replication_factor,
                assignments=_placed(assignments),
            )
        )

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object] | None = None,
        partitions: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> TopicInfo:
        """See ``Database.alter_topic``."""
        return self.submit(
            requests.topic_changes.AlterTopic(
                name=name, config=cast("topic_changes.Config | None", config), partitions=partitions, assignments=_placed(assignments)
            )
        )

    def check_new_topic(
        self,
        name: str,
        *,
        partitions: int = BY_DEFAULT,
        replication_factor: int | None = None,
        config: "topic_changes.Config | None" = None,
        assignments: "topic_changes.Assignments | None" = None,
    ) -> TopicInfo:
        """The topic that ``create_topic`` would create; raises what it would raise."""
        return self.submit(requests.topic_changes.CheckNewTopic(name, partitions, config, replication_factor, assignments))

    def check_topic_configs(self, name: str, config: "topic_changes.Config") -> None:
        """Raise what ``alter_topic`` would raise; changes nothing."""
        self.submit(requests.topic_changes.CheckTopicConfigs(name, config))

    def alter_configs(
        self, name: str | None, config: Mapping[str, ConfigValue | ListChange | None], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """Change configs, from their values at that moment; ``replace``: configs that are not named get their defaults.

        ``name`` None: those of the node.
        """
        self.submit(requests.topic_changes.AlterConfigs(name, config, replace, validate_only))

    def describe_configs(self, name: str | None) -> Mapping[str, ConfigValue]:
        """The configs of a topic that were set, or those of the node."""
        return self.submit(requests.topics.DescribeConfigs(name))

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name, without their partitions."""
        return self.submit(requests.topics.Topics(internal=internal))

    def describe_topic(self, name: str) -> TopicInfo:
        """One topic with its partitions as they are now."""
        return self.submit(requests.topics.DescribeTopic(name=name))

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            UnknownTopic: No topic has that name.
        """
        return self.submit(requests.topics.PartitionCount(topic=topic))

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """The one log of a partition."""
        return self.submit(requests.records.Log(topic, partition))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See ``Database.delete_records``."""
        return self.submit(requests.topics.DeleteRecords(topic=topic, partition=partition, before_offset=before_offset))

    def enforce_retention(
        self, topic: str | None = None, *, dry_run: bool = False, config: Mapping[str, object] | None = None
    ) -> list[ExpiredRecords]:
        """See ``Database.enforce_retention``."""
        return self.submit(requests.topics.EnforceRetention(topic, dry_run, cast("topic_changes.Config | None", config)))

    def compact(self, topic: str, partition: int | None = None) -> None:
        """See ``Database.compact``."""
        self.submit(requests.topics.Compact(topic=topic, partition=partition))

    def flush(self, sync: bool = True) -> None:
        """See ``Database.flush``."""
        self.submit(requests.topics.Flush(sync=sync))

    def close(self) -> None:
        """Release connections, files and threads."""

    @property
    def look_interval_ms_max(self) -> int: ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and the offsets that groups have committed for it."""
        self.submit(requests.topic_changes.DeleteTopic(name=name))

    def wait(
        self,
        positions: Mapping[TopicPartition, int],
        timeout_ms: int,
        *,
        isolation_level: "IsolationLevel" = "read_uncommitted",
        known: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN,
    ) -> bool:
        """Wait until one of the partitions has a record at its position, for ``timeout_ms`` at most.

        Args:
            known: What the reader knows of the logs that its positions lie in.  If a topic was deleted and created again, or its log
                was cut off, the wait ends at once: a read from that position raises.

        Returns:
            Whether to read.  A record may be a control record, which reads leave out.

        Raises:
            UnknownTopic, UnknownPartition, Closed: see ``logdb.errors``.
        """
        return self.submit(requests.topics.Wait(dict(positions), timeout_ms, isolation_level, dict(known)))

    def changes(self, position: str | None, timeout_ms: int, *, count_max: int = CHANGE_COUNT_MAX) -> Changes:
        """The changes of topics, internal ones too, since ``position``, at most so many changes; None: since now.

        Waits for the first change, for ``timeout_ms`` at most, but may return earlier without one.
        """
        return self.submit(requests.topics.Changes(position=position, timeout_ms=timeout_ms, count_max=count_max))

    def cluster_nodes(self) -> ClusterNodes:
        """The brokers of a cluster that serve, and its partitions, of internal topics too; without a cluster there are none."""
        return self.submit(requests.topics.ClusterNodes())

    # ------------------------------------------------------------ the whole

    def reports(self) -> tuple[str, ...]:
        """What recovery found and did since the database was opened: one line each."""
        return self.submit(requests.topics.Reports())

    def verify(self) -> "Report":
        """Check every byte; see ``Database.verify``."""
        return self.submit(requests.topics.Verify())

    def backup(self, path: str, base: str | None = None) -> "Copied":
        """Write the database, or what ``base`` lacks of it, into the new file ``path``; see ``Database.backup``."""
        return self.submit(requests.topics.Backup(path=path, base=base))

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
        mirrored: bool = False,
    ) -> range:
        """Append record batches that are stamped with their producer already.

        Transactional ones need ``transactional_id``: they are taken only into its ongoing transaction, of which the
        partition becomes a part (KIP-890).

        Args:
            mirrored: They are another cluster's, and keep their offsets; the topic has the config ``logdb.mirror.of``.

        Returns:
            The offsets given, or those of the original where the batches are a duplicate.

        Raises:
            ProducerFenced, OutOfOrderSequence, InvalidProducer, InvalidTransactionState: Nothing was appended.
            LogdbError: See ``Log.append_batches``.
        """
        request = requests.records.Produce(topic, partition, durability, transactional_id, expected_offset, mirrored)
        return self.submit_batches(request, batches)

    def submit_batches(self, request: "Produce", batches: Buffer) -> range:
        """``submit`` a request to append; the batches go beside it."""

    def produce_many(self, batches: Mapping[TopicPartition, Buffer], *, transactional_id: str) -> dict[TopicPartition, range | LogdbError]:
        """``produce`` to several partitions of a transaction; returns the offsets of each, or its error."""
        answers: dict[TopicPartition, range | LogdbError] = {}
        for partition, image in batches.items():
            try:
                answers[partition] = self.produce(*partition, image, transactional_id=transactional_id)
            except LogdbError as error:
                answers[partition] = without_frames(error)
        return answers

    def init_producer_id(
        self, transactional_id: str | None = None, *, transaction_timeout_ms: int = 60_000, producer: ProducerIdAndEpoch | None = None
    ) -> ProducerIdAndEpoch:
        """A new producer id; or the one of a transactional id, with an epoch that fences its earlier user.

        The transaction that the former user left open is aborted, one that was being completed is completed first.

        Args:
            transaction_timeout_ms: How long a transaction may stay open before it is aborted.
            producer: The former id and epoch of the same producer, which goes on after an error.

        Raises:
            InvalidTransactionTimeout, ProducerFenced: see ``logdb.errors``.
        """
        return self.submit(
            requests.transactions.InitProducerId(
                transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms, producer=producer
            )
        )

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], *, verify_only: bool = False
    ) -> None:
        """Make partitions part of the transaction, which begins with the first of them.

        Args:
            verify_only: They have to be part of it already (KIP-890).

        Raises:
            ProducerFenced, InvalidProducer, InvalidTransactionState, UnknownTopic, UnknownPartition: Nothing was changed.
        """
        self.submit(
            requests.transactions.AddPartitions(
                transactional_id=transactional_id, producer=producer, partitions=tuple(partitions), verify_only=verify_only
            )
        )

    def add_offsets(self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str) -> None:
        """Make the offsets of a group part of the transaction; raises as ``add_partitions``."""
        self.submit(requests.transactions.AddOffsets(transactional_id=transactional_id, producer=producer, group_id=group_id))

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
        verify_only: bool = False,
        topic_ids: Mapping[str, str] = NO_TOPIC_IDS,
    ) -> None:
        """Commit offsets of a group as part of the transaction: they count once it is committed.

        Args:
            member_id, generation, group_instance_id: Of the consumer that read up to them; a member that was replaced
                since is refused (KIP-447).
            verify_only: The offsets of the group have to be part of the transaction already (KIP-890).
            topic_ids: Of the topics that were read, by name, as far as they are known.

        Raises:
            UnknownMember, IllegalGeneration, FencedInstance, TopicDeleted, UnknownTopic, UnknownPartition: and nothing was changed.
            LogdbError: See ``add_partitions``.
        """
        self.submit(
            requests.transactions.CommitTransactionOffsets(
                transactional_id=transactional_id,
                producer=producer,
                group_id=group_id,
                offsets=dict(offsets),
                member_id=member_id,
                generation=generation,
                group_instance_id=group_instance_id,
                verify_only=verify_only,
                topic_ids=dict(topic_ids),
            )
        )

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bump_epoch: bool = True
    ) -> ProducerIdAndEpoch:
        """Commit or abort; when this returns, readers of committed records see all of it, or none.

        Args:
            bump_epoch: False for a producer that ignores the epoch in the answer.

        Returns:
            The producer to go on with: its epoch is another one (KIP-890), unless ``bump_epoch`` is False.

        Raises:
            ProducerFenced, InvalidProducer, InvalidTransactionState: Nothing was changed.
        """
        return self.submit(
            requests.transactions.EndTransaction(transactional_id=transactional_id, producer=producer, commit=commit, bump_epoch=bump_epoch)
        )

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
        client_host: str = "",
        require_member_id: bool = False,
    ) -> "Future[JoinResult]":
        """Join a group, or join it again; done when all members have joined or timed out.

        Args:
            member_id: Empty for a new member, which is given one.
            session_timeout_ms: How long it may stay silent.
            rebalance_timeout_ms: How long it may take to join again once the group is rebalanced.
            protocols: Assignors and the member's metadata for each, the preferred one first.
            require_member_id: A new member is only told its id, and joins again with it (KIP-394).

        Raises:
            InvalidGroup, UnknownMember, FencedInstance, InconsistentProtocol: here or by the future.
            MemberIdRequired: The id of a new member; here or by the future.
        """
        return self.submit(
            requests.groups.JoinGroup(
                group_id=group_id,
                member_id=member_id,
                group_instance_id=group_instance_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=protocol_type,
                protocols=tuple(protocols),
                client_id=client_id,
                client_host=client_host,
                require_member_id=require_member_id,
            )
        )

    def sync_group(
        self,
        group_id: str,
        *,
        generation: int,
        member_id: str,
        group_instance_id: str | None = None,
        assignments: Mapping[str, bytes],
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> "Future[SyncResult]":
        """Fetch this member's assignment; done when the leader has given ``assignments`` (empty from all others).

        Args:
            protocol_type, protocol: Those that the member expects the group to have (KIP-559); None: they are not compared.

        Raises:
            UnknownMember, IllegalGeneration, RebalanceInProgress, FencedInstance, InconsistentProtocol: here or by the future.
        """
        return self.submit(
            requests.groups.SyncGroup(
                group_id=group_id,
                generation=generation,
                member_id=member_id,
                group_instance_id=group_instance_id,
                assignments=assignments,
                protocol_type=protocol_type,
                protocol=protocol,
            )
        )

    def heartbeat(self, group_id: str, *, generation: int, member_id: str, group_instance_id: str | None = None) -> None:
        """Say that a member is alive.

        Raises:
            RebalanceInProgress: It has to join again.
            UnknownMember, IllegalGeneration, FencedInstance: It is not a member any more.
        """
        self.submit(
            requests.groups.Heartbeat(group_id=group_id, generation=generation, member_id=member_id, group_instance_id=group_instance_id)
        )

    def leave_group(self, group_id: str, member_id: str = "", *, group_instance_id: str | None = None) -> None:
        """Take a member out of a group; the others are rebalanced.

        Args:
            member_id: May be empty where the instance is given.
            group_instance_id: Of a static member.

        Raises:
            UnknownMember: It is not in the group.
            FencedInstance: Another member has taken over the instance.
        """
        self.submit(requests.groups.LeaveGroup(group_id, member_id, group_instance_id))

    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        member_id: str = "",
        generation: int = -1,
        group_instance_id: str | None = None,
        topic_ids: Mapping[str, str] = NO_TOPIC_IDS,
    ) -> "Future[None]":
        """Commit offsets of a group; of a group without members, without a ``member_id``.

        Args:
            topic_ids: Of the topics that were read, by name, as far as they are known: offsets of another topic of that name are refused.

        Raises:
            UnknownMember, IllegalGeneration, RebalanceInProgress, FencedInstance: by the future; nothing was committed.
            TopicDeleted, UnknownTopic, UnknownPartition: by the future; the offsets of existing partitions were committed, as in Kafka.
        """
        return self.submit(
            requests.groups.CommitOffsets(
                group_id=group_id,
                offsets=dict(offsets),
                member_id=member_id,
                generation=generation,
                group_instance_id=group_instance_id,
                topic_ids=dict(topic_ids),
            )
        )

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group; partitions without one are left out.

        Args:
            partitions: None: all that have one.
            require_stable: Refuse while a transaction that has not ended may change one of them (KIP-447).

        Raises:
            UnstableOffsets: It may; ask again.
        """
        return self.submit(
            requests.groups.FetchOffsets(
                group_id=group_id, partitions=None if partitions is None else tuple(partitions), require_stable=require_stable
            )
        )

    # ------------------------------------------------------------ administration

    def groups(self) -> "list[GroupSummary]":
        """All groups that have members or offsets, by name."""
        return self.submit(requests.groups.Groups())

    def describe_group(self, group_id: str) -> "GroupInfo":
        """State, protocol and members of a group.

        Raises:
            UnknownGroup: It has neither members nor offsets.
        """
        return self.submit(requests.groups.DescribeGroup(group_id=group_id))

    def delete_group(self, group_id: str) -> None:
        """Forget a group and its offsets.

        Raises:
            UnknownGroup, GroupNotEmpty: Nothing was changed.
        """
        self.submit(requests.groups.DeleteGroup(group_id=group_id))

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget some offsets of a group.

        Raises:
            UnknownGroup, GroupNotEmpty: A member subscribes to one of the topics.  Nothing was changed.
        """
        self.submit(requests.groups.DeleteOffsets(group_id=group_id, partitions=tuple(partitions)))

    def transactions(self) -> "list[TransactionInfo]":
        """All transactional ids, by name."""
        return self.submit(requests.transactions.Transactions())

    def describe_transaction(self, transactional_id: str) -> "TransactionInfo":
        """State, producer and partitions of a transactional id.

        Raises:
            InvalidProducer: The id is unknown.
        """
        return self.submit(requests.transactions.DescribeTransaction(transactional_id=transactional_id))

    def abort_transaction(self, transactional_id: str) -> None:
        """Abort the ongoing transaction of an id and fence its producer.

        Raises:
            InvalidTransactionState: None is ongoing.
            InvalidProducer: The id is unknown.
        """
        self.submit(requests.transactions.AbortTransaction(transactional_id=transactional_id))


def _placed(assignments: Sequence[Sequence[int]] | None) -> "topic_changes.Assignments | None":
    return None if assignments is None else tuple(map(tuple, assignments))
