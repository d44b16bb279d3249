"""Idempotent and transactional batches in a log: checked, remembered, ended, hidden, and the same after any stop."""

import contextlib
import threading
from collections import deque
from pathlib import Path

import pytest

import logdb
from logdb.errors import (
    ConcurrentTransactions,
    CoordinatorFenced,
    CorruptionError,
    DiskFull,
    InvalidBatch,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    ReadOnly,
    UnexpectedOffset,
)
from logdb.log.producers import EXPIRATION_MS
from logdb.model import AbortedTransaction, OpenTransaction, ProducerIdAndEpoch
from support.batches import encode_batch, encode_log
from support.faulty_io import FaultyIO
from support.power_cut import die
from support.produced import Sender, batch, committed, open_bare, values
from support.waiting import until

NOW = 1_700_000_000_000
LEVELS = pytest.mark.parametrize("level", ["os", "interval", "fsync"])


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def db(tmp_path, io):
    with open_bare(tmp_path / "db", io=io, linger_ms=60_000, clock=lambda: NOW) as database:
        yield database


@pytest.fixture
def log(db):
    return made(db)


def made(db, **config):
    db.create_topic("t", config={key.replace("_", "."): value for key, value in config.items()})
    return db.log("t")


def reopened(db, path: Path, *, clean: bool = True, **options):
    """The database after a close, or after its process died."""
    if clean:
        db.close()
    else:
        die(db)
    return open_bare(path, linger_ms=60_000, clock=lambda: NOW, **options)


def snapshots(path: Path) -> list[int]:
    return sorted(int(file.stem) for file in (path / "t-0").glob("*.snapshot"))


# ---------------------------------------------------------------- idempotence


@LEVELS
def test_a_batch_that_comes_again_is_stored_once(tmp_path, level):
    with open_bare(tmp_path / "db", durability=level) as db:
        log = made(db)
        sender = Sender(log)
        again = sender.image(b"a", b"b")
        assert sender.send(b"a", b"b") == range(2)
        log.append(b"plain")
        assert sender.send(b"c") == range(3, 4)
        assert log.append_batches(again) == range(2)
        assert log.append_batches(again, durability="fsync") == range(2)
        assert log.view.flushed.offset >= 2
        assert values(log) == [b"a", b"b", b"plain", b"c"]


def test_several_batches_of_a_call_are_known_together(log):
    first, second, third = (batch([b"%d" % n], 7, 0, n) for n in range(3))
    assert log.append_batches(first + second) == range(2)
    log.append(b"between")
    assert log.append_batches(first + second) == range(2)
    assert log.append_batches(second) == range(1, 2)
    with pytest.raises(OutOfOrderSequence):  # half of it is known: no answer could tell where it lies
        log.append_batches(second + third)
    assert log.append_batches(third + batch([b"3"], 7, 0, 3)) == range(3, 5)
    assert values(log) == [b"0", b"1", b"between", b"2", b"3"]


@pytest.mark.parametrize("expected_offset", [None, 1])
@pytest.mark.parametrize("kept_count", [1, 2])
def test_what_a_crash_has_cut_off_of_a_call_is_appended_when_the_call_comes_again(log, expected_offset, kept_count):
    log.append(b"plain")
    call = [batch([b"%d" % n], 7, 0, n) for n in range(3)]
    for kept in call[:kept_count]:
        log.append_batches(kept)
    for _ in range(2):
        assert log.append_batches(b"".join(call), expected_offset=expected_offset) == range(1, 4)
    assert values(log) == [b"plain", b"0", b"1", b"2"]


@pytest.mark.parametrize("expected_offset", [None, 0])
def test_what_cannot_follow_on_the_begin_of_its_call_any_more_is_refused(log, expected_offset):
    first, second, third = (batch([b"%d" % n], 7, 0, n) for n in range(3))
    log.append_batches(first)
    with pytest.raises(OutOfOrderSequence):
        log.append_batches(first + third, expected_offset=expected_offset)
    with pytest.raises(OutOfOrderSequence):
        log.append_batches(second + first, expected_offset=expected_offset)
    log.append(b"between")
    with pytest.raises(OutOfOrderSequence):
        log.append_batches(first + second, expected_offset=expected_offset)
    assert values(log) == [b"0", b"between"]


