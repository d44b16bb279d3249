"""A sink task: read as a member of the group ``connect-<name>``, convert, transform, put, commit what the task says is stored.

A task is a static member of its group, ``connect-<name>-<task>``: after a crash its successor takes its place at once, and the
former task, if it still runs, is fenced: it can commit nothing.

A sink may keep a note about its target beside the offsets, such as the length of its file.  So the position of a partition is
committed before its first record is put; and each commit concerns all partitions of the task, since the note concerns them all.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from logdb import AnyRecord, LogdbError, OffsetAndMetadata, TopicPartition
from logdb.errors import FencedInstance, IllegalGeneration, RebalanceInProgress, UnknownMember, UnknownTopic
from logdb_connect.client import Client, Consumer
from logdb_connect.data import SinkRecord, SinkRecords
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties, SinkTask
from logdb_connect.runtime.chain import SinkChain
from logdb_connect.runtime.tasks import Backoff, Report, Target, TaskId, TaskRunner, quietly

logger = logging.getLogger(__name__)

_POLL_MS = 250
_REPLACED = (IllegalGeneration, UnknownMember, RebalanceInProgress)


def instance_id(group_id: str, task_id: TaskId) -> str:
    """Of a task, as a static member of its group."""
    return f"{group_id}-{task_id.task}"


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
        self._instance = instance_id(settings.group_id, task_id)
        self._task: SinkTask | None = None
        self._consumer: Consumer | None = None
        self._chain: SinkChain | None = None
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}  # behind the last record that put has taken
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._seeks: dict[TopicPartition, int] = {}
        self._sought: dict[TopicPartition, int] = {}  # where no record has come from since
        self._replaced = False  # the last commit came from a member of a former generation
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
                if isinstance(error, FencedInstance) or not (error.retriable or isinstance(error, UnknownTopic)):
                    raise  # a topic that was deleted is left out with the next subscription
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
                self._commit()
                self._plan_commit()

    def _new_consumer(self) -> Consumer:
        settings = self._settings
        consumer = self._client.consumer(
            settings.consumer,
            group_id=settings.group_id,
            group_instance_id=self._instance,
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
                self._task, self._consumer = task, consumer
                if self._whole:
                    quietly(self._commit, f"task {self.id}: last commit")
                self._task = self._consumer = None
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
        if consumer is not None:
            quietly(lambda: self._client.leave(consumer, self._settings.group_id, self._instance), f"task {self.id}: close")

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
        self._commit()
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
            self._sought.pop(partition, None)
        self._opened -= set(partitions)
        self._task.close(list(partitions))

    def _apply_seeks(self, consumer: Consumer) -> None:
        for partition, offset in self._seeks.items():
            if partition in self._opened:
                consumer.seek(partition, offset)
                self._positions[partition] = OffsetAndMetadata(offset)
                self._sought[partition] = offset

    def _still_wanted(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> dict[TopicPartition, Sequence[AnyRecord]]:
        """Without partitions that were sought or given up meanwhile: their records come again, from there, or to another task."""
        sought, self._seeks = self._seeks, {}
        return {at: records for at, records in polled.items() if at not in sought and at in self._opened}

    def _pause(self, consumer: Consumer) -> None:
        """Stay a member, and read nothing."""
        self.report("PAUSED")
        with contextlib.suppress(LogdbError):
            self._commit()
        while not self.is_stopping() and self.is_paused():
            try:
                consumer.pause()
                polled = consumer.poll(0)
                for partition, records in polled.items():  # of partitions that were assigned just now
                    consumer.seek(partition, records[0].offset)
            except LogdbError as error:
                if isinstance(error, FencedInstance) or not (error.retriable or isinstance(error, UnknownTopic)):
                    raise
            self.wait(0.5)
        if not self.is_stopping():
            consumer.resume()

    # ------------------------------------------------------------ records

    def _deliver(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> None:
        assert self._chain is not None
        if not (polled := self._of_same_logs(polled)):
            return
        begun = {
            partition: given[0] for partition, given in polled.items() if partition not in self._positions and partition in self._opened
        }
        if begun:
            self._positions |= {partition: OffsetAndMetadata(first.offset) for partition, first in begun.items()}
            self._commit_surely()
            if self._replaced:  # the note about the target is not stored: the records come again, after it
                self._take_back(polled, begun)
                return
        records = self._chain.records(polled)
        self._put(records)
        self.count(sink_task_sink_record_read_total=sum(map(len, polled.values())), sink_task_sink_record_send_total=len(records))
        for partition, given in polled.items():
            if partition in self._opened and partition not in self._seeks:  # sought in put: continue there
                self._positions[partition] = OffsetAndMetadata(given[-1].offset + 1, given[-1].leader_epoch)

    def _commit_surely(self) -> None:
        backoff = Backoff(self)
        while not self._commit():
            backoff.pause()

    def _take_back(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]], begun: Iterable[TopicPartition]) -> None:
        assert self._consumer is not None
        for partition, given in polled.items():
            self._consumer.seek(partition, given[0].offset)
        for partition in begun:
            self._positions.pop(partition, None)

    def _of_same_logs(self, polled: Mapping[TopicPartition, Sequence[AnyRecord]]) -> Mapping[TopicPartition, Sequence[AnyRecord]]:
        """Notice logs that begin anew, at offsets that were before: a topic was deleted and created again, or lost records.

        A sink that keeps offsets of its own would take the new records for old ones.

        Raises:
            ConnectError: The sink has stored records of the former log, up to an offset that the new one does not have.
        """
        assert self._task is not None
        anew = []
        for partition, given in polled.items():
            sought, at = self._sought.pop(partition, None), self._positions.get(partition)
            if at is None or given[0].offset >= at.offset or partition not in self._opened:
                continue
            if sought is not None:
                raise ConnectError(
                    f"{partition.topic}-{partition.partition} begins anew at offset {given[0].offset}: it was deleted and created again, "
                    f"or it lost records. The sink has stored records up to offset {sought}, and would leave the new ones out. Stop the "
                    f"connector, reset its offsets (DELETE /connectors/{self.id.connector}/offsets), then resume it."
                )
            logger.warning("task %s: %s-%d begins anew, at offset %d", self.id, *partition, given[0].offset)
            anew.append(partition)
        if anew:
            self._commit_surely()
            self._forget(anew)
            self._opened |= set(anew)
            self._task.open(anew)
        return {partition: records for partition, records in polled.items() if partition not in self._seeks}

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

    def _commit(self) -> bool:
        """Commit what the task says is stored; False: a retry may succeed."""
        task, consumer = self._task, self._consumer
        positions = {partition: at for partition, at in self._positions.items() if partition in self._opened}
        if task is None or consumer is None or not positions:
            return True
        self._replaced = False
        try:
            if self._chain is not None:
                self._chain.flush()
            stored = {partition: at for partition, at in (task.pre_commit(positions) or {}).items() if partition in self._opened}
            changed = {partition: at for partition, at in stored.items() if self._committed.get(partition) != at}
            if changed:
                _commit_known(consumer, changed)
                self._committed.update(changed)
                self.count(sink_task_offset_commit_completion_total=1)
            self.counts["sink_task_partition_count"] = len(self._opened)
        except _REPLACED as error:  # the next poll joins again
            logger.warning("task %s: offsets are committed later: %s", self.id, error)
            self._replaced = True
        except (RetriableError, LogdbError) as error:
            if isinstance(error, LogdbError) and not error.retriable:
                raise
            logger.warning("task %s: offsets are committed later: %s", self.id, error)
            return False
        return True


def _commit_known(consumer: Consumer, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commit offsets, without those of topics that were deleted."""
    while offsets:
        try:
            consumer.commit(offsets)
        except UnknownTopic as error:
            if not (kept := {partition: at for partition, at in offsets.items() if partition.topic != error.topic}) or len(kept) == len(
                offsets
            ):
                return
            offsets = kept
        else:
            return


class _Context:
    """What a sink task sees of its worker."""

    def __init__(self, runner: SinkRunner) -> None:
        self.committed, self.seek, self.wait = runner.committed, runner.seek, runner.wait
        self.report, self.is_stopping = runner.report_record, runner.is_stopping
