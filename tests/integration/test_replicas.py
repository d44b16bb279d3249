"""Leaders and followers over real connections: three stores, their doors and replicas in this process; the controller is the test's."""

import errno
import shutil
import threading
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from logdb import verify
from logdb.broker.waiting import commit
from logdb.codec import messages
from logdb.errors import CorruptionError, NotEnoughReplicas, NotLeaderOrFollower, UnknownPartition, UnknownTopic
from logdb.model import TopicPartition
from logdb.requests.cluster import CommittedEnd
from logdb.requests.principals import ANONYMOUS
from logdb_http_api.remote.connection import Security
from logdb_kafka_api.errors import Code
from logdb_kafka_api.messages.offsets import LIST_OFFSETS_REQUEST, LIST_OFFSETS_RESPONSE
from logdb_replication.controller import commands
from logdb_replication.replica import handover
from logdb_replication.replica import manager as managers
from logdb_replication.replica.fetcher import Fetcher
from logdb_replication.replica.peer import HttpPeer, PeerRequest, epochs_request, fetch_request
from support.batches import BASE_TIMESTAMP, encode_batch
from support.damage import flip
from support.faulty_io import FaultyIO
from support.followers import batches_of, check_equal
from support.kafka_wire import Wire
from support.produced import Sender, batch
from support.replicas import TOKEN, TOPIC_ID, Replicas, eventually


@pytest.fixture
def replicas(tmp_path, request):
    with Replicas(tmp_path, **getattr(request, "param", {})) as cluster:
        yield cluster


def asked(node, key, request, response, version, values, *, token=None):
    peer = HttpPeer(node.url, Security(token=token))
    try:
        return peer.ask(PeerRequest(key, request, response, version, values, 1_000), 30)
    finally:
        peer.cut()


