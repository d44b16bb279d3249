"""Which values of one Avro schema can be read as those of another without a change of their meaning.

Avro resolves values by the types of their encoding, whatever their logical types are: a number of milliseconds would become one of
microseconds.  Here a time of another unit is read in its own unit, for Arrow to convert.  Where two logical types mean different things,
no value is read.

Source: Avro 1.12, "Schema Resolution" and "Logical Types".
"""

from collections.abc import Iterator, Mapping
from typing import Any

_UNITS = {
    f"{kind}-{unit}": kind
    for kind, units in {
        "time": ("millis", "micros"),
        **dict.fromkeys(("timestamp", "local-timestamp"), ("millis", "micros", "nanos")),
    }.items()
    for unit in units
}
"""The kinds of times that differ in their units alone."""
_MEANINGS = {"date": "date", "decimal": "decimal", "duration": "duration", **_UNITS}
"""Logical types that change what an encoded value means; a UUID is a text in any case."""


class Unreadable(ValueError):
    """Values of the written schema would mean something else."""


def reader_of(written: Any, wanted: Any) -> Any:
    """The schema to read values with: ``wanted``, with the units that its times have as written.

    Raises:
        Unreadable: A field has another logical type, or a type of several fields would have two units.
    """
    if not any(_logical(one) for schema in (written, wanted) for one in _schemas(schema)):
        return wanted
    pair = _Pair(written, wanted)
    found = pair.of(written, wanted)
    if pair.changed & {name for name in _references(wanted) if name in pair.wanted_types}:
        raise Unreadable(f"the types {sorted(pair.changed)} have two units")
    return found


class _Pair:
    def __init__(self, written: Any, wanted: Any) -> None:
        self.written_types, self.wanted_types = _types(written), _types(wanted)
        self.changed = set[str]()

    def of(self, written: Any, wanted: Any) -> Any:
        if isinstance(written, list):
            return self._one([self.of(one, wanted) for one in written if one != "null"], wanted)
        if isinstance(wanted, list):
            return [one if one == "null" else self.of(written, one) for one in wanted]
        if isinstance(wanted, str) and (known := self.wanted_types.get(_last(wanted))) is not None:
            self._one([self.of(written, known)], known, may_change=False)
            return wanted
        written = self.written_types.get(_last(written), written) if isinstance(written, str) else written
        for one in (written, wanted):
            if _is_wrapped(one) and _logical(one):
                raise Unreadable(f"{one!r:.200} has a logical type around a type")
        if _is_wrapped(wanted):
            return {**wanted, "type": self.of(written, wanted["type"])}
        if _is_wrapped(written):
            return self.of(written["type"], wanted)
        return self._defined(written, wanted)

    def _defined(self, written: Any, wanted: Any) -> Any:
        kind = wanted["type"] if isinstance(wanted, Mapping) else wanted
        if kind != (written["type"] if isinstance(written, Mapping) else written) or kind not in {"record", "error", "array", "map"}:
            return _leaf(written, wanted)
        if kind in {"array", "map"}:
            inner = "items" if kind == "array" else "values"
            return {**wanted, inner: self.of(written[inner], wanted[inner])}
        fields = [{**one, "type": self._field(written, one)} for one in wanted["fields"]]
        found = {**wanted, "fields": fields}
        if found != wanted:
            self.changed.add(_last(wanted["name"]))
        return found

    def _field(self, written: Any, wanted: Mapping[str, Any]) -> Any:
        names = {wanted["name"], *wanted.get("aliases", ())}
        return self._one([self.of(one["type"], wanted["type"]) for one in written["fields"] if one["name"] in names], wanted["type"])

    @staticmethod
    def _one(found: list[Any], wanted: Any, *, may_change: bool = True) -> Any:
        """The schema for all of these, each of which resolves to ``wanted``."""
        if all(one == wanted for one in found):
            return wanted
        if len(found) > 1 or not may_change:
            raise Unreadable(f"{wanted!r:.200} has two units")
        return found[0]


def _leaf(written: Any, wanted: Any) -> Any:
    before, after = _logical(written), _logical(wanted)
    if before == after:
        return wanted
    if before in _UNITS and _UNITS[before] == _UNITS.get(after or ""):
        return written
    raise Unreadable(f"{written!r:.200} cannot be read as {wanted!r:.200}")


def _logical(schema: Any) -> str | None:
    """The logical type of a schema, if values of it mean something else than without it."""
    name = schema.get("logicalType") if isinstance(schema, Mapping) else None
    return name if name in _MEANINGS else None


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_wrapped(schema: Any) -> bool:
    """Whether it is a type within a type."""
    return isinstance(schema, Mapping) and not isinstance(schema["type"], str)


def _types(schema: Any) -> dict[str, Any]:
    """The named types that a schema defines, by their names without a namespace."""
    found: dict[str, Any] = {}
    for one in _schemas(schema):
        if isinstance(one, Mapping) and isinstance(one.get("name"), str) and found.setdefault(_last(one["name"]), one) is not one:
            raise Unreadable(f"two types have the name {one['name']!r:.200}")
    return found


def _references(schema: Any) -> set[str]:
    return {_last(one) for one in _schemas(schema) if isinstance(one, str)}


def _schemas(schema: Any) -> Iterator[Any]:
    """A schema, and all those within it."""
    yield schema
    if isinstance(schema, list):
        for one in schema:
            yield from _schemas(one)
    elif isinstance(schema, Mapping):
        inner = [schema[name] for name in ("items", "values") if name in schema]
        inner += [one["type"] for one in schema.get("fields", ())]
        if not isinstance(schema["type"], str):
            inner.append(schema["type"])
        for one in inner:
            yield from _schemas(one)
