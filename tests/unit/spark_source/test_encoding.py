import pyarrow as pa
import pytest

import logdb
from logdb.errors import InvalidRecord, InvalidTopic, RecordTooLarge, UnknownPartition, UnknownTopic
from logdb_spark_source import commit
from support.staged import rows, staged, values

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def database(tmp_path):
    with logdb.open(tmp_path / "db") as database:
        yield database


def committed(database, tmp_path, *batches, topic="t"):
    """All records after one commit, by topic and partition."""
    commit.commit(database._session, "q", 0, [staged(database, tmp_path / "staging", *batches, topic=topic)])
    return {
        (info.name, partition): list(database.log(info.name, partition).read(0))
        for info in database.topics()
        for partition in range(info.partition_count)
    }


def test_a_key_goes_where_a_producer_sends_it(database, tmp_path):
    for name in ("t", "produced"):
        database.create_topic(name, partitions=7)
    keys = [b"key-%d" % number for number in range(100)]
    with database.producer() as producer:
        for key in keys:
            producer.send("produced", b"v", key)
    found = committed(database, tmp_path, rows(*((key, b"v") for key in keys)))
    for partition in range(7):
        assert [record.key for record in found["t", partition]] == [record.key for record in found["produced", partition]]


def test_rows_without_a_key_stay_together_and_in_order(database, tmp_path):
    database.create_topic("t", partitions=5)
    schema = pa.schema([("value", pa.string())])
    found = committed(database, tmp_path, rows(*((f"v{number}",) for number in range(1_000)), schema=schema))
    (records,) = [records for records in found.values() if records]
    assert [record.value for record in records] == [b"v%d" % number for number in range(1_000)]


def test_batches_without_a_key_take_turns(database, tmp_path):
    database.create_topic("t", partitions=4)
    one = rows(*((b"v",) for _ in range(10)), schema=pa.schema([("value", pa.binary())]))
    found = committed(database, tmp_path, *[one] * 8)
    assert [len(records) for records in found.values()] == [20] * 4


def test_a_null_key_among_others(database, tmp_path):
    database.create_topic("t", partitions=3)
    found = committed(database, tmp_path, rows((None, b"1"), (b"k", b"2"), (None, b"3"), (b"k", None)))
    records = [record for records in found.values() for record in records]
    assert sorted((record.key or b"", record.value or b"") for record in records) == [(b"", b"1"), (b"", b"3"), (b"k", b""), (b"k", b"2")]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_strings_and_bytes(database, tmp_path, kind):
    database.create_topic("t")
    text = "grün" if "string" in str(kind) else b"gr\xfcn"
    found = committed(database, tmp_path, rows((text, text), schema=pa.schema([("key", kind), ("value", kind)])))
    (record,) = found["t", 0]
    assert (record.key, record.value) == ((text.encode(),) * 2 if isinstance(text, str) else (text, text))


@pytest.mark.parametrize("partitions", [1, 3])
def test_headers(database, tmp_path, partitions):
    database.create_topic("t", partitions=partitions)
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])
    two = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    found = committed(database, tmp_path, rows((b"k", b"0", two), (b"k", b"1", None), (b"k", b"2", []), schema=schema))
    (records,) = [records for records in found.values() if records]
    assert [record.headers for record in records] == [(("a", b"1"), ("a", None)), (), ()]


def test_the_columns_topic_and_partition(database, tmp_path):
    database.create_topic("a", partitions=2)
    database.create_topic("b")
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())])
    given = rows((b"0", "a", 1), (b"1", "b", 0), (b"2", "a", 1), (b"3", "b", None), schema=schema)
    found = committed(database, tmp_path, given, topic=None)
    assert {where: [record.value for record in records] for where, records in found.items()} == {
        ("a", 0): [], ("a", 1): [b"0", b"2"], ("b", 0): [b"1", b"3"],
    }  # fmt: skip


def test_the_option_wins_over_the_column(database, tmp_path):
    database.create_topic("a")
    database.create_topic("t")
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string())])
    found = committed(database, tmp_path, rows((b"0", "a"), (b"1", "nowhere"), (b"2", None), schema=schema))
    assert [record.value for record in found["t", 0]] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ((b"v", None, None), InvalidTopic, "has no topic"),
        ((b"v", "nowhere", None), UnknownTopic, "'nowhere'; there are 't'"),
        ((b"v", "__consumer_offsets", 0), InvalidTopic, "logdb alone"),
        ((b"v", "t", 2), UnknownPartition, "2"),
        ((b"v", "t", -1), UnknownPartition, "-1"),
    ],
)
def test_a_row_that_names_what_there_is_not(database, tmp_path, row, error, message):
    database.create_topic("t", partitions=2)
    schema = pa.schema([("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())])
    with pytest.raises(error, match=message):
        staged(database, tmp_path, rows(row, schema=schema), topic=None)


def test_what_a_topic_does_not_take(database, tmp_path):
    database.create_topic("t", config={"cleanup.policy": "compact", "max.message.bytes": 1_000})
    with pytest.raises(InvalidRecord, match="t is compacted: every record needs a key"):
        staged(database, tmp_path, rows((None, b"v")))
    with pytest.raises(RecordTooLarge, match="1000"):
        staged(database, tmp_path, rows((b"k", bytes(1_000))))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_tasks_compress_as_the_topic_says(database, tmp_path, codec):
    database.create_topic("t", config={"compression.type": codec})
    file = staged(database, tmp_path, rows(*((b"k", bytes(100)) for _ in range(1_000))))
    assert file.size_bytes < 10_000
    commit.commit(database._session, "q", 0, [file])
    assert values(database) == [bytes(100)] * 1_000


def test_no_rows(database, tmp_path):
    database.create_topic("t")
    assert staged(database, tmp_path, rows()).pieces == ()


def test_many_partitions_share_the_memory(database, tmp_path):
    database.create_topic("t", partitions=2_000)
    schema = pa.schema([("value", pa.binary()), ("partition", pa.int32())])
    file = staged(database, tmp_path, rows(*((b"v", partition) for partition in range(2_000)), schema=schema))
    assert (file.record_count, len(file.pieces)) == (2_000, 2_000)
