"""Processes that read beside the writer: its tail, its rolls, its topics that go, its death and return."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

import logdb
from logdb.errors import LogTruncated, TopicDeleted, UnknownTopic
from support.faulty_io import FaultyIO

COUNT = 20_000

# Follows a topic from the begin to a record "end", checking each; prints how many it saw, and under which epochs.
FOLLOWER = """
import sys, logdb
with logdb.open(sys.argv[1], mode="r") as db:
    log = db.log("t")
    print("ready", flush=True)
    expected, epochs = 0, set()
    for record in log.follow(0, timeout_ms=60_000):
        assert record.offset == expected, (record.offset, expected)
        expected += 1
        epochs.add(record.leader_epoch)
        if record.value == b"end":
            break
        assert record.value == b"%d" % record.offset, record
    print(expected, *sorted(epochs))
"""

WRITER = """
import sys, logdb
db = logdb.open(sys.argv[1])
log = db.log("t")
while True:
    start = log.end_offset
    log.append_many([b"%d" % (start + row) for row in range(100)])
    print(log.end_offset, flush=True)
"""


def start(program: str, path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", program, str(path), *arguments], stdout=subprocess.PIPE, text=True)


def started(program: str, path) -> subprocess.Popen:
    follower = start(program, path)
    assert follower.stdout.readline() == "ready\n"
    return follower


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_followers_across_rolls(tmp_path, codec):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 20_000, "compression.type": codec})
        log = db.log("t")
        followers = [started(FOLLOWER, tmp_path / "db") for _ in range(3)]
        for number in range(0, COUNT, 10):
            if number % 1000:
                log.append_many([b"%d" % at for at in range(number, number + 10)])
            else:
                for at in range(number, number + 10):
                    log.append(b"%d" % at)
        log.append(b"end")
        followers.append(started(FOLLOWER, tmp_path / "db"))
        for follower in followers:
            assert follower.communicate(timeout=60)[0] == f"{COUNT + 1} 0\n"
        assert len(log.segments) > 5 or codec != "none"


def test_the_writer_is_killed_and_comes_back(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 50_000})
    follower = started(FOLLOWER, tmp_path / "db")  # from before the first record
    for _ in range(3):
        writer = start(WRITER, tmp_path / "db")
        for _ in range(5):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    with logdb.open(tmp_path / "db") as db:
        end = db.log("t").append(b"end", durability="fsync")
        assert follower.communicate(timeout=60)[0] == f"{end + 1} 0 1 2 3\n"


def test_epochs_as_a_reader_sees_them(tmp_path):
    path = tmp_path / "db"
    with logdb.open(path) as db:
        db.create_topic("t")
        with logdb.open(path, mode="r") as reader:
            log = reader.log("t")  # opened before there is an epoch
            db.log("t").append_many([b"a", b"b"])
            assert [record.value for record in log.read(0, leader_epoch=0)] == [b"a", b"b"]
            db.log("t").leader_epoch  # noqa: B018
    writer = start(WRITER, path)
    writer.stdout.readline()
    with logdb.open(path, mode="r") as reader:
        log = reader.log("t")
        assert log.end_offset >= 102
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        with logdb.open(path) as db:
            end = db.log("t").append(b"new", durability="fsync")
        last = list(log.read(end))[-1]
        assert (last.value, last.leader_epoch) == (b"new", 1)
        assert [record.value for record in log.read(end, leader_epoch=1)] == [b"new"]
        with pytest.raises(LogTruncated) as caught:
            list(log.read(end + 1, leader_epoch=0))
        assert (caught.value.offset, caught.value.epoch_end_offset, caught.value.end_offset) == (end + 1, end, end + 1)


def test_a_topic_deleted_beside_a_reader(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 1024})
        db.log("t").append_many([b"%d" % number + bytes(200) for number in range(100)])
        with logdb.open(tmp_path / "db", mode="r") as reader:
            log = reader.log("t")
            half = log.read(0)
            assert next(half).offset == 0
            follower = log.follow(100)
            db.delete_topic("t")
            with pytest.raises(TopicDeleted, match="topic 't' was deleted: "):
                next(follower)
            with pytest.raises(UnknownTopic):
                list(log.read(50))
            rest = []
            with pytest.raises(UnknownTopic):
                rest.extend(half)
            assert len(rest) == 99, "the read goes on, and says where the log ended"
            with pytest.raises(UnknownTopic):
                log.end_offset  # noqa: B018
            with pytest.raises(UnknownTopic):
                reader.describe_topic("t")
            assert reader.topics() == []
            db.create_topic("t")
            db.log("t").append_many([b"another topic of that name"])
            assert [record.value for record in reader.log("t").read(0)] == [b"another topic of that name"]


def test_what_is_known_is_read_without_a_look_at_the_files(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db") as db, logdb.open(tmp_path / "db", mode="r", io=io) as reader:
        db.create_topic("t")
        db.log("t").append_many([b"%d" % number for number in range(10_000)])
        beside = reader.log("t")
        assert next(beside.read(8000)).value == b"8000"
        looked = len(io.calls)
        for offset in range(100, 9000, 700):
            assert next(beside.read(offset)).value == b"%d" % offset
        assert {kind for kind, _ in io.calls[looked:]} == {"pread"}
        half = beside.read(9990)
        assert next(half).offset == 9990
        db.log("t").append_many([b"more"])
        assert [record.offset for record in half] == list(range(9991, 10_001)), "it ends where the log ends when it gets there"
        assert next(beside.read(10_000)).value == b"more"


def test_a_topic_and_partitions_made_beside_a_reader(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.open(tmp_path / "db", mode="r") as reader:
        assert reader.topics() == []
        with pytest.raises(UnknownTopic):
            reader.log("t")
        db.create_topic("t")
        assert reader.log("t").end_offset == 0
        db.alter_topic("t", partitions=3)
        db.log("t", 2).append_many([b"x"])
        assert [record.value for record in reader.log("t", 2).read(0)] == [b"x"]
        assert [info.end_offset for info in reader.describe_topic("t").partitions] == [0, 0, 1]


def test_a_reader_sees_what_was_written_and_no_more(tmp_path):
    with logdb.open(tmp_path / "db", linger_ms=60_000) as db:
        db.create_topic("t")
        log = db.log("t")
        with logdb.open(tmp_path / "db", mode="r") as reader:
            beside = reader.log("t")
            log.append(b"open batch")
            assert beside.end_offset == 0
            assert list(beside.read(0)) == []
            log.flush(sync=False)
            assert beside.end_offset == 1
            assert [record.value for record in beside.read(0)] == [b"open batch"]
            assert beside.offset_for_timestamp(0) == 0
            assert beside.read_batches(0)[1] == 1
            assert [row for batch in beside.read_arrow() for row in batch["value"].to_pylist()] == [b"open batch"]
            assert list(beside.follow(1, timeout_ms=1)) == []


def test_an_unfinished_batch_is_not_there_yet(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"a"])
        data = db.log("t").read_batches(0)[0].tobytes()
        with logdb.open(tmp_path / "db", mode="r") as reader:
            log, path = reader.log("t"), tmp_path / "db/t-0/00000000000000000000.log"
            assert log.end_offset == 1
            following = (1).to_bytes(8, "big") + data[8:]
            for size in (1, 11, 12, 60, 61, len(following) - 1):
                with open(path, "r+b") as file:
                    file.seek(len(data))
                    file.write(following[:size])
                assert log.end_offset == 1, size
                assert [record.value for record in log.read(0)] == [b"a"]
            with open(path, "r+b") as file:
                file.seek(len(data))
                file.write(following)
            assert [record.value for record in log.read(0)] == [b"a", b"a"]


def test_readers_change_nothing(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"] * 100)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock.mdb"}
    with logdb.open(tmp_path / "db", mode="r") as reader:
        assert len(list(reader.log("t").read(0))) == 100
        reader.describe_topic("t")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock.mdb"} == before


def test_follow_in_the_writer(tmp_path):
    with logdb.open(tmp_path / "db", linger_ms=60_000) as db:
        db.create_topic("t", config={"segment.bytes": 2048})
        log = db.log("t")
        seen, stop = [], threading.Event()

        def follow():
            for record in log.follow(0, stop=stop):
                seen.append(record.value)
                if record.value == b"end":
                    return

        threads = [threading.Thread(target=follow) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(500):
            log.append(b"%d" % number)
        log.append(b"end")
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert sorted(seen) == sorted([*(b"%d" % number for number in range(500)), b"end"] * 2)


def test_stop_and_close_end_a_follower(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    ended = []

    def follow(stop):
        try:
            ended.extend(db.log("t").follow(0, stop=stop))
            ended.append("stopped")
        except logdb.errors.Closed:
            ended.append("closed")

    stop = threading.Event()
    threads = [threading.Thread(target=follow, args=(stop,)), threading.Thread(target=follow, args=(None,))]
    for thread in threads:
        thread.start()
    stop.set()
    threads[0].join(60)
    assert ended == ["stopped"]
    db.close()
    threads[1].join(60)
    assert ended == ["stopped", "closed"]


AS_ANOTHER_USER = """
import os, sys
import tempfile
import logdb, logdb.store.store
if os.geteuid() == 0:  # root may write everywhere
    os.setgid(65534)
    os.setuid(65534)
