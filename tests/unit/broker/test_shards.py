"""Coordinators that come and go while requests are under way."""

import errno
import gc
import threading
import weakref
from concurrent.futures import Future

import pytest

import logdb
from logdb import errors
from logdb.broker import runner
from logdb.broker.broker import Broker
from logdb.coordinator.transactions import TransactionConfig
from logdb.model import OffsetAndMetadata, TopicPartition
from support.faulty_io import FaultyIO
from support.transactional import Writer
from support.waiting import until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITION_COUNT = 2
MOVED = (errors.NotCoordinator, errors.CoordinatorLoading, errors.ConcurrentTransactions)


class World:
    """A database whose broker is told by a test what it leads."""

    def __init__(self, path):
        self.io = FaultyIO()
        self.db = logdb.open(path, io=self.io)
        for name, count in (("t", 2), ("__consumer_offsets", PARTITION_COUNT), ("__transaction_state", PARTITION_COUNT)):
            self.db.create_topic(name, partitions=count, config={"cleanup.policy": "delete" if name == "t" else "compact"})
        store = self.db._store
        self.broker = Broker(store, store, transaction_config=TransactionConfig(abort_on_recovery=False))

    def partitions(self, topic):
        return [TopicPartition(topic, number) for number in range(PARTITION_COUNT)]

    def lead(self, epoch, *topics):
        return [self.broker.load_coordinator(where, epoch) for topic in topics for where in self.partitions(topic)]

    def resign(self, epoch, *topics):
        return [self.broker.resign_coordinator(where, epoch) for topic in topics for where in self.partitions(topic)]

    def committed(self, where):
        return [int(record.value) for record in self.db._store.open_log(*where).read(0, isolation_level="read_committed")]


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "db")
    yield world
    world.io.heal()
    world.broker.close()
    world.db.close()


def join(broker, group="g", **options):
    options = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocols": [("range", b"me")]} | options
    return broker.join_group(group, client_host="far", **options)


def test_a_coordinator_that_resigns_refuses_and_the_next_one_knows_what_was_acknowledged(world):
    broker = world.broker
    broker.commit_offsets("g", {T0: OffsetAndMetadata(5)}).result()
    assert any(world.resign(7, "__consumer_offsets"))
    for call in (
        lambda: broker.commit_offsets("g", {T0: OffsetAndMetadata(6)}).result(),
        lambda: broker.fetch_offsets("g"),
        lambda: broker.describe_group("g"),
        lambda: join(broker).result(),
    ):
        with pytest.raises(errors.NotCoordinator) as refused:
            call()
        assert refused.value.leader_epoch == 7
    assert all(world.lead(8, "__consumer_offsets"))
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(5)}
    broker.commit_offsets("g", {T0: OffsetAndMetadata(6)}).result()
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(6)}


def test_an_older_epoch_is_ignored(world):
    broker = world.broker
    assert world.lead(5, "__consumer_offsets") == [True, True]
    broker.commit_offsets("g", {T0: OffsetAndMetadata(5)}).result()
    shards = [broker._groups.at(number) for number in range(PARTITION_COUNT)]
    assert world.resign(4, "__consumer_offsets") == [False, False]
    assert world.lead(4, "__consumer_offsets") == world.lead(5, "__consumer_offsets") == [False, False], "nor is one loaded twice"
    assert shards == [broker._groups.at(number) for number in range(PARTITION_COUNT)]
    assert world.resign(6, "__consumer_offsets") == [True, True]
    assert world.resign(6, "__consumer_offsets") == world.lead(6, "__consumer_offsets") == [False, False]
    with pytest.raises(errors.NotCoordinator):
        broker.fetch_offsets("g")


def test_requests_that_wait_are_told_to_ask_another_node(world):
    broker = world.broker
    first = join(broker).result(10)
    joining = join(broker)
    world.resign(7, "__consumer_offsets")
    with pytest.raises(errors.NotCoordinator):
        joining.result(10)
    world.lead(8, "__consumer_offsets")
    with pytest.raises(errors.UnknownMember):  # the group was never stable, so it was not written down
        broker.heartbeat("g", generation=1, member_id=first.member_id)


