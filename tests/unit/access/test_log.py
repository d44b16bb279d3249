"""The log of a principal reads page by page: of one lineage, though the log is cut off between two pages."""

import pytest

from logdb.access.access_control import AccessControl
from logdb.errors import LogTruncated
from logdb.requests.principals import ANONYMOUS
from support.followers import open_replica
from support.produced import Sender

COUNT, CUT = 30, 20
VALUE_SIZE_BYTES = 100 << 10  # some ten records are a page


@pytest.fixture
def db(tmp_path):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        fill(db, 1, 0)
        yield db


@pytest.fixture
def log(db):
    return AccessControl(db._session).session(ANONYMOUS, "10.0.0.1").log("t")


def fill(db, epoch, start):
    log = db.log("t")
    log.begin_epoch(epoch)
    for number in range(start, COUNT):
        log.append_many([b"%d of epoch %d " % (number, epoch) * (VALUE_SIZE_BYTES // 16)])
    log.flush()


def cut(db):
    """Cut the log off, and let it grow again to the same end."""
    assert db._store.truncate_to("t", 0, CUT) == CUT
    fill(db, db.log("t").leader_epoch + 1, CUT)


def values(batches):
    for batch in batches:
        yield from batch["value"].to_pylist()


WAYS = {
    "records": lambda log, **options: (record.value for record in log.read(0, **options)),
    "columns": lambda log, **options: values(log.read_arrow(0, **options)),
}


@pytest.fixture(params=WAYS)
def read(request):
    return WAYS[request.param]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_pages_are_of_one_log(db, log, read, level):
    found = read(log, isolation_level=level)
    next(found)
    cut(db)
    count = 1
    with pytest.raises(LogTruncated) as told:
        for value in found:
            assert b"epoch 1" in value
            count += 1
    assert (count, told.value.offset, told.value.leader_epoch, told.value.epoch_end_offset) == (CUT, CUT, 1, CUT)


def test_pages_below_a_truncation_stay_as_they_were(db, log, read):
    found = read(log, end_offset=CUT)
    next(found)
    cut(db)
    assert len(list(found)) == CUT - 1


def test_pages_are_of_the_log_that_the_aborted_transactions_were_looked_up_in(db, log, read, monkeypatch):
    db._store.truncate_to("t", 0, CUT)
    sender = Sender(db.log("t"), transactional=True)
    sender.send(b"aborted")
    sender.end(commit=False)
    found = db.log("t").aborted_transactions

    def cut_behind(*where):
        monkeypatch.undo()
        aborted = found(*where)
        cut(db)
        return aborted

    monkeypatch.setattr(db.log("t"), "aborted_transactions", cut_behind)
    assert len(list(read(log, isolation_level="read_committed"))) == COUNT
