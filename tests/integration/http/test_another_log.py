"""A reader that waits at the end of a log finds out at once that another log has its name, or that its log has lost records."""

import asyncio
import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

import logdb
from integration.http.test_events import Client
from logdb import aio
from logdb.cli.records import consume
from logdb.client.mirror import Mirror
from logdb.errors import Closed, LogTruncated, OffsetOutOfRange, TopicDeleted
from logdb.model import KnownLog, OffsetAndMetadata, TopicPartition
from logdb_http_api.door.following import Following
from support.kafka_wire import Wire
from support.serving import Served, served
from support.waiting import until

LONG_MS = 30_000  # a reader that waits for so long has not noticed
GONE = Closed, TopicDeleted
NEW = pytest.mark.parametrize("count", [3, 5, 8], ids=["shorter", "equal", "longer"])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("another") / "db", kafka="127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def remote(server):
    with logdb.open(server.url) as remote:
        yield remote


@pytest.fixture
def db(place, server, remote):
    """The database as the reader has it; what becomes of topics is another client's doing."""
    return server.database if place == "path" else remote


topics = itertools.count()


@pytest.fixture
def topic(server):
    name = f"t{next(topics)}"
    make(server.database, name, b"old", 5)
    return name


def make(database, topic, value, count):
    database.create_topic(topic)
    database.log(topic).append_many([value] * count)


def recreate(server, topic, count):
    server.database.delete_topic(topic)
    make(server.database, topic, b"new", count)


def waits(server, topic):
    """Wait until a reader of the topic waits in the server."""
    until(lambda: any(key.log.topic == topic for door in server.server._doors for key in list(door.waits._bells)))


# ---------------------------------------------------------------- the topic was created again


@NEW
def test_an_iterator_that_follows(server, db, topic, count):
    follower = db.log(topic).follow(0, timeout_ms=LONG_MS)
    assert len(list(itertools.islice(follower, 5))) == 5
    recreate(server, topic, count)
    with pytest.raises(GONE, match=r"deleted.*take a new handle"):
        next(follower)
    assert {record.value for record in db.log(topic).read(0)} == {b"new"}


def test_an_iterator_that_waits_already(server, remote, topic):
    with ThreadPoolExecutor(1) as pool:
        follower = remote.log(topic).follow(5, timeout_ms=LONG_MS)
        waiting = pool.submit(next, follower)
        waits(server, topic)
        recreate(server, topic, 8)
        with pytest.raises(TopicDeleted):
            waiting.result(10)


@NEW
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_begins_with_the_first_record_of_the_new_topic(server, db, topic, count, reset):
    with db.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        assert sum(map(len, consumer.poll(LONG_MS).values())) == 5
        recreate(server, topic, count)
        assert [record.value for record in consumer.poll(LONG_MS)[topic, 0]] == [b"new"] * count


def test_asyncio(server, remote, topic):
    async def story():
        async with await aio.open(server.url) as db:
            following = aiter((await db.log(topic)).follow(0))
            for _ in range(5):
                await anext(following)
            recreate(server, topic, 5)
            with pytest.raises(TopicDeleted):
                await asyncio.wait_for(anext(following), 10)
            async with await db.consumer(auto_offset_reset="earliest") as consumer:
                await consumer.assign([(topic, 0)])
                await consumer.poll(LONG_MS)
                recreate(server, topic, 5)
                assert len((await asyncio.wait_for(consumer.poll(LONG_MS), 10))[topic, 0]) == 5

    asyncio.run(story())


def test_the_command_that_follows(server, remote, topic):
    source = consume.Source(remote.log(topic), 0, None)
    with contextlib.closing(consume.stream_of_server([source], timeout_ms=None)) as records:
        assert [record.value for record in itertools.islice(records, 5)] == [b"old"] * 5
        assert next(records) is None, "all are read"
        recreate(server, topic, 5)
        with pytest.raises(TopicDeleted):
            next(records)


