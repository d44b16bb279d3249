"""A store is the metadata and the storage of a single node."""

import pytest

import logdb
from logdb import errors
from logdb.log.protocols import ReplicaLog
from logdb.requests.nodes import BrokerInfo, PartitionState
from logdb.requests.topic_changes import CreateTopic, DeleteTopic
from logdb.store.protocols import Metadata, Storage
from logdb.store.store import Store


@pytest.fixture
def store(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        yield db._store


def test_a_single_node_leads_each_partition_and_has_the_only_replica(store: Store) -> None:
    metadata: Metadata = store
    assert metadata.brokers() == (BrokerInfo(0, {}),)
    assert metadata.controller_id == 0
    state = metadata.partition_state("t", 1)
    assert state == PartitionState(leader=0, leader_epoch=store.open_log("t", 1).leader_epoch, replicas=(0,), in_sync=(0,))
    assert state.leader == metadata.node_id
    with pytest.raises(errors.UnknownTopic):
        metadata.partition_state("u", 0)
    with pytest.raises(errors.UnknownPartition):
        metadata.partition_state("t", 2)


def test_the_change_number_grows_with_each_change_of_a_topic(store: Store) -> None:
    metadata: Metadata = store
    before = metadata.change_number()
    assert metadata.change_number() == before
    metadata.submit(CreateTopic("u"))
    made = metadata.change_number()
    metadata.submit(DeleteTopic("u"))
    assert before < made < metadata.change_number()


def test_a_block_of_producer_ids_is_given_once(store: Store) -> None:
    metadata: Metadata = store
    first, second = metadata.take_producer_ids(10), metadata.take_producer_ids(5)
    assert (len(first), len(second)) == (10, 5)
    assert second.start >= first.stop


def test_where_a_log_is_flushed_and_its_epoch_begins(store: Store) -> None:
    storage: Storage = store
    log: ReplicaLog = storage.open_log("t", 0)
    log.append_many([b"a", b"b"], durability="interval")
    assert (log.flushed_offset, log.epoch_start_offset) == (0, 0)
    log.flush()
    assert log.flushed_offset == 2


def test_a_replica_follows_and_is_cut_off_by_the_protocols_alone(store: Store) -> None:
    storage: Storage = store
    leader: ReplicaLog = storage.open_log("t", 0)
    follower: ReplicaLog = storage.open_log("t", 1)
    epoch = leader.leader_epoch + 1
    assert leader.begin_epoch(epoch) == 0
    for value in b"a", b"b":
        leader.append_many([value])
    assert leader.move_high_watermark(1, leader_epoch=epoch) == leader.high_watermark == 1
    batches, end_offset = leader.read_batches(0, replica=True)
    assert follower.follow_append(batches) == range(end_offset) == range(2)
    assert follower.epoch_end(epoch, current_epoch=epoch) == leader.epoch_end(epoch) == (epoch, 2)
    assert storage.truncate_to("t", 1, 0) == follower.end_offset == 0
    storage.begin_anew("t", 1, 7)
    assert (follower.start_offset, follower.end_offset) == (7, 7)
