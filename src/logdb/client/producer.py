"""The producer: records in, futures out.

Knows how a record is intercepted, serialized and given a partition.  Does not know how it is gathered
(``client.accumulator``) nor how it is written (``client.sender``).

Threading: any number of threads may send, flush and close.  Callbacks run on the sender's thread.
"""

import logging
import os
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, Self

from logdb import serde
from logdb.client import partitioner as partitioners
from logdb.client.accumulator import Accumulator, SendFuture
from logdb.client.interceptor import Interceptor, OutgoingRecord, outgoing
from logdb.client.partitioner import Partitioner
from logdb.client.sender import Sender, SenderOptions
from logdb.client.session import Session
from logdb.errors import Closed, CloseIncomplete, Forked, UnknownPartition
from logdb.io import IO
from logdb.model import COMPRESSION_TYPES, Buffer, LogConfig, RecordMetadata, TopicPartition

logger = logging.getLogger(__name__)

Headers = Iterable[tuple[str, Buffer | None]]
OnDelivery = Callable[[BaseException | None, RecordMetadata | None], object]
_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


class Producer:
    """Sends records to topics.  Made by ``Database.producer``; a context manager that closes itself."""

    def __init__(
        self,
        session: Session,
        *,
        io: IO,
        clock: Callable[[], int] | None,
        acks: Literal[0, 1, -1, "all"] = "all",
        enable_idempotence: bool = True,
        linger_ms: int = 5,
        batch_size: int = 16_384,
        compression_type: str | None = None,
        buffer_memory: int = 32 << 20,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        retries: int = 2**31 - 1,
        retry_backoff_ms: int = 100,
        partitioner: str | Partitioner | None = None,
        key_serializer: serde.Serializer | None = None,
        value_serializer: serde.Serializer | None = None,
        interceptors: Iterable[Interceptor] = (),
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        self._session, self._io, self._clock, self._batch_size = session, io, clock, batch_size
        self._transaction_timeout_ms = transaction_timeout_ms
        self._choose = partitioners.make(partitioner)
        self._serialize_key = serde.serializing(key_serializer, "key")
        self._serialize_value = serde.serializing(value_serializer, "value")
        self._interceptors = tuple(interceptors)
        self._options = SenderOptions(
            linger_ms=linger_ms,
            codec=COMPRESSION_TYPES.index(compression_type or "none"),
            buffer_memory=buffer_memory,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            retries=retries,
            retry_backoff_ms=retry_backoff_ms,
            idempotent=enable_idempotence or transactional_id is not None,
            acks=0 if acks == 0 else 1,
            transactional_id=transactional_id,
        )
        self._sender = Sender(session, self._options, io, f"logdb-producer-{transactional_id or id(self)}")
        self._partitions: dict[str, list[Accumulator | None]] = {}
        self._owner, self._closed = os.getpid(), False
        _producers.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        """Take a record, to be written soon."""
        if self._interceptors:
            given = OutgoingRecord(topic=topic, value=value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
            record = outgoing(self._interceptors, given)
            assert record is not None
            topic, value, key, partition = record.topic, record.value, record.key, record.partition
            headers, timestamp_ms = record.headers, record.timestamp_ms
        if self._serialize_key is not None:
            key = self._serialize_key(key)
        if self._serialize_value is not None:
            value = self._serialize_value(value)
        size_bytes = 100 + len(value or b"") + len(key or b"")
        now = self._clock() if self._clock else self._io.clock_ms()
        with self._sender.changed:
            accumulator = self._accumulator(topic, key, partition)
            self._sender.reserve(size_bytes)
            future = accumulator.put(
                value, key, headers, now if timestamp_ms is None else timestamp_ms, self._io.monotonic_ms(), size_bytes
            )
            if on_delivery is not None:
                future._delivery._callbacks.append((on_delivery, future, False))
            self._sender.activate(accumulator)
        return future

    def _accumulator(self, topic: str, key: Buffer | None, partition: int | None) -> Accumulator:
        if os.getpid() != self._owner:
            raise Forked(f"the producer was made by process {self._owner}, this is its child {os.getpid()}")
        if self._closed:
            raise Closed("the producer is closed")
        known = self._partitions.get(topic)
        if known is None:
            known = self._partitions[topic] = [None] * self._session.partition_count(topic)
        if partition is None:
            partition = self._choose(key, len(known))
        if not 0 <= partition < len(known):
            raise UnknownPartition(topic, partition, len(known))
        accumulator = known[partition]
        if accumulator is None:
            config = LogConfig.of(self._session.describe_topic(topic).config, "interval")
            accumulator = known[partition] = Accumulator(
                TopicPartition(topic, partition), config, batch_size=self._batch_size, clock=self._clock
            )
        return accumulator

    def flush(self, timeout_ms: int | None = None) -> None:
        """Return once everything sent so far is acknowledged."""
        if left := self._sender.flush(timeout_ms):
            raise TimeoutError(f"{left} records still wait after timeout_ms={timeout_ms}")

    def close(self, timeout_ms: int | None = None) -> None:
        """Write what was sent, then end."""
        self._closed = True
        if lost := self._sender.stop(timeout_ms):
            raise CloseIncomplete("the producer", lost, f"timeout_ms={timeout_ms} were over")
