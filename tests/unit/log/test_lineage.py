"""Iterators that were begun before a truncation and are read after it: records of one log only, or LogTruncated."""

from itertools import product

import pytest

import logdb
from logdb.errors import LogTruncated
from logdb.log.epochs import LeaderEpochs
from logdb.log.reading import Lineage
from logdb.model import OFFSET_MAX
from support.followers import open_replica
from support.produced import Sender

COUNT, CUT = 60, 20


@pytest.fixture
def db(tmp_path):
    with open_replica(tmp_path / "db", batch_size=200) as db:
        db.create_topic("t", config={"segment.bytes": 1_024, "index.interval.bytes": 100})
        fill(db.log("t"), 1, 0)
        yield db


def fill(log, epoch, start):
    log.begin_epoch(epoch)
    for number in range(start, COUNT):
        log.append_many([b"%d of epoch %d" % (number, epoch) * 3])
    log.flush()


def cut(db):
    assert db._store.truncate_to("t", 0, CUT) == CUT
    fill(db.log("t"), db.log("t").leader_epoch + 1, CUT)


@pytest.fixture(params=["the writer's", "beside the writer"])
def log(request, tmp_path, db):
    if request.param == "the writer's":
        yield db.log("t")
        return
    with logdb.open(tmp_path / "db", mode="r") as reader:
        log = reader.log("t")
        list(log.read(0))
        yield log


def seen(records):
    """The leader epochs of what an iterator gives, and whether it says in the end that the log was cut off."""
    found = []
    try:
        for record in records:
            found.append((record.offset, record.leader_epoch))  # noqa: PERF401 -- those before the error count
    except LogTruncated as error:
        return found, error
    return found, None


def is_of_one_log(found, error):
    epochs = [1 if offset < CUT else epoch for offset, epoch in found]
    return epochs == [1] * len(epochs) or (epochs == [1 if offset < CUT else 2 for offset, _ in found] and error is None)


OPTIONS = ({}, {"leader_epoch": 1}, {"end_offset": 55}, {"isolation_level": "read_committed"})
OFFSETS = (0, CUT - 1, CUT, CUT + 1, 50)


@pytest.mark.parametrize("known", [False, True])
def test_iterators_from_before_a_truncation(log, db, known):
    for offset in OFFSETS if known else ():  # where the record lies is cached
        next(log.read(offset))
    begun = []
    for options, offset, taken in product(OPTIONS, OFFSETS, range(3)):
        records = log.read(offset, **options)
        found = [(record.offset, record.leader_epoch) for _, record in zip(range(taken), records, strict=False)]
        begun.append((options, offset, records, found))
    cut(db)
    assert log.end_offset == COUNT  # the reader has looked
    for options, offset, records, found in begun:
        more, error = seen(records)
        assert is_of_one_log(found + more, error), (options, offset, found, more, error)
        if error is not None:
            assert error.leader_epoch == 1
            assert CUT - 5 <= error.epoch_end_offset <= CUT  # a reader beside the writer knows which segments are new
        elif offset > CUT or (offset == CUT and (found or options.get("leader_epoch"))):
            assert [epoch for _, epoch in more] == [1] * len(more), (options, offset, found, more)


@pytest.mark.parametrize("offset", [0, CUT + 1])
def test_columns_from_before_a_truncation(log, db, offset):
    batches = log.read_arrow(offset, columns=["offset", "value"])
    cut(db)
    assert log.end_offset == COUNT
    found = []
    try:
        for batch in batches:
            found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        told = False
    except LogTruncated:
        told = True
    assert told or all(b"epoch 1" in value for _, value in found)
    assert not told or all(number < CUT for number, _ in found)


def test_records_that_were_aborted_in_another_log_are_not_left_out(db):
    log = db.log("t")
    sender = Sender(log, transactional=True)
    sender.send(b"aborted")
    sender.end(commit=False)
    log.append_many([b"end"])
    records = log.read(0, isolation_level="read_committed")
    cut(db)
    found, error = seen(records)
    assert error is not None and [offset for offset, _ in found] == list(range(CUT))


def test_batches_end_where_the_log_that_they_are_of_lets_them(db, monkeypatch):
    log = db.log("t")
    log.move_high_watermark(COUNT, leader_epoch=1)
    found = log._view_from

    def cut_first(offset):
        monkeypatch.undo()
        cut(db)
        return found(offset)

    monkeypatch.setattr(log, "_view_from", cut_first)
    assert log.read_batches(CUT - 1)[1] == CUT == log.high_watermark


def test_a_read_that_finds_that_the_log_was_cut_off_is_of_the_new_log(tmp_path, db):
    with logdb.open(tmp_path / "db", mode="r") as reader:
        log = reader.log("t")
        for read in (lambda: log.read(COUNT), lambda: log.read(CUT + 1, isolation_level="read_committed"), lambda: log.read_arrow(COUNT)):
            assert log.end_offset == COUNT
            list(log.read(0))
            cut(db)
            db.log("t").append_many([b"more"] * 5)
            list(read())
            db._store.truncate_to("t", 0, CUT)
            fill(db.log("t"), db.log("t").leader_epoch + 1, CUT)


def test_a_lineage_ends_at_the_lowest_of_the_cuts_behind_it():
    first, epochs = Lineage(), LeaderEpochs(((3, 0), (4, 10)))
    assert (first.cut_offset, first.epoch_before(5)) == (OFFSET_MAX, -1)
    second = first.end(20, epochs)
    third = second.end(5, epochs)
    assert (first.cut_offset, second.cut_offset, third.cut_offset) == (5, 5, OFFSET_MAX)
    assert (first.epoch_before(0), first.epoch_before(10), first.epoch_before(11)) == (-1, 3, 4)


@pytest.mark.parametrize(
    ("former", "later", "end_offset", "common"),
    [
        ((), (), 9, 9),
        (((0, 0),), ((0, 0), (1, 9)), 9, 9),
        (((0, 0),), ((0, 0), (1, 5)), 9, 5),
        (((0, 0), (1, 4)), ((0, 0), (2, 6)), 9, 4),
        (((1, 0),), ((9, 5),), 9, 0),
        (((0, 0),), ((9, 5),), 9, 5),
    ],
)
def test_two_logs_agree_up_to_another_epoch(former, later, end_offset, common):
    assert LeaderEpochs(former).common_end(LeaderEpochs(later), end_offset) == common