def produced(node, *images, topic="t", partition=0, acks=-1, timeout_ms=20_000):
    """The answer for one partition: its code, and the base offset."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": b"".join(images)}]}]
    values = {"acks": acks, "timeout_ms": timeout_ms, "topic_data": data}
    answer = asked(node, messages.PRODUCE, messages.PRODUCE_REQUEST, messages.PRODUCE_RESPONSE, 9, values)
    found = answer["responses"][0]["partition_responses"][0]
    return Code(found["error_code"]), found["base_offset"]


def leads(node, topic="t", partition=0):
    """Whether a node takes appends to a partition."""
    try:
        node.manager.leads(topic, partition).check_append(acknowledged_by_all=True)
    except NotLeaderOrFollower:
        return False
    return True


def ends(cluster, topic="t", partition=0):
    return {number: node.log(topic, partition).end_offset for number, node in cluster.nodes.items() if not node._stopped}


def equal(cluster, topic="t", partition=0):
    """All running replicas have the same log, and know it."""
    logs = [node.log(topic, partition) for node in cluster.nodes.values() if not node._stopped]
    eventually(lambda: len({log.end_offset for log in logs}) == 1 == len({log.high_watermark for log in logs}))
    assert logs[0].high_watermark == logs[0].end_offset
    for log in logs[1:]:
        check_equal(logs[0], log)


def test_a_node_that_ends_waits_for_no_replica_any_more(replicas):
    replicas.create_topic()
    leader, raised = replicas.leader(), []
    for follower in replicas.followers():
        replicas.stop(follower.number)
    offsets = leader.log().append_batches(encode_batch([b"x"]), durability="os")

    def wait():
        try:
            leader.log().commit_to(offsets.stop)
        except NotLeaderOrFollower as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: any(isinstance(one, threading.Event) for one in leader.log()._watchers))
    leader.manager.close()
    waiting.join(10)
    assert len(raised) == 1


def test_an_acknowledged_batch_is_flushed_by_all_in_sync(replicas):
    replicas.create_topic()
    leader = replicas.leader()
    for number in range(5):
        assert produced(leader, encode_batch([b"%d" % number])) == (Code.NONE, number)
        assert {node.log().flushed_offset for node in replicas.nodes.values()} == {number + 1}
    equal(replicas)


def test_a_fetch_reports_what_is_flushed_of_small_batches_and_another_connection_that_of_large_ones(replicas):
    replicas.create_topic()
    leader = replicas.leader()
    fetchers = [node.manager._fetchers[leader.number] for node in replicas.followers()]
    for number in range(5):
        assert produced(leader, encode_batch([b"%d" % number])) == (Code.NONE, number)
    assert [fetcher._reporting for fetcher in fetchers] == [None, None]
    assert produced(leader, encode_batch([b"x" * 300_000])) == (Code.NONE, 5)
    eventually(lambda: all(fetcher._reporting is not None for fetcher in fetchers))
    assert produced(leader, encode_batch([b"6"])) == (Code.NONE, 6)
    equal(replicas)


@pytest.mark.parametrize("replicas", [{"lag_ms": 1500}], indirect=True)
@pytest.mark.parametrize("padding", [b"", b"x" * 300_000], ids=["small", "in threads"])
def test_a_connection_appends_what_comes_before_replicas_have_what_came_and_answers_in_order(replicas, padding):
    replicas.create_topic()
    leader, numbers = replicas.leader(), [node.number for node in replicas.followers()]
    for number in numbers:
        replicas.nodes[number].stop()
    with Wire(leader.kafka) as wire:
        sent = []
        for number in range(12):
            data = [{"name": "t", "partition_data": [{"index": 0, "records": encode_batch([b"%d" % number + padding])}]}]
            sent.append(wire.send("Produce", 9, acks=-1, timeout_ms=1 if number == 1 else 20_000, topic_data=data))
        metadata = wire.send("Metadata", 9, topics=[{"name": "t"}], allow_auto_topic_creation=False)
        eventually(lambda: leader.log().end_offset == 8)
        time.sleep(0.1)
        assert leader.log().end_offset == 8  # so many answers are owed at most
        replicas.start(numbers[0])  # one: until it is unfenced, the other counts as the second in sync
        answers = [wire.answer("Produce", 9, one)["responses"][0]["partition_responses"][0] for one in sent]
        wire.answer("Metadata", 9, metadata)
    codes = [Code(one["error_code"]) for one in answers]
    assert codes == [Code.NONE, Code.REQUEST_TIMED_OUT, *[Code.NONE] * 10]
    assert [one["base_offset"] for one in answers if not one["error_code"]] == [0, *range(2, 12)]
    equal(replicas)


def test_a_connection_that_ends_gives_back_what_its_appends_have(replicas):
    replicas.create_topic()
    leader, numbers = replicas.leader(), [node.number for node in replicas.followers()]
    for number in numbers:
        replicas.nodes[number].stop()
    door = leader.server._named["kafka"]
    with Wire(leader.kafka) as wire:
        data = [{"name": "t", "partition_data": [{"index": 0, "records": encode_batch([b"x" * 300_000])}]}]
        for _ in range(3):
            wire.send("Produce", 9, acks=-1, timeout_ms=20_000, topic_data=data)
        eventually(lambda: leader.log().end_offset == 3)
        eventually(lambda: not door.memory.taken)  # of what is appended, and only waits
    eventually(lambda: not door.connections)
    eventually(lambda: (door.requests.taken, door.memory.taken) == (0, 0))


def test_a_producer_is_told_who_leads_by_others(replicas):
    replicas.create_topic()
    for node in replicas.followers():
        assert produced(node, encode_batch([b"x"])) == (Code.NOT_LEADER_OR_FOLLOWER, -1)
        with pytest.raises(NotLeaderOrFollower) as caught:
            node.broker.served_log("t")
        assert caught.value.leader == replicas.leader().number
        with pytest.raises(NotLeaderOrFollower):
            node.broker.delete_records("t", 0, 0)
    with pytest.raises(UnknownPartition):
        node.broker.served_log("t", 7)
    with pytest.raises(UnknownTopic):
        node.broker.served_log("other")
    assert set(ends(replicas).values()) == {0}


def test_a_leader_is_followed_by_another_and_what_only_it_had_is_cut_off(replicas):
    replicas.create_topic()
    first = replicas.leader()
    for number in range(10):
        produced(first, encode_batch([b"old %d" % number]))
    first.watches.clear()  # it does not hear that it is replaced
    first.fence()
    second = replicas.leader()
    eventually(lambda: second.led)
    for number in range(3):
        assert produced(first, encode_batch([b"lost %d" % number]), acks=1)[0] is Code.NONE
    assert produced(first, encode_batch([b"never"]), timeout_ms=300)[0] is Code.REQUEST_TIMED_OUT
    for number in range(10, 20):
        assert produced(second, encode_batch([b"new %d" % number])) == (Code.NONE, number)
    first.watches.set()
    first.unfence()
    replicas.settle()
    eventually(lambda: len(replicas.controller.partition().in_sync) == 3)
    equal(replicas)
    values = [record.value for record in first.log().read(0)]
    assert values == [b"old %d" % number for number in range(10)] + [b"new %d" % number for number in range(10, 20)]
    assert first.log().epochs.entries == second.log().epochs.entries


def test_a_wait_for_replicas_ends_with_the_epoch(replicas):
    replicas.create_topic()
    leader = replicas.leader()
    for node in replicas.followers():
        node.manager.close()  # no replica follows any more
    answers = []
    thread = threading.Thread(target=lambda: answers.append(produced(leader, encode_batch([b"x"]))[0]))
    thread.start()
    eventually(lambda: leader.log().end_offset == 1)
    leader.fence()
    thread.join(10)
    assert answers == [Code.NOT_LEADER_OR_FOLLOWER]


def test_a_leader_that_goes_on_in_a_new_epoch_refuses_nothing_in_between(replicas):
    """If it refused one batch of a producer, and took the next, that one would be out of sequence; librdkafka then sends others twice."""
    replicas.create_topic()
    leader, stopped, refused = replicas.leader(), threading.Event(), []
    state, first_epoch = replicas.controller.partition(), leader.log().leader_epoch
    others = [node for node in state.replicas if node != leader.number]

    def look():
        while not stopped.is_set():
            try:
                leader.manager.leads("t", 0)
            except NotLeaderOrFollower as error:
                refused.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for target in [(leader.number, others[0]), (leader.number, *others)] * 3:
        topic_id = replicas.controller.state.topics["t"].topic_id
        replicas.controller.propose(commands.Reassign("t", topic_id, 0, target, replicas.controller.partition().replicas))
        eventually(lambda target=target: set(replicas.controller.partition().in_sync) == set(target))
        eventually(lambda: leader.log().leader_epoch == replicas.controller.partition().leader_epoch)
    stopped.set()
    thread.join()
    assert replicas.leader() is leader
    assert leader.log().leader_epoch > first_epoch
    assert refused == []
    assert produced(leader, encode_batch([b"x"]))[0] == Code.NONE
    equal(replicas)


def test_too_few_in_sync(replicas):
    replicas.create_topic()
    leader, (second, third) = replicas.leader(), replicas.followers()
    replicas.stop(third.number)
    eventually(lambda: len(leader.manager._led["t", 0].state.in_sync) == 2)
    assert produced(leader, encode_batch([b"two"])) == (Code.NONE, 0)
    answers = []
    second.manager.close()
    thread = threading.Thread(target=lambda: answers.append(produced(leader, encode_batch([b"after"]))))
    thread.start()
    eventually(lambda: leader.log().end_offset == 2)
    second.fence()
    thread.join(10)
    assert [code for code, _ in answers] == [Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert produced(leader, encode_batch([b"before"])) == (Code.NOT_ENOUGH_REPLICAS, -1)
    assert leader.log().end_offset == 2
    assert produced(leader, encode_batch([b"one"]), acks=1)[0] is Code.NONE
    assert leader.log().high_watermark == 1  # what one node alone has, no reader sees
    with pytest.raises(NotEnoughReplicas):
        leader.manager.leads("t", 0).check_append(acknowledged_by_all=True)


def test_a_follower_that_was_away_catches_up_and_is_in_sync_again(replicas):
    replicas.create_topic()
    leader, third = replicas.leader(), replicas.followers()[-1]
    replicas.stop(third.number)
    for number in range(50):
        produced(leader, encode_batch([b"%d" % number] * 10))
    replicas.start(third.number)
    eventually(lambda: len(replicas.controller.partition().in_sync) == 3)
    equal(replicas)


def test_a_follower_whose_records_the_leader_has_deleted_begins_anew(replicas):
    replicas.create_topic(segment_bytes=1_024)
    leader, third = replicas.leader(), replicas.followers()[-1]
    produced(leader, encode_batch([b"first"]))
    replicas.stop(third.number)
    for number in range(50):
        produced(leader, encode_batch([b"%d" % number] * 10))
    leader.broker.delete_records("t", 0, 255)
    replicas.start(third.number)
    eventually(lambda: len(replicas.controller.partition().in_sync) == 3)
    again = replicas.nodes[third.number].log()
    assert 250 <= again.start_offset <= 255
    assert batches_of(again, 255) == batches_of(leader.log(), 255)
    eventually(lambda: {node.log().start_offset for node in replicas.nodes.values()} == {255})


def test_an_answer_about_a_topic_that_was_made_anew_changes_nothing_of_the_new_one(replicas, monkeypatch):
    replicas.create_topic(segment_bytes=1_024)
    leader, third = replicas.leader(), replicas.followers()[-1]
    replicas.stop(third.number)
    for number in range(50):
        produced(leader, encode_batch([b"%d" % number] * 10))
    leader.broker.delete_records("t", 0, 255)
    first_batch, asked, go_on = Fetcher._first_batch, threading.Event(), threading.Event()

    def held(fetcher, one, offset):
        found = first_batch(fetcher, one, offset)
        if not found["error_code"]:
            asked.set()
            go_on.wait(30)
        return found

    monkeypatch.setattr(Fetcher, "_first_batch", held)
    third = replicas.start(third.number)
    assert asked.wait(30)
    third.watches.clear()
    topic = replicas.controller.state.topics["t"]
    replicas.controller.propose(commands.DeleteTopic("t", topic.topic_id))
    replicas.controller.propose(commands.CreateTopic("t", TOPIC_ID, topic.config, 1, 3))
    third.watches.set()
    eventually(third.manager._applying.locked)
    go_on.set()
    replicas.settle()
    assert produced(replicas.leader(), encode_batch([b"new"])) == (Code.NONE, 0)
    eventually(lambda: len(replicas.controller.partition().in_sync) == 3)
    equal(replicas)
    assert third.log().start_offset == 0


@pytest.mark.parametrize("replicas", [{"lag_ms": 1500}], indirect=True)
def test_a_new_leader_tells_its_end_once_it_knows_what_is_committed(replicas):
    replicas.create_topic()
    first = replicas.leader()
    produced(first, encode_batch([b"0"]))
    second, third = replicas.followers()
    eventually(lambda: second.log().high_watermark == 1)
    third.manager.close()
    first.watches.clear()
    assert produced(first, encode_batch([b"1"]), acks=1)[0] is Code.NONE
    eventually(lambda: second.log().end_offset == 2)
    replicas.stop(first.number)
    eventually(lambda: second.led)
    partition = {"partition_index": 0, "timestamp": -1}
    values = {"replica_id": -1, "topics": [{"name": "t", "partitions": [partition]}]}
    found = asked(second, 2, LIST_OFFSETS_REQUEST, LIST_OFFSETS_RESPONSE, 6, values)["topics"][0]["partitions"][0]
    assert (Code(found["error_code"]), found["offset"]) == (Code.OFFSET_NOT_AVAILABLE, -1)
    replicas.start(first.number)
    eventually(lambda: second.log().high_watermark == 2)
    found = asked(second, 2, LIST_OFFSETS_REQUEST, LIST_OFFSETS_RESPONSE, 6, values)["topics"][0]["partitions"][0]
    assert (Code(found["error_code"]), found["offset"]) == (Code.NONE, 2)


def test_a_duplicate_is_answered_once_its_original_is_committed(replicas):
    replicas.create_topic()
    leader, image = replicas.leader(), batch([b"x"], 7, 0, 0)
    for node in replicas.followers():
        node.manager.close()
    assert produced(leader, image, timeout_ms=200)[0] is Code.REQUEST_TIMED_OUT
    assert produced(leader, image, timeout_ms=200)[0] is Code.REQUEST_TIMED_OUT  # it is in the log, and only there
    assert leader.log().end_offset == 1


def test_producers_and_transactions_are_known_to_the_next_leader(replicas):
    replicas.create_topic()
    first = replicas.leader()
    sender = Sender(first.log(), 7)
    for number in range(3):
        assert produced(first, sender.image(b"%d" % number)) == (Code.NONE, number)
        last, sender.sequence = sender.image(b"%d" % number), sender.sequence + 1
    replicas.stop(first.number)
    second = replicas.leader()
    eventually(lambda: second.led)
    assert produced(second, last) == (Code.NONE, 2)  # a retry
    assert produced(second, sender.image(b"3")) == (Code.NONE, 3)


def next_leader(replicas):
    """The node that leads after the leader was asked to leave."""
    replicas.controller.propose(commands.DrainBroker(replicas.leader().number, draining=True))
    replicas.settle()
    return replicas.leader()


def test_batches_that_overtake_others_on_their_way_to_the_next_leader_are_there_once(replicas):
    """librdkafka takes NOT_LEADER_OR_FOLLOWER for "not stored", and may send a later batch to the next leader first.

    If that one answered OUT_OF_ORDER_SEQUENCE_NUMBER, it would take a new epoch, and send again under it what is stored.
    """
    replicas.create_topic()
    first, (zero, one, two, three) = replicas.leader(), [batch([b"%d" % number], 7, 0, number) for number in range(4)]
    assert produced(first, zero) == (Code.NONE, 0)
    first.log().append_batches(one)  # its client gets no answer
    eventually(lambda: set(ends(replicas).values()) == {2})
    second = next_leader(replicas)
    assert second is not first
    assert produced(second, three)[0] is Code.NOT_LEADER_OR_FOLLOWER
    assert [produced(second, image) for image in (one, two, three)] == [(Code.NONE, 1), (Code.NONE, 2), (Code.NONE, 3)]
    equal(replicas)


def test_a_gap_that_nothing_on_its_way_can_fill_is_refused_for_good(replicas):
    replicas.create_topic()
    for producer_id in (7, 8):
        assert produced(replicas.leader(), batch([b"x"], producer_id, 0, 0))[0] is Code.NONE
    leader = next_leader(replicas)
    assert produced(leader, batch([b"x"], 7, 0, 1))[0] is Code.NONE
    assert produced(leader, batch([b"x"], 7, 0, 3))[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER  # it sent its last batch here
    assert produced(leader, batch([b"x"], 8, 0, 1, base_timestamp=9 * BASE_TIMESTAMP))[0] is Code.INVALID_TIMESTAMP
    assert produced(leader, batch([b"x"], 8, 0, 2))[0] is Code.OUT_OF_ORDER_SEQUENCE_NUMBER  # the one before was refused here


def test_a_leader_that_leaves_commits_what_it_has_and_takes_no_more(replicas):
    replicas.create_topic()
    leader = replicas.leader()
    offsets = leader.log().append_batches(encode_batch([b"x"] * 10))
    leader.manager.hand_over(20)
    assert leader.log().high_watermark == offsets.stop
    assert produced(leader, encode_batch([b"y"]))[0] is Code.NOT_LEADER_OR_FOLLOWER
    assert leader.log().end_offset == offsets.stop
    assert produced(next_leader(replicas), encode_batch([b"y"])) == (Code.NONE, offsets.stop)


def test_many_partitions_have_one_fetch(replicas):
    replicas.create_topic(partitions=40)
    for partition in range(40):
        assert produced(replicas.leader("t", partition), encode_batch([b"%d" % partition]), partition=partition)[0] is Code.NONE
    for partition in range(40):
        equal(replicas, partition=partition)
    assert {len(node.manager._fetchers) for node in replicas.nodes.values()} == {2}


def test_an_append_over_http_waits_for_the_replicas_too(replicas):
    replicas.create_topic()
    leader = replicas.leader()
    routes = {
        "/logdb/v1/topics/t/partitions/0/batches": ("application/vnd.logdb.batches", encode_batch([b"x"])),
        "/topics/t/partitions/0": ("application/vnd.kafka.binary.v2+json", b'{"records": [{"value": "eA=="}]}'),
    }
    for count, (path, (kind, body)) in enumerate(routes.items(), 1):
        request = urllib.request.Request(leader.url + path, body, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200
        assert {node.log().flushed_offset for node in replicas.nodes.values()} == {count}
    request = urllib.request.Request(leader.url + next(iter(routes)) + "?durability=fsync", encode_batch([b"x"]), {"Content-Type": kind})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    caught.value.close()
    assert leader.log().end_offset == 2


def test_an_embedded_append_waits_for_the_replicas(replicas):
    replicas.create_topic()
    leader = replicas.leader()
    session = leader.server._access.session(ANONYMOUS, "127.0.0.1")
    assert session.log("t").append(b"0") == 0
    assert session.log("t").append_many([b"1", b"2"]) == range(1, 3)
    assert {node.log().flushed_offset for node in replicas.nodes.values()} == {3}
    for node in replicas.followers():
        node.fence()
    eventually(lambda: leader.manager._led["t", 0]._leader.in_sync_count == 1)
    with pytest.raises(NotEnoughReplicas):
        session.log("t").append(b"3")


# ---------------------------------------------------------------- strangers and old requests


def fetch_values(cluster, node, **changes):
    partition = {"partition": 0, "current_leader_epoch": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "flushed_offset": 0}
    topic = {"topic": "t", "logdb_topic_id": cluster.controller.state.topics["t"].topic_id, "partitions": [partition]}
    values = {"replica_id": node.number, "replica_epoch": node.broker_epoch, "max_wait_ms": 0, "max_bytes": 1 << 20, "topics": [topic]}
    for where in (values, topic, partition):
        where |= {name: value for name, value in changes.items() if name in where}
    return values


def fetched(node, values, token=TOKEN):
    answer = asked(node, *fetch_request(values, 1)[:4], values, token=token)
    code = answer["error_code"] or answer["responses"][0]["partitions"][0]["error_code"]
    return Code(code)


def test_a_follower_is_one_of_the_cluster(replicas):
    replicas.create_topic()
    values = fetch_values(replicas, replicas.followers()[0])
    assert fetched(replicas.leader(), values, token=None) is Code.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"replica_epoch": 0}, Code.STALE_BROKER_EPOCH),
        ({"replica_id": 9}, Code.NOT_LEADER_OR_FOLLOWER),
        ({"current_leader_epoch": 5}, Code.UNKNOWN_LEADER_EPOCH),
        ({"current_leader_epoch": -1}, Code.FENCED_LEADER_EPOCH),
        ({"logdb_topic_id": "another"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 3}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"fetch_offset": 77}, Code.OFFSET_OUT_OF_RANGE),
    ],
)
def test_what_a_followers_fetch_is_refused_for(replicas, changes, code):
    replicas.create_topic()
    follower = replicas.followers()[0]
    assert fetched(replicas.leader(), fetch_values(replicas, follower, **changes)) is code


def test_an_end_that_was_never_flushed_is_not_believed_past_the_log(replicas):
    replicas.create_topic()
    leader, followers = replicas.leader(), replicas.followers()
    for node in followers:
        node.manager.close()
    for node in followers:
        fetched(leader, fetch_values(replicas, node, flushed_offset=10**12, fetch_offset=0) | {"max_bytes": 0, "max_wait_ms": 0})
    assert leader.log().high_watermark == 0


def test_epochs_are_told_of_the_topic_that_is_meant(replicas):
    replicas.create_topic()
    partition = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    values = {"replica_id": 2, "topics": [{"topic": "t", "logdb_topic_id": "another", "partitions": [partition]}]}
    answer = asked(replicas.leader(), *epochs_request(values, 1)[:4], values, token=TOKEN)
    assert answer["topics"][0]["partitions"][0]["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION


# ---------------------------------------------------------------- disks


def test_a_leader_whose_disk_fails_a_sync_leads_no_more(tmp_path):
    io = FaultyIO()
    io.device = lambda path: -7  # the other nodes' disks are others
    with Replicas(tmp_path, 2, lag_ms=300) as cluster:
        cluster.options["io"] = io
        failing = cluster.start(3)
        cluster.create_topic(partitions=3)
        partition = next(number for number in range(3) if cluster.leader("t", number) is failing)
        assert produced(failing, encode_batch([b"0"]), partition=partition)[0] is Code.NONE
        io.fail("fdatasync")
        code, _ = produced(failing, encode_batch([b"1"]), partition=partition, timeout_ms=5_000)
        assert code in (Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR)
        eventually(lambda: cluster.controller.partition("t", partition).leader != 3)
        other = cluster.leader("t", partition)
        eventually(lambda: ((("t", partition), cluster.controller.partition("t", partition).leader_epoch)) in other.led)
        eventually(lambda: [record.value for record in other.log("t", partition).read(0)][:1] == [b"0"])
        io.heal()


class StalledIO(FaultyIO):
    """A disk whose syncs of one log hang while ``stalled`` is set."""

    def __init__(self):
        super().__init__()
        self.stalled, self.is_over = threading.Event(), threading.Event()

    def fdatasync(self, fd):
        if self.stalled.is_set():
            self._step("asked to sync", "")
            self.is_over.wait(30)
        super().fdatasync(fd)


def test_a_leader_whose_flush_hangs_gives_its_partitions_away(tmp_path, caplog):
    io = StalledIO()
    with Replicas(tmp_path, 2, lag_ms=300) as cluster:
        cluster.options |= {"io": io, "stall_ms": 200}
        stalling = cluster.start(3)
        cluster.create_topic(partitions=3)
        partition = next(number for number in range(3) if cluster.leader("t", number) is stalling)
        assert produced(stalling, encode_batch([b"0"]), partition=partition)[0] is Code.NONE
        io.stalled.set()
        try:
            assert produced(stalling, encode_batch([b"1"]), partition=partition, timeout_ms=10_000)[0] is Code.NOT_LEADER_OR_FOLLOWER
            assert cluster.controller.partition("t", partition).leader != 3
            for _ in range(3):
                stalling.manager._look_at_disk()
            assert sum("has not ended" in one.getMessage() for one in caplog.records) == 1
        finally:
            io.is_over.set()
        eventually(lambda: any("syncs return again" in one.getMessage() for one in caplog.records))


def test_a_disk_that_hangs_while_topics_are_created_keeps_no_leadership(tmp_path):
    """The state with the topic waits for the disk; a later one, which elects another leader, still ends the leadership."""
    io = StalledIO()
    with Replicas(tmp_path, 2, lag_ms=300) as cluster:
        cluster.options["io"] = io
        stalling = cluster.start(3)
        cluster.create_topic(partitions=3)
        partition = next(number for number in range(3) if cluster.leader("t", number) is stalling)
        led = stalling.manager.leads("t", partition)
        io.stalled.set()
        try:
            syncs = io.count("asked to sync")
            cluster.controller.propose(commands.CreateTopic("new", f"{TOPIC_ID}new"[-22:], {}, 1, 3))
            io.wait_for("asked to sync", more_than=syncs)
            stalling.fence()
            state = cluster.controller.partition("t", partition)
            assert state.leader not in (None, 3)
            eventually(lambda: led.is_over, timeout_s=10)
            with pytest.raises(NotLeaderOrFollower) as raised:
                stalling.manager.leads("t", partition)
            assert raised.value.leader == state.leader
            assert stalling.applied < cluster.controller.state.index
        finally:
            io.is_over.set()
        cluster.settle()


def test_a_leader_with_a_full_disk_gives_its_partitions_away_and_comes_back(tmp_path, caplog):
    io = FaultyIO()
    with Replicas(tmp_path, 2, lag_ms=300) as cluster:
        cluster.options["io"] = io
        full = cluster.start(3)
        cluster.create_topic(partitions=3)
        partition = next(number for number in range(3) if cluster.leader("t", number) is full)
        assert produced(full, encode_batch([b"0"]), partition=partition)[0] is Code.NONE
        full.log("t", partition).append_batches(encode_batch([b"1"]), durability="os")
        io.fail("pwrite", errno.ENOSPC, ".log")
        code, _ = produced(full, encode_batch([b"2"]), partition=partition, timeout_ms=5_000)
        assert code in (Code.KAFKA_STORAGE_ERROR, Code.NOT_LEADER_OR_FOLLOWER)
        eventually(lambda: cluster.controller.partition("t", partition).leader not in (None, 3))
        other = cluster.leader("t", partition)
        eventually(lambda: (("t", partition), cluster.controller.partition("t", partition).leader_epoch) in other.led)
        assert produced(other, encode_batch([b"3"]), partition=partition, timeout_ms=10_000)[0] is Code.NONE
        assert 3 not in cluster.controller.partition("t", partition).in_sync
        assert len([one for one in caplog.records if "no room" in one.getMessage().lower() or "full" in one.getMessage().lower()]) < 20
        io.heal()
        eventually(lambda: 3 in cluster.controller.partition("t", partition).in_sync)
        equal(cluster, "t", partition)


@pytest.mark.parametrize(("call", "number"), [("pwrite", errno.ENOSPC), ("fdatasync", errno.EIO)])
def test_a_follower_whose_disk_is_full_or_fails_says_so_once(tmp_path, caplog, call, number):
    io = FaultyIO()
    io.device = lambda path: -8  # the other nodes' disks are others
    with Replicas(tmp_path, 2, lag_ms=300) as cluster:
        cluster.options["io"] = io
        follower = cluster.start(3)
        cluster.create_topic(partitions=3)
        where = next(TopicPartition("t", number) for number in range(3) if cluster.leader("t", number) is not follower)
        leader = cluster.leader(*where)
        followed = follower.manager._fetchers[leader.number]._partitions[where]
        assert produced(leader, encode_batch([b"0"]), partition=where.partition)[0] is Code.NONE
        io.fail(call, number, ".log")
        for _ in range(3):
            tried = io.count(call), followed.retry_ms
            assert produced(leader, encode_batch([b"1"]), partition=where.partition)[0] is Code.NONE
            eventually(lambda tried=tried: (io.count(call), followed.retry_ms) > tried)
        told = [one.getMessage() for one in caplog.records if one.name.endswith(".fetcher") and one.levelname == "WARNING"]
        assert len(told) == (call == "pwrite"), told
        assert sum("no longer leads any partition" in one.getMessage() for one in caplog.records) == (call == "fdatasync")
        io.heal()
        if call == "pwrite":
            equal(cluster, *where)


def test_a_replica_of_a_topic_that_the_disk_had_no_room_for_is_made_once_there_is_some(tmp_path, caplog):
    io = FaultyIO()
    with Replicas(tmp_path, 2, lag_ms=300) as cluster:
        cluster.options["io"] = io
        full = cluster.start(3)
        io.fail("pwrite", errno.ENOSPC, "topic.json")
        cluster.create_topic()
        eventually(lambda: len(cluster.controller.partition().in_sync) == 2)
        tried = io.count("pwrite")
        eventually(lambda: io.count("pwrite") > tried + 2)
        told = [one.getMessage() for one in caplog.records if one.name.startswith("logdb_replication") and one.levelname == "ERROR"]
        assert len(told) == 2, told
        io.heal()
        eventually(lambda: full.number in cluster.controller.partition().in_sync)
        equal(cluster)


def removed_from(cluster, number):
    """Let the others have the partition; returns once the node's log is to be emptied."""
    others = tuple(one for one in cluster.nodes if one != number)
    before = cluster.controller.partition()
    cluster.controller.propose(commands.Reassign("t", cluster.controller.state.topics["t"].topic_id, 0, others, before.replicas))
    eventually(lambda: cluster.controller.partition().is_elsewhere(number))