def test_nothing_is_left_of_a_shard_that_has_resigned(world):
    broker = world.broker
    join(broker).result(10)
    number = broker._groups.partition_of("g")
    shard = weakref.ref(broker._groups.at(number))
    world.resign(7, "__consumer_offsets")
    gc.collect()
    assert shard() is None
    assert not [key for key in broker._timers._due_ms if key[0] not in broker._transactions._open.values()]


def test_a_timer_that_waits_for_replicas_holds_up_no_other_partition(tmp_path, monkeypatch):
    """In a cluster: the end of a member's session is written down, and that is committed late."""

    class Metadata:
        def __init__(self, store):
            self._store = store

        def __getattr__(self, name):
            return getattr(self._store, name)

    world = World(tmp_path / "db")
    broker = Broker(world.db._store, Metadata(world.db._store))
    waits, go_on = threading.Event(), threading.Event()

    def commit_late(*_arguments, **_options):
        waits.set()
        assert go_on.wait(60)

    try:
        slow, fast = (next(f"g{n}" for n in range(99) if broker._groups.partition_of(f"g{n}") == number) for number in (0, 1))
        for group in (slow, fast):
            joined = join(broker, group=group, session_timeout_ms=500).result(10)
            broker.sync_group(group, generation=1, member_id=joined.member_id, assignments={joined.member_id: b""}).result(10)
        monkeypatch.setattr(world.db._store.open_log("__consumer_offsets", 0), "commit_to", commit_late)
        broker.heartbeat(fast, generation=1, member_id=joined.member_id)  # its session ends after that of the other one
        assert waits.wait(60)
        until(lambda: not broker.describe_group(fast).members, "the other session ends")
    finally:
        go_on.set()
        broker.close()
        world.broker.close()
        world.db.close()


def test_requests_are_refused_while_a_shard_is_loaded(world, monkeypatch):
    broker = world.broker
    broker.commit_offsets("g", {T0: OffsetAndMetadata(5)}).result()
    begun, go_on, replay = threading.Event(), threading.Event(), runner.replay

    def slow(log, coordinator, offset):
        begun.set()
        assert go_on.wait(60)
        return replay(log, coordinator, offset)

    monkeypatch.setattr(runner, "replay", slow)
    loading = threading.Thread(target=world.lead, args=(7, "__consumer_offsets"))
    loading.start()
    try:
        assert begun.wait(60)
        with pytest.raises(errors.CoordinatorLoading):
            broker._groups.at(0).query(lambda groups: groups.groups())
    finally:
        go_on.set()
        loading.join()
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(5)}


def test_a_node_that_does_not_lead_is_no_coordinator(world, monkeypatch):
    state = world.db._store.partition_state("__consumer_offsets", 0)._replace(leader=2, leader_epoch=9)
    monkeypatch.setattr(world.db._store, "partition_state", lambda _topic, _partition: state)
    with pytest.raises(errors.NotCoordinator) as refused:
        world.broker.fetch_offsets("g")
    assert refused.value.leader_epoch == 9


def test_a_write_that_found_no_room_does_not_count_for_the_next_coordinator(world):
    broker = world.broker
    broker.commit_offsets("g", {T0: OffsetAndMetadata(5)}).result()
    world.io.fail("pwrite", errno.ENOSPC, "__consumer_offsets")
    with pytest.raises(errors.DiskFull):
        broker.commit_offsets("g", {T0: OffsetAndMetadata(6)}).result()
    world.lead(7, "__consumer_offsets")
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(5)}
    world.io.heal()
    broker.commit_offsets("g", {T0: OffsetAndMetadata(7)}).result()
    assert broker.fetch_offsets("g") == {T0: OffsetAndMetadata(7)}


