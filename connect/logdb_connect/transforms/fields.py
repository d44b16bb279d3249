"""Transforms of fields: insert, replace, mask, hoist, extract, flatten; the key from fields of the value; the name of a schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final

from logdb_connect import logical
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.data import STRING, ConnectRecord, Field, Schema
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.plugin import Transform
from logdb_connect.transforms import base
from logdb_connect.values import TIMESTAMP_SCHEMA

_OPTIONALITY = "Suffix with ! to make this a required field, or ? to keep it optional (the default)."


@dataclass(frozen=True)
class _Insertion:
    name: str
    schema: Schema

    @classmethod
    def of(cls, text: str | None, schema: Schema) -> "_Insertion | None":
        if text is None:
            return None
        name = text[:-1] if text.endswith(("?", "!")) else text
        return cls(name, schema.replace(optional=not text.endswith("!")))


class InsertField(base.PartTransform):
    """Adds fields: the topic, the partition, the offset, the timestamp or a fixed text."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("topic.field", "STRING", None, f"Field name for Kafka topic. {_OPTIONALITY}"),
        ConfigKey("partition.field", "STRING", None, f"Field name for Kafka partition. {_OPTIONALITY}"),
        ConfigKey("offset.field", "STRING", None, f"Field name for Kafka offset - only applicable to sink connectors. {_OPTIONALITY}"),
        ConfigKey("timestamp.field", "STRING", None, f"Field name for record timestamp. {_OPTIONALITY}"),
        ConfigKey("static.field", "STRING", None, f"Field name for static data field. {_OPTIONALITY}"),
        ConfigKey("static.value", "STRING", None, "Static field value, if field name configured."),
        base.REPLACE_NULL,
    )
    _purpose: Final = "field insertion"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._topic = _Insertion.of(config["topic.field"], STRING)
        self._partition = _Insertion.of(config["partition.field"], Schema(type="int32"))
        self._offset = _Insertion.of(config["offset.field"], Schema(type="int64"))
        self._timestamp = _Insertion.of(config["timestamp.field"], TIMESTAMP_SCHEMA)
        self._static = _Insertion.of(config["static.field"], STRING)
        self._text, self._defaults = config["static.value"], config["replace.null.with.default"]
        given = (self._topic, self._partition, self._offset, self._timestamp, self._static)
        self._insertions = [each for each in given if each is not None]
        if not self._insertions:
            raise ConfigError("topic.field", "No field insertion configured")
        if self._static is not None and self._text is None:
            message = f"Invalid value null for configuration static.value: No value specified for static field: {self._static.name}"
            raise ConfigError("static.value", message)
        self._schemas = base.Schemas(self._schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            made = dict(base.require_map(value, self._purpose))
            self._insert(record, made, record.timestamp_ms)
            return self.changed(record, None, made)
        given = base.require_struct(schema, value, self._purpose)
        updated = self._schemas[schema]
        made = {field.name: base.get(field, given, defaults=self._defaults) for field in schema.fields}
        self._insert(record, made, None if record.timestamp_ms is None else logical.timestamp_of(record.timestamp_ms))
        for each in self._insertions:
            made.setdefault(each.name, None)
        return self.changed(record, updated, made)

    def _insert(self, record: ConnectRecord, made: dict[str, Any], timestamp: Any) -> None:
        if self._topic is not None:
            made[self._topic.name] = record.topic
        if self._partition is not None and record.partition is not None:
            made[self._partition.name] = record.partition
        if self._offset is not None:
            made[self._offset.name] = base.require_sink_record(record, self._purpose).offset
        if self._timestamp is not None and timestamp is not None:
            made[self._timestamp.name] = timestamp
        if self._static is not None:
            made[self._static.name] = self._text

    def _schema(self, schema: Schema) -> Schema:
        return base.with_fields(schema, [*schema.fields, *(Field(each.name, each.schema) for each in self._insertions)])


class InsertFieldKey(InsertField):
    """``InsertField`` of keys."""

    part = "key"


class InsertFieldValue(InsertField):
    """``InsertField`` of values."""

    part = "value"


def _renames(mappings: list[str]) -> dict[str, str]:
    renames = {}
    for mapping in mappings:
        name, colon, other = mapping.partition(":")
        if not colon or ":" in other or not name or not other:
            raise ConfigError("renames", f"Invalid rename mapping: {mapping}")
        renames[name] = other
    return renames


def _renames_fault(mappings: list[str]) -> str | None:
    try:
        _renames(mappings)
    except ConfigError as error:
        return str(error)
    return None


class ReplaceField(base.PartTransform):
    """Drops or renames fields."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("exclude", "LIST", [], "Fields to exclude. This takes precedence over the fields to include."),
        ConfigKey("include", "LIST", [], "Fields to include. If specified, only these fields will be used."),
        ConfigKey("renames", "LIST", [], "Field rename mappings: pairs such as foo:bar,abc:xyz.", check=_renames_fault),
        base.REPLACE_NULL,
    )
    _purpose: Final = "field replacement"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._exclude, self._include = set(config["exclude"]), set(config["include"])
        self._renames, self._defaults = _renames(config["renames"]), config["replace.null.with.default"]
        self._schemas = base.Schemas(self._schema)

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        if schema is None:
            given = base.require_map(value, self._purpose)
            return self.changed(record, None, {self._renames.get(key, key): each for key, each in given.items() if self._keeps(key)})
        given = base.require_struct(schema, value, self._purpose)
        kept = [field for field in schema.fields if self._keeps(field.name)]
        made = {self._renames.get(field.name, field.name): base.get(field, given, defaults=self._defaults) for field in kept}
        return self.changed(record, self._schemas[schema], made)

    def _schema(self, schema: Schema) -> Schema:
        kept = [field for field in schema.fields if self._keeps(field.name)]
        return base.with_fields(schema, [Field(self._renames.get(field.name, field.name), field.schema) for field in kept])


class ReplaceFieldKey(ReplaceField):
    """``ReplaceField`` of keys."""

    part = "key"


class ReplaceFieldValue(ReplaceField):
    """``ReplaceField`` of values."""

    part = "value"


class MaskField(base.PartTransform):
    """Replaces the values of fields: by zero, by an empty value or by a text."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("fields", "LIST", REQUIRED, "Names of fields to mask.", "HIGH", base.not_empty),
        ConfigKey(
            "replacement",
            "STRING",
            None,
            "Custom value replacement, that will be applied to all 'fields' values (numeric or non-empty string values only).",
            "LOW",
            base.not_blank,
        ),
        base.REPLACE_NULL,
    )
    _purpose: Final = "mask fields"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._fields, self._replacement = set(config["fields"]), config["replacement"]
        self._defaults = config["replace.null.with.default"]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            given = base.require_map(value, self._purpose)
            return self.changed(record, None, {**given, **{name: self._masked(None, given.get(name)) for name in self._fields}})
        given = base.require_struct(schema, value, self._purpose)
        made = {}
        for field in schema.fields:
            found = base.get(field, given, defaults=self._defaults)
            made[field.name] = self._masked(field.schema, found) if field.name in self._fields else found
        return self.changed(record, schema, made)

    def _masked(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        if self._replacement is not None:
            return _replaced(schema, value, self._replacement)
        match value:
            case bool():
                return False
            case int():
                return 0
            case float():
                return 0.0
            case str():
                return ""
            case Decimal():
                return Decimal(0)
            case datetime():
                return logical.EPOCH
            case date():
                return logical.EPOCH_DATE
            case time():
                return time()
            case list() | tuple():
                return []
            case Mapping() if schema is None or schema.type == "map":
                return {}
            case _:
                raise DataError(f"Cannot mask value of type: {type(value).__name__}")


def _replaced(schema: Schema | None, value: Any, replacement: str) -> Any:
    """The replacement as a value of the type that is masked."""
    if isinstance(value, str):
        return replacement
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise DataError(f"Cannot mask value of type {type(value).__name__} with custom replacement.")
    try:
        number = Decimal(replacement)
        if isinstance(value, Decimal):
            return number
        made = float(number) if isinstance(value, float) else int(number) if number.adjusted() < 20 else None
    except (InvalidOperation, ValueError, OverflowError):
        made = None
    if made is None or not logical.fits(
        "int64" if schema is None and isinstance(value, int) else schema.type if schema else "float64", made
    ):
        raise DataError(f"Unable to convert {replacement} (string) to a number")
    return made


class MaskFieldKey(MaskField):
    """``MaskField`` of keys."""

    part = "key"


class MaskFieldValue(MaskField):
    """``MaskField`` of values."""

    part = "value"


class ValueToKey(Transform):
    """Makes the key of fields of the value."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("fields", "LIST", REQUIRED, "Field names on the record value to extract as the record key.", "HIGH", base.not_empty),
        base.REPLACE_NULL,
    )
    _purpose: Final = "copying fields from value to key"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._fields, self._defaults = config["fields"], config["replace.null.with.default"]
        self._schemas = base.Schemas(self._schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if record.value_schema is None:
            given = base.require_map(record.value, self._purpose)
            return record.replace(key_schema=None, key={name: given.get(name) for name in self._fields})
        given = base.require_struct(record.value_schema, record.value, self._purpose)
        schema = self._schemas[record.value_schema]
        return record.replace(
            key_schema=schema, key={field.name: base.get(field, given, defaults=self._defaults) for field in schema.fields}
        )

    def _schema(self, schema: Schema) -> Schema:
        fields = []
        for name in self._fields:
            if (field := schema.field(name)) is None:
                raise DataError(f"Field does not exist: {name}")
            fields.append(field)
        return Schema(type="struct", fields=tuple(fields))


def path_of(text: str, version: str) -> list[str]:
    """The steps to a field.  In syntax V2 a dot goes a level down, and backticks quote a name that has dots (KIP-821)."""
    if version.upper() == "V1":
        return [text]
    steps, at = [], 0
    while at < len(text):
        if text[at] != "`":
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            steps.append(text[at:end])
            at = end + 1
            continue
        name, start, opened = "", at + 1, at
        at += 1
        while True:
            at = text.find("`", at)
            is_escaped = at > 0 and text[at - 1] == "\\"
            if at < 0 or (at == len(text) - 1 and is_escaped):
                raise ConfigError(
                    "field",
                    f"Incomplete backtick pair in path: [{text}], consider adding a backslash before backtick at position {opened} "
                    "to escape it",
                )
            if at < len(text) - 1 and (text[at + 1] != "." or is_escaped):
                if text[at + 1] == ".":
                    name, start = name + text[start : at - 1] + "`", at + 1
                at += 1
                continue
            steps.append(name + text[start:at])
            at += 2
            break
    return [*steps, ""] if text.endswith(".") else steps


class ExtractField(base.PartTransform):
    """Replaces a struct or a map by one of its fields."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("field", "STRING", REQUIRED, "Field name to extract."),
        ConfigKey(
            "field.syntax.version",
            "STRING",
            "V1",
            "Defines the version of the syntax to access fields. If set to V1, then the field paths are limited to access the elements "
            "at the root level of the struct or map. If set to V2, the syntax will support accessing nested elements: a dot goes a "
            "level down; a name that has dots stands between backticks.",
            "HIGH",
            lambda value: None if value.upper() in {"V1", "V2"} else "String must be one of (case insensitive): V1, V2",
        ),
        base.REPLACE_NULL,
    )
    _purpose: Final = "field extraction"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._field, self._defaults = config["field"], config["replace.null.with.default"]
        self._path = path_of(self._field, config["field.syntax.version"])

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if schema is None:
            for step in self._path:
                value = None if value is None else base.require_map(value, self._purpose).get(step)
            return self.changed(record, None, value)
        if value is not None:
            base.require_struct(schema, value, self._purpose)
        for number, step in enumerate(self._path):
            if (field := schema.field(step)) is None:
                raise DataError(f"Unknown field: {self._field}")
            is_last = number == len(self._path) - 1
            value = None if value is None else base.get(field, value, defaults=self._defaults or not is_last)
            schema = field.schema
        return self.changed(record, schema, value)


