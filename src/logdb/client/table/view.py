"""Keeping the view of a topic current.  ``meta.views`` stores it, ``table`` gives it to applications.

A view has the result of replaying the topic's committed records into a dict: the latest value of each key, and no key whose
latest record is a tombstone, or was deleted (retention, ``delete_records``).  Each read brings it up to date first.  It is
rebuilt where reading new records would not lead to that result:

    lost        the log ends before the position, or its epoch does: records in the view were lost (KIP-320)
    compacted   compaction passed the position, longer than delete.retention.ms after the view was last current:
                a tombstone may have been deleted unread
    damaged     the view contradicts itself
    another     the topic was deleted and created again, with another id

A view that does not fit on the disk is deleted; one that was built before stays, and reads the new records when there is room.

An exception at any place, a KeyboardInterrupt too, leaves a whole view: one whose positions may not be those of its entries is
closed, and opened again with the positions that are stored with the entries.

Threading: all methods, from any thread.  One thread brings the view up to date while the others wait for it.
"""

import contextlib
import logging
import os
import shutil
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from logdb.disk import names_in, refuse_link
from logdb.errors import (
    Closed,
    DiskFull,
    LogdbError,
    LogTruncated,
    OffsetOutOfRange,
    ReadFailed,
    TopicDeleted,
    UnknownTopic,
    WriteFailed,
)
from logdb.io import IO
from logdb.log.protocols import PartitionLog
from logdb.meta.views import Entry, View, ViewDamaged, ViewPosition
from logdb.model import OFFSET_MAX, TOPIC_CONFIGS, TopicPartition
from logdb.requests.session import Session
from logdb.threads import renewed

logger = logging.getLogger(__name__)

_CHANGES_SIZE_BYTES = 16 << 20  # memory for the changes of one transaction, and for the pages of LMDB that it changes
_CHANGE_SIZE_BYTES = 500  # of a change, beside key and value
_PAGES_SIZE_BYTES = 8 << 20  # of a view whose pages a transaction does not change together
_PAGE_SIZE_BYTES = 4_096  # an entry is in a page of its own, if there are many pages
_Changes: TypeAlias = dict[bytes, tuple[bytes | None, int, int]]  # by key: value, offset and timestamp of its latest record
_LOOK_MS = 1_000  # between two checks of the partition count
_TRY_COUNT_MAX = 5


@dataclass(kw_only=True)
class _State:
    """A view and its topic.  ``positions`` are replaced, never changed, so reading them needs no lock.

    ``is_whole``: ``positions`` are those of the entries; False while both change, and for ever if an exception came in between.
    ``is_built``: it had every record once; False while it is built, or rebuilt.
    """

    topic_id: str
    view: View
    logs: list[PartitionLog]
    keeps_tombstones_ms: int | None  # None: forever
    positions: dict[int, ViewPosition]
    looked_ms: int
    is_built: bool
    is_whole: bool = True


class _TombstonesMissed(Exception):
    """Compaction may have deleted tombstones that the view has not read."""


