"""A consumer without a group: which partitions, which records, and where it stands in them."""

import contextlib
import itertools
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import logdb
from logdb import serde
from logdb.client.producer.interceptor import Interceptor
from logdb.client.records import ConsumedRecord
from logdb.errors import (
    Closed,
    CorruptionError,
    InvalidConfig,
    LogTruncated,
    NoOffset,
    NotAssigned,
    OffsetOutOfRange,
    ReadOnly,
    SerializationError,
    UnknownPartition,
    UnknownTopic,
)
from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from support.faulty_io import FaultyIO
from support.followers import open_replica
from support.places import opened

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))


@pytest.fixture
def db(place, tmp_path):
    with opened(place, tmp_path / "db") as database:
        database.create_topic("t", partitions=3)
        yield database


def fill(db, partition, count, first=0):
    db.log("t", partition).append_many([b"%d" % number for number in range(first, first + count)])


def values(taken):
    return {partition: [record.value for record in records] for partition, records in taken.items()}


def numbers(first, stop):
    return [b"%d" % number for number in range(first, stop)]


# ---------------------------------------------------------------- which partitions


def test_a_topic_without_a_group_is_read_whole(db):
    for partition in range(3):
        fill(db, partition, 10)
    with db.consumer("t", auto_offset_reset="earliest") as consumer:
        assert consumer.subscription() == ("t",)
        assert consumer.assignment() == [T0, T1, T2]
        assert values(consumer.poll()) == dict.fromkeys((T0, T1, T2), numbers(0, 10))
        assert consumer.poll() == {}


def test_three_consumers_each_read_all(db):
    fill(db, 0, 100)
    consumers = [db.consumer("t", auto_offset_reset="earliest") for _ in range(3)]
    assert [values(consumer.poll()) for consumer in consumers] == [{T0: numbers(0, 100)}] * 3


def test_partitions_added_later_are_read_from_their_first_record(db):
    with db.consumer("t", heartbeat_interval_ms=0) as consumer:
        db.alter_topic("t", partitions=5)
        fill(db, 4, 3)
        assert values(consumer.poll(1000)) == {TopicPartition("t", 4): numbers(0, 3)}
        assert len(consumer.assignment()) == 5


@pytest.mark.parametrize("pattern", ["metrics-.*", re.compile("metrics-.*")])
def test_a_pattern_means_topics_to_come_too(db, pattern):
    db.create_topic("metrics-cpu")
    with db.consumer(pattern=pattern, auto_offset_reset="earliest") as consumer:
        assert consumer.subscription() == ("metrics-cpu",)
        for name in ("metrics-disk", "old-metrics-disk"):
            db.create_topic(name)
            db.append(name, b"x")
        assert list(consumer.poll(1000)) == [("metrics-disk", 0)]
        db.delete_topic("metrics-cpu")
        assert consumer.poll() == {}
        assert consumer.subscription() == ("metrics-disk",)


def test_a_topic_that_is_not_there(db):
    with pytest.raises(UnknownTopic):
        db.consumer("nosuch")
    with db.consumer("t") as consumer:
        with pytest.raises(UnknownTopic):
            consumer.subscribe("nosuch")
        with pytest.raises(UnknownPartition):
            consumer.assign([("t", 3)])
        with pytest.raises(ValueError, match="topics or to a pattern"):
            consumer.subscribe("t", pattern="t")
        with pytest.raises(ValueError, match=r"pattern='\('"):
            consumer.subscribe(pattern="(")
        assert consumer.assignment() == [T0, T1, T2], "as it was"


def test_a_topic_deleted_under_its_consumer(db):
    with db.consumer("t") as consumer:
        db.delete_topic("t")
        with pytest.raises(UnknownTopic):
            consumer.poll()


def test_a_topic_deleted_under_a_pattern(db):
    db.create_topic("u")
    fill(db, 0, 10)
    with db.consumer(pattern="[tu]", auto_offset_reset="earliest", max_poll_records=5) as consumer:
        assert values(consumer.poll()) == {T0: numbers(0, 5)}
        db.delete_topic("t")
        db.append("u", b"x")
        assert values(consumer.poll()) == {TopicPartition("u", 0): [b"x"]}
        assert consumer.subscription() == ("u",)
        db.create_topic("t")
        fill(db, 0, 3)
        db.delete_topic("u")
        assert [record.value for record in itertools.islice(consumer, 3)] == numbers(0, 3)


