"""The partitions that a consumer reads now, and the listeners of its rebalances.  ``membership`` gets them from the group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from logdb.client.consumer.commits import Commits
from logdb.client.consumer.config import ConsumerConfig
from logdb.client.consumer.fetch_collector import FetchCollector
from logdb.client.consumer.fetching import Cursor, Fetcher
from logdb.client.consumer.start_positions import StartPositions
from logdb.client.consumer.subscription import Subscription
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests.session import Session

Listener = Callable[[list[TopicPartition]], None]


class Listeners(NamedTuple):
    """Callbacks of ``poll`` when a rebalance changes the assignment; Kafka's ConsumerRebalanceListener.

    Attributes:
        on_assigned: The partitions are read from now on; the callback may seek.
        on_revoked: Another member will get them; the callback may still commit.  ``close`` calls it, too.
        on_lost: Another member already has them; None: ``on_revoked`` is called.
    """

    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None


class Assignment:
    """The partitions that a consumer reads; the ``Share`` of its membership.

    Attributes:
        subscription: None after ``assign``, and when nothing is read.
        start_positions: Sets the positions of cursors.
        listeners: Called with the partitions that a rebalance gives and takes.
        to_commit: The offsets that automatic commits commit when partitions are revoked; None: none.
    """

    def __init__(self, session: Session, config: ConsumerConfig, fetcher: Fetcher, collector: FetchCollector, commits: Commits) -> None:
        self._session, self._config, self._fetcher, self._collector, self._commits = session, config, fetcher, collector, commits
        self.start_positions = StartPositions(session, config.group_id, config.auto_offset_reset, self.is_new)
        self.subscription: Subscription | None = None
        self.listeners = Listeners()
        self._recreated: set[TopicPartition] = set()
        self.to_commit: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]] | None = collector.positions

    def topics(self) -> tuple[str, ...]:
        """The topics subscribed to."""
        return () if self.subscription is None else tuple(self.subscription.counts)

    def owned(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return sorted(self._fetcher.cursors)

    def is_new(self, partition: TopicPartition) -> bool:
        """Whether the partition was created after the subscription or assignment."""
        return partition in self._recreated or (self.subscription is not None and self.subscription.is_new(partition))

    def set(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions; those that stay keep their positions, unless their topic was created again."""
        cursors = {partition: self._cursor(partition) for partition in partitions}
        self._collector.take_back()
        self._fetcher.set(cursors)
        if self._config.group_id is None and self._config.auto_offset_reset == "latest":
            self.start_positions.initialize(cursors.values())  # "latest" means now, not the first poll

    def _cursor(self, partition: TopicPartition) -> Cursor:
        known, log = self._fetcher.cursors.get(partition), self._session.log(*partition)
        if known is not None and known.log == log:
            return known
        if known is not None and known.log.topic_id not in {"", log.topic_id}:
            self._recreated.add(partition)  # all of its records are newer than the assignment
        return Cursor(partition, log, self._config.isolation_level, self.start_positions.reset)

    def renew(self) -> None:
        """A log was deleted: read the one that has its name now.

        Raises:
            UnknownTopic, UnknownPartition, Closed: There is no such log.
        """
        self.set(list(self._fetcher.cursors))
        self.start_positions.initialize(self._fetcher.cursors.values())

    def take_on(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions too, and call the listener."""
        self.set([*self._fetcher.cursors, *partitions])
        if self.listeners.on_assigned is not None:
            self.listeners.on_assigned(list(partitions))

    def give_up(self, partitions: Sequence[TopicPartition], *, lost: bool = False) -> None:
        """Commit these partitions if automatic commits are on, call the listener, and stop reading them."""
        gone = set(partitions)
        if self.to_commit is not None and not lost:
            self._commits.finish({partition: at for partition, at in self.to_commit().items() if partition in gone})
        listener = self.listeners.on_revoked
        if lost and self.listeners.on_lost is not None:
            listener = self.listeners.on_lost
        try:
            if listener is not None:
                listener(list(partitions))
        finally:
            self.set(partition for partition in list(self._fetcher.cursors) if partition not in gone)
