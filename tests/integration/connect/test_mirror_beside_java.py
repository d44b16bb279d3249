"""MirrorMaker 2's connectors in Java's worker, and ours in our worker: the same property files leave the same topics and offsets.

Skipped, with the reason, where Java or Maven are missing.
"""

import contextlib

import pytest

from benches.peers.kafka.jars import PLATFORM
from logdb import OffsetAndMetadata, TopicPartition, testing
from logdb.errors import LogdbError, UnknownTopic
from logdb_connect.connectors.mirror.wire import Checkpoint, OffsetSync
from logdb_connect.runtime import starting
from support.java import java, properties, running, worker_settings
from support.waiting import until

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]
FEW, COUNT = 30, 900
CONFIG = {"retention.ms": "86400000000", "max.message.bytes": "654321", "cleanup.policy": "delete"}
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
MIRROR = {
    "source_cluster_alias": "a",
    "target_cluster_alias": "b",
    "topics": "orders",
    "tasks_max": 1,
    "key_converter": BYTES,
    "value_converter": BYTES,
    "header_converter": BYTES,
    "offset-syncs_topic_location": "target",
    "replication_factor": 1,
}
RECORDS = {
    **MIRROR,
    "name": "records",
    "connector_class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "offset-syncs_topic_replication_factor": 1,
    "offset_lag_max": 0,
    "source_consumer_isolation_level": "read_committed",
    "refresh_topics_interval_seconds": 1,
    "sync_topic_configs_interval_seconds": 1,
    "sync_topic_acls_enabled": "false",
}
CHECKPOINTS = {
    **MIRROR,
    "name": "checkpoints",
    "connector_class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
    "groups": "first|all|half|none",
    "checkpoints_topic_replication_factor": 1,
    "emit_checkpoints_interval_seconds": 1,
    "sync_group_offsets_enabled": "true",
    "sync_group_offsets_interval_seconds": 1,
    "refresh_groups_interval_seconds": 1,
}


@pytest.fixture(scope="module", autouse=True)
def jars():
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)


def fill(db, begins):
    """Two partitions, in transactions of ten; each third is aborted: offsets at the source have gaps."""
    with db.producer(transactional_id="filler") as producer:
        producer.init_transactions()
        for begin in begins:
            producer.begin_transaction()
            for number in range(begin, begin + 10):
                value = None if number % 50 == 7 else str(number).encode()
                key = None if number % 7 == 3 else f"k{number}".encode()
                headers = [("h", b"\x00\xff"), ("n", None), ("h", b"2")][: number % 4]
                producer.send("orders", value, key, partition=number % 2, headers=headers, timestamp_ms=1_700_000_000_000 + number)
            (producer.abort_transaction if begin % 30 == 20 else producer.commit_transaction)()


def commit(db, group, where):
    """Let a group commit where it is; ``where``: of an end."""
    offsets = {at(number): OffsetAndMetadata(where(end(db, "orders", number)), metadata=f"{group} {number}") for number in range(2)}
    db.session.commit_offsets(group, offsets).result()


def at(number, topic="orders"):
    return TopicPartition(topic, number)


def end(db, topic, partition):
    return db.session.log(topic, partition).last_stable_offset


def records(db, topic, partition):
    found = db.log(topic, partition).read(0, isolation_level="read_committed")
    return [(one.key, one.value, one.timestamp_ms, tuple(map(tuple, one.headers))) for one in found]


def offsets(db, topic, partition):
    return [one.offset for one in db.log(topic, partition).read(0, isolation_level="read_committed")]


class Side:
    """A worker's target: topics, pairs of offsets, committed offsets."""

    def __init__(self, database):
        self.database = database

    def is_done(self):
        """All records, and both groups' offsets."""
        with contextlib.suppress(LogdbError):
            copied = sum(len(records(self.database, "a.orders", number)) for number in range(2))
            return copied == COUNT * 2 // 3 and self.committed("all") == self.ends() and len(self.committed("half")) == 2
        return False

    def ends(self):
        return {number: offsets(self.database, "a.orders", number)[-1] + 1 for number in range(2)}

    def committed(self, group):
        found = self.database.session.fetch_offsets(group)
        return {where.partition: one.offset for where, one in found.items() if where.topic == "a.orders"}

    def pairs(self):
        """Of each partition, in their order."""
        found = [OffsetSync.of(one.key, one.value) for one in self.database.log("mm2-offset-syncs.a.internal").read(0)]
        return {number: [(one.upstream, one.downstream) for one in found if one.partition == number] for number in range(2)}

    def left(self, group, partition):
        """The values that a group has yet to read."""
        start = self.committed(group)[partition]
        return [one.value for one in self.database.log("a.orders", partition).read(start, isolation_level="read_committed")]


