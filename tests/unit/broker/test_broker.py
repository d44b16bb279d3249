import pytest

import logdb
from logdb import errors
from logdb.broker.broker import Broker
from logdb.coordinator.effects import TimerFired
from logdb.coordinator.groups import GroupConfig
from logdb.model import OffsetAndMetadata, TopicPartition
from support.transactional import Writer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        yield db


@pytest.fixture
def broker(db):
    return db._session


def reopened(db):
    db.close()
    return logdb.open(db.path)


# ---------------------------------------------------------------- offsets


def test_offsets_are_there_after_a_restart(db, broker):
    assert broker.fetch_offsets("g") == {}
    broker.commit_offsets("g", {T0: OffsetAndMetadata(5, 1, "note"), T1: OffsetAndMetadata(7)}).result()
    broker.commit_offsets("g", {T1: OffsetAndMetadata(8)}).result()
    committed = {T0: OffsetAndMetadata(5, 1, "note"), T1: OffsetAndMetadata(8)}
    assert broker.fetch_offsets("g") == committed
    assert broker.fetch_offsets("g", [T0]) == {T0: committed[T0]}
    assert broker.fetch_offsets("other") == {}
    with reopened(db) as again:
        assert again._session.fetch_offsets("g") == committed


def test_internal_topics_are_made_at_first_use(db, broker):
    assert [topic.name for topic in db.topics(internal=True)] == ["t"]
    broker.commit_offsets("g", {T0: OffsetAndMetadata(1)}).result()
    made = db.topics(internal=True)[0]
    assert (made.name, made.partition_count, made.config["cleanup.policy"]) == ("__consumer_offsets", 4, "compact")
    assert [topic.name for topic in db.topics()] == ["t"]


def test_internal_topics_keep_the_number_of_partitions_they_were_made_with(db, broker):
    db.create_topic("__consumer_offsets", partitions=1, config={"cleanup.policy": "compact"})
    broker.commit_offsets("g", {T0: OffsetAndMetadata(1)}).result()
    assert db.log("__consumer_offsets", 0).end_offset == 1


def test_an_unknown_member_cannot_commit(broker):
    future = broker.commit_offsets("g", {T0: OffsetAndMetadata(1)}, member_id="me", generation=1)
    with pytest.raises(errors.UnknownMember):
        future.result()
    assert broker.fetch_offsets("g") == {}


def test_offsets_go_with_their_topic(db, broker):
    db.create_topic("u")
    broker.commit_offsets("g", {T0: OffsetAndMetadata(1), TopicPartition("u", 0): OffsetAndMetadata(2)}).result()
    db.delete_topic("u")
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(1)}


def test_nothing_is_committed_for_partitions_that_there_are_not(db, broker):
    nowhere = {TopicPartition("u", 0): errors.UnknownTopic, TopicPartition("t", 2): errors.UnknownPartition}
    for partition, error in nowhere.items():
        future = broker.commit_offsets("g", {partition: OffsetAndMetadata(2), T0: OffsetAndMetadata(1)})
        with pytest.raises(error) as refused:
            future.result()
        assert "'t'" not in str(refused.value) or partition.topic == "t", "the client may not know of other topics"
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(1)}
    db.create_topic("u")
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(1)}, "a new topic has no offsets from before its time"


def test_a_member_that_is_not_one_is_told_so_whatever_it_commits(broker):
    future = broker.commit_offsets("g", {TopicPartition("u", 0): OffsetAndMetadata(1)}, member_id="me", generation=1)
    with pytest.raises(errors.UnknownMember):
        future.result()


def test_a_transaction_takes_no_offsets_of_partitions_that_there_are_not(db, broker):
    producer = broker.init_producer_id("tx", transaction_timeout_ms=60_000)
    for partition, error in ((TopicPartition("u", 0), errors.UnknownTopic), (TopicPartition("t", 2), errors.UnknownPartition)):
        with pytest.raises(error):
            broker.commit_transaction_offsets("tx", producer, "g", {T0: OffsetAndMetadata(1), partition: OffsetAndMetadata(2)})
    assert broker.describe_transaction("tx").state == "Empty"