class TopicView:
    """One topic's view, shared by its tables."""

    def __init__(
        self,
        session: Session,
        topic: str,
        *,
        open_view: Callable[[str], View],
        clean_offset: Callable[[str, int], int],
        io: IO,
        clock_ms: Callable[[], int],
        opened: "set[TopicView]",
    ) -> None:
        """Create it closed; the first use opens the view.

        Args:
            open_view: Opens the view of a topic id.
            clean_offset: Returns the offset below which a partition is compacted.
            clock_ms: Time of day, milliseconds since 1970.
            opened: The views that are open; it adds and removes itself.
        """
        self.topic = topic
        self._session, self._open_view, self._clean_offset = session, open_view, clean_offset
        self._io, self._clock_ms, self._opened = io, clock_ms, opened
        self._lock = renewed(threading.Lock())
        self._state: _State | None = None
        self._closed = False

    def current(self) -> View:
        """The view, with every record written and committed before the call.

        Raises:
            UnknownTopic: The topic was deleted.
            Closed, Forked: The database was closed, or opened by the parent process.
            CorruptionError, ReadFailed: The log cannot be read.
            DiskFull, WriteFailed: The view cannot be written.
        """
        state = self._state
        if state is None or self._is_behind(state):
            with self._lock:
                state = self._catch_up()
        return state.view

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition to read."""
        state = self._state
        return {} if state is None else {TopicPartition(self.topic, number): at.offset for number, at in state.positions.items()}

    def invalidate(self, error: ViewDamaged) -> None:
        """The caller found the view damaged: the next access reads the topic from its start."""
        with self._lock:
            if self._state is not None:
                self._recreate(self._state, error)

    def forget(self) -> None:
        """The topic was deleted: delete its view; the next access looks for a topic of that name."""
        with self._lock:
            self._drop()

    def close(self) -> None:
        """Close the view; its files stay for the next opening of the database."""
        with self._lock:
            self._closed = True
            self._close_view()

    # ------------------------------------------------------------ the topic

    def _is_behind(self, state: _State) -> bool:
        if self._io.monotonic_ms() - state.looked_ms >= _LOOK_MS or len(state.positions) != len(state.logs) or not state.is_whole:
            return True
        positions = state.positions
        try:
            for partition, log in enumerate(state.logs):
                position = positions[partition]
                if log.readable_end_offset("read_committed") != position.offset or log.start_offset > position.start_offset:
                    return True
        except (Closed, UnknownTopic):
            state.looked_ms = -_LOOK_MS
            return True
        return False

    def _looked(self) -> _State:
        """The view of the topic's present id, opened if necessary."""
        state, now_ms = self._state, self._io.monotonic_ms()
        if state is not None and state.is_whole and now_ms - state.looked_ms < _LOOK_MS:
            return state
        try:
            topic = self._session.describe_topic(self.topic)
        except UnknownTopic:
            self._drop()
            raise
        if state is not None and state.topic_id != topic.topic_id:
            self._drop()
        elif state is not None and not state.is_whole:
            self._close_view()
        state = self._state or self._open_state(topic.topic_id)
        state.logs = [self._session.log(self.topic, partition) for partition in range(topic.partition_count)]
        config = {key: topic.config.get(key, TOPIC_CONFIGS[key].default) for key in ("cleanup.policy", "delete.retention.ms")}
        state.keeps_tombstones_ms = int(config["delete.retention.ms"]) if "compact" in str(config["cleanup.policy"]) else None
        state.looked_ms = now_ms
        return state

    def _open_state(self, topic_id: str) -> _State:
        self._opened.add(self)
        view = self._open_view(topic_id)
        try:
            try:
                positions = view.positions()
            except ViewDamaged as error:
                logger.warning("%s; it is rebuilt from %s", error, self.topic)
                view.recreate()
                positions = {}
            self._state = _State(
                topic_id=topic_id,
                view=view,
                logs=[],
                keeps_tombstones_ms=None,
                positions=positions,
                looked_ms=-_LOOK_MS,
                is_built=bool(positions),
            )
        except BaseException:
            view.close()
            raise
        return self._state

    def _close_view(self) -> None:
        if self._state is not None:
            self._state.is_whole = False
            self._state.view.close()
            self._state = None

    def _drop(self) -> None:
        """The topic was deleted: delete its view.  A view that cannot be deleted is no longer used either."""
        state, self._state = self._state, None
        self._opened.discard(self)
        if state is not None:
            state.view.delete()

    def _recreate(self, state: _State, error: ViewDamaged) -> None:
        logger.warning("%s; it is rebuilt from %s", error, self.topic)
        self._change(state, state.view.recreate, {})

    def _change(self, state: _State, change: Callable[[], None], positions: dict[int, ViewPosition]) -> None:
        """Change the entries of the view, then the positions."""
        state.is_whole, state.is_built = False, state.is_built and bool(positions)
        try:
            change()
        except (DiskFull, WriteFailed):
            state.is_whole = bool(positions)  # an update or a purge: the next catch-up does it again
            raise
        state.positions = positions
        state.is_whole = True

    # ------------------------------------------------------------ catching up

    def _catch_up(self) -> _State:
        """Bring the view up to date; with ``_lock`` held."""
        if self._closed:
            raise Closed(f"the view of {self.topic} is closed, as its database is")
        for tries_left in reversed(range(_TRY_COUNT_MAX)):
            state = self._looked()
            try:
                self._advance(state, is_checked=tries_left > 0)
                break
            except DiskFull:
                if not state.is_built:
                    with contextlib.suppress(LogdbError):
                        self._drop()  # a part of a view serves nobody, and records need the room
                raise
            except ViewDamaged as error:
                self._recreate(state, error)
                if not tries_left:
                    raise
                continue
            except OffsetOutOfRange as error:
                if not tries_left:
                    raise
                if error.offset < error.start_offset:
                    continue  # the log start has moved meanwhile
                reason = str(error)
            except (Closed, TopicDeleted):
                if not tries_left:
                    raise
                state.looked_ms = -_LOOK_MS  # another topic may have its name
                continue
            except (LogTruncated, _TombstonesMissed) as error:
                if not tries_left:
                    raise
                reason = str(error)
            logger.info("the view of %s is rebuilt: %s", self.topic, reason)
            self._change(state, state.view.clear, {})
        state.is_built = True
        return state

    def _advance(self, state: _State, *, is_checked: bool) -> None:
        """Read the new records.

        Args:
            is_checked: Raise _TombstonesMissed if compaction may have deleted an unread tombstone.
        """
        now_ms, before = self._clock_ms(), dict(state.positions)
        ends = [log.readable_end_offset("read_committed") for log in state.logs]
        known_offsets = self._purge(state, now_ms)
        for partition, end in enumerate(ends):
            position, known_offset = state.positions[partition], known_offsets[partition] if is_checked else OFFSET_MAX
            if position.offset > end:
                raise LogTruncated(self.topic, partition, position.offset, position.leader_epoch, end, end)
            if position.offset < end or partition not in before or self._is_replaced(state, partition, position):
                self._read(state, partition, end, now_ms, known_offset)
            else:
                self._check_tombstones(state, partition, known_offset)
        state.positions = {partition: position._replace(caught_up_ms=now_ms) for partition, position in state.positions.items()}

    def _is_replaced(self, state: _State, partition: int, position: ViewPosition) -> bool:
        """Whether the log was cut off below the position, and has grown to it again; ``_read`` raises then."""
        return position.leader_epoch >= 0 and state.logs[partition].epoch_at(position.offset - 1) != position.leader_epoch

    def _purge(self, state: _State, now_ms: int) -> list[int]:
        """Purge entries of records that the logs no longer have; returns the offset of each partition from which tombstones matter."""
        known_offsets, moved = [], {}
        for partition, log in enumerate(state.logs):
            position, start_offset = state.positions.get(partition), log.start_offset
            if position is None:
                known_offsets.append(self._clean_offset(self.topic, partition))
                state.positions = {**state.positions, partition: ViewPosition(start_offset, -1, start_offset, now_ms)}
                continue
            known_offsets.append(position.offset)
            if start_offset > position.start_offset:
                moved[partition] = position._replace(start_offset=start_offset)
                if start_offset > position.offset:
                    moved[partition] = ViewPosition(start_offset, -1, start_offset, position.caught_up_ms)
        if moved:
            self._change(state, partial(state.view.purge, moved), {**state.positions, **moved})
        return known_offsets

    def _check_tombstones(self, state: _State, partition: int, known_offset: int) -> None:
        """Raise _TombstonesMissed if compaction passed the position so long after the view was current that it may have deleted some.

        A tombstone stays for ``delete.retention.ms`` after its first compaction (KIP-534).
        """
        kept_ms = state.keeps_tombstones_ms
        if kept_ms is None or self._clock_ms() - state.positions[partition].caught_up_ms <= kept_ms:
            return
        if self._clean_offset(self.topic, partition) > known_offset:
            raise _TombstonesMissed("compaction may have deleted tombstones that the view has not read")

    def _read(self, state: _State, partition: int, end_offset: int, now_ms: int, known_offset: int) -> None:
        """Apply the records of one partition up to ``end_offset``.

        Only the latest record of each key in a transaction costs a look into LMDB: a transaction has as many keys as memory allows.
        """
        log, begin = state.logs[partition], state.positions[partition]
        epoch = begin.leader_epoch if begin.leader_epoch >= 0 else None
        changes: _Changes = {}
        size_bytes, pages_size_bytes = 0, state.view.pages_size_bytes
        records = log.read(begin.offset, end_offset=end_offset, leader_epoch=epoch, isolation_level="read_committed")
        for record in records:
            key, value = record.key, record.value
            if key is None:
                continue
            known = changes.get(key)
            changes[key] = value, record.offset, record.timestamp_ms
            size_bytes += 0 if value is None else len(value)
            if known is None:
                size_bytes += len(key) + _CHANGE_SIZE_BYTES
            elif known[0] is not None:
                size_bytes -= len(known[0])
            if size_bytes >= _CHANGES_SIZE_BYTES or (
                pages_size_bytes + size_bytes >= _PAGES_SIZE_BYTES and size_bytes + len(changes) * _PAGE_SIZE_BYTES >= _CHANGES_SIZE_BYTES
            ):
                position = begin._replace(offset=record.offset + 1, leader_epoch=record.leader_epoch)
                self._update(state, changes, partition, position, known_offset)
                changes, size_bytes, pages_size_bytes = {}, 0, state.view.pages_size_bytes
        end_offset = records.end_offset  # another leader may know of less
        last_epoch = log.epoch_at(end_offset - 1) if end_offset else -1
        self._update(state, changes, partition, ViewPosition(end_offset, last_epoch, begin.start_offset, now_ms), known_offset)

    def _update(self, state: _State, changes: _Changes, partition: int, position: ViewPosition, known_offset: int) -> None:
        self._check_tombstones(state, partition, known_offset)  # before: the new position would hide that one is missed
        entries = {key: Entry(value, partition, offset, timestamp_ms) for key, (value, offset, timestamp_ms) in changes.items()}
        update = partial(state.view.update, entries, {partition: position}, mixed=len(state.logs) > 1)
        self._change(state, update, {**state.positions, partition: position})


