"""Transactional producers of real clients on the Kafka door, and transactions of raw requests in each version."""

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from logdb_kafka_api.apis import APIS
from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch
from support.cluster_wire import wire_to
from support.kafka_door import kafka_door, kafka_python
from support.kafka_wire import KEYS, produce


@pytest.fixture
def served(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        served.db.create_topic("t", partitions=2)
        served.db.create_topic("source", partitions=1)
        served.db.log("source").append_many([b"%d" % number for number in range(10)])
        yield served


def committed(served, partition=0):
    log = served.db.log("t", partition)
    return [record.value for record in log.read(0, isolation_level="read_committed")]


def confluent(served, transactional_id="tx"):
    producer = Producer({"bootstrap.servers": served.address, "transactional.id": transactional_id, "linger.ms": 1})
    producer.init_transactions(20)
    return producer


def test_confluent_commits_and_aborts(served):
    producer = confluent(served)
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce("t", b"%d" % number, partition=partition)
        producer.flush(20)
        assert committed(served) == [b"0"][:number]
        producer.commit_transaction(20) if commit else producer.abort_transaction(20)
    assert committed(served, 0) == committed(served, 1) == [b"0", b"2"]
    info = served.db._session.describe_transaction("tx")
    assert (info.state, info.producer.producer_epoch) == ("CompleteCommit", 0)  # this client does not know KIP-890


def test_confluent_fences_the_older_instance(served):
    old = confluent(served)
    old.begin_transaction()
    old.produce("t", b"old", partition=0)
    old.flush(20)
    new = confluent(served)
    new.begin_transaction()
    new.produce("t", b"new", partition=0)
    new.commit_transaction(20)
    with pytest.raises(Exception, match="FENCED"):
        old.commit_transaction(20)
    assert committed(served) == [b"new"]


@pytest.mark.parametrize("commit", [True, False])
def test_confluent_consumes_transforms_and_produces(served, commit):
    config = {"bootstrap.servers": served.address, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(config | {"isolation.level": "read_committed"})
    consumer.subscribe(["source"])
    producer = confluent(served)
    producer.begin_transaction()
    for message in consumer.consume(10, 20):
        producer.produce("t", b"done " + message.value(), partition=0)
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20)
    producer.commit_transaction(20) if commit else producer.abort_transaction(20)
    (found,) = consumer.committed([TopicPartition("source", 0)], 20)
    assert found.offset == (10 if commit else -1001)
    assert committed(served) == [b"done %d" % number for number in range(10) if commit]
    consumer.close()


def test_kafka_python_commits_and_aborts(served):
    producer = kafka_python.KafkaProducer(bootstrap_servers=served.address, transactional_id="p", max_block_ms=20_000)
    producer.init_transactions()
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, partition=0)
        producer.send_offsets_to_transaction(
            {kafka_python.TopicPartition("source", 0): kafka_python.OffsetAndMetadata(number + 1, "", -1)}, "g"
        )
        producer.commit_transaction() if commit else producer.abort_transaction()
    producer.close()
    assert committed(served) == [b"0", b"2"]
    assert served.db._session.fetch_offsets("g")["source", 0].offset == 3
    assert served.db._session.describe_transaction("p").state == "CompleteCommit"


# ---------------------------------------------------------------- requests as they are


INIT, ADD, ADD_OFFSETS = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"
END, COMMIT, DESCRIBE, LIST = "EndTxn", "TxnOffsetCommit", "DescribeTransactions", "ListTransactions"


def versions(name):
    return APIS[KEYS[name]].request.versions


@pytest.fixture
def wire(served):
    with wire_to(served.address) as wire:
        yield wire


def init(wire, version=4, **former):
    given = wire.ask(INIT, version, transactional_id="w", transaction_timeout_ms=60_000, **former)
    assert given["error_code"] == 0
    return {"producer_id": given["producer_id"], "producer_epoch": given["producer_epoch"]}