with logdb.open(sys.argv[1], mode="r") as reader:
    assert [record.value for record in reader.log("t").read(0)] == [b"x"]
"""


def test_a_directory_that_may_not_be_written():
    with tempfile.TemporaryDirectory(prefix="logdb-readers-", dir="/tmp") as base:  # pytest's own is closed to others
        os.chmod(base, 0o755)
        path = pathlib.Path(base, "db")
        with logdb.open(path) as db:
            db.create_topic("t")
            db.append("t", b"x")
        paths = [path, *path.rglob("*")]
        try:
            for each in paths:
                each.chmod(0o555 if each.is_dir() else 0o444)
            subprocess.run([sys.executable, "-c", AS_ANOTHER_USER, str(path)], check=True)
        finally:
            for each in paths:
                each.chmod(0o755 if each.is_dir() else 0o644)


def test_a_reader_from_before_the_first_record_knows_later_epochs(tmp_path):
    with logdb.open(tmp_path) as writer:
        writer.create_topic("t")
        with logdb.open(tmp_path, mode="r") as reader:
            early = reader.log("t")
            assert early.end_offset == 0
            log = writer.log("t")
            log.append_many([b"a", b"b"])
            assert [record.value for record in early.read(1, leader_epoch=log.leader_epoch)] == [b"b"]