# ---------------------------------------------------------------- groups


def join(broker, group_id="g", **options):
    options = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocols": [("range", b"me")]} | options
    return broker.join_group(group_id, **options)


def test_two_members_come_and_one_goes(broker):
    first = join(broker).result(10)
    assert first.leader_id == first.member_id
    synced = broker.sync_group("g", generation=1, member_id=first.member_id, assignments={first.member_id: b"all"})
    assert synced.result(10).assignment == b"all"
    broker.heartbeat("g", generation=1, member_id=first.member_id)
    second = join(broker)
    with pytest.raises(errors.RebalanceInProgress):
        broker.heartbeat("g", generation=1, member_id=first.member_id)
    assert not second.done()
    again = join(broker, member_id=first.member_id).result(10)
    other = second.result(10)
    assert again.generation == other.generation == 2
    assert {member.member_id for member in again.members} == {again.member_id, other.member_id}
    waiting = broker.sync_group("g", generation=2, member_id=other.member_id, assignments={})
    assert not waiting.done()
    broker.sync_group("g", generation=2, member_id=first.member_id, assignments={first.member_id: b"1", other.member_id: b"2"}).result(10)
    assert waiting.result(10).assignment == b"2"
    assert broker.describe_group("g").state == "Stable"
    broker.commit_offsets("g", {T0: OffsetAndMetadata(3)}, member_id=other.member_id, generation=2).result(10)
    broker.leave_group("g", other.member_id)
    with pytest.raises(errors.UnknownMember):
        broker.heartbeat("g", generation=2, member_id=other.member_id)
    with pytest.raises(errors.UnknownMember):
        broker.leave_group("g", other.member_id)


def test_a_new_member_may_be_told_its_id_first(broker):
    with pytest.raises(errors.MemberIdRequired) as told:
        join(broker, require_member_id=True).result(10)
    assert join(broker, member_id=told.value.member_id, require_member_id=True).result(10).member_id == told.value.member_id


def test_a_member_says_which_protocol_it_takes_for_the_groups(broker):
    member_id = join(broker).result(10).member_id
    for named in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        with pytest.raises(errors.InconsistentProtocol):
            broker.sync_group("g", generation=1, member_id=member_id, assignments={}, **named).result(10)
    named = {"protocol_type": "consumer", "protocol": "range"}
    assert (
        broker.sync_group("g", generation=1, member_id=member_id, assignments={member_id: b"all"}, **named).result(10).assignment == b"all"
    )


def test_a_member_that_is_silent_is_replaced(broker):
    first = join(broker, session_timeout_ms=1).result(10)
    second = join(broker, session_timeout_ms=60_000, rebalance_timeout_ms=60_000).result(30)
    assert [member.member_id for member in second.members] == [second.member_id]
    with pytest.raises(errors.UnknownMember):
        broker.heartbeat("g", generation=1, member_id=first.member_id)


def test_groups_are_listed_described_and_deleted(broker):
    assert broker.groups() == []
    with pytest.raises(errors.UnknownGroup):
        broker.describe_group("b")
    for name in ("b", "a", "c"):
        broker.commit_offsets(name, {T0: OffsetAndMetadata(1)}).result()
    join(broker, "d").result(10)
    assert [(group.group_id, group.state) for group in broker.groups()][:3] == [("a", "Empty"), ("b", "Empty"), ("c", "Empty")]
    broker.delete_group("b")
    with pytest.raises(errors.UnknownGroup):
        broker.delete_group("b")
    with pytest.raises(errors.GroupNotEmpty):
        broker.delete_group("d")
    broker.delete_offsets("a", [T0])
    assert broker.fetch_offsets("a") == {}


def test_a_closed_database_answers_waiting_requests(db, broker):
    join(broker).result(10)
    waiting = join(broker)
    db.close()
    with pytest.raises(errors.Closed):
        waiting.result(10)
    with pytest.raises(errors.Closed):
        broker.fetch_offsets("g")


