"""``security.json`` as far as whoever checks a directory has to know it: its name, its format number, its one line.

Knows that its bytes are as they were written.  Does not know what they say: ``broker.security_file`` does.
"""

from collections.abc import Mapping
from typing import Any

from logdb.errors import CorruptionError, UnsupportedFormat
from logdb.store import json_line

FILE_NAME, LOCK_NAME = "security.json", "security.lock"
FORMAT = 1
SIZE_BYTES_MAX = 64 << 20


def encode(fields: Mapping[str, object]) -> bytes:
    return json_line.encode(fields, FORMAT)


def decode(data: bytes, path: str) -> dict[str, Any]:
    """The fields of the line.

    Raises:
        CorruptionError: It is not exactly what ``encode`` writes.
        UnsupportedFormat: A newer logdb wrote it.
    """
    try:
        fields = json_line.decode(data, path, FORMAT)
        same = encode(fields) == data
    except UnsupportedFormat:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptionError(path, 0, f"not users, tokens and ACLs: {error}") from None
    if not same:
        raise CorruptionError(path, 0, "it is not written as logdb does")
    return fields
