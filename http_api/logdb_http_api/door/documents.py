"""JSON from outside: bounded before memory is taken for it.

The bounds are the depth of a document, and the memory of its values.  ``parse`` returns the value of any document, ``decode`` a value of
one type.

Sizes are those of CPython's objects: an empty object or array takes 20 to 60 times its two bytes.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, NoReturn

import msgspec
from msgspec import inspect

from logdb.model import Buffer
from logdb.requests import coding
from logdb_http_api.errors import ApiError

DEPTH_MAX = 64
MEMORY_BYTES_MAX = 192 << 20
_OBJECT_BYTES, _ARRAY_BYTES, _ITEM_BYTES = 192, 128, 56
_BUT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_AS_ARRAYS = bytes.maketrans(b"{}", b"[]")
_NAMED_COUNT_MAX = 10  # unknown fields of an object, and objects that have some
_LOOKED_BYTES_MAX = 64 << 10  # nested ones are named only of smaller documents: the look takes ten times as long as to parse
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(data: Buffer, *, surrogates: bool = False) -> Any:
    """The value of a JSON document (RFC 8259, so UTF-8).

    Args:
        surrogates: Strings may have lone surrogates, which JSON can write and UTF-8 cannot.

    Raises:
        ApiError: The data is not JSON, or deeper than ``DEPTH_MAX`` (400), or would take too much memory (413).
    """
    try:
        text = str(data, "utf-8")
        check_memory(data)
        _check_depth(data)
        value = json.loads(text, parse_constant=refuse_constant)
        if not surrogates and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ApiError(400, 400, f"the body is not JSON: {error}") from None
    return value


def decode(kind: Any, data: Buffer, what: str) -> Any:
    """Decode a value of a type from JSON, as ``requests.coding`` does.

    Raises:
        ApiError: The data is not JSON, or deeper than ``DEPTH_MAX`` (400); it would take too much memory (413); it is no such value (422;
            the text names ``what``).
    """
    try:
        check_memory(data)
        _check_depth(data)
        return coding.decode(kind, data)
    except msgspec.ValidationError as error:
        value = parse(data)  # the first error may lie before invalid JSON
        wanted = coding.form(kind).wanted
        fields = getattr(wanted, "__struct_fields__", None)
        wrong = None if fields is None else wrong_fields(value, fields)
        unknown = _unknown_fields(inspect.type_info(wanted), value, "") if len(data) <= _LOOKED_BYTES_MAX else ()
        if named := list(islice(unknown, _NAMED_COUNT_MAX)):
            wrong = f"has {'; '.join(named)}"
        raise ApiError(422, 422, f"{what}: {error}" if wrong is None else f"{what} {wrong}") from None
    except (ValueError, RecursionError) as error:
        raise ApiError(400, 400, f"the body is not JSON: {error}") from None


def check_memory(data: Buffer) -> None:
    """Raise if the values of a document would take too much memory; ApiError, 413."""
    plain = bytes(data) if isinstance(data, memoryview) else data
    if len(plain) * _OBJECT_BYTES <= MEMORY_BYTES_MAX:
        return
    size_bytes = _OBJECT_BYTES * plain.count(b"{") + _ARRAY_BYTES * plain.count(b"[") + _ITEM_BYTES * plain.count(b",")
    if size_bytes > MEMORY_BYTES_MAX:
        raise ApiError(413, 413, f"the JSON would take {size_bytes} bytes of memory: must be at most {MEMORY_BYTES_MAX}")


def _check_depth(data: Buffer) -> None:
    """Remove the innermost brackets ``DEPTH_MAX`` times; if some remain, the document is deeper."""
    plain = bytes(data) if isinstance(data, memoryview) else data
    if plain.count(b"[") + plain.count(b"{") <= DEPTH_MAX:
        return
    if b"\\" in plain:
        plain = plain.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = b"".join(plain.translate(_AS_ARRAYS, _BUT_STRUCTURE).split(b'"')[::2])
    for _ in range(DEPTH_MAX):
        shorter = structure.replace(b"[]", b"")
        if len(shorter) == len(structure):
            break
        structure = shorter
    if structure:
        raise ValueError(f"it is deeper than {DEPTH_MAX}, or not balanced")


def wrong_fields(value: object, allowed: Collection[str], required: Collection[str] = ()) -> str | None:
    """Why a value is not an object with these fields, beginning with a verb; None: it is one."""
    if not isinstance(value, dict):
        return (
            f"is {value!r:.80}: must be an object with the fields {', '.join(allowed)}"
            if allowed
            else f"is {value!r:.80}: must be an empty object"
        )
    if unknown := [name for name in value if name not in allowed]:
        return f"has {_named(unknown, allowed)}"
    if missing := [name for name in required if name not in value]:
        return f"lacks {', '.join(missing)}"
    return None


def _unknown_fields(kind: inspect.Type, value: object, path: str) -> Iterator[str]:
    """The unknown fields of each object in a value that is to be of a type, with their paths."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _unknown_fields(one, value, path)
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        if unknown := [f"{path}{name}" for name in value if name not in known]:
            yield _named(unknown, known)
        for name, one in known.items():
            yield from _unknown_fields(one, value.get(name), f"{path}{name}.")
    elif isinstance(kind, inspect.ListType | inspect.TupleType) and isinstance(value, list):
        kinds = repeat(kind.item_type) if isinstance(kind, inspect.ListType) else kind.item_types
        for number, (one, part) in enumerate(zip(kinds, value, strict=False)):
            yield from _unknown_fields(one, part, f"{path.removesuffix('.')}[{number}].")


def _named(unknown: Sequence[str], allowed: Collection[str]) -> str:
    names = ", ".join(f"{name!r:.80}" for name in unknown[:_NAMED_COUNT_MAX])
    return f"{'the unknown field' if len(unknown) == 1 else 'the unknown fields'} {names}; known fields: {', '.join(allowed) or 'none'}"


def refuse_constant(name: str) -> NoReturn:
    """For ``json``: refuse NaN and Infinity, which only Python writes; raises ValueError."""
    raise ValueError(f"{name} is no number of JSON")
