"""What a client does when the server, or the way to it, fails: nothing is lost, nothing is there twice."""

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest

import logdb
from logdb.access.session import AuthorizedSession
from logdb.errors import (
    Closed,
    Forked,
    LogdbError,
    NotEnoughReplicas,
    NotLeaderAfterAppend,
    NotLeaderOrFollower,
    ServerUnavailable,
    TopicExists,
    UnexpectedOffset,
)
from logdb.model import TopicPartition
from logdb_http_api.remote import connection
from logdb_http_api.remote.batch_requests import FetchRequest
from logdb_http_api.remote.connections import Connections
from logdb_http_api.remote.exchange import Exchange
from logdb_http_api.remote.writing import Upload
from support.batches import encode_batch
from support.ports import free_port
from support.proxy import FETCH, PRODUCE, proxied, served_elsewhere
from support.serving import served
from support.waiting import until


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        yield server


@pytest.fixture
def proxy(server):
    with proxied(server.url) as proxy:
        yield proxy


@pytest.fixture
def db(proxy):
    with logdb.open(proxy.url) as db:
        yield db


def values(db, topic="t", **options):
    return [record.value for record in db.log(topic).read(0, **options)]


# ---------------------------------------------------------------- an answer that does not come


def test_an_append_whose_answer_is_lost_is_there_once(db, proxy):
    log = db.log("t")
    assert log.append(b"a") == 0
    for number in range(1, 4):
        proxy.cut_answers = 1
        assert log.append(b"%d" % number) == number
    assert proxy.cut_count == 3
    assert values(db) == [b"a", b"1", b"2", b"3"]


def test_a_conditional_append_whose_answer_is_lost_has_its_own_offset(db, proxy):
    log = db.log("t")
    log.append(b"a")
    proxy.cut_answers = 1
    assert log.append(b"b", expected_offset=1) == 1
    with pytest.raises(UnexpectedOffset):
        log.append(b"c", expected_offset=1)
    assert values(db) == [b"a", b"b"]


def test_many_records_and_each_answer_is_lost_once(db, proxy):
    expected = [os.urandom(1000) for _ in range(6000)]
    log = db.log("t")
    proxy.marked, proxy.cut_answers = PRODUCE, 4
    assert log.append_many(expected) == range(6000)
    assert proxy.cut_count == 4
    assert values(db) == expected


def test_an_error_that_is_kept_keeps_nobody_from_appending_more(server):
    with logdb.open(server.url) as db:
        log = db.log("t")
        with pytest.raises(UnexpectedOffset) as kept:
            log.append(b"a", expected_offset=1)
        for count in range(1, 6):
            log.append_many([b"b" * 1000] * count)
        assert log.end_offset == sum(range(1, 6))
        assert kept.value.end_offset == 0


def test_five_requests_are_under_way_on_one_connection_once_it_is_known_where_the_first_went(server, monkeypatch):
    send, before, connections = Upload._send, [], set()

    def counted(upload, body, record_count):
        before.append(len(upload._under_way))
        send(upload, body, record_count)
        connections.add(upload._under_way[-1].exchange._connection)

    monkeypatch.setattr(Upload, "_send", counted)
    with logdb.open(server.url) as db:
        expected = [os.urandom(1000) for _ in range(6000)]
        assert db.log("t").append_many(expected) == range(6000)
        assert before[:2] == [0, 0]
        assert before[2:6] == [1, 2, 3, 4]
        assert set(before[6:]) == {4}
        assert len(connections) == 1
        assert connections <= set(db._base.connections._idle), "it is kept for later"
        assert values(db) == expected


@pytest.fixture
def interrupted(monkeypatch):
    """Have Ctrl-C come at the end of so many calls to come of a method of connections."""

    def interrupt(name, count=1):
        left, method = [count], getattr(connection.ServerConnection, name)

        def called(each, *args):
            result = method(each, *args)
            if left[0]:
                left[0] -= 1
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(connection.ServerConnection, name, called)

    return interrupt


