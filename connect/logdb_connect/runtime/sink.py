"""A sink task: read as a member of the group ``connect-<name>``, convert, transform, put, commit what the task says is stored.

A task is a static member of its group, ``connect-<name>-<task>``: after a crash its successor takes its place at once, and the
former task, if it still runs, is fenced: it can commit nothing.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from logdb import AnyRecord, Consumer, LogdbError, OffsetAndMetadata, TopicPartition
from logdb.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember
from logdb_connect.client import Client
from logdb_connect.data import SinkRecord, SinkRecords
from logdb_connect.errors import RetriableError
from logdb_connect.plugin import Properties, SinkTask
from logdb_connect.runtime.chain import SinkChain
from logdb_connect.runtime.tasks import Backoff, Report, Target, TaskId, TaskRunner, quietly

logger = logging.getLogger(__name__)

_POLL_MS = 250
_REPLACED = (IllegalGeneration, UnknownMember, RebalanceInProgress)


class SinkSettings(NamedTuple):
    """What a sink task needs beside its own properties."""

    group_id: str
    subscribe: Callable[[Consumer, Callable[..., None], Callable[..., None], Callable[..., None]], None]
    consumer: Mapping[str, str]
    flush_interval_ms: int
    used_topic: Callable[[str], None]


class SinkRunner(TaskRunner):
    """Runs a ``SinkTask``."""

    def __init__(
        self,
        task_id: TaskId,
        target: Target,
        report: Report,
        *,
        make: Callable[[], SinkTask],
        properties: Properties,
        chain: Callable[[TaskRunner], SinkChain],
        client: Client,
        settings: SinkSettings,
    ) -> None:
        super().__init__(task_id, target, report)
        self._make, self._properties, self._make_chain = make, properties, chain
        self._client, self._settings = client, settings
        self._instance = f"{settings.group_id}-{task_id.task}"
        self._task: SinkTask | None = None
        self._consumer: Consumer | None = None
        self._chain: SinkChain | None = None
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}  # behind the last record that put has taken
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._seeks: dict[TopicPartition, int] = {}
        self._opened: set[TopicPartition] = set()
        self._known_topics: set[str] = set()
        self._commit_at = 0.0

    # ------------------------------------------------------------ what the task sees

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        return self._client.committed(self._settings.group_id, [partition]).get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._seeks[partition] = offset

    def report_record(self, record: SinkRecord, error: Exception) -> None:
        assert self._chain is not None
        self._chain.report(record, error, self._task)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        self._chain = self._make_chain(self)
        if self.is_paused():
            self.report("PAUSED")
        self._task = task = self._make()
        task.context = _Context(self)
        task.start(self._properties)
        self._consumer = consumer = self._new_consumer()
        self._plan_commit()
        backoff = Backoff(self)
        while not self.is_stopping():
            if self.is_paused():
                self._pause(consumer)
                continue
            self.report("RUNNING")
            try:
                polled = consumer.poll(_POLL_MS)
            except LogdbError as error:
                if isinstance(error, FencedInstance) or not error.retriable:
                    raise
                logger.warning("task %s: the database does not answer, a retry follows: %s", self.id, error)
                backoff.pause()
                continue
            backoff.reset()
            self._apply_seeks(consumer)
            if polled:
                self._deliver(self._still_wanted(polled))
            if time.monotonic() >= self._commit_at:
                if not polled:
                    self._put(SinkRecords.of(()))
                self._commit(sorted(self._opened))
                self._plan_commit()

    def _new_consumer(self) -> Consumer:
        settings = self._settings
        consumer = self._client.consumer(
            settings.consumer,
            group_id=settings.group_id,
            group_instance_id=self._instance,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            client_id=f"connector-consumer-{self.id}",
        )
        settings.subscribe(consumer, self._assigned, self._revoked, self._lost)
        return consumer

    def _close(self) -> None:
        task, consumer = self._task, self._consumer
        self._task = self._consumer = None
        if task is not None:
            if self._opened:
                opened = sorted(self._opened)
                self._task = task
                if self._whole:
                    quietly(lambda: self._commit(opened), f"task {self.id}: last commit")
                self._task = None
                quietly(lambda: task.close(opened), f"task {self.id}: close")
                self._opened.clear()
            quietly(task.stop, f"task {self.id}: stop")
        if self._chain is not None:
            quietly(self._chain.close, f"task {self.id}: close")
        self._leave(consumer)

    def _cut_off(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._leave(consumer)

    def _leave(self, consumer: Consumer | None) -> None:
        """Close the consumer, and leave the group, so that its partitions are free."""
        if consumer is None:
            return
        member_id = consumer.group_metadata().member_id
        quietly(consumer.close, f"task {self.id}: close")
        if member_id:
            with contextlib.suppress(LogdbError):  # a successor has its place
                self._client.session.leave_group(self._settings.group_id, member_id, group_instance_id=self._instance)

    # ------------------------------------------------------------ partitions

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        if self._task is None:
            return
        for partition in partitions:
            if partition.topic not in self._known_topics:
                self._known_topics.add(partition.topic)
                self._settings.used_topic(partition.topic)
        self._opened |= set(partitions)
        self._task.open(list(partitions))

    def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self._task is None or not (given_up := sorted(self._opened & set(partitions))):
            return
        self._commit(given_up)
        self._forget(given_up)

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        if self._task is not None and (lost := sorted(self._opened & set(partitions))):
            self._forget(lost)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._task is not None
        for partition in partitions:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
            self._seeks.pop(partition, None)
        self._opened -= set(partitions)
        self._task.close(list(partitions))

    def _apply_seeks(self, consumer: Consumer) -> None:
        for partition, offset in self._seeks.items():
            if partition in self._opened:
                consumer.seek(partition, offset)
                self._positions[partition] = OffsetAndMetadata(offset)

    def _still_wanted(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> dict[TopicPartition, Sequence[AnyRecord]]:
        """Without partitions that were sought meanwhile: their records come again, from there."""
        sought, self._seeks = self._seeks, {}
        return {partition: records for partition, records in polled.items() if partition not in sought}

    def _pause(self, consumer: Consumer) -> None:
        """Stay a member, and read nothing."""
        self.report("PAUSED")
        with contextlib.suppress(LogdbError):
            self._commit(sorted(self._opened))
        while not self.is_stopping() and self.is_paused():
            try:
                consumer.pause()
                polled = consumer.poll(0)
                for partition, records in polled.items():  # of partitions that were assigned just now
                    consumer.seek(partition, records[0].offset)
            except LogdbError as error:
                if isinstance(error, FencedInstance) or not error.retriable:
                    raise
            self.wait(0.5)
        if not self.is_stopping():
            consumer.resume()

    # ------------------------------------------------------------ records

    def _deliver(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> None:
        assert self._chain is not None
        if not self._note_begins(polled):
            return
        records = self._chain.records(polled)
        self._put(records)
        self.count(sink_task_sink_record_read_total=sum(map(len, polled.values())), sink_task_sink_record_send_total=len(records))
        for partition, given in polled.items():
            if partition in self._opened:
                self._positions[partition] = OffsetAndMetadata(given[-1].offset + 1, given[-1].leader_epoch)

    def _note_begins(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> bool:
        """Commit what the task notes before the first records of a partition.  Where that fails, the records are read again."""
        assert self._task is not None
        assert self._consumer is not None
        fresh = {one: records[0].offset for one, records in polled.items() if one in self._opened and one not in self._positions}
        if not fresh or not getattr(self._task, "notes_offsets", False):
            return True
        self._positions.update({partition: OffsetAndMetadata(offset) for partition, offset in fresh.items()})
        self._commit(sorted(fresh))
        if fresh.keys() <= self._committed.keys():
            return True
        for partition, records in polled.items():
            self._consumer.seek(partition, records[0].offset)
            if partition in fresh:
                del self._positions[partition]
        return False

    def _put(self, records: SinkRecords) -> None:
        """Call ``put`` until it takes the records."""
        assert self._task is not None
        backoff = Backoff(self)
        while True:
            try:
                self._task.put(records)
            except RetriableError as error:
                logger.warning("task %s: put is called again: %s", self.id, error)
                backoff.pause()
            else:
                return

    def _plan_commit(self) -> None:
        self._commit_at = time.monotonic() + self._settings.flush_interval_ms / 1000

    def _commit(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what the task says is stored."""
        task, consumer = self._task, self._consumer
        if getattr(task, "notes_offsets", False):
            partitions = sorted(self._opened)  # what it notes, such as the length of a file, is of all of them
        positions = {partition: self._positions[partition] for partition in partitions if partition in self._positions}
        if task is None or not positions:
            return
        try:
            if self._chain is not None:
                self._chain.flush()
            stored = {partition: at for partition, at in (task.pre_commit(positions) or {}).items() if partition in self._opened}
        except RetriableError as error:
            logger.warning("task %s: offsets are committed later: %s", self.id, error)
            return
        changed = {partition: at for partition, at in stored.items() if self._committed.get(partition) != at}
        if not changed or consumer is None:
            return
        try:
            consumer.commit(changed)
        except _REPLACED as error:
            logger.warning("task %s: offsets are committed later: %s", self.id, error)
        except LogdbError as error:
            if not error.retriable:
                raise
            logger.warning("task %s: offsets are committed later: %s", self.id, error)
        else:
            self._committed.update(changed)
            self.count(sink_task_offset_commit_completion_total=1)
            self.counts["sink_task_partition_count"] = len(self._opened)


class _Context:
    """What a sink task sees of its worker."""

    def __init__(self, runner: SinkRunner) -> None:
        self.committed, self.seek, self.wait = runner.committed, runner.seek, runner.wait
        self.report, self.is_stopping = runner.report_record, runner.is_stopping
