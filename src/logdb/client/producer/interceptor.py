"""Interceptors: called by ``Producer.send`` and ``Consumer.poll`` with every record; they may change or drop it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from logdb.client.records import AnyRecord
from logdb.model import Buffer, Timestamp, timestamp_ms_of


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingRecord:
    """The arguments of ``Producer.send``, before serialization; ``dataclasses.replace`` makes a changed copy.

    Attributes:
        partition: None: the partitioner chooses.
        timestamp_ms: Milliseconds since 1970; a ``datetime`` with a time zone becomes such a number.  None: now.
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Iterable[tuple[str, Buffer | None]] = ()
    timestamp_ms: Timestamp | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "timestamp_ms", timestamp_ms_of(self.timestamp_ms))


class Interceptor:
    """Sees every record that is sent or consumed; override the methods.

    An exception goes to the caller of ``send`` or ``poll``, because an interceptor that hides data must not be skipped when it fails.
    Interceptors are called in the order given, each with the result of the one before it.

    Source: Kafka's ProducerInterceptor and ConsumerInterceptor (KIP-42).
    """

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord | None:
        """Return the record to send, a changed copy, or None to drop it: then its future is done, with offset -1.

        Called in the thread that sends, before key and value are serialized and the partition is chosen.
        """
        return record

    def on_consume(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """Return the records of one partition that the application gets, in the order of their offsets.

        Called in the thread that polls, after keys and values were deserialized.  A record left out counts as read.
        ``ConsumedRecord.of(record, value=…)`` makes a changed copy.
        """
        return records


def checked(interceptors: object) -> tuple[Interceptor, ...]:
    """The interceptors that an application gave.

    Raises:
        TypeError: One of them is not an Interceptor.
    """
    given = tuple(interceptors) if isinstance(interceptors, Iterable) else (interceptors,)
    for one in given:
        if not isinstance(one, Interceptor):
            raise TypeError(f"interceptors={interceptors!r}: must be an iterable of Interceptor, not {one!r}")
    return given


def outgoing(interceptors: Iterable[Interceptor], record: OutgoingRecord) -> OutgoingRecord | None:
    """The record after all interceptors; None if one dropped it."""
    for interceptor in interceptors:
        seen = interceptor.on_send(record)
        if seen is None:
            return None
        if not isinstance(seen, OutgoingRecord):
            raise TypeError(f"{type(interceptor).__name__}.on_send has to return an OutgoingRecord or None, not {type(seen).__name__}")
        record = seen
    return record
