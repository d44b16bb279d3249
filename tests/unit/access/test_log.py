"""The log of a principal reads page by page: of one lineage, though the log is cut off between two pages."""

import pytest

from logdb.access.access_control import AccessControl
from logdb.access.log import ReplicaToRead
from logdb.codec import arrow
from logdb.errors import LogTruncated, NotLeaderOrFollower, OffsetOutOfRange
from logdb.requests.principals import ANONYMOUS
from support.followers import WAYS_TO_READ, open_replica, write_history
from support.produced import Sender

COUNT, CUT = 30, 20


@pytest.fixture(autouse=True)
def a_batch_for_each_chunk(monkeypatch):
    """Columns are read when they are asked for, not some pages before."""
    monkeypatch.setattr(arrow, "_ROWS", 1)


@pytest.fixture
def db(tmp_path):
    with open_replica(tmp_path / "db") as db:
        db.create_topic("t")
        write_history(db.log("t"), 1, COUNT)
        yield db


@pytest.fixture
def log(db):
    return AccessControl(db._session).session(ANONYMOUS, "10.0.0.1").log("t")


def cut(db):
    """Cut the log off, and let it grow again to the same end."""
    assert db._store.truncate_to("t", 0, CUT) == CUT
    write_history(db.log("t"), db.log("t").leader_epoch + 1, COUNT)


@pytest.fixture(params=WAYS_TO_READ)
def read(request):
    return WAYS_TO_READ[request.param]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_pages_are_of_one_log(db, log, read, level):
    found = read(log, isolation_level=level)
    next(found)
    cut(db)
    count, told = 1, None
    try:
        for value in found:
            assert b"epoch 1" in value
            count += 1
    except LogTruncated as error:
        told = error.offset, error.leader_epoch, error.epoch_end_offset
    is_read_ahead = told is None and read is WAYS_TO_READ["columns"]
    assert (count, told) == ((COUNT, None) if is_read_ahead else (CUT, (CUT, 1, CUT)))


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


class Followed:
    """A replica that this node follows in sync."""

    leader_epoch = 2

    def __init__(self, log):
        self.log = log

    def nearest(self, rack, offset):
        return None


@pytest.mark.parametrize("offset", [CUT - 1, CUT, COUNT - 1])
def test_a_follower_that_is_cut_off_during_a_read_sends_the_reader_to_its_leader(db, offset):
    """As after an unclean election: what the reader was about to get is another history, or has lost its markers."""
    db.log("t").follow_leader(3, 2)
    replica = ReplicaToRead(AccessControl(db._session).session(ANONYMOUS, "10.0.0.1"), Followed(db.log("t")))
    before = replica.page(0, 1)
    db._store.truncate_to("t", 0, CUT)
    if offset < CUT:
        assert replica.page(0, 1)[:2] == before[:2]
        assert replica.page(offset, 1 << 20).next_offset == CUT, "up to where it was cut off"
    else:
        with pytest.raises(NotLeaderOrFollower, match=f"no offset {offset}: ask the leader"):
            replica.page(offset, 1 << 20)
    with pytest.raises(NotLeaderOrFollower):
        replica.page(0, 1, committed=True)


def test_a_leader_says_itself_that_an_offset_is_out_of_range(db):
    replica = ReplicaToRead(AccessControl(db._session).session(ANONYMOUS, "10.0.0.1"), Followed(db.log("t")))
    with pytest.raises(OffsetOutOfRange):
        replica.page(COUNT + 1, 1)
