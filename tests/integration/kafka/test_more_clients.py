"""What test_clients, test_groups and test_transactions leave out of the matrix: groups, transactions and administration of aiokafka,
a rebalance and read_committed of kafka-python, tombstones, times and groups of kcat."""

import asyncio
import subprocess
import time
import uuid
from contextlib import ExitStack

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

import logdb.testing
from support.kafka_door import kafka_python
from support.tools import needs


@pytest.fixture(scope="module")
def broker():
    with logdb.testing.broker() as running:
        yield running


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4()}"
    broker.database.create_topic(name, partitions=2)
    return name


# ---------------------------------------------------------------- aiokafka


def test_a_member_of_aiokafka_leaves_its_group(broker, topic):
    def member():
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            fetch_max_wait_ms=50,
        )

    async def story():
        async def until(*wanted):
            while [len(one.assignment()) for one in members] != list(wanted):
                await asyncio.gather(*(one.getmany(timeout_ms=20) for one in members))

        one, two = member(), member()
        members = [one]
        await one.start()
        await until(2)
        members.append(two)
        await asyncio.gather(two.start(), one.getmany(timeout_ms=200))
        await until(1, 1)
        await two.stop()
        members.remove(two)
        await until(2)
        for partition in range(2):
            broker.database.log(topic, partition).append(b"%d" % partition)
        found = {(await one.getone()).value for _ in range(2)}
        await one.stop()
        return found

    assert asyncio.run(asyncio.wait_for(story(), 30)) == {b"0", b"1"}
    assert {one.offset for one in broker.database._session.fetch_offsets(topic).values()} == {1}


def test_transactions_of_aiokafka(broker, topic):
    async def story():
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
            for number, commits in enumerate((True, False, True)):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): number + 1}, "of aiokafka")
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        seen = {}
        for level, count in (("read_committed", 2), ("read_uncommitted", 3)):
            async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, isolation_level=level) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                await consumer.seek_to_beginning()
                seen[level] = [(await consumer.getone()).value for _ in range(count)]
        return seen

    assert asyncio.run(asyncio.wait_for(story(), 30)) == {"read_committed": [b"0", b"2"], "read_uncommitted": [b"0", b"1", b"2"]}
    assert broker.database._session.fetch_offsets("of aiokafka")[topic, 0].offset == 3


def test_administration_of_aiokafka(broker):
    name = f"t-{uuid.uuid4()}"

    async def story():
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"retention.ms": "5000"})])
            await admin.create_partitions({name: NewPartitions(3)})
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 3
            assert broker.database.describe_topic(name).config["retention.ms"] == 5000
            broker.database.reset_offsets("of admin", {(name, 0): 0})
            assert "of admin" in [group for group, *_ in await admin.list_consumer_groups()]
            assert (await admin.list_consumer_group_offsets("of admin"))[TopicPartition(name, 0)].offset == 0
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(story(), 30))


# ---------------------------------------------------------------- kafka-python


def test_a_member_of_kafka_python_leaves_its_group(broker, topic):
    def member(stack):
        consumer = kafka_python.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            max_poll_interval_ms=5000,
            isolation_level="read_committed",
        )
        stack.callback(consumer.close)  # else its thread goes on in the tests that follow
        return consumer

    def until(members, *wanted):
        found, end = [], time.monotonic() + 60
        while [len(one.assignment()) for one in members] != list(wanted) and time.monotonic() < end:
            for one in members:
                # kafka-python 3.0.12 drops an assignment that comes behind the time of a poll, and waits for good
                found += [record.value for records in one.poll(1_000).values() for record in records]
        assert [len(one.assignment()) for one in members] == list(wanted)
        return found

    with ExitStack() as stack:
        one = member(stack)
        until([one], 2)
        two = member(stack)
        until([one, two], 1, 1)
        two.close()
        until([one], 2)
        with broker.database.transaction(topic) as transaction:
            transaction.send(topic, b"committed", partition=0)
        log, end = broker.database.log(topic, 0), time.monotonic() + 60
        found = []
        while not found and time.monotonic() < end:
            found = [record.value for records in one.poll(200).values() for record in records]
        assert found == [b"committed"]
    assert log.end_offset == 2  # with the marker


# ---------------------------------------------------------------- kcat


@needs("kcat")
def test_tombstones_and_times_and_a_group_of_kcat(broker, topic):
    def kcat(*flags, **options):
        command = ["kcat", "-b", broker.bootstrap_servers, *flags]
        return subprocess.run(command, capture_output=True, timeout=30, check=True, **options).stdout

    kcat("-P", "-t", topic, "-p", "0", "-K:", "-Z", input=b"k:v\nk:\n:v\n")
    stored = list(broker.database.log(topic, 0).read(0))
    assert [(one.key, one.value) for one in stored] == [(b"k", b"v"), (b"k", None), (None, b"v")]
    shown = kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-Z", "-f", "%k:%s:%T:%o\n").splitlines()
    assert shown == [b"%s:%s:%d:%d" % (one.key or b"NULL", one.value or b"NULL", one.timestamp_ms, one.offset) for one in stored]
    assert b"v" in kcat("-G", topic, "-c", "1", "-X", "auto.offset.reset=earliest", "-q", topic)
    assert broker.database.describe_group(topic).state == "Empty"
    assert kcat("-Q", "-t", f"{topic}:0:-1").decode().split()[-1] == "3"