def test_what_is_refused_leaves_everything_as_it_was(log):
    sender = Sender(log, epoch=1)
    sender.send(b"a")
    good = batch([b"good"], 7, 1, 1)
    for wrong, error in (
        (batch([b"x"], 7, 1, 3), OutOfOrderSequence),
        (batch([b"x"], 7, 0, 1), ProducerFenced),
        (good + batch([b"x"], 7, 1, 3), OutOfOrderSequence),
        (good + batch([b"x"], 8, 0, 0, transactional=True) + batch([b"x"], 8, 0, 1), InvalidTransactionState),
        (good + encode_log([[b"plain"]]) + batch([b"x"], 7, 0, 2), ProducerFenced),
    ):
        with pytest.raises(error):
            log.append_batches(wrong)
        assert (log.end_offset, log.open_transactions()) == (1, [])
    assert log.append_batches(good) == range(1, 2)


def test_the_sixth_batch_back_is_out_of_order(log):
    sender, images = Sender(log), []
    for number in range(6):
        images.append(sender.image(b"%d" % number))
        sender.send(b"%d" % number)
    for number in range(1, 6):
        assert log.append_batches(images[number]) == range(number, number + 1)
    with pytest.raises(OutOfOrderSequence) as caught:
        log.append_batches(images[0])
    assert (caught.value.sequence, caught.value.expected_sequence) == (0, 6)


def test_sequences_wrap_around(log):
    sender = Sender(log, sequence=2**31 - 2)
    again = sender.image(b"a", b"b", b"c")
    assert sender.send(b"a", b"b", b"c") == range(3)
    assert sender.sequence == 1
    assert sender.send(b"d") == range(3, 4)
    assert log.append_batches(again) == range(3)


def test_the_duplicate_check_comes_before_the_expected_offset(log):
    sender = Sender(log)
    first = sender.image(b"a")
    assert sender.send(b"a", expected_offset=0) == range(1)
    assert log.append_batches(first, expected_offset=0) == range(1)
    with pytest.raises(UnexpectedOffset):
        sender.send(b"b", expected_offset=0)
    assert sender.send(b"b", expected_offset=1) == range(1, 2)


def test_batches_without_a_sequence_are_a_coordinators(log):
    image = encode_batch([b"a"], producer_id=7, producer_epoch=0)
    with pytest.raises(InvalidBatch, match="producer 7 with the sequence -1"):
        log.append_batches(image)
    assert log.append_batches(image, internal=True) == range(1)
    assert log.append_batches(image, internal=True) == range(1, 2)
    Sender(log, epoch=1).send(b"newer")
    with pytest.raises(ProducerFenced):
        log.append_batches(image, internal=True)


def test_a_transactional_batch_needs_a_producer(log):
    with pytest.raises(InvalidBatch, match="without a producer id"):
        log.append_batches(encode_batch([b"a"], attributes=16))