@pytest.mark.parametrize("moment", ["send", "begin", "receive"])
def test_an_append_that_ctrl_c_ends_takes_none_with_it(server, interrupted, moment):
    with logdb.open(server.url) as db:
        log = db.log("t")
        log.append(b"a")
        interrupted(moment)
        with pytest.raises(KeyboardInterrupt):
            log.append(b"b")
        until(lambda: server.database.log("t").end_offset == 2, "what was sent to be appended")
        assert log.append(b"c") == 2
        assert values(db) == [b"a", b"b", b"c"]
        assert not db._base.connections._busy, "and its connection is closed"


@pytest.mark.parametrize("moment", ["send", "begin", "receive"])
def test_a_request_that_ctrl_c_ends_keeps_no_connection(server, interrupted, moment):
    with logdb.open(server.url) as db:
        interrupted(moment)
        with pytest.raises(KeyboardInterrupt):
            db.topics()
        assert not db._base.connections._busy


@pytest.mark.parametrize("moment", ["_lent", "give_back"])
def test_a_connection_that_ctrl_c_lets_fall_is_closed(server, monkeypatch, moment):
    with logdb.open(server.url) as db:
        connections = db._base.connections
        connections._idle.pop().close()
        method, fallen = getattr(Connections, moment), []

        def interrupted(each, lent):
            monkeypatch.setattr(Connections, moment, method)
            fallen.append(lent._wire.sock)
            raise KeyboardInterrupt

        monkeypatch.setattr(Connections, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            db.topics()
        gc.collect()
        assert not connections._busy
        assert fallen[0].fileno() == -1


def test_an_error_that_is_kept_keeps_no_memory_from_growing(db):
    log = db.log("t")
    log.append(b"a")
    with pytest.raises(UnexpectedOffset) as kept:
        log.append(b"b", expected_offset=77)
    assert [log.append(bytes(1000)) for _ in range(4)] == [1, 2, 3, 4]
    assert kept.value.__traceback__ is not None


def test_nothing_is_sent_behind_what_could_not_be_sent(server, monkeypatch):
    send, behind = connection.ServerConnection.send, []

    def broken(each, *args):
        if not behind:
            behind.append(each)
            raise TimeoutError("only half of it went")
        behind.append(each)
        send(each, *args)

    with logdb.open(server.url) as db:
        connections = db._base.connections
        monkeypatch.setattr(connection.ServerConnection, "send", broken)
        fetch = FetchRequest(TopicPartition("t", 0), 0, 1, committed=False)
        first = Exchange(connections, fetch)
        second = Exchange(connections, fetch, behind=first)
        assert [each.answer().next_offset for each in (first, second)] == [0, 0]
        assert behind[0] not in behind[1:]


def test_a_producer_whose_answers_are_lost(db, proxy):
    with db.producer(linger_ms=0, batch_size=1000) as producer:
        proxy.marked, proxy.cut_answers = PRODUCE, 5
        futures = [producer.send("t", b"%d" % number * 10) for number in range(2000)]
    assert [future.result().offset for future in futures] == list(range(2000))
    assert proxy.cut_count == 5
    assert values(db) == [b"%d" % number * 10 for number in range(2000)]


@pytest.mark.parametrize("call", [b"init_producer_id", b"end_transaction", PRODUCE])
def test_a_transaction_of_which_an_answer_is_lost(db, proxy, call):
    with db.transaction("id") as tx:
        tx.send("t", b"0")
    proxy.marked, proxy.cut_answers = call, 1
    for number in range(1, 3):
        with db.transaction("id" if number == 1 else "other") as tx:
            tx.send("t", b"%d" % number)
    assert proxy.cut_count == 1
    assert values(db, isolation_level="read_committed") == [b"0", b"1", b"2"]


def test_what_was_done_is_no_error_at_the_second_try(db, proxy):
    db.create_topic("u")
    db.reset_offsets("g", {("t", 0): 0})
    for call, done in (
        (b"delete_topic", lambda: db.delete_topic("u")),
        (b"delete_group", lambda: db.delete_group("g")),
        (b"create_topic", lambda: db.create_topic("v", if_not_exists=True)),
        (b"alter_topic", lambda: db.alter_topic("t", partitions=2)),
    ):
        proxy.marked, proxy.cut_answers = call, 1
        done()
    assert proxy.cut_count == 4
    assert [(info.name, info.partition_count) for info in db.topics()] == [("t", 2), ("v", 1)]


def test_what_might_be_done_twice_is_not_tried_again(db, proxy):
    proxy.marked, proxy.cut_answers = b"create_topic", 1
    with pytest.raises(ServerUnavailable, match="not known"):
        db.create_topic("u")
    with pytest.raises(TopicExists):
        db.create_topic("u")


def test_deleting_all_records_deletes_no_later_ones(db, server, proxy):
    db.log("t").append_many([b"x"] * 3)
    proxy.marked, proxy.cut_answers = b"delete_records", 1
    assert db.delete_records("t", 0, -1) == 3
    db.log("t").append(b"y")
    assert [record.value for record in server.database.log("t").read(3)] == [b"y"]


def test_reading_goes_on_where_the_connection_broke(db, proxy):
    expected = [os.urandom(1000) for _ in range(5000)]
    db.log("t").append_many(expected)
    records = db.log("t").read(0)
    read = [next(records).value for _ in range(10)]
    proxy.marked, proxy.cut_answers = FETCH, 2
    read += [record.value for record in records]
    assert proxy.cut_count == 2
    assert read == expected


def test_what_comes_next_is_asked_for_before_all_of_an_answer_has_come(db, proxy):
    expected = [os.urandom(1000) for _ in range(12_000)]
    db.log("t").append_many(expected)
    records = db.log("t").read(0)
    read = [next(records).value]
    proxy.marked, proxy.hold_answers = FETCH, 3
    read += [record.value for record in records]
    assert read == expected
    assert proxy.held_count == 3


def test_time_that_the_reader_takes_is_not_the_servers(db, proxy, monkeypatch):
    """What was asked for ahead is lost while the reader does something else for a minute: it is asked for again."""
    expected = [os.urandom(1000) for _ in range(12_000)]
    db.log("t").append_many(expected)
    proxy.marked, proxy.cut_answers = FETCH, 1  # the first that is asked ahead
    records = db.log("t").read(0)
    read = [next(records).value for _ in range(600)]
    monkeypatch.setattr("logdb_http_api.remote.connections.time", SimpleNamespace(monotonic=lambda: time.monotonic() + 60))
    read += [record.value for record in records]
    assert read == expected
    assert proxy.cut_count == 1


def test_an_answer_that_breaks_off_and_ends_elsewhere_when_it_comes_again(server, proxy, db):
    """Compaction has put other batches there; what was asked for after the first answer is of no use."""
    server.database.create_topic("c", config={"cleanup.policy": "compact", "segment.bytes": 4 << 20})
    writer = server.database.log("c")
    for number in range(12_000):
        writer.append(b"%d" % number + bytes(1000), b"%d" % (number % 6_000))
    records = db.log("c").read(0)
    read = [next(records)]
    compacted = []

    def meanwhile():
        compacted.append(server.database.compact("c"))
        return True

    proxy.marked, proxy.hold_answers, proxy.meanwhile = FETCH, 1, meanwhile
    read += records
    assert compacted and proxy.cut_count == 1
    offsets = [record.offset for record in read]
    assert offsets == sorted(set(offsets))
    assert {record.key: record.value for record in read} == {record.key: record.value for record in writer.read(0)}


# ---------------------------------------------------------------- a server that is killed


def test_a_server_that_is_killed_under_its_clients(tmp_path):  # noqa: C901 -- three clients, each a loop
    with served_elsewhere(tmp_path / "db") as server, logdb.open(server.url) as db:
        db.create_topic("many")
        db.create_topic("sent")
        stop, done, seen, failures = threading.Event(), threading.Event(), [], []

        def append():
            while not stop.is_set():
                start = db.log("many").end_offset
                offsets = db.log("many").append_many([b"%d" % number * 50 for number in range(start, start + 5000)])
                assert offsets == range(start, start + 5000)

        def send():
            with db.producer() as producer:
                number = 0
                while not stop.is_set():
                    for _ in range(1000):
                        producer.send("sent", b"%d" % number)
                        number += 1
                    producer.flush()

        def consume():
            with db.consumer("sent", group_id="g", auto_offset_reset="earliest") as consumer:
                while not (done.is_set() and len(seen) == db.log("sent").end_offset):
                    for records in consumer.poll(timeout_ms=100).values():
                        seen.extend(int(record.value) for record in records)

        def guarded(work):
            try:
                work()
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=guarded, args=(work,)) for work in (append, send, consume)]
        for thread in threads:
            thread.start()
        reader = db.log("many")
        for _ in range(3):
            reached = reader.end_offset + 10_000
            while reader.end_offset < reached and not failures:
                db.log("sent").offset_for_timestamp(0)
            server.kill()
            server.start()
        stop.set()
        for thread in threads[:2]:
            thread.join()
        done.set()
        threads[2].join()
        assert not failures
        count = reader.end_offset
        assert [record.value for record in reader.read(0)] == [b"%d" % number * 50 for number in range(count)]
        assert seen == list(range(db.log("sent").end_offset))


