"""What is read behind a URL, page by page, is of one log, though that is cut off between two pages."""

import pytest

import logdb
from logdb.codec import arrow
from logdb.errors import LogTruncated
from support.followers import WAYS_TO_READ, open_replica, write_history

COUNT = 60


@pytest.fixture(autouse=True)
def a_batch_for_each_chunk(monkeypatch):
    """Columns are read when they are asked for, not some pages before."""
    monkeypatch.setattr(arrow, "_ROWS", 1)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("read", WAYS_TO_READ.values(), ids=WAYS_TO_READ)
@pytest.mark.parametrize(("taken", "cut"), [(15, 5), (15, 14), (1, 45)])
def test_pages_are_of_one_log(tmp_path, read, level, taken, cut):
    """What was read below the cut is of both logs: then reading goes on in the new one."""
    with open_replica(tmp_path / "db") as database:
        database.create_topic("t")
        write_history(database.log("t"), 1, COUNT)
        with logdb.serve(database, http="127.0.0.1:0") as server, logdb.open(server.addresses[0]) as db:
            pages = read(db.log("t"), isolation_level=level)
            found = [next(pages) for _ in range(taken)]
            assert database._store.truncate_to("t", 0, cut) == cut
            write_history(database.log("t"), 2, COUNT)
            if taken > cut:
                with pytest.raises(LogTruncated) as told:
                    found += pages
                assert (told.value.leader_epoch, told.value.epoch_end_offset) == (1, cut)
            else:
                found += pages
                assert len(found) == COUNT
    epochs = [2 if taken <= cut <= offset else 1 for offset in range(len(found))]
    assert [value[:20] for value in found] == [(b"%d of epoch %d " % one * 2)[:20] for one in enumerate(epochs)]


@pytest.mark.parametrize("read", WAYS_TO_READ.values(), ids=WAYS_TO_READ)
@pytest.mark.parametrize(("taken", "cut", "count"), [(1, 5, 1), (15, 5, 1), (15, 5, 30), (15, 5, 0)])
def test_a_read_ends_in_a_log_that_ends_earlier_now(tmp_path, read, taken, cut, count):
    """It asked again and again for the records between the end of now and the one of its begin."""
    with open_replica(tmp_path / "db") as database:
        database.create_topic("t")
        write_history(database.log("t"), 1, COUNT)
        with logdb.serve(database, http="127.0.0.1:0") as server, logdb.open(server.addresses[0]) as db:
            pages = read(db.log("t"))
            for _ in range(taken):
                next(pages)
            database._store.truncate_to("t", 0, cut)
            write_history(database.log("t"), 2, cut + count)
            with pytest.raises(LogTruncated) as told:
                list(pages)
    assert told.value.epoch_end_offset == {1: cut, 2: cut + count}[told.value.leader_epoch]
