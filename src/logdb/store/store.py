"""The topics and partitions of one directory, open for writing or for reading.

``Store`` is the interface for the layers above; its parts do the work:

    LOCK  catalogue/  <topic>-<partition>/ …        names ending in .tmp, -delete: unfinished work

    opening      checks the directory, takes its lock, reads how the last stop left it
    state        shared by all parts: the open logs, refusals, the locks and their order
    open_logs    the log of a partition, recovered at its first use
    topics       creating, altering and deleting topics
    writer       with mode "a": entries, checkpoints, replacements, truncations, log starts, threads, the close
"""

import contextlib
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logdb.disk import exists, names_in, remove
from logdb.errors import (
    CloseIncomplete,
    ElectionNotNeeded,
    InvalidConfig,
    InvalidReassignment,
    InvalidReplicationFactor,
    LogdbError,
    NoReassignment,
    ReadOnly,
    ReplicaCountChanged,
    UnknownPartition,
    UnknownTopic,
)
from logdb.handles import Handle
from logdb.io import IO
from logdb.log.log import Log
from logdb.log.preallocation import Budget
from logdb.log.readable import ReadableLog
from logdb.meta import Catalogue, TopicEntry
from logdb.mistakes import must_be, one_of
from logdb.model import (
    BY_DEFAULT,
    DURABILITY_LEVELS,
    OFFSET_MAX,
    Durability,
    ExpiredRecords,
    TopicEvent,
    TopicInfo,
    TopicPartition,
)
from logdb.requests.nodes import BrokerInfo, PartitionState, QuorumInfo, QuorumVoter
from logdb.requests.report import Copied, Progress
from logdb.store import cleaner, cluster_file, lock, opening, replacement_intent, retention, topics
from logdb.store.cleaner import CLEANER_BYTES_PER_SECOND
from logdb.store.copy.snapshot_file import SnapshotFile
from logdb.store.open_logs import TailLogs
from logdb.store.protocols import always
from logdb.store.reserve import Reserve
from logdb.store.security_file import SecurityFile
from logdb.store.sidecars import MadeSidecars
from logdb.store.state import Mode, StoreState
from logdb.store.tables import UpdatedTable
from logdb.store.writer import Writer

if TYPE_CHECKING:
    from logdb.requests.replicas import DescribeQuorum, ElectLeaders, Reassign
    from logdb.requests.request import Request
    from logdb.requests.topic_changes import (
        AlterConfigs,
        AlterTopic,
        Assignments,
        CheckNewTopic,
        CheckPartitions,
        CheckTopicConfigs,
        CreateTopic,
        DeleteTopic,
    )
    from logdb.requests.topics import (
        Backup,
        Compact,
        DeleteRecords,
        DescribeAtRest,
        DescribeTopic,
        EnforceRetention,
        Flush,
        Topics,
    )

T = TypeVar("T")
A = TypeVar("A")