@NEW
def test_a_stream_of_events(server, topic, count):
    for path in (f"/logdb/v1/topics/{topic}/partitions/0/events", f"/logdb/v1/topics/{topic}/events"):
        with Client(server.url, f"{path}?offset=earliest") as client:
            client.take(5)
            waits(server, topic)
            recreate(server, topic, count)
            event = client.next()
            assert event.kind == "error"
            assert event.data["error"] in {"TopicDeleted", "UnknownTopic"}, "the second: there is none yet"
            status, answer = server.call(f"{path}?topic_id=deleted", headers={"Last-Event-ID": client.last_id})
            assert (status, answer["error"]) == (404, "TopicDeleted")
        recreate(server, topic, 5)


@NEW
@pytest.mark.parametrize("version", [4, 12])
def test_a_fetch_of_kafkas_clients_that_waits(server, topic, count, version):
    with Wire(server.server.addresses[1]) as wire:
        partition = {"partition": 0, "fetch_offset": 5, "partition_max_bytes": 1 << 20}
        asked = {"max_wait_ms": LONG_MS, "min_bytes": 1, "isolation_level": 0, "topics": [{"topic": topic, "partitions": [partition]}]}
        sent = wire.send("Fetch", version, **asked)
        waits(server, topic)
        recreate(server, topic, count)
        (one,) = wire.answer("Fetch", version, sent)["responses"][0]["partitions"]
        assert (one["error_code"], one["records"]) == (3, b"")
        partition["fetch_offset"] = 100
        (one,) = wire.ask("Fetch", version, **asked)["responses"][0]["partitions"]
        assert one["error_code"] == 1, "at once"


def test_a_consumer_instance_of_rest_v2(server, topic):
    v2 = {"content_type": "application/vnd.kafka.v2+json"}
    made = {"auto.offset.reset": "earliest", "format": "binary"}
    instance = server.call("/consumers/rest", made, **v2)[1]["base_uri"].removeprefix(server.url)

    def values():
        return [one["value"] for one in server.call(f"{instance}/records?timeout={LONG_MS}", headers={"Accept": "*/*"})[1]]

    with contextlib.ExitStack() as stack:
        stack.callback(server.call, instance, method="DELETE")
        server.call(f"{instance}/assignments", {"partitions": [{"topic": topic, "partition": 0}]}, **v2)
        assert values() == ["b2xk"] * 5
        recreate(server, topic, 3)
        assert values() == ["bmV3"] * 3


def test_a_table(server, remote):
    make(server.database, "table", b"", 0)
    server.database.log("table").append_many([b"1", b"2"], keys=[b"a", b"b"])
    table = remote.table("table")
    assert dict(table) == {b"a": b"1", b"b": b"2"}
    recreate(server, "table", 0)
    server.database.log("table").append_many([b"3", b"4"], keys=[b"b", b"c"])
    assert dict(table) == {b"b": b"3", b"c": b"4"}


def test_a_mirror_takes_nothing_of_a_topic_that_is_younger_than_its_list(server, remote, topic, tmp_path):
    with logdb.open(tmp_path / "target") as target:
        mirror = Mirror(remote, target, [topic])
        prepare = mirror._prepare
        mirror._prepare = lambda info: (prepare(info), recreate(server, topic, 8))
        assert mirror.copy() == 0
        assert target.log(topic).end_offset == 0


# ---------------------------------------------------------------- handles, positions


def test_a_stale_handle_says_what_to_do(server, remote, topic):
    path = server.database.path
    with logdb.open(path, mode="r") as reader:
        for stale in (reader.log(topic), remote.log(topic)):
            assert len(list(stale.read(0))) == 5
            recreate(server, topic, 5)
            with pytest.raises(TopicDeleted, match=rf"'{topic}' was deleted and created again: .* db.log\('{topic}'\)") as caught:
                list(stale.read(0))
            assert caught.value.topic_id != caught.value.current_id == server.database.describe_topic(topic).topic_id
    assert len(list(remote.log(topic).read(0))) == 5


