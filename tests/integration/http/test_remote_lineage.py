"""What is read behind a URL, page by page, is of one log, though that is cut off between two pages."""

import pytest

import logdb
from logdb.errors import LogTruncated
from support.followers import open_replica

COUNT = 60
VALUE_SIZE_BYTES = 100 << 10  # some ten records are a page


def fill(db, epoch, start):
    log = db.log("t")
    log.begin_epoch(epoch)
    for number in range(start, COUNT):
        log.append_many([b"%d of epoch %d " % (number, epoch) * (VALUE_SIZE_BYTES // 16)])
    log.flush()


def values(batches):
    for batch in batches:
        yield from batch["value"].to_pylist()


WAYS = {
    "records": lambda log, **options: (record.value for record in log.read(0, **options)),
    "columns": lambda log, **options: values(log.read_arrow(0, **options)),
}


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("taken", "cut"), [(15, 5), (15, 14), (1, 45)])
def test_pages_are_of_one_log(tmp_path, read, level, taken, cut):
    """What was read below the cut is of both logs: then reading goes on in the new one."""
    with open_replica(tmp_path / "db") as database:
        database.create_topic("t")
        fill(database, 1, 0)
        with logdb.serve(database, http="127.0.0.1:0") as server, logdb.open(server.addresses[0]) as db:
            pages = read(db.log("t"), isolation_level=level)
            found = [next(pages) for _ in range(taken)]
            assert database._store.truncate_to("t", 0, cut) == cut
            fill(database, 2, cut)
            if taken > cut:
                with pytest.raises(LogTruncated) as told:
                    found += pages
                assert (told.value.leader_epoch, told.value.epoch_end_offset) == (1, cut)
            else:
                found += pages
                assert len(found) == COUNT
    epochs = [2 if taken <= cut <= offset else 1 for offset in range(len(found))]
    assert [value[:20] for value in found] == [(b"%d of epoch %d " % one * 2)[:20] for one in enumerate(epochs)]