@LEVELS
def test_many_threads_send_the_same_batches(tmp_path, level):
    with open_bare(tmp_path / "db", durability=level) as db:
        log = made(db)

        def send(image: bytes, offsets: list[range]) -> None:
            offsets.append(log.append_batches(image))

        images = [batch([b"%d" % number], 7, 0, number) for number in range(40)]
        results: list[set[range]] = []
        for image in images:
            offsets: list[range] = []
            threads = [threading.Thread(target=send, args=(image, offsets)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            results.append(set(offsets))
        assert results == [{range(number, number + 1)} for number in range(40)]
        assert values(log) == [b"%d" % number for number in range(40)]


@pytest.mark.parametrize("transactional", [False, True])
def test_what_a_full_disk_refuses_is_not_taken_for_a_duplicate(io, log, transactional):
    sender = Sender(log, transactional=transactional)
    first = sender.image(b"a" * 100)
    io.fill_up()
    for _ in range(2):
        with pytest.raises(DiskFull) as caught:
            log.append_batches(first)
        assert caught.value.offsets is None
        assert (log.end_offset, log.last_stable_offset, log.producer(7)) == (0, 0, None)
    io.heal()
    assert log.append(b"plain") == 0
    assert log.append_batches(first) == log.append_batches(first) == range(1, 2)
    assert log.last_stable_offset == (1 if transactional else 2)
    assert values(log) == [b"plain", b"a" * 100]


def test_a_batch_that_a_later_one_of_its_producer_follows_is_kept(io, log, monkeypatch):
    sender = Sender(log)
    sender.send(b"a")
    first, second = sender.image(b"b"), batch([b"c"], 7, 0, 2)
    io.fill_up()
    write, waiting = log._write, [second]

    def overtaken(*args):
        if waiting:
            sent = threading.Thread(target=outcome, args=(log, waiting.pop()))
            sent.start()
            until(lambda: log.end_offset == 3, "the second batch is accepted")
            threads.append(sent)
        write(*args)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(log, "_write", overtaken)
    with pytest.raises(DiskFull) as caught:
        log.append_batches(first)
    io.heal()
    threads[0].join()
    assert caught.value.offsets in (None, range(1, 2))
    assert caught.value.retriable, "the same batch is known, or comes in its turn"
    for image in (first, second):
        log.append_batches(image)
    assert values(log) == [b"a", b"b", b"c"]


def outcome(log, image):
    with contextlib.suppress(DiskFull, OutOfOrderSequence):
        log.append_batches(image)


def test_the_first_producer_of_a_log_finds_no_room(io, log):
    sender = Sender(log)
    io.fail("create", 28, ".snapshot")
    with pytest.raises(DiskFull):
        sender.send(b"a")
    assert (log.end_offset, log.producers_offset) == (0, -1)
    log.append(b"plain")  # which needs none
    io.heal()
    assert sender.send(b"a") == range(1, 2)


def test_an_interrupted_append_is_forgotten(log, monkeypatch):
    class Interrupted(deque[object]):
        def extend(self, updates):
            super().extend(updates)
            raise KeyboardInterrupt

    first, second = Sender(log), Sender(log, 8, transactional=True)
    first.send(b"a")
    transactions = log.writer.transactions
    with monkeypatch.context() as patch:
        patch.setattr(transactions, "pending", Interrupted())
        for sender in (first, second):
            with pytest.raises(KeyboardInterrupt):
                sender.send(b"b", b"c")
        assert (list(transactions.pending), log.end_offset, log.last_stable_offset) == ([], 1, 1)
    assert first.send(b"b") == range(1, 2)
    assert second.send(b"c") == range(2, 3)
    assert log.last_stable_offset == 2


def test_what_a_full_disk_kept_and_a_close_lost_is_not_known_afterwards(tmp_path, io):
    db = open_bare(tmp_path / "db", io=io, linger_ms=60_000)
    log = made(db)
    sender = Sender(log, transactional=True)
    sender.send(b"a")
    log.flush()
    io.fill_up()
    with pytest.raises(DiskFull):
        sender.send(b"lost" * 100)
    with pytest.raises(logdb.errors.CloseIncomplete):
        db.close()
    io.heal()
    with open_bare(tmp_path / "db") as db:
        log = db.log("t")
        assert log.open_transactions()[0].first_offset == 0
        assert log.append_batches(batch([b"lost" * 100], 7, 0, 1, transactional=True)) == range(1, 2)
        assert values(log) == [b"a", b"lost" * 100]


# ---------------------------------------------------------------- transactions


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(log):
    first, second = Sender(log, 1, transactional=True), Sender(log, 2, transactional=True)
    log.append(b"plain")
    assert log.last_stable_offset == 1
    first.send(b"1a")
    second.send(b"2a")
    first.send(b"1b")
    log.append(b"after")
    assert (log.last_stable_offset, log.end_offset) == (1, 5)
    assert log.open_transactions() == [OpenTransaction(1, 0, 1, NOW), OpenTransaction(2, 0, 2, NOW)]
    assert committed(log) == [b"plain"]
    assert first.end(commit=True) == 5
    assert (log.last_stable_offset, committed(log)) == (2, [b"plain", b"1a"])
    assert second.end(commit=True) == 6
    assert (log.last_stable_offset, log.end_offset) == (7, 7)
    assert committed(log) == [b"plain", b"1a", b"2a", b"1b", b"after"] == values(log)
    assert log.aborted_transactions(0, 7) == []


def test_aborted_records_are_left_out(log):
    loser, winner = Sender(log, 1, transactional=True), Sender(log, 2, transactional=True)
    loser.send(b"no 1", b"no 2")
    winner.send(b"yes 1")
    loser.send(b"no 3")
    assert loser.end(commit=False) == 4
    assert log.last_stable_offset == 2
    assert log.aborted_transactions(0, 2) == [AbortedTransaction(1, 0, 4, 2)]
    assert winner.end(commit=True) == 5
    loser.send(b"yes 2")
    loser.end(commit=True)
    log.append(b"yes 3")
    assert committed(log) == [b"yes 1", b"yes 2", b"yes 3"]
    assert committed(log, 3) == [b"yes 2", b"yes 3"]
    assert committed(log, 7) == [b"yes 3"]
    assert values(log) == [b"no 1", b"no 2", b"yes 1", b"no 3", b"yes 2", b"yes 3"]
    assert values(log, 0, end_offset=3, isolation_level="read_committed") == [b"yes 1"]
    assert log.aborted_transactions(5, 100) == []
    assert log.aborted_transactions(4, 5) == log.aborted_transactions(0, 1) == [AbortedTransaction(1, 0, 4, 2)]
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_batches(log.read_arrow(0, columns=["value"], isolation_level="read_committed"))
    assert table["value"].to_pylist() == [b"yes 1", b"yes 2", b"yes 3"]


def test_batches_end_at_the_last_stable_offset(log):
    sender = Sender(log, transactional=True)
    log.append_many([b"a", b"b"])
    sender.send(b"c")
    assert log.read_batches(0)[1] == 3
    assert log.read_batches(0, isolation_level="read_committed")[1] == 2
    assert log.read_batches(2, isolation_level="read_committed") == (b"", 2)
    sender.end(commit=False)
    batches, following = log.read_batches(2, isolation_level="read_committed")
    assert (following, int.from_bytes(batches[:8], "big")) == (4, 2)  # as it lies: the list says what does not count


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_compressed_batches_are_left_out_too(db, codec):
    log = made(db, compression_type=codec)
    loser, winner = Sender(log, 1, transactional=True), Sender(log, 2, transactional=True)
    for number in range(50):
        loser.send(b"no" * 50)
        winner.send(b"yes %d" % number)
    loser.end(commit=False)
    winner.end(commit=True)
    assert committed(log) == [b"yes %d" % number for number in range(50)]


def test_a_marker_without_a_transaction_takes_an_offset(log):
    assert log.append_marker(ProducerIdAndEpoch(9, 0), commit=False, coordinator_epoch=0) == 0
    assert (log.end_offset, log.aborted_transactions(0, 1), committed(log)) == (1, [], [])


def test_a_marker_of_a_newer_epoch_fences_who_sends_under_the_older(log):
    sender = Sender(log, transactional=True)
    sender.send(b"a")
    log.append_marker(ProducerIdAndEpoch(7, 1), commit=False, coordinator_epoch=2)
    with pytest.raises(ProducerFenced):
        sender.send(b"late")
    with pytest.raises(ProducerFenced):
        sender.end(commit=True, coordinator_epoch=2)
    with pytest.raises(CoordinatorFenced):
        log.append_marker(ProducerIdAndEpoch(7, 1), commit=True, coordinator_epoch=1)
    assert log.end_offset == 2
    assert Sender(log, epoch=1, transactional=True).send(b"new") == range(2, 3)


def test_read_only_logs_take_no_markers(tmp_path, db, log):
    sender = Sender(log)
    sender.send(b"a")
    with open_bare(tmp_path / "db", mode="r") as reader, pytest.raises(ReadOnly):
        reader.log("t").append_marker(sender.name, commit=True, coordinator_epoch=0)


def test_following_waits_for_what_is_decided_and_passes_what_is_not_handed_out(log):
    sender = Sender(log, transactional=True)
    sender.send(b"no")
    sender.end(commit=False)
    followed = log.follow(0, timeout_ms=0, isolation_level="read_committed")
    assert list(followed) == []
    everything = log.follow(0, timeout_ms=0)
    assert [record.value for record in everything] == [b"no"]  # and not for ever, though a marker is the last record
    stop, found = threading.Event(), []
    first = threading.Event()

    def follow() -> None:
        for record in log.follow(0, stop=stop, isolation_level="read_committed"):
            found.append(record.value)
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    sender.send(b"open")
    sender.end(commit=True)
    assert first.wait(30)
    sender.send(b"never decided")
    stop.set()
    thread.join(30)
    assert (thread.is_alive(), found) == (False, [b"open"])


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_restart_forgets_nothing_that_is_in_the_log(tmp_path, db, log, clean):
    plain, loser, undecided = Sender(log, 1), Sender(log, 2, transactional=True), Sender(log, 3, transactional=True)
    plain.send(b"a")
    loser.send(b"no")
    db._store.checkpoint([log])
    again = plain.image(b"b")
    plain.send(b"b")
    loser.end(commit=False)
    undecided.send(b"open")
    log.append(b"after")
    log.flush(sync=False)
    aborted, opened = log.aborted_transactions(0, 9), log.open_transactions()
    assert (len(aborted), len(opened)) == (1, 1)
    with reopened(db, tmp_path / "db", clean=clean) as again_open:
        log = again_open.log("t")
        assert log.aborted_transactions(0, 9) == aborted
        assert [each[:3] for each in log.open_transactions()] == [each[:3] for each in opened]
        assert (log.last_stable_offset, committed(log)) == (4, [b"a", b"b"])
        assert log.append_batches(again) == range(2, 3)
        plain.log = undecided.log = log
        assert plain.send(b"c") == range(6, 7)
        with pytest.raises(OutOfOrderSequence):
            log.append_batches(batch([b"gap"], 1, 0, 9))
        with pytest.raises(InvalidTransactionState):
            log.append_batches(batch([b"outside"], 3, 0, 1))
        undecided.end(commit=True)
        assert committed(log) == [b"a", b"b", b"open", b"after", b"c"]


def test_a_clean_close_leaves_nothing_to_be_walked(tmp_path, io):
    with open_bare(tmp_path / "db") as db:
        log = made(db)
        Sender(log).send(b"a")
        db._store.checkpoint([log])
        Sender(log).log.append_many([b"b"] * 10)
    assert snapshots(tmp_path / "db")[-1] == 11
    with open_bare(tmp_path / "db", io=io) as db:
        log = db.log("t")
        assert log.producers_offset == 11
        assert io.count("preadinto", ".log") <= 1  # resuming at the last entry of the index


def test_logs_without_producers_have_none_of_the_files_and_look_for_none(tmp_path, io):
    with open_bare(tmp_path / "db", io=io) as db:
        log = made(db)
        log.append_many([b"a"] * 10)
        log.append_batches(encode_log([[b"b"]]))
        db._store.checkpoint([log])
        assert (log.last_stable_offset, log.open_transactions(), log.aborted_transactions(0, 11)) == (11, [], [])
        assert committed(log) == [b"a"] * 10 + [b"b"]
    assert [name for _, name in io.calls if name.endswith((".snapshot", ".txnindex", ".snapshot.tmp"))] == []


def test_two_snapshots_are_kept(tmp_path, db, log):
    for number in range(5):
        Sender(log, number).send(b"a")
        db._store.checkpoint([log])
    assert snapshots(tmp_path / "db") == [4, 5]


def test_a_snapshot_is_durable_before_the_catalogue_names_it_and_the_log_before_the_snapshot(tmp_path, db, log, io):
    sender = Sender(log, transactional=True)
    sender.send(b"a")
    sender.end(commit=False)
    io.calls.clear()
    db._store.checkpoint([log])
    synced = [Path(path).name for kind, path in io.calls if kind in ("fdatasync", "fsync_dir", "rename")]
    snapshot = f"{2:020d}.snapshot.tmp"
    assert synced.index(f"{0:020d}.log") < synced.index(snapshot)
    assert synced.index(f"{0:020d}.txnindex.tmp") < synced.index(snapshot)
    assert "t-0" in synced[synced.index(snapshot) :]


def test_a_checkpoint_that_fails_leaves_the_older_snapshot(tmp_path, db, log, io):
    Sender(log, 1).send(b"a")
    db._store.checkpoint([log])
    Sender(log, 2).send(b"b")
    io.fail("create", 28, ".snapshot")
    with pytest.raises(DiskFull):
        db._store.checkpoint([log])
    assert log.producers_offset == 1
    io.heal()
    db._store.checkpoint([log])
    assert log.producers_offset == 2


@pytest.mark.parametrize("damage", ["missing", "damaged", "all damaged", "all missing"])
def test_a_lost_snapshot_is_made_anew(tmp_path, db, log, damage):
    for number in range(3):
        Sender(log, number, transactional=number == 1).send(b"%d" % number)
        db._store.checkpoint([log])
    db.close()
    files = sorted((tmp_path / "db" / "t-0").glob("*.snapshot"))
    assert len(files) == 2
    for file in files if damage.startswith("all") else files[-1:]:
        if damage.endswith("missing"):
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1] + b"?")
    with open_bare(tmp_path / "db", clock=lambda: NOW) as again:
        log = again.log("t")
        assert any("rebuilt from the log" in report for report in again.reports)
        for number in range(3):
            assert log.append_batches(batch([b"%d" % number], number, 0, 0, transactional=number == 1)) == range(number, number + 1)
        assert log.last_stable_offset == 1
    assert logdb.verify(tmp_path / "db").ok
    with open_bare(tmp_path / "db", clock=lambda: NOW) as again:
        again.log("t")
        assert again.reports == ()


