"""Records as JSON of Kafka's REST API v2: the bodies of produce requests and of reads.

Has the media types, and embeds keys and values: as base64 in ``binary``, as JSON in ``json``.

All records are converted in one pass, in the C code of ``msgspec`` or ``binascii``.  A JSON value in an answer is checked and then
copied as stored, so that numbers keep all their digits.

Source: Confluent's kafka-rest, ``Versions``, ``NoSchemaRecordSerializer``, ``ProduceRequest``.
"""

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import msgspec

from logdb.codec import Record
from logdb.errors import SerializationError
from logdb.mistakes import one_of
from logdb.model import Buffer, TopicPartition
from logdb_http_api.door import documents
from logdb_http_api.door.schemas import Body, Number, OneOf
from logdb_http_api.errors import ApiError

PLAIN = "application/json"
V2 = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
WITH_SCHEMA = {f"application/vnd.kafka.{name}.v2+json": name for name in ("avro", "jsonschema", "protobuf")}
CONTROL = (V2, PLAIN)
ANY = (*CONTROL, BINARY, JSON, *WITH_SCHEMA)  # for consumers: many clients send one type with every request
NO_REGISTRY = "Schema Registry must be configured when using schemas: this server has none, it takes binary and json."

_MEMORY_FACTOR = 4  # base64 is a third longer, and exists three times: in pieces, in a row, as bytes
_OVERHEAD_BYTES = 64 << 10  # for what surrounds keys and values, in an answer with few of them
_TEXT_BYTES = 57  # of a str without its characters, in a list
_PRODUCE_FIELDS = frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"})
_RECORD_FIELDS = frozenset({"key", "value", "partition"})

_EMBEDDED_SHAPES = {BINARY: bytes | None, JSON: object}
_SCHEMAS = {"key_schema?": str | None, "key_schema_id?": int | None, "value_schema?": str | None, "value_schema_id?": int | None}
PRODUCING = Body(
    {
        kind: {"records": [{"key?": shape, "value?": shape, "partition?": OneOf(Number(0), None)}], **_SCHEMAS}
        for kind, shape in _EMBEDDED_SHAPES.items()
    }
)
READING = {
    kind: [{"topic": str, "key": shape, "value": shape, "partition": int, "offset": int}] for kind, shape in _EMBEDDED_SHAPES.items()
}


# ---------------------------------------------------------------- JSON


_strict = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode
_escaped = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
# Does not convert numbers, which are only checked.
_check = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=documents.refuse_constant).decode


def parse(body: Buffer) -> Any:
    """The body as JSON; raises ApiError: 400 if it is not JSON, or too deep, 413 if it would take too much memory."""
    return documents.parse(body, surrogates=True)


# ---------------------------------------------------------------- which type is wanted


def accepted(header: str | None, offered: Sequence[str], there_is: Sequence[str] = ()) -> str:
    """The type of ``offered`` that an Accept header prefers; among equals the first.

    Args:
        there_is: Those that are not refused later; None: all.

    Raises:
        ApiError: It accepts none; 406.
    """
    if not header:
        return offered[0]
    wishes = dict(map(_wish, header.split(",")))
    best = max(offered, key=lambda kind: _liking(wishes, kind))
    if _liking(wishes, best) <= 0:
        raise ApiError(406, 406, f"HTTP 406 Not Acceptable: Accept is {header[:200]!r}, available are {', '.join(there_is or offered)}")
    return best


def _wish(part: str) -> tuple[str, float]:
    kind, *parameters = part.split(";")
    weight = next((value for name, _, value in (one.strip().partition("=") for one in parameters) if name == "q"), "1")
    try:
        return kind.strip().lower(), float(weight)
    except ValueError:
        return kind.strip().lower(), 0.0


def _liking(wishes: Mapping[str, float], kind: str) -> float:
    return next((wishes[name] for name in (kind, f"{kind.partition('/')[0]}/*", "*/*") if name in wishes), 0.0)


# ---------------------------------------------------------------- records in


class Rows(NamedTuple):
    """The records of a produce request, column by column; ``partitions``: as each record says, None: by its key."""

    keys: list[bytes | None]
    values: list[bytes | None]
    partitions: list[int | None]


def from_base64(value: Any) -> bytes:
    """Decode base64; raises ValueError or TypeError."""
    if len(value) % 4:  # strict mode accepts these if enough of it is padding
        raise ValueError(f"{len(value)} characters are not a multiple of 4")
    return a2b_base64(value, strict_mode=True)


