"""The client of a cluster follows leaders: doors are real, a double of the metadata says who leads."""

import base64
import contextlib
import json
import threading
import time
import urllib.error
import urllib.request

import pytest

import logdb
from logdb.broker.broker import Broker
from logdb.broker.gaps import missing
from logdb.coordinator.effects import WriteMarkers
from logdb.errors import NotLeaderOrFollower, ServerUnavailable
from logdb.model import INTERNAL_TOPICS, ProducerIdAndEpoch, TopicPartition
from logdb.requests.cluster import CommittedEnd
from logdb.requests.error_document import rebuild
from logdb_http_api.remote.connection import Security
from logdb_http_api.remote.session import nodes_session
from support.clustered import TOKEN, clustered
from support.produced import batch
from support.serving import Served


@pytest.fixture
def three(tmp_path):
    with clustered(tmp_path / "db") as nodes:
        yield nodes


@pytest.fixture
def db(three):
    with logdb.open(three.urls, timeout_ms=5_000) as db:
        db.create_topic("t", partitions=3)
        yield db


def test_an_append_and_a_read_go_to_the_leader(three, db) -> None:
    for partition in range(3):
        log = db.log("t", partition)
        assert log.append(b"a") == 0
        assert list(log.append_many([b"b"] * 1000)) == list(range(1, 1001))
        assert [record.value for record in log.read(0)][:2] == [b"a", b"b"]
        assert log.end_offset == 1001
    leaders = db._session.connections.leaders
    for partition in (1, 2):
        assert leaders[TopicPartition("t", partition)].url == three.nodes[partition + 1].url


def test_one_url_is_enough(three, db) -> None:
    with logdb.open(three.nodes[3].url) as alone:
        assert alone.log("t", 0).append(b"a") == 0
        assert [record.value for record in alone.log("t", 0).read(0)] == [b"a"]


def test_a_producer_goes_on_with_the_next_leader_under_the_same_sequences(three, db) -> None:
    with db.producer(enable_idempotence=True) as producer:
        sent = []
        for turn in range(9):
            three.cluster.lead("t", 0, turn % 3 + 1)
            sent += [producer.send("t", b"%d" % (len(sent) + n), partition=0) for n in range(10)]
            producer.flush()
        assert [future.result().offset for future in sent] == list(range(90))
    assert [record.value for record in db.log("t", 0).read(0)] == [b"%d" % n for n in range(90)]


def test_while_no_node_leads_a_request_waits(three, db) -> None:
    three.cluster.lead("t", 0, None)
    threading.Timer(0.3, lambda: three.cluster.lead("t", 0, 2)).start()
    assert db.log("t", 0).append(b"a") == 0
    three.cluster.lead("t", 0, None)
    threading.Timer(0.3, lambda: three.cluster.lead("t", 0, 3)).start()
    assert [record.value for record in db.log("t", 0).read(0)] == [b"a"]


def test_requests_that_are_made_side_by_side_have_one_time(three, db) -> None:
    db.create_topic("t12", partitions=12)
    asked = {partition: CommittedEnd(TopicPartition("t12", partition)) for partition in range(12)}
    for partition in asked:
        three.cluster.lead("t12", partition, None)
    with contextlib.closing(nodes_session(three.urls, Security(token=TOKEN), timeout_ms=600)) as nodes:
        began = time.monotonic()
        answers = nodes.ask(asked, dict.fromkeys(asked))
        assert time.monotonic() - began < 5
    assert {type(answer) for answer in answers.values()} <= {NotLeaderOrFollower, ServerUnavailable}


def test_a_topic_of_which_no_node_leads_a_partition_keeps_its_schema_alone(three, db) -> None:
    """The end of that partition is not known: the change is refused at once, and others are not."""
    first, second = (
        {"logdb.iceberg.schema": f'{{"type": "record", "name": "{name}", "fields": [{{"name": "a", "type": "long"}}]}}'} for name in "ab"
    )
    db.alter_topic("t", config=first)
    three.cluster.lead("t", 1, None)
    session = three.nodes[1].broker
    session.alter_configs("t", first | {"segment.bytes": 8192}, replace=True)
    session.alter_configs("t", first | {"segment.bytes": 4096})
    began = time.monotonic()
    with pytest.raises(NotLeaderOrFollower, match=r"t-1: no node leads it"):
        session.alter_configs("t", second)
    assert time.monotonic() - began < 4, "the time of a request between nodes is five seconds"
    session.alter_configs("t", second | {"logdb.iceberg.schema.history": "[]"})
    three.cluster.lead("t", 1, 2)
    session.alter_configs("t", first)
    assert db.describe_topic("t").config["segment.bytes"] == 4096


