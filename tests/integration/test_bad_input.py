"""What bad input gets: a named error with its numbers, and nothing lost."""

import os
import subprocess
import sys

import pytest

import logdb
from logdb.codec import arrow
from logdb.errors import (
    Closed,
    DirectoryLocked,
    InvalidBatch,
    InvalidConfig,
    InvalidPartitions,
    InvalidProducer,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    NotADatabase,
    OffsetOutOfRange,
    ProducerFenced,
    ReadOnly,
    RecordTooLarge,
    TopicExists,
    UnexpectedOffset,
    UnknownPartition,
    UnknownTopic,
)
from support.batches import Rec, encode_batch, encode_log


@pytest.fixture
def db(tmp_path):
    """Five records, which every test finds again after its errors."""
    with logdb.open(tmp_path / "db") as database:
        database.create_topic("t", partitions=3)
        database.log("t").append_many([b"%d" % number for number in range(4)])
        database.log("t").append(b"4")
        yield database
        assert [record.value for record in database.log("t").read(0)] == [b"%d" % number for number in range(5)]
        assert database.log("t").append(b"5") == 5
    with logdb.open(tmp_path / "db") as again:
        assert again.log("t").end_offset == 6
        assert again.log("t").leader_epoch == 0


@pytest.fixture
def log(db):
    return db.log("t")


# ---------------------------------------------------------------- topics


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.log("nope"),
        lambda db: db.append("nope", b"x"),
        lambda db: db.append_many("nope", [b"x"]),
        lambda db: db.describe_topic("nope"),
        lambda db: db.alter_topic("nope", partitions=4),
        lambda db: db.delete_topic("nope"),
    ],
)
def test_unknown_topic(db, call):
    with pytest.raises(UnknownTopic, match="unknown topic 'nope'; there are 't'") as caught:
        call(db)
    assert caught.value.topic == "nope"
    assert not caught.value.retriable


@pytest.mark.parametrize("partition", [-1, 3, 2**40])
def test_unknown_partition(db, partition):
    with pytest.raises(UnknownPartition, match=f"no partition {partition}: it has 3, numbered from 0") as caught:
        db.log("t", partition)
    assert (caught.value.topic, caught.value.partition, caught.value.count) == ("t", partition, 3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "names a directory"),
        ("..", "names a directory"),
        ("a/b", "contains '/'"),
        ("a b", "contains ' '"),
        ("a\n", "contains"),
        ("é", "contains 'é'"),
        ("a" * 250, "has 250 characters"),
        (b"bytes", "not a string, but bytes"),
        (None, "not a string, but NoneType"),
    ],
)
def test_topic_name(db, name, reason):
    with pytest.raises(InvalidTopic, match=reason) as caught:
        db.create_topic(name)
    assert "must be 1 to 249 of a-z A-Z 0-9 . _ -" in str(caught.value)
    assert [topic.name for topic in db.topics()] == ["t"]


def test_topic_names_at_the_edge(tmp_path):
    names = ("a" * 249, "...", "-1", "a.tmp", "a-delete", "LOCK", "catalogue", "t-0", "0")
    with logdb.open(tmp_path / "db") as db:
        for name in names:
            db.create_topic(name, partitions=11)
            assert db.log(name, 10).append(b"x") == 0
    with logdb.open(tmp_path / "db") as db:
        assert sorted(topic.name for topic in db.topics()) == sorted(names)
        for name in names:
            assert [record.value for record in db.log(name, 10).read(0)] == [b"x"]
            db.delete_topic(name)
    assert sorted(os.listdir(tmp_path / "db")) == ["LOCK", "RESERVE", "catalogue"]


def test_topic_exists(db):
    with pytest.raises(TopicExists, match="topic 't' already exists"):
        db.create_topic("t")
    assert db.create_topic("t", if_not_exists=True, partitions=9).partition_count == 3


@pytest.mark.parametrize("count", [0, -2, 100_001])
def test_partition_count(db, count):
    with pytest.raises(InvalidPartitions, match=f"cannot have {count} partitions: must be 1 to 100000") as caught:
        db.create_topic("new", partitions=count)
    assert caught.value.count == count
    assert len(db.topics()) == 1


def test_minus_one_partitions_are_the_default_as_in_kafka(db):
    assert db.create_topic("new", partitions=-1).partition_count == 1


