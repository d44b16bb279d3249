import base64
import json
import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from logdb_connect import ConfigError, DataError, RetriableError, Schema, struct
from logdb_connect.converters.avro import AvroConverter, avro_schema, connect_schema
from logdb_connect.data import BYTES, DATE, OPTIONAL_STRING, STRING, TIME, TIMESTAMP
from logdb_connect.logical import decimal_schema
from support.ports import free_port
from support.schema_registry import schema_registry

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
    size=Schema(type="int32", optional=True, default=3),
    raw=BYTES,
    tags=Schema(type="array", values=STRING),
    counts=Schema(type="map", keys=STRING, values=Schema(type="int64")),
    names=Schema(type="map", keys=Schema(type="int32"), values=OPTIONAL_STRING),
    home=ADDRESS,
    work=ADDRESS.replace(optional=True),
)
VALUE = {
    "small": -8,
    "id": 1 << 40,
    "price": Decimal("12.34"),
    "at": datetime(2020, 1, 31, 10, 15, 30, 123000, UTC),
    "day": date(2020, 1, 31),
    "clock": time(10, 15),
    "note": None,
    "size": 4,
    "raw": b"\x00\xff",
    "tags": ["a"],
    "counts": {"x": 1},
    "names": {1: "a", 2: None},
    "home": {"city": "u"},
    "work": {"city": "v"},
}


@pytest.fixture
def registry():
    with schema_registry() as served:
        yield served


def converter(registry, part="value", **config):
    given = {"schema.registry.url": registry.url, **{name.replace("_", "."): str(value) for name, value in config.items()}}
    made = AvroConverter()
    made.configure({**made.config_def.parse(given), "converter.type": part})
    return made


def test_values_come_back(registry):
    used = converter(registry)
    data = used.from_connect("orders", ORDER, VALUE)
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    assert registry.requests == [("POST", "/subjects/orders-value/versions")]
    assert used.to_connect("orders", data) == (ORDER, VALUE)
    assert converter(registry).to_connect("orders", data) == (ORDER, VALUE)
    used.from_connect("orders", ORDER, {**VALUE, "size": None})
    assert len(registry.requests) == 3
    assert used.from_connect("orders", ORDER.replace(optional=True), None) is None
    assert used.to_connect("orders", None) == (None, None)


# As Confluent's AvroData writes them.
@pytest.mark.parametrize(
    ("schema", "avro"),
    [
        (STRING, "string"),
        (OPTIONAL_STRING, ["null", "string"]),
        (Schema(type="int16"), {"type": "int", "connect.type": "int16"}),
        (
            decimal_schema(2),
            {
                "type": "bytes",
                "scale": 2,
                "precision": 64,
                "connect.version": 1,
                "connect.parameters": {"scale": "2"},
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "logicalType": "decimal",
            },
        ),
        (
            struct(a=Schema(type="int32", default=1), b=Schema(type="float64", optional=True)),
            {
                "type": "record",
                "name": "ConnectDefault",
                "namespace": "io.confluent.connect.avro",
                "fields": [
                    {"name": "a", "type": {"type": "int", "connect.default": 1}, "default": 1},
                    {"name": "b", "type": ["null", "double"], "default": None},
                ],
            },
        ),
        (
            Schema(type="map", keys=Schema(type="int32"), values=STRING),
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "MapEntry",
                    "namespace": "io.confluent.connect.avro",
                    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}],
                },
            },
        ),
    ],
)
def test_schemas_as_confluents(schema, avro):
    assert avro_schema(schema) == avro
    assert connect_schema(avro) == schema


