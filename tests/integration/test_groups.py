"""Groups of consumers on a store: who reads what, what is committed, and what happens when members come and go."""

import os
import threading
import time
from random import Random

import pytest

import logdb
from logdb.errors import (
    Closed,
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidConfig,
    InvalidGroup,
    LogTruncated,
    NoOffset,
    NotAssigned,
    OffsetOutOfRange,
    ReadOnly,
    RebalanceInProgress,
    UnknownMember,
)
from logdb.model import OffsetAndMetadata, TopicPartition
from support.places import opened
from support.power_cut import PowerCutIO, commits_noted
from support.waiting import until

T = tuple(TopicPartition("t", partition) for partition in range(6))
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")


class Clock(logdb.IO):
    """The real machine with a clock that stands still until it is told."""

    def __init__(self):
        self.now_ms = 1_000_000

    def monotonic_ms(self):
        return self.now_ms

    def clock_ms(self):
        return 1_700_000_000_000 + self.now_ms


@pytest.fixture
def db(place, tmp_path):
    with opened(place, tmp_path / "db") as database:
        database.create_topic("t", partitions=3)
        yield database


def fill(db, count, topic="t"):
    """Records numbered through, spread over the partitions."""
    partitions = db.describe_topic(topic).partition_count
    for partition in range(partitions):
        db.log(topic, partition).append_many([b"%d" % number for number in range(partition, count, partitions)])


def read(*consumers, rounds=6):
    """Poll all in turn until no consumer gets anything; returns the numbers that each got, in order."""
    got = [[] for _ in consumers]
    idle = 0
    while idle < rounds:
        idle += 1
        for consumer, numbers in zip(consumers, got, strict=True):
            for records in consumer.poll().values():
                numbers += [int(record.value) for record in records]
                idle = 0
    return got


def join(*consumers, rounds=6):
    for _ in range(rounds):
        for consumer in consumers:
            consumer.poll()


# ---------------------------------------------------------------- who reads what


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_four_members_on_three_partitions(db, strategy):
    fill(db, 300)
    members = [db.consumer("t", group_id="g", auto_offset_reset="earliest", partition_assignment_strategy=strategy) for _ in range(4)]
    join(*members)
    assert sorted(len(member.assignment()) for member in members) == [0, 1, 1, 1]
    for member in members:
        member.seek_to_beginning()
    got = read(*members)
    assert sorted(number for numbers in got for number in numbers) == list(range(300)), "all of them, and each once"
    assert sorted(map(len, got)) == [0, 100, 100, 100]


def test_three_groups_each_read_all(db):
    fill(db, 300)
    groups = [[db.consumer("t", group_id=f"g{number}", auto_offset_reset="earliest") for _ in range(2)] for number in range(3)]
    for members in groups:
        join(*members)
        for member in members:
            member.seek_to_beginning()
        assert sorted(number for numbers in read(*members) for number in numbers) == list(range(300))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go_and_everything_is_read_once(db, strategy):
    """Each commits before it gives up what it has: none reads what another has read."""
    fill(db, 3000)

    def member():
        consumer = db.consumer(group_id="g", auto_offset_reset="earliest", partition_assignment_strategy=strategy, max_poll_records=50)
        consumer.subscribe("t", on_revoked=lambda _: consumer.commit())
        return consumer

    members, numbers = [member()], []

    def poll():
        for consumer in members:
            for records in consumer.poll().values():
                numbers.extend(int(record.value) for record in records)

    for step in range(24):
        if step in (2, 4, 9):
            members.append(member())
        if step in (6, 14):
            while db.describe_group("g").state != "Stable":  # else a commit may be told to poll, and try again
                poll()
            members.pop(0).close()
        poll()
    until(lambda: poll() or len(numbers) >= 3000, "all is read")
    numbers += [number for got in read(*members) for number in got]
    assert sorted(numbers) == list(range(3000))


@pytest.mark.parametrize("end", ["close", "unsubscribe", "assign"])
def test_a_member_that_leaves_while_its_join_waits_for_others_is_no_member(db, end):
    first, second = db.consumer("t", group_id="g"), db.consumer("t", group_id="g")
    first.poll()
    second.poll()
    assert len(db.describe_group("g").members) == 2
    {"close": second.close, "unsubscribe": second.unsubscribe, "assign": lambda: second.assign(T[:1])}[end]()
    (member,) = db.describe_group("g").members
    until(lambda: first.poll() or len(first.assignment()) == 3, "the first member has all partitions")
    assert db.describe_group("g").members[0].member_id == member.member_id == first.group_metadata().member_id


