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
from typing import TYPE_CHECKING

from logdb.codec import convert
from logdb.codec.batch import place
from logdb.codec.convert import Followed
from logdb.errors import FencedLeaderEpoch, PolicyViolation
from logdb.log import epochs as epochs_file
from logdb.log.appending import GROUP_SIZE_BYTES
from logdb.log.epochs import LeaderEpochs
from logdb.log.transactions import Superseded
from logdb.mistakes import explained, must_be
from logdb.model import Buffer

if TYPE_CHECKING:
    from logdb.log.log import Log

_EPOCH_MAX = 2**31 - 1


def begin_epoch(log: "Log", epoch: int) -> int:
    """See ``Log.begin_epoch``."""
    if not 0 <= operator.index(epoch) <= _EPOCH_MAX:
        raise ValueError(must_be("epoch", epoch, f"0 to {_EPOCH_MAX}"))

    def begin(start_offset: int) -> int:
        known = log.view.epochs
        if known.entries and epoch <= known.latest:
            raise FencedLeaderEpoch(log.topic, log.partition, epoch, known.latest)
        log.flush(sync=False)  # records accepted so far belong to the former epoch
        _extend(log, [(epoch, start_offset)])
        log.writer.following = False
        log.lead()
        return start_offset

    return log._alone(begin)


def mirror_append(log: "Log", batches: Buffer, durability: str | None) -> range:
    """See ``Log.mirror_append``."""
    image = bytearray(batches)
    for batch, head in convert.headers(memoryview(image)):
        place(batch, 0, head.base_offset, max(0, log.leader_epoch))
    return follow_append(log, image, durability, mirrors=True)


def _check_mirrors(log: "Log") -> None:
    """Raise unless the log leads, and its topic is a mirror; with the append lock held."""
    if log._followed is not None:
        raise log.not_leader()
    if not log._config.mirror_of:
        raise PolicyViolation(f"{log.topic} is no mirror: its config logdb.mirror.of is not set")


def follow_append(log: "Log", batches: Buffer, durability: str | None, *, mirrors: bool = False) -> range:
    """See ``Log.follow_append``; ``mirrors``: the batches are those of another cluster's leader."""
    try:
        view = memoryview(batches).cast("B")
    except TypeError as error:
        raise explained(error, follow_append, batches=batches) from error.__cause__
    if log._refusing:
        raise log._host.refusal(log)
    if not view:
        return range(log._next_offset, log._next_offset)
    size_bytes = len(view)
    buffer = log._buffer(size_bytes)
    image = memoryview(buffer)[:size_bytes]
    image[:] = view  # the caller cannot change this copy
    followed = _without_known_offsets(image, convert.check_followed(image), log._next_offset)
    del image  # the buffer is the builder's
    transactions = log.writer.ensure_transactions() if followed.produced else None

    def admit(_first_offset: int, now_ms: int) -> None:
        if mirrors:
            _check_mirrors(log)
        if transactions is not None and transactions.superseded:
            raise Superseded
        _follow_epochs(log, followed.epochs)
        log.writer.following = True
        if transactions is not None:
            transactions.admit_followed(followed.produced, now_ms)

    below_fsync = durability not in (None, "fsync") or size_bytes > GROUP_SIZE_BYTES
    log.syncs.below_fsync_count += below_fsync
    try:
        if size_bytes > GROUP_SIZE_BYTES:
            log._end_fsync_only()
        offsets = followed.offsets
        return log._append_raw(buffer, size_bytes, len(offsets), offsets.start, durability, admit, True)
    except Superseded:
        return follow_append(log, batches, durability, mirrors=mirrors)
    finally:
        log.syncs.below_fsync_count -= below_fsync


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


def _follow_epochs(log: "Log", epochs: Sequence[tuple[int, int]]) -> None:
    """Begin the leader epochs of batches that are about to be accepted; with the append lock held."""
    known, first = log.view.epochs, epochs[0][0]
    if first < known.latest:
        raise FencedLeaderEpoch(log.topic, log.partition, first, known.latest)
    begun = [entry for entry in epochs if entry[0] > known.latest or not known.entries]
    if begun:
        _extend(log, begun)


def forget_epochs(log: "Log", offset: int) -> None:
    """See ``Log.forget_epochs``."""
    with log.syncs.lock, log.writer.lock:
        epochs = log.view.epochs.before(offset)
        if epochs.entries != log.view.epochs.entries:
            _save(log, epochs)


def _save(log: "Log", epochs: LeaderEpochs) -> None:
    epochs_file.save(log._io, os.path.join(log.directory, epochs_file.FILE_NAME), epochs)
    log.writer.epochs_unsynced = False
    log.writer.publish(epochs=epochs)
    log.leader_epoch = epochs.latest
    log.wake()  # waits for a commit in an epoch that has ended


def _extend(log: "Log", begun: Sequence[tuple[int, int]]) -> None:
    """Let epochs begin, durably; with the append lock held."""
    with log.syncs.lock, log.writer.lock:
        if log._closed:
            raise log._host.refusal(log)
        epochs = log.view.epochs
        for epoch, start_offset in begun:
            epochs = epochs.begun(epoch, start_offset)
        _save(log, epochs)
