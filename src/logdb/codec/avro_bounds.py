"""Bounds of Avro values: a few bytes may stand for a value that takes all memory, or ends the process.

- An item of an array may take no bytes: null, a fixed of size 0, a record of such fields.  Then five bytes are millions of items.
- A record may contain itself.  Then each byte is one more level, and fastavro's decoder overflows the stack.

The schema says whether its values can be of either kind.  Only these values are walked before they are decoded.

Threading: any function, from any thread.

Source: Avro 1.12, "Binary Encoding".
"""

from collections.abc import Mapping
from typing import Any

EMPTY_COUNT_MAX = 1_000
"""How many values of no bytes a value may contain, unless it has more bytes than that."""
DEPTH_MAX = 200
"""How many records, arrays and maps may lie in one another."""

_NO_NAMES = frozenset[str]()
_SIZES: Mapping[str, int] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NAMED = {"record", "error", "enum", "fixed"}
_PRIMITIVE = {*_SIZES, "int", "long", "bytes", "string"}


class AvroBounds:
    """The bounds of the values of one schema, as fastavro has parsed it.

    Raises:
        ValueError: A record of the schema contains itself in each value.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = dict(schema.get("__named_schemas", {})) if isinstance(schema, Mapping) else {}
        self._known: dict[str, tuple[bool, int]] = {}
        self._is_recursive = self._may_explode = False
        self._is_empty, self._empty_count = self._look(schema, _NO_NAMES, _NO_NAMES)

    def check(self, data: bytes, count: int = 1) -> None:
        """Check the encoding of ``count`` values before they are decoded.

        Raises:
            ValueError: It exceeds a bound, or is no encoding of the schema.
            EOFError: It ends too early.
        """
        if self._may_explode or (count > 1 and self._empty_count) or (self._is_recursive and len(data) > DEPTH_MAX):
            _Walk(data, self._named, self._known).values(self._schema, count)

    # ------------------------------------------------------------ the schema

    def _look(self, schema: Any, above: frozenset[str], direct: frozenset[str]) -> tuple[bool, int]:
        """Whether values take no bytes, and how many values of no bytes one contains outside of its arrays and maps.

        Args:
            above: The records that contain it.
            direct: Those that contain it without a union, array or map between, which could end the recursion.
        """
        if isinstance(schema, list):  # the number of the branch takes a byte
            return False, max((self._look(one, above, _NO_NAMES)[1] for one in schema if one != "null"), default=0)
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, Mapping | list):
            return self._look(kind, above, direct)
        if kind in _PRIMITIVE:
            return kind == "null", int(kind == "null")
        if isinstance(schema, Mapping) and kind in {"array", "map"}:
            _, count = self._look(schema["items" if kind == "array" else "values"], above, _NO_NAMES)
            self._may_explode |= count > 0
            return False, 0
        if isinstance(schema, Mapping) and kind in _NAMED:
            return self._look_at_named(schema, above, direct)
        if kind in direct:
            raise ValueError(f"{kind} contains itself in each value")
        if kind in above:
            self._is_recursive = True
            return False, 0
        return self._known[kind] if kind in self._known else self._look(self._named[kind], above, direct)

    def _look_at_named(self, schema: Mapping[str, Any], above: frozenset[str], direct: frozenset[str]) -> tuple[bool, int]:
        name = schema["name"]
        self._named[name] = schema
        if schema["type"] in {"enum", "fixed"}:
            is_empty = schema["type"] == "fixed" and schema["size"] == 0
            found = is_empty, int(is_empty)
        else:
            fields = [self._look(field["type"], above | {name}, direct | {name}) for field in schema["fields"]]
            is_empty = all(empty for empty, _ in fields)
            found = is_empty, min(sum(count for _, count in fields) + is_empty, EMPTY_COUNT_MAX + 1)
            self._may_explode |= found[1] > EMPTY_COUNT_MAX
        self._known[name] = found
        return found


class _Walk:
    """Goes through the encoding of values without making them."""

    def __init__(self, data: bytes, named: Mapping[str, Any], known: Mapping[str, tuple[bool, int]]) -> None:
        self._data, self._at, self._named, self._known = data, 0, named, known
        self._empty_count_max = self._left = max(EMPTY_COUNT_MAX, len(data))

    def values(self, schema: Any, count: int) -> None:
        for _ in range(count):
            self._value(schema, 0)

    def _value(self, schema: Any, depth: int) -> None:
        schema, kind, is_branch = self._resolved(schema)
        is_empty = kind == "null" or (kind in {"record", "error", "fixed"} and self._known[schema["name"]][0])
        if is_empty and not is_branch:
            self._count_empty()
        if kind in _SIZES:
            self._skip(_SIZES[kind])
        elif kind in {"int", "long", "enum"}:
            self._long()
        elif kind in {"bytes", "string"}:
            self._skip(self._long())
        elif kind == "fixed":
            self._skip(schema["size"])
        else:
            if depth == DEPTH_MAX:
                raise ValueError(f"its records, arrays and maps are nested deeper than {DEPTH_MAX} levels")
            self._nested(schema, kind, depth + 1)

    def _resolved(self, schema: Any) -> tuple[Any, str, bool]:
        """The schema of a value itself, its type, and whether it is a branch of a union."""
        is_branch = False
        while True:
            if isinstance(schema, list):
                number, is_branch = self._long(), True
                if not 0 <= number < len(schema):
                    raise ValueError(f"branch {number} of a union of {len(schema)} types")
                schema = schema[number]
            kind = schema["type"] if isinstance(schema, Mapping) else schema
            if not isinstance(kind, str):
                schema = kind
            elif kind in _PRIMITIVE or (isinstance(schema, Mapping) and kind in {*_NAMED, "array", "map"}):
                return schema, kind, is_branch
            else:
                schema = self._named[kind]

    def _nested(self, schema: Mapping[str, Any], kind: str, depth: int) -> None:
        if kind in {"record", "error"}:
            for field in schema["fields"]:
                self._value(field["type"], depth)
            return
        while count := self._long():
            if count < 0:  # the size of the block follows
                self._long()
            for _ in range(abs(count)):
                if kind == "map":
                    self._skip(self._long())
                self._value(schema["values" if kind == "map" else "items"], depth)

    def _count_empty(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise ValueError(
                f"it has more than {self._empty_count_max} items that take no bytes: must be at most {EMPTY_COUNT_MAX},"
                " or as many as it has bytes"
            )

    def _skip(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise ValueError(f"the size {size_bytes} is negative")
        self._at += size_bytes
        if self._at > len(self._data):
            raise EOFError(f"it ends after {len(self._data)} bytes, within a value")

    def _long(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            self._skip(1)
            byte = self._data[self._at - 1]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                number &= (1 << 64) - 1
                return (number >> 1) ^ -(number & 1)
        raise ValueError("a number has more than 10 bytes")
