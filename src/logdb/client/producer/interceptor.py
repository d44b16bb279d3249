"""What an application puts between its records and the log, on the way in and on the way out.

Knows the two calls.  Does not know who makes them: ``Producer.send`` and ``Consumer.poll``, never a broker.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from logdb.client.records import AnyRecord
from logdb.model import Buffer


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingRecord:
    """What ``Producer.send`` was given, before it is serialized; ``dataclasses.replace`` makes another one of it.

    Attributes:
        partition: None: the partitioner chooses.
        timestamp_ms: Milliseconds since 1970; None: now.
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Iterable[tuple[str, Buffer | None]] = ()
    timestamp_ms: int | None = None


class Interceptor:
    """Sees every record on its way; override what is to be changed.

    What it raises goes to the caller of ``send`` or ``poll``: an interceptor that hides something must not be passed
    by because it failed.  Several of them are called in the order given, each with what the one before it returned.

    Source: Kafka's ProducerInterceptor and ConsumerInterceptor (KIP-42).
    """

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord | None:
        """Return the record to send, another one in its place, or None to drop it: its future is done, with offset -1.

        Called in the thread that sends, before key and value are serialized and the partition is chosen.
        """
        return record

    def on_consume(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """Return what the application is to see of the records of one partition, in the order of their offsets.

        Called in the thread that polls, after keys and values were deserialized.  What is left out counts as read: it is
        not seen again.  ``ConsumedRecord.of(record, value=…)`` makes a changed one.
        """
        return records


def checked(interceptors: object) -> tuple[Interceptor, ...]:
    """The interceptors that an application gave.

    Raises:
        TypeError: One of them is none.
    """
    given = tuple(interceptors) if isinstance(interceptors, Iterable) else (interceptors,)
    for one in given:
        if not isinstance(one, Interceptor):
            raise TypeError(f"interceptors={interceptors!r}: allowed is an iterable of Interceptor, and {one!r} is none")
    return given


def outgoing(interceptors: Iterable[Interceptor], record: OutgoingRecord) -> OutgoingRecord | None:
    """What is left of a record when all have seen it."""
    for interceptor in interceptors:
        seen = interceptor.on_send(record)
        if seen is None:
            return None
        if not isinstance(seen, OutgoingRecord):
            raise TypeError(f"{type(interceptor).__name__}.on_send has to return an OutgoingRecord or None, not {type(seen).__name__}")
        record = seen
    return record
