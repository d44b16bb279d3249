"""A small file of one line: compact JSON with its own format number and CRC, and a newline.

    {"format":1, …, "crc":"<8 hex digits>"}        without the spaces

``crc`` is the CRC-32C of the same line without the key ``crc``, in every format.  ``topic.json`` (``topic_file``), ``SNAPSHOT``
(``copy.snapshot_file``) and ``security.json`` are such files.  Of the last one this module has what ``verify`` checks;
``access.security_document`` has its fields.
"""

import json
from collections.abc import Mapping
from typing import Any

from logdb.codec import crc32c
from logdb.errors import CorruptionError, UnsupportedFormat

SECURITY_FILE_NAME, SECURITY_LOCK_NAME = "security.json", "security.lock"
SECURITY_SIZE_BYTES_MAX = 64 << 20
_SECURITY_FORMAT = 1


def encode(fields: Mapping[str, object], format_number: int) -> bytes:
    numbered = {"format": format_number, **fields}
    return _line({**numbered, "crc": _crc(numbered)}) + b"\n"


def decode(data: bytes, path: str, format_number: int) -> dict[str, Any]:
    """The fields of a line, without format and CRC.

    Raises:
        UnsupportedFormat: A newer logdb wrote it.
        ValueError, KeyError, TypeError, AttributeError: The data is not such a line; the text says why.
    """
    fields = json.loads(data)
    if fields.pop("crc") != _crc(fields):
        raise ValueError("its CRC does not fit")
    found = int(fields.pop("format"))
    if found > format_number:
        raise UnsupportedFormat(path, found, format_number)
    return dict(fields)


def encode_security(fields: Mapping[str, object]) -> bytes:
    return encode(fields, _SECURITY_FORMAT)


def decode_security(data: bytes, path: str) -> dict[str, Any]:
    """The fields of a ``security.json``.

    Raises:
        CorruptionError: The data is not exactly what ``encode_security`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """
    try:
        fields = decode(data, path, _SECURITY_FORMAT)
        same = encode_security(fields) == data
    except UnsupportedFormat:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(path, 0, f"not users, tokens and ACLs: {error}") from None
    if not same:
        raise CorruptionError(path, 0, "its bytes differ from what logdb writes for this content")
    return fields


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _crc(fields: Mapping[str, object]) -> str:
    return f"{crc32c(_line(fields)):08x}"
