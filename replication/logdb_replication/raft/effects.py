"""What a core wants done, as values; ``node`` does it, in the order of the list.

The order is the safety: ``StoreVote`` and ``Sync`` stand before the messages and answers that promise what they make durable.  An effect
that fails ends the voter: those after it are not done.  ``at`` is an index.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from logdb_replication.raft.asked import Asked
from logdb_replication.raft.messages import Entry, Message
from logdb_replication.raft.starts import Known
from logdb_replication.raft.voters import Peer, Voter


class Send(NamedTuple):
    """A message; one that finds no connection is lost."""

    peer: Peer
    message: Message


class SendPiece(NamedTuple):
    """A message ``snapshot``, with as many bytes of the snapshot's file from its ``offset`` on."""

    peer: Peer
    message: Message
    size_bytes: int


class Connect(NamedTuple):
    """Keep a connection with this voter from now on."""

    peer: Peer


class Disconnect(NamedTuple):
    """Keep none."""

    peer: Peer


class StoreVote(NamedTuple):
    """Term and vote, durably; ``commit``: committed, and durable in the journal."""

    term: int
    voted_for: tuple[int, int] | None
    commit: int


class StoreStarts(NamedTuple):
    """What is remembered of the other voters, durably.  ``refused``: why this directory must not be used again; the voter stops."""

    others: Mapping[int, Known]
    refused: str = ""


class Append(NamedTuple):
    """Entries at the end of the journal; durable after ``Sync``."""

    entries: tuple[Entry, ...]


class Sync(NamedTuple):
    """Make the journal durable."""


class Cut(NamedTuple):
    """Remove the entries from the index ``at`` on, durably."""

    at: int


class Drop(NamedTuple):
    """Remove the entries before the index ``at``, durably."""

    at: int


class Reset(NamedTuple):
    """Remove all entries, durably: the journal begins at a snapshot."""

    at: int
    term: int


class TakeSnapshot(NamedTuple):
    """Store the state of the machine as the snapshot, durably."""

    at: int
    term: int
    voters: tuple[Voter, ...]


class StoreSnapshot(NamedTuple):
    """Store a leader's snapshot, durably."""

    data: bytes


class Restore(NamedTuple):
    """Replace the state of the machine."""

    at: int
    state: bytes


class Apply(NamedTuple):
    """Apply a committed command; its answer settles ``what``."""

    at: int
    command: bytes
    what: Asked | None


class Settle(NamedTuple):
    """Answer what was asked."""

    what: Asked
    outcome: bytes | int | Exception


class Tell(NamedTuple):
    """A line for the log of the process, at a level of ``logging``."""

    level: int
    text: str


Effect: TypeAlias = (
    Send
    | SendPiece
    | Connect
    | Disconnect
    | StoreVote
    | StoreStarts
    | Append
    | Sync
    | Cut
    | Drop
    | Reset
    | TakeSnapshot
    | StoreSnapshot
    | Restore
    | Apply
    | Settle
    | Tell
)