def test_a_log_that_was_moved_off_a_full_disk_is_emptied_once_there_is_room(tmp_path, caplog):
    io = FaultyIO()
    with Replicas(tmp_path, 2, lag_ms=300) as cluster:
        cluster.options["io"] = io
        full = cluster.start(3)
        cluster.create_topic()
        assert produced(cluster.leader(), encode_batch([b"0"]))[0] is Code.NONE
        equal(cluster)
        io.fail("pwrite", errno.ENOSPC, "topic.json")
        tried = io.count("pwrite", "topic.json")
        removed_from(cluster, 3)
        eventually(lambda: io.count("pwrite", "topic.json") > tried + 2)
        assert full.log().end_offset == 1
        assert sum("cannot be emptied" in one.getMessage() for one in caplog.records) == 1
        io.heal()
        eventually(lambda: full.log().end_offset == 0)


def test_a_log_that_was_moved_while_its_node_was_away_is_emptied(replicas):
    replicas.create_topic()
    away = replicas.followers()[-1]
    assert produced(replicas.leader(), encode_batch([b"0"]))[0] is Code.NONE
    equal(replicas)
    replicas.stop(away.number)
    removed_from(replicas, away.number)
    back = replicas.start(away.number)
    replicas.settle()
    assert back.log().end_offset == 0


