"""Record batches in and out as they lie, of one partition and of several."""

import gzip
import json
import threading

import pytest

import logdb
from logdb.log.log import Log
from support.batches import Rec, encode_batch, encode_bytes, varint
from support.serving import served
from support.transactional import Writer
from support.waiting import until
from support.wire import wire

TYPE = "application/vnd.logdb.batches"


@pytest.fixture
def server(tmp_path):
    with served(tmp_path / "db") as it:
        it.database.create_topic("t", partitions=3)
        with wire(it.url) as line:
            until(lambda: line.ask("GET", path()).status == 200, "the node serves the topic")
        yield it


def path(partition=0, **query):
    return f"/logdb/v1/topics/t/partitions/{partition}/batches?" + "&".join(f"{name}={value}" for name, value in query.items())


def batch(*values):
    return encode_batch([Rec(value=value) for value in values])


def values(log: Log, offset=0):
    return [record.value for record in log.read(offset)]


def marks(said):
    return {
        name.removeprefix("logdb-"): int(value) for name, value in said.headers.items() if name.startswith("logdb-") and value.isdigit()
    }


# ---------------------------------------------------------------- in


def test_what_is_sent_is_there_as_it_was(server):
    log = server.database.log("t")
    assert server.call(path(), batch(b"a", b"b"), content_type=TYPE) == (200, {"base_offset": 0, "next_offset": 2})
    assert server.call(path(durability="fsync"), batch(b"c"), content_type=TYPE) == (200, {"base_offset": 2, "next_offset": 3})
    large = batch(*[bytes(1000)] * 500)
    assert server.call(path(), large, content_type=TYPE) == (200, {"base_offset": 3, "next_offset": 503})
    assert values(log)[:3] == [b"a", b"b", b"c"]
    assert log.view.flushed.offset >= 3, "an append at fsync is synced"
    assert server.call(path(), b"", content_type=TYPE) == (200, {"base_offset": 503, "next_offset": 503})


def test_a_conditional_append(server):
    assert server.call(path(expected_offset=0), batch(b"a"), content_type=TYPE)[0] == 200
    status, said = server.call(path(expected_offset=0), batch(b"b"), content_type=TYPE)
    assert (status, said["error_code"], said["error"], said["fields"]["end_offset"]) == (412, 41201, "UnexpectedOffset", 1)


def headed(count):
    """A batch of one record with so many headers, compressed."""
    record = b"\0\0\0" + encode_bytes(b"k") + encode_bytes(b"v") + varint(count) + (encode_bytes(b"h") + encode_bytes(b"")) * count
    return encode_batch([b"v"], body=gzip.compress(varint(len(record)) + record), codec=1)


def test_a_record_of_very_many_headers_is_refused(server):
    """Some kilobytes would be a gigabyte at each reader."""
    status, said = server.call(path(), headed(4_000_000), content_type=TYPE)
    assert (status, said["error"]) == (422, "InvalidBatch")
    assert "more than 100000 headers" in said["message"]
    assert server.call(path(), headed(100_000), content_type=TYPE) == (200, {"base_offset": 0, "next_offset": 1})
    (record,) = server.database.log("t").read(0)
    assert len(record.headers) == 100_000


def test_a_flush_waits_for_the_disk_unless_it_is_told_not_to(server):
    server.database.alter_topic("t", config={"durability": "os"})  # nothing else syncs
    log = server.database.log("t")
    flush = "/logdb/v1/topics/t/partitions/0/flush"
    for query, synced_offset in (("?sync=false", 0), ("?sync=true", 2), ("", 3)):
        server.call(path(durability="os"), batch(b"a"), content_type=TYPE)
        assert server.call(flush + query, b"")[0] == 200
        assert log.view.flushed.offset == synced_offset, query
    status, said = server.call(f"{flush}?sync=no", b"")
    assert (status, said["message"]) == (422, "sync='no': must be true or false")


def test_a_small_append_beside_large_ones(server):
    """Those on the loop and those in threads keep the order of one client, in either order."""
    large, done = batch(*[b"L" * 1000] * 900), []
    thread = threading.Thread(target=lambda: done.extend(server.call(path(), large, content_type=TYPE)[0] for _ in range(10)))
    thread.start()
    with wire(server.url) as line:
        offsets = [line.ask("POST", path(), batch(b"s"), {"Content-Type": TYPE}).json["base_offset"] for _ in range(100)]
    thread.join()
    assert done == [200] * 10
    assert offsets == sorted(offsets)
    log = server.database.log("t")
    assert [next(iter(log.read(offset))).value for offset in offsets] == [b"s"] * 100
    assert log.end_offset == 100 + 10 * 900


# ---------------------------------------------------------------- out


