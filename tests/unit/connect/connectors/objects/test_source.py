import itertools

import pytest

from logdb import TopicPartition
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.connectors.objects.source import ObjectStoreSourceConnector
from logdb_connect.data import BYTES, Schema, struct
from logdb_connect.errors import ConnectError, RetriableError
from support.connect_tasks import Sink, Source, sink_record

_urls = itertools.count()
ROW = struct(n=Schema(type="int64"))


def filled(records, **properties):
    url = f"memory:///source-{next(_urls)}"
    one = Sink(ObjectStoreSinkConnector, {"store.url": url, "flush.size": "3"} | properties, {})
    one.open(*{TopicPartition(each.original_topic, each.original_partition) for each in records})
    one.put(records)
    return url, one


def source(url, offsets=None, **properties):
    given = {"store.url": url, "s3.poll.interval.ms": "0"} | {key.replace("_", "."): value for key, value in properties.items()}
    return Source(ObjectStoreSourceConnector, given, offsets)


def rows(count, partition=0, topic="t", schema=None, begin=0):
    return [sink_record(n, {"n": n}, partition=partition, topic=topic, value_schema=schema) for n in range(begin, begin + count)]


@pytest.mark.parametrize("format_class", ["JsonFormat", "AvroFormat", "ParquetFormat"])
def test_what_the_sink_wrote_comes_back(format_class):
    url, one = filled([*rows(6, schema=ROW), *rows(4, 1, schema=ROW)], **{"format.class": format_class})
    two = source(url, format_class=format_class)
    fetched = []
    get = two.task._store.get
    two.task._store.get = lambda name: (fetched.append(name), get(name))[1]
    assert two.drain() == [{"n": n} for n in (*range(6), *range(3))]
    assert len(fetched) == len(set(fetched)) == 3
    one.put(rows(3, begin=6, schema=ROW))
    assert two.drain() == [{"n": n} for n in (6, 7, 8)]
    assert two.offsets[-1] == (
        {"store": url, "topic": "t", "source": "t", "partition": 0},
        {"object": f"topics/t/partition=0/t+0+0000000006{one.task._rules.format.extension}", "offset": 6, "records": 3},
    )


def test_records_keep_topic_and_schema():
    url, _ = filled(rows(3, 2, schema=ROW), **{"format.class": "AvroFormat"})
    [record, *_] = source(url, format_class="AvroFormat", topic_prefix="old.", keep_partition="true").poll()
    assert (record.topic, record.partition, record.value_schema) == ("old.t", 2, ROW)
    url, _ = filled([sink_record(n, b"%d" % n) for n in range(3)], **{"format.class": "ByteArrayFormat"})
    [record, *_] = source(url, format_class="ByteArrayFormat").poll()
    assert (record.topic, record.partition, record.value_schema, record.value) == ("t", None, BYTES, b"0")


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_each_offset_is_where_the_next_task_continues(batch_size):
    by_field = {"partitioner.class": "FieldPartitioner", "partition.field.name": "n", "flush.size": "6"}
    url, _ = filled(rows(12), **by_field)
    offsets, values = [], []
    for _ in range(12):
        one = source(url, offsets, batch_size=str(batch_size))
        values += one.step()
        one.poll()  # and then the worker dies
    assert values == [{"n": n} for n in range(12)]
    url, _ = filled(rows(12), **{"flush.size": "4"})
    offsets, values = [], []
    while len(values) < 12:
        values += source(url, offsets, batch_size=str(batch_size)).step()
    assert values == [{"n": n} for n in range(12)]


def test_tasks_share_the_partitions():
    url, _ = filled([each for partition in range(8) for each in rows(3, partition)])
    connector = ObjectStoreSourceConnector()
    connector.start({"store.url": url, "s3.poll.interval.ms": "0"})
    found = []
    for config in connector.task_configs(3):
        one = source(url)
        one.task.start(config)
        found.append({each[0]["partition"] for each in (one.drain(), one.offsets)[1]})
    assert sorted(each for part in found for each in part) == list(range(8))
    assert all(found)


def test_other_objects_are_left_out():
    url, one = filled(rows(3))
    for name in (
        "topics/t/partition=0/README",
        "topics/t/partition=0/t+0+x.json",
        "topics/t.json",
        "elsewhere/t/partition=0/t+0+0000000000.json",
    ):
        one.task.store.put(name, b"{}\n", "")
    assert source(url).drain() == [{"n": n} for n in range(3)]
    assert source(url, topic_regex="u.*").drain() == []


def test_a_broken_object_fails_the_task_by_name():
    url, one = filled(rows(3))
    one.task.store.put("topics/t/partition=0/t+0+0000000003.json", b"{", "")
    with pytest.raises(ConnectError, match=r"topics/t/partition=0/t\+0\+0000000003\.json"):
        source(url).drain()


def test_objects_that_are_removed_before_they_are_read(tmp_path, caplog):
    url = f"file://{tmp_path}/objects"
    one = Sink(ObjectStoreSinkConnector, {"store.url": url, "flush.size": "3"}, {})
    one.open(TopicPartition("t", 0))
    one.put(rows(9))
    two = source(url, s3_poll_interval_ms="3600000")
    assert two.step() == [{"n": n} for n in range(3)]
    files = sorted((tmp_path / "objects").rglob("*.json"))
    files[1].unlink()
    assert two.step() == [{"n": n} for n in (6, 7, 8)]
    assert "t+0+0000000003.json was removed before it was read" in caplog.text
    one.put(rows(3, begin=9))
    two.task._listed_s = -3600  # an hour later
    assert two.drain() == [{"n": n} for n in (9, 10, 11)]


def test_an_object_that_is_listed_and_cannot_be_read_is_tried_again(tmp_path):
    url = f"file://{tmp_path}/objects"
    one = Sink(ObjectStoreSinkConnector, {"store.url": url, "flush.size": "3"}, {})
    one.open(TopicPartition("t", 0))
    one.put(rows(3))
    two = source(url)
    store = two.task._store
    two.task._store = Emptied(store, *(tmp_path / "objects").rglob("*.json"))
    for _ in range(2):
        with pytest.raises(RetriableError, match="which it cannot read; the task tries again"):
            two.poll()
    two.task._store = store
    one.put(rows(3, begin=3))
    assert two.drain() == [{"n": n} for n in (3, 4, 5)]


class Emptied:
    """A store that loses a file each time it has listed it."""

    def __init__(self, store, path):
        self.store, self.name, self.path, self.data = store, store.name, path, path.read_bytes()
        self.get = store.get

    def names(self, prefix):
        self.path.write_bytes(self.data)
        found = list(self.store.names(prefix))
        self.path.unlink()
        return found


def test_validation_names_the_property():
    good = {"store.url": "memory:///v"}
    validate = ObjectStoreSourceConnector().validate
    assert validate(good) == {}
    assert list(validate(good | {"topic.regex": "("})) == ["topic.regex"]
    assert list(validate({})) == ["s3.bucket.name"]
    assert list(validate(good | {"format.class": "X"})) == ["format.class"]