def test_a_full_disk_without_another_replica_in_sync_is_tried_again_now_and_then(tmp_path, caplog):
    io = FaultyIO()
    with Replicas(tmp_path, 1, io=io) as cluster:
        (full,) = cluster.nodes.values()
        cluster.create_topic(min_insync_replicas=1)
        assert produced(full, encode_batch([b"0"]))[0] is Code.NONE
        io.fail("pwrite", errno.ENOSPC, ".log")
        before = io.count("pwrite")
        assert produced(full, encode_batch([b"1"]), timeout_ms=3_000)[0] is not Code.NONE
        threading.Event().wait(2)  # long enough for a loop without a pause to come round thousands of times
        assert io.count("pwrite") - before < 200
        assert len(caplog.records) < 30
        io.heal()
        eventually(lambda: produced(full, encode_batch([b"2"]))[0] is Code.NONE)


def test_the_session_has_lapsed(replicas):
    replicas.create_topic()
    leader = replicas.leader()
    leader.manager.is_lapsed = True
    assert produced(leader, encode_batch([b"x"]), acks=1)[0] is Code.NOT_LEADER_OR_FOLLOWER
    assert produced(leader, encode_batch([b"x"])) == (Code.NONE, 0)  # that rests on the in-sync set alone
    with pytest.raises(NotLeaderOrFollower):  # the log of a newer leader may go on
        leader.broker.submit(CommittedEnd(TopicPartition("t", 0)))
    leader.manager.is_lapsed = False
    assert leader.broker.submit(CommittedEnd(TopicPartition("t", 0))) == 1


