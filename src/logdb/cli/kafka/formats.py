"""The formats of a consumed record: kcat's format string and envelope, the console consumer's properties.

A format is a function from a record to bytes.

Source: kcat's format.c; Kafka's DefaultMessageFormatter.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import click

from logdb.cli.terminal.output import quoted, text_or_base64
from logdb.mistakes import one_of


class Record(Protocol):
    """The fields of a record that a format uses."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


Render: TypeAlias = Callable[[Record], bytes]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""The bytes of a separator or format part: ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\xHH`` are replaced."""

    def one(match: re.Match[str]) -> str:
        return bytes.fromhex(match[1]).decode("latin-1") if match[1] else _ESCAPES[match[2]].decode("latin-1")

    # latin-1 in between: each byte of the UTF-8 text is one character, and so is \xHH
    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|([nrt0\\]))", one, text.encode().decode("latin-1")).encode("latin-1")


# ---------------------------------------------------------------- kcat


def kcat(text: str, *, null: bytes = b"") -> Render:
    """A kcat format: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp (ms), %h headers,
    %K and %S sizes of key and value in bytes (-1 for null), %R the value's size as a big-endian int32, %% a percent.

    Args:
        text: The format, with backslash escapes.
        null: Written for a null key or value (kcat's -Z: NULL).

    Raises:
        ValueError: An unknown letter.
    """
    letters: dict[str, Render] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "h": lambda record: b",".join(name.encode() + b"=" + (b"NULL" if v is None else v) for name, v in record.headers),
        "K": lambda record: b"%d" % _size(record.key),
        "S": lambda record: b"%d" % _size(record.value),
        "R": lambda record: _size(record.value).to_bytes(4, "big", signed=True),
    }
    template, getters = b"", []
    for letter, plain in re.findall(r"%(.?)|([^%]+)", text, re.DOTALL):
        if plain:
            template += unescape(plain)
        elif letter == "%":
            template += b"%%"
        elif letter in letters:
            template += b"%b"
            getters.append(letters[letter])
        else:
            raise ValueError(f"format %{letter}: must be {one_of('%' + name for name in [*letters, '%'])}")
    return lambda record: template % tuple([get(record) for get in getters])


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def envelope(timestamp_types: Mapping[str, str]) -> Render:
    """kcat's JSON envelope, one per line; bytes that are not UTF-8 are {"base64": …}.

    Args:
        timestamp_types: ``message.timestamp.type`` of each topic.
    """
    short = {"CreateTime": "create", "LogAppendTime": "logappend"}
    tstypes = {topic: short[name] for topic, name in timestamp_types.items()}
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps would make one per call

    def render(record: Record) -> bytes:
        document: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "tstype": tstypes[record.topic],
            "ts": record.timestamp_ms,
        }
        if record.headers:
            document["headers"] = [part for name, value in record.headers for part in (name, text_or_base64(value))]
        document["key"] = text_or_base64(record.key)
        document["payload"] = text_or_base64(record.value)
        return encode(document).encode() + b"\n"

    return render


# ---------------------------------------------------------------- kafka-console-consumer

PROPERTIES = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.delivery": "false",
    "print.epoch": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}

# Kafka's deserializers by the last part of their names -> how Java shows the value
_DESERIALIZERS: dict[str, Callable[[bytes], str]] = {
    "LongDeserializer": lambda data: str(_unpack(">q", data)),
    "IntegerDeserializer": lambda data: str(_unpack(">i", data)),
    "ShortDeserializer": lambda data: str(_unpack(">h", data)),
    "BooleanDeserializer": lambda data: str(_unpack(">?", data)).lower(),
}
_PLAIN = ("", "StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer", "ByteBufferDeserializer")


def _unpack(form: str, data: bytes) -> object:
    try:
        return struct.unpack(form, data)[0]
    except struct.error:
        raise click.ClickException(f"{quoted(data)} has {len(data)} bytes: its deserializer wants {struct.calcsize(form)}") from None


def _deserialized(property_name: str, class_name: str) -> Callable[[bytes], bytes] | None:
    """What a deserializer makes of a key, value or header; None: the bytes themselves.

    Raises:
        ValueError: An unknown deserializer.
    """
    name = class_name.rpartition(".")[2]
    if name in _PLAIN:
        return None
    if name not in _DESERIALIZERS:
        raise ValueError(f"{property_name}={class_name}: must be {one_of([*_PLAIN[1:], *_DESERIALIZERS])}")
    show = _DESERIALIZERS[name]
    return lambda data: show(data).encode()


def decoded(option: str, class_name: str | None) -> Callable[[bytes], bytes]:
    """What a decoder of kafka-dump-log makes of a key or value: StringDecoder, LongDecoder and so on; empty: StringDecoder.

    Raises:
        ValueError: An unknown decoder.
    """
    name = re.sub("Decoder$", "Deserializer", class_name or "StringDecoder")
    return _deserialized(option, "" if name.endswith("DefaultDeserializer") else name) or bytes


def console(given: Mapping[str, str], timestamp_types: Mapping[str, str]) -> Render:
    """The console consumer's format from its properties; without any, the value and a newline.

    Args:
        given: Properties of ``PROPERTIES``; separators with backslash escapes.
        timestamp_types: ``message.timestamp.type`` of each topic.

    Raises:
        ValueError: An unknown property.
    """
    for name in given:
        if name not in PROPERTIES:
            raise ValueError(f"property {name!r}: must be {one_of(PROPERTIES)}")
    properties = {**PROPERTIES, **given}
    separator, line_end = unescape(properties["key.separator"]), unescape(properties["line.separator"])
    of_key, of_value, of_header = (
        _deserialized(name, properties[name]) for name in ("key.deserializer", "value.deserializer", "headers.deserializer")
    )
    null, between = unescape(properties["null.literal"]), unescape(properties["headers.separator"])

    def headers(record: Record) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return between.join(name.encode() + b":" + shown(record, v, of_header) for name, v in record.headers)

    def shown(record: Record, data: bytes | None, deserialize: Callable[[bytes], bytes] | None) -> bytes:
        if data is None:
            return null
        try:
            return data if deserialize is None else deserialize(data)
        except click.ClickException as error:
            raise click.ClickException(f"{record.topic}-{record.partition} at offset {record.offset}: {error.message}") from None

    columns: dict[str, Render] = {  # in the order of printing
        "print.timestamp": lambda record: f"{timestamp_types[record.topic]}:{record.timestamp_ms}".encode(),
        "print.partition": lambda record: b"Partition:%d" % record.partition,
        "print.offset": lambda record: b"Offset:%d" % record.offset,
        "print.delivery": lambda _: b"Delivery:NOT_PRESENT",  # share groups alone count deliveries
        "print.epoch": lambda record: b"Epoch:%d" % record.leader_epoch,
        "print.headers": headers,
        "print.key": lambda record: shown(record, record.key, of_key),
        "print.value": lambda record: shown(record, record.value, of_value),
    }
    chosen = [column for name, column in columns.items() if properties[name].lower() == "true"]
    if chosen == [columns["print.value"]] and of_value is None:
        return lambda record: (null if (value := record.value) is None else value) + line_end
    return lambda record: separator.join([column(record) for column in chosen]) + line_end
