"""Kafka's clients from their packages produce and consume: codecs, keys, headers, tombstones, timestamps."""

import asyncio
import itertools
import subprocess
import warnings

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka.admin import AdminClient, NewTopic

import logdb.testing
from support.tools import needs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    import kafka

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = [
    (b"k", b"value", [("h", b"1"), ("h", b""), ("i", None)], 1_700_000_000_000),
    (None, b"no key", [], 1_700_000_000_001),
    (b"k", None, [], 1_700_000_000_002),  # a tombstone
    *((b"%d" % i, b"x" * 100, [], 1_700_000_000_003 + i) for i in range(200)),
]


@pytest.fixture(scope="module")
def broker():
    with logdb.testing.broker() as running:
        yield running


def stored(broker, topic):
    return [
        (record.key, record.value, [(name, value) for name, value in record.headers], record.timestamp_ms)
        for record in broker.database.log(topic).read(0)
    ]


# ---------------------------------------------------------------- confluent-kafka


def confluent_produced(broker, topic, **options):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **options})
    told = []
    for key, value, headers, timestamp in RECORDS:
        producer.produce(
            topic,
            value,
            key,
            headers=headers,
            timestamp=timestamp,
            on_delivery=lambda error, message: told.append((error, message.offset())),
        )
    assert producer.flush(20) == 0
    assert told == [(None, offset) for offset in range(len(RECORDS))]


def confluent_consumed(broker, topic, count, **options):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0, **options})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages = []
    while len(messages) < count:
        messages += consumer.consume(count, 10)
    consumer.close()
    return [(one.key(), one.value(), one.headers() or [], one.timestamp()[1]) for one in messages]


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka(broker, topic, codec):
    confluent_produced(broker, topic, **{"compression.type": codec, "enable.idempotence": codec == "lz4"})
    assert stored(broker, topic) == RECORDS
    assert confluent_consumed(broker, topic, len(RECORDS)) == RECORDS


def test_confluent_kafka_asks_for_offsets_and_topics(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "1000"})])[topic].result(10)
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 3
    assert broker.database.describe_topic(topic).config["retention.ms"] == 1000
    with pytest.raises(confluent_kafka.KafkaException, match="already exists"):
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(10)
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics
    confluent_produced(broker, topic)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), 10) == (0, len(RECORDS))
    found = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, 1_700_000_000_002)], 10)
    assert found[0].offset == 2
    consumer.close()


def test_an_idempotent_and_a_large_producer(broker, topic):
    """More batches under way than there are connections' requests, and batches of many 64 KiB."""
    options = {"enable.idempotence": True, "linger.ms": 20, "compression.type": "none"}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **options})
    for i in range(20_000):
        producer.produce(topic, b"%06d" % i + bytes(150))
    assert producer.flush(30) == 0
    assert [int(record.value[:6]) for record in broker.database.log(topic).read(0)] == list(range(20_000))
    values = confluent_consumed(broker, topic, 20_000)
    assert [int(value[:6]) for _, value, _, _ in values] == list(range(20_000))


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_a_mirror_refuses_a_producer_at_once(broker, topic, is_idempotent):
    """With an error that clients do not retry until their delivery timeout."""
    broker.database.create_topic(topic, config={"logdb.mirror.of": "another"})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "enable.idempotence": is_idempotent, "message.timeout.ms": 60_000}
    )
    told = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error.name()))
    producer.flush(20)
    assert told == ["POLICY_VIOLATION"]


# ---------------------------------------------------------------- kafka-python


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python(broker, topic, codec):
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=None if codec == "none" else codec)
    sent = [
        producer.send(topic, value, key, headers=[(name, value or b"") for name, value in headers], timestamp_ms=timestamp)
        for key, value, headers, timestamp in RECORDS
    ]
    assert [one.get(20).offset for one in sent] == list(range(len(RECORDS)))
    producer.close()
    expected = [(key, value, [(name, part or b"") for name, part in headers], timestamp) for key, value, headers, timestamp in RECORDS]
    assert stored(broker, topic) == expected
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    where = kafka.TopicPartition(topic, 0)
    consumer.assign([where])
    got = [(one.key, one.value, list(one.headers), one.timestamp) for one in itertools.islice(consumer, len(expected))]
    assert got == expected
    assert (consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]) == (0, len(RECORDS))
    assert consumer.offsets_for_times({where: 1_700_000_000_002})[where][:2] == (2, 1_700_000_000_002)
    consumer.close()


# ---------------------------------------------------------------- aiokafka


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka(broker, topic, codec):
    async def run():
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=codec == "zstd",
        ) as producer:
            sent = [
                await producer.send(topic, value, key, headers=[(name, part or b"") for name, part in headers], timestamp_ms=timestamp)
                for key, value, headers, timestamp in RECORDS
            ]
            offsets = [(await one).offset for one in sent]
        assert offsets == list(range(len(RECORDS)))
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([AioPartition(topic, 0)])
            got = [await asyncio.wait_for(consumer.getone(), 10) for _ in RECORDS]
        return [(one.key, one.value, list(one.headers), one.timestamp) for one in got]

    expected = [(key, value, [(name, part or b"") for name, part in headers], timestamp) for key, value, headers, timestamp in RECORDS]
    assert asyncio.run(run()) == expected
    assert stored(broker, topic) == expected


# ---------------------------------------------------------------- kcat


@pytest.mark.parametrize("codec", CODECS)
@needs("kcat")
def test_kcat(broker, topic, codec):
    broker.database.create_topic(topic)  # or kcat would warn that it was unknown

    def kcat(*flags, **options):
        command = ["kcat", "-b", broker.bootstrap_servers, "-t", topic, *flags]
        return subprocess.run(command, capture_output=True, timeout=30, check=True, **options).stdout

    kcat("-P", "-K:", "-z", codec, "-H", "h=1", input=b"".join(b"k%d:v%d\n" % (i, i) for i in range(100)))
    assert stored(broker, topic) == [
        (b"k%d" % i, b"v%d" % i, [("h", b"1")], timestamp) for i, (*_, timestamp) in enumerate(stored(broker, topic))
    ]
    assert kcat("-C", "-e", "-q", "-K:", "-f", "%k:%s:%h\n").splitlines() == [b"k%d:v%d:h=1" % (i, i) for i in range(100)]
    assert f'topic "{topic}" with 1 partitions'.encode() in kcat("-L")
