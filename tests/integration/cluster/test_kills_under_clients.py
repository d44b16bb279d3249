"""Clients of three nodes, ours and Kafka's, while leaders and coordinators are killed."""

import base64
import contextlib
import itertools
import threading
import time

import pytest

import logdb
from logdb.coordinator.records import partition_of
from logdb.errors import UnknownTopic
from logdb.model import INTERNAL_TOPICS, PartitionInfo, TopicPartition
from support.cluster_process import ClusterProcess, cluster_process, eventually
from support.serving import Served

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # three processes start, and are killed
BINARY = "application/vnd.kafka.binary.v2+json"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("clients"), kafka=True) as cluster:
        yield cluster


@pytest.fixture
def db(cluster):
    with logdb.open(cluster.urls) as db:
        yield db


def configured(cluster: ClusterProcess, **config: object) -> dict[str, object]:
    """Of librdkafka; it says nothing of brokers that are away."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    return {"bootstrap.servers": ",".join(cluster.kafka), "log_level": 0, **named}


def coordinator(db: logdb.Database, internal: str, name: str) -> int:
    """The node that coordinates a name.  The node that is asked learns of a new internal topic a moment later than the one that made it."""
    partitions: list[PartitionInfo] = []

    def known() -> bool:
        with contextlib.suppress(UnknownTopic):
            partitions[:] = db.describe_topic(internal).partitions
        return bool(partitions)

    eventually(known)
    return partitions[partition_of(name, len(partitions))].leader


def restart(cluster: ClusterProcess, db: logdb.Database, number: int) -> None:
    """Let a killed node come back, to all in-sync sets."""
    cluster.start(number)
    names = [info.name for info in db.topics(internal=True)]
    eventually(lambda: all(set(one.in_sync) == set(one.replicas) for name in names for one in db.describe_topic(name).partitions), 30)


def test_librdkafka_loses_nothing_while_a_leader_is_killed(cluster, db) -> None:
    """A producer and a group; the killed node leads a partition, and coordinates the group."""
    administrator = admin.AdminClient(configured(cluster))
    administrator.create_topics([admin.NewTopic("kafka", 3, 3)])["kafka"].result(20)
    acknowledged, read, stop, done = {}, {}, threading.Event(), threading.Event()
    failures: list[str] = []

    def delivered(error, message) -> None:
        if error is not None:
            failures.append(str(error))
        acknowledged[message.partition(), message.offset()] = message.value()

    def produce() -> None:
        producer = confluent_kafka.Producer(configured(cluster, enable_idempotence=True, linger_ms=1))
        for number in itertools.count():
            if stop.is_set():
                break
            producer.produce("kafka", b"%d" % number, on_delivery=delivered)
            producer.poll(0.001)
        producer.flush(30)

    def consume() -> None:
        consumer = confluent_kafka.Consumer(configured(cluster, group_id="kafka", auto_offset_reset="earliest"))
        consumer.subscribe(["kafka"])
        while not done.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                read[message.partition(), message.offset()] = message.value()
        consumer.close()

    threads = [threading.Thread(target=call, daemon=True) for call in (produce, consume)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(read) > 100)
    victim = coordinator(db, INTERNAL_TOPICS[0], "kafka")
    cluster.kill(victim)
    acknowledged_count, read_count = len(acknowledged), len(read)
    eventually(lambda: len(acknowledged) > acknowledged_count + 300 and len(read) > read_count + 300, 60)
    stop.set()
    threads[0].join()
    eventually(lambda: len(read) >= len(acknowledged))
    done.set()
    threads[1].join()
    assert failures == []
    assert read == acknowledged
    assert len(set(read.values())) == len(read)
    restart(cluster, db, victim)


@pytest.mark.parametrize("client", ["librdkafka", "logdb"])
def test_a_transaction_survives_its_coordinator(cluster, db, client) -> None:
    """The killed node also leads a partition of the transaction."""
    topic = f"of-{client}"
    db.create_topic(topic, partitions=3)
    if client == "logdb":
        producer = db.producer(transactional_id=topic)
        send, flush = lambda value, partition: producer.send(topic, value, partition=partition), producer.flush
    else:
        producer = confluent_kafka.Producer(configured(cluster, transactional_id=topic))
        producer.init_transactions(30)
        send, flush = lambda value, partition: producer.produce(topic, value, partition=partition), producer.flush
    producer.begin_transaction()
    for partition in range(3):
        send(b"a", partition)
    flush()
    victim = coordinator(db, INTERNAL_TOPICS[1], topic)
    cluster.kill(victim)
    for partition in range(3):
        send(b"b", partition)
    producer.commit_transaction()
    producer.begin_transaction()
    send(b"c", 0)
    flush()
    producer.abort_transaction()
    for partition in range(3):
        log = db.log(topic, partition)
        assert [record.value for record in log.read(0, isolation_level="read_committed")] == [b"a", b"b"]
        eventually(lambda log=log: not log.open_transactions())
    if client == "logdb":
        producer.close()
    restart(cluster, db, victim)


@pytest.mark.parametrize("client", ["librdkafka", "logdb"])
@pytest.mark.parametrize("before", [0, 1], ids=["new", "used"])
def test_a_producer_between_transactions_goes_on_at_the_next_coordinator(cluster, db, client, before) -> None:
    """As in Kafka: nothing of a transaction that has begun is lost with a coordinator, so it is not fenced."""
    topic = f"idle-{client}-{before}"
    db.create_topic(topic, partitions=1)
    if client == "logdb":
        producer = db.producer(transactional_id=topic)
        send = producer.send
    else:
        producer = confluent_kafka.Producer(configured(cluster, transactional_id=topic))
        producer.init_transactions(30)
        send = producer.produce

    def transact(value: bytes) -> None:
        producer.begin_transaction()
        send(topic, value)
        producer.commit_transaction()

    for number in range(before):
        transact(b"%d" % number)
    victim = coordinator(db, INTERNAL_TOPICS[1], topic)
    cluster.kill(victim)
    transact(b"after")
    eventually(lambda: db.log(topic, 0).read(0, isolation_level="read_committed"))
    found = [bytes(record.value) for record in db.log(topic, 0).read(0, isolation_level="read_committed")]
    assert found == [b"%d" % number for number in range(before)] + [b"after"]
    if client == "logdb":
        producer.close()
    restart(cluster, db, victim)


def test_a_group_goes_on_with_the_next_coordinator(cluster, db) -> None:
    db.create_topic("grouped", partitions=3)
    with db.consumer("grouped", group_id="ours", auto_offset_reset="earliest") as consumer:

        def values(count: int) -> list[bytes]:
            found: list[bytes] = []
            end = time.monotonic() + 30
            while len(found) < count and time.monotonic() < end:
                found += [record.value for records in consumer.poll(timeout_ms=500).values() for record in records]
            return sorted(found)

        for partition in range(3):
            db.log("grouped", partition).append(b"%d" % partition)
        assert values(3) == [b"0", b"1", b"2"]
        consumer.commit()
        victim = coordinator(db, INTERNAL_TOPICS[0], "ours")
        cluster.kill(victim)
        for partition in range(3):
            db.log("grouped", partition).append(b"%d" % (partition + 3))
        assert values(3) == [b"3", b"4", b"5"]
        consumer.commit()
        assert [consumer.committed(TopicPartition("grouped", partition)).offset for partition in range(3)] == [2, 2, 2]
    restart(cluster, db, victim)


def test_any_node_answers_http(cluster, db) -> None:
    db.create_topic("curl", partitions=3)
    eventually(lambda: all(Served(None, url, None).call("/topics/curl")[0] == 200 for url in cluster.urls), 10)  # each has heard of it
    for offset, url in enumerate(cluster.urls):
        rest = Served(None, url, None)
        many = {"records": [{"value": base64.b64encode(b"%d" % offset).decode(), "partition": partition} for partition in range(3)]}
        status, made = rest.call("/topics/curl", many, content_type=BINARY)
        assert (status, [one["offset"] for one in made["offsets"]]) == (200, [offset] * 3)
        for partition in range(3):
            status, found = rest.call(f"/topics/curl/partitions/{partition}/records?offset=0", headers={"Accept": BINARY})
            assert (status, len(found)) == (200, offset + 1)