def test_producers_expire_after_a_day(tmp_path):
    now = [NOW]
    with open_bare(tmp_path / "db", clock=lambda: now[0]) as db:
        log = made(db)
        Sender(log, 1).send(b"a")
        undecided = Sender(log, 2, transactional=True)
        undecided.send(b"b")
        now[0] += EXPIRATION_MS - 1
        Sender(log, 3).send(b"c")
        db._store.checkpoint([log])
        with pytest.raises(OutOfOrderSequence):
            Sender(log, 1, sequence=9).send(b"gap")
        now[0] += 60_000  # it is looked at once a minute
        log.append_many([b"d"])
        db._store.checkpoint([log])
        assert Sender(log, 1, sequence=9).send(b"unknown") == range(4, 5)
        with pytest.raises(OutOfOrderSequence):
            Sender(log, 3, sequence=9).send(b"gap")
        assert log.last_stable_offset == 1  # an open transaction keeps its producer
        undecided.end(commit=True)


# ---------------------------------------------------------------- segments


def test_aborted_transactions_over_many_segments(tmp_path):
    with open_bare(tmp_path / "db") as db:
        log = made(db, segment_bytes=1024)
        expected, aborted = [], []
        undecided = Sender(log, 99, transactional=True)
        undecided.send(b"long")  # spans them all
        for number in range(40):
            sender = Sender(log, number, transactional=True)
            first = sender.send(b"%d" % number * 50)[0]
            last = sender.end(commit=number % 3 > 0)
            if number % 3:
                expected.append(b"%d" % number * 50)
            else:
                aborted.append((number, first, last))
        last = undecided.end(commit=False)
        assert len(log.segments) > 5
        every = log.aborted_transactions(0, log.end_offset)
        assert [entry[:3] for entry in every] == [*aborted, (99, 0, last)]
        assert committed(log) == expected
    indexes = sorted((tmp_path / "db" / "t-0").glob("*.txnindex"))
    assert len(indexes) > 3
    for mode in ("a", "r"):
        with open_bare(tmp_path / "db", mode=mode) as db:
            log = db.log("t")
            assert log.aborted_transactions(0, log.end_offset) == every
            assert committed(log) == expected
            middle = every[6]
            found = log.aborted_transactions(middle.first_offset, middle.first_offset + 1)
            assert found == [middle, every[-1]]  # what ended before is over, what ends later is in a later segment


