"""Bounds of Avro values: a few bytes may stand for a value that takes all memory, or ends the process.

- An item of an array may take no bytes: null, a fixed of size 0, a record of such fields.  Then five bytes are millions of items.
- Records that contain records twice may have 2^60 fields of no bytes, or 500 for each byte.
- A record may contain itself.  Then each byte is one more level, and fastavro overflows the stack, in both directions.
- A record may contain the record before it by name, and so on.  Then one byte is as many levels as the schema has records.

The schema says whether its values can be of such a kind.  Only these values are walked before they are decoded or encoded.

Threading: any function, from any thread.

Source: Avro 1.12, "Binary Encoding".
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar


def _has_small_stacks() -> bool:
    """Whether a thread has 128 KiB of stack, as musl's do unless CPython was compiled with more."""
    try:
        return sys.platform == "linux" and not os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        return True


EMPTY_COUNT_MAX = 100_000
"""How many values without bytes of their own a value may contain, unless it has enough bytes; about 20 MB of memory.

These are nulls, fixed of size 0, and records: a record is no more than its fields.
"""
EMPTY_PER_BYTE_MAX = 16
"""How many it may contain for each of its bytes.  A usual record has fewer records and nulls than bytes."""
DEPTH_MAX = 40 if _has_small_stacks() else 1_000
"""How many records, arrays and maps may lie in one another where they are read.

With glibc, a thread has 8 MiB of stack, or 2 MiB where the limit of the process is none.  fastavro reads 4,500 levels in 8 MiB, 1,150 in
2 MiB, and 67 in 128 KiB.
"""
WRITTEN_DEPTH_MAX = 25 if _has_small_stacks() else 500
"""How many may lie in one another where they are written.

fastavro writes 700 levels in 2 MiB, and 44 in 128 KiB: it validates unions, too.
"""

_SIZES: Mapping[str, int] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NAMED = {"record", "error", "enum", "fixed"}
_PRIMITIVE = {*_SIZES, "int", "long", "bytes", "string"}
_NO_NAMES = frozenset[str]()
T = TypeVar("T")


class _Shape(NamedTuple):
    """Bounds of the values of one schema.

    Attributes:
        size_min: The least bytes that one takes.
        empty_count: How many values without bytes of their own are in one, itself included; without its unions, arrays and maps.
        depth: How many records, arrays and maps may lie in one another; a record that contains itself is counted once.
    """

    size_min: int
    empty_count: int
    depth: int = 0

    @property
    def is_empty(self) -> bool:
        return self.size_min == 0


_RECORD = _Shape(1, 1)  # itself, without its fields


