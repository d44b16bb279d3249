"""Records as JSON of Kafka's REST API v3: produce requests and their reports.

    {"partition_id": 1, "headers": [{"name": "h", "value": "Zm9v"}], "timestamp": "2021-02-05T19:14:42Z",
     "key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {"a": 1}}}

Source: Confluent's kafka-rest, ``ProduceRequest``, ``ProduceResponse``, ``NoSchemaRecordSerializer``.
"""

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from logdb_http_api.errors import ApiError
from logdb_http_api.v2.formats import NO_REGISTRY, from_base64, to_json
from logdb_http_api.v3.resources import malformed, require_fields, unprocessable

WITH_SCHEMA = ("AVRO", "JSONSCHEMA", "PROTOBUF")
_FIELDS = frozenset(("partition_id", "headers", "key", "value", "timestamp"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

Headers = tuple[tuple[str, bytes | None], ...]


Row: TypeAlias = tuple[int | None, bytes | None, bytes | None, Headers, int | None, str]
"""A record to append: partition (None: the key chooses), key, value, headers, its time in ms since 1970 (None: the server's), and
the end of its report."""


_NOTHING = (None, "")
_EMBEDDED: dict[Any, Callable[[Any], bytes]] = {"BINARY": from_base64, "JSON": to_json, "STRING": str.encode}
_WANTED: dict[Any, str] = {"BINARY": "a base64 string", "JSON": "JSON", "STRING": "a string in valid UTF-8"}


def row(record: Any, more: frozenset[str] = frozenset()) -> Row:
    """A record of a request.

    Args:
        more: Fields allowed beside those of a record.

    Raises:
        ApiError: It is invalid.
        RecursionError: It is too deep.
    """
    if type(record) is not dict:
        raise malformed("a record", record, "an object")
    if not record.keys() <= _FIELDS and (unknown := record.keys() - _FIELDS - more):
        raise malformed("a record", sorted(unknown), f"nothing but {', '.join(sorted(_FIELDS))}")
    partition, headers, timestamp = record.get("partition_id"), record.get("headers"), record.get("timestamp")
    if partition is not None and type(partition) is not int:
        raise malformed("partition_id", partition, "a whole number")
    key, value = record.get("key"), record.get("value")
    key, key_report = _NOTHING if key is None else _embedded(key, "key")
    value, value_report = _NOTHING if value is None else _embedded(value, "value")
    return (
        partition,
        key,
        value,
        () if headers is None else _headers(headers),
        None if timestamp is None else _timestamp_ms(timestamp),
        f"{key_report}{value_report}}}",
    )


def _embedded(part: Any, name: str) -> tuple[bytes | None, str]:
    """Decode a key or a value; returns also its part of the report."""
    if type(part) is not dict:
        raise malformed(name, part, "an object of type and data")
    kind, data = part.get("type"), part.get("data")
    embed = _EMBEDDED.get(kind) if type(kind) is str else None
    if embed is None:
        raise _no_type(name, kind)
    if data is None or len(part) > 2:
        require_fields(part, name, "type", "data")  # a misspelled "data" must not mean a deletion
    if data is None:
        return None, f',"{name}":{{"type":"{kind}","size":0}}'
    try:
        embedded = embed(data)
    except (ValueError, TypeError):
        raise ApiError(400, 400, f"Bad Request: data={data!r:.80} is not {_WANTED[kind]}.") from None
    return embedded, f',"{name}":{{"type":"{kind}","size":{len(embedded)}}}'


def _no_type(name: str, kind: Any) -> ApiError:
    if kind is None or kind in WITH_SCHEMA:
        return unprocessable(42206, f"Payload error. {NO_REGISTRY}")
    return malformed(f"{name}.type", kind, f"one of {', '.join(_EMBEDDED)}")


def _headers(given: Any) -> Headers:
    if not isinstance(given, list):
        raise malformed("headers", given, "a list")
    return tuple(map(_header, given))


def _header(given: Any) -> tuple[str, bytes | None]:
    require_fields(given, "a header", "name", "value")
    name, value = given.get("name"), given.get("value")
    if isinstance(name, str):
        with contextlib.suppress(ValueError, TypeError):
            name.encode()
            return name, None if value is None else from_base64(value)
    raise malformed("a header", given, "an object of name, a string in valid UTF-8, and value, base64")


def _timestamp_ms(given: Any) -> int:
    try:
        at = datetime.fromisoformat(given)
        at.astimezone(UTC)  # as the report has it: UTC may lack the year
        return (at - _EPOCH) // _MS
    except (ValueError, TypeError, OverflowError):
        raise malformed("timestamp", given, "a time of ISO 8601 with its zone, such as 2021-02-05T19:14:42Z") from None


# ---------------------------------------------------------------- reports


def report_begin(cluster_id: str, topic: str, partition: int) -> str:
    """The common part of the reports on records of a partition, before the offset."""
    return f',"cluster_id":"{cluster_id}","topic_name":"{topic}","partition_id":{partition},"offset":'


def timestamp_text(timestamp_ms: int | None) -> str:
    """The time in a report; None: the log's."""
    if timestamp_ms is None:
        return ',"timestamp":null'
    at = _EPOCH + timestamp_ms * _MS
    written = at.isoformat(timespec="milliseconds" if timestamp_ms % 1000 else "seconds")
    return f',"timestamp":"{written.removesuffix("+00:00")}Z"'


def refusal(error: ApiError) -> str:
    """The report on a record that was not appended, without its braces."""
    return f'"error_code":{error.code},"message":{json.dumps(str(error))}'