def test_a_topic_made_anew_under_its_consumer(db):
    fill(db, 0, 10)
    with db.consumer("t", auto_offset_reset="earliest", max_poll_records=5) as consumer:
        assert values(consumer.poll()) == {T0: numbers(0, 5)}
        db.delete_topic("t")
        db.create_topic("t", partitions=3)
        fill(db, 0, 2, first=100)
        assert values(consumer.poll()) == {T0: numbers(100, 102)}
        assert consumer.position(T0) == 2


def test_assign_keeps_positions_of_what_stays(db):
    fill(db, 0, 10)
    fill(db, 1, 10)
    with db.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        assert values(consumer.poll(max_records=4)) == {T0: numbers(0, 4)}
        consumer.assign([("t", 0), ("t", 1)])
        assert values(consumer.poll()) == {T0: numbers(4, 10), T1: numbers(0, 10)}
        assert consumer.subscription() == ()
        consumer.unsubscribe()
        assert (consumer.assignment(), consumer.poll()) == ([], {})


# ---------------------------------------------------------------- where it begins


def test_latest_means_from_now_on(db):
    fill(db, 0, 10)
    with db.consumer("t") as consumer:
        fill(db, 0, 1, first=10)
        assert values(consumer.poll()) == {T0: numbers(10, 11)}


def test_reset_none_without_an_offset(db):
    fill(db, 0, 10)
    with db.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0, T1])
        with pytest.raises(NoOffset) as caught:
            consumer.poll()
        assert (caught.value.topic, caught.value.partition) == T0
        with pytest.raises(NoOffset):
            consumer.position(T1)
        consumer.seek(T0, 8)
        consumer.seek(T1, 0)
        assert values(consumer.poll()) == {T0: numbers(8, 10)}


@pytest.mark.parametrize(("reset", "read"), [("earliest", numbers(0, 10)), ("latest", [])])
def test_a_position_outside_the_log_is_reset(db, reset, read):
    fill(db, 0, 10)
    with db.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 99)
        assert values(consumer.poll()).get(T0, []) == read
        assert consumer.position(T0) == 10


def test_a_position_outside_the_log_without_a_reset(db):
    fill(db, 0, 10)
    with db.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 99)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as caught:
                consumer.poll()
            assert (caught.value.offset, caught.value.end_offset) == (99, 10)
        assert consumer.position(T0) == 99, "as it was"


# ---------------------------------------------------------------- seeking


def test_seeking(db):
    db.log("t", 0).append_many(numbers(0, 100), timestamps_ms=range(1000, 1100))
    with db.consumer("t", auto_offset_reset="earliest") as consumer:
        consumer.poll(max_records=30)
        for seek, position in (
            (lambda: consumer.seek(T0, 50), 50),
            (lambda: consumer.seek_to_beginning(T0), 0),
            (consumer.seek_to_end, 100),
            (lambda: consumer.seek_to_timestamp(1070, T0, T1), 70),
            (lambda: consumer.seek_to_timestamp(5000), 100),
            (consumer.seek_to_beginning, 0),
        ):
            seek()
            assert consumer.position(T0) == position
            assert values(consumer.poll(max_records=1)).get(T0, []) == numbers(position, min(position + 1, 100))
        assert consumer.offsets_for_times({T0: 1099, T1: 0, ("t", 2): 0}) == {T0: 99, T1: None, T2: None}
        assert (consumer.beginning_offsets([T0]), consumer.end_offsets([T0, T1])) == ({T0: 0}, {T0: 100, T1: 0})
        assert consumer.lag(T0) == 99
        with pytest.raises(ValueError, match="offset=-1: must be 0 or more"):
            consumer.seek(T0, -1)
        with pytest.raises(TypeError, match="OffsetAndMetadata"):
            consumer.seek(T0, "5")


