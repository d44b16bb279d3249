"""Headers as text, whose types are inferred when they are read: Kafka's default."""

import logging
from typing import Any

from logdb_connect import values
from logdb_connect.data import BYTES, Schema
from logdb_connect.errors import DataError
from logdb_connect.plugin import HeaderConverter

logger = logging.getLogger(__name__)


class SimpleHeaderConverter(HeaderConverter):
    """Text of any value; see ``logdb_connect.values``."""

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return values.text_of(schema, value).encode()
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize value for header '{key}' on topic '{topic}': {error.reason}") from None

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        try:
            return values.parse(data.decode(errors="replace"))
        except (DataError, RecursionError):
            logger.warning("Failed to deserialize value for header '%s' on topic '%s', so using byte array", key, topic)
            return BYTES, data
