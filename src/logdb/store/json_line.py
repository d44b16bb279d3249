"""A small file of one line: compact JSON with its own format number and CRC, and a newline.

    {"format":1, …, "crc":"<8 hex digits>"}        without the spaces

``crc`` is the CRC-32C of the same line without the key ``crc``, in every format.

Knows the line.  Does not know what the fields mean: ``topic_file`` and ``snapshot_file`` do.
"""

import json
from collections.abc import Mapping
from typing import Any

from logdb.codec import crc32c
from logdb.errors import UnsupportedFormat


def encode(fields: Mapping[str, object], format_number: int) -> bytes:
    numbered = {"format": format_number, **fields}
    return _line({**numbered, "crc": _crc(numbered)}) + b"\n"


def decode(data: bytes, path: str, format_number: int) -> dict[str, Any]:
    """The fields of a line, without format and CRC.

    Raises:
        UnsupportedFormat: A newer logdb wrote it.
        ValueError, KeyError, TypeError, AttributeError: It is no such line; the text says how.
    """
    fields = json.loads(data)
    if fields.pop("crc") != _crc(fields):
        raise ValueError("its CRC does not fit")
    found = int(fields.pop("format"))
    if found > format_number:
        raise UnsupportedFormat(path, found, format_number)
    return dict(fields)


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _crc(fields: Mapping[str, object]) -> str:
    return f"{crc32c(_line(fields)):08x}"