# Only verify can tell that an unsealed segment has one.
@pytest.mark.parametrize(("which", "damage"), [(0, "missing"), (0, "damaged"), (-1, "damaged")])
@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_lost_index_is_made_anew(tmp_path, damage, mode, which):
    with open_bare(tmp_path / "db") as db:
        log = made(db, segment_bytes=1024)
        for number in range(20):
            sender = Sender(log, number, transactional=True)
            sender.send(b"no" * 50)
            sender.end(commit=False)
        every = log.aborted_transactions(0, log.end_offset)
    index = sorted((tmp_path / "db" / "t-0").glob("*.txnindex"))[which]
    if damage == "damaged":
        index.write_bytes(index.read_bytes()[:-1])
    else:
        index.unlink()
    with open_bare(tmp_path / "db", mode=mode) as db:
        log = db.log("t")
        assert log.aborted_transactions(0, log.end_offset) == every
        assert committed(log) == []


def test_a_damaged_log_ends_what_is_known_of_producers(tmp_path, db, log):
    Sender(log, 1).send(b"a" * 100)
    Sender(log, 2).send(b"b" * 100)
    db.close()
    for file in (tmp_path / "db" / "t-0").glob("*.snapshot"):
        file.unlink()
    (file,) = (tmp_path / "db" / "t-0").glob("*.log")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with open_bare(tmp_path / "db") as again:
        log = again.log("t")
        assert "CRC" in (log.read_only_reason or "")
        with pytest.raises(CorruptionError):
            values(log)