class Killed(BaseException):
    """As if the server was: an exception of its own would be answered."""


@pytest.mark.parametrize("others", [False, True])
def test_a_crash_in_the_middle_of_a_call(server, monkeypatch, others):
    """The log keeps the first requests of a call, the last of them unanswered; perhaps another appends before it comes again."""
    append, kept = AuthorizedSession.append, []

    def crashing(session, request, batches, **options):
        offsets = append(session, request, batches, **options)
        if not kept and offsets.start and len(batches) > 200_000:
            kept.append(range(offsets.stop))
            if others:
                server.database.append("t", b"of another")
            raise Killed
        return offsets

    monkeypatch.setattr(AuthorizedSession, "append", crashing)
    expected = [os.urandom(1000) for _ in range(3000)]
    with logdb.open(server.url) as db:
        log = db.log("t")
        if others:
            with pytest.raises(UnexpectedOffset) as raised:
                log.append_many(expected)
            assert raised.value.offsets == kept[0]
            assert values(db) == [*expected[: len(kept[0])], b"of another"]
            assert log.append(b"next") == len(kept[0]) + 1
        else:
            assert log.append_many(expected) == range(3000)
            assert values(db) == expected
    assert 0 < len(kept[0]) < 1000


# ---------------------------------------------------------------- no server, another server


