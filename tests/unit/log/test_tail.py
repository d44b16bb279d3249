"""A log that is read beside its writer while that cuts it off, or lets it begin anew: at each step of it, and after a kill there."""

import pytest

import logdb
from logdb.codec import arrow
from logdb.errors import LogTruncated, OffsetOutOfRange
from logdb.log.tail import TailLog
from logdb.store import replacement_intent
from logdb.store.truncation import Truncations
from support.followers import open_replica
from support.produced import values


@pytest.fixture
def db(tmp_path):
    with open_replica(tmp_path / "db") as database:
        yield database


@pytest.fixture
def reader(tmp_path, db):
    """Opens readers of the database."""
    opened = []

    def open_reader():
        opened.append(logdb.open(tmp_path / "db", mode="r"))
        return opened[-1].log("t")

    yield open_reader
    for database in opened:
        database.close()


def made(db, count=10, *, sealed=False):
    """A log of ``count`` batches, one record each, in segments of ten, and all of it durable."""
    db.create_topic("t", config={"segment.bytes": 1_024})
    log = db.log("t")
    log.begin_epoch(1)
    append(log, "old", 0, count)
    log.flush()
    if sealed:
        db._store.checkpoint([log])
    return log


def append(log, kind, start, end):
    for number in range(start, end):
        log.append_many([b"%s-%02d" % (kind.encode(), number) * 5])


def cut_and_grown(db, log, offset=4, end=20):
    db._store.truncate_to("t", 0, offset)
    log.begin_epoch(2)
    append(log, "new", offset, end)


def before(monkeypatch, where, name, work):
    """Do ``work`` before the next call of a function, and only then."""
    original, done = getattr(where, name), []

    def first(*arguments, **options):
        if not done:
            done.append(True)
            work()
        return original(*arguments, **options)

    monkeypatch.setattr(where, name, first)
    return done


# ---------------------------------------------------------------- the recovery point


@pytest.mark.parametrize("name", ["_load_epochs", "_look", "_grow", "_open_segment", "_scan"])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("offset", [28, 20, 15, 3])
def test_a_truncation_while_a_reader_is_opened(monkeypatch, db, reader, name, sealed, offset):
    log = made(db, 30, sealed=sealed)
    done = before(monkeypatch, TailLog, name, lambda: db._store.truncate_to("t", 0, offset))
    seen = reader()
    assert done
    assert (seen.end_offset, values(seen)) == (offset, values(log))
    append(log, "new", offset, offset + 1)
    assert (seen.end_offset, values(seen)) == (offset + 1, values(log))


@pytest.mark.parametrize("name", ["_check_identity", "_grow", "_scan"])
@pytest.mark.parametrize("offset", [28, 20, 15, 3])
def test_a_truncation_while_a_reader_looks(monkeypatch, db, reader, name, offset):
    log = made(db, 30, sealed=True)
    seen = reader()
    done = before(monkeypatch, TailLog, name, lambda: db._store.truncate_to("t", 0, offset))
    assert seen.end_offset in (offset, 30)
    assert done
    assert (seen.end_offset, values(seen)) == (offset, values(log))


def test_a_truncation_that_two_looks_at_the_catalogue_see(db, reader):
    log = made(db, 30, sealed=True)
    seen = reader()
    append(log, "old", 30, 40)
    log.flush()
    db._store.checkpoint([log])
    assert seen.start_offset == 0  # looks at the catalogue, not at the files
    db._store.truncate_to("t", 0, 38)
    assert seen.start_offset == 0
    db._store.truncate_to("t", 0, 35)
    assert seen.start_offset == 0
    assert (seen.end_offset, values(seen)) == (35, values(log))


# ---------------------------------------------------------------- steps behind the commit

STEPS = [
    (Truncations, "_finish"),
    (replacement_intent, "rename"),
    (replacement_intent, "remove"),
]


@pytest.mark.parametrize("step", STEPS, ids=[name for _, name in STEPS])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 30, 100])
def test_a_log_that_begins_anew_has_nothing_from_the_commit_on(monkeypatch, db, reader, step, sealed, offset):
    log = made(db, 30, sealed=sealed)
    former = reader()
    assert former.end_offset == 30

    def look():
        for seen in (reader(), former):
            assert (seen.start_offset, seen.end_offset) == (offset, offset)
            assert (values(seen, offset), seen.open_transactions()) == ([], [])
            with pytest.raises(OffsetOutOfRange):
                seen.read(offset + 1)

    done = before(monkeypatch, *step, look)
    db._store.begin_anew("t", 0, offset)
    assert done
    log.begin_epoch(2)
    append(log, "new", offset, offset + 12)
    for seen in (reader(), former):
        assert (seen.start_offset, seen.end_offset, values(seen, offset)) == (offset, offset + 12, values(log, offset))


