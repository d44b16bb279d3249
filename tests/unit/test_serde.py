import pytest

from logdb import serde
from logdb.errors import SerializationError

SCHEMA = {"type": "record", "name": "Trade", "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "long"}]}


def both(given):
    return serde.serializing(given, "value"), serde.deserializing(given, "value")


@pytest.mark.parametrize("value", ["", "plain", "grüße 你好", "\0"])
def test_string(value):
    there, back = both(serde.string)
    assert there(value) == value.encode()
    assert back(there(value)) == value


def test_string_of_another_encoding():
    there, back = both(serde.String("latin-1"))
    assert there("ä") == b"\xe4" and back(b"\xe4") == "ä"
    with pytest.raises(SerializationError, match="value of type str: UnicodeEncodeError"):
        there("你")
    with pytest.raises(LookupError):
        serde.String("nosuch")


@pytest.mark.parametrize("value", [{"a": [1, 2.5, True, {"ä": "ö"}]}, [], "text", 0, False, 10**30])
def test_json(value):
    there, back = both(serde.json)
    assert back(there(value)) == value
    assert type(there(value)) is bytes


def test_json_is_compact_and_strict():
    there, back = both(serde.json)
    assert there({"a": 1, "b": "ü"}) == '{"a":1,"b":"ü"}'.encode()
    for bad in (float("nan"), {"x": float("inf")}, {1, 2}, b"bytes"):
        with pytest.raises(SerializationError, match=f"value of type {type(bad).__name__}"):
            there(bad)
    for bad in (b"NaN", b"[-Infinity]", b"{", b"", b"\xff"):
        with pytest.raises(SerializationError, match="value of type bytes"):
            back(bad)


def test_avro():
    pytest.importorskip("fastavro")
    there, back = both(serde.avro(SCHEMA))
    trade = {"user": "ann", "amount": -3}
    assert there(trade) == b"\x06ann\x05", "Avro's binary encoding, without the schema"
    assert back(there(trade)) == trade
    for bad in ({"user": "ann"}, {"user": 1, "amount": 2}, "text"):
        with pytest.raises(SerializationError):
            there(bad)
    for bad in (b"", b"\x06an", b"\x06ann\x05\x00"):
        with pytest.raises(SerializationError):
            back(bad)


def test_avro_reads_by_another_version_of_the_schema():
    pytest.importorskip("fastavro")
    later = {**SCHEMA, "fields": [SCHEMA["fields"][0], {"name": "currency", "type": "string", "default": "EUR"}]}
    written = serde.avro(SCHEMA).serialize({"user": "ann", "amount": 7})
    assert serde.avro(SCHEMA, reader_schema=later).deserialize(written) == {"user": "ann", "currency": "EUR"}


@pytest.mark.parametrize("reader", [None, {"type": "record", "name": "R", "fields": []}])
def test_avro_of_a_few_bytes_takes_little(reader):
    """Also where the reader leaves the items out."""
    pytest.importorskip("fastavro")
    empty = {"type": "record", "name": "E", "fields": []}
    items = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": empty}}]}
    deep = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}
    for schema, data in ((items, b"\xfe\xff\xff\xff\xff\xff\x03\0"), (deep, b"\2" * 1_000_000 + b"\0")):
        values = serde.avro(schema, reader_schema=reader)
        for decode in (serde.deserializing(values, "value"), values.plain()[1]):
            with pytest.raises(SerializationError, match=r"no bytes|nested deeper"):
                decode(data)


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "of", "type": {"type": "array", "items": "Tree"}}]}
SPARSE = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "null"}]}
FLAT = {"type": "record", "name": "F", "fields": [{"name": f"f{number}", "type": "null"} for number in range(1_001)]}


def nested(levels, field, inner, around):
    value = inner
    for _ in range(levels):
        value = {field: around(value)}
    return value


def test_avro_reads_what_it_has_written():
    pytest.importorskip("fastavro")
    for schema, value in (
        (NODE, nested(201, "next", None, lambda inner: inner)),
        (TREE, nested(249, "of", {"of": []}, lambda inner: [inner])["of"][0]),
        ({"type": "array", "items": SPARSE}, [{"a": 1, "b": None}] * 5_000),
        ({"type": "array", "items": "null"}, [None] * 50_000),
        (FLAT, dict.fromkeys([field["name"] for field in FLAT["fields"]])),
    ):
        values = serde.avro(schema)
        data = values.serialize(value)
        assert values.serialize(values.deserialize(data)) == data


def test_avro_writes_nothing_that_it_would_refuse_to_read():
    """20,000 levels would end the process: fastavro overflows its stack."""
    pytest.importorskip("fastavro")
    for schema, value in (
        (NODE, nested(20_000, "next", None, lambda inner: inner)),
        (TREE, nested(20_000, "of", {"of": []}, lambda inner: [inner])),
        ({"type": "array", "items": "null"}, [None] * 100_001),
    ):
        with pytest.raises(SerializationError, match=r"no bytes|nested deeper"):
            serde.serializing(serde.avro(schema), "value")(value)


def test_avro_refuses_what_is_no_schema():
    pytest.importorskip("fastavro")
    with pytest.raises(SerializationError, match="not an avro schema"):
        serde.avro({"type": "nosuch"})


def test_avro_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(SerializationError, match=r"pip install 'fastavro>="):
        serde.avro(SCHEMA)


def test_none_is_passed_by():
    for given in (serde.string, serde.json):
        there, back = both(given)
        assert there(None) is None and back(None) is None


def test_any_callable_will_do_and_its_error_is_the_cause():
    assert serde.serializing(lambda number: b"%d" % number, "key")(7) == b"7"
    assert serde.deserializing(int, "key")(b"7") == 7
    assert serde.serializing(None, "key") is None and serde.deserializing(None, "key") is None
    with pytest.raises(SerializationError, match="key of type str: TypeError") as caught:
        serde.serializing(lambda number: b"%d" % number, "key")("seven")
    assert isinstance(caught.value.__cause__, TypeError)