def test_partitions_never_shrink(db):
    with pytest.raises(InvalidPartitions, match="cannot have 2 partitions: must be 3 to 100000"):
        db.alter_topic("t", partitions=2)
    assert db.describe_topic("t").partition_count == 3


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"no.such.key": 1}, "no.such.key=1: unknown key"),
        ({"segment.bits": 1}, "unknown key; did you mean segment.bytes"),
        ({"segment.bytes": -1}, r"segment.bytes=-1: must be a whole number in \[1024, 2\^31-1\]"),
        ({"segment.bytes": "many"}, "segment.bytes='many'"),
        ({"segment.bytes": True}, "segment.bytes=True"),
        ({"segment.bytes": 2**31}, "segment.bytes=2147483648"),
        ({"flush.ms": 0}, "flush.ms=0"),
        ({"compression.type": "rar"}, "compression.type='rar': must be .*zstd"),
        ({"durability": "maybe"}, "durability='maybe': must be .*fsync"),
        ({"cleanup.policy": "burn"}, "cleanup.policy='burn'"),
        ({"min.cleanable.dirty.ratio": 1.5}, "min.cleanable.dirty.ratio=1.5"),
        ({"message.timestamp.type": "Never"}, "message.timestamp.type='Never'"),
        ({3: 4}, "unknown key"),
    ],
)
def test_config(db, config, says):
    before = db.describe_topic("t").config
    for call in (lambda: db.create_topic("new", config=config), lambda: db.alter_topic("t", config=config)):
        with pytest.raises(InvalidConfig, match=says) as caught:
            call()
        assert caught.value.key == next(iter(config))
    assert db.describe_topic("t").config == before
    assert len(db.topics()) == 1


def test_resetting_an_unknown_config(db):
    with pytest.raises(InvalidConfig, match=r"no\.such\.key"):
        db.alter_topic("t", config={"no.such.key": None})


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("bad", ["text", 7, 1.5, ["a"], object()])
@pytest.mark.parametrize("where", ["value", "key"])
def test_not_bytes_like(log, bad, where):
    hint = f"encode it first, e.g. {where}.encode()" if isinstance(bad, str) else f"serialize it first, e.g. json.dumps({where}).encode()"
    with pytest.raises(TypeError, match=f"{where} must be bytes-like or None, not {type(bad).__name__}") as caught:
        log.append(**{"value": b"x", where: bad})
    assert hint in str(caught.value)
    with pytest.raises(TypeError, match=rf"{where}s\[1\] must be bytes-like or None, not {type(bad).__name__}"):
        log.append_many(**{"values": [b"x", b"y"], where + "s": [b"x", bad]})
    assert log.end_offset == 5


@pytest.mark.parametrize("bad", ["text", 7, None, [b"x"]])
def test_batches_not_bytes_like(log, bad):
    with pytest.raises(TypeError):
        log.append_batches(bad)
    assert log.end_offset == 5


@pytest.mark.parametrize("headers", [[7], [("a",)], [(b"a", b"b")], [("a", "b")], [("a", b"b", b"c")]])
def test_headers(log, headers):
    with pytest.raises(TypeError, match="header"):
        log.append(b"x", headers=headers)
    assert log.end_offset == 5


def test_counts_differ(log, db):
    with pytest.raises(ValueError, match=r"2.*1|1.*2"):
        log.append_many([b"a", b"b"], keys=[b"k"])
    with pytest.raises(ValueError, match="2 values, but 3 keys"):
        db.append_many("t", [b"a", b"b"], keys=[b"k"] * 3)
    assert log.end_offset == 5


def test_record_too_large(db, log):
    db.alter_topic("t", config={"max.message.bytes": 1000})
    sizes = {"append": lambda: log.append(bytes(1000)), "append_many": lambda: log.append_many([b"fits", bytes(1000)])}
    batch = encode_batch([bytes(1000)])
    for what, call in {**sizes, "append_batches": lambda: log.append_batches(batch)}.items():
        with pytest.raises(RecordTooLarge, match=r"over max.message.bytes=1000") as caught:
            call()
        assert caught.value.size_bytes_max == 1000, what
        assert 1060 < caught.value.size_bytes < 1100, what
        assert str(caught.value.size_bytes) in str(caught.value)
    assert log.end_offset == 5


@pytest.mark.parametrize("offset", [-1, 6, 2**62])
def test_offset_out_of_range(log, offset):
    for call in (log.read, log.read_batches, lambda at: list(log.read_arrow(at)), lambda at: next(log.follow(at, timeout_ms=1))):
        with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} of t-0 is out of range: it holds \[0, 5\)") as caught:
            call(offset)
        assert (caught.value.offset, caught.value.start_offset, caught.value.end_offset) == (offset, 0, 5)
    assert list(log.read(5)) == []