def to_json(value: Any) -> bytes:
    """A value as stored: JSON without spaces, in UTF-8; raises ValueError for a number that is too large."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON allows and UTF-8 does not
        return _escaped(value).encode()
    return _strict(value).encode() if b"null" in encoded else encoded  # msgspec writes null for a number that is too large


_EMBEDDED: dict[str, Callable[[Any], bytes]] = {BINARY: from_base64, JSON: to_json}
PRODUCED = (*_EMBEDDED, *WITH_SCHEMA)


def produced(content_type: str, body: Buffer) -> Rows:
    """The records of a produce request.

    Raises:
        ApiError: An unknown media type (415), an invalid produce request (400, 413, 422), a value of the wrong type (400), or one
            that needs a schema (422).
    """
    if content_type not in PRODUCED:
        raise ApiError(415, 415, f"HTTP 415 Unsupported Media Type: Content-Type is {content_type}: must be {one_of(_EMBEDDED)}")
    request = parse(body)
    if wrong := documents.wrong_fields(request, sorted(_PRODUCE_FIELDS)):
        raise ApiError(422, 422, f"the body {wrong}")
    records = request.get("records")
    if not isinstance(records, list) or not records:
        raise ApiError(422, 422, f"records must be a list of at least one record (was {_kind(records)})")
    for at, record in enumerate(records):
        if not isinstance(record, dict) or not record.keys() <= _RECORD_FIELDS:
            raise ApiError(422, 422, f"records[{at}] {documents.wrong_fields(record, sorted(_RECORD_FIELDS))}")
    if content_type in WITH_SCHEMA:
        _refuse_schema(WITH_SCHEMA[content_type], request, records)
    partitions = [record.get("partition") for record in records]
    for at, partition in enumerate(partitions):
        if partition is not None and type(partition) is not int:
            raise ApiError(422, 422, f"records[{at}].partition is {partition!r:.40}: must be a whole number")
        if partition is not None and partition < 0:
            raise ApiError(422, 422, f"records[{at}].partition must be greater than or equal to 0 (was {partition!r:.40})")
    return Rows(_column(content_type, records, "key"), _column(content_type, records, "value"), partitions)


def _column(content_type: str, records: Iterable[Mapping[str, Any]], name: str) -> list[bytes | None]:
    embedded = _EMBEDDED[content_type]
    column: list[bytes | None] = []
    try:
        for record in records:
            value = record.get(name)
            column.append(None if value is None else embedded(value))
    except (ValueError, TypeError, RecursionError) as error:
        where = f"records[{len(column)}].{name}"
        if content_type == BINARY:
            reason = error if isinstance(error, ValueError) else f"it is {value!r:.40}"
            raise ApiError(400, 400, f"Bad Request: {where} is not a valid base64 string: {reason}") from None
        raise ApiError(422, 42207, f"Error serializing message. {where}: {error}") from None
    return column


def _refuse_schema(name: str, request: Mapping[str, Any], records: Iterable[Mapping[str, Any]]) -> NoReturn:
    """Raise for a format with schemas: the schema that the request lacks, or that this server has no registry."""
    for code, part in ((42201, "key"), (42202, "value")):
        if request.get(f"{part}_schema") is None and request.get(f"{part}_schema_id") is None:
            if any(record.get(part) is not None for record in records):
                raise ApiError(422, code, f"Request includes {part}s but does not include {part} schema")
        elif name != "protobuf" and (schema := request.get(f"{part}_schema")) is not None:
            try:
                documents.parse(str(schema).encode())
            except (ApiError, UnicodeEncodeError) as error:
                raise ApiError(422, 42205, f"Invalid schema: {part}_schema: {error}") from None
    raise ApiError(422, 42206, f"Payload error. {NO_REGISTRY}")


# ---------------------------------------------------------------- records out


def base64_text(data: bytes | None) -> str:
    """Bytes as a base64 string."""
    return "null" if data is None else f'"{b2a_base64(data, newline=False).decode("ascii")}"'


def json_text(data: bytes | None) -> str:
    """JSON as stored; raises ValueError or RecursionError if it is not JSON."""
    if data is None:
        return "null"
    text = str(data, "utf-8")
    _check(text)
    return text


_READ: dict[str, Callable[[bytes | None], str]] = {BINARY: base64_text, JSON: json_text}
READ = tuple(_READ)


class RecordsAnswer:
    """Records of an answer, within a bound; the first one is taken at any size, or no read could pass it.

    Attributes:
        memory_bytes_max: Memory for the answer, except for a single large record; small records fill it before ``size_bytes_max``.
        size_bytes: Of keys and values so far, as stored.
        full: The next record does not fit, or cannot be embedded.
        refused: Why the very first record cannot be embedded.
        firsts: The first offset taken of each partition.
    """

    def __init__(self, content_type: str, size_bytes_max: int) -> None:
        self._embed, self._size_bytes_max = _READ[content_type], size_bytes_max
        self._texts: list[str] = []
        self._texts_bytes = 0  # in memory: a record without key and value takes memory, too
        self.memory_bytes_max = _MEMORY_FACTOR * (size_bytes_max + _OVERHEAD_BYTES)
        self.size_bytes, self.full = 0, False
        self.refused: SerializationError | None = None
        self.firsts: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, records: Iterable[Record]) -> Record | None:
        """Take records; returns the first one that does not fit, None if all do."""
        texts, embed, size_bytes_max = self._texts, self._embed, self._size_bytes_max
        topic, partition = "", -1
        for record in records:
            key, value, offset = record.key, record.value, record.offset
            if record.partition != partition or record.topic != topic:
                topic, partition = record.topic, record.partition
                self.firsts.setdefault(TopicPartition(topic, partition), offset)
            size_bytes = self.size_bytes + (0 if key is None else len(key)) + (0 if value is None else len(value))
            if size_bytes > size_bytes_max and texts:
                self.full = True
                return record
            try:
                text = f'{{"topic":"{topic}","key":{embed(key)},"value":{embed(value)},"partition":{partition},"offset":{offset}}}'
            except (ValueError, RecursionError) as error:
                self.full = True
                if not texts:
                    message = f"{topic}-{partition} at offset {offset} is not JSON: {error}"
                    self.refused = SerializationError(message, topic=topic, partition=partition, offset=offset)
                return record
            self._texts_bytes += _TEXT_BYTES + len(text)
            if self._texts_bytes > self.memory_bytes_max // 2 and texts:  # the other half: in a row, and as bytes
                self.full = True
                return record
            texts.append(text)
            self.size_bytes = size_bytes
        return None

    def body(self) -> bytes:
        """The JSON array."""
        return f"[{','.join(self._texts)}]".encode()


def _kind(value: Any) -> str:
    return "null" if value is None else f"an empty {type(value).__name__}" if value in ([], {}, "") else type(value).__name__