class Store(Handle):
    """One directory, open.  Made by ``Store.open``.

    ``snapshot``: the content of ``SNAPSHOT``, if the directory is one.  The store is the ``log.host.Host`` of its logs.  For the
    layers above it is the ``Storage`` and the ``Metadata`` of a single node.
    """

    node_id = 0
    default_partition_count = default_replication_factor = 1

    def __init__(
        self,
        path: str,
        *,
        mode: Mode,
        durability: Durability,
        batch_size: int,
        linger_ms: int,
        io: IO,
        clock: Callable[[], int] | None,
        retention_check_interval_ms: int,
        cleaner_bytes_per_second: int,
        scrub_bytes_per_second: int,
        replicated: bool,
    ) -> None:
        self.path, self.mode, self.linger_ms = path, mode, linger_ms
        self.cleaner_configs = cleaner.configs(cleaner_bytes_per_second)
        if clock is None and type(io).clock_ms is not IO.clock_ms:
            clock = io.clock_ms  # another object's clock gives records their time, too
        self.snapshot: SnapshotFile | None = None
        self.clock_ms: Callable[[], int] = clock or io.clock_ms  # time of day, in ms since 1970
        self._writer: Writer | None = None
        self.wake_writer: Callable[[Log], None] = _nothing  # these two are the flusher's, once there is one
        self.wake_syncer: Callable[[Log], None] = _nothing
        share = partial(StoreState, path, mode, durability=durability, batch_size=batch_size, io=io, clock=clock)
        if mode == "r":
            catalogue, self.snapshot = opening.open_for_reading(io, path)
            self._state = share(catalogue)
            tails = TailLogs(self._state, self, frozen=self.snapshot is not None)
            self.open_log, self.own_log = tails.open_log, tails.own_log
        else:
            opened = opening.open_for_writing(io, path, replicated=replicated)
            try:
                self._state = share(opened.catalogue, lock_file=opened.lock_file, clean=opened.clean)
                self._writer = Writer(
                    self._state,
                    self,
                    opened,
                    linger_ms=linger_ms,
                    retention_check_interval_ms=retention_check_interval_ms,
                    cleaner_bytes_per_second=cleaner_bytes_per_second,
                    scrub_bytes_per_second=scrub_bytes_per_second,
                    replicated=replicated,
                )
                self.wake_writer, self.wake_syncer = self._writer.flusher.wake_writer, self._writer.flusher.wake_syncer
                self.open_log = self._writer.logs.open_log
            except BaseException:  # also a Ctrl-C
                opened.close()
                raise
        self.transaction_lock, self.open_logs = self._state.transaction_lock, self._state.logs
        self.check_open, self.check_writable, self.topic = self._state.check_open, self._state.check_writable, self._state.topic
        if self._writer is not None:
            try:
                self._writer.begin()
            except BaseException:
                self._writer.release()
                raise

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        mode: Mode = "a",
        durability: Durability = "interval",
        batch_size: int = 16_384,
        linger_ms: int = 5,
        io: IO | None = None,
        clock: Callable[[], int] | None = None,
        retention_check_interval_ms: int = retention.CHECK_INTERVAL_MS,
        cleaner_bytes_per_second: int = CLEANER_BYTES_PER_SECOND,
        scrub_bytes_per_second: int = 0,
        replicated: bool = False,
    ) -> "Store":
        """Open the directory ``path``; see ``logdb.open`` for the arguments and errors.

        Args:
            scrub_bytes_per_second: Limit of the reads that look for damage (``store.scrub``); 0: there are none.
            replicated: Its logs are replicas: a controller gives the leader epochs, and an unclean opening begins none.
        """
        if mode not in ("a", "r"):
            raise ValueError(must_be("mode", mode, "'a' (append and read) or 'r' (read beside a writer)"))
        if durability not in DURABILITY_LEVELS:
            raise ValueError(must_be("durability", durability, one_of(DURABILITY_LEVELS)))
        if not 61 + 40 <= batch_size <= 1 << 20:
            raise ValueError(must_be("batch_size", batch_size, "101 to 1048576 bytes"))
        if not 0 <= linger_ms <= 60_000:
            raise ValueError(must_be("linger_ms", linger_ms, "0 to 60000"))
        if retention_check_interval_ms < 1:
            raise ValueError(must_be("retention_check_interval_ms", retention_check_interval_ms, "a whole number, 1 or more"))
        if cleaner_bytes_per_second < 1:
            raise ValueError(must_be("cleaner_bytes_per_second", cleaner_bytes_per_second, "a whole number, 1 or more"))
        return Store(
            os.path.abspath(path),
            mode=mode,
            durability=durability,
            batch_size=batch_size,
            linger_ms=linger_ms,
            io=io or IO(),
            clock=clock,
            retention_check_interval_ms=retention_check_interval_ms,
            cleaner_bytes_per_second=cleaner_bytes_per_second,
            scrub_bytes_per_second=scrub_bytes_per_second,
            replicated=replicated,
        )

    # ------------------------------------------------------------ identity and state

    @property
    def io(self) -> IO:
        return self._state.io

    @property
    def clock(self) -> Callable[[], int] | None:
        """The injected clock; None: the machine's, which timestamps read coarsely."""
        return self._state.clock

    @property
    def was_closed(self) -> bool:
        """Whether the last writer had closed the directory, so that no log needs recovery."""
        return self._state.clean

    @property
    def database_id(self) -> str:
        """The UUID of the database; its snapshots and backups have it, too."""
        return self.catalogue.database_id

    @property
    def security(self) -> SecurityFile:
        """Users, tokens, ACLs and quotas."""
        return SecurityFile(self._state.io, self._state.path)

    @property
    def catalogue(self) -> Catalogue:
        return self._state.catalogue

    @property
    def closed(self) -> bool:
        return self._state.closed

    @property
    def writer(self) -> Writer:
        """The writing half; raises ReadOnly with mode "r"."""
        if self._writer is None:
            self._state.check_open()
            raise self._state.reads_only()
        return self._writer

    # ------------------------------------------------------------ topics and logs

    def topic_names(self) -> tuple[str, ...]:
        """Names of all topics, also of internal ones, at a fraction of what ``topics`` costs."""
        self._state.check_open()
        return self._state.catalogue.topic_names()

    def submit(self, request: "Request[A]", **caller: Any) -> A:
        """Carry a request out; see ``store.protocols``."""
        answer: A = _STEPS[request.method](self, request, **caller)
        return answer

    def _topics(self, request: "Topics") -> list[TopicInfo]:
        return topics.list_topics(self._state, internal=request.internal)

    def _describe_at_rest(self, request: "DescribeAtRest") -> TopicInfo:
        if self._state.mode == "a" and (self._state.clean or self.writer.recovery.done):
            return topics.describe_at_rest(self._state, request.name)
        return self._describe_topic(request)

    def _describe_topic(self, request: "DescribeTopic | DescribeAtRest") -> TopicInfo:
        entry = self.topic(request.name)
        logs = [self.open_log(entry.name, partition) for partition in range(entry.partition_count)]
        return topics.describe(self._state, entry, logs, [self.clean_offset(entry.name, log.partition) for log in logs])

    def _create_topic(self, request: "CreateTopic", go_on: Callable[[], None] = always) -> TopicInfo:
        count = self._checked_count(request)
        return self.writer.create(request.name, count, request.config or {}, if_not_exists=request.if_not_exists, go_on=go_on)

    def _checked_count(self, request: "CreateTopic | CheckNewTopic") -> int:
        """The number of partitions of a new topic; raises unless each has one replica, this directory."""
        if request.replication_factor not in (None, BY_DEFAULT, 1):
            raise InvalidReplicationFactor(request.replication_factor, 1)
        if request.assignments is not None:
            self._check_nodes(request.name, 0, request.assignments)
        return topics.new_count(request.name, request.partitions, request.assignments, self.default_partition_count)

    def _check_nodes(self, name: str, known: int, assignments: Sequence[Sequence[int]]) -> None:
        """Raise InvalidReassignment unless this node is named for each partition that is added to the ``known`` ones."""
        for number, nodes in enumerate(assignments, known):
            if tuple(nodes) != (self.node_id,):
                raise InvalidReassignment(name, number, tuple(nodes), self._one_node)

    def _check_new_topic(self, request: "CheckNewTopic") -> TopicInfo:
        return self.writer.check_new(request.name, self._checked_count(request), request.config or {})

    def _check_configs(self, request: "CheckTopicConfigs") -> None:
        self.writer.check_configs(request.name, request.config)

    def _check_partitions(self, request: "CheckPartitions") -> None:
        self._check_count(request.name, request.partitions, request.assignments)

    def _check_count(self, name: str, count: int, assignments: "Assignments | None") -> None:
        """Raise unless a topic may have so many partitions, the new ones on this node."""
        known = self.topic(name).partition_count
        topics.check_partition_count(name, count, known)
        if assignments is not None:
            topics.check_assignment_count(name, count - known, known, assignments)
            self._check_nodes(name, known, assignments)

    @property
    def _one_node(self) -> str:
        return f"there is one node, {self.node_id}"

    def _alter_topic(self, request: "AlterTopic", go_on: Callable[[], None] = always) -> TopicInfo:
        name, count = request.name, request.partitions
        if request.assignments is not None:
            self._check_count(name, self.topic(name).partition_count if count is None else count, request.assignments)
        return self.writer.alter(name, request.config or {}, count, go_on)

    def _alter_configs(self, request: "AlterConfigs") -> None:
        name = request.name
        assert name is not None  # those of the node are the broker's
        if request.validate_only:
            self.writer.check_configs(name, request.config, replace=request.replace)
        else:
            self.writer.alter(name, request.config, None, replace=request.replace)

    def _delete_topic(self, request: "DeleteTopic") -> None:
        self.writer.delete(request.name)

    def listen(self, function: Callable[[TopicEvent], None]) -> None:
        """Call ``function`` with each change of topics by this store, in order, once it is durable; it must be quick."""
        self._state.listen(function)

    def _flush(self, request: "Flush") -> None:
        """``Log.flush`` of every log that is open; nothing with mode "r"."""
        self._state.check_open()
        self._state.check_synced()
        if self._writer is not None:
            self._writer.flush_logs(request.sync)

    def checkpoint(self, logs: Sequence[Log]) -> None:
        """Seal rolled segments, and commit them and the recovery points to the catalogue; see ``Checkpoints``."""
        self.writer.checkpoint(logs)

    def _delete_records(self, request: "DeleteRecords") -> int:
        self._state.check_writable()
        return self.writer.retention.delete_records(request.topic, request.partition, request.before_offset)

    def truncate_to(self, topic: str, partition: int, offset: int, *, high_watermark: int = 0) -> int:
        """Truncate a log, durably: a follower's, where it diverges from its leader's.

        Producers, transactions, leader epochs and sidecars go back with it.

        Args:
            offset: The log ends with the last batch below it.
            high_watermark: Records below it are kept.  The log's own high watermark is no bound: after an unclean election the
                leader's log may end below it.  It moves back with the log end.

        Returns:
            The new log end offset: ``offset``, or the base offset of the batch that holds it.  If the log start offset lies in
            that batch, the log is empty.

        Raises:
            OffsetOutOfRange: It is before the log start or ``high_watermark``, or past the log end; or its batch begins below
                ``high_watermark``.
            CorruptionError: A batch below it is damaged.
            DiskFull, WriteFailed: The log is as it was; or it is read-only, and the next call finishes the truncation.
            SyncFailed, Closed, ReadOnly: The database takes no writes.
        """
        self._state.check_writable()
        return self.writer.truncations.truncate_to(self.open_log(topic, partition), offset, high_watermark)

    def begin_anew(self, topic: str, partition: int, offset: int) -> None:
        """Empty a log, and let it begin at an offset, durably: a follower's, whose leader has deleted the records that it needs next.

        The segments of a damaged log are set aside, under names that end in ``.damaged``, until ``remove_damaged``.

        Raises:
            ValueError: The offset is not in [0, 2^63 - 1].
            DiskFull, WriteFailed, SyncFailed, Closed, ReadOnly: as ``truncate_to``.

        Source: Kafka's truncateFullyAndStartAt.
        """
        if not 0 <= operator.index(offset) <= OFFSET_MAX:
            raise ValueError(must_be("offset", offset, f"0 to {OFFSET_MAX}"))
        self._state.check_writable()
        self.writer.truncations.begin_anew(self.open_log(topic, partition), offset)

    def remove_damaged(self, topic: str, partition: int) -> None:
        """Remove the segments that were set aside: a follower's, once it has their records again."""
        self._state.check_writable()
        for path in replacement_intent.damaged_in(self.io, self.partition_path(topic, partition)):
            remove(self.io, path)

    def _enforce_retention(self, request: "EnforceRetention") -> list[ExpiredRecords]:
        topic, config = request.topic, request.config
        if topic is not None:
            self.topic(topic)
        if config is not None and (topic is None or not request.dry_run):
            reason = "config= needs dry_run=True and a topic: it only shows what these configs would delete"
            raise InvalidConfig("dry_run", request.dry_run, reason)
        if request.dry_run:
            self._state.check_open()
            in_use = self._state.logs.get if self._writer is not None else lambda _name: None
            return retention.plan(self._limited(topic, config), self._state.catalogue, self.open_log, in_use, self.clock_ms())
        self._state.check_writable()
        return self.writer.retention.enforce(topic)

    def _limited(self, topic: str | None, config: Mapping[str, object] | None) -> list[TopicEntry]:
        """The topics with a limit, or one of them; with ``config``, if it has one after that change."""
        if topic is None or config is None:
            return list(retention.limited(self._state.catalogue, topic))
        entry = self.topic(topic)
        changed = entry._replace(config=topics.changed_config(topic, entry.config, entry.partition_count, config))
        return [changed] if retention.is_limited(changed.config) else []

    def _compact(self, request: "Compact") -> None:
        self._state.check_writable()
        count = self.topic(request.topic).partition_count
        for number in range(count) if request.partition is None else (request.partition,):
            self.writer.cleaner.compact(request.topic, number)

    def make_sidecars(self, topic: str, partition: int, progress: Progress | None = None) -> MadeSidecars:
        """Create the sidecars that a partition lacks; see ``Database.make_parquet``."""
        self._state.check_writable()
        return self.writer.sidecars.make(topic, partition, progress)

    def update_table(self, topic: str) -> UpdatedTable:
        """Bring the Iceberg table of a topic up to date; see ``Database.update_iceberg``."""
        self._state.check_writable()
        return self.writer.tables.update(topic)

    def partition_path(self, topic: str, partition: int) -> str:
        """The directory of a partition."""
        return self._state.partition_path(topic, partition)

    def has_segments(self, topic: str, partition: int) -> bool:
        """Whether a log has a file of records; it is not opened for that."""
        path = self.partition_path(topic, partition)
        return exists(self.io, path) and any(name.endswith(".log") for name in names_in(self.io, path))

    def logs_with_producers(self) -> list[TopicPartition]:
        """The logs that may have a transaction open."""
        return self.writer.entries.with_producers()

    def complete_transactions_by(self, complete: Callable[[], None], has_partial_markers: Callable[[], bool]) -> None:
        self._state.complete_transactions, self._state.has_partial_markers = complete, has_partial_markers

    def complete_transactions(self) -> None:
        """End dangling transactions, if a broker runs on this store."""
        if self._state.complete_transactions is not None:
            self._state.complete_transactions()

    def has_partial_markers(self) -> bool:
        """Whether a transaction has only some of its markers; while ``still``, that stays so."""
        return self._state.has_partial_markers()

    def clean_offset(self, topic: str, partition: int) -> int:
        """The end of the last compaction of a log, by the catalogue."""
        entry = self.catalogue.log(topic, partition)
        return 0 if entry is None else entry.clean_offset

    def change_number(self) -> int:
        """A number that grows with every change of the catalogue."""
        return self.catalogue.number()

    @property
    def controller_id(self) -> int:
        return self.node_id

    def _describe_quorum(self, _: "DescribeQuorum") -> QuorumInfo:
        end = self.change_number()
        return QuorumInfo(self.node_id, 0, end, (QuorumVoter(self.node_id, end=end),))

    def brokers(self) -> tuple[BrokerInfo, ...]:
        return (BrokerInfo(self.node_id, {}),)

    def partition_state(self, topic: str, partition: int) -> PartitionState:
        """A single node leads each partition in the epoch of its log, and has the only replica."""
        return PartitionState(self.node_id, self.open_log(topic, partition).leader_epoch, (self.node_id,), (self.node_id,))

    def _reassign(self, request: "Reassign") -> dict[TopicPartition, LogdbError | None]:
        """Each partition stays on the single node: another choice of replicas is refused."""
        unknown = self._unknown(request.targets)
        return {
            where: unknown.get(where) or self._not_reassigned(where, nodes, may_change_count=request.may_change_count)
            for where, nodes in request.targets.items()
        }

    def _not_reassigned(self, where: TopicPartition, nodes: Sequence[int] | None, *, may_change_count: bool) -> LogdbError | None:
        if nodes is None:
            return NoReassignment(*where)
        if tuple(nodes) == (self.node_id,):
            return None
        kind = InvalidReassignment if may_change_count or len(nodes) == 1 else ReplicaCountChanged
        return kind(*where, tuple(nodes), self._one_node)

    def _elect_leaders(self, request: "ElectLeaders") -> dict[TopicPartition, LogdbError | None]:
        """The single node leads each partition."""
        wanted = request.partitions or ()
        unknown = self._unknown(wanted)
        return {where: unknown.get(where) or ElectionNotNeeded(*where, self.node_id) for where in wanted}

    def _unknown(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogdbError]:
        """Those that are not there; names of other topics are not told."""
        names = self.topic_names()
        counts = {name: self.topic(name).partition_count for name in {where.topic for where in partitions}.intersection(names)}
        return {
            where: UnknownPartition(*where, counts[where.topic]) if where.topic in counts else UnknownTopic(where.topic)
            for where in partitions
            if not 0 <= where.partition < counts.get(where.topic, 0)
        }

    reassignment_bytes_per_s = None

    def limit_reassignments(self, bytes_per_s: int | None) -> None:
        """Nothing to do: no replica is ever added to a single node's."""

    def _backup(self, request: "Backup") -> Copied:
        from logdb.store.copy.backup import backup  # few programs need it

        return backup(self, request.path, request.base)

    def take_producer_ids(self, count: int) -> range:
        """A block of unused producer ids, reserved durably.

        It begins at the time of day if the catalogue has no larger id: the catalogue may be rebuilt, or a restored
        snapshot's, while the logs have records of earlier producers.
        """
        self._state.check_writable()
        return self.writer.take_producer_ids(count)

    # ------------------------------------------------------------ the host of its logs (log.host)

    def end_fsync_only(self, log: Log) -> None:
        self._note(log, strict=False)

    def note_producers(self, log: Log, snapshot_offset: int) -> None:
        self._note(log, producers_offset=snapshot_offset)

    def _note(self, log: ReadableLog, **fields: bool | int) -> None:
        try:
            self.writer.note(log, **fields)
        except UnknownTopic:  # it was deleted
            raise self.refusal(log) from None

    @property
    def reserve(self) -> Reserve:
        return self.writer.reserve

    @property
    def preallocation(self) -> Budget:
        return self.writer.preallocation

    def refusal(self, log: ReadableLog) -> LogdbError:
        return self._state.refusal(log)

    # ------------------------------------------------------------ standing still (store.frozen)

    @contextlib.contextmanager
    def still(self, capture: Callable[[], T]) -> Iterator[T]:
        """Run ``capture`` while no transaction's marker is written, and yield its result.

        Until the block ends no file is removed or replaced, and no topic is created or deleted; rolled segments are
        sealed.  Appends continue.

        Raises:
            DiskFull, WriteFailed, SyncFailed: A rolled segment could not be sealed.
        """
        state = self._state
        with contextlib.ExitStack() as locks:
            with self.transaction_lock.alone():
                locks.enter_context(state.topics_lock)
                locks.enter_context(state.checkpoint_lock)
                state.check_writable()
                self.writer.finish_interrupted()
                found = capture()
            self.writer.checkpoints.checkpoint_locked([log for log in state.logs.values() if log.take_sealing()])
            yield found

    def check_recovered(self) -> None:
        """Raise unless a directory that was opened for reading has a writer, or was closed cleanly.

        Raises:
            ReadOnly: A crash left it, and only an opening for writing finds where its logs end; or its writer is a node of a cluster.
        """
        self._state.check_open()
        path = self._state.file("LOCK")
        if self.snapshot is not None or lock.read_state(self.io, path).clean:
            return
        if (node := cluster_file.load(self.io, self.path)) is not None:
            raise ReadOnly(f"{self.path} is that of node {node.node} of the cluster {node.cluster}: back up through a server, by its URL")
        if lock.writer_alive(self.io, path) is False:
            raise ReadOnly(f"{self.path} was not closed cleanly: open it for writing once, which recovers it")

    def check_unchanging(self, since: int | None = None) -> int:
        """Raise unless a directory that was opened for reading stays unchanged; returns the sequence number of its ``LOCK``.

        Args:
            since: That of an earlier call: no process may have opened it for writing since.

        Raises:
            ReadOnly: Another process writes to it, or it was not closed cleanly.
        """
        self._state.check_open()
        if self.snapshot is not None:
            return 0
        path = self._state.file("LOCK")
        left = lock.read_state(self.io, path)
        if lock.writer_alive(self.io, path) or not left.clean or since not in (None, left.sequence):
            raise ReadOnly(
                f"{self.path} is open for writing, or was not closed cleanly: only its writer can freeze it (db.snapshot); "
                "logdb backup works beside the writer"
            )
        return left.sequence

    # ------------------------------------------------------------ closing

    def close(self) -> None:
        """Write, sync and close everything; a second call does nothing.

        Raises:
            CloseIncomplete: Some records could not be written; it says how many.
        """
        if self._state.is_forked:
            self._state.end()
            return
        if self._writer is not None:
            self._writer.stop()
        with self._state.changes_lock, self._state.topics_lock:
            if self.closed:
                return
            failures = self._abandon() if self._writer is None else self._writer.close()
            self._state.end()
        for log in list(self._state.logs.values()):  # the close woke its waiters, perhaps before the log was marked closed
            log.wake()
        if failures:
            raise CloseIncomplete(self.path, sum(count for count, _ in failures), failures[0][1])

    def _abandon(self) -> list[tuple[int, str]]:
        """Release the logs of a reader; returns no failures."""
        for log in self._state.logs.values():
            log.abandon()
        self._state.catalogue.close()
        return []


def _nothing(_log: Log) -> None:
    """A reader has no flusher."""


_STEPS: Mapping[str, Callable[..., Any]] = {
    "topics": Store._topics,
    "describe_topic": Store._describe_topic,
    "describe_at_rest": Store._describe_at_rest,
    "delete_records": Store._delete_records,
    "enforce_retention": Store._enforce_retention,
    "compact": Store._compact,
    "flush": Store._flush,
    "reports": lambda store, _: tuple(store._state.reports),
    "backup": Store._backup,
    "create_topic": Store._create_topic,
    "check_new_topic": Store._check_new_topic,
    "alter_topic": Store._alter_topic,
    "check_partitions": Store._check_partitions,
    "check_topic_configs": Store._check_configs,
    "alter_configs": Store._alter_configs,
    "delete_topic": Store._delete_topic,
    "describe_quorum": Store._describe_quorum,
    "reassign": Store._reassign,
    "elect_leaders": Store._elect_leaders,
}
"""What carries a request out."""
