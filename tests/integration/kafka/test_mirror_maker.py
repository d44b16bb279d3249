"""MirrorMaker between a real Kafka and logdb, in both directions at once, with the settings of Kafka's property file.

Skipped, with the reason, where Java or Maven are missing.
"""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benches.peers.kafka import broker as kafka
from benches.peers.kafka.jars import PLATFORM
from logdb import testing
from support.java import JavaProgram, java, running

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]
EPOCH_MS = 1_700_000_000_000
RECORDS = [
    *((b"k%d" % (n % 7), b"v%d" % n, [("n", b"%d" % n), ("n", None)], EPOCH_MS + n) for n in range(1_000)),
    (b"k0", None, [], EPOCH_MS + 2_000),  # a tombstone
    (None, b"no key", [], EPOCH_MS + 2_001),
]
CONFIG = {"retention.ms": "123456789", "max.message.bytes": "654321", "cleanup.policy": "delete"}
SETTINGS = """
clusters = kafka, logdb
{addresses}
kafka->logdb.enabled = true
kafka->logdb.topics = .*
logdb->kafka.enabled = true
logdb->kafka.topics = .*
replication.factor=-1
checkpoints.topic.replication.factor=-1
heartbeats.topic.replication.factor=-1
offset-syncs.topic.replication.factor=-1
offset.storage.replication.factor=-1
status.storage.replication.factor=-1
config.storage.replication.factor=-1
# what takes seconds or minutes otherwise
kafka.plugin.discovery = service_load
logdb.plugin.discovery = service_load
refresh.topics.interval.seconds = 1
sync.topic.configs.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
"""


class Mirror(NamedTuple):
    """MirrorMaker, and the addresses of what it mirrors."""

    program: JavaProgram
    addresses: Mapping[str, str]


def client(address, **others):
    return {"bootstrap.servers": address, "log_level": 0, **others}


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    for reason in (kafka.missing(), PLATFORM.missing()):
        if reason is not None:
            pytest.skip(reason)
    directory = tmp_path_factory.mktemp("mirror")
    with kafka.broker(directory / "kafka", heap=kafka.SMALL_HEAP) as other, testing.broker() as ours:
        addresses = {"kafka": other, "logdb": ours.bootstrap_servers}
        for name, address in addresses.items():
            admin = AdminClient(client(address))
            admin.create_topics([NewTopic(f"from-{name}", 2, -1, config=CONFIG)])[f"from-{name}"].result(60)
            fill(address, f"from-{name}")
            have_read(address, f"from-{name}", f"readers-of-{name}")
        file = directory / "mirror-maker.properties"
        file.write_text(SETTINGS.format(addresses="\n".join(f"{one}.bootstrap.servers = {at}" for one, at in addresses.items())))
        with running(java("org.apache.kafka.connect.mirror.MirrorMaker", file), directory / "log") as program:
            yield Mirror(program, addresses)


def fill(address, topic):
    producer = confluent_kafka.Producer(client(address))
    for key, value, headers, timestamp_ms in RECORDS:
        producer.produce(topic, value, key, partition=1, headers=headers, timestamp=timestamp_ms)
    assert producer.flush(60) == 0


def have_read(address, topic, group):
    """Commit what a group that has read all records commits."""
    with contextlib.closing(confluent_kafka.Consumer(client(address, **{"group.id": group}))) as consumer:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 1, len(RECORDS))], asynchronous=False)


def read(address, topic, count):
    """The first records of partition 1."""
    with contextlib.closing(confluent_kafka.Consumer(client(address, **{"group.id": "test"}))) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 1, 0)])
        found = []
        while len(found) < count and (more := consumer.consume(count, 10)):
            found += [(one.key(), one.value(), one.headers() or [], one.timestamp()[1]) for one in more if one.error() is None]
    return found


def await_topic(mirror, source, target):
    """The mirrored topic's name, once there is one."""
    name, admin = f"{source}.from-{source}", AdminClient(client(mirror.addresses[target]))
    mirror.program.until(lambda: name in admin.list_topics(timeout=30).topics)
    return name


DIRECTIONS = pytest.mark.parametrize(("source", "target"), [("kafka", "logdb"), ("logdb", "kafka")])


@DIRECTIONS
def test_a_topic_is_mirrored(mirror, source, target):
    topic = await_topic(mirror, source, target)
    assert read(mirror.addresses[target], topic, len(RECORDS)) == RECORDS
    fill(mirror.addresses[source], f"from-{source}")
    assert read(mirror.addresses[target], topic, 2 * len(RECORDS)) == 2 * RECORDS


@DIRECTIONS
def test_configs_are_mirrored(mirror, source, target):
    """Those that it was created with, and those that are changed and reset later."""
    here, there = (AdminClient(client(mirror.addresses[one])) for one in (source, target))
    theirs = ConfigResource(ResourceType.TOPIC, await_topic(mirror, source, target))

    def there_are(**wanted):
        found = there.describe_configs([theirs])[theirs].result(30)
        return all(found[name.replace("_", ".")].value == value for name, value in wanted.items())

    mirror.program.until(lambda: there_are(retention_ms="123456789", max_message_bytes="654321"))
    changes = [
        ConfigEntry("max.message.bytes", "700000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("segment.bytes", "20000000", incremental_operation=AlterConfigOpType.SET),
    ]
    ours = ConfigResource(ResourceType.TOPIC, f"from-{source}", incremental_configs=changes)
    here.incremental_alter_configs([ours])[ours].result(30)
    mirror.program.until(lambda: there_are(retention_ms="123456789", max_message_bytes="700000", segment_bytes="20000000"))


@DIRECTIONS
def test_offsets_of_a_group_are_mirrored(mirror, source, target):
    """To where its records lie in the target, or a little before."""
    partition = confluent_kafka.TopicPartition(await_topic(mirror, source, target), 1)
    consumer = confluent_kafka.Consumer(client(mirror.addresses[target], **{"group.id": f"readers-of-{source}"}))
    with contextlib.closing(consumer):
        offset = mirror.program.until(lambda: max(0, consumer.committed([partition], 30)[0].offset))
    assert offset <= len(RECORDS)


def test_its_own_topics(mirror):
    """Heartbeats and checkpoints of the other side are in each."""
    for source, target in (("kafka", "logdb"), ("logdb", "kafka")):
        admin = AdminClient(client(mirror.addresses[target]))
        wanted = {"heartbeats", f"{source}.heartbeats", f"{source}.checkpoints.internal"}
        mirror.program.until(lambda where=admin, names=wanted: names <= set(where.list_topics(timeout=30).topics))