class ExtractFieldKey(ExtractField):
    """``ExtractField`` of keys."""

    part = "key"


class ExtractFieldValue(ExtractField):
    """``ExtractField`` of values."""

    part = "value"


class HoistField(base.PartTransform):
    """Puts the whole key or value into the only field of a struct or a map."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("field", "STRING", REQUIRED, "Field name for the single field that will be created in the resulting Struct or Map.")
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._field = config["field"]
        self._schemas = base.Schemas(lambda schema: Schema(type="struct", fields=(Field(self._field, schema),)))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema = self.schema_of(record)
        return self.changed(record, None if schema is None else self._schemas[schema], {self._field: self.value_of(record)})


class HoistFieldKey(HoistField):
    """``HoistField`` of keys."""

    part = "key"


class HoistFieldValue(HoistField):
    """``HoistField`` of values."""

    part = "value"


class Flatten(base.PartTransform):
    """Moves nested fields to the top level."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "delimiter",
            "STRING",
            ".",
            "Delimiter to insert between field names from the input record when generating field names for the output record",
        )
    )
    _purpose: Final = "flattening"

    def configure(self, config: Mapping[str, Any]) -> None:
        self._delimiter = config["delimiter"]
        self._schemas = base.Schemas(self._schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        made: dict[str, Any] = {}
        if schema is None:
            self._flatten_map(base.require_map(value, self._purpose), "", made)
            return self.changed(record, None, made)
        updated = self._schemas[schema]
        self._flatten(schema, base.require_struct(schema, value, self._purpose), "", made)
        return self.changed(record, updated, {field.name: made.get(field.name) for field in updated.fields})

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flatten_map(self, value: Mapping[str, Any], prefix: str, made: dict[str, Any]) -> None:
        for key, each in value.items():
            name = self._name(prefix, key)
            if isinstance(each, Mapping):
                self._flatten_map(each, name, made)
            elif each is None or isinstance(each, bool | int | float | str | bytes | list | tuple):
                made[name] = each
            else:
                raise DataError(
                    f"Flatten transformation was passed a value of type {type(each).__name__} which is not supported by Connect's data API"
                )

    def _flatten(self, schema: Schema, value: Mapping[str, Any] | None, prefix: str, made: dict[str, Any]) -> None:
        for field in schema.fields if value is not None else ():
            name, found = self._name(prefix, field.name), base.get(field, value or {}, defaults=True)
            if field.schema.type == "struct":
                self._flatten(field.schema, found, name, made)
            else:
                made[name] = found

    def _schema(self, schema: Schema) -> Schema:
        fields: list[Field] = []
        self._flat_fields(schema, "", fields, is_optional=schema.optional, default=schema.default)
        return base.with_fields(schema, fields)

    def _flat_fields(self, schema: Schema, prefix: str, made: list[Field], *, is_optional: bool, default: Any) -> None:
        for field in schema.fields:
            name, optional = self._name(prefix, field.name), is_optional or field.schema.optional
            own = field.schema.default
            if own is None and default is not None:
                own = base.get(field, default, defaults=True)
            if field.schema.type == "struct":
                self._flat_fields(field.schema, name, made, is_optional=optional, default=own)
            elif field.schema.type == "map":
                raise DataError(f"Flatten transformation does not support MAP for record with schemas (for field {name}).")
            else:
                made.append(Field(name, base.bare(field.schema, values=field.schema.values, optional=optional, default=own)))


class FlattenKey(Flatten):
    """``Flatten`` of keys."""

    part = "key"


class FlattenValue(Flatten):
    """``Flatten`` of values."""

    part = "value"


class SetSchemaMetadata(base.PartTransform):
    """Sets the name and the version of the schema."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("schema.name", "STRING", None, "Schema name to set.", "HIGH"),
        ConfigKey("schema.version", "INT", None, "Schema version to set.", "HIGH"),
        base.REPLACE_NULL,
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        parts = {"name": config["schema.name"], "version": config["schema.version"]}
        self._parts = {name: part for name, part in parts.items() if part is not None}
        self._defaults = config["replace.null.with.default"]
        if not self._parts:
            raise ConfigError("schema.name", "Neither schema name nor version configured")
        self._schemas = base.Schemas(lambda schema: schema.replace(**self._parts))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None and schema is None:
            return record
        if schema is None:
            raise DataError("Schema required for [updating schema metadata]")
        if schema.type == "struct" and isinstance(value, Mapping):
            value = {field.name: base.get(field, value, defaults=self._defaults) for field in schema.fields}
        return self.changed(record, self._schemas[schema], value)


class SetSchemaMetadataKey(SetSchemaMetadata):
    """``SetSchemaMetadata`` of keys."""

    part = "key"


class SetSchemaMetadataValue(SetSchemaMetadata):
    """``SetSchemaMetadata`` of values."""

    part = "value"
