"""The internal topics are topics: compacted, copied, and taken up again."""

import pytest

import logdb
from logdb import errors
from logdb.model import INTERNAL_TOPICS, OffsetAndMetadata, TopicPartition
from support.transactional import Writer

IN, OUT = [TopicPartition("in", partition) for partition in range(4)], TopicPartition("out", 0)
SMALL = {"cleanup.policy": "compact", "segment.bytes": 2_000, "delete.retention.ms": 0, "min.cleanable.dirty.ratio": 0.01}


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        for name in INTERNAL_TOPICS:
            db.create_topic(name, partitions=1, config=SMALL)
        db.create_topic("in", partitions=4)
        db.create_topic("out")
        yield db


def work(db):
    """Offsets committed alone, in transactions, in aborted ones, and by a group that is deleted; many times over."""
    writer = Writer(db._session)
    for number in range(1, 60):
        db._session.commit_offsets("alone", {IN[number % 4]: OffsetAndMetadata(number)}).result()
        writer.write(OUT, b"%d" % number)
        writer.offsets("g", IN[number % 4], number)
        writer.end(commit=number % 5 != 0)
    for number in range(10):
        Writer(db._session, f"id-{number}")
    db._session.commit_offsets("gone", {IN[0]: OffsetAndMetadata(1)}).result()
    db.delete_group("gone")
    writer.write(OUT, b"open")
    writer.offsets("g", IN[0], 1_000)
    return writer


def known(db):
    session = db._session
    return {
        "groups": session.groups(),
        "offsets": {name: session.fetch_offsets(name) for name in ("alone", "g", "gone")},
        "transactions": [(info.transactional_id, info.state, info.producer) for info in session.transactions()],
    }


def test_compacted_and_taken_up_again(db):
    writer = work(db)
    before = known(db)
    assert {where: found.offset for where, found in before["offsets"]["g"].items()} == dict(zip(IN, (56, 57, 58, 59), strict=True))
    sizes = {name: db.log(name).size_bytes for name in INTERNAL_TOPICS}
    for _ in range(2):
        for name in INTERNAL_TOPICS:
            db.compact(name)
    assert all(db.log(name).size_bytes < sizes[name] for name in INTERNAL_TOPICS), "there was something to compact"
    with pytest.raises(errors.UnstableOffsets):
        db._session.fetch_offsets("g", require_stable=True)
    writer.end(commit=False)
    before = known(db)
    db.close()
    with logdb.open(db.path, mode="r") as again:
        assert known(again) == before
    with logdb.open(db.path) as again:
        assert known(again) == before
        assert again._session.fetch_offsets("g", require_stable=True) == before["offsets"]["g"]


def test_a_snapshot_goes_on_where_it_was_taken(db, tmp_path):
    writer = work(db)
    before = known(db)
    db.snapshot(tmp_path / "snapshot")
    writer.end(commit=True)
    logdb.restore(tmp_path / "snapshot", tmp_path / "restored")
    with logdb.open(tmp_path / "restored") as copy:
        assert copy._session.fetch_offsets("g", require_stable=True) == before["offsets"]["g"], "what was open in it is aborted"
        assert copy.log("out").last_stable_offset == copy.log("out").end_offset
        values = [int(record.value) for record in copy.log("out").read(0, isolation_level="read_committed")]
        assert values == [number for number in range(1, 60) if number % 5]
        other = Writer(copy._session)
        other.write(OUT, b"60")
        other.end(commit=True)
        assert copy._session.init_producer_id().producer_id != db._session.init_producer_id().producer_id


@pytest.mark.parametrize("name", INTERNAL_TOPICS)
def test_applications_do_not_write_to_them(db, name):
    end_offset = db.log(name).end_offset
    for _ in range(2):
        for call in (lambda: db.append(name, b"v", b"k"), lambda: db.append_many(name, [b"v"], [b"k"])):
            with pytest.raises(errors.InvalidTopic, match=f"'{name}': logdb alone writes to it"):
                call()
    assert db.log(name).end_offset == end_offset


def test_they_keep_their_number_of_partitions(db):
    for name in INTERNAL_TOPICS:
        with pytest.raises(errors.InvalidPartitions):
            db.alter_topic(name, partitions=2)
        db.alter_topic(name, config={"segment.bytes": 4_000})