# ---------------------------------------------------------------- transactions


def committed(db, partition):
    return [record.value for record in db.log(*partition).read(0, isolation_level="read_committed")]


def test_a_transaction_counts_as_a_whole(db, broker):
    writer = Writer(broker)
    writer.write(T0, b"a", b"b")
    writer.write(T1, b"c")
    writer.write(T0, b"d")
    assert committed(db, T0) == committed(db, T1) == []
    before = writer.producer
    writer.end(commit=True)
    assert writer.producer == (before.producer_id, before.producer_epoch + 1)
    assert (committed(db, T0), committed(db, T1)) == ([b"a", b"b", b"d"], [b"c"])
    writer.write(T0, b"never")
    writer.write(T1, b"never")
    writer.end(commit=False)
    writer.write(T0, b"e")
    writer.end(commit=True)
    assert (committed(db, T0), committed(db, T1)) == ([b"a", b"b", b"d", b"e"], [b"c"])
    assert broker.describe_transaction("tx").state == "CompleteCommit"
    with reopened(db) as again:
        assert (committed(again, T0), committed(again, T1)) == ([b"a", b"b", b"d", b"e"], [b"c"])
        assert again._session.describe_transaction("tx").state == "CompleteCommit"


def test_a_producer_may_keep_its_epoch(db, broker):
    writer = Writer(broker)
    for commit in (True, False):
        writer.write(T0, b"a")
        assert broker.end_transaction("tx", writer.producer, commit=commit, bump_epoch=False) == writer.producer
    assert committed(db, T0) == [b"a"]


def test_a_reader_beside_the_writer_knows_the_producers_of_a_log(db, broker):
    writer = Writer(broker)
    with logdb.open(db.path, mode="r") as reader:
        assert reader._session.log("t", 0).producers() == []
        writer.write(T0, b"a", b"b")
        for end in (False, True):
            if end:
                writer.end(commit=True)
            db.flush()
            (mine,), (other,) = broker.served_log("t", 0).producers(), reader._session.log("t", 0).producers()
            assert (mine.producer_id, mine.first_offset) == (writer.producer.producer_id, -1 if end else 0)
            assert other._replace(timestamp_ms=0, started_ms=0) == mine._replace(timestamp_ms=0, started_ms=0)


def test_offsets_count_with_the_transaction(db, broker):
    writer = Writer(broker)
    broker.commit_transaction_offsets("tx", writer.producer, "g", {T1: OffsetAndMetadata(5)})
    assert broker.fetch_offsets("g") == {}
    with pytest.raises(errors.UnstableOffsets):
        broker.fetch_offsets("g", require_stable=True)
    writer.end(commit=True)
    assert broker.fetch_offsets("g", require_stable=True) == {T1: OffsetAndMetadata(5)}
    broker.commit_transaction_offsets("tx", writer.producer, "g", {T1: OffsetAndMetadata(9)})
    writer.end(commit=False)
    assert broker.fetch_offsets("g") == {T1: OffsetAndMetadata(5)}
    with reopened(db) as again:
        assert again._session.fetch_offsets("g") == {T1: OffsetAndMetadata(5)}


def test_offsets_expire_where_that_is_wanted(tmp_path):
    now = 1_700_000_000_000
    with logdb.open(tmp_path / "db", clock=lambda: now) as db:
        db.create_topic("t")
        broker = Broker(db._store, db._store, group_config=GroupConfig(offsets_retention_ms=1_000))
        broker.commit_offsets("g", {T0: OffsetAndMetadata(1)}).result()
        broker._groups.of("g").handle(TimerFired(("sweep",)))
        assert broker.fetch_offsets("g")
        now += 1_001
        broker._groups.of("g").handle(TimerFired(("sweep",)))
        assert (broker.fetch_offsets("g"), broker.groups()) == ({}, [])
        broker.close()
