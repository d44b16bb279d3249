"""``/metrics``, as Prometheus' own client reads it."""

import base64
import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

import logdb
from logdb.requests.principals import Principal
from logdb.requests.users import Quota
from support.security import secure
from support.serving import served

NAMES = {
    "kafka_brokers",
    "kafka_broker_info",
    "kafka_topic_partitions",
    *(
        f"kafka_topic_partition_{name}"
        for name in (
            "current_offset",
            "oldest_offset",
            "in_sync_replica",
            "leader",
            "leader_is_preferred",
            "replicas",
            "under_replicated_partition",
            "under_min_isr",
        )
    ),
    *(f"kafka_consumergroup_{name}" for name in ("current_offset", "current_offset_sum", "lag", "lag_sum", "members")),
    *(f"kafka_server_brokertopicmetrics_{name}_total" for name in ("messagesin", "bytesin", "bytesout")),
    "kafka_log_log_size",
    *(f"logdb_{name}" for name in ("quorum_leader", "disk_free_bytes", "disk_size_bytes")),
    *(f"logdb_{name}_total" for name in ("requests", "calls", "authentication_failures", "authorization_failures", "throttled_seconds")),
    *(f"logdb_sync_seconds_{name}" for name in ("bucket", "sum", "count")),
}


def scrape(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=headers), timeout=60) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = list(text_string_to_metric_families(answer.read().decode()))
    return [sample for family in families for sample in family.samples]


def value(samples, name, **labels):
    (found,) = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
    return found


def test_names_labels_and_numbers(tmp_path):
    with served(tmp_path / "db") as s:
        s.database.create_topic("t", partitions=2)
        s.database.create_topic("untouched")
        with logdb.open(s.url) as remote:
            log = remote.log("t", 1)
            log.append_many([b"%d" % number for number in range(100)])
            remote.delete_records("t", 1, 10)
            with remote.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
                while sum(map(len, consumer.poll(timeout_ms=1000).values())) == 0:
                    pass
                consumer.commit({logdb.TopicPartition("t", 1): logdb.OffsetAndMetadata(60)})
                samples = scrape(s.url)
        assert {sample.name for sample in samples} == NAMES
        assert value(samples, "kafka_brokers") == 1
        assert value(samples, "kafka_broker_info", id="0", address=s.url.removeprefix("http://")) == 1
        assert value(samples, "kafka_topic_partitions", topic="t") == 2
        where = {"topic": "t", "partition": "1"}
        expected = {
            "current_offset": 100,
            "oldest_offset": 10,
            "in_sync_replica": 1,
            "leader": 0,
            "leader_is_preferred": 1,
            "replicas": 1,
            "under_replicated_partition": 0,
            "under_min_isr": 0,
        }
        assert {name: value(samples, f"kafka_topic_partition_{name}", **where) for name in expected} == expected
        assert value(samples, "kafka_topic_partition_current_offset", topic="t", partition="0") == 0
        assert value(samples, "logdb_quorum_leader") == 0
        assert 0 < value(samples, "logdb_disk_free_bytes") <= value(samples, "logdb_disk_size_bytes")
        buckets = [sample.value for sample in samples if sample.name == "logdb_sync_seconds_bucket"]
        assert buckets == sorted(buckets)
        assert buckets[-1] == value(samples, "logdb_sync_seconds_count") > 0
        group = {"consumergroup": "g", "topic": "t"}
        assert value(samples, "kafka_consumergroup_current_offset", **group, partition="1") == 60
        assert value(samples, "kafka_consumergroup_current_offset_sum", **group) == 60
        assert value(samples, "kafka_consumergroup_lag", **group, partition="1") == 40
        assert value(samples, "kafka_consumergroup_lag_sum", **group) == 40
        assert value(samples, "kafka_consumergroup_members", consumergroup="g") == 1
        counter = "kafka_server_brokertopicmetrics_{}_total"
        assert value(samples, counter.format("messagesin"), topic="t") == 100
        assert value(samples, counter.format("messagesin"), topic="untouched") == 0
        assert value(samples, counter.format("bytesin"), topic="t") == s.database.log("t", 1).size_bytes
        assert value(samples, counter.format("bytesout"), topic="t") > 0
        assert value(samples, "kafka_log_log_size", **where) == s.database.log("t", 1).size_bytes


def test_refusals_and_delays_are_counted(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    quotas = {Principal("User", "mallory"): Quota(produce_bytes=1_000)}
    secure(
        tmp_path / "db",
        "Allow mallory@* Write Topic t",
        users=dict.fromkeys(("root", "mallory"), "pw"),
        super_users=["root"],
        quotas=quotas,
    )
    with served(tmp_path / "db") as s:
        for user, password in (("root", "wrong"), ("mallory", "pw")):
            with pytest.raises(logdb.errors.LogdbError), logdb.open(s.url, user=user, password=password) as remote:
                remote.delete_topic("t")
        with logdb.open(s.url, user="mallory", password="pw") as remote:
            remote.log("t").append_many([bytes(1_500)])
        samples = scrape(s.url, Authorization=f"Basic {base64.b64encode(b'root:pw').decode()}")
        assert value(samples, "logdb_authentication_failures_total") == 1
        assert value(samples, "logdb_authorization_failures_total") == 1
        assert value(samples, "logdb_calls_total", call="produce") == 1
        assert value(samples, "logdb_throttled_seconds_total") > 0
        assert value(samples, "logdb_requests_total") >= 3


def test_names_that_have_to_be_escaped(tmp_path):
    with served(tmp_path / "db") as s:
        s.database.create_topic("t")
        group = 'back\\slash "quoted"\nnew line'
        with s.database.consumer(group_id=group) as consumer:
            consumer.assign([logdb.TopicPartition("t", 0)])
            consumer.commit({logdb.TopicPartition("t", 0): logdb.OffsetAndMetadata(0)})
        assert value(scrape(s.url), "kafka_consumergroup_lag", consumergroup=group, topic="t", partition="0") == 0


def test_a_thousand_partitions_are_looked_at_off_the_loop(tmp_path):
    with served(tmp_path / "db") as s:
        s.database.create_topic("t", partitions=1000)
        scraped = []
        thread = threading.Thread(target=lambda: scraped.append(scrape(s.url)))
        thread.start()
        answered = 0
        while thread.is_alive():
            assert s.call("/health/live")[0] == 200
            answered += 1
        (samples,) = scraped
        assert sum(sample.name == "kafka_topic_partition_current_offset" for sample in samples) == 1000
        assert answered >= 3, "others are answered meanwhile"
        assert not [where for where in s.database._store.open_logs if where.topic == "t"], "no log is opened for its numbers"