# ---------------------------------------------------------------- damage


def grown(replicas, count=40):
    """Some sealed segments, on all replicas."""
    replicas.create_topic(segment_bytes=1_024)
    for number in range(count):
        assert produced(replicas.leader(), encode_batch([b"%d" % number * 50]))[0] is Code.NONE
    equal(replicas)


def damage(node, segment=1):
    """Flip a byte of a sealed segment."""
    path = sorted(Path(node.log().directory).glob("*.log"))[segment]
    flip(path, 80)
    return path


def as_a_client(node, offset=0):
    values = {"topic": "t", "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10 << 20}]}
    values = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10 << 20, "isolation_level": 0, "topics": [values]}
    answer = asked(node, *fetch_request(values, 1)[:4], values)
    return answer["responses"][0]["partitions"][0]


def found(node):
    """Read to the damage."""
    with pytest.raises(CorruptionError):
        offset = 0
        while offset < node.log().end_offset:
            _, offset = node.log().read_batches(offset, replica=True)


def test_a_damaged_follower_leaves_the_in_sync_set_and_is_fetched_again(replicas, caplog):
    grown(replicas)
    follower = replicas.followers()[0]
    damage(follower)
    found(follower)
    eventually(lambda: follower.number not in replicas.controller.partition().in_sync or follower.log().damage is None)
    eventually(lambda: follower.log().damage is None and follower.number in replicas.controller.partition().in_sync)
    eventually(lambda: not list(Path(follower.log().directory).glob("*.damaged")))
    assert produced(replicas.leader(), encode_batch([b"on"]))[0] is Code.NONE
    equal(replicas)
    assert any("is damaged" in record.getMessage() for record in caplog.records)
    assert verify(follower.path).ok


