"""Mirrors: records of MirrorMaker's topics, names of topics, translated offsets."""

import contextlib
import re
from types import SimpleNamespace

import pytest

import logdb
from logdb import TopicPartition
from logdb_connect.client import connected
from logdb_connect.connectors.mirror import policies
from logdb_connect.connectors.mirror.checkpoints import OffsetPairs
from logdb_connect.connectors.mirror.settings import MIRROR
from logdb_connect.connectors.mirror.source import MirrorSourceTask, TopicChoice
from logdb_connect.connectors.mirror.wire import Checkpoint, OffsetSync, heartbeat
from logdb_connect.errors import ConfigError, RetriableError

SERVERS = {"source.cluster.bootstrap.servers": "a:9092"}


def test_records_are_mirrormakers_byte_for_byte():
    pair = OffsetSync("t", 3, 5, 1 << 33)
    assert pair.key() == b"\0\x01t" + b"\0\0\0\x03"
    assert pair.value() == bytes(7) + b"\x05" + b"\0\0\0\x02\0\0\0\0"
    assert OffsetSync.of(pair.key(), pair.value()) == pair
    with pytest.raises(ValueError, match="longer than the record"):
        OffsetSync.of(b"\0\x09t", pair.value())
    checkpoint = Checkpoint("g", "a.t", 1, 2, 3, "é")
    assert checkpoint.key() == b"\0\x01g\0\x03a.t\0\0\0\x01"
    assert checkpoint.value() == b"\0\0" + bytes(7) + b"\x02" + bytes(7) + b"\x03" + b"\0\x02\xc3\xa9"
    assert heartbeat("a", "b", 7) == (b"\0\x01a\0\x01b", b"\0\0" + bytes(7) + b"\x07")


def test_names_and_choice_of_topics():
    given = {**SERVERS, "source.cluster.alias": "a", "target.cluster.alias": "b", "topics": "orders, pay.*", "topics.exclude": "pay-.*"}
    choice = TopicChoice(MIRROR.parse(given))
    names = ["orders", "orders2", "payments", "pay-x", "a.orders", "b.payments", "b.heartbeats", "heartbeats", "__consumer_offsets"]
    assert [name for name in names if choice.is_mirrored(name)] == ["orders", "payments", "heartbeats"]
    assert choice.renamed("orders") == "a.orders"
    identity = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    choice = TopicChoice(MIRROR.parse({**given, "replication.policy.class": identity}))
    assert [name for name in names if choice.is_mirrored(name)] == ["orders", "payments", "heartbeats"]
    assert [choice.renamed(name) for name in ("orders", "heartbeats")] == ["orders", "a.heartbeats"]
    with pytest.raises(ConfigError, match=re.escape("must be one of DefaultReplicationPolicy, IdentityReplicationPolicy, or module:Class")):
        policies.policy_of("com.example.Mine", ".")
    with pytest.raises(ConfigError, match=r"Invalid value \( for configuration topics"):
        TopicChoice(MIRROR.parse({**given, "topics": "("}))


def test_a_translated_offset_leaves_out_no_record():
    pairs, at = OffsetPairs(), TopicPartition("t", 0)
    copies, downstream = {}, 0
    for upstream in range(10_000):  # the target has a marker after each tenth record
        copies[upstream] = downstream
        pairs.add(OffsetSync(*at, upstream, downstream))
        downstream += 2 if upstream % 10 == 9 else 1
    for committed in range(10_000):
        found = pairs.translated(at, committed)
        assert found is not None
        assert found <= copies[committed]
    assert pairs.translated(at, 9_999) == copies[9_999]
    assert pairs.translated(at, 10_000) == copies[9_999] + 1
    assert pairs.translated(TopicPartition("t", 1), 5) is None
    pairs.add(OffsetSync(*at, 3, 20_000))  # the topic of the source was created again
    assert pairs.translated(at, 2) is None
    assert pairs.translated(at, 9) == 20_001


def test_a_source_that_is_opened_again_is_read_behind_what_was_given(tmp_path, monkeypatch):
    """The stored offsets are those of the task's start."""
    with logdb.open(tmp_path / "a") as theirs:
        theirs.create_topic("orders")
        theirs.log("orders").append_many([b"0", b"1"])
        theirs.flush()
        with _started(tmp_path) as task:
            found = _polled(task)
            with monkeypatch.context() as patch, pytest.raises(RetriableError):
                patch.setattr(type(task._reader), "poll", _unreachable)
                task.poll()
            theirs.log("orders").append(b"2")
            theirs.flush()
            assert [one.value for one in (*found, *_polled(task))] == [b"0", b"1", b"2"]


def test_each_timestamp_is_copied(tmp_path):
    """-1 is "none", and not the time of the copy."""
    times = [-1, -2, 0, 5, -62_135_596_800_001, 253_402_300_800_000, -(2**63), 2**63 - 1]
    with logdb.open(tmp_path / "a") as theirs:
        theirs.create_topic("orders", config={"message.timestamp.after.max.ms": 2**63 - 1})
        theirs.log("orders").append_many([b"v"] * len(times), timestamps_ms=times)
        theirs.flush()
        with _started(tmp_path) as task:
            assert [one.timestamp_ms for one in _polled(task)] == times


@contextlib.contextmanager
def _started(tmp_path):
    with contextlib.closing(connected({"bootstrap.servers": str(tmp_path / "b")})) as client:
        task = MirrorSourceTask()
        task.context = SimpleNamespace(client=client, offset=lambda _: None, wait=bool)
        task.start({
            "name": "m", "source.cluster.alias": "a", "target.cluster.alias": "b", "topics": "orders",
            "source.cluster.bootstrap.servers": str(tmp_path / "a"), "task.assigned.partitions": "orders-0",
        })  # fmt: skip
        yield task
        task.stop()


def _polled(task):
    while not (found := task.poll()):
        pass
    return found


def _unreachable(*_: object) -> None:
    raise RetriableError("the source is away")
