"""The start position of a consumer in a partition: the committed offset, or the reset policy."""

from collections.abc import Callable, Iterable

from logdb.client.consumer.config import OffsetReset
from logdb.client.consumer.fetching import Cursor
from logdb.errors import NoOffset, OffsetOutOfRange
from logdb.model import OffsetAndMetadata, TopicPartition, positions_of
from logdb.requests.session import Session


class StartPositions:
    """Gives cursors a position: the group's committed offset, or the one of ``auto_offset_reset``.

    Args:
        is_new: Whether a partition was created after the consumer subscribed.  Its records are all newer than that, so
            ``"latest"`` begins with its first one.
    """

    def __init__(self, session: Session, group_id: str | None, reset: OffsetReset, is_new: Callable[[TopicPartition], bool]) -> None:
        self._session, self._group_id, self._reset, self._is_new = session, group_id, reset, is_new

    def initialize(self, cursors: Iterable[Cursor]) -> None:
        """Set the position of cursors without one.

        Raises:
            NoOffset: One of them has no start position; the others have theirs.
        """
        unset = [cursor for cursor in cursors if not cursor.is_placed]
        committed = self.committed(cursor.partition for cursor in unset) if unset else {}
        failed: NoOffset | None = None
        for cursor in unset:
            found = committed.get(cursor.partition)
            if found is not None:
                cursor.seek(found.offset, found.leader_epoch, earned=True)
                continue
            try:
                self.reset(cursor)
            except NoOffset as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; waits for transactions with offsets that are ending."""
        if self._group_id is None:
            return {}
        return positions_of(self._session.fetch_offsets(self._group_id, partitions, require_stable=True))

    def reset(self, cursor: Cursor, out_of_range: OffsetOutOfRange | None = None) -> None:
        """Begin where ``auto_offset_reset`` says.

        Args:
            out_of_range: The error of the former position; None: there was none.

        Raises:
            NoOffset, OffsetOutOfRange: The policy is "none".
        """
        if self._reset == "none":
            raise out_of_range or NoOffset(*cursor.partition)
        earliest = self._reset == "earliest" or (out_of_range is None and self._is_new(cursor.partition))
        cursor.seek(cursor.log.start_offset if earliest else cursor.end_offset())
