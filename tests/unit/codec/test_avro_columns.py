"""Arrow types of Avro schemas; the values that fastavro reads fit them."""

import datetime
import decimal
import uuid

import pytest

from logdb import serde

pa = pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")
from logdb.codec.avro_columns import arrow_fields  # noqa: E402 -- it needs pyarrow

NOW = datetime.datetime(2024, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
TREE = {"type": "record", "name": "ns.Point", "fields": [{"name": "x", "type": "double"}]}
CASES = [
    ("boolean", pa.bool_(), True),
    ("int", pa.int32(), -1),
    ("long", pa.int64(), 2**40),
    ("float", pa.float32(), 1.5),
    ("double", pa.float64(), 1.5),
    ("bytes", pa.binary(), b"\x00"),
    ("string", pa.string(), "ü"),
    (["null", "string"], pa.string(), None),
    (["null"], pa.null(), None),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC"), NOW),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), NOW),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms"), NOW.replace(tzinfo=None)),
    ({"type": "int", "logicalType": "date"}, pa.date32(), NOW.date()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms"), NOW.time()),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), uuid.UUID(int=7)),
    ({"type": "string", "logicalType": "unheard-of"}, pa.string(), "s"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2), decimal.Decimal("-12.50")),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B"),
    ({"type": "fixed", "name": "F", "size": 2}, pa.binary(2), b"ab"),
    ({"type": "array", "items": TREE}, pa.list_(pa.struct([("x", pa.float64())])), [{"x": 1.0}]),
    ({"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32()), {"a": 1, "b": None}),
]


@pytest.mark.parametrize(("kind", "expected", "value"), CASES)
def test_each_type(kind, expected, value):
    avro = serde.avro({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})
    schema, decode = avro.plain()
    assert arrow_fields(schema) == [pa.field("f", expected)]
    (found,) = pa.array([decode(avro.serialize({"f": value})), None], pa.struct(arrow_fields(schema))).flatten()
    shown = {dict: lambda given: list(given.items()), uuid.UUID: str}.get(type(value), lambda given: given)(value)
    assert found.to_pylist() == [shown, None]


def test_a_type_is_used_by_its_name():
    money = {"type": "fixed", "name": "ns.Money", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 2}
    kinds = [TREE, ["null", "ns.Point"], money, "ns.Money"]
    avro = serde.avro({"type": "record", "name": "ns.R", "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]})
    schema, decode = avro.plain()
    point, decimals = pa.struct([("x", pa.float64())]), pa.decimal128(18, 2)
    assert [field.type for field in arrow_fields(schema)] == [point, point, decimals, decimals]
    cents = decimal.Decimal("7.25")
    value = decode(avro.serialize({"f0": {"x": 1.0}, "f1": None, "f2": cents, "f3": cents}))
    assert pa.array([value], pa.struct(arrow_fields(schema))).to_pylist()[0]["f3"] == cents


def test_the_readers_schema_decides():
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string", "default": "-"}, {"name": "a", "type": "long"}]}
    schema, decode = serde.avro(old, reader_schema=new).plain()
    assert arrow_fields(schema) == [pa.field("b", pa.string()), pa.field("a", pa.int64())]
    assert decode(serde.avro(old).serialize({"a": 3})) == {"b": "-", "a": 3}


LINKED = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("string", "must be an Avro record"),
        (LINKED, "'L' contains itself"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}, "a union of 2 types"),
        ({"type": "record", "name": "R", "fields": []}, "at least one field"),
    ],
)
def test_what_has_no_columns(schema, said):
    parsed, _ = serde.avro(schema).plain()
    with pytest.raises(ValueError, match=said):
        arrow_fields(parsed)