@pytest.mark.local
def test_a_member_that_leaves_before_it_knows_its_assignment_cannot_commit(db):
    """As in Kafka: the commit of ``on_revoked`` is told to poll, which is too late; the member has left."""
    members = []
    for _ in range(3):
        consumer = db.consumer(group_id="g", partition_assignment_strategy="cooperative-sticky")
        consumer.subscribe("t", on_revoked=lambda _, consumer=consumer: consumer.commit())
        members.append(consumer)
    first, second, third = members
    join(first, second)
    for member in (third, first, second):  # the leader has not assigned yet
        member.poll()
    assert (len(second.assignment()), db.describe_group("g").state) == (1, "CompletingRebalance")
    with pytest.raises(RebalanceInProgress):
        second.close()
    join(first, third)
    assert sorted(first.assignment() + third.assignment()) == list(T[:3])


def test_a_pattern_in_a_group_picks_topics_up(db):
    first, second = (
        db.consumer(pattern="m-.*", group_id="g", auto_offset_reset="earliest", partition_assignment_strategy="cooperative-sticky")
        for _ in range(2)
    )
    join(first, second)
    assert first.assignment() + second.assignment() == []
    for name in ("m-a", "m-b", "other"):
        db.create_topic(name, partitions=2)
        fill(db, 10, name)
    got = read(first, second)
    assert sorted(got[0] + got[1]) == sorted([*range(10), *range(10)])
    assert {partition.topic for partition in first.assignment() + second.assignment()} == {"m-a", "m-b"}
    assert (len(first.assignment()), len(second.assignment())) == (2, 2)
    db.delete_topic("m-a")
    join(first, second)
    assert {partition.topic for partition in first.assignment() + second.assignment()} == {"m-b"}


def test_partitions_added_to_a_topic_are_shared_out(db):
    members = [db.consumer("t", group_id="g", partition_assignment_strategy="cooperative-sticky") for _ in range(2)]
    join(*members)
    db.alter_topic("t", partitions=6)
    join(*members)
    assert sorted(partition for member in members for partition in member.assignment()) == list(T)


@pytest.mark.local
def test_members_in_threads(db):
    fill(db, 30_000)
    numbers, lock = [], threading.Lock()

    def work():
        with db.consumer(group_id="g", auto_offset_reset="earliest", partition_assignment_strategy="cooperative-sticky") as consumer:
            consumer.subscribe("t", on_revoked=lambda _: consumer.commit())
            while True:
                with lock:
                    if len(numbers) >= 30_000:
                        return
                for records in consumer.poll(50).values():
                    with lock:
                        numbers.extend(int(record.value) for record in records)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(numbers) == list(range(30_000))


# ---------------------------------------------------------------- listeners


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_listeners(db, strategy):
    story = []

    def told(what):
        return lambda partitions: story.append((what, [partition.partition for partition in partitions]))

    first = db.consumer(group_id="g", partition_assignment_strategy=strategy)
    first.subscribe("t", on_assigned=told("assigned"), on_revoked=told("revoked"))
    second = db.consumer("t", group_id="g", partition_assignment_strategy=strategy)
    join(first)
    assert story == [("assigned", [0, 1, 2])]
    join(first, second)
    kept = [partition.partition for partition in first.assignment()]
    assert 0 < len(kept) < 3
    if strategy == "range":
        assert story[1:] == [("revoked", [0, 1, 2]), ("assigned", kept)]
    else:
        assert story[1:] == [("revoked", sorted({0, 1, 2}.difference(kept)))]
    first.close()
    assert story[-1] == ("revoked", kept)


def test_seeking_when_assigned(db):
    fill(db, 30)
    with db.consumer(group_id="g", auto_offset_reset="none") as consumer:
        consumer.subscribe("t", on_assigned=lambda partitions: [consumer.seek(partition, 9) for partition in partitions])
        assert read(consumer) == [[27, 28, 29]]


