"""The batches of one transaction for several partitions, in one call."""

import errno

import pytest

import logdb
from logdb import errors
from logdb.model import TopicPartition
from logdb.requests.session import Session
from support.faulty_io import FaultyIO
from support.transactional import Writer

A, B, C = (TopicPartition("t", number) for number in range(3))


class World:
    def __init__(self, path):
        self.io = FaultyIO()
        self.db = logdb.open(path, io=self.io)
        self.db.create_topic("t", partitions=3)
        self.broker = self.db._session
        self.writer = Writer(self.broker)

    def produce(self, *partitions):
        batches = {partition: self.writer.batches(partition, b"%d" % partition.partition) for partition in partitions}
        return batches, self.broker.produce_many(batches, transactional_id="tx")

    def parts(self):
        return self.broker.describe_transaction("tx").partitions

    def committed(self):
        return [[record.value for record in self.db.log(*where).read(0, isolation_level="read_committed")] for where in (A, B, C)]


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "db")
    yield world
    world.io.heal()
    world.db.close()


def test_all_partitions_are_added_at_once(world):
    added = []
    add, world.broker._add_own = world.broker._add_own, lambda request: (added.append(set(request.partitions)), add(request))
    _, answers = world.produce(A, B, C)
    assert answers == {A: range(1), B: range(1), C: range(1)}
    assert added == [{A, B, C}]
    assert world.parts() == (A, B, C)
    world.writer.end(commit=True)
    assert world.committed() == [[b"0"], [b"1"], [b"2"]]


def test_each_partition_has_an_answer_of_its_own(world):
    world.io.fail("pwrite", errno.ENOSPC, "t-1")
    batches, answers = world.produce(A, B, C)
    assert (answers[A], answers[C]) == (range(1), range(1))
    assert isinstance(answers[B], errors.DiskFull)
    world.io.heal()
    assert world.broker.produce_many(batches, transactional_id="tx") == {A: range(1), B: range(1), C: range(1)}, "the others are duplicates"
    world.writer.end(commit=True)
    assert world.committed() == [[b"0"], [b"1"], [b"2"]]


def test_what_cannot_be_written_to_is_not_added(world):
    nowhere, unknown, internal = TopicPartition("t", 3), TopicPartition("no", 0), TopicPartition("__transaction_state", 0)
    _, answers = world.produce(nowhere, A, unknown, internal)
    assert answers.pop(A) == range(1)
    assert [type(answers[partition]) for partition in (nowhere, unknown, internal)] == [
        errors.UnknownPartition,
        errors.UnknownTopic,
        errors.InvalidTopic,
    ]
    assert world.parts() == (A,)


def test_nothing_is_appended_outside_of_the_transaction(world):
    batches = {partition: world.writer.batches(partition, b"late") for partition in (A, B)}
    Writer(world.broker)  # which takes over the id
    answers = world.broker.produce_many(batches, transactional_id="tx")
    assert [type(answer) for answer in answers.values()] == [errors.ProducerFenced] * 2
    assert [world.db.log(*partition).end_offset for partition in (A, B)] == [0, 0]


def test_the_partitions_that_one_producer_may_not_write_to_do_not_stop_another(world):
    stranger = Writer(world.broker, "other")
    batches = {A: world.writer.batches(A, b"mine"), B: stranger.batches(B, b"of another id")}
    answers = world.broker.produce_many(batches, transactional_id="tx")
    assert answers[A] == range(1)
    assert isinstance(answers[B], errors.InvalidProducer)
    assert world.db.log(*B).end_offset == 0


def test_a_session_that_sends_them_one_by_one_gives_the_same_answers(world):
    batches = {partition: world.writer.batches(partition, b"x") for partition in (A, TopicPartition("no", 0), B)}
    answers = Session.produce_many(world.broker, batches, transactional_id="tx")
    assert (answers[A], answers[B]) == (range(1), range(1))
    assert isinstance(answers[TopicPartition("no", 0)], errors.UnknownTopic)
    world.writer.end(commit=True)
    assert world.committed() == [[b"x"], [b"x"], []]