def test_a_transaction_that_was_decided_is_completed_by_the_next_coordinator(world):
    broker = world.broker
    writer = Writer(broker)
    writer.write(T0, b"1")
    write_markers = broker._peers.write_markers

    def moved(markers):
        broker._peers.write_markers = write_markers
        world.resign(7, "__transaction_state")
        raise errors.NotLeaderOrFollower("t", 0, 2, 7)

    broker._peers.write_markers = moved
    with pytest.raises(errors.NotCoordinator):
        writer.end(commit=True)
    assert world.committed(T0) == []
    world.lead(8, "__transaction_state")
    assert world.committed(T0) == [1]
    writer.end(commit=True)
    writer.write(T0, b"2")
    writer.end(commit=True)
    assert world.committed(T0) == [1, 2]


def again(call, *arguments, **options):
    """Make a request as clients do: again where it was not the coordinator."""
    while True:
        try:
            answer = call(*arguments, **options)
            return answer.result(60) if isinstance(answer, Future) else answer
        except MOVED:
            pass


@pytest.mark.parametrize("durability", ["interval", "fsync"])
def test_what_is_acknowledged_while_coordinators_move_is_there_once(world, durability):
    """Load and resign in turn, with commits of offsets and whole transactions under way."""
    for topic in ("__consumer_offsets", "__transaction_state"):
        world.db.alter_topic(topic, config={"durability": durability})
    broker, over, failures = world.broker, threading.Event(), []
    acknowledged, answered = {}, threading.Semaphore(0)

    def commits(group):
        offset = 0
        while not over.is_set():
            offset += 1
            again(broker.commit_offsets, group, {T0: OffsetAndMetadata(offset)})
            acknowledged[group] = offset
            answered.release()

    def transactions(name, where):
        writer = again(Writer, broker, name)
        number = 0
        while not over.is_set():
            number += 1
            batches = writer.batches(where, b"%d" % number)
            again(broker.produce, *where, batches, transactional_id=name)
            again(broker.commit_transaction_offsets, name, writer.producer, name, {where: OffsetAndMetadata(number)})
            again(writer.end, commit=True)
            acknowledged[name] = number
            answered.release()

    def run(work, *arguments):
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)
            raise

    work = [(commits, "a"), (commits, "b"), (transactions, "x", T0), (transactions, "y", T1)]
    threads = [threading.Thread(target=run, args=arguments) for arguments in work]
    for thread in threads:
        thread.start()
    epoch = 1
    while epoch < 24 or any(acknowledged.get(name, 0) < 3 for name in "abxy"):
        assert answered.acquire(timeout=60)
        world.resign(epoch, "__consumer_offsets", "__transaction_state")
        world.lead(epoch + 1, "__consumer_offsets", "__transaction_state")
        epoch, seen = epoch + 2, dict(acknowledged)
        for group in seen.keys() & {"a", "b"}:
            assert again(broker.fetch_offsets, group)[T0].offset >= seen[group]
    over.set()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)
    for group in ("a", "b"):
        assert broker.fetch_offsets(group)[T0].offset == acknowledged[group]
    for name, where in (("x", T0), ("y", T1)):
        assert world.committed(where) == list(range(1, acknowledged[name] + 1))
        assert broker.fetch_offsets(name)[where].offset == acknowledged[name]
        assert broker.describe_transaction(name).state == "CompleteCommit"


def test_a_decision_above_the_high_watermark_counts(world):
    broker = world.broker
    writer = Writer(broker)
    writer.write(T0, b"1")
    producer, shard = writer.producer, broker._transactions.of(writer.id)
    shard.log.move_high_watermark(shard.log.end_offset, leader_epoch=shard.log.leader_epoch)
    writer.end(commit=True)
    assert shard.log.high_watermark < shard.log.end_offset
    assert broker._peers.decision(producer, T0).commit


CANNOT_OPEN = [errors.CorruptionError("f", 0, "damaged"), errors.DiskFull("f", 1, "no room")]