def test_no_server():
    urls = [f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"]
    began = time.monotonic()
    with pytest.raises(ServerUnavailable) as raised:
        logdb.open(urls, timeout_ms=300)
    assert time.monotonic() - began < 5
    assert raised.value.urls == tuple(urls)
    assert all(url in str(raised.value) for url in urls)
    assert raised.value.retriable


def test_a_server_that_closes_every_connection(caplog):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_all():
            with contextlib.suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    client.recv(1 << 16)
                    client.close()

        thread = threading.Thread(target=close_all)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ServerUnavailable, match=f"no server answers at {url}: the server has closed the connection"):
            logdb.open(url, timeout_ms=200, connect_timeout_ms=200)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "ConnectionClosed" not in caplog.text


def test_a_server_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ServerUnavailable):
        logdb.open(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_ms=200)


def test_the_next_of_several_urls(server):
    with logdb.open([f"http://127.0.0.1:{free_port()}", server.url]) as db:
        assert db.log("t").append(b"x") == 0


@pytest.mark.parametrize(
    "url", ["http://", "http:///x", "http://h:99999", "http://h:x", "http://h/?a=b", "http://user:secret@h:1/#x"], ids=repr
)
def test_a_url_that_is_none(url):
    with pytest.raises(ValueError, match="must be http://host:port") as raised:
        logdb.open(url)
    assert "secret" not in str(raised.value)


# ---------------------------------------------------------------- the handle