def test_what_is_not_assigned(db):
    with db.consumer() as consumer:
        consumer.assign([T0])
        for call in (consumer.position, consumer.lag, consumer.pause, consumer.resume, consumer.seek_to_end, consumer.seek_to_beginning):
            with pytest.raises(NotAssigned) as caught:
                call(T1)
            assert (caught.value.topic, caught.value.partition) == T1
        with pytest.raises(NotAssigned):
            consumer.seek(T1, 0)


def test_pause_and_resume(db):
    fill(db, 0, 10)
    fill(db, 1, 10)
    with db.consumer("t", auto_offset_reset="earliest") as consumer:
        consumer.pause(T0)
        assert (consumer.paused(), values(consumer.poll())) == ([T0], {T1: numbers(0, 10)})
        assert (consumer.poll(20), consumer.position(T0)) == ({}, 0)
        consumer.resume(T0)
        assert (consumer.paused(), values(consumer.poll())) == ([], {T0: numbers(0, 10)})


# ---------------------------------------------------------------- polling


def test_a_poll_is_bounded_and_takes_partitions_in_turn(db):
    fill(db, 0, 1000)
    fill(db, 2, 10)
    with db.consumer("t", auto_offset_reset="earliest", max_poll_records=7) as consumer:
        assert values(consumer.poll()) == {T0: numbers(0, 7)}
        assert values(consumer.poll()) == {T2: numbers(0, 7)}
        assert values(consumer.poll(max_records=2)) == {T0: numbers(7, 9)}
        assert values(consumer.poll(max_records=5)) == {T2: numbers(7, 10), T0: numbers(9, 11)}
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(max_records=0)


def test_a_poll_waits_for_records(db):
    with db.consumer("t") as consumer:
        assert consumer.poll(20) == {}
        db.append("t", b"x", b"k")
        (records,) = consumer.poll(10_000).values()
        assert [(record.key, record.value) for record in records] == [(b"k", b"x")]


def test_two_threads_do_not_poll_at_once(db):
    fill(db, 0, 1)
    inside, go = threading.Event(), threading.Event()

    def slow(data):
        inside.set()
        assert go.wait(30)
        return data

    with db.consumer("t", auto_offset_reset="earliest", value_deserializer=slow) as consumer, ThreadPoolExecutor(1) as other:
        polled = other.submit(consumer.poll)
        assert inside.wait(30)
        try:
            with pytest.raises(RuntimeError, match="is polled by another thread: make a consumer for each"):
                consumer.poll()
        finally:
            go.set()
        assert values(polled.result(30)) == {T0: [b"0"]}
        assert consumer.poll() == {}


def test_a_seek_to_a_position_checks_its_leader_epoch(tmp_path):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        for epoch in (5, 7):
            log.begin_epoch(epoch)
            log.append(b"of that epoch")
        with db.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, OffsetAndMetadata(1, 5))
            assert [record.offset for record in consumer.poll()[T0]] == [1]
            for offset in (2, 4):  # in the log, and after its end
                consumer.seek(T0, OffsetAndMetadata(offset, 5))
                with pytest.raises(LogTruncated) as caught:
                    consumer.poll()
                assert (caught.value.epoch_end_offset, caught.value.end_offset) == (1, 2)


def test_positions_carry_the_leader_epoch(db):
    fill(db, 0, 3)
    with db.consumer("t", auto_offset_reset="earliest") as consumer:
        assert consumer.positions() == {}
        consumer.poll()
        assert consumer.positions() == {T0: OffsetAndMetadata(3, 0), T1: OffsetAndMetadata(0, -1), T2: OffsetAndMetadata(0, -1)}