# ---------------------------------------------------------------- beside the writer


def test_a_reader_sees_what_is_decided(tmp_path, db, log):
    with open_bare(tmp_path / "db", mode="r") as reader:
        tail = reader.log("t")
        assert (tail.last_stable_offset, committed(tail)) == (0, [])
        sender = Sender(log, transactional=True)
        sender.send(b"no")
        log.flush()
        assert (tail.end_offset, tail.last_stable_offset, committed(tail)) == (1, 0, [])
        assert [each[:3] for each in tail.open_transactions()] == [(7, 0, 0)]
        sender.end(commit=False)
        db._store.checkpoint([log])
        sender.send(b"yes")
        sender.end(commit=True)
        sender.send(b"open")
        log.flush()
        assert (tail.last_stable_offset, committed(tail)) == (4, [b"yes"])
        assert tail.aborted_transactions(0, 4) == log.aborted_transactions(0, 4)
        assert tail.read_batches(0, isolation_level="read_committed")[1] == 4
        with open_bare(tmp_path / "db", mode="r") as later:
            tail = later.log("t")
            assert (tail.last_stable_offset, committed(tail)) == (4, [b"yes"])
            assert tail.aborted_transactions(0, 4) == log.aborted_transactions(0, 4)
            assert [record.value for record in tail.follow(0, timeout_ms=0, isolation_level="read_committed")] == [b"yes"]


def test_a_marker_between_the_verification_and_the_batch_refuses_it(log):
    """KIP-890; a batch of a transaction that is open needs no verification."""
    producer = ProducerIdAndEpoch(7, 0)
    sent = [batch([b"x"], 7, 0, sequence, transactional=True) for sequence in range(3)]
    verified = {7: log.verification(7)}
    log.append_marker(producer, commit=False, coordinator_epoch=0)
    end_offset = log.end_offset
    with pytest.raises(ConcurrentTransactions, match="ended before its batch arrived"):
        log.append_batches(sent[0], verified=verified)
    with pytest.raises(ConcurrentTransactions):
        log.append_batches(sent[0], verified={})
    assert log.end_offset == end_offset
    log.append_batches(sent[0], verified={7: log.verification(7)})
    log.append_batches(sent[1], verified=verified)
    log.append_marker(producer, commit=True, coordinator_epoch=0)
    with pytest.raises(ConcurrentTransactions):
        log.append_batches(sent[2], verified=verified)
    log.append_batches(sent[1], verified=verified)  # a repeated one is known
