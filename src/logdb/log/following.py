"""Following a leader: its batches as they lie in its log, and the leader epochs that a controller gives.

A follower's log equals its leader's: offsets and leader epochs of the batches are verified here, and kept.  Producers, transactions
and aborted transactions follow from the batches, by the code of a replay.

A leader epoch is durable in ``leader-epoch-checkpoint`` before the first batch under it is written.

Threading: any number of threads; the append lock of the batch builder is held while an epoch begins, then ``LogSync.lock``,
then ``SegmentWriter.lock``.
"""

import operator
import os
from collections.abc import Sequence
from typing import NamedTuple

from logdb.codec import convert
from logdb.codec.batch import place
from logdb.codec.convert import Followed
from logdb.errors import FencedLeaderEpoch, NotLeaderOrFollower, PolicyViolation
from logdb.log import epochs as epochs_file
from logdb.log.appending import GROUP_SIZE_BYTES, AppendableLog
from logdb.log.epochs import LeaderEpochs
from logdb.log.transactions import Superseded
from logdb.mistakes import explained, must_be
from logdb.model import Buffer, Durability

_EPOCH_MAX = 2**31 - 1


class FollowedLeader(NamedTuple):
    """The leader of a log that does not lead: its node, None where none is known, and its epoch."""

    leader: int | None
    leader_epoch: int