def test_closing_ends_what_waits(server):
    db = logdb.open(server.url)
    followed = threading.Event()
    failures = []

    def follow():
        try:
            for _ in db.log("t").follow(0):
                followed.set()
        except LogdbError as error:
            failures.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    db.log("t").append(b"x")
    followed.wait()
    db.close()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(failures[0], Closed)
    for call in (db.topics, db.producer, lambda: db.log("t"), lambda: db.append("t", b"x")):
        with pytest.raises(Closed):
            call()
    db.close()


def test_a_child_opens_its_own(server):
    with logdb.open(server.url) as db:
        log = db.log("t")
        log.append(b"parent")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                log.append(b"child")
            except Forked:
                with logdb.open(server.url) as own:
                    code = 0 if own.log("t").append(b"own") == 1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert log.append(b"parent") == 2


def test_a_child_of_which_the_parent_is_appending_is_told_so_too(server):
    with logdb.open(server.url) as db:
        log = db.log("t")

        def records():
            yield b"a"
            pid = os.fork()
            if pid == 0:
                code = 1
                signal.alarm(10)  # instead of waiting for ever
                try:
                    log.append(b"child")
                except Forked:
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            yield b"b"

        assert log.append_many(records()) == range(2)


def test_credentials_are_nowhere_to_be_seen(server, monkeypatch):
    with_user = server.url.replace("://", "://alice:s3cret@")
    monkeypatch.setenv("LOGDB_TOKEN", "t0ken")
    for url, options in ((with_user, {}), (server.url, {"user": "alice", "password": "s3cret"}), (server.url, {})):
        with logdb.open(url, **options) as db:
            shown = f"{db!r} {db.path} {db._base.connections!r} {vars(db._base.connections)} {db.log('t')!r}"
            assert "s3cret" not in shown
            assert "t0ken" not in shown
    with pytest.raises(ServerUnavailable) as raised:
        logdb.open(f"http://alice:s3cret@127.0.0.1:{free_port()}", timeout_ms=10)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ValueError, match="both"):
        logdb.open(server.url, user="alice", token="t")


