"""Moving a log's start offset.

    topic.json has the new start, synced -> the catalogue has it, and no segment below it (the commit point)
    -> their files are removed, and those of their sidecars; the next opening removes what remains

Retention and ``delete_records`` choose the offset.
"""

import contextlib
import logging
from collections.abc import Mapping

from logdb.errors import LogdbError, UnknownTopic
from logdb.log.log import Log
from logdb.log.sealed import sidecar_paths
from logdb.meta import WriteTransaction
from logdb.model import ConfigValue, TopicPartition
from logdb.segment.segment import Segment
from logdb.store import topic_file
from logdb.store.checkpoints import Checkpoints
from logdb.store.entries import Entries
from logdb.store.sidecars import remove_files
from logdb.store.state import StoreState

logger = logging.getLogger(__name__)


class LogStarts:
    """Moves the log starts of a store that is open for writing."""

    def __init__(self, state: StoreState, entries: Entries, checkpoints: Checkpoints) -> None:
        self._state, self._entries, self._checkpoints = state, entries, checkpoints

    def move(self, log: Log, start_offset: int, config: Mapping[str, ConfigValue] | None = None) -> bool:
        """Move a log's start to ``start_offset``, durably, and remove the sealed segments wholly below it.

        Args:
            config: Only if its topic still has these configs; None: with any.

        Returns:
            Whether the start was moved.
        """
        name, state = TopicPartition(log.topic, log.partition), self._state
        with state.topics_lock, state.checkpoint_lock:
            state.check_writable()
            if not state.is_current(log):
                raise UnknownTopic(log.topic)  # deleted meanwhile
            if config is not None and state.topic(log.topic).config != config:
                return False
            if start_offset > log.view.written_offset:
                return False  # truncated meanwhile
            below = [named for named in state.catalogue.segments(*name) if named.next_offset <= start_offset]
            try:
                if start_offset > log.start_offset:
                    self._commit(name, log, start_offset)
                gone = log.begin_at(max(start_offset, log.start_offset))
            except LogdbError:
                raise
            except BaseException:  # from outside (Ctrl-C): it may be committed
                log.begin_at(self._entries.get(name).start_offset)
                raise
        for segment in gone:
            with state.checkpoint_lock:
                if state.closed or not state.is_current(log) or log.start_offset < start_offset:
                    return True  # the file may now belong to another topic, or to an emptied log
                _remove(segment, start_offset)
        with state.checkpoint_lock:
            if not state.closed and state.is_current(log):
                remove_files(state.io, sidecar_paths(log.directory, below))
        return True

    def _commit(self, name: TopicPartition, log: Log, start_offset: int) -> None:
        topic, io = self._state.topic(name.topic), self._state.io
        below = [segment.base_offset for segment in log.segments[:-1] if segment.next_offset <= start_offset]

        def delete(txn: WriteTransaction) -> None:
            for base_offset in below:
                txn.delete_segment(*name, base_offset)

        try:
            topic_file.replace(io, log.directory, topic_file.describe(topic, name.partition, start_offset))
            point = log.syncs.save_active_indexes()  # producer state must not depend on deleted batches
            self._entries.change(lambda: [self._checkpoints.entry_at(log, point, grown=True)._replace(start_offset=start_offset)], delete)
            log.syncs.checkpoint_done(point, ())
        except BaseException:
            with contextlib.suppress(LogdbError):
                topic_file.replace(io, log.directory, topic_file.describe(topic, name.partition, self._entries.get(name).start_offset))
            raise


def _remove(segment: Segment, start_offset: int) -> None:
    try:
        segment.remove()
    except LogdbError as error:
        logger.warning("%s lies below the log start offset %d and could not be removed: %s", segment.path, start_offset, error)