@pytest.mark.local
def test_what_comes_before_damage_is_returned_first(db):
    fill(db, 0, 300)
    db.flush()
    fill(db, 0, 300, first=300)
    fill(db, 1, 1)
    db.flush()
    (segment,) = db.log("t", 0).segments
    with open(segment.path, "r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    with db.consumer("t", auto_offset_reset="earliest") as consumer:
        assert values(consumer.poll()) == {T0: numbers(0, 300), T1: numbers(0, 1)}
        for _ in range(2):
            with pytest.raises(CorruptionError):
                consumer.poll()
        assert consumer.position(T0) == 300


def test_a_full_disk_is_waited_for_without_asking_all_the_time(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, linger_ms=60_000) as db:
        db.create_topic("t")
        with db.consumer("t") as consumer:
            db.append("t", b"x")
            io.fill_up()
            session, waits = consumer._session, []
            wait = session.wait
            session.wait = lambda *args, **options: waits.append(args) or wait(*args, **options)
            assert consumer.poll(100) == {}
            assert len(waits) <= 50
            io.heal()
            assert values(consumer.poll(10_000)) == {T0: [b"x"]}


# ---------------------------------------------------------------- iterating


def test_the_position_is_behind_what_was_looked_at(db):
    fill(db, 0, 1000)
    with db.consumer("t", auto_offset_reset="earliest", iteration_timeout_ms=0) as consumer:
        for count, record in enumerate(consumer, 1):
            assert record.value == b"%d" % (count - 1)
            if count in (1, 499, 500, 501):
                assert (consumer.position(T0), consumer.lag(T0)) == (count, 1000 - count)
                assert consumer.positions()[T0] == OffsetAndMetadata(count, 0)
        assert count == 1000


def test_an_iteration_that_was_left_is_taken_up_again(db):
    fill(db, 0, 1000)
    with db.consumer("t", auto_offset_reset="earliest", iteration_timeout_ms=0) as consumer:
        assert next(iter(consumer)).offset == 0
        assert values(consumer.poll(max_records=2)) == {T0: numbers(1, 3)}
        assert [record.offset for record in consumer] == list(range(3, 1000))


def test_seeking_while_iterating(db):
    fill(db, 0, 1000)
    with db.consumer("t", auto_offset_reset="earliest", iteration_timeout_ms=0) as consumer:
        offsets = []
        for record in consumer:
            offsets.append(record.offset)
            if record.offset == 3:
                consumer.seek(T0, 997)
        assert offsets == [0, 1, 2, 3, 997, 998, 999]


def test_pausing_and_closing_while_iterating(db):
    fill(db, 0, 1000)
    fill(db, 1, 10)
    consumer = db.consumer("t", auto_offset_reset="earliest")
    seen = []
    for record in consumer:
        seen.append((record.partition, record.offset))
        if seen[-1] == (0, 1):
            consumer.pause(T0)
        if seen[-1] == (1, 4):
            consumer.close()
    assert seen == [(0, 0), (0, 1), *((1, offset) for offset in range(5))]


def test_iteration_ends_when_nothing_comes(db):
    fill(db, 0, 3)
    with db.consumer("t", auto_offset_reset="earliest", iteration_timeout_ms=20) as consumer:
        assert len(list(consumer)) == 3
        assert list(consumer) == []


@pytest.mark.local
def test_iterating_over_damage(db):
    fill(db, 0, 300)
    db.flush()
    fill(db, 0, 300, first=300)
    db.flush()
    (segment,) = db.log("t", 0).segments
    with open(segment.path, "r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    with db.consumer("t", auto_offset_reset="earliest", iteration_timeout_ms=0) as consumer:
        seen = []
        with pytest.raises(CorruptionError):
            seen.extend(record.offset for record in consumer)
        for again in (consumer.poll, lambda: list(consumer), consumer.poll):
            with pytest.raises(CorruptionError):
                again()
        assert (seen, consumer.position(T0)) == (list(range(300)), 300)


def test_two_iterations_of_one_consumer_go_on_from_each_other(db):
    fill(db, 0, 10)
    with db.consumer("t", auto_offset_reset="earliest", iteration_timeout_ms=0) as consumer:
        first, second = iter(consumer), iter(consumer)
        offsets = [next(iterator).offset for iterator in (first, first, second, first, second)]
        assert offsets == [0, 1, 2, 3, 4]
        assert [record.offset for record in first] == [5, 6, 7, 8, 9]
        assert list(second) == []


# ---------------------------------------------------------------- transactions


def test_isolation_levels(db):
    db.append("t", b"plain")
    with db.transaction("x") as tx:
        tx.send("t", b"committed", partition=0)
    with contextlib.suppress(KeyError), db.transaction("x") as tx:
        tx.send("t", b"aborted", partition=0)
        tx.flush()
        raise KeyError
    with db.consumer("t", auto_offset_reset="earliest", isolation_level="read_committed") as strict:
        with db.transaction("x") as tx:
            tx.send("t", b"open", partition=0)
            tx.flush()
            seen = [value for values_ in values(strict.poll()).values() for value in values_]
            assert sorted(seen) == [b"committed", b"plain"]
            assert (strict.poll(), strict.lag(T0)) == ({}, 0), "past the markers, up to what is open"
            with db.consumer("t", auto_offset_reset="earliest") as loose:
                everything = [value for values_ in values(loose.poll()).values() for value in values_]
                assert sorted(everything) == [b"aborted", b"committed", b"open", b"plain"]
        assert values(strict.poll()) == {T0: [b"open"]}
        assert (strict.poll(), strict.lag(T0)) == ({}, 0)
        assert strict.position(T0) == db.log("t", 0).end_offset


# ---------------------------------------------------------------- interceptors


class Masking(Interceptor):
    """Hides card numbers, and leaves out what is private."""

    def on_consume(self, records):
        shown = [record for record in records if not record.value.startswith(b"private")]
        return [ConsumedRecord.of(record, value=re.sub(rb"\d{4}", b"****", record.value)) for record in shown]


def test_interceptors_see_all_records_last(db):
    db.log("t", 0).append_many([b"card 1234", b"private", b"pin 9999"])
    with db.consumer("t", auto_offset_reset="earliest", interceptors=[Masking()], iteration_timeout_ms=0) as consumer:
        assert values(consumer.poll()) == {T0: [b"card ****", b"pin ****"]}
        assert consumer.position(T0) == 3
        consumer.seek_to_beginning()
        seen = []
        for record in consumer:
            seen.append((record.offset, record.value))
            assert consumer.position(T0) == {0: 2, 2: 3}[record.offset], "what was left out counts as read"
        assert seen == [(0, b"card ****"), (2, b"pin ****")]


def test_an_interceptor_that_fails_hides_everything(db):
    db.log("t", 0).append_many([b"card 1234", b"fails"])

    class Failing(Masking):
        def on_consume(self, records):
            if any(record.value == b"fails" for record in records):
                raise RuntimeError("no mask")
            return super().on_consume(records)

    with db.consumer("t", auto_offset_reset="earliest", interceptors=[Failing()], max_poll_records=1) as consumer:
        assert values(consumer.poll()) == {T0: [b"card ****"]}
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no mask"):
                consumer.poll()
        assert consumer.position(T0) == 1


def test_an_interceptor_that_forgets_to_return_hides_nothing(db):
    db.log("t", 0).append(b"5")

    class Forgetting(Interceptor):
        def on_consume(self, records):
            records.reverse()

    with db.consumer("t", auto_offset_reset="earliest", interceptors=[Forgetting()]) as consumer:
        with pytest.raises(TypeError, match=r"Forgetting\.on_consume has to return a list of records, not NoneType"):
            consumer.poll()
        assert consumer.position(T0) == 0


# ---------------------------------------------------------------- deserializers


def test_deserializers(db):
    db.append("t", b"5", b"k", headers=[("h", b"1")], timestamp_ms=7)
    db.append("t", None, b"k")
    with db.consumer("t", auto_offset_reset="earliest", value_deserializer=int, key_deserializer=serde.string) as consumer:
        (records,) = consumer.poll().values()
        partition = records[0].partition
        assert records == [ConsumedRecord("t", partition, 0, "k", 5, (("h", b"1"),), 7, 0), records[1]]
        assert (records[1].key, records[1].value) == ("k", None)


def test_a_record_that_cannot_be_deserialized(db):
    db.log("t", 0).append_many([b"0", b"1", b"two", b"3"])
    with db.consumer("t", auto_offset_reset="earliest", value_deserializer=int) as consumer:
        assert values(consumer.poll()) == {T0: [0, 1]}
        for _ in range(2):
            with pytest.raises(SerializationError, match="t-0 at offset 2") as caught:
                consumer.poll()
            assert isinstance(caught.value.__cause__, ValueError)
        error = caught.value
        consumer.seek((error.topic, error.partition), error.offset + 1)
        assert values(consumer.poll()) == {T0: [3]}


# ---------------------------------------------------------------- options, the end


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("auto_offset_reset", "newest"),
        ("isolation_level", "serializable"),
        ("max_poll_records", 0),
        ("max_poll_interval_ms", 1.5),
        ("enable_auto_commit", True),
        ("group_id", ""),
        ("group_id", 5),
        ("group_instance_id", "without a group"),
    ],
)
def test_options_that_cannot_be(db, option, value):
    with pytest.raises(InvalidConfig, match=option):
        db.consumer("t", **{option: value})