# ---------------------------------------------------------------- silence, with a clock that stands still


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stopped(tmp_path, clock):
    """A database whose clock is ``clock``."""
    with logdb.open(tmp_path / "db", io=clock) as database:
        database.create_topic("t", partitions=3)
        fill(database, 300)
        yield database


def pass_ms(db, clock, delay_ms):
    clock.now_ms += delay_ms
    db._session._timers.fire_due()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_member_that_stops_polling_is_replaced(stopped, clock, strategy):
    lost = []
    options = {"group_id": "g", "max_poll_interval_ms": 1000, "auto_offset_reset": "earliest", "partition_assignment_strategy": strategy}
    silent, other = stopped.consumer(**options), stopped.consumer("t", **options)
    silent.subscribe("t", on_lost=lost.extend)
    join(silent, other)
    had = silent.assignment()
    assert had and len(other.assignment()) < 3
    for _ in range(5):
        pass_ms(stopped, clock, 400)
        other.poll()
    join(other)
    assert len(other.assignment()) == 3
    with pytest.raises((UnknownMember, IllegalGeneration)):
        silent.commit({had[0]: 5})
    join(silent, other)
    assert lost == had
    assert sorted(silent.assignment() + other.assignment()) == list(T[:3]), "it has joined anew"


def test_a_member_that_did_not_poll_in_time_is_told_so_by_its_commit(stopped, clock):
    silent = stopped.consumer("t", group_id="g", max_poll_interval_ms=1000, auto_offset_reset="earliest")
    join(silent)
    pass_ms(stopped, clock, 2500)
    message = r"did not poll within max_poll_interval_ms=1000: its last heartbeat was 2500 ms ago\. Poll again: .* come again"
    with pytest.raises(UnknownMember, match=message) as caught:
        silent.commit({T[0]: 5})
    assert (caught.value.group_id, caught.value.member_id) == ("g", silent.group_metadata().member_id)
    join(silent)
    silent.commit({T[0]: 5})
    stopped._session.leave_group("g", silent.group_metadata().member_id)
    with pytest.raises(UnknownMember, match="it left, or sent no heartbeat"):
        silent.commit({T[0]: 6})


def test_a_member_that_gets_records_without_a_pause_stays(db):
    fill(db, 3000)
    lost = []
    with db.consumer(group_id="g", max_poll_interval_ms=600, auto_offset_reset="earliest", max_poll_records=1) as consumer:
        consumer.subscribe("t", on_lost=lost.extend)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            consumer.poll(timeout_ms=100)
            time.sleep(0.01)
        consumer.commit()
    assert not lost


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_of_four_members_on_three_partitions_one_stops_polling(stopped, clock, strategy):
    """The idle one takes its place, from what was committed on: nothing is lost."""
    options = {"group_id": "g", "max_poll_interval_ms": 1000, "auto_offset_reset": "earliest", "partition_assignment_strategy": strategy}
    members = [stopped.consumer("t", **options) for _ in range(4)]
    join(*members)
    (idle,) = [member for member in members if not member.assignment()]
    silent = next(member for member in members if member is not idle)
    others = [member for member in members if member is not silent]
    (lost,) = silent.assignment()
    silent.seek_to_beginning()
    silent.poll(max_records=40)
    silent.commit()
    silent.poll(max_records=20)  # read, and not committed
    got = []
    for _ in range(5):
        pass_ms(stopped, clock, 400)
        got += [number for numbers in read(*others) for number in numbers]
    assert sorted(partition for member in others for partition in member.assignment()) == list(T[:3])
    assert [len(member.assignment()) for member in others] == [1, 1, 1]
    assert [number for number in got if number % 3 == lost.partition] == list(range(lost.partition + 3 * 40, 300, 3))
    with pytest.raises((UnknownMember, IllegalGeneration)):
        silent.commit()
    assert idle.committed(lost).offset == 40


def test_members_that_poll_in_time_stay(stopped, clock):
    members = [stopped.consumer("t", group_id="g", max_poll_interval_ms=1000) for _ in range(2)]
    join(*members)
    before = [member.group_metadata() for member in members]
    for _ in range(10):
        pass_ms(stopped, clock, 900)
        for member in members:
            member.poll()
    assert [member.group_metadata() for member in members] == before


