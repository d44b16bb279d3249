import pytest

import logdb
from logdb.errors import InvalidConfig
from logdb.model import TopicPartition
from logdb_spark_source.offsets import EARLIEST, LATEST, Bound, Resolver, parse_offsets, parse_timestamps

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 1_700_000_000_000


@pytest.fixture
def database(tmp_path):
    """Two partitions of ten records, a second apart; of the first one, the first three are deleted."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        for partition in (0, 1):
            db.log("t", partition).append_many([b"%d" % at for at in range(10)], timestamps_ms=[NOW + 1000 * at for at in range(10)])
        db.delete_records("t", 0, 3)
        yield db


def test_words_numbers_and_marks_come_to_offsets(database):
    resolver = Resolver(database, "read_uncommitted")
    for text, expected in [
        ("earliest", {P0: 3, P1: 0}),
        ("latest", {P0: 10, P1: 10}),
        ('{"t":{"0":-2,"1":-1}}', {P0: 3, P1: 10}),
        ('{"t":{"0":5,"1":7}}', {P0: 5, P1: 7}),
    ]:
        bound = parse_offsets("startingOffsets", text)
        assert resolver.starting(bound, [P0, P1], strategy="error") == expected
        assert resolver.ending(bound, [P0, P1]) == expected


def test_timestamps_come_to_the_first_record_as_young(database):
    resolver = Resolver(database, "read_uncommitted")
    bound = parse_timestamps("startingOffsetsByTimestamp", f'{{"t":{{"0":{NOW},"1":{NOW + 4500}}}}}')
    assert resolver.starting(bound, [P0, P1], strategy="error") == {P0: 3, P1: 5}
    assert resolver.ending(Bound("endingTimestamp", "timestamp_ms", NOW + 4000), [P0, P1]) == {P0: 4, P1: 4}


def test_a_timestamp_after_all_records_fails_or_is_the_end(database):
    resolver, late = Resolver(database, "read_uncommitted"), Bound("startingTimestamp", "timestamp_ms", NOW + 9001)
    with pytest.raises(InvalidConfig) as caught:
        resolver.starting(late, [P0], strategy="error")
    assert "startingTimestamp" in str(caught.value) and "t-0" in str(caught.value)
    assert "startingOffsetsByTimestampStrategy=latest" in str(caught.value)
    assert resolver.starting(late, [P0], strategy="latest") == {P0: 10}
    assert resolver.ending(late, [P0]) == {P0: 10}


def test_of_committed_records_the_end_is_before_what_is_open(database):
    with database.producer(transactional_id="x") as producer:
        producer.begin_transaction()
        producer.send("t", b"open", partition=0, timestamp_ms=NOW + 20_000).result()
        committed, all_of_it = Resolver(database, "read_committed"), Resolver(database, "read_uncommitted")
        assert (committed.ends([P0]), all_of_it.ends([P0])) == ({P0: 10}, {P0: 11})
        late = Bound("startingTimestamp", "timestamp_ms", NOW + 20_000)
        assert all_of_it.starting(late, [P0], strategy="error") == {P0: 10}
        with pytest.raises(InvalidConfig):
            committed.starting(late, [P0], strategy="error")
        producer.abort_transaction()


@pytest.mark.parametrize(
    ("text", "says"),
    [('{"t":{"0":1}}', "missing: t-1"), ('{"t":{"0":1,"1":1,"2":1},"u":{"0":1}}', "these are not: t-2, u-0")],
    ids=["missing", "strange"],
)
def test_json_names_every_partition_and_no_other(text, says):
    with pytest.raises(InvalidConfig, match=says) as caught:
        parse_offsets("endingOffsets", text).check_covers([P0, P1])
    assert "endingOffsets" in str(caught.value)


def test_words_cover_whatever_there_is():
    for value in (EARLIEST, LATEST, 17):
        Bound("startingOffsets", "offset", value).check_covers([P0, P1])
