"""What a follower does next in one leader epoch: ask where epochs end, cut its log off, begin it anew, fetch.

Pure: answers in, steps out; no I/O, no clock, no thread.  One object for one leader epoch of one partition.

    checking ──► the leader's answer ──► truncate, and ask again ──┐
       ▲  │                         └──► begin anew                │
       │  └── nothing to check ──► fetching ◄──────────────────────┘
       └──────── the log ends elsewhere ───┘

A log is cut off by leader epochs alone (KIP-101, KIP-279), never by a high watermark.  It begins anew where the leader's log begins, if
the two share no epoch, or the leader has let go of what comes next, or it is damaged.
"""

from typing import NamedTuple

from logdb.log.epochs import EpochEnd, LeaderEpochs


class AskEpoch(NamedTuple):
    """Ask the leader where an epoch ends."""

    epoch: int


class Fetch(NamedTuple):
    """Ask the leader for batches from an offset on."""

    offset: int


class TruncateTo(NamedTuple):
    """Cut the log off; then go on as ``Follower.next`` says."""

    offset: int


class BeginAnew(NamedTuple):
    """Drop the log, and begin with the leader's first batch; then go on as ``Follower.next`` says."""


class LogState(NamedTuple):
    """The follower's log as it is now: its leader epochs, its log start offset and its log end offset."""

    epochs: LeaderEpochs
    start_offset: int
    end_offset: int


class Follower:
    """One follower in one leader epoch.

    | field            | changed by                     | to be trusted                                                        |
    |------------------|--------------------------------|----------------------------------------------------------------------|
    | ``is_checked``   | any answer; ``stepped``        | true: the log is the begin of the leader's, so that what it has      |
    |                  |                                | flushed may be reported                                              |
    | ``_is_last``     | any answer                     | until the step is done: it makes the log the begin of the leader's   |
    """

    def __init__(self) -> None:
        self.is_checked = self._is_last = False

    def next(self, log: LogState) -> AskEpoch | Fetch:
        """What to ask the leader."""
        if not self.is_checked and log.epochs.entries:
            return AskEpoch(log.epochs.latest)
        self.is_checked = True
        return Fetch(log.end_offset)

    def epoch_answered(self, answer: EpochEnd | None, log: LogState) -> TruncateTo | BeginAnew | None:
        """The leader has said where the latest epoch of this log ends; None: the logs agree up to this log's end."""
        parts = log.epochs.divergence(answer, log.end_offset)
        if answer is None or parts is None or parts.end_offset < log.start_offset:
            return self._begin_anew()
        self._is_last = parts.leader_epoch == answer.leader_epoch  # else the former epoch is asked for
        if parts.end_offset < log.end_offset or not self._is_last or log.epochs.latest > parts.leader_epoch:
            return TruncateTo(parts.end_offset)
        self.stepped()
        return None

    def out_of_range(self, leader_start_offset: int, log: LogState) -> BeginAnew | None:
        """The leader's log has no record at the end of this one; None: check again.

        An empty log, which has no epoch to check, has begun at an offset of another leader's log.
        """
        self.is_checked = False
        return self._begin_anew() if log.end_offset < leader_start_offset or not log.epochs.entries else None

    def damaged(self) -> BeginAnew:
        """A range of the log is lost, and the leader does not count on the rest."""
        self.is_checked = False
        return self._begin_anew()

    def _begin_anew(self) -> BeginAnew:
        self._is_last = True
        return BeginAnew()

    def stepped(self) -> None:
        """The step was done; one that failed is asked for again."""
        self.is_checked = self._is_last

    def parted(self) -> None:
        """The leader's batches do not continue the log: check again."""
        self.is_checked = False
