"""Transforms of headers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from logdb_connect import values
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey
from logdb_connect.data import ConnectRecord, Header, Schema
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.plugin import Transform
from logdb_connect.transforms import base


class HeaderFrom(base.PartTransform):
    """Copies or moves fields into headers."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "fields",
            "LIST",
            REQUIRED,
            "Field names in the record whose values are to be copied or moved to headers.",
            "HIGH",
            base.not_empty,
        ),
        ConfigKey(
            "headers",
            "LIST",
            REQUIRED,
            "Header names, in the same order as the field names listed in the fields configuration property.",
            "HIGH",
            base.not_empty,
        ),
        ConfigKey(
            "operation",
            "STRING",
            REQUIRED,
            "Either move if the fields are to be moved to the headers (removed from the key/value), "
            "or copy if the fields are to be copied to the headers (retained in the key/value).",
            "HIGH",
            values=("move", "copy"),
        ),
        base.REPLACE_NULL,
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._fields, self._headers, self._operation = config["fields"], config["headers"], config["operation"]
        self._defaults = config["replace.null.with.default"]
        if len(self._fields) != len(self._headers):
            raise ConfigError("fields", "'fields' config must have the same number of elements as 'headers' config.")
        self._schemas = base.Schemas(self._schema)

    def _schema(self, schema: Schema) -> Schema:
        return base.with_fields(schema, [field for field in schema.fields if field.name not in self._fields])

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value, schema, moves = self.value_of(record), self.schema_of(record), self._operation == "move"
        purpose = f"header {self._operation}"
        headers = list(record.headers)
        if schema is None:
            given = base.require_map(value, purpose)
            headers += [Header(header, given.get(name)) for name, header in zip(self._fields, self._headers, strict=True)]
            kept = {key: each for key, each in given.items() if not moves or key not in self._fields}
            return self.changed(record, None, kept).replace(headers=headers)
        given = base.require_struct(schema, value, purpose)
        for name, header in zip(self._fields, self._headers, strict=True):
            if (field := schema.field(name)) is None:
                raise DataError(f"Field does not exist: {name}")
            headers.append(Header(header, base.get(field, given, defaults=self._defaults), field.schema))
        if moves:
            schema = self._schemas[schema]
            value = {field.name: base.get(field, given, defaults=self._defaults) for field in schema.fields}
        return self.changed(record, schema, value).replace(headers=headers)


class HeaderFromKey(HeaderFrom):
    """``HeaderFrom`` of keys."""

    part = "key"


class HeaderFromValue(HeaderFrom):
    """``HeaderFrom`` of values."""

    part = "value"


class InsertHeader(Transform):
    """Adds a header with a fixed value to each record."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("header", "STRING", REQUIRED, "The name of the header.", "HIGH"),
        ConfigKey("value.literal", "STRING", REQUIRED, "The literal value that is to be set as the header value on all records.", "HIGH"),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        schema, value = values.parse(config["value.literal"])
        self._header = Header(config["header"], value, schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return record.replace(headers=[*record.headers, self._header])


class DropHeaders(Transform):
    """Removes the headers with these names."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("headers", "LIST", REQUIRED, "The name of the headers to be removed.", "HIGH", base.not_empty)
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._names = set(config["headers"])

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return record.replace(headers=[each for each in record.headers if each.key not in self._names])