class AvroBounds:
    """The bounds of the values of one schema, as fastavro has parsed it.

    Raises:
        ValueError: A record contains itself in each value, a union contains a union, a size is negative, or the schema is nested too deep.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = dict(schema.get("__named_schemas", {})) if isinstance(schema, Mapping) else {}
        self._known: dict[str, _Shape] = {}
        self._is_recursive = self._has_empty_items = False
        try:
            self._shape = self._look(schema, _NO_NAMES, _NO_NAMES)
        except RecursionError:
            raise ValueError("the schema is nested too deep") from None
        self._level_count = 1 + sum(one["type"] in {"record", "error"} for one in self._named.values())  # begin with one byte at most
        self._is_deep = self._is_recursive or self._shape.depth > DEPTH_MAX
        self._is_written_deep = self._is_recursive or self._shape.depth > WRITTEN_DEPTH_MAX
        # The byte of a union is counted twice: for the record around it, and for an empty record in it.  So each gets half of the bound.
        self._may_explode = self._has_empty_items or any(
            one.empty_count > EMPTY_PER_BYTE_MAX // 2 * max(1, one.size_min) for one in self._known.values()
        )
        self._is_usual = not (self._is_deep or self._may_explode or self._shape.is_empty)
        self._values = _Values(schema, self._named)

    def check(self, data: bytes, count: int = 1, left: int = EMPTY_COUNT_MAX) -> int:
        """Check the encoding of ``count`` values before they are decoded.

        Args:
            left: How many values without bytes of their own it may contain if it has few bytes.

        Returns:
            How many are left for the next block of the same object.

        Raises:
            ValueError: It exceeds a bound, or is no encoding of the schema.
            EOFError: It ends too early.
        """
        if self._is_usual:
            return left
        if count < 0:
            raise ValueError(f"it has {count} values")
        is_deep = self._is_deep and (len(data) + 1) * self._level_count > DEPTH_MAX
        used = count * self._shape.empty_count if self._shape.is_empty else 0
        if not self._may_explode and not is_deep and used <= left:
            return left - used
        return _Walk(data, self._named, self._known, left).values(self._schema, count)

    def check_value(self, value: Any) -> None:
        """Check a value before it is encoded; ``check`` its encoding afterwards.

        Raises:
            ValueError: It is nested too deep.
        """
        if self._is_written_deep:
            self._values.check(value)

    # ------------------------------------------------------------ the schema

    def _look(self, schema: Any, above: frozenset[str], direct: frozenset[str]) -> _Shape:
        """The shape of the values of a schema.

        Args:
            above: The records that contain it.
            direct: Those that contain it without a union, array or map between, which could end the recursion.
        """
        if isinstance(schema, list):  # the number of the branch takes a byte
            if any(isinstance(one, list) for one in schema):
                raise ValueError("a union contains a union")
            return _Shape(1, 0, max((self._look(one, above, _NO_NAMES).depth for one in schema), default=0))
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, Mapping | list):
            return self._look(kind, above, direct)
        if kind in _PRIMITIVE:
            return _primitive(kind)
        if isinstance(schema, Mapping) and kind in {"array", "map"}:
            items = self._look(schema["items" if kind == "array" else "values"], above, _NO_NAMES)
            self._has_empty_items |= kind == "array" and items.is_empty
            return _Shape(1, 0, 1 + items.depth)
        if isinstance(schema, Mapping) and kind in _NAMED:
            return self._look_at_named(schema, above, direct)
        if kind in direct:
            raise ValueError(f"{kind} contains itself in each value")
        if kind in above:
            self._is_recursive = True
            return _Shape(1, 0)
        return self._known[kind] if kind in self._known else self._look(self._named[kind], above, direct)

    def _look_at_named(self, schema: Mapping[str, Any], above: frozenset[str], direct: frozenset[str]) -> _Shape:
        name = schema["name"]
        self._named[name] = schema
        if schema["type"] == "enum":
            found = _Shape(1, 0)
        elif schema["type"] == "fixed":
            size = schema["size"]
            if not isinstance(size, int) or size < 0:  # it would count against the other fields
                raise ValueError(f"{name} has the size {size!r}")
            found = _Shape(size, int(size == 0))
        else:
            fields = [self._look(field["type"], above | {name}, direct | {name}) for field in schema["fields"]]
            found = _Shape(
                sum(field.size_min for field in fields),
                1 + sum(field.empty_count for field in fields),
                1 + max((field.depth for field in fields), default=0),
            )
        self._known[name] = found
        return found


def _primitive(kind: str) -> _Shape:
    return _Shape(_SIZES.get(kind, 1), int(kind == "null"))


def _check_depth(depth: int, depth_max: int) -> None:
    if depth > depth_max:
        raise ValueError(f"its records, arrays and maps are nested deeper than {depth_max} levels")


def _descend(children: Iterator[T], enter: Callable[[T, int], Iterator[T] | None], depth_max: int) -> None:
    """Go through a tree depth first, without recursion: ``enter`` gives the children of one at a level, None for a leaf.

    Raises:
        ValueError: It is deeper than ``depth_max``.
    """
    levels = [children]
    while levels:
        for child in levels[-1]:
            inner = enter(child, len(levels))
            if inner is not None:
                _check_depth(len(levels), depth_max)
                levels.append(inner)
                break
        else:
            levels.pop()


_Kinds = frozenset[int]
"""The records, arrays and maps that a value may be, by the id of their schema."""


class _Steps(NamedTuple):
    """The kinds of what is in a value."""

    fields: Mapping[str, _Kinds]
    values: _Kinds
    items: _Kinds
    defaults: Sequence[tuple[str, Any, _Kinds]]


class _Values:
    """Goes through values as fastavro would encode them: only the fields of the schema, and the defaults of those that are missing."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema, self._named = schema, named
        self._schemas: dict[int, Mapping[str, Any]] = {}
        self._steps: dict[_Kinds, _Steps] = {}

    def check(self, value: Any) -> None:
        _descend(iter([(value, self._kinds(self._schema))]), self._enter, WRITTEN_DEPTH_MAX)

    def _enter(self, given: tuple[Any, _Kinds], _level: int) -> "Iterator[tuple[Any, _Kinds]] | None":
        value, kinds = given
        if not kinds or value is None:
            return None
        fields, values, items, defaults = self._steps.get(kinds) or self._steps_of(kinds)
        while isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):  # (name of the branch of a union, value)
            value = value[1]
        if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 -- a dict is seen at a tenth of the time
            children = ((child, fields.get(key, values)) for key, child in value.items())
            missing = ((child, inner) for key, child, inner in defaults if key not in value)
            return chain(children, missing) if defaults else children
        if isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray | memoryview):
            return ((child, items) for child in value)
        return None

    def _steps_of(self, kinds: _Kinds) -> _Steps:
        fields: dict[str, _Kinds] = {}
        defaults: list[tuple[str, Any, _Kinds]] = []
        values = items = _Kinds()
        for schema in [self._schemas[one] for one in kinds]:
            if schema["type"] == "array":
                items |= self._kinds(schema["items"])
            elif schema["type"] == "map":
                values |= self._kinds(schema["values"])
            else:
                for field in schema["fields"]:
                    inner = self._kinds(field["type"])
                    fields[field["name"]] = fields.get(field["name"], _Kinds()) | inner
                    if inner and field.get("default") is not None:
                        defaults.append((field["name"], field["default"], inner))
        self._steps[kinds] = _Steps({name: found | values for name, found in fields.items()}, values, items, defaults)
        return self._steps[kinds]

    def _kinds(self, schema: Any) -> _Kinds:
        if isinstance(schema, list):
            return _Kinds().union(*(self._kinds(one) for one in schema))
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if not isinstance(kind, str):
            return self._kinds(kind)
        if kind in _PRIMITIVE or kind in {"enum", "fixed"}:
            return _Kinds()
        if isinstance(schema, Mapping) and kind in {*_NAMED, "array", "map"}:
            self._schemas[id(schema)] = schema
            return _Kinds([id(schema)])
        return self._kinds(self._named[kind])


