"""Bounds of Avro values: a few bytes may stand for a value that takes all memory, or ends the process.

- An item of an array may take no bytes: null, a fixed of size 0, a record of such fields.  Then five bytes are millions of items.
- Records that contain records twice may have 2^60 fields of no bytes.
- A record may contain itself.  Then each byte is one more level, and fastavro overflows the stack, in both directions.

The schema says whether its values can be of such a kind.  Only these values are walked before they are decoded or encoded.

Threading: any function, from any thread.

Source: Avro 1.12, "Binary Encoding".
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

EMPTY_COUNT_MAX = 100_000
"""How many items of no bytes the arrays of a value may contain, unless it has more bytes than that; about 10 MB of memory."""
DEPTH_MAX = 1_000
"""How many records, arrays and maps may lie in one another where they are read.

A thread has 8 MiB of stack, or 2 MiB where the limit of the process is none.  fastavro reads 4,500 levels in 8 MiB.
"""
WRITTEN_DEPTH_MAX = 500
"""How many may lie in one another where they are written.  fastavro writes 700 levels in 2 MiB: it validates unions, too."""
_FIELD_COUNT_MAX = 1_000  # of no bytes, in one record; more are bounded by the text of the schema, or count as items

_SIZES: Mapping[str, int] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NAMED = {"record", "error", "enum", "fixed"}
_PRIMITIVE = {*_SIZES, "int", "long", "bytes", "string"}
_NO_NAMES = frozenset[str]()
T = TypeVar("T")


class _Empty(NamedTuple):
    """Whether values of a schema take no bytes, and how many values of no bytes one contains outside of its arrays and maps."""

    is_empty: bool
    value_count: int


class AvroBounds:
    """The bounds of the values of one schema, as fastavro has parsed it.

    Raises:
        ValueError: A record of the schema contains itself in each value.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = dict(schema.get("__named_schemas", {})) if isinstance(schema, Mapping) else {}
        self._known: dict[str, _Empty] = {}
        self._is_recursive = self._may_explode = False
        self._empty = self._look(schema, _NO_NAMES, _NO_NAMES)
        records = [one for one in self._named.values() if one["type"] in {"record", "error"}]
        self._level_count = 1 + len(records)  # at most so many levels begin with one byte
        self._field_count_max = max(_FIELD_COUNT_MAX, sum(len(one["fields"]) for one in records) + len(records))
        self._may_explode |= any(one.value_count > self._field_count_max for one in self._known.values())
        self._values = _Values(schema, self._named)

    def check(self, data: bytes, count: int = 1) -> None:
        """Check the encoding of ``count`` values before they are decoded.

        Raises:
            ValueError: It exceeds a bound, or is no encoding of the schema.
            EOFError: It ends too early.
        """
        is_deep = self._is_recursive and (len(data) + 1) * self._level_count > DEPTH_MAX
        if self._may_explode or is_deep or (count > 1 and self._empty.is_empty):
            _Walk(data, self._named, self._known, self._field_count_max).values(self._schema, count)

    def check_value(self, value: Any) -> None:
        """Check a value before it is encoded; ``check`` its encoding afterwards.

        Raises:
            ValueError: It is nested too deep.
        """
        if self._is_recursive:
            self._values.check(value)

    # ------------------------------------------------------------ the schema

    def _look(self, schema: Any, above: frozenset[str], direct: frozenset[str]) -> _Empty:
        """What is empty in the values of a schema.

        Args:
            above: The records that contain it.
            direct: Those that contain it without a union, array or map between, which could end the recursion.
        """
        if isinstance(schema, list):  # the number of the branch takes a byte
            return _Empty(False, max((self._look(one, above, _NO_NAMES).value_count for one in schema if one != "null"), default=0))
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, Mapping | list):
            return self._look(kind, above, direct)
        if kind in _PRIMITIVE:
            return _Empty(kind == "null", int(kind == "null"))
        if isinstance(schema, Mapping) and kind in {"array", "map"}:
            items = self._look(schema["items" if kind == "array" else "values"], above, _NO_NAMES)
            self._may_explode |= kind == "array" and items.is_empty
            return _Empty(False, 0)
        if isinstance(schema, Mapping) and kind in _NAMED:
            return self._look_at_named(schema, above, direct)
        if kind in direct:
            raise ValueError(f"{kind} contains itself in each value")
        if kind in above:
            self._is_recursive = True
            return _Empty(False, 0)
        return self._known[kind] if kind in self._known else self._look(self._named[kind], above, direct)

    def _look_at_named(self, schema: Mapping[str, Any], above: frozenset[str], direct: frozenset[str]) -> _Empty:
        name = schema["name"]
        self._named[name] = schema
        if schema["type"] in {"enum", "fixed"}:
            is_empty = schema["type"] == "fixed" and schema["size"] == 0
            found = _Empty(is_empty, int(is_empty))
        else:
            fields = [self._look(field["type"], above | {name}, direct | {name}) for field in schema["fields"]]
            is_empty = all(field.is_empty for field in fields)
            found = _Empty(is_empty, sum(field.value_count for field in fields) + is_empty)
        self._known[name] = found
        return found


