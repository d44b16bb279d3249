"""Errors that can follow an append: docs/inside/replication.md has them in a table.

R0 is acknowledged, R1 is appended at the leader and answered with an error.  The client then sends R2 first, as librdkafka may, and R1.
Each is in the log once: an answer that makes a client take a new producer epoch would have it send R1 again under that.
"""

import contextlib
import errno
import json
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logdb.broker.broker import Broker
from logdb.broker.dangling_transactions import DanglingTransactions
from logdb.client.serving import make_server
from logdb.codec import crc32c, messages
from logdb.codec.batch import first_batch
from logdb.errors import Closed, LogdbError
from logdb.model import TopicPartition
from logdb.requests import coding
from logdb.requests.error_document import rebuild
from logdb.serving import resources
from logdb.serving.server import Server
from logdb.store.store import Store
from logdb_http_api.protocol import AppendUploads, NamedUpload
from logdb_http_api.remote.connection import Security
from logdb_kafka_api.errors import Code, code_of
from logdb_replication.controller import commands
from logdb_replication.replica.peer import HttpPeer, PeerRequest
from support.batches import encode_batch
from support.faulty_io import FaultyIO
from support.kafka_wire import Wire
from support.produced import batch
from support.replicas import Node, Replicas, eventually


class Alone(NamedTuple):
    """A node without a cluster."""

    url: str
    kafka: str
    server: Server
    store: Store


BATCHES, UPLOADS = "/logdb/v1/topics/t/partitions/0/batches", "/logdb/v1/topics/t/partitions/0/uploads"
PRODUCER, TRANSACTIONAL_ID = 7, "tx"
TRY_AGAIN = {
    *(Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    *(Code.REQUEST_TIMED_OUT, Code.KAFKA_STORAGE_ERROR, Code.CORRUPT_MESSAGE),
}
"""What librdkafka and Java's client send again in the same producer epoch."""
Answer = tuple[Code, int]


# ---------------------------------------------------------------- how a batch is sent: the code of the answer, and the base offset


def by_kafka(node: Node, image: bytes, **values: Any) -> Answer:
    with Wire(node.kafka, 60) as wire:
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": image}]}]
        answer = wire.ask("Produce", 9, **{"acks": -1, "timeout_ms": 20_000, "topic_data": topics} | values)
    found = answer["responses"][0]["partition_responses"][0]
    return Code(found["error_code"]), found["base_offset"]


def by_frames(node: Node, image: bytes) -> Answer:
    """As logdb's own producer: a frame on a connection of HTTP that was upgraded."""
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": image}]}]
    values = {"acks": -1, "timeout_ms": 20_000, "topic_data": topics, "detailed": True}
    peer = HttpPeer(node.url, Security())
    try:
        asked = PeerRequest(messages.PRODUCE, messages.PRODUCE_REQUEST, messages.PRODUCE_RESPONSE, 12, values, 1_000)
        found = peer.ask(asked, 60)["responses"][0]["partition_responses"][0]
    finally:
        peer.cut()
    return Code(found["error_code"]), found["base_offset"]


def by_http(node: Node, image: bytes, query: str = "") -> Answer:
    return posted(node, f"{BATCHES}{query}", "application/vnd.logdb.batches", image)


def in_a_transaction(node: Node, image: bytes) -> Answer:
    return by_http(node, image, f"?transactional_id={TRANSACTIONAL_ID}")


def by_uploads(node: Node, image: bytes) -> Answer:
    """The upload is there already; the request that names it has the producer."""
    name = uuid.uuid4().hex
    node.server._named["http"].uploads.keep("", TopicPartition("t", 0), name, image)
    body = AppendUploads([NamedUpload(name, crc32c(image))], PRODUCER, 0, first_batch(image).sequence)
    return posted(node, UPLOADS, "application/json", coding.encode(body))


def posted(node: Node, path: str, kind: str, body: bytes) -> Answer:
    try:
        with urllib.request.urlopen(urllib.request.Request(node.url + path, body, {"Content-Type": kind}), timeout=60) as answer:
            return Code.NONE, json.loads(answer.read())["base_offset"]
    except urllib.error.HTTPError as error:
        with error:
            refused = rebuild(json.loads(error.read()))
        assert refused is not None
        return code_of(refused), -1


WAYS = {"kafka": by_kafka, "frames": by_frames, "http": by_http, "transactional": in_a_transaction, "uploads": by_uploads}
Way = Callable[[Node, bytes], Answer]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch) -> Way:
    monkeypatch.setattr(Broker, "_add_own", lambda *_: None)  # the coordinator has the partition in the transaction
    return WAYS[request.param]


