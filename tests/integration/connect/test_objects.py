"""Object stores: the S3 sink and source against an S3 server of others."""

import io

import fastavro
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.connectors.objects.source import ObjectStoreSourceConnector
from logdb_connect.connectors.objects.stores import open_store
from logdb_connect.data import STRING, struct
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.properties import read
from support.connect_tasks import Sink, Source, sink_record
from support.moto_server import CREDENTIALS, s3
from support.ports import free_port

__all__ = ["s3"]

QUICKSTART = """\
name=s3-sink
connector.class=io.confluent.connect.s3.S3SinkConnector
tasks.max=1
topics=s3_topic
s3.region=us-west-2
s3.bucket.name={bucket}
s3.part.size=5242880
flush.size=3
storage.class=io.confluent.connect.s3.storage.S3Storage
format.class=io.confluent.connect.s3.format.{format}
partitioner.class=io.confluent.connect.storage.partitioner.DefaultPartitioner
schema.compatibility=NONE
store.url={url}
aws.access.key.id=test
aws.secret.access.key=test
"""
"""Confluent's quickstart-s3.properties, with an endpoint and credentials."""
PART = TopicPartition("s3_topic", 0)
NAMES = ["topics/s3_topic/partition=0/s3_topic+0+0000000000", "topics/s3_topic/partition=0/s3_topic+0+0000000003"]
ROW = struct("myrecord", f1=STRING)


def quickstart(tmp_path, s3, bucket, format_class):
    path = tmp_path / "quickstart-s3.properties"
    path.write_text(QUICKSTART.format(bucket=bucket, url=s3.url, format=format_class))
    return read(str(path))


def delivered(properties, count, schema):
    one = Sink(ObjectStoreSinkConnector, properties, {})
    one.open(PART)
    one.put([sink_record(n, {"f1": f"value{n + 1}"}, topic="s3_topic", value_schema=schema) for n in range(count)])
    one.close()
    return one


def test_the_quick_start_of_the_s3_sink_writes_the_objects_that_its_manual_shows(s3, tmp_path):
    bucket = s3.bucket("quick-json")
    one = delivered(quickstart(tmp_path, s3, bucket, "json.JsonFormat"), 8, None)
    assert s3.objects(bucket) == {
        f"{NAMES[0]}.json": b'{"f1":"value1"}\n{"f1":"value2"}\n{"f1":"value3"}\n',
        f"{NAMES[1]}.json": b'{"f1":"value4"}\n{"f1":"value5"}\n{"f1":"value6"}\n',
    }
    assert one.store == {PART: OffsetAndMetadata(6)}
    assert s3.client.head_object(Bucket=bucket, Key=f"{NAMES[0]}.json")["ContentType"] == "application/json"


def test_the_quick_start_with_avro(s3, tmp_path):
    bucket = s3.bucket("quick-avro")
    delivered(quickstart(tmp_path, s3, bucket, "avro.AvroFormat"), 9, ROW)
    objects = s3.objects(bucket)
    assert list(objects) == [f"{NAMES[0]}.avro", f"{NAMES[1]}.avro", "topics/s3_topic/partition=0/s3_topic+0+0000000006.avro"]
    assert [each["f1"] for data in objects.values() for each in fastavro.reader(io.BytesIO(data))] == [f"value{n + 1}" for n in range(9)]


@pytest.mark.parametrize("format_class", ["json.JsonFormat", "parquet.ParquetFormat"])
def test_the_source_reads_what_the_sink_wrote(s3, tmp_path, format_class):
    bucket = s3.bucket(f"back-{format_class.partition('.')[0]}")
    properties = quickstart(tmp_path, s3, bucket, format_class)
    delivered(properties, 300, ROW)
    one = Source(ObjectStoreSourceConnector, properties | {"s3.poll.interval.ms": "0"})
    assert one.drain() == [{"f1": f"value{n + 1}"} for n in range(300)]


def test_a_listing_of_many_pages(s3):
    bucket = s3.bucket("pages")
    for n in range(1100):
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, f"topics/t/partition=0/t+0+{n:010}.bin", b"")
    config = ObjectStoreSinkConnector.config_def.parse({"s3.bucket.name": bucket, "store.url": s3.url, "flush.size": "1", **CREDENTIALS})
    assert len(set(open_store(config).names("topics"))) == 1100


def test_a_large_object_goes_in_parts(s3):
    bucket = s3.bucket("large")
    properties = {"s3.bucket.name": bucket, "store.url": s3.url, "flush.size": "4", "format.class": "ByteArrayFormat", **CREDENTIALS}
    one = Sink(ObjectStoreSinkConnector, properties | {"s3.part.size": "10485760"}, {})
    one.open(PART)
    one.put([sink_record(n, bytes([n]) * (5 << 20), topic="s3_topic") for n in range(4)])
    [(name, data)] = s3.objects(bucket).items()
    assert len(data) == (20 << 20) + 4
    assert s3.client.head_object(Bucket=bucket, Key=name)["ETag"].strip('"').endswith("-3")


def test_a_bucket_that_does_not_exist_fails_the_task_by_name(s3):
    wanted = r"write topics/s3_topic/partition=0/s3_topic\+0\+0000000000\.json to s3://nobody: it does not exist"
    with pytest.raises(ConnectError, match=wanted):
        delivered({"s3.bucket.name": "nobody", "store.url": s3.url, "flush.size": "3", **CREDENTIALS}, 3, None)


def test_a_server_that_is_away_is_tried_again():
    properties = {"s3.bucket.name": "b", "store.url": f"http://127.0.0.1:{free_port()}", "flush.size": "3", **CREDENTIALS}
    with pytest.raises(RetriableError, match="the task tries again"):
        delivered(properties | {"s3.part.retries": "0"}, 3, None)