def test_what_is_read_lies_so_in_the_log(server):
    log = server.database.log("t")
    log.append_many([b"v%d" % offset for offset in range(10_000)])
    with wire(server.url) as line:
        got, offset = b"", 0
        while True:
            said = line.ask("GET", path(offset=offset, max_bytes=20_000))
            assert (said.status, said.headers["content-type"]) == (200, TYPE)
            if not said.body:
                break
            got, offset = got + said.body, marks(said)["next-offset"]
        assert got == bytes(log.read_batches(0, 1 << 30)[0])
        assert marks(said) == {
            "next-offset": 10_000, "start-offset": 0, "end-offset": 10_000, "readable-end-offset": 10_000, "last-stable-offset": 10_000,
            "leader-epoch": 0,
        }  # fmt: skip


def test_a_large_answer_is_whole(server):
    log = server.database.log("t")
    log.append_many([bytes(1000)] * 20_000)
    with wire(server.url) as line:
        said = line.ask("GET", path(max_bytes=30 << 20))
        assert said.body == bytes(log.read_batches(0, 30 << 20)[0])
        assert len(said.body) > 20_000_000


def test_a_position_that_was_lost(server):
    server.database.log("t").append_many([b"x"] * 3)
    assert server.call(path(offset=2, leader_epoch=0))[0] == 200
    status, said = server.call(path(offset=3, leader_epoch=5))
    assert (status, said["error"], said["fields"]["leader_epoch"]) == (410, "LogTruncated", 5)


def test_committed_records_only(server):
    session, log = server.database._session, server.database.log("t")
    log.append_many([b"plain"])
    aborted, committed, left_open = (Writer(session, name) for name in ("a", "c", "o"))
    for writer, value in ((aborted, b"an aborted one"), (committed, b"a committed one"), (left_open, b"an open one")):
        writer.write(("t", 0), value)
    aborted.end(commit=False)
    committed.end(commit=True)
    with wire(server.url) as line:
        said = line.ask("GET", path(offset=0, isolation_level="read_committed"))
        assert marks(said)["last-stable-offset"] == marks(said)["next-offset"] == marks(said)["readable-end-offset"] == 3
        assert b"plain" in said.body
        assert b"a committed one" in said.body
        assert b"an aborted one" not in said.body
        assert b"an open one" not in said.body
        assert b"an open one" in line.ask("GET", path(offset=0)).body
        said = line.ask("GET", path(offset=1, isolation_level="read_committed", max_bytes=1))
        assert (said.body, marks(said)["next-offset"]) == (b"", 2), "what was aborted is gone past, without a wait"


def test_the_latest_committed_record(server):
    session, log = server.database._session, server.database.log("t")
    log.append_many([b"plain"], timestamps_ms=[10])
    Writer(session, "o").write(("t", 0), b"an open one")
    with logdb.open(server.url) as remote:
        there = remote.log("t")
        assert there.latest_record(isolation_level="read_committed") == log.latest_record(isolation_level="read_committed") == (0, 10)
        assert there.latest_record() == log.latest_record() != (0, 10)


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_long_poll_ends_with_the_first_record(server, isolation_level):
    with wire(server.url) as polling, wire(server.url) as line:
        polling.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path(wait_ms=60_000, isolation_level=isolation_level).encode())
        assert line.ask("POST", path(), batch(b"a"), {"Content-Type": TYPE}).status == 200
        said = polling.read()
        assert (b"a" in said.body, marks(said)["next-offset"]) == (True, 1)
        said = line.ask("GET", path(offset=1, wait_ms=30))
        assert (said.status, said.body) == (200, b"")


def test_a_long_poll_waits_for_so_many_bytes(server):
    one = batch(bytes(100))
    with wire(server.url) as polling, wire(server.url) as line:
        polling.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path(wait_ms=60_000, min_bytes=5 * len(one)).encode())
        for _ in range(5):
            assert line.ask("POST", path(), one, {"Content-Type": TYPE}).status == 200
        said = polling.read()
        assert (len(said.body), marks(said)["next-offset"]) == (5 * len(one), 5)
        said = line.ask("GET", path(wait_ms=30, min_bytes=1_000_000))
        assert len(said.body) == 5 * len(one), "what is there when the time is over"


def test_a_long_poll_ends_with_its_topic(server):
    with wire(server.url) as polling:
        polling.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path(wait_ms=60_000).encode())
        assert server.call("/logdb/v1/calls/topics", {})[0] == 200
        server.database.delete_topic("t")
        said = polling.read()
        assert (said.status, said.json["error_code"]) == (404, 40401)


def test_a_server_of_a_directory_that_another_process_writes_to(tmp_path, server):
    log = server.database.log("t")
    log.append_many([b"a"])
    log.flush()
    with served(tmp_path / "db", opened={"mode": "r"}) as reader, wire(reader.url) as line:
        assert b"a" in line.ask("GET", path()).body
        assert json.loads(line.ask("GET", "/health/ready").body) == {"status": "ready"}
        line.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path(offset=1, wait_ms=60_000).encode())
        log.append_many([b"b"])
        assert b"b" in line.read().body
        said = line.ask("POST", path(), batch(b"c"), {"Content-Type": TYPE})
        assert (said.status, said.json["error"]) == (409, "ReadOnly")