@pytest.mark.parametrize("offset", ["0", 1.5, None])
def test_offset_of_another_type(log, offset):
    with pytest.raises(TypeError):
        list(log.read(offset))


def test_unexpected_offset(log):
    for call in (
        lambda: log.append(b"x", expected_offset=4),
        lambda: log.append_many([b"x"], expected_offset=4),
        lambda: log.append_batches(encode_batch([b"x"]), expected_offset=4),
    ):
        with pytest.raises(UnexpectedOffset, match="expected t-0 to end at offset 4, it ends at 5") as caught:
            call()
        assert (caught.value.expected_offset, caught.value.end_offset) == (4, 5)


def test_timestamps(db, log):
    db.alter_topic("t", config={"message.timestamp.after.max.ms": 1000})
    for call in (
        lambda: log.append(b"x", timestamp_ms=2**62),
        lambda: log.append_many([b"x"], timestamps_ms=[2**62]),
        lambda: log.append_batches(encode_batch([Rec(value=b"x", timestamp_ms=2**50)])),
    ):
        with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.before\.max\.ms"):
            call()
    with pytest.raises(InvalidTimestamp) as caught:
        log.append_batches(encode_batch([Rec(value=b"x"), Rec(value=b"y", timestamp_ms=2**50), Rec(value=b"z")]))
    assert caught.value.records == (1,)
    assert log.end_offset == 5


def test_compacted_topics_need_keys(db):
    db.create_topic("c", config={"cleanup.policy": "compact"})
    log = db.log("c")
    for call in (
        lambda: log.append(b"x"),
        lambda: log.append_many([b"x", b"y"], keys=[b"k", None]),
    ):
        with pytest.raises(InvalidRecord, match="c is compacted: every record needs a key"):
            call()
    with pytest.raises((InvalidRecord, InvalidBatch), match="key"):
        log.append_batches(encode_batch([Rec(value=b"x")]))
    assert log.end_offset == 0


def test_durability(log):
    with pytest.raises(ValueError, match="durability='hope': must be os, interval or fsync"):
        log.append(b"x", durability="hope")
    with pytest.raises(ValueError, match="hope"):
        log.append_batches(encode_batch([b"x"]), durability="hope")


@pytest.mark.parametrize(
    ("damage", "position"),
    [
        (lambda good: b"x", 0),
        (lambda good: good[:-1], 0),
        (lambda good: good + good[:30], len(encode_batch([b"a", b"b"]))),
        (lambda good: good[:17] + bytes([good[17] ^ 1]) + good[18:], 0),
        (lambda good: good[:70] + bytes([good[70] ^ 1]) + good[71:], 0),
        (lambda good: good + encode_batch([b"a"], magic=1), len(encode_batch([b"a", b"b"]))),
        (lambda good: encode_batch([b"a"], record_count=2), 0),
        (lambda good: encode_batch([b"a"], last_offset_delta=5), 0),
        (lambda good: encode_batch([], record_count=0), 0),
    ],
)
def test_batches_that_lie(log, damage, position):
    with pytest.raises(InvalidBatch) as caught:
        log.append_batches(damage(encode_batch([b"a", b"b"])))
    assert caught.value.position == position
    assert caught.value.reason
    assert log.end_offset == 5


def test_no_batches_at_all(log):
    assert len(log.append_batches(b"")) == 0
    assert len(log.append_many([])) == 0
    assert log.end_offset == 5


def test_batches_of_other_buffers(db):
    db.create_topic("u")
    log, data = db.log("u"), encode_log([[b"a"], [b"b", b"c"]])
    assert log.append_batches(bytearray(data)) == range(3)
    assert log.append_batches(memoryview(data)) == range(3, 6)
    assert log.append_batches(memoryview(data).cast("b")) == range(6, 9)
    assert [record.value for record in log.read(0)] == [b"a", b"b", b"c"] * 3


# ---------------------------------------------------------------- handles


