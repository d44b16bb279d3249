"""What a client of a coordinator is told while the coordinator is loaded, and when its own partition cannot take a record."""

import logging
import threading
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from logdb.broker import runner
from logdb.errors import CommitTimeout, CoordinatorFenced, NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeaderOrFollower
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb_kafka_api.errors import Code, coordinator_code_of
from support.kafka_door import kafka_door
from support.kafka_wire import Wire
from support.waiting import until


@pytest.mark.parametrize(
    "error",
    [
        NotLeaderOrFollower("__transaction_state", 0, 3, 1),
        NotEnoughReplicas("__transaction_state", 0, 1, 2),
        NotEnoughReplicasAfterAppend("__transaction_state", 0, 1, 2),
        CommitTimeout("__transaction_state", 0, 30_000),
        CoordinatorFenced("a", 0, 7, 1, 2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_is_to_find_the_coordinator_again(error):
    assert coordinator_code_of(error) is Code.COORDINATOR_NOT_AVAILABLE


def test_a_member_stays_while_its_coordinator_is_loaded(tmp_path, monkeypatch):
    """As with Kafka: a member expects COORDINATOR_LOAD_IN_PROGRESS of JoinGroup alone.  aiokafka's consumer stopped for good."""
    begun, go_on, replay = threading.Event(), threading.Event(), runner.replay

    def slow(log, coordinator, offset):
        begun.set()
        assert go_on.wait(60)
        return replay(log, coordinator, offset)

    with kafka_door(tmp_path / "db") as served, Wire(served.address) as wire:
        member = member_of(wire)
        monkeypatch.setattr(runner, "replay", slow)
        broker = served.db._session
        where = TopicPartition("__consumer_offsets", broker._groups.partition_of("g"))
        loading = threading.Thread(target=broker.load_coordinator, args=(where, 7))
        loading.start()
        try:
            assert begun.wait(60)
            assert join(wire, member["member_id"])["error_code"] == Code.COORDINATOR_LOAD_IN_PROGRESS
            assert wire.ask("SyncGroup", 4, **member)["error_code"] == Code.REBALANCE_IN_PROGRESS
            assert wire.ask("Heartbeat", 4, **member)["error_code"] == Code.NONE
        finally:
            go_on.set()
            loading.join()
        assert wire.ask("Heartbeat", 4, **member)["error_code"] == Code.NONE
        stranger = member | {"member_id": "stranger"}
        assert wire.ask("Heartbeat", 4, **stranger)["error_code"] == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [8, 9])
def test_each_partition_is_named_where_offsets_cannot_be_read_yet(moved, version):
    """librdkafka asks again for what is unstable; for what an answer leaves out it never asks again."""
    with Wire(moved.address) as wire:
        topics = [{"name": "t", "partition_indexes": [0, 1]}]
        (group,) = wire.ask("OffsetFetch", version, groups=[{"group_id": "g", "topics": topics}], require_stable=False)["groups"]
    assert group["error_code"] == Code.NOT_COORDINATOR
    found = [(one["partition_index"], one["committed_offset"], one["error_code"]) for one in group["topics"][0]["partitions"]]
    assert found == [(0, -1, Code.UNSTABLE_OFFSET_COMMIT), (1, -1, Code.UNSTABLE_OFFSET_COMMIT)]


def test_a_consumer_of_librdkafka_reads_on_after_its_coordinator_has_moved(moved, caplog):
    """It asked for its offsets once, was told to find another coordinator, and never read a record."""
    logger = logging.getLogger("librdkafka")
    caplog.set_level(logging.DEBUG, logger.name)
    config = {"bootstrap.servers": moved.address, "group.id": "g", "auto.offset.reset": "earliest", "debug": "topic"}
    consumer = Consumer(config, logger=logger)
    try:
        consumer.assign([ConfluentPartition("t", 0)])
        read = []

        def poll():
            if (message := consumer.poll(0.1)) is not None and message.error() is None:
                read.append(message.value())

        until(lambda: poll() or "returned Broker: Not coordinator" in caplog.text, "it is refused")
        moved.broker.load_coordinator(moved.where, 8)
        until(lambda: poll() or read == [b"1"], "it reads")
    finally:
        consumer.close()


class Moved(NamedTuple):
    """A server whose node does not coordinate the group `g` any more; ``where``: the group's partition."""

    address: str
    broker: Any
    where: TopicPartition


@pytest.fixture
def moved(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        served.db.create_topic("t", partitions=2)
        served.db.log("t", 0).append(b"1")
        broker = served.db._session
        broker.commit_offsets("g", {TopicPartition("t", 1): OffsetAndMetadata(0)}).result()
        where = TopicPartition("__consumer_offsets", broker._groups.partition_of("g"))
        assert broker.resign_coordinator(where, 7)
        yield Moved(served.address, broker, where)


def join(wire, member_id=""):
    timeouts = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    protocols = [{"name": "range", "metadata": b""}]
    return wire.ask("JoinGroup", 9, group_id="g", member_id=member_id, protocol_type="consumer", protocols=protocols, **timeouts)


def member_of(wire):
    """The only member of a group."""
    member_id = join(wire)["member_id"]
    member = {"group_id": "g", "generation_id": join(wire, member_id)["generation_id"], "member_id": member_id}
    assert wire.ask("SyncGroup", 4, **member, assignments=[{"member_id": member_id, "assignment": b"all"}])["error_code"] == Code.NONE
    return member