@pytest.mark.parametrize("replicas", [{"scrub": 1 << 30}], indirect=True)
@pytest.mark.parametrize("which", ["follower", "leader"])
def test_damage_that_no_client_reads_is_found_and_fetched_again(replicas, which):
    grown(replicas)
    node = replicas.leader() if which == "leader" else replicas.followers()[0]
    path = damage(node)
    flipped = path.read_bytes()
    node.store.writer.scrub._owed_bytes = node.log().size_bytes  # a whole pass
    node.store.writer.scrub.background.hasten("scrub")
    eventually(lambda: not path.exists() or path.read_bytes() != flipped)
    eventually(lambda: node.log().damage is None and node.number in replicas.controller.partition().in_sync)
    eventually(lambda: not list(Path(node.log().directory).glob("*.damaged")))
    equal(replicas)
    assert verify(node.path).ok


def test_a_damaged_leader_gives_its_leadership_away_and_is_fetched_again(replicas):
    grown(replicas)
    first = replicas.leader()
    path = damage(first)
    answer = as_a_client(first, int(path.name[:20]))
    assert Code(answer["error_code"]) is Code.KAFKA_STORAGE_ERROR
    assert not answer["records"]
    eventually(lambda: replicas.controller.partition().leader not in (None, first.number))
    eventually(lambda: first.log().damage is None and first.number in replicas.controller.partition().in_sync)
    eventually(lambda: replicas.leader().led)
    assert produced(replicas.leader(), encode_batch([b"on"]))[0] is Code.NONE
    equal(replicas)


