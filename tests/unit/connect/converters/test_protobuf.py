from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from logdb_connect import DataError, Schema, struct
from logdb_connect.converters.protobuf import ProtobufConverter
from logdb_connect.converters.protobuf_schemas import Settings, proto_text
from logdb_connect.data import BYTES, DATE, OPTIONAL_STRING, STRING, TIME, TIMESTAMP
from logdb_connect.logical import decimal_schema
from support.schema_registry import schema_registry

PREFIX = "io.confluent.connect.protobuf."
SIZE = Schema(type="string", name="Size", parameters=((f"{PREFIX}Enum", "Size"), (f"{PREFIX}Enum.S", "0"), (f"{PREFIX}Enum.L", "7")))
ADDRESS = struct("shop.Address", city=STRING)
ORDER = struct(
    "shop.Order",
    small=Schema(type="int8"),
    id=Schema(type="int64"),
    price=decimal_schema(2),
    at=Schema(type="int64", name=TIMESTAMP, version=1),
    day=Schema(type="int32", name=DATE, version=1),
    clock=Schema(type="int32", name=TIME, version=1, optional=True),
    note=OPTIONAL_STRING,
    ratio=Schema(type="float64"),
    raw=BYTES,
    size=SIZE,
    tags=Schema(type="array", values=STRING),
    counts=Schema(type="map", keys=STRING, values=Schema(type="int64")),
    home=ADDRESS,
    others=Schema(type="array", values=ADDRESS),
    by_id=Schema(type="map", keys=Schema(type="int32"), values=ADDRESS),
)
VALUE = {
    "small": -8,
    "id": 1 << 40,
    "price": Decimal("-12.34"),
    "at": datetime(2020, 1, 31, 10, 15, 30, 123000, UTC),
    "day": date(2020, 1, 31),
    "clock": time(10, 15, 1, 5000),
    "note": None,
    "ratio": 0.5,
    "raw": b"\x00\xff",
    "size": "L",
    "tags": ["a", ""],
    "counts": {"x": 1},
    "home": {"city": "u"},
    "others": [{"city": "v"}, {"city": ""}],
    "by_id": {7: {"city": "w"}},
}
TEXT = """\
syntax = "proto3";
package shop;

import "confluent/meta.proto";

message Order {
  int32 small = 1 [(confluent.field_meta) = { params: [{ key: "connect.type", value: "int8" }] }];
  repeated Address homes = 2;
  map<string, int64> counts = 3;
  message Address {
    string city = 1;
  }
}
"""
LATER = """\
syntax = "proto3";
package shop;
import "common/money.proto";
message Unused {}
message Outer {
  message Inner { common.Money cost = 1; oneof how { string card = 2; uint64 voucher = 3; } optional int32 left = 4; int32 zero = 5; }
}
message Tree { Tree left = 1; }
"""
MONEY = 'syntax = "proto3";\npackage common;\nimport "common/unit.proto";\nmessage Money { int64 cents = 1; Unit unit = 2; }\n'
UNIT = 'syntax = "proto3";\npackage common;\nenum Unit { EUR = 0; USD = 1; }\n'


@pytest.fixture
def registry():
    with schema_registry() as served:
        yield served


def converter(registry, part="value", **config):
    given = {"schema.registry.url": registry.url, **{name.replace("_", "."): str(value) for name, value in config.items()}}
    made = ProtobufConverter()
    made.configure({**made.config_def.parse(given), "converter.type": part})
    return made


def kinds(schema):
    return {field.name: field.schema.name or field.schema.type for field in schema.fields}


def test_values_come_back(registry):
    used = converter(registry, optional_for_nullables=True)
    data = used.from_connect("orders", ORDER, VALUE)
    assert data[:6] == b"\x00\x00\x00\x00\x01\x00"
    schema, value = used.to_connect("orders", data)
    assert value == VALUE
    assert schema.name == "Order"
    assert kinds(schema) == {**kinds(ORDER), "home": "Address"}
    assert [dict(field.schema.parameters)[f"{PREFIX}Tag"] for field in schema.fields] == [str(tag) for tag in range(1, 16)]
    again = used.from_connect("orders", schema, value)
    assert used.to_connect("orders", again) == (schema, value)
    assert used.from_connect("orders", ORDER.replace(optional=True), None) is None
    assert used.to_connect("orders", None) == (None, None)