def test_a_member_that_never_answers_a_rebalance_does_not_hold_it_up(stopped, clock):
    silent = stopped.consumer("t", group_id="g", max_poll_interval_ms=1000)
    join(silent)
    other = stopped.consumer("t", group_id="g", max_poll_interval_ms=1000)
    join(other)
    assert other.assignment() == []
    for _ in range(3):
        pass_ms(stopped, clock, 600)
        join(other)
    assert other.assignment() == list(T[:3])


def test_automatic_commits(stopped, clock):
    with stopped.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=True, max_poll_records=10) as consumer:
        consumer.poll()
        clock.now_ms += 4_900
        consumer.poll()
        assert [consumer.committed(partition) for partition in T[:3]] == [None] * 3
        clock.now_ms += 100
        consumer.poll()
        assert [consumer.committed(partition).offset for partition in T[:3]] == [10, 10, 0], "what earlier polls returned"
    assert [stopped._session.fetch_offsets("g")[partition].offset for partition in T[:3]] == [10, 10, 10], "closing commits the rest"


def written(db):
    """Records in the partitions of the groups."""
    return sum(db.log("__consumer_offsets", partition).end_offset for partition in range(4))


def test_automatic_commits_write_only_what_moved(stopped):
    with stopped.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=True, auto_commit_interval_ms=0) as consumer:
        read(consumer)
        before = written(stopped)
        join(consumer)
        assert written(stopped) == before, "nothing"
        stopped.append("t", b"0", b"key")
        read(consumer)
        assert written(stopped) == before + 1


def test_automatic_commits_say_once_that_a_topic_is_gone(stopped, caplog):
    stopped.create_topic("gone")
    partitions = [T[0], TopicPartition("gone", 0)]
    consumer = stopped.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=True, auto_commit_interval_ms=0)
    with consumer, caplog.at_level("WARNING", "logdb.client.consumer.commits"):
        consumer.assign(partitions)
        for partition in partitions:
            stopped.log(*partition).append_many([b"0", b"1"])
            consumer.seek(partition, 1)
        stopped.delete_topic("gone")
        before = None
        for offset in (1, 1, 2, 2):
            consumer.seek(T[0], offset)
            consumer._commits.send_if_due(consumer._collector.positions)
            before = before or written(stopped)
        assert stopped._session.fetch_offsets("g")[T[0]].offset == 2, "those of the other topic are committed"
        assert written(stopped) == before + 1, "and only where they moved"
    assert [record.getMessage() for record in caplog.records] == ["an automatic commit of 2 partitions failed: unknown topic 'gone'"]


def test_automatic_commits_while_iterating(stopped, clock):
    with stopped.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=True) as consumer:
        for count, _ in enumerate(consumer, 1):
            if count == 150:
                break
    offsets = stopped._session.fetch_offsets("g")
    assert [offsets[partition].offset for partition in T[:3]] == [100, 50, 0], "exactly what was looked at"
    with pytest.raises(ZeroDivisionError), stopped.consumer("t", group_id="g", enable_auto_commit=True) as consumer:
        1 / next(iter(consumer)).leader_epoch
    assert stopped._session.fetch_offsets("g") == offsets, "an exception commits nothing"


# ---------------------------------------------------------------- static members


def test_an_instance_that_restarts_gets_back_what_it_had(stopped, clock):
    options = {"group_id": "g", "max_poll_interval_ms": 10_000}
    first, second = (stopped.consumer("t", group_instance_id=name, **options) for name in ("one", "two"))
    join(first, second)
    had, generation = first.assignment(), second.group_metadata().generation
    first.close()
    pass_ms(stopped, clock, 5_000)
    join(second)
    again = stopped.consumer("t", group_instance_id="one", **options)
    join(again, second)
    assert (again.assignment(), second.group_metadata().generation) == (had, generation), "without a rebalance"
    usurper = stopped.consumer("t", group_instance_id="one", **options)
    join(usurper)
    for _ in range(2):
        with pytest.raises(FencedInstance):
            again.poll()
    assert again.assignment() == []


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_an_instance_that_ends_keeps_its_partitions_until_its_session_is_over(stopped, clock, end):
    first = stopped.consumer("t", group_id="g", group_instance_id="one", max_poll_interval_ms=10_000)
    other = stopped.consumer("t", group_id="g", max_poll_interval_ms=60_000)
    join(first, other)
    had = other.assignment()
    assert 0 < len(had) < 3
    getattr(first, end)()
    pass_ms(stopped, clock, 9_999)
    join(other)
    assert (other.assignment(), len(stopped.describe_group("g").members)) == (had, 2)
    pass_ms(stopped, clock, 1)
    join(other)
    assert (len(other.assignment()), len(stopped.describe_group("g").members)) == (3, 1)


