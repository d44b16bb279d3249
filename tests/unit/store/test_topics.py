import errno
import json
import os
import threading

import pytest

import logdb
from logdb.errors import (
    Closed,
    DiskFull,
    InvalidConfig,
    InvalidPartitions,
    InvalidReassignment,
    InvalidReplicationFactor,
    InvalidTopic,
    ReadFailed,
    ReadOnly,
    TopicExists,
    UnknownTopic,
    WriteFailed,
)
from logdb.model import TABLE_HISTORY, TABLE_MODE, TABLE_SCHEMA, SchemaEnds, SchemaEndsNeeded, TopicPartition
from logdb.requests.topic_changes import AlterTopic, CreateTopic
from logdb.requests.topics import DescribeAtRest
from logdb.store.copy.snapshot import held
from logdb.store.entries import Entries
from logdb.store.store import Store
from logdb.store.topics import changed_config
from support.faulty_io import FaultyIO
from support.power_cut import die


@pytest.fixture
def io():
    return FaultyIO()


def test_creation_that_was_cut_off_after_its_commit_is_finished(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io)
    io.fail("rename")
    with pytest.raises(WriteFailed):
        db.create_topic("t", partitions=2)
    die(db)
    with logdb.open(tmp_path / "db") as db:
        assert db.describe_topic("t").partition_count == 2
        assert db.log("t", 1).append(b"x") == 0
    assert logdb.verify(tmp_path / "db").ok


def test_what_cannot_be_looked_at_is_not_taken_for_missing(tmp_path, io):
    """Else the creation would count as finished, without its partitions."""
    db = logdb.open(tmp_path / "db", io=io)
    io.fail("rename")
    with pytest.raises(WriteFailed):
        db.create_topic("t", partitions=2)
    die(db)
    io.heal()
    io.fail("exists", path="-1.tmp")
    with pytest.raises(ReadFailed, match=r"-1\.tmp"):
        logdb.open(tmp_path / "db", io=io)
    io.heal()
    with logdb.open(tmp_path / "db", io=io) as db:
        assert db.log("t", 1).append(b"x") == 0
    assert logdb.verify(tmp_path / "db").ok


@pytest.mark.parametrize("grows", [False, True], ids=["create", "grow"])
def test_partitions_whose_creation_was_interrupted_are_not_taken_for_damaged(tmp_path, io, grows):
    with logdb.open(tmp_path / "db", io=io) as db:
        if grows:
            db.create_topic("t")
        io.fail("rename", errno.ENOSPC)
        with pytest.raises(DiskFull):
            db.alter_topic("t", partitions=2) if grows else db.create_topic("t", partitions=2)
        with pytest.raises(DiskFull):
            db.log("t", 1)
        io.heal()
        assert db.log("t", 1).append(b"x") == 0
    assert logdb.verify(tmp_path / "db").ok


def test_what_a_full_disk_left_of_a_creation_goes_and_nothing_else_does(tmp_path, io):
    """A copy to another device holds links in a directory beside those of partitions that are being made."""
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t")
        db.append("t", b"x")
        before = sorted(os.listdir(tmp_path / "db"))
        with held(db._session._store) as frozen:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Entries, "change", no_room)
                with pytest.raises(DiskFull):
                    db.create_topic("new")
            assert len([name for name in os.listdir(tmp_path / "db") if name.endswith(".tmp")]) == 2
            db.create_topic("other")
            (left,) = [name for name in os.listdir(tmp_path / "db") if name.endswith(".tmp")]
            assert {os.path.basename(os.path.dirname(log.directory)) for log in frozen.logs} == {left}
            assert all(os.path.exists(log.tail_path) for log in frozen.logs if log.tail_path is not None)
        assert sorted(os.listdir(tmp_path / "db")) == sorted([*before, "other-0"])


def no_room(*_):
    raise DiskFull("catalogue", 0, "there is no room")