def test_the_file_of_a_schema():
    schema = struct(
        "shop.Order",
        small=Schema(type="int8"),
        homes=Schema(type="array", values=ADDRESS),
        counts=Schema(type="map", keys=STRING, values=Schema(type="int64")),
    )
    assert proto_text(schema, Settings()) == TEXT


@pytest.mark.parametrize(("setting", "absent"), [(None, 0), ("optional_for_nullables", None), ("wrapper_for_nullables", None)])
def test_null_is_kept_where_the_setting_says_so(registry, setting, absent):
    used = converter(registry, **({} if setting is None else {setting: True}))
    schema = struct("a", n=Schema(type="int32", optional=True), m=Schema(type="int32"))
    for value, wanted in ((None, absent), (0, 0), (3, 3)):
        assert used.to_connect("t", used.from_connect("t", schema, {"n": value, "m": 1}))[1] == {"n": wanted, "m": 1}


def test_a_schema_with_references_a_nested_message_and_a_oneof(registry):
    def reference(name, subject):
        return {"references": [{"name": name, "subject": subject, "version": 1}]}

    registry.answer("POST", "/subjects/unit/versions", {"schema": UNIT, "schemaType": "PROTOBUF"}, None)
    registry.answer(
        "POST", "/subjects/money/versions", {"schema": MONEY, "schemaType": "PROTOBUF", **reference("common/unit.proto", "unit")}, None
    )
    document = {"schema": LATER, "schemaType": "PROTOBUF", **reference("common/money.proto", "money")}
    registry.answer("POST", "/subjects/later/versions", document, None)
    used = converter(registry, optional_for_nullables=True, enhanced_protobuf_schema_support=True)
    head = b"\x00\x00\x00\x00\x03"
    path = b"\x04\x02\x00"  # two indexes: 1, 0
    schema, value = used.to_connect("t", head + path + b"\x0a\x04\x08\x05\x10\x01\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    assert schema.name == "shop.Outer.Inner"
    assert value == {"cost": {"cents": 5, "unit": "USD"}, "how_0": {"card": None, "voucher": -1}, "left": None, "zero": 0}
    assert schema.field("how_0").schema.name == f"{PREFIX}Union.how"
    data = used.from_connect("copies", schema, value)
    assert used.to_connect("copies", data)[1] == value
    with pytest.raises(DataError, match=r"shop\.Tree contains itself"):
        used.to_connect("t", head + b"\x02\x04")
    for bad in (b"\x02\x12", b"\x03", b"\x02\x03", b"\x06\x02", b"\xff\xff\xff\xff\xff\xff", b"", path + b"\x0a\x7f"):
        with pytest.raises(DataError, match=r"Failed to deserialize|no message at"):
            used.to_connect("t", head + bad)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"schema": "message {", "schemaType": "PROTOBUF"}, "Not a valid Protobuf schema"),
        ({"schema": '"string"'}, "is AVRO, not Protobuf"),
        ({"schema": "", "schemaType": "PROTOBUF", "references": [{"name": "../x", "subject": "s", "version": 1}]}, "no name of a file"),
        ({"schema": "", "schemaType": "PROTOBUF", "references": ["x"]}, "must have name, subject and version"),
    ],
)
def test_schemas_of_the_registry_that_are_wrong(registry, document, message):
    registry.answer("POST", "/subjects/s/versions", document, None)
    with pytest.raises(DataError, match=message):
        converter(registry).to_connect("t", b"\x00\x00\x00\x00\x01\x00")


@pytest.mark.parametrize(
    "schema",
    [
        STRING,
        struct("a", b=Schema(type="array", values=Schema(type="array", values=STRING))),
        struct("a", b=Schema(type="map", keys=Schema(type="float64"), values=STRING)),
        struct("a", **{"b-c": STRING}),
        struct('a"; evil', b=STRING),
    ],
)
def test_schemas_that_protobuf_does_not_have(registry, schema):
    value = "x" if schema == STRING else {field.name: None for field in schema.fields}
    optional = schema.replace(fields=tuple(type(field)(field.name, field.schema.replace(optional=True)) for field in schema.fields))
    with pytest.raises(DataError):
        converter(registry).from_connect("t", optional, value)