@pytest.mark.parametrize("step", STEPS, ids=[name for _, name in STEPS])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("offset", [0, 10, 25])
def test_a_log_that_is_cut_off_has_no_more_from_the_commit_on(monkeypatch, db, reader, step, sealed, offset):
    log = made(db, 30, sealed=sealed)
    left = values(log)[:offset]
    former = reader()
    assert former.end_offset == 30

    def look():
        for seen in (reader(), former):
            assert (seen.start_offset, seen.end_offset, values(seen)) == (0, offset, left)

    done = before(monkeypatch, *step, look)
    db._store.truncate_to("t", 0, offset)
    assert done
    log.begin_epoch(2)
    append(log, "new", offset, offset + 12)
    for seen in (reader(), former):
        assert (seen.start_offset, seen.end_offset, values(seen)) == (0, offset + 12, values(log))


@pytest.mark.parametrize("name", ["_grow", "_open_segment"])
@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("offset", [0, 100])
def test_a_log_that_begins_anew_while_a_reader_looks_is_not_an_unknown_topic(monkeypatch, db, reader, name, count, offset):
    db.create_topic("t")
    log, seen = db.log("t"), reader()
    assert seen.end_offset == 0
    append(log, "old", 0, 3)
    log.flush()
    done = before(monkeypatch, TailLog, name, lambda: (db._store.begin_anew("t", 0, offset), append(log, "new", offset, offset + count)))
    assert seen.end_offset in (0, log.end_offset)
    assert done
    assert (seen.end_offset, seen.start_offset, values(seen, offset)) == (log.end_offset, offset, values(log, offset))


def test_an_empty_log_that_begins_anew_beside_a_reader(db, reader):
    db.create_topic("t")
    seen = reader()
    db._store.begin_anew("t", 0, 100)
    assert (seen.start_offset, seen.end_offset, values(seen, 100)) == (100, 100, [])


# ---------------------------------------------------------------- a read that goes on


@pytest.mark.parametrize("options", [{}, {"leader_epoch": 1}])
@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("taken", [1, 3])
def test_a_read_does_not_go_on_with_records_of_another_lineage(db, reader, options, looked, taken):
    log = made(db)
    seen = reader()
    records = seen.read(6, **options)
    got = [next(records).value[:6] for _ in range(taken)]
    cut_and_grown(db, log)
    if looked:
        assert seen.end_offset == 20
    with pytest.raises(LogTruncated):
        got += [record.value[:6] for record in records]
    assert got == [b"old-%02d" % number for number in range(6, 6 + len(got))]


def test_batches_of_arrow_do_not_go_on_with_records_of_another_lineage(db, reader, monkeypatch):
    monkeypatch.setattr(arrow, "_ROWS", 1)  # a batch for each chunk, which is read when it is asked for
    log = made(db)
    batches = reader().read_arrow(6, columns=["value"], use_threads=False)
    got = next(batches)["value"].to_pylist()
    cut_and_grown(db, log)
    with pytest.raises(LogTruncated):
        got += [value for batch in batches for value in batch["value"].to_pylist()]
    assert [value[:6] for value in got] == [b"old-%02d" % number for number in range(6, 10)]


def test_a_read_goes_on_where_the_log_has_only_grown(db, reader):
    log = made(db)
    seen = reader()
    records = seen.read(6)
    next(records)
    log.begin_epoch(2)
    append(log, "new", 10, 20)
    assert [record.offset for record in records] == list(range(7, 20))


def test_a_page_begins_where_the_log_begins_now(tmp_path):
    """Records that are deleted are read no more, though no segment was replaced."""
    with logdb.open(tmp_path / "db") as writer, logdb.open(tmp_path / "db", mode="r") as beside:
        writer.create_topic("t")
        writer.log("t").append_many([b"x"] * 10)
        writer.flush()
        tail = beside.log("t")
        assert tail.page(0, 1 << 20).ends.start_offset == 0
        writer.delete_records("t", 0, 5)
        with pytest.raises(OffsetOutOfRange):
            tail.page(0, 1 << 20)
        assert tail.page(5, 1 << 20).ends.start_offset == tail.ends().start_offset == 5