# ---------------------------------------------------------------- how R1 fails, once the leader has appended it


class Story:
    """A cluster whose leader has acknowledged R0, if there is one, and appends R1; its followers write, and report it after ``go_on``."""

    def __init__(self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch, way: Way, *, first: int = 0, replicated: bool = True) -> None:
        replicas.create_topic()
        self.replicas, self.way, self.first, self.is_replicated = replicas, way, first, replicated
        self.images = [batch([b"R%d" % number], PRODUCER, 0, number - first, transactional=way is in_a_transaction) for number in range(6)]
        self.leader, self._held, self.is_over = replicas.leader(), threading.Event(), []
        if first == 0:
            assert self.send(0) == (Code.NONE, 0)
        for node in replicas.followers():
            each = node.manager._flushers.each
            monkeypatch.setattr(node.manager._flushers, "each", lambda *given, each=each: self._held.wait(60) and each(*given))
        if not replicated:  # they wait with another batch
            self.leader.log().append_batches(encode_batch([b"before"]), durability="os")
            eventually(lambda: self.ends() == {1 + (first == 0)})

    def send(self, number: int, node: Node | None = None) -> Answer:
        return self.way(node or self.leader, self.images[number])

    def ends(self) -> set[int]:
        return {node.log().end_offset for node in self.replicas.nodes.values() if not node._stopped}

    def fails(self, fail: Callable[[], object]) -> Code:
        """Append R1 at the leader, and have it fail; the code of its answer."""
        answers: list[Answer] = []
        before = self.leader.log().end_offset
        sending = threading.Thread(target=lambda: answers.append(self.send(1)))
        sending.start()
        eventually(lambda: self.leader.log().end_offset == before + 1)
        if self.is_replicated:
            eventually(lambda: self.ends() == {before + 1})
        fail()
        sending.join(60)
        return answers[0][0]

    def go_on(self) -> None:
        self._held.set()

    def settled(self) -> None:
        """All nodes know who leads; the leader may be another one."""
        self.go_on()
        self.replicas.settle()
        self.leader = self.replicas.leader()
        eventually(lambda: leads(self.leader))

    def ends_well(self) -> None:
        """R2 comes first, then R1, then R2 again: each is acknowledged, and in the log once."""
        code, _ = self.send(2)
        assert code in {Code.NONE, *TRY_AGAIN}, code
        sent = [self.send(number) for number in (1, 2, 2, 1)]
        assert [code for code, _ in sent] == [Code.NONE] * 4
        assert sent[0] == sent[3]
        assert sent[1] == sent[2]
        assert sent[0][1] < sent[1][1]
        values = [record.value for record in self.leader.log().read(0) if record.value != b"before"]
        assert values == [b"R0", b"R1", b"R2"][self.first :]


def leads(node: Node) -> bool:
    try:
        node.manager.leads("t", 0).check_append(acknowledged_by_all=True)
    except LogdbError:
        return False
    return True


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, lag_ms=60_000) as cluster:
        yield cluster


first = pytest.mark.parametrize("first", [0, 1], ids=["known producer", "first batch"])
replicated = pytest.mark.parametrize("replicated", [True, False], ids=["replicated", "not replicated"])


@replicated
@first
def test_the_leader_is_replaced(replicas, monkeypatch, way, first, replicated):
    story = Story(replicas, monkeypatch, way, first=first, replicated=replicated)
    former = story.leader
    assert story.fails(former.fence) is Code.NOT_LEADER_OR_FOLLOWER
    story.settled()
    assert story.leader is not former
    story.ends_well()


@replicated
def test_the_replicas_do_not_answer_in_time(replicas, monkeypatch, way, replicated):
    monkeypatch.setattr(resources, "COMMIT_WAIT_MS_MAX", 300)
    story = Story(replicas, monkeypatch, way, replicated=replicated)
    assert story.fails(lambda: None) is Code.REQUEST_TIMED_OUT
    story.settled()
    story.ends_well()


@replicated
@first
def test_the_replicas_do_not_answer_in_time_and_the_leader_is_replaced(replicas, monkeypatch, way, first, replicated):
    monkeypatch.setattr(resources, "COMMIT_WAIT_MS_MAX", 300)
    story = Story(replicas, monkeypatch, way, first=first, replicated=replicated)
    assert story.fails(lambda: None) is Code.REQUEST_TIMED_OUT
    story.leader.fence()
    story.settled()
    monkeypatch.undo()
    monkeypatch.setattr(Broker, "_add_own", lambda *_: None)
    story.ends_well()


