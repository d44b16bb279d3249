"""Effects: what a coordinator asks of its runner, and the order in which the runner carries it out.

A coordinator is one shard: the state behind one partition of an internal topic.  ``handle`` changes nothing; the runner
carries out what it returns, under the shard's lock, in this order:

1. ``records`` are appended to the shard's partition, as one batch (with ``producer``: transactional, as that
   producer's, written internally); with ``deferred`` not yet, but before the next ones, or soon.  If that fails, the
   event's ticket and those in ``replies`` are answered with the error, nothing else is done, and the coordinator is as it
   was.  If the event was an ActionDone, ActionFailed is handled in its place; if it was a TimerFired, the timer is set
   again to RETRY_MS.  The same goes for an error that ``handle`` raises.
2. ``accept(effects, offset of the first record)``: now the coordinator's state is the new one.  It is called for every
   Effects, also for one without records.
3. ``timers`` are set and cancelled.
4. Once these records and all earlier ones are acknowledged at the log's level (``sync``: once they are synced, at the levels
   `interval` and `fsync`), the ``replies`` go out and the ``actions`` begin.
5. Each action ends in an event for ``handle``: ActionDone or ActionFailed.

The runner releases the lock while it waits in step 4; the next event may be handled meanwhile.  A reply to a ticket whose request
has ended is dropped.

A shard that is loaded is replayed through ``apply`` and ``apply_marker``; then the runner carries out ``recover``.  A shard that
resigns is dropped with its state; a later load replays the partition into a new coordinator.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from logdb.errors import LogdbError
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.requests.request import Request

Q = TypeVar("Q", bound=Request[Any])

RETRY_MS = 1_000
"""The delay before a failed step is tried again."""


class StateRecord(NamedTuple):
    """A record for the internal topic, in Kafka's format; the value None is a tombstone."""

    key: bytes
    value: bytes | None


class Submitted(NamedTuple, Generic[Q]):
    """Event: a client's request.

    ``ticket``: a number by which the runner finds the waiting caller; the reply may come with the effects of a later event.
    ``verified``, of offsets in a transaction: what ``GroupCoordinator.verification`` gave before the transaction was verified; None:
    whoever asks knows that it is open.
    """

    ticket: int
    request: Q
    verified: object | None = None


class Reply(NamedTuple):
    """The answer to a request: its result, or the error to raise."""

    ticket: int
    result: Any  # of the type that the request names; a LogdbError is raised


TimerKey: TypeAlias = tuple[str, ...]


class Timer(NamedTuple):
    """Set the timer ``key`` to fire in ``delay_ms``, instead of its earlier setting; None cancels it.

    When it fires, the runner handles TimerFired(key).  A timer that is set again or cancelled before this event is handled
    does not fire.  Delays are of the monotonic clock.
    """

    key: TimerKey
    delay_ms: int | None


class TimerFired(NamedTuple):
    """Event: the timer is due."""

    key: TimerKey


class SyncPartitions(NamedTuple):
    """Action: fdatasync these partitions up to their current ends, except those of level `os`.

    A partition that does not exist (any more) counts as done.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


class WriteMarkers(NamedTuple):
    """Action: end the producer's transaction on each of these partitions with a control batch.

    It is synced (levels as above) where ``last_epoch`` is the producer's: the next transaction may then have the same
    epoch.  Otherwise the runner finds the decision by the epoch if the marker is lost.

    The marker is written whether or not the partition holds records of the transaction: its epoch fences late batches.
    In ``__consumer_offsets`` the group coordinator's ``apply_marker`` follows the append.

    After a crash the action may be repeated while the producer's next transaction is open.  So these count as
    done: a partition that does not exist (any more), one where the producer's open transaction has an epoch above
    ``last_epoch``, and one that answers ProducerFenced.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch  # epoch: of the markers
    partitions: frozenset[TopicPartition]
    commit: bool
    coordinator_epoch: int
    last_epoch: int  # the highest epoch that records of the transaction can have


Action: TypeAlias = SyncPartitions | WriteMarkers


class ActionDone(NamedTuple):
    """Event: the action was carried out."""

    action: Action


class ActionFailed(NamedTuple):
    """Event: the action, or a part of it, could not be carried out.

    The waiting requests get the error; a timer repeats the markers.
    """

    action: Action
    error: LogdbError


class Effects(NamedTuple):
    """The effects of one event; see the module for their order."""

    records: tuple[StateRecord, ...] = ()
    producer: ProducerIdAndEpoch | None = None
    sync: bool = False
    deferred: bool = False  # replay does not need these records: they are appended with the next ones, or soon
    replies: tuple[Reply, ...] = ()
    timers: tuple[Timer, ...] = ()
    actions: tuple[Action, ...] = ()
    parsed: tuple[Any, ...] = ()  # the coordinator's own: the parsed records; empty: accept parses them
    changes: Mapping[str, Any] = MappingProxyType({})  # the coordinator's own: its state after accept


class Coordinator(Protocol):
    """One shard of groups or of transactions.

    Threading: none of its own; the runner calls under the shard's lock, queries (describe, fetch) too.
    """

    def handle(self, event: Any, now_ms: int) -> Effects:
        """The effects of an event; the state stays as it is.

        Args:
            event: One of those that the coordinator's class names.
            now_ms: Time of day, for times in records.
        """

    def accept(self, effects: Effects, offset: int) -> None:
        """Change the state by ``effects``; ``offset`` is that of the first record (any number without records)."""

    def apply(self, key: bytes, value: bytes | None, *, offset: int, producer_id: int = -1) -> None:
        """Replay one record of the partition; ``producer_id`` is that of its batch if the batch is transactional, else -1.

        Raises:
            InvalidRecord: The bytes are not one of Kafka's records for this topic (newer key versions are skipped).
        """

    def apply_marker(self, producer_id: int, *, commit: bool) -> None:
        """A control batch of the partition is replayed, or was just written."""

    def recover(self, now_ms: int) -> Effects:
        """Called once after the replay: timers of live members, actions of prepared transactions; carried out like an event's effects."""