@pytest.mark.parametrize("version", versions(END))
def test_the_epoch_rises_for_those_that_are_told(wire, version):
    producer = init(wire)
    tx = {"transactional_id": "w"} | producer
    added = wire.ask(ADD, min(version, 3), **tx, topics=[{"name": "t", "partitions": [0]}])
    assert added["results_by_topic"][0]["results_by_partition"] == [{"partition_index": 0, "partition_error_code": 0}]
    ended = wire.ask(END, version, **tx, committed=True)
    assert ended["error_code"] == 0
    if version >= 5:
        assert (ended["producer_id"], ended["producer_epoch"]) == (producer["producer_id"], producer["producer_epoch"] + 1)
        assert wire.ask(END, version, **tx, committed=True) == ended  # again: the answer was lost
    else:
        assert wire.ask(ADD, min(version, 3), **tx, topics=[{"name": "t", "partitions": [0]}])["results_by_topic"]


def test_clients_are_told_that_the_epoch_rises(wire):
    for version in versions("ApiVersions"):
        answer = wire.ask("ApiVersions", version)
        levels = {one["name"]: (one["min_version_level"], one["max_version_level"]) for one in answer["finalized_features"]}
        assert levels == ({"metadata.version": (30, 30), "transaction.version": (2, 2)} if version >= 3 else {})


def test_partitions_are_added_together_or_not_at_all(served, wire):
    tx = {"transactional_id": "w"} | init(wire)
    topics = [{"name": "t", "partitions": [0, 7]}, {"name": "none", "partitions": [0]}]
    codes = {
        (topic["name"], one["partition_index"]): one["partition_error_code"]
        for topic in wire.ask(ADD, 3, **tx, topics=topics)["results_by_topic"]
        for one in topic["results_by_partition"]
    }
    assert codes == {("t", 0): 55, ("t", 7): 3, ("none", 0): 3}
    assert served.db._session.describe_transaction("w").partitions == ()


def test_a_topic_may_be_named_twice(served, wire):
    tx = {"transactional_id": "w"} | init(wire)
    added = wire.ask(ADD, 3, **tx, topics=[{"name": "t", "partitions": [at]} for at in (0, 1)])["results_by_topic"]
    assert [one["partition_error_code"] for topic in added for one in topic["results_by_partition"]] == [0, 0]
    assert set(served.db._session.describe_transaction("w").partitions) == {("t", 0), ("t", 1)}
    wire.ask(ADD_OFFSETS, 3, **tx, group_id="g")
    topics = [{"name": "t", "partitions": [{"partition_index": at, "committed_offset": 5, "committed_metadata": ""}]} for at in (0, 1)]
    answer = wire.ask(COMMIT, 2, **tx, group_id="g", topics=topics)
    assert [one["error_code"] for topic in answer["topics"] for one in topic["partitions"]] == [0, 0]


@pytest.mark.parametrize("ends", [None, "abort", "commit"])
@pytest.mark.parametrize("version", [8, 11, 12])
def test_a_batch_that_comes_after_its_transaction_begins_none(served, wire, version, ends):
    """Else the next transaction of a client whose epoch stays would commit it.  From version 12 on Produce adds the partition (KIP-890)."""
    producer = init(wire)
    tx = {"transactional_id": "w"} | producer
    if ends:
        wire.ask(ADD, 3, **tx, topics=[{"name": "t", "partitions": [0]}])
        assert wire.ask(END, 3, **tx, committed=ends == "commit")["error_code"] == 0
    late = encode_batch([Rec(None, b"late")], **producer, base_sequence=0, attributes=16)
    code = produce(wire, late, transactional_id="w", version=version)["error_code"]
    assert code == {8: Code.INVALID_TXN_STATE, 11: Code.TRANSACTION_ABORTABLE, 12: 0}[version]
    assert (served.db.log("t").open_transactions() != []) == (version >= 12)


@pytest.mark.parametrize("version", versions(COMMIT))
def test_offsets_that_come_after_their_transaction_begin_none(served, wire, version):
    tx = {"transactional_id": "w"} | init(wire)
    wire.ask(ADD_OFFSETS, 3, **tx, group_id="g")
    assert wire.ask(END, 3, **tx, committed=False)["error_code"] == 0
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}]
    code = wire.ask(COMMIT, version, **tx, group_id="g", topics=topics)["topics"][0]["partitions"][0]["error_code"]
    assert code == {4: Code.TRANSACTION_ABORTABLE, 5: 0}.get(version, Code.INVALID_TXN_STATE)
    wire.ask(ADD, 3, **tx, topics=[{"name": "t", "partitions": [0]}])
    assert wire.ask(END, 3, **tx, committed=True)["error_code"] == 0
    assert served.db._session.fetch_offsets("g") == ({("t", 0): (5, -1, "")} if version >= 5 else {})


