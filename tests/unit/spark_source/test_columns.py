import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

import logdb
from logdb.codec.times import EARLIEST_MS, LATEST_MS
from logdb.errors import InvalidConfig
from logdb_spark_source.columns import NAMES, Converter, chosen, log_columns, of_schema, spark_schema


def test_the_schema_is_that_of_sparks_kafka_source():
    assert spark_schema(NAMES).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in spark_schema(NAMES))
    assert (chosen(None, headers=True), chosen(None, headers=False)) == (NAMES, NAMES[:-1])


def test_arrows_schema_is_the_one_that_spark_demands():
    assert Converter(NAMES).schema.equals(to_arrow_schema(spark_schema(NAMES), timezone="UTC"))
    assert Converter(("value", "offset")).schema.equals(to_arrow_schema(spark_schema(("value", "offset")), timezone="UTC"))


@pytest.mark.parametrize("names", [("value", "offset"), ("headers",), NAMES])
def test_a_schema_of_ours_is_a_list_of_columns(names):
    assert of_schema(spark_schema(names)) == names


@pytest.mark.parametrize(
    "field",
    [
        StructField("offset", IntegerType()),
        StructField("nope", BinaryType()),
        StructField("value", StringType()),
        StructField("offset", LongType(), nullable=False),
    ],
    ids=repr,
)
def test_another_schema_is_refused(field):
    with pytest.raises(InvalidConfig, match=r"schema=.*offset bigint"):
        of_schema(StructType([StructField("value", BinaryType()), field]))


@pytest.mark.parametrize("at_ms", [-(2**63), -62_135_596_800_001, -1, 253_402_300_800_000, 2**63 - 1])
def test_a_time_that_engines_cannot_hold_is_the_nearest_that_they_can(tmp_path, at_ms):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"message.timestamp.after.max.ms": 2**63 - 1})
        db.log("t").append(b"v", timestamp_ms=at_ms)
        (batch,) = Converter(NAMES).batches(db.log("t").read_arrow(columns=log_columns(NAMES)), "t", 0)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1000 * max(EARLIEST_MS, min(LATEST_MS, at_ms))]


def test_rows_come_out_as_they_went_in(tmp_path):
    now = 1_700_000_000_123
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        log.append(b"v", b"k", headers=[("a", b"1"), ("b", None)], timestamp_ms=now)
        log.append(None, timestamp_ms=now + 1)
        log.append(b"", b"", headers=[("c", b"")], timestamp_ms=now + 2)
        (batch,) = Converter(NAMES).batches(log.read_arrow(columns=log_columns(NAMES)), "t", 3)
    batch.validate(full=True)
    common = {"topic": "t", "partition": 3, "timestampType": 0}
    rows = batch.to_pylist()
    times = [row.pop("timestamp").timestamp() for row in rows]
    assert [round(time * 1000) for time in times] == [now, now + 1, now + 2]
    assert rows == [
        {"key": b"k", "value": b"v", "offset": 0, "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]} | common,
        {"key": None, "value": None, "offset": 1, "headers": None} | common,
        {"key": b"", "value": b"", "offset": 2, "headers": [{"key": "c", "value": b""}]} | common,
    ]


def test_batches_of_any_size_have_their_constants():
    converter = Converter(("topic", "partition"))
    sizes = [3, 10, 1, 12]
    batches = [pa.record_batch({"offset": range(size)}) for size in sizes]
    for partition, topic in [(0, "t"), (1, "ü")]:
        for size, batch in zip(sizes, batches, strict=True):
            (converted,) = converter.batches([batch], topic, partition)
            assert converted.to_pylist() == [{"topic": topic, "partition": partition}] * size


def test_a_compressed_log_gives_batches_as_large(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"compression.type": "zstd"})
        for _ in range(10):
            db.log("t").append_many([b"x" * 100] * 1000)
        (batch,) = Converter(NAMES).batches(db.log("t").read_arrow(columns=log_columns(NAMES)), "t", 0)
    assert batch.num_rows == 10_000
    batch.validate(full=True)


def test_something_is_read_even_where_only_constants_are_wanted():
    assert log_columns(("topic", "partition")) == ["offset"]
    assert log_columns(("timestampType", "value", "topic")) == ["timestamp_type", "value"]
