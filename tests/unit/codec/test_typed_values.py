"""Columns out of values: each value is one object of JSON, or one record of Avro, or the error names it."""

import pytest

from logdb.errors import SerializationError

pa = pytest.importorskip("pyarrow")
from logdb.codec.typed_values import typed_values  # noqa: E402 -- it needs pyarrow


def columns(values, schema):
    batch = pa.record_batch({"offset": list(range(10, 10 + len(values))), "value": pa.array(values, pa.binary())})
    return [array.to_pylist() for array in typed_values(pa.schema(schema), ["offset"]).columns(batch)]


def test_rows_stay_with_their_values():
    values = [b'{"a": 1, "b": "x"}', None, b"{}", b'{\n"a":\r\n 2,\t"c": [1, {"a": 9}]}', b' {"b": "l\\n"} ']
    assert columns(values, [("a", pa.int64()), ("b", pa.string())]) == [[1, None, None, 2, None], ["x", None, None, None, "l\n"]]


def test_nested_types_and_times():
    values = [b'{"at": "2024-01-01T00:00:00Z", "p": {"x": 1.5}, "l": [1, 2], "o": true}']
    kinds = [("at", pa.timestamp("ms", "UTC")), ("p", pa.struct([("x", pa.float64())])), ("l", pa.list_(pa.int32())), ("o", pa.bool_())]
    (at,), (p,), (found,), (o,) = columns(values, kinds)
    assert (at.isoformat(), p, found, o) == ("2024-01-01T00:00:00+00:00", {"x": 1.5}, [1, 2], True)


BAD = [b"", b" ", b"\n", b"x", b"1", b"[1]", b'{"a": 1} {"a": 2}', b'{"a": "s"}', b'{"a": 1', b"\xff", b'{"a": 1.5}']


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_object_of_that_schema_is_refused(bad):
    for values in ([bad], [b'{"a": 1}', bad, b"{}"], [bad, b'{"a": 1} {"a": 2}']):
        with pytest.raises(SerializationError):
            columns(values, [("a", pa.int64())])


def test_the_error_has_the_offset():
    with pytest.raises(SerializationError, match="the value at offset 12 does not fit the schema"):
        columns([b"{}", b"{}", b'{"a": "x"}'], [("a", pa.int64())])


@pytest.mark.parametrize("bad", [b'{"b": 1, "a": 1.5}', b'{"a": 99999999999999999999}'])
@pytest.mark.parametrize("row", [0, 1, 6])
def test_the_error_of_a_conversion_names_the_field(bad, row):
    values = [b'{"b": 7}'] * 7
    values[row] = bad
    with pytest.raises(SerializationError, match=rf"the value at offset {10 + row} does not fit the schema: field 'a': .*int64"):
        columns(values, [("b", pa.int64()), ("a", pa.int64())])


def test_some_fields_alone():
    batch = pa.record_batch({"offset": [0], "value": pa.array([b'{"a": 1, "b": "no number"}'], pa.binary())})
    made = typed_values(pa.schema([("b", pa.int64()), ("a", pa.int64())]), [], ["a"])
    assert [field.name for field in made.fields] == ["a"]
    assert [array.to_pylist() for array in made.columns(batch)] == [[1]]


@pytest.mark.parametrize("schema", [None, {"a": "int"}, pa.schema([]), "json"])
def test_what_is_no_schema(schema):
    with pytest.raises(ValueError, match=r"must be a pyarrow.Schema with at least one field, or logdb.serde.avro"):
        typed_values(schema, [])


def test_records_of_avro():
    serde = pytest.importorskip("logdb.serde")
    avro = serde.avro({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}]})
    values = [avro.serialize({"a": 1, "b": "x"}), None, avro.serialize({"a": 2, "b": None}), b"\x02\x00 and more"]
    batch = pa.record_batch({"offset": [5, 6, 7, 8], "value": pa.array(values, pa.binary())})
    made = typed_values(avro, [])
    assert made.fields == [pa.field("a", pa.int64()), pa.field("b", pa.string())]
    assert [array.to_pylist() for array in made.columns(batch.slice(0, 3))] == [[1, None, 2], ["x", None, None]]
    with pytest.raises(SerializationError, match=r"the value at offset 8 does not fit the schema: .*9 of 11 bytes are left over"):
        made.columns(batch)
