"""Commits: a consumer's positions become its group's committed offsets."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from logdb.client.consumer.membership import GroupMetadata
from logdb.errors import LogdbError, UnknownTopic
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests.session import Session

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, BaseException | None], object]


class Commits:
    """Commits for one consumer.

    Args:
        metadata: Returns the consumer's present group metadata, or raises InvalidGroup without a group.
        interval_ms: Time between automatic commits; None: there are none.
    """

    def __init__(
        self, session: Session, metadata: Callable[[], GroupMetadata], interval_ms: int | None, monotonic_ms: Callable[[], int]
    ) -> None:
        self._session, self._metadata, self._interval_ms, self._monotonic_ms = session, metadata, interval_ms, monotonic_ms
        self._due_ms = monotonic_ms() + (interval_ms or 0)
        self._last: dict[TopicPartition, OffsetAndMetadata] = {}  # the offsets that the last automatic commits have committed
        self._failure = ""  # of the last automatic commit; the same failure is logged once

    def send(self, offsets: Offsets, on_commit: OnCommit | None = None) -> "Future[None]":
        """Commit; the future is done when the offsets are durable at the level of ``__consumer_offsets``.

        Raises:
            InvalidGroup: The consumer has no group.
        """
        metadata = self._metadata()
        future: Future[None]
        if offsets:
            future = self._session.commit_offsets(
                metadata.group_id,
                offsets,
                member_id=metadata.member_id,
                generation=metadata.generation,
                group_instance_id=metadata.group_instance_id,
                topic_ids=metadata.topic_ids,
            )
        else:
            future = Future()
            future.set_result(None)
        if on_commit is not None:
            future.add_done_callback(lambda done: on_commit(offsets, done.exception()))
        return future

    def send_if_due(self, positions: Callable[[], Offsets]) -> None:
        """Commit automatically if it is due; a failure is only logged."""
        if self._interval_ms is not None and self._monotonic_ms() >= self._due_ms:
            self._automatic(positions())

    def finish(self, positions: Offsets) -> None:
        """Commit automatically before these partitions are revoked; returns when that is done, or has failed."""
        if self._interval_ms is not None and (future := self._automatic(positions)) is not None:
            with contextlib.suppress(LogdbError):  # it was logged
                future.result()
        for partition in positions:
            self._last.pop(partition, None)

    def _automatic(self, positions: Offsets) -> "Future[None] | None":
        """Commit the offsets that have changed: an idle consumer writes nothing."""
        self._due_ms = self._monotonic_ms() + (self._interval_ms or 0)
        moved = {partition: position for partition, position in positions.items() if self._last.get(partition) != position}
        if not moved:
            return None
        try:
            return self.send(moved, self._committed)
        except LogdbError as error:
            self._committed(moved, error)
            return None

    def _committed(self, offsets: Offsets, error: BaseException | None) -> None:
        if error is None:
            self._last.update(offsets)
            self._failure = ""
            return
        if isinstance(error, UnknownTopic):  # the offsets of the other topics were committed
            self._last.update({partition: offset for partition, offset in offsets.items() if partition.topic != error.topic})
        if str(error) != self._failure:
            logger.warning("an automatic commit of %d partitions failed: %s", len(offsets), error)
        self._failure = str(error)
