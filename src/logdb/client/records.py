"""Records as a consumer hands them out.

Knows their fields.  Does not know where they come from.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from logdb.codec import Record


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record whose key or value is no longer what the log holds: deserialized, or changed by an interceptor."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    leader_epoch: int

    @staticmethod
    def of(record: "AnyRecord", **changes: Any) -> "ConsumedRecord":
        """The record with other fields: ``ConsumedRecord.of(record, value=b"***")``."""
        fields = {name: getattr(record, name) for name in ConsumedRecord.__slots__}
        return ConsumedRecord(**fields | changes)


AnyRecord: TypeAlias = Record | ConsumedRecord