def test_a_request_gives_up_when_its_time_is_over(three, db) -> None:
    three.cluster.lead("t", 0, None)
    with logdb.open(three.urls, timeout_ms=300) as hasty:
        for call in (lambda log: log.append(b"a"), lambda log: list(log.read(0)), lambda log: log.end_offset):
            began = time.monotonic()
            with pytest.raises((NotLeaderOrFollower, ServerUnavailable)):
                call(hasty.log("t", 0))
            assert time.monotonic() - began < 3


def test_a_node_that_dies_is_asked_no_more(three, db) -> None:
    log = db.log("t", 0)
    log.append(b"a")
    three.nodes[1].server.close()
    with pytest.raises(Exception):  # noqa: B017, PT011 -- nobody was elected
        logdb.open(three.nodes[1].url, connect_timeout_ms=100)
    threading.Timer(0.3, lambda: three.cluster.lead("t", 0, 2)).start()
    assert log.append(b"b") == 1
    assert [record.value for record in log.read(0)] == [b"a", b"b"]


def test_a_consumer_reads_partitions_of_several_leaders(three, db) -> None:
    for partition in range(3):
        db.log("t", partition).append_many([b"%d-%d" % (partition, n) for n in range(5)])
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", partition) for partition in range(3)])
        values = []
        while len(values) < 15:
            values += [record.value for records in consumer.poll(timeout_ms=1000).values() for record in records]
        assert sorted(values) == [b"%d-%d" % (partition, n) for partition in range(3) for n in range(5)]
        threading.Timer(0.3, lambda: three.cluster.store.open_log("t", 2).append(b"late")).start()
        assert [record.value for records in consumer.poll(timeout_ms=5000).values() for record in records] == [b"late"]
        three.cluster.lead("t", 2, 1)
        three.cluster.store.open_log("t", 2).append(b"later")
        assert [record.value for records in consumer.poll(timeout_ms=5000).values() for record in records] == [b"later"]


def test_a_group_is_asked_of_its_coordinator(three, db) -> None:
    db.log("t", 0).append_many([b"%d" % n for n in range(3)])
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        values = []
        while len(values) < 3:
            values += [record.value for records in consumer.poll(timeout_ms=1000).values() for record in records]
        consumer.commit()
        offsets = INTERNAL_TOPICS[0]
        partition = three.nodes[1].broker._groups.partition_of("g")
        former = three.cluster.state(offsets, partition).leader
        leader = former % 3 + 1
        epoch = three.cluster.lead(offsets, partition, leader)
        assert three.nodes[former].broker.resign_coordinator(TopicPartition(offsets, partition), epoch)
        db.log("t", 0).append(b"3")
        while len(values) < 4:
            values += [record.value for records in consumer.poll(timeout_ms=1000).values() for record in records]
        consumer.commit()
        assert consumer.committed(TopicPartition("t", 0)).offset == 4
    assert values == [b"0", b"1", b"2", b"3"]


def test_a_transaction_spans_leaders_and_coordinators(three, db) -> None:
    db.log("t", 0).append(b"in")
    with db.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while not consumer.poll(timeout_ms=500):
            pass
        with db.transaction("x") as tx:
            for partition in range(3):
                tx.send("t", b"1", partition=partition)
            tx.send_offsets(consumer)
        with pytest.raises(ZeroDivisionError), db.transaction("x") as tx:
            tx.send("t", b"0", partition=1)
            raise ZeroDivisionError
    for partition in range(3):
        log = db.log("t", partition)
        assert [one.value for one in log.read(0, isolation_level="read_committed")] == [b"in"] * (partition == 0) + [b"1"]
        assert log.open_transactions() == []
        assert log.last_stable_offset == log.end_offset
    assert [(one.partition, one.committed.offset) for one in db.group_offsets("g")] == [(TopicPartition("t", 0), 1)]
    assert [one.transactional_id for one in db.transactions()] == ["x"]


