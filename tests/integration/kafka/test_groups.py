"""Consumer groups of real clients on the Kafka door."""

import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from support.kafka_door import kafka_door, kafka_python


@pytest.fixture
def served(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        served.db.create_topic("t", partitions=4)
        for partition in range(4):
            served.db.log("t", partition).append_many([b"%d" % number for number in range(partition, 40, 4)])
        yield served


def confluent(served, **config):
    return Consumer(
        {
            "bootstrap.servers": served.address,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 50,
            **config,
        }
    )


def read(consumers, count, *, timeout_s=20):
    """Poll until so many records were read; by consumer."""
    found = [[] for _ in consumers]
    until = time.monotonic() + timeout_s
    while sum(map(len, found)) < count and time.monotonic() < until:
        for consumer, records in zip(consumers, found, strict=True):
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None
                records.append(message.value())
    return found


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_consumers_of_confluent_share_a_topic(served, strategy):
    consumers = [confluent(served, **{"partition.assignment.strategy": strategy}) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(["t"])
    seen = set()

    def poll_until(done):
        until = time.monotonic() + 30
        while not done() and time.monotonic() < until:
            seen.update(message.value() for consumer in consumers if (message := consumer.poll(0.02)) is not None)

    poll_until(lambda: [len(consumer.assignment()) for consumer in consumers] == [2, 2])
    assert served.db.describe_group("g").protocol == strategy
    for partition in range(4):
        served.db.log("t", partition).append(b"%d" % (40 + partition))
    wanted = {b"%d" % number for number in range(44)}
    poll_until(lambda: seen == wanted)
    assert seen == wanted
    for consumer in consumers:
        consumer.commit(asynchronous=False)
        consumer.close()
    committed = served.db._session.fetch_offsets("g")
    assert sum(offset.offset for offset in committed.values()) == 44
    assert served.db.describe_group("g").members == ()


def test_a_consumer_goes_on_where_the_last_one_committed(served):
    for begin, count in ((0, 15), (15, 25)):
        consumer = confluent(served, **{"enable.auto.commit": False})
        consumer.subscribe(["t"])
        (records,) = read([consumer], count)
        assert len(records) >= count
        if begin:
            assert len(records) == count
        consumer.commit(offsets=_positions(served, count) if not begin else None, asynchronous=False)
        consumer.close()


def _positions(served, count):
    """As if ``count`` records had been read, partition after partition."""
    left, found = count, []
    for partition in range(4):
        taken = min(10, left)
        left -= taken
        found.append(TopicPartition("t", partition, taken, metadata="note"))
    return found


def test_a_static_member_comes_back_without_a_rebalance(served):
    def joined():
        consumer = confluent(served, **{"group.instance.id": "one"})
        consumer.subscribe(["t"])
        until = time.monotonic() + 20
        while not consumer.assignment() and time.monotonic() < until:
            consumer.poll(0.05)
        return consumer, served.db.describe_group("g")

    consumer, before = joined()
    consumer.close()  # a static member does not leave
    consumer, after = joined()
    assert (after.generation, len(after.members)) == (before.generation, 1)
    assert after.members[0].group_instance_id == "one"
    consumer.close()


def test_kafka_python_consumes_in_a_group(served):
    def consumer():
        return kafka_python.KafkaConsumer(
            "t",
            bootstrap_servers=served.address,
            group_id="p",
            auto_offset_reset="earliest",
            consumer_timeout_ms=30_000,
            heartbeat_interval_ms=200,
            enable_auto_commit=False,
        )

    one = consumer()
    assert sorted(int(record.value) for _, record in zip(range(40), one, strict=False)) == list(range(40))
    one.commit()
    assert one.committed(kafka_python.TopicPartition("t", 3)) == 10
    assert one.committed(kafka_python.TopicPartition("t", 3), metadata=True).metadata == ""
    one.close()
    served.db.log("t", 0).append(b"99")
    two = consumer()
    assert next(two).value == b"99"
    two.close()


def test_administrators_of_kafka_python(served):
    consumer = confluent(served)
    consumer.subscribe(["t"])
    read([consumer], 40)
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=served.address)
    try:
        assert [one["group_id"] for one in admin.list_groups()] == ["g"]
        (described,) = admin.describe_groups(["g"]).values()
        assert (described["group_state"], described["protocol_data"], len(described["members"])) == ("Stable", "range", 1)
        member = described["members"][0]
        assert member["client_host"] == "/127.0.0.1"
        assert admin.describe_groups(["none"])["none"]["group_state"] == "Dead"
        consumer.commit(asynchronous=False)
        offsets = admin.list_group_offsets("g")
        assert {part.partition: committed.offset for part, committed in offsets["g"].items()} == dict.fromkeys(range(4), 10)
        consumer.close()
        admin.alter_group_offsets("g", {kafka_python.TopicPartition("t", 0): kafka_python.OffsetAndMetadata(3, "moved", -1)})
        assert served.db._session.fetch_offsets("g")["t", 0] == (3, -1, "moved")
        admin.delete_group_offsets("g", [kafka_python.TopicPartition("t", 0)])
        assert ("t", 0) not in served.db._session.fetch_offsets("g")
        admin.delete_groups(["g"])
        assert served.db.groups() == []
    finally:
        admin.close()


def test_administrators_of_confluent(served):
    consumer = confluent(served)
    consumer.subscribe(["t"])
    read([consumer], 40)
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": served.address})
    (listed,) = admin.list_consumer_groups().result(10).valid
    assert (listed.group_id, listed.state.name, listed.is_simple_consumer_group) == ("g", "STABLE", False)
    described = admin.describe_consumer_groups(["g"], include_authorized_operations=True)["g"].result(10)
    assert {part.partition for part in described.members[0].assignment.topic_partitions} == {0, 1, 2, 3}
    assert {operation.name for operation in described.authorized_operations} == {"READ", "DESCRIBE", "DELETE"}
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(10)
    assert {part.partition: part.offset for part in found.topic_partitions} == dict.fromkeys(range(4), 10)
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g"])["g"].result(10)
    consumer.close()
    wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 1, 4), TopicPartition("t", 9, 4)])
    altered = admin.alter_consumer_group_offsets([wanted])["g"].result(10)
    assert [part.error is None for part in altered.topic_partitions] == [True, False]
    admin.delete_consumer_groups(["g"])["g"].result(10)
    assert served.db.groups() == []