def test_closed(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    log = db.log("t")
    log.append(b"x")
    iterator = log.read(0)
    db.close()
    db.close()
    for call in (
        lambda: log.append(b"y"),
        lambda: log.append_many([b"y"]),
        lambda: log.append_batches(encode_batch([b"y"])),
        lambda: log.read(0),
        lambda: log.read_batches(0),
        lambda: log.read_arrow(0),
        lambda: next(log.follow(0)),
        lambda: log.offset_for_timestamp(0),
        log.flush,
        lambda: db.log("t"),
        lambda: db.append("t", b"y"),
        lambda: db.append_many("t", [b"y"]),
        db.topics,
        lambda: db.describe_topic("t"),
        lambda: db.create_topic("u"),
        lambda: db.alter_topic("t", partitions=2),
        lambda: db.delete_topic("t"),
        db.flush,
    ):
        with pytest.raises(Closed, match=f"the database {tmp_path}/db is closed"):
            call()
    assert "closed" in repr(db)
    with pytest.raises(Closed):
        next(iterator)
    with logdb.open(tmp_path / "db") as db:
        assert [record.value for record in db.log("t").read(0)] == [b"x"]


def test_log_of_a_deleted_topic(db):
    db.create_topic("gone")
    log = db.log("gone")
    log.append(b"x")
    db.delete_topic("gone")
    for call in (lambda: log.append(b"y"), lambda: log.append_many([b"y"]), lambda: log.read(0), log.flush, lambda: next(log.follow(0))):
        with pytest.raises(Closed, match="gone-0 is closed: its topic was deleted"):
            call()
    with pytest.raises(UnknownTopic):
        db.log("gone")
    with pytest.raises(UnknownTopic):
        db.append("gone", b"x")
    db.create_topic("gone")
    assert db.log("gone").append(b"new") == 0


def test_read_only_handle(db, tmp_path):
    db.flush()
    with logdb.open(tmp_path / "db", mode="r") as reader:
        log = reader.log("t")
        for call in (
            lambda: log.append(b"x"),
            lambda: log.append_many([b"x"]),
            lambda: log.append_batches(encode_batch([b"x"])),
            lambda: reader.append("t", b"x"),
            lambda: reader.append_many("t", [b"x"]),
            lambda: reader.create_topic("u"),
            lambda: reader.alter_topic("t", partitions=4),
            lambda: reader.delete_topic("t"),
        ):
            with pytest.raises(ReadOnly, match=f"{tmp_path}/db was opened with mode='r'"):
                call()
        assert log.end_offset == 5


def test_second_writer_in_the_same_process(db, tmp_path):
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()} on .* since 20") as caught:
        logdb.open(tmp_path / "db")
    assert caught.value.retriable
    assert caught.value.pid == os.getpid()
    assert "mode='r'" in str(caught.value)
    os.symlink(tmp_path / "db", tmp_path / "link")
    with pytest.raises(DirectoryLocked):
        logdb.open(tmp_path / "link")


