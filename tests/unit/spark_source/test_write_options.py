import os
import tempfile

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

import logdb
from logdb.errors import InvalidConfig, NotADatabase
from logdb_spark_source.write_options import WriteOptions, check_schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**kinds):
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def test_defaults():
    options = WriteOptions.of({"PATH": "/data/db", "Topic": "t"})
    assert (options.place.path, options.topic, options.staging) == ("/data/db", "t", "/data/db.staging")
    assert (options.lock_timeout_ms, options.fail_on_data_loss, options.write_id, options.batch_id) == (10_000, True, None, None)


def test_where_rows_for_a_server_are_staged():
    assert WriteOptions.of({"url": "http://a:1,http://b:2"}).staging == f"{tempfile.gettempdir()}/logdb-spark-{os.getuid()}"
    assert WriteOptions.of({"url": "http://a:1", "stagingPath": "file:///shared/x"}).staging == "/shared/x"


def test_what_spark_hands_on_is_let_pass():
    assert WriteOptions.of({"path": "/db", "checkpointLocation": "/c", "kafka.acks": "all"}) == WriteOptions.of({"path": "/db"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "path=None: give exactly one"),
        ({"path": "/a", "url": "http://b"}, "path and url"),
        ({"path": "/a", "tpoic": "t"}, "tpoic='t': did you mean topic"),
        ({"path": "/a", "subscribe": "t"}, "subscribe='t': .*options are path, url, topic, stagingPath"),
        ({"path": "/a", "topic": "__consumer_offsets"}, "topic='__consumer_offsets': logdb alone"),
        ({"path": "/a", "stagingPath": "hdfs://x/y"}, "stagingPath='hdfs://x/y': must be a directory"),
        ({"path": "/a", "asyncProgressTrackingEnabled": "true"}, "there is no such option"),
        ({"path": "/a", "lockTimeout": "soon"}, "lockTimeout='soon': must be a time such as"),
        ({"path": "/a", "failOnDataLoss": "perhaps"}, "failOnDataLoss='perhaps': must be true or false"),
        ({"path": "/a", "writeId": "x"}, "writeId='x': give it together with batchId"),
        ({"path": "/a", "batchId": "1"}, "together with batchId"),
        ({"path": "/a", "writeId": "", "batchId": "1"}, "together with batchId"),
        ({"path": "/a", "writeId": "x", "batchId": "-1"}, "batchId='-1': must be a number, 0 or more"),
        ({"path": "/a", "token": "secret"}, "LOGDB_TOKEN"),
        ({"path": "/a", "kafka.bootstrap.servers": "b:9092"}, "kafka.bootstrap.servers='b:9092'"),
    ],
)
def test_options_that_cannot_be(given, message):
    with pytest.raises(InvalidConfig, match=message) as caught:
        WriteOptions.of(given)
    assert "secret" not in str(caught.value)


def test_the_topics_that_there_are(tmp_path):
    with logdb.open(tmp_path / "db") as database:
        database.create_topic("a", partitions=3)
        database.create_topic("b", config={"cleanup.policy": "compact"})
    given = {"path": str(tmp_path / "db")}
    a, b = WriteOptions.of(given).targets().values()
    assert (a.name, a.partition_count, a.config.compacted) == ("a", 3, False)
    assert (b.name, b.partition_count, b.config.compacted) == ("b", 1, True)
    assert list(WriteOptions.of({**given, "topic": "b"}).targets()) == ["b"]
    with pytest.raises(InvalidConfig, match=r"topic='c': there is no such topic at .*/db; its topics: a, b"):
        WriteOptions.of({**given, "topic": "c"}).targets()
    with pytest.raises(NotADatabase):
        WriteOptions.of({"path": str(tmp_path / "nothing"), "topic": "c"}).targets()
    assert not (tmp_path / "nothing").exists()


def test_columns_that_are_taken():
    options = WriteOptions.of({"path": "/db"})
    check_schema(schema(value=StringType(), topic=StringType()), options)
    check_schema(schema(value=BinaryType(), key=StringType(), topic=StringType(), partition=IntegerType(), headers=HEADERS), options)
    check_schema(schema(value=BinaryType(), offset=LongType(), timestamp=TimestampType()), WriteOptions.of({"path": "/db", "topic": "t"}))


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"key": StringType()}, r"schema='struct<key:string>': a column value of type string or binary is needed"),
        ({"value": LongType()}, r"schema='value bigint': a column value is of type string or binary"),
        ({"value": StringType(), "key": LongType()}, "schema='key bigint': a column key is of type string or binary"),
        ({"value": StringType(), "topic": LongType()}, "schema='topic bigint': a column topic is of type string"),
        ({"value": StringType(), "partition": LongType()}, "schema='partition bigint': a column partition is of type int"),
        ({"value": StringType(), "headers": StringType()}, "a column headers is of type array<struct<key:string,value:binary>>"),
        ({"value": StringType(), "headers": ArrayType(StringType())}, "a column headers is of type"),
    ],
)
def test_columns_that_cannot_be(kinds, message):
    with pytest.raises(InvalidConfig, match=message):
        check_schema(schema(**kinds), WriteOptions.of({"path": "/db", "topic": "t"}))


def test_a_topic_is_named_by_the_option_or_by_a_column():
    with pytest.raises(InvalidConfig, match="topic=None: name a topic by this option, or one for each row in a column topic"):
        check_schema(schema(value=StringType()), WriteOptions.of({"path": "/db"}))
