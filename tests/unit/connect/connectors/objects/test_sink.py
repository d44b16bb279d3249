import itertools
import json
import os
import sys
from pathlib import Path

import pytest

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.connectors.objects import sink as sink_module
from logdb_connect.connectors.objects.sink import ObjectStoreSinkConnector
from logdb_connect.connectors.objects.stores import open_store
from logdb_connect.data import STRING, Schema, SinkRecords, struct
from logdb_connect.errors import ConfigError, ConnectError, DataError, RetriableError
from support.connect_tasks import Sink, sink_record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
_urls = itertools.count()
MINUTE_MS = 60_000
BY_TIME = {
    "partitioner.class": "TimeBasedPartitioner",
    "path.format": "'d'=dd/HH",
    "partition.duration.ms": "3600000",
    "locale": "en",
    "timezone": "UTC",
    "timestamp.extractor": "Record",
}


def log(count, partition=0, minutes=None, **more):
    return [
        sink_record(n, {"n": n}, partition=partition, timestamp_ms=(minutes[n] if minutes else n) * MINUTE_MS, **more) for n in range(count)
    ]


def sink(url=None, store=None, **properties):
    given = {"store.url": url or f"memory:///{next(_urls)}", "flush.size": "3"}
    return Sink(
        ObjectStoreSinkConnector,
        given | {key.replace("_", "."): value for key, value in properties.items()},
        {} if store is None else store,
    )


def objects(one):
    """The records of each object."""
    return {name: [json.loads(line)["n"] for line in one.task.store.get(name).splitlines()] for name in sorted(one.task.store.names(""))}


def test_objects_are_named_after_their_first_offset():
    one = sink()
    one.open(A, B)
    one.put(SinkRecords.of(log(8)))
    one.put([*log(1, 1), *log(8)[8:]])
    assert objects(one) == {"topics/t/partition=0/t+0+0000000000.json": [0, 1, 2], "topics/t/partition=0/t+0+0000000003.json": [3, 4, 5]}
    one.commit()
    assert one.store == {A: OffsetAndMetadata(6)}


def test_names_as_the_properties_say():
    one = sink(topics_dir="", file_delim="-", filename_offset_zero_pad_width="3", format_class="ByteArrayFormat", flush_size="1")
    one.open(A)
    one.put([sink_record(7, b"x")])
    assert list(one.task.store.names("")) == ["t/partition=0/t-0-007.bin"]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"partitioner.class": "FieldPartitioner", "partition.field.name": "n", "flush.size": "5"},
        {**BY_TIME, "flush.size": "1000", "rotate.interval.ms": str(7 * MINUTE_MS)},
        {**BY_TIME, "rotate.interval.ms": str(90 * MINUTE_MS), "rotate.file.on.partition.change": "false", "flush.size": "4"},
        {"format.class": "AvroFormat"},
        {"format.class": "ParquetFormat"},
    ],
    ids=["size", "fields", "interval", "directories", "avro", "parquet"],
)
def test_a_restart_at_any_record_writes_the_same_objects(properties):
    minutes = [0, 1, 2, 55, 59, 58, 61, 62, 70, 75, 50, 100, 101, 102, 103, 109, 125, 126]
    schemas = struct(n=Schema(type="int64")), struct(n=Schema(type="int64"), s=STRING.replace(optional=True))
    records = [each.replace(value_schema=schemas[each.offset in range(5, 9)]) for each in log(len(minutes), minutes=minutes)]
    whole = sink(**properties)
    whole.open(A)
    whole.deliver({A: records}, 100)
    whole.commit()
    wanted = {name: whole.task.store.get(name) for name in whole.task.store.names("")}
    assert len(wanted) > 3
    for dies_at, at_once in itertools.product(range(1, len(records)), (1, 3, 7)):
        url, store = f"memory:///{next(_urls)}", {}
        one = sink(url, store, **properties)
        one.open(A)
        for begin in range(0, dies_at, at_once):
            one.put(SinkRecords.of(records[begin : min(begin + at_once, dies_at)]))
            if begin % 2:
                one.commit()
        two = sink(url, store, **properties)
        two.open(A)
        two.deliver({A: records}, at_once)
        two.commit()
        assert {name: two.task.store.get(name) for name in two.task.store.names("")} == wanted
        assert two.store == whole.store


