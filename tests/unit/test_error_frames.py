"""An error that was handled is freed at once: no frame of its own traceback refers to it.

Otherwise the garbage collector has to free it, with the memoryviews in these frames: CPython 3.11 may crash there (gh-77894).
"""

import gc
import weakref

import pytest

import logdb
from logdb.codec import convert
from logdb.errors import Closed, DiskFull, LogdbError, OutOfOrderSequence, UnknownTopic
from logdb.io import IO
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.store.reserve import Reserve


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as opened:
        opened.create_topic("t")
        opened.log("t").append_many([b"1", b"2"])
        yield opened


def batch(log: "logdb.Log", sequence: int) -> bytearray:
    image = bytearray(log.read_batches(0, 1 << 20)[0])
    convert.stamp_producer(memoryview(image), ProducerIdAndEpoch(5, 0), sequence, transactional=False)
    return image


def check_freed(call, kind: type[LogdbError]) -> None:
    gc.collect()
    gc.disable()
    try:
        try:
            call()
        except kind as error:
            kept = weakref.ref(error)
        assert kept() is None, "only the garbage collector would free it"
    finally:
        gc.enable()


def test_of_a_call_that_found_no_room_in_the_reserve(tmp_path):
    reserve = Reserve(IO(), str(tmp_path))
    reserve.fill()

    def work() -> None:
        raise DiskFull("x", 1, "full")

    check_freed(lambda: reserve.spend(work), DiskFull)


def test_of_a_closed_database(db):
    db.close()
    check_freed(db.topics, Closed)


def test_of_batches_that_follow_a_duplicate_and_come_too_late(db):
    log = db.log("t")
    first, second = batch(log, 0), batch(log, 2)
    log.append_batches(first)
    log.append(b"of somebody else")
    check_freed(lambda: log.append_batches(first + second), OutOfOrderSequence)


def test_of_partitions_of_a_transaction(db):
    answers = db._session.produce_many(
        {TopicPartition("none", 0): batch(db.log("t"), 0), TopicPartition("t", 0): batch(db.log("t"), 9)}, transactional_id=""
    )
    errors = list(answers.values())
    assert [type(error) for error in errors] == [UnknownTopic, range]
    assert errors[0].__traceback__ is None
