"""The appendable side of one partition's log: batches that come ready-made are checked, then handed to the builder.

The builder queues and writes them.  Threading: any number of threads; a batch of a producer is checked under the builder's append lock,
where it gets its offsets.
"""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from logdb.codec import FSYNC, INTERVAL, OS, BatchBuilder, control, convert
from logdb.codec.control import ControlType
from logdb.errors import CodecMissing, InvalidTimestamp, OutOfOrderSequence, UnexpectedOffset
from logdb.io import IO
from logdb.log.readable import ReadableLog
from logdb.log.transactions import Begun, Duplicate, Superseded
from logdb.mistakes import explained
from logdb.model import DURABILITY_LEVELS, OFFSET_MAX, Buffer, LogConfig, ProducerIdAndEpoch, accepted_timestamps

if TYPE_CHECKING:
    from logdb.log.log_sync import LogSync
    from logdb.log.segment_writer import SegmentWriter

_DECOMPRESSED_SIZE_BYTES_MAX = 64 << 20  # of one batch; or max.message.bytes, if that is more, but never over the next
_DECOMPRESSED_SIZE_BYTES_LIMIT = 256 << 20  # readers take the memory for it, too
GROUP_SIZE_BYTES = 1 << 20  # the most that one fdatasync makes durable at level fsync


def _decompressed_size_bytes_max(config: LogConfig) -> int:
    return min(max(_DECOMPRESSED_SIZE_BYTES_MAX, config.max_message_bytes), _DECOMPRESSED_SIZE_BYTES_LIMIT)


