import random
from collections import Counter
from itertools import pairwise

import pytest

import logdb
from logdb.client.producer.partitioner import Default, RoundRobin, make, partition_for_key
from logdb.errors import UnknownPartition


class Cluster:
    """As much of kafka-python's cluster metadata as its partitioner asks for: one topic."""

    def __init__(self, count):
        self._partitions = set(range(count))

    def topics(self):
        return {"t"}

    def partitions_for_topic(self, topic):
        return self._partitions

    available_partitions_for_topic = partitions_for_topic


def kafkas():
    """kafka-python's default partitioner as (key, partition_count) -> partition."""
    partitioner = pytest.importorskip("kafka.partitioner.default").DefaultPartitioner()
    return lambda key, count: partitioner.partition("t", key, key, None, None, Cluster(count))


def test_keys_go_where_kafka_python_sends_them():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng, theirs, ours = random.Random(seed), kafkas(), Default()
    for _ in range(2000):
        key, count = rng.randbytes(rng.randrange(40)), rng.randrange(1, 50)
        expected = theirs(key, count)
        assert ours(key, count) == partition_for_key(key, count) == expected, (key, count)
        assert ours(bytearray(key), count) == ours(memoryview(key), count) == expected


def test_an_empty_key_is_a_key():
    assert len({Default(seed)(b"", 7) for seed in range(50)}) == 1


def test_without_a_key_it_stays_for_about_a_batch_and_spreads():
    choose = Default(seed=1)
    chosen = [choose(None, 5) for _ in range(128 * 500)]
    runs = 1 + sum(a != b for a, b in pairwise(chosen))
    assert runs == 500
    counts = Counter(chosen)
    assert len(counts) == 5
    assert max(counts.values()) < 1.4 * min(counts.values())


def test_a_smaller_topic_is_no_trouble():
    choose = Default(seed=2)
    for count in (10, 3, 1, 10, 2):
        assert all(0 <= choose(None, count) < count for _ in range(300))


def test_round_robin():
    choose = RoundRobin()
    assert [choose(b"same", 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [choose(None, 2) for _ in range(4)] == [1, 0, 1, 0]


def test_make():
    assert isinstance(make(None), Default)
    assert isinstance(make("default"), Default)
    assert isinstance(make("round_robin"), RoundRobin)
    assert make(partition_for_key) is partition_for_key
    with pytest.raises(ValueError, match="partitioner='x'"):
        make("x")


def test_in_a_database(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=4)
        theirs = kafkas()
        keys = [b"k%d" % number for number in range(100)]
        for key, metadata in zip(keys, db.append_many("t", keys, keys), strict=True):
            assert metadata.partition == theirs(key, 4)
            assert next(db.log("t", metadata.partition).read(metadata.offset)).key == key
        assert [db.append("t", b"x", partitioner="round_robin").partition for _ in range(5)] == [0, 1, 2, 3, 0]
        assert {db.append("t", b"x", b"k", partitioner=lambda _key, count: count - 1).partition for _ in range(5)} == {3}
        ends = [db.log("t", partition).end_offset for partition in range(4)]
        with pytest.raises(UnknownPartition, match="no partition 4: it has 4"):
            db.append_many("t", [b"x", b"y"], partitioner=lambda _key, count: count)
        assert [db.log("t", partition).end_offset for partition in range(4)] == ends
        db.alter_topic("t", partitions=9)
        assert {db.append("t", b"x", partitioner=lambda _key, count: count - 1).partition} == {8}
