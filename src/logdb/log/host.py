"""The interface between a log and the store that opened it, the log's host."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logdb.errors import LogdbError
from logdb.log.preallocation import Budget
from logdb.log.producers import ProducerStates
from logdb.log.view import LogView
from logdb.meta import LogEntry, SegmentEntry

if TYPE_CHECKING:
    from logdb.log.log import Log
    from logdb.log.readable import ReadableLog


class Reserve(Protocol):
    """Room on the disk for calls that make room."""

    spender: int
    """The thread that uses it now: the only one that may write to logs; 0 without one."""

    def check(self, path: str, size_bytes: int) -> None:
        """Raise DiskFull for a write while another thread uses the reserve."""


class Host(Protocol):
    """What a log asks of the store that opened it."""

    @property
    def reserve(self) -> Reserve: ...

    @property
    def preallocation(self) -> Budget: ...

    def wake_writer(self, log: "Log") -> None:
        """Records wait to be written."""

    def wake_syncer(self, log: "Log") -> None:
        """Written records wait to be synced, or a segment to be sealed."""

    def end_fsync_only(self, log: "Log") -> None:
        """Before an append below level fsync: note durably that not all past the recovery point is at level fsync."""

    def note_producers(self, log: "Log", snapshot_offset: int) -> None:
        """Note durably that the log has producers from now on; the snapshot at ``snapshot_offset`` has none."""

    def refusal(self, log: "ReadableLog") -> LogdbError:
        """Why the log takes no records."""


class PendingReplacement(NamedTuple):
    """The files that a committed, perhaps unfinished replacement of segments renames (their final names), and those that it removes."""

    renamed: frozenset[str]
    removed: frozenset[str]


class CataloguedLog(NamedTuple):
    """The catalogue's entries of a log; ``pending``: None once each file has its name."""

    entry: LogEntry
    sealed: Sequence[SegmentEntry]
    pending: PendingReplacement | None


class Captured(NamedTuple):
    """A log as of one moment: its view, and its producers (None: it never had any).

    ``aborted``: the aborted transactions of the segment that the written end lies in, as in its ``.txnindex``.
    """

    view: LogView
    producers: ProducerStates | None
    aborted: bytes