class AppendableLog(BatchBuilder, ReadableLog):
    """A log that takes ready-made batches; ``Log`` sets its fields."""

    writer: "SegmentWriter"
    syncs: "LogSync"
    fsync_only: bool
    _level: int
    _refusing: int
    _codec_missing: CodecMissing | None
    _io: IO

    def configure(self, config: LogConfig) -> None:
        """Use other configs from the next batch on."""
        raise NotImplementedError

    def tell_builder(self) -> None:
        """Tell the builder what holds now: the configs, and whose records are taken."""
        raise NotImplementedError

    def flush(self, sync: bool = True) -> None:
        """Return once everything appended so far is durable, or with ``sync=False`` with the operating system."""
        raise NotImplementedError

    def verification(self, producer_id: int) -> object:
        """What a transaction of the producer is begun with here: see ``append_batches``."""
        return self.writer.ensure_transactions().verification(producer_id)

    def append_batches(
        self,
        batches: Buffer,
        *,
        expected_offset: int | None = None,
        durability: str | None = None,
        internal: bool = False,
        verified: Mapping[int, object] | None = None,
    ) -> range:
        """Append ready-made record batches, as a server gets them over a wire.

        They are checked once (CRC, counts, every record within bounds) and stored as they are, except that the log sets base
        offset and leader epoch and, if the topic says LogAppendTime, timestamp and CRC.

        Batches with a producer id are checked against the state of the producer.  If all batches of a call are among its last
        five, none is appended again: the call returns their offsets, once they are acknowledged at its level.  If only
        the first are, and the log ends with these, the others are appended.
        Transactional ones begin the producer's transaction on this partition.

        Args:
            batches: RecordBatch v2, back to back, any codec.
            expected_offset: Fail unless the log ends here; not for duplicates.
            durability: Level of this call; None: the topic's.
            internal: The batches are a coordinator's own: they have a producer, but no sequences.
            verified: By producer id, what ``verification`` gave before the coordinator said that the partition is part of the open
                transaction: a marker that has come since, which ends it, refuses a batch that would begin another.  None: whoever
                calls knows.

        Returns:
            The offsets given, or those of the originals.

        Raises:
            InvalidBatch: A batch is damaged or invalid; nothing was appended.
            RecordTooLarge: A batch is over ``max.message.bytes``.
            InvalidTimestamp: A record's timestamp is outside of what the topic accepts; nothing was appended.
            CodecMissing: The package of their codec, or the topic's, is not installed.
            ProducerFenced: The log has a newer epoch of the producer.
            OutOfOrderSequence: Batches of the producer are missing before these, or these are older than its last five; or some
                of the call are duplicates, and the others do not follow them.
            InvalidTransactionState: The producer has an open transaction here, and these batches are outside of it.
            ConcurrentTransactions: The transaction has ended since it was verified.
            UnexpectedOffset, DiskFull, SyncFailed: as ``append``.

        Source: KIP-98; KIP-890 for ``verified``.
        """
        if durability is None and expected_offset is None and not internal:
            transactions = self.writer.transactions
            offsets = self._append_usual(batches, None if transactions is None else transactions.admit_next)
            if offsets is not None:
                return offsets
        try:
            view = memoryview(batches).cast("B")
        except TypeError as error:
            raise explained(error, AppendableLog.append_batches, batches=batches) from error.__cause__
        if self._refusing:
            raise self._host.refusal(self)
        if self._codec_missing is not None:
            self._check_codec()
        if not view:
            return self.append_many((), expected_offset=expected_offset, durability=durability)
        if len(view) > GROUP_SIZE_BYTES:
            return self._append_large(view, expected_offset, durability, internal, verified)
        return self._append_group(view, expected_offset, durability, internal, verified)

    def _check_codec(self) -> None:
        """Refuse records if their batches cannot be compressed.

        Raises:
            CodecMissing: The package of the topic's codec is not installed.
        """
        if (missing := self._codec_missing) is not None:
            raise CodecMissing(missing.codec, missing.package)

    def _append_group(
        self,
        batches: memoryview,
        expected_offset: int | None,
        durability: str | None,
        internal: bool,
        verified: Mapping[int, object] | None,
    ) -> range:
        """Append at most one group of batches."""
        size_bytes = len(batches)
        buffer = self._buffer(size_bytes)
        view = memoryview(buffer)[:size_bytes]
        view[:] = batches  # the caller cannot change this copy
        incoming = self._check_batches(view)
        del view  # the buffer is the builder's
        if not incoming.produced:
            return self._append_raw(buffer, size_bytes, incoming.record_count, expected_offset, durability)
        transactions = self.writer.ensure_transactions()
        admit = partial(transactions.admit_batches, incoming.produced, incoming.batch_count, not internal, verified)
        below_fsync = durability not in (None, "fsync")  # Python runs between the builder's look at `fsync_only` and the append
        self.syncs.below_fsync_count += below_fsync
        try:
            return self._append_raw(buffer, size_bytes, incoming.record_count, expected_offset, durability, admit)
        except Superseded:
            return self._append_group(batches, expected_offset, durability, internal, verified)
        except Duplicate as known:
            offsets = known.offsets
        except UnexpectedOffset:  # a retry whose original may be in the log
            try:
                found = None if internal or transactions.superseded else transactions.offsets_of(incoming.produced, incoming.batch_count)
            except Begun as begun:
                return self._append_rest(batches, begun, durability, verified)
            if found is None:
                raise
            offsets = found
        except Begun as begun:
            return self._append_rest(batches, begun, durability, verified)
        finally:
            self.syncs.below_fsync_count -= below_fsync
        self._acknowledge(offsets.stop, durability)
        try:
            known_offsets = transactions.offsets_of(incoming.produced, incoming.batch_count)
            is_there = known_offsets == offsets and self.view.written_offset >= offsets.stop
        except (Begun, OutOfOrderSequence):
            is_there = False
        if not is_there:  # the original found no room
            return self._append_group(batches, expected_offset, durability, internal, verified)
        return offsets

    def _append_rest(self, batches: memoryview, begun: Begun, durability: str | None, verified: Mapping[int, object] | None) -> range:
        """Append the rest of a call that a crash interrupted, if the log ends with its first batches."""
        begun_size_bytes = sum(len(image) for image, _ in islice(convert.headers(batches), begun.batch_count))
        try:
            rest = self._append_group(batches[begun_size_bytes:], begun.offsets.stop, durability, False, verified)
        except UnexpectedOffset:
            raise begun.refusal() from None
        if rest.start != begun.offsets.stop:
            raise begun.refusal()
        return range(begun.offsets.start, rest.stop)

    def _append_large(
        self,
        batches: memoryview,
        expected_offset: int | None,
        durability: str | None,
        internal: bool,
        verified: Mapping[int, object] | None,
    ) -> range:
        """Append more than one group; meanwhile the catalogue does not promise that a crash tears at most one group."""
        self._check_room(len(batches))
        self.syncs.below_fsync_count += 1
        try:
            self._end_fsync_only()
            return self._append_group(batches, expected_offset, durability, internal, verified)
        finally:
            self.syncs.below_fsync_count -= 1

    def _check_batches(self, view: memoryview) -> convert.Incoming:
        """Check batches from outside; stamp them if the topic says LogAppendTime."""
        config = self._config
        incoming = convert.check_incoming(
            view,
            keys_required=config.compacted,
            size_bytes_max=config.max_message_bytes,
            decompressed_size_bytes_max=_decompressed_size_bytes_max(config),
        )
        if config.log_append_time:
            convert.stamp_append_time(view, self.now_ms())
        else:
            self._check_timestamps(view, incoming)
        return incoming

    def _check_timestamps(self, view: memoryview, incoming: convert.Incoming) -> None:
        config, now_ms = self._config, max(self.now_ms(), self._io.stamped_ms)
        before_ms, after_ms = config.timestamp_before_max_ms, config.timestamp_after_max_ms
        earliest = -OFFSET_MAX - 1 if before_ms == OFFSET_MAX else now_ms - before_ms
        latest = min(now_ms + after_ms, OFFSET_MAX)
        if earliest <= incoming.min_timestamp and incoming.max_timestamp <= latest:
            return
        for image, _ in convert.headers(view):
            records = convert.refused_records(
                image,
                keys_required=False,
                timestamp_min=earliest,
                timestamp_max=latest,
                decompressed_size_bytes_max=_decompressed_size_bytes_max(config),
            )
            if records:
                at = incoming.max_timestamp if incoming.max_timestamp > latest else incoming.min_timestamp
                raise InvalidTimestamp(at, accepted_timestamps(self.topic, now_ms, before_ms, after_ms), records)

    def _acknowledge(self, next_offset: int, durability: str | None) -> None:
        """Return once the records below ``next_offset`` are acknowledged at that level."""
        level = self._level if durability is None else DURABILITY_LEVELS.index(durability)
        if level != FSYNC and self._written_offset < next_offset:
            self._drain()
        if level == FSYNC or (level == INTERVAL and self._level == OS):
            self._commit(next_offset, level)

    def append_marker(self, producer: ProducerIdAndEpoch, *, commit: bool, coordinator_epoch: int) -> int:
        """End a producer's transaction on this partition; for the coordinator of transactions.

        Args:
            producer: A newer epoch than that of its batches fences instances with the older epoch.
            commit: Whether its records become visible, or stay invisible.
            coordinator_epoch: Of the coordinator, in [0, 2^31).

        Returns:
            The offset of the marker, which is written also where no transaction is open.

        Raises:
            ProducerFenced, CoordinatorFenced: The log has a newer epoch of the producer, or of the coordinator.
            DiskFull, SyncFailed: as ``append``.

        Source: KIP-98, WriteTxnMarkers.
        """
        if self._refusing:
            raise self._host.refusal(self)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        batch = control.build(kind, producer, coordinator_epoch, self.now_ms())
        buffer = self._buffer(len(batch))
        buffer[: len(batch)] = batch
        transactions = self.writer.ensure_transactions()
        try:
            return self._append_raw(
                buffer, len(batch), 1, None, None, partial(transactions.admit_marker, kind, producer, coordinator_epoch)
            )[0]
        except Superseded:
            return self.append_marker(producer, commit=commit, coordinator_epoch=coordinator_epoch)
