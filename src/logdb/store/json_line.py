"""A small file of one line: compact JSON with its own format number and CRC, and a newline.

    {"format":1, …, "crc":"<8 hex digits>"}        without the spaces

``crc`` is the CRC-32C of the same line without the key ``crc``, in every format.  ``topic.json`` (``topic_file``), ``SNAPSHOT``
(``copy.snapshot_file``) and ``security.json`` are such files.  Of the last one this module has what ``verify`` checks;
``access.security_document`` has its fields.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from logdb.codec import crc32c
from logdb.errors import CorruptionError, LogdbError, UnsupportedFormat

T = TypeVar("T")

SECURITY_FILE_NAME, SECURITY_LOCK_NAME = "security.json", "security.lock"
SECURITY_SIZE_BYTES_MAX = 64 << 20
SECURITY_FORMAT, SECURITY_CONTENT = 1, "users, tokens and ACLs"


def encode(fields: Mapping[str, object], format_number: int) -> bytes:
    numbered = {"format": format_number, **fields}
    return _line({**numbered, "crc": _crc(numbered)}) + b"\n"


def decode(
    data: bytes,
    path: str,
    format_number: int,
    what: str,
    build: Callable[[dict[str, Any]], T],
    encode: Callable[[T], bytes] | None = None,
) -> T:
    """The content of a file.

    Args:
        path: Of the file, for errors.
        format_number: The newest one that is known.
        what: The file is, for errors.
        build: Makes the content of the fields, without format and CRC; any error of wrong values may end it.
        encode: Writes exactly the data; None: other bytes may say the same.

    Raises:
        CorruptionError: The data is no such line, has wrong fields, or differs from what ``encode`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """
    try:
        fields = json.loads(data)
        if fields.pop("crc") != _crc(fields):
            raise ValueError("its CRC does not fit")
        found = int(fields.pop("format"))
        if found > format_number:
            raise UnsupportedFormat(path, found, format_number)
        content = build(dict(fields))
        same = encode is None or encode(content) == data
    except UnsupportedFormat:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, LogdbError) as error:
        raise CorruptionError(path, 0, f"not {what}: {error}") from None
    if not same:
        raise CorruptionError(path, 0, "its bytes differ from what logdb writes for this content")
    return content


def check_security(data: bytes, path: str) -> None:
    """Raises CorruptionError, UnsupportedFormat as ``decode``, of a ``security.json``, whose fields are not looked at."""
    decode(data, path, SECURITY_FORMAT, SECURITY_CONTENT, dict, lambda fields: encode(fields, SECURITY_FORMAT))


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _crc(fields: Mapping[str, object]) -> str:
    return f"{crc32c(_line(fields)):08x}"
