"""A log that follows a leader, and the leader epochs that a controller gives."""

import contextlib
import threading

import pytest

import logdb
from logdb.codec import convert
from logdb.errors import (
    Closed,
    FencedLeaderEpoch,
    InvalidBatch,
    LogTruncated,
    NotLeaderOrFollower,
    ReadOnly,
    SyncFailed,
    UnexpectedOffset,
    UnknownLeaderEpoch,
    WriteFailed,
)
from logdb.log.epochs import EpochEnd
from logdb.log.readable import ReadableLog
from logdb.model import ProducerIdAndEpoch
from logdb.store.store import Store
from support.batches import Rec, encode_batch, encode_log
from support.faulty_io import FaultyIO
from support.followers import batches_of, catch_up, check_equal, open_replica, producers_of
from support.power_cut import die
from support.produced import Bare, Sender, batch, committed, values

NOW = 1_700_000_000_000
LEVELS = pytest.mark.parametrize("level", ["os", "interval", "fsync"])


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def leader(tmp_path):
    with opened(tmp_path / "leader") as db:
        yield made(db)


@pytest.fixture
def follower(tmp_path, io):
    with opened(tmp_path / "follower", io=io) as db:
        yield made(db)


def opened(path, **options):
    return open_replica(path, **{"linger_ms": 60_000, "clock": lambda: NOW, "batch_size": 300} | options)


def made(db, **config):
    db.create_topic("t", config=config)
    return db.log("t")


def told(log):
    """Some of everything: epochs, producers, transactions that commit, abort and stay open."""
    log.append_many([b"plain %d" % number for number in range(50)])
    log.begin_epoch(log.epochs.latest + 2)
    plain, committing, aborting, open_ = (Sender(log, number, transactional=number > 7) for number in (7, 8, 9, 10))
    for number in range(7):
        plain.send(b"p%d" % number)
        committing.send(b"c%d" % number, b"cc")
        aborting.send(b"a%d" % number)
    aborting.end(commit=False)
    open_.send(b"o")
    log.begin_epoch(log.epochs.latest + 1)
    committing.end(commit=True)
    aborting.send(b"again")
    aborting.end(commit=False)
    log.append(b"last")
    log.flush()


# ---------------------------------------------------------------- epochs


def test_batches_carry_the_epoch_that_began(leader):
    leader.append(b"0")
    assert leader.begin_epoch(4) == 1
    leader.append(b"1")
    leader.append(b"2")
    assert leader.begin_epoch(5) == 3
    leader.append(b"3")
    assert [record.leader_epoch for record in leader.read(0)] == [0, 4, 4, 5]
    assert leader.epochs.entries == ((0, 0), (4, 1), (5, 3))


def test_the_first_epoch_may_be_any(leader):
    assert leader.begin_epoch(0) == 0
    with pytest.raises(FencedLeaderEpoch):
        leader.begin_epoch(0)
    assert leader.begin_epoch(3) == 0
    leader.append(b"0")
    assert leader.epochs.entries == ((3, 0),)


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_epoch_that_is_known_does_not_begin_again(leader, epoch):
    leader.begin_epoch(5)
    with pytest.raises(FencedLeaderEpoch) as caught:
        leader.begin_epoch(epoch)
    assert (caught.value.leader_epoch, caught.value.current_epoch) == (epoch, 5)
    assert leader.epochs.entries == ((5, 0),)


