"""Replacing segments of an open store: the commit in the catalogue, the switch in the open log, and completion after an error.

``replacement_intent`` has the steps on files.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from logdb.disk import sync_directory
from logdb.errors import DiskFull, LogdbError, SyncFailed, UnknownTopic, WriteFailed, without_frames
from logdb.log.log import Log
from logdb.log.sealed import sealed_segment, sidecar_paths
from logdb.meta import Intent, LogEntry, SegmentEntry, WriteTransaction
from logdb.model import TopicPartition
from logdb.segment.segment import Segment
from logdb.store import replacement_intent
from logdb.store.entries import Entries
from logdb.store.state import StoreState

if TYPE_CHECKING:
    from logdb.log.cleaner import Replacement


class SegmentReplacer:
    """Replaces segments of a store that is open for writing; under its checkpoint lock."""

    def __init__(self, state: StoreState, entries: Entries, log: Callable[[str, int], Log]) -> None:
        """``log``: opens a partition's log."""
        self._state, self._io, self._entries, self._log = state, state.io, entries, log

    def replace(self, log: Log, replacement: "Replacement") -> bool:
        """Replace segments with compacted ones; False if they are no longer the log's."""
        with self._state.checkpoint_lock:
            try:
                return self._replace(log, replacement)
            except LogdbError:
                raise
            except BaseException:  # from outside (Ctrl-C): it may be committed
                self._settle(log, replacement)
                raise

    def _replace(self, log: Log, replacement: "Replacement") -> bool:
        try:
            self._state.check_writable()
            if not self._state.is_current(log):
                raise UnknownTopic(log.topic)  # deleted meanwhile
            if not set(replacement.old) <= set(log.segments):
                replacement.discard()
                return False
            sync_directory(self._io, log.directory)
            topic_id, sidecars = self._state.topic(log.topic).topic_id, self._sidecars(log, replacement)
            intent = replacement_intent.intent_of(self._io, log.topic, topic_id, log.partition, replacement, sidecars)
            made = replacement_intent.entries_of(log.topic, log.partition, replacement)
            number = self._commit(log, replacement.old, made, intent)
        except SyncFailed:
            raise  # the intent may be committed: then the next opening finishes it
        except LogdbError:
            replacement.discard()
            raise
        self._rename(log, replacement.old, made, intent)
        self.finish(number, intent)
        return True

    def _settle(self, log: Log, replacement: "Replacement") -> None:
        """After an exception from outside: show committed segments to readers, or discard them if they were not committed."""
        if not set(replacement.old) <= set(log.segments):
            return  # readers have the new ones; ``finish_of`` does the rest
        committed = [intent for _, intent in self._state.catalogue.intents() if _is_compaction_of(log, intent)]  # earlier ones are finished
        if not committed:
            replacement.discard()
            return
        bases = {segment.base_offset for segment in replacement.new}
        made = [entry for entry in self._state.catalogue.segments(log.topic, log.partition) if entry.base_offset in bases]
        with contextlib.suppress(DiskFull, WriteFailed):  # of renaming: ``finish_of`` tries again
            self._rename(log, replacement.old, made, committed[0])

    def _sidecars(self, log: Log, replacement: "Replacement") -> list[str]:
        """The sidecar files of the replaced segments."""
        bases = {segment.base_offset for segment in replacement.old}
        named = self._state.catalogue.segments(log.topic, log.partition)
        return sidecar_paths(log.directory, [entry for entry in named if entry.base_offset in bases])

    def _commit(self, log: Log, old: Sequence[Segment], made: Sequence[SegmentEntry], intent: Intent) -> int:
        name = TopicPartition(log.topic, log.partition)

        def changed() -> list[LogEntry]:
            entry = self._entries.get(name)
            return [entry._replace(generation=entry.generation + 1)]

        def commit(txn: WriteTransaction) -> int:
            for segment in old:
                txn.delete_segment(*name, segment.base_offset)
            txn.put_segments(made)
            return txn.add_intent(intent)

        return self._entries.change(changed, commit)

    def finish_of(self, log: Log) -> None:
        """Finish the log's replacements that an error interrupted."""
        with self._state.checkpoint_lock:
            self._state.check_writable()
            self._finish_all(lambda intent: _is_compaction_of(log, intent))

    def finish_locked(self) -> None:
        """Finish those of all logs; the caller holds the checkpoint lock."""
        self._finish_all(lambda intent: intent.kind == replacement_intent.COMPACTION)

    def _finish_all(self, concerned: Callable[[Intent], bool]) -> None:
        for number, intent in self._state.catalogue.intents():
            if concerned(intent):
                log = self._log(intent.topic, intent.body["partition"])
                unnamed = {segment.base_offset: segment for segment in log.segments if segment.suffix}
                made = [entry for entry in self._state.catalogue.segments(log.topic, log.partition) if entry.base_offset in unnamed]
                if made:
                    self._rename(log, tuple(unnamed.values()), made, intent)
                self.finish(number, intent)

    def _rename(self, log: Log, old: Sequence[Segment], made: Sequence[SegmentEntry], intent: Intent) -> None:
        """Show the new segments to readers, even if a file could not be renamed."""
        failure: list[LogdbError] = []

        def make() -> list[Segment]:
            try:
                replacement_intent.rename(self._io, log.directory, replacement_intent.decode(intent))
            except (DiskFull, WriteFailed) as error:
                failure.append(without_frames(error))  # a frame has the segments that are replaced: their files would stay open
            interval = log.config.index_interval_bytes
            return [
                sealed_segment(self._io, log.directory, entry, index_interval_bytes=interval, writable=True, pending=True) for entry in made
            ]

        log.replace(old, make)
        if failure:
            raise failure.pop()

    def finish(self, number: int, intent: Intent) -> None:
        """The steps after the commit; the log may be closed."""
        directory = self._state.partition_path(intent.topic, intent.body["partition"])
        if self._state.is_of(directory, intent.body["topic_id"]):
            replacement_intent.finish(self._io, directory, intent)
        self._state.catalogue.write(lambda txn: txn.clear_intent(number))


def _is_compaction_of(log: Log, intent: Intent) -> bool:
    return intent.kind == replacement_intent.COMPACTION and replacement_intent.concerns(intent, log.topic, log.partition)
