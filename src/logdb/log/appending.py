"""What ``Log.append_batches`` and ``Log.append_marker`` do: ready-made batches are checked, then handed to the builder.

The builder queues and writes them.  Threading: any number of threads; a batch of a producer is checked under the builder's append lock,
where it gets its offsets.
"""

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from logdb.codec import FSYNC, INTERVAL, OS, control, convert
from logdb.codec.control import ControlType
from logdb.errors import UnexpectedOffset
from logdb.log import producer_snapshot
from logdb.log.producers import ProducerStates
from logdb.log.transactions import Begun, Duplicate, Superseded, Transactions
from logdb.model import DURABILITY_LEVELS, OFFSET_MAX, ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    from logdb.log.log import Log

_DECOMPRESSED_SIZE_BYTES_MAX = 64 << 20  # of one batch; or max.message.bytes, if that is more
GROUP_SIZE_BYTES = 1 << 20  # the most that one fdatasync makes durable at level fsync


def append_group(log: "Log", batches: memoryview, expected_offset: int | None, durability: str | None, internal: bool) -> range:
    """Append at most one group of batches."""
    size_bytes = len(batches)
    buffer = log._buffer(size_bytes)
    view = memoryview(buffer)[:size_bytes]
    view[:] = batches  # the caller cannot change this copy
    now_ms = log._clock()
    incoming = _check_batches(log, view, now_ms)
    del view  # the buffer is the builder's
    if not incoming.produced:
        return log._append_raw(buffer, size_bytes, incoming.record_count, expected_offset, durability)
    transactions = begun_transactions(log)
    admit = partial(transactions.admit_batches, incoming.produced, incoming.batch_count, now_ms, not internal)
    below_fsync = durability not in (None, "fsync")  # Python runs between the builder's look at `fsync_only` and the append
    log.syncs.below_fsync_count += below_fsync
    try:
        return log._append_raw(buffer, size_bytes, incoming.record_count, expected_offset, durability, admit)
    except Superseded:
        return append_group(log, batches, expected_offset, durability, internal)
    except Duplicate as known:
        offsets = known.offsets
    except UnexpectedOffset:  # a retry whose original may be in the log
        try:
            found = None if internal or transactions.superseded else transactions.offsets_of(incoming.produced, incoming.batch_count)
        except Begun as begun:
            return _append_rest(log, batches, begun, durability)
        if found is None:
            raise
        offsets = found
    except Begun as begun:
        return _append_rest(log, batches, begun, durability)
    finally:
        log.syncs.below_fsync_count -= below_fsync
    _acknowledge(log, offsets.stop, durability)
    return offsets


def _append_rest(log: "Log", batches: memoryview, begun: Begun, durability: str | None) -> range:
    """Append the rest of a call that a crash interrupted, if the log ends with its first batches."""
    begun_size_bytes = sum(len(image) for image, _ in islice(convert.headers(batches), begun.batch_count))
    try:
        rest = append_group(log, batches[begun_size_bytes:], begun.offsets.stop, durability, internal=False)
    except UnexpectedOffset:
        raise begun.refusal from None
    if rest.start != begun.offsets.stop:
        raise begun.refusal
    return range(begun.offsets.start, rest.stop)


def begun_transactions(log: "Log") -> Transactions:
    """The log's ``Transactions``; before the first is created, the catalogue notes durably that the log has producers."""
    if log.writer.transactions is None:
        with log.syncs.lock:
            if log.writer.transactions is None:
                offset = log.view.flushed.offset
                producer_snapshot.save(log._io, log.directory, offset, ProducerStates(), {})
                log._host.note_producers(log, offset)
                log.writer.transactions = Transactions(TopicPartition(log.topic, log.partition), ProducerStates(), (offset,), offset)
    return log.writer.transactions


def _acknowledge(log: "Log", next_offset: int, durability: str | None) -> None:
    """Return once the records below ``next_offset`` are acknowledged at that level."""
    level = log._level if durability is None else DURABILITY_LEVELS.index(durability)
    if level != FSYNC and log._written_offset < next_offset:
        log._drain()
    if level == FSYNC or (level == INTERVAL and log._level == OS):
        log._commit(next_offset, level)


def _check_batches(log: "Log", view: memoryview, now_ms: int) -> convert.Incoming:
    """Check batches from outside; stamp them if the topic says LogAppendTime."""
    config = log._config
    incoming = convert.check_incoming(
        view,
        keys_required=config.compacted,
        size_bytes_max=config.max_message_bytes,
        decompressed_size_bytes_max=max(_DECOMPRESSED_SIZE_BYTES_MAX, config.max_message_bytes),
    )
    if config.log_append_time:
        convert.stamp_append_time(view, now_ms)
    elif config.timestamp_after_max_ms < OFFSET_MAX and incoming.max_timestamp > now_ms + config.timestamp_after_max_ms:
        log._reject("timestamp", incoming.max_timestamp, now_ms, config.timestamp_before_max_ms, config.timestamp_after_max_ms)
    return incoming


def append_large(log: "Log", batches: memoryview, expected_offset: int | None, durability: str | None, internal: bool) -> range:
    """Append more than one group; meanwhile the catalogue does not promise that a crash tears at most one group."""
    log.syncs.below_fsync_count += 1
    try:
        log._end_fsync_only()
        return append_group(log, batches, expected_offset, durability, internal)
    finally:
        log.syncs.below_fsync_count -= 1


def append_marker(log: "Log", kind: ControlType, producer: ProducerIdAndEpoch, coordinator_epoch: int) -> int:
    """Append the marker that ends a producer's transaction; returns its offset."""
    now_ms, transactions = log._clock(), begun_transactions(log)
    batch = control.build(kind, producer, coordinator_epoch, now_ms)
    buffer = log._buffer(len(batch))
    buffer[: len(batch)] = batch
    try:
        admit = partial(transactions.admit_marker, kind, producer, coordinator_epoch, now_ms)
        return log._append_raw(buffer, len(batch), 1, None, None, admit)[0]
    except Superseded:
        return append_marker(log, kind, producer, coordinator_epoch)
