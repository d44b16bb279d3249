import datetime
import io
import json
from decimal import Decimal

import fastavro
import polars
import pyarrow
import pytest
from pyarrow import parquet

from logdb_connect.connectors.objects.formats import FORMATS, format_of
from logdb_connect.connectors.objects.settings import FORMAT
from logdb_connect.data import BYTES, DATE, DECIMAL, OPTIONAL_STRING, STRING, TIME, TIMESTAMP, Schema, struct
from logdb_connect.errors import ConfigError, DataError

INT64 = Schema(type="int64")
ROW = struct(
    "shop.Row",
    i8=Schema(type="int8"),
    i64=INT64,
    f=Schema(type="float64"),
    b=Schema(type="boolean"),
    s=STRING,
    o=OPTIONAL_STRING,
    raw=BYTES,
    price=Schema(type="bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),)),
    day=Schema(type="int32", name=DATE, version=1),
    clock=Schema(type="int32", name=TIME, version=1),
    at=Schema(type="int64", name=TIMESTAMP, version=1, optional=True),
    tags=Schema(type="array", values=STRING),
    counts=Schema(type="map", keys=STRING, values=INT64),
    inner=struct(x=INT64),
)
VALUE = {
    "i8": -5,
    "i64": 1 << 60,
    "f": 1.5,
    "b": True,
    "s": "\xe9\n",
    "o": None,
    "raw": b"\x00\xff",
    "price": Decimal("12.34"),
    "day": datetime.date(2026, 11, 28),
    "clock": datetime.time(1, 2, 3, 4000),
    "at": datetime.datetime(2026, 11, 28, 1, 2, 3, 4000, tzinfo=datetime.UTC),
    "tags": ["a", "b"],
    "counts": {"k": 7},
    "inner": {"x": 1},
}
OTHER = VALUE | {"o": "there", "at": None, "tags": [], "counts": {}}


def made(name, **changes):
    given = {"format.class": name} | {key.replace("_", "."): value for key, value in changes.items()}
    return format_of(FORMAT.parse(given))


def written(format_, schema, *parts, name="n"):
    writer = format_.writer(schema)
    for values in parts:
        writer.add("t", values)
    return writer.finish(name)


@pytest.mark.parametrize("name", ["AvroFormat", "ParquetFormat"])
def test_values_of_a_schema_come_back_as_they_were(name):
    format_ = made(name)
    data = written(format_, ROW, [VALUE], [OTHER])
    assert data == written(format_, ROW, [VALUE], [OTHER])
    [(schema, values)] = format_.read(data)
    assert values == [VALUE, OTHER]
    if name == "AvroFormat":
        assert schema == ROW
    else:  # has no names, no order of maps
        assert schema.field("price") == ROW.field("price")
        assert schema.field("counts") == ROW.field("counts")


def test_others_read_avro():
    data = written(made("AvroFormat", avro_codec="deflate"), ROW, [VALUE])
    reader = fastavro.reader(io.BytesIO(data))
    assert reader.writer_schema["name"] == "shop.Row"
    assert reader.metadata["avro.codec"] == "deflate"
    assert next(reader)["price"] == Decimal("12.34")


@pytest.mark.parametrize(("codec", "extension"), [("snappy", ".snappy.parquet"), ("none", ".parquet"), ("zstd", ".zstd.parquet")])
def test_others_read_parquet(codec, extension):
    format_ = made("io.confluent.connect.s3.format.parquet.ParquetFormat", parquet_codec=codec)
    assert format_.extension == extension
    data = written(format_, ROW, [VALUE] * 3, [OTHER])
    frame = polars.read_parquet(io.BytesIO(data))
    assert frame["i64"].to_list() == [1 << 60] * 4
    assert frame["price"][0] == Decimal("12.34")
    assert parquet.ParquetFile(pyarrow.BufferReader(data)).schema_arrow.field("s").nullable is False


def test_parquet_infers_a_schema():
    format_ = made("ParquetFormat")
    data = written(format_, None, [{"a": 1}], [{"a": 2, "b": "x"}, {"a": None}])
    [(schema, values)] = format_.read(data)
    assert values == [{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": None, "b": None}]
    assert schema.field("a").schema == INT64.replace(optional=True)


def test_json_lines():
    format_ = made("JsonFormat")
    data = written(format_, None, [{"f1": "value1"}, {"f1": "\xe9", "n": None}], ["text", 5, None])
    assert data == '{"f1":"value1"}\n{"f1":"\xe9","n":null}\n"text"\n5\nnull\n'.encode()
    assert list(format_.read(data)) == [(None, [{"f1": "value1"}, {"f1": "\xe9", "n": None}, "text", 5, None])]
    assert json.loads(written(format_, ROW, [VALUE]))["price"] == "BNI="
    assert json.loads(written(made("JsonFormat", json_decimal_format="NUMERIC"), ROW, [VALUE]))["price"] == 12.34


def test_gzip():
    format_ = made("JsonFormat", s3_compression_type="gzip")
    assert format_.extension == ".json.gz"
    data = written(format_, None, [{"a": 1}] * 100)
    assert len(data) < 100
    assert data == written(format_, None, [{"a": 1}] * 100)
    assert list(format_.read(data)) == [(None, [{"a": 1}] * 100)]


def test_raw_bytes():
    format_ = made("ByteArrayFormat", format_bytearray_extension=".log")
    assert format_.extension == ".log"
    data = written(format_, BYTES, [b"a", b""], [b"\xff"])
    assert data == b"a\n\n\xff\n"
    assert list(format_.read(data)) == [(BYTES, [b"a", b"", b"\xff"])]
    bare = made("ByteArrayFormat", format_bytearray_separator="")
    assert written(bare, BYTES, [b"a", b"b"]) == b"ab"


@pytest.mark.parametrize(
    ("name", "schema", "value"),
    [
        ("AvroFormat", None, {"a": 1}),
        ("AvroFormat", struct(a=INT64), {"a": "x"}),
        ("AvroFormat", struct(**{"no name": INT64}), {"no name": 1}),
        ("AvroFormat", Schema(type="map", keys=INT64, values=INT64), {1: 1}),
        ("ParquetFormat", None, "text"),
        ("ParquetFormat", STRING, "text"),
        ("ParquetFormat", struct(a=INT64), {"a": "x"}),
        ("ParquetFormat", struct(a=INT64), {"a": None}),
        ("ByteArrayFormat", STRING, "text"),
        ("JsonFormat", struct(a=INT64), {"a": "x"}),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_the_rest(name, schema, value):
    format_ = made(name)
    with pytest.raises(DataError):
        format_.writer(schema).add("t", [value])
    if schema is not None and schema.type == "struct" and schema.field("a"):
        writer = format_.writer(schema)
        with pytest.raises(DataError):
            writer.add("t", [{"a": 1}, value])
        writer.add("t", [{"a": 2}])
        [(_, values)] = format_.read(writer.finish("n"))
        assert values == [{"a": 2}]


@pytest.mark.parametrize("name", ["AvroFormat", "ParquetFormat", "JsonFormat"])
def test_bytes_of_others_are_an_error(name):
    for data in (b"\x00\x01garbage{", b"PAR1", b"Obj\x01", b"\x1f\x8b\x08broken"):
        with pytest.raises(DataError):
            list(made(name).read(data))


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("is_array", [True, False])
def test_avro_rows_of_no_bytes_take_little(codec, is_array):
    """The number of rows in a block is what the file says."""
    empty = {"type": "record", "name": "E", "fields": []}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": empty}}]} if is_array else empty

    def content(items):
        file = io.BytesIO()
        fastavro.writer(file, schema, [{"a": [{}] * items}] if is_array else [{}] * items, codec=codec, sync_marker=b"m" * 16)
        return file.getvalue()

    [(_, rows)] = made("AvroFormat").read(content(70))
    assert rows == ([{"a": [{}] * 70}] if is_array else [{}] * 70)
    large = content(1_000_000)
    assert len(large) < 500
    with pytest.raises(DataError, match="items that take no bytes"):
        list(made("AvroFormat").read(large))


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        made("OrcFormat")
    assert all(name in str(caught.value) for name in FORMATS)
