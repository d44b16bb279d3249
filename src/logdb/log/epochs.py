"""Leader epochs of one log, and Kafka's ``leader-epoch-checkpoint`` file.

Each unclean open begins an epoch, and in a cluster each new leader.  Source: KIP-101, KIP-320.

The file is text: a version line ``0``, a count, and one line ``epoch start_offset``
for each entry, both numbers increasing.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from logdb.disk import read_file, replace_file, write_file
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.model import OFFSET_MAX

FILE_NAME = "leader-epoch-checkpoint"
SIZE_BYTES_MAX = 64 << 20


class EpochEnd(NamedTuple):
    """A leader epoch of a log, and its end offset."""

    leader_epoch: int
    end_offset: int


class LeaderEpochs:
    """Entries (epoch, start offset), both increasing; immutable, so readers need no lock.

    Attributes:
        latest: The epoch that new records get; 0 before the first entry.
        latest_start: The start offset of that epoch.
    """

    __slots__ = ("entries", "latest", "latest_start")

    def __init__(self, entries: tuple[tuple[int, int], ...] = ()) -> None:
        self.entries = entries
        self.latest, self.latest_start = entries[-1] if entries else (0, 0)

    def begun(self, epoch: int, start_offset: int) -> "LeaderEpochs":
        """With a new epoch from ``start_offset`` on; entries that then cover no record are dropped."""
        assert epoch > self.latest or not self.entries, f"epoch {epoch} after {self.entries}"
        return LeaderEpochs((*(entry for entry in self.entries if entry[1] < start_offset), (epoch, start_offset)))

    def end_of(self, epoch: int, log_end_offset: int) -> int | None:
        """The end offset of ``epoch``: the start of the next one.  None for an epoch later than the latest."""
        if epoch > self.latest:
            return None
        later = [start for known, start in self.entries if known > epoch]
        return later[0] if later else log_end_offset

    def holds(self, offset: int, epoch: int, log_end_offset: int) -> bool:
        """Whether a reader's position lies in the log; ``epoch``: of the record before it, below 0 if it is not known.

        Source: KIP-320.
        """
        end_offset = self.end_of(epoch, log_end_offset) if epoch >= 0 else log_end_offset
        return end_offset is not None and offset <= end_offset

    def answer(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """A leader's answer to OffsetsForLeaderEpoch: its latest epoch up to ``epoch``, and the end of that epoch.

        None for an epoch later than the latest, or before the first entry.

        Source: KIP-101; KIP-279 for the epoch in the answer.
        """
        end_offset = self.end_of(epoch, log_end_offset)
        known = next((known for known, _ in reversed(self.entries) if known <= epoch), None)
        return None if end_offset is None or known is None else EpochEnd(known, end_offset)

    def divergence(self, leader: EpochEnd | None, log_end_offset: int) -> EpochEnd | None:
        """The offset at which a follower's log diverges from its leader's, by the leader's ``answer`` to the follower's latest epoch.

        Returns:
            The follower's epoch up to which the logs may agree, and the offset to truncate to.  If this is not the epoch of the
            answer, the follower truncates, and asks the leader again for this epoch.  None: the logs share no epoch; the follower
            begins its log anew.

        Source: KIP-279.
        """
        own = None if leader is None else self.answer(leader.leader_epoch, log_end_offset)
        if leader is None or own is None:
            return None
        return EpochEnd(own.leader_epoch, min(own.end_offset, leader.end_offset, log_end_offset))

    def common_end(self, other: "LeaderEpochs", end_offset: int) -> int:
        """Where a log that ends at ``end_offset`` first has another leader epoch than a log with ``other``; ``end_offset``: nowhere."""
        starts = sorted({start for _, start in self.entries + other.entries if start < end_offset})
        return next((start for start in starts if self.at(start) != other.at(start)), end_offset)

    def until(self, end_offset: int) -> "LeaderEpochs":
        """Without the epochs that begin past ``end_offset``, the end of the log."""
        return LeaderEpochs(tuple(entry for entry in self.entries if entry[1] <= end_offset))

    def before(self, offset: int) -> "LeaderEpochs":
        """Without the epochs that begin at ``offset`` or later: the log was truncated there."""
        return LeaderEpochs(tuple(entry for entry in self.entries if entry[1] < offset))

    def at(self, offset: int) -> int:
        """The epoch of the record at ``offset``."""
        slot = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[slot - 1][0] if slot else 0


def encode(epochs: LeaderEpochs) -> bytes:
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs.entries)
    return f"0\n{len(epochs.entries)}\n{lines}".encode()


def decode(data: bytes, path: str) -> LeaderEpochs:
    """Parse a checkpoint; raises CorruptionError unless it is exactly what ``encode`` writes."""
    try:
        version, count, *lines = data.decode("ascii").split("\n")[:-1]
        entries = tuple((int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines))
    except ValueError:
        raise CorruptionError(path, 0, "not a leader epoch checkpoint") from None
    epochs = LeaderEpochs(entries)
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    in_range = all(0 <= epoch < 2**31 and 0 <= start <= OFFSET_MAX for epoch, start in entries)
    if version != "0" or count != str(len(entries)) or not rising or not in_range or encode(epochs) != data:
        raise CorruptionError(path, 0, f"version {version!r} with {count} entries contradicts its {len(lines)} lines")
    return epochs


def load(io: IO, path: str) -> LeaderEpochs | None:
    """Read a checkpoint; None if the file is absent."""
    try:
        data = read_file(io, path, SIZE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode(data, path)


def save(io: IO, path: str, epochs: LeaderEpochs, *, sync: bool = True) -> None:
    """Replace the checkpoint; durably unless ``sync`` is False."""
    if sync:
        replace_file(io, path, encode(epochs))
    else:
        write_file(io, path, encode(epochs), sync=False)