def test_schemas_of_others():
    avro = {
        "type": "record", "name": "R", "namespace": "n", "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "f", "type": "E"},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "d", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        ],
    }  # fmt: skip
    enum = Schema(type="string", parameters=(("io.confluent.connect.avro.Enum", "n.E"), ("io.confluent.connect.avro.Enum.A", "A")))
    assert connect_schema(avro) == struct("n.R", e=enum, f=enum, u=STRING, d=Schema(type="int64", optional=True))
    for wrong in (["int", "string"], {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, "null", 5, {"type": "what"}):
        with pytest.raises(DataError):
            connect_schema(wrong)


def test_the_registry_decides(registry):
    fixed = converter(registry, auto_register_schemas=False)
    with pytest.raises(DataError, match="404 Schema not found"):
        fixed.from_connect("t", STRING, "a")
    converter(registry).from_connect("t", STRING, "a")
    assert fixed.from_connect("t", STRING, "a") == b"\x00\x00\x00\x00\x01\x02a"
    latest = converter(registry, auto_register_schemas=False, use_latest_version=True)
    assert latest.from_connect("t", STRING.replace(doc="another"), "a") == b"\x00\x00\x00\x00\x01\x02a"
    by_record = converter(registry, "key", key_subject_name_strategy="io.confluent.kafka.serializers.subject.TopicRecordNameStrategy")
    by_record.from_connect("t", ADDRESS, {"city": "x"})
    assert list(registry.subjects) == ["t-value", "t-shop.Address"]
    with pytest.raises(DataError, match="must only be a record schema"):
        by_record.from_connect("t", STRING, "x")


def test_a_registry_that_is_away_or_refuses(registry):
    registry.authorization = "Basic " + base64.b64encode(b"ada:s3cret").decode()
    down = f"http://127.0.0.1:{free_port()}"
    both = converter(registry, schema_registry_url=f"{down},{registry.url.replace('//', '//ada:s3cret@')}")
    assert both.from_connect("t", STRING, "a") is not None
    info = {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "ada:s3cret"}
    assert converter(registry, **info).from_connect("t", STRING, "a") is not None
    with pytest.raises(DataError, match="401 Unauthorized"):
        converter(registry).from_connect("t", STRING, "a")
    with pytest.raises(RetriableError, match="Connection refused"):
        converter(registry, schema_registry_url=down).from_connect("t", STRING, "a")
    registry.fault = 503
    with pytest.raises(RetriableError, match="503 fault"):
        converter(registry, **info).from_connect("t", STRING, "a")
    with pytest.raises(ConfigError, match=r"schema\.registry\.url"):
        converter(registry, schema_registry_url="file:///etc/passwd")


def test_bytes_that_are_none_of_this_format(registry):
    used = converter(registry)
    data = used.from_connect("t", ORDER, VALUE)
    for wrong in (b"", b"\x01" + data[1:], data[:5], data[:-1], data[:4] + b"\x09" + data[5:], data[:5] + b"\xff" * 40):
        with pytest.raises(DataError):
            used.to_connect("t", wrong)
    registry.schemas.append({"schema": json.dumps({"type": "object"}), "schemaType": "JSON"})
    with pytest.raises(DataError, match="is JSON, not Avro"):
        used.to_connect("t", b"\x00\x00\x00\x00\x02x")


def test_a_value_of_a_few_bytes_takes_little(registry):
    """The id in the record names the schema: whoever writes the record has chosen it."""
    used = converter(registry)
    registry.schemas.append({"schema": json.dumps({"type": "array", "items": {"type": "record", "name": "E", "fields": []}})})
    head = b"\0" + len(registry.schemas).to_bytes(4, "big")
    assert used.to_connect("t", head + b"\4\0")[1] == [{}, {}]
    with pytest.raises(DataError, match="records and items that take no bytes"):
        used.to_connect("t", head + b"\xfe\xff\xff\xff\xff\xff\x03\0")


def avro_record(name, *types, **more):
    return {"type": "record", "name": name, "fields": [{"name": f"f{place}", "type": one, **more} for place, one in enumerate(types)]}


def chain(levels, **more):
    """Each record contains the one before by its name; the text is flat."""
    records = [avro_record("R0", "boolean"), *(avro_record(f"R{each}", f"R{each - 1}", **more) for each in range(1, levels))]
    return avro_record("Root", ["null", avro_record("D", *records)], f"R{levels - 1}")


CONVERT = """
import sys, threading
from logdb_connect import DataError, Schema, struct
from logdb_connect.converters.avro import AvroConverter

made = AvroConverter()
given = {"schema.registry.url": sys.argv[1], "auto.register.schemas": "false", "use.latest.version": "true"}
made.configure({**made.config_def.parse(given), "converter.type": "value"})
inner = struct("R", x=Schema(type="int32"))

def convert():
    try:
        print(eval(sys.argv[2]))
    except DataError as error:
        print("DataError", error)

thread = threading.Thread(target=convert)
thread.start()
thread.join()
"""


def converted(registry, expression):
    ended = subprocess.run(
        [sys.executable, "-c", CONVERT, registry.url, expression], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_record_of_two_bytes_does_not_end_the_process(registry):
    registry.schemas.append({"schema": json.dumps(chain(10_000))})
    head = b"\0" + len(registry.schemas).to_bytes(4, "big")
    assert "levels" in converted(registry, f"made.to_connect('t', {head + bytes(2)!r})")


def test_a_default_in_itself_does_not_end_the_process(registry):
    """The latest schema of the subject, of others, has fields that the value lacks."""
    node = avro_record("N", ["N", "null"], default={})
    converter(registry).from_connect("t", struct("N", x=Schema(type="int32")), {"x": 1})
    registry.schemas[0]["schema"] = json.dumps(node)
    assert "nested deeper" in converted(registry, "made.from_connect('t', struct('N', x=Schema(type='int32')), {'x': 1})")


WRONG = [
    json.dumps(avro_record("N", "N")),
    json.dumps(["null", ["int", "string"]]),
    '{"type":"array","items":' * 1_100 + '"int"' + "}" * 1_100,
    '{"type":"record","name":"R","fields":["x"]}',
    '{"type":"record","name":"R","fields":5}',
    '{"type":"enum","name":"R","symbols":5}',
    '{"type":"enum","name":7,"symbols":["a"]}',
]


@pytest.mark.parametrize("text", WRONG, ids=["itself", "unions", "deep", "text", "number", "symbols", "name"])
def test_a_schema_of_others_that_is_none(registry, text):
    """Of the registry: the latest of the subject, or that of a record."""
    converter(registry).from_connect("t", STRING, "a")
    registry.schemas[0]["schema"] = text
    with pytest.raises(DataError, match="Not a valid Avro schema"):
        converter(registry, auto_register_schemas=False, use_latest_version=True).from_connect("t", STRING, "a")
    with pytest.raises(DataError, match="Not a valid Avro schema"):
        converter(registry).to_connect("t", b"\0\0\0\0\1\2a")


def test_a_schema_that_connect_cannot_take(registry):
    """Of 900 levels: fastavro reads its values, but to compare two of such schemas would exceed Python's recursion limit."""
    registry.schemas.append({"schema": json.dumps(chain(900))})
    head = b"\0" + len(registry.schemas).to_bytes(4, "big")
    with pytest.raises(DataError, match="251 levels"):
        converter(registry).to_connect("t", head + bytes(2))


def test_what_could_not_be_read_is_not_written(registry):
    used, empty = converter(registry), Schema(type="array", values=struct("E"))
    assert used.to_connect("t", used.from_connect("t", empty, [{}] * 5_000))[1] == [{}] * 5_000
    with pytest.raises(DataError, match="records and items that take no bytes"):
        used.from_connect("t", empty, [{}] * 100_001)


@pytest.mark.parametrize(("schema", "value"), [(None, 1), (STRING, 1), (ADDRESS, {"city": None}), (Schema(type="int8"), 300)])
def test_a_value_that_does_not_fit_is_refused(registry, schema, value):
    with pytest.raises(DataError):
        converter(registry).from_connect("t", schema, value)
    assert registry.requests == []
