import pytest

import logdb
from logdb import errors
from logdb.model import OffsetAndMetadata, TopicPartition
from support.places import opened

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def db(place, tmp_path):
    with opened(place, tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        db.log("t", 0).append_many([b"x"] * 10)
        yield db


def test_how_far_a_group_is(db):
    with pytest.raises(errors.UnknownGroup):
        db.group_offsets("g")
    db.reset_offsets("g", {T0: 4, T1: 0})
    rows = db.group_offsets("g")
    assert [(row.partition, row.committed.offset, row.end_offset, row.lag, row.member) for row in rows] == [
        (T0, 4, 10, 6, None),
        (T1, 0, 0, 0, None),
    ]
    assert [(group.group_id, group.state) for group in db.groups()] == [("g", "Empty")]


def test_who_reads_what(db):
    with db.consumer("t", group_id="g", client_id="me") as consumer:
        consumer.poll()
        rows = db.group_offsets("g")
        assert [(row.partition, row.committed, row.lag, row.member.client_id) for row in rows] == [
            (T0, None, None, "me"),
            (T1, None, None, "me"),
        ]
        with pytest.raises(errors.GroupNotEmpty):
            db.reset_offsets("g", {T0: 0})
        with pytest.raises(errors.GroupNotEmpty):
            db.delete_group("g")
        with pytest.raises(errors.GroupNotEmpty):
            db.delete_group_offsets("g", [T0])


@pytest.mark.parametrize(
    ("group", "offsets", "error"),
    [
        ("g", {T0: 11}, errors.OffsetOutOfRange),
        ("g", {T0: -1}, errors.OffsetOutOfRange),
        ("g", {TopicPartition("t", 2): 0}, errors.UnknownPartition),
        ("g", {T0: 1, TopicPartition("nosuch", 0): 0}, errors.UnknownTopic),
        ("", {T0: 0}, errors.InvalidGroup),
    ],
)
def test_a_reset_that_is_refused_changes_nothing(db, group, offsets, error):
    db.reset_offsets("g", {T0: 5})
    with pytest.raises(error):
        db.reset_offsets(group, offsets)
    assert db._session.fetch_offsets("g") == {T0: OffsetAndMetadata(5)}


def test_forgetting_offsets_and_groups(db):
    db.reset_offsets("g", {T0: 5, T1: 0})
    db.delete_group_offsets("g", [T1])
    assert [row.partition for row in db.group_offsets("g")] == [T0]
    db.delete_group("g")
    assert db.groups() == []
    for call in (db.delete_group, db.describe_group):
        with pytest.raises(errors.UnknownGroup):
            call("g")


def test_transactions(db):
    assert db.transactions() == []
    with db.transaction("id") as tx:
        tx.send("t", b"x", partition=1)
        tx.flush()
        assert db.describe_transaction("id").partitions == (T1,)
    assert [(info.transactional_id, info.state) for info in db.transactions()] == [("id", "CompleteCommit")]
    with pytest.raises(errors.InvalidProducer):
        db.describe_transaction("nosuch")
    with pytest.raises(errors.InvalidTransactionState):
        db.abort_transaction("id")


@pytest.mark.local
def test_beside_a_writer(db):
    db.reset_offsets("g", {T0: 5})
    with logdb.open(db.path, mode="r") as reader:
        assert [row.lag for row in reader.group_offsets("g")] == [5]
        db.reset_offsets("g", {T0: 6})
        assert [row.lag for row in reader.group_offsets("g")] == [4]
        with pytest.raises(errors.ReadOnly):
            reader.reset_offsets("g", {T0: 1})
        with pytest.raises(errors.ReadOnly):
            reader.delete_group("g")


def test_asking_makes_no_topics(db):
    assert (db.groups(), db.transactions()) == ([], [])
    with pytest.raises(errors.UnknownGroup):
        db.delete_group("g")
    assert [topic.name for topic in db.topics(internal=True)] == ["t"]