def test_a_transaction_survives_a_change_of_all_leaders(three, db) -> None:
    producer = db.producer(transactional_id="x", delivery_timeout_ms=8_000)
    producer.begin_transaction()
    for partition in range(3):
        producer.send("t", b"a", partition=partition).result(10)
    states = INTERNAL_TOPICS[1]
    number = three.nodes[1].broker._transactions.partition_of("x")
    former = three.cluster.state(states, number).leader
    epoch = three.cluster.lead(states, number, former % 3 + 1)
    three.nodes[former].broker.resign_coordinator(TopicPartition(states, number), epoch)
    three.nodes[former % 3 + 1].broker.load_coordinator(TopicPartition(states, number), epoch)
    for partition in range(3):
        three.cluster.lead("t", partition, (partition + 1) % 3 + 1)
    for partition in range(3):
        producer.send("t", b"b", partition=partition)
    producer.commit_transaction()
    producer.close()
    for partition in range(3):
        assert [one.value for one in db.log("t", partition).read(0, isolation_level="read_committed")] == [b"a", b"b"]


def test_groups_and_transactions_of_all_nodes_are_listed(three, db) -> None:
    names = [f"g{n}" for n in range(8)]
    for name in names:
        with db.consumer("t", group_id=name) as consumer:
            consumer.poll(timeout_ms=0)
            consumer.commit({TopicPartition("t", 0): 0})
    assert [one.group_id for one in db.groups()] == names
    coordinators = {three.nodes[1].broker.coordinator(INTERNAL_TOPICS[0], name) for name in names}
    assert len(coordinators) > 1


def test_any_node_serves_curl(three, db) -> None:
    for partition in range(3):
        db.log("t", partition).append(b"%d" % partition)
    for node in three.nodes.values():
        rest = Served(None, node.url, node.server)
        for partition in range(3):
            path, binary = f"/topics/t/partitions/{partition}", "application/vnd.kafka.binary.v2+json"
            status, found = rest.call(f"{path}/records?offset=0", headers={"Accept": binary})
            assert (status, found[0]["value"]) == (200, base64.b64encode(b"%d" % partition).decode())
            status, made = rest.call(path, {"records": [{"value": "YQ=="}]}, content_type=binary)
            assert (status, made["offsets"][0]["offset"]) == (200, len(found))
        many = {"records": [{"value": "YQ==", "partition": partition} for partition in range(3)]}
        status, made = rest.call("/topics/t", many, content_type=binary)
        assert (status, [one["error"] for one in made["offsets"]]) == (200, [None] * 3)


@pytest.mark.timeout(60)
def test_a_leader_answers_a_gap_itself(three, db, monkeypatch) -> None:
    """It sends the batch to no other node: that would be itself, for whose answer its event loop would wait."""
    gap, tries = missing(TopicPartition("t", 0), 7, 0, 5, 1), []

    def refused(*_, **__):
        tries.append(1)
        raise gap

    monkeypatch.setattr(Broker, "submit_batches", refused)
    url = f"{three.nodes[1].url}/logdb/v1/topics/t/partitions/0/batches"
    given = urllib.request.Request(url, batch([b"a"], 7, 0, 5), {"Content-Type": "application/vnd.logdb.batches"})
    with pytest.raises(urllib.error.HTTPError) as answer, urllib.request.urlopen(given, timeout=60):
        pass
    with answer.value as refusal:
        assert rebuild(json.loads(refusal.read())).args == gap.args
    assert len(tries) == 1


def test_a_backup_of_a_node_does_not_wait_for_markers_that_another_node_writes(three, db, tmp_path) -> None:
    """The node lost a partition while it wrote a transaction's marker there: the coordinator asks the new leader, not this one again."""
    db.log("t", 0).append(b"a")
    broker = three.nodes[3].broker
    where = frozenset({TopicPartition("t", 0)})
    markers = WriteMarkers("x", ProducerIdAndEpoch(7, 1), where, commit=True, coordinator_epoch=0, last_epoch=1)
    with pytest.raises(NotLeaderOrFollower):
        broker._markers.write(markers)
    assert broker.backup(str(tmp_path / "backup")).partition_count == 3