def _descend(children: Iterator[T], enter: Callable[[T], Iterator[T] | None], depth_max: int) -> None:
    """Go through a tree depth first, without recursion: ``enter`` gives the children of one, None for a leaf.

    Raises:
        ValueError: It is deeper than ``depth_max``.
    """
    levels = [children]
    while levels:
        for child in levels[-1]:
            inner = enter(child)
            if inner is not None:
                if len(levels) > depth_max:
                    raise ValueError(f"its records, arrays and maps are nested deeper than {depth_max} levels")
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


class _Values:
    """Goes through values as fastavro would encode them; what the schema does not name is left out."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema, self._named = schema, named
        self._schemas: dict[int, Mapping[str, Any]] = {}
        self._steps: dict[_Kinds, _Steps] = {}

    def check(self, value: Any) -> None:
        _descend(iter([(value, self._kinds(self._schema))]), self._enter, WRITTEN_DEPTH_MAX)

    def _enter(self, given: tuple[Any, _Kinds]) -> "Iterator[tuple[Any, _Kinds]] | None":
        value, kinds = given
        if not kinds or value is None:
            return None
        fields, values, items = self._steps.get(kinds) or self._steps_of(kinds)
        while isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):  # (name of the branch of a union, value)
            value = value[1]
        if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 -- a dict is seen at a tenth of the time
            return ((child, fields.get(key, values)) for key, child in value.items())
        if isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray | memoryview):
            return ((child, items) for child in value)
        return None

    def _steps_of(self, kinds: _Kinds) -> _Steps:
        fields: dict[str, _Kinds] = {}
        values = items = _Kinds()
        for schema in [self._schemas[one] for one in kinds]:
            if schema["type"] == "array":
                items |= self._kinds(schema["items"])
            elif schema["type"] == "map":
                values |= self._kinds(schema["values"])
            else:
                for field in schema["fields"]:
                    fields[field["name"]] = fields.get(field["name"], _Kinds()) | self._kinds(field["type"])
        self._steps[kinds] = _Steps({name: found | values for name, found in fields.items()}, values, items)
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

    def __init__(self, data: bytes, named: Mapping[str, Any], known: Mapping[str, _Empty], field_count_max: int) -> None:
        self._data, self._at, self._named, self._known = data, 0, named, known
        self._field_count_max = field_count_max
        self._empty_count_max = self._left = max(EMPTY_COUNT_MAX, len(data))

    def values(self, schema: Any, count: int) -> None:
        if count > 1 and (empty := self._empty(schema)).is_empty:
            self._count_empty(count * empty.value_count)
        else:
            _descend(repeat(schema, count), self._enter, DEPTH_MAX)

    def _enter(self, schema: Any) -> Iterator[Any] | None:
        """Go past a value, or to the first one in it."""
        schema, kind = self._resolved(schema)
        if kind in _SIZES:
            self._skip(_SIZES[kind])
        elif kind in {"int", "long", "enum"}:
            self._long()
        elif kind in {"bytes", "string"}:
            self._skip(self._long())
        elif kind == "fixed":
            self._skip(schema["size"])
        elif kind in {"array", "map"}:
            return self._items(schema, kind)
        else:
            empty = self._known[schema["name"]]
            if empty.value_count > self._field_count_max:
                self._count_empty(empty.value_count)
            if not empty.is_empty:
                return (field["type"] for field in schema["fields"])
        return None

    def _items(self, schema: Mapping[str, Any], kind: str) -> Iterator[Any]:
        items = schema["values" if kind == "map" else "items"]
        empty = self._empty(items) if kind == "array" else _Empty(False, 0)
        while count := self._long():
            if count < 0:  # the size of the block follows
                self._long()
            if empty.is_empty:
                self._count_empty(abs(count) * empty.value_count)
                continue
            for _ in range(abs(count)):
                if kind == "map":
                    self._skip(self._long())
                yield items

    def _empty(self, schema: Any) -> _Empty:
        if isinstance(schema, list):
            return _Empty(False, 0)
        schema, kind = self._resolved(schema)
        return self._known[schema["name"]] if kind in {"record", "error", "fixed"} else _Empty(kind == "null", int(kind == "null"))

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

    def _count_empty(self, count: int) -> None:
        self._left -= count
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
