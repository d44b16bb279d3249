"""Records on their way from the log to the application: deserialized, then shown to interceptors.

Knows one list at a time.  Does not know positions: whoever reads goes on behind what is returned here.
"""

from collections.abc import Callable, Sequence
from typing import Any

from logdb import serde
from logdb.client.interceptor import Interceptor
from logdb.client.records import AnyRecord, ConsumedRecord
from logdb.codec import Record
from logdb.errors import SerializationError


class Finishing:
    """What a consumer's options make of records.

    Attributes:
        needed: Whether that is anything at all.
    """

    def __init__(self, key: serde.Deserializer | None, value: serde.Deserializer | None, interceptors: Sequence[Interceptor]) -> None:
        self._key, self._value = serde.deserializing(key, "key"), serde.deserializing(value, "value")
        self._interceptors = interceptors
        self.needed = bool(self._key or self._value or interceptors)

    def deserialize(self, records: Sequence[Record]) -> list[AnyRecord]:
        """All records up to the first that cannot be deserialized.

        Raises:
            SerializationError: It is the first; the cause is the deserializer's own error.
        """
        key, value = self._key, self._value
        if key is None and value is None:
            return list(records)
        done: list[AnyRecord] = []
        for record in records:
            try:
                done.append(ConsumedRecord.of(record, key=_made(key, record.key), value=_made(value, record.value)))
            except SerializationError as error:
                if done:
                    break
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise SerializationError(f"{where}: {error}") from error.__cause__
        return done

    def intercept(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """What is left when all interceptors have seen them; raises whatever one of them does."""
        for interceptor in self._interceptors:
            records = interceptor.on_consume(records)
        return records


def _made(deserializer: Callable[[Any], Any] | None, data: bytes | None) -> Any:
    return data if deserializer is None else deserializer(data)