def test_too_few_replicas_are_left(replicas, monkeypatch, way):
    """R2 is refused meanwhile; R3 is sent before the client knows of it."""
    story = Story(replicas, monkeypatch, way)
    followers = replicas.followers()
    assert story.fails(lambda: [node.fence() for node in followers]) is Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert story.send(2)[0] is Code.NOT_ENOUGH_REPLICAS
    for node in followers:
        node.unfence()
    story.settled()
    eventually(lambda: leads(story.leader))
    assert story.send(3)[0] in TRY_AGAIN
    story.ends_well()


@contextlib.contextmanager
def with_a_disk_of_its_own(path: Path, count: int = 3) -> Iterator[tuple[Replicas, FaultyIO]]:
    """A cluster whose leader, node 1, has a disk of its own."""
    io = FaultyIO()
    io.device = lambda _: -8
    with Replicas(path, 0, lag_ms=2_000) as replicas:
        replicas.options["io"] = io
        replicas.start(1)
        del replicas.options["io"]
        for number in range(2, count + 1):
            replicas.start(number)
        yield replicas, io


def test_a_sync_of_the_leader_fails(tmp_path, monkeypatch, way):
    with with_a_disk_of_its_own(tmp_path) as (replicas, io):
        story = Story(replicas, monkeypatch, way)
        each, synced = story.leader.manager._flushers.each, threading.Event()
        monkeypatch.setattr(story.leader.manager._flushers, "each", lambda *given: synced.wait(60) and each(*given))
        io.fail("fdatasync", errno.EIO, ".log")
        assert story.fails(synced.set) is Code.NOT_LEADER_OR_FOLLOWER
        eventually(lambda: replicas.leader().number != 1)
        story.settled()
        story.ends_well()


def test_the_disk_of_the_leader_is_full(tmp_path, monkeypatch, way):
    """The leader keeps R1 in memory, and refuses R2; R3 comes when there is room again."""
    with with_a_disk_of_its_own(tmp_path, 1) as (replicas, io):
        replicas.controller.propose(commands.CreateTopic("t", "id-of-the-topic-00000t", {"min.insync.replicas": 1}, 1, 1))
        replicas.settle()
        monkeypatch.setattr(Replicas, "create_topic", lambda _: None)
        story = Story(replicas, monkeypatch, way)
        io.fail("pwrite", errno.ENOSPC, ".log")
        assert story.send(1)[0] is Code.KAFKA_STORAGE_ERROR
        assert story.send(2)[0] is Code.KAFKA_STORAGE_ERROR
        io.heal()
        eventually(lambda: story.leader.log().flushed_offset == 2)
        assert story.send(3)[0] in TRY_AGAIN
        story.ends_well()


@pytest.mark.parametrize("end", ["the connection is cut", "the listener drains", "the process dies"])
def test_there_is_no_answer(replicas, monkeypatch, end):
    story = Story(replicas, monkeypatch, by_kafka)
    former = story.leader
    with Wire(former.kafka) as wire:
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": story.images[1]}]}]
        wire.send("Produce", 9, acks=-1, timeout_ms=20_000, topic_data=topics)
        eventually(lambda: story.ends() == {2})
        if end == "the listener drains":
            former.server.close()
            with contextlib.suppress(EOFError, OSError):
                assert wire.receive()[-30:]
    if end == "the process dies":
        story.go_on()
        replicas.stop(former.number)
    else:
        former.fence()
    story.settled()
    assert story.leader is not former
    story.ends_well()


# ---------------------------------------------------------------- a batch that was refused for now, and the one behind it


def test_a_leader_that_was_about_to_leave_stays(replicas, monkeypatch, way):
    story = Story(replicas, monkeypatch, way)
    story.go_on()
    led = story.leader.manager.leads("t", 0)
    led.refuse_appends()
    assert story.send(1)[0] is Code.NOT_LEADER_OR_FOLLOWER
    led.take_appends()
    story.ends_well()


@first
def test_too_few_replicas_were_in_sync_for_a_moment(replicas, monkeypatch, way, first):
    """Of a producer that the leader does not know, R2 would be taken as its first batch; librdkafka then counts R1 as stored, too."""
    story = Story(replicas, monkeypatch, way, first=first)
    story.go_on()
    followers = replicas.followers()
    for node in followers:
        node.fence()
    eventually(lambda: not leads(story.leader))
    assert story.send(1)[0] is Code.NOT_ENOUGH_REPLICAS
    for node in followers:
        node.unfence()
    eventually(lambda: leads(story.leader))
    assert story.send(2)[0] is Code.NOT_LEADER_OR_FOLLOWER
    assert story.send(1)[0] is Code.NONE  # before R2 is sent again, as clients do
    story.ends_well()