def test_directories_by_time():
    one = sink(**BY_TIME, flush_size="100", rotate_interval_ms=str(10 * MINUTE_MS))
    one.open(A)
    one.put(log(5, minutes=[58, 59, 60, 61, 71]))
    assert objects(one) == {"topics/t/d=01/00/t+0+0000000000.json": [0, 1], "topics/t/d=01/01/t+0+0000000002.json": [2, 3]}


def test_flush_size_counts_the_records_of_all_directories():
    one = sink(partitioner_class="FieldPartitioner", partition_field_name="n")
    one.open(A)
    one.put(log(4))
    assert list(objects(one).values()) == [[0], [1], [2]]


def test_a_schedule_ends_objects_by_the_clock(monkeypatch):
    now = 1_000_000_000_123
    monkeypatch.setattr(sink_module, "_now_ms", lambda: now)
    one = sink(flush_size="100", rotate_schedule_interval_ms="60000", timezone="Asia/Kolkata")
    one.open(A)
    one.put(log(2))
    assert objects(one) == {}
    now += MINUTE_MS
    one.put([])
    assert list(objects(one).values()) == [[0, 1]]


def test_a_store_that_is_away_gets_all_later():
    one = sink()
    one.open(A)
    put, calls = one.task.store.put, []

    def fails(*arguments):
        calls.append(arguments)
        raise RetriableError("away")

    one.task.store.put = fails
    with pytest.raises(RetriableError):
        one.put(log(8))
    one.commit()
    with pytest.raises(RetriableError):
        one.put(log(8))
    assert one.store == {}
    assert len({name for name, *_ in calls}) == 1
    one.task.store.put = put
    one.put(log(8))
    assert [each for values in objects(one).values() for each in values] == list(range(6))
    one.commit()
    assert one.store == {A: OffsetAndMetadata(6)}


def test_a_partition_that_comes_back_begins_where_nothing_is_stored():
    one = sink()
    one.open(A)
    one.put(log(5))
    one.commit()
    one.task.open([A])
    assert one.positions[A] == 3
    one.put(log(9)[3:])
    assert list(objects(one).values()) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    one.close()
    assert one.store == {A: OffsetAndMetadata(9)}


def test_bad_records_are_reported_and_the_others_stored():
    records = log(6, value_schema=struct(n=Schema(type="int64")))
    records[1] = records[1].replace(value={"n": "x"})
    records[4] = records[4].replace(value=None)
    for format_class in ("AvroFormat", "ParquetFormat", "JsonFormat"):
        one = sink(format_class=format_class, flush_size="2")
        one.open(A)
        one.put(records)
        assert [(record.offset, type(error)) for record, error in one.reported] == [(1, DataError), (4, DataError)]
        assert len(list(one.task.store.names(""))) == 2
        one.commit()
        assert one.store == {A: OffsetAndMetadata(6)}
    one = sink(flush_size="2", behavior_on_null_values="ignore")
    one.open(A)
    one.put([sink_record(0, None), sink_record(1, None)])
    one.commit()
    assert one.reported == []
    assert one.store == {A: OffsetAndMetadata(2)}


def test_topics_that_transforms_merge_keep_their_objects_apart():
    one = sink(flush_size="1")
    one.open(TopicPartition("x", 0), TopicPartition("y", 0))
    one.put([sink_record(0, {"n": n}, topic=topic).replace(topic="all") for n, topic in enumerate("xy")])
    assert objects(one) == {"topics/all/partition=0/x+0+0000000000.json": [0], "topics/all/partition=0/y+0+0000000000.json": [1]}