class FollowingLog(AppendableLog):
    """A log that leads, or follows a leader.

        FOLLOWING ──begin_epoch──► LEADING        a log that is not replicated begins as LEADING, a replica as FOLLOWING
            ▲                         │
            └──────follow_leader──────┘

    | field         | who changes it | under which lock | when it may be trusted                                                    |
    |---------------|----------------|------------------|---------------------------------------------------------------------------|
    | ``_followed`` | ``_take_role`` | the append lock  | None: it leads; else records of clients are refused, from its change on   |
    | ``follows``   | ``_take_role`` | the append lock  | whether it follows                                                        |
    """

    _followed: FollowedLeader | None

    def _take_role(self, followed: FollowedLeader | None) -> None:
        """Lead (None), or follow a leader; the caller is ``alone``."""
        self._followed, self.follows = followed, followed is not None
        self.tell_builder()

    def begin_epoch(self, epoch: int) -> int:
        """Begin the leader epoch that a controller has given: batches that are appended from now on carry it.

        What was appended before is written first.  The epoch is durable when this returns, and records of clients are taken.

        Returns:
            The offset that it begins at.

        Raises:
            ValueError: The epoch is not in [0, 2^31 - 1].
            FencedLeaderEpoch: The log has this epoch, or a newer one.
            DiskFull, WriteFailed: The epoch has not begun.
            SyncFailed, Closed, ReadOnly, Forked: as ``flush``.
        """
        if not 0 <= operator.index(epoch) <= _EPOCH_MAX:
            raise ValueError(must_be("epoch", epoch, f"0 to {_EPOCH_MAX}"))

        def begin(start_offset: int) -> int:
            known = self.view.epochs
            if known.entries and epoch <= known.latest:
                raise FencedLeaderEpoch(self.topic, self.partition, epoch, known.latest)
            self.flush(sync=False)  # records accepted so far belong to the former epoch
            self._extend_epochs([(epoch, start_offset)])
            self.writer.following = False
            self.lead()
            return start_offset

        return self._alone(begin)

    def follow_leader(self, leader: int | None, leader_epoch: int) -> None:
        """From now on records come from a leader, by ``follow_append``: when this returns, no client's is accepted any more.

        A replicated log begins so, until ``begin_epoch``.

        Args:
            leader: Its node, for the error that clients get; None: there is none.
            leader_epoch: The leader's.
        """

        def follow(_next_offset: int) -> None:
            self._take_role(FollowedLeader(leader, leader_epoch))

        self._alone(follow)
        self.wake()  # the waits for a commit

    def not_leader(self) -> NotLeaderOrFollower:
        """The refusal of a client by a log that follows."""
        leader, epoch = self._followed or (None, self.leader_epoch)
        return NotLeaderOrFollower(self.topic, self.partition, leader, epoch)

    def lead(self) -> None:
        """Take records of clients; the caller is ``alone``, and has begun a leader epoch."""
        self._take_role(None)

    def follow_append(self, batches: Buffer, *, durability: Durability | None = None) -> range:
        """Append batches of a leader's log, with the offsets and leader epochs that they carry.

        They are checked (CRC, every record within bounds, offsets and epochs from batch to batch) and stored as they are.
        Where the leader's compaction has merged emptied batches, and this log ends between two of them, the merged batch
        begins where the log ends.  Producers and transactions are what a replay of the batches gives: no sequence is refused.
        A newer epoch is durable before the first batch under it is written.

        Args:
            batches: RecordBatch v2, back to back, as ``read_batches`` of the leader has them.
            durability: Level of this call; None: the topic's.

        Returns:
            Their offsets.

        Raises:
            UnexpectedOffset: The first of them does not begin where the log ends.
            FencedLeaderEpoch: An epoch is older than the latest one of the log.
            InvalidBatch: A batch is damaged or invalid.
            CodecMissing: The package of their codec is not installed.
            DiskFull, SyncFailed: as ``append``.

        After each error but those of the last line, nothing was appended.
        """
        return self._follow(batches, durability)

    def mirror_append(self, batches: Buffer, *, durability: Durability | None = None) -> range:
        """Append batches of another cluster's log, with the offsets that they carry, in this log's leader epoch.

        Raises:
            NotLeaderOrFollower: The log follows.
            PolicyViolation: The topic is no mirror (config ``logdb.mirror.of``).
            UnexpectedOffset, InvalidBatch, CodecMissing, DiskFull, SyncFailed: as ``follow_append``.
        """
        image = bytearray(batches)
        for batch, head in convert.headers(memoryview(image)):
            place(batch, 0, head.base_offset, max(0, self.leader_epoch))
        return self._follow(image, durability, mirrors=True)

    @property
    def is_mirror(self) -> bool:
        """Whether another cluster's topic is copied into it: no client appends."""
        return bool(self._config.mirror_of)

    def _check_mirrors(self) -> None:
        """Raise unless the log leads, and its topic is a mirror; with the append lock held."""
        if self._followed is not None:
            raise self.not_leader()
        if not self.is_mirror:
            raise PolicyViolation(f"{self.topic} is no mirror: its config logdb.mirror.of is not set")

    def _follow(self, batches: Buffer, durability: str | None, *, mirrors: bool = False) -> range:
        """See ``follow_append``; ``mirrors``: the batches are those of another cluster's leader."""
        try:
            view = memoryview(batches).cast("B")
        except TypeError as error:
            raise explained(error, FollowingLog.follow_append, batches=batches) from error.__cause__
        if self._refusing:
            raise self._host.refusal(self)
        if not view:
            return range(self._next_offset, self._next_offset)
        size_bytes = len(view)
        buffer = self._buffer(size_bytes)
        image = memoryview(buffer)[:size_bytes]
        image[:] = view  # the caller cannot change this copy
        followed = _without_known_offsets(image, convert.check_followed(image), self._next_offset)
        del image  # the buffer is the builder's
        transactions = self.writer.ensure_transactions() if followed.produced else None

        def admit(_first_offset: int, now_ms: int) -> None:
            if mirrors:
                self._check_mirrors()
            if transactions is not None and transactions.superseded:
                raise Superseded
            self._follow_epochs(followed.epochs)
            self.writer.following = True
            if transactions is not None:
                transactions.admit_followed(followed.produced, now_ms)

        below_fsync = durability not in (None, "fsync") or size_bytes > GROUP_SIZE_BYTES
        self.syncs.below_fsync_count += below_fsync
        try:
            if size_bytes > GROUP_SIZE_BYTES:
                self._end_fsync_only()
            offsets = followed.offsets
            return self._append_raw(buffer, size_bytes, len(offsets), offsets.start, durability, admit, True)
        except Superseded:
            return self._follow(batches, durability, mirrors=mirrors)
        finally:
            self.syncs.below_fsync_count -= below_fsync

    # ------------------------------------------------------------ epochs

    def _follow_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Begin the leader epochs of batches that are about to be accepted; with the append lock held."""
        known, first = self.view.epochs, epochs[0][0]
        if first < known.latest:
            raise FencedLeaderEpoch(self.topic, self.partition, first, known.latest)
        begun = [entry for entry in epochs if entry[0] > known.latest or not known.entries]
        if begun:
            self._extend_epochs(begun)

    def forget_epochs(self, offset: int) -> None:
        """Forget, durably, the leader epochs that begin at the end of the log, ``offset``; the caller is ``alone``."""
        with self.syncs.lock, self.writer.lock:
            epochs = self.view.epochs.before(offset)
            if epochs.entries != self.view.epochs.entries:
                self._save_epochs(epochs)

    def _save_epochs(self, epochs: LeaderEpochs) -> None:
        epochs_file.save(self._io, os.path.join(self.directory, epochs_file.FILE_NAME), epochs)
        self.writer.epochs_unsynced = False
        self.writer.publish(epochs=epochs)
        self.leader_epoch = epochs.latest
        self.wake()  # waits for a commit in an epoch that has ended

    def _extend_epochs(self, begun: Sequence[tuple[int, int]]) -> None:
        """Let epochs begin, durably; with the append lock held."""
        with self.syncs.lock, self.writer.lock:
            if self._closed:
                raise self._host.refusal(self)
            epochs = self.view.epochs
            for epoch, start_offset in begun:
                epochs = epochs.begun(epoch, start_offset)
            self._save_epochs(epochs)


def _without_known_offsets(image: memoryview, followed: Followed, end_offset: int) -> Followed:
    """Batches that begin at the log end; an emptied batch that the leader's compaction has merged across the log end is cut there."""
    offsets = followed.offsets
    if not offsets.start < end_offset < offsets.stop:
        return followed
    _, first = next(convert.headers(image))
    if first.record_count or first.producer_id >= 0 or first.last_offset < end_offset:
        return followed  # the builder refuses them
    convert.begin_empty_batch_at(image, first, end_offset)
    epochs = [(followed.epochs[0][0], end_offset), *followed.epochs[1:]]
    return followed._replace(offsets=range(end_offset, offsets.stop), epochs=epochs)
