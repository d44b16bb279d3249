"""Records as a consumer returns them."""

from dataclasses import dataclass
from typing import Any, Protocol


class AnyRecord(Protocol):
    """A record as a consumer returns it: a ``Record``, or with deserializers or interceptors a ``ConsumedRecord``.

    Attributes:
        key, value: bytes or None; or the deserializer's result.
        headers: Pairs of a name and bytes or None.
        timestamp_ms: Milliseconds since 1970; -1: it has none; less: before 1970.
        leader_epoch: Of the batch that holds it.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def key(self) -> Any: ...

    @property
    def value(self) -> Any: ...

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

    @property
    def timestamp_ms(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record whose key or value differs from the log's: deserialized, or changed by an interceptor."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    leader_epoch: int

    @staticmethod
    def of(record: AnyRecord, **changes: Any) -> "ConsumedRecord":
        """The record with other fields: ``ConsumedRecord.of(record, value=b"***")``."""
        fields = {name: getattr(record, name) for name in ConsumedRecord.__slots__}
        return ConsumedRecord(**fields | changes)