def test_a_damaged_leader_that_has_the_only_replica_in_sync_is_kept(replicas, caplog):
    grown(replicas)
    first = replicas.leader()
    for follower in replicas.followers():
        follower.manager.close()
        replicas.controller.propose(commands.RegisterBroker(follower.number, "lost", {}, unclean=True))
    assert replicas.controller.partition().in_sync == (first.number,)
    path = damage(first)
    index = replicas.controller.state.index
    assert Code(as_a_client(first, int(path.name[:20]))["error_code"]) is Code.KAFKA_STORAGE_ERROR
    eventually(lambda: any("is kept as it is" in record.getMessage() for record in caplog.records))
    assert replicas.controller.partition().leader == first.number
    assert replicas.controller.state.index <= index + 2  # nothing is asked again and again
    assert len(as_a_client(first)["records"]) > 0  # what is good
    assert not list(Path(first.log().directory).glob("*.damaged"))


def test_two_of_three_are_damaged_at_different_places(replicas):
    grown(replicas)
    first, (second, third) = replicas.leader(), replicas.followers()
    third.manager.close()
    replicas.controller.propose(commands.RegisterBroker(third.number, "lost", {}, unclean=True))
    sealed = {path.name for path in Path(second.log().directory).glob("*.log")}
    damage(first, 0)
    damage(second, 2)
    found(first)
    found(second)
    eventually(lambda: len(replicas.controller.partition().in_sync) == 1)
    (left,) = replicas.controller.partition().in_sync
    eventually(lambda: replicas.controller.partition().leader == left)
    lost = second if left == first.number else first
    files = {path.name.removesuffix(".damaged") for path in Path(lost.log().directory).glob("*.log*")}
    assert sealed <= files  # it cannot be whole; what it had stays, where it was or set aside


@pytest.mark.parametrize("replicas", [{"count": 1}], indirect=True)
def test_damage_is_looked_for_while_leaderships_begin(replicas):
    manager, made, raised = replicas.nodes[1].manager, threading.Event(), []

    def look():
        try:
            while not made.is_set():
                manager._look_for_damage()
        except (RuntimeError, KeyError) as error:
            raised.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    replicas.create_topic(partitions=200, min_insync_replicas=1)
    made.set()
    looking.join()
    assert not raised
    assert len(manager._led) == 200


def test_a_leader_answers_what_it_has_before_its_first_replica_leads_again(tmp_path, monkeypatch):
    """R1 waits for the replicas at the leader; R2 is refused there until the next leader has R1, and comes behind it."""
    monkeypatch.setattr(managers, "PREFER_INTERVAL_MS", 600_000)
    with Replicas(tmp_path, lag_ms=60_000) as replicas:
        replicas.create_topic()
        first = replicas.controller.partition().preferred_leader
        leader = next_leader(replicas)
        assert leader.number != first

        def begin():
            replicas.controller.propose(commands.DrainBroker(first, draining=False))
            monkeypatch.setattr(managers, "PREFER_INTERVAL_MS", 100)
            leader.manager._prefer_ms = 0

        check_order_of_a_handover(replicas, leader, monkeypatch, begin)
        assert replicas.leader().number == first


@pytest.mark.parametrize("replicas", [{"lag_ms": 60_000}], indirect=True)
def test_a_leader_answers_what_it_has_before_a_reassignment_takes_it_away(replicas, monkeypatch):
    replicas.create_topic(partitions=1)
    replicas.start(4)
    leader, before = replicas.leader(), replicas.controller.partition().replicas
    topic_id = replicas.controller.state.topics["t"].topic_id
    target = (*(node for node in before if node != leader.number), 4)
    check_order_of_a_handover(
        replicas, leader, monkeypatch, lambda: replicas.controller.propose(commands.Reassign("t", topic_id, 0, target, before))
    )
    assert replicas.leader().number in target