@pytest.mark.parametrize(("key", "first"), [(INIT, 4), (ADD, 2), (ADD_OFFSETS, 2), (END, 2)])
def test_a_fenced_producer_is_told_so_in_the_words_of_its_version(wire, key, first):
    old = init(wire)
    init(wire)
    fields = {
        INIT: {"transaction_timeout_ms": 60_000},
        ADD: {"topics": [{"name": "t", "partitions": [0]}]},
        ADD_OFFSETS: {"group_id": "g"},
        END: {"committed": True},
    }
    for version in versions(key):
        if key == INIT and version < 3:
            continue  # it says nothing of a former producer
        answer = wire.ask(key, version, transactional_id="w", **old, **fields[key])
        code = answer["results_by_topic"][0]["results_by_partition"][0]["partition_error_code"] if key == ADD else answer["error_code"]
        assert code == (90 if version >= first else 47), version


@pytest.mark.parametrize("version", versions(COMMIT))
def test_offsets_of_a_transaction(served, wire, version):
    tx = {"transactional_id": "w"} | init(wire)
    assert wire.ask(ADD_OFFSETS, min(version, 4), **tx, group_id="g")["error_code"] == 0
    partitions = [{"partition_index": at, "committed_offset": 5, "committed_metadata": "note"} for at in (0, 7)]
    answer = wire.ask(COMMIT, version, **tx, group_id="g", topics=[{"name": "t", "partitions": partitions}])
    assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [0, 3]
    assert served.db._session.fetch_offsets("g") == {}
    assert wire.ask(END, 1, **tx, committed=True)["error_code"] == 0
    assert served.db._session.fetch_offsets("g") == {("t", 0): (5, -1, "note")}


def test_metadata_of_an_offset_that_are_too_large_refuse_that_partition_alone(served, wire):
    tx = {"transactional_id": "w"} | init(wire)
    wire.ask(ADD_OFFSETS, 3, **tx, group_id="g")
    partitions = [{"partition_index": at, "committed_offset": 5, "committed_metadata": "x" * 5000 * (1 - at)} for at in (0, 1)]
    answer = wire.ask(COMMIT, 2, **tx, group_id="g", topics=[{"name": "t", "partitions": partitions}])
    assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [12, 0]
    assert wire.ask(END, 1, **tx, committed=True)["error_code"] == 0
    assert served.db._session.fetch_offsets("g") == {("t", 1): (5, -1, "")}


def test_an_unknown_transactional_id(wire):
    unknown = {"transactional_id": "none", "producer_id": 1, "producer_epoch": 0}
    assert wire.ask(END, 3, **unknown, committed=True)["error_code"] == 49
    (described,) = wire.ask(DESCRIBE, 0, transactional_ids=["none"])["transaction_states"]
    assert described["error_code"] == 105


def test_transactions_are_listed_and_described(served, wire):
    producer = init(wire)
    served.db._session.init_producer_id("other")
    wire.ask(ADD, 3, transactional_id="w", **producer, topics=[{"name": "t", "partitions": [0, 1]}])
    (described,) = wire.ask(DESCRIBE, 0, transactional_ids=["w"])["transaction_states"]
    assert described["transaction_start_time_ms"] > 0
    assert (described["transaction_state"], described["transaction_timeout_ms"]) == ("Ongoing", 60_000)
    assert described["topics"] == [{"topic": "t", "partitions": [0, 1]}]
    assert {name: described[name] for name in producer} == producer

    def listed(version=1, **filters):
        return [one["transactional_id"] for one in wire.ask(LIST, version, **filters)["transaction_states"]]

    assert listed() == listed(0) == ["other", "w"]
    assert listed(state_filters=["Ongoing"]) == listed(producer_id_filters=[producer["producer_id"]]) == ["w"]
    assert listed(duration_filter=3_600_000) == []
    assert wire.ask(LIST, 0, state_filters=["Ongoing", "Odd"])["unknown_state_filters"] == ["Odd"]