@pytest.mark.parametrize("error", CANNOT_OPEN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("told_again", [False, True])
def test_a_log_that_cannot_be_opened_is_opened_by_the_next_try(world, monkeypatch, error, told_again):
    broker = world.broker
    waiting = [join(broker).result(10), join(broker)][1]
    broker.commit_offsets("h", {T0: OffsetAndMetadata(5)}).result()
    told = [TopicPartition("__consumer_offsets", broker._groups.partition_of(name)) for name in "gh"]

    def failing(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(world.db._store, "open_log", failing)
        for where in told:
            with pytest.raises(type(error)):
                broker.load_coordinator(where, 7)
        with pytest.raises(errors.NotCoordinator):
            waiting.result(10)
        with pytest.raises(type(error)):
            broker.describe_group("h")
    if told_again:
        assert broker.load_coordinator(told[1], 7)
    assert broker.fetch_offsets("h") == {T0: OffsetAndMetadata(5)}
    assert not broker.load_coordinator(told[1], 7)


def test_a_partition_whose_log_cannot_be_opened_is_resigned(world, monkeypatch):
    broker, where = world.broker, TopicPartition("__consumer_offsets", 0)

    def failing(*_):
        raise errors.DiskFull("f", 1, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(world.db._store, "open_log", failing)
        with pytest.raises(errors.DiskFull):
            broker.load_coordinator(where, 7)
    assert not broker.resign_coordinator(where, 7), "it did not coordinate"
    with pytest.raises(errors.NotCoordinator):
        broker._groups.at(0)
    assert not broker.load_coordinator(where, 7)


def names_of_partitions(shards):
    """A name for each partition."""
    return {shards.partition_of(name): name for name in map(str, range(32))}


def test_listings_and_deletions_go_on_with_what_this_node_coordinates(world):
    broker = world.broker
    here, elsewhere = names_of_partitions(broker._groups).values()
    for group_id in here, elsewhere:
        broker.commit_offsets(group_id, {T0: OffsetAndMetadata(5)}).result()
    ids = names_of_partitions(broker._transactions)
    for transactional_id in ids.values():
        Writer(broker, transactional_id)
    broker.resign_coordinator(TopicPartition("__consumer_offsets", broker._groups.partition_of(elsewhere)), 7)
    broker.resign_coordinator(TopicPartition("__transaction_state", 1), 7)
    assert [summary.group_id for summary in broker.groups()] == [here]
    assert [info.transactional_id for info in broker.transactions()] == [ids[0]]
    broker.delete_topic("t")
    assert broker.fetch_offsets(here) == {}


def test_a_topic_is_not_deleted_while_a_coordinator_cannot_hear_of_it(world, monkeypatch):
    broker = world.broker
    broker.commit_offsets("g", {T0: OffsetAndMetadata(5)}).result()

    def loading(shard):
        raise errors.CoordinatorLoading(shard.log.topic, shard.log.partition, 0)

    with monkeypatch.context() as patched:
        patched.setattr(runner.Shard, "load", loading)
        with pytest.raises(errors.CoordinatorLoading):
            broker.delete_topic("t")
    assert broker.partition_count("t") == 2
    broker.delete_topic("t")
    assert broker.fetch_offsets("g") == {}


def test_what_one_coordinator_knows_needs_no_other_but_an_absence_needs_all(world):
    broker = world.broker
    ids = names_of_partitions(broker._transactions)
    writers = {number: Writer(broker, ids[number]) for number in ids}
    for writer in writers.values():
        writer.write(T0, b"1")
    open_producer, (decided, other) = writers[1].producer, (writers[1].producer, writers[0].producer)
    broker.resign_coordinator(TopicPartition("__transaction_state", 0), 7)
    assert broker._peers.will_end(open_producer, T0)
    writers[1].end(commit=True)
    assert broker._peers.decision(decided, T0).commit
    for ask in broker._peers.will_end, broker._peers.decision:
        with pytest.raises(errors.NotCoordinator):
            ask(other, T0)
    log = world.db._store.open_log("t", 0)
    end_offset = log.end_offset
    broker.dangling.ended.discard(T0)
    with pytest.raises(errors.NotCoordinator):
        broker.served_log("t", 0)
    assert log.end_offset == end_offset, "no marker is written before the coordinator is asked"
