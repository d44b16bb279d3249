import json
import math
from datetime import date
from decimal import Decimal

import pytest

from logdb_connect import DataError, Schema, struct
from logdb_connect.converters.json import JsonConverter
from logdb_connect.data import STRING
from logdb_connect.logical import EPOCH, decimal_schema
from logdb_connect.plugin import columns
from logdb_connect.values import DATE_SCHEMA, TIMESTAMP_SCHEMA

PERSON = struct(
    "person",
    name=STRING,
    age=Schema(type="int8", optional=True),
    weight=Schema(type="float64", optional=True),
    tags=Schema(type="array", values=STRING, optional=True),
)

TIMES = struct("times", at=TIMESTAMP_SCHEMA, day=DATE_SCHEMA.replace(optional=True), price=decimal_schema(2))


def converter(**config):
    made = JsonConverter()
    made.configure(made.config_def.parse({name.replace("_", "."): str(value) for name, value in config.items()}))
    return made


def test_a_value_in_its_envelope():
    data = converter().from_connect("t", STRING, "é\n")
    assert data == '{"schema":{"type":"string","optional":false},"payload":"é\\n"}'.encode()
    assert converter().to_connect("t", data) == (STRING, "é\n")


@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (STRING, ["a", "", "ü\x00"]),
        (Schema(type="int32", optional=True), [1, None, -(1 << 31)]),
        (Schema(type="float64"), [1.5, 1e300, math.inf]),
        (PERSON, [{"name": "a", "age": 3, "weight": None, "tags": ["x"]}, {"name": "b", "age": None, "weight": 1.5, "tags": None}]),
        (Schema(type="map", keys=STRING, values=Schema(type="int64")), [{"a": 1}, {}]),
        (Schema(type="map", keys=Schema(type="int64"), values=STRING), [{1: "a"}, {}]),
        (Schema(type="bytes"), [b"", b"\xff\x00"]),
        (TIMES, [{"at": EPOCH, "day": None, "price": Decimal("1.50")}, {"at": EPOCH, "day": date(2020, 1, 31), "price": Decimal(-7)}]),
    ],
)
def test_many_are_as_one_by_one(enable, schema, values):
    one, many = converter(schemas_enable=enable), converter(schemas_enable=enable)
    data = many.from_connect_many("t", schema, values)
    assert data == [one.from_connect("t", schema, each) for each in values]
    assert many.to_connect_many("t", data) == columns([one.to_connect("t", each) for each in data])
    if enable:
        assert many.to_connect_many("t", data) == ([schema] * len(values), values)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (STRING, 1),
        (STRING, None),
        (STRING, "\ud800"),
        (Schema(type="int8"), 128),
        (Schema(type="int64"), True),
        (Schema(type="int64"), "1"),
        (Schema(type="boolean"), 1),
        (PERSON, {"name": "a", "aeg": 3}),
        (PERSON, {"age": 3}),
        (TIMES, {"at": 0, "day": None, "price": Decimal(1)}),
        (TIMES, {"at": EPOCH, "day": None, "price": "AQ=="}),
        (TIMES, {"at": EPOCH, "day": None, "price": Decimal("1.234")}),
        (TIMES, {"at": None, "day": None, "price": Decimal(1)}),
        (None, {"a": 1 << 64}),
        (None, object()),
    ],
)
def test_a_value_that_does_not_fit_is_refused(schema, value):
    fits = [] if schema is TIMES else [{"name": "a"}] if schema is PERSON else ["a"] if schema in {STRING, None} else [1]
    with pytest.raises(DataError):
        converter().from_connect("t", schema, value)
    with pytest.raises(DataError):
        converter().from_connect_many("t", schema, [*fits, value])


HEAD = b'{"schema":{"type":"int32","optional":false},"payload":'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1",
        b"{",
        HEAD + b"1]",
        HEAD + b'1,"payload":2,"more":3}',
        HEAD + b"1}}",
        HEAD + b'"1"}',
        HEAD + b"1.5}",
        HEAD + b"2147483648}",
        HEAD + b"1e999999999}",
        HEAD + b"null}",
        b'{"schema":{"type":"int32"}}',
        b'{"schema":{"type":"int33"},"payload":1}',
        b'{"schema":' + b"[" * 100_000,
        b'{"schema":{"type":"int32"},"payload":\xff}',
    ],
)
def test_bytes_that_are_none_of_this_format(data):
    fresh, used = converter(), converter()
    used.to_connect("t", HEAD + b"1}")
    for tried in (fresh, used):
        with pytest.raises(DataError):
            tried.to_connect("t", data)
        with pytest.raises(DataError):
            tried.to_connect_many("t", [HEAD + b"1}", data])


def test_envelopes_of_other_forms_between_kafkas():
    used = converter()
    plain = HEAD + b"1}"
    spaced = b'{"schema": {"type":"string","optional":true}, "payload": "a" }'
    turned = b'{"payload":{"type":"struct","fields":[]},"schema":{"type":"struct","fields":[]}}'
    number = (Schema(type="int32"), 1)
    for _ in range(2):
        assert used.to_connect("t", plain) == number
        assert used.to_connect("t", spaced) == (Schema(type="string", optional=True), "a")
        assert used.to_connect("t", turned) == (struct(), {})
        assert used.to_connect_many("t", [plain, spaced, plain]) == columns([number, (Schema(type="string", optional=True), "a"), number])
    used.to_connect("t", turned)
    with pytest.raises(DataError):
        used.to_connect("t", turned.replace(b'"schema":{"type":"struct","fields":[]}', b'"schema":{"type":"struct"}'))


def test_a_null_that_has_a_default():
    schema = struct(n=Schema(type="int32", optional=True, default=7))
    with_default, without = converter(), converter(replace_null_with_default=False)
    assert json.loads(with_default.from_connect("t", schema, {"n": None}))["payload"] == {"n": 7}
    data = without.from_connect("t", schema, {"n": None})
    assert json.loads(data)["payload"] == {"n": None}
    assert without.to_connect("t", data) == (schema, {"n": None})
    assert with_default.to_connect("t", data) == (schema, {"n": 7})


def test_the_cache_is_bounded():
    used = converter(schemas_cache_size=2)
    for number in range(5):
        schema = struct(f"s{number}", a=STRING)
        assert used.to_connect("t", used.from_connect("t", schema, {"a": "b"})) == (schema, {"a": "b"})
    assert len(used._writings._entries) == len(used._readings._entries) == 2


def test_characters_are_escaped_as_jackson_escapes_them():
    """A key has the same bytes as with Kafka's own converter: so it lies in the same partition."""
    plain = converter(**{"schemas.enable": False})
    assert plain.from_connect("t", STRING, "é\x1f🙂") == '"é\\u001F\\uD83D\\uDE42"'.encode()
    assert plain.from_connect_many("t", STRING, ["🙂", "a"]) == [b'"\\uD83D\\uDE42"', b'"a"']
    assert plain.to_connect("t", plain.from_connect("t", STRING, "🙂")) == (None, "🙂")