class _Walk:
    """Goes through the encoding of values without making them."""

    def __init__(self, data: bytes, named: Mapping[str, Any], known: Mapping[str, _Shape], left: int) -> None:
        self._data, self._at, self._named, self._known = data, 0, named, known
        self._left, self._paid = left, EMPTY_PER_BYTE_MAX * len(data)
        self._empty_count, self._empty_count_max = 0, max(left, self._paid)

    def values(self, schema: Any, count: int) -> int:
        """Go through ``count`` values; how many values without bytes of their own are left for the next block."""
        if count > 1 and (shape := self._shape(schema)).is_empty:
            self._count_empty(count, shape, 1)
        else:
            _descend(repeat(schema, count), self._enter, DEPTH_MAX)
        return self._left if self._empty_count <= self._paid else self._left - self._empty_count

    def _enter(self, schema: Any, level: int) -> Iterator[Any] | None:
        """Go past a value, or to the first one in it."""
        schema, kind = self._resolved(schema)
        if kind in _SIZES:
            self._skip(_SIZES[kind])
            self._empty_count += kind == "null"
        elif kind in {"int", "long", "enum"}:
            self._long()
        elif kind in {"bytes", "string"}:
            self._skip(self._long())
        elif kind in {"array", "map"}:
            return self._items(schema, kind, level)
        elif (shape := self._known[schema["name"]]).is_empty:
            self._count_empty(1, shape, level)
        elif kind == "fixed":
            self._skip(schema["size"])
        else:
            self._count_empty(1, _RECORD, level)
            return (field["type"] for field in schema["fields"])
        return None

    def _items(self, schema: Mapping[str, Any], kind: str, level: int) -> Iterator[Any]:
        items = schema["values" if kind == "map" else "items"]
        shape = self._shape(items) if kind == "array" else _Shape(1, 0)
        while count := self._long():
            if count < 0:  # the size of the block follows
                self._long()
            if shape.is_empty:
                self._count_empty(abs(count), shape, level + 1)
                continue
            for _ in range(abs(count)):
                if kind == "map":
                    self._skip(self._long())
                yield items

    def _shape(self, schema: Any) -> _Shape:
        """The shape of a value, as far as it may be empty."""
        if isinstance(schema, list):
            return _Shape(1, 0)
        schema, kind = self._resolved(schema)
        return self._known[schema["name"]] if kind in {"record", "error", "fixed"} else _primitive(kind)

    def _resolved(self, schema: Any) -> tuple[Any, str]:
        """The schema of a value itself, and its type."""
        while True:
            if isinstance(schema, list):
                number = self._long()
                if not 0 <= number < len(schema):
                    raise ValueError(f"branch {number} of a union of {len(schema)} types")
                schema = schema[number]
            kind = schema["type"] if isinstance(schema, Mapping) else schema
            if not isinstance(kind, str):
                schema = kind
            elif kind in _PRIMITIVE or (isinstance(schema, Mapping) and kind in {*_NAMED, "array", "map"}):
                return schema, kind
            else:
                schema = self._named[kind]

    def _count_empty(self, count: int, shape: _Shape, level: int) -> None:
        _check_depth(level + shape.depth - 1, DEPTH_MAX)
        self._empty_count += count * shape.empty_count
        if self._empty_count > self._empty_count_max:
            raise ValueError(
                f"it has more than {self._empty_count_max} records and items that take no bytes: must be at most {EMPTY_COUNT_MAX},"
                f" or {EMPTY_PER_BYTE_MAX} for each of its bytes"
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