def written(directory, source, target):
    """The property files: but for addresses they are the same on both sides."""
    directory.mkdir()
    more = {"source_cluster_bootstrap_servers": source, "target_cluster_bootstrap_servers": target}
    worker = properties(
        directory / "worker.properties", bootstrap_servers=target, offset_storage_file_filename=directory / "offsets", **worker_settings()
    )
    return worker, [properties(directory / f"{one['name']}.properties", **one, **more) for one in (RECORDS, CHECKPOINTS)]


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """The source; Java's target, and ours."""
    home = tmp_path_factory.mktemp("mirrors")
    with contextlib.ExitStack() as stack:
        source, theirs, ours = (stack.enter_context(testing.broker()) for _ in range(3))
        source.database.create_topic("orders", partitions=2, config=CONFIG)
        fill(source.database, range(0, FEW, 10))
        commit(source.database, "first", lambda end: end)
        worker, files = written(home / "java", source.bootstrap_servers, theirs.bootstrap_servers)
        command = java("org.apache.kafka.connect.cli.ConnectStandalone", worker, *files)
        program = stack.enter_context(running(command, home / "log"))
        worker, files = written(home / "ours", source.bootstrap_servers, ours.bootstrap_servers)
        stack.enter_context(starting.standalone(str(worker), [str(file) for file in files]))
        # Java's worker forgets the pairs that were written before its checkpoint task began
        for side in (Side(theirs.database), Side(ours.database)):
            program.until(lambda side=side: checkpoints("first") <= keys(side, "a.checkpoints.internal"), 150)
        fill(source.database, range(FEW, COUNT, 10))
        for group, where in (("all", lambda end: end), ("half", lambda end: end // 2), ("none", lambda _: 0)):
            commit(source.database, group, where)
        until(Side(ours.database).is_done, "ours", 90)
        program.until(Side(theirs.database).is_done, 150)
        yield source.database, Side(theirs.database), Side(ours.database)


@pytest.mark.parametrize("partition", range(2))
def test_records_are_the_same(sides, partition):
    """Keys, values, timestamps and headers, byte by byte."""
    source, theirs, ours = sides
    wanted = records(source, "orders", partition)
    assert records(theirs.database, "a.orders", partition) == wanted
    assert records(ours.database, "a.orders", partition) == wanted


def test_configs_are_the_same(sides):
    _, theirs, ours = sides
    for side in (theirs, ours):
        found = side.database.describe_topic("a.orders").config
        assert {name: str(found[name]) for name in CONFIG} == CONFIG


def test_pairs_of_offsets_name_a_record_and_its_copy(sides):
    source, *both = sides
    for side in both:
        for number, pairs in side.pairs().items():
            copies = dict(zip(offsets(source, "orders", number), offsets(side.database, "a.orders", number), strict=True))
            assert pairs
            assert [(upstream, copies.get(upstream)) for upstream, _ in pairs] == pairs


def checkpoints(*groups):
    return {Checkpoint(group, "a.orders", number, 0, 0, "").key() for group in groups for number in range(2)}


@pytest.mark.parametrize(
    ("topic", "wanted", "possible"),
    [
        ("mm2-offset-syncs.a.internal", (pairs := {OffsetSync("orders", number, 0, 0).key() for number in range(2)}), pairs),
        ("a.checkpoints.internal", checkpoints("first", "all", "half"), checkpoints("first", "all", "half", "none")),
    ],
)
def test_the_topics_of_pairs_and_checkpoints_are_the_same(sides, topic, wanted, possible):
    """Names, partitions, compaction; keys of the records, byte by byte.

    Whether Java's worker tells of a group at offset 0 depends on when its checkpoint task began.
    """
    for side in sides[1:]:
        found = side.database.describe_topic(topic)
        assert (found.partition_count, found.config["cleanup.policy"]) == (1, "compact")
        until(lambda side=side: keys(side, topic) >= wanted, "all of each partition is told", 60)
        assert keys(side, topic) <= possible


def keys(side, topic):
    with contextlib.suppress(UnknownTopic):
        return {one.key for one in side.database.log(topic).read(0, isolation_level="read_committed")}
    return set()


def test_groups_go_on_without_a_gap(sides):
    """A group that has read all continues at the end.  Another one may read again, and misses nothing."""
    source, *both = sides
    for side in both:
        assert [side.left("all", number) for number in range(2)] == [[], []]
        for number in range(2):
            start = source.session.fetch_offsets("half")[at(number)].offset
            rest = [one.value for one in source.log("orders", number).read(start, isolation_level="read_committed")]
            left = side.left("half", number)
            assert rest and left[len(left) - len(rest) :] == rest