def test_an_interrupted_change_leaves_compactions_alone(tmp_path, io):
    """The compaction that runs meanwhile renames its files itself, once and under its own lock."""
    threads = set()

    def note(kind, path):
        if kind == "rename" and ".cleaned" in path:
            threads.add(threading.current_thread())
            if len(threads) == 1 and not others:
                others.append(threading.Thread(target=db.create_topic, args=("other",)))
                others[0].start()
                others[0].join()

    others = []
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("c", config={"cleanup.policy": "compact", "segment.bytes": 2_000, "index.interval.bytes": 100})
        for _ in range(3):
            db.log("c").append_many([b"x" * 50] * 40, [b"key %d" % key for key in range(40)])
        io.fail("rename", errno.ENOSPC, ".tmp")
        with pytest.raises(DiskFull):
            db.create_topic("t")
        io.heal()
        io.before = note
        db.compact("c")
        assert others
        assert threads == {threading.current_thread()}
        assert [topic.name for topic in db.topics()] == ["c", "other", "t"]
    assert logdb.verify(tmp_path / "db").ok


def test_deletion_that_was_cut_off_is_finished(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io)
    db.create_topic("t", partitions=2)
    db.log("t").append_many([b"x"])
    io.fail("unlink")
    with pytest.raises(WriteFailed):
        db.delete_topic("t")
    die(db)
    with logdb.open(tmp_path / "db") as db:
        assert db.topics() == []
        assert sorted(os.listdir(tmp_path / "db")) == ["LOCK", "RESERVE", "catalogue"]


def test_internal_topics_are_hidden(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("__consumer_offsets", config={"cleanup.policy": "compact"})
        assert db.topics() == []
        assert [topic.internal for topic in db.topics(internal=True)] == [True]


def test_partitions_grow(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"flush.ms": 7})
        assert db.alter_topic("t", partitions=4, config={"flush.ms": "9"}).partition_count == 4
    with logdb.open(tmp_path / "db") as db:
        info = db.describe_topic("t")
        assert (len(info.partitions), info.config) == (4, {"flush.ms": 9})
        assert [part.partition for part in info.partitions] == [0, 1, 2, 3]