def test_a_closed_consumer(db):
    consumer = db.consumer("t")
    consumer.close()
    consumer.close()
    for call in (
        consumer.poll,
        consumer.unsubscribe,
        lambda: consumer.subscribe("t"),
        lambda: consumer.position(T0),
        lambda: consumer.end_offsets([T0]),
    ):
        with pytest.raises(Closed):
            call()
    assert list(consumer) == []


def test_a_consumer_of_a_closed_database(db):
    fill(db, 0, 3)
    consumer = db.consumer("t", auto_offset_reset="earliest")
    db.close()
    with pytest.raises(Closed):
        consumer.poll()


def test_a_consumer_beside_the_writer(db, tmp_path):
    fill(db, 0, 3)
    db.flush()
    with logdb.open(tmp_path / "db", mode="r") as reader, reader.consumer("t", auto_offset_reset="earliest") as consumer:
        assert values(consumer.poll()) == {T0: numbers(0, 3)}
        fill(db, 0, 3, first=3)
        db.flush()
        assert values(consumer.poll(10_000)) == {T0: numbers(3, 6)}
        consumer.seek_to_beginning()
        assert values(consumer.poll()) == {T0: numbers(0, 6)}


def test_a_reader_s_process_is_told_at_once_that_it_has_no_members_of_groups(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append(b"0")
        with db.consumer("t", group_id="g", auto_offset_reset="earliest") as member:
            assert member.poll(1000)
            member.commit()
        with logdb.open(tmp_path / "db", mode="r") as reader:
            with pytest.raises(ReadOnly, match="mode='r'"):
                reader.consumer("t", group_id="g")
            with reader.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
                with pytest.raises(ReadOnly, match="mode='r'"):
                    consumer.subscribe(pattern="t.*")
                assert consumer.subscription() == ()
                consumer.assign([("t", 0)])  # no member: it reads on from the group's offsets
                assert (consumer.poll(), consumer.position(("t", 0))) == ({}, 1)


def test_a_read_that_ends_before_the_known_end_skips_nothing(db, monkeypatch):
    """A leader may have told an end that its successor does not know of yet."""
    fill(db, 0, 2)
    with db.consumer("t", auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll(1_000)[T0]) == 2
        log = type(db.log("t", 0))
        with monkeypatch.context() as patched:
            patched.setattr(log, "readable_end_offset", lambda _self, _isolation_level="": 5)
            consumer.poll(0)
        assert consumer.position(T0) == 2
        fill(db, 0, 2, first=2)
        assert values(consumer.poll(1_000)) == {T0: numbers(2, 4)}


def test_a_position_behind_a_marker_of_a_later_epoch_is_not_lost(tmp_path):
    """The next leader has ended the transaction: no record that the consumer gave is of its epoch."""
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        log.begin_epoch(1)
        log.append_many([b"0"])
        log.begin_epoch(2)
        log.append_marker(ProducerIdAndEpoch(7, 0), commit=True, coordinator_epoch=0)
        log.append_marker(ProducerIdAndEpoch(7, 0), commit=True, coordinator_epoch=0)
        with db.consumer("t", auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            assert len(consumer.poll()) == 1
            assert consumer.poll() == {}  # moves past the markers
            position = consumer.positions()[T0]
        assert position.offset == 3
        assert list(log.read(position.offset, leader_epoch=position.leader_epoch if position.leader_epoch >= 0 else None)) == []
