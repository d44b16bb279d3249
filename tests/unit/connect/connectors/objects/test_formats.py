import datetime
import gzip
import io
import json
import subprocess
import sys
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


@pytest.mark.parametrize(("kind", "number"), [(pyarrow.timestamp("ms", "UTC"), -(2**63)), (pyarrow.timestamp("us"), 2**62)])
def test_parquet_with_times_that_python_lacks(kind, number):
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"at": pyarrow.array([number]).cast(kind)}), file)
    with pytest.raises(DataError, match="the column 'at' has a time that is not between the years 1 and 9999: "):
        list(made("ParquetFormat").read(file.getvalue()))


def test_parquet_with_text_that_is_not_utf_8():
    text = pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff")])
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"n": [1], "s": text}), file)
    with pytest.raises(DataError, match=r"^the column 's' has a value that Python cannot hold: 'utf-8' codec can't decode byte 0xff"):
        list(made("ParquetFormat").read(file.getvalue()))


def test_parquet_with_an_unknown_time_zone():
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"at": pyarrow.array([0]).cast(pyarrow.timestamp("ms", "Nowhere/Zone"))}), file)
    with pytest.raises(DataError, match=r"the column 'at' has a time zone that Python does not know: .*Nowhere/Zone"):
        list(made("ParquetFormat").read(file.getvalue()))


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
    with pytest.raises(DataError, match="records and items that take no bytes"):
        list(made("AvroFormat").read(large))


def container(schema, *blocks, codec=b"null"):
    """An Avro container file: each block is its number of rows, and its bytes."""

    def number(value):
        out, value = b"", value << 1
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def text(data):
        return number(len(data)) + data

    given = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    head = b"Obj\x01" + number(2) + text(b"avro.schema") + text(given) + text(b"avro.codec") + text(codec) + number(0) + b"m" * 16
    return head + b"".join(number(rows) + text(data) + b"m" * 16 for rows, data in blocks)


def avro_record(name, *types):
    return {"type": "record", "name": name, "fields": [{"name": f"f{place}", "type": one} for place, one in enumerate(types)]}


def chain(levels):
    """Each record contains the one before by its name; the text is flat."""
    records = [avro_record("R0", "boolean"), *(avro_record(f"R{each}", f"R{each - 1}") for each in range(1, levels))]
    return avro_record("Root", ["null", avro_record("D", *records)], f"R{levels - 1}")


READ = """
import sys, threading
from logdb_connect.connectors.objects.formats import format_of
from logdb_connect.connectors.objects.settings import FORMAT
from logdb_connect.errors import DataError

def read():
    try:
        list(format_of(FORMAT.parse({"format.class": "AvroFormat"})).read(sys.stdin.buffer.read()))
    except DataError as error:
        print(error)

thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


def test_avro_that_would_end_the_process():
    """One row of two bytes, 10,000 records deep."""
    ended = subprocess.run([sys.executable, "-c", READ], input=container(chain(10_000), (1, b"\0\1")), capture_output=True, check=False)
    assert ended.returncode == 0
    assert b"levels" in ended.stdout
    [(_, rows)] = made("AvroFormat").read(container(chain(3), (1, b"\0\1")))
    assert rows == [{"f0": None, "f1": {"f0": {"f0": {"f0": True}}}}]


def test_avro_rows_that_would_take_all_memory():
    schema = avro_record("R0")
    for level in range(1, 9):
        schema = avro_record(f"R{level}", schema, f"R{level - 1}")
    with pytest.raises(DataError, match="records and items that take no bytes"):
        list(made("AvroFormat").read(container(avro_record("Row", "boolean", schema), (1_000, bytes(1_000)))))


def test_avro_blocks_share_what_may_take_no_bytes():
    data = container(avro_record("E"), *[(60_000, b"")] * 2)
    with pytest.raises(DataError, match="records and items that take no bytes"):
        list(made("AvroFormat").read(data))


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "snappy", "lz4"])
def test_a_damaged_block_of_avro(codec):
    file = io.BytesIO()
    fastavro.writer(file, avro_record("R", "string"), [{"f0": "abc" * 100}], codec=codec, sync_marker=b"m" * 16)
    data = file.getvalue()
    begin = data.index(b"m" * 16) + 16
    [(_, rows)] = made("AvroFormat").read(data)
    assert rows == [{"f0": "abc" * 100}]
    for place in range(begin, len(data)):
        damaged = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        try:
            list(made("AvroFormat").read(damaged))
        except DataError:
            continue
    with pytest.raises(DataError, match="the content is no Avro"):
        list(made("AvroFormat").read(data[: begin + 3] + b"\xfe" * (len(data) - begin - 19) + b"m" * 16))


@pytest.mark.parametrize(
    "schema",
    [
        b"[" * 100_000,
        b'{"type":"record","name":"R","fields":5}',
        b'{"type":"record","name":"R","fields":["x"]}',
        b'{"type":"record","name":"R","fields":[{"name":"a","type":"R"}]}',
        b'{"type":"nothing"}',
        b"5",
        b"{",
    ],
)
def test_a_header_of_avro_that_is_none(schema):
    with pytest.raises(DataError):
        list(made("AvroFormat").read(container(schema, (1, b"\0"))))


@pytest.mark.parametrize("name", ["JsonFormat", "ByteArrayFormat"])
def test_a_damaged_gzip(name):
    data = gzip.compress(b"[1, 2, 3]\n" * 100, mtime=0)
    with pytest.raises(DataError, match="no gzip"):
        list(made(name).read(data[:12] + b"\xff" * 8 + data[20:]))


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        made("OrcFormat")
    assert all(name in str(caught.value) for name in FORMATS)