# ---------------------------------------------------------------- committed offsets


def test_committing(db):
    fill(db, 30)
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        assert consumer.committed(T[0]) is None
        consumer.poll()
        consumer.commit()
        assert consumer.committed(T[0]) == OffsetAndMetadata(10, 0)
        consumer.commit({T[1]: 4, ("t", 2): OffsetAndMetadata(5, metadata="half way")})
        assert (consumer.committed(T[1]).offset, consumer.committed(T[2])) == (4, OffsetAndMetadata(5, -1, "half way"))
        told = []
        future = consumer.commit_async({T[0]: 7}, on_commit=lambda offsets, error: told.append((offsets, error)))
        assert future.result() is None
        assert told == [({T[0]: OffsetAndMetadata(7)}, None)]
    db.close()
    with logdb.open(db.path) as again, again.consumer("t", group_id="g") as consumer:
        assert read(consumer) == [[*range(21, 30, 3), *range(13, 30, 3), *range(17, 30, 3)]], "from what was committed on"


def test_a_commit_for_what_is_not_assigned(db):
    first, second = (db.consumer("t", group_id="g") for _ in range(2))
    join(first, second)
    mine, others = first.assignment()[0], second.assignment()[0]
    for call in (first.commit, first.commit_async):
        with pytest.raises(NotAssigned) as caught:
            call({mine: 1, others: 1})
        assert TopicPartition(caught.value.topic, caught.value.partition) == others
    assert first.committed(mine) is None, "nothing of it was committed"


def test_a_commit_while_the_group_is_rebalanced(db):
    """All have joined a new generation; a member that has not polled since belongs to it, too."""
    fill(db, 30)
    options = {"group_id": "g", "auto_offset_reset": "earliest", "partition_assignment_strategy": "cooperative-sticky"}
    first, second, third = (db.consumer("t", **options) for _ in range(3))
    join(first, second)
    third.poll()
    first.poll()
    second.poll()
    with pytest.raises(RebalanceInProgress):
        first.commit()
    join(first, second, third)
    first.commit()
    assert first.committed(first.assignment()[0]) is not None


def test_a_note_that_is_too_long(db):
    with db.consumer("t", group_id="g") as consumer:
        consumer.poll()
        with pytest.raises(InvalidGroup, match=r"offset\.metadata\.max\.bytes"):
            consumer.commit({T[0]: OffsetAndMetadata(1, metadata="x" * 5000)})
        assert consumer.committed(T[0]) is None


def test_without_a_group_there_is_nothing_to_commit_to(db):
    with db.consumer("t") as consumer:
        for call in (consumer.commit, consumer.commit_async, consumer.group_metadata, lambda: consumer.committed(T[0])):
            with pytest.raises(InvalidGroup):
                call()
    with pytest.raises(InvalidConfig, match="enable_auto_commit"):
        db.consumer("t", enable_auto_commit=True)


def test_assigning_by_hand_with_a_group(db):
    fill(db, 30)
    with db.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([T[0]])
        assert read(consumer) == [list(range(0, 30, 3))]
        consumer.commit()
    with db.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign(T[:2])
        assert read(consumer) == [list(range(1, 30, 3))]
        assert db._session.describe_group("g").members == ()


def test_going_back_to_what_was_committed(db):
    fill(db, 30)
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll()
        consumer.commit({T[0]: 8})
        consumer.seek_to_committed()
        assert [consumer.position(partition) for partition in T[:3]] == [8, 0, 0]
        assert sorted(read(consumer)[0]) == sorted([24, 27, *range(1, 30, 3), *range(2, 30, 3)])


def test_no_offset_and_no_reset(db):
    fill(db, 30)
    with db.consumer("t", group_id="g", auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffset):
            consumer.poll()
        consumer.seek_to_beginning()
        consumer.commit()
    with db.consumer("t", group_id="g", auto_offset_reset="none") as consumer:
        assert len(read(consumer)[0]) == 30


