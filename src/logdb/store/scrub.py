"""Sealed segments are read again in the background, so that what a disk has lost is found while another replica still has it.

A round, once an hour, reads its share of them, so that a pass over all takes a week; in an order of chance, because nothing is written of
it, and an opening begins a new pass.  A file is read from the disk, not from the page cache, and compared with its CRC in the catalogue.
What differs is the damage of its log, as if a reader had met it (``log.readable``).

Threading: a thread of its own (``logdb-scrub``), which starts with the first topic.
"""

import logging
import os
from collections.abc import Callable

from logdb.codec import crc32c
from logdb.errors import Closed, CorruptionError, LogdbError, UnknownPartition, UnknownTopic
from logdb.log.log import Log
from logdb.meta import SegmentEntry
from logdb.segment.segment import Segment
from logdb.store.housekeeping import Housekeeping
from logdb.store.state import StoreState

logger = logging.getLogger(__name__)

ROUND_MS, ROUNDS_OF_A_PASS = 3_600_000, 7 * 24
_PIECE_SIZE_BYTES = 256 << 10


class Scrub:
    """The reading of one store."""

    def __init__(self, state: StoreState, log: Callable[[str, int], Log], bytes_per_second: int) -> None:
        """It starts with ``background.consider``.

        Args:
            log: Opens a partition's log.
            bytes_per_second: Limit of its reads; 0: there are none.
        """
        self._state, self._log, self._bytes_per_second = state, log, bytes_per_second
        self._left: list[tuple[str, int, int]] = []  # of the present pass: topic, partition, base offset
        self._owed_bytes = 0.0  # of the rounds so far; below 0: the last segment was larger than their share
        self.background = Housekeeping(state.io, "logdb-scrub")
        self.background.add("scrub", self._round, interval_ms=ROUND_MS, needed=lambda _: bytes_per_second > 0)

    def _round(self) -> None:
        """Read the share of an hour; a segment that cannot be read does not hold up the others."""
        catalogue = self._state.catalogue
        sealed = {(one.topic, one.partition, one.base_offset): one for name in catalogue.topics() for one in catalogue.segments(name)}
        self._owed_bytes += sum(one.size_bytes for one in sealed.values()) / ROUNDS_OF_A_PASS
        while sealed and self._owed_bytes > 0 and not self.background.stopping:
            self._left = self._left or sorted(sealed, key=lambda _: os.urandom(8))
            named = sealed.get(self._left.pop())
            if named is not None:
                self._owed_bytes -= named.size_bytes
                try:
                    self._check(named)
                except (Closed, UnknownTopic, UnknownPartition):
                    pass  # it went meanwhile
                except LogdbError as error:  # it may pass: a reader, too, is told so each time
                    logger.error("%s-%d is not read again: %s", named.topic, named.partition, error)

    def _check(self, named: SegmentEntry) -> None:
        """Compare one segment with the catalogue; raises what keeps its log from being opened, or its file from being read."""
        log = self._log(named.topic, named.partition)
        segment = next((one for one in log.segments if one.base_offset == named.base_offset), None)
        found = None if segment is None or log.damage is not None else self._damage_of(segment, named)
        if found is None:
            return
        with self._state.checkpoint_lock:  # segments are replaced under it
            is_current = segment in log.segments and named in self._state.catalogue.segments(named.topic, named.partition)
            if is_current and log.damage is None:
                logger.error("%s-%d: %s", named.topic, named.partition, found)
                log.damage = str(found)

    def _damage_of(self, segment: Segment, named: SegmentEntry) -> CorruptionError | None:
        """How its file differs from the catalogue; None: not at all, or the store is closing."""
        try:
            crc = self._read(segment, named.size_bytes)
        except FileNotFoundError:
            return CorruptionError(segment.path, 0, "the file is missing")
        if crc in {None, named.crc}:
            return None
        return CorruptionError(segment.path, 0, f"the CRC of the file is {crc:08x}, it was sealed with {named.crc:08x}")

    def _read(self, segment: Segment, size_bytes: int) -> int | None:
        """The CRC-32C of its file, as the disk has it; None where the store is closing."""
        file, crc = segment.open(), 0
        file.drop_cache()
        for piece in file.pieces(_PIECE_SIZE_BYTES, stop=size_bytes):
            crc = crc32c(piece, crc)
            if not self.background.pause(1000 * len(piece) / self._bytes_per_second):
                return None
        file.drop_cache()
        return crc