def test_where_a_leader_epoch_ends(served, wire):
    served.db.log("t").append_many([b"a", b"b"])
    for version in versions("OffsetForLeaderEpoch"):
        asked = [{"partition": 0, "leader_epoch": 0}, {"partition": 9, "leader_epoch": 0}, {"partition": 0, "leader_epoch": 5}]
        found = wire.ask("OffsetForLeaderEpoch", version, topics=[{"topic": "t", "partitions": asked}])["topics"][0]["partitions"]
        assert [(one["error_code"], one["end_offset"]) for one in found] == [(0, 2), (3, -1), (0, -1)]
    asked = [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": 7}]
    answer = wire.ask("OffsetForLeaderEpoch", 4, topics=[{"topic": "t", "partitions": asked}])
    assert answer["topics"][0]["partitions"][0]["error_code"] == 75


def test_an_epoch_before_the_first_one_ends_where_the_log_starts(served, wire):
    """A client that has read up to there has lost nothing: without an offset Java's resets its position."""
    log = served.db._broker.log("t", 0)
    log.begin_epoch(5)
    log.append_many([b"a", b"b"])
    served.db._session.delete_records("t", 0, 1)
    asked = [{"partition": 0, "leader_epoch": epoch} for epoch in (4, -1, 5, 6)]
    found = wire.ask("OffsetForLeaderEpoch", 4, topics=[{"topic": "t", "partitions": asked}])["topics"][0]["partitions"]
    assert [(one["leader_epoch"], one["end_offset"]) for one in found] == [(4, 1), (-1, -1), (5, 2), (-1, -1)]


def test_producers_of_a_partition(served, wire):
    producer = confluent(served)
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    producer.flush(20)

    def described(partition):
        (topic,) = wire.ask("DescribeProducers", 0, topics=[{"name": "t", "partition_indexes": [partition]}])["topics"]
        return topic["partitions"][0]

    (found,) = described(0)["active_producers"]
    info = served.db._session.describe_transaction("tx")
    assert (found["producer_id"], found["producer_epoch"]) == info.producer
    assert (found["last_sequence"], found["current_txn_start_offset"], found["coordinator_epoch"]) == (0, 0, -1)
    producer.commit_transaction(20)
    (found,) = described(0)["active_producers"]
    assert (found["last_sequence"], found["current_txn_start_offset"]) == (0, -1)
    coordinators = {partition.leader_epoch for partition in served.db.describe_topic("__transaction_state").partitions}
    assert found["coordinator_epoch"] in coordinators
    assert described(1)["active_producers"] == []
    assert described(9)["error_code"] == 3


@pytest.mark.parametrize("commit", [True, False])
def test_the_largest_timestamp_may_be_that_of_a_marker(wire, commit):
    """As in Kafka; the offset is one that read_committed may see."""

    def latest(isolation_level):
        asked = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -3, "current_leader_epoch": -1}]}]
        found = wire.ask("ListOffsets", 7, isolation_level=isolation_level, topics=asked)["topics"][0]["partitions"][0]
        return found["offset"], found["timestamp"]

    produce(wire, encode_batch([Rec(None, b"a", timestamp_ms=1_700_000_000_000)]))
    producer = init(wire)
    batch = encode_batch([Rec(None, b"b", timestamp_ms=1_700_000_000_001)], **producer, base_sequence=0, attributes=16)
    wire.ask(ADD, 3, transactional_id="w", **producer, topics=[{"name": "t", "partitions": [0]}])
    assert produce(wire, batch, transactional_id="w")["error_code"] == 0
    assert latest(0) == (1, 1_700_000_000_001)
    assert latest(1) == (-1, -1)
    wire.ask(END, 3, transactional_id="w", **producer, committed=commit)
    until = time.monotonic() + 10
    while (found := latest(1))[0] < 0 and time.monotonic() < until:
        time.sleep(0.01)
    assert found == latest(0)
    assert found[0] == 2
    assert found[1] > 1_700_000_000_001