def test_what_is_only_checked_is_not_made(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        info = db._session.check_new_topic("t", partitions=3, config={"retention.ms": "7"})
        assert (info.name, info.partition_count, info.config) == ("t", 3, {"retention.ms": 7})
        assert db.topics() == []
        db.create_topic("t")
        db._session.check_topic_configs("t", {"retention.ms": "7", "flush.ms": None})
        assert db.describe_topic("t").config == {}


def test_a_single_node_may_be_named_for_each_partition(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        assert db._session.check_new_topic("t", assignments=[[0], [0]]).partition_count == 2
        assert db.create_topic("t", assignments=[[0], [0]]).partition_count == 2
        assert db.alter_topic("t", partitions=3, assignments=[[0]]).partition_count == 3
        for create in (db._session.check_new_topic, db.create_topic):
            for assignments, partition in (([[0], [1]], 1), ([[0, 0]], 0), ([[]], 0)):
                with pytest.raises(InvalidReassignment, match="there is one node, 0") as refused:
                    create("u", assignments=assignments)
                assert refused.value.partition == partition
            with pytest.raises(InvalidReassignment, match="2 partitions are added, and nodes are named for 1"):
                create("u", partitions=2, assignments=[[0]])
            with pytest.raises(InvalidPartitions):
                create("u", assignments=[])
            with pytest.raises(InvalidReplicationFactor):
                create("u", replication_factor=2, assignments=[[0]])


@pytest.mark.parametrize(
    ("name", "partitions", "config", "error"),
    [
        ("t", 1, {}, TopicExists),
        ("no/name", 1, {}, InvalidTopic),
        ("new", 0, {}, InvalidPartitions),
        ("new", 1, {"no.such": 1}, InvalidConfig),
        ("__consumer_offsets", 1, {"cleanup.policy": "delete"}, InvalidConfig),
    ],
)
def test_a_check_raises_what_creating_would(tmp_path, name, partitions, config, error):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        for create in (db._session.check_new_topic, db.create_topic):
            with pytest.raises(error):
                create(name, partitions=partitions, config=config)
    with logdb.open(tmp_path / "db", mode="r") as db, pytest.raises(ReadOnly):
        db._session.check_new_topic("new")


@pytest.mark.parametrize(
    ("name", "config", "error"),
    [
        ("none", {"retention.ms": 1}, UnknownTopic),
        ("t", {"retention.ms": "soon"}, InvalidConfig),
        ("t", {"no.such": None}, InvalidConfig),
        ("__consumer_offsets", {"cleanup.policy": None}, InvalidConfig),
    ],
)
def test_a_check_raises_what_altering_would(tmp_path, name, config, error):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.create_topic("__consumer_offsets", config={"cleanup.policy": "compact"})
        for alter in (db._session.check_topic_configs, db.alter_topic):
            with pytest.raises(error):
                alter(name, config=config)


def test_the_ends_of_a_schema_are_of_all_partitions_and_of_what_the_topic_had_when_they_were_asked():
    schemas = [json.dumps({"type": "record", "name": name, "fields": [{"name": "a", "type": "long"}]}) for name in "abc"]
    a, b, c = ({TABLE_SCHEMA: schema} for schema in schemas)
    with pytest.raises(SchemaEndsNeeded) as needed:
        changed_config("t", a, 2, {**b, TABLE_HISTORY: SchemaEnds()})
    asked = SchemaEnds(former=needed.value.former, ends={0: 5, 1: 0})
    changed = changed_config("t", a, 2, {**b, TABLE_HISTORY: asked})
    assert json.loads(changed[TABLE_HISTORY]) == [{"schema": json.loads(schemas[0]), "until": {"0": 5}}]
    for known, partition_count in ((a, 3), (c, 2), (changed | c, 2)):  # others have changed it meanwhile
        with pytest.raises(SchemaEndsNeeded):
            changed_config("t", known, partition_count, {**b, TABLE_HISTORY: asked})
    for known in ({}, b, a | {TABLE_MODE: "json"}):
        assert TABLE_HISTORY not in changed_config("t", known, 2, {**b, TABLE_HISTORY: SchemaEnds()})


class HungUp(Exception):
    pass


@pytest.mark.parametrize("grows", [False, True], ids=["create", "grow"])
def test_partitions_that_no_client_wants_any_more_are_not_made_and_nothing_is_left_of_them(tmp_path, grows):
    made = []

    def go_on():
        made.append(None)
        if len(made) == 5:
            raise HungUp

    with logdb.open(tmp_path / "db") as db:
        if grows:
            db.create_topic("t")
        before, store = sorted(os.listdir(tmp_path / "db")), db._session._store
        with pytest.raises(HungUp):
            store.submit((AlterTopic if grows else CreateTopic)("t", partitions=100), go_on=go_on)
        assert sorted(os.listdir(tmp_path / "db")) == before
        assert [topic.partition_count for topic in db.topics()] == [1] * grows
        assert (db.alter_topic("t", partitions=3) if grows else db.create_topic("t", partitions=3)).partition_count == 3


def test_a_creation_that_fails_leaves_nothing(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        before = sorted(os.listdir(tmp_path / "db"))
        io.fail("mkdir", errno.ENOSPC, "-3.tmp")
        with pytest.raises(DiskFull):
            db.create_topic("t", partitions=10)
        assert sorted(os.listdir(tmp_path / "db")) == before


def test_logs_are_opened_while_partitions_are_made(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("other", partitions=2)
    with logdb.open(tmp_path / "db") as db:
        opened = []

        def go_on():
            if not opened:
                thread = threading.Thread(target=lambda: opened.append(db.log("other", 1).end_offset))
                thread.start()
                thread.join(30)
                assert opened == [0]

        db._session._store.submit(CreateTopic("t", partitions=2), go_on=go_on)


def test_a_topic_is_changed_by_one_at_a_time(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        threads = []

        def go_on():
            if not threads:
                threads.append(threading.Thread(target=db.create_topic, args=("t",), kwargs={"if_not_exists": True}))
                threads.append(threading.Thread(target=db.alter_topic, args=("t",), kwargs={"partitions": 7}))
                for thread in threads:
                    thread.start()

        db._session._store.submit(CreateTopic("t", partitions=5), go_on=go_on)
        for thread in threads:
            thread.join(30)
        assert db.describe_topic("t").partition_count == 7


def test_a_controller_gives_the_id(tmp_path):
    store = Store.open(tmp_path / "db", replicated=True)
    topic_id = "6c1f9d0e-8a57-4a26-9c0c-6b8f4f0f3a11"
    assert store.writer.create("t", 1, {}, topic_id=topic_id).topic_id == topic_id
    store.close()
    with logdb.open(tmp_path / "db", mode="r") as db:
        assert db.describe_topic("t").topic_id == "6c1f9d0e-8a57-4a26-9c0c-6b8f4f0f3a11"


def created_again(db):
    """A log whose topic was deleted while a thread had it, and the one of the new topic with this name."""
    db.create_topic("t")
    former = db.log("t")
    former.append_many([b"former"] * 3)
    former.flush()
    db.delete_topic("t")
    db.create_topic("t")
    log = db.log("t")
    log.append(b"new")
    log.flush()
    return former, log


def test_a_checkpoint_of_a_deleted_topic_is_none_of_the_topic_that_was_created_again(tmp_path):
    """A thread may have begun it before the deletion: the new log would end before its recovery point, and be called damaged."""
    db = logdb.open(tmp_path / "db", durability="os")
    former, _ = created_again(db)
    db._session._store.checkpoint([former])
    assert former.due_ms() is None
    die(db)
    assert logdb.verify(tmp_path / "db").ok
    with logdb.open(tmp_path / "db") as db:
        assert not db.reports
        assert db.log("t").read_only_reason is None
        assert [record.value for record in db.log("t").read(0)] == [b"new"]


def test_what_the_log_of_a_deleted_topic_notes_is_none_of_the_topic_that_was_created_again(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        former, log = created_again(db)
        store = db._session._store
        before = store.writer.entry(TopicPartition("t", 0))
        with pytest.raises(Closed, match="its topic was deleted"):
            store.note_producers(former, 3)
        with pytest.raises(UnknownTopic):
            store.writer.cleaned(former, 3, None)
        assert store.writer.entry(TopicPartition("t", 0)) == before
        store.note_producers(log, 1)
        assert store.writer.entry(TopicPartition("t", 0)).producers_offset == 1


def filled(path) -> None:
    """Partitions that are empty, have one segment, several, a later start, and nothing behind it; closed."""
    with logdb.open(path) as db:
        db.create_topic("t", partitions=6, config={"segment.bytes": 2_000})
        for partition, count in enumerate((0, 3, 100, 100, 100)):
            db.log("t", partition).append_many([bytes(100)] * count)
        db.delete_records("t", 3, before_offset=60)
        db.delete_records("t", 4, before_offset=100)


def test_a_log_that_is_not_open_is_described_by_the_catalogue(tmp_path):
    filled(tmp_path)
    with logdb.open(tmp_path) as db:
        db.log("t", 1).append_many([b"more"])
        store = db._store
        described = store.submit(DescribeAtRest("t"))
        assert list(store.open_logs) == [("t", 1)]
        opened = db.describe_topic("t")
        assert len(store.open_logs) == 6
        for one, other in zip(described.partitions, opened.partitions, strict=True):
            assert one == other._replace(disk_bytes=None, segment_count=one.segment_count)
            assert one.segment_count <= other.segment_count <= one.segment_count + 1, "an empty segment is in no catalogue"


def test_after_a_crash_each_log_is_opened_to_describe_it(tmp_path):
    db = logdb.open(tmp_path, linger_ms=0)
    db.create_topic("t", partitions=2)
    db.log("t").append_many([b"x"] * 5)
    die(db)
    with logdb.open(tmp_path) as db:
        assert [one.end_offset for one in db._store.submit(DescribeAtRest("t")).partitions] == [5, 0]


def test_the_disk_of_a_partition_is_what_its_files_take(tmp_path):
    with logdb.open(tmp_path, durability="fsync") as db:
        db.create_topic("t")
        for _ in range(10):
            db.log("t").append_many([os.urandom(100_000)])
        (found,) = db.describe_topic("t").partitions
        assert found.disk_bytes == sum(file.stat().st_blocks * 512 for file in (tmp_path / "t-0").iterdir())
        assert found.disk_bytes > found.size_bytes + 64_000, "with what is reserved"
