"""Records on their way from the log to the application: deserialized, and shown to interceptors.

Knows one list at a time.  Does not know positions: whoever reads goes on behind what is returned here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from logdb.client.consumer_config import Deserializer
from logdb.codec import Record
from logdb.errors import SerializationError


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record whose key and value are what the consumer's deserializers made of them; otherwise as ``Record``."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    leader_epoch: int


AnyRecord: TypeAlias = Record | ConsumedRecord


def deserialize(records: Sequence[Record], key: Deserializer | None, value: Deserializer | None) -> list[AnyRecord]:
    """All records up to the first that cannot be deserialized.

    Raises:
        SerializationError: It is the first; the cause is the deserializer's own error.
    """
    done: list[AnyRecord] = []
    for record in records:
        try:
            made_key = record.key if key is None else key(record.key)
            made_value = record.value if value is None else value(record.value)
        except Exception as error:
            if done:
                break
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            raise SerializationError(f"the record in {where} cannot be deserialized: {error}") from error
        done.append(
            ConsumedRecord(
                record.topic,
                record.partition,
                record.offset,
                made_key,
                made_value,
                record.headers,
                record.timestamp_ms,
                record.leader_epoch,
            )
        )
    return done
