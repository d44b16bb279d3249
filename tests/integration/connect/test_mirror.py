"""Mirrors: topics, offsets of groups and heartbeats of another cluster, in a worker."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import logdb
from logdb import OffsetAndMetadata, TopicPartition
from logdb.errors import UnknownPartition, UnknownTopic
from support.connect_workers import WORKER, WorkerProcess, served, standalone, written
from support.kafka_door import kafka_door
from support.ports import free_port
from support.waiting import until

MIRROR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "a",
    "target.cluster.alias": "b",
}
TOPICS = {
    "topics": "orders.*",
    "consumer.poll.timeout.ms": "100",
    "refresh.topics.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
}
CHECKPOINTS = {
    **MIRROR,
    "name": "checkpoints",
    "topics": "orders.*",
    "connector.class": "MirrorCheckpoint",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
}
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


def _records(db: logdb.Database, topic: str, partition: int) -> list[tuple[object, ...]]:
    found = db.log(topic, partition).read(0, isolation_level="read_committed")
    return [(one.key, one.value, one.timestamp_ms, tuple(map(tuple, one.headers))) for one in found]


def _count(db: logdb.Database, topic: str, partitions: int) -> int:
    try:
        return sum(len(_records(db, topic, number)) for number in range(partitions))
    except (UnknownPartition, UnknownTopic):
        return 0


def _filled(db: logdb.Database, count: int = 300) -> None:
    """Records of two partitions, in transactions of ten; each third is aborted."""
    db.create_topic("orders", partitions=2, config={"retention.ms": "86400000000"})
    with db.producer(transactional_id="filler") as producer:
        producer.init_transactions()
        for begin in range(0, count, 10):
            producer.begin_transaction()
            for number in range(begin, begin + 10):
                value = None if number % 50 == 7 else str(number).encode()
                headers = [("h", b"\x00\xff"), ("h", b"2")]
                at = -1 - number if number % 8 < 2 else 1000 + number  # -1 and -2, and before 1970
                producer.send("orders", value, f"k{number}".encode(), partition=number % 2, headers=headers, timestamp_ms=at)
            (producer.abort_transaction if begin % 30 == 20 else producer.commit_transaction)()


def test_topics_and_groups_of_a_server(tmp_path):
    with served(tmp_path / "a") as source, logdb.open(source) as theirs, served(tmp_path / "b") as target, logdb.open(target) as ours:
        _filled(theirs)
        wanted = [_records(theirs, "orders", number) for number in range(2)]
        assert sum(map(len, wanted)) == 200
        (whole,) = (theirs.session.log("orders", 0).last_stable_offset,)
        theirs.session.commit_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(whole, metadata="note")}).result()
        theirs.session.commit_offsets("half", {TopicPartition("orders", 1): OffsetAndMetadata(60)}).result()
        place = {"source.cluster.bootstrap.servers": source}
        heartbeats = {**MIRROR, "name": "beats", "connector.class": "MirrorHeartbeat"}
        with standalone(
            target, tmp_path, {**MIRROR, **TOPICS, **place, "name": "m", "tasks.max": "2"}, {**CHECKPOINTS, **place}, heartbeats
        ) as rest:
            until(lambda: _count(ours, "a.orders", 2) == 200)
            assert [_records(ours, "a.orders", number) for number in range(2)] == wanted
            assert rest.states("m") == ["RUNNING"] * 3
            until(lambda: ours.describe_topic("a.orders").config.get("retention.ms") == 86_400_000_000)
            theirs.alter_topic("orders", config={"retention.ms": None, "max.message.bytes": 70_000}, partitions=3)
            theirs.log("orders", 2).append(value=b"late", key=b"k")
            until(lambda: _count(ours, "a.orders", 3) == 201)
            until(lambda: dict(ours.describe_topic("a.orders").config) == {"max.message.bytes": 70_000})
            until(lambda: set(ours.session.fetch_offsets("billing")) and set(ours.session.fetch_offsets("half")))
            (at,) = ours.session.fetch_offsets("billing").values()
            until(lambda: _left(ours, "billing", "a.orders", 0) == [])
            assert at.metadata == "note"
            rest_of_it = [value for _, value, *_ in _records_after(theirs, "orders", 1, 60)]
            left = _left(ours, "half", "a.orders", 1)
            assert left[len(left) - len(rest_of_it) :] == rest_of_it  # none is left out
            until(lambda: _count(ours, "a.checkpoints.internal", 1) >= 2 and _count(ours, "heartbeats", 1) >= 1)
            partitions = [one["partition"] for one in rest.get("/connectors/m/offsets")["offsets"]]
            assert {"cluster": "a", "topic": "orders", "partition": 2} in partitions


def _records_after(db: logdb.Database, topic: str, partition: int, offset: int) -> list[tuple[object, ...]]:
    return [(one.key, one.value) for one in db.log(topic, partition).read(offset, isolation_level="read_committed")]


def _left(db: logdb.Database, group: str, topic: str, partition: int) -> list[object]:
    """Values that a group has yet to read."""
    at = db.session.fetch_offsets(group)[TopicPartition(topic, partition)].offset
    return [value for _, value in _records_after(db, topic, partition, at)]


def test_a_kafka_and_its_groups(tmp_path):
    with kafka_door(tmp_path / "a") as source, served(tmp_path / "b") as target, logdb.open(target) as ours:
        _filled(source.db)
        wanted = [_records(source.db, "orders", number) for number in range(2)]
        end = source.db.session.log("orders", 0).last_stable_offset
        source.db.session.commit_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(end)}).result()
        place = {"source.cluster.bootstrap.servers": source.address, "source.cluster.client": "kafka", **IDENTITY}
        with standalone(target, tmp_path, {**MIRROR, **TOPICS, **place, "name": "m"}, {**CHECKPOINTS, **place}):
            until(lambda: _count(ours, "orders", 2) == 200)
            assert [_records(ours, "orders", number) for number in range(2)] == wanted
            until(lambda: dict(ours.describe_topic("orders").config) == {"retention.ms": 86_400_000_000})
            until(lambda: ours.session.fetch_offsets("billing"))
            until(lambda: _left(ours, "billing", "orders", 0) == [])


def test_a_mirror_that_is_killed_copies_each_record_once(tmp_path):
    """The source is a directory that another process, this one, writes to."""
    out = tmp_path / "b"
    with logdb.open(tmp_path / "a") as theirs, served(out) as target, logdb.open(target) as ours:
        theirs.create_topic("orders", partitions=2)
        port, numbers = free_port(), itertools.count()
        files = _files(
            tmp_path, target, port, {**MIRROR, **TOPICS, **IDENTITY, "name": "m", "source.cluster.bootstrap.servers": str(tmp_path / "a")}
        )
        for turn in range(4):
            with WorkerProcess("standalone", *files, port=port) as process:
                for _ in range(8):
                    theirs.log("orders", turn % 2).append_many([str(next(numbers)).encode() for _ in range(500)])
                until(lambda turn=turn: _count(ours, "orders", 2) > turn * 4_000 + 500)
                process.kill()
        with WorkerProcess("standalone", *files, port=port) as process:
            until(lambda: _count(ours, "orders", 2) >= 16_000)
            process.stop()
        for number in range(2):
            assert [value for _, value, *_ in _records(ours, "orders", number)] == [
                value for _, value, *_ in _records(theirs, "orders", number)
            ]


def _files(directory: Path, place: str, port: int, connector: Mapping[str, str]) -> list[str]:
    worker = {**WORKER, "bootstrap.servers": place, "listeners": f"http://127.0.0.1:{port}"}
    return [
        written(directory / "worker.properties", {"offset.storage.file.filename": f"{directory}/offsets", **worker}),
        written(directory / "connector.properties", connector),
    ]