def test_a_committed_offset_beyond_the_recovered_end(db):
    fill(db, 30)
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        read(consumer)
        consumer.commit({T[0]: OffsetAndMetadata(15, 0), T[1]: 10})
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        for _ in range(2):
            with pytest.raises(LogTruncated) as caught:
                consumer.poll()
        error = caught.value
        assert (error.partition, error.offset, error.leader_epoch, error.epoch_end_offset, error.end_offset) == (0, 15, 0, 10, 10)
        assert consumer.position(T[0]) == 15, "as it was"
        consumer.seek(T[0], error.epoch_end_offset)
        assert sorted(read(consumer)[0]) == list(range(2, 30, 3))


def test_committed_records_that_a_power_cut_took(tmp_path):
    """The offsets were synced; the records, at level os, were not."""
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    os.mkdir(before)
    io = PowerCutIO(before)
    with commits_noted(io):
        db = logdb.open(before, io=io, durability="os")
        db.create_topic("t")
        fill(db, 10)
        db.flush()
        fill(db, 500)
        with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            assert len(read(consumer)[0]) == 510
            consumer.commit()
        for partition in range(4):
            db.log("__consumer_offsets", partition).flush()
        io.cut(after, Random(5))
        db.close()
    with logdb.open(after) as db, db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        log = db.log("t")
        assert 10 <= log.end_offset < 510, "or the seed takes nothing"
        with pytest.raises(LogTruncated) as caught:
            consumer.poll()
        assert (caught.value.offset, caught.value.epoch_end_offset) == (510, log.end_offset)
        log.append_many([b"other"] * 1000)
        with pytest.raises(LogTruncated):
            consumer.poll()
        consumer.seek(T[0], caught.value.epoch_end_offset)
        assert {record.value for records in consumer.poll().values() for record in records} == {b"other"}


@pytest.mark.parametrize(("reset", "position"), [("earliest", 40), ("latest", 100)])
def test_a_committed_offset_that_retention_has_overtaken(db, reset, position):
    fill(db, 300)
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(max_records=20)
        consumer.commit()
        db.delete_records("t", 0, 40)
    with db.consumer("t", group_id="g", auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as caught:
                consumer.poll()
        assert (caught.value.offset, caught.value.start_offset) == (20, 40)
    with db.consumer("t", group_id="g", auto_offset_reset=reset) as consumer:
        got = [record.offset for records in consumer.poll().values() for record in records if record.partition == 0]
        assert got == list(range(position, 100)) and consumer.position(T[0]) == 100


def test_a_position_of_an_epoch_that_ended_before_it(db):
    fill(db, 30)
    with db.consumer("t", group_id="g") as consumer:
        consumer.poll()
        consumer.commit({T[0]: OffsetAndMetadata(10, 7)})
        consumer.seek_to_committed()
        with pytest.raises(LogTruncated) as caught:
            consumer.poll()
        assert (caught.value.offset, caught.value.leader_epoch) == (10, 7)


def test_a_sought_offset_beyond_the_end_is_just_out_of_range(db):
    with db.consumer("t", group_id="g", auto_offset_reset="none") as consumer:
        consumer.subscribe("t", on_assigned=lambda _: [consumer.seek(partition, 5) for partition in T[:3]])
        with pytest.raises(OffsetOutOfRange):
            consumer.poll()


@pytest.mark.parametrize(("minutes", "left"), [(None, ["gone", "here"]), (60, ["here"])])
def test_offsets_of_a_group_without_members_expire(tmp_path, clock, minutes, left):
    with logdb.open(tmp_path / "db", io=clock, offsets_retention_minutes=minutes) as db:
        db.create_topic("t", partitions=3)
        fill(db, 30)
        options = {"auto_offset_reset": "earliest", "max_poll_interval_ms": 10 * 3_600_000}
        with db.consumer("t", group_id="here", **options) as here, db.consumer("t", group_id="gone", **options) as gone:
            for consumer in (here, gone):
                read(consumer)
                consumer.commit()
            gone.close()
            pass_ms(db, clock, 59 * 60_000)
            assert len(db.groups()) == 2
            pass_ms(db, clock, 12 * 60_000)
            assert [group.group_id for group in db.groups()] == left
            assert [len(db._session.fetch_offsets(name)) for name in ("gone", "here")] == [3 * ("gone" in left), 3]
        db.close()
        with logdb.open(tmp_path / "db") as again:
            assert [group.group_id for group in again.groups()] == left


# ---------------------------------------------------------------- reading beside the writer


@pytest.mark.local
def test_a_reader_may_assign_and_seek_but_not_join_or_commit(db, tmp_path):
    fill(db, 30)
    with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll()
        consumer.commit({T[0]: 8})
    db.flush()
    with logdb.open(db.path, mode="r") as reader:
        with reader.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.assign(T[:1])
            assert read(consumer) == [[24, 27]], "from the committed offset on"
            consumer.seek_to_beginning()
            assert len(read(consumer)[0]) == 10
            with pytest.raises(ReadOnly):
                consumer.commit()
            assert consumer.committed(T[0]) == OffsetAndMetadata(8)
        with pytest.raises(ReadOnly):
            reader.consumer("t", group_id="g").poll()
    assert db._session.fetch_offsets("g") == {T[0]: OffsetAndMetadata(8)}


# ---------------------------------------------------------------- members that do not go together


def test_members_without_a_common_assignor(db):
    with db.consumer("t", group_id="g", partition_assignment_strategy="range") as first:
        join(first)
        with db.consumer("t", group_id="g", partition_assignment_strategy="sticky") as second, pytest.raises(InconsistentProtocol):
            second.poll()
        assert len(first.assignment()) == 3
    with pytest.raises(InvalidConfig, match="partition_assignment_strategy"):
        db.consumer("t", group_id="g", partition_assignment_strategy="nosuch")


def test_closing_the_database_first(db):
    fill(db, 30)
    consumer = db.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=True)
    consumer.poll()
    db.close()
    with pytest.raises(Closed):
        consumer.poll()
    consumer.close()
    with logdb.open(db.path) as again:
        assert again._session.fetch_offsets("g") == {}, "no commit says that its records were dealt with"