def test_a_read_never_goes_on_in_another_topic(server, remote, topic):
    server.database.log(topic).append_many([bytes(100_000)] * 60)
    records = iter(remote.log(topic).read(0))
    next(records)
    recreate(server, topic, 0)
    server.database.log(topic).append_many([bytes(100_000)] * 80)
    with pytest.raises(TopicDeleted):
        list(records)


def test_a_commit_for_a_topic_that_was_created_again_is_refused(server, db, topic):
    for number, offsets in enumerate((None, {(topic, 0): 4})):
        with db.consumer(group_id=f"g{number}-{topic}", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(topic)
            until(lambda consumer=consumer: consumer.poll(1_000))
            recreate(server, topic, 5)
            with pytest.raises(TopicDeleted):
                consumer.commit(offsets)
            assert consumer.committed((topic, 0)) is None
            until(lambda consumer=consumer: consumer.poll(1_000))
            consumer.commit()
            assert consumer.committed((topic, 0)).offset == 5


def test_so_are_the_offsets_of_a_transaction(server, db, topic):
    with db.consumer(topic, group_id=f"g-{topic}", auto_offset_reset="earliest") as consumer:
        until(lambda: consumer.poll(1_000))
        recreate(server, topic, 5)
        with pytest.raises(TopicDeleted), db.transaction(f"tx-{topic}") as tx:
            tx.send_offsets(consumer)
        assert consumer.committed((topic, 0)) is None


# ---------------------------------------------------------------- the server has lost records


@pytest.fixture
def lost(tmp_path):
    """A server with 20 records, of which a reader has seen 50: it was restored from an older backup."""

    @contextlib.contextmanager
    def restored():
        logdb.restore(tmp_path / "backup", tmp_path / "restored")
        with logdb.open(tmp_path / "restored") as database, logdb.serve(database, http=address):
            yield database

    with logdb.open(tmp_path / "db") as database, logdb.serve(database, http="127.0.0.1:0") as running:
        make(database, "t", b"old", 20)
        make(database, "empty", b"", 0)
        database.backup(tmp_path / "backup")
        for topic, count in (("t", 30), ("empty", 5)):
            database.log(topic).append_many([b"lost"] * count, keys=[b"k"] * count)
        address = running.addresses[0].removeprefix("http://")
        yield Served(database, running.addresses[0], running), restored


def test_a_server_that_was_restored(lost):
    before, restored = lost
    with logdb.open(before.url) as db:
        first, second, third = (db.log("t").follow(0, timeout_ms=LONG_MS) for _ in range(3))
        consumers = [db.consumer(auto_offset_reset="earliest") for _ in range(2)]
        for follower in (first, second, third):
            assert len(list(itertools.islice(follower, 50))) == 50
        for consumer in consumers:
            consumer.assign([("t", 0)])
            assert sum(map(len, consumer.poll(LONG_MS).values())) == 50
        of_empty = db.log("empty").follow(0, timeout_ms=LONG_MS)
        assert len(list(itertools.islice(of_empty, 5))) == 5
        before.server.close()
        with restored() as database:
            with pytest.raises(OffsetOutOfRange, match=r"offset 50 of t-0 is out of range: it holds \[0, 20\)"):
                next(first)
            with pytest.raises(LogTruncated):
                consumers[0].poll(LONG_MS)
            database.log("t").append_many([b"new"] * 30)
            with pytest.raises(LogTruncated):
                next(second)
            with pytest.raises(LogTruncated):
                consumers[1].poll(LONG_MS)
            database.log("t").append_many([b"new"] * 30)
            with pytest.raises(LogTruncated):
                next(third)
            database.log("empty").append_many([b"new"] * 8)
            with pytest.raises(LogTruncated):
                next(of_empty)
            for consumer in consumers:
                consumer.close()


@pytest.mark.parametrize("epoch", [0, 1], ids=["", "after a crash"])
@pytest.mark.parametrize("path", ["/logdb/v1/topics/t/partitions/0/events", "/logdb/v1/topics/t/events"])
def test_a_stream_of_events_that_comes_back_after_a_restore(lost, path, epoch):
    """An id without a leader epoch is one that a client has made itself."""
    before, restored = lost
    if epoch:
        before.database.log("t").begin_epoch(epoch)
        before.database.log("t").append(b"lost")
    with Client(before.url, f"{path}?offset=earliest") as client:
        client.take(50 + epoch)
    before.server.close()
    with restored() as database:
        database.log("t").append_many([b"new"] * 60)
        for last_id, status in ((client.last_id, 410), (client.last_id.removesuffix(f".{epoch}"), 200)):
            again = Client(before.url, path, Last_Event_ID=last_id)
            with contextlib.closing(again.connection), again.response:
                assert again.response.status == status


@pytest.fixture
def two(tmp_path):
    """A server of a topic whose partition 0 has 100 records; a restore leaves it 80."""

    @contextlib.contextmanager
    def running(path):
        with logdb.open(path) as database, logdb.serve(database, http="127.0.0.1:0") as server:
            yield Served(database, server.addresses[0], server)

    @contextlib.contextmanager
    def restored():
        logdb.restore(tmp_path / "backup", tmp_path / "restored")
        with running(tmp_path / "restored") as server:
            yield server

    with running(tmp_path / "db") as server:
        server.database.create_topic("t", partitions=2)
        server.database.log("t", 0).append_many([b"old"] * 80)
        server.database.backup(tmp_path / "backup")
        server.database.log("t", 0).append_many([b"lost"] * 20)
        yield server, restored


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_stream_that_began_at_the_end_knows_the_epochs_there(two, level):
    before, restored = two
    path = f"/logdb/v1/topics/t/events?isolation_level={level}"
    with Client(before.url, path) as client:
        assert client.block() == [":"], "it is open"
        before.database.log("t", 1).append(b"new")
        assert client.next().id == "100.0-1.0"
    before.server.close()
    with restored() as server:
        server.database.log("t", 0).append_many([b"new"] * 60)
        server.database.log("t", 1).append(b"new")
        again = Client(server.url, path, Last_Event_ID=client.last_id)
        with contextlib.closing(again.connection), again.response:
            assert again.response.status == 410


@pytest.mark.parametrize("count", [19, 20, 21], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("partition", [0, None])
def test_the_wait_of_a_stream_ends_in_another_history(two, partition, count):
    before, restored = two
    following = Following(before.database.session, "t", partition, ("binary", "binary"), "read_uncommitted", "")
    following.begin("latest", None)
    assert following.take() == b""
    place = TopicPartition("t", 0)
    assert (following.positions[place], following.known[place]) == (100, KnownLog(before.database.log("t").topic_id, 0))
    with restored() as server:
        server.database.log("t", 0).append_many([b"new"] * count)
        assert server.database.session.wait(following.positions, 0, known=following.known)
        following._session = server.database.session
        with pytest.raises((LogTruncated, OffsetOutOfRange)):
            following.take()


def test_a_position_behind_a_transactions_marker_has_its_epoch(lost):
    """Or a reader there would take the records of another history for its own."""
    before, restored = lost
    with logdb.open(before.url) as db:
        with db.transaction("tx") as tx:
            tx.send("t", b"lost")
        follower = db.log("t").follow(0, timeout_ms=LONG_MS)
        assert len(list(itertools.islice(follower, 51))) == 51
        with ThreadPoolExecutor(1) as pool, db.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            consumer.poll(LONG_MS)
            assert consumer.poll(100) == {}
            assert consumer.positions() == {TopicPartition("t", 0): OffsetAndMetadata(52, 0)}
            waiting = pool.submit(next, follower)
            waits(before, "t")
            before.server.close()
            with restored() as database:
                database.log("t").append_many([b"new"] * 60)
                with pytest.raises(LogTruncated):
                    waiting.result(10)
                with pytest.raises(LogTruncated):
                    consumer.poll(LONG_MS)
