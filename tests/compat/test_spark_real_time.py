"""Spark's real-time mode, by Spark's Kafka source on our Kafka listener."""

import pytest

import logdb
from benches.peers.kafka.jars import SPARK_SOURCE
from benches.peers.spark import environment

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]

COUNT = 20


def test_records_come_out_while_their_batch_runs(tmp_path, record_property):
    for reason in (SPARK_SOURCE.missing(), environment.missing()):
        if reason is not None:
            pytest.skip(reason)
    jars = ",".join(map(str, SPARK_SOURCE.directory.iterdir()))
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0", kafka="127.0.0.1:0", drain_ms=0) as server:
        for topic in ("orders", "copied"):
            db.create_topic(topic)
        url, kafka = server.addresses
        answer = environment.run("tests.compat.spark_real_time", {"jars": jars, "url": url, "kafka": kafka, "count": COUNT})
        copied = [(record.key, record.value) for record in db.log("copied").read(0)]
        assert copied == [(record.key, record.value) for record in db.log("orders").read(0)]
    assert answer["batches"] == 0  # a batch takes five minutes
    assert len(answer["latencies_ms"]) == COUNT
    record_property("told", f"Spark's real-time mode: a record takes {sorted(answer['latencies_ms'])[COUNT // 2]:.0f} ms")