def test_second_writer_in_another_process(db, tmp_path):
    program = """
import sys, logdb
try:
    logdb.open(sys.argv[1])
except logdb.errors.DirectoryLocked as error:
    print(error.pid, error)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"{os.getpid()} {tmp_path}/db is open for writing in process {os.getpid()} on")


def test_not_a_database(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_bytes(b"meow")
    for mode in ("a", "r"):
        with pytest.raises(NotADatabase, match="photos"):
            logdb.open(tmp_path / "photos", mode=mode)
    with pytest.raises(NotADatabase, match=r"cat\.jpg is no directory"):
        logdb.open(tmp_path / "photos/cat.jpg")
    with pytest.raises(NotADatabase, match="does not exist"):
        logdb.open(tmp_path / "nothing", mode="r")
    assert os.listdir(tmp_path / "photos") == ["cat.jpg"]
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "w"}, "mode='w': must be"),
        ({"durability": "hope"}, "durability='hope': must be os, interval or fsync"),
        ({"batch_size": 100}, "batch_size=100: must be 101 to 1048576"),
        ({"batch_size": 2**20 + 1}, "batch_size=1048577"),
        ({"linger_ms": -1}, "linger_ms=-1: must be 0 to 60000"),
        ({"linger_ms": 60_001}, "linger_ms=60001"),
        ({"cleaner_bytes_per_second": 0}, "cleaner_bytes_per_second=0: must be a whole number, 1 or more"),
        ({"offsets_retention_minutes": 0}, "offsets_retention_minutes=0: must be a whole number, 1 or more"),
    ],
)
def test_options_of_open(tmp_path, options, says):
    with pytest.raises(ValueError, match=says):
        logdb.open(tmp_path / "db", **options)
    assert not (tmp_path / "db").exists()


def test_partitioner(db):
    with pytest.raises(ValueError, match="partitioner='best': must be 'default', 'round_robin' or a callable"):
        db.append("t", b"x", partitioner="best")
    for partition in (-1, 3):
        with pytest.raises(UnknownPartition, match=f"no partition {partition}: it has 3"):
            db.append("t", b"x", partitioner=lambda _key, _count, chosen=partition: chosen)
        with pytest.raises(UnknownPartition):
            db.append_many("t", [b"x"], partitioner=lambda _key, _count, chosen=partition: chosen)


def test_isolation_level_and_columns(log):
    with pytest.raises(ValueError, match="isolation_level='none': must be read_uncommitted or read_committed"):
        log.read(0, isolation_level="none")
    with pytest.raises(ValueError, match="colour"):
        list(log.read_arrow(columns=["colour"]))


# ---------------------------------------------------------------- producers, consumers, transactions


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.seek("t", 0),
        lambda consumer: consumer.seek(("t", "0"), 0),
        lambda consumer: consumer.assign(["t"]),
        lambda consumer: consumer.assign(("t", 0)),
        lambda consumer: consumer.pause("t"),
        lambda consumer: consumer.position("t"),
        lambda consumer: consumer.committed("t"),
        lambda consumer: consumer.commit({"t": 0}),
        lambda consumer: consumer.end_offsets(["t"]),
        lambda consumer: consumer.beginning_offsets(["t"]),
        lambda consumer: consumer.offsets_for_times({"t": 0}),
    ],
)
def test_what_is_no_partition(db, call):
    with db.consumer(group_id="g") as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(TypeError, match=r"a partition is a pair \(topic, number\), such as TopicPartition\('trades', 0\), not "):
            call(consumer)
        assert consumer.assignment() == [("t", 0)]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda consumer: consumer.seek(("t", 0), "5"), r"offset='5': must be a whole number"),
        (lambda consumer: consumer.commit({("t", 0): "5"}), r"an offset to commit is a whole number or an OffsetAndMetadata, not '5'"),
        (lambda consumer: consumer.subscribe(["t"]), r"each topic is a str and an argument of its own, .*not \['t'\]"),
    ],
)
def test_what_is_no_offset_and_no_topic(db, call, says):
    with db.consumer(group_id="g") as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(TypeError, match=says):
            call(consumer)


def test_a_pattern_that_is_none(db):
    with pytest.raises(ValueError, match=r"pattern='t\(' is not a regular expression: missing \)"):
        db.consumer(pattern="t(")


@pytest.mark.parametrize("option", ["key_deserializer", "value_deserializer"])
def test_what_is_no_deserializer(db, option):
    with pytest.raises(TypeError, match=rf"{option}='yaml': must be 'string', 'json', one of logdb\.serde .*, or a callable"):
        db.consumer("t", **{option: "yaml"})


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"value_serializer": "yaml"}, TypeError, r"value_serializer='yaml': must be 'string', .* of logdb\.serde .*, or a callable"),
        ({"linger_ms": "5"}, ValueError, r"linger_ms='5': must be 0 to 60000"),
        ({"linger_ms": 70_000}, ValueError, r"linger_ms=70000: must be 0 to 60000"),
        ({"transactional_id": 5}, TypeError, r"transactional_id=5: must be a str"),
        ({"transactional_id": "x", "enable_idempotence": False}, ValueError, r"enable_idempotence=False: .* is always idempotent"),
    ],
)
def test_options_of_a_producer(db, options, error, says):
    with pytest.raises(error, match=says):
        db.producer(**options)


def test_unknown_transactional_ids(db):
    for call in (db.describe_transaction, db.abort_transaction):
        with pytest.raises(InvalidProducer, match="unknown transactional id 'x': no producer has used it, or it has expired"):
            call("x")


def test_a_fenced_transaction_says_what_may_have_happened(db):
    with pytest.raises(ProducerFenced, match=r"transactional id 'x' .* timed out, was aborted"), db.transaction("x") as first:
        first.send("t", b"", partition=1)
        first.flush()
        db.abort_transaction("x")


def test_internal_topics_are_not_proposed(db):
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(1000)
    with pytest.raises(UnknownTopic, match=r"^unknown topic 'nope'; there are 't'$"):
        db.log("nope")


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    "reading",
    [
        lambda log: log.read(0),
        lambda log: log.read(0, isolation_level="read_committed"),
        lambda log: log.read_arrow(0),
        lambda log: log.follow(0),
    ],
    ids=["read", "committed", "arrow", "follow"],
)
@pytest.mark.parametrize(("end", "told"), [("delete_topic", "t-0 is closed: its topic was deleted"), ("close", "database .* is closed")])
def test_what_ends_a_log_under_its_reader_is_told(tmp_path, reading, begun, end, told, monkeypatch):
    monkeypatch.setattr(arrow, "_ROWS", 1)  # a batch for each chunk, so that most are not read yet
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 5000})
        for _ in range(100):
            db.log("t").append_many([b"x" * 1000] * 4)
        found = reading(db.log("t"))
        if begun:
            next(found)
        db.delete_topic("t") if end == "delete_topic" else db.close()
        with pytest.raises(Closed, match=told):
            list(found)