def test_leaving_by_unsubscribing(db):
    first, second = (db.consumer("t", group_id="g") for _ in range(2))
    join(first, second)
    first.unsubscribe()
    join(second)
    assert (first.assignment(), len(second.assignment())) == ([], 3)
    first.subscribe("t")
    join(first, second)
    assert len(first.assignment()) in (1, 2)


# ---------------------------------------------------------------- many


@pytest.mark.local
def test_a_thousand_groups_on_one_store(db):
    fill(db, 3)
    before = threading.active_count()
    consumers = [db.consumer("t", group_id=f"group-{number}", auto_offset_reset="earliest") for number in range(1000)]
    for consumer in consumers:
        assert len(read(consumer, rounds=1)[0]) == 3
        consumer.commit()
    assert threading.active_count() - before <= 2, "one for timers, one for housekeeping, none for a group"
    for consumer in consumers:
        consumer.close()
    assert len(db._session.groups()) == 1000
    with db.consumer("t", group_id="group-500") as consumer:
        assert [consumer.committed(partition).offset for partition in T[:3]] == [1, 1, 1]


def test_a_reader_far_behind_does_not_hold_up_a_live_one(db):
    log = db.log("t", 0)
    for _ in range(100):
        log.append_many([b"x" * 20] * 10_000)
    far, live = (db.consumer(group_id=name, auto_offset_reset=reset) for name, reset in (("far", "earliest"), ("live", "latest")))
    for consumer in (far, live):
        consumer.assign(T[:1])
    assert live.poll() == {} and far.lag(T[0]) == 1_000_000
    caught_up, count = threading.Event(), 0

    def catch_up():
        nonlocal count
        while not caught_up.is_set():
            count += sum(map(len, far.poll(max_records=5000).values()))
            if far.lag(T[0]) == 0:
                caught_up.set()

    thread = threading.Thread(target=catch_up)
    thread.start()
    sent = 0
    while not caught_up.is_set():
        log.append(b"%d" % sent)
        (records,) = live.poll(10_000).values()
        assert [record.value for record in records] == [b"%d" % sent]
        sent += 1
    thread.join()
    assert sent > 10 and count == far.position(T[0])
