"""Where one partition's log begins and ends: one immutable value, replaced by one assignment.

A log that is written to, one that is read beside its writer and one of a snapshot each *publish* views; reading is functions
over a view and a limit (``log.reading``).

    log start offset      unstable offset   high watermark    flushed        written       log end
          |                     |                 |              |              |             |
     ─────[─────────────────────[─────────────────[──────────────[──────────────[─────────────)
          └ read_committed ─────┘                 │              │              │ open batch, │
          └ read_uncommitted ─────────────────────┘              │ page cache   │ queue (C)   │

Two of these ends may lie in any order: the flushed end moves with each sync, the high watermark with the followers.

| variable             | who changes it                             | under which lock           | when it may be trusted            |
|----------------------|--------------------------------------------|----------------------------|-----------------------------------|
| log end (C:          | appends, in the builder                    | the GIL, the builder's own | at once; its records are in no    |
| ``_next_offset``)    |                                            |                            | file below ``written_offset``     |
| ``Log.view``         | all below, by one assignment               | ``writer.lock``, and       | without a lock: it is one value   |
| ``.segments``        | a roll; a new log start; a replacement;    |                            | a file of it may be removed: its  |
|                      | a truncation, ``.start_offset``, too       |                            | reader then takes a later view    |
| ``.start_offset``    | retention, ``delete_records``              |                            | before the segments below it go   |
| ``.written_offset``, | a write of a buffer, once it is whole;     | the builder's write lock;  | below it bytes, indexes and       |
| ``_position``        | a truncation                               | append and ``LogSync.lock``| producers stay until a truncation |
| ``.flushed``         | a sync, once fdatasync has returned;       | ``LogSync.lock``           | below it a power cut takes        |
|                      | a truncation                               |                            | nothing; never ahead of the disk  |
| ``.high_watermark``  | replication; a truncation below it         |                            | monotone within a leader epoch,   |
|                      |                                            |                            | except for a truncation;          |
|                      |                                            |                            | ``OFFSET_MAX``: a log of its own  |
| ``.unstable_offset`` | a write that has batches of a producer;    | that of the producers;     | with ``written_offset``           |
|                      | a truncation                               | append and ``LogSync.lock``|                                   |
| ``.epochs``          | a new leader epoch; a truncation           |                            | the file on the disk may be older |
|                      |                                            |                            | until the next sync               |

A truncation holds the append lock of the builder throughout, so that no record is accepted; it has all of the log written and synced
first.

Locks are taken in this order: the builder's append lock, ``LogSync.lock``, ``_replacing``, the builder's write lock, that of the segment
writer, that of the producers.  ``Log._state_lock`` is the last: while it is held, no other is taken.
Beside a writer (``log.tail``) all of it changes under the tail's one lock.
"""

from collections.abc import Sequence
from typing import NamedTuple

from logdb.log.epochs import LeaderEpochs
from logdb.log.recovery_point import Point
from logdb.model import OFFSET_MAX, AbortedTransaction
from logdb.segment.segment import Segment


class LogView(NamedTuple):
    """One log at one moment; the module's table says who changes it, and when it may be trusted.

    ``segments``: oldest first; the last one is active.  ``written_offset``: the end of the records in the files, at
    ``written_position`` of the active segment.  ``flushed``: the end of the durable records, the recovery point.
    ``unstable_offset``: the first offset of the oldest open transaction; OFFSET_MAX without one.
    """

    segments: tuple[Segment, ...]
    start_offset: int
    written_offset: int
    written_position: int
    flushed: Point
    epochs: LeaderEpochs
    unstable_offset: int = OFFSET_MAX
    high_watermark: int = OFFSET_MAX

    @property
    def active(self) -> Segment | None:
        """The segment that the written end lies in; None for a log without segments."""
        return self.segments[-1] if self.segments else None

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that are written, replicated and decided."""
        return max(min(self.written_offset, self.high_watermark, self.unstable_offset), self.start_offset)

    def limit(self, committed: bool) -> int:
        """Where reading ends: the last stable offset, or else the high watermark."""
        if committed:
            return self.last_stable_offset
        end, high_watermark = self.written_offset, self.high_watermark
        return end if end <= high_watermark else high_watermark  # noqa: FURB136 -- each read comes here, and min() takes longer


class Ends(NamedTuple):
    """What a reader is told of one view.

    ``high_watermark``: of a log that is not replicated, where its written records end.  ``promised_offset``: where the reader's reading
    ends; of a leader whose high watermark has not reached the start of its epoch: not below that start.
    """

    start_offset: int
    high_watermark: int
    last_stable_offset: int
    promised_offset: int

    @classmethod
    def of(cls, view: LogView, committed: bool) -> "Ends":
        """The ends of a view, of which the transactions are known.

        Every record that an earlier leader acknowledged or showed lies below the start of the epoch.  A reader that takes a lower
        high watermark for the end of the log would miss some.
        """
        high_watermark, last_stable_offset = min(view.written_offset, view.high_watermark), view.last_stable_offset
        readable, epoch_start = last_stable_offset if committed else high_watermark, view.epochs.latest_start
        promised_offset = max(readable, epoch_start) if view.high_watermark < epoch_start else readable
        return cls(view.start_offset, high_watermark, last_stable_offset, promised_offset)


class Page(NamedTuple):
    """One read of whole batches: where reading goes on, the aborted transactions among them, and the ends of the log that was read.

    ``aborted``: of a read at ``read_committed``; of another one empty.
    """

    batches: memoryview
    next_offset: int
    aborted: Sequence[AbortedTransaction]
    ends: Ends
