"""JsonConverter's two paths give the same: values through msgspec, and values through Python."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from logdb_connect import DataError, Field, Schema
from logdb_connect.converters.json import JsonConverter, _parse
from logdb_connect.data import STRING
from logdb_connect.logical import decimal_schema
from logdb_connect.plugin import columns
from logdb_connect.values import DATE_SCHEMA, TIMESTAMP_SCHEMA

NAMES = st.sampled_from(["a", "b", "schema", "payload", "ü", "a b", ""])
OF_TYPES = {
    "int8": st.integers(-128, 127), "int64": st.integers(-(1 << 63), (1 << 63) - 1), "float32": st.floats(width=32), "float64": st.floats(),
    "boolean": st.booleans(), "string": st.text(), "bytes": st.binary(),
}  # fmt: skip
STRAY = st.sampled_from(
    [
        None,
        1 << 64,
        -129,
        1.5,
        math.nan,
        True,
        "x",
        "\ud800",
        b"x",
        {1},
        Decimal("sNaN"),
        [],
        [None],
        {},
        {"a": 1},
        Decimal("1.234"),
        date(2020, 1, 1),
    ]
)
LOGICAL = {
    "Decimal": (decimal_schema(2), st.decimals(-1000, 1000, places=2)),
    "Date": (DATE_SCHEMA, st.dates()),
    "Timestamp": (
        TIMESTAMP_SCHEMA,
        st.integers(0, 10**12).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)),
    ),
}


@st.composite
def typed(draw, depth=2):
    """A schema, and a strategy of its values."""
    kind = draw(st.sampled_from([*OF_TYPES, *LOGICAL, *(["array", "map", "struct", "struct"] if depth else [])]))
    if kind in OF_TYPES:
        schema, values = Schema(type=kind), OF_TYPES[kind]
    elif kind in LOGICAL:
        schema, values = LOGICAL[kind]
    elif kind == "array":
        item, items = draw(typed(depth - 1))
        schema, values = Schema(type="array", values=item), st.lists(items, max_size=3)
    elif kind == "map":
        item, items = draw(typed(depth - 1))
        numbers = draw(st.booleans())
        schema = Schema(type="map", keys=Schema(type="int8") if numbers else STRING, values=item)
        values = st.dictionaries(OF_TYPES["int8"] if numbers else st.text(), items, max_size=3)
    else:
        fields = draw(st.dictionaries(NAMES, typed(depth - 1), max_size=4))
        schema = Schema(type="struct", fields=tuple(Field(name, each) for name, (each, _) in fields.items()))
        values = st.fixed_dictionaries({name: each for name, (_, each) in fields.items()})
    if draw(st.booleans()):
        schema, values = schema.replace(optional=True), st.none() | values
    return schema, values


@st.composite
def cases(draw):
    """A schema and values, some of which do not fit."""
    schema, values = draw(typed())
    strange = st.dictionaries(NAMES, STRAY, max_size=3) | STRAY
    return schema, draw(st.lists(values | values | values | strange, min_size=1, max_size=4))


def attempt(function, *arguments):
    try:
        return function(*arguments)
    except DataError:
        return DataError


def shown(value):
    """NaN is equal to itself here; -0.0 is not 0.0."""
    return repr(value)


@settings(max_examples=200, deadline=None)
@given(cases(), st.booleans(), st.booleans())
def test_both_paths_give_the_same(case, enveloped, numeric):
    schema, values = case
    used = JsonConverter()
    used.configure({"schemas.enable": enveloped, "decimal.format": "NUMERIC" if numeric else "BASE64"})
    writing = used._writing(schema)
    general = [attempt(used._general, writing, each) for each in values]
    assert [attempt(used.from_connect, "t", schema, each) for each in values] == general
    fits = [each for each, data in zip(values, general, strict=True) if data is not DataError]
    written = [data for data in general if data is not DataError]
    assert used.from_connect_many("t", schema, fits) == written
    if len(fits) < len(values):
        assert attempt(used.from_connect_many, "t", schema, values) is DataError
    if enveloped:
        read = [used._values.of_json(schema, _parse(data)["payload"]) for data in written]
        assert shown([used.to_connect("t", data) for data in written]) == shown([(schema, each) for each in read])
        assert shown(used.to_connect_many("t", written)) == shown(([schema] * len(read), read))


SEEDS = [
    b'{"schema":{"type":"int32","optional":false},"payload":1}',
    b'{"schema":{"type":"struct","fields":[{"type":"string","optional":true,"field":"a"}],"optional":false},"payload":{"a":"x"}}',
    b'{"schema":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}},"payload":"AQ=="}',
    b'{"schema":{"type":"array","items":{"type":"double","default":1e3}},"payload":[1,NaN,-2.5e300]}',
    b'{"payload":null,"schema":null}',
]
PIECES = st.sampled_from(
    [
        b"null",
        b"1e999",
        b'"',
        b"{",
        b"}",
        b"[]",
        b"\\ud800",
        b"\xff",
        b"-",
        b",",
        b'"type"',
        b'"map"',
        b"int8",
        b" ",
        b"99999999999999999999",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SEEDS), st.integers(0, 150), st.integers(0, 12), PIECES), min_size=1, max_size=4))
def test_hostile_bytes(cuts):
    """Each is read or refused; what was read before makes no difference."""
    used = JsonConverter()
    used.configure({})
    texts = [text for seed, at, size, piece in cuts for text in (seed, seed[:at] + piece + seed[at + size :])]
    found = []
    for text in texts:
        fresh = JsonConverter()
        fresh.configure({})
        found.append(attempt(fresh.to_connect, "t", text))
        assert shown(attempt(used.to_connect, "t", text)) == shown(found[-1])
    kept = [text for text, one in zip(texts, found, strict=True) if one is not DataError]
    assert shown(used.to_connect_many("t", kept)) == shown(columns([one for one in found if one is not DataError]))