def test_a_leader_answers_what_it_has_before_a_reassignment_to_nodes_in_sync_takes_it_away(tmp_path, monkeypatch):
    with Replicas(tmp_path, lag_ms=60_000) as replicas:
        replicas.create_topic()
        leader, before = replicas.leader(), replicas.controller.partition().replicas
        target = tuple(node for node in before if node != leader.number)

        def begin():
            replicas.controller.propose(commands.Reassign("t", replicas.controller.state.topics["t"].topic_id, 0, target, before))

        check_order_of_a_handover(replicas, leader, monkeypatch, begin)
        assert replicas.controller.partition().replicas == target


@pytest.mark.parametrize("is_all", [False, True])
def test_a_leader_answers_what_it_has_before_an_election_that_was_asked_for(tmp_path, monkeypatch, is_all):
    monkeypatch.setattr(managers, "PREFER_INTERVAL_MS", 600_000)
    with Replicas(tmp_path, lag_ms=60_000) as replicas:
        replicas.create_topic()
        leader = next_leader(replicas)
        first, epoch = replicas.controller.partition().preferred_leader, replicas.controller.partition().leader_epoch
        replicas.controller.propose(commands.DrainBroker(first, draining=False))
        topic_id = replicas.controller.state.topics["t"].topic_id
        command = commands.PreferLeaders(in_order=True) if is_all else commands.ElectPreferred("t", topic_id, 0, epoch, in_order=True)
        check_order_of_a_handover(replicas, leader, monkeypatch, lambda: replicas.controller.propose(command))
        assert replicas.leader().number == first


@pytest.mark.parametrize("replicas", [{"lag_ms": 60_000}], indirect=True)
def test_a_leader_that_is_drained_answers_what_it_has_before_another_one_leads(replicas, monkeypatch):
    replicas.create_topic()
    leader = replicas.leader()
    drain = commands.DrainBroker(leader.number, draining=True, in_order=True)
    check_order_of_a_handover(replicas, leader, monkeypatch, lambda: replicas.controller.propose(drain))


def syncs_of_a_start_after_a_crash(path, partitions):
    """How often a node of so many partitions waits for its disk until it follows all leaders, as it was when it ran."""
    with Replicas(path) as replicas:
        replicas.create_topic(partitions=partitions)
        for partition in range(partitions):
            assert produced(replicas.leader("t", partition), encode_batch([b"x"]), partition=partition)[0] is Code.NONE
        shutil.copytree(path / "3", path / "as it ran")
        replicas.stop(3)
        shutil.rmtree(path / "3")
        (path / "as it ran").rename(path / "3")
        replicas.options["io"] = io = FaultyIO()
        started = replicas.start(3)
        replicas.settle()
        count = sum(io.count(kind) for kind in ("fdatasync", "fsync_dir", "sync_file_system"))
        eventually(lambda: all(3 in replicas.controller.partition("t", partition).in_sync for partition in range(partitions)))
        assert not started.store.was_closed
        return count


def test_a_start_after_a_crash_waits_for_the_disk_as_often_with_many_partitions(tmp_path):
    assert syncs_of_a_start_after_a_crash(tmp_path / "few", 3) + 10 >= syncs_of_a_start_after_a_crash(tmp_path / "many", 60)


def test_what_was_committed_in_an_epoch_stays_committed_once_it_is_over(replicas):
    """An append that waits hears of the end before it has looked again."""
    replicas.create_topic()
    leader = replicas.leader()
    led = leader.manager.leads("t", 0)
    end = leader.log().append_batches(encode_batch([b"x"])).stop
    commit(led, end)
    next_leader(replicas)
    eventually(lambda: led.is_over and leader.log().follows)
    assert led.is_committed(end)
    commit(led, end)
    for look in (led.is_committed, partial(commit, led)):
        with pytest.raises(NotLeaderOrFollower):
            look(end + 1)


def check_order_of_a_handover(replicas, leader, monkeypatch, begin):
    """Another leader is elected only once R1 is committed; meanwhile R2 is refused, and R1 answered with success."""
    answers, at_election, moves = [], [], threading.Event()
    commit_all = handover.commit_all

    def look(partitions, now_ms, timeout_s):
        answers.append(produced(leader, batch([b"R2"], 7, 0, 1)))
        moves.set()
        commit_all(partitions, now_ms, 20)
        at_election.append((replicas.leader(), leader.log().high_watermark))

    monkeypatch.setattr(handover, "commit_all", look)
    followers = [node for node in replicas.nodes.values() if node is not leader]
    held = threading.Event()
    flush_each = [node.manager._flushers.each for node in followers]
    for node, each in zip(followers, flush_each, strict=True):
        monkeypatch.setattr(node.manager._flushers, "each", lambda *arguments, each=each: held.wait(60) and each(*arguments))
    first = []
    waiting = threading.Thread(target=lambda: first.append(produced(leader, batch([b"R1"], 7, 0, 0))))
    waiting.start()
    eventually(lambda: leader.log().end_offset == 1)
    begin()
    assert moves.wait(60)
    assert not first
    held.set()
    eventually(lambda: replicas.leader() is not leader)
    eventually(lambda: leads(replicas.leader()))  # it learns of its election a moment later
    waiting.join(20)
    assert first == [(Code.NONE, 0)]
    assert answers[0][0] is Code.NOT_LEADER_OR_FOLLOWER
    assert at_election[0] == (leader, 1)
    for _ in range(2):
        assert produced(replicas.leader(), batch([b"R2"], 7, 0, 1)) == (Code.NONE, 1)
        assert produced(replicas.leader(), batch([b"R1"], 7, 0, 0)) == (Code.NONE, 0)
    assert [record.value for record in replicas.leader().log().read(0)] == [b"R1", b"R2"]
