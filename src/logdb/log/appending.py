"""Batches that come ready-made into one partition's log, and the markers that end transactions.

Knows what is checked, and what is known of producers.  Does not know how batches are written: the builder queues them.

Threading: any number of threads; a batch of a producer is checked under the builder's gate, where it gets its offsets.
"""

import threading
from collections.abc import Callable
from itertools import islice

from logdb.codec import FSYNC, INTERVAL, OS, convert
from logdb.codec.control import ControlType
from logdb.errors import CodecMissing, UnexpectedOffset
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.log.producers import ProducerStates
from logdb.log.reading import ReadableLog
from logdb.log.transactions import Admission, Begun, Duplicate, Transactions
from logdb.mistakes import explained
from logdb.model import DURABILITY_LEVELS, OFFSET_MAX, Buffer, ProducerIdAndEpoch, TopicPartition

_DECOMPRESSED_SIZE_BYTES_MAX = 64 << 20  # of one batch; more where max.message.bytes is
GROUP_SIZE_BYTES = 1 << 20  # what one fdatasync makes durable at level fsync, at most


class AppendableLog(ReadableLog):
    """The part of a ``Log`` that takes batches."""

    _io: IO
    _clock: Callable[[], int]
    _sync_lock: threading.Lock
    _weak_count: int
    _codec_missing: CodecMissing | None

    def append_batches(
        self, batches: Buffer, *, expected_offset: int | None = None, durability: str | None = None, internal: bool = False
    ) -> range:
        """Append ready-made record batches, as a server gets them over a wire.

        They are checked once (CRC, counts, every record within bounds) and stored as they
        came, but for base offset and leader epoch and, where the topic says
        LogAppendTime, timestamp and CRC.

        Batches with a producer id are checked against what the log knows of the producer.  All of a call that are among
        its last five are not appended again: the call returns their offsets, once they are what its level asks for.
        Where that holds for the first of them only, and the log ends with these, the others are appended.
        Transactional ones begin the producer's transaction on this partition.

        Args:
            batches: RecordBatch v2, back to back, any codec.
            expected_offset: Fail unless the log ends here; but for batches that are known already.
            durability: Level of this call; None: the topic's.
            internal: They are a coordinator's own: their producer is checked, sequences they have none.

        Returns:
            The offsets given, or those of the originals.

        Raises:
            InvalidBatch: Something is wrong with them; nothing was appended.
            RecordTooLarge: A batch is over ``max.message.bytes``.
            CodecMissing: The package of their codec, or the topic's, is not installed.
            ProducerFenced: A newer epoch of the producer was here.
            OutOfOrderSequence: Batches of it are missing before these, or they are older than its last five; or some of
                a call are known, and the others do not follow on them.
            InvalidTransactionState: It has a transaction open here, and these are not in it.
            UnexpectedOffset, DiskFull, SyncFailed: as ``append``.

        Source: KIP-98.
        """
        try:
            view = memoryview(batches).cast("B")
        except TypeError as error:
            raise explained(error, AppendableLog.append_batches, batches=batches) from error.__cause__
        if self._gate:
            raise self._host.refusal(self)
        self._check_codec()
        if not view:
            return self.append_many((), expected_offset=expected_offset, durability=durability)
        if len(view) > GROUP_SIZE_BYTES:
            return self._append_large(view, expected_offset, durability, internal)
        return self._append_group(view, expected_offset, durability, internal)

    def _check_codec(self) -> None:
        """Take no records where their batches could not be compressed.

        Raises:
            CodecMissing: The package of the topic's codec is not installed.
        """
        if (missing := self._codec_missing) is not None:
            raise CodecMissing(missing.codec, missing.package)

    def _append_group(self, batches: memoryview, expected_offset: int | None, durability: str | None, internal: bool) -> range:
        """Append batches that are written as one."""
        size_bytes = len(batches)
        buffer = self._buffer(size_bytes)
        view = memoryview(buffer)[:size_bytes]
        view[:] = batches  # from here on nobody else can change them
        incoming = self._check_batches(view)
        del view  # the buffer is the builder's
        if not incoming.produced:
            return self._append_raw(buffer, size_bytes, incoming.record_count, expected_offset, durability)
        transactions = self._begun_transactions()
        admission = transactions.batches(incoming.produced, incoming.batch_count, self._clock(), sequenced=not internal)
        try:
            return self._append_admitted(buffer, size_bytes, incoming.record_count, expected_offset, durability, admission)
        except Duplicate as known:
            offsets = known.offsets
        except UnexpectedOffset:  # a try again comes too late for its own original
            try:
                found = None if internal else transactions.offsets_of(incoming.produced, incoming.batch_count)
            except Begun as begun:
                return self._append_rest(batches, begun, durability)
            if found is None:
                raise
            offsets = found
        except Begun as begun:
            return self._append_rest(batches, begun, durability)
        self._acknowledge(offsets.stop, durability)
        return offsets

    def _append_rest(self, batches: memoryview, begun: Begun, durability: str | None) -> range:
        """Append what a crash kept of a call, if nothing has come between."""
        begun_size_bytes = sum(len(image) for image, _ in islice(convert.headers(batches), begun.batch_count))
        try:
            rest = self._append_group(batches[begun_size_bytes:], begun.offsets.stop, durability, internal=False)
        except UnexpectedOffset:
            raise begun.refusal from None
        if rest.start != begun.offsets.stop:
            raise begun.refusal
        return range(begun.offsets.start, rest.stop)

    def append_marker(self, producer: ProducerIdAndEpoch, *, commit: bool, coordinator_epoch: int, durability: str | None = None) -> int:
        """End a producer's transaction on this partition; for the coordinator of transactions.

        Args:
            producer: Whose; an epoch newer than its batches' fences those who still send under the older one.
            commit: Its records count from now on, or never.
            coordinator_epoch: Of the coordinator, in [0, 2^31).
            durability: Level of this call; None: the topic's.

        Returns:
            The offset of the marker, which is written also where no transaction is open.

        Raises:
            ProducerFenced, CoordinatorFenced: A newer epoch of either was here.
            DiskFull, SyncFailed: as ``append``.

        Source: KIP-98, WriteTxnMarkers.
        """
        if self._gate:
            raise self._host.refusal(self)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        batch, admission = self._begun_transactions().marker(kind, producer, coordinator_epoch, self._clock())
        buffer = self._buffer(len(batch))
        buffer[: len(batch)] = batch
        return self._append_admitted(buffer, len(batch), 1, None, durability, admission)[0]

    def _begun_transactions(self) -> Transactions:
        """What is known of the producers; before the first of them comes, the catalogue has to know that there are any."""
        if self._transactions is None:
            with self._sync_lock:
                if self._transactions is None:
                    offset = self._point.point.offset
                    producer_snapshot.save(self._io, self.directory, offset, ProducerStates(), {})
                    self._host.note_producers(self, offset)
                    self._transactions = Transactions(TopicPartition(self.topic, self.partition), ProducerStates(), (offset,), offset)
        return self._transactions

    def _append_admitted(
        self,
        buffer: bytearray,
        size_bytes: int,
        record_span: int,
        expected_offset: int | None,
        durability: str | None,
        admission: Admission,
    ) -> range:
        """Append batches if they are admitted once their offsets are known."""
        weak = durability not in (None, "fsync")  # Python runs between the builder's look at `strict` and the append
        self._weak_count += weak
        try:
            return self._append_raw(buffer, size_bytes, record_span, expected_offset, durability, admission)
        finally:
            self._weak_count -= weak

    def _acknowledge(self, next_offset: int, durability: str | None) -> None:
        """Return once what was accepted below ``next_offset`` is what an append at that level waits for."""
        level = self._level if durability is None else DURABILITY_LEVELS.index(durability)
        if level != FSYNC and self._written_offset < next_offset:
            self._drain()
        if level == FSYNC or (level == INTERVAL and self._level == OS):
            self._commit(next_offset, level)

    def _check_batches(self, view: memoryview) -> convert.Incoming:
        """Check batches from outside, stamp them where the topic wants that."""
        config = self._config
        incoming = convert.check_incoming(
            view,
            keys_required=config.compacted,
            size_bytes_max=config.max_message_bytes,
            decompressed_size_bytes_max=max(_DECOMPRESSED_SIZE_BYTES_MAX, config.max_message_bytes),
        )
        if config.log_append_time:
            convert.stamp_append_time(view, self._clock())
        elif config.timestamp_after_max_ms < OFFSET_MAX and incoming.record_count:
            now = self._clock()
            if incoming.max_timestamp > now + config.timestamp_after_max_ms:
                self._reject("timestamp", incoming.max_timestamp, now, config.timestamp_before_max_ms, config.timestamp_after_max_ms)
        return incoming

    def _append_large(self, batches: memoryview, expected_offset: int | None, durability: str | None, internal: bool) -> range:
        """Append more than a group at once: for as long, recovery is told not to count on groups."""
        self._weak_count += 1
        try:
            self._weaken()
            return self._append_group(batches, expected_offset, durability, internal)
        finally:
            self._weak_count -= 1
