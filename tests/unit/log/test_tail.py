"""A log that is read beside its writer while that cuts it off, or lets it begin anew: at each step of it, and after a kill there."""

import pytest

import logdb
from logdb.errors import LogTruncated
from support.followers import open_replica


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


def test_batches_of_arrow_do_not_go_on_with_records_of_another_lineage(db, reader):
    log = made(db)
    batches = reader().read_arrow(6, columns=["value"])
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