class TopicViews:
    """The views of one database, by topic.

    They are stored in ``views/`` in its directory or, if this process may not write there, in a temporary directory.
    """

    def __init__(
        self, session: Session, directory: str | None, *, clean_offset: Callable[[str, int], int], io: IO, clock_ms: Callable[[], int]
    ) -> None:
        self._session, self._directory, self._clean_offset = session, directory, clean_offset
        self._io, self._clock_ms = io, clock_ms
        self._lock = renewed(threading.Lock())
        self._views: weakref.WeakValueDictionary[str, TopicView] = weakref.WeakValueDictionary()  # those of tables, and open ones
        self._opened: set[TopicView] = set()  # a view stays open when its tables are gone
        self._temporary: str | None = None
        self._closed = False
        self._owner = os.getpid()
        if directory is not None:
            self._remove_strays(directory)

    def of(self, topic: str) -> TopicView:
        """The one view of a topic; raises Closed."""
        with self._lock:
            if self._closed:
                raise Closed("the views are closed, as their database is")
            view = self._views.get(topic)
            if view is None:
                view = self._views[topic] = TopicView(
                    self._session,
                    topic,
                    open_view=self._open,
                    clean_offset=self._clean_offset,
                    io=self._io,
                    clock_ms=self._clock_ms,
                    opened=self._opened,
                )
            return view

    def forget(self, topic: str) -> None:
        """The topic was deleted: delete its view.  Its tables look for a topic of that name at their next access."""
        with self._lock:
            view = self._views.get(topic)
        if view is not None:
            try:
                view.forget()
            except LogdbError as error:  # the view is closed: the next opening of the database removes its files
                logger.warning("the files of the view of %s stay: %s", topic, error)

    def close(self) -> None:
        """Close all views; none can be opened afterwards."""
        if self._owner != os.getpid():
            return  # in a forked child: they belong to the parent
        with self._lock:
            self._closed = True
            for view in list(self._views.values()):
                try:
                    view.close()
                except LogdbError as error:  # the view is closed: the next opening checks its files, or rebuilds them
                    logger.warning("the files of the view of %s stay: %s", view.topic, error)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def _open(self, topic_id: str) -> View:
        if self._directory is not None:
            return View.open(os.path.join(self._directory, topic_id), self._io)
        if self._temporary is None:
            import tempfile  # few programs need it

            self._temporary = tempfile.mkdtemp(prefix="logdb-views-")
        return View.open(os.path.join(self._temporary, topic_id), self._io, kept=False)

    def _remove_strays(self, directory: str) -> None:
        """Remove the views of deleted topics."""
        try:
            refuse_link(self._io, directory)
        except ReadFailed as error:  # it may lead to files of somebody else
            logger.warning("the views of deleted topics stay: %s", error)
            return
        with contextlib.suppress(FileNotFoundError):
            names = set(names_in(self._io, directory)) - {topic.topic_id for topic in self._session.topics(internal=True)}
            for name in names:
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