def test_files_of_a_directory_are_durable(tmp_path, monkeypatch):
    synced = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(os.readlink(f"/proc/self/fd/{descriptor}")), fsync(descriptor)))
    monkeypatch.setattr(Path, "rename", lambda old, new: (synced.append(f"{old} is {new}"), rename(old, new)))
    one = sink(f"file://{tmp_path}/new")
    one.open(A)
    one.put(log(3))
    place = tmp_path / "new/topics/t/partition=0/t+0+0000000000.json"
    assert place.read_bytes().count(b"\n") == 3
    unfinished = synced[0]
    assert unfinished.startswith(f"{place}#")
    assert synced == [unfinished, f"{unfinished} is {place}", *map(str, place.parents[:4])]


def test_a_file_that_is_moved_at_once(tmp_path, monkeypatch):
    taken, rename = [], Path.rename

    def moved(old, new):
        rename(old, new)
        taken.append(new.read_bytes())
        new.unlink()

    monkeypatch.setattr(Path, "rename", moved)
    one = sink(f"file://{tmp_path}/new")
    one.open(A)
    one.put(log(6))
    assert [data.count(b"\n") for data in taken] == [3, 3]
    assert [each for each in (tmp_path / "new").rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("name", ["a/../../b", "/a", "a//b", "./a", ".."])
def test_a_name_that_leaves_the_directory(tmp_path, name):
    config = ObjectStoreSinkConnector.config_def.parse({"store.url": f"file://{tmp_path}/new", "flush.size": "1"})
    with pytest.raises(ConnectError, match="a part of the name must be neither empty"):
        open_store(config).put(name, b"1", "text/plain")
    assert not list(tmp_path.rglob("b"))


def test_an_unfinished_file_is_no_object(tmp_path):
    config = ObjectStoreSinkConnector.config_def.parse({"store.url": f"file://{tmp_path}/new", "flush.size": "1"})
    store = open_store(config)
    store.put("topics/é #1 %2F", b"1", "text/plain")
    (tmp_path / "new/topics/x.json#12345").write_bytes(b"1")
    assert list(store.names("topics")) == ["topics/é #1 %2F"]
    assert store.get("topics/é #1 %2F") == b"1"


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"format.class": "X"}, "format.class"),
        ({"partitioner.class": "X"}, "partitioner.class"),
        ({"store.url": "ftp://x"}, "store.url"),
        ({"store.url": "backup/objects"}, "store.url"),
        ({"store.url": "file://backup/objects"}, "store.url"),
        ({"store.url": ""}, "s3.bucket.name"),
        ({"rotate.schedule.interval.ms": "5"}, "timezone"),
    ],
)
def test_validation_names_the_property(properties, name):
    good = {"store.url": "memory:///v", "flush.size": "3"}
    assert ObjectStoreSinkConnector().validate(good) == {}
    assert list(ObjectStoreSinkConnector().validate(good | properties)) == [name]
    with pytest.raises(ConfigError):
        sink(**{"store.url": "memory:///v"} | properties)


def test_half_of_the_credentials_is_refused():
    good = {"s3.bucket.name": "b", "store.url": "http://127.0.0.1:1", "flush.size": "3"}
    assert ObjectStoreSinkConnector().validate(good | {"aws.access.key.id": "a", "aws.secret.access.key": "b"}) == {}
    for given, missing in (("aws.access.key.id", "aws.secret.access.key"), ("aws.secret.access.key", "aws.access.key.id")):
        assert list(ObjectStoreSinkConnector().validate(good | {given: "a"})) == [missing]


def test_a_topics_records_that_parquet_cannot_hold_together_fail_the_task():
    one = sink(format_class="ParquetFormat", flush_size="2")
    one.open(A)
    with pytest.raises(ConnectError, match=r"t\+0\+0000000000\.snappy\.parquet"):
        one.put([sink_record(0, {"a": 1}), sink_record(1, {"a": {"b": 1}})])


def test_without_obstore_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    found = ObjectStoreSinkConnector().validate({"store.url": "memory:///v", "flush.size": "3"})
    assert found == {"store.url": "Object stores need the package obstore: pip install obstore pyarrow fastavro"}
