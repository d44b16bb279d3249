"""What the transforms share: the part of a record that they work on, what they require of it, and schemas that are made once."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal

from logdb_connect.config import Check, ConfigKey
from logdb_connect.data import ConnectRecord, Field, Schema, SinkRecord
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.plugin import Transform

_CACHE_SIZE: Final = 16
REPLACE_NULL: Final = ConfigKey(
    "replace.null.with.default",
    "BOOLEAN",
    True,
    "Whether to replace fields that have a default value and that are null to the default value. "
    "When set to true, the default value is used, otherwise null is used.",
)


class PartTransform(Transform):
    """A transform of keys or of values; the subclasses ``…Key`` and ``…Value`` say of which."""

    part: ClassVar[Literal["key", "value"]]

    def schema_of(self, record: ConnectRecord) -> Schema | None:
        return record.key_schema if self.part == "key" else record.value_schema

    def value_of(self, record: ConnectRecord) -> Any:
        return record.key if self.part == "key" else record.value

    def changed(self, record: ConnectRecord, schema: Schema | None, value: Any) -> ConnectRecord:
        """The record with another key or value."""
        return record.replace(key_schema=schema, key=value) if self.part == "key" else record.replace(value_schema=schema, value=value)


class Schemas:
    """The schemas that were made from others; ``make`` runs once for each."""

    def __init__(self, make: Callable[[Schema], Schema]) -> None:
        self._make = make
        self._made: dict[Schema, Schema] = {}
        self._last: tuple[Schema, Schema] | None = None

    def __getitem__(self, schema: Schema) -> Schema:
        if self._last is not None and self._last[0] is schema:
            return self._last[1]
        made = self._made.get(schema)
        if made is None:
            if len(self._made) >= _CACHE_SIZE:
                del self._made[next(iter(self._made))]
            made = self._made[schema] = self._make(schema)
        self._last = schema, made
        return made


def require_map(value: Any, purpose: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {_class_of(value)}")
    return value


def require_struct(schema: Schema, value: Any, purpose: str) -> Mapping[str, Any]:
    if schema.type != "struct" or not isinstance(value, Mapping):
        found = schema.type if isinstance(value, Mapping) else _class_of(value)
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {found}")
    return value


def require_sink_record(record: ConnectRecord, purpose: str) -> SinkRecord:
    if not isinstance(record, SinkRecord):
        raise DataError(f"Only SinkRecord supported for [{purpose}], found: {type(record).__name__}")
    return record


def _class_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def get(field: Field, value: Mapping[str, Any], *, defaults: bool) -> Any:
    """A field's value; its default in place of null."""
    found = value.get(field.name)
    return field.schema.default if found is None and defaults else found


def bare(schema: Schema, **parts: Any) -> Schema:
    """A schema that has name, version, doc and parameters of another one, and ``parts``: neither default nor optional."""
    given = {"name": schema.name, "version": schema.version, "doc": schema.doc, "parameters": schema.parameters}
    return Schema(**{"type": schema.type, **given, **parts})


def with_fields(schema: Schema, fields: list[Field]) -> Schema:
    """``bare`` of a struct."""
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"Cannot create field because of field name duplication {name}")
    return bare(schema, type="struct", fields=tuple(fields))


def not_empty(value: Any) -> str | None:
    """A check of lists."""
    return None if value else "Empty list"


def not_blank(value: Any) -> str | None:
    """A check of text."""
    return None if value else "String must be non-empty"


def is_regex(value: str) -> str | None:
    """A check of regular expressions."""
    try:
        compiled("regex", value)
    except ConfigError as error:
        return str(error)
    return None


IS_REGEX: Final[Check] = is_regex


def compiled(name: str, pattern: str) -> Any:
    """A regular expression of google-re2, which takes time linear in the text.

    Raises:
        ConfigError: It is none, or uses what re2 does not have: look-around and back references.

    Source: https://github.com/google/re2/wiki/Syntax.
    """
    import re2  # few connectors have a pattern

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ConfigError(name, f"Invalid regex {pattern!r}: {text}; look-around and back references are not supported") from None
