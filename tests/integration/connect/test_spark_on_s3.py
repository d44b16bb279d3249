"""A sink on Spark that writes Avro to an S3 server of others, and keeps its checkpoint there.

Skipped, with the reason, where Java or Maven are missing.
"""

import io
import json
import time

import fastavro
import pytest

import logdb
from benches.peers.kafka.jars import SPARK_WRITERS
from support.connect_workers import served, standalone
from support.moto_server import CREDENTIALS, s3
from support.spark import JAVA_OPTIONS
from support.waiting import until

__all__ = ["s3"]
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]
START_S = 300
ROW = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "text", "type": "string"}]}


@pytest.fixture(scope="module", autouse=True)
def jars():
    if (reason := SPARK_WRITERS.missing()) is not None:
        pytest.skip(reason)


def sink(url, bucket):
    return {
        "name": "avro",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "orders",
        "store.url": url,
        "s3.bucket.name": bucket,
        "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
        "avro.codec": "deflate",
        "flush.size": "300",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "logdb.runner": "spark",
        "spark.master": "local[2]",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.jars": ",".join(str(jar) for jar in sorted(SPARK_WRITERS.directory.iterdir())),
        "spark.sql.streaming.checkpointLocation": f"s3a://{bucket}/checkpoints",
        **CREDENTIALS,
    }


def ids(s3, bucket):
    """Of all records in Avro files."""
    files = [text for name, text in s3.objects(bucket).items() if name.startswith("topics/orders/batch=") and name.endswith(".avro")]
    return [row["id"] for text in files for row in fastavro.reader(io.BytesIO(text))]


def append(db, begin, end):
    rows = [{"schema": ROW, "payload": {"id": number, "text": f"t{number}"}} for number in range(begin, end)]
    db.log("orders", begin % 2).append_many([json.dumps(row).encode() for row in rows])


def test_a_worker_that_starts_again_continues_at_the_checkpoint(tmp_path, s3):
    bucket = s3.bucket("avro")
    with served(tmp_path / "db") as address, logdb.open(address) as db:
        db.create_topic("orders", partitions=2)
        for begin, end in ((0, 500), (500, 701)):
            append(db, begin, end)
            with standalone(address, tmp_path, sink(s3.url, bucket), task_shutdown_graceful_timeout_ms="20000") as rest:

                def committed(rest=rest):
                    time.sleep(0.2)  # the S3 server is in this process
                    if "FAILED" in rest.states("avro"):
                        raise AssertionError(rest.get("/connectors/avro/status")["tasks"][0]["trace"])
                    status, answer = rest.call("GET", "/connectors/avro/offsets")
                    return status == 200 and sum(one["offset"]["kafka_offset"] for one in answer["offsets"])

                until(lambda: committed() == end, "all records are stored", START_S)  # noqa: B023
            assert sorted(ids(s3, bucket)) == list(range(end))
    assert any(name.startswith("checkpoints/avro/commits/") for name in s3.objects(bucket))