@LEVELS
def test_an_epoch_is_durable_when_it_has_begun(tmp_path, io, level):
    with opened(tmp_path / "db", io=io, durability=level) as db:
        log = made(db)
        log.append(b"0")
        log.begin_epoch(7)
        assert (tmp_path / "db" / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n7 1\n"
        die(db)
    with opened(tmp_path / "db", durability=level) as db:
        log = db.log("t")
        assert log.epochs.entries == ((0, 0), (7, 1))  # an unclean opening begins none of its own
        with pytest.raises(FencedLeaderEpoch):
            log.begin_epoch(7)
        assert log.append(b"1") == 1
        assert log.begin_epoch(8) == 2


def test_an_epoch_that_cannot_be_written_has_not_begun(follower, io):
    follower.append_many([b"0"])
    io.fail("pwrite", path="leader-epoch-checkpoint")
    with pytest.raises(WriteFailed):
        follower.begin_epoch(3)
    io.heal()
    follower.append(b"1")
    assert [record.leader_epoch for record in follower.read(0)] == [0, 0]
    assert follower.begin_epoch(3) == 2


CLIENTS = {
    "append": lambda log: log.append(b"x"),
    "append_many": lambda log: log.append_many([b"x"]),
    "none": lambda log: log.append_many([]),
    "batches": lambda log: log.append_batches(encode_batch([b"x"])),
    "at an offset": lambda log: log.append_batches(encode_batch([b"x"]), expected_offset=77),
    "a producer": lambda log: Sender(log).send(b"x"),
    "a marker": lambda log: log.append_marker(ProducerIdAndEpoch(7, 0), commit=True, coordinator_epoch=0),
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_log_that_follows_takes_its_leaders_records_alone(leader, follower, client):
    leader.append_many([b"0", b"1"])
    follower.follow_leader(3, 8)
    catch_up(leader, follower)
    with pytest.raises(NotLeaderOrFollower) as caught:
        client(follower)
    assert (caught.value.leader, caught.value.leader_epoch) == (3, 8)
    follower.flush()
    check_equal(leader, follower)
    follower.begin_epoch(9)
    assert follower.append(b"2") == 2


def test_a_replica_that_was_opened_follows_until_its_epoch_begins(tmp_path):
    store = Store.open(tmp_path / "db", replicated=True)
    with Bare(store) as db:
        log = made(db)
        assert log.follows
        with pytest.raises(NotLeaderOrFollower) as caught:
            log.append(b"0")
        assert caught.value.leader is None
        log.begin_epoch(0)
        assert not log.follows and log.append(b"0") == 0


def test_records_that_were_accepted_are_in_when_a_log_begins_to_follow(leader):
    """Appends of threads beside: each is either below the end that the log has then, or refused."""
    ends, begun = [], threading.Barrier(3)

    def append():
        begun.wait()
        with contextlib.suppress(NotLeaderOrFollower):
            while True:
                ends.append(leader.append(b"x") + 1)

    threads = [threading.Thread(target=append) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait()
    while not ends:
        pass
    leader.follow_leader(2, 5)
    end = leader.end_offset
    for thread in threads:
        thread.join()
    assert max(ends) == len(ends) == end == leader.end_offset


def test_a_wait_for_a_commit_ends_when_the_log_begins_to_follow(tmp_path):
    with opened(tmp_path / "db", limited=True) as db:
        log = made(db)
        log.begin_epoch(1)
        log.append_many([b"0"])
        errors = []

        def commit():
            with pytest.raises(NotLeaderOrFollower) as caught:
                log.commit_to(1, leader_epoch=1)
            errors.append(caught.value)

        thread = threading.Thread(target=commit)
        thread.start()
        while not log._watchers:
            assert thread.is_alive()
        log.follow_leader(2, 2)
        thread.join(10)
        assert [error.leader for error in errors] == [2]


def test_a_log_that_takes_no_records_begins_no_epoch(tmp_path, leader):
    leader.append(b"0")
    leader.flush()
    with logdb.open(tmp_path / "leader", mode="r") as db, pytest.raises(ReadOnly):
        db.log("t").begin_epoch(9)
    leader.read_only_reason = "damaged"
    leader.refuse_appends()
    with pytest.raises(ReadOnly):
        leader.begin_epoch(9)


def test_a_directory_on_its_own_begins_an_epoch_after_a_crash(tmp_path):
    with opened(tmp_path / "db") as db:
        made(db).append_many([b"0"])
        die(db)
    with logdb.open(tmp_path / "db") as db:
        assert db.log("t").epochs.entries == ((0, 0), (1, 1))


def test_what_a_follower_asks_a_leader(leader):
    told(leader)
    (_, _), (second, begun), (third, later) = leader.epochs.entries
    assert leader.epoch_end(0) == EpochEnd(0, begun)
    assert leader.epoch_end(1, current_epoch=third) == EpochEnd(0, begun)
    assert leader.epoch_end(second) == EpochEnd(second, later)
    assert leader.epoch_end(third) == EpochEnd(third, leader.end_offset)
    assert leader.epoch_end(third + 1) is None
    with pytest.raises(FencedLeaderEpoch):
        leader.epoch_end(0, current_epoch=third - 1)
    with pytest.raises(UnknownLeaderEpoch):
        leader.epoch_end(0, current_epoch=third + 1)


# ---------------------------------------------------------------- what comes is what there is


@LEVELS
@pytest.mark.parametrize("size_bytes", [1, 1_000, 1 << 20])
def test_a_follower_is_equal_to_its_leader(tmp_path, leader, level, size_bytes):
    told(leader)
    with opened(tmp_path / "follower", durability=level) as db:
        follower = made(db, **{"segment.bytes": 1_024})
        catch_up(leader, follower, size_bytes)
        check_equal(leader, follower)
        assert committed(follower) == committed(leader)
        assert [record.leader_epoch for record in follower.read(0)] == [record.leader_epoch for record in leader.read(0)]
        assert follower.open_transactions() == leader.open_transactions()
    assert logdb.verify(tmp_path / "follower").ok
    with opened(tmp_path / "follower") as db:
        check_equal(leader, db.log("t"))


@LEVELS
def test_a_follower_that_was_killed_goes_on(tmp_path, leader, level):
    told(leader)
    db = opened(tmp_path / "follower", durability=level)
    made(db)
    while db.log("t").end_offset < leader.end_offset:
        batches, _ = leader.read_batches(db.log("t").end_offset, 200)
        db.log("t").follow_append(batches)
        die(db)
        db = opened(tmp_path / "follower", durability=level)
    with db:
        check_equal(leader, db.log("t"))
    assert logdb.verify(tmp_path / "follower").ok


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_follower_compresses_nothing(tmp_path, leader, codec):
    leader.append_many([b"plain"] * 20)
    with opened(tmp_path / "follower") as db:
        follower = made(db, **{"compression.type": codec})
        catch_up(leader, follower)
        assert batches_of(follower) == batches_of(leader)
        follower.begin_epoch(1)
        follower.append(b"leads by now" * 9)
        *_, (_, last) = convert.headers(follower.read_batches(20)[0])
        assert last.attributes & 7


def test_compressed_batches_stay_as_they_are(tmp_path, follower):
    with opened(tmp_path / "zstd") as db:
        leader = made(db, **{"compression.type": "zstd"})
        told(leader)
        catch_up(leader, follower)
        check_equal(leader, follower)


def test_what_the_topic_would_not_take_of_a_producer_is_taken_of_a_leader(tmp_path, leader):
    leader.append_many([b"no key, and large" * 9], timestamps_ms=[5])
    with opened(tmp_path / "follower") as db:
        follower = made(db, **{"cleanup.policy": "compact", "max.message.bytes": 128, "message.timestamp.type": "LogAppendTime"})
        catch_up(leader, follower)
        check_equal(leader, follower)


def test_sequences_are_not_refused(follower):
    first = batch([b"a"], 7, 0, 5, transactional=True)
    follower.follow_append(at(first, 0))
    assert follower.follow_append(at(batch([b"b"], 7, 0, 9), 1)) == range(1, 2)  # neither the next, nor in the transaction
    assert [known.next_sequence for known in producers_of(follower)] == [10]
    assert follower.follow_append(at(first, 2)) == range(2, 3)  # a duplicate only where it is sent by a producer


def test_transactions_of_one_call_are_told_apart(follower):
    images = [batch([b"x"], number, 0, 0, transactional=True) for number in (1, 2, 3)]
    markers = [marker(number, commit=number == 2) for number in (2, 1)]
    follower.follow_append(b"".join(at(image, offset) for offset, image in enumerate([*images, *markers])))
    assert [(found.producer_id, found.first_offset, found.last_offset, found.last_stable_offset)
            for found in follower.aborted_transactions(0, 5)] == [(1, 0, 4, 2)]  # fmt: skip
    assert follower.last_stable_offset == 2
    assert [left.producer_id for left in follower.open_transactions()] == [3]


def test_a_leader_goes_on_where_it_followed(leader, follower):
    told(leader)
    catch_up(leader, follower)
    end = follower.end_offset
    assert follower.begin_epoch(9) == end
    sender = Sender(follower, 7, sequence=7)
    assert sender.send(b"next") == range(end, end + 1)
    assert follower.append(b"plain") == end + 1
    catch_up(follower, leader)
    check_equal(follower, leader)


def test_nothing_is_nothing(follower):
    follower.append(b"0")
    assert follower.follow_append(b"") == range(1, 1)
    with pytest.raises(TypeError, match="batches"):
        follower.follow_append("no bytes")


def test_a_follower_reads_past_the_high_watermark(leader, follower):
    told(leader)
    leader.move_high_watermark(20, leader_epoch=9)
    assert leader.read_batches(20)[1] == 20
    catch_up(leader, follower)
    assert follower.end_offset == leader.end_offset > 20
    assert batches_of(leader) != batches_of(follower)  # who reads the leader ends at the high watermark


def test_more_than_a_group(tmp_path, leader):
    leader.append_many([b"x" * 250_000] * 8)
    with opened(tmp_path / "follower", durability="fsync") as db:
        follower = made(db)
        batches, _ = leader.read_batches(0, 4 << 20)
        follower.follow_append(batches)
        assert follower.view.flushed.offset == 8
        assert not follower.fsync_only  # recovery does not count on groups
        check_equal(leader, follower)


def test_a_follower_may_be_ahead_of_its_sync(tmp_path, leader):
    told(leader)
    with opened(tmp_path / "follower", durability="fsync") as db:
        follower = made(db)
        catch_up(leader, follower, durability="os")
        assert follower.view.flushed.offset == 0
        follower.flush()
        assert follower.view.flushed.offset == leader.end_offset


def test_who_reads_beside_sees_epochs_that_came(tmp_path, leader, follower):
    told(leader)
    with logdb.open(tmp_path / "follower", mode="r") as db:
        log = db.log("t")
        for size_bytes in (1, 1, 1, 1 << 20):
            follower.follow_append(leader.read_batches(follower.end_offset, size_bytes)[0])
            assert values(log) == values(follower)
        assert log.epochs.entries == leader.epochs.entries
        with pytest.raises(LogTruncated):
            log.read(leader.end_offset, leader_epoch=1)


# ---------------------------------------------------------------- what is refused


def at(image, offset, epoch=0):
    placed = bytearray(image)
    placed[:8], placed[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    return bytes(placed)


def marker(producer_id, *, commit):
    from logdb.codec.control import ControlType, build

    return build(ControlType(commit), ProducerIdAndEpoch(producer_id, 0), 0, NOW)


@pytest.mark.parametrize(
    ("wrong", "error", "what"),
    [
        (encode_log([[b"x"]], base_offset=4), UnexpectedOffset, "expected t-0 to end at offset 4, it ends at 3"),
        (encode_log([[b"x"]], base_offset=2), UnexpectedOffset, "expected t-0 to end at offset 2, it ends at 3"),
        (encode_batch([b"x", b"x"], base_offset=2, leader_epoch=5), UnexpectedOffset, "offset 2"),
        (encode_log([[b"x"]], base_offset=3, leader_epoch=4), FencedLeaderEpoch, "leader epoch 4 of t-0 is over: the latest is 5"),
        (encode_log([[b"x"]], base_offset=3, leader_epoch=-1), InvalidBatch, "leader epoch is -1"),
        (
            encode_batch([b"x"], base_offset=3, leader_epoch=6) + encode_batch([b"x"], base_offset=4, leader_epoch=5),
            InvalidBatch,
            "its leader epoch is 5, that of the batch before it 6",
        ),
        (
            encode_batch([b"x"], base_offset=3, leader_epoch=6) + encode_batch([b"x"], base_offset=5, leader_epoch=6),
            InvalidBatch,
            "it begins at offset 5, the batch before it ends at 4",
        ),
        (encode_batch([b"x"], base_offset=3, leader_epoch=6, crc=1), InvalidBatch, "CRC"),
        (encode_batch([b"x"], base_offset=3, leader_epoch=6)[:-1], InvalidBatch, "cut off"),
        (encode_batch([b"x"], base_offset=3, leader_epoch=6, record_count=2, last_offset_delta=1), InvalidBatch, "record"),
        (encode_batch([Rec(None, b"no marker")], base_offset=3, leader_epoch=6, attributes=48, producer_id=7), InvalidBatch, "control"),
    ],
)
def test_what_does_not_follow_is_refused(follower, wrong, error, what):
    follower.follow_append(encode_log([[b"0", b"1", b"2"]], leader_epoch=5))
    with pytest.raises(error, match=what):
        follower.follow_append(wrong)
    assert (follower.end_offset, follower.epochs.entries, follower.producers()) == (3, ((5, 0),), [])
    assert follower.follow_append(encode_log([[b"3"]], base_offset=3, leader_epoch=6)) == range(3, 4)


def test_an_epoch_that_cannot_be_written_keeps_its_batches_out(leader, follower, io):
    told(leader)
    io.fail("rename", path="leader-epoch-checkpoint")
    with pytest.raises(WriteFailed):
        catch_up(leader, follower)
    assert (follower.end_offset, follower.epochs.entries) == (0, ())
    io.heal()
    catch_up(leader, follower)
    check_equal(leader, follower)


def test_a_failed_sync_of_an_epoch_is_final(leader, follower, io):
    told(leader)
    io.fail("fdatasync", path="leader-epoch-checkpoint")
    with pytest.raises(SyncFailed):
        catch_up(leader, follower)
    io.heal()
    with pytest.raises(SyncFailed):
        catch_up(leader, follower)


def test_what_finds_no_room_is_kept_and_follows_later(leader, follower, io):
    told(leader)
    io.fail("pwrite", 28, path=".log")
    with pytest.raises(logdb.errors.DiskFull):
        follower.follow_append(leader.read_batches(0)[0])
    assert follower.end_offset == leader.end_offset  # accepted
    io.heal()
    follower.flush()
    check_equal(leader, follower)


def test_a_closed_log_follows_no_more(tmp_path, leader):
    told(leader)
    with opened(tmp_path / "closed") as db:
        follower = made(db)
    for call in (lambda: catch_up(leader, follower), lambda: follower.begin_epoch(99)):
        with pytest.raises(Closed):
            call()


# ---------------------------------------------------------------- a leader that compacts


def test_batches_that_compaction_has_changed(tmp_path, follower):
    with opened(tmp_path / "compacted") as db:
        leader = made(db, **{"cleanup.policy": "compact", "segment.bytes": 1_024, "index.interval.bytes": 100})
        sender = Sender(leader, 8, transactional=True)
        for number in range(40):
            leader.append(b"value %d" % number, b"key %d" % (number % 3))
            if number % 10 == 0:
                sender.send(Rec(b"t", b"transaction %d" % number))
                sender.end(commit=number % 20 == 0)
        db.compact("t")
        leader.append(b"last", b"last")
        before = follower.end_offset
        catch_up(leader, follower, 100)
        assert before < follower.end_offset == leader.end_offset
        assert any(head.record_count == 0 for _, head in convert.headers(memoryview(batches_of(follower))))
        assert batches_of(follower) == batches_of(leader)
        assert committed(follower) == committed(leader)
        (known,), (whole,) = producers_of(follower), producers_of(leader)
        assert known._replace(batches=known.batches[-1:]) == whole._replace(batches=whole.batches[-1:])  # compaction keeps the last one


def test_a_merged_batch_begins_where_the_follower_ends(tmp_path, follower):
    with opened(tmp_path / "compacted") as db:
        leader = made(db, **{"cleanup.policy": "compact", "segment.bytes": 2_000, "index.interval.bytes": 100})
        for number in range(60):
            leader.append_many([b"value %d" % number], [b"key"])
        follower.follow_append(leader.read_batches(0, 500)[0])
        end = follower.end_offset
        assert 1 < end < 50
        db.compact("t")
        batches, _ = leader.read_batches(end)
        _, merged = next(convert.headers(batches))
        assert merged.base_offset < end <= merged.last_offset
        catch_up(leader, follower)
        heads = [head for _, head in convert.headers(follower.read_batches(end)[0])]
        assert (heads[0].base_offset, heads[0].last_offset, heads[0].record_count) == (end, merged.last_offset, 0)
        assert follower.end_offset == leader.end_offset
        assert {record.key: record.value for record in follower.read(0)} == {b"key": b"value 59"}
    assert logdb.verify(tmp_path / "compacted").ok


def test_an_epoch_that_begins_while_a_follower_asks_does_not_prolong_the_one_before_it(leader):
    leader.append(b"a")
    epoch, end_offset, looks = leader.leader_epoch, leader.end_offset, []

    class Interrupted:
        def __getattr__(self, name):
            if looks:
                leader.begin_epoch(epoch + len(looks))
                leader.append(b"b")
            looks.append(name)
            return getattr(leader, name)

    assert ReadableLog.epoch_end(Interrupted(), epoch) == EpochEnd(epoch, end_offset)
    assert set(looks) == {"view", "end_offset"}


# ---------------------------------------------------------------- what an attacker found


@pytest.mark.parametrize("epoch", [-1, 2**31])
def test_an_epoch_that_a_checkpoint_cannot_hold_is_refused(tmp_path, epoch):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        with pytest.raises(ValueError, match="must be"):
            log.begin_epoch(epoch)
        log.begin_epoch(1)
        log.append_many([b"a"])
    with open_replica(tmp_path / "db") as db:
        assert db.log("t").read_only_reason is None
        assert [record.leader_epoch for record in db.log("t").read(0)] == [1]


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_a_log_begins_at_an_offset_that_there_can_be(tmp_path, offset):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        with pytest.raises(ValueError, match="must be"):
            db._store.begin_anew("t", 0, offset)
        assert db.log("t").end_offset == 0


@pytest.mark.parametrize("fields", [{"leader_epoch": -1}, {"leader_epoch": 1, "producer_id": 5, "producer_epoch": -1, "base_sequence": 0}])
def test_batches_with_an_epoch_below_zero_are_refused(tmp_path, fields):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        with pytest.raises(InvalidBatch, match="must be"):
            log.follow_append(encode_batch([b"a"], base_offset=0, **fields))
        assert log.end_offset == 0


def test_a_reader_that_follows_is_told_of_a_cut_while_it_holds_a_record(tmp_path):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")
        log.begin_epoch(1)
        for number in range(10):
            log.append_many([b"old-%d" % number])
        records = log.follow(0, timeout_ms=50)
        assert [next(records).offset for _ in range(10)] == list(range(10))
        db._store.truncate_to("t", 0, 4)
        log.begin_epoch(2)
        for number in range(4, 20):
            log.append_many([b"new-%d" % number])
        with pytest.raises(LogTruncated):
            list(records)


def test_a_table_sees_a_log_that_was_cut_off_and_has_grown_to_the_same_end(tmp_path):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t", config={"cleanup.policy": "compact"})
        log = db.log("t")
        log.begin_epoch(1)
        log.append_many([b"old"] * 4, [b"0", b"1", b"2", b"3"])
        table = db.table("t")
        assert dict(table.items()) == dict.fromkeys((b"0", b"1", b"2", b"3"), b"old")
        db._store.begin_anew("t", 0, 0)
        log.begin_epoch(2)
        log.append_many([b"new"] * 4, [b"0", b"1", b"2", b"3"])
        table._view._state.looked_ms = -(1 << 62)  # as if that were long ago: an access looks for a new epoch now and then
        assert set(dict(table.items()).values()) == {b"new"}
