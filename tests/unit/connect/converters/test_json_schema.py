import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from logdb_connect import DataError, Schema, struct
from logdb_connect.converters.json_schema import JsonSchemaConverter
from logdb_connect.data import BYTES, OPTIONAL_STRING, STRING
from logdb_connect.logical import decimal_schema
from logdb_connect.values import DATE_SCHEMA, TIMESTAMP_SCHEMA
from support.schema_registry import schema_registry

ORDER = struct(
    "shop.Order",
    id=Schema(type="int64"),
    small=Schema(type="int8", optional=True),
    share=Schema(type="float32"),
    price=decimal_schema(2),
    at=TIMESTAMP_SCHEMA,
    day=DATE_SCHEMA.replace(optional=True),
    note=OPTIONAL_STRING.replace(doc="d"),
    size=Schema(type="int32", optional=True, default=3),
    raw=BYTES,
    tags=Schema(type="array", values=STRING),
    counts=Schema(type="map", keys=STRING, values=Schema(type="int64")),
    home=struct("shop.Address", optional=True, city=STRING),
)
VALUE = {
    "id": 7,
    "small": -8,
    "share": 0.5,
    "price": Decimal("12.34"),
    "at": datetime(2020, 1, 31, 10, 15, 30, 123000, UTC),
    "day": date(2020, 1, 31),
    "note": None,
    "size": 4,
    "raw": b"\x00\xff",
    "tags": ["a"],
    "counts": {"x": 1},
    "home": {"city": "u"},
}


@pytest.fixture
def registry():
    with schema_registry() as served:
        yield served


def converter(registry, **config):
    given = {"schema.registry.url": registry.url, **{name.replace("_", "."): str(value) for name, value in config.items()}}
    made = JsonSchemaConverter()
    made.configure({**made.config_def.parse(given), "converter.type": "value"})
    return made


@pytest.mark.parametrize("decimal_format", ["BASE64", "NUMERIC"])
def test_values_come_back(registry, decimal_format):
    used = converter(registry, decimal_format=decimal_format)
    data = used.from_connect("orders", ORDER, VALUE)
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    assert json.loads(data[5:])["id"] == 7
    assert converter(registry, decimal_format=decimal_format).to_connect("orders", data) == (ORDER, VALUE)
    assert registry.schemas[0]["schemaType"] == "JSON"
    assert used.from_connect("orders", OPTIONAL_STRING, None) is None


def test_schemas_as_confluents(registry):
    converter(registry).from_connect("t", struct("n.S", b=OPTIONAL_STRING, a=Schema(type="int16")), {"a": 1, "b": None})
    assert json.loads(registry.schemas[0]["schema"]) == {
        "type": "object",
        "title": "n.S",
        "properties": {
            "b": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 0},
            "a": {"type": "integer", "connect.type": "int16", "connect.index": 1},
        },
    }


def test_schemas_of_others(registry):
    document = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}}, "required": ["a"]}
    registry.schemas.append({"schemaType": "JSON", "schema": json.dumps(document)})
    data = b"\x00\x00\x00\x00\x01" + b'{"a":1}'
    expected = struct(a=Schema(type="int64"), b=OPTIONAL_STRING)
    assert converter(registry).to_connect("t", data) == (expected, {"a": 1, "b": None})
    for number, wrong in enumerate(
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, {"oneOf": [{"type": "string"}, {"type": "integer"}]}, [])
    ):
        registry.schemas.append({"schemaType": "JSON", "schema": json.dumps(wrong)})
        with pytest.raises(DataError, match="JSON Schema"):
            converter(registry).to_connect("t", b"\x00\x00\x00\x00" + bytes([number + 2]) + b"{}")


def test_what_is_refused(registry):
    used = converter(registry)
    good = used.from_connect("t", STRING, "a")
    for wrong in (b"", b"{}", good[:-1], good[:5] + b"1", good[:4] + b"\x09" + good[5:]):
        with pytest.raises(DataError):
            used.to_connect("t", wrong)
    for schema, value in ((None, 1), (STRING, 1), (Schema(type="map", keys=Schema(type="int32"), values=STRING), {1: "a"})):
        with pytest.raises(DataError):
            used.from_connect("t", schema, value)