@pytest.mark.parametrize("way", [by_kafka, by_frames, by_http])
def test_a_batch_was_damaged_on_its_way(replicas, monkeypatch, way):
    """Kafka's clients send it again; those of logdb do not."""
    story = Story(replicas, monkeypatch, way)
    story.go_on()
    damaged = bytearray(story.images[1])
    damaged[-1] ^= 1
    assert way(story.leader, bytes(damaged))[0] is Code.CORRUPT_MESSAGE
    assert story.send(2)[0] is Code.NOT_LEADER_OR_FOLLOWER
    story.ends_well()


def test_a_producer_that_goes_on_in_the_middle_is_refused_once(replicas, monkeypatch):
    """Its earlier batches may be deleted: then nothing comes before."""
    story = Story(replicas, monkeypatch, by_kafka)
    story.go_on()
    image = batch([b"5"], 99, 0, 5)
    assert by_kafka(story.leader, image)[0] is Code.NOT_LEADER_OR_FOLLOWER
    assert by_kafka(story.leader, image) == (Code.NONE, 1)
    assert by_kafka(story.leader, batch([b"6"], 99, 0, 6)) == (Code.NONE, 2)


@contextlib.contextmanager
def one_node(path: Path, io: FaultyIO | None = None, durability: str = "os") -> Iterator[Alone]:
    """A database that is served, without a cluster."""
    store = Store.open(path, durability=durability, io=io)
    broker = Broker(store, store)
    if not broker.topics():
        broker.create_topic("t")
    server = make_server(broker, {"http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}, drain_ms=0).start()
    try:
        yield Alone(*server.addresses, server, store)
    finally:
        server.close()
        broker.close()
        store.close()


@pytest.mark.parametrize("known", [1, 0], ids=["known producer", "first batch"])
def test_a_server_of_its_own_whose_disk_was_full(tmp_path, monkeypatch, way, known):
    """The large batch finds no room, the small one behind it does."""
    io = FaultyIO()
    transactional = way is in_a_transaction
    with one_node(tmp_path / "db", io) as node:
        if known:
            assert way(node, batch([b"R0"], PRODUCER, 0, 0, transactional=transactional)) == (Code.NONE, 0)
        large = batch([b"x" * 5_000], PRODUCER, 0, known, transactional=transactional)
        small = batch([b"R2"], PRODUCER, 0, known + 1, transactional=transactional)
        io.fail("pwrite", errno.ENOSPC, ".log")
        assert way(node, large)[0] is Code.KAFKA_STORAGE_ERROR
        io.heal()
        assert way(node, small)[0] is Code.NOT_LEADER_OR_FOLLOWER
        assert [way(node, image)[0] for image in (large, small, small, large)] == [Code.NONE] * 4
        values = [record.value for record in node.store.open_log("t").read(0)]
        assert values == [*[b"R0"] * known, b"x" * 5_000, b"R2"]


def test_a_sync_of_a_server_of_its_own_fails(tmp_path, monkeypatch, way):
    """Clients try again until the server was restarted."""
    io = FaultyIO()
    io.device = lambda _: -8
    images = [batch([b"R%d" % number], PRODUCER, 0, number, transactional=way is in_a_transaction) for number in range(3)]
    with one_node(tmp_path / "db", io, "fsync") as node:
        assert way(node, images[0]) == (Code.NONE, 0)
        io.fail("fdatasync", errno.EIO, ".log")
        assert [way(node, images[number])[0] for number in (1, 2, 1)] == [Code.KAFKA_STORAGE_ERROR] * 3
        io.heal()
    with one_node(tmp_path / "db", durability="fsync") as node:
        monkeypatch.setattr(DanglingTransactions, "end", lambda *_: None)
        assert [way(node, images[number]) for number in (1, 2, 1)] == [(Code.NONE, 1), (Code.NONE, 2), (Code.NONE, 1)]
        assert [record.value for record in node.store.open_log("t").read(0)] == [b"R0", b"R1", b"R2"]


def test_a_topic_that_is_deleted_under_an_append_costs_no_producer_epoch(replicas, monkeypatch):
    """librdkafka takes NETWORK_EXCEPTION for an error that no retry mends."""
    story = Story(replicas, monkeypatch, by_kafka)

    def closed(*_: object, **__: object) -> range:
        raise Closed("t-0 is closed: its topic was deleted")

    monkeypatch.setattr(type(story.leader.log()), "append_batches", closed)
    assert story.send(1)[0] is Code.NOT_LEADER_OR_FOLLOWER
    story.go_on()
