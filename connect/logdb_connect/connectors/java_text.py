"""Values as Java's ``toString`` writes them: what Kafka's file sink prints, and what its partitioners make names of."""

import datetime
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from logdb_connect.data import Schema


def java_text(value: Any, schema: Schema | None = None) -> str:
    """``null``, ``true``, ``1.0E10``, ``[1, 2]``, ``{a=1, b=2}``; with the schema of a struct ``Struct{a=1,b=2}``."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return _float(value)
        case bytes():
            return value.decode(errors="replace")
        case datetime.datetime():
            return value.astimezone(datetime.UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
        case datetime.date():
            return value.strftime("%a %b %d 00:00:00 UTC %Y")
        case datetime.time():
            return value.strftime("Thu Jan 01 %H:%M:%S UTC 1970")
        case list() | tuple():
            return f"[{', '.join(java_text(each, schema and schema.values) for each in value)}]"
        case Mapping():
            return _mapping(value, schema)
        case Decimal():
            return str(value)
        case _:
            return str(value)


def _mapping(value: Mapping[Any, Any], schema: Schema | None) -> str:
    if schema is not None and schema.type == "struct":
        parts = [(field.name, value.get(field.name), field.schema) for field in schema.fields]
        return f"Struct{{{','.join(f'{name}={java_text(part, inner)}' for name, part, inner in parts if part is not None)}}}"
    keys, values = (schema.keys, schema.values) if schema is not None else (None, None)
    return f"{{{', '.join(f'{java_text(key, keys)}={java_text(part, values)}' for key, part in value.items())}}}"


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f") if "e" in repr(value) else repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"