def test_several_threads_append_to_one_partition(server):
    with logdb.open(server.url) as db:

        def append(name):
            for number in range(50):
                db.log("t").append(b"%d %d" % (name, number))

        threads = [threading.Thread(target=append, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = values(db)
        assert len(written) == 400
        for name in range(8):
            assert [value for value in written if value.startswith(b"%d " % name)] == [b"%d %d" % (name, number) for number in range(50)]


def test_another_writer_between_two_requests_of_a_call(server):
    """What was appended of the call before is told: the rest is not."""
    with logdb.open(server.url) as db:
        log, other = db.log("t"), server.database.log("t")
        send, sent = Upload._send, []

        def interleaved(upload, body, record_count):
            if len(sent) == 1:
                other.append_many([b"other"])
            sent.append(record_count)
            send(upload, body, record_count)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Upload, "_send", interleaved)
            with pytest.raises(UnexpectedOffset) as raised:
                log.append_many([bytes(1000)] * 5000)
        assert raised.value.offsets == range(sent[0])
        assert "were appended" in raised.value.__notes__[0]
        assert log.append(b"next") == sent[0] + 1
        assert len(values(db)) == sent[0] + 2


# ---------------------------------------------------------------- consumers that wait


def test_a_member_that_waits_asks_less_and_less_and_is_told_of_records_at_once(tmp_path):
    """Looks after 0.1, 0.3, 0.7, 1.5 and 3.1 s, each a heartbeat and a long poll; every 100 ms would be 80 requests."""
    with served(tmp_path / "db") as server, logdb.open(server.url) as db:
        server.database.create_topic("t")
        with db.consumer("t", group_id="g") as consumer:
            while not consumer.assignment():
                consumer.poll(100)
            before = requests(server)
            assert consumer.poll(4_000) == {}
            assert requests(server) - before <= 25
            server.database.log("t").append(b"x")
            assert sum(map(len, consumer.poll(2_000).values())) == 1


def test_a_rebalance_of_a_group_that_has_been_quiet_is_seen_within_seconds(tmp_path):
    with served(tmp_path / "db") as server, logdb.open(server.url) as db:
        server.database.create_topic("t", partitions=2)
        with db.consumer("t", group_id="g") as first, db.consumer("t", group_id="g") as second:
            while len(first.assignment()) < 2:
                first.poll(100)
            first.poll(4_000)
            began = time.monotonic()
            while len(first.assignment()) != 1 or len(second.assignment()) != 1:
                second.poll(10)
                first.poll(10)
            assert time.monotonic() - began < 10


def requests(server):
    door, *_ = server.server._doors
    return door.access.metrics.counts().requests


def test_a_leader_that_another_node_names_and_that_does_not_answer(server, monkeypatch, caplog):
    leader = f"127.0.0.1:{free_port()}"

    def refuse(session, request, batches, **options):
        raise NotLeaderOrFollower(request.topic, request.partition, 2, 1)

    monkeypatch.setattr(AuthorizedSession, "append", refuse)
    monkeypatch.setattr("logdb.access.session.leader_address", lambda metadata, where: leader)
    with logdb.open(server.url, timeout_ms=1_000) as db:
        log = db.log("t")
        with pytest.raises(ServerUnavailable, match=f"the leader http://{leader}: Connection refused"):
            log.append(b"1")
    assert "no server answers" not in caplog.text
    assert caplog.text.count(f"http://{leader}, the leader of the partition, does not answer: Connection refused") == 1


@pytest.mark.local  # the server is of this process
@pytest.mark.parametrize(
    "later", [NotLeaderAfterAppend("t", 0, 1), NotEnoughReplicas("t", 0, 1, 2)], ids=lambda error: type(error).__name__
)
def test_an_append_whose_leader_was_replaced_is_no_call_to_make_again(server, monkeypatch, later):
    """The client sends it again, as the producer that it is; another call would be another producer's."""
    append, errors = AuthorizedSession.append, [NotLeaderAfterAppend("t", 0, 0)]

    def replaced(session, request, batches, **options):
        append(session, request, batches, **options)
        raise errors.pop() if errors else later.with_traceback(None)

    follow, refusals = Exchange._follow, []

    def out_of_time(exchange, error, said_by):
        refusals.append(error)
        if len(refusals) == 2:
            exchange._until = 0.0
        follow(exchange, error, said_by)

    monkeypatch.setattr(AuthorizedSession, "append", replaced)
    monkeypatch.setattr(Exchange, "_follow", out_of_time)
    with logdb.open(server.url) as db:
        with pytest.raises(type(later)) as caught:
            db.log("t").append(b"once")
        assert not caught.value.retriable
        monkeypatch.undo()
        assert values(server.database) == [b"once"]
        assert db.log("t").append(b"next") == 1


@pytest.mark.local
def test_a_batch_without_a_producer_is_not_sent_again_once_it_was_appended(server, monkeypatch):
    append = AuthorizedSession.append

    def replaced(session, request, batches, **options):
        append(session, request, batches, **options)
        raise NotLeaderAfterAppend("t", 0, 0)

    monkeypatch.setattr(AuthorizedSession, "append", replaced)
    with logdb.open(server.url) as db, pytest.raises(NotLeaderAfterAppend, match="a retry may append it twice"):
        db.log("t").append_batches(encode_batch([b"once"]))
    assert values(server.database) == [b"once"]


@pytest.mark.local
def test_a_batch_that_a_server_keeps_while_it_closes_is_not_sent_again(server, monkeypatch):
    append = AuthorizedSession.append

    def closing(session, request, batches, **options):
        offsets = append(session, request, batches, **options)
        error = Closed("the database is closed")
        error.offsets = offsets
        raise error

    monkeypatch.setattr(AuthorizedSession, "append", closing)
    with logdb.open(server.url) as db, pytest.raises(Closed):
        db.log("t").append_batches(encode_batch([b"once"]))
    assert values(server.database) == [b"once"]
